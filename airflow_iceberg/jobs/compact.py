"""Compact: the rows of the table's files, without those that were deleted, are written into better files.

Here: the work of a task that keeps the order of rows, and what becomes of the groups. Not here: sorting rows
(`jobs.compact_sorted`), which files are rewritten, in which groups (`plan.compact`), and the commit, which replaces the
old files by the new ones (`operations.compact`).

A group's rows are written in the order in which they are read. Where all files of a group are in one partition of the
spec that is written, no row is asked for its partition again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_iceberg.data.dictionaries import with_field_ids
from airflow_iceberg.data.read.deletes import DeleteReader
from airflow_iceberg.data.read.file import read_file
from airflow_iceberg.data.read.metadata_columns import LAST_UPDATED, ROW_ID
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions.tree import ALWAYS_TRUE
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.jobs.context import RowsContext, RowSink
from airflow_iceberg.jobs.phase import Job
from airflow_iceberg.jobs.protocol.plan import CompactTask
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, GroupOutput, JobResult
from airflow_iceberg.jobs.protocol.table_input import FileUnit, WorkItem
from airflow_iceberg.jobs.task import CompactItem, TaskReport


@dataclass(kw_only=True)
class CompactContext(RowsContext[CompactTask]):
    """What the tasks of a compaction share."""

    def _written_schema(self) -> Schema:
        """Return the table's schema; from version 3 on rows keep their id and sequence number."""
        schema = self.task.write.schema
        if self.task.write.format_version < 3:
            return schema
        return Schema((*schema.fields, ROW_ID, LAST_UPDATED), schema.schema_id)

    def group_writer(self, item: WorkItem) -> RowSink:
        """Return a writer for the rows of an item: where all are of one partition, no row is asked for it again."""
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
    """Yield the rows that are left of files, in the columns that are written.

    Args:
        columns: names of top-level columns; others are not read.
        keep_dictionaries: as in `data.read.file.read_file`.
    """
    table = context.task.table
    deletes = DeleteReader(context.io, schemas=table.schemas, specs=table.specs, name_mapping=table.name_mapping)
    fields = [field for field in context.written_schema.fields if columns is None or field.name in columns]
    row_schema = pa.schema([context.row_schema.field(field.name) for field in fields])
    for unit in units:
        batches = read_file(
            context.io,
            unit.file,
            schema=Schema(tuple(fields)),
            table_schema=table.schema,
            row_filter=ALWAYS_TRUE,
            spec=table.spec(unit.file.spec_id),
            name_mapping=table.name_mapping,
            delete_files=unit.delete_files,
            deletes=deletes,
            sequence_number=unit.sequence_number,
            parts=unit.parts or (0, 1, 1),
            keep_dictionaries=keep_dictionaries,
        )
        for batch in batches:
            yield with_field_ids(batch, row_schema)


# -- the job -----------------------------------------------------------------------------------------------------------


def compact_items(job: Job[CompactTask], items: Sequence[WorkItem]) -> list[tuple[int, TaskReport]]:
    """Write the rows of items, and return the reports of the tasks, each with its group."""
    groups = {item.number: item.group for item in items}
    reports = job.run("compact", [CompactItem(number=item.number, item=item) for item in items])
    return [(groups[report.number], report) for report in reports]


def result(job: Job[CompactTask], items: Sequence[WorkItem], written: Sequence[tuple[int, TaskReport]]) -> JobResult:
    """Return the result of a job that succeeded.

    Args:
        written: reports of the tasks that wrote data files, each with its group.
    """
    outputs = group_outputs(items, written)
    return JobResult(
        status=SUCCEEDED,
        groups=outputs,
        record_count=sum(output.record_count for output in outputs),
        source_files=len({unit.file.file_path for item in items for unit in item.units}),
        timings=job.timings.total(),
    )


def group_outputs(items: Sequence[WorkItem], written: Sequence[tuple[int, TaskReport]]) -> tuple[GroupOutput, ...]:
    """Put the reports of tasks together by group, and check that no row got lost.

    Args:
        written: reports of the tasks that wrote data files, each with its group.
    Raises:
        IcebergError: a group gives out other rows than it took in.
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
    files = {unit.file.file_path: unit for item in items for unit in item.units}
    rows = sum(unit.file.record_count for unit in files.values())
    has_deletes = any(unit.delete_files for unit in files.values())
    if written > rows or (written < rows and not has_deletes):
        raise IcebergError(
            f"group {group} has {rows} rows by the table's manifests and gave out {written}; nothing may be committed"
        )
    return GroupOutput(
        group=group, data_files=tuple(file for report in reports for file in report.data_files), record_count=written
    )
