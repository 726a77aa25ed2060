"""The driver's side of a job: its phases of tasks, and what it removes.

Not here: which phases a job has (a module for each operation), who chooses (`jobs.run_plan`), what runs the tasks
(`jobs.run_local`, `jobs.spark.run`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.context import AnyTask
from airflow_iceberg.jobs.protocol.plan import AppendTask, JobPlan
from airflow_iceberg.jobs.task import Staging, TaskReport, TaskSpec

if TYPE_CHECKING:
    import pyarrow as pa

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
    """The rows of a query or a callable, which Spark brings to the tasks.

    Attributes:
        name: what messages call the source.
        schema: the columns of the rows.
    """

    name: str
    schema: pa.Schema

    def stage(self, plan: JobPlan, staging: Staging) -> list[TaskReport]:
        """Stage all rows, in tasks of Spark's own choice."""


class Engine(Protocol):
    """What runs the tasks of a job: threads of this process, or Spark.

    Attributes:
        parallelism: the number of tasks that run at the same time.
    """

    parallelism: int

    def run(self, plan: JobPlan, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        """Run tasks and return their reports, in any order."""

    def query(self, task: AppendTask) -> Query:
        """Open the query or the callable of a source.

        Raises:
            UnsupportedError: the engine has no queries.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Job(Generic[AnyTask]):
    """A job while it runs.

    Attributes:
        plan: the plan of the job.
        task: the plan's task.
        io: access to the table's files.
        engine: what runs the tasks.
        timings: seconds by phase.
    """

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
    """Return the reports by task number, one a task; raise the first error, if there is one.

    Before it raises, the data files that the other tasks have written are removed: nobody will ever refer to them.
    """
    by_number: dict[int, TaskReport] = {}
    for report in reports:
        by_number.setdefault(report.number, report)
    ordered = [by_number[number] for number in sorted(by_number)]
    failed = next((report.error for report in ordered if report.error is not None), None)
    if failed is None and not any(report.is_stopped for report in ordered):
        return ordered
    _remove(io, [document["file-path"] for report in ordered for document in report.data_files])
    if failed is None:
        raise IcebergError("the job was stopped, and no task says why; run it again")
    raise failed.to_exception()


def check_rows(what: str, before: Sequence[TaskReport], after: Sequence[TaskReport]) -> None:
    """Check that an exchange or a sort gives out all rows.

    Raises:
        IcebergError: other rows were given out than taken in.
    """
    taken_in, given_out = (sum(report.record_count for report in reports) for reports in (before, after))
    if taken_in != given_out:
        raise IcebergError(f"the {what} took in {taken_in} rows and gave out {given_out}; nothing may be committed")


def clean_exchange(plan: JobPlan, io: FileIO) -> None:
    """Remove the spill files; best effort, they lie under the prefix of this try alone."""
    try:
        io.delete([status.location for status in io.list(exchange.location(plan))])
    except IcebergError as error:
        log.warning("cannot remove the spill files of %s: %s", plan.location, error)


def _remove(io: FileIO, locations: Sequence[str]) -> None:
    try:
        io.delete(locations)
    except IcebergError as error:
        log.warning("cannot remove files of the failed job: %s", error)
