"""Sorting files of the table, in bounded memory: sample the keys, cut rows into ranges, sort each range by itself.

One task sorts a small group in memory. Of a larger group every task first samples keys; the driver chooses boundaries
from all samples; then every task cuts the rows of its files into ranges and spills them; at last a task for each output
file reads one range after the other, sorts it and writes it. Memory: one range (`RANGE_BYTES`) and the writer's rows.

Not here: how rows compare (`data.write.ordering`), spill files (`jobs.exchange`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.dictionaries import join, with_field_ids, with_types
from airflow_iceberg.data.write import ordering
from airflow_iceberg.data.write.ordering import RowOrder, SortedRows, ZOrderedRows, sort_rows
from airflow_iceberg.data.write.sorted import SortedRuns
from airflow_iceberg.format.arrow.buffers import number_array
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.compact import CompactContext, common_partition, rows_of
from airflow_iceberg.jobs.context import RowsContext, RowSink, coalesced, fill
from airflow_iceberg.jobs.exchange import Slice
from airflow_iceberg.jobs.phase import Job, check_rows, clean_exchange
from airflow_iceberg.jobs.protocol.plan import CompactTask, Sorting
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.jobs.protocol.table_input import FileUnit, WorkItem
from airflow_iceberg.jobs.task import GatherItem, SampleItem, SortItem, SpillItem, TaskReport

if TYPE_CHECKING:
    from airflow_iceberg.format.manifests.entries import DataFile
    from airflow_iceberg.storage.base import FileIO

# A group that is smaller on disk is sorted in memory as a whole.
SMALL_GROUP_BYTES = 64 << 20
# The size of a range's rows in memory, about.
RANGE_BYTES = 128 << 20
# Keys that a task samples; a range then has some hundred of them, which makes ranges even enough.
SAMPLED_ROWS = 50_000
MOST_RANGES = 4096
# A range that is this many times larger than planned has one key in most of its rows: it is written in runs.
HEAVY_RANGES = 4


# -- the tasks ---------------------------------------------------------------------------------------------------------


def row_order(context: CompactContext, items: Sequence[WorkItem]) -> RowOrder:
    """Return the plan's order; rows of several partitions are ordered by partition first."""
    task, write = context.task, context.task.write
    zorder = _sorting(task).zorder
    if zorder is not None:
        return ZOrderedRows(zorder.columns, write.schema, text_bytes=zorder.text_bytes, most_bytes=zorder.most_bytes)
    units = [unit for item in items for unit in item.units]
    is_one = common_partition(units, task.spec.spec_id) is not None
    return SortedRows(write.sort_order, write.schema, spec=None if is_one else task.spec)


def _sorting(task: CompactTask) -> Sorting:
    assert task.sorting is not None
    return task.sorting


def sort_item(context: CompactContext, spec: SortItem) -> TaskReport:
    """Read, sort and write the rows of a small group."""
    tables = list(rows_of(context, spec.item.units, keep_dictionaries=True))
    joined = [join(tables, most_bytes=context.options.dict_size_bytes)] if tables else []
    rows = (sort_rows(table, row_order(context, [spec.item])) for table in joined)
    return context.write(spec.number, context.group_writer(spec.item), rows)


def sample_item(context: CompactContext, spec: SampleItem) -> TaskReport:
    """Write a sample of the keys of an item's rows into a file of the exchange."""
    item, order = spec.item, row_order(context, [spec.item])
    every = max(1, sum(unit.file.record_count for unit in item.units) // SAMPLED_ROWS)
    # All rows are read, since they may be in an order already, but only the columns of the order.
    taken = [
        order.keys(table.take(number_array(np.arange(0, table.num_rows, every))))
        for table in rows_of(context, item.units, columns=order.columns)
    ]
    if not taken:
        return TaskReport(number=spec.number)
    location = context.exchange_file(f"sample-{spec.number:05d}")
    return TaskReport(number=spec.number, sample=write_keys(context.io, location, pa.concat_tables(taken)))


def spill_item(context: CompactContext, spec: SpillItem) -> TaskReport:
    """Cut the rows of an item's files into ranges and spill them."""
    order, boundaries = row_order(context, [spec.item]), read_keys(context.io, spec.ranges)
    spill = context.spill(spec.number, lambda table: ordering.cut_rows(table, order, boundaries))
    rows = coalesced(rows_of(context, spec.item.units, keep_dictionaries=True))
    return TaskReport.of_slices(spec.number, fill(spill, rows))


def gather_item(context: CompactContext, spec: GatherItem) -> TaskReport:
    """Sort ranges, one after the other, and write them."""
    files = RangeFiles(context, row_order(context, [spec.item]), lambda: context.group_writer(spec.item))
    return context.write(spec.number, files, spec.groups)


class RangeFiles:
    """The files of one output: a file can hold several sorted ranges; runs of a heavy range have their own files.

    Args:
        new_writer: returns a writer whose files claim the order.
    """

    def __init__(self, context: RowsContext[Any], order: RowOrder, new_writer: Callable[[], RowSink]) -> None:
        self._context, self._order, self._new_writer = context, order, new_writer
        self._writers: list[RowSink] = []
        self._is_open = False
        self._done: list[DataFile] = []

    def write(self, pieces: Sequence[Slice]) -> None:
        """Write the rows of a range, whose keys are above those before."""
        context = self._context
        tables = exchange.read_slices(context.io, pieces)
        if sum(piece.size_bytes for piece in pieces) > HEAVY_RANGES * RANGE_BYTES:
            self._write_runs(with_types(table, context.row_schema) for table in tables)
        else:
            if not self._is_open:
                self._open(self._new_writer())
            rows = [with_field_ids(table, context.row_schema) for table in tables]
            joined = join(rows, most_bytes=context.options.dict_size_bytes)
            self._writers[-1].write(sort_rows(joined, self._order))

    def _open(self, writer: RowSink) -> None:
        self._writers.append(writer)
        self._is_open = True

    def _write_runs(self, tables: Iterator[pa.Table]) -> None:
        self._end_files()
        self._open(SortedRuns(self._new_writer, self._order))
        for table in tables:
            self._writers[-1].write(table)
        self._end_files()

    def close(self) -> tuple[DataFile, ...]:
        """Finish the files and return them in the order of their rows."""
        self._end_files()
        return tuple(self._done)

    def abort(self) -> None:
        """Delete every file that was written."""
        for writer in self._writers:
            writer.abort()

    def _end_files(self) -> None:
        if self._is_open:
            self._done.extend(self._writers[-1].close())
            self._is_open = False


# -- the job -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """A group that is too large to be sorted in memory.

    Attributes:
        members: one file, and another of another partition if there is one; a task for each output gets them.
        ranges: the file with its boundaries.
    """

    number: int
    items: tuple[WorkItem, ...]
    members: tuple[FileUnit, ...]
    ranges: SealedFile


def sort_groups(job: Job[CompactTask], items: Sequence[WorkItem]) -> list[tuple[int, TaskReport]]:
    """Sort groups of files, and return the reports of the tasks that wrote data files, each with its group."""
    by_group: dict[int, list[WorkItem]] = defaultdict(list)
    for item in items:
        by_group[item.group].append(item)
    large = {number: found for number, found in by_group.items() if _size_bytes(found) > SMALL_GROUP_BYTES}
    written = _sort_small(job, [found for number, found in by_group.items() if number not in large])
    if large:
        written += _sort_large(job, list(large.values()))
    clean_exchange(job.plan, job.io)
    return written


def _size_bytes(items: Sequence[WorkItem]) -> int:
    return sum(item.size_bytes for item in items)


def _sort_small(job: Job[CompactTask], groups: Sequence[Sequence[WorkItem]]) -> list[tuple[int, TaskReport]]:
    joined = [
        WorkItem(number=number, group=found[0].group, units=tuple(unit for item in found for unit in item.units))
        for number, found in enumerate(groups)
    ]
    reports = job.run("sort", [SortItem(number=item.number, item=item) for item in joined])
    return [(joined[report.number].group, report) for report in reports]


def _sort_large(job: Job[CompactTask], groups: Sequence[Sequence[WorkItem]]) -> list[tuple[int, TaskReport]]:
    items = [item for found in groups for item in found]
    sampled = job.run("sample", [SampleItem(number=item.number, item=item) for item in items])
    samples = {report.number: report.sample for report in sampled if report.sample}
    with job.timings.phase("sample"):
        ranged = [_ranged(job, found, samples) for found in groups]
    ranges = {group.number: group.ranges for group in ranged}
    spills = [SpillItem(number=item.number, item=item, ranges=ranges[item.group]) for item in items]
    spilled = job.run("spill", spills)
    slices_of = {report.number: report.slices for report in spilled}
    gathers: list[GatherItem] = []
    for group in ranged:
        slices = [piece for item in group.items for piece in slices_of[item.number]]
        for run_of_ranges in outputs(slices, len(group.items)):
            item = WorkItem(number=len(gathers), group=group.number, units=group.members)
            gathers.append(GatherItem(number=item.number, item=item, groups=run_of_ranges))
    reports = job.run("gather", gathers)
    check_rows("sort", spilled, reports)
    return [(gathers[report.number].item.group, report) for report in reports]


def _ranged(job: Job[CompactTask], items: Sequence[WorkItem], samples: dict[int, SealedFile]) -> _Group:
    """Choose the boundaries of a group from its samples, and write them into a file for its tasks."""
    context = CompactContext(plan=job.plan, task=job.task, io=job.io)
    size = _size_bytes(items) * exchange.MEMORY_TO_PARQUET
    least = len(items) * _sorting(job.task).ranges_per_output
    ranges = min(max(least, -(-size // RANGE_BYTES)), MOST_RANGES)
    order = row_order(context, items)
    keys = [read_keys(job.io, samples[item.number]) for item in items if item.number in samples]
    known = pa.concat_tables(keys) if keys else order.keys(context.row_schema.empty_table())
    location = context.exchange_file(f"ranges-{items[0].group:05d}")
    boundaries = write_keys(job.io, location, ordering.choose_boundaries(known, order, ranges))
    members = members_of([unit for item in items for unit in item.units], job.task.spec.spec_id)
    return _Group(number=items[0].group, items=tuple(items), members=members, ranges=boundaries)


def members_of(units: Sequence[FileUnit], spec_id: int) -> tuple[FileUnit, ...]:
    """Return one file, and another of another partition if there is one."""
    first = units[0]
    other = next((unit for unit in units[1:] if common_partition((first, unit), spec_id) is None), None)
    return (first,) if other is None else (first, other)


def outputs(slices: Sequence[Slice], count: int) -> Iterator[tuple[tuple[Slice, ...], ...]]:
    """Assign ranges to `count` outputs, in order, about the same number of bytes to each."""
    ranges = [tuple(pieces) for pieces in exchange.by_bucket(slices).values()]
    share = max(1, -(-sum(piece.size_bytes for pieces in ranges for piece in pieces) // max(count, 1)))
    taken: list[tuple[Slice, ...]] = []
    size = 0
    for pieces in ranges:
        weight = sum(piece.size_bytes for piece in pieces)
        if taken and size + weight / 2 > share:
            yield tuple(taken)
            taken, size = [], 0
        taken.append(pieces)
        size += weight
    if taken:
        yield tuple(taken)


# -- keys in a file ----------------------------------------------------------------------------------------------------


def write_keys(io: FileIO, location: str, keys: pa.Table) -> SealedFile:
    """Write keys of rows into a file of the exchange."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, keys.schema) as writer:
        writer.write_table(keys)
    return SealedFile.create(io, location, sink.getvalue().to_pybytes())


def read_keys(io: FileIO, file: SealedFile) -> pa.Table:
    """Read the keys that `write_keys` wrote; raises FormatError if the file was changed since."""
    with pa.ipc.open_file(file.content(io, what="file of an exchange")) as reader:
        return reader.read_all()
