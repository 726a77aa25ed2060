"""Deleting rows by a predicate, from the choice of files to the commit.

Here: `delete`, the loop over planning, the work and the commit: when other writers change the same files meanwhile,
all is planned again on the newer table. Not here: which files (`operations.row_changes`), what is done to one
(`data.row_changes`), the commit's rules (`commit.actions.overwrite`, `commit.actions.row_delta`).

    from airflow_iceberg.operations.delete import DeleteRequest, delete
    from airflow_iceberg.jobs.run_local import run_local

    delete(table, DeleteRequest(predicate="customer = 17"), run=lambda plan: run_local(plan, table.io))
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.actions.overwrite import OverwriteFiles
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.earlier_runs import check_not_overtaken
from airflow_iceberg.commit.operation_key import OPERATION_KEY, OperationKey, check_properties, find_landed
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.commit.write_result import xcom_of
from airflow_iceberg.errors import CommitUnknownError, IcebergError, InvalidInputError, StalePlanError
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.row_changes import (
    DELETE_ISOLATION,
    MERGE_ON_READ,
    Deletion,
    RunJob,
    change_here,
    change_in_job,
    changed_tasks,
    delete_mode,
    isolation_level,
    live_rows,
    plan_deletion,
    replaced_deletes,
)
from airflow_iceberg.operations.work import stale_if_expired

if TYPE_CHECKING:
    from airflow_iceberg.data.row_changes import RowChanges
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.table import Table

log = logging.getLogger(__name__)

# How often a delete is planned again when others changed the same files meanwhile, before the task gives up.
MOST_ROUNDS = 4
DELETED_ROWS = "deleted-rows"
"""Entry of the snapshot's summary: rows that went. `deleted-records` counts those of removed files, kept ones too."""
GONE_BEFORE = "rows-deleted-before"
"""Entry of the summary of a delete of whole files: rows of theirs that delete files had deleted already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteRequest:
    """What is to go.

    Attributes:
        predicate: in SQL, or an expression; a row goes where it is true, not where it is null.
        mode: "copy-on-write" or "merge-on-read"; None goes by the table's `write.delete.mode`.
        isolation_level: "serializable" or "snapshot"; None goes by the table's `write.delete.isolation-level`.
        max_rows: when more rows would go, nothing is committed; None for no limit.
    """

    predicate: str | Expression
    mode: str | None = None
    isolation_level: str | None = None
    max_rows: int | None = None
    branch: str = MAIN_BRANCH
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.predicate, str) and not self.predicate.strip():
            raise InvalidInputError("the predicate of a delete is empty; to delete every row write 'true'")
        if not isinstance(self.predicate, str | Expression):
            raise InvalidInputError(f"the predicate of a delete is {self.predicate!r}, expected SQL such as 'id = 17'")
        if self.max_rows is not None and (type(self.max_rows) is not int or self.max_rows < 0):
            raise InvalidInputError(f"max_rows is {self.max_rows!r}, expected a number of rows, 0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteResult:
    """What a delete did.

    Attributes:
        outcome: "committed"; "found", when an earlier try of the task has done it; "nothing", when no row matched.
        snapshot_id: of the commit; None when nothing was committed.
        deleted_records: rows that went.
    """

    table: str
    branch: str
    outcome: str
    snapshot_id: int | None = None
    deleted_records: int = 0
    removed_data_files: int = 0
    removed_bytes: int = 0
    added_data_files: int = 0
    added_delete_files: int = 0
    removed_delete_files: int = 0
    added_bytes: int = 0
    operation_key: str | None = None

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values, see `xcom_of`."""
        return xcom_of(self)


def delete(
    table: Table,
    request: DeleteRequest,
    *,
    run: RunJob | None = None,
    operation: OperationKey | None = None,
    try_number: int = 1,
    parallelism: int | None = None,
) -> DeleteResult:
    """Delete the rows that a predicate selects; a try that finds the commit of an earlier one reports it.

    Files that hold nothing but such rows go by metadata alone: without others no job is run.

    Args:
        run: runs a job and returns its result, or raises the job's own error; None does the work in this process.
        operation: key of the Airflow task.

    Raises:
        InvalidInputError, NotFoundError: the predicate does not fit the table; more rows than `max_rows` would go.
        StalePlanError: other writers changed the same files again and again; nothing was committed.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was removed.
    """
    check_properties(request.snapshot_properties, own=(DELETED_ROWS, GONE_BEFORE))
    return _Run(table, request, run, operation, try_number, parallelism).result()


class _Run:
    """One call of `delete`; holds what its rounds share."""

    def __init__(
        self,
        table: Table,
        request: DeleteRequest,
        run: RunJob | None,
        operation: OperationKey | None,
        try_number: int,
        parallelism: int | None,
    ) -> None:
        self.table = table
        self.request = request
        self._run_job = run
        self._operation = operation
        self._try_number = try_number
        self._parallelism = parallelism

    def result(self) -> DeleteResult:
        for round_number in range(MOST_ROUNDS):
            # Also what cannot be written is found here, before anything is begun.
            self.table.commit_settings(branch=self.request.branch, snapshot_properties=self.request.snapshot_properties)
            found = self._find()
            if found is not None:
                return self._describe("found", found)
            head = self.table.metadata.ref_snapshot(self.request.branch)
            try:
                with stale_if_expired(self.table, None if head is None else head.snapshot_id):
                    return self._round()
            except StalePlanError as error:
                if round_number + 1 == MOST_ROUNDS:
                    raise
                log.info("%s: %s", self.table.name, error)
                self.table.refresh()
        raise AssertionError("the last round returns or raises")

    def _find(self) -> Snapshot | None:
        if self._operation is None:
            return None
        found = find_landed(self.table.metadata, self._operation, self.request.branch)
        if found is None:
            check_not_overtaken(self.table.metadata, self._operation, self.request.branch)
        return found

    def _round(self) -> DeleteResult:
        """Plan on the table as it is, do the work and commit it."""
        table, request = self.table, self.request
        mode = delete_mode(table.metadata, request.mode)
        isolation_level(table.metadata, request.isolation_level, property_name=DELETE_ISOLATION)
        scan = table.scan(request.predicate, ref=request.branch)
        deletion = plan_deletion(scan)
        if deletion.is_empty:
            return self._nothing()
        rows = live_rows(scan, deletion.whole)
        self._check_rows(rows)
        changes, plan = self._change(deletion, mode)
        written = [file.file_path for file in changes.written]
        try:
            rows += sum(change.deleted_count for change in changes.changes)
            self._check_rows(rows)
            if not deletion.whole and not rows:
                return self._nothing()
            action = self._action(deletion, changes, mode, rows)
            outcome = table.commit(action).outcome
        except CommitUnknownError:
            raise  # it may have landed: the files must stay
        except IcebergError:
            staging.remove(table.io, written)
            raise
        finally:
            if plan is not None:
                staging.clear(table.io, plan)
        if outcome != "committed":
            staging.remove(table.io, written)
        return self._describe_commit(action, outcome)

    def _change(self, deletion: Deletion, mode: str) -> tuple[RowChanges, JobPlan | None]:
        """Take the rows out of the files that hold others, too."""
        from airflow_iceberg.data.row_changes import RowChanges

        table, run = self.table, self._run_job
        if not deletion.partial:
            return RowChanges(), None
        if run is None:
            changes = change_here(table.io, table.metadata, deletion, mode=mode, operation=self._operation)
            return changes, None
        return change_in_job(
            table,
            deletion,
            run,
            mode=mode,
            operation=self._operation,
            try_number=self._try_number,
            parallelism=self._parallelism,
        )

    def _check_rows(self, rows: int) -> None:
        most = self.request.max_rows
        if most is not None and rows > most:
            raise InvalidInputError(
                f"'{self.request.predicate}' selects at least {rows} rows of table {self.table.name}, and max_rows is "
                f"{most}; nothing was deleted; correct the predicate, or raise max_rows"
            )

    def _action(self, deletion: Deletion, changes: RowChanges, mode: str, rows: int) -> SnapshotAction:
        table, request = self.table, self.request
        if not deletion.partial and request.max_rows is None:
            gone_before = sum(task.file.record_count for task in deletion.whole) - rows
            # Decided anew on every base: what came meanwhile and is selected as a whole goes as well, and is counted.
            return OverwriteFiles(
                table.io,
                self._settings({GONE_BEFORE: str(gone_before)} if gone_before else {}),
                row_filter=deletion.row_filter,
                written_schema=deletion.schema,
                starting_snapshot_id=deletion.snapshot_id,
                isolation=None,
            )
        settings = self._settings({DELETED_ROWS: str(rows)})
        isolation = isolation_level(table.metadata, request.isolation_level, property_name=DELETE_ISOLATION)
        changed = changed_tasks(deletion, changes)
        whole = [task.file for task in deletion.whole]
        if mode == MERGE_ON_READ and changed:
            gone = {change.file_path for change in changes.changes if change.is_gone}
            marked = [task for task in changed if task.file.file_path not in gone]
            return RowDelta(
                table.io,
                settings,
                added_deletes=changes.written,
                removed_deletes=replaced_deletes(marked) if table.metadata.format_version >= 3 else (),
                removed_data=[*whole, *(task.file for task in changed if task.file.file_path in gone)],
                referenced={task.file.file_path for task in marked},
                conflict_filter=deletion.row_filter,
                written_schema=deletion.schema,
                starting_snapshot_id=deletion.snapshot_id,
                isolation=isolation,
            )
        return OverwriteFiles(
            table.io,
            settings,
            added=changes.written,
            removed=[*whole, *(task.file for task in changed)],
            conflict_filter=deletion.row_filter,
            written_schema=deletion.schema,
            starting_snapshot_id=deletion.snapshot_id,
            isolation=isolation,
        )

    def _settings(self, more: Mapping[str, str]) -> CommitSettings:
        return self.table.commit_settings(
            branch=self.request.branch,
            operation=self._operation,
            try_number=self._try_number,
            snapshot_properties={**self.request.snapshot_properties, **more},
        )

    # -- what came of it -----------------------------------------------------------------------------------------------

    def _nothing(self) -> DeleteResult:
        key = None if self._operation is None else str(self._operation)
        return DeleteResult(table=self.table.name, branch=self.request.branch, outcome="nothing", operation_key=key)

    def _describe_commit(self, action: SnapshotAction, outcome: str) -> DeleteResult:
        mine = self.table.metadata.snapshot(action.snapshot_id)
        snapshot = mine if mine is not None else self._find()
        return self._nothing() if snapshot is None else self._describe(outcome, snapshot)

    def _describe(self, outcome: str, snapshot: Snapshot) -> DeleteResult:
        def count(name: str) -> int:
            return int(snapshot.summary.get(name, "0"))

        return DeleteResult(
            table=self.table.name,
            branch=self.request.branch,
            outcome=outcome,
            snapshot_id=snapshot.snapshot_id,
            deleted_records=int(snapshot.summary.get(DELETED_ROWS, count("deleted-records") - count(GONE_BEFORE))),
            removed_data_files=count("deleted-data-files"),
            removed_bytes=count("removed-files-size"),
            added_data_files=count("added-data-files"),
            added_delete_files=count("added-delete-files"),
            removed_delete_files=count("removed-delete-files"),
            added_bytes=count("added-files-size"),
            operation_key=snapshot.summary.get(OPERATION_KEY),
        )
