"""The end of an ORC file: its types, and where its stripes lie. pyarrow tells neither the rows nor the sizes of them.

Spec: ORC Specification v1, File Tail and Stripes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_iceberg.data.limits.protobuf import fields, integers
from airflow_iceberg.format.decompression import inflate, unsnappy, unzstd_by_arrow

STRING, BINARY, LIST, MAP, STRUCT, UNION, DECIMAL, VARCHAR, CHAR = 7, 8, 10, 11, 12, 13, 14, 16, 17
# Reads the last bytes of a file at once, as Arrow does.
_TAIL_BYTES = 16 << 10
_MOST_POSTSCRIPT = 255
_CHUNK_HEAD = 3
# What a footer becomes in Arrow: its bytes, and objects for its messages and the fields of its types.
_TIMES_BYTES, _PER_ITEM = 8, 300

ReadAt = Callable[[int, int], bytes]
"""Bytes of a file: (number, offset)."""


def _unlz4(data: bytes, limit: int) -> bytes:
    return pa.Codec("lz4_raw").decompress(data, limit, asbytes=True)  # type: ignore[no-any-return]


_DECOMPRESS: dict[int, Callable[[bytes, int], bytes]] = {1: inflate, 2: unsnappy, 4: _unlz4, 5: unzstd_by_arrow}
_NONE = 0


@dataclass(frozen=True, slots=True)
class OrcType:
    """A column, or a part of one."""

    kind: int
    children: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stripe:
    """Where a stripe lies: its index, its data and its footer follow each other."""

    offset: int = 0
    index_bytes: int = 0
    data_bytes: int = 0
    footer_bytes: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Blocks:
    """How the parts of a file are compressed: in blocks, each after three bytes with its length.

    Attributes:
        codec: the number of ORC's CompressionKind.
        size: of a block after decompression, at most.
    """

    codec: int
    size: int

    @property
    def is_known(self) -> bool:
        """Whether what is compressed can be read here."""
        return self.codec == _NONE or self.codec in _DECOMPRESS

    def unpack(self, data: bytes, most: int) -> bytes:
        """Return a part of the file, decompressed.

        Raises:
            ValueError and others: it is damaged, or becomes more than `most` bytes.
        """
        if self.codec == _NONE:
            return data
        parts, at, size = [], 0, 0
        while at < len(data):
            length, is_original = head(data, at)
            at += _CHUNK_HEAD
            block = data[at : at + length]
            part = block if is_original else _DECOMPRESS[self.codec](block, min(self.size, most - size))
            at, size = at + length, size + len(part)
            if size > most:
                raise ValueError(f"it becomes more than {most} bytes")
            parts.append(part)
        return b"".join(parts)

    def unpacked_size(self, read_at: ReadAt, offset: int, length: int) -> int:
        """Return what a stream becomes at most, by the heads of its blocks."""
        if self.codec == _NONE:
            return length
        at, end, size = offset, offset + length, 0
        while at < end:
            stored, is_original = head(read_at(_CHUNK_HEAD, at), 0)
            size += stored if is_original else self.size
            at += _CHUNK_HEAD + stored
        return size


def head(data: bytes, at: int) -> tuple[int, bool]:
    """Return the stored length of a block, and whether it is not compressed; IndexError at the end of the bytes."""
    number = data[at] | data[at + 1] << 8 | data[at + 2] << 16
    return number >> 1, bool(number & 1)


@dataclass(frozen=True, slots=True)
class OrcTail:
    """What the end of a file says."""

    blocks: Blocks
    types: tuple[OrcType, ...]
    stripes: tuple[Stripe, ...]


def read_tail(file: Any, most_bytes: int) -> OrcTail | None:
    """Return the end of an ORC file; None for a codec that is not known here.

    Args:
        file: an Arrow file.
        most_bytes: what its footer may become.
    Raises:
        ValueError, IndexError and others: it is damaged, or larger.
    """
    size = file.size()
    tail = file.read_at(min(size, _TAIL_BYTES), max(size - _TAIL_BYTES, 0))
    length = tail[-1]
    footer_bytes, blocks = _postscript(memoryview(tail)[-1 - length : -1])
    if not blocks.is_known:
        return None
    end = size - 1 - length
    if footer_bytes > end:
        raise ValueError(f"a footer of {footer_bytes} bytes in a file of {size}")
    stored = file.read_at(footer_bytes, end - footer_bytes)
    types, stripes = list[OrcType](), list[Stripe]()
    left = most_bytes // _PER_ITEM
    for number, value in fields(memoryview(blocks.unpack(stored, most_bytes // _TIMES_BYTES))):
        left -= 1 + (len(value) // 2 if number == 4 and not isinstance(value, int) else 0)
        if left < 0:
            raise ValueError(f"a footer of more than {most_bytes // _PER_ITEM} messages")
        if number == 3 and not isinstance(value, int):
            stripes.append(_stripe(value))
        elif number == 4 and not isinstance(value, int):
            types.append(_type(value))
    return OrcTail(blocks, tuple(types), tuple(stripes))


def _postscript(data: memoryview) -> tuple[int, Blocks]:
    found = {1: 0, 2: 0, 3: 256 << 10}
    for number, value in fields(data):
        if number in found and isinstance(value, int):
            found[number] = value
    return found[1], Blocks(found[2], found[3])


def _stripe(data: memoryview) -> Stripe:
    found = {number: value for number, value in fields(data) if isinstance(value, int)}
    return Stripe(*(found.get(number, 0) for number in range(1, 6)))


def _type(data: memoryview) -> OrcType:
    kind, children, names = 0, list[int](), list[str]()
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2:
            children += integers(value)
        elif number == 3 and not isinstance(value, int):
            names.append(str(value, "utf-8", "replace"))
    return OrcType(kind, tuple(children), tuple(names))
