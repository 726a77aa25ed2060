"""What a stripe of an ORC file may become, and how many rows are read at once if it would be too much as a whole.

Numbers take a fixed width for each row. What texts take follows from the blocks of their bytes, or for those of a
dictionary from the longest one; how many items lists have, from their lengths. Not here: how large the blocks of a
stream are that Arrow holds while it reads (some hundred KB for each).

Spec: ORC Specification v1, Stripes and Column Encodings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_iceberg.data.limits.memory import MemoryLimit
from airflow_iceberg.data.limits.orc.lengths import most_of
from airflow_iceberg.data.limits.orc.tail import (
    BINARY,
    CHAR,
    DECIMAL,
    LIST,
    MAP,
    STRING,
    STRUCT,
    UNION,
    VARCHAR,
    OrcTail,
    Stripe,
    read_tail,
)
from airflow_iceberg.data.limits.protobuf import fields
from airflow_iceberg.errors import FormatError

_TEXTS = (STRING, BINARY, VARCHAR, CHAR)
# Kinds of streams, and of the encodings of columns.
_DATA, _LENGTH, _DICTIONARY_DATA = 1, 2, 3
_DICTIONARIES, _VERSION_2 = (1, 3), (2, 3)
# Bytes of a value in ORC's library and in Arrow.
_VALUE_BYTES, _DECIMAL_BYTES = 24, 48
# Blocks of writers have 64 to 256 KiB.
_BLOCK_BYTES = 1 << 20
# Batches that Arrow reads ahead of who asks for them.
_AHEAD = 32
_FAILURES = (ValueError, IndexError, EOFError, OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What columns may take.

    Attributes:
        held: what cannot be read in portions.
        row_bytes: of each row, beside that.
    """

    held: int = 0
    row_bytes: int = 0

    def __add__(self, other: _Memory) -> _Memory:
        return _Memory(self.held + other.held, self.row_bytes + other.row_bytes)


@dataclass(frozen=True, slots=True)
class _Stream:
    offset: int
    length: int


class OrcLimit:
    """The limit for the stripes of a file.

    Args:
        file: an Arrow file.
    Raises:
        FormatError: its end is damaged, or becomes more than the limit.
    """

    def __init__(self, file: Any, limit: MemoryLimit) -> None:
        self._file = file
        self._limit = limit
        try:
            self._tail = read_tail(file, limit.most_bytes)
        except _FAILURES as error:
            raise self._damaged("its end", error) from error
        if self._tail is not None and self._tail.blocks.size > _BLOCK_BYTES:
            self._limit.check(4 * self._tail.blocks.size * len(self._tail.types), 0, "the blocks of its streams")

    def rows(self, names: Collection[str] | None) -> int | None:
        """Return how many rows are read at once, or None if each stripe is small enough to be read as a whole.

        Args:
            names: the top-level columns that are read; None for all.
        Raises:
            FormatError: not even a row can be read below the limit, or the file is damaged.
        """
        tail = self._tail
        if tail is None or not tail.types:
            return None
        top, widest = tail.types[0], 0
        wanted = [child for child, name in zip(top.children, top.names, strict=False) if names is None or name in names]
        for number, stripe in enumerate(tail.stripes):
            try:
                columns = _Columns(self._file, self._limit, tail, stripe)
                found = sum((columns.memory(child, stripe.rows, 0) for child in wanted), _Memory())
            except _FAILURES as error:
                raise self._damaged(f"stripe {number}", error) from error
            stored = min(columns.stored, self._file.size())
            self._limit.check(found.held + found.row_bytes, stored, f"stripe {number} of {stripe.rows} rows")
            if found.held + stripe.rows * found.row_bytes > self._limit.most_bytes:
                widest = max(widest, found.row_bytes)
        return max(1, self._limit.batch_bytes // (_AHEAD * widest)) if widest else None

    def _damaged(self, what: str, error: Exception) -> FormatError:
        if isinstance(error, FormatError):
            return error
        text = f"cannot read an ORC file: {what} is damaged ({error})"
        return FormatError(text, path=self._limit.location)


class _Columns:
    """The streams of a stripe by their columns."""

    def __init__(self, file: Any, limit: MemoryLimit, tail: OrcTail, stripe: Stripe) -> None:
        self._file, self._limit = file, limit
        self._types, self._blocks = tail.types, tail.blocks
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._encodings: list[int] = []
        self.stored = 0
        start = stripe.offset + stripe.index_bytes + stripe.data_bytes
        footer = self._blocks.unpack(self._file.read_at(stripe.footer_bytes, start), self._most())
        offset = stripe.offset
        for number, value in fields(memoryview(footer)):
            if isinstance(value, int) or number > 2:
                continue
            found = {key: one for key, one in fields(value) if isinstance(one, int)}
            if number == 1:
                length = found.get(3, 0)
                self._streams[found.get(2, 0), found.get(1, 0)] = _Stream(offset, length)
                offset += length
            elif number == 2:
                self._encodings.append(found.get(1, 0))

    def memory(self, column: int, rows: int, depth: int) -> _Memory:
        """Return what a column and those in it may become."""
        if depth > len(self._types):
            raise ValueError("a column that contains itself")
        kind = self._types[column]
        self.stored += sum(stream.length for (of, _), stream in self._streams.items() if of == column)
        own = _Memory(0, _DECIMAL_BYTES if kind.kind == DECIMAL else _VALUE_BYTES)
        if kind.kind in _TEXTS:
            return own + self._texts(column)
        if kind.kind in (STRUCT, UNION):
            return sum((self.memory(child, rows, depth + 1) for child in kind.children), own)
        if kind.kind not in (LIST, MAP):
            return own
        # A row may have all items.
        count = self._lengths(column, is_sum=True)
        items = sum((self.memory(child, count, depth + 1) for child in kind.children), _Memory())
        return own + _Memory(items.held + count * items.row_bytes)

    def _texts(self, column: int) -> _Memory:
        if self._encoding(column) not in _DICTIONARIES:
            return _Memory(2 * self._size(column, _DATA))
        dictionary = self._size(column, _DICTIONARY_DATA)
        return _Memory(dictionary, min(dictionary, self._lengths(column, is_sum=False)))

    def _lengths(self, column: int, *, is_sum: bool) -> int:
        stream = self._streams.get((column, _LENGTH))
        if stream is None:
            return 0
        self._limit.check(self._size(column, _LENGTH), stream.length, f"the lengths of column {column}")
        data = self._blocks.unpack(self._file.read_at(stream.length, stream.offset), self._most())
        return most_of(data, is_version_2=self._encoding(column) in _VERSION_2, is_sum=is_sum)

    def _size(self, column: int, kind: int) -> int:
        stream = self._streams.get((column, kind))
        if stream is None:
            return 0
        return self._blocks.unpacked_size(self._file.read_at, stream.offset, stream.length)

    def _encoding(self, column: int) -> int:
        return self._encodings[column] if column < len(self._encodings) else 0

    def _most(self) -> int:
        return self._limit.most_bytes
