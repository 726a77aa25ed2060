"""What a secret is, and how it is kept out of messages, logs, command lines and documents.

The one place that decides which names are those of secrets, which texts in a value are secrets, and how they are
removed from a text. Hooks, back ends, stores and catalogs apply it.

The name is checked first (`s3.secret-access-key`), with wide patterns, since a new kind of key has an unforeseen name.
Then the value: hiding that of a setting that only sounds like a secret (`token-refresh-enabled` is "true",
`oauth2-server-uri` is an address) would hide parts of every log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_iceberg.errors import InvalidInputError

HIDDEN = "***"
# Shorter texts are parts of every other word.
_SHORTEST = 4
# The same for texts in a document without the name of a secret, and for headers of gateways.
_SHORTEST_UNNAMED = 8

# A pattern with the same meaning in Java and in Python: Spark uses it, too.
_STRONG = (
    r"secret|pass(?:w|phrase|code)|(?:key|store|user|(?<![a-z]))pass(?![a-z])|(?<![a-z])(?:pwd|ugi)(?![a-z])"
    r"|token|credential|cookie|bearer|(?<![a-z])(?:sas|sig|jwt|dsn)(?![a-z])"
    r"|(?:access|account|api|private|shared|signing|service|master|sse|storage|fernet"
    r"|subscription|functions|decryption|sse.{0,2}c|sse.{0,2}customer).{0,2}key|(?<![a-z])hmac(?![a-z])"
    # environment variables: S3_KEY
    r"|(?-i:(?<!PRIMARY)(?<!PARTITION)(?<!FOREIGN)(?<!SORT)(?<!MESSAGE)_KEY(?![A-Z_]))"
    r"|encryption.{0,2}key(?!.{0,2}(?:id|arn|name))|jaas.{0,2}config|connection.{0,2}string|session.{0,2}kwargs|airflow.iceberg.storage"
)
# A header of any name may be the key of a gateway.
_HEADER = r"(?:^|\.)header\.(?!(?:x-iceberg-access-delegation|accept|content-type|user-agent)$)"
_NAMES = rf"{_STRONG}|auth|signature|{_HEADER}"
SPARK_PATTERN = f"(?i){_NAMES}"
"""The same as `is_secret` for `spark.redaction.regex`: what matches is hidden in Spark's log, UI and events."""

# Texts, compiled when they are first used: a DAG file imports this module and hides nothing.
_STRONG_NAME = rf"(?i){_STRONG}|{_HEADER}"
_NAMED_FOR_IT = r"(?i)(?:key|key.?id|auth|authorization|signature)$"
# Numbers about a secret: "s3.session-token-expires-at-ms". Any other number may be a password.
_MEASURE = (
    r"(?i)(?<![a-z])(?:ms|sec|secs|seconds|minutes|hours|days|ttl|min|max|age|port|size|length|count|version|bits"
    r"|retries|attempts|interval|timeout|lifetime|refresh|renew|expir\w*)(?![a-z])"
)
# Settings about a proof of identity, which are no secrets: "rest.auth.type", "oauth2-server-uri", "…authority-host".
_ABOUT_IT = (
    r"(?i)(?:type|mode|enabled?|ur[il]|endpoint|host|port|authority|authentication|authors?|issuer|scopes?|realm"
    r"|mechanism|method|scheme|class|provider|name|email|version|algorithm|timeout|retries|ms|at|source|file|path|tenant|client.id)$"
)
# Names whose values are the place of a secret, or the class that finds it: the place itself is not hidden.
_PLACE_NAME = r"(?:(?i:provider|class|type|conf|config|file|path|dir|location)|\.(?:driver|executor)\.secrets\.[\w-]+)$"
_CLASS = r"(?:[a-z_]\w*\.){2,}[A-Za-z_$][\w$]*"
_FILE = r"(?:file://|local://)?/[\w./@-]*|[\w-]+\.(?:conf|config|xml|json|keytab|properties|jks|pem|p12)"
# A login of Kerberos, of whose options none is a secret.
_OPTION = r"(?:useKeyTab|keyTab|storeKey|useTicketCache|renewTGT|principal|serviceName|refreshKrb5Config|debug)"
_KERBEROS = (
    rf"com\.(?:sun|ibm)\.security\.auth\.module\.Krb5LoginModule\s+\w+(?:\s+{_OPTION}=(?:\"[^\"]*\"|[\w./@-]+))*\s*;?"
)
_PLACE = rf"{_FILE}|{_CLASS}(?:\s*,\s*{_CLASS})*|{_KERBEROS}"
# Hadoop's settings of one account of Azure have its name at their end.
_ACCOUNT = r"\.[\w-]+\.(?:dfs|blob)\.[\w.-]+$"
_KEY_OF_KUBERNETES = r"\.(?:driver|executor)\.secretKeyRef\.[\w-]+$"
_PLAIN_WORD = r"(?i)true|false|none|null|anon|cloud|https?://[^@?]*|"
_NUMBER = r"[0-9.]+"
_CLOSING = "}])"

# With limits: a long text without a login must not be searched from each of its characters to its end.
_LOGIN = (
    r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,63})://(?P<user>[^/]{0,255}?):(?!\d*(?:/|$))"
    r"(?P<password>[^@]{0,1024})@"
)
# A user without a password, too long for a name: "https://<token>@host".
_TOKEN_AS_USER = rf"(?i)https?://([^/@:?#\s]{{{_SHORTEST_UNNAMED},1024}})@"
_PROOF = r"(?i)^(?:Bearer|Basic|Token|ApiKey)\s+(\S+)$"
# A name, up to the sign before its value: "password =", "'password':", "-Dx.password=", "X-Api-Key: ". Each character
# is read once, since a name begins where no other does and gives nothing back.
_NAMED = r"(?<![\w.-])(?:-D)?([\w.-]++)\\*+['\"]?\s*+(?==|:|->)"
# A quoted value. With limits: a quote that does not end must not be searched to the end for each name.
_QUOTED = r"[bu]?(?:\\+['\"](.{0,4096}?)\\+['\"]|\"((?:[^\"\\]|\\.){0,4096}+)\"|'((?:[^'\\]|\\.|''){0,4096}+)')"
# A comma ends a value, unless more of it follows, and a quote does.
_BARE = r"(?:(?i:bearer|basic|token|apikey)[ \t]++)?[\\'\"]*((?:[^\s;&,'\"]|,(?!\s|[\w.-]{1,100}=|$))++)"
# In braces: ODBC. With a colon a blank is needed before a bare value: "host:port" and "name:version" are no pairs.
_VALUE = (
    rf"(?s)(?:=>?(?!=)|->)\s*+(?:{_QUOTED}|\{{((?:[^}}]|\}}\}}){{1,4096}}+)\}}|{_BARE})"
    rf"|:\s*+{_QUOTED}|:[ \t]++(?![\[{{(]){_BARE}"
)
# How many values may be around a pair: x="y='password=z'".
_DEPTH = 3
# So many secrets in one value are not taken out one by one.
_MOST_SECRETS = 200
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----(?:[^-]|-(?!----))*+(?:-----END[A-Z0-9 ]{0,70}-----)?"
)
# Its password ends at the first "@" or at the last one.
_ORACLE = r"(?i)(jdbc:oracle:\w{1,20}:[^/@\s]{0,255}/)(?=([^@\s]{1,1024})@)(\S{1,1024})@"
_SETTING = r"[\w.-]+"
_SIGNED_ADDRESS = r"(?i)SharedAccessSignature=([^;]+)"

_LOGGED_LOGIN = r"//[^/@\s:]{0,255}:(?!\*{3}@)[^/@\s]{0,1024}@"
_QUOTE = r"\\*['\"]?"
_LOGGED = (
    # a header, as a dictionary shows it (in a document perhaps) or a line of its own; a parameter of an address
    rf"(?i)(x-amz-security-token(?:{_QUOTE}\s*[:=]\s*b?{_QUOTE}|%3D))[^'\"\\\s,;&]+",
    rf"(?i)(authorization{_QUOTE}\s*[:=]\s*b?{_QUOTE}(?:bearer|basic)\s+)[^'\"\\\s,;]+",
    # with a digit or a sign in it: no word of a sentence
    r"(?i)\b((?:bearer|basic)\s+)(?=[a-z+/-]*[0-9._~=])[A-Za-z0-9._~+/=-]{8,}",
    r"(?i)(credential=)[^/\s]+",
    r"(?i)([?&](?:delegation|sig|access_token|token)=)[^'\"\\\s&]+",
    # the answer to a login
    r"(?i)(['\"]?(?:access_?token|refresh_?token|id_?token|SessionToken|SecretAccessKey)['\"]?\s*:\s*['\"])[^'\"]+",
    r"(?i)(<(?:SessionToken|SecretAccessKey)>)[^<]+",
)
# Anything else that is named like a secret: in a dictionary, or as a parameter of an address.
_LOGGED_NAME = rf"([\w.-]{{0,60}}(?:{_STRONG}|auth|signature)[\w.-]{{0,60}})"
_LOGGED_PAIRS = (
    rf"(?i)(['\"]{_LOGGED_NAME}\\*['\"]\s*:\s*b?\\*['\"])([^'\"\\]+)",
    rf"(?i)([?&]{_LOGGED_NAME}=)([^'\"\\\s&]+)",
)


def is_secret(name: str) -> bool:
    """Tell whether the value of a property, header, parameter or variable may be a secret, by its name alone."""
    return re.search(SPARK_PATTERN, name) is not None


def hide(name: str, value: Any) -> Any:
    """Return a value for logs and forms: hidden, or without the secrets in it."""
    if isinstance(value, Mapping):
        return {key: hide(f"{name}.{key}", inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(hide(name, inner) for inner in value)
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    if _is_kept(name, text):
        return HIDDEN
    inner_secrets = secrets_of({name: text})
    if len(inner_secrets) > _MOST_SECRETS:
        return HIDDEN
    inner_secrets = [secret for secret in inner_secrets if secret in text]
    if any(len(secret) < _SHORTEST for secret in inner_secrets):
        return HIDDEN
    return replaced(text, inner_secrets) if inner_secrets else value


def secrets_of(properties: Mapping[str, str]) -> list[str]:
    """Return every text in properties that no log may show, each once: values, and secrets in a value.

    These are the password and the parameters of an address, the key in a connection string, the texts of a JSON
    document, the second half of a credential "id:secret", the token of a header.
    """
    found = (secret for name, value in properties.items() for secret in _secrets_in(name, value))
    return [secret for secret in dict.fromkeys(found) if secret]


def hidden_texts(properties: Mapping[str, str]) -> list[str]:
    """Return the secrets to hide in messages, the longest first, since one may be a part of another.

    Short ones are left out, since they are parts of other words.
    """
    found: set[str] = set()
    for name, value in properties.items():
        shortest = _SHORTEST if is_secret(re.sub(f"(?i){_HEADER}", "", name)) else _SHORTEST_UNNAMED
        found |= {each for each in secrets_of({name: value}) if len(each) >= (shortest if each == value else _SHORTEST)}
    return sorted(found, key=len, reverse=True)


def replaced(text: str, secrets: Iterable[str]) -> str:
    """Return a text with asterisks instead of secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def without_secrets(text: str) -> str:
    """Return a message without secrets that are not known, but recognised by what is before them.

    These are logins in addresses, proofs of identity such as bearer tokens, and all that is named like a secret.
    """
    text = re.sub(_PRIVATE_KEY, HIDDEN, text)
    text = re.sub(_LOGGED_LOGIN, f"//{HIDDEN}@", text)
    for part in _LOGGED:
        text = re.sub(part, rf"\1{HIDDEN}", text)
    for pair in _LOGGED_PAIRS:
        text = re.sub(pair, _hide_pair, text)
    text = re.sub(_ORACLE, rf"\1{HIDDEN}@", text)
    return "".join(_without_pairs(text))


def _without_pairs(text: str) -> Iterator[str]:
    """Yield the parts of a message; a colon may be one of its sentences."""
    position = 0
    for sign, name, found in _pairs(text):
        group = found.lastindex or 0
        if sign != ":" and _is_kept_pair(name, found[group]):
            yield text[position : found.start(group)] + HIDDEN
            position = found.end(group)
    yield text[position:]


def _hide_pair(found: re.Match[str]) -> str:
    return found[1] + (HIDDEN if _is_kept(found[2], found[3]) else found[3])


def shown_command(command: Iterable[str]) -> str:
    """Return a command line for a log."""
    return " ".join(_shown_argument(argument) for argument in command)


def secrets_of_argument(argument: str) -> list[str]:
    """Return the secrets in an argument of a command line, which may be a setting `name=value`."""
    return secrets_of(dict([_setting(argument)]))


def _shown_argument(argument: str) -> str:
    name, value = _setting(argument)
    return f"{name}={hide(name, value)}" if name else str(hide("", argument))


def _setting(argument: str) -> tuple[str, str]:
    name, equals, value = argument.partition("=")
    return (name, value) if equals and re.fullmatch(_SETTING, name) else ("", argument)


def _is_kept(name: str, value: str) -> bool:
    """Whether a value is a secret as a whole."""
    if not is_secret(name) or re.fullmatch(_PLAIN_WORD, value.strip()):
        return False
    if re.fullmatch(_NUMBER, value.strip()):
        is_named = re.search(_STRONG_NAME, name) or re.search(_NAMED_FOR_IT, name)
        return bool(is_named) and not re.search(_MEASURE, name)
    name = re.sub(_ACCOUNT, "", name)
    if re.search(_KEY_OF_KUBERNETES, name) or (re.search(_PLACE_NAME, name) and re.fullmatch(_PLACE, value.strip())):
        return False
    return bool(re.search(_STRONG_NAME, name)) or not re.search(_ABOUT_IT, name) or bool(re.search(r"[@?]", value))


def _secrets_in(name: str, value: str) -> Iterator[str]:
    if _is_kept(name, value):
        yield value
        yield from re.findall(_PROOF, value)
        if name.lower().endswith(("credential", "ugi")):
            # "id:secret", whose second half gives access by itself.
            yield value.partition(":")[2]
    document = _document(value)
    if document is not None:
        with suppress(RecursionError):
            yield from _leaves(name, document, below_secret=_is_kept(name, value))
            return
    yield from re.findall(_SIGNED_ADDRESS, value)
    yield from re.findall(_PRIVATE_KEY, value)
    for inner in _values_of_pairs(value):
        yield from dict.fromkeys((inner, unquote(inner), re.sub(r"\\(.)", r"\1", inner)))
        if len(bare := inner.rstrip(_CLOSING)) >= _SHORTEST:
            yield bare
    for password in _passwords(value):
        yield from dict.fromkeys((password, unquote(password)))


def _values_of_pairs(text: str, depth: int = _DEPTH) -> Iterator[str]:
    for _, name, found in _pairs(text):
        value = found[found.lastindex or 0]
        if _is_kept_pair(name, value):
            yield value
        elif depth:
            yield from _values_of_pairs(value, depth - 1)


def _pairs(text: str) -> Iterator[tuple[str, str, re.Match[str]]]:
    """Yield the pairs in a text whose names are those of secrets: the sign between, the name, what matches the value.

    A value is read once, and that of another name only as a part of the text.
    """
    position = 0
    while (named := re.compile(_NAMED).search(text, position)) is not None:
        position = named.end()
        value = re.compile(_VALUE).match(text, position) if is_secret(named[1]) else None
        if value is not None:
            yield text[position], named[1], value
            position = value.end()


def _is_kept_pair(name: str, value: str) -> bool:
    """Whether the value of a pair is a secret, also with brackets around the pair."""
    return _is_kept(name, value) and _is_kept(name, value.rstrip(_CLOSING))


def _document(value: str) -> Any:
    """Return a JSON document, its objects as tuples of pairs, since a name may be in it twice; None if it is none."""
    if value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return json.loads(value, object_pairs_hook=tuple)
    return None


def _leaves(name: str, value: Any, *, below_secret: bool) -> Iterator[str]:
    """Yield the secrets of a document; below the name of a secret these are all long texts."""
    if isinstance(value, tuple):
        for key, inner in value:
            yield from _leaves(key, inner, below_secret=below_secret or is_secret(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(name, inner, below_secret=below_secret)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if _is_kept(name, text) or (below_secret and _is_unnamed_secret(name, text)):
            # Plain, and in the spelling of a document.
            yield from dict.fromkeys((text, json.dumps(text)[1:-1]))
        for secret in _secrets_in(name, text):
            yield from dict.fromkeys((secret, json.dumps(secret)[1:-1]))


def _is_unnamed_secret(name: str, value: str) -> bool:
    is_measure = re.fullmatch(_NUMBER, value) and re.search(_MEASURE, name)
    return len(value) >= _SHORTEST_UNNAMED and not re.fullmatch(_PLAIN_WORD, value) and not is_measure


def _passwords(text: str) -> Iterator[str]:
    """Yield the possible passwords of an address; the end of one with "@" or "/" is not clear."""
    if "://" in text:
        with suppress(ValueError):
            yield urlsplit(text.removeprefix("jdbc:")).password or ""
        yield from (found["password"] for found in re.finditer(_LOGIN, text))
        yield from re.findall(_TOKEN_AS_USER, text)
    for _, first, last in re.findall(_ORACLE, text):
        for password in dict.fromkeys((first, last)):
            yield password.strip('"')


def check_no_password(location: str) -> None:
    """Raise `InvalidInputError` for a location with a password, which would be written into tables, logs and plans."""
    found = re.match(_LOGIN, location.strip())
    if found is not None:
        raise InvalidInputError(
            f"a location that begins with {found['scheme'].lower()}:// contains a user and a password, which would be "
            f"written into tables and logs: remove them, and set them as properties of the catalog's "
            f"connection"
        )


def printable(text: str) -> str:
    """Return a text without control characters: names in a table may be forged to write to a terminal or a log."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


# -- variables of an environment ---------------------------------------------------------------------------------------

# More names than elsewhere: a mistake costs a line in a list, or a refusal that says what to do. `DBPASS`, `PG_PW`,
# `SSHKEY`; not `BYPASS` and `PARTITION_KEY`. Java and Python read it the same.
_VARIABLE_NAME = (
    r"(?:(?<!by)(?<!com)(?<!tres)pass(?:w|wd|word|phrase|code)?|(?<![a-z])pw|pwd|secrets?|tokens?|credentials?"
    r"|(?<![a-z])(?:creds?|auth|jwt|pat|dsn|sas|cookie|webhook|webhook_url)"
    r"|(?<!mon)(?<!tur)(?<!primary_)(?<!partition_)(?<!foreign_)(?<!sort_)(?<!message_)(?<!routing_)keys?)$"
)
# A setting of Spark that is a variable of one of its processes.
_VARIABLE_OF_SPARK = r"spark\.[\w.]*[eE]nv\.(\w+)"
SPARK_VARIABLES_PATTERN = rf"[eE]nv\.\w*{_VARIABLE_NAME}"
"""What to hide in Spark's log and UI beside `SPARK_PATTERN`: settings of variables."""


def is_secret_variable(name: str, value: str) -> bool:
    """Whether a variable of an environment is a secret by its name, or is or contains one by its value."""
    if secrets_of({name: value}):
        return True
    is_named = re.search(f"(?i){_VARIABLE_NAME}", name) is not None
    return is_named and not re.fullmatch(r"(?i)\s*(?:true|false|yes|no|on|off|none|null)?\s*", value)


def is_secret_setting(name: str, value: str) -> bool:
    """Whether a setting of Spark is or contains a secret, also as a variable of one of Spark's processes."""
    variable = re.fullmatch(_VARIABLE_OF_SPARK, name)
    return bool(secrets_of({name: value})) or (variable is not None and is_secret_variable(variable[1], value))
