"""Rewriting files of the table: read them without what was deleted, write the same rows again, in better files.

Here: the work of a task (`rewrite_item`) and the phases of the job (`rewrite_table`). Not here: which files are
rewritten, in which groups (`plan.compact`), and the commit, which puts the new files in the place of the old.

A group's rows are written in the order in which they are read. Where all files of a group lie in one partition of the
spec that is written, no row is asked for its partition again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions.tree import ALWAYS_TRUE
from airflow_iceberg.jobs.context import TaskContext, removing_on_error
from airflow_iceberg.jobs.protocol.result import GroupOutput
from airflow_iceberg.jobs.protocol.table_input import FileUnit, TableInput, WorkItem
from airflow_iceberg.jobs.task import TaskReport

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.data.read.deletes import DeleteReader


def rewrite_item(context: TaskContext, item: WorkItem) -> TaskReport:
    """Read the rows of an item's files and write them into new ones."""
    started = time.monotonic()
    with removing_on_error(context.group_writer(item)) as writer:
        for table in rows_of(context, item.units, keep_dictionaries=True):
            writer.write(table)
        files = writer.close()
    return context.report(item.number, files, started)


def rows_of(
    context: TaskContext,
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
    from airflow_iceberg.data.read.deletes import DeleteReader

    table = context.table_input
    deletes = DeleteReader(
        context.io,
        schemas=table.schemas,
        specs=table.specs,
        name_mapping=table.name_mapping,
    )
    for unit in units:
        yield from read_unit(context, table, unit, deletes, columns=columns, keep_dictionaries=keep_dictionaries)


def read_unit(
    context: TaskContext,
    table: TableInput,
    unit: FileUnit,
    deletes: DeleteReader,
    *,
    columns: Collection[str] | None = None,
    keep_dictionaries: bool = False,
) -> Iterator[pa.Table]:
    """Yield the rows that are left of one file; `columns` and `keep_dictionaries` as in `rows_of`."""
    import pyarrow as pa

    from airflow_iceberg.data.dictionaries import with_field_ids
    from airflow_iceberg.data.read.file import FileToRead, read_file
    from airflow_iceberg.format.schemas.schema import Schema

    fields = [field for field in context.written_schema.fields if columns is None or field.name in columns]
    source = FileToRead(
        file=unit.file,
        spec=table.spec(unit.file.spec_id),
        name_mapping=table.name_mapping,
        delete_files=unit.delete_files,
        deletes=deletes,
        sequence_number=unit.sequence_number,
        parts=unit.parts or (0, 1, 1),
    )
    batches = read_file(
        context.io,
        source,
        schema=Schema(tuple(fields)),
        table_schema=table.schema,
        row_filter=ALWAYS_TRUE,
        keep_dictionaries=keep_dictionaries,
    )
    row_schema = pa.schema([context.row_schema.field(field.name) for field in fields])
    for batch in batches:
        yield with_field_ids(batch, row_schema)


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
