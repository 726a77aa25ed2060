"""Runs a plan on an engine: chooses what a job does by the kind of its task, and writes the result document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.data.cast.rows import check_columns
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs import append, append_sorted, compact, compact_sorted
from airflow_iceberg.jobs.delete import delete
from airflow_iceberg.jobs.inventory import inventory
from airflow_iceberg.jobs.merge.job import merge
from airflow_iceberg.jobs.phase import Engine, Job, Timings, clean_exchange
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.plan import AppendTask, CompactTask, DeleteTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult, write_result
from airflow_iceberg.jobs.protocol.table_input import TableInput, WorkItem, read_work
from airflow_iceberg.jobs.sources.files import plan_tasks
from airflow_iceberg.jobs.sources.new_columns import with_columns_of, with_source
from airflow_iceberg.jobs.task import Collect

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


def run_job(
    plan: JobPlan,
    io: FileIO,
    start: Callable[[Timings], Engine],
    *,
    engine: str,
    as_error: Callable[[Exception], Exception] = lambda error: error,
    secret: str | None = None,
) -> JobResult:
    """Run a job and write its result document, also when it fails.

    Args:
        start: a function that starts the engine.
        engine: the name of the engine.
        as_error: a function that returns the error to report for an error of the engine.
        secret: the argument of `write_result`.
    Returns:
        the result, also of a job that failed.
    Raises:
        StorageError: the result document cannot be written.
    """
    timings = Timings()
    io = plan.gated(io)
    try:
        result = run_plan(plan, io, start(timings), timings)
    except Exception as error:  # noqa: BLE001 - every failure becomes a result document
        clean_exchange(plan, io)
        result = JobResult.failed(as_error(error), timings=timings.total())
    return write_result(plan, io, replace(result, engine=engine), secret=secret)


def run_plan(plan: JobPlan, io: FileIO, engine: Engine, timings: Timings) -> JobResult:
    """Run a plan and return the result of a job that succeeded."""
    if plan.withheld:
        # It was read from the table's folder, which does not hold everything.
        withheld = ", ".join(plan.withheld)
        raise InvalidInputError(f"the plan withholds {withheld} of the job's source, which the driver was not given")
    shared: dict[str, Any] = {"plan": plan, "io": io, "engine": engine, "timings": timings}
    match plan.task:
        case AppendTask() as task:
            return _append(Job(task=task, **shared))
        case CompactTask() as task:
            compaction = Job(task=task, **shared)
            items = _work(compaction, task.table)
            compact_rows = compact.compact_items if task.sorting is None else compact_sorted.sort_groups
            return compact.result(compaction, items, compact_rows(compaction, items))
        case DeleteTask() as task:
            job = Job(task=task, **shared)
            return delete(job, _work(job, task.table))
        case MergeTask() as task:
            return merge(Job(task=task, **shared))
        case task:
            return inventory(Job(task=task, **shared))


def _append(job: Job[AppendTask]) -> JobResult:
    is_sorted = append_sorted.sorts_over_tasks(job.task)
    if job.task.source.kind == "files":
        target = job.task.write.target_file_size_bytes
        with job.timings.phase("plan"):
            units = plan_tasks(
                job.task.source, job.io, parallelism=job.engine.parallelism, target_file_size_bytes=target
            )
        task, units = with_source(job, units)
        job = _with_task(job, task)
        if is_sorted and append_sorted.is_small(units):
            is_sorted, units = False, (tuple(unit for task in units for unit in task),) if units else ()
        rows = append.rows_of_files(job, units)
    else:
        with job.timings.phase("query"):
            query = job.engine.query(job.task)
            job = _with_task(job, with_columns_of(job.task, [query.schema]))
            check_columns(query.schema, job.task.rows_schema, source=query.name)
        rows = append.rows_of_query(job, query)
    staged = append_sorted.merge_collected(job, rows.run(Collect())) if is_sorted else append.stage(job, rows)
    return append.result(job, rows, staged)


def _with_task(job: Job[AppendTask], task: AppendTask) -> Job[AppendTask]:
    return replace(job, plan=replace(job.plan, task=task), task=task)


def _work(job: Job[Any], table: TableInput) -> tuple[WorkItem, ...]:
    with job.timings.phase("plan"):
        return read_work(job.io, table)
