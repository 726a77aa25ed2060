"""Runs a job over threads in this process: for small loads and fast tests, without a JVM; sources are files only."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.jobs import phase
from airflow_iceberg.jobs.context import TaskContext
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.run_plan import rewrite_table, stage_files
from airflow_iceberg.jobs.run_task import run_task
from airflow_iceberg.jobs.sources.new_columns import evolved_by_files
from airflow_iceberg.jobs.task import TaskReport, TaskSpec

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
    timings = phase.Timings()
    try:
        result = _run(plan, io, threads or plan.parallelism or default_threads(), timings, is_stopped)
    except Exception as error:  # noqa: BLE001 - every failure becomes a result document
        phase.clean_exchange(plan, io)
        result = JobResult.failed(error, timings=timings.total())
    return phase.write_result(plan, io, phase.with_engine(result, ENGINE))


def default_threads() -> int:
    """Return the number of cores that this process may use, at most 8."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MAX_THREADS)


def _run(
    plan: JobPlan, io: "FileIO", threads: int, timings: phase.Timings, is_stopped: Callable[[], bool]
) -> JobResult:
    plan = evolved_by_files(plan, io)
    context = TaskContext(plan=plan, io=io)

    def run(specs: Sequence[TaskSpec]) -> list[TaskReport]:
        return _run_tasks(context, specs, threads, is_stopped)

    if plan.source.kind == "units":
        from airflow_iceberg.jobs.inventory import walk_units

        return walk_units(plan, io, run, timings=timings)
    if plan.source.kind == "table":
        return rewrite_table(plan, io, run, timings=timings)
    if plan.source.kind != "files":
        what = "SQL query" if plan.source.kind == "sql" else "python callable"
        raise UnsupportedError(
            f"a {what} needs Spark; set spark_conn_id to a connection of type spark, e.g. 'spark_default'"
        )
    return stage_files(plan, io, run, parallelism=threads, timings=timings)


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
