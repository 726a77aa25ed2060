"""The documents of a job under a table's staging prefix: write the plan, read the result, clear up afterwards.

Every try of a task owns one folder, `<table>/.staging/<token>-<try>-<random>/`. It holds the plan, the result and
whatever the job spills; data files go where the table keeps them and count only once they are committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.data.write.options import data_location
from airflow_iceberg.data.write.sorted import unsortable
from airflow_iceberg.errors import FormatError, IcebergError, NotFoundError, StalePlanError, StorageError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.known import WRITE_PREFIX
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.sort_orders import SortOrder
from airflow_iceberg.jobs.protocol.plan import Condition, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.directories import remove_empty

log = logging.getLogger(__name__)

STAGING_FOLDER = ".staging"


def write_append_plan(
    io: FileIO,
    metadata: TableMetadata,
    source: Source,
    *,
    table: str,
    operation_key: OperationKey | None,
    try_number: int,
    parallelism: int | None = None,
    row_check: Condition | None = None,
    adds_columns: bool = False,
) -> JobPlan:
    """Write the plan of an append under a fresh staging prefix and return it.

    Args:
        row_check: what every row has to satisfy.
        adds_columns: whether columns of the source may join the table's schema.

    Raises:
        StorageError: the staging prefix cannot be written; nothing was started.
    """
    plan = new_plan(
        metadata,
        source,
        name="append",
        table=table,
        operation_key=operation_key,
        try_number=try_number,
        parallelism=parallelism,
        staging=new_staging(metadata, operation_key, try_number),
        row_check=row_check,
        last_column_id=metadata.last_column_id if adds_columns else None,
    )
    create_plan(io, plan)
    return plan


def new_staging(
    metadata: TableMetadata, operation_key: OperationKey | None, try_number: int, *, carries_rows: bool = False
) -> str:
    """Return a prefix that one try owns alone; its last part begins the names of the try's files.

    Args:
        carries_rows: the files hold rows of the files that they replace, which are not the task's own.
    """
    name = new_file_prefix(operation_key, try_number, carries_rows=carries_rows)
    return f"{metadata.location.rstrip('/')}/{STAGING_FOLDER}/{name}"


def new_plan(
    metadata: TableMetadata,
    source: Source,
    *,
    name: str,
    table: str,
    operation_key: OperationKey | None,
    try_number: int,
    staging: str,
    parallelism: int | None = None,
    spec: PartitionSpec | None = None,
    properties: Mapping[str, str] | None = None,
    arrangement: str = "none",
    sort_order: SortOrder | None = None,
    claimed_order_id: int = 0,
    delete_mode: str | None = None,
    row_check: Condition | None = None,
    last_column_id: int | None = None,
) -> JobPlan:
    """Return the plan of a job against a table's current state.

    Args:
        name: of the job's operation.
        staging: from `new_staging`.
        spec: to write with; the table's own by default.
        properties: that replace those of the table for this job.
        arrangement, sort_order, claimed_order_id: how rows are ordered; by default new rows by the table's sort order,
            and rows of the table's files not at all.
        delete_mode, row_check, last_column_id: see `JobPlan`.
    """
    if source.kind != "table" and arrangement == "none":
        arrangement, claimed_order_id = _write_arrangement(metadata)
    chosen = {key: value for key, value in metadata.properties.items() if key.startswith(WRITE_PREFIX)}
    return JobPlan(
        operation=name,
        operation_key=None if operation_key is None else str(operation_key),
        try_number=try_number,
        table=table,
        table_location=metadata.location,
        table_uuid=metadata.table_uuid or "",
        format_version=metadata.format_version,
        schema=metadata.schema(),
        spec=spec or metadata.spec(),
        sort_order=metadata.sort_order() if sort_order is None else sort_order,
        arrangement=arrangement,
        claimed_order_id=claimed_order_id,
        properties={**chosen, **(properties or {})},
        data_location=data_location(metadata.location, metadata.properties),
        staging_location=staging,
        location=f"{staging}/plan.json",
        result_location=f"{staging}/result.json",
        file_prefix=staging.rpartition("/")[2],
        source=source,
        distribution_mode=distribution_mode(metadata),
        parallelism=parallelism,
        delete_mode=delete_mode,
        row_check=row_check,
        last_column_id=last_column_id,
    )


def _write_arrangement(metadata: TableMetadata) -> tuple[str, int]:
    """Return how new rows are arranged and which order their files claim: the table's, if rows can be sorted by it."""
    order = metadata.sort_order()
    if not order.fields or unsortable(order, metadata.schema(), metadata.spec()) is not None:
        return "none", 0
    return "sort", order.order_id


def new_file_prefix(operation_key: OperationKey | None, try_number: int = 1, *, carries_rows: bool = False) -> str:
    """Return how the names of one try's files begin, unlike those of any other try."""
    unique = uuid4().hex[:12]
    if operation_key is None:
        return f"carried-manual-{unique}" if carries_rows else f"manual-{unique}"
    return (
        operation_key.carried_prefix(try_number, unique)
        if carries_rows
        else operation_key.file_prefix(try_number, unique)
    )


def create_plan(io: FileIO, plan: JobPlan) -> None:
    """Write the plan document.

    Raises:
        StorageError: the staging prefix cannot be written; nothing was started.
    """
    try:
        io.create(plan.location, plan.to_json())
    except StorageError as error:
        raise StorageError(
            f"cannot write the job's plan to the staging prefix {plan.staging_location} of table {plan.table}: "
            f"{error}; make the table's location writable for this worker and for the job"
        ) from error


def distribution_mode(metadata: TableMetadata) -> str:
    """Return how rows are brought together before they are written, with Iceberg's defaults.

    `write.distribution-mode`; by default `range` for a table with a sort order, `hash` for a partitioned one.
    """
    chosen = TableProperties.of(metadata.properties).distribution_mode
    if chosen is not None:
        return chosen
    if metadata.sort_order().fields:
        return "range"
    return "none" if metadata.spec().is_unpartitioned else "hash"


def read_result(io: FileIO, plan: JobPlan) -> JobResult:
    """Return what the job reported.

    Raises:
        StalePlanError: the job died before it could report anything.
        IcebergError: the job's own error, of the class that the job raised.
    """
    try:
        data = io.read(plan.result_location)
    except NotFoundError as error:
        raise StalePlanError(
            f"the job for table {plan.table} ended without a result at {plan.result_location}: it was killed or never "
            f"started; nothing was committed"
        ) from error
    result = JobResult.from_json(data, path=plan.result_location)
    result.raise_for_error()
    return result


def staged_files(plan: JobPlan, result: JobResult) -> tuple[DataFile, ...]:
    """Return all data files that a job reported, checked against the plan.

    Raises:
        FormatError: a document is broken, or names a file that is not of this job.
    """
    documents = [*result.data_files, *(document for group in result.groups for document in group.data_files)]
    return read_files(plan if result.schema is None else replace(plan, schema=result.schema), documents)


def read_files(plan: JobPlan, documents: Iterable[Mapping[str, Any]]) -> tuple[DataFile, ...]:
    """Return data files of their documents, checked against the plan as `staged_files` does."""
    partition_type = plan.spec.partition_type(plan.schema)
    files = tuple(DataFile.from_dict(document, partition_type, path=plan.result_location) for document in documents)
    for file in files:
        # A result can only bring in files of its own try: each bears the plan's unique prefix.
        if plan.file_prefix not in file.file_path or file.spec_id != plan.spec.spec_id:
            raise FormatError(
                f"data file {file.file_path} is not one of job {plan.file_prefix}", path=plan.result_location
            )
    return files


def clear(io: FileIO, plan: JobPlan, files: Sequence[DataFile] = ()) -> None:
    """Remove a try's staging folder and, where they are known to be unreferenced, its data files; never raises."""
    try:
        leftovers = [status.location for status in io.list(plan.staging_location)]
    except IcebergError as error:
        log.warning("cannot list %s, left it behind: %s", plan.staging_location, error)
        leftovers = []
    remove(io, [*(file.file_path for file in files), *leftovers])
    remove_empty(io, plan.staging_location)


def remove(io: FileIO, locations: Sequence[str]) -> None:
    """Remove files that are known to be unreferenced; never raises."""
    try:
        io.delete(locations)
    except IcebergError as error:
        log.warning("left unreferenced files behind: %s", error)


def remove_folders(io: FileIO, table_location: str, documents: Iterable[str]) -> None:
    """Remove the folders of documents that were removed, and the staging folder, as far as they are empty."""
    root = f"{table_location.rstrip('/')}/{STAGING_FOLDER}/"
    for name in sorted({document.removeprefix(root).partition("/")[0] for document in documents}):
        remove_empty(io, f"{root}{name}")


def of_dead_jobs(files: Iterable[FileStatus], root: str, before_ms: int) -> tuple[FileStatus, ...]:
    """Return the documents of jobs whose youngest document is old: no such job is running any more.

    Args:
        root: the staging folder, with a slash at its end; each folder in it is of one try of a task.
        before_ms: what was written before that moment is old.
    """
    folders: dict[str, list[FileStatus]] = {}
    for status in files:
        folders.setdefault(status.location[len(root) :].partition("/")[0], []).append(status)
    return tuple(
        status
        for found in folders.values()
        if all(status.modified_ms is not None and status.modified_ms < before_ms for status in found)
        for status in found
    )
