"""The work of one call of an operation: its table, its operation key, and what runs its jobs.

Decided here, once for all operations: whether the work was committed before, what happens to new files after an error,
when work is re-planned on the latest snapshot, and how a job's own error is raised. Not here: what an operation does (a
module for each), and a commit that meets other writers (`commit.engine`).

A missing file of a snapshot that is still in the table means a broken table, and is an error. If another writer has
expired the snapshot that was read, the work is re-planned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Protocol, TypeVar

from airflow_iceberg.commit.earlier_epochs import check_no_later_epoch
from airflow_iceberg.commit.found_work import log_history
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey, find_landed
from airflow_iceberg.commit.runs.removed import check_own_index
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import MakesSnapshot
from airflow_iceberg.commit.write_result import Outcome, WriteResult, describe
from airflow_iceberg.errors import CommitUnknownError, IcebergError, NotFoundError, StalePlanError
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.jobs.protocol.heartbeat import kept_alive
from airflow_iceberg.jobs.protocol.pinned import locations_of
from airflow_iceberg.jobs.protocol.plan import JobPlan, Task
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.deferral.jobs import DeferredJobs

log = logging.getLogger(__name__)

# How often work is planned on the latest snapshot, when other writers change or expire what it has read.
MOST_ROUNDS = 4

RunJob = Callable[[JobPlan], JobResult]
T = TypeVar("T")


class CommitRequest(Protocol):
    """What all requests have whose operation makes a snapshot."""

    @property
    def branch(self) -> str:
        """The branch to commit to."""

    @property
    def snapshot_properties(self) -> Mapping[str, str]:
        """Entries for the snapshot's summary."""


@dataclass(frozen=True, slots=True)
class Work:
    """The table of an operation, and how the operation is carried out.

    Attributes:
        run: a function that runs a job and returns its result, such as `jobs.run_local.run_local`; None if
            all work is done in this process.
        operation_key: key of the Airflow task; None outside of Airflow.
        try_number: the number of the task's try, from 1; None if any call may be the second one for its operation key.
        parallelism: the number of tasks that a job runs at the same time; None leaves it to the job.
        started_s: when the work began, by the clock `time.monotonic`.
        deferred: the jobs that processes before this one have started; `run` is then this object. None if this process
            waits for its jobs.
    """

    table: OpenTable
    _: KW_ONLY
    run: RunJob | None = None
    operation_key: OperationKey | None = None
    try_number: int | None = None
    parallelism: int | None = None
    started_s: float = field(default_factory=time.monotonic)
    deferred: DeferredJobs | None = None

    @classmethod
    def of(cls, table: OpenTable, operation_key: OperationKey | None) -> Work:
        """Return the work of a call of a table's method, without jobs."""
        tried = None if operation_key is None else operation_key.try_number
        return cls(table, operation_key=operation_key, try_number=tried)

    @property
    def key_text(self) -> str | None:
        """The operation key as results report it."""
        return None if self.operation_key is None else str(self.operation_key)

    def find_landed(self, branch: str) -> Snapshot | None:
        """Return the snapshot by which an earlier try has committed this work; None when there is work to do.

        Raises:
            IncompatibleChangeError: a run after a later clear has committed already, or another index of the task
                under the same `write_key`.
        """
        if self.operation_key is None:
            return None
        landed = find_landed(self.table.newest_metadata, self.operation_key, branch)
        if landed is None:
            check_no_later_epoch(self.table.newest_metadata, self.operation_key, branch)
        else:
            check_own_index(self.operation_key, landed)
        if landed is not None and self.deferred is not None:
            self.deferred.give_up()
        log_history(self.table, self.operation_key, branch, landed)
        return landed

    def settings(
        self, request: CommitRequest, more: Mapping[str, str] | None = None, *, table_uuid: str | None = None
    ) -> CommitSettings:
        """Return the settings of one commit; see `OpenTable.commit_settings`.

        Args:
            more: entries that the operation itself adds to the snapshot's summary.
            table_uuid: the uuid of the table that was planned for.
        """
        settings = self.table.commit_settings(
            branch=request.branch,
            operation_key=self.operation_key,
            try_number=self.try_number or 1,
            snapshot_properties=request.snapshot_properties,
            table_uuid=table_uuid,
        )
        return replace(settings, properties={**settings.properties, **(more or {})})

    def new_staging(self, *, carries_rows: bool = False) -> str:
        """Return a prefix for the documents of a job that only this try uses; see `staging.new_staging`."""
        return staging.new_staging(
            self.table.metadata, self.operation_key, self.try_number or 1, carries_rows=carries_rows
        )

    def write_plan(self, task: Task, staging_location: str) -> JobPlan:
        """Write the plan of a job and return it; that of a job which was started for the same work, if there is one.

        Args:
            staging_location: a prefix that `new_staging` has returned.

        Raises:
            StorageError: the staging prefix cannot be written; nothing was started.
        """
        plan = JobPlan(
            operation_key=self.key_text,
            try_number=self.try_number or 1,
            table=self.table.name,
            table_uuid=self.table.metadata.table_uuid or "",
            staging_location=staging_location,
            parallelism=self.parallelism,
            locations=locations_of(self.table.io),
            task=task,
        )
        started = None if self.deferred is None else self.deferred.planned(plan, most_rounds=MOST_ROUNDS)
        if started is not None:
            return started
        staging.create_plan(self.table.io, plan)
        return plan

    def waiting(self, why: str) -> Work:
        """Return the same work, which waits for its jobs: a later process would not plan them again as they are."""
        if self.deferred is None:
            return self
        log.info("deferrable is set, and this task waits for its job all the same: %s", why)
        self.deferred.give_up()
        return replace(self, run=self.deferred.wait, deferred=None)

    def run_job(self, plan: JobPlan, read: Callable[[JobResult], T]) -> T:
        """Run a job and read its result; after an error the job's documents are deleted.

        Raises:
            IcebergError: the job's own error.
        """
        assert self.run is not None
        try:
            with kept_alive(self.table.io, plan.staging_location):
                result = self.run(plan)
            result.raise_for_error()
            return read(result)
        except Exception:
            staging.clear(self.table.io, plan.staging_location)
            raise

    @contextmanager
    def new_files(self, paths: list[str], *, plan: JobPlan | None = None) -> Iterator[None]:
        """Delete new files when the block fails, unless the commit may have landed; always delete a job's documents.

        Args:
            paths: new data and delete files that no snapshot has yet; the block may change the list.
        """
        try:
            yield
        except IcebergError as error:
            if not error.may_have_landed:
                self.remove(paths)
            raise
        finally:
            if plan is not None:
                staging.clear(self.table.io, plan.staging_location)

    def commit(self, action: MakesSnapshot, paths: list[str]) -> WriteResult:
        """Commit an action within `new_files`; if another process did the same work, the own files are deleted.

        They are kept if an attempt had no answer: it may have landed, and its snapshot may have expired since.
        """
        self.check_files(paths)
        landed = self.table.land(action)
        try:
            if landed.outcome is Outcome.FOUND and not landed.has_doubts:
                self.remove(paths)
            return describe(landed.state, action.settings, landed.outcome, action.made)
        except IcebergError as error:
            # `new_files` would take it for a failed commit, and delete what is in the table.
            raise CommitUnknownError(
                f"a commit to {self.table.name} has landed, and then this failed: {error}; nothing was deleted, run it "
                f"again to find the commit"
            ) from error

    def remove(self, paths: Sequence[str]) -> None:
        """Delete new files that no snapshot gets; never raises.

        Not those of a job that another process has started: whoever has the same handle may have committed them. They
        are orphans at worst.
        """
        if self.deferred is None:
            staging.remove(self.table.io, paths)

    def check_files(self, paths: Iterable[str]) -> None:
        """Check that new files are still there, if the work took so long that they may look like orphans.

        Raises:
            StalePlanError: one is gone; nothing was committed.
        """
        if time.monotonic() - self.started_s >= staging.CHECKED_AFTER_S:
            staging.check_still_there(self.table.io, paths, table=self.table.name)

    def nothing(self, branch: str) -> WriteResult:
        """Return the result of work that had nothing to do."""
        return WriteResult(table=self.table.name, branch=branch, outcome=Outcome.NOTHING, operation_key=self.key_text)

    def on_latest(self, attempt: Callable[[], T], *, branch: str) -> T:
        """Make an attempt that plans, works and commits; after StalePlanError make it again on the latest snapshot.

        Raises:
            StalePlanError: other writers changed what was planned on, each time; nothing was committed.
        """
        for _ in range(MOST_ROUNDS - 1):
            before = self.table.metadata_location
            try:
                return self._attempt(attempt, branch)
            except StalePlanError as error:
                # Without a newer state to plan on, as after a job that died, the task's retry runs the work again.
                if self.table.refresh().metadata_location == before:
                    raise
                log.info("%s: %s", self.table.name, error)
        return self._attempt(attempt, branch)

    def _attempt(self, attempt: Callable[[], T], branch: str) -> T:
        head = self.table.metadata.ref_snapshot(branch)
        with stale_if_expired(self.table, None if head is None else head.snapshot_id):
            return attempt()


def reread(table: OpenTable, work: Callable[[], T]) -> T:
    """Do work that only reads a table; when the table has changed meanwhile, do it again.

    Raises:
        NotFoundError: a file is missing, and the table is as it was when the work began.
    """
    for _ in range(MOST_ROUNDS - 1):
        before = table.metadata_location
        try:
            return work()
        except NotFoundError as error:
            if table.refresh().metadata_location == before:
                raise
            log.info("%s has changed meanwhile, reading it again: %s", table.name, error)
    return work()


@contextmanager
def stale_if_expired(table: OpenTable, snapshot_id: int | None) -> Iterator[None]:
    """Turn a missing file into StalePlanError when the snapshot that had the file was expired.

    Args:
        snapshot_id: the snapshot that is read; None when there is none.

    Raises:
        StalePlanError: the snapshot was expired meanwhile; the table was refreshed.
    """
    try:
        yield
    except NotFoundError as error:
        if snapshot_id is None or table.refresh().metadata.snapshot(snapshot_id) is not None:
            raise
        raise StalePlanError(
            f"snapshot {snapshot_id}, which was read, was expired meanwhile by another writer, and its files were "
            f"removed ({error}); nothing was committed, re-plan on the latest snapshot, and keep snapshots longer than "
            f"an operation takes"
        ) from error
