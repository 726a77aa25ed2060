"""Overwriting: new rows take the place of those that a predicate selects, of whole partitions, or of all.

Here: `overwrite` for rows that a job brings, `overwrite_rows` for Arrow rows of this process, and the one commit that
both make. Files that hold selected rows and others are rewritten without the selected ones in the same commit. Not
here: which files (`operations.row_changes`), the commit's rules (`commit.actions.overwrite`).

Rows that others bring meanwhile, where this overwrite replaces rows, end it with `StalePlanError`: the rows that it
brings may have been computed of the table as it was, so that the whole task is to be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_iceberg.commit.actions.overwrite import OverwriteFiles, ReplacePartitions
from airflow_iceberg.commit.earlier_runs import EarlierRuns
from airflow_iceberg.commit.operation_key import OPERATION_KEY, OnRerun, OperationKey, check_properties
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.commit.write_result import WriteResult, xcom_of
from airflow_iceberg.errors import CommitUnknownError, IcebergError, InvalidInputError
from airflow_iceberg.expressions.tree import ALWAYS_FALSE, ALWAYS_TRUE, Expression
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.append import adds_columns, earlier_runs, with_new_columns
from airflow_iceberg.operations.row_changes import (
    COPY_ON_WRITE,
    Deletion,
    change_here,
    change_in_job,
    changed_tasks,
    isolation_level,
    plan_deletion,
)
from airflow_iceberg.operations.work import stale_if_expired

if TYPE_CHECKING:
    from airflow_iceberg.commit.conflicts import Isolation
    from airflow_iceberg.data.cast.row_check import RowCheck
    from airflow_iceberg.data.row_changes import RowChanges
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.table import Table

REPLACE = ("matching", "partitions", "table")
CARRIED_ROWS = "carried-rows"
"""Entry of the snapshot's summary: rows of rewritten files that were not selected and stay."""

RunJob = Callable[["JobPlan"], "JobResult"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OverwriteRequest:
    """What the new rows take the place of.

    Attributes:
        replace: "matching", the rows that `overwrite_filter` selects; "partitions", those that hold new rows; "table".
        overwrite_filter: a predicate in SQL, for "matching" alone; new rows have to satisfy it, too.
        isolation_level: "serializable" also minds rows that others add meanwhile, "snapshot" only what they remove.
        on_rerun: as for an append.
        schema_evolution: "add_columns" lets new columns of the source, and wider types, join the table's schema.
        deletes_when_empty: whether rows go when no new ones come; else nothing is committed then.
    """

    replace: str = "matching"
    overwrite_filter: str | Expression | None = None
    isolation_level: str | None = None
    branch: str = MAIN_BRANCH
    on_rerun: OnRerun = "replace"
    deletes_when_empty: bool = False
    schema_evolution: str | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.replace not in REPLACE:
            raise InvalidInputError(f"replace is {self.replace!r}, expected one of {', '.join(REPLACE)}")
        is_given = self.overwrite_filter is not None
        if is_given != (self.replace == "matching"):
            raise InvalidInputError(
                f"replace is {self.replace!r}, which goes without overwrite_filter"
                if is_given
                else "an overwrite of matching rows needs overwrite_filter; to replace all rows say replace='table'"
            )
        if isinstance(self.overwrite_filter, str) and not self.overwrite_filter.strip():
            raise InvalidInputError("overwrite_filter is empty; to replace all rows say replace='table'")
        check_properties(self.snapshot_properties, own=(CARRIED_ROWS,))


@dataclass(frozen=True, kw_only=True, slots=True)
class OverwriteResult:
    """What an overwrite did, or found done.

    Attributes:
        outcome: "committed", "found", "skipped" or "empty", as of an append.
        added_records: new rows.
        replaced_records: rows of removed files that did not stay.
        carried_records: rows that stay and were written again, since their files held replaced ones.
    """

    table: str
    branch: str
    outcome: Literal["committed", "found", "skipped", "empty"]
    snapshot_id: int | None = None
    operation: str | None = None
    added_data_files: int = 0
    added_records: int = 0
    added_files_size_bytes: int = 0
    deleted_data_files: int = 0
    replaced_records: int = 0
    carried_records: int = 0
    operation_key: str | None = None

    @classmethod
    def of(cls, table: Table, result: WriteResult) -> OverwriteResult:
        """Return the result of a write, with what the snapshot's summary says of carried rows."""
        snapshot = None if result.snapshot_id is None else table.metadata.snapshot(result.snapshot_id)
        carried = 0 if snapshot is None else int(snapshot.summary.get(CARRIED_ROWS, "0"))
        return cls(
            table=result.table,
            branch=result.branch,
            outcome=result.outcome,
            snapshot_id=result.snapshot_id,
            operation=result.operation,
            added_data_files=result.added_data_files,
            added_records=result.added_records - carried,
            added_files_size_bytes=result.added_files_size_bytes,
            deleted_data_files=result.deleted_data_files,
            replaced_records=result.deleted_records - carried,
            carried_records=carried,
            operation_key=None if snapshot is None else snapshot.summary.get(OPERATION_KEY),
        )

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values, see `xcom_of`."""
        return xcom_of(self)


def overwrite(
    table: Table,
    source: Source,
    request: OverwriteRequest,
    *,
    run: RunJob,
    operation: OperationKey | None = None,
    try_number: int = 1,
    parallelism: int | None = None,
) -> OverwriteResult:
    """Overwrite with the rows of a source; a try that finds the commit of an earlier one reports it.

    Args:
        run: runs a job and returns its result, or raises the job's own error.
        operation: key of the Airflow task.

    Raises:
        InvalidInputError: a request that does not fit the table; new rows that the filter does not select.
        StalePlanError: another writer has changed what is replaced; nothing was committed, run it again.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was removed.
    """
    if operation is not None:
        found = table.find_append(operation, branch=request.branch, on_rerun=request.on_rerun)
        if found is not None:
            return OverwriteResult.of(table, found)
    work = _Overwrite(table, request, run, operation, try_number)
    plan = table.plan_append(
        source,
        operation=operation,
        try_number=try_number,
        branch=request.branch,
        parallelism=parallelism,
        row_check=request.overwrite_filter,
        schema_evolution=request.schema_evolution,
    )
    try:
        staged = run(plan)
        staged.raise_for_error()
        files = staging.staged_files(plan, staged)
    except Exception:
        table.discard(plan)
        raise
    try:
        return work.commit(files, written_schema=staged.schema or plan.schema)
    finally:
        staging.clear(table.io, plan)


def overwrite_rows(
    table: Table, rows: Any, request: OverwriteRequest, *, operation: OperationKey | None = None
) -> OverwriteResult:
    """Overwrite with Arrow rows, all of it in this process; the rest is as in `overwrite`."""
    from airflow_iceberg.data.write.rows import schema_with, write_rows

    if operation is not None:
        found = table.find_append(operation, branch=request.branch, on_rerun=request.on_rerun)
        if found is not None:
            return OverwriteResult.of(table, found)
    work = _Overwrite(table, request, None, operation, 1)
    prefix = staging.new_file_prefix(operation)
    schema = schema_with(table.metadata, rows) if adds_columns(request.schema_evolution) else table.schema()
    check = work.row_check(schema)
    files = write_rows(table.io, table.metadata, rows, file_prefix=prefix, schema=schema, check=check)
    return work.commit(files, written_schema=schema)


class _Overwrite:
    """One overwrite: the table as it was when the work began, and what is replaced in it."""

    def __init__(
        self,
        table: Table,
        request: OverwriteRequest,
        run: RunJob | None,
        operation: OperationKey | None,
        try_number: int,
    ) -> None:
        self.table = table
        self.request = request
        self._run_job = run
        self._operation = operation
        self._try_number = try_number
        # Whatever is wrong with the request is found before a row is written.
        self._isolation: Isolation = isolation_level(table.metadata, request.isolation_level)
        self._settings({})
        self._scan = table.scan(request.overwrite_filter, ref=request.branch)
        self._start = None if self._scan.snapshot is None else self._scan.snapshot.snapshot_id

    def row_check(self, schema: Schema) -> RowCheck | None:
        """Return what new rows have to satisfy.

        Args:
            schema: of the new rows; a column may be of a wider type in it than the table's.
        """
        from airflow_iceberg.data.cast.row_check import RowCheck
        from airflow_iceberg.expressions.binding import parse_filter

        chosen = self.request.overwrite_filter
        if chosen is None:
            return None
        return RowCheck(row_filter=parse_filter(chosen, schema), text=str(chosen), schema=schema)

    def _settings(self, more: Mapping[str, str]) -> CommitSettings:
        return self.table.commit_settings(
            branch=self.request.branch,
            operation=self._operation,
            try_number=self._try_number,
            snapshot_properties={**self.request.snapshot_properties, **more},
        )

    def commit(self, files: Sequence[DataFile], *, written_schema: Schema) -> OverwriteResult:
        """Put new files in the place of what they replace; after an error they are removed, unless it is unknown."""
        with stale_if_expired(self.table, self._start):
            return self._commit(files, written_schema=written_schema)

    def _commit(self, files: Sequence[DataFile], *, written_schema: Schema) -> OverwriteResult:
        table = self.table
        written = [file.file_path for file in files]
        plan: JobPlan | None = None
        try:
            if not sum(file.record_count for file in files) and not self._deletes_all_the_same():
                staging.remove(table.io, written)
                return self._empty()
            if self.request.replace == "matching":
                action, changes, plan = self._matching(files, written_schema)
                written += [file.file_path for file in changes.written]
            else:
                action = self._whole(files, written_schema)
            result = table.commit(with_new_columns(action, written_schema, self._scan.schema))
        except CommitUnknownError:
            raise  # it may have landed: the files must stay
        except IcebergError:
            staging.remove(table.io, written)
            raise
        finally:
            if plan is not None:
                staging.clear(table.io, plan)
        if result.outcome != "committed":
            staging.remove(table.io, written)
        return OverwriteResult.of(table, result)

    def _deletes_all_the_same(self) -> bool:
        return self.request.deletes_when_empty and self.request.replace != "partitions"

    def _empty(self) -> OverwriteResult:
        key = None if self._operation is None else str(self._operation)
        return OverwriteResult(table=self.table.name, branch=self.request.branch, outcome="empty", operation_key=key)

    def _earlier(self, settings: CommitSettings) -> EarlierRuns | None:
        is_replaced = self.request.on_rerun == "replace"
        return earlier_runs(self.table.io, settings, try_number=self._try_number, replace=is_replaced)

    def _whole(self, files: Sequence[DataFile], written_schema: Schema) -> SnapshotAction:
        settings = self._settings({})
        if self.request.replace == "partitions":
            return ReplacePartitions(
                self.table.io,
                settings,
                files=files,
                written_schema=written_schema,
                starting_snapshot_id=self._start,
                isolation=self._isolation,
                earlier=self._earlier(settings),
            )
        return OverwriteFiles(
            self.table.io,
            settings,
            added=files,
            row_filter=ALWAYS_TRUE,
            written_schema=written_schema,
            starting_snapshot_id=self._start,
            isolation=self._isolation,
            earlier=self._earlier(settings),
        )

    def _matching(
        self, files: Sequence[DataFile], written_schema: Schema
    ) -> tuple[SnapshotAction, RowChanges, JobPlan | None]:
        """Return the action that replaces the rows that the filter selects, and what was written for the others."""
        table = self.table
        # What earlier runs of the task brought goes as a whole, whatever it holds.
        earlier = self._earlier(self._settings({}))
        going = frozenset[str]() if earlier is None else earlier.files_to_replace(table.metadata)
        deletion = plan_deletion(self._scan, without=going)
        changes, plan = self._carry(deletion)
        changed = changed_tasks(deletion, changes)
        carried = sum(file.record_count for file in changes.written)
        settings = self._settings({CARRIED_ROWS: str(carried)} if carried else {})
        is_named = bool(deletion.partial)
        action = OverwriteFiles(
            table.io,
            settings,
            added=[*files, *changes.written],
            removed=[task.file for task in (*deletion.whole, *changed)] if is_named else (),
            conflict_filter=deletion.row_filter,
            written_schema=written_schema,
            starting_snapshot_id=self._start,
            isolation=self._isolation,
            earlier=earlier,
            # With the filter alone each base is asked anew; where files were looked into they are known by name.
            row_filter=ALWAYS_FALSE if is_named else deletion.row_filter,
        )
        return action, changes, plan

    def _carry(self, deletion: Deletion) -> tuple[RowChanges, JobPlan | None]:
        """Write the rows again that stay of files with selected rows."""
        from airflow_iceberg.data.row_changes import RowChanges

        table = self.table
        if not deletion.partial:
            return RowChanges(), None
        if self._run_job is None:
            here = change_here(table.io, table.metadata, deletion, mode=COPY_ON_WRITE, operation=self._operation)
            return here, None
        return change_in_job(
            table,
            deletion,
            self._run_job,
            mode=COPY_ON_WRITE,
            operation=self._operation,
            try_number=self._try_number,
        )
