"""Data files to rows: by field id, in the columns of whatever schema is asked for, without what was deleted.

Here: which parts of a file are read, the row filter, and deletes put together. Not here: how a format is read
(`raw_rows` and the formats beside it), how a column of a file becomes a column of the schema (`columns`), what is
deleted (`deletes`), which files are read (`plan.scan`).

Memory: one batch of rows of a row group, stripe or block at a time; of remote files the wanted columns of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.read.columns import identity_constants, is_geo
from airflow_iceberg.data.read.deletes import NO_DELETES, DeleteReader, RowDeletes, check_delete_file
from airflow_iceberg.data.read.metadata_columns import IS_DELETED, FileFacts, partition_values
from airflow_iceberg.data.read.open_source import FORMATS, open_source
from airflow_iceberg.data.read.raw_rows import BATCH_SIZE, Part, RawRows
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.arrow import row_mask
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.expressions.metrics import may_match, must_match
from airflow_iceberg.format.arrow.buffers import number_array
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import NestedField
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class FileToRead:
    """A data file, and what is known of it beside its own bytes.

    Attributes:
        spec: the spec of the file; identity partition values are read for columns that the file does not have.
        name_mapping: the table's property `schema.name-mapping.default`.
        delete_files: those that apply to the file.
        deletes: reader of `delete_files`, which reads each once for all files of a scan; required if the table's schema
            lacks a column of equality deletes.
        sequence_number: data sequence number of the file.
        parts: (first, end, count): of a file cut into `count` shares of row groups, those from `first` to before `end`.
    """

    file: DataFile
    spec: PartitionSpec | None = None
    name_mapping: str | None = None
    delete_files: Sequence[DataFile] = ()
    deletes: DeleteReader | None = None
    sequence_number: int | None = None
    parts: tuple[int, int, int] = (0, 1, 1)

    @property
    def facts(self) -> FileFacts:
        """What columns are made of that are the same in all rows."""
        return FileFacts(
            location=self.file.file_path,
            spec_id=self.file.spec_id,
            constants=identity_constants(self.spec, self.file.partition),
            partition=partition_values(self.spec, self.file.partition),
            first_row_id=self.file.first_row_id,
            sequence_number=self.sequence_number,
        )


def read_file(
    io: FileIO,
    source: FileToRead,
    *,
    schema: Schema,
    table_schema: Schema | None = None,
    row_filter: tree.Expression = tree.ALWAYS_TRUE,
    batch_size: int = BATCH_SIZE,
    keep_dictionaries: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of a data file, in the order of the file.

    Args:
        schema: the columns to return, in this order, metadata columns included (by the ids in `metadata_columns`).
        table_schema: where the filter's columns are described that are not returned; `schema` if left out.
        row_filter: bound; a scan task's residual is enough.
        batch_size: most rows of a batch.
        keep_dictionaries: whether text columns in small dictionaries are Arrow dictionaries, which may differ by batch.
    Returns:
        Batches with the Arrow schema `schema_to_arrow(schema, with_field_ids=False)`, none of them empty.
    Raises:
        UnsupportedError: a file or a column that is not read; nothing is yielded.
        NotFoundError: the file is gone.
        FormatError: not a file of its format, or with columns of other types than the schema.
        StorageError: the store failed.
    Spec: Column Projection; Reading Data Files with Parquet; Row Lineage.
    """
    check_supported(source.file, source.delete_files, find_geo_fields(schema))
    known, facts, mapping = table_schema or schema, source.facts, source.name_mapping
    if isinstance(row_filter, tree.AlwaysFalse):
        return iter(())
    reader = source.deletes or DeleteReader(io, schemas=(known,), name_mapping=mapping)
    wanted = _Wanted(schema, _filter_schema(row_filter, known), row_filter, batch_size, keep_dictionaries)

    def batches() -> Iterator[pa.RecordBatch]:
        gone = reader.of(source.file, source.delete_files)
        kind = source.file.file_format
        with open_source(io, kind, facts, mapping, keep_dictionaries=keep_dictionaries) as opened:
            for part in _share(list(opened.parts()), *source.parts):
                yield from wanted.of(part, gone)

    return batches()


def _share(found: Sequence[Part], first: int, end: int, count: int) -> Sequence[Part]:
    """Return a share of a file's parts; all shares together are all parts, however many there are."""
    return found[first * len(found) // count : end * len(found) // count]


def check_supported(
    file: DataFile, delete_files: Sequence[DataFile] = (), geo_fields: Sequence[NestedField] = ()
) -> None:
    """Refuse a file that cannot be read, before anything is opened.

    Args:
        geo_fields: of the columns that are read; see `find_geo_fields`.
    Raises:
        UnsupportedError: an unknown format, encryption, or values of a column that are not understood.
    """
    where = f"data file {file.file_path}"
    if file.content is not FileContent.DATA:
        raise UnsupportedError(f"{file.file_path} holds deletes, not rows")
    if file.file_format not in FORMATS:
        raise UnsupportedError(f"{where} is {file.file_format}, expected {', '.join(FORMATS)}")
    if file.key_metadata is not None:
        raise UnsupportedError(f"{where} is encrypted; encrypted tables cannot be read")
    for delete in delete_files:
        check_delete_file(delete)
    for field in geo_fields:
        values, nulls = (file.value_counts or {}).get(field.id, 0), (file.null_value_counts or {}).get(field.id, 0)
        if values > nulls:
            raise UnsupportedError(f"{where} holds values of column '{field.name}', which is {field.type} and not read")


def find_geo_fields(schema: Schema) -> tuple[NestedField, ...]:
    """Return the columns whose values cannot be read: only where no file holds any are they null."""
    return tuple(field for field in schema.fields_by_id.values() if is_geo(field.type))


class _Wanted:
    """What is asked of a file."""

    def __init__(
        self,
        schema: Schema,
        filter_schema: Schema,
        row_filter: tree.Expression,
        batch_size: int,
        keep_dictionaries: bool,
    ) -> None:
        self._schema = schema
        self._filter_schema = filter_schema
        self._row_filter = row_filter
        self._batch_size = batch_size
        self._keep_dictionaries = keep_dictionaries
        self._tells_deleted = IS_DELETED.id in schema.fields_by_id

    def of(self, part: Part, deletes: RowDeletes = NO_DELETES) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of a part of a file."""
        residual = self._residual(part)
        if isinstance(residual, tree.AlwaysFalse):
            return
        schemas = [self._schema, *deletes.schemas]
        if not isinstance(residual, tree.AlwaysTrue):
            schemas.append(self._filter_schema)
        for rows in part.read(schemas, self._batch_size):
            batch = self._select(rows, residual, deletes)
            if batch is not None and batch.num_rows:
                yield batch

    def _residual(self, part: Part) -> tree.Expression:
        """Return what is left of the filter for a part, by its statistics."""
        if isinstance(self._row_filter, tree.AlwaysTrue):
            return self._row_filter
        ranges = part.ranges(self._filter_schema)
        if ranges is None:
            return self._row_filter
        if not may_match(self._row_filter, ranges):
            return tree.ALWAYS_FALSE
        return tree.ALWAYS_TRUE if must_match(self._row_filter, ranges) else self._row_filter

    def _select(self, rows: RawRows, residual: tree.Expression, deletes: RowDeletes) -> pa.RecordBatch | None:
        """Make a batch of the wanted columns and rows, None where there are no such rows."""
        mask = None
        deleted = deletes.deleted(rows)
        if deleted is not None and deleted.any():
            # Whoever asks which rows are deleted gets them too, as from Iceberg Java.
            if self._tells_deleted:
                rows = replace(rows, deleted=deleted)
            else:
                mask = number_array(~deleted)
        if not isinstance(residual, tree.AlwaysTrue):
            columns = {field.id: rows.column(field) for field in self._filter_schema.fields}
            selected = row_mask(residual, lambda column: _values_of(column, columns, self._filter_schema))
            mask = selected if mask is None else pc.and_kleene(mask, selected)
        if mask is not None and not pc.any(mask).as_py():
            return None
        return rows.build(self._schema, mask, keep_dictionaries=self._keep_dictionaries)


def _filter_schema(row_filter: tree.Expression, table_schema: Schema) -> Schema:
    ids = {predicate.column.field_id for predicate in tree.predicates(row_filter)}
    names = [table_schema.find_name(field_id) for field_id in ids if field_id is not None]
    return table_schema.select([name for name in names if name is not None])


def _values_of(column: tree.Column, columns: Mapping[int, pa.Array], schema: Schema) -> pa.Array:
    """Return the values of a column; a field of a struct that is null is null."""
    path = column_path(schema, column.field_id or 0)
    if path is None:
        raise InvalidInputError(f"column '{column}' of the filter is not in the schema that is read")
    values = columns[path[0].id]
    return pc.struct_field(values, [field.name for field in path[1:]]) if len(path) > 1 else values
