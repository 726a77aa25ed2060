"""Runs one task: chooses the function by the task's kind, and which errors are worth another attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.jobs import append, append_sorted, compact, compact_sorted, delete, inventory, task
from airflow_iceberg.jobs.append import AppendContext
from airflow_iceberg.jobs.context import TaskContext
from airflow_iceberg.jobs.merge import source as source_of_merge
from airflow_iceberg.jobs.merge import tasks as merge
from airflow_iceberg.jobs.merge.compare import compare_files
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.plan import AppendTask, CompactTask, DeleteTask, InventoryTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobError
from airflow_iceberg.jobs.sources.describe import describe_units
from airflow_iceberg.jobs.task import Staging, TaskReport, TaskSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.storage.base import FileIO

# Errors that the same task would raise again: no scheduler should retry it.
PERMANENT = (InvalidInputError, FormatError, NotFoundError, UnsupportedError)


def open_context(plan: JobPlan, io: FileIO) -> TaskContext[Any]:
    """Return what the tasks of a job share."""
    return _CONTEXTS[type(plan.task)](plan=plan, task=plan.task, io=plan.gated(io))


def run_task(context: TaskContext[Any], spec: TaskSpec) -> TaskReport:
    """Run a task; the report has the errors that no retry can repair, others are raised."""
    return _guarded(context, spec.number, lambda: _RUN[type(spec)](context, spec))


def stage_rows(
    context: TaskContext[Any], number: int, tables: Iterable[pa.Table], staging: Staging, *, source: str
) -> TaskReport:
    """Stage rows of a query, which messages call `source`; errors as in `run_task`."""
    return _guarded(context, number, lambda: _stage_query(context, number, tables, staging, source))


def _stage_query(context: Any, number: int, tables: Iterable[pa.Table], staging: Staging, source: str) -> TaskReport:
    if isinstance(staging, task.Keep):
        return source_of_merge.keep(context, number, source_of_merge.valid(tables, source), staging, source)
    if isinstance(staging, task.Change):
        return merge.change(context, number, tables, staging, source)
    return _stage(context, number, context.cast(tables, source), staging)


def _guarded(context: TaskContext[Any], number: int, work: Callable[[], TaskReport]) -> TaskReport:
    if context.io.exists(context.stop_location):
        return TaskReport(number=number, is_stopped=True)
    try:
        return work()
    except PERMANENT as error:
        return TaskReport(number=number, error=JobError.from_exception(error))


def _stage(context: AppendContext, number: int, rows: Iterable[pa.Table], staging: Staging) -> TaskReport:
    if isinstance(staging, task.Collect):
        return append_sorted.collect(context, number, rows)
    if isinstance(staging, task.Spill):
        return append.spill(context, number, rows, buckets=staging.buckets)
    return append.write(context, number, rows)


def _stage_units(context: Any, spec: task.StageUnits) -> TaskReport:
    if isinstance(spec.staging, task.Keep):
        return source_of_merge.keep(
            context, spec.number, source_of_merge.read_source(context, spec), spec.staging, "a source file"
        )
    return _stage(context, spec.number, context.rows(spec), spec.staging)


def _describe(context: Any, spec: task.DescribeUnits) -> TaskReport:
    files = describe_units(context.task, spec.units, context.io)
    return TaskReport(number=spec.number, columns=tuple(file.to_dict() for file in files))


_CONTEXTS: Mapping[type, type[TaskContext[Any]]] = {
    AppendTask: AppendContext,
    CompactTask: compact.CompactContext,
    DeleteTask: delete.DeleteContext,
    MergeTask: merge.MergeContext,
    InventoryTask: TaskContext,
}
_RUN: Mapping[type, Callable[[Any, Any], TaskReport]] = {
    task.StageUnits: lambda context, spec: _stage_units(context, spec),
    task.DescribeUnits: lambda context, spec: _describe(context, spec),
    task.GatherBuckets: append.gather_buckets,
    task.CutRanges: append_sorted.cut,
    task.MergeRanges: append_sorted.merge,
    task.CompactItem: compact.compact_item,
    task.SortItem: compact_sorted.sort_item,
    task.SampleItem: compact_sorted.sample_item,
    task.SpillItem: compact_sorted.spill_item,
    task.GatherItem: compact_sorted.gather_item,
    task.DeleteItem: delete.delete_item,
    task.CompareFiles: compare_files,
    task.EditFiles: merge.edit_files,
    task.InsertRows: merge.insert_rows,
    task.InventoryUnit: inventory.inventory_unit,
}
