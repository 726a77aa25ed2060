"""Staging rows of a source in the order of the table, over all tasks, in bounded memory.

For `write.distribution-mode` range, the default of a table with a sort order. The source is read once: every task keeps
its rows in a spill file and samples their keys ("collect"); the driver chooses boundaries; every task cuts its rows
into ranges ("cut"); a task for each output reads range after range, sorts it and writes it ("merge"). Few rows need no
ranges.

Not here: an order within each task alone (`data.write.sorted`, for the modes none and hash), sorting files of the table
(`jobs.compact_sorted`), how rows compare (`data.write.ordering`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs import exchange, phase
from airflow_iceberg.jobs.compact_sorted import (
    MOST_RANGES,
    RANGE_BYTES,
    SAMPLED_ROWS,
    RangeFiles,
    outputs,
    read_keys,
    write_keys,
)
from airflow_iceberg.jobs.context import TaskContext, removing_on_error
from airflow_iceberg.jobs.exchange import Slice
from airflow_iceberg.jobs.sources.files import task_count
from airflow_iceberg.jobs.sources.unit import Unit
from airflow_iceberg.jobs.task import COLLECT, CUT, MERGE, WRITE, TaskReport, TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.storage.base import FileIO

# Files that become less than this are sorted by one task in memory.
SMALL_SOURCE_BYTES = 48 << 20
SAMPLE_EVERY = 32
"""One key is sampled of so many rows."""


# -- the tasks ---------------------------------------------------------------------------------------------------------


def collect(context: TaskContext, number: int, tables: Iterable[pa.Table]) -> TaskReport:
    """Keep conformed rows in a spill file, and some of their keys in another."""
    import numpy as np

    from airflow_iceberg.format.arrow.buffers import number_array

    started, order = time.monotonic(), context.row_order()
    keys: list[pa.Table] = []
    with removing_on_error(context.spill(number, _as_one)) as spill:
        for table in tables:
            if table.num_rows:
                keys.append(order.keys(table.take(number_array(np.arange(0, table.num_rows, SAMPLE_EVERY)))))
                spill.write(table)
        slices = spill.close()
    rows = sum(piece.record_count for piece in slices)
    sample = _write_sample(context, number, keys)
    return TaskReport(
        number=number, slices=slices, record_count=rows, sample=sample, seconds=time.monotonic() - started
    )


def cut(context: TaskContext, spec: TaskSpec) -> TaskReport:
    """Cut what was collected into ranges."""
    from airflow_iceberg.data.write.ordering import cut_rows

    started, order = time.monotonic(), context.row_order()
    boundaries = read_keys(context.io, spec.ranges or "")
    with removing_on_error(context.spill(spec.number, lambda table: cut_rows(table, order, boundaries))) as spill:
        for pieces in spec.groups:
            for table in exchange.read_slices(context.io, pieces):
                spill.write(table)
        slices = spill.close()
    rows = sum(piece.record_count for piece in slices)
    return TaskReport(number=spec.number, slices=slices, record_count=rows, seconds=time.monotonic() - started)


def merge(context: TaskContext, spec: TaskSpec) -> TaskReport:
    """Sort ranges, one after the other, and write them; files go on over the borders of ranges."""
    started, order = time.monotonic(), context.row_order()
    with removing_on_error(RangeFiles(order, lambda: context.writer(spec.number))) as files:
        for pieces in spec.groups:
            files.write_range(context, pieces)
        found = files.close()
    return context.report(spec.number, found, started)


def _as_one(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    yield 0, table


def _write_sample(context: TaskContext, number: int, keys: Sequence[pa.Table]) -> str | None:
    import numpy as np
    import pyarrow as pa

    from airflow_iceberg.format.arrow.buffers import number_array

    if not keys:
        return None
    sample = pa.concat_tables(keys)
    every = -(-sample.num_rows // SAMPLED_ROWS)
    location = context.exchange_file(f"sample-{number:05d}")
    write_keys(context.io, location, sample.take(number_array(np.arange(0, sample.num_rows, every))))
    return location


# -- the job -----------------------------------------------------------------------------------------------------------


def stage_sorted_files(
    plan: JobPlan,
    io: FileIO,
    tasks: Sequence[tuple[Unit, ...]],
    run: phase.RunTasks,
    *,
    parallelism: int,
    timings: phase.Timings,
) -> list[TaskReport]:
    """Stage the rows of source files in the table's order and return the reports of the tasks that wrote them.

    Args:
        tasks: the units of each task.
    """
    units = tuple(unit for task in tasks for unit in task)
    if sum(unit.weight for unit in units) <= SMALL_SOURCE_BYTES:
        with timings.phase("write"):
            return phase.checked(run([TaskSpec(number=0, kind=WRITE, units=units)] if units else []), io)
    with timings.phase("collect"):
        specs = [TaskSpec(number=number, kind=COLLECT, units=task) for number, task in enumerate(tasks)]
        collected = phase.checked(run(specs), io)
    return merge_collected(plan, io, collected, run, parallelism=parallelism, timings=timings)


def merge_collected(
    plan: JobPlan,
    io: FileIO,
    collected: Sequence[TaskReport],
    run: phase.RunTasks,
    *,
    parallelism: int,
    timings: phase.Timings,
) -> list[TaskReport]:
    """Write the data files from what was collected, then remove the spill files."""
    size = sum(piece.size_bytes for report in collected for piece in report.slices)
    ranges = min(max(-(-size // RANGE_BYTES), min(parallelism, -(-size // (RANGE_BYTES // 4)))), MOST_RANGES)
    slices = [piece for report in collected for piece in report.slices]
    if ranges > 1:
        with timings.phase("cut"):
            slices = _cut(plan, io, collected, ranges, run)
    count = task_count(
        size // exchange.MEMORY_TO_PARQUET,
        parallelism=parallelism,
        target_file_size_bytes=phase.target_file_size_bytes(plan),
    )
    specs = [TaskSpec(number=number, kind=MERGE, groups=groups) for number, groups in enumerate(outputs(slices, count))]
    with timings.phase("merge"):
        reports = phase.checked(run(specs), io)
    taken_in, given_out = (sum(report.record_count for report in found) for found in (collected, reports))
    if taken_in != given_out:
        raise IcebergError(f"the sort took in {taken_in} rows and gave out {given_out}; nothing may be committed")
    phase.clean_exchange(plan, io)
    return reports


def _cut(plan: JobPlan, io: FileIO, collected: Sequence[TaskReport], ranges: int, run: phase.RunTasks) -> list[Slice]:
    import pyarrow as pa

    from airflow_iceberg.data.write.ordering import choose_boundaries

    context = TaskContext(plan=plan, io=io)
    samples = pa.concat_tables([read_keys(io, report.sample) for report in collected if report.sample])
    location = context.exchange_file("ranges")
    write_keys(io, location, choose_boundaries(samples, context.row_order(), ranges))
    specs = [
        TaskSpec(number=report.number, kind=CUT, groups=(report.slices,), ranges=location)
        for report in collected
        if report.slices
    ]
    return [piece for report in phase.checked(run(specs), io) for piece in report.slices]
