"""The rows that have changed between snapshots, from the data files that hold them.

Here: which rows of a changed file are new or gone, which of them were only carried into another file, and which are two
versions of one row. Not here: which files have changed (`plan.changelog`).

Rows are compared as a whole, by hashes (`row_hashes`): a row that one file loses and another one gets has not changed.
In version 3 rows with the same `_row_id` are compared first. Memory: 48 bytes for each row of the changed files of a
snapshot that both removes and adds rows, and `KEPT_BYTES` of rows, so that small files are read once; snapshots that
only add, or only remove rows, are streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_iceberg.data.read.deletes import NO_DELETES, DeleteReader, RowDeletes
from airflow_iceberg.data.read.file import ReadAs
from airflow_iceberg.data.read.raw_rows import RawRows
from airflow_iceberg.data.row_hashes import Hashes, RowHasher
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.tree import ALWAYS_TRUE, Expression
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of, single, text_array, valid_of
from airflow_iceberg.format.arrow.paths import at_path
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata_columns import ROW_ID
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema

KEPT_BYTES = 64 << 20

Mask = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.int8]

INSERT, DELETE, UPDATE_BEFORE, UPDATE_AFTER = "insert", "delete", "update_before", "update_after"
_TYPES = (INSERT, DELETE, UPDATE_BEFORE, UPDATE_AFTER)
_DROPPED = -1
_NO_ID = np.uint64(0xFFFFFFFFFFFFFFFF)


class ChangedFile(Protocol):
    """A data file whose live rows may differ; see `plan.changelog.FileChange`."""

    @property
    def file(self) -> DataFile: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def before(self) -> tuple[DataFile, ...] | None: ...
    @property
    def after(self) -> tuple[DataFile, ...] | None: ...


class Step(Protocol):
    """The changes of one snapshot; see `plan.changelog.SnapshotChanges`."""

    @property
    def ordinal(self) -> int: ...
    @property
    def snapshot_id(self) -> int: ...
    @property
    def files(self) -> Sequence[ChangedFile]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangelogReader:
    """How the changes of a table are read.

    Attributes:
        schema: the table's columns, by which rows are compared and which the filter is bound to.
        projection: the columns of the result, the three of a changelog at the end.
        identifiers: ids of columns, or fields of structs, that identify a row, whose old and new version become an
            update; None: no updates; none at all: by `_row_id`.
        has_row_ids: whether the table's rows have a `_row_id`.
    """

    read: ReadAs
    schema: Schema
    projection: Schema
    row_filter: Expression = ALWAYS_TRUE
    identifiers: tuple[int, ...] | None = None
    has_row_ids: bool = False

    def rows(self, steps: Sequence[Step]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of some snapshots, in which no row is both removed and added: first the rows that are
        removed, then those that are added.

        Args:
            steps: one snapshot, or several ones for their net changes.
        Raises:
            InvalidInputError: two rows that are removed, or added, have the same identifier columns.
        """
        deletes = self.read.delete_reader()
        sides = [_Side(self, steps, deletes, is_gone=is_gone) for is_gone in (True, False)]
        if all(side.files for side in sides):
            self._compare(*sides)
        for side in sides:
            yield from side.changes()

    def _compare(self, gone: _Side, new: _Side) -> None:
        """Mark the rows that are no changes, and updates."""
        hasher = RowHasher()
        gone.scan(hasher)
        new.scan(hasher)
        if self.has_row_ids:
            _cancel(gone, new, np.hstack([gone.contents, gone.ids]), np.hstack([new.contents, new.ids]))
        _cancel(gone, new, gone.contents, new.contents)
        if self.identifiers is not None:
            _pair(gone, new, [self.schema.find_name(field_id) or "" for field_id in self.identifiers])


@dataclass(slots=True)
class _Side:
    """The rows that are removed, or those that are added.

    Attributes:
        marks: for each row the index of its type, or `_DROPPED`; None: all are of the type of this side.
    """

    reader: ChangelogReader
    steps: Sequence[Step]
    deletes: DeleteReader
    is_gone: bool
    files: list[tuple[Step, ChangedFile]] = field(init=False)
    marks: Marks | None = None
    contents: Hashes = field(init=False)
    ids: npt.NDArray[np.uint64] = field(init=False)
    keys: Hashes = field(init=False)
    _kept: list[tuple[Step, pa.RecordBatch]] | None = None

    def __post_init__(self) -> None:
        self.files = [(step, one) for step in self.steps for one in step.files if self._may_have_rows(one)]

    def _may_have_rows(self, change: ChangedFile) -> bool:
        here, there = (change.before, change.after) if self.is_gone else (change.after, change.before)
        if here is None or there is None:
            return here is not None
        by_position = all(file.content is FileContent.POSITION_DELETES for file in (*here, *there))
        if not by_position:
            return True
        # Deleted positions are known without opening the data file.
        mine, others = (self.deletes.of(change.file, files).positions for files in (here, there))
        if others is None:
            return False
        return mine is None or not mine.covers(others)

    def scan(self, hasher: RowHasher) -> None:
        """Read all rows once, and keep their hashes, and the rows if they are few."""
        identifiers = self.reader.identifiers
        paths = None if identifiers is None else [self.reader.schema.path(field_id) for field_id in identifiers]
        contents, ids, keys = (
            [np.empty((0, 2), np.uint64)],
            [np.empty((0, 1), np.uint64)],
            [np.empty((0, 2), np.uint64)],
        )
        kept: list[tuple[Step, pa.RecordBatch]] | None = [] if self._has_whole_columns else None
        size = 0
        for step, batch in self._batches(_with_ids(self.reader, self.reader.schema)):
            columns = batch.columns[: len(self.reader.schema.fields)]
            contents.append(hasher.rows(columns, batch.num_rows))
            if self.reader.has_row_ids:
                ids.append(_row_ids(batch))
            if paths is not None:
                by = [at_path(batch, path) for path in paths]
                keys.append(hasher.rows(by, batch.num_rows) if paths else np.hstack([ids[-1], ids[-1]]))
            size += batch.nbytes
            kept = None if kept is None or size > KEPT_BYTES else [*kept, (step, batch)]
        self.contents, self.ids, self.keys = (np.concatenate(found) for found in (contents, ids, keys))
        self.marks = np.full(len(self.contents), self._type, np.int8)
        self._kept = kept

    def are_changes(self) -> Mask:
        """Return which of the rows are changes, so far."""
        assert self.marks is not None
        found: Mask = self.marks != _DROPPED
        return found

    @property
    def _has_whole_columns(self) -> bool:
        """Whether the columns of the result are among those that are compared: of a struct some fields may be read."""
        known = {column.id: column for column in self.reader.schema.fields}
        return all(known.get(column.id, column) == column for column in self._columns.fields)

    @property
    def _type(self) -> int:
        return _TYPES.index(DELETE if self.is_gone else INSERT)

    def changes(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are changes, with the columns of the result."""
        first = 0
        for step, batch in self._batches(self._columns) if self._kept is None else self._kept:
            marks = None if self.marks is None else self.marks[first : first + batch.num_rows]
            first += batch.num_rows
            if marks is not None:
                batch = batch.filter(number_array(marks != _DROPPED))
                marks = marks[marks != _DROPPED]
            if batch.num_rows:
                yield self._described(step, batch, np.full(batch.num_rows, self._type) if marks is None else marks)

    @property
    def _columns(self) -> Schema:
        """The columns of the result that are read from files."""
        return Schema(self.reader.projection.fields[:-3], self.reader.projection.schema_id)

    def _described(self, step: Step, batch: pa.RecordBatch, marks: npt.NDArray[np.integer]) -> pa.RecordBatch:
        names = [column.name for column in self._columns.fields]
        kinds = text_array(_TYPES).take(number_array(marks.astype(np.int64)))
        ordinals = pa.repeat(single(step.ordinal, pa.int32()), batch.num_rows)
        snapshots = pa.repeat(single(step.snapshot_id, pa.int64()), batch.num_rows)
        arrow = schema_to_arrow(self.reader.projection, with_field_ids=False)
        columns = [batch.column(name) for name in names]
        return pa.RecordBatch.from_arrays([*columns, kinds, ordinals, snapshots], schema=arrow)

    def _batches(self, schema: Schema) -> Iterator[tuple[Step, pa.RecordBatch]]:
        read = self.reader
        between = _Between(self.deletes, is_gone=self.is_gone)
        for step, change in self.files:
            between.change = change
            unit = _Unit(change)
            rows = read.read.rows(unit, between, schema=schema, table_schema=read.schema, row_filter=read.row_filter)
            yield from ((step, batch) for batch in rows)


def _with_ids(reader: ChangelogReader, schema: Schema) -> Schema:
    """Return the columns that are needed to compare rows, and those of the result."""
    more = [column for column in reader.projection.fields[:-3] if column.id not in schema.fields_by_id]
    if reader.has_row_ids and ROW_ID not in more:
        more.append(ROW_ID)
    return Schema((*schema.fields, *more), schema.schema_id)


def _row_ids(batch: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    column = batch.column(ROW_ID.name)
    found = np.where(valid_of(column), numbers_of(column), -1).astype(np.int64)
    return found.view(np.uint64).reshape(-1, 1)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A changed file as `ReadAs.rows` takes it."""

    change: ChangedFile

    @property
    def file(self) -> DataFile:
        return self.change.file

    @property
    def sequence_number(self) -> int:
        return self.change.sequence_number

    @property
    def delete_files(self) -> tuple[DataFile, ...]:
        return (*(self.change.before or ()), *(self.change.after or ()))

    @property
    def parts(self) -> tuple[int, int, int] | None:
        return None


class _Between(DeleteReader):
    """A reader of deletes for which the rows are deleted that are live in both snapshots, or in none."""

    change: ChangedFile

    def __init__(self, reader: DeleteReader, *, is_gone: bool) -> None:
        self._reader = reader
        self._is_gone = is_gone

    def of(self, file: DataFile, delete_files: Sequence[DataFile]) -> RowDeletes:
        before, after = (
            None if files is None else self._reader.of(file, files) for files in (self.change.before, self.change.after)
        )
        here, there = (before, after) if self._is_gone else (after, before)
        assert here is not None
        return here if there is None else _Difference(here=here, there=there)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Difference(RowDeletes):
    """The rows that are not live in one snapshot, and those that are live in the other one."""

    here: RowDeletes = NO_DELETES
    there: RowDeletes = NO_DELETES

    @property
    def schemas(self) -> tuple[Schema, ...]:
        return (*self.here.schemas, *self.there.schemas)

    def deleted(self, rows: RawRows) -> Mask | None:
        here, there = self.here.deleted(rows), self.there.deleted(rows)
        live_there = np.ones(rows.count, np.bool_) if there is None else ~there
        return live_there if here is None else here | live_there


# --- comparing --------------------------------------------------------------------------------------------------------


def _cancel(gone: _Side, new: _Side, left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]) -> None:
    """Drop the rows that are both removed and added, each as often as it is both; the first of equal ones go first."""
    places = np.flatnonzero(gone.are_changes()), np.flatnonzero(new.are_changes())
    groups = _groups(np.concatenate([left[places[0]], right[places[1]]]))
    mine, theirs = groups[: len(places[0])], groups[len(places[0]) :]
    size = int(groups.max()) + 1 if len(groups) else 0
    both = np.minimum(np.bincount(mine, minlength=size), np.bincount(theirs, minlength=size))
    for side, found, place in ((gone, mine, places[0]), (new, theirs, places[1])):
        assert side.marks is not None
        side.marks[place[_ranks(found) < both[found]]] = _DROPPED


def _groups(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return a number for each row that equal rows have in common."""
    order = np.argsort(rows[:, 0], kind="stable")
    starts, has_changed = _starts(rows[order])
    if (starts[1:] > has_changed[1:]).any():  # rows that are equal in the first word alone
        order = np.lexsort(rows.T)
        starts, _ = _starts(rows[order])
    found = np.empty(len(rows), np.int64)
    found[order] = np.cumsum(starts) - 1
    return found


def _starts(ordered: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return 1 where a row differs from the one before, and 0 elsewhere; the same of the first word alone."""
    found = []
    for differ in (np.any(ordered[1:] != ordered[:-1], axis=1), ordered[1:, 0] != ordered[:-1, 0]):
        starts = np.ones(len(ordered), np.int64)
        starts[1:] = differ
        found.append(starts)
    return found[0], found[1]


def _ranks(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of earlier rows of the same group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    firsts = np.searchsorted(ordered, ordered)
    found = np.empty(len(groups), np.int64)
    found[order] = np.arange(len(groups)) - firsts
    return found


def _pair(gone: _Side, new: _Side, identifiers: Sequence[str]) -> None:
    """Mark rows of the same key as the old and the new version of one row."""
    sides = [(side, np.flatnonzero(_have_keys(side, identifiers))) for side in (gone, new)]
    groups = _groups(np.concatenate([side.keys[place] for side, place in sides]))
    cut = len(sides[0][1])
    parts = groups[:cut], groups[cut:]
    size = int(groups.max()) + 1 if len(groups) else 0
    counts = [np.bincount(part, minlength=size) for part in parts]
    if any((count > 1).any() for count in counts):
        if identifiers:
            raise InvalidInputError(
                f"several rows that were changed together have the same {', '.join(identifiers)}: identifier_columns "
                f"must identify a row; name other columns, or read the changes without updates"
            )
    pairs = (counts[0] == 1) & (counts[1] == 1)
    for (side, place), part, kind in zip(sides, parts, (UPDATE_BEFORE, UPDATE_AFTER), strict=True):
        assert side.marks is not None
        side.marks[place[pairs[part]]] = _TYPES.index(kind)


def _have_keys(side: _Side, identifiers: Sequence[str]) -> Mask:
    # Without a row id nothing says which row it is.
    return side.are_changes() if identifiers else side.are_changes() & (side.ids[:, 0] != _NO_ID)
