"""The driver's side of a job: its phases of tasks, and the files that it deletes.

Not here: which phases a job has (a module for each operation), who chooses (`jobs.run_plan`), what runs the tasks
(`jobs.run_local`, `jobs.spark.run`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.context import AnyTask
from airflow_iceberg.jobs.protocol.plan import AppendTask, JobPlan
from airflow_iceberg.jobs.task import Staging, TaskReport, TaskSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.jobs.merge.tasks import Matching
    from airflow_iceberg.jobs.protocol.merge_task import MergeTask
    from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)


class Timings:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - started, 3)

    def total(self) -> dict[str, float]:
        """Return the seconds by phase and in total."""
        return {**self.seconds, "total": round(time.monotonic() - self._started, 3)}


class Query(Protocol):
    """The rows of a query or a callable, which Spark brings to the tasks; `name` is the source's name in messages."""

    name: str
    schema: pa.Schema

    def stage(self, plan: JobPlan, staging: Staging) -> list[TaskReport]:
        """Stage all rows, in tasks of Spark's own choice."""


class Engine(Protocol):
    """What runs the tasks of a job, `parallelism` of them at the same time: threads of this process, or Spark."""

    parallelism: int

    def run(self, plan: JobPlan, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        """Run tasks and return their reports, in any order."""

    def query(self, task: AppendTask | MergeTask) -> Query:
        """Open the query or the callable of a source; raises UnsupportedError if the engine has no queries."""

    def match(self, task: MergeTask, matching: Matching, query: str) -> Query:
        """Open a query over the rows of both sides, and the inputs."""

    def first(self, task: MergeTask, matching: Matching, query: str) -> Sequence[Any] | None:
        """Return the first row of such a query, None without rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job(Generic[AnyTask]):
    """A job while it runs; `task` is the plan's."""

    plan: JobPlan
    task: AnyTask
    io: FileIO
    engine: Engine
    timings: Timings

    def run(self, phase: str, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        """Run the tasks of a phase and return their reports by number; raise the first error, if there is one."""
        with self.timings.phase(phase):
            return checked(self.engine.run(self.plan, specs), self.io)


def checked(reports: Sequence[TaskReport], io: FileIO) -> list[TaskReport]:
    """Return the reports by task number, one for each task; raise the first error, if there is one.

    Before it raises, the data files of the other tasks are deleted: no snapshot will ever have them.
    """
    by_number: dict[int, TaskReport] = {}
    for report in reports:
        by_number.setdefault(report.number, report)
    ordered = [by_number[number] for number in sorted(by_number)]
    failed = next((report.error for report in ordered if report.error is not None), None)
    if failed is None and not any(report.is_stopped for report in ordered):
        return ordered
    try:
        io.delete([document["file-path"] for report in ordered for document in report.data_files])
    except IcebergError as error:
        log.warning("cannot remove files of the failed job: %s", error)
    if failed is None:
        raise IcebergError("the job was stopped, but no task reported an error; run it again")
    raise failed.to_exception()


def check_rows(what: str, before: Sequence[TaskReport], after: Sequence[TaskReport]) -> None:
    """Raise IcebergError unless an exchange or a sort wrote as many rows as it read."""
    read, written = (sum(report.record_count for report in reports) for reports in (before, after))
    if read != written:
        raise IcebergError(f"the {what} read {read} rows and wrote {written}; nothing may be committed")


def clean_exchange(plan: JobPlan, io: FileIO) -> None:
    """Delete the spill files, as far as possible; only this try has files under their prefix."""
    try:
        io.delete([status.location for status in io.list(exchange.location(plan))])
    except IcebergError as error:
        log.warning("cannot remove the spill files of %s: %s", plan.location, error)
