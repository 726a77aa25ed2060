"""Staging rows of a source in the order of the table, over all tasks, in bounded memory.

For `write.distribution-mode` range, the default of a table with a sort order. The source is read once: every task keeps
its rows in a spill file and samples their keys ("collect"); the driver chooses boundaries; every task cuts its rows
into ranges ("cut"); a task for each output reads range after range, sorts it and writes it ("merge"). Few rows need no
ranges. Not here: an order within each task alone (`data.write.sorted`, for the modes none and hash), sorting files of
the table (`jobs.compact_sorted`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.write.ordering import choose_boundaries, cut_rows
from airflow_iceberg.format.arrow.buffers import number_array
from airflow_iceberg.jobs import compact_sorted, exchange
from airflow_iceberg.jobs.append import AppendContext
from airflow_iceberg.jobs.compact_sorted import RANGE_BYTES, RangeFiles, outputs, read_keys, write_keys
from airflow_iceberg.jobs.context import fill
from airflow_iceberg.jobs.phase import Job, check_rows, clean_exchange
from airflow_iceberg.jobs.protocol.plan import AppendTask
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.jobs.sources.files import task_count
from airflow_iceberg.jobs.sources.unit import Unit
from airflow_iceberg.jobs.task import CutRanges, MergeRanges, TaskReport

# Files that become less than this are sorted by one task in memory.
SMALL_SOURCE_BYTES = 48 << 20
# Of this number of rows one key is sampled.
SAMPLE_EVERY = 32


# -- the tasks ---------------------------------------------------------------------------------------------------------


def collect(context: AppendContext, number: int, tables: Iterable[pa.Table]) -> TaskReport:
    """Keep rows in a spill file, and some of their keys in another."""
    keys: list[pa.Table] = []
    slices = fill(context.spill(number, lambda table: iter([(0, table)])), _sampled(context, tables, keys))
    return TaskReport.of_slices(number, slices, sample=_write_sample(context, number, keys))


def cut(context: AppendContext, spec: CutRanges) -> TaskReport:
    """Cut the collected rows into ranges."""
    order, boundaries = context.row_order(), read_keys(context.io, spec.ranges)
    spill = context.spill(spec.number, lambda table: cut_rows(table, order, boundaries))
    return TaskReport.of_slices(spec.number, fill(spill, exchange.read_slices(context.io, spec.slices)))


def merge(context: AppendContext, spec: MergeRanges) -> TaskReport:
    """Sort ranges, one after the other, and write them; a file can hold several ranges."""
    files = RangeFiles(context, context.row_order(), lambda: context.writer(spec.number))
    return context.write(spec.number, files, spec.groups)


def _sampled(context: AppendContext, tables: Iterable[pa.Table], keys: list[pa.Table]) -> Iterator[pa.Table]:
    order = context.row_order()
    for table in tables:
        if table.num_rows:
            keys.append(order.keys(table.take(number_array(np.arange(0, table.num_rows, SAMPLE_EVERY)))))
            yield table


def _write_sample(context: AppendContext, number: int, keys: Sequence[pa.Table]) -> SealedFile | None:
    if not keys:
        return None
    sample = pa.concat_tables(keys)
    every = -(-sample.num_rows // compact_sorted.SAMPLED_ROWS)
    location = context.exchange_file(f"sample-{number:05d}")
    return write_keys(context.io, location, sample.take(number_array(np.arange(0, sample.num_rows, every))))


# -- the job -----------------------------------------------------------------------------------------------------------


def sorts_over_tasks(task: AppendTask) -> bool:
    """Return whether all rows are brought into one order; otherwise each task sorts its own, if rows are sorted."""
    return task.sorts_rows and task.distribution_mode == "range"


def is_small(units: Iterable[Iterable[Unit]]) -> bool:
    """Return whether source files are so small that one task sorts their rows in memory."""
    return sum(unit.weight for task in units for unit in task) <= SMALL_SOURCE_BYTES


def merge_collected(job: Job[AppendTask], collected: Sequence[TaskReport]) -> list[TaskReport]:
    """Write the data files from the collected rows, then delete the spill files."""
    parallelism = job.engine.parallelism
    slices = [piece for report in collected for piece in report.slices]
    size = sum(piece.size_bytes for piece in slices)
    wanted = max(-(-size // RANGE_BYTES), min(parallelism, -(-size // (RANGE_BYTES // 4))))
    ranges = min(wanted, compact_sorted.MOST_RANGES)
    if ranges > 1:
        with job.timings.phase("cut"):
            boundaries = _write_boundaries(job, collected, ranges)
        tasks = [report for report in collected if report.slices]
        specs = [CutRanges(number=one.number, slices=one.slices, ranges=boundaries) for one in tasks]
        slices = [piece for report in job.run("cut", specs) for piece in report.slices]
    target = job.task.write.target_file_size_bytes
    count = task_count(size // exchange.MEMORY_TO_PARQUET, parallelism=parallelism, target_file_size_bytes=target)
    merges = [MergeRanges(number=number, groups=groups) for number, groups in enumerate(outputs(slices, count))]
    reports = job.run("merge", merges)
    check_rows("sort", collected, reports)
    clean_exchange(job.plan, job.io)
    return reports


def _write_boundaries(job: Job[AppendTask], collected: Sequence[TaskReport], ranges: int) -> SealedFile:
    """Choose the boundaries of ranges from the samples, and return the file that holds them."""
    context = AppendContext(plan=job.plan, task=job.task, io=job.io)
    samples = pa.concat_tables([read_keys(job.io, report.sample) for report in collected if report.sample])
    location = context.exchange_file("ranges")
    return write_keys(job.io, location, choose_boundaries(samples, context.row_order(), ranges))
