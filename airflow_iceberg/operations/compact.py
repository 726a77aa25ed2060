"""Compact: data files rewritten into files of the target size, from the choice of files to the commit.

    from airflow_iceberg.jobs.run_local import run_local
    from airflow_iceberg.operations.compact import CompactRequest, compact
    from airflow_iceberg.operations.work import Work

    work = Work(table, run=lambda plan: run_local(plan, table.io))
    compact(work, CompactRequest(where="day >= '2026-01-01'"))

Here: the order of the steps. Groups whose files another writer has changed are re-planned alone, while the others are
committed. Not here: which files (`operations.compact_job`, `plan.compact`), the job (`jobs.compact`,
`jobs.compact_sorted`), the commit's rules (`commit.actions.rewrite_files`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_iceberg.commit.actions.rewrite_files import RewriteFiles
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import check_properties, find_all_landed
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.write_result import Outcome, WriteResult, count_of
from airflow_iceberg.data.write.options import checked_format
from airflow_iceberg.data.write.ordering import ZOrderedRows
from airflow_iceberg.data.write.sorted import write_order
from airflow_iceberg.errors import (
    CommitConflictError,
    FormatError,
    IncompatibleChangeError,
    InvalidInputError,
    StalePlanError,
)
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.shorthand import unquote
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.format.sort_orders import SortOrder, sort_order_from_shorthand
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.jobs.protocol.plan import CompactTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.staged_files import check_stored, read_files, staged_files
from airflow_iceberg.operations.compact_job import Compaction, find_dangling, plan_compaction, write_compact_plan
from airflow_iceberg.operations.work import MOST_ROUNDS, Work
from airflow_iceberg.plan.compact import SORT_OPTIONS, ZORDER_OPTIONS, FileGroup, RewriteOptions
from airflow_iceberg.scan.table_scan import TableScan

log = logging.getLogger(__name__)

STRATEGIES = ("binpack", "sort", "zorder")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactRequest:
    """What is asked of a compaction; the words of Iceberg's `rewrite_data_files`.

    Attributes:
        where: a predicate in SQL; files that may hold matching rows are considered, and rewritten whole.
        predicate_params: the values of the placeholders of `where`, `:name`, by name.
        strategy: one of STRATEGIES.
        sort_by: the order for "sort" ("ts desc nulls last"), by default the table's own; the columns for "zorder".
        options: options by Iceberg's names, see `plan.compact.RewriteOptions`.
        write_format: the format of the data files, "parquet" or "avro"; None for that of the table.
    """

    where: str | None = None
    predicate_params: Mapping[str, Any] | None = None
    strategy: str = "binpack"
    sort_by: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    branch: str = MAIN_BRANCH
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    write_format: str | None = None

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
        checked_format(self.write_format)
        check_properties(self.snapshot_properties)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactResult(WriteResult):
    """What a compaction did, over all its commits.

    Attributes:
        snapshot_ids: the snapshots of the commits, oldest first; `snapshot_id` is the last one.
        file_groups: groups of files that were rewritten.
        failed_file_groups: groups that were not rewritten, because other writers changed their files in each round.
    """

    snapshot_ids: tuple[int, ...] = ()
    file_groups: int = 0
    failed_file_groups: int = 0


def compact(work: Work, request: CompactRequest) -> CompactResult:
    """Rewrite small and large files, and files with many deleted rows, into files of the target size.

    Rows do not change. A try that finds the commit of an earlier try reports it; after an earlier try that has made
    some of several commits, the remaining files are rewritten.

    Raises:
        InvalidInputError: an impossible option, predicate or column; nothing was done.
        StalePlanError: other writers changed the same files, in each round; nothing of them was committed.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was deleted.
    """
    return _Compaction(work, request).result()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rewritten:
    """A group, and the files that replace its own."""

    group: FileGroup
    files: tuple[DataFile, ...]

    @property
    def inputs(self) -> tuple[DataFile, ...]:
        return tuple(task.file for task in self.group.tasks)


_PartitionKey = tuple[int, tuple[Any, ...]]


class _GroupsChanged(StalePlanError):
    """Other writers changed files of some groups, which have to be re-planned."""

    def __init__(self, groups: Sequence[FileGroup], table: str) -> None:
        super().__init__(f"other writers changed {len(groups)} groups of files of table {table}")
        self.groups = groups


class _Compaction:
    """One call of `compact`, with the state that its rounds share."""

    def __init__(self, work: Work, request: CompactRequest) -> None:
        self.work = work
        self.table = work.table
        self.request = request
        self.options = RewriteOptions.of(request.options, work.table.properties)
        _sort_order(work.table, request)  # both fail before anything is read
        _zorder_columns(work.table, request)
        self._settings(0)  # for a table, or a tag, that cannot be written
        self._only: set[_PartitionKey] | None = None
        self._committed: list[Snapshot] = []
        self._failed_groups = 0
        self._failed_commits = 0

    def result(self) -> CompactResult:
        earlier = self._earlier()
        if earlier and not self.options.partial_progress_enabled:
            self._remove_dangling()
            return self._describe(Outcome.FOUND, [*earlier, *self._committed])
        try:
            self.work.on_latest(self._round, branch=self.request.branch)
        except _GroupsChanged as error:
            self._give_up(error)
        self._remove_dangling()
        if self._committed:
            return self._describe(Outcome.COMMITTED, [*earlier, *self._committed])
        return self._describe(Outcome.FOUND if earlier else Outcome.NOTHING, earlier)

    def _remove_dangling(self) -> None:
        """Remove the delete files that apply to no data file any more, if the options say so, in one commit."""
        if self.options.remove_dangling_deletes:
            self.table.refresh()
            self.work.on_latest(self._remove_dangling_once, branch=self.request.branch)

    def _remove_dangling_once(self) -> None:
        head = self.table.metadata.ref_snapshot(self.request.branch)
        if head is None:
            return
        dangling = find_dangling(TableScan.of(self.table.metadata, self.table.io, ref=self.request.branch))
        if not dangling:
            return
        action = RewriteFiles(
            self.table.io,
            self._settings(0),
            removed=dangling,
            added=(),
            written_schema=self.table.schema(),
            starting_snapshot_id=head.snapshot_id,
        )
        self._apply(action)

    def _earlier(self) -> list[Snapshot]:
        """Return the commits of earlier tries of this task, oldest first."""
        metadata, branch = self.table.newest_metadata, self.request.branch
        head = metadata.ref_snapshot(branch)
        if self.work.operation_key is None or head is None:
            return []
        return list(find_all_landed(metadata, self.work.operation_key, branch))[::-1]

    def _plan(self) -> Compaction:
        table, request = self.table, self.request
        self.options = RewriteOptions.of(request.options, table.properties)
        scan = TableScan.of(
            table.metadata,
            table.io,
            row_filter=request.where,
            predicate_params=request.predicate_params,
            ref=request.branch,
        )
        compaction = plan_compaction(scan, self.options)
        if self._only is None:
            return compaction
        groups = tuple(group for group in compaction.groups if _partition_of(group) in self._only)
        return replace(compaction, groups=groups)

    def _round(self) -> None:
        """Run the job for all groups and commit what it wrote.

        Raises:
            _GroupsChanged: some groups have to be re-planned; the others are committed.
        """
        compaction = self._plan()
        if not compaction.groups:
            return
        table, written = self.table, self.request.write_format
        order, columns = _sort_order(table, self.request), _zorder_columns(table, self.request)
        # After a commit, only this process knows which groups are left.
        work = self.work if self._only is None else self.work.waiting("some groups are committed already")
        plan = write_compact_plan(work, compaction, sort_order=order, zorder_columns=columns, write_format=written)
        done = work.run_job(plan, lambda result: _rewritten(table, plan, result, compaction))
        stale: list[FileGroup] = []
        waiting = [file.file_path for one in done for file in one.files]
        with self.work.new_files(waiting, plan=plan):
            for batch in self._batches(done):
                stale += self._commit_batch(plan, batch, compaction)
                del waiting[: sum(len(one.files) for one in batch)]
        if stale:
            self._only = {_partition_of(group) for group in stale}
            raise _GroupsChanged(stale, table.name)

    def _batches(self, done: Sequence[_Rewritten]) -> Iterator[Sequence[_Rewritten]]:
        """Yield the groups of each commit: all of them, or with partial progress a part."""
        if not self.options.partial_progress_enabled:
            yield done
            return
        size = -(-len(done) // self.options.partial_progress_max_commits)
        for start in range(0, len(done), size):
            yield done[start : start + size]

    def _commit_batch(self, plan: JobPlan, batch: Sequence[_Rewritten], compaction: Compaction) -> list[FileGroup]:
        """Commit groups; return those that have to be re-planned, whose new files are deleted."""
        stale: list[_Rewritten] = []
        while batch:
            try:
                self.work.check_files(file.file_path for one in batch for file in one.files)
                self._apply(self._action(plan, batch, compaction))
                break
            except StalePlanError as error:
                self.table.refresh()
                gone = [one for one in batch if not self._is_current(plan, one, compaction)] or list(batch)
                log.info("%s: %s", self.table.name, error)
                stale += gone
                batch = [one for one in batch if one not in gone]
            except CommitConflictError as error:
                if isinstance(error, IncompatibleChangeError) or not self._may_fail_once_more():
                    raise
                self._remove(batch)
                self._failed_groups += len(batch)
                # The next commit would lose to the same writer.
                self.table.refresh()
                break
        self._remove(stale)
        return [one.group for one in stale]

    def _may_fail_once_more(self) -> bool:
        """Whether one more commit may fail: only with partial progress, and up to a limit."""
        options = self.options
        most = options.partial_progress_max_failed_commits
        self._failed_commits += 1
        allowed = options.partial_progress_max_commits if most is None else most
        return options.partial_progress_enabled and self._failed_commits <= allowed

    def _apply(self, action: RewriteFiles) -> None:
        landed = self.table.land(action)
        snapshot = landed.state.metadata.snapshot(action.snapshot_id) or action.made
        if landed.outcome is Outcome.COMMITTED and snapshot is not None:
            self._committed.append(snapshot)

    def _settings(self, groups: int, table_uuid: str | None = None) -> CommitSettings:
        settings = self.work.settings(self.request, {FILE_GROUPS: str(groups)}, table_uuid=table_uuid)
        # Each of the task's commits has its key in the summary, so that the key does not identify one of them.
        return replace(settings, operation_key=None)

    def _action(self, plan: JobPlan, batch: Sequence[_Rewritten], compaction: Compaction) -> RewriteFiles:
        assert compaction.snapshot_id is not None
        assert isinstance(plan.task, CompactTask)
        settings = self._settings(len(batch), plan.table_uuid)
        return RewriteFiles(
            self.table.io,
            # The table may have been loaded again since it was planned.
            replace(settings, format_version=plan.task.write.format_version, specs=(compaction.spec,)),
            removed=[file for one in batch for file in one.inputs],
            added=[file for one in batch for file in one.files],
            written_schema=compaction.schema,
            starting_snapshot_id=compaction.snapshot_id,
            keep_sequence_number=self.options.use_starting_sequence_number,
        )

    def _is_current(self, plan: JobPlan, one: _Rewritten, compaction: Compaction) -> bool:
        """Whether a group alone could be committed to the table as it is now; what that writes is deleted."""
        action = self._action(plan, [one], compaction)
        try:
            action(self.table.metadata)
        except (StalePlanError, IncompatibleChangeError):
            return False
        finally:
            action.failed()
        return True

    def _give_up(self, error: _GroupsChanged) -> None:
        if not self.options.partial_progress_enabled and not self._committed:
            raise StalePlanError(
                f"other writers changed files of table {self.table.name} in each of {MOST_ROUNDS} attempts to rewrite "
                f"them; nothing was committed, run it when less is written, or narrow it by where"
            ) from error
        self._failed_groups += len(error.groups)
        log.warning("%d groups of %s were not rewritten: others changed them again", len(error.groups), self.table.name)

    def _remove(self, batch: Sequence[_Rewritten]) -> None:
        self.work.remove([file.file_path for one in batch for file in one.files])

    def _describe(self, outcome: Outcome, snapshots: Sequence[Snapshot]) -> CompactResult:
        table, branch = self.table.name, self.request.branch
        if not snapshots:
            return CompactResult(
                table=table,
                branch=branch,
                outcome=outcome,
                operation_key=self.work.key_text,
                failed_file_groups=self._failed_groups,
            )
        return CompactResult.of(
            snapshots,
            table=table,
            branch=branch,
            outcome=outcome,
            snapshot_ids=tuple(snapshot.snapshot_id for snapshot in snapshots),
            file_groups=sum(count_of(snapshot, FILE_GROUPS) for snapshot in snapshots),
            failed_file_groups=self._failed_groups,
        )


FILE_GROUPS = "rewritten-file-groups"


def _zorder_columns(table: OpenTable, request: CompactRequest) -> tuple[str, ...]:
    """Return the checked names of the columns to cluster by; in the request bare or in backticks as in a sort order."""
    if request.strategy != "zorder":
        return ()
    names = table.schema().names
    columns = tuple(name if name in names else unquote(name) for name in request.sort_by)
    ZOrderedRows(columns, table.schema())
    return columns


def _sort_order(table: OpenTable, request: CompactRequest) -> SortOrder | None:
    """Return the order that rows are sorted by; None if they are not."""
    if request.strategy != "sort":
        return None
    order = sort_order_from_shorthand(request.sort_by, table.schema()) if request.sort_by else table.sort_order()
    if not order.fields:
        raise InvalidInputError(
            f"table {table.name} has no sort order; give one in sort_by, or set the table's (alter: set_sort_order)"
        )
    # Columns that cannot be sorted by fail before a job is planned, also where there is nothing to rewrite.
    write_order(order, table.schema(), table.spec())
    return order


def _rewritten(table: OpenTable, plan: JobPlan, result: JobResult, compaction: Compaction) -> list[_Rewritten]:
    check_stored(table.io, plan, staged_files(plan, result))
    files = {output.group: read_files(plan, output.data_files) for output in result.groups}
    missing = sorted({group.number for group in compaction.groups} - files.keys())
    if missing:
        raise FormatError(f"the job reports no files for groups {missing}", path=plan.result_location)
    return [_Rewritten(group=group, files=files[group.number]) for group in compaction.groups]


def _partition_of(group: FileGroup) -> _PartitionKey:
    return group.spec_id, tuple(canonical_key(value) for value in group.partition)
