"""Decompressing with an end to it: a few hostile bytes must not become gigabytes.

Here: one function a codec, each told how large its result may become. Not here: which file uses which codec
(`avro_container`, `puffin`, `metadata`). Every function raises ValueError or what its library raises; the callers, who
know the file, make a FormatError of it.
"""

from __future__ import annotations

import bz2
import importlib
import io
import lzma
import zlib
from typing import Any

# What real files come near to: blocks of 64 KB and documents of a few MB that compress to a twentieth.
ALWAYS_ALLOWED_BYTES = 32 << 20
MOST_TIMES_LARGER = 64
_CHUNK = 1 << 20


class TooLargeError(ValueError):
    """The result would be larger than what is reasonable."""


def size_limit(compressed: int) -> int:
    """Return how many bytes may become of so many compressed ones."""
    return max(ALWAYS_ALLOWED_BYTES, MOST_TIMES_LARGER * compressed)


def inflate(data: bytes) -> bytes:
    """Decompress raw deflate, as in Avro."""
    return _by(zlib.decompressobj(wbits=-15), data)


def gunzip(data: bytes) -> bytes:
    """Decompress gzip; several members follow each other."""
    limit, parts, size = size_limit(len(data)), [], 0
    while data:
        decompressor = zlib.decompressobj(wbits=31)
        part = decompressor.decompress(data, limit - size + 1)
        size += len(part)
        _check(size, limit)
        if not decompressor.eof:
            raise EOFError("the compressed bytes end too early")
        parts.append(part)
        data = decompressor.unused_data.lstrip(b"\0")  # zeros behind a member are padding
    return parts[0] if len(parts) == 1 else b"".join(parts)


def bunzip2(data: bytes) -> bytes:
    """Decompress bzip2."""
    return _by(bz2.BZ2Decompressor(), data)


def unxz(data: bytes) -> bytes:
    """Decompress xz; what its own tables may take is bounded like the result."""
    return _by(lzma.LZMADecompressor(memlimit=4 * ALWAYS_ALLOWED_BYTES), data)


def unzstd(data: bytes, zstd: Any) -> bytes:
    """Decompress Zstandard.

    Args:
        zstd: the module `compression.zstd` or its backport.
    """
    return _by(zstd.ZstdDecompressor(), data)


def unsnappy(data: bytes, cramjam: Any) -> bytes:
    """Decompress raw Snappy, which says in its first bytes how large it becomes.

    Args:
        cramjam: the module.
    """
    _check(cramjam.snappy.decompress_raw_len(data), size_limit(len(data)))
    return bytes(cramjam.snappy.decompress_raw(data))


def by_arrow(data: bytes, codec: str, limit: int | None = None) -> bytes:
    """Decompress what Arrow has a codec for: `lz4` frames, `zstd`."""
    pa = importlib.import_module("pyarrow")
    limit, result = size_limit(len(data)) if limit is None else limit, io.BytesIO()
    # Into a buffer of ours: `read` of pyarrow 26 never lets go of its own when the bytes turn out to be damaged.
    chunk = memoryview(bytearray(min(_CHUNK, limit)))
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        while size := stream.readinto(chunk):
            result.write(chunk[:size])
            _check(result.tell(), limit)
    return result.getvalue()


def _by(decompressor: Any, data: bytes) -> bytes:
    limit = size_limit(len(data))
    result: bytes = decompressor.decompress(data, limit + 1)
    _check(len(result), limit)
    if not decompressor.eof:
        raise EOFError("the compressed bytes end too early")
    return result


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise TooLargeError(f"it grows to more than {limit} bytes")
