"""Data files to rows: by field id, in the columns of any schema, without deleted rows.

Not here: how a format is read (`raw_rows` and a module for each format), how a column of a file becomes a column of the
schema (`columns`), which rows are deleted (`deletes`), which files are read (`plan.scan`).

Memory: one batch of rows; of a remote file also the wanted columns of a row group, a stripe or a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.read.columns import identity_constants, is_geo
from airflow_iceberg.data.read.deletes import DeleteReader, RowDeletes, check_delete_file
from airflow_iceberg.data.read.metadata_columns import FileFacts
from airflow_iceberg.data.read.open_source import FORMATS, open_source
from airflow_iceberg.data.read.raw_rows import BATCH_SIZE, Part, RawRows
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.arrow import row_mask
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.expressions.metrics import may_match, must_match
from airflow_iceberg.format.arrow.buffers import number_array
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata_columns import IS_DELETED, partition_values
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import BinaryType, IcebergType, ListType, MapType, NestedField, StructType
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class FileToRead:
    """A data file, and what the table's metadata says about it.

    Attributes:
        spec: the spec of the file; identity partition values are read for columns that the file does not have.
        name_mapping: the table's property `schema.name-mapping.default`.
        delete_files: the delete files that apply to the file.
        deletes: the reader of `delete_files`, shared by all files of a scan; required if the table's schema lacks a
            column of equality deletes.
        sequence_number: the data sequence number of the file.
        parts: (first, end, count): the shares from `first` to before `end` of the file's row groups in `count` shares.
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
        """The values that are the same in all rows."""
        return FileFacts(
            location=self.file.file_path,
            spec_id=self.file.spec_id,
            constants=identity_constants(self.spec, self.file.partition),
            partition=partition_values(self.spec, self.file.partition),
            first_row_id=self.file.first_row_id,
            sequence_number=self.sequence_number,
        )


class Unit(Protocol):
    """A data file of the table, or some of its row groups, with the deletes that apply to it."""

    @property
    def file(self) -> DataFile: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def delete_files(self) -> tuple[DataFile, ...]: ...
    @property
    def parts(self) -> tuple[int, int, int] | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadAs:
    """How the files of a table are read, from the table's metadata.

    Attributes:
        schemas: the schemas of the table; the first is the one that predicates are bound to.
        specs: the partition specs by id.
    """

    io: FileIO
    schemas: tuple[Schema, ...]
    specs: Mapping[int, PartitionSpec]
    name_mapping: str | None = None

    def rows(
        self,
        unit: Unit,
        deletes: DeleteReader,
        *,
        schema: Schema,
        table_schema: Schema | None = None,
        row_filter: tree.Expression = tree.ALWAYS_TRUE,
        keep_dictionaries: bool = False,
        positions: RowPositions | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a unit that are not deleted; arguments as in `read_file`."""
        source = FileToRead(
            file=unit.file,
            spec=self.specs[unit.file.spec_id],
            name_mapping=self.name_mapping,
            delete_files=unit.delete_files,
            deletes=deletes,
            sequence_number=unit.sequence_number,
            parts=unit.parts or (0, 1, 1),
        )
        return read_file(
            self.io,
            source,
            schema=schema,
            table_schema=table_schema or self.schemas[0],
            row_filter=row_filter,
            keep_dictionaries=keep_dictionaries,
            positions=positions,
        )

    def delete_reader(self) -> DeleteReader:
        """Return the reader of delete files for all files of a task."""
        specs = tuple(self.specs.values())
        return DeleteReader(self.io, schemas=self.schemas, specs=specs, name_mapping=self.name_mapping)


def read_file(
    io: FileIO,
    source: FileToRead,
    *,
    schema: Schema,
    table_schema: Schema | None = None,
    row_filter: tree.Expression = tree.ALWAYS_TRUE,
    batch_size: int = BATCH_SIZE,
    keep_dictionaries: bool = False,
    positions: RowPositions | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of a data file, in the order of the file.

    Args:
        schema: the columns of the result, metadata columns included (by the ids in `metadata_columns`).
        table_schema: the schema that the filter is bound to; `schema` by default.
        row_filter: a bound predicate; the residual of a scan task is enough.
        batch_size: the largest number of rows of a batch.
        keep_dictionaries: whether text columns in small dictionaries are Arrow dictionaries, which may differ by batch.
        positions: the only rows that are read, by their positions in the file; None for all.
    Returns:
        Batches with the Arrow schema `schema_to_arrow(schema, with_field_ids=False)`, none of them empty.
    Raises:
        UnsupportedError: a file or a column that cannot be read; raised before any row is yielded.
        NotFoundError: the file does not exist.
        FormatError: not a file of its format, or its columns are of other types than the schema.
        StorageError: the store failed.
    Spec: Column Projection; Reading Data Files with Parquet; Row Lineage.
    """
    check_supported(source.file, source.delete_files, find_geo_fields(schema))
    known, facts, mapping = table_schema or schema, source.facts, source.name_mapping
    if isinstance(row_filter, tree.AlwaysFalse):
        return iter(())
    reader = source.deletes or DeleteReader(io, schemas=(known,), name_mapping=mapping)
    wanted = _Wanted(schema, _filter_schema(row_filter, known), row_filter, batch_size, keep_dictionaries, positions)

    def batches() -> Iterator[pa.RecordBatch]:
        gone = reader.of(source.file, source.delete_files)
        kind = source.file.file_format
        with open_source(io, kind, facts, mapping, keep_dictionaries=keep_dictionaries) as opened:
            for part in _share(list(opened.parts()), *source.parts):
                yield from wanted.of(part, gone)

    return batches()


def _share(found: Sequence[Part], first: int, end: int, count: int) -> Sequence[Part]:
    return found[first * len(found) // count : end * len(found) // count]


def check_supported(
    file: DataFile, delete_files: Sequence[DataFile] = (), geo_fields: Sequence[NestedField] = ()
) -> None:
    """Raise UnsupportedError for an unknown format, encryption, or values in `geo_fields`, before a file is opened."""
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
    """Return the columns whose values cannot be read; they are null where no file has values."""
    return tuple(field for field in schema.fields_by_id.values() if is_geo(field.type))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The rows and columns that are wanted of a file."""

    schema: Schema
    filter_schema: Schema
    row_filter: tree.Expression
    batch_size: int
    keep_dictionaries: bool
    positions: RowPositions | None

    def of(self, part: Part, deletes: RowDeletes) -> Iterator[pa.RecordBatch]:
        residual = self._residual(part)
        if isinstance(residual, tree.AlwaysFalse) or not self._has_positions(part):
            return
        schemas = [self.schema, *deletes.schemas]
        if not isinstance(residual, tree.AlwaysTrue):
            schemas.append(self.filter_schema)
        for rows in part.read(schemas, self.batch_size):
            batch = self._select(rows, residual, deletes)
            if batch is not None and batch.num_rows:
                yield batch

    def _has_positions(self, part: Part) -> bool:
        span = part.span() if self.positions is not None else None
        return self.positions is None or span is None or bool(self.positions.mask(*span).any())

    def _residual(self, part: Part) -> tree.Expression:
        """Return the part of the filter that the statistics of a part do not decide."""
        if isinstance(self.row_filter, tree.AlwaysTrue):
            return self.row_filter
        ranges = part.ranges(self.filter_schema)
        if ranges is None:
            return self.row_filter
        if not may_match(self.row_filter, ranges):
            return tree.ALWAYS_FALSE
        return tree.ALWAYS_TRUE if must_match(self.row_filter, ranges) else self.row_filter

    def _select(self, rows: RawRows, residual: tree.Expression, deletes: RowDeletes) -> pa.RecordBatch | None:
        mask = None
        if self.positions is not None:
            chosen = self.positions.mask(rows.position, rows.count)
            if not chosen.any():
                return None
            mask = number_array(chosen)
        deleted = deletes.deleted(rows)
        if deleted is not None and deleted.any():
            # As in Iceberg Java, a reader that selects `_deleted` gets the deleted rows, too.
            if IS_DELETED.id in self.schema.fields_by_id:
                rows = replace(rows, deleted=deleted)
            else:
                live = number_array(~deleted)
                mask = live if mask is None else pc.and_(mask, live)
        if not isinstance(residual, tree.AlwaysTrue):
            columns = {field.id: rows.column(field) for field in self.filter_schema.fields}
            selected = row_mask(residual, lambda column: _values_of(column, columns, self.filter_schema))
            mask = selected if mask is None else pc.and_kleene(mask, selected)
        if mask is not None and not pc.any(mask).as_py():
            return None
        return rows.build(self.schema, mask, keep_dictionaries=self.keep_dictionaries)


def _filter_schema(row_filter: tree.Expression, table_schema: Schema) -> Schema:
    ids = {predicate.column.field_id for predicate in tree.predicates(row_filter)}
    names = [table_schema.find_name(field_id) for field_id in ids if field_id is not None]
    found = table_schema.select([name for name in names if name is not None])
    return replace(found, fields=tuple(replace(field, type=_only_asked(field.type)) for field in found.fields))


def _only_asked(kind: IcebergType) -> IcebergType:
    """Return the type to read for a filter, which asks of a geometry only whether there is one: its bytes tell that."""
    match kind:
        case StructType():
            return StructType(fields=tuple(replace(child, type=_only_asked(child.type)) for child in kind.fields))
        case ListType():
            return replace(kind, element=_only_asked(kind.element))
        case MapType():
            return replace(kind, key=_only_asked(kind.key), value=_only_asked(kind.value))
    return BinaryType() if is_geo(kind) else kind


def _values_of(column: tree.Column, columns: Mapping[int, pa.Array], schema: Schema) -> pa.Array:
    """Return the values of a column; a field of a struct that is null is null."""
    path = column_path(schema, column.field_id or 0)
    if path is None:
        raise InvalidInputError(f"column '{column}' of the filter is not in the schema that is read")
    values = columns[path[0].id]
    return pc.struct_field(values, [field.name for field in path[1:]]) if len(path) > 1 else values
