"""Sorting files of the table, in bounded memory: sample the keys, cut rows into ranges, sort each range by itself.

Here: the phases of a rewrite whose rows are arranged (`sort_groups`) and the work of their tasks. A small group is
sorted by one task in memory. Of a larger one every task first samples keys; the driver chooses boundaries from all
samples; then every task cuts the rows of its files into ranges and spills them; at last a task for each output file
reads one range after the other, sorts it and writes it. Memory: one range (`RANGE_BYTES`) and what the writer holds.

Not here: how rows compare (`data.write.ordering`), spill files (`jobs.exchange`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs import exchange, phase
from airflow_iceberg.jobs.context import TaskContext, coalesced, removing_on_error
from airflow_iceberg.jobs.exchange import Slice
from airflow_iceberg.jobs.protocol.table_input import FileUnit, WorkItem
from airflow_iceberg.jobs.task import GATHER, REWRITE, SAMPLE, SPILL, TaskReport, TaskSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.data.write.ordering import RowOrder
    from airflow_iceberg.format.manifests.entries import DataFile
    from airflow_iceberg.jobs.context import RowSink
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.storage.base import FileIO

# What is smaller on disk is sorted in memory as a whole.
SMALL_GROUP_BYTES = 64 << 20
RANGE_BYTES = 128 << 20
"""Rows of a range in memory, about."""
SAMPLED_ROWS = 50_000
"""Keys that a task samples; a range is then some hundred of them, which makes ranges even enough."""
MOST_RANGES = 4096
HEAVY_RANGES = 4
"""A range so many times larger than planned has one key in most of its rows: it is written in runs."""


# -- the tasks ---------------------------------------------------------------------------------------------------------


def row_order(context: TaskContext, items: Sequence[WorkItem]) -> RowOrder:
    """Return the order that the plan asks for; rows of several partitions are brought together by partition first."""
    from airflow_iceberg.data.write.ordering import SortedRows, ZOrderedRows
    from airflow_iceberg.jobs.context import common_partition

    plan = context.plan
    if plan.arrangement == "zorder":
        return ZOrderedRows(
            plan.zorder_columns, plan.schema, text_bytes=plan.zorder_text_bytes, most_bytes=plan.zorder_most_bytes
        )
    units = [unit for item in items for unit in item.units]
    is_one = common_partition(units, plan.spec.spec_id) is not None
    return SortedRows(plan.sort_order, plan.schema, spec=None if is_one else plan.spec)


def sort_item(context: TaskContext, item: WorkItem) -> TaskReport:
    """Read, sort and write the rows of a small group."""
    from airflow_iceberg.data.dictionaries import join
    from airflow_iceberg.data.write.ordering import sort_rows
    from airflow_iceberg.jobs.compact import rows_of

    started = time.monotonic()
    tables = list(rows_of(context, item.units, keep_dictionaries=True))
    with removing_on_error(context.group_writer(item)) as writer:
        if tables:
            rows = join(tables, most_bytes=context.options.dict_size_bytes)
            writer.write(sort_rows(rows, row_order(context, [item])))
        files = writer.close()
    return context.report(item.number, files, started)


def sample_item(context: TaskContext, item: WorkItem) -> TaskReport:
    """Write some of the keys of an item's rows into a file of the exchange."""
    import numpy as np
    import pyarrow as pa

    from airflow_iceberg.format.arrow.buffers import number_array
    from airflow_iceberg.jobs.compact import rows_of

    started, order = time.monotonic(), row_order(context, [item])
    rows = sum(unit.file.record_count for unit in item.units)
    every = max(1, rows // SAMPLED_ROWS)
    taken: list[pa.Table] = []
    # All rows, since they may be in an order already, but no more of them than what they are sorted by.
    for table in rows_of(context, item.units, columns=order.columns):
        taken.append(order.keys(table.take(number_array(np.arange(0, table.num_rows, every)))))
    if not taken:
        return TaskReport(number=item.number, seconds=time.monotonic() - started)
    location = context.exchange_file(f"sample-{item.number:05d}")
    write_keys(context.io, location, pa.concat_tables(taken))
    return TaskReport(number=item.number, sample=location, seconds=time.monotonic() - started)


def spill_item(context: TaskContext, item: WorkItem, ranges: str) -> TaskReport:
    """Cut the rows of an item's files into ranges and spill them."""
    from airflow_iceberg.data.write.ordering import cut_rows
    from airflow_iceberg.jobs.compact import rows_of

    started, order, boundaries = time.monotonic(), row_order(context, [item]), read_keys(context.io, ranges)
    with removing_on_error(context.spill(item.number, lambda table: cut_rows(table, order, boundaries))) as spill:
        for table in coalesced(rows_of(context, item.units, keep_dictionaries=True)):
            spill.write(table)
        slices = spill.close()
    rows = sum(piece.record_count for piece in slices)
    return TaskReport(number=item.number, slices=slices, record_count=rows, seconds=time.monotonic() - started)


def gather_ranges(context: TaskContext, spec: TaskSpec) -> TaskReport:
    """Sort ranges, one after the other, and write them."""
    assert spec.item is not None
    started, item = time.monotonic(), spec.item
    order = row_order(context, [item])
    with removing_on_error(RangeFiles(order, lambda: context.group_writer(item))) as files:
        for pieces in spec.groups:
            files.write_range(context, pieces)
        found = files.close()
    return context.report(spec.number, found, started)


class RangeFiles:
    """The files of one output: sorted ranges go on in one file; runs of a heavy range have their own.

    Args:
        new_writer: gives a writer whose files claim the order.
    """

    def __init__(self, order: RowOrder, new_writer: Callable[[], RowSink]) -> None:
        self._order, self._new_writer = order, new_writer
        self._writers: list[RowSink] = []
        self._is_open = False
        self._done: list[DataFile] = []

    def write_range(self, context: TaskContext, pieces: Sequence[Slice]) -> None:
        """Write the rows of a range, which lies behind those before."""
        from airflow_iceberg.data.dictionaries import join, with_field_ids, with_types

        tables = exchange.read_slices(context.io, pieces)
        if sum(piece.size_bytes for piece in pieces) > HEAVY_RANGES * RANGE_BYTES:
            self._write_runs(with_types(table, context.row_schema) for table in tables)
        else:
            rows = (with_field_ids(table, context.row_schema) for table in tables)
            self._write_sorted(join(list(rows), most_bytes=context.options.dict_size_bytes))

    def _write_sorted(self, rows: pa.Table) -> None:
        from airflow_iceberg.data.write.ordering import sort_rows

        if not self._is_open:
            self._writers.append(self._new_writer())
            self._is_open = True
        self._writers[-1].write(sort_rows(rows, self._order))

    def _write_runs(self, tables: Iterator[pa.Table]) -> None:
        from airflow_iceberg.data.write.sorted import SortedRuns

        self._end_files()
        self._writers.append(SortedRuns(self._new_writer, self._order))
        self._is_open = True
        for table in tables:
            self._writers[-1].write(table)
        self._end_files()

    def close(self) -> tuple[DataFile, ...]:
        """Finish and return the files, in the order of their rows."""
        self._end_files()
        return tuple(self._done)

    def abort(self) -> None:
        """Remove every file that was written."""
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
        members: as many of its files as tell whether all are of one partition: a task for each output gets them.
        ranges: the location of its boundaries.
    """

    number: int
    items: tuple[WorkItem, ...]
    members: tuple[FileUnit, ...]
    ranges: str


def sort_groups(
    plan: JobPlan, io: FileIO, items: Sequence[WorkItem], run: phase.RunTasks, *, timings: phase.Timings
) -> list[tuple[int, TaskReport]]:
    """Sort groups of files, and return the reports of the tasks that wrote data files, each with its group."""
    by_group: dict[int, list[WorkItem]] = defaultdict(list)
    for item in items:
        by_group[item.group].append(item)
    small = [found for found in by_group.values() if sum(item.size_bytes for item in found) <= SMALL_GROUP_BYTES]
    large = [found for found in by_group.values() if sum(item.size_bytes for item in found) > SMALL_GROUP_BYTES]
    written = _sort_small(small, io, run, timings)
    if large:
        written += _sort_large(plan, io, large, run, timings)
    phase.clean_exchange(plan, io)
    return written


def _sort_small(
    groups: Sequence[Sequence[WorkItem]], io: FileIO, run: phase.RunTasks, timings: phase.Timings
) -> list[tuple[int, TaskReport]]:
    joined = [
        WorkItem(number=number, group=found[0].group, units=tuple(unit for item in found for unit in item.units))
        for number, found in enumerate(groups)
    ]
    with timings.phase("sort"):
        reports = phase.checked(run([TaskSpec(number=item.number, kind=REWRITE, item=item) for item in joined]), io)
    return [(joined[report.number].group, report) for report in reports]


def _sort_large(
    plan: JobPlan,
    io: FileIO,
    groups: Sequence[Sequence[WorkItem]],
    run: phase.RunTasks,
    timings: phase.Timings,
) -> list[tuple[int, TaskReport]]:
    items = [item for found in groups for item in found]
    with timings.phase("sample"):
        sampled = phase.checked(run([TaskSpec(number=item.number, kind=SAMPLE, item=item) for item in items]), io)
        samples = {report.number: report.sample for report in sampled if report.sample}
        ranged = [_ranged(plan, io, found, samples) for found in groups]
    locations = {group.number: group.ranges for group in ranged}
    with timings.phase("spill"):
        specs = [TaskSpec(number=item.number, kind=SPILL, item=item, ranges=locations[item.group]) for item in items]
        spilled = {report.number: report for report in phase.checked(run(specs), io)}
    gathers: list[TaskSpec] = []
    owners: list[int] = []
    for group in ranged:
        slices = [piece for item in group.items for piece in spilled[item.number].slices]
        for run_of_ranges in outputs(slices, len(group.items)):
            item = WorkItem(number=len(owners), group=group.number, units=group.members)
            gathers.append(TaskSpec(number=item.number, kind=GATHER, groups=run_of_ranges, item=item))
            owners.append(group.number)
    with timings.phase("gather"):
        reports = phase.checked(run(gathers), io)
    taken_in, given_out = (sum(one.record_count for one in found) for found in (spilled.values(), reports))
    if taken_in != given_out:
        raise IcebergError(f"the sort took in {taken_in} rows and gave out {given_out}; nothing may be committed")
    return [(owners[report.number], report) for report in reports]


def _ranged(plan: JobPlan, io: FileIO, items: Sequence[WorkItem], samples: dict[int, str]) -> _Group:
    """Choose the boundaries of a group from its samples, and write them where its tasks find them."""
    import pyarrow as pa

    from airflow_iceberg.data.write.ordering import choose_boundaries

    context = TaskContext(plan=plan, io=io)
    size = sum(item.size_bytes for item in items) * exchange.MEMORY_TO_PARQUET
    ranges = min(max(len(items) * plan.ranges_per_output, -(-size // RANGE_BYTES)), MOST_RANGES)
    keys = [read_keys(io, samples[item.number]) for item in items if item.number in samples]
    order = row_order(context, items)
    boundaries = choose_boundaries(pa.concat_tables(keys), order, ranges) if keys else None
    location = context.exchange_file(f"ranges-{items[0].group:05d}")
    write_keys(io, location, boundaries if boundaries is not None else order.keys(context.row_schema.empty_table()))
    members = _members([unit for item in items for unit in item.units], plan.spec.spec_id)
    return _Group(number=items[0].group, items=tuple(items), members=members, ranges=location)


def _members(units: Sequence[FileUnit], spec_id: int) -> tuple[FileUnit, ...]:
    """Return one file, and another that is of another partition if there is one."""
    from airflow_iceberg.jobs.context import common_partition

    first = units[0]
    other = next((unit for unit in units[1:] if common_partition((first, unit), spec_id) is None), None)
    return (first,) if other is None else (first, other)


def outputs(slices: Sequence[Slice], count: int) -> Iterator[tuple[tuple[Slice, ...], ...]]:
    """Deal ranges out to so many outputs, in order, about the same number of bytes to each."""
    ranges = [tuple(pieces) for _, pieces in exchange.by_bucket(slices).items()]
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


def write_keys(io: FileIO, location: str, keys: pa.Table) -> None:
    """Write keys of rows into a file of the exchange."""
    import pyarrow as pa

    with exchange.create_file(io, location) as sink, pa.ipc.new_file(sink, keys.schema) as writer:
        writer.write_table(keys)


def read_keys(io: FileIO, location: str) -> pa.Table:
    """Read what `write_keys` wrote."""
    import pyarrow as pa

    with exchange.open_file(io, location) as source, pa.ipc.open_file(source) as reader:
        return reader.read_all()
