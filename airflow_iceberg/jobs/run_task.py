"""Runs one task: chooses what is done by the task's kind, and which errors are worth another try."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.jobs import append, append_sorted, compact, compact_sorted, delete, inventory
from airflow_iceberg.jobs.append import AppendContext
from airflow_iceberg.jobs.context import TaskContext
from airflow_iceberg.jobs.protocol.plan import AppendTask, CompactTask, DeleteTask, InventoryTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobError
from airflow_iceberg.jobs.task import (
    Collect,
    CompactItem,
    CutRanges,
    DeleteItem,
    GatherBuckets,
    GatherItem,
    InventoryUnit,
    MergeRanges,
    SampleItem,
    SortItem,
    Spill,
    SpillItem,
    StageUnits,
    Staging,
    TaskReport,
    TaskSpec,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.storage.base import FileIO

# Errors that the same task would meet again: no scheduler should try them a second time.
PERMANENT = (InvalidInputError, FormatError, NotFoundError, UnsupportedError)


def open_context(plan: JobPlan, io: FileIO) -> TaskContext[Any]:
    """Return what the tasks of a job share."""
    return _CONTEXTS[type(plan.task)](plan=plan, task=plan.task, io=io)


def run_task(context: TaskContext[Any], spec: TaskSpec) -> TaskReport:
    """Run a task; errors that no retry can repair are in the report, others are raised."""
    return _guarded(context, spec.number, lambda: _RUN[type(spec)](context, spec))


def stage_rows(
    context: AppendContext, number: int, tables: Iterable[pa.Table], staging: Staging, *, source: str
) -> TaskReport:
    """Stage rows of a query; errors as in `run_task`.

    Args:
        source: what messages call the source of the rows.
    """
    return _guarded(context, number, lambda: _stage(context, number, context.cast(tables, source), staging))


def _guarded(context: TaskContext[Any], number: int, work: Callable[[], TaskReport]) -> TaskReport:
    if context.io.exists(context.stop_location):
        return TaskReport(number=number, is_stopped=True)
    try:
        return work()
    except PERMANENT as error:
        return TaskReport(number=number, error=JobError.from_exception(error))


def _stage_units(context: AppendContext, spec: StageUnits) -> TaskReport:
    return _stage(context, spec.number, context.rows(spec), spec.staging)


def _stage(context: AppendContext, number: int, rows: Iterable[pa.Table], staging: Staging) -> TaskReport:
    if isinstance(staging, Collect):
        return append_sorted.collect(context, number, rows)
    if isinstance(staging, Spill):
        return append.spill(context, number, rows, buckets=staging.buckets)
    return append.write(context, number, rows)


_CONTEXTS: Mapping[type, type[TaskContext[Any]]] = {
    AppendTask: AppendContext,
    CompactTask: compact.CompactContext,
    DeleteTask: delete.DeleteContext,
    InventoryTask: TaskContext,
}
_RUN: Mapping[type, Callable[[Any, Any], TaskReport]] = {
    StageUnits: _stage_units,
    GatherBuckets: append.gather_buckets,
    CutRanges: append_sorted.cut,
    MergeRanges: append_sorted.merge,
    CompactItem: compact.compact_item,
    SortItem: compact_sorted.sort_item,
    SampleItem: compact_sorted.sample_item,
    SpillItem: compact_sorted.spill_item,
    GatherItem: compact_sorted.gather_item,
    DeleteItem: delete.delete_item,
    InventoryUnit: inventory.inventory_unit,
}
