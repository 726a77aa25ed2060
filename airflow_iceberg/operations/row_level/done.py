"""What the job of a merge, an update, or a delete by SQL did, checked against its plan and its snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from airflow_iceberg.data.row_changes import RowChange
from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.expressions.json import expression_from_json
from airflow_iceberg.expressions.tree import Expression, all_of
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.staged_files import check_stored, read_changed_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.deletes import partition_key
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.scan.table_scan import TableScan


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What the job did, checked against its plan.

    Attributes:
        tasks: the files of the table that changed, by their paths: one for each place where the table lists it.
        conflict_filter: a predicate that all rows satisfy which the job could select.
    """

    changes: tuple[RowChange, ...]
    written: tuple[DataFile, ...]
    tasks: Mapping[str, Sequence[FileScanTask]]
    conflict_filter: Expression
    inserted_count: int

    @classmethod
    def of(cls, work: Work, plan: JobPlan, result: JobResult) -> Done:
        """Read the result of a job; raises FormatError if it does not fit the plan, or the table."""
        task = plan.task
        assert isinstance(task, MergeTask)
        written = read_changed_files(plan, result.data_files)
        check_stored(work.table.io, plan, written)
        changes = tuple(RowChange(**asdict(change)) for change in result.changes)
        paths = {change.file_path for change in changes}
        scan = TableScan.of(
            work.table.metadata, work.table.io, row_filter=task.target.row_filter, snapshot_id=task.target.snapshot_id
        )
        tasks: dict[str, list[FileScanTask]] = {}
        for one in scan.iter_files(whole_files=True) if paths else ():
            if one.file.file_path in paths:
                tasks.setdefault(one.file.file_path, []).append(one)
        named = {file.referenced_data_file for file in written if file.referenced_data_file is not None}
        for path in (paths | named) - tasks.keys():
            raise FormatError(f"the job changed {path}, which is not a file of its snapshot", path=plan.result_location)
        for path in paths & set(task.unchanged):
            raise FormatError(f"the job changed {path}, which is not one of its files", path=plan.result_location)
        for change in changes:
            _check_counts(change, tasks[change.file_path], plan)
            _check_one_partition(change, tasks[change.file_path])
        if len(paths) < len(changes):
            raise FormatError("a file of the table is changed twice", path=plan.result_location)
        found = expression_from_json(
            result.conflict_filter or {"is": "true"}, task.target.schema, path=plan.result_location
        )
        _check_new(result, changes, written, plan)
        return cls(
            changes=changes,
            written=written,
            tasks=tasks,
            conflict_filter=all_of(task.target.row_filter, found),
            inserted_count=result.inserted_count,
        )

    @property
    def changed(self) -> list[FileScanTask]:
        """The files that held rows which were changed."""
        return [task for change in self.changes if is_change(change) for task in self.tasks[change.file_path]]

    @property
    def updated(self) -> list[DataFile]:
        """The files that held rows which got new values."""
        return [task.file for change in self.changes if change.updated_count for task in self.tasks[change.file_path]]

    @property
    def data_files(self) -> list[DataFile]:
        """The new files with rows."""
        return [file for file in self.written if file.content is FileContent.DATA]

    @property
    def delete_files(self) -> list[DataFile]:
        """The new delete files."""
        return [file for file in self.written if file.content is not FileContent.DATA]


def _check_counts(change: RowChange, places: Sequence[FileScanTask], plan: JobPlan) -> None:
    changed, rows = change.deleted_count + change.updated_count, sum(task.file.record_count for task in places)
    if changed > rows:
        why = f"{changed} rows of a file of {rows} are said to be changed: {change.file_path}"
        raise FormatError(why, path=plan.result_location)


def _check_one_partition(change: RowChange, places: Sequence[FileScanTask]) -> None:
    """Check that a changed file is in one partition: the job says by its path what it has changed, and may have left
    out the places in other partitions, where other rows match.
    """
    if is_change(change) and len(places) > 1 and len({partition_key(task.file) for task in places}) > 1:
        raise UnsupportedError(
            f"data file {change.file_path}, whose rows are to be changed, is in the table more than once, in several "
            f"partitions; nothing was committed; compact the table before"
        )


def _check_new(result: JobResult, changes: tuple[RowChange, ...], written: tuple[DataFile, ...], plan: JobPlan) -> None:
    """Check that the counts of the summary are those of rows that exist."""
    rows = sum(file.record_count for file in written if file.content is FileContent.DATA)
    updated = sum(change.updated_count for change in changes)
    if result.inserted_count + updated > rows:
        why = f"{result.inserted_count} of its rows are new, and {updated} have new values, of {rows} in its files"
        raise FormatError(why, path=plan.result_location)


def is_change(change: RowChange) -> bool:
    """Whether rows of the file were changed, and not only looked at."""
    return bool(change.deleted_count or change.updated_count)
