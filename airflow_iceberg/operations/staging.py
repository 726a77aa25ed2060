"""The documents of a job under a table's staging prefix: write the plan, read the result, delete them afterwards.

Also here: how a job writes files of a table (`write_settings`, `append_task`). Not here: the check of a result's files
(`jobs.protocol.staged_files`), the tasks of other jobs (`operations.compact_job`, `operations.row_changes`,
`operations.file_inventory`), the header of a plan (`operations.work.Work.write_plan`).

Each try of a task has a folder of its own, `<table>/.staging/<token>-<try>-<random>/`, with the plan, the result and
the job's temporary files; data files are written to the table's data location and count only once they are committed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.runs.marks import MARK
from airflow_iceberg.data import write
from airflow_iceberg.data.write.options import data_location
from airflow_iceberg.errors import IcebergError, NotFoundError, StalePlanError, StorageError, advised
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.known import WRITE_PREFIX
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.sort_orders import SortOrder
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.plan import AppendTask, Condition, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.result import read_result as read_document
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.staged_files import check_none_missing
from airflow_iceberg.jobs.protocol.write_settings import WriteSettings
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.directories import remove_empty

log = logging.getLogger(__name__)

STAGING_FOLDER = ".staging"
# The names of `OperationKey.file_prefix`.
_OF_TASK = re.compile(
    rf"(?:carried-)?(?P<token>[0-9a-f]{{12}})-[0-9]{{1,40}}-(?P<try>[0-9]{{1,9}})-[0-9a-f]{{12}}(?:-{MARK})?"
)


class JobRuns(BaseException):
    """A job runs, and a later process goes on with its result: this one ends, and leaves the job's documents alone.

    No error, so that nothing that handles errors deletes what the job needs.
    """


def new_staging(
    metadata: TableMetadata, operation_key: OperationKey | None, try_number: int, *, carries_rows: bool = False
) -> str:
    """Return a prefix that only one try uses; its last part begins the names of the try's files.

    Args:
        carries_rows: whether the files hold rows of the files that they replace, which are not the task's own.
    """
    name = new_file_prefix(operation_key, try_number, carries_rows=carries_rows)
    return f"{metadata.location.rstrip('/')}/{STAGING_FOLDER}/{name}"


def write_settings(
    metadata: TableMetadata, *, sort_order: SortOrder | None = None, target_file_size_bytes: int | None = None
) -> WriteSettings:
    """Return how a job writes data files of a table.

    Args:
        sort_order: the order of the rows; the table's by default.
        target_file_size_bytes: the size at which a file is closed; the table's by default.

    Raises:
        InvalidInputError: the table's target size is not a number of bytes.
    """
    if target_file_size_bytes is None:
        target_file_size_bytes = TableProperties.of(metadata.properties).target_file_size_bytes
    return WriteSettings(
        format_version=metadata.format_version,
        schema=metadata.schema(),
        sort_order=metadata.sort_order() if sort_order is None else sort_order,
        properties={key: value for key, value in metadata.properties.items() if key.startswith(WRITE_PREFIX)},
        data_location=data_location(metadata.location, metadata.properties),
        target_file_size_bytes=target_file_size_bytes,
    )


def append_task(
    metadata: TableMetadata,
    source: Source,
    *,
    row_check: Condition | None = None,
    adds_columns: bool = False,
    inputs: tuple[PinnedTable, ...] = (),
) -> AppendTask:
    """Return the task that writes the rows of a source into a table.

    Args:
        row_check: the condition that every row has to satisfy.
        adds_columns: whether new columns of the source are added to the table's schema.
        inputs: the tables that the source reads.

    Raises:
        InvalidInputError: a property of the table.
    """
    order = metadata.sort_order()
    return AppendTask(
        write=write_settings(metadata),
        spec=metadata.spec(),
        source=source,
        distribution_mode=distribution_mode(metadata),
        sorts_rows=bool(order.fields) and write.unsortable(order, metadata.schema(), metadata.spec()) is None,
        row_check=row_check,
        last_column_id=metadata.last_column_id if adds_columns else None,
        inputs=inputs,
    )


def new_file_prefix(operation_key: OperationKey | None, try_number: int = 1, *, carries_rows: bool = False) -> str:
    """Return the beginning of the names of one try's files, different from that of any other try."""
    unique = uuid4().hex[:12]
    if operation_key is None:
        return f"carried-manual-{unique}" if carries_rows else f"manual-{unique}"
    prefix = operation_key.carried_prefix if carries_rows else operation_key.file_prefix
    return prefix(try_number, unique)


def earlier_tries(io: FileIO, plan: JobPlan) -> list[str]:
    """Return the staging folders that other jobs of a task have left: of its earlier tries, also those before a clear.

    Raises:
        StorageError: the folders cannot be listed.
    """
    root, _, own = plan.staging_location.rpartition("/")
    mine = _OF_TASK.fullmatch(own)
    if mine is None or plan.try_number < 2:
        return []
    names = {status.location[len(root) + 1 :].partition("/")[0] for status in io.list(root)} - {own}
    found = {name: match for name in names if (match := _OF_TASK.fullmatch(name)) and match["token"] == mine["token"]}
    # A later try may run already, if this one's worker was only believed to be dead.
    return [f"{root}/{name}" for name, match in sorted(found.items()) if int(match["try"]) <= plan.try_number]


def create_plan(io: FileIO, plan: JobPlan) -> None:
    """Write the plan document.

    Raises:
        StorageError: the staging prefix cannot be written; nothing was started.
    """
    try:
        io.create(plan.location, plan.to_json())
    except StorageError as error:
        what = f"cannot write the job's plan to the staging prefix {plan.staging_location} of table {plan.table}"
        to_do = error.advice or "make the table's location writable for this worker and for the job"
        raise advised(StorageError(f"{what}: {error.what_happened}"), to_do) from error


def distribution_mode(metadata: TableMetadata) -> str:
    """Return how rows are distributed to tasks before they are written: `write.distribution-mode`.

    By default `range` for a table with a sort order, `hash` for a partitioned one, as in Iceberg.
    """
    chosen = TableProperties.of(metadata.properties).distribution_mode
    if chosen is not None:
        return chosen
    if metadata.sort_order().fields:
        return "range"
    return "none" if metadata.spec().is_unpartitioned else "hash"


def read_result(io: FileIO, plan: JobPlan, *, key: str | None = None) -> JobResult:
    """Return the result that a job wrote.

    Args:
        key: the public key of the job's signature; None for a document that is not signed.

    Raises:
        StalePlanError: the job died before it could write one.
        FormatError: the job has not written it, or it is damaged.
    """
    try:
        return read_document(plan, io, key=key)
    except NotFoundError as error:
        raise StalePlanError(
            f"the job for table {plan.table} ended without a result at {plan.result_location}: it was killed or never "
            f"started; nothing was committed"
        ) from error


def clear(io: FileIO, staging_location: str) -> None:
    """Delete a try's staging folder; never raises."""
    try:
        leftovers = [status.location for status in io.list(staging_location)]
    except IcebergError as error:
        log.warning("cannot list %s, it is not deleted: %s", staging_location, error)
        return
    remove(io, leftovers)
    remove_empty(io, staging_location)


@contextmanager
def cleared(io: FileIO, staging_location: str) -> Iterator[None]:
    """Delete a try's staging folder at the end of the block, however it ends, unless a later process needs it."""
    try:
        yield
    except JobRuns:
        raise
    except BaseException:
        clear(io, staging_location)
        raise
    else:
        clear(io, staging_location)


def remove(io: FileIO, locations: Sequence[str]) -> None:
    """Delete files that are known to be unreferenced; never raises."""
    try:
        io.delete(locations)
    except IcebergError as error:
        log.warning("left unreferenced files behind: %s", error)


def remove_folders(io: FileIO, table_location: str, documents: Iterable[str]) -> None:
    """Remove the folders of deleted documents, and the staging folder, if they are empty."""
    root = f"{table_location.rstrip('/')}/{STAGING_FOLDER}/"
    for name in sorted({document.removeprefix(root).partition("/")[0] for document in documents}):
        remove_empty(io, f"{root}{name}")


def of_dead_jobs(files: Iterable[FileStatus], root: str, before_ms: int) -> tuple[FileStatus, ...]:
    """Return the documents of jobs that cannot be running any more: their youngest document is old.

    Args:
        root: the staging folder, with a slash at its end; each folder in it is of one try of a task.
        before_ms: documents written before that time are old.
    """
    folders = _by_try(files, root).values()
    return tuple(status for found in folders if is_dead(found, before_ms) for status in found)


def _by_try(files: Iterable[FileStatus], root: str) -> Mapping[str, list[FileStatus]]:
    folders: dict[str, list[FileStatus]] = {}
    for status in files:
        folders.setdefault(status.location[len(root) :].partition("/")[0], []).append(status)
    return folders


def is_dead(found: Iterable[FileStatus], before_ms: int) -> bool:
    """Whether a job cannot be running any more, by its documents; arguments as of `of_dead_jobs`."""
    return all(status.modified_ms is not None and status.modified_ms < before_ms for status in found)


# -- jobs that run for days --------------------------------------------------------------------------------------------

CHECKED_AFTER_S = 60 * 60
_THREADS = 32


def living_jobs(files: Iterable[FileStatus], root: str, before_ms: int) -> re.Pattern[str] | None:
    """Return what matches the names of the files that jobs may be writing, None without such jobs.

    Args:
        files, root, before_ms: as for `of_dead_jobs`.
    """
    names = [name for name, found in _by_try(files, root).items() if not is_dead(found, before_ms)]
    if not names:
        return None
    # With object storage a part of the hash may come first.
    return re.compile(rf"(?:[01]{{4,}}-)?(?:{'|'.join(map(re.escape, names))})-")


def check_still_there(io: FileIO, paths: Iterable[str], *, table: str) -> None:
    """Check that new files exist, before a commit refers to them.

    Raises:
        StalePlanError: one was deleted, or moved to quarantine, while the job ran.
    """
    found = list(dict.fromkeys(paths))
    with ThreadPoolExecutor(_THREADS) as pool:
        missing = [path for path, is_there in zip(found, pool.map(io.exists, found), strict=True) if not is_there]
    check_none_missing(missing, len(found), table=table)
