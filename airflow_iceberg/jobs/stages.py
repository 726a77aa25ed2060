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
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.protocol import SUCCEEDED, JobPlan, JobResult
from airflow_iceberg.jobs.sources import plan_tasks, task_count
from airflow_iceberg.jobs.tasks import GATHER, SPILL, WRITE, TaskReport, TaskSpec

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

TARGET_FILE_SIZE = "write.target-file-size-bytes"
DEFAULT_TARGET_FILE_SIZE_BYTES = 512 << 20

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
    return int(plan.properties.get(TARGET_FILE_SIZE, DEFAULT_TARGET_FILE_SIZE_BYTES))


def stage_files(plan: JobPlan, io: "FileIO", run: RunTasks, *, parallelism: int, timings: Timings) -> JobResult:
    """Stage the rows of source files as data files.

    Args:
        plan: with a source of kind "files".
        io: of the table.
        run: runs task specs and returns their reports, in any order.
        parallelism: number of tasks that run at the same time.
        timings: phases are added to it.
    """
    with timings.phase("plan"):
        tasks = plan_tasks(
            plan.source, io, parallelism=parallelism, target_file_size_bytes=target_file_size_bytes(plan)
        )
    files = len({unit.location for units in tasks for unit in units})
    if sorts_over_tasks(plan):
        from airflow_iceberg.jobs.sorted_staging import stage_sorted_files

        reports = stage_sorted_files(plan, io, tasks, run, parallelism=parallelism, timings=timings)
    elif needs_exchange(plan) and len(tasks) > 1:
        buckets = exchange.bucket_count(len(tasks))
        specs = [TaskSpec(number=i, kind=SPILL, units=units, buckets=buckets) for i, units in enumerate(tasks)]
        with timings.phase("spill"):
            spilled = checked(run(specs), io)
        reports = gather(plan, io, spilled, run, parallelism=parallelism, timings=timings)
    else:
        specs = [TaskSpec(number=i, kind=WRITE, units=units) for i, units in enumerate(tasks)]
        with timings.phase("write"):
            reports = checked(run(specs), io)
    return result(plan, reports, source_files=files, timings=timings)


def gather(
    plan: JobPlan,
    io: "FileIO",
    spilled: Sequence[TaskReport],
    run: RunTasks,
    *,
    parallelism: int,
    timings: Timings,
) -> list[TaskReport]:
    """Write the data files from what was spilled, then remove the spill files."""
    slices = [piece for report in spilled for piece in report.slices]
    target = target_file_size_bytes(plan)
    size = sum(piece.size_bytes for piece in slices) // exchange.MEMORY_TO_PARQUET
    count = task_count(size, parallelism=parallelism, target_file_size_bytes=target) if slices else 0
    dealt = exchange.deal(slices, count, target_file_size_bytes=target) if slices else []
    specs = [TaskSpec(number=i, kind=GATHER, groups=groups) for i, groups in enumerate(dealt)]
    with timings.phase("gather"):
        reports = checked(run(specs), io)
    _check_rows(spilled, reports)
    clean_exchange(plan, io)
    return reports


def needs_exchange(plan: JobPlan) -> bool:
    """Return whether rows of one partition have to be brought together by the job."""
    return not plan.spec.is_unpartitioned and plan.distribution_mode != "none"


def sorts_over_tasks(plan: JobPlan) -> bool:
    """Return whether all rows are brought into one order; else each task sorts its own, if any sorts."""
    return plan.arrangement == "sort" and plan.distribution_mode == "range"


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
    from airflow_iceberg.data.properties import property_warnings

    found = property_warnings(plan.properties)
    if plan.sort_order.fields and plan.arrangement == "none":
        from airflow_iceberg.data.sorted_write import unsortable

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


def _check_rows(spilled: Sequence[TaskReport], written: Sequence[TaskReport]) -> None:
    before, after = (sum(report.record_count for report in reports) for reports in (spilled, written))
    if before != after:
        raise IcebergError(f"the exchange took in {before} rows and gave out {after}; nothing may be committed")
