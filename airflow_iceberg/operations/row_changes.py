"""The plan of a delete: which files are deleted, which are rewritten, and the documents of the job.

The scan gives the files; partitions and statistics prove which of them hold only selected rows; the other files are
work for a job or for this process. Overwrites by filter use the same plan. Not here: running the job and committing
(`operations.delete`, `operations.overwrite`), how a file is changed (`data.row_changes`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from airflow_iceberg.commit.conflicts import ISOLATION_LEVELS, Isolation
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.data.read.file import ReadAs
from airflow_iceberg.data.row_changes import RowChange, RowChanges, WriteAs, by_path, count_rows, delete_rows
from airflow_iceberg.data.write.options import WriteOptions, data_location, in_format
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.expressions.metrics import file_must_match
from airflow_iceberg.expressions.tree import AlwaysTrue, Expression
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.jobs.protocol.plan import DeleteTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.staged_files import check_stored, read_changed_files
from airflow_iceberg.jobs.protocol.table_input import WORK_FILE, FileUnit, TableInput, WorkItem
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.deletes import referenced_file
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.scan.table_scan import READ_THREADS, TableScan
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
DELETE_ISOLATION = TableProperties.delete_isolation_level.name
# The bytes that one task of a merge-on-read delete reads: its vectors share one Puffin file.
_ITEM_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """The files that a predicate concerns.

    Attributes:
        snapshot_id: the snapshot that was read; None for a table without rows.
        row_filter: the predicate, bound to `schema`, the table's schema.
        whole: files with only selected rows, as their partition or their statistics prove.
        partial: files that may hold selected rows.
    """

    snapshot_id: int | None
    row_filter: Expression
    schema: Schema
    whole: tuple[FileScanTask, ...] = ()
    partial: tuple[FileScanTask, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no file can hold a selected row."""
        return not (self.whole or self.partial)


def plan_deletion(scan: TableScan, *, without: Collection[str] = ()) -> Deletion:
    """Choose the files that hold selected rows; a row is selected where the predicate is true, not where it is null.

    Args:
        without: paths of files that are ignored.
    """
    whole: list[FileScanTask] = []
    partial: list[FileScanTask] = []
    # Partial files are rewritten: deletes of rows that the predicate does not select count as well.
    for task in scan.iter_files(whole_files=True):
        if task.file.file_path not in without:
            is_whole = isinstance(task.residual, AlwaysTrue) or file_must_match(task.residual, task.file)
            (whole if is_whole else partial).append(task)
    # Files are removed by their paths, from all places where the table lists them.
    mixed = {task.file.file_path for task in whole} & {task.file.file_path for task in partial}
    if mixed:
        partial += [task for task in whole if task.file.file_path in mixed]
        whole = [task for task in whole if task.file.file_path not in mixed]
    return Deletion(
        snapshot_id=None if scan.snapshot is None else scan.snapshot.snapshot_id,
        row_filter=scan.row_filter,
        schema=scan.schema,
        whole=tuple(whole),
        partial=tuple(partial),
    )


def without_marked(deletion: Deletion, vectors: Sequence[DataFile]) -> Deletion:
    """Return a deletion that writes no rows anew which are in these deletion vectors: they go besides."""
    by_path = {file.referenced_data_file: file for file in vectors}

    def marked(task: FileScanTask) -> FileScanTask:
        vector = by_path.get(task.file.file_path)
        if vector is None:
            return task
        # It has the rows of the one before it, too.
        replaced = {file.identity for file in replaced_deletes([task])}
        others = (file for file in task.delete_files if file.identity not in replaced)
        return replace(task, delete_files=(vector, *others))

    return replace(deletion, partial=tuple(map(marked, deletion.partial)))


def delete_mode(
    metadata: TableMetadata, asked: str | None, *, property_name: str = TableProperties.delete_mode.name
) -> str:
    """Return how rows are changed: as asked, else by a property of the table; version 1 has no delete files.

    Raises:
        InvalidInputError: no such mode, or one that the table's version does not have.
    """
    mode = (asked or metadata.properties.get(property_name) or COPY_ON_WRITE).strip().lower()
    if mode not in (COPY_ON_WRITE, MERGE_ON_READ):
        where = "mode" if asked else f"property {property_name}"
        raise InvalidInputError(f"{where} is {mode!r}, expected {COPY_ON_WRITE!r} or {MERGE_ON_READ!r}")
    if mode == COPY_ON_WRITE or metadata.format_version > 1:
        return mode
    if asked:
        raise InvalidInputError(
            f"mode is {mode!r}, and a table of format version 1 has no delete files; choose {COPY_ON_WRITE!r}, or "
            f"upgrade the table"
        )
    return COPY_ON_WRITE


def isolation_level(metadata: TableMetadata, asked: str | None, *, property_name: str | None = None) -> Isolation:
    """Return what a change is validated against: as asked, else by the table's property, else "serializable".

    Raises:
        InvalidInputError: no such level.
    """
    chosen = metadata.properties.get(property_name) if property_name else None
    level = (asked or chosen or "serializable").strip().lower()
    for known in ISOLATION_LEVELS:
        if level == known:
            return known
    where = "isolation_level" if asked else f"property {property_name}"
    raise InvalidInputError(f"{where} is {level!r}, expected one of {', '.join(ISOLATION_LEVELS)}")


# -- rows --------------------------------------------------------------------------------------------------------------


def live_rows(scan: TableScan, tasks: Sequence[FileScanTask]) -> int:
    """Return the number of rows left in files; their deletes are read, and with equality deletes the files, too.

    The number of deleted positions does not tell: other writers mark some that a file does not have.
    """
    unclear = [task for task in tasks if task.delete_files]
    total = sum(task.file.record_count for task in tasks if not task.delete_files)
    read = read_as(scan.io, scan.metadata)
    deletes = read.delete_reader()

    def count(task: FileScanTask) -> int:
        try:
            return count_rows(read, FileUnit.of(task), deletes)
        except IcebergError as error:
            # A file that cannot be read may still be deleted: it counts with all its rows.
            log.warning("cannot count the rows that are left in %s: %s", task.file.file_path, error)
            return task.file.record_count

    with ThreadPoolExecutor(READ_THREADS) as pool:
        return total + sum(pool.map(count, unclear))


def read_as(io: FileIO, metadata: TableMetadata) -> ReadAs:
    """Return how the files of a table are read."""
    return ReadAs(
        io=io,
        schemas=metadata.newest_schemas(),
        specs={spec.spec_id: spec for spec in metadata.partition_specs},
        name_mapping=TableProperties.of(metadata.properties).name_mapping,
    )


def change_here(
    io: FileIO, metadata: TableMetadata, deletion: Deletion, *, mode: str, operation_key: OperationKey | None
) -> RowChanges:
    """Delete the rows in this process; after an error the new files are deleted."""
    options = WriteOptions.from_properties(
        metadata.properties, metadata.schema(), metadata.sort_order(), writes_files=False
    )
    write = WriteAs(
        mode=mode,
        format_version=metadata.format_version,
        options=options,
        data_location=data_location(metadata.location, metadata.properties),
        file_prefix=staging.new_file_prefix(operation_key, carries_rows=True),
        delete_options=WriteOptions.of_deletes(metadata.properties),
    )
    return delete_rows(read_as(io, metadata), write, deletion.row_filter, map(FileUnit.of, deletion.partial))


# -- the job -----------------------------------------------------------------------------------------------------------


def write_delete_plan(work: Work, deletion: Deletion, *, mode: str, write_format: str | None = None) -> JobPlan:
    """Write the plan of the job and its work document, and return the plan.

    Args:
        write_format: the format of the data files; None for that of the table.

    Raises:
        StorageError: the staging prefix cannot be written; nothing was started.
    """
    metadata, prefix = in_format(work.table.metadata, write_format), work.new_staging(carries_rows=True)
    item_bytes = _ITEM_BYTES if mode == MERGE_ON_READ else 0
    items = work_items(deletion.partial, item_bytes=item_bytes)
    task = DeleteTask(
        write=staging.write_settings(metadata),
        table=TableInput.write(
            work.table.io, recover_sources(work.table.io, metadata), items, work_location=f"{prefix}/{WORK_FILE}"
        ),
        row_filter=deletion.row_filter,
        mode=mode,
    )
    return work.write_plan(task, prefix)


def work_items(tasks: Iterable[FileScanTask], *, item_bytes: int) -> list[WorkItem]:
    """Cut files into tasks of about a size, each with at least one file, in all places where the table lists it."""
    runs: list[list[FileUnit]] = []
    filled = 0
    for places in by_path(map(FileUnit.of, tasks)):
        size = sum(unit.size_bytes for unit in places)
        if not runs or filled + size > item_bytes:
            runs.append([])
            filled = 0
        runs[-1] += places
        filled += size
    return [WorkItem(number=number, group=number, units=tuple(run)) for number, run in enumerate(runs)]


def read_changes(io: FileIO, plan: JobPlan, result: JobResult, planned: Collection[str]) -> RowChanges:
    """Return the changes of a job, checked against its plan.

    Args:
        planned: the paths of the files that the job may change.

    Raises:
        FormatError: a document is damaged, or names a file that is not of this job.
    """
    written = read_changed_files(plan, result.data_files)
    check_stored(io, plan, written)
    for path in (*(change.file_path for change in result.changes), *(file.referenced_data_file for file in written)):
        if path is not None and path not in planned:
            raise FormatError(f"the job changed {path}, which is not a file of its plan", path=plan.result_location)
    changes = [RowChange(**asdict(change)) for change in result.changes]
    return RowChanges(changes=changes, written=list(written))


def change_files(
    work: Work, deletion: Deletion, *, mode: str, write_format: str | None = None
) -> tuple[RowChanges, JobPlan | None]:
    """Delete the selected rows from files that also hold others: in a job, or in this process.

    Args:
        write_format: the format of the data files; None for that of the table.

    Returns:
        The changes, and the plan of the job, whose documents are still there; None without a job.
    """
    table, key = work.table, work.operation_key
    if not deletion.partial:
        return RowChanges(), None
    if work.run is None:
        metadata = in_format(table.metadata, write_format)
        return change_here(table.io, metadata, deletion, mode=mode, operation_key=key), None
    plan = write_delete_plan(work, deletion, mode=mode, write_format=write_format)
    planned = {task.file.file_path for task in deletion.partial}
    return work.run_job(plan, lambda result: read_changes(table.io, plan, result, planned)), plan


def changed_tasks(deletion: Deletion, changes: RowChanges) -> list[FileScanTask]:
    """Return the partial files that held selected rows."""
    paths = {change.file_path for change in changes.changes if change.deleted_count or change.updated_count}
    return [task for task in deletion.partial if task.file.file_path in paths]


def replaced_deletes(tasks: Sequence[FileScanTask]) -> list[DataFile]:
    """Return the vectors and position delete files of only these data files, which new vectors replace.

    Also a vector that applies to nothing any more: a data file has one at most.
    """
    found: dict[tuple[str, int | None], DataFile] = {}
    for task in tasks:
        for file in (*task.delete_files, *task.outdated):
            is_by_position = file.content is FileContent.POSITION_DELETES
            if is_by_position and referenced_file(file) == task.file.file_path:
                found.setdefault(file.identity, file)
    return list(found.values())
