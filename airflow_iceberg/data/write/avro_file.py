"""One Avro data file, and what all Avro files of a writer share (`AvroLayout`).

Not here: the bytes of rows (`format.avro.rows`) and containers (`format.avro.container`), what files of all formats
share (`file_layout`), when a file ends and which partition a row belongs to (`partitioned`).

Spec: Appendix A, Avro.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.dictionaries import with_types
from airflow_iceberg.data.write.file_layout import FileLayout, storage_errors
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.row_metrics import RowMetrics
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.avro.container import BlockWriter
from airflow_iceberg.format.avro.rows import encode_rows
from airflow_iceberg.format.avro.schemas import record_schema
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import Value
from airflow_iceberg.storage.base import FileIO

# Blocks of records, before compression: Java's size.
BLOCK_BYTES = 64_000
# Rows are encoded in portions that fit near the processor's cache.
_PORTION_BYTES = 4 << 20
_CODECS = {"gzip": "deflate", "zstd": "zstandard", "snappy": "snappy", "uncompressed": "null"}


class AvroLayout(FileLayout):
    """What all Avro files of a writer have in common; arguments and errors as of `FileLayout`."""

    file_format = "avro"

    def __init__(self, io: FileIO, **layout: Any) -> None:
        super().__init__(io, **layout)
        if not self.columns:
            raise UnsupportedError("a table without columns cannot be written to avro; add a column first")
        self.metadata = header_metadata(self.schema)

    def open(self, partition: tuple[Value, ...], first: pa.Table) -> AvroFile:
        """Open a new file."""
        return AvroFile(self, partition)

    def to_file(self, table: pa.Table) -> pa.Table:
        """Return rows without dictionaries."""
        return with_types(table, self.row_schema)

    def encoded_bytes(self, sample: pa.Table) -> int:
        """Return the size of some rows as blocks."""
        blocks = new_blocks(self.metadata, self.options, name="")
        return sum(map(len, encoded_blocks(blocks, self.schema, sample)))


class AvroFile:
    """One Avro file that is being written; see `file_layout.OpenFile`."""

    def __init__(self, layout: AvroLayout, partition: tuple[Value, ...]) -> None:
        self.location = layout.next_location(partition)
        self._layout = layout
        self._partition = partition
        self._metrics = RowMetrics(layout.metrics)
        self._blocks = new_blocks(layout.metadata, layout.options, name=self.location)
        with storage_errors(self.location):
            self._sink = layout.open_sink(self.location)
            self._sink.write(self._blocks.header)

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def write_rows(self, table: pa.Table) -> None:
        """Write rows in the types of the file, as blocks."""
        self._metrics.observe(table)
        with storage_errors(self.location):
            for block in encoded_blocks(self._blocks, self._layout.schema, table):
                self._sink.write(block)

    def close(self) -> DataFile:
        """Describe the file."""
        with storage_errors(self.location):
            size_bytes = self.size_bytes
            self._sink.close()
        return DataFile(
            file_path=self.location,
            file_format="avro",
            partition=self._partition,
            spec_id=self._layout.spec.spec_id,
            file_size_in_bytes=size_bytes,
            sort_order_id=self._layout.sort_order_id,
            **vars(self._metrics.finish()),
        )

    def abort(self) -> None:
        """Close the file's handles; the caller deletes the file."""
        with suppress(Exception):
            self._sink.close()


def header_metadata(schema: Schema, **more: str) -> dict[str, str]:
    """Return the metadata of a file's header; Java stores the Iceberg schema there, too.

    Raises:
        UnsupportedError: a type whose values are not written.
    """
    documents = {"avro.schema": record_schema(schema), "iceberg.schema": schema.to_dict()}
    return {**{key: json.dumps(value, separators=(",", ":")) for key, value in documents.items()}, **more}


def new_blocks(metadata: dict[str, str], options: WriteOptions, *, name: str) -> BlockWriter:
    """Return the writer of a container; `name` is one that no other file has."""
    return BlockWriter(metadata, codec=_CODECS[options.compression], level=options.compression_level, name=name)


def encoded_blocks(blocks: BlockWriter, schema: Schema, table: pa.Table) -> Iterator[bytes]:
    """Yield the blocks of a container with the rows of a table, which are in the types of the schema."""
    struct = schema.as_struct()
    for portion in _portions(table):
        rows = encode_rows(struct, portion.columns, portion.num_rows)
        offsets = np.frombuffer(rows.buffers()[1], np.int32, len(rows) + 1)
        data, start = memoryview(rows.buffers()[2]), 0
        while start < len(rows):
            end = max(int(np.searchsorted(offsets, offsets[start] + BLOCK_BYTES)), start + 1)
            end = min(end, len(rows))
            yield blocks.block(end - start, data[offsets[start] : offsets[end]])
            start = end


def _portions(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about a size, of single rows if they are larger."""
    for batch in table.to_batches():
        waiting = [batch]
        while waiting:
            part = waiting.pop()
            if part.num_rows > 1 and part.nbytes > _PORTION_BYTES:
                step = max(1, min(part.num_rows // 2, part.num_rows * _PORTION_BYTES // part.nbytes))
                waiting += [part.slice(start, step) for start in reversed(range(0, part.num_rows, step))]
            elif part.num_rows:
                yield part
