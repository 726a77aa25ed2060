"""Rows of data files that are deleted or get new values, by their positions: updates and merges.

Copy-on-write writes a file anew, each row where it was; merge-on-read marks the rows in delete files, and writes those
with new values into new files. Not here: which rows are edited and what values they get (the job), new rows
(`write.partitioned`), and the commit.

Spec: Row-level Deletes; Row Lineage: a row with new values keeps its id, and takes the number of the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_iceberg.data.carried_rows import carried_rows
from airflow_iceberg.data.cast.rows import conform
from airflow_iceberg.data.new_values import with_values
from airflow_iceberg.data.read.file import ReadAs, Unit
from airflow_iceberg.data.row_changes import COPY_ON_WRITE, FileChanger, RowChange, RowChanges, WriteAs, count_rows
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata_columns import LAST_UPDATED, POSITION
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import SortOrder

Longs = npt.NDArray[np.int64]

NO_POSITIONS = RowPositions({})
# Rows of a file and their new values are joined in portions of at most this size: Arrow's texts have 32-bit offsets.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEdits:
    """What happens to the rows of one data file.

    Attributes:
        deleted: positions of rows that are deleted.
        updates: rows that get new values: a column "_pos" (int64), and the columns that are assigned, by the names of
            top-level columns of the table's schema; values are cast as those of new rows (`cast.rows`). Columns that
            are not named keep the file's value. No position is in two of them, or in `deleted`.
    """

    deleted: RowPositions = NO_POSITIONS
    updates: tuple[pa.Table, ...] = ()


def edit_rows(
    read: ReadAs,
    write: WriteAs,
    spec: PartitionSpec,
    edits: Iterable[Sequence[tuple[Unit, FileEdits]]],
    *,
    sort_orders: Mapping[int, SortOrder] | None = None,
) -> RowChanges:
    """Delete rows of data files and give others new values; after an error the new files are deleted.

    Args:
        spec: the table's current partition spec, into which rows are written: an update may move a row.
        edits: whole data files, each once, in all places where the table lists it, and the edits of each place.
        sort_orders: the table's sort orders by id: a sorted file stays one if no column of its order is assigned.

    Returns:
        The changes, and the new files. Copy-on-write: data files that replace those with changes. Merge-on-read: delete
        files, and data files of the rows with new values.

    Raises:
        InvalidInputError: a row does not exist or is deleted already; a value does not fit its column, or is null in a
            required one.
        NotFoundError, FormatError, UnsupportedError: a file cannot be read.
        StorageError: the store failed.
    """
    editor = _Editor(read, write, spec, sort_orders or {})
    try:
        for number, places in enumerate(edits):
            editor.change(places, number)
        return editor.done()
    except BaseException:
        editor.abort()
        raise


class _Editor(FileChanger):
    """Edits data files one by one; merge-on-read, all rows with new values go through one writer."""

    def __init__(self, read: ReadAs, write: WriteAs, spec: PartitionSpec, sort_orders: Mapping[int, SortOrder]) -> None:
        super().__init__(read, write)
        self._spec = spec
        self._sort_orders = sort_orders
        self._updated: PartitionedWriter | None = None
        self._paths: set[str] = set()
        _check_position_name(read.schemas[0])

    def change(self, places: Sequence[tuple[Unit, FileEdits]], number: int) -> None:
        path = places[0][0].file.file_path
        if path in self._paths or any(unit.parts is not None or unit.file.file_path != path for unit, _ in places):
            # Its other rows would be written twice, or not at all.
            raise InvalidInputError(f"edits of {path} are in pieces, expected those of the whole file once")
        self._paths.add(path)
        schema, has_lineage = self.read.schemas[0], self.write.format_version >= 3
        found = [(unit, _Edits.of(one, schema, unit.file, has_lineage=has_lineage)) for unit, one in places]
        selected = sum(edits.selected.cardinality for _, edits in found)
        deleted = sum(edits.deleted.cardinality for _, edits in found)
        is_gone = False
        if selected and self.write.mode == COPY_ON_WRITE:
            files = [file for unit, edits in found for file in self._rewrite(unit, edits, number)]
            is_gone = not files
        elif selected:
            for unit, edits in found:
                self._check_live(unit, edits)
                self._write_updated(unit, edits)
            is_gone = self.mark([(unit, edits.selected) for unit, edits in found], number)
        self.found.changes.append(
            RowChange(file_path=path, deleted_count=deleted, is_gone=is_gone, updated_count=selected - deleted)
        )

    def done(self) -> RowChanges:
        """Write the waiting rows and the vectors, and return all changes."""
        if self._updated is not None:
            self.found.written += self._updated.close()
            self._updated = None
        return super().done()

    def abort(self) -> None:
        """Delete the new files; never raises."""
        if self._updated is not None:
            self._updated.abort()
        super().abort()

    # -- copy-on-write -------------------------------------------------------------------------------------------------

    def _rewrite(self, unit: Unit, edits: _Edits, number: int) -> tuple[DataFile, ...]:
        """Write the rows of a file that are not deleted, in their order, each into its partition."""
        writer = self.new_writer(self._spec, f"{number:05d}", sort_order_id=self._claimed_order(unit.file, edits))
        try:
            # Rows stay in their partition unless a column of it is assigned.
            stays = unit.file.spec_id == self._spec.spec_id and not self._is_partitioned_by(edits.assigned)
            rows = writer.into(unit.file.partition) if stays else writer
            schema = Schema((*self.schema.fields, POSITION))
            for batch in self.read.rows(unit, self.deletes, schema=schema, keep_dictionaries=True):
                for edited in edits.apply(batch, self.schema):
                    rows.write(carried_rows(edited, self.schema, self.row_schema, path=unit.file.file_path))
            edits.check_found()
            files = rows.close()
            self.found.written += files
            return files
        except BaseException:
            writer.abort()
            raise

    def _is_partitioned_by(self, names: frozenset[str]) -> bool:
        sources = (source for field in self._spec.fields for source in field.source_ids or (field.source_id,))
        return not names.isdisjoint(_column_names(self.read.schemas[0], sources))

    def _claimed_order(self, file: DataFile, edits: _Edits) -> int:
        """Return the sort order that a file still has: rows stay where they are, but may get values out of order."""
        order_id = file.sort_order_id or 0
        if not order_id or not edits.assigned:
            return order_id
        order = self._sort_orders.get(order_id)
        if order is None:
            return 0
        sources = (source for field in order.fields for source in field.source_ids or (field.source_id,))
        return order_id if edits.assigned.isdisjoint(_column_names(self.read.schemas[0], sources)) else 0

    # -- merge-on-read -------------------------------------------------------------------------------------------------

    def _check_live(self, unit: Unit, edits: _Edits) -> None:
        """Raise InvalidInputError if a row is deleted already; only equality deletes need the file for that."""
        selected, file = edits.selected, unit.file
        if any(delete.content is FileContent.EQUALITY_DELETES for delete in unit.delete_files):
            edits.check_count(count_rows(self.read, unit, self.deletes, positions=selected))
            return
        before = self.positions_before(unit) or NO_POSITIONS
        twice = selected.cardinality + before.cardinality - selected.union(before).cardinality
        beyond = selected.cardinality - selected.count_below(file.record_count)
        edits.check_count(selected.cardinality - twice - beyond)

    def _write_updated(self, unit: Unit, edits: _Edits) -> None:
        """Write the rows of a file that get new values; only columns that are not assigned are read."""
        if not edits.updates:
            return
        if self._updated is None:
            self._updated = self.new_writer(self._spec, "00000")
        names = self.row_schema.names
        whole = [update for update in edits.updates if update.names.issuperset(names)]
        for update in whole:
            self._updated.write(update.rows.select(names))
        partial = edits.of_updates([update for update in edits.updates if update not in whole])
        if not partial.updates:
            return
        given = frozenset.intersection(*(update.names for update in partial.updates))
        kept = Schema((*(field for field in self.schema.fields if field.name not in given), POSITION))
        for batch in self.read.rows(unit, self.deletes, schema=kept, positions=partial.selected):
            for edited in partial.apply(batch, self.schema):
                rows = carried_rows(edited, self.schema, self.row_schema, path=unit.file.file_path)
                self._updated.write(rows)
        partial.check_found()


def _column_names(schema: Schema, field_ids: Iterable[int]) -> frozenset[str]:
    """Return the names of the top-level columns that hold the fields."""
    paths = (column_path(schema, field_id) for field_id in field_ids)
    return frozenset(path[0].name for path in paths if path is not None)


def _check_position_name(schema: Schema) -> None:
    """Raise InvalidInputError for a table with a column of the name of the positions, as Iceberg Java does."""
    if any(field.name == POSITION.name for field in schema.fields):
        raise InvalidInputError(
            f"column '{POSITION.name}' has a name that is reserved for the positions of rows: rows of the table cannot "
            f"be updated; rename the column first"
        )


# -- the edits of one file ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Update:
    """New values of rows.

    Attributes:
        positions: the positions of the rows, ascending.
        rows: the columns that are assigned, in the types of a data file.
    """

    positions: Longs
    rows: pa.Table

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.rows.column_names)

    def between(self, first: int, last: int) -> _Update:
        start, end = np.searchsorted(self.positions, [first, last + 1]).tolist()
        return _Update(positions=self.positions[start:end], rows=self.rows.slice(start, end - start))


@dataclass(kw_only=True, slots=True, eq=False)
class _Edits:
    """The edits of one file, checked, and how many of its rows were found.

    Attributes:
        selected: the positions of the rows that are deleted or get new values.
        assigned: the names of the table's columns that are assigned.
    """

    path: str
    deleted: RowPositions
    updates: tuple[_Update, ...]
    selected: RowPositions
    assigned: frozenset[str]
    found: int = 0

    @classmethod
    def of(cls, edits: FileEdits, schema: Schema, file: DataFile, *, has_lineage: bool) -> _Edits:
        tables = [table for table in edits.updates if table.num_rows]
        updates = tuple(_update(table, schema, file.file_path, has_lineage=has_lineage) for table in tables)
        assigned = frozenset(name for table in tables for name in table.column_names) - {POSITION.name}
        selected = edits.deleted.union(*(RowPositions.of(update.positions) for update in updates))
        count = edits.deleted.cardinality + sum(len(update.positions) for update in updates)
        if selected.cardinality != count:
            raise InvalidInputError(
                f"{count - selected.cardinality} of {count} edits of rows of {file.file_path} are of rows that are "
                f"edited twice, expected one edit of each row"
            )
        return cls(path=file.file_path, deleted=edits.deleted, updates=updates, selected=selected, assigned=assigned)

    def of_updates(self, updates: Iterable[_Update]) -> _Edits:
        """Return some of the updates, without deletes."""
        some = tuple(updates)
        selected = NO_POSITIONS.union(*(RowPositions.of(update.positions) for update in some))
        return _Edits(path=self.path, deleted=NO_POSITIONS, updates=some, selected=selected, assigned=self.assigned)

    def apply(self, batch: pa.RecordBatch, schema: Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch that are not deleted, with their new values.

        Args:
            batch: live rows of the file, with the column `_pos`; columns that all rows are given may be missing.
            schema: the columns of the result.
        """
        positions: Longs = numbers_of(batch.column(POSITION.name))
        if not len(positions):
            return
        first, last = int(positions[0]), int(positions[-1])
        if self.deleted.cardinality:
            gone = self.deleted.mask(first, last - first + 1)[positions - first]
            if gone.any():
                self.found += int(np.count_nonzero(gone))
                yield from self._apply_updates(batch.filter(number_array(~gone)), schema)
                return
        yield from self._apply_updates(batch, schema)

    def _apply_updates(self, batch: pa.RecordBatch, schema: Schema) -> Iterator[pa.RecordBatch]:
        positions: Longs = numbers_of(batch.column(POSITION.name))
        if not len(positions):
            return
        found = [update.between(int(positions[0]), int(positions[-1])) for update in self.updates]
        found = [update for update in found if len(update.positions)]
        if batch.num_rows > 1 and batch.nbytes + sum(update.rows.nbytes for update in found) > _MOST_BYTES:
            half = batch.num_rows // 2
            yield from self._apply_updates(batch.slice(0, half), schema)
            yield from self._apply_updates(batch.slice(half), schema)
            return
        places = [np.searchsorted(positions, update.positions) for update in found]
        for update, at in zip(found, places, strict=True):
            if not np.array_equal(positions[at], update.positions):
                raise self._missing()
            self.found += len(at)
        columns = []
        for field in schema.fields:
            stored = batch.column(field.name) if batch.schema.get_field_index(field.name) >= 0 else None
            given = [
                (at, update.rows.column(field.name))
                for at, update in zip(places, found, strict=True)
                if field.name in update.names
            ]
            columns.append(with_values(stored, given, len(positions)))
        yield pa.RecordBatch.from_arrays(columns, names=[field.name for field in schema.fields])

    def check_found(self) -> None:
        """Raise InvalidInputError unless each row was found among those of the file that are not deleted."""
        self.check_count(self.found)

    def check_count(self, found: int) -> None:
        """As `check_found`, of rows that were counted elsewhere."""
        if found != self.selected.cardinality:
            raise self._missing()

    def _missing(self) -> InvalidInputError:
        return InvalidInputError(
            f"rows of {self.path} are edited that it does not have, or that were deleted before: the edits were not "
            f"made from the rows of this snapshot; run the operation again"
        )


def _update(table: pa.Table, schema: Schema, path: str, *, has_lineage: bool) -> _Update:
    """Return new values in the order of the rows in the file; those of required columns are not null."""
    source = f"the new values of rows of {path}"
    at = table.schema.get_field_index(POSITION.name)
    if at < 0 or table.schema.field(at).type != pa.int64() or table.column(at).null_count:
        raise InvalidInputError(f"{source} have no column '{POSITION.name}' (int64, without nulls)")
    values = table.remove_column(at)
    if not values.num_columns:
        raise InvalidInputError(f"{source} assign no column")
    fields = tuple(field for field in schema.fields if field.name in values.column_names)
    rows = conform(values, Schema(fields), source=source)
    positions: Longs = numbers_of(table.column(at))
    if np.any(positions[1:] < positions[:-1]):
        order = np.argsort(positions, kind="stable")
        positions, rows = positions[order], rows.take(number_array(order))
    if has_lineage:
        # Null: the row inherits the number of the commit.
        rows = rows.append_column(LAST_UPDATED.name, pa.nulls(rows.num_rows, pa.int64()))
    return _Update(positions=positions, rows=rows)
