"""Compaction of a table, from the choice of files to the commit.

Here: `compact`, the loop over planning, the job and the commits: groups whose files another writer has changed
meanwhile are planned again, alone, while the others are committed. Not here: which files (`operations.compact_job`,
`plan.compact`), the job (`jobs.compact`, `jobs.compact_sorted`), the commit's rules (`commit.actions.rewrite_files`).

    from airflow_iceberg.operations.compact import CompactionRequest, compact
    from airflow_iceberg.jobs.run_local import run_local

    compact(table, CompactionRequest(where="day >= '2026-01-01'"), run=lambda plan: run_local(plan, table.io))
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.actions.rewrite_files import RewriteFiles
from airflow_iceberg.commit.operation_key import OPERATION_KEY, OperationKey, check_properties
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.write_result import xcom_of
from airflow_iceberg.data.write.ordering import ZOrderedRows
from airflow_iceberg.data.write.sorted import write_order
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
)
from airflow_iceberg.format.schemas.shorthand import unquote
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.format.sort_orders import SortOrder, sort_order_from_shorthand
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.compact_job import Compaction, find_dangling, plan_compaction, write_rewrite_plan
from airflow_iceberg.operations.work import on_newest, was_expired
from airflow_iceberg.plan.compact import SORT_OPTIONS, ZORDER_OPTIONS, FileGroup, RewriteOptions

if TYPE_CHECKING:
    from airflow_iceberg.format.manifests.entries import DataFile
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.table import Table

log = logging.getLogger(__name__)

STRATEGIES = ("binpack", "sort", "zorder")
# How often files that others changed meanwhile are planned again, before the task gives them up.
MOST_ROUNDS = 4

RunJob = Callable[["JobPlan"], "JobResult"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionRequest:
    """What is asked of a compaction; the words of Iceberg's `rewrite_data_files`.

    Attributes:
        where: a predicate in SQL; files that may hold matching rows are considered, and rewritten whole.
        strategy: one of STRATEGIES.
        sort_by: for "sort" an order ("ts desc nulls last"), the table's own if left out; for "zorder" columns.
        options: by Iceberg's names, see `plan.compact.RewriteOptions`.
    """

    where: str | None = None
    strategy: str = "binpack"
    sort_by: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    branch: str = MAIN_BRANCH
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidInputError(f"unknown strategy {self.strategy!r}; one of {', '.join(STRATEGIES)}")
        if self.strategy == "binpack" and self.sort_by:
            raise InvalidInputError("strategy 'binpack' sorts nothing; choose 'sort' or 'zorder', or leave out sort_by")
        if self.strategy == "zorder" and not self.sort_by:
            raise InvalidInputError("strategy 'zorder' needs the columns to cluster by in sort_by")
        if not isinstance(self.options, Mapping):
            raise InvalidInputError(
                f"options are {self.options!r}, expected names and values, as in {{'rewrite-all': True}}"
            )
        foreign = {"binpack": SORT_OPTIONS | ZORDER_OPTIONS, "sort": ZORDER_OPTIONS}.get(self.strategy, frozenset())
        wrong = sorted(foreign & self.options.keys())
        if wrong:
            of = "zorder" if wrong[0] in ZORDER_OPTIONS else "sort"
            raise InvalidInputError(f"option {wrong[0]!r} is of strategy {of!r}, and the strategy is {self.strategy!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionResult:
    """What a compaction did, over all its commits.

    Attributes:
        outcome: "committed"; "found", when an earlier try of the task has done it; "nothing", when every file was as it
            should be.
        snapshot_ids: of the commits, oldest first.
        failed_file_groups: groups that were left as they are, because others changed their files again and again.
    """

    table: str
    branch: str
    outcome: str
    snapshot_ids: tuple[int, ...] = ()
    file_groups: int = 0
    rewritten_data_files: int = 0
    rewritten_bytes: int = 0
    added_data_files: int = 0
    added_bytes: int = 0
    records: int = 0
    removed_delete_files: int = 0
    failed_file_groups: int = 0
    operation_key: str | None = None

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values, see `xcom_of`; the last snapshot is also the one that `snapshot_id` names."""
        names = [str(snapshot_id) for snapshot_id in self.snapshot_ids]
        return {**xcom_of(self), "snapshot_id": names[-1] if names else None, "snapshot_ids": names}


def compact(
    table: Table,
    request: CompactionRequest,
    *,
    run: RunJob,
    operation: OperationKey | None = None,
    try_number: int = 1,
    parallelism: int | None = None,
) -> CompactionResult:
    """Rewrite small, large and much deleted files of a table into files of the target size.

    Rows do not change. A try that finds the commit of an earlier one reports it; what an earlier try has committed of
    several commits is as it should be, so the rest is done.

    Args:
        run: runs a job and returns its result; raises the job's own error.
        operation: key of the Airflow task.

    Raises:
        InvalidInputError: an option, a predicate or a column that cannot be; nothing was done.
        StalePlanError: other writers changed the same files again and again; nothing of them was committed.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was deleted.
    """
    check_properties(request.snapshot_properties)
    return _Run(table, request, run, operation, try_number, parallelism).result()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rewritten:
    """A group with the files that stand for its own."""

    group: FileGroup
    files: tuple[DataFile, ...]

    @property
    def inputs(self) -> tuple[DataFile, ...]:
        return tuple(task.file for task in self.group.tasks)


_PartitionKey = tuple[int, tuple[Any, ...]]


class _Run:
    """One call of `compact`; holds what its rounds share."""

    def __init__(
        self,
        table: Table,
        request: CompactionRequest,
        run: RunJob,
        operation: OperationKey | None,
        try_number: int,
        parallelism: int | None,
    ) -> None:
        self.table = table
        self.request = request
        self.options = RewriteOptions.of(request.options, table.properties)
        self._run_job = run
        self._operation = operation
        self._try_number = try_number
        self._parallelism = parallelism
        self._order = _sort_order(table, request)
        self._zorder_columns = _zorder_columns(table, request)
        self._committed: list[Snapshot] = []
        self._failed_groups = 0
        self._failed_commits = 0

    def result(self) -> CompactionResult:
        earlier = self._earlier()
        if earlier and not self.options.partial_progress_enabled:
            self._remove_dangling()
            return self._describe("found", [*earlier, *self._committed])
        only: set[_PartitionKey] | None = None
        for round_number in range(MOST_ROUNDS):
            head = self.table.metadata.ref_snapshot(self.request.branch)
            try:
                compaction = self._plan(only)
                stale = self._round(compaction) if compaction.groups else []
            except NotFoundError as error:
                self._check_expired(head, error, is_last=round_number + 1 == MOST_ROUNDS)
                continue
            if not stale:
                break
            if round_number + 1 == MOST_ROUNDS:
                self._give_up(stale)
                break
            log.info("%d groups of %s were changed by others, planning them again", len(stale), self.table.name)
            self.table.refresh()
            only = {_partition_of(group) for group in stale}
        self._remove_dangling()
        if self._committed:
            return self._describe("committed", [*earlier, *self._committed])
        return self._describe("found" if earlier else "nothing", earlier)

    def _check_expired(self, head: Snapshot | None, error: NotFoundError, *, is_last: bool) -> None:
        """Return if files are missing because the snapshot that was read has been expired: all is planned again."""
        if head is None or not was_expired(self.table, head.snapshot_id):
            raise error
        log.info("snapshot %d of %s was expired while it was read: %s", head.snapshot_id, self.table.name, error)
        if is_last:
            raise StalePlanError(
                f"snapshots of table {self.table.name} were expired while they were read, in {MOST_ROUNDS} attempts; "
                f"keep them longer than a compaction takes"
            ) from error

    def _remove_dangling(self) -> None:
        """Take out the delete files that apply to no data file any more, if that is asked for, in one commit."""
        if not self.options.remove_dangling_deletes:
            return
        for round_number in range(MOST_ROUNDS):
            self.table.refresh()
            head = self.table.metadata.ref_snapshot(self.request.branch)
            dangling = () if head is None else on_newest(self.table, self._find_dangling)
            head = self.table.metadata.ref_snapshot(self.request.branch)
            if head is None or not dangling:
                return
            action = RewriteFiles(
                self.table.io,
                self._settings(0),
                removed=dangling,
                added=(),
                written_schema=self.table.schema(),
                starting_snapshot_id=head.snapshot_id,
            )
            try:
                self._apply(action)
                return
            except StalePlanError:
                if round_number + 1 == MOST_ROUNDS:
                    raise

    def _find_dangling(self) -> tuple[DataFile, ...]:
        return find_dangling(self.table.scan(ref=self.request.branch))

    def _earlier(self) -> list[Snapshot]:
        """Return what earlier tries of this very task have committed, oldest first."""
        metadata, branch = self.table.metadata, self.request.branch
        head = metadata.ref_snapshot(branch)
        if self._operation is None or head is None:
            return []
        found = [
            s for s in metadata.ancestors(head.snapshot_id) if s.summary.get(OPERATION_KEY) == str(self._operation)
        ]
        return found[::-1]

    def _plan(self, only: set[_PartitionKey] | None) -> Compaction:
        scan = self.table.scan(self.request.where, ref=self.request.branch)
        compaction = plan_compaction(scan, self.options)
        if only is None:
            return compaction
        return replace(compaction, groups=tuple(group for group in compaction.groups if _partition_of(group) in only))

    def _round(self, compaction: Compaction) -> list[FileGroup]:
        """Run the job for all groups and commit what it wrote; return the groups that are to be planned again."""
        table = self.table
        plan = write_rewrite_plan(
            table.io,
            table.metadata,
            compaction,
            table=table.name,
            operation=self._operation,
            try_number=self._try_number,
            parallelism=self._parallelism,
            sort_order=self._order,
            zorder_columns=self._zorder_columns,
        )
        try:
            result = self._run_job(plan)
            result.raise_for_error()
            done = _rewritten(plan, result, compaction)
        except Exception:
            table.discard(plan)
            raise
        stale: list[FileGroup] = []
        waiting = list(done)
        try:
            for batch in self._batches(done):
                stale += self._commit_batch(plan, batch, compaction)
                waiting = waiting[len(batch) :]
        except CommitUnknownError:
            raise  # it may have landed: the files must stay
        except IcebergError:
            self._remove(waiting)
            raise
        finally:
            staging.clear(table.io, plan)
        return stale

    def _batches(self, done: Sequence[_Rewritten]) -> Iterator[Sequence[_Rewritten]]:
        """Yield what goes into one commit: everything, or with partial progress a share."""
        if not self.options.partial_progress_enabled:
            yield done
            return
        size = -(-len(done) // self.options.partial_progress_max_commits)
        for start in range(0, len(done), size):
            yield done[start : start + size]

    def _commit_batch(self, plan: JobPlan, batch: Sequence[_Rewritten], compaction: Compaction) -> list[FileGroup]:
        """Commit groups; return those that have to be planned again, their new files removed."""
        stale: list[_Rewritten] = []
        while batch:
            try:
                self._commit(plan, batch, compaction)
                break
            except StalePlanError as error:
                self.table.refresh()
                gone = [one for one in batch if not self._is_current(plan, one, compaction)] or list(batch)
                log.info("%s: %s", self.table.name, error)
                stale += gone
                batch = [one for one in batch if one not in gone]
            except IncompatibleChangeError:
                raise
            except CommitConflictError:
                if not self._may_fail_once_more():
                    raise
                self._remove(batch)
                self._failed_groups += len(batch)
                # The next commit would lose to the same writer.
                self.table.refresh()
                break
        self._remove(stale)
        return [one.group for one in stale]

    def _may_fail_once_more(self) -> bool:
        """Whether one more commit may fail: only with partial progress, and not too often."""
        options = self.options
        most = options.partial_progress_max_failed_commits
        self._failed_commits += 1
        allowed = options.partial_progress_max_commits if most is None else most
        return options.partial_progress_enabled and self._failed_commits <= allowed

    def _commit(self, plan: JobPlan, batch: Sequence[_Rewritten], compaction: Compaction) -> None:
        self._apply(self._action(plan, batch, compaction))

    def _apply(self, action: RewriteFiles) -> None:
        self.table.commit(action)
        snapshot = self.table.metadata.snapshot(action.snapshot_id)
        if snapshot is not None:
            self._committed.append(snapshot)

    def _settings(self, groups: int, table_uuid: str | None = None) -> CommitSettings:
        settings = self.table.commit_settings(
            branch=self.request.branch,
            operation=self._operation,
            try_number=self._try_number,
            snapshot_properties={**self.request.snapshot_properties, FILE_GROUPS: str(groups)},
        )
        # The task's key is in the summary of each of its commits; it does not tell one of them from another.
        return replace(settings, operation=None, table_uuid=table_uuid or settings.table_uuid)

    def _action(self, plan: JobPlan, batch: Sequence[_Rewritten], compaction: Compaction) -> RewriteFiles:
        assert compaction.snapshot_id is not None
        return RewriteFiles(
            self.table.io,
            self._settings(len(batch), plan.table_uuid),
            removed=[file for one in batch for file in one.inputs],
            added=[file for one in batch for file in one.files],
            written_schema=plan.schema,
            starting_snapshot_id=compaction.snapshot_id,
            keep_sequence_number=self.options.use_starting_sequence_number,
        )

    def _is_current(self, plan: JobPlan, one: _Rewritten, compaction: Compaction) -> bool:
        """Tell whether a group alone could be committed to the table as it is now; what that writes is removed."""
        action = self._action(plan, [one], compaction)
        try:
            action(self.table.metadata)
        except (StalePlanError, IncompatibleChangeError):
            return False
        finally:
            action.failed()
        return True

    def _give_up(self, stale: Sequence[FileGroup]) -> None:
        if not self.options.partial_progress_enabled and not self._committed:
            raise StalePlanError(
                f"other writers changed files of table {self.table.name} in each of {MOST_ROUNDS} attempts to rewrite "
                f"them; nothing was committed, run it when less is written, or narrow it by where"
            )
        self._failed_groups += len(stale)
        log.warning("left %d groups of %s as they are: others changed them again", len(stale), self.table.name)

    def _remove(self, batch: Sequence[_Rewritten]) -> None:
        staging.remove(self.table.io, [file.file_path for one in batch for file in one.files])

    def _describe(self, outcome: str, snapshots: Sequence[Snapshot]) -> CompactionResult:
        def total(name: str) -> int:
            return sum(int(snapshot.summary.get(name, "0")) for snapshot in snapshots)

        return CompactionResult(
            table=self.table.name,
            branch=self.request.branch,
            outcome=outcome,
            snapshot_ids=tuple(snapshot.snapshot_id for snapshot in snapshots),
            file_groups=total(FILE_GROUPS),
            rewritten_data_files=total("deleted-data-files"),
            rewritten_bytes=total("removed-files-size"),
            added_data_files=total("added-data-files"),
            added_bytes=total("added-files-size"),
            records=total("added-records"),
            removed_delete_files=total("removed-delete-files"),
            failed_file_groups=self._failed_groups,
            operation_key=None if self._operation is None else str(self._operation),
        )


FILE_GROUPS = "rewritten-file-groups"


def _zorder_columns(table: Table, request: CompactionRequest) -> tuple[str, ...]:
    """Return the names of the columns to cluster by, checked; written bare or in backticks as in a sort order."""
    if request.strategy != "zorder":
        return ()
    names = table.schema().names
    columns = tuple(name if name in names else unquote(name) for name in request.sort_by)
    ZOrderedRows(columns, table.schema())
    return columns


def _sort_order(table: Table, request: CompactionRequest) -> SortOrder | None:
    """Return the order that rows are sorted by, None where they are not."""
    if request.strategy != "sort":
        return None
    order = sort_order_from_shorthand(request.sort_by, table.schema()) if request.sort_by else table.sort_order()
    if not order.fields:
        raise InvalidInputError(
            f"table {table.name} has no sort order; give one in sort_by, or set the table's (alter: set_sort_order)"
        )
    # What cannot be sorted by is found before a job is planned, and also where there is nothing to rewrite.
    write_order(order, table.schema(), table.spec())
    return order


def _rewritten(plan: JobPlan, result: JobResult, compaction: Compaction) -> list[_Rewritten]:
    files = {output.group: staging.read_files(plan, output.data_files) for output in result.groups}
    return [_Rewritten(group=group, files=files[group.number]) for group in compaction.groups]


def _partition_of(group: FileGroup) -> _PartitionKey:
    return group.spec_id, tuple(canonical_key(value) for value in group.partition)
