"""The job of a merge: the source once, the rows of the table that can match, the engine's SQL between them, the files.

The engine gets only rows that can match, with the columns that the SQL needs. What comes back is small: the places of
the rows that change, and their new values. Files are then rewritten, or their rows marked, without the engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.data.row_changes import COPY_ON_WRITE
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.json import expression_to_json
from airflow_iceberg.expressions.merge_clauses import NOT_MATCHED_BY_SOURCE, SOURCE, TARGET, UPDATE, sides_of
from airflow_iceberg.format.arrow.paths import type_at
from airflow_iceberg.format.metadata_columns import POSITION
from airflow_iceberg.format.names import Path
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.duckdb.struct_casts import check_struct_casts
from airflow_iceberg.jobs.merge import sql
from airflow_iceberg.jobs.merge.assignable import check_assignable
from airflow_iceberg.jobs.merge.check import check_new_rows
from airflow_iceberg.jobs.merge.key_match import KeyMatch, needs_no_engine
from airflow_iceberg.jobs.merge.keys import MOST_LITERALS_OF_CONFLICTS, MOST_LITERALS_OF_FILES, Keys
from airflow_iceberg.jobs.merge.scoped_sql import scoped_query
from airflow_iceberg.jobs.merge.source import KEYS, ROWS, source_columns
from airflow_iceberg.jobs.merge.source_columns import source_keys
from airflow_iceberg.jobs.merge.tasks import Candidates, Matching, MatchUnit
from airflow_iceberg.jobs.merge.texts import check_names, reads_table
from airflow_iceberg.jobs.phase import Job, Query, checked, clean_exchange
from airflow_iceberg.jobs.protocol.merge_task import Clause, MergeTask
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, JobResult
from airflow_iceberg.jobs.protocol.table_input import FileUnit
from airflow_iceberg.jobs.sources.files import plan_tasks, task_count
from airflow_iceberg.jobs.table_reader import PinnedFiles, cut_numbered
from airflow_iceberg.jobs.task import Change, CompareFiles, Edit, EditFiles, InsertRows, Keep, StageUnits, TaskReport

if TYPE_CHECKING:
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.plan.scan import FileScanTask

# The bytes of the files that one task of a merge-on-read merge changes: their deletes and new rows share files.
_ITEM_BYTES = 256 << 20


def merge(job: Job[MergeTask]) -> JobResult:
    """Change the rows of the table, and add rows.

    Raises:
        InvalidInputError: SQL that the engine does not accept; a key that is null or repeated; a value that does not
            fit its column, or lacks a field of it; a new row of an overwrite that the condition does not select.
    """
    task, source = job.task, _Source.of(job)
    tables = _checked(task, source)
    if task.new_rows is not None:
        check_new_rows(job, task.new_rows)
    clauses = sql.resolved(task.clauses, _names(task), source.names, dialect=task.dialect)
    # Rows that no row of the source matches may have any key, and so may those of a subquery.
    by_keys = TARGET not in tables and all(clause.rows != NOT_MATCHED_BY_SOURCE for clause in clauses)
    with job.timings.phase("plan"):
        keys = source.open_keys(job) if by_keys else Keys()
        # If another writer has removed old metadata since, there is newer one to plan on.
        with task.target.reading():
            target = PinnedFiles.open(task.target, job.io)
            found = target.tasks(keys.filter(MOST_LITERALS_OF_FILES))
        unchanged = frozenset(task.unchanged)
        files = [one for one in found if one.file.file_path not in unchanged]
    matching = Matching(
        candidates=_candidates(task, target, files, source, by_keys=by_keys),
        source=None if source.schema is None else source.bucket(ROWS),
        source_schema=source.schema,
        tables=tables,
    )
    with job.timings.phase("match"):
        query = _match(job, matching, clauses, keys, source.names)
        check_assignable(clauses, query.schema, task.write.schema, dialect=task.dialect)
        reports = checked(query.stage(job.plan, Change(clauses=clauses, files=max(len(files), 1))), job.io)
    slices = _slices(reports)
    written = _write(job, clauses, files, slices)
    clean_exchange(job.plan, job.io)
    return JobResult(
        status=SUCCEEDED,
        data_files=tuple(file for report in written for file in report.data_files),
        changes=tuple(change for report in written for change in report.changes),
        inserted_count=sum(piece.record_count for piece in slices if piece.bucket >= _first_insert(files, clauses)),
        conflict_filter=expression_to_json(keys.filter(MOST_LITERALS_OF_CONFLICTS)),
        record_count=sum(report.record_count for report in written),
        source_files=source.files,
        timings=job.timings.total(),
    )


def _match(
    job: Job[MergeTask], matching: Matching, clauses: tuple[Clause, ...], keys: Keys, source: Sequence[str]
) -> Query:
    """Open the query of the changes.

    Raises:
        InvalidInputError: a key is null or repeated, where each is to be in one row.
    """
    task, keys_there = job.task, matching.candidates.source_keys
    if needs_no_engine(task, matching):
        parallelism = job.engine.parallelism
        found = KeyMatch(
            plan=job.plan, io=job.io, matching=matching, clauses=clauses, keys=keys, parallelism=parallelism
        )
        _check_keys(job, keys_there, found.bad_key())
        return found
    if task.is_unique:
        query = sql.bad_key_query(keys_there, dialect=task.dialect)
        _check_keys(job, keys_there, job.engine.first(task, matching, query))
    if task.dialect == "duckdb":
        _check_struct_casts(task, matching, clauses)
    return job.engine.match(task, matching, _changes_query(task, clauses, source))


def _check_struct_casts(task: MergeTask, matching: Matching, clauses: Sequence[Clause]) -> None:
    known = Schema(tuple(f for f in matching.candidates.reader.projection.fields if f.id != POSITION.id))
    sides = {TARGET: schema_to_arrow(known)}
    if matching.source_schema is not None:
        sides[SOURCE] = matching.source_schema
    check_struct_casts(
        clauses,
        schema=task.write.schema,
        sides=sides,
        inputs={table.name: schema_to_arrow(table.schema) for table in task.inputs},
        values=task.sql_args,
    )


def _changes_query(task: MergeTask, clauses: Sequence[Clause], source: Sequence[str]) -> str:
    sides = sql.Sides(target=task.target.selected_fields, source=source, dialect=task.dialect)
    is_plain = task.on is None or sides.is_plain(task.on, (TARGET, SOURCE), is_condition=True)
    for one in clauses:
        seen = (TARGET,) if task.on is None else sides_of(one.rows)
        is_plain &= all(sides.is_plain(text, seen) for text in one.expressions)
        if one.condition is not None:
            is_plain &= sides.is_plain(one.condition, seen, is_condition=task.on is not None)
    return (sql.changes_query if is_plain else scoped_query)(clauses, on=task.on, sides=sides)


def _checked(task: MergeTask, source: _Source) -> tuple[str, ...]:
    """Check the names in the SQL, and return the sides that subqueries read as tables.

    Raises:
        InvalidInputError: a name of a side that the rows of a clause do not have, or with two meanings.
    """
    check_names(
        task.clauses,
        on=task.on,
        target=_names(task),
        source=None if source.schema is None else source.names,
        others=[field.name for table in task.inputs for field in table.schema.fields],
        dialect=task.dialect,
    )
    texts = list(task.texts.values())
    sides = (TARGET, SOURCE) if task.on is not None else (TARGET,)
    tables = tuple(side for side in sides if reads_table(texts, side, dialect=task.dialect))
    if TARGET in tables and (task.new_rows is not None or task.unchanged):
        raise InvalidInputError(
            "a subquery of the filter of an overwrite reads 'target', which is what the overwrite changes: give the "
            "table as an input, under another name"
        )
    return tables


def _names(task: MergeTask) -> list[str]:
    return [field.name for field in task.write.schema.fields]


# -- the source --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    """The rows of the source, kept so that they are asked for once.

    Attributes:
        schema: the columns; None without a source.
        slices: the rows, and their keys once more.
        keys: where its keys are, in its own spelling.
        files: the number of source files; None for a query or a callable.
    """

    schema: pa.Schema | None = None
    slices: tuple[exchange.Slice, ...] = ()
    keys: tuple[Path, ...] = ()
    files: int | None = None

    @classmethod
    def of(cls, job: Job[MergeTask]) -> _Source:
        source = job.task.source
        if source is None:
            return cls()
        if source.kind == "files":
            return cls._of_files(job, source)
        with job.timings.phase("query"):
            query = job.engine.query(job.task)
            keys = source_keys(job.task.keys, query.schema, query.name)
        with job.timings.phase("source"):
            reports = checked(query.stage(job.plan, Keep(keys=keys)), job.io)
        return cls(schema=query.schema, slices=_slices(reports), keys=keys)

    @classmethod
    def _of_files(cls, job: Job[MergeTask], source: Source) -> _Source:
        with job.timings.phase("plan"):
            target = job.task.write.target_file_size_bytes
            units = plan_tasks(source, job.io, parallelism=job.engine.parallelism, target_file_size_bytes=target)
        columns = source_columns(job, units)
        # Without rows the source has the columns of the table.
        schema = schema_to_arrow(job.task.write.schema) if columns is None else columns.schema
        keys = source_keys(job.task.keys, schema, "the files")
        keep = Keep(keys=keys)
        specs = [StageUnits(number=i, units=one, staging=keep, columns=columns) for i, one in enumerate(units)]
        slices = _slices(job.run("source", specs) if columns is not None else [])
        return cls(schema=schema, slices=slices, keys=keys, files=len({one.location for task in units for one in task}))

    @property
    def names(self) -> list[str]:
        return [] if self.schema is None else list(self.schema.names)

    def bucket(self, bucket: int) -> tuple[exchange.Slice, ...]:
        """Return the slices of ROWS or KEYS."""
        return tuple(piece for piece in self.slices if piece.bucket == bucket)

    def open_keys(self, job: Job[MergeTask]) -> Keys:
        """Return the keys that rows of the table must have to match."""
        if self.schema is None or not self.keys:
            return Keys()
        none = pa.table({str(at): pa.nulls(0, type_at(self.schema, path)) for at, path in enumerate(self.keys)})
        tables = chain([none], exchange.read_slices(job.io, self.bucket(KEYS)))
        return Keys.of(tables, job.task.write.schema, job.task.key_ids)


def _slices(reports: Sequence[TaskReport]) -> tuple[exchange.Slice, ...]:
    return tuple(piece for report in reports for piece in report.slices)


def _check_keys(job: Job[MergeTask], keys: Sequence[Path], row: Sequence[Any] | None) -> None:
    """Raise InvalidInputError for a key of the source that is null, or in two of its rows: its values, and a count."""
    if row is None:
        return
    *values, count = row
    shown = ", ".join(f"{'.'.join(path)} = {value!r}" for path, value in zip(keys, values, strict=True))
    why = "a null key" if None in values else f"{count} rows with the same key"
    raise InvalidInputError(
        f"the source has {why} ({shown}), so that it is not clear which row of table {job.plan.table} it is; nothing "
        f"was committed: make the source have one row for each key, and none without"
    )


# -- the rows of the table ---------------------------------------------------------------------------------------------


def _candidates(
    task: MergeTask, target: PinnedFiles, files: Sequence[FileScanTask], source: _Source, *, by_keys: bool
) -> Candidates:
    """Return the rows of the table that can match, cut into tasks."""
    names = (*task.target.selected_fields, POSITION.name)
    return Candidates(
        reader=target.reader(names),
        items=_items(files, target),
        keys=source.bucket(KEYS) if by_keys else (),
        key_ids=task.key_ids if by_keys else (),
        source_keys=source.keys if by_keys else (),
    )


def _items(files: Sequence[FileScanTask], target: PinnedFiles) -> tuple[tuple[MatchUnit, ...], ...]:
    """Return the files of each task, with their numbers.

    The files were chosen by thousands of keys, which a residual would bring into each task, and compare with each row.
    """
    row_filter = target.table.row_filter
    return tuple(
        tuple(MatchUnit(file=number, read=replace(one, residual=row_filter)) for number, one in item)
        for item in cut_numbered(files, target.split_size_bytes)
    )


# -- the files ---------------------------------------------------------------------------------------------------------


def _write(
    job: Job[MergeTask], clauses: tuple[Clause, ...], files: Sequence[FileScanTask], slices: Sequence[exchange.Slice]
) -> list[TaskReport]:
    """Apply the changes to files, and write new rows."""
    count, first_insert = max(len(files), 1), _first_insert(files, clauses)
    by_file: dict[int, list[exchange.Slice]] = defaultdict(list)
    for piece in slices:
        if piece.bucket < first_insert:
            clause, file = divmod(piece.bucket, count)
            by_file[file].append(replace(piece, bucket=clause))
    edits = _edits(files, by_file)
    groups = [(number, tuple(group)) for number, group in enumerate(_groups(edits, job))]
    if all(_is_update(clauses, piece, count) for piece in slices) and _is_same(job, clauses, groups):
        return []
    specs = [EditFiles(number=number, edits=group, clauses=clauses) for number, group in groups]
    inserts = [piece for piece in slices if piece.bucket >= first_insert]
    target = job.task.write.target_file_size_bytes
    size = sum(piece.size_bytes for piece in inserts) // exchange.MEMORY_TO_PARQUET
    tasks = task_count(size, parallelism=job.engine.parallelism, target_file_size_bytes=target) if inserts else 0
    dealt = exchange.deal(inserts, tasks, target_file_size_bytes=target) if inserts else []
    new = [InsertRows(number=len(specs) + number, groups=groups) for number, groups in enumerate(dealt)]
    return job.run("write", [*specs, *new])


def _is_update(clauses: Sequence[Clause], piece: exchange.Slice, files: int) -> bool:
    """Whether a slice has rows that get new values, or that no clause takes."""
    clause = piece.bucket // files
    return clause == len(clauses) or (clause < len(clauses) and clauses[clause].action == UPDATE)


def _is_same(job: Job[MergeTask], clauses: tuple[Clause, ...], groups: Sequence[tuple[int, tuple[Edit, ...]]]) -> bool:
    """Whether all rows have their new values already; most often the first files show that some do not."""
    specs = [CompareFiles(number=number, edits=group, clauses=clauses) for number, group in groups]
    parts = (part for part in (specs[:1], specs[1:]) if part)
    return all(not report.changes for part in parts for report in job.run("compare", part))


def _first_insert(files: Sequence[FileScanTask], clauses: Sequence[Clause]) -> int:
    """Return the first bucket of new rows; those before it are of clauses and files."""
    return max(len(files), 1) * (len(clauses) + 1)


def _edits(files: Sequence[FileScanTask], by_file: Mapping[int, Sequence[exchange.Slice]]) -> list[Edit]:
    """Return the files with changes, each in all places where the table lists it: they are changed together."""
    changed = {files[number].file.file_path for number in by_file}
    found: dict[str, list[tuple[FileUnit, tuple[exchange.Slice, ...]]]] = {}
    for number, task in enumerate(files):
        if task.file.file_path in changed:
            place = (FileUnit.of(task), tuple(by_file.get(number, ())))
            found.setdefault(task.file.file_path, []).append(place)
    return [tuple(places) for places in found.values()]


def _groups(edits: Sequence[Edit], job: Job[MergeTask]) -> list[list[Edit]]:
    """Return the files of each task: one to rewrite; several to mark, whose deletes and new rows share files."""
    if job.task.mode == COPY_ON_WRITE:
        return [[edit] for edit in edits]
    sizes = [sum(unit.size_bytes for unit, _ in edit) for edit in edits]
    most = min(_ITEM_BYTES, sum(sizes) // job.engine.parallelism + 1)
    groups: list[list[Edit]] = []
    filled = 0
    for edit, size in zip(edits, sizes, strict=True):
        if not groups or filled + size > most:
            groups.append([])
            filled = 0
        groups[-1].append(edit)
        filled += size
    return groups
