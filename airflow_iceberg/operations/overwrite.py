"""Overwrite: new rows replace the rows that a predicate selects, whole partitions, or the whole table.

Here: `overwrite`, for rows of a source and for Arrow rows. Files that hold selected rows and others are rewritten
without the selected rows in the same commit. Not here: which files (`operations.row_changes`), how the new rows are
written (`operations.new_rows`), the commit's rules (`commit.actions.overwrite`).

If another writer changes the rows that are replaced, the overwrite ends with `StalePlanError`: its new rows may have
been computed from the old table, so that the whole task has to run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.actions.overwrite import OverwriteFiles, ReplacePartitions
from airflow_iceberg.commit.conflicts import Isolation
from airflow_iceberg.commit.earlier_epochs import EarlierEpochs
from airflow_iceberg.commit.file_filters import RowFilter, partition_key
from airflow_iceberg.commit.operation_key import OnRerun, check_properties
from airflow_iceberg.commit.runs.replaced import Replaced
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.commit.write_result import CARRIED_ROWS, DELETED_BEFORE, WriteResult
from airflow_iceberg.data.row_changes import RowChanges
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.binding import filter_text, parse
from airflow_iceberg.expressions.merge_clauses import DELETE, MATCHED, TARGET, MergeClause
from airflow_iceberg.expressions.query import tables_of
from airflow_iceberg.expressions.tree import ALWAYS_FALSE, ALWAYS_TRUE, Expression
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.plan import Condition
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.inputs.changes import Changes, consumer_of
from airflow_iceberg.operations.inputs.tables import Input, pin_all
from airflow_iceberg.operations.new_rows import (
    NewRows,
    RowsFunction,
    check_rows_request,
    completed,
    earlier_epochs,
    find_earlier,
    new_rows,
)
from airflow_iceberg.operations.refs.creates_branch import creates_branch
from airflow_iceberg.operations.row_changes import (
    COPY_ON_WRITE,
    change_files,
    changed_tasks,
    isolation_level,
    live_rows,
    plan_deletion,
    without_marked,
)
from airflow_iceberg.operations.row_level.changes import (
    OWN_NAMES,
    Beside,
    RowLevelChanges,
    check_dialect,
    needs_engine,
    run_changes,
)
from airflow_iceberg.operations.work import Work, stale_if_expired
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.scan.table_scan import TableScan

if TYPE_CHECKING:
    import pyarrow as pa

REPLACE = ("matching", "partitions", "table")


@dataclass(frozen=True, kw_only=True, slots=True)
class OverwriteRequest:
    """Which rows are replaced, and by what.

    Attributes:
        rows: a source that a job reads, or Arrow rows of this process, or a function that returns some.
        replace: "matching", the rows that `overwrite_filter` selects; "partitions", all rows of the partitions that the
            new rows are in; "table", all rows.
        overwrite_filter: a predicate in SQL, for "matching" alone.
        predicate_params: the values of the placeholders of the filter, `:name`, by name.
        check_filter: whether the new rows have to satisfy the filter, too. If not, the overwrite is a delete of the
            rows that the filter selects, and an append of the new rows, in one commit.
        isolation_level: "serializable" also checks for rows that other writers add meanwhile, "snapshot" only for rows
            that they remove.
        on_rerun: the treatment of rows of an earlier run, as for an append.
        schema_evolution: "add_columns" adds columns to the table, as for an append.
        deletes_when_empty: whether rows are deleted when there are no new rows; otherwise nothing is committed then.
        inputs: tables that the source reads, as for an append.
        write_format: the format of the data files, as for an append.
        dialect: the SQL of the engine that runs the job, "spark": it evaluates a filter that metadata and Arrow cannot,
            with functions or subqueries over `inputs`. None rejects such a filter.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
    """

    rows: Source | pa.Table | pa.RecordBatch | pa.RecordBatchReader | RowsFunction
    replace: str = "matching"
    overwrite_filter: str | Expression | None = None
    predicate_params: Mapping[str, Any] | None = None
    check_filter: bool = True
    isolation_level: str | None = None
    branch: str = MAIN_BRANCH
    create_branch: bool = False
    on_rerun: OnRerun = "replace"
    deletes_when_empty: bool = False
    schema_evolution: str | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Input | Changes] = field(default_factory=dict)
    write_format: str | None = None
    dialect: str | None = None

    def __post_init__(self) -> None:
        if self.replace not in REPLACE:
            raise InvalidInputError(f"replace is {self.replace!r}, expected one of {', '.join(REPLACE)}")
        is_given = self.overwrite_filter is not None
        if is_given != (self.replace == "matching"):
            raise InvalidInputError(
                f"replace is {self.replace!r}, which takes no overwrite_filter"
                if is_given
                else "an overwrite of matching rows needs overwrite_filter; to replace all rows set replace='table'"
            )
        if isinstance(self.overwrite_filter, str) and not self.overwrite_filter.strip():
            raise InvalidInputError("overwrite_filter is empty; to replace all rows set replace='table'")
        if not (self.check_filter or is_given):
            raise InvalidInputError(
                f"check_filter is False, and replace is {self.replace!r}, which has no filter; leave check_filter out"
            )
        if self.dialect is not None:
            check_dialect(self.dialect)
        by_condition = self._tables_of_filter() if self.needs_engine else set[str]()
        check_rows_request(self, by_condition=by_condition, taken=OWN_NAMES if self.needs_engine else ())
        check_properties(self.snapshot_properties, own=(CARRIED_ROWS, DELETED_BEFORE))

    @property
    def needs_engine(self) -> bool:
        """Whether the filter is SQL that only the engine of the job can evaluate.

        Raises:
            InvalidInputError: the filter is no predicate.
            UnsupportedError: there is no engine for it.
        """
        given = self.overwrite_filter
        return given is not None and needs_engine(given, self.predicate_params, self.dialect)

    def _tables_of_filter(self) -> set[str] | None:
        return tables_of(f"select 1 from {TARGET} where (\n{self.overwrite_filter}\n)", dialect=self.dialect or "")

    @property
    def condition(self) -> Condition | None:
        """The filter, with the values of its placeholders; None without one, or if it is SQL for the engine.

        Raises:
            InvalidInputError: the filter is no predicate, or the values do not fit its placeholders.
        """
        if self.needs_engine:
            return None
        predicate = parse(self.overwrite_filter, self.predicate_params)
        if self.overwrite_filter is None:
            return None
        return Condition(text=filter_text(self.overwrite_filter, self.predicate_params), predicate=predicate)

    @property
    def condition_of_new_rows(self) -> Condition | None:
        """What every new row has to satisfy while it is written; errors as of `condition`."""
        return self.condition if self.check_filter else None


@creates_branch
def overwrite(work: Work, request: OverwriteRequest) -> WriteResult:
    """Replace rows by new ones in one commit; a try that finds the commit of an earlier try reports it.

    Raises:
        InvalidInputError: a request that does not fit the table; new rows that the filter does not select, unless
            `check_filter` is False.
        StalePlanError: another writer has changed what is replaced; nothing was committed, run it again.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was deleted.
    """
    found = find_earlier(work, request)
    if found is not None:
        return found
    if request.needs_engine:
        work = work.waiting("only Spark can evaluate the overwrite_filter")
    begun = Overwrite(work, request)
    condition, inputs = request.condition_of_new_rows, begun.inputs
    with new_rows(work, request, condition=condition, inputs=inputs) as staged:
        return begun.commit(staged if inputs is None else replace(staged, inputs=inputs))


class Overwrite:
    """One overwrite: the table as it was when the work began, and what is replaced in it."""

    def __init__(self, work: Work, request: OverwriteRequest) -> None:
        self._work = work
        self._request = request
        # All errors of the request are found before a row is written.
        self._isolation: Isolation = isolation_level(work.table.metadata, request.isolation_level)
        work.settings(request)
        table = work.table
        row_filter = request.condition.predicate if request.condition else None
        self._scan = TableScan.of(table.metadata, table.io, row_filter=row_filter, ref=request.branch)
        self._start = None if self._scan.snapshot is None else self._scan.snapshot.snapshot_id

    @cached_property
    def inputs(self) -> tuple[PinnedTable, ...] | None:
        """The inputs, if the filter may read them besides the source: both at the same snapshots."""
        if not self._request.needs_engine:
            return None
        return pin_all(self._request.inputs, consumer_of(self._work, self._request.branch))

    def commit(self, staged: NewRows) -> WriteResult:
        """Replace rows by the new ones."""
        written = staged.paths
        with stale_if_expired(self._work.table, self._start), self._work.new_files(written):
            deletes_when_empty = self._request.deletes_when_empty and self._request.replace != "partitions"
            if not (staged.record_count or deletes_when_empty):
                self._work.remove(written)
                written.clear()
                return self._remove_earlier(staged, written)
            if self._request.needs_engine:
                return self._replace_by_sql(staged, written)
            if self._request.replace == "matching":
                return self._replace_matching(staged, written)
            before = _deleted_before(self._replaced_tasks(staged), self._scan)
            settings = self._work.settings(self._request, {**before, **staged.summary}, table_uuid=staged.table_uuid)
            return self._work.commit(completed(self._replace_whole(staged, settings, written), staged), written)

    def _remove_earlier(self, staged: NewRows, written: list[str]) -> WriteResult:
        """Remove the rows of the task's earlier epochs, in whose place there are none now; most often there is nothing
        to do.
        """
        settings = self._work.settings(self._request, staged.summary, table_uuid=staged.table_uuid)
        earlier = earlier_epochs(self._work, self._request, settings, written)
        if earlier is None:
            return self._work.nothing(self._request.branch)
        action = AppendFiles(self._work.table.io, (), settings, written_schema=staged.written_schema, earlier=earlier)
        return self._work.commit(completed(action, staged), written)

    def _replaced_tasks(self, staged: NewRows) -> list[FileScanTask]:
        """Return the files that are replaced as a whole; none if the table has no delete files, to save the time."""
        if self._scan.snapshot is None or self._scan.snapshot.summary.get("total-delete-files") == "0":
            return []
        tasks = self._scan.iter_files(whole_files=True)
        if self._request.replace == "table":
            return list(tasks)
        spec_id = self._work.table.spec().spec_id
        partitions = {partition_key(file) for file in staged.files}
        return [task for task in tasks if task.file.spec_id == spec_id and partition_key(task.file) in partitions]

    def _replace_whole(self, staged: NewRows, settings: CommitSettings, written: list[str]) -> SnapshotAction:
        """Return the action that replaces whole partitions, or the whole table."""
        io, earlier = self._work.table.io, earlier_epochs(self._work, self._request, settings, written)
        if self._request.replace == "partitions":
            return ReplacePartitions(
                io,
                settings,
                files=staged.files,
                written_schema=staged.written_schema,
                starting_snapshot_id=self._start,
                isolation=self._isolation,
                earlier=earlier,
            )
        return OverwriteFiles(
            io,
            settings,
            added=staged.files,
            row_filter=ALWAYS_TRUE,
            written_schema=staged.written_schema,
            starting_snapshot_id=self._start,
            isolation=self._isolation,
            earlier=earlier,
        )

    def _replace_matching(self, staged: NewRows, written: list[str]) -> WriteResult:
        """Replace the rows that the filter selects; rows of the same files that it does not select are kept."""
        work, request = self._work, self._request
        earlier = earlier_epochs(work, request, work.settings(request), written)
        replaced = self._replaced(earlier)
        # The files of the task's earlier epochs are removed with all their rows; rows of theirs in others' files are
        # not written anew.
        deletion = without_marked(plan_deletion(self._scan, without=replaced.gone), replaced.marked.vectors)
        changes, plan = change_files(work, deletion, mode=COPY_ON_WRITE, write_format=request.write_format)
        written += [file.file_path for file in changes.written]
        with work.new_files([], plan=plan):
            is_named, changed = bool(deletion.partial), changed_tasks(deletion, changes)
            before = _deleted_before([*deletion.whole, *changed], self._scan, whole=deletion.whole, changes=changes)
            settled = {task.file.file_path for task in (*deletion.whole, *changed)}
            action = self._replace_files(
                staged,
                changes.written,
                before,
                removed=[task.file for task in (*deletion.whole, *changed)] if is_named else (),
                conflict_filter=deletion.row_filter,
                earlier=earlier,
                settled=settled if is_named else (),
                # Without named files the filter selects files again on each base.
                row_filter=ALWAYS_FALSE if is_named else deletion.row_filter,
            )
            return work.commit(completed(action, staged), written)

    def _replaced(self, earlier: EarlierEpochs | None) -> Replaced:
        """Return what goes with the rows of the task's earlier epochs, besides files that the filter covers."""
        if earlier is None:
            return Replaced()
        metadata = self._work.table.metadata
        return earlier.replaced(metadata, removes=RowFilter(self._scan.row_filter, metadata).covers)

    def _replace_by_sql(self, staged: NewRows, written: list[str]) -> WriteResult:
        """Replace the rows that the engine of the job selects, which also checks the new rows."""
        work, request = self._work, self._request
        earlier = earlier_epochs(work, request, work.settings(request), written)
        beside = Beside(
            unchanged=frozenset() if earlier is None else earlier.replaced(work.table.metadata).gone,
            new_files=staged.files if request.check_filter else (),
            schema=staged.written_schema,
            inputs=staged.inputs,
        )
        plan, done = run_changes(work, request.branch, _deletes(request), beside=beside)
        written += [file.file_path for file in done.written]
        with work.new_files([], plan=plan):
            found = RowChanges(changes=list(done.changes), written=list(done.written))
            action = self._replace_files(
                staged,
                found.written,
                _deleted_before(done.changed, self._scan, whole=(), changes=found),
                removed=[task.file for task in done.changed],
                conflict_filter=done.conflict_filter,
                earlier=earlier,
            )
            return work.commit(completed(action, staged), written)

    def _replace_files(
        self, staged: NewRows, carried: Sequence[DataFile], before: Mapping[str, str], **which: Any
    ) -> OverwriteFiles:
        """Return the action that adds the new rows, and those that are carried, and removes files."""
        rows = sum(file.record_count for file in carried)
        counts = {**staged.summary, **({CARRIED_ROWS: str(rows)} if rows else {}), **before}
        return OverwriteFiles(
            self._work.table.io,
            self._work.settings(self._request, counts, table_uuid=staged.table_uuid),
            added=[*staged.files, *carried],
            written_schema=staged.written_schema,
            starting_snapshot_id=self._start,
            isolation=self._isolation,
            **which,
        )


def _deletes(request: OverwriteRequest) -> RowLevelChanges:
    """Return the delete of the rows that a filter in SQL selects."""
    assert isinstance(request.overwrite_filter, str)
    assert request.dialect is not None
    return RowLevelChanges(
        clauses=(MergeClause(rows=MATCHED, action=DELETE, condition=request.overwrite_filter),),
        dialect=request.dialect,
        params=request.predicate_params,
        mode=COPY_ON_WRITE,
        mode_property=TableProperties.delete_mode,
        write_format=request.write_format,
        isolation_level=request.isolation_level,
        isolation_property=TableProperties.delete_isolation_level,
    )


def _deleted_before(
    removed: Sequence[FileScanTask],
    scan: TableScan,
    *,
    whole: Sequence[FileScanTask] | None = None,
    changes: RowChanges | None = None,
) -> dict[str, str]:
    """Return the entry of the summary with the rows of removed files that delete files had deleted already.

    Args:
        whole: those of the files that hold only replaced rows, by default all; `changes` is about the others.
    """
    if not any(task.delete_files for task in removed):
        return {}
    left = live_rows(scan, removed if whole is None else whole)
    if changes is not None:
        left += sum(change.deleted_count for change in changes.changes)
        left += sum(file.record_count for file in changes.written)
    return {DELETED_BEFORE: str(sum(task.file.record_count for task in removed) - left)}
