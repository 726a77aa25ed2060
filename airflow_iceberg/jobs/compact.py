"""Compact: the rows of the table's files, without those that were deleted, are written into better files.

Not here: sorting rows (`jobs.compact_sorted`), which files are rewritten, in which groups (`plan.compact`), and the
commit, which replaces the old files by the new ones (`operations.compact`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from airflow_iceberg.data.carried_rows import carried_rows
from airflow_iceberg.data.row_changes import written_schema
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.jobs.context import RowsContext, RowSink, read_as
from airflow_iceberg.jobs.phase import Job
from airflow_iceberg.jobs.protocol.plan import CompactTask
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, GroupOutput, JobResult
from airflow_iceberg.jobs.protocol.table_input import FileUnit, WorkItem
from airflow_iceberg.jobs.task import CompactItem, TaskReport


@dataclass(kw_only=True)
class CompactContext(RowsContext[CompactTask]):
    """What the tasks of a compaction share."""

    def _written_schema(self) -> Schema:
        return written_schema(self.task.write.schema, self.task.write.format_version)

    def group_writer(self, item: WorkItem) -> RowSink:
        """Return a writer for the rows of an item; rows of one partition are not cut by partition."""
        writer = self.writer(item.number)
        partition = common_partition(item.units, self.task.spec.spec_id)
        return writer if partition is None else writer.into(partition)


def common_partition(units: Sequence[FileUnit], spec_id: int) -> tuple[Any, ...] | None:
    """Return the partition of all files under a spec, None where they are of several or of another spec."""
    partitions = {tuple(canonical_key(value) for value in unit.file.partition) for unit in units}
    if len(partitions) != 1 or any(unit.file.spec_id != spec_id for unit in units):
        return None
    return units[0].file.partition


# -- the tasks ---------------------------------------------------------------------------------------------------------


def compact_item(context: CompactContext, spec: CompactItem) -> TaskReport:
    """Read the rows of an item's files and write them into new ones."""
    rows = rows_of(context, spec.item.units, keep_dictionaries=True)
    return context.write(spec.number, context.group_writer(spec.item), rows)


def rows_of(
    context: CompactContext,
    units: Sequence[FileUnit],
    *,
    columns: Collection[str] | None = None,
    keep_dictionaries: bool = False,
) -> Iterator[pa.Table]:
    """Yield the rows of files that are not deleted, in the columns that are written.

    Args:
        columns: names of top-level columns; others are not read.
        keep_dictionaries: the argument of `data.read.file.read_file`.
    """
    read = read_as(context.io, context.task.table)
    deletes = read.delete_reader()
    fields = [field for field in context.written_schema.fields if columns is None or field.name in columns]
    schema, row_schema = Schema(tuple(fields)), pa.schema([context.row_schema.field(field.name) for field in fields])
    for unit in units:
        for batch in read.rows(unit, deletes, schema=schema, keep_dictionaries=keep_dictionaries):
            yield carried_rows(batch, schema, row_schema, path=unit.file.file_path)


# -- the job -----------------------------------------------------------------------------------------------------------


def compact_items(job: Job[CompactTask], items: Sequence[WorkItem]) -> list[tuple[int, TaskReport]]:
    """Write the rows of items, and return the reports of the tasks, each with its group."""
    groups = {item.number: item.group for item in items}
    reports = job.run("compact", [CompactItem(number=item.number, item=item) for item in items])
    return [(groups[report.number], report) for report in reports]


def result(job: Job[CompactTask], items: Sequence[WorkItem], written: Sequence[tuple[int, TaskReport]]) -> JobResult:
    """Return the result of a job that succeeded; arguments as in `group_outputs`."""
    outputs = group_outputs(items, written)
    return JobResult(
        status=SUCCEEDED,
        groups=outputs,
        record_count=sum(output.record_count for output in outputs),
        source_files=len({unit.file.file_path for item in items for unit in item.units}),
        timings=job.timings.total(),
    )


def group_outputs(items: Sequence[WorkItem], written: Sequence[tuple[int, TaskReport]]) -> tuple[GroupOutput, ...]:
    """Join the reports of tasks by group, and check that no row was lost.

    Args:
        written: reports of the tasks that wrote data files, each with its group.
    Raises:
        IcebergError: the number of rows written for a group differs from the number of rows read.
    """
    groups: dict[int, list[WorkItem]] = defaultdict(list)
    reports: dict[int, list[TaskReport]] = defaultdict(list)
    for item in items:
        groups[item.group].append(item)
    for group, report in written:
        reports[group].append(report)
    return tuple(_group_output(group, members, reports[group]) for group, members in sorted(groups.items()))


def _group_output(group: int, items: Sequence[WorkItem], reports: Sequence[TaskReport]) -> GroupOutput:
    written = sum(report.record_count for report in reports)
    units = [unit for item in items for unit in item.units]
    # A file is there as often as the table lists it, each time whole or in pieces.
    rows = sum(unit.file.record_count * _share(unit) for unit in units)
    has_deletes = any(unit.delete_files for unit in units)
    if written > rows or (written < rows and not has_deletes):
        raise IcebergError(
            f"group {group} has {rows} rows by the table's manifests, but {written} were written; "
            f"nothing may be committed"
        )
    return GroupOutput(
        group=group, data_files=tuple(file for report in reports for file in report.data_files), record_count=written
    )


def _share(unit: FileUnit) -> Fraction:
    first, end, count = unit.parts or (0, 1, 1)
    return Fraction(end - first, count)
