"""Thrift's compact protocol, as far as footers of Parquet files use it: read only."""

from __future__ import annotations

from typing import Any

from airflow_iceberg.errors import FormatError

# Types of Thrift's compact protocol.
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)


# Deeper than any struct of Parquet.
_MOST_LEVELS = 64


class CompactReader:
    """Reads the part of Thrift's compact protocol that footers use; an IndexError is the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def fields(self) -> Any:
        """Yield id and type of each field of a struct, whose value the caller reads or skips."""
        field_id = 0
        while (header := self.byte()) != STOP:
            delta, kind = header >> 4, header & 0x0F
            field_id = field_id + delta if delta else self.integer()
            yield field_id, kind

    def list_header(self) -> tuple[int, int]:
        """Return the number and the type of a list's items."""
        header = self.byte()
        return (self.varint() if header >> 4 == 15 else header >> 4), header & 0x0F

    def skip(self, kind: int, levels: int = _MOST_LEVELS) -> None:
        """Read a value of this type, whatever it is, of at most so many levels.

        A thousand footers have a million values that nobody asks for, so it reads bytes itself where it can.
        """
        data = self._data
        if kind in (I32, I64, I16):
            at = self.at
            while data[at] >= 0x80:
                at += 1
            self.at = at + 1
        elif kind == BINARY:
            self._advance(self.varint())
        elif kind == STRUCT:
            if not levels:
                raise FormatError(f"the footer of a Parquet file has structs of more than {_MOST_LEVELS} levels")
            while header := data[self.at]:
                self.at += 1
                if header < 0x10:
                    self.skip(I16)
                self.skip(header & 0x0F, levels - 1)
            self.at += 1
        elif kind in (LIST, SET):
            self._skip_items(levels)
        elif kind == DOUBLE:
            self._advance(8)
        elif kind == BYTE:
            self._advance(1)
        elif kind not in (TRUE, FALSE):
            raise FormatError(f"unexpected Thrift type {kind} in the footer of a Parquet file")

    def _skip_items(self, levels: int) -> None:
        if not levels:
            raise FormatError(f"the footer of a Parquet file has lists of more than {_MOST_LEVELS} levels")
        size, item = self.list_header()
        if item in (TRUE, FALSE, BYTE, DOUBLE):
            self._advance(size * (8 if item == DOUBLE else 1))
        else:
            for _ in range(size):
                self.skip(item, levels - 1)

    def _advance(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError(f"the bytes end {self.at - len(self._data):,} before a value does")

    def byte(self) -> int:
        """Return the next byte."""
        self.at += 1
        return self._data[self.at - 1]

    def binary(self) -> bytes:
        """Return a text or binary value."""
        size = self.varint()
        self._advance(size)
        return self._data[self.at - size : self.at]

    def varint(self) -> int:
        """Return an unsigned integer, such as a length."""
        result = shift = 0
        while True:
            byte = self.byte()
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7
            if shift > 63:
                raise FormatError("the footer of a Parquet file has an integer of more than 64 bits")

    def integer(self) -> int:
        """Return an integer of 16, 32 or 64 bits."""
        value = self.varint()
        return value >> 1 ^ -(value & 1)
