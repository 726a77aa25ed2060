"""Thrift's compact protocol, skipped as Arrow's reader skips it: for what is looked at before Arrow reads it.

Where two readers see different bytes, one of them can be deceived. So numbers are cut to 32 bits and the low half of a
byte ends a struct, as in Thrift's own code. Functions and no class: a file has thousands of pages.
"""

from __future__ import annotations

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
# Thrift's own limit is 64; Python's stack has room for more.
_DEEPEST = 64
_MOST_SHIFT = 63


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned integer, and where it ends; IndexError at the end of the bytes, ValueError if too long."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    result, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
        if shift > _MOST_SHIFT:
            raise ValueError("an integer of more than 64 bits")


def integer(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of 32 bits, and where it ends."""
    value, at = varint(data, at)
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), at


def size(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a text, a list or a map, and where it ends."""
    value, at = varint(data, at)
    value &= 0xFFFFFFFF
    if value >> 31:
        raise ValueError("a negative length")
    return value, at


def field(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Return the type and the id of the next field of a struct, and where its value begins; the type 0 ends it."""
    head = data[at]
    kind, delta = head & 0x0F, head >> 4
    if kind == STOP:
        return STOP, 0, at + 1
    if delta:
        return kind, before + delta, at + 1
    number, at = integer(data, at + 1)
    return kind, ((number + 0x8000) & 0xFFFF) - 0x8000, at


def list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the number and the type of a list's items, and where they begin."""
    head = data[at]
    count, at = size(data, at + 1) if head >> 4 == 15 else (head >> 4, at + 1)
    return count, head & 0x0F, at


class Skipper:
    """Skips values, and counts the items of all lists and maps in them.

    Args:
        most_items: how many there may be.
    """

    def __init__(self, data: bytes, most_items: int = 1 << 31) -> None:
        self._data = data
        self._most_items = most_items
        self._end = len(data)
        self.items = 0

    def value(self, at: int, kind: int, depth: int = 0) -> int:
        """Return where a value ends.

        Raises:
            IndexError: the bytes end in it.
            ValueError: Thrift has no such value, or it is nested too deep.
        """
        data = self._data
        if kind in (TRUE, FALSE):
            return at
        if kind in (I16, I32, I64):
            while data[at] >= 0x80:
                at += 1
            return at + 1
        if kind == BINARY:
            length, at = size(data, at)
            return self._within(at + length)
        if kind in (BYTE, DOUBLE):
            return self._within(at + (1 if kind == BYTE else 8))
        if depth > _DEEPEST:
            raise ValueError("values that are nested too deep")
        if kind == STRUCT:
            return self.struct(at, depth)
        if kind in (LIST, SET):
            count, item, at = list_head(data, at)
            return self._items(at, count, (item,), depth)
        if kind == MAP:
            count, at = size(data, at)
            return self._items(at + 1, count, (data[at] >> 4, data[at] & 0x0F), depth) if count else at
        raise ValueError(f"an unknown type {kind}")

    def struct(self, at: int, depth: int = 0) -> int:
        """Return where a struct ends."""
        data = self._data
        while kind := data[at] & 0x0F:
            at += 1
            if data[at - 1] < 0x10:  # the id of the field follows
                _, at = varint(data, at)
            at = self.value(at, kind, depth + 1)
        return at + 1

    def _items(self, at: int, count: int, kinds: tuple[int, ...], depth: int) -> int:
        if count > self._end - at:  # each item has a byte at least
            raise IndexError("the bytes end in a list")
        self.items += count
        if self.items > self._most_items:
            raise ValueError(f"more than {self._most_items} items of lists")
        # Here a truth value has a byte of its own.
        kinds = tuple(BYTE if kind in (TRUE, FALSE) else kind for kind in kinds)
        for _ in range(count):
            for kind in kinds:
                at = self.value(at, kind, depth + 1)
        return at

    def _within(self, at: int) -> int:
        if at > self._end:
            raise IndexError("the bytes end in a value")
        return at
