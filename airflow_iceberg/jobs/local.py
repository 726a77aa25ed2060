"""Runs a job over threads in this process: for small loads and fast tests, without a JVM; sources are files only."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.jobs import stages
from airflow_iceberg.jobs.evolving import evolved_by_files
from airflow_iceberg.jobs.protocol import JobPlan, JobResult
from airflow_iceberg.jobs.rewrite import rewrite_table
from airflow_iceberg.jobs.tasks import TaskContext, TaskReport, TaskSpec, run_task

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO

ENGINE = "local"
MAX_THREADS = 8


def run_local(
    plan: JobPlan,
    io: "FileIO",
    *,
    threads: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> JobResult:
    """Run a job and write its result document, also when it fails.

    Args:
        plan: what to do; its source must be files.
        io: of the table.
        threads: tasks at a time; None takes the plan's parallelism, else the processor's cores, at most 8.
        is_stopped: asked before each task; a job that is stopped fails.
    Returns:
        the result; a job that failed says so in it and does not raise.
    Raises:
        StorageError: the result document cannot be written.
    """
    timings = stages.Timings()
    try:
        result = _run(plan, io, threads or plan.parallelism or default_threads(), timings, is_stopped)
    except Exception as error:  # noqa: BLE001 - every failure becomes a result document
        stages.clean_exchange(plan, io)
        result = JobResult.failed(error, timings=timings.total())
    return stages.write_result(plan, io, stages.with_engine(result, ENGINE))


def default_threads() -> int:
    """Return the number of cores that this process may use, at most 8."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MAX_THREADS)


def _run(
    plan: JobPlan, io: "FileIO", threads: int, timings: stages.Timings, is_stopped: Callable[[], bool]
) -> JobResult:
    plan = evolved_by_files(plan, io)
    context = TaskContext(plan=plan, io=io)

    def run(specs: Sequence[TaskSpec]) -> list[TaskReport]:
        return _run_tasks(context, specs, threads, is_stopped)

    if plan.source.kind == "units":
        from airflow_iceberg.jobs.walk import walk_units

        return walk_units(plan, io, run, timings=timings)
    if plan.source.kind == "table":
        return rewrite_table(plan, io, run, timings=timings)
    if plan.source.kind != "files":
        what = "SQL query" if plan.source.kind == "sql" else "python callable"
        raise UnsupportedError(
            f"a {what} needs Spark; set spark_conn_id to a connection of type spark, e.g. 'spark_default'"
        )
    return stages.stage_files(plan, io, run, parallelism=threads, timings=timings)


def _run_tasks(
    context: TaskContext, specs: Sequence[TaskSpec], threads: int, is_stopped: Callable[[], bool]
) -> list[TaskReport]:
    def run(spec: TaskSpec) -> TaskReport:
        return TaskReport(number=spec.number, is_stopped=True) if is_stopped() else run_task(context, spec)

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="iceberg-job") as pool:
        futures = [pool.submit(run, spec) for spec in specs]
        reports = []
        try:
            for future in futures:
                if future.cancelled():
                    continue
                # Those that run already are waited for: what they write has to be known to be removed.
                reports.append(future.result())
                if reports[-1].error is not None:
                    for other in futures:
                        other.cancel()
        finally:
            for future in futures:
                future.cancel()
        return reports
