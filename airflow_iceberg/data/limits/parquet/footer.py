"""What the footer of a Parquet file becomes in memory, before Arrow reads it.

A column chunk of three bytes is an object of nearly a thousand in Arrow, and a footer may have millions of them. So a
large footer is walked through once, and what is in it is counted.

Spec: FileMetaData in the Parquet format.
"""

from __future__ import annotations

from typing import Any

from airflow_iceberg.data.limits.compact import LIST, STOP, STRUCT, Skipper, field, list_head
from airflow_iceberg.data.limits.memory import MemoryLimit

# What a reader gets at once from the end of a file: Arrow asks for as much.
TAIL_BYTES = 64 << 10
_END_BYTES = 8
# Bytes of memory for each: of a column in Arrow and here, of a column chunk, of an item of another list.
_PER_COLUMN, _PER_CHUNK, _PER_ITEM = 3_000, 1_000, 80
# All texts are copied once or twice.
_TIMES_BYTES = 3
# A column takes five bytes of a footer at least: nothing that is smaller becomes more.
_MOST_TIMES = 800
_SCHEMA, _ROW_GROUPS, _COLUMNS = 2, 4, 1


def check_footer(file: Any, limit: MemoryLimit) -> None:
    """Refuse a footer that becomes more than the limit.

    Args:
        file: an Arrow file.
    Raises:
        FormatError: it may become more. A file without a footer is left to Arrow.
    """
    size = file.size()
    if size < _END_BYTES:
        return
    length = int.from_bytes(file.read_at(_END_BYTES, size - _END_BYTES)[:4], "little")
    if length + _END_BYTES > size or length * _MOST_TIMES <= limit.most_bytes:
        return
    try:
        needed = _Counted(file.read_at(length, size - _END_BYTES - length), limit.most_bytes).memory()
    except (IndexError, ValueError) as error:
        raise limit.refusal(f"a footer of {length} bytes that cannot be read ({error})") from error
    limit.check(needed, 0, f"a footer of {length} bytes")


class _Counted:
    def __init__(self, data: bytes, most: int) -> None:
        self._data = data
        self._most = most
        self._skipper = Skipper(data, most_items=most // _PER_ITEM)
        self._columns = self._chunks = 0

    def memory(self) -> int:
        """Return how much memory the footer takes, about; the count ends when it is too much."""
        data, at, number = self._data, 0, 0
        while True:
            kind, number, at = field(data, at, number)
            if kind == STOP:
                break
            if kind == LIST and number in (_SCHEMA, _ROW_GROUPS):
                count, item, at = list_head(data, at)
                if number == _SCHEMA:
                    self._columns += count
                for _ in range(count):
                    if not self._is_small():
                        break
                    at = self._group(at) if number == _ROW_GROUPS and item == STRUCT else self._skipper.value(at, item)
            else:
                at = self._skipper.value(at, kind)
            if not self._is_small():
                break
        return self._needed()

    def _group(self, at: int) -> int:
        data, number = self._data, 0
        self._skipper.items += 2  # the group itself
        while self._is_small():
            kind, number, at = field(data, at, number)
            if kind == STOP:
                break
            if kind == LIST and number == _COLUMNS:
                count, item, at = list_head(data, at)
                self._chunks += count
                for _ in range(count):
                    if not self._is_small():
                        break
                    at = self._skipper.value(at, item)
            else:
                at = self._skipper.value(at, kind)
        return at

    def _is_small(self) -> bool:
        return self._needed() <= self._most

    def _needed(self) -> int:
        return (
            _TIMES_BYTES * len(self._data)
            + _PER_COLUMN * self._columns
            + _PER_CHUNK * self._chunks
            + _PER_ITEM * self._skipper.items
        )
