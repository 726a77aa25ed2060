"""An Avro file as fastavro reads it, with its blocks decompressed here: fastavro has no limit for what they become."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from airflow_iceberg.data.limits.avro_records import RecordLimit
from airflow_iceberg.data.limits.memory import MemoryLimit
from airflow_iceberg.data.read.lazy_bytes import LazyBytes
from airflow_iceberg.format.avro.container import MAGIC, Header, read_blocks, write_long

_OURS = frozenset(("null", "deflate", "bzip2", "xz", "snappy", "zstandard"))


class PlainBlocks:
    """The blocks of an Avro file, and what its records take in memory.

    Args:
        handle: the file.
        parsed: the schema of its records as fastavro has parsed it.
    Attributes:
        row_bytes: the memory of each record that is read now, about; at least that of the largest one.
    """

    def __init__(self, handle: Any, header: Header, parsed: Any, limit: MemoryLimit) -> None:
        self._handle = handle
        self._header = header
        self._limit = limit
        self._records = RecordLimit(parsed, limit)
        self.row_bytes = 0

    def file(self) -> Any:
        """Return a file with the same records, not compressed; the file itself with a codec that only fastavro knows.

        Raises:
            FormatError: while it is read: it is torn, or a block or a record becomes more than a writer's does.
        """
        self._handle.seek(0)
        if self._header.codec not in _OURS:
            return self._handle
        return io.BufferedReader(_Parts(self._parts()))

    def _parts(self) -> Iterator[bytes]:
        header, location = self._header, self._limit.location
        metadata = {**header.metadata, "avro.codec": b"null"}
        pairs = [text for name, value in metadata.items() for text in (name.encode(), value)]
        yield MAGIC + write_long(len(metadata)) + b"".join(write_long(len(text)) + text for text in pairs)
        yield write_long(0) + header.sync
        data: Any = LazyBytes(self._handle)
        for count, block in read_blocks(data, header, path=location, most=self._limit.inflated):
            for some, part, memory in self._records.portions(count, block):
                self.row_bytes = memory // max(some, 1)
                yield write_long(some) + write_long(len(part))
                yield part
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
