"""Thrift's compact protocol, as far as footers of Parquet files use it: read only."""

from __future__ import annotations

from typing import Any

from airflow_iceberg.errors import FormatError

# Types of Thrift's compact protocol.
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)


class CompactReader:
    """Reads the part of Thrift's compact protocol that footers use."""

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

    def skip(self, kind: int) -> None:
        """Read a value of this type, whatever it is."""
        if kind in (TRUE, FALSE):
            return
        if kind in (BYTE, DOUBLE):
            self.at += 1 if kind == BYTE else 8
        elif kind in (I16, I32, I64):
            self.varint()
        elif kind == BINARY:
            self.binary()
        elif kind in (LIST, SET):
            size, item = self.list_header()
            for _ in range(size):
                self.skip(BYTE if item in (TRUE, FALSE) else item)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            raise FormatError(f"unexpected Thrift type {kind} in the footer of a parquet file")

    def byte(self) -> int:
        """Return the next byte."""
        self.at += 1
        return self._data[self.at - 1]

    def binary(self) -> bytes:
        """Return a text or binary value."""
        size = self.varint()
        self.at += size
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

    def integer(self) -> int:
        """Return an integer of 16, 32 or 64 bits."""
        value = self.varint()
        return value >> 1 ^ -(value & 1)
