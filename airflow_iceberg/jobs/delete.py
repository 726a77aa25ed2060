"""Delete: the selected rows are deleted from files of the table.

Not here: how a file is changed (`data.row_changes`), which files are read, and the commit (`operations.delete`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from airflow_iceberg.data.row_changes import RowChanges, WriteAs, delete_rows
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.jobs.context import TaskContext, options_of, read_as
from airflow_iceberg.jobs.phase import Job
from airflow_iceberg.jobs.protocol.plan import DeleteTask
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, FileChange, JobResult
from airflow_iceberg.jobs.protocol.table_input import WorkItem
from airflow_iceberg.jobs.task import DeleteItem, TaskReport


@dataclass(kw_only=True)
class DeleteContext(TaskContext[DeleteTask]):
    """What the tasks of a delete share.

    Attributes:
        options: the encoding of data files.
        delete_options: the encoding of position delete files.
    """

    options: WriteOptions = field(init=False)
    delete_options: WriteOptions = field(init=False)

    def __post_init__(self) -> None:
        self.options = options_of(self.task.write, writes_files=False)
        self.delete_options = WriteOptions.of_deletes(self.task.write.properties)

    def change(self, item: WorkItem) -> RowChanges:
        """Delete the selected rows from an item's files."""
        task, table = self.task, self.task.table
        write = WriteAs(
            mode=task.mode,
            format_version=task.write.format_version,
            options=self.options,
            data_location=task.write.data_location,
            file_prefix=f"{self.plan.file_prefix}-{item.number:05d}",
            delete_options=self.delete_options,
        )
        return delete_rows(read_as(self.io, table), write, parse_filter(task.row_filter, table.schema), item.units)


def delete_item(context: DeleteContext, spec: DeleteItem) -> TaskReport:
    """Delete the selected rows from an item's files, and report the changes."""
    done = context.change(spec.item)
    types = context.task.table.partition_types
    return TaskReport(
        number=spec.number,
        data_files=tuple(file.to_dict(types[file.spec_id]) for file in done.written),
        changes=tuple(FileChange(**asdict(change)) for change in done.changes),
        record_count=sum(file.record_count for file in done.written),
    )


def delete(job: Job[DeleteTask], items: Sequence[WorkItem]) -> JobResult:
    """Delete the selected rows from the files of the work document."""
    reports = job.run("delete", [DeleteItem(number=item.number, item=item) for item in items])
    return JobResult(
        status=SUCCEEDED,
        data_files=tuple(file for report in reports for file in report.data_files),
        changes=tuple(change for report in reports for change in report.changes),
        record_count=sum(report.record_count for report in reports),
        source_files=sum(len(item.units) for item in items),
        timings=job.timings.total(),
    )
