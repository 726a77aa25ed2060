"""An Avro file as fastavro reads it, with its blocks decompressed here: fastavro has no limit for what they become."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from airflow_iceberg.data.read.lazy_bytes import LazyBytes
from airflow_iceberg.format.avro.container import MAGIC, Header, read_blocks, read_header, write_long

_OURS = frozenset(("null", "deflate", "bzip2", "xz", "snappy", "zstandard"))


def plain_blocks(handle: Any, location: str) -> Any:
    """Return a file with the same records, not compressed; the file itself with a codec that only fastavro knows.

    Raises:
        FormatError: it is torn, or a block becomes more than a writer's does.
    """
    data: Any = LazyBytes(handle)
    header = read_header(data, path=location)
    handle.seek(0)
    if header.codec not in _OURS or header.codec == "null":
        return handle
    return io.BufferedReader(_Parts(_parts(data, header, location)))


def _parts(data: Any, header: Header, location: str) -> Iterator[bytes]:
    metadata = {**header.metadata, "avro.codec": b"null"}
    pairs = [text for name, value in metadata.items() for text in (name.encode(), value)]
    yield MAGIC + write_long(len(metadata)) + b"".join(write_long(len(text)) + text for text in pairs)
    yield write_long(0) + header.sync
    for count, block in read_blocks(data, header, path=location):
        yield write_long(count) + write_long(len(block))
        yield block
        yield header.sync


class _Parts(io.RawIOBase):
    """Bytes that come in parts."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        super().__init__()
        self._parts, self._rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
