"""Runs one task: chooses what a task does by its kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.compact import rewrite_item
from airflow_iceberg.jobs.context import TaskContext, coalesced, removing_on_error
from airflow_iceberg.jobs.protocol.result import JobError
from airflow_iceberg.jobs.sources.files import read_unit
from airflow_iceberg.jobs.task import COLLECT, CUT, GATHER, MERGE, SAMPLE, SPILL, WALK, TaskReport, TaskSpec

if TYPE_CHECKING:
    import pyarrow as pa


# Errors that the same task would meet again: no scheduler should try them a second time.
PERMANENT = (InvalidInputError, FormatError, NotFoundError, UnsupportedError)


def run_task(context: TaskContext, spec: TaskSpec) -> TaskReport:
    """Do the work of one task; errors that no retry can mend are in the report, others are raised."""
    if spec.item is not None:
        return _guarded(context, spec.number, lambda: run_item(context, spec))
    if spec.kind == WALK:
        from airflow_iceberg.jobs.inventory import run_walk

        return _guarded(context, spec.number, lambda: run_walk(context, spec.number))
    if spec.kind in (COLLECT, CUT, MERGE):
        return _guarded(context, spec.number, lambda: _arrange(context, spec))
    if spec.kind == GATHER:
        return _guarded(context, spec.number, lambda: _gather(context, spec))
    if spec.kind == SPILL:
        return _guarded(context, spec.number, lambda: _spill(context, spec.number, spec.buckets, _rows(context, spec)))
    return _guarded(context, spec.number, lambda: _write(context, spec.number, _rows(context, spec)))


def write_rows(context: TaskContext, number: int, tables: Iterable[pa.Table], *, source: str) -> TaskReport:
    """Write rows that come from outside into data files; errors as in `run_task`."""
    return _guarded(context, number, lambda: _write(context, number, _conformed(context, tables, source)))


def spill_rows(
    context: TaskContext, number: int, buckets: int, tables: Iterable[pa.Table], *, source: str
) -> TaskReport:
    """Spill rows that come from outside for the exchange; errors as in `run_task`."""
    return _guarded(context, number, lambda: _spill(context, number, buckets, _conformed(context, tables, source)))


def collect_rows(context: TaskContext, number: int, tables: Iterable[pa.Table], *, source: str) -> TaskReport:
    """Collect rows that come from outside to be sorted; errors as in `run_task`."""
    from airflow_iceberg.jobs.append_sorted import collect

    return _guarded(context, number, lambda: collect(context, number, _conformed(context, tables, source)))


def _arrange(context: TaskContext, spec: TaskSpec) -> TaskReport:
    from airflow_iceberg.jobs import append_sorted

    if spec.kind == COLLECT:
        return append_sorted.collect(context, spec.number, _rows(context, spec))
    return (append_sorted.cut if spec.kind == CUT else append_sorted.merge)(context, spec)


def _guarded(context: TaskContext, number: int, work: Callable[[], TaskReport]) -> TaskReport:
    if context.io.exists(context.stop_location):
        return TaskReport(number=number, is_stopped=True)
    try:
        return work()
    except PERMANENT as error:
        return TaskReport(number=number, error=JobError.from_exception(error))


def _write(context: TaskContext, number: int, tables: Iterable[pa.Table]) -> TaskReport:
    started = time.monotonic()
    with removing_on_error(context.sink(number)) as writer:
        for table in tables:
            writer.write(table)
        files = writer.close()
    return context.report(number, files, started)


def _spill(context: TaskContext, number: int, buckets: int, tables: Iterable[pa.Table]) -> TaskReport:
    started = time.monotonic()
    cut = exchange.cut_by_partition(context.plan.spec, context.plan.schema, buckets)
    with removing_on_error(context.spill(number, cut)) as spill:
        for table in tables:
            spill.write(table)
        slices = spill.close()
    rows = sum(piece.record_count for piece in slices)
    return TaskReport(number=number, slices=slices, record_count=rows, seconds=time.monotonic() - started)


def _gather(context: TaskContext, spec: TaskSpec) -> TaskReport:
    started = time.monotonic()
    files: list[Any] = []
    for group in spec.groups:
        # A writer a group: when its buckets are done, no more rows of their partitions come, and memory is free.
        with removing_on_error(context.sink(spec.number)) as writer:
            for table in coalesced(exchange.read_slices(context.io, group)):
                writer.write(table)
            files.extend(writer.close())
    return context.report(spec.number, files, started)


def _rows(context: TaskContext, spec: TaskSpec) -> Iterator[pa.Table]:
    plan = context.plan
    for unit in spec.units:
        tables = read_unit(unit, context.io, schema=plan.schema, options=plan.source.format_options)
        yield from _conformed(context, tables, unit.location, first_row=unit.first_row)


def _conformed(
    context: TaskContext, tables: Iterable[pa.Table], source: str, *, first_row: int = 1
) -> Iterator[pa.Table]:
    from airflow_iceberg.data.cast.rows import conform

    schema = context.plan.rows_schema
    for table in coalesced(tables):
        conformed = conform(table, schema, source=source, first_row=first_row)
        if context.row_check is not None:
            context.row_check.check(conformed, source=source, first_row=first_row)
        yield conformed
        first_row += table.num_rows


def run_item(context: TaskContext, spec: TaskSpec) -> TaskReport:
    """Do the work of a task on files of the table."""
    from airflow_iceberg.jobs import compact_sorted, delete

    assert spec.item is not None
    if context.plan.operation == "delete":
        return delete.delete_item(context, spec.item)
    if spec.kind == SAMPLE:
        return compact_sorted.sample_item(context, spec.item)
    if spec.kind == SPILL:
        return compact_sorted.spill_item(context, spec.item, spec.ranges or "")
    if spec.kind == GATHER:
        return compact_sorted.gather_ranges(context, spec)
    if context.plan.arrangement != "none":
        return compact_sorted.sort_item(context, spec.item)
    return rewrite_item(context, spec.item)
