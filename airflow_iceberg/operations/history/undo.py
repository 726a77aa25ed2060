"""Undo: takes back what a DAG run or a task has changed, in one commit, although others have committed since.

All snapshots of the run on the branch are undone together, or none. What an undo does is planned in `undo_plan`, on the
latest snapshot; what cannot be proved is refused, with the reason and what to do instead. The summary of its snapshot
names the snapshots that it has undone, so that a second undo of the same run has nothing to do, and a task that is
cleared afterwards writes its rows again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.commit.actions.undo import Undo
from airflow_iceberg.commit.operation_key import UNDONE_KEYS, UNDONE_SNAPSHOTS, check_properties, undone_in
from airflow_iceberg.commit.write_result import (
    DELETED_ROWS,
    INSERTED_ROWS,
    UPDATED_ROWS,
    OperationResult,
    Outcome,
    RowCounts,
    count_of,
)
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.operations.history.lineage import FoundRows, find_rows, mark_rows, parted
from airflow_iceberg.operations.history.readers import find_readers
from airflow_iceberg.operations.history.targets import Selection, Targets, find_targets
from airflow_iceberg.operations.history.undo_plan import UndoPlan, cannot_undo, check_undone, plan_undo
from airflow_iceberg.operations.row_changes import live_rows, replaced_deletes
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.scan.table_scan import TableScan

MOST_LISTED = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoRequest:
    """What is undone.

    Attributes:
        selection: the run, the task or the operation.
        dry_run: whether nothing is changed, and the result says what would be.
    """

    selection: Selection
    branch: str = MAIN_BRANCH
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_properties(self.snapshot_properties, own=(DELETED_ROWS, INSERTED_ROWS, UPDATED_ROWS))


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoResult(OperationResult):
    """What an undo did, would do, or found done.

    Attributes:
        snapshot_id: the snapshot that holds the undo; None if nothing was committed.
        undone_snapshot_ids: the snapshots that are undone, as texts.
        removed_records: rows of the run that are removed.
        restored_records: rows that the run had deleted, or given new values, and that are there again.
        changed_data_files: data files that keep other rows, and get a deletion vector.
        files: of a dry run, the data files that would be removed, restored and changed; at most 100.
        readers: of a dry run, later snapshots whose rows were made from what is undone, in this table and in others of
            its namespace: table, snapshot, DAG, run and task; at most 100.
    """

    branch: str
    snapshot_id: int | None = None
    undone_snapshot_ids: tuple[str, ...] = ()
    removed_records: int = 0
    restored_records: int = 0
    removed_data_files: int = 0
    restored_data_files: int = 0
    changed_data_files: int = 0
    files: tuple[str, ...] = ()
    readers: tuple[Mapping[str, Any], ...] = ()

    def lines(self) -> list[str]:
        """Return what a task logs."""
        rows = f"{self.removed_records} rows removed, {self.restored_records} restored"
        of = f"of snapshots {', '.join(self.undone_snapshot_ids)}" if self.undone_snapshot_ids else "of no snapshot"
        readers = [
            f"read by {one['table']} snapshot {one['snapshot_id']} (DAG {one['dag_id']}, run {one['run_id']})"
            for one in self.readers
        ]
        return [f"{self.outcome}; {rows}, {of}", *self.files, *readers]


def undo(work: Work, request: UndoRequest) -> UndoResult:
    """Take back what a run has changed; a try that finds the commit of an earlier try reports it.

    Raises:
        NotFoundError: no snapshot of the table is of this run, or no such branch.
        IncompatibleChangeError: it cannot be proved what the rows of the run are now, or that rows can be restored.
        StalePlanError: others have changed the same rows, in each round; nothing was committed.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was deleted.
    """
    work.settings(request)  # fails for a table that cannot be written
    return work.on_latest(lambda: _round(work, request), branch=request.branch)


def _round(work: Work, request: UndoRequest) -> UndoResult:
    table, branch = work.table, request.branch
    landed = work.find_landed(branch)
    if landed is not None:
        return _of_snapshot(work, request, landed, Outcome.FOUND)
    metadata = table.metadata
    targets = find_targets(metadata, request.selection, branch)
    head = metadata.ref_snapshot(branch)
    if head is not None:
        check_undone(table.io, targets, head)
    if not targets.snapshots or head is None:
        return _result(work, request, Outcome.NOTHING)
    plan = plan_undo(table.io, metadata, targets, head)
    scan = TableScan.of(metadata, table.io, ref=branch)
    wanted = {file.file_path for file in plan.removed} | {path for _, paths in plan.carriers for path in paths}
    tasks = {one.file.file_path: one for one in scan.iter_files(whole_files=True) if one.file.file_path in wanted}
    found = []
    if plan.carriers:
        found = find_rows(table.io, metadata, plan.run_files, plan.carriers, tasks, cannot_undo(targets, metadata))
    if not (plan.removed or plan.restored or found):
        return _result(work, request, Outcome.NOTHING)
    steps = _Steps(work=work, request=request, targets=targets, plan=plan, found=found, start=head)
    counts = plan.counts or (_removed_rows(scan, plan, found, tasks), 0)
    return steps.dry_run(counts) if request.dry_run else steps.commit(counts)


def _removed_rows(
    scan: TableScan, plan: UndoPlan, found: Sequence[FoundRows], tasks: Mapping[str, FileScanTask]
) -> int:
    whole = [tasks[file.file_path] for file in plan.removed if file.file_path in tasks]
    return live_rows(scan, whole) + sum(one.positions.cardinality for one in found)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Steps:
    """The last steps of an undo, after it was planned."""

    work: Work
    request: UndoRequest
    targets: Targets
    plan: UndoPlan
    found: Sequence[FoundRows]
    start: Snapshot

    def dry_run(self, counts: tuple[int, int]) -> UndoResult:
        table, ids = self.work.table, {snapshot.snapshot_id for snapshot in self.targets.snapshots}
        changed = [one.task.file.file_path for one in self.found]
        paths = [*_data(self.plan.removed), *_data(self._restored), *changed]
        return _result(
            self.work,
            self.request,
            Outcome.DRY_RUN,
            undone_snapshot_ids=self._undone,
            removed_records=counts[0],
            restored_records=counts[1],
            removed_data_files=len(_data(self.plan.removed)),
            restored_data_files=len(_data(self._restored)),
            changed_data_files=len(changed),
            files=tuple(paths[:MOST_LISTED]),
            readers=tuple(find_readers(table, ids)[:MOST_LISTED]),
        )

    def commit(self, counts: tuple[int, int]) -> UndoResult:
        work = self.work
        io, key, tried = work.table.io, work.operation_key, work.try_number or 1
        changes = mark_rows(io, work.table.metadata, self.found, key=key, try_number=tried) if self.found else None
        written = [] if changes is None else [file.file_path for file in changes.written]
        with work.new_files(written):
            vectors = () if changes is None else tuple(changes.written)
            empty, marked = parted(self.found, changes) if changes else ([], [])
            entries = {
                DELETED_ROWS: str(counts[0]),
                INSERTED_ROWS: str(counts[1]),
                UPDATED_ROWS: "0",
                UNDONE_SNAPSHOTS: ",".join(self._undone),
                UNDONE_KEYS: json.dumps([str(key) for key in self.targets.keys]),
            }
            action = Undo(
                work.table.io,
                work.settings(self.request, entries),
                removed=(*self.plan.removed, *(task.file for task in empty), *replaced_deletes(marked)),
                restored=self.plan.restored,
                restored_from=self._snapshots_before(),
                vectors=vectors,
                is_of_run=lambda one: bool(self.request.selection.keys_in(work.table.metadata, one)),
                written_schema=self._schema_before(),
                starting_snapshot_id=self.start.snapshot_id,
            )
            result = work.commit(action, written)
        mine = None if result.snapshot_id is None else work.table.metadata.snapshot(result.snapshot_id)
        mine = mine or action.made
        if mine is None:
            return _result(work, self.request, result.outcome)
        return _of_snapshot(work, self.request, mine, result.outcome, changed_data_files=len(marked))

    @property
    def _undone(self) -> tuple[str, ...]:
        return tuple(str(snapshot.snapshot_id) for snapshot in self.targets.snapshots)

    @property
    def _restored(self) -> list[DataFile]:
        return [entry.data_file for entry in self.plan.restored]

    def _snapshots_before(self) -> list[int]:
        """Return the snapshots that have the restored files."""
        before = [one.parent_snapshot_id for one in self.targets.snapshots]
        return [one for one in before if one is not None and self.work.table.metadata.snapshot(one) is not None]

    def _schema_before(self) -> Schema:
        """Return the schema of the oldest rows that are restored."""
        metadata = self.work.table.metadata
        before = metadata.snapshot(self.targets.snapshots[0].parent_snapshot_id or 0)
        if not self.plan.restored or before is None or before.schema_id is None:
            return metadata.schema()
        return next((one for one in metadata.schemas if one.schema_id == before.schema_id), metadata.schema())


def _data(files: Sequence[DataFile]) -> list[str]:
    return [file.file_path for file in files if file.content is FileContent.DATA]


def _of_snapshot(
    work: Work, request: UndoRequest, snapshot: Snapshot, outcome: Outcome, *, changed_data_files: int = 0
) -> UndoResult:
    rows = RowCounts.of(snapshot)
    return _result(
        work,
        request,
        outcome,
        snapshot_id=snapshot.snapshot_id,
        undone_snapshot_ids=tuple(map(str, undone_in(snapshot))),
        removed_records=rows.deleted,
        restored_records=rows.added,
        removed_data_files=count_of(snapshot, "deleted-data-files"),
        restored_data_files=count_of(snapshot, "added-data-files"),
        changed_data_files=changed_data_files,
    )


def _result(work: Work, request: UndoRequest, outcome: Outcome, **facts: Any) -> UndoResult:
    return UndoResult(
        table=work.table.name, branch=request.branch, outcome=outcome, operation_key=work.key_text, **facts
    )
