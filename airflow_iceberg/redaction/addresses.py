"""Logins in addresses: `scheme://user:password@host`, also with raw signs in the password.

Where a password with an "@" or a "/" ends is not clear. What is hidden then is rather too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_iceberg.redaction.words import looks_random

Span = tuple[int, int]

# With limits: a long text without a login must not be searched from each of its characters to its end.
LOGIN = (
    r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,63})://(?P<user>[^/]{0,255}?):(?!\d*(?:/|$))"
    r"(?P<password>[^@]{0,1024})@"
)
# The beginning: two slashes, a user, a colon; then no port.
_USER = r"//([^/\s:'\"<>]{0,255}?)(?::|%3A)(?!\d{0,5}(?:[/?#,;\s'\"<>)\]}\\]|$))"
# A quote inside of a word is part of a password.
_REST = r"(?:[^\s'\"<>`]|(?<=\w)['\"](?=\w)){0,2048}"
_ANOTHER = r"[,;|]?[A-Za-z][A-Za-z0-9+.-]{0,40}://"
# A user without a password, too long for a name: "https://<token>@host".
_TOKEN_AS_USER = r"(?i)(?:https?|wss?|redis|rediss|git\+https)://([^/@:?#\s'\"]{8,1024})@"
_PLAIN_HOST = r"(?:localhost|\[[0-9a-fA-F:]+\]|[\w-]+(?:\.[\w-]+)+|[\w.-]+:\d+)(?=[/?#,;)\]}'\"\s\\]|$)"
# Its password ends at the first "@" or at the last one.
_ORACLE = (
    r"(?i)(?:jdbc:oracle:\w{1,20}:|\b(?:sqlplus|sqlldr|expdp|impdp|rman)\s+(?:-\w+\s+){0,9})[^/@\s]{0,255}/"
    r"(?:\"([^\"\s]{1,1024})\"|(\S{1,1024}))@"
)
# Without a scheme: "user:password@host", but no digest of an image.
_PLAIN_LOGIN = r"(?<![\w/:@.%+-])[\w.-]{1,64}+:([^\s:@/'\"<>,;]{5,256}+)@(?!sha\d)[\w-]+"
_COMMANDS = (
    # with care: only after the programs that mean it so
    r"(?i)\b(?:curl|http|xh)\b[^\n]{0,300}?\s(?:-u|--user|--proxy-user|-U)[ =]?['\"]?[^\s:'\"]{0,255}:([^\s'\"]++)",
    r"(?i)(?:^|[\s'\"(\[])(?:--user|--proxy-user|--creds|--userpass)[= ]['\"]?[^\s:'\"/]{1,255}:([^\s'\"]++)",
    r"(?:^|[\s/;&|(])(?:mysql\w*|mariadb[\w-]*)\s[^\n]{0,300}?-p([^\s'\"]++)",
    (
        r"(?:^|[\s/;&|(])(?:sshpass|mongo\w*|docker login|podman login|helm registry login|beeline|vertica|vsql|trino"
        r"|az login|redis-cli|ldap\w+|sqlcmd|bcp|isql|kinit|keytool|openssl|zip|unzip|7z|snowsql|clickhouse-client)"
        r"(?=\s)[^\n]{0,300}?\s(?:-p|-w|-P|-a|-storepass|-keypass)[ =]?['\"]?((?![- ])[^\s'\"]++)"
    ),
    r"(?i)\bsmbclient\b[^\n]{0,300}?\s-U\s*['\"]?[^\s%'\"]{1,255}%([^\s'\"]++)",
)


def login_spans(text: str) -> Iterator[Span]:
    """Yield where the passwords of logins are, and tokens in the place of a user."""
    if "//" in text and "@" in text:
        yield from _logins(text)
        yield from (each.span(1) for each in re.finditer(_TOKEN_AS_USER, text))
    if "@" in text and "/" in text:
        yield from (each.span(each.lastindex or 0) for each in re.finditer(_ORACLE, text))
    if "@" in text:
        plain = re.finditer(_PLAIN_LOGIN, text)
        yield from (each.span(1) for each in plain if looks_random(each[1]))
    yield from _commands(text)


def _logins(text: str) -> Iterator[Span]:
    begun = re.compile(_USER)
    position = 0
    while (user := begun.search(text, position)) is not None:
        position = user.end()
        end = _end_of_password(text, position)
        if end is not None:
            yield position, end
            position = end


def _end_of_password(text: str, start: int) -> int | None:
    """Return where a password that begins at `start` ends: before the "@" that a host follows; None if it is none."""
    rest = re.compile(_REST).match(text, start)
    stop = start if rest is None else rest.end()
    another = re.compile(_ANOTHER).search(text, start, stop)
    stop = stop if another is None else another.start()
    ends = [each.start() for each in re.compile("@").finditer(text, start, stop)]
    if not ends:
        return None
    plain = re.compile(_PLAIN_HOST)
    # In the part that can only be the login and the host the last one counts.
    border = re.compile(r"[/?#]").search(text, start, stop)
    first = [each for each in ends if border is None or each < border.start()]
    chosen = first[-1] if first else ends[0]
    for later in ends[ends.index(chosen) + 1 :]:
        between = text[chosen + 1 : later]
        if plain.match(text, chosen + 1, stop) or re.search(r"[?#]\w+=", between):
            break
        chosen = later
    return chosen


def _commands(text: str) -> Iterator[Span]:
    if not any(flag in text for flag in (" -", "--user", "--creds", "'-u'", '"-u"')):
        return
    for pattern in _COMMANDS:
        yield from (each.span(1) for each in re.finditer(pattern, text))
