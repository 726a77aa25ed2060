"""Data files to rows: Parquet by field id, in the columns of whatever schema is asked for.

Here: opening a file, which of its row groups and columns are read, and the row filter. Not here: how a column of a file
becomes a column of the schema (`columns`), which files are read (`plan.scan`), delete files, Avro and ORC.

Memory: one batch of rows of one row group at a time; of remote files the wanted columns of one row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_iceberg.data.columns import (
    FileField,
    check_readable,
    fields_by_id,
    file_fields,
    find_leaves,
    identity_constants,
    missing_column,
    read_column,
)
from airflow_iceberg.data.row_groups import group_ranges
from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from airflow_iceberg.plan.filters import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    AlwaysFalse,
    AlwaysTrue,
    Column,
    Expression,
    column_path,
    predicates,
    row_mask,
)
from airflow_iceberg.plan.metrics import may_match, must_match
from airflow_iceberg.spec.arrow import schema_to_arrow
from airflow_iceberg.spec.manifests import DataFile, FileContent

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_iceberg.spec.partitioning import PartitionSpec
    from airflow_iceberg.spec.schema import Schema
    from airflow_iceberg.spec.types import NestedField, Value
    from airflow_iceberg.storage.base import FileIO

BATCH_SIZE = 131_072


def read_file(
    io: FileIO,
    data_file: DataFile,
    *,
    schema: Schema,
    table_schema: Schema | None = None,
    row_filter: Expression = ALWAYS_TRUE,
    spec: PartitionSpec | None = None,
    name_mapping: str | None = None,
    delete_files: Sequence[DataFile] = (),
    batch_size: int = BATCH_SIZE,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of a data file, in the order of the file.

    Args:
        schema: the columns to return, in this order; see `spec.schema.Schema.select`.
        table_schema: where the filter's columns are described that are not returned; `schema` if left out.
        row_filter: bound; a scan task's residual is enough.
        spec: the spec that the file was written with; identity partition values stand in for columns that the file does
            not have.
        name_mapping: the table's property `schema.name-mapping.default`.
        delete_files: what applies to the file; must be empty so far.
        batch_size: most rows of a batch.
    Returns:
        Batches with the Arrow schema `schema_to_arrow(schema, with_field_ids=False)`, none of them empty.
    Raises:
        UnsupportedError: delete files, a format or a column that is not read yet; nothing was yielded then.
        NotFoundError: the file is gone.
        FormatError: not a Parquet file, or with columns of other types than the schema.
        StorageError: the store failed.
    Spec: Column Projection; Reading Data Files with Parquet.
    """
    check_supported(data_file, delete_files)
    check_readable(schema)
    return _read(io, data_file, schema, table_schema or schema, row_filter, spec, name_mapping, batch_size)


def check_supported(file: DataFile, delete_files: Sequence[DataFile] = ()) -> None:
    """Refuse a file that cannot be read so far, before anything is opened.

    Raises:
        UnsupportedError: deletes, another format than Parquet, encryption.
    """
    where = f"data file {file.file_path}"
    if delete_files:
        raise UnsupportedError(f"{where} has {len(delete_files)} delete files, which are not read yet")
    if file.content is not FileContent.DATA:
        raise UnsupportedError(f"{file.file_path} holds deletes, not rows")
    if file.file_format != "parquet":
        raise UnsupportedError(f"{where} is {file.file_format}; only Parquet is read so far")
    if file.key_metadata is not None:
        raise UnsupportedError(f"{where} is encrypted; encrypted tables cannot be read")


def _read(
    io: FileIO,
    data_file: DataFile,
    schema: Schema,
    table_schema: Schema,
    row_filter: Expression,
    spec: PartitionSpec | None,
    name_mapping: str | None,
    batch_size: int,
) -> Iterator[pa.RecordBatch]:
    if isinstance(row_filter, AlwaysFalse):
        return
    filter_schema = _filter_schema(row_filter, table_schema)
    with _opened(io, data_file.file_path) as parquet:
        source = _Source(parquet, identity_constants(spec, data_file.partition), name_mapping)
        for group in range(parquet.num_row_groups):
            residual = _group_residual(source, filter_schema, row_filter, group)
            if isinstance(residual, AlwaysFalse):
                continue
            schemas = (schema,) if isinstance(residual, AlwaysTrue) else (schema, filter_schema)
            for raw in source.read_group(group, schemas, batch_size):
                batch = _select(raw, schema, filter_schema, residual)
                if batch is not None and batch.num_rows:
                    yield batch


@contextmanager
def _opened(io: FileIO, location: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; errors of Arrow and of the store, while it is open, become ours."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    filesystem, path = io.filesystem(location)
    is_local = "file" in ([filesystem.protocol] if isinstance(filesystem.protocol, str) else filesystem.protocol)
    try:
        # Arrow reads local files itself, without the lock of Python around every read.
        handle: Any = pa.OSFile(path) if is_local else filesystem.open(path, "rb")
        with handle:
            # INT96 has nanoseconds, and so a range of years 1677 to 2262; in microseconds nothing overflows.
            yield pq.ParquetFile(handle, coerce_int96_timestamp_unit="us", pre_buffer=not is_local)
    except FileNotFoundError as error:
        raise NotFoundError(f"data file {location} does not exist, although the table lists it") from error
    except OSError as error:
        # Arrow reports pages that cannot be decompressed as an OSError, too, but without a number.
        if error.errno is None:
            raise FormatError(f"cannot read a Parquet file: {error}", path=location) from error
        raise StorageError(f"cannot read {location}: {error}") from error
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(f"cannot read data file {location}: {error}") from error
    except pa.ArrowException as error:
        raise FormatError(f"cannot read a Parquet file: {error}", path=location) from error
    except FormatError as error:
        error.path = error.path or location
        raise


@dataclass(frozen=True, kw_only=True, slots=True)
class _RawRows:
    """Rows as they lie in the file.

    Attributes:
        batch: None if no column of the file is needed.
        fields: the columns of the batch, by field id.
    """

    count: int
    batch: pa.RecordBatch | None
    fields: Mapping[int, FileField]
    constants: Mapping[int, Value]

    def build(self, schema: Schema) -> pa.RecordBatch:
        """Return the rows with the columns of a schema."""
        import pyarrow as pa

        if not schema.fields:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * self.count, pa.struct([])))
        columns = [self.column(field) for field in schema.fields]
        return pa.RecordBatch.from_arrays(columns, schema=_arrow_schema(schema))

    def column(self, field: NestedField) -> pa.Array:
        """Return one column."""
        found = self.fields.get(field.id)
        if found is None or self.batch is None:
            return missing_column(field, self.count, self.constants)
        return read_column(self.batch.column(found.position), found, field, self.constants)


class _Source:
    """An open file, its columns by field id, and the values of columns that it does not have."""

    def __init__(self, parquet: pq.ParquetFile, constants: Mapping[int, Value], name_mapping: str | None) -> None:
        self.parquet = parquet
        self.constants = constants
        self._name_mapping = name_mapping
        self.fields = file_fields(parquet.schema_arrow, name_mapping)
        leaves = self.fields[-1].leaves.stop if self.fields else 0
        if leaves != len(parquet.schema):
            raise UnsupportedError(
                f"a Parquet file has a nested column of a kind that is not read yet: it holds {len(parquet.schema)} "
                f"columns of values where {leaves} are expected"
            )

    def read_group(self, group: int, schemas: Sequence[Schema], batch_size: int) -> Iterator[_RawRows]:
        """Yield the rows of one row group with the columns that the schemas need."""
        leaves = sorted({leaf for schema in schemas for leaf in find_leaves(schema.fields, self.fields)})
        if not leaves:
            yield from self._without_columns(self.parquet.metadata.row_group(group).num_rows, batch_size)
            return
        # By path: a name with a dot in it may bring another column along, so what comes is looked up by id again.
        paths = [self.parquet.schema.column(leaf).path for leaf in leaves]
        fields: Mapping[int, FileField] | None = None
        for batch in self.parquet.iter_batches(batch_size, row_groups=[group], columns=paths):
            fields = fields or fields_by_id(file_fields(batch.schema, self._name_mapping))
            yield _RawRows(count=batch.num_rows, batch=batch, fields=fields, constants=self.constants)

    def _without_columns(self, rows: int, batch_size: int) -> Iterator[_RawRows]:
        for start in range(0, rows, batch_size):
            yield _RawRows(count=min(batch_size, rows - start), batch=None, fields={}, constants=self.constants)


@lru_cache(maxsize=64)
def _arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a schema; made once, not for every batch."""
    return schema_to_arrow(schema, with_field_ids=False)


def _filter_schema(row_filter: Expression, table_schema: Schema) -> Schema:
    ids = {predicate.column.field_id for predicate in predicates(row_filter)}
    names = [table_schema.find_name(field_id) for field_id in ids if field_id is not None]
    return table_schema.select([name for name in names if name is not None])


def _group_residual(source: _Source, schema: Schema, row_filter: Expression, group: int) -> Expression:
    """Return what is left of the filter for a row group, by the statistics in the footer."""
    if isinstance(row_filter, AlwaysTrue):
        return row_filter
    ranges = group_ranges(source.parquet.metadata.row_group(group), schema, source.fields, source.constants)
    if not may_match(row_filter, ranges):
        return ALWAYS_FALSE
    return ALWAYS_TRUE if must_match(row_filter, ranges) else row_filter


def _select(raw: _RawRows, schema: Schema, filter_schema: Schema, residual: Expression) -> pa.RecordBatch | None:
    """Make a batch of the wanted columns and rows, None where there are no such rows."""
    import pyarrow.compute as pc

    if isinstance(residual, AlwaysTrue):
        return raw.build(schema)
    columns = {field.id: raw.column(field) for field in filter_schema.fields}
    mask = row_mask(residual, lambda column: _values_of(column, columns, filter_schema))
    return raw.build(schema).filter(mask) if pc.any(mask).as_py() else None


def _values_of(column: Column, columns: Mapping[int, pa.Array], schema: Schema) -> pa.Array:
    """Return the values of a column; a field of a struct that is null is null."""
    import pyarrow.compute as pc

    path = column_path(schema, column.field_id or 0)
    if path is None:
        raise InvalidInputError(f"column '{column}' of the filter is not in the schema that is read")
    values = columns[path[0].id]
    return pc.struct_field(values, [field.name for field in path[1:]]) if len(path) > 1 else values
