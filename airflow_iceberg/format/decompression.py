"""Decompression with a limit: a few hostile bytes must not become gigabytes.

Here: one function for each codec. Not here: which file uses which codec (`avro.container`, `metadata.json`).
Every function raises ValueError or an error of its library; the callers know the file and raise FormatError.
"""

from __future__ import annotations

import bz2
import importlib
import io
import lzma
import re
import zlib
from typing import Any

# Real files stay below these limits: blocks of 64 KB and documents of a few MB compress to a twentieth.
ALWAYS_ALLOWED_BYTES = 32 << 20
MOST_TIMES_LARGER = 64
DOCUMENT_LIMIT = 2 << 30
"""The size of a document of our own, whose lines are so much alike that they compress to a hundredth."""
_CHUNK = 1 << 20
# Tools that compress in parallel write a member for every 64 KB or more.
_MOST_MEMBERS = 1 << 16
_FIRST_STEP = 64
# Snappy's length of the result: 32 bits of variable length.
_MOST_LENGTH_BYTES = 5
# Zeros after a member are padding.
_PADDING = re.compile(rb"\0*")


class GrowthError(ValueError):
    """What is compressed grows to more than its limit."""


def size_limit(compressed: int) -> int:
    """Return the largest reasonable result of decompressing a number of bytes."""
    return max(ALWAYS_ALLOWED_BYTES, MOST_TIMES_LARGER * compressed)


def inflate(data: bytes, limit: int | None = None) -> bytes:
    """Decompress raw deflate, as in Avro; the limits of this and of the others are as of `gunzip`."""
    return _by(zlib.decompressobj(wbits=-15), data, limit)


def gunzip(data: bytes, *, limit: int | None = None) -> bytes:
    """Decompress gzip; several members follow each other.

    Args:
        limit: the largest size of the result in bytes; `size_limit` by default.
    """
    limit = size_limit(len(data)) if limit is None else limit
    parts: list[bytes] = []
    start = size = members = 0
    while start < len(data):
        members += 1
        if members > _MOST_MEMBERS:
            raise ValueError(f"it has more than {_MOST_MEMBERS} gzip members")
        start, size = _read_member(data, start, parts, size, limit)
        start = _PADDING.match(data, start).end()  # type: ignore[union-attr]  # it also matches nothing
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_member(data: bytes, start: int, parts: list[bytes], size: int, limit: int) -> tuple[int, int]:
    """Decompress the member at a byte, and return its end and the size of all parts.

    The decompressor copies the bytes after the end of a member, so it is given only as many as it has used before.
    """
    decompressor, view, step = zlib.decompressobj(wbits=31), memoryview(data), _FIRST_STEP
    while not decompressor.eof:
        chunk = view[start : start + step]
        if not chunk:
            raise EOFError("the compressed bytes end too early")
        part = decompressor.decompress(chunk, limit - size + 1)
        size += len(part)
        _check(size, limit)
        parts.append(part)
        start += len(chunk) - len(decompressor.unused_data)
        step *= 2
    return start, size


def bunzip2(data: bytes, limit: int | None = None) -> bytes:
    """Decompress bzip2."""
    return _by(bz2.BZ2Decompressor(), data, limit)


def unxz(data: bytes, limit: int | None = None) -> bytes:
    """Decompress xz; the memory of its tables is limited like the result."""
    return _by(lzma.LZMADecompressor(memlimit=4 * ALWAYS_ALLOWED_BYTES), data, limit)


def unzstd(data: bytes, zstd: Any, limit: int | None = None) -> bytes:
    """Decompress Zstandard with the module `compression.zstd` or its backport."""
    return _by(zstd.ZstdDecompressor(), data, limit)


def unsnappy(data: bytes, limit: int | None = None) -> bytes:
    """Decompress raw Snappy, whose first bytes contain the size of the result, with Arrow."""
    size = 0
    for number, byte in enumerate(data[:_MOST_LENGTH_BYTES]):
        size |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            break
    _check(size, size_limit(len(data)) if limit is None else limit)
    result: bytes = importlib.import_module("pyarrow").Codec("snappy").decompress(data, size, asbytes=True)
    return result


def unzstd_by_arrow(data: bytes, limit: int | None = None) -> bytes:
    """Decompress Zstandard with Arrow."""
    pa = importlib.import_module("pyarrow")
    limit, result = size_limit(len(data)) if limit is None else limit, io.BytesIO()
    # Into our own buffer: `read` of pyarrow 26 never frees its buffer when the bytes are damaged.
    chunk = memoryview(bytearray(max(1, min(_CHUNK, limit))))
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while size := stream.readinto(chunk):
            result.write(chunk[:size])
            _check(result.tell(), limit)
    return result.getvalue()


def _by(decompressor: Any, data: bytes, limit: int | None) -> bytes:
    limit = size_limit(len(data)) if limit is None else limit
    result: bytes = decompressor.decompress(data, limit + 1)
    _check(len(result), limit)
    if not decompressor.eof:
        raise EOFError("the compressed bytes end too early")
    return result


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise GrowthError(f"it grows to more than {limit} bytes")
