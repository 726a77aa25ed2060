"""Runs a plan: chooses what a job does by the kind of its plan, in phases of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_iceberg.jobs import exchange, phase
from airflow_iceberg.jobs.append import gather, needs_exchange, sorts_over_tasks
from airflow_iceberg.jobs.compact import group_outputs
from airflow_iceberg.jobs.phase import RunTasks, Timings, checked, result, target_file_size_bytes
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, JobResult
from airflow_iceberg.jobs.protocol.table_input import WorkItem, read_work
from airflow_iceberg.jobs.sources.files import plan_tasks
from airflow_iceberg.jobs.task import REWRITE, SPILL, WRITE, TaskReport, TaskSpec

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


def rewrite_table(plan: JobPlan, io: FileIO, run: phase.RunTasks, *, timings: phase.Timings) -> JobResult:
    """Rewrite the groups of the work document, or take rows out of its files.

    Args:
        run: runs task specs and returns their reports, in any order.
    """
    assert plan.source.table is not None
    with timings.phase("plan"):
        items = read_work(io, plan.source.table)
    if plan.operation == "delete":
        from airflow_iceberg.jobs.delete import delete_from_table

        return delete_from_table(io, items, run, timings=timings)
    written = _rewrite(plan, io, items, run, timings)
    outputs = group_outputs(items, written)
    return JobResult(
        status=SUCCEEDED,
        groups=outputs,
        record_count=sum(output.record_count for output in outputs),
        source_files=len({unit.file.file_path for item in items for unit in item.units}),
        timings=timings.total(),
    )


def _rewrite(
    plan: JobPlan, io: FileIO, items: Sequence[WorkItem], run: phase.RunTasks, timings: phase.Timings
) -> list[tuple[int, TaskReport]]:
    from airflow_iceberg.jobs.compact_sorted import sort_groups

    if plan.arrangement != "none":
        return sort_groups(plan, io, items, run, timings=timings)
    with timings.phase("rewrite"):
        reports = phase.checked(run([TaskSpec(number=item.number, kind=REWRITE, item=item) for item in items]), io)
    groups = {item.number: item.group for item in items}
    return [(groups[report.number], report) for report in reports]


def stage_files(plan: JobPlan, io: FileIO, run: RunTasks, *, parallelism: int, timings: Timings) -> JobResult:
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
        from airflow_iceberg.jobs.append_sorted import stage_sorted_files

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
