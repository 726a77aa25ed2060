"""The tasks of a merge: rows of the table that can match, changes, files.

Not here: the order of these tasks (`jobs.merge.job`), the source (`jobs.merge.source`), the query between them
(`jobs.merge.sql`), how a file is changed (`data.edit_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.cast.assign import assigned, assigned_exactly
from airflow_iceberg.data.cast.rows import conform
from airflow_iceberg.data.edit_rows import FileEdits, edit_rows
from airflow_iceberg.data.read.file import ReadAs
from airflow_iceberg.data.row_changes import WriteAs
from airflow_iceberg.data.write.file_layout import UNSORTED_ORDER_ID
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.data.write.sorted import SortedRuns, unsortable, write_order
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.merge_clauses import DELETE, INSERT
from airflow_iceberg.format.arrow.buffers import numbers_of
from airflow_iceberg.format.arrow.paths import at_path
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.metadata_columns import POSITION
from airflow_iceberg.format.names import Path
from airflow_iceberg.format.partitions.grouping import group_by_partition
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import NestedField
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.context import RowSink, TaskContext, coalesced, fill, options_of
from airflow_iceberg.jobs.merge import sql
from airflow_iceberg.jobs.merge.keys import MOST_LITERALS_OF_ROWS, Keys
from airflow_iceberg.jobs.protocol.merge_task import Clause, MergeTask
from airflow_iceberg.jobs.protocol.result import FileChange
from airflow_iceberg.jobs.table_reader import ReadUnit, TableReader
from airflow_iceberg.jobs.task import Change, EditFiles, InsertRows, TaskReport

if TYPE_CHECKING:
    from airflow_iceberg.format.manifests.entries import DataFile
    from airflow_iceberg.jobs.protocol.table_input import FileUnit
    from airflow_iceberg.storage.base import FileIO

_INSERT_BUCKETS = 128
# Keys are looked up for so many rows at a time: a lookup builds a table of all keys.
_ROWS_PER_LOOKUP = 1 << 20


@dataclass(kw_only=True)
class MergeContext(TaskContext[MergeTask]):
    """What the tasks of a merge share.

    Attributes:
        options: the encoding of data files.
    """

    options: WriteOptions = field(init=False)

    def __post_init__(self) -> None:
        self.options = options_of(self.task.write)

    @property
    def schema(self) -> Schema:
        """The schema that new values are cast to: write defaults exist from version 3 on."""
        return self.task.write.rows_schema

    def read_as(self) -> ReadAs:
        """Return how the files of the table are read."""
        specs = {spec.spec_id: spec for spec in self.task.specs}
        return ReadAs(io=self.io, schemas=self.task.schemas, specs=specs, name_mapping=self.task.name_mapping)

    def write_as(self, number: int) -> WriteAs:
        """Return how the task of this number writes files."""
        write = self.task.write
        return WriteAs(
            mode=self.task.mode,
            format_version=write.format_version,
            options=self.options,
            data_location=write.data_location,
            file_prefix=f"{self.plan.file_prefix}-{number:05d}",
            delete_options=WriteOptions.of_deletes(write.properties),
        )

    def report(self, number: int, files: Sequence[DataFile], changes: Iterable[Any] = ()) -> TaskReport:
        """Return the report of a task that wrote files."""
        types = self.task.partition_types
        return TaskReport(
            number=number,
            data_files=tuple(file.to_dict(types[file.spec_id]) for file in files),
            changes=tuple(FileChange(**{name: getattr(one, name) for name in FileChange.__slots__}) for one in changes),
            record_count=sum(file.record_count for file in files),
        )


# -- the rows of the table ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchUnit:
    """A file of the table, or some of its row groups; `file` is its number."""

    file: int
    read: ReadUnit


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The rows of the table that can match.

    Attributes:
        reader: reads the columns that the SQL needs, and the position.
        items: the files of each task.
        keys: the slices of the source's keys; empty if all rows can match.
        key_ids: the fields of the table that are compared with them; `source_keys` is where those of the source are.
    """

    reader: TableReader
    items: tuple[tuple[MatchUnit, ...], ...]
    keys: tuple[exchange.Slice, ...] = ()
    key_ids: tuple[int, ...] = ()
    source_keys: tuple[Path, ...] = ()

    def open_keys(self, io: FileIO) -> Keys:
        """Read the keys."""
        tables = exchange.read_slices(io, self.keys)
        return Keys.of(tables, self.reader.schema, self.key_ids) if self.keys else Keys()

    def rows(self, io: FileIO, number: int, keys: Keys) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, as `reader` says; the number of the file comes last, after the position."""
        for file, table in self.tables(io, number, keys):
            mask = keys.mask(table)
            for batch in (table if mask is None else table.filter(mask)).to_batches():
                if batch.num_rows:
                    yield batch.append_column(sql.FILE, pa.repeat(pa.scalar(file, pa.int32()), len(batch)))

    def tables(self, io: FileIO, number: int, keys: Keys) -> Iterator[tuple[int, pa.Table]]:
        """Yield the number of a file and rows of it; among them are all rows of the task that can match."""
        row_filter = keys.filter(MOST_LITERALS_OF_ROWS)
        for unit in self.items[number]:
            residual = tree.all_of(unit.read.residual, row_filter)
            if isinstance(residual, tree.AlwaysFalse):
                continue
            found = self.reader.rows(io, (ReadUnit(unit=unit.read.unit, residual=residual),))
            for table in _grouped(found):
                yield unit.file, table


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= _ROWS_PER_LOOKUP:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


@dataclass(frozen=True, kw_only=True, slots=True)
class Matching:
    """What the SQL of a merge sees.

    Attributes:
        candidates: the rows of `target`.
        source: the slices of the rows of `source`; None without a source.
        source_schema: its columns.
        tables: the sides that subqueries read as tables, by their names.
    """

    candidates: Candidates
    source: tuple[exchange.Slice, ...] | None = None
    source_schema: pa.Schema | None = None
    tables: tuple[str, ...] = ()


# -- the changes -------------------------------------------------------------------------------------------------------


def change(context: MergeContext, number: int, tables: Iterable[pa.Table], staging: Change, source: str) -> TaskReport:
    """Cast the new values to the columns of the table, and bring each change to the file of its row."""
    cut = _Cut(context, staging, source)
    return TaskReport.of_slices(number, fill(context.spill(number, cut), coalesced(tables)))


class _Cut:
    """Cuts changes into buckets: one for each clause and file, and some for new rows."""

    def __init__(self, context: MergeContext, staging: Change, source: str) -> None:
        self._schema = context.schema
        self._spec = context.task.spec
        self._staging = staging
        self._source = source
        # The key of an upsert is what the rows were matched by.
        keys = context.task.keys if context.task.is_unique else ()
        ids = [key.field_id for key in keys]
        self._keys = {self._schema.path(number): self._schema.fields_by_id[number].type for number in ids}

    def __call__(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        clauses = self._staging.clauses
        chosen = table.column(sql.CLAUSE)
        for number, clause in enumerate(clauses):
            rows = table.filter(pc.equal(chosen, number))
            if not rows.num_rows:
                continue
            if clause.action == INSERT:
                yield from self._inserted(self._values(rows, number, clause))
            else:
                yield from self._by_file(rows, number, clause)
        yield from self._by_file(table.filter(pc.is_null(chosen)), len(clauses), None)

    def _values(self, rows: pa.Table, number: int, clause: Clause) -> pa.Table:
        """Return the new values, as the columns of the table."""
        is_insert = clause.action == INSERT
        schema = self._schema if is_insert else Schema(tuple(map(self._schema.find_field, clause.columns)))
        columns = [rows.column(sql.value_name(number, at)) for at in range(len(clause.columns))]
        fields = [self._schema.find_field(name) for name in clause.columns]
        values = [self._assigned(column, item) for column, item in zip(columns, fields, strict=True)]
        return conform(pa.table(values, names=list(clause.columns)), schema, source=self._source)

    def _assigned(self, column: pa.ChunkedArray, field: NestedField) -> pa.ChunkedArray:
        """Return the values of a column, as SQL assigns them."""
        try:
            for path, kind in self._keys.items():
                if path[0] == field.name:
                    exact = assigned_exactly(at_path(pa.table({field.name: column}), path), kind)
                    if path == (field.name,):
                        return exact
                    # Floats are checked here: the whole column is rounded.
                    leaf = NestedField(id=1, name=".".join(path), type=kind)
                    conform(pa.table({leaf.name: exact}), Schema((leaf,)), source=self._source)
            return assigned(column, field.type)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"column '{field.name}' of the merge: a value ({column.type}) does not fit {field.type}: "
                f"{str(error)[:200]}; change the value or the column's type"
            ) from error

    def _inserted(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        base = self._staging.files * (len(self._staging.clauses) + 1)
        for partition, part in group_by_partition(rows, self._spec, self._schema):
            yield base + exchange.bucket_of(partition, _INSERT_BUCKETS), part

    def _by_file(self, rows: pa.Table, number: int, clause: Clause | None) -> Iterator[tuple[int, pa.Table]]:
        if not rows.num_rows:
            return
        positions = pa.table({POSITION.name: rows.column(sql.POSITION).cast(pa.int64())})
        if clause is not None and clause.action != DELETE:
            values = self._values(rows, number, clause)
            for name, column in zip(values.column_names, values.columns, strict=True):
                positions = positions.append_column(name, column)
        files = rows.column(sql.FILE).combine_chunks()
        order = pc.array_sort_indices(files)
        numbers = numbers_of(files.take(order))
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        ordered = positions.take(order)
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            yield number * self._staging.files + int(numbers[start]), ordered.slice(start, end - start)


# -- the files ---------------------------------------------------------------------------------------------------------


def edit_files(context: MergeContext, spec: EditFiles) -> TaskReport:
    """Apply changes to files."""
    task, read, order = context.task, context.read_as(), context.task.write.sort_order

    def edits() -> Iterator[list[tuple[FileUnit, FileEdits]]]:
        for places in spec.edits:
            found = [file_edits(context, read, unit, slices, spec.clauses) for unit, slices in places]
            if any(found):
                yield [(unit, one or FileEdits()) for (unit, _), one in zip(places, found, strict=True)]

    orders = {order.order_id: order}
    done = edit_rows(read, context.write_as(spec.number), task.spec, edits(), sort_orders=orders)
    return context.report(spec.number, done.written, done.changes)


def file_edits(
    context: MergeContext, read: ReadAs, unit: FileUnit, slices: Sequence[exchange.Slice], clauses: Sequence[Clause]
) -> FileEdits | None:
    """Return the edits of a file; None if no clause takes one of its rows.

    Raises:
        InvalidInputError: several rows of the source match a row of the file.
    """
    found = {
        number: pa.concat_tables(exchange.read_slices(context.io, pieces))
        for number, pieces in exchange.by_bucket(slices).items()
    }
    if not found:
        return None
    places = {number: numbers_of(table.column(POSITION.name).combine_chunks()) for number, table in found.items()}
    if sql.needs_unique_matches(clauses) and context.task.on is not None:
        _check_unique(context, read, unit, np.concatenate(list(places.values())))
    taken = [number for number in found if number < len(clauses)]
    if not taken:
        return None
    deleted = [places[number] for number in taken if clauses[number].action == DELETE]
    return FileEdits(
        deleted=RowPositions.of(np.concatenate(deleted) if deleted else ()),
        updates=tuple(found[number] for number in taken if clauses[number].action != DELETE),
    )


def _check_unique(context: MergeContext, read: ReadAs, unit: FileUnit, positions: Any) -> None:
    values, counts = np.unique(positions, return_counts=True)
    repeated = values[counts > 1]
    if not len(repeated):
        return
    schema = read.schemas[0]
    keys = {schema.find_name(field_id): schema.path(field_id) for field_id in context.task.key_ids}
    first_names = {path[0] for path in keys.values()}
    columns = Schema((*(field for field in schema.fields if field.name in first_names), POSITION))
    where = f"position {repeated[0]} of {unit.file.file_path}"
    for batch in read.rows(unit, read.delete_reader(), schema=columns):
        row = batch.filter(pc.equal(batch.columns[-1], int(repeated[0])))
        if keys and row.num_rows:
            where = ", ".join(f"{name} = {at_path(row, path)[0].as_py()!r}" for name, path in keys.items())
    raise InvalidInputError(
        f"{int(counts[counts > 1][0])} rows of the source match one row of table {context.plan.table} ({where}), so "
        f"that its new values would be chance; nothing was committed: make the source have one row for each key, or "
        f"narrow the condition by which rows match"
    )


def insert_rows(context: MergeContext, spec: InsertRows) -> TaskReport:
    """Write new rows into data files, each file in the table's sort order if it has one."""
    files: list[DataFile] = []
    for group in spec.groups:
        files.extend(fill(_new_rows(context, spec.number), coalesced(exchange.read_slices(context.io, group))))
    return context.report(spec.number, files)


def _new_rows(context: MergeContext, number: int) -> RowSink:
    task, order = context.task, context.task.write.sort_order
    schema, spec = task.write.schema, task.spec

    def writer(sort_order_id: int = UNSORTED_ORDER_ID) -> PartitionedWriter:
        return PartitionedWriter(
            context.io,
            schema=schema,
            spec=spec,
            options=context.options,
            data_location=task.write.data_location,
            file_prefix=f"{context.plan.file_prefix}-{number:05d}",
            sort_order_id=sort_order_id,
        )

    if not order.fields or unsortable(order, schema, spec) is not None:
        return writer()
    return SortedRuns(lambda: writer(order.order_id), write_order(order, schema, spec))
