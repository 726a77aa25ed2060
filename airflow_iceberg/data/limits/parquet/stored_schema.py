"""The Arrow schema that a Parquet file keeps in its footer, as a message of Flatbuffers in base64.

Parts of such a message may be used any number of times: a thousand fields that are one, with a text of 100 KB. Arrow
copies each of them. So where its length allows for that, the schema is walked through, and what it becomes is added up.

Spec: Schema.fbs and Message.fbs of Arrow.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator

from airflow_iceberg.data.limits.compact import BINARY, size
from airflow_iceberg.data.limits.memory import MemoryLimit

_KEY = b"ARROW:schema"
# A key and its value, as every writer writes them: a text, and after it another one.
_BEFORE, _AFTER = bytes((0x10 | BINARY, len(_KEY))), 0x10 | BINARY
# Half of a message may be a text, and the other half offsets of four bytes to it.
_TIMES_SQUARE = 16
_PER_FIELD, _PER_PAIR, _DEEPEST = 400, 150, 128
# Places in the tables: of a message, a schema, a field, a pair.
_HEADER, _FIELDS, _SCHEMA_PAIRS = 2, 1, 2
_NAME, _CHILDREN, _FIELD_PAIRS = 0, 5, 6
_PREFIX_BYTES = 8


def check_stored_schema(footer: bytes, limit: MemoryLimit) -> None:
    """Refuse a footer whose Arrow schema becomes more than the limit.

    Raises:
        FormatError: it does, or is no schema.
    """
    for found in re.finditer(re.escape(_KEY), footer):
        try:
            text = _value(footer, found.start(), found.end())
            if len(text) * len(text) // _TIMES_SQUARE <= limit.most_bytes:
                continue
            message = base64.b64decode(text)[_PREFIX_BYTES:]
            schema = _Walk(message, limit)
            schema.add_schema()
        except (ValueError, IndexError, struct.error) as error:
            raise limit.refusal(f"the Arrow schema of a footer that cannot be read ({error})") from error


def _value(footer: bytes, start: int, end: int) -> bytes:
    if footer[start - len(_BEFORE) : start] != _BEFORE or footer[end] != _AFTER:
        raise ValueError("its key is written in another way")
    length, at = size(footer, end + 1)
    return footer[at : at + length]


class _Walk:
    def __init__(self, data: bytes, limit: MemoryLimit) -> None:
        self._data = data
        self._limit = limit
        self._needed = 0

    def add_schema(self) -> None:
        """Add up all that is in the message."""
        message = self._uint(0)
        schema = self._reference(message, _HEADER)
        if schema is None:
            return
        self._pairs(schema, _SCHEMA_PAIRS)
        for field in self._tables(schema, _FIELDS):
            self._field(field, 0)

    def _field(self, table: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError("fields that are nested too deep")
        self._add(_PER_FIELD + self._text_bytes(table, _NAME))
        self._pairs(table, _FIELD_PAIRS)
        for child in self._tables(table, _CHILDREN):
            self._field(child, depth + 1)

    def _pairs(self, table: int, number: int) -> None:
        for pair in self._tables(table, number):
            self._add(_PER_PAIR + self._text_bytes(pair, 0) + self._text_bytes(pair, 1))

    def _add(self, needed: int) -> None:
        self._needed += needed
        self._limit.check(self._needed, 0, "the Arrow schema of a footer")

    def _tables(self, table: int, number: int) -> Iterator[int]:
        """Yield the places of the tables in a vector."""
        vector = self._reference(table, number)
        if vector is None:
            return
        count = self._uint(vector)
        if count * 4 > len(self._data) - vector:
            raise ValueError("a list is cut off")
        for at in range(vector + 4, vector + 4 + 4 * count, 4):
            yield at + self._uint(at)

    def _text_bytes(self, table: int, number: int) -> int:
        text = self._reference(table, number)
        return 0 if text is None else self._uint(text)

    def _reference(self, table: int, number: int) -> int | None:
        """Return the place that a member of a table refers to; None if it has no such member."""
        vtable = table - struct.unpack_from("<i", self._data, table)[0]
        if vtable < 0 or 4 + 2 * number >= struct.unpack_from("<H", self._data, vtable)[0]:
            return None
        offset = struct.unpack_from("<H", self._data, vtable + 4 + 2 * number)[0]
        return table + offset + self._uint(table + offset) if offset else None

    def _uint(self, at: int) -> int:
        if at < 0:
            raise ValueError("a place before the message")
        return int(struct.unpack_from("<I", self._data, at)[0])
