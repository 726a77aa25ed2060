"""Rows to Parquet data files with field ids, sizes and statistics.

Here: one file, the files of one partition, the files of all partitions, in bounded memory. Not here: casts (`data.cast`,
which comes first), options (`data.options`), statistics (`data.metrics`), commits.

A row group is encoded at once from Arrow tables that waited in memory. How many rows it takes to reach the size asked for
is measured: the ratio of encoded to Arrow bytes comes from a sample for the first row group, from the row groups already
written for the others.
"""

import logging
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.data.metrics import LeafColumn, MetricsAccumulator, leaf_columns
from airflow_iceberg.data.options import WriteOptions
from airflow_iceberg.errors import InvalidInputError, StorageError, UnsupportedError
from airflow_iceberg.spec.arrow import schema_to_arrow
from airflow_iceberg.spec.manifests import DataFile
from airflow_iceberg.spec.partitioning import PartitionSpec, group_by_partition
from airflow_iceberg.spec.schema import Schema
from airflow_iceberg.spec.types import (
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    UnknownType,
    UUIDType,
    Value,
    VariantType,
)
from airflow_iceberg.spec.values import canonical_key
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

UNSORTED_ORDER_ID = 0
MAX_ROW_GROUP_ROWS = 64 * 1024 * 1024
"""pyarrow never makes a larger row group."""
_SAMPLE_ROWS = 65_536
_UPLOAD_BLOCK_BYTES = 8 * 1024 * 1024


class FileLayout:
    """What all files of a writer have in common: schema, columns, encoder settings, names.

    Args:
        schema: of the rows, with the table's field ids.
        spec: the partition spec the files belong to.
        data_location: directory of the data files.
        file_prefix: begin of every file name.
    Raises:
        UnsupportedError: a type of the schema cannot be written yet.
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
    ) -> None:
        self.io = io
        self.schema = schema
        self.spec = spec
        self.options = options
        self.columns: tuple[LeafColumn, ...] = leaf_columns(schema)
        self.row_schema = schema_to_arrow(schema)
        self.file_schema = _file_schema(schema, self.row_schema)
        self._data_location = data_location.rstrip("/")
        self._name = f"{file_prefix}-{uuid.uuid4()}"
        self._count = 0

    def next_location(self, partition: tuple[Value, ...]) -> str:
        """Return the location of a new file."""
        path = self.spec.partition_path(partition, self.schema) if self.spec.fields else ""
        self._count += 1
        name = f"{self._name}-{self._count:05d}.parquet"
        return self.options.file_location(self._data_location, path, name)

    def parquet_writer(self, sink: Any, *, rows: int, metadata: list[Any] | None = None) -> pq.ParquetWriter:
        """Return an encoder into a sink.

        Args:
            rows: of the first row group; Bloom filters are not laid out for more values than that.
            metadata: gets the footer on close.
        """
        options = self.options
        return pq.ParquetWriter(
            sink,
            self.file_schema,
            compression=options.compression,
            compression_level=options.compression_level,
            data_page_size=options.page_size_bytes,
            max_rows_per_page=options.page_row_limit,
            dictionary_pagesize_limit=options.dict_size_bytes,
            store_decimal_as_integer=True,
            store_schema=False,
            bloom_filter_options=self._bloom_filters(rows) or None,
            metadata_collector=metadata,
        )

    def to_file(self, table: pa.Table) -> pa.Table:
        """Return rows in the types of the file: uuids marked as such, unknown columns left out; mostly no copy."""
        columns = []
        for item in self.file_schema:
            column = table.column(item.name)
            columns.append(column if column.type.equals(item.type) else _to_file_type(column, item.type))
        return pa.Table.from_arrays(columns, schema=self.file_schema)

    def _bloom_filters(self, rows: int) -> dict[str, dict[str, float]]:
        found = {}
        for column in self.columns:
            wanted = self.options.bloom_filters.get(".".join(column.path))
            if wanted is not None:
                found[_parquet_path(column, self.schema)] = {
                    "ndv": max(1, min(wanted.distinct_values, rows)),
                    "fpp": wanted.false_positives,
                }
        return found


def _parquet_path(column: LeafColumn, schema: Schema) -> str:
    """Return the path of a column in the file, which has one level more for lists and maps."""
    parts: list[str] = []
    current: IcebergType = schema.as_struct()
    for name in column.path:
        match current:
            case StructType():
                current = next(child.type for child in current.fields if child.name == name)
            case ListType():
                current = current.element
                parts.append("list")
            case MapType():
                current = current.key if name == "key" else current.value
                parts.append("key_value")
        parts.append(name)
    return ".".join(parts)


def _file_schema(schema: Schema, row_schema: pa.Schema) -> pa.Schema:
    fields = [
        item.with_type(_file_type(child.type, item.type, child.name))
        for child, item in zip(schema.fields, row_schema, strict=True)
        if not isinstance(child.type, UnknownType)
    ]
    if not fields:
        raise UnsupportedError("a table without columns cannot be written to parquet; add a column first")
    return pa.schema(fields, metadata={"iceberg.schema": schema_json(schema)})


def schema_json(schema: Schema) -> str:
    """Return a schema as Java keeps it in the key `iceberg.schema` of a data file's footer."""
    import json

    return json.dumps(schema.to_dict(), separators=(",", ":"))


def _file_type(type_: IcebergType, arrow: pa.DataType, name: str) -> pa.DataType:
    """Return the Arrow type that gives the right Parquet type.

    Raises:
        UnsupportedError: the type cannot be written.
    """
    match type_:
        case UUIDType():
            return pa.uuid()
        case VariantType() | GeometryType() | GeographyType():
            raise UnsupportedError(f"column '{name}' is of type {type_}, which is not written yet")
        case StructType():
            return _file_struct(type_, arrow, name)
        case ListType():
            _refuse_unknown(type_.element, f"{name}.element")
            item = arrow.value_field
            return pa.list_(item.with_type(_file_type(type_.element, item.type, f"{name}.element")))
        case MapType():
            _refuse_unknown(type_.value, f"{name}.value")
            key, value = arrow.key_field, arrow.item_field
            return pa.map_(
                key.with_type(_file_type(type_.key, key.type, f"{name}.key")),
                value.with_type(_file_type(type_.value, value.type, f"{name}.value")),
            )
    return arrow


def _file_struct(type_: StructType, arrow: pa.DataType, name: str) -> pa.DataType:
    fields = [
        arrow.field(position).with_type(_file_type(child.type, arrow.field(position).type, f"{name}.{child.name}"))
        for position, child in enumerate(type_.fields)
        if not isinstance(child.type, UnknownType)
    ]
    if not fields:
        raise UnsupportedError(f"column '{name}' is a struct without fields, which parquet cannot hold")
    return pa.struct(fields)


def _refuse_unknown(type_: IcebergType, name: str) -> None:
    if isinstance(type_, UnknownType):
        raise UnsupportedError(f"column '{name}' is of type unknown inside a list or map, which parquet cannot hold")


def _to_file_type(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([_array_to_file(chunk, type_) for chunk in column.chunks], type=type_)


def _array_to_file(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type.equals(type_):
        return array
    if pa.types.is_struct(type_):
        mask = array.is_null() if array.null_count else None
        children = [_array_to_file(array.field(item.name), item.type) for item in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    return array.cast(type_)


class OpenFile:
    """One Parquet file that is being written.

    Raises:
        StorageError: the store refuses the file or the bytes.
    """

    def __init__(self, layout: FileLayout, partition: tuple[Value, ...], *, rows: int) -> None:
        self.location = layout.next_location(partition)
        self._layout = layout
        self._partition = partition
        self._metrics = MetricsAccumulator(layout.columns, layout.options.metrics)
        self._footer: list[pq.FileMetaData] = []
        self._offsets_known = 0
        with _storage_errors(self.location):
            self._sink = _open_sink(layout.io, self.location)
            self._writer = layout.parquet_writer(self._sink, rows=rows, metadata=self._footer)

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def write_row_group(self, table: pa.Table) -> None:
        """Write rows, already in the file's types, as one row group."""
        self._metrics.observe(table)
        with _storage_errors(self.location):
            self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> DataFile:
        """Write the footer and describe the file."""
        with _storage_errors(self.location):
            self._writer.close()
            size_bytes = self.size_bytes
            self._sink.close()
        metrics = self._metrics.finish(self._footer[0])
        return DataFile(
            file_path=self.location,
            file_format="parquet",
            partition=self._partition,
            spec_id=self._layout.spec.spec_id,
            record_count=metrics.record_count,
            file_size_in_bytes=size_bytes,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts=metrics.nan_value_counts,
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            split_offsets=metrics.split_offsets,
            sort_order_id=UNSORTED_ORDER_ID,
        )

    def abort(self) -> None:
        """Let go of the file's handles; removing it is the caller's part."""
        for part in (self._writer, self._sink):
            with suppress(Exception):
                part.close()


class _storage_errors:  # noqa: N801 - reads as a statement
    """Turns what a store raises into a StorageError that names the file."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # ArrowInvalid is no OSError: a fault in the rows stays what it is.
        if isinstance(error, OSError):
            raise StorageError(
                f"cannot write {self._location}: {error}; check that the place exists and may be written to"
            ) from error


def _open_sink(io: FileIO, location: str) -> Any:
    """Open a new file for writing: natively on a local disk, through fsspec elsewhere."""
    filesystem, path = io.filesystem(location)
    protocols = filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,)
    if "file" in protocols or "local" in protocols:
        filesystem.makedirs(filesystem._parent(path), exist_ok=True)
        return pa.OSFile(path, "wb")
    # Large default blocks of object stores (50 MiB) times many open partitions would need gigabytes.
    return pa.PythonFile(filesystem.open(path, "wb", block_size=_UPLOAD_BLOCK_BYTES), mode="w")


class FileWriter:
    """Writes the rows of one partition into as many files as their target size asks for.

    Args:
        layout: shared by all writers of a task.
        partition: canonical values in the order of the spec's fields.
    """

    def __init__(self, layout: FileLayout, partition: tuple[Value, ...] = ()) -> None:
        self._layout = layout
        self._partition = partition
        self._waiting: list[pa.Table] = []
        self._file: OpenFile | None = None
        self._encoded_share: float | None = None
        self.buffered_bytes = 0
        self._buffered_rows = 0
        self.locations: list[str] = []
        self.data_files: list[DataFile] = []

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._file is not None

    def write(self, table: pa.Table) -> None:
        """Take conformed rows; what fills a row group is written."""
        if table.num_rows == 0:
            return
        table = self._layout.to_file(table)
        self._waiting.append(table)
        self.buffered_bytes += table.nbytes
        self._buffered_rows += table.num_rows
        while self._buffered_rows:
            rows = self._row_group_rows()
            if rows is None:
                break
            self._write_row_group(rows)

    def flush(self) -> None:
        """Write all waiting rows as a row group, however few."""
        while self._buffered_rows:
            self._write_row_group(min(self._buffered_rows, MAX_ROW_GROUP_ROWS))

    def close_file(self) -> None:
        """Write what waits and finish the open file; later rows go to a new one."""
        self.flush()
        if self._file is not None:
            self.data_files.append(self._file.close())
            self._file = None

    def close(self) -> tuple[DataFile, ...]:
        """Finish and return the files in the order they were begun."""
        self.close_file()
        return tuple(self.data_files)

    def abort(self) -> None:
        """Let go of everything; removing `locations` is the caller's part."""
        self._waiting, self.buffered_bytes, self._buffered_rows = [], 0, 0
        if self._file is not None:
            self._file.abort()
            self._file = None

    def compact(self) -> None:
        """Copy the waiting rows so that they no longer hold the larger tables that they were cut from."""
        if self._waiting:
            rows = pa.concat_tables(self._waiting)
            self._waiting = [_copied(rows)]

    def _row_group_rows(self) -> int | None:
        """Return how many of the waiting rows make a row group, None while there are too few."""
        target = self._row_group_target()
        if self.buffered_bytes < target and self._buffered_rows < MAX_ROW_GROUP_ROWS:
            return None  # encoding makes rows smaller, or hardly larger
        if self._encoded_share is None:
            self._encoded_share = self._sample_share()
        wanted = min(target / self._encoded_share, max(self._layout.options.max_buffered_bytes, target))
        if self.buffered_bytes < wanted and self._buffered_rows < MAX_ROW_GROUP_ROWS:
            return None
        rows = int(self._buffered_rows * min(1.0, wanted / self.buffered_bytes))
        return max(1, min(rows, MAX_ROW_GROUP_ROWS))

    def _row_group_target(self) -> float:
        """Return the size in bytes on disk of the row group to come: the last of a file fills it up."""
        options = self._layout.options
        left = options.target_file_size_bytes - (self._file.size_bytes if self._file else 0)
        return left if left < 1.25 * options.row_group_size_bytes else options.row_group_size_bytes

    def _sample_share(self) -> float:
        """Return encoded bytes per Arrow byte of the first waiting rows."""
        sample = pa.concat_tables(self._waiting).slice(0, _SAMPLE_ROWS)
        sink = pa.MockOutputStream()
        with self._layout.parquet_writer(sink, rows=1) as writer:
            writer.write_table(sample, row_group_size=sample.num_rows)
            footer_start = sink.size()
        return max(footer_start, 1) / max(sample.nbytes, 1)

    def _write_row_group(self, rows: int) -> None:
        table = pa.concat_tables(self._waiting)
        group = table.slice(0, rows)
        if self._file is None:
            self._file = OpenFile(self._layout, self._partition, rows=rows)
            self.locations.append(self._file.location)
        before = self._file.size_bytes
        self._file.write_row_group(group)
        after = self._file.size_bytes
        self._encoded_share = max(after - before, 1) / max(group.nbytes, 1)
        rest = table.slice(rows)
        self._waiting = [rest] if rest.num_rows else []
        self._buffered_rows, self.buffered_bytes = rest.num_rows, rest.nbytes if rest.num_rows else 0
        if after >= 0.9 * self._layout.options.target_file_size_bytes:
            self.data_files.append(self._file.close())
            self._file = None


def _copied(rows: pa.Table) -> pa.Table:
    """Return a copy of the rows in memory of its own."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return pa.ipc.open_stream(sink.getvalue()).read_all()


class PartitionedWriter:
    """Writes conformed rows to the files of their partitions, in bounded memory.

    At most `options.max_buffered_bytes` of rows wait for encoding, over all partitions: beyond that the partitions with
    the most waiting rows are written first. At most `options.max_open_files` files are open: beyond that the one not
    written to for the longest time is closed, and a later row of its partition begins a new file. So rows that come
    partition by partition give the largest files.

    Used as a context manager it closes at the end, and aborts on an error.

    Args:
        schema, spec: as of the table's metadata.
        data_location: directory of the data files (`options.data_location`).
        file_prefix: begin of every file name; a uuid makes the names unique.
    Raises:
        UnsupportedError: a type or partition transform cannot be written.
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
    ) -> None:
        self._layout = FileLayout(
            io, schema=schema, spec=spec, options=options, data_location=data_location, file_prefix=file_prefix
        )
        self._io = io
        self._writers: OrderedDict[Any, FileWriter] = OrderedDict()
        self._referenced_bytes = 0
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
        """Take rows that `cast.conform` returned for the same schema.

        Raises:
            StorageError: a file cannot be written. Call `abort` then.
        """
        self._check(table)
        spec = self._layout.spec
        if table.num_rows == 0:
            return
        if spec.is_unpartitioned:
            self._write_to((None,) * len(spec.fields), table)
            return
        for partition, rows in group_by_partition(table, spec, self._layout.schema):
            self._write_to(partition, rows)
        self._referenced_bytes += table.nbytes
        self._bound_memory()

    def close(self) -> tuple[DataFile, ...]:
        """Write what waits, close all files and describe them."""
        if self._closed:
            raise InvalidInputError("the writer is closed already")
        files = [file for writer in self._writers.values() for file in writer.close()]
        self._closed = True
        return tuple(sorted(files, key=lambda file: file.file_path))

    def abort(self) -> None:
        """Remove every file that this writer made; faults of the store are logged, not raised."""
        self._closed = True
        for writer in self._writers.values():
            writer.abort()
        locations = [location for writer in self._writers.values() for location in writer.locations]
        try:
            self._io.delete(locations)
        except Exception as error:
            log.warning("could not remove %d files of an unfinished write: %s", len(locations), error)

    def _check(self, table: pa.Table) -> None:
        if self._closed:
            raise InvalidInputError("the writer is closed already")
        if not table.schema.equals(self._layout.row_schema):
            raise InvalidInputError(
                f"rows of schema ({_columns(table.schema)}) do not fit the table's ({_columns(self._layout.row_schema)}); "
                "pass them through conform first"
            )

    def _write_to(self, partition: tuple[Value, ...], rows: pa.Table) -> None:
        key = tuple(canonical_key(value) for value in partition)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = FileWriter(self._layout, partition)
        self._writers.move_to_end(key)
        writer.write(rows)
        self._bound_open_files()

    def _bound_open_files(self) -> None:
        open_writers = [writer for writer in self._writers.values() if writer.is_open]
        for writer in open_writers[: max(0, len(open_writers) - self._layout.options.max_open_files)]:
            writer.close_file()

    def _bound_memory(self) -> None:
        """Write the fullest partitions when too much waits; let go of tables that only a few waiting rows hold."""
        limit = self._layout.options.max_buffered_bytes
        if self._referenced_bytes <= limit:
            return
        waiting = sum(writer.buffered_bytes for writer in self._writers.values())
        if waiting > limit // 2:
            for writer in sorted(self._writers.values(), key=lambda item: item.buffered_bytes, reverse=True):
                waiting -= writer.buffered_bytes
                writer.flush()
                self._bound_open_files()
                if waiting <= limit // 4:
                    break
        for writer in self._writers.values():
            writer.compact()
        self._referenced_bytes = waiting


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{item.name}: {item.type}" for item in schema)


def file_metadata(schema: Schema) -> Mapping[str, str]:
    """Return the key-value metadata of a data file."""
    return {"iceberg.schema": schema_json(schema)}
