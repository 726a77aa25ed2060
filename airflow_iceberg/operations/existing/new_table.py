"""A new Iceberg table of the files of a folder, or of a table of a Hive Metastore: a snapshot of it, or it migrated.

All files are checked before the table is created. Names are those of Iceberg's procedures `snapshot` and `migrate`.
Not here: how a table of a metastore gives up its name (`operations.existing.migration`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.catalogs.existing_tables import ExistingTable
from airflow_iceberg.commit.actions.add_files import AddFiles
from airflow_iceberg.commit.checks import check_writable
from airflow_iceberg.commit.compose import with_name_mapping
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import CREATED_BY, EXISTING_FILES, OperationKey, find_landed
from airflow_iceberg.commit.runs.own_works import find_earlier_epochs
from airflow_iceberg.commit.settings import now_ms, settings_for
from airflow_iceberg.commit.write_result import Outcome, WriteResult, describe
from airflow_iceberg.data.existing.inferred_schema import columns_of, folder_names, infer_schema
from airflow_iceberg.data.existing.rewrite import rows_of
from airflow_iceberg.data.existing.target import ExistingFile, Target
from airflow_iceberg.errors import AlreadyExistsError, CommitUnknownError, IcebergError, InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import apply_change
from airflow_iceberg.format.partitions.spec import PartitionField, spec_from_shorthand
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.add_files import (
    AddFilesRequest,
    CheckedFiles,
    add_files,
    at_once,
    check_existing,
    report,
    rewrite,
    target_of,
)
from airflow_iceberg.operations.alter_table import check_properties
from airflow_iceberg.operations.create_table import CreateTableRequest, checked_properties, create_table
from airflow_iceberg.operations.existing.listing import (
    absolute,
    check_files,
    existing_table,
    files_below,
    files_of_table,
    is_table_name,
    metadata_folders,
    partitions_of,
)
from airflow_iceberg.operations.existing.places import check_apart
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import place_of
from airflow_iceberg.storage.trust import Trust

log = logging.getLogger(__name__)

# As Iceberg Java marks such tables.
_SNAPSHOT, _MIGRATED = {"snapshot": "true"}, {"migrated": "true"}
# The folder of a migrated table for rows that were written anew.
REWRITTEN = "_rewritten"
# Stands for the location that a server chooses.
_CHOSEN_LATER = "memory://planned"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTableRequest:
    """What becomes a table.

    Attributes:
        source: a folder: all files below it; or the name of a table of the Hive Metastore that is the catalog, which is
            no Iceberg table. None for the migration of the table that has the name in the metastore.
        schema: the columns, as for `CreateTableRequest`; None for those of the metastore, or those that the footers of
            Parquet files have.
        partition_by: the partition fields; None for those of the metastore, or the names of the folders `name=value`.
        location: the location of a snapshot; None leaves the choice to the catalog.
        rewrite_unfit: whether the rows of files that readers would misread are written into new files of the table.
    """

    source: str | None = None
    schema: Mapping[str, Any] | Schema | None = None
    partition_by: Sequence[str | PartitionField] | None = None
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    rewrite_unfit: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTable:
    """A table that could be created: its files were checked, and nothing was written.

    Attributes:
        metadata: as it will be, without the files.
        found: the files with rows: their entries, and those that are written anew.
        listed: all files of a metastore's table.
    """

    metadata: TableMetadata
    found: CheckedFiles
    listed: tuple[ExistingFile, ...] = ()


def snapshot_table(
    catalog: Catalog, table: TableId, request: NewTableRequest, *, operation_key: OperationKey | None = None
) -> tuple[OpenTable, WriteResult]:
    """Make a table at a location of its own, of files that stay the source's: no expiry deletes them (`gc.enabled`).

    Raises:
        AlreadyExistsError: the name is taken.
        InvalidInputError: the location is that of the source; or as `add_files`; nothing was created.
    """
    if request.source is None:
        raise InvalidInputError(
            f"the snapshot {table} needs a source: the location of a folder, or the name of a table"
        )
    own = {TableProperties.gc_enabled.name: "false", **_SNAPSHOT, **created_by(operation_key)}
    request = replace(request, properties={**request.properties, **own})
    state = of_earlier_try(catalog, table, operation_key)
    if state is None:
        planned = _planned_snapshot(catalog, table, request)
        # A server that chooses the location is asked for it, by creating the table without files.
        created = CreateTableRequest(
            schema=planned.metadata.schema(),
            partition_by=planned.metadata.spec().fields,
            location=request.location,
            properties=request.properties,
        )
        state = create_table(catalog, table, created)
    opened = OpenTable(state, io=state.io or catalog.io, catalog=catalog)
    # The footers are read once more, now through the gate of the table that there is.
    added = AddFilesRequest(source=request.source, rewrite_unfit=request.rewrite_unfit)
    return opened, add_files(Work(opened, operation_key=operation_key), added)


def _planned_snapshot(catalog: Catalog, table: TableId, request: NewTableRequest) -> PlannedTable:
    assert request.source is not None
    location = request.location or catalog.default_location(table)
    if is_table_name(request.source):
        found = existing_table(catalog, request.source)
        folders = [found.location, *(each.location for each in found.partitions)]
        check_apart(location, request.properties, request.source, folders)
        return plan_of_table(catalog, table, request, found)
    check_apart(location, request.properties, request.source, [absolute(request.source)])
    return _plan_of_folder(catalog, table, request)


def migrate_folder(
    catalog: Catalog, table: TableId, request: NewTableRequest, *, operation_key: OperationKey | None = None
) -> tuple[OpenTable, WriteResult]:
    """Make the folder itself the location of a table, which owns the files from then on; see `migrate_table`."""
    assert request.source is not None
    state = of_earlier_try(catalog, table, operation_key)
    if state is not None:
        return found_table(catalog, state, operation_key)
    folder = absolute(request.source).rstrip("/")
    planned = _plan_of_folder(catalog, table, migrated(request, folder, operation_key))
    return create_with_files(catalog, table, planned, operation_key)


def migrated(request: NewTableRequest, location: str, key: OperationKey | None) -> NewTableRequest:
    """Return the request for a table that has the location of its source.

    Raises:
        InvalidInputError: another location is given.
    """
    if request.location is not None:
        raise InvalidInputError("a migrated table has the location of its source; leave location out")
    return replace(request, location=location, properties={**request.properties, **_MIGRATED, **created_by(key)})


def created_by(key: OperationKey | None) -> dict[str, str]:
    """Return the property that tells a later try of this work that it has created the table."""
    return {} if key is None else {CREATED_BY: key.work}


def of_earlier_try(catalog: Catalog, table: TableId, key: OperationKey | None) -> TableState | None:
    """Return the table if an earlier try of this work has created it.

    Raises:
        AlreadyExistsError: it is another one.
    """
    if not catalog.table_exists(table):
        return None
    there = catalog.load(table)
    if key is None or there.metadata.properties.get(CREATED_BY) != key.work:
        raise AlreadyExistsError(f"table {table} exists already in catalog {catalog.name}; nothing was created")
    return there


def found_table(catalog: Catalog, state: TableState, key: OperationKey | None) -> tuple[OpenTable, WriteResult]:
    """Return what an earlier try has created with its files, in one step.

    Its folder has files of other writers since, so that a cleared task does not take the files of its folder again.
    """
    assert key is not None
    table = str(state.table)
    landed = find_landed(state.metadata, key, MAIN_BRANCH)
    earlier = [] if landed is not None else find_earlier_epochs(state.metadata, key, MAIN_BRANCH)
    snapshot = landed or next(iter(earlier), None)
    outcome = Outcome.SKIPPED if earlier else Outcome.FOUND
    result = (
        WriteResult(table=table, branch=MAIN_BRANCH, outcome=outcome, operation_key=str(key))
        if snapshot is None
        else WriteResult.of([snapshot], table=table, branch=MAIN_BRANCH, outcome=outcome)
    )
    return OpenTable(state, io=state.io or catalog.io, catalog=catalog), result


def create_with_files(
    catalog: Catalog, table: TableId, planned: PlannedTable, key: OperationKey | None
) -> tuple[OpenTable, WriteResult]:
    """Create a table that has its files from the first moment on: nobody sees it without them.

    Raises:
        AlreadyExistsError: the name is taken, and not by an earlier try of this work.
        CommitUnknownError: cannot tell whether the table was created; nothing was deleted.
    """
    metadata, target = planned.metadata, target_of(planned.metadata)
    io = catalog.gate(table, metadata, "").around(catalog.io)
    settings = settings_for(metadata, operation_key=key, try_number=(key.try_number if key else None) or 1)
    settings = replace(settings, properties={**settings.properties, EXISTING_FILES: "true"})
    rewritten = _rewritten(io, planned, target, key)
    paths = [file.file_path for file in rewritten]
    files = (*planned.found.fit, *rewritten)
    add = AddFiles(io, files, settings, written_schema=target.schema, place=place_of)
    action = with_name_mapping(add, target.name_mapping, planned=target.schema)
    try:
        change = action(metadata)
        filled = apply_change(metadata, change, now_ms=settings.now_ms(), base_location=None)
        state = catalog.create(table, filled)
    except CommitUnknownError:
        raise  # the table may need the manifests
    except AlreadyExistsError:
        there = catalog.load(table) if catalog.table_exists(table) else None
        if there is None or there.metadata.table_uuid != metadata.table_uuid:
            action.failed()
            staging.remove(catalog.io, paths)
            there = of_earlier_try(catalog, table, key)
            if there is None:
                raise
            return found_table(catalog, there, key)
        state = there  # it is this one: a first answer was lost, and the catalog's client has asked again
    except IcebergError:
        action.failed()
        # Not by the table's gate: a catalog may not let the table have this location at all.
        staging.remove(catalog.io, paths)
        raise
    action.succeeded(state.metadata)
    opened = OpenTable(state, io=state.io or catalog.io, catalog=catalog)
    return opened, describe(state, settings, Outcome.COMMITTED, action.made)


def _rewritten(io: FileIO, planned: PlannedTable, target: Target, key: OperationKey | None) -> tuple[DataFile, ...]:
    """Write the rows of files that do not fit into new ones.

    They lie in a folder that is skipped where a folder is listed: the table's location is that of the files, which a
    later try lists again if this one dies, and which other programs may go on reading.
    """
    unfit = planned.found.unfit
    if not unfit:
        return ()
    metadata, prefix = planned.metadata, staging.new_file_prefix(key, (key.try_number if key else None) or 1)
    folder = f"{metadata.location.rstrip('/')}/{REWRITTEN}"
    return rewrite(io, unfit, metadata, target, file_prefix=prefix, folder=folder)


# -- what the table would be -------------------------------------------------------------------------------------------


def _plan_of_folder(catalog: Catalog, table: TableId, request: NewTableRequest) -> PlannedTable:
    assert request.source is not None
    ignored = [f"{request.location}/metadata"] if request.location else []
    named = {
        str(term.name if isinstance(term, PartitionField) else term).lower() for term in request.partition_by or ()
    }
    io = _io_of_source(catalog, table, request.source, request.location)
    files = files_below(io, request.source, ignored=ignored, named=named)
    schema = _schema(io, request, files)
    terms = folder_names(files) if request.partition_by is None else request.partition_by
    metadata = _metadata(catalog, table, request, schema, terms)
    found = _checked(io, files, metadata, request)
    if metadata.location != _CHOSEN_LATER:
        check_files(catalog.gate(table, metadata, "").around(catalog.io), found.fit)
    return PlannedTable(metadata=metadata, found=found)


def plan_of_table(catalog: Catalog, table: TableId, request: NewTableRequest, found: ExistingTable) -> PlannedTable:
    """Return what a table of a metastore would be.

    The gate is asked before anything is listed: the metastore says where the partitions are, and not the user.

    Raises:
        InvalidInputError: a file does not fit, or is outside of the locations that the table may use.
    """
    if found.bucket_columns:
        # Differs from Java: Spark's procedures fail. Rows are read right without buckets.
        message = "%s has buckets of Hive, by %s, which %s does not keep: those of Iceberg have other hashes"
        log.warning(message, found.table, ", ".join(found.bucket_columns), table)
    schema = schema_from_shorthand(found.columns if request.schema is None else request.schema)
    terms = found.partition_columns if request.partition_by is None else request.partition_by
    metadata = _metadata(catalog, table, request, schema, terms)
    io = catalog.gate(table, metadata, "").around(catalog.io)
    listed = files_of_table(io, found, partitions_of(found), ignored=metadata_folders(metadata))
    return PlannedTable(metadata=metadata, found=_checked(io, listed, metadata, request), listed=tuple(listed))


def has_changed(catalog: Catalog, planned: PlannedTable, table: TableId, found: ExistingTable) -> bool:
    """Whether a table of a metastore has other files than when it was planned."""
    io = catalog.gate(table, planned.metadata, "").around(catalog.io)
    ignored = metadata_folders(planned.metadata)
    return tuple(files_of_table(io, found, partitions_of(found), ignored=ignored)) != planned.listed


def _checked(
    io: FileIO, files: Sequence[ExistingFile], metadata: TableMetadata, request: NewTableRequest
) -> CheckedFiles:
    """Check files against the table that would be; those that are written anew are read once, so that they can be."""
    target = target_of(metadata)
    found = check_existing(io, files, target, rewrite_unfit=request.rewrite_unfit)
    if found.unfit and metadata.properties.get(TableProperties.gc_enabled.name) == "false":
        # A snapshot is created before its files are added: nothing is created if one of them cannot be.
        for file in found.unfit:
            for _ in rows_of(io, file, target):
                pass
    report(metadata.location, files, found, target)
    return found


def _io_of_source(catalog: Catalog, table: TableId, source: str, location: str | None) -> FileIO:
    """Return access to the folder of a source, through the gate of the table that would be, before anything is listed.

    Args:
        location: that of the table; None leaves the choice to the catalog.
    Raises:
        InvalidInputError: the connection does not trust the location.
    """
    trusted = Trust.of(catalog.properties).prefixes
    place = location or catalog.default_location(table) or next(iter(trusted), "")
    if not place:
        # A server chooses the bucket, and tells it by the namespace. Once the table is made, its gate is asked again.
        place = catalog.load_namespace_properties(catalog.namespace_of(table)).get("location") or absolute(source)
    return catalog.gate_of_place(table, place).around(catalog.io)


def _schema(io: FileIO, request: NewTableRequest, files: Sequence[ExistingFile]) -> Schema:
    if request.schema is not None:
        return schema_from_shorthand(request.schema)
    return infer_schema(at_once(lambda file: columns_of(io, file), files), files)


def _metadata(
    catalog: Catalog,
    table: TableId,
    request: NewTableRequest,
    schema: Schema,
    terms: Sequence[str | PartitionField],
) -> TableMetadata:
    """Return the metadata that the table will have, to check the files with before there is a table."""
    metadata = new_table_metadata(
        location=request.location or catalog.new_location(table) or _CHOSEN_LATER,
        schema=schema,
        spec=spec_from_shorthand(terms, schema),
        properties=checked_properties(request.properties),
        table_uuid=str(uuid4()),
        now_ms=now_ms(),
    )
    check_writable(metadata, str(table))
    check_properties(metadata.properties)
    if request.location:
        catalog.check_place(table, metadata.location)
    return metadata
