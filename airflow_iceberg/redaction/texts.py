"""Texts without the secrets in them, which are recognised by what is around them or by what they are.

Everything that is said by others (servers, clusters, drivers, programs) passes `said`, or an error of this package,
which does the same with its message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_iceberg.redaction.addresses import login_spans
from airflow_iceberg.redaction.couples import couple_spans
from airflow_iceberg.redaction.pairs import pair_spans
from airflow_iceberg.redaction.spellings import spellings
from airflow_iceberg.redaction.tokens import NEEDLES, token_spans

HIDDEN = "***"
Span = tuple[int, int]

# A text without any of these has no secret that could be recognised: most messages are done with one search.
_ANY = (
    r"(?i)secret|pass|pwd|ugi|token|cred|cookie|bearer|sas|sig|jwt|dsn|key|hmac|jaas|connection.{0,2}string|kwargs|auth"
    r"|header|identified|delegation|storage|assertion|saml|@|basic|negotiate|-----|%[0-9A-F]{2}|\\[ux]|&#|b3BlbnNz"
    r"|\s--?[a-zA-Z]|digest|hawk|Private-Lines|s\.\w{24}|gl[a-z]{2,5}-|do[opr]_v1|shp[a-z]{2}_|bot\d|"
    + "|".join(re.escape(each) for each in NEEDLES)
)
# As many characters more than are shown are searched: a secret may be longer than what is shown of a text.
_FURTHER = 1 << 16


def spans(text: str) -> list[Span]:
    """Return where the secrets of a text are, in order, none within another."""
    if re.search(_ANY, text) is None:
        return []
    found = list(_spans(text))
    for steps in spellings(text):
        for start, end in _spans(steps[-1].text):
            for step in reversed(steps):
                start, end = step.written_span(start, end)
            found.append((start, end))
    return _merged(found)


def _spans(text: str) -> Iterator[Span]:
    yield from token_spans(text)
    yield from login_spans(text)
    yield from pair_spans(text)
    yield from couple_spans(text)


def _merged(found: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(each for each in found if each[0] < each[1]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def without_secrets(text: str) -> str:
    """Return a text without secrets that are not known, but recognised.

    These are logins in addresses, proofs of identity such as bearer tokens, all that is named like a secret, and what
    tells by itself what it is.
    """
    parts, position = [], 0
    for start, end in spans(text):
        if text[start:end] != HIDDEN:
            parts.append(text[position:start] + HIDDEN)
            position = end
    return "".join((*parts, text[position:]))


def said(text: object, most: int | None = None) -> str:
    """Return what somebody else says, without secrets and cut to a length.

    Args:
        text: what a server, a cluster, a driver or a program has said; not cut, since the end of a secret may tell
            that it is one.
        most: how many characters at most.
    """
    whole = str(text)
    if most is None:
        return without_secrets(whole)
    return without_secrets(whole[: most + _FURTHER])[:most]
