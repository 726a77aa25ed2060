"""Protocol Buffers, as far as the tails of ORC files use them: read only."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_SHIFT = 63

Value = int | memoryview


def fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field: an integer, or the bytes of a text or a message.

    Raises:
        ValueError, IndexError: the bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = varint(data, at)
            yield key >> 3, value
        elif kind == _BYTES:
            size, at = varint(data, at)
            if size > end - at:
                raise ValueError("a message is cut off")
            yield key >> 3, data[at : at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"an unknown wire type {kind}")


def varint(data: memoryview | bytes, at: int) -> tuple[int, int]:
    """Return an unsigned integer, and where it ends."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
        if shift > _MOST_SHIFT:
            raise ValueError("an integer of more than 64 bits")


def integers(value: Value) -> Iterator[int]:
    """Yield the integers of a repeated field, which may be packed."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = varint(value, at)
        yield number
