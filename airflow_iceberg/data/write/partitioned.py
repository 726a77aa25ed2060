"""Rows to data files of about the target size, partition by partition, in bounded memory.

A row group is encoded at once from Arrow tables that waited in memory. Its number of rows follows from the ratio of
encoded to Arrow bytes, which is measured: by a sample for the first row group, by the previous row group for others.
Not here: casts (`data.cast.rows`, which come first), one file (`data.write.file_layout`).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from airflow_iceberg.data.dictionaries import SAMPLED_ROWS, has_columns, join, plain_bytes, with_types, without_unused
from airflow_iceberg.data.write.avro_file import AvroLayout
from airflow_iceberg.data.write.file_layout import UNSORTED_ORDER_ID, FileLayout, OpenFile
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.parquet_file import ParquetLayout
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.grouping import group_by_partition
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import Value
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.redaction import said
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

MIB = 1024 * 1024
# pyarrow never writes a larger row group.
MAX_ROW_GROUP_ROWS = 64 * 1024 * 1024
# The share of its target size at which a file is closed: the rest would be a tiny row group.
_FULL_ENOUGH = 0.9
# The rows of a row group have at most this many times its target size in memory; repetitive rows make smaller ones.
_MOST_ARROW_BYTES = 8
# Rows are ordered by partition in portions that fit near the processor's cache.
_SLICE_BYTES = 16 * MIB
# Portions are larger when there are many partitions: every piece of a table costs dozens of microseconds.
_ROWS_PER_PARTITION = 512
# Fewer rows are not worth a thread, and a file, of their own.
_LANE_BYTES = 64 * MIB


class FileWriter:
    """Writes the rows of one partition into files of the target size.

    Args:
        layout: the layout of all files of a task.
        partition: canonical values in the order of the spec's fields.
    """

    def __init__(self, layout: FileLayout, partition: tuple[Value, ...] = ()) -> None:
        self._layout = layout
        self._partition = partition
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._file: OpenFile | None = None
        self._encoded_share: float | None = None
        self.waiting_bytes = 0
        self.locations: list[str] = []
        self.data_files: list[DataFile] = []

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def write(self, table: pa.Table, *, arrow_bytes: int | None = None) -> None:
        """Take rows in the types of the file, of `arrow_bytes` in memory if known; write full row groups."""
        if not table.num_rows:
            return
        # Where most rows of a file were deleted, a dictionary may be many times larger than the rows.
        self._waiting.append(without_unused(table, if_larger=True))
        self._waiting_rows += table.num_rows
        self.waiting_bytes += plain_bytes(table) if arrow_bytes is None else arrow_bytes
        while (rows := self._row_group_rows()) is not None:
            self._write_row_group(rows)

    def flush(self) -> None:
        """Write all waiting rows as a row group, however few."""
        while self._waiting_rows:
            self._write_row_group(min(self._waiting_rows, MAX_ROW_GROUP_ROWS))

    def close(self) -> tuple[DataFile, ...]:
        """Write the waiting rows, and return the files in the order of their rows."""
        self.flush()
        self.finish_file()
        return tuple(self.data_files)

    def abort(self) -> None:
        """Drop all rows and close the file; the caller deletes `locations`."""
        self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0
        if self._file is not None:
            self._file.abort()
            self._file = None

    def compact(self) -> None:
        """Copy the waiting rows, which then no longer hold the larger tables that they were cut from."""
        if self._waiting:
            self._waiting = [_copied(self._joined())]

    def _joined(self) -> pa.Table:
        return join(self._waiting, most_bytes=self._layout.options.dict_size_bytes)

    def _row_group_rows(self) -> int | None:
        """Return the number of waiting rows that fill a row group, None while there are too few."""
        target = self._row_group_target()
        if self._waiting_rows >= MAX_ROW_GROUP_ROWS:
            return MAX_ROW_GROUP_ROWS
        if not self._waiting_rows or self.waiting_bytes < target:
            return None  # encoded, rows are hardly ever larger
        if self._encoded_share is None:
            self._encoded_share = self._sample_share()
        wanted = min(target / self._encoded_share, target * _MOST_ARROW_BYTES)
        if self.waiting_bytes < wanted:
            return None
        return max(1, int(self._waiting_rows * wanted / self.waiting_bytes))

    def _row_group_target(self) -> int:
        """Return the size on disk of the next row group, in bytes; the last one of a file fills the file."""
        options = self._layout.options
        left = options.target_file_size_bytes - (self._file.size_bytes if self._file else 0)
        return left if left < 1.25 * options.row_group_size_bytes else options.row_group_size_bytes

    def _sample_share(self) -> float:
        """Return encoded bytes per Arrow byte of the first waiting rows."""
        sample = without_unused(self._joined().slice(0, SAMPLED_ROWS))
        encoded = self._layout.encoded_bytes(sample)
        return float(max(encoded, 1) / max(plain_bytes(sample), 1))

    def _write_row_group(self, rows: int) -> None:
        table = self._joined()
        first = without_unused(table.slice(0, rows))
        if self._file is None:
            self._file = self._layout.open(self._partition, first)
            self.locations.append(self._file.location)
        before = self._file.size_bytes
        self._file.write_rows(first)
        after = self._file.size_bytes
        rest = table.slice(rows)
        rest_bytes = plain_bytes(rest) if rest.num_rows else 0
        self._encoded_share = max(after - before, 1) / max(self.waiting_bytes - rest_bytes, 1)
        self._waiting = [rest] if rest.num_rows else []
        self._waiting_rows, self.waiting_bytes = rest.num_rows, rest_bytes
        if after >= _FULL_ENOUGH * self._layout.options.target_file_size_bytes:
            self.finish_file()

    def finish_file(self) -> None:
        """Finish the open file, if there is one, without the waiting rows."""
        if self._file is not None:
            self.data_files.append(self._file.close())
            self._file = None


def _copied(rows: pa.Table) -> pa.Table:
    """Return a copy of the rows that does not hold the memory of larger tables."""
    if all(column.num_chunks > 1 for column in rows.columns):
        return rows.combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return pa.ipc.open_stream(sink.getvalue()).read_all()


class PartitionedWriter:
    """Writes conformed rows to the files of their partitions, in bounded memory.

    At most about `options.max_buffered_bytes` of rows wait for encoding, over all partitions: above that the partitions
    with the most waiting rows are written first. At most `options.max_open_files` files are open: above that the least
    recently used one is closed, and a later row of its partition starts a new file. So rows that come partition by
    partition make the largest files.

    As a context manager it closes at the end, and aborts after an error. `write` is for one thread at a time.

    Args:
        data_location: the directory of the data files (`options.data_location`).
        file_prefix: the start of every file name; a uuid makes the names unique.
        threads: the number of files that are encoded at a time, above 1 in a process without other tasks: pyarrow
            encodes a file on one core, so large unpartitioned rows are then written into that number of files.
        sort_order_id: the sort order that the files claim; the caller has sorted the rows.
    Raises:
        UnsupportedError: a type cannot be written.
    """

    def __init__(
        self,
        io: FileIO,
        *,
        schema: Schema,
        spec: PartitionSpec,
        options: WriteOptions,
        data_location: str,
        file_prefix: str,
        threads: int = 1,
        sort_order_id: int = UNSORTED_ORDER_ID,
    ) -> None:
        layout = AvroLayout if options.file_format == AvroLayout.file_format else ParquetLayout
        self._layout: FileLayout = layout(
            io,
            schema=schema,
            spec=spec,
            options=options,
            data_location=data_location,
            file_prefix=file_prefix,
            sort_order_id=sort_order_id,
        )
        self._io = io
        self._threads = threads
        self._writers: dict[Any, FileWriter] = {}
        self._open: dict[FileWriter, None] = {}  # the longest unused first
        self._held_bytes = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif not self._closed:
            self.close()

    def write(self, table: pa.Table) -> None:
        """Take rows that `cast.rows.conform` returned for the same schema.

        Raises:
            InvalidInputError: other columns, or the writer is closed.
            StorageError: a file cannot be written; call `abort` then.
        """
        self._check(table)
        if not table.num_rows:
            return
        if self._layout.spec.is_unpartitioned:
            self._write_unpartitioned(table)
            return
        # Partitions have plain values.
        for part in self._slices(with_types(table, self._layout.row_schema)):
            self._write_partitions(part)

    def into(self, partition: tuple[Value, ...]) -> "_OnePartition":
        """Return a writer of rows that are all of one known partition."""
        return _OnePartition(self, self._writer(tuple(canonical_key(value) for value in partition), partition))

    def close(self) -> tuple[DataFile, ...]:
        """Write the waiting rows, close all files and describe them, in the order of their partitions' first rows."""
        if self._closed:
            raise InvalidInputError("the writer is closed already")
        self._in_threads(lambda writer: writer.close(), self._writers.values())
        self._closed = True
        return tuple(file for writer in self._writers.values() for file in writer.data_files)

    def abort(self) -> None:
        """Delete every file of this writer; errors of the store are logged, not raised."""
        self._closed = True
        for writer in self._writers.values():
            writer.abort()
        locations = [location for writer in self._writers.values() for location in writer.locations]
        try:
            self._io.delete(locations)
        except Exception as error:  # noqa: BLE001 - must not hide the error that led here
            log.warning("could not remove %d files of an unfinished write: %s", len(locations), said(error))

    def to_file(self, table: pa.Table) -> pa.Table:
        """Check the columns of rows and return them in the types of the file."""
        self._check(table)
        return self._layout.to_file(table)

    def _check(self, table: pa.Table) -> None:
        if self._closed:
            raise InvalidInputError("the writer is closed already")
        if not has_columns(table.schema, self._layout.row_schema):
            expected = _columns(self._layout.row_schema)
            raise InvalidInputError(
                f"unexpected schema ({_columns(table.schema)}) of rows (expected {expected}): pass them through conform"
            )

    def _write_unpartitioned(self, table: pa.Table) -> None:
        arrow_bytes = table.nbytes
        lanes = max(1, min(self._threads, arrow_bytes // _LANE_BYTES))
        partition = (None,) * len(self._layout.spec.fields)
        rows = self._layout.to_file(table)
        step = -(-rows.num_rows // lanes)
        parts = [(self._writer(lane, partition), rows.slice(lane * step, step)) for lane in range(lanes)]
        self._in_threads(lambda part: part[0].write(part[1]), parts)

    def _slices(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows in portions: a few megabytes, and enough rows for each of the known partitions."""
        row_bytes = max(1, table.nbytes // table.num_rows)
        start = 0
        while start < table.num_rows:
            rows = max(_SLICE_BYTES // row_bytes, _ROWS_PER_PARTITION * len(self._writers))
            rows = max(1, min(rows, self._layout.options.max_buffered_bytes // 4 // row_bytes))
            yield table.slice(start, rows)
            start += rows

    def _write_partitions(self, table: pa.Table) -> None:
        arrow_bytes = table.nbytes
        per_row = arrow_bytes / table.num_rows
        for partition, rows in group_by_partition(table, self._layout.spec, self._layout.schema):
            key = tuple(canonical_key(value) for value in partition)
            writer = self._writer(key, partition)
            writer.write(self._layout.to_file(rows), arrow_bytes=int(per_row * rows.num_rows))
            if writer.is_open:
                self._bound_open_files((writer,))
        self._held_bytes += arrow_bytes
        self._bound_memory()

    def _writer(self, key: Any, partition: tuple[Value, ...]) -> FileWriter:
        if key not in self._writers:
            self._writers[key] = FileWriter(self._layout, partition)
        return self._writers[key]

    def _bound_memory(self) -> None:
        """Write the fullest partitions when too many rows wait, and free tables of which only a few rows wait."""
        limit = self._layout.options.max_buffered_bytes
        if self._held_bytes <= limit:
            return
        waiting = sum(writer.waiting_bytes for writer in self._writers.values())
        if waiting > limit // 2:
            fullest = sorted(self._writers.values(), key=lambda writer: writer.waiting_bytes, reverse=True)
            waiting -= self._flush(fullest, waiting - limit // 4)
        for writer in self._writers.values():
            writer.compact()
        self._held_bytes = waiting

    def _flush(self, writers: Sequence[FileWriter], enough: int) -> int:
        """Write the waiting rows, writer by writer until at least `enough` bytes are written; return their number."""
        written = 0
        for start in range(0, len(writers), self._threads):
            batch = writers[start : start + self._threads]
            written += sum(writer.waiting_bytes for writer in batch)
            self._in_threads(lambda writer: writer.flush(), batch)
            self._bound_open_files(batch)
            if written >= enough:
                break
        return written

    def _bound_open_files(self, used: Iterable[FileWriter]) -> None:
        """Record the files that were just used, and finish the least recently used ones."""
        for writer in used:
            self._open.pop(writer, None)
            if writer.is_open:
                self._open[writer] = None
        while len(self._open) > self._layout.options.max_open_files:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.finish_file()

    def _in_threads(self, work: Callable[[Any], object], items: Collection[Any]) -> None:
        if self._threads == 1 or len(items) == 1:
            for item in items:
                work(item)
            return
        with ThreadPoolExecutor(self._threads) as pool:
            for result in [pool.submit(work, item) for item in items]:
                result.result()


class _OnePartition:
    """A `PartitionedWriter` all of whose rows are of one partition."""

    def __init__(self, writer: PartitionedWriter, files: FileWriter) -> None:
        self._writer = writer
        self._files = files

    def write(self, table: pa.Table) -> None:
        self._files.write(self._writer.to_file(table))

    def close(self) -> tuple[DataFile, ...]:
        return self._writer.close()

    def abort(self) -> None:
        self._writer.abort()


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{item.name}: {item.type}" for item in schema)
