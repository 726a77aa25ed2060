"""Avro object container files as bytes: header, blocks, codecs, sync markers.

Here: reading and writing a container, with errors that name the file. Not here: the content of a block
(`manifests.blocks`) and the schemas (`manifests.schemas`). No library is used because its reader ends silently or with
any kind of exception in a truncated file, and because its writer makes a random sync marker.
"""

from __future__ import annotations

import bz2
import hashlib
import importlib
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.decompression import bunzip2, inflate, size_limit, unsnappy, unxz, unzstd, unzstd_by_arrow
from airflow_iceberg.format.first_bytes import refuse_other_kinds

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
# Of the header: writers put some ten, and each takes a few bytes in a file and a hundred in memory.
_MOST_ENTRIES = 10_000
_COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
_DECOMPRESS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "null": lambda block, _: block,
    "deflate": inflate,
    "bzip2": bunzip2,
    "xz": unxz,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much of a file is decoded, for readers of strangers' files in a process with work of others.

    Attributes:
        most_bytes: of all blocks together, when they are decompressed.
        most_block_bytes: of a block whose records become objects, which may be a hundred times as large as their bytes.
        most_records: of all blocks together.
    """

    most_bytes: int
    most_block_bytes: int
    most_records: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The header of a container.

    Attributes:
        metadata: key-value metadata with `avro.schema` and `avro.codec`, not decoded.
        offset: start of the first block, in bytes.
    """

    metadata: Mapping[str, bytes]
    sync: bytes
    offset: int

    @property
    def codec(self) -> str:
        """Name of the compression codec; the default is "null"."""
        return self.metadata.get("avro.codec", b"null").decode("utf-8", "replace")


def read_header(data: bytes, *, path: str | None = None) -> Header:
    """Return the header of a container.

    Raises:
        FormatError: not an Avro container, or it ends inside its header.
        UnsupportedError: it is encrypted or compressed as a whole.
    """
    if data[:4] != MAGIC:
        refuse_other_kinds(data, "an Avro container", path=path)
        found = "an empty file" if not data else f"{bytes(data[:4])!r}"
        raise FormatError(f"unexpected first bytes {found} (expected an Avro container, {MAGIC!r})", path=path)
    metadata: dict[str, bytes] = {}
    offset = 4
    while True:
        count, offset = read_long(data, offset, path=path)
        if count == 0:
            break
        if count < 0:  # a negative count is followed by the size of the block, in bytes
            count = -count
            _, offset = read_long(data, offset, path=path)
        if count + len(metadata) > _MOST_ENTRIES:
            raise FormatError(f"unexpected header of more than {_MOST_ENTRIES} entries", path=path)
        for _ in range(count):
            key, offset = _read_bytes(data, offset, path=path)
            value, offset = _read_bytes(data, offset, path=path)
            metadata[key.decode("utf-8", "replace")] = value
    sync = data[offset : offset + SYNC_SIZE]
    if len(sync) < SYNC_SIZE:
        raise _torn(offset, path)
    return Header(metadata=metadata, sync=sync, offset=offset + SYNC_SIZE)


def read_blocks(
    data: bytes, header: Header, *, path: str | None = None, limits: Limits | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the number of records and the decompressed bytes of each block.

    Args:
        limits: how much is decoded of all blocks together; a block alone is always limited.
    Raises:
        FormatError: the file ends inside a block, or a block is damaged, or is larger than the limits.
        UnsupportedError: the codec is unknown or needs a package that is not installed.
    """
    decompress = _decompressor(header.codec, path)
    size = records = 0
    for start, count, block in _stored_blocks(data, header, path, with_bytes=True):
        records += count
        if limits is not None and records > limits.most_records:
            raise FormatError(
                f"unexpected number of records, more than {limits.most_records} are not read here", path=path
            )
        most = size_limit(len(block))
        try:
            block = decompress(block, most if limits is None else min(most, limits.most_bytes - size))
        except Exception as error:
            raise FormatError(f"damaged {header.codec} block at byte {start} ({error})", path=path) from error
        size += len(block)
        if limits is not None and size > limits.most_bytes:
            raise FormatError(f"unexpected size, more than {limits.most_bytes} bytes are not read here", path=path)
        yield count, block


def count_records(data: bytes, header: Header, *, path: str | None = None) -> Iterator[int]:
    """Yield the number of records of each block, which is not decompressed; raises FormatError as `read_blocks`."""
    return (count for _, count, _ in _stored_blocks(data, header, path, with_bytes=False))


def _stored_blocks(
    data: bytes, header: Header, path: str | None, *, with_bytes: bool
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the start of each block, its number of records, and its bytes as they are stored, unless left out."""
    offset, end = header.offset, len(data)
    while offset < end:
        start = offset
        count, offset = read_long(data, offset, path=path)
        size, offset = read_long(data, offset, path=path)
        if count < 0 or size < 0:
            raise FormatError(f"unexpected block of {count} records in {size} bytes at byte {start}", path=path)
        block, offset = data[offset : offset + size] if with_bytes else b"", offset + size
        if data[offset : offset + SYNC_SIZE] != header.sync:
            if offset + SYNC_SIZE > end:
                raise _torn(start, path)
            raise FormatError(f"unexpected sync marker at byte {offset}", path=path)
        offset += SYNC_SIZE
        yield start, count, block


def write_container(metadata: Mapping[str, str], blocks: Iterable[tuple[int, bytes]], *, codec: str) -> bytes:
    """Return a container.

    Args:
        metadata: `avro.schema` and all other metadata of the header, without `avro.codec`.
        blocks: number of records and uncompressed bytes of each block.
        codec: name of an Avro codec.
    """
    compress = _compressor(codec, None)
    packed = [(count, compress(block)) for count, block in blocks]
    header = _header(metadata, codec)
    # Any 16 bytes that are unlikely to occur in a block are legal; a digest makes equal files equal.
    digest = hashlib.blake2b(header, digest_size=SYNC_SIZE)
    for _, block in packed:
        digest.update(block)
    sync = digest.digest()
    parts = [header, sync]
    for count, block in packed:
        parts += (write_long(count), write_long(len(block)), block, sync)
    return b"".join(parts)


class BlockWriter:
    """Writes a container piece by piece: first `header`, then the result of `block` for some records at a time.

    Args:
        metadata, codec: as of `write_container`.
        level: the level of the codec; None for its default.
        name: a text that no other container has, for the sync marker.
    """

    def __init__(self, metadata: Mapping[str, str], *, codec: str, level: int | None = None, name: str) -> None:
        self._codec = codec
        self._compress = _compressor(codec, level)
        self._sync = hashlib.blake2b(name.encode(), digest_size=SYNC_SIZE).digest()
        self.header = _header(metadata, codec) + self._sync

    def block(self, count: int, records: Any) -> bytes:
        """Return a block with the bytes of some records.

        Raises:
            UnsupportedError: a block that readers would take for a decompression bomb.
        """
        packed = self._compress(records)
        size = len(records)
        if size > size_limit(len(packed)):
            raise UnsupportedError(
                f"{count} rows of {size} bytes shrink to {len(packed)} with codec {self._codec}, which is not read "
                f"again; choose another codec, such as uncompressed"
            )
        return b"".join((write_long(count), write_long(len(packed)), packed, self._sync))


def _header(metadata: Mapping[str, str], codec: str) -> bytes:
    header = bytearray(MAGIC)
    entries = {**metadata, "avro.codec": codec}
    header += write_long(len(entries))
    for key, value in entries.items():
        for text in (key.encode(), value.encode()):
            header += write_long(len(text)) + text
    return bytes(header + write_long(0))


def read_long(data: bytes, offset: int, *, path: str | None = None) -> tuple[int, int]:
    """Return the zig-zag variable-length integer at an offset, and the offset after it."""
    result = shift = 0
    while True:
        if offset >= len(data):
            raise _torn(offset, path)
        byte = data[offset]
        offset += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise FormatError(f"unexpected integer of more than 64 bits at byte {offset}", path=path)
    return (result >> 1) ^ -(result & 1), offset


def write_long(value: int) -> bytes:
    """Return an integer as zig-zag variable-length bytes."""
    rest = (value << 1) ^ (value >> 63)
    result = bytearray()
    while rest > 0x7F:
        result.append(rest & 0x7F | 0x80)
        rest >>= 7
    result.append(rest)
    return bytes(result)


def _read_bytes(data: bytes, offset: int, *, path: str | None) -> tuple[bytes, int]:
    size, offset = read_long(data, offset, path=path)
    if size < 0 or offset + size > len(data):
        raise _torn(offset, path)
    return data[offset : offset + size], offset + size


def _torn(offset: int, path: str | None) -> FormatError:
    return FormatError(f"unexpected end of file at byte {offset}; the file is torn, or not what it seems", path=path)


def _compressor(codec: str, level: int | None) -> Any:
    if codec == "deflate":
        return lambda block: zlib.compress(block, -1 if level is None else level, wbits=-15)
    if codec in _COMPRESS:
        return _COMPRESS[codec]
    if codec == "snappy":
        snappy = _arrow_codec(codec)
        return lambda block: snappy.compress(block, asbytes=True) + zlib.crc32(block).to_bytes(4, "big")
    if codec == "zstandard":
        zstd = _arrow_codec("zstd", level)
        return lambda block: zstd.compress(block, asbytes=True)
    raise _unknown_codec(codec, None)


def _arrow_codec(name: str, level: int | None = None) -> Any:
    return importlib.import_module("pyarrow").Codec(name, compression_level=level)


def _decompressor(codec: str, path: str | None) -> Any:
    if codec in _DECOMPRESS:
        return _DECOMPRESS[codec]
    if codec == "snappy":
        return _unsnappy_checked
    if codec == "zstandard":
        return _zstd_decompressor()
    raise _unknown_codec(codec, path)


def _unknown_codec(codec: str, path: str | None) -> UnsupportedError:
    known = "null, deflate, snappy, zstandard, bzip2, xz"
    where = f"; needed for {path}" if path else ""
    return UnsupportedError(f"unknown Avro codec {codec!r} (known: {known}){where}")


def _unsnappy_checked(block: bytes, limit: int) -> bytes:
    data = unsnappy(block[:-4], limit)
    if zlib.crc32(data) != int.from_bytes(block[-4:], "big"):
        raise ValueError("checksum differs")
    return data


def _zstd_decompressor() -> Any:
    """Return the decompressor of zstandard, which is Paimon's default and so must work without another package."""
    for name in ("compression.zstd", "backports.zstd"):  # part of Python 3.14 and later, and its backport
        with suppress(ImportError):
            zstd = importlib.import_module(name)
            return lambda block, limit: unzstd(block, zstd, limit)
    return unzstd_by_arrow
