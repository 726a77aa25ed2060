"""The phases of a job over files, whatever runs the tasks: threads or Spark.

Cut the source into tasks; write directly, or spill and gather when rows of one partition have to be brought
together; collect the reports. The back end is one function that runs task specs and returns their reports.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_iceberg.errors import AlreadyExistsError, IcebergError
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, JobResult
from airflow_iceberg.jobs.task import TaskReport, TaskSpec

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

RunTasks = Callable[[Sequence[TaskSpec]], list[TaskReport]]


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


def target_file_size_bytes(plan: JobPlan) -> int:
    """Return `write.target-file-size-bytes` of the table."""
    return TableProperties.of(plan.properties).target_file_size_bytes


def checked(reports: Sequence[TaskReport], io: "FileIO") -> list[TaskReport]:
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


def result(plan: JobPlan, reports: Sequence[TaskReport], *, source_files: int | None, timings: Timings) -> JobResult:
    """Return the result of a job that succeeded."""
    return JobResult(
        status=SUCCEEDED,
        data_files=tuple(file for report in reports for file in report.data_files),
        schema=None if plan.last_column_id is None else plan.schema,
        record_count=sum(report.record_count for report in reports),
        source_files=source_files,
        warnings=warnings(plan),
        timings=timings.total(),
    )


def warnings(plan: JobPlan) -> tuple[str, ...]:
    """Return what this version does less well than the table asks for."""
    from airflow_iceberg.format.properties.known import property_warnings

    found = property_warnings(plan.properties)
    if plan.sort_order.fields and plan.arrangement == "none":
        from airflow_iceberg.data.write.sorted import unsortable

        reason = unsortable(plan.sort_order, plan.schema, plan.spec) or "the plan does not ask for it"
        text = f"rows of table {plan.table} are not sorted by its sort order {plan.sort_order.order_id}: {reason}"
        log.warning(text)
        found = (*found, text)
    return found


def with_engine(result: JobResult, engine: str) -> JobResult:
    """Return the result with the name of what ran the job."""
    return replace(result, engine=engine)


def write_result(plan: JobPlan, io: "FileIO", result: JobResult) -> JobResult:
    """Write the result document, once; a doubled job that comes second leaves the first one's answer alone."""
    try:
        io.create(plan.result_location, result.to_json())
    except AlreadyExistsError:
        log.warning("%s exists already: another run of this plan was faster, its result stays", plan.result_location)
        return JobResult.from_json(io.read(plan.result_location), path=plan.result_location)
    return result


def clean_exchange(plan: JobPlan, io: "FileIO") -> None:
    """Remove the spill files; best effort, they lie under the prefix of this try alone."""
    try:
        io.delete([status.location for status in io.list(exchange.location(plan))])
    except IcebergError as error:
        log.warning("cannot remove the spill files of %s: %s", plan.location, error)


def _remove(io: "FileIO", locations: Sequence[str]) -> None:
    try:
        io.delete(locations)
    except IcebergError as error:
        log.warning("cannot remove files of the failed job: %s", error)
