"""Taking rows out of files of the table: a task changes some files, the job puts together what became of all.

Not here: how a file is changed (`data.row_changes`), which files are looked at, and the commit (`operations.delete`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_iceberg.jobs import phase
from airflow_iceberg.jobs.context import TaskContext
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, FileChange, JobResult
from airflow_iceberg.jobs.protocol.table_input import WorkItem
from airflow_iceberg.jobs.task import REWRITE, TaskReport, TaskSpec

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


def delete_item(context: TaskContext, item: WorkItem) -> TaskReport:
    """Take the selected rows out of an item's files."""
    from airflow_iceberg.data.row_changes import ReadAs, WriteAs, delete_rows
    from airflow_iceberg.data.write.options import WriteOptions
    from airflow_iceberg.expressions.binding import parse_filter

    started = time.monotonic()
    plan, table = context.plan, context.table_input
    read = ReadAs(
        io=context.io,
        schemas=table.schemas,
        specs={spec.spec_id: spec for spec in table.specs},
        name_mapping=table.name_mapping,
    )
    write = WriteAs(
        mode=plan.delete_mode or "",
        format_version=plan.format_version,
        options=context.options,
        data_location=plan.data_location,
        file_prefix=f"{plan.file_prefix}-{item.number:05d}",
        delete_options=WriteOptions.of_deletes(plan.properties),
    )
    done = delete_rows(read, write, parse_filter(table.row_filter, table.schema), item.units)
    types = table.partition_types
    return TaskReport(
        number=item.number,
        data_files=tuple(file.to_dict(types[file.spec_id]) for file in done.written),
        changes=tuple(
            FileChange(file_path=change.file_path, deleted_count=change.deleted_count, is_gone=change.is_gone)
            for change in done.changes
        ),
        record_count=sum(file.record_count for file in done.written),
        seconds=time.monotonic() - started,
    )


def delete_from_table(
    io: FileIO, items: Sequence[WorkItem], run: phase.RunTasks, *, timings: phase.Timings
) -> JobResult:
    """Take rows out of the files of the work document.

    Args:
        run: runs task specs and returns their reports, in any order.
    """
    with timings.phase("delete"):
        reports = phase.checked(run([TaskSpec(number=item.number, kind=REWRITE, item=item) for item in items]), io)
    return JobResult(
        status=SUCCEEDED,
        data_files=tuple(file for report in reports for file in report.data_files),
        changes=tuple(change for report in reports for change in report.changes),
        record_count=sum(report.record_count for report in reports),
        source_files=sum(len(item.units) for item in items),
        timings=timings.total(),
    )
