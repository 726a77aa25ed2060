"""How much a server may answer, and for how long: all numbers, by the kind of answer, in one table.

Who asks names the kind. Not here: reading an answer within its limit (`storage.answers`).

A server may be hostile, or another program than a catalog: some KB that decompress to gigabytes, a body without an end,
a byte each half second. None of that may take the memory of a worker, or hold one of its threads for ever.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

_KB, _MB = 1 << 10, 1 << 20

ALWAYS_ALLOWED_BYTES = 8 * _MB
MOST_TIMES_LARGER = 64
"""An answer may decompress to so many times its size; JSON of catalogs, at its best, to a thirtieth."""
_ALWAYS_ALLOWED_VALUES = 1_000_000
_LEAST_BYTES_OF_A_VALUE = 6
HEAD_BYTES = 256 * _KB
"""All lines before the body, those of `100 Continue` among them."""
MOST_COOKIES = 64
GRACE_S = 30.0
"""Seconds from the first byte of an answer, during which it may be as slow as it likes."""
LEAST_BYTES_PER_S = 64 * _KB
"""After these, it has to be so fast on the whole."""
MOST_S = 600.0
"""Seconds from the first byte of an answer to its last, however large it is."""
MOST_PAGES = 10_000
MOST_PAGES_BYTES = 32 * _MB
MOST_PAGES_S = 900.0

WHO_ANSWERS = "check the uri of the connection, and that its server is the one that you mean"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """The limit of one kind of answer.

    Attributes:
        what: the kind, for messages: "a token".
        most_bytes: the size of the body, decompressed.
        most_values: about how many values a JSON document may have: each is an object, of 60 bytes and more.
        to_do: what to do about a larger one.
        untold_bytes: the size of a body whose answer does not say its length before.
    """

    what: str
    most_bytes: int
    most_values: int = 1_000_000
    to_do: str = WHO_ANSWERS
    untold_bytes: int = 224 * _MB

    def times(self, factor: float) -> Limit:
        """Return the limit of an answer that may be so many times as large."""
        most_bytes, most_values = int(self.most_bytes * factor), int(self.most_values * factor)
        return replace(self, most_bytes=most_bytes, most_values=most_values, untold_bytes=max(most_bytes, 224 * _MB))


TABLE_MB = 160
"""By default; `rest.client.max-table-mb` of the connection. A snapshot has some 800 bytes and 25 values."""

CONFIG = Limit(what="the configuration of a server", most_bytes=_MB)
TOKEN = Limit(what="a token", most_bytes=_MB)
TABLE = Limit(
    what="a table",
    most_bytes=TABLE_MB * _MB,
    most_values=5_000_000,
    to_do="expire snapshots of the table, or set rest.client.max-table-mb of the connection if it is that large",
)
PAGE = Limit(
    what="a page of a list",
    most_bytes=32 * _MB,
    most_values=2_000_000,
    to_do="set rest-page-size of the connection, or check that its server is the one that you mean",
)
DOCUMENT = Limit(what="a document", most_bytes=16 * _MB)
SIGNATURE = Limit(what="a signature", most_bytes=_MB)
# Read up to here, and cut: its first words are shown.
ERROR = Limit(what="an error", most_bytes=64 * _KB)
APPLICATIONS = Limit(what="a list of applications", most_bytes=32 * _MB)
DIRECTORY = Limit(
    what="a directory", most_bytes=96 * _MB, most_values=6_000_000, to_do="keep fewer files in one directory"
)


GLUE = Limit(what="an answer of Glue", most_bytes=32 * _MB, most_values=2_000_000)
METASTORE_STRUCTS = 400_000
METASTORE = Limit(what="an answer of a metastore", most_bytes=16 * _MB, most_values=1_000_000)
# A page has a thousand keys of 1 KB at most, and each of its characters may need six.
XML = Limit(what="a listing of a store", most_bytes=8 * _MB, to_do="check the server of the store")
MOST_MARKS = 400_000
"""How many marks of elements an answer in XML has at most; each element is an object."""
LISTING = Limit(what="a listing of a store", most_bytes=32 * _MB, to_do="check the server of the store")
STORE_HEAD_S = 50.0
"""Seconds until an answer of Google Cloud Storage begins."""
AZURE_S = 600.0
"""Seconds for a request to Azure, with all tries of its SDK, and all parts of a file."""
FILE = Limit(what="a file", most_bytes=2048 * _MB, to_do="check the server of the store")


def file_of(size_bytes: int) -> Limit:
    """Return the limit of a file, or of a part of one, whose size is known."""
    return replace(FILE, most_bytes=min(size_bytes, FILE.most_bytes))


def seconds_allowed(received: int, grace_s: float) -> float:
    """Return how long an answer may take from its first byte on, when so many bytes have come."""
    return grace_s + min(received / LEAST_BYTES_PER_S, MOST_S)


def grown_limit(received: int) -> int:
    """Return to how many bytes an answer may be decompressed of which so many have come."""
    return max(ALWAYS_ALLOWED_BYTES, MOST_TIMES_LARGER * received)


def excess_of(body: bytes, most_values: int) -> tuple[int, int] | None:
    """Return how many values a JSON document has, about, and how many it may have; None if it has no more.

    A few are allowed in any case. Many have to be as long as those of catalogs are: the shortest ones cost memory most.
    """
    most = min(most_values, max(_ALWAYS_ALLOWED_VALUES, len(body) // _LEAST_BYTES_OF_A_VALUE))
    found = sum(map(body.count, (b",", b"[", b"{")))
    return (found, most) if found > most else None


def parsed(body: bytes, most_values: int) -> Any:
    """Return the JSON document in the body of an answer.

    Raises:
        ValueError: it is none, or has too many values.
        RecursionError: it is nested too deeply.
    """
    if excess := excess_of(body, most_values):
        raise ValueError(f"it has about {excess[0]} values, expected at most {excess[1]}")
    return json.loads(body, parse_constant=_no_number)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
