"""Runs a job over threads in this process, without a JVM: DuckDB runs its queries, and only a callable needs Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_iceberg.data.cast.rows import python_rows
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.jobs.duckdb_query import DuckdbQuery, open_match, open_query, open_rows
from airflow_iceberg.jobs.progress import Progress, watched
from airflow_iceberg.jobs.run_plan import run_job
from airflow_iceberg.jobs.run_task import open_context, run_task
from airflow_iceberg.jobs.task import TaskReport

if TYPE_CHECKING:
    from airflow_iceberg.jobs.context import TaskContext
    from airflow_iceberg.jobs.merge.tasks import Matching
    from airflow_iceberg.jobs.phase import Query
    from airflow_iceberg.jobs.protocol.merge_task import MergeTask
    from airflow_iceberg.jobs.protocol.pinned import PinnedTable
    from airflow_iceberg.jobs.protocol.plan import AppendTask, JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.jobs.task import TaskSpec
    from airflow_iceberg.storage.base import FileIO

ENGINE = "local"
MAX_THREADS = 8


def run_local(
    plan: JobPlan,
    io: FileIO,
    *,
    inputs: Mapping[str, FileIO] | None = None,
    threads: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> JobResult:
    """Run a job and write its result document, also when it fails.

    Args:
        plan: the plan of the job; the source of an append must be files or a query in the dialect of DuckDB.
        inputs: access to the files of inputs that `io` does not reach, by the inputs' names.
        threads: the number of tasks at a time; None takes the plan's parallelism, else `default_threads`.
        is_stopped: a function, called before each task; if it returns True, the job fails.
    Returns:
        the result, also of a job that failed.
    Raises:
        StorageError: the result document cannot be written.
    """
    threads = threads or plan.parallelism or default_threads()
    with ExitStack() as stack:
        engine = _Threads(
            io=io,
            inputs={table.name: (inputs or {}).get(table.name, io) for table in plan.inputs},
            parallelism=threads,
            is_stopped=is_stopped,
            stack=stack,
            plan=plan,
            progress=Progress(f"{plan.operation} {plan.table}"),
        )
        return run_job(plan, io, lambda _: engine, engine=ENGINE)


def first_rows(
    source: Source, tables: Sequence[PinnedTable], inputs: Mapping[str, FileIO], *, limit: int
) -> list[dict[str, Any]]:
    """Return the first rows of a query over tables, without a job.

    Args:
        source: a query in the dialect of DuckDB.
        inputs: access to the files of each table, by its name.
    Raises:
        InvalidInputError: the query is wrong.
        UnsupportedError: DuckDB is not installed.
    """
    found: list[dict[str, Any]] = []
    with open_rows(source, tables, inputs, threads=default_threads()) as batches:
        for batch in batches:
            found += python_rows(batch.slice(0, limit - len(found)), source="the rows of the query")
            if len(found) >= limit:
                break
    return found


def default_threads() -> int:
    """Return the number of cores that this process may use, at most 8."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MAX_THREADS)


@dataclass(kw_only=True, slots=True)
class _Threads:
    """See `jobs.phase.Engine`."""

    io: FileIO
    inputs: Mapping[str, FileIO]
    parallelism: int
    is_stopped: Callable[[], bool]
    stack: ExitStack
    plan: JobPlan
    progress: Progress
    _context: TaskContext[Any] | None = None

    def run(self, plan: JobPlan, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        if self._context is None or self._context.plan is not plan:
            self._context = open_context(plan, self.io)
        context = self._context

        def run_unless_stopped(spec: TaskSpec) -> TaskReport:
            return TaskReport(number=spec.number, is_stopped=True) if self.is_stopped() else run_task(context, spec)

        def run_one(spec: TaskSpec) -> TaskReport:
            report = run_unless_stopped(spec)
            self.progress.add(report)
            return report

        self.progress.begin(len(specs))
        pool_of_tasks = ThreadPoolExecutor(max_workers=self.parallelism, thread_name_prefix="iceberg-job")
        with watched(self.progress), pool_of_tasks as pool:
            futures = [pool.submit(run_one, spec) for spec in specs]
            reports = []
            try:
                for future in futures:
                    if future.cancelled():
                        continue
                    # Running tasks are waited for: their files have to be known to be deleted.
                    reports.append(future.result())
                    if reports[-1].error is not None:
                        for other in futures:
                            other.cancel()
            finally:
                for future in futures:
                    future.cancel()
            return reports

    def query(self, task: AppendTask | MergeTask) -> Query:
        assert task.source is not None
        if task.source.kind != "sql" or task.source.dialect != "duckdb":
            what = "a query in Spark's SQL" if task.source.kind == "sql" else "a python callable"
            raise UnsupportedError(
                f"{what} needs Spark; set spark_conn_id to a connection of type spark, e.g. 'spark_default'"
            )
        return self.stack.enter_context(open_query(task, self.io, self.inputs, threads=self.parallelism))

    def match(self, task: MergeTask, matching: Matching, query: str) -> Query:
        return self.stack.enter_context(self._open_match(matching, query))

    def first(self, task: MergeTask, matching: Matching, query: str) -> Sequence[Any] | None:
        with self._open_match(matching, query) as found:
            batch = next((each for each in found.batches() if each.num_rows), None)
            return None if batch is None else tuple(column[0].as_py() for column in batch.columns)

    def _open_match(self, matching: Matching, query: str) -> AbstractContextManager[DuckdbQuery]:
        return open_match(self.plan, matching, query, self.io, self.inputs, threads=self.parallelism)
