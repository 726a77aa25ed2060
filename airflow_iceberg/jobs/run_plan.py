"""Runs a plan on an engine: chooses what a job does by the kind of its task, and writes the result document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.data.cast.rows import check_columns
from airflow_iceberg.jobs import append, append_sorted, compact, compact_sorted
from airflow_iceberg.jobs.append import FileRows, QueryRows
from airflow_iceberg.jobs.delete import delete
from airflow_iceberg.jobs.inventory import inventory
from airflow_iceberg.jobs.phase import Engine, Job, Timings, clean_exchange
from airflow_iceberg.jobs.protocol.plan import AppendTask, CompactTask, DeleteTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult, write_result
from airflow_iceberg.jobs.protocol.table_input import TableInput, WorkItem, read_work
from airflow_iceberg.jobs.sources.files import plan_tasks
from airflow_iceberg.jobs.sources.new_columns import with_columns_of, with_columns_of_files
from airflow_iceberg.jobs.task import Collect, Write

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


def run_job(
    plan: JobPlan,
    io: FileIO,
    start: Callable[[Timings], Engine],
    *,
    engine: str,
    as_error: Callable[[Exception], Exception] = lambda error: error,
) -> JobResult:
    """Run a job and write its result document, also when it fails.

    Args:
        start: starts what runs the tasks.
        engine: the name of what runs the tasks.
        as_error: returns the error that is reported for one that the engine raised.
    Returns:
        the result; a job that failed says so in it and does not raise.
    Raises:
        StorageError: the result document cannot be written.
    """
    timings = Timings()
    try:
        result = run_plan(plan, io, start(timings), timings)
    except Exception as error:  # noqa: BLE001 - every failure becomes a result document
        clean_exchange(plan, io)
        result = JobResult.failed(as_error(error), timings=timings.total())
    return write_result(plan, io, replace(result, engine=engine))


def run_plan(plan: JobPlan, io: FileIO, engine: Engine, timings: Timings) -> JobResult:
    """Run a plan and return the result of a job that succeeded."""
    shared: dict[str, Any] = {"plan": plan, "io": io, "engine": engine, "timings": timings}
    match plan.task:
        case AppendTask() as task:
            return _append(Job(task=task, **shared))
        case CompactTask() as task:
            return _compact(Job(task=task, **shared))
        case DeleteTask() as task:
            job = Job(task=task, **shared)
            return delete(job, _work(job, task.table))
        case task:
            return inventory(Job(task=task, **shared))


def _append(job: Job[AppendTask]) -> JobResult:
    job, rows = _open_files(job) if job.task.source.kind == "files" else _open_query(job)
    if not append_sorted.sorts_over_tasks(job.task):
        reports = append.stage(job, rows)
    elif isinstance(rows, FileRows) and rows.weight <= append_sorted.SMALL_SOURCE_BYTES:
        reports = rows.in_one_task().stage(job, Write())
    else:
        reports = append_sorted.merge_collected(job, rows.stage(job, Collect()))
    return append.result(job, rows, reports)


def _open_files(job: Job[AppendTask]) -> tuple[Job[AppendTask], FileRows | QueryRows]:
    job = _with_task(job, with_columns_of_files(job.task, job.io))
    with job.timings.phase("plan"):
        tasks = plan_tasks(
            job.task.source,
            job.io,
            parallelism=job.engine.parallelism,
            target_file_size_bytes=job.task.write.target_file_size_bytes,
        )
    return job, FileRows(tasks)


def _open_query(job: Job[AppendTask]) -> tuple[Job[AppendTask], FileRows | QueryRows]:
    with job.timings.phase("query"):
        query = job.engine.query(job.task)
        job = _with_task(job, with_columns_of(job.task, [query.schema]))
        check_columns(query.schema, job.task.rows_schema, source=query.name)
    return job, QueryRows(query)


def _with_task(job: Job[AppendTask], task: AppendTask) -> Job[AppendTask]:
    return replace(job, plan=replace(job.plan, task=task), task=task)


def _compact(job: Job[CompactTask]) -> JobResult:
    items = _work(job, job.task.table)
    chosen = compact.compact_items if job.task.sorting is None else compact_sorted.sort_groups
    return compact.result(job, items, chosen(job, items))


def _work(job: Job[Any], table: TableInput) -> tuple[WorkItem, ...]:
    with job.timings.phase("plan"):
        return read_work(job.io, table)
