"""A new Iceberg table of the files of a folder: a snapshot of it beside them, or the folder itself, migrated.

All files are checked before the table is created. No catalog knows the source: tables of a Hive Metastore are not taken
over. Names are those of Iceberg's procedures `snapshot` and `migrate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import CREATED_BY, OperationKey
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.data.existing.inferred_schema import columns_of, folder_names, infer_schema
from airflow_iceberg.data.existing.target import ExistingFile
from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.partitions.spec import PartitionField, spec_from_shorthand
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.operations.add_files import (
    AddFilesRequest,
    add_files,
    at_once,
    described,
    target_of,
)
from airflow_iceberg.operations.create_table import CreateTableRequest, create_table
from airflow_iceberg.operations.existing.listing import absolute, check_files, files_below
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.gate import place_of

# As Iceberg Java marks such tables.
_SNAPSHOT, _MIGRATED = {"snapshot": "true"}, {"migrated": "true"}


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTableRequest:
    """What becomes a table.

    Attributes:
        source: a folder: all files below it.
        schema: the columns, as for `CreateTableRequest`; None infers them from the footers of Parquet files.
        partition_by: the partition fields; None for the names of the folders `name=value`.
        location: the location of a snapshot; None leaves the choice to the catalog.
    """

    source: str
    schema: Mapping[str, Any] | Schema | None = None
    partition_by: Sequence[str | PartitionField] | None = None
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def snapshot_table(
    catalog: Catalog, table: TableId, request: NewTableRequest, *, operation_key: OperationKey | None = None
) -> tuple[OpenTable, WriteResult]:
    """Make a table at a location of its own, of files that stay the source's: no expiry deletes them (`gc.enabled`).

    Raises:
        AlreadyExistsError: the name is taken.
        InvalidInputError: the location is that of the source; or as `add_files`; nothing was created.
    """
    location = request.location or catalog.default_location(table)
    if location and place_of(location).is_below(place_of(absolute(request.source))):
        raise InvalidInputError(
            f"the location of the new table, {location}, is in the folder of its source, {request.source}; choose "
            f"another one, or migrate the folder"
        )
    own = {TableProperties.gc_enabled.name: "false", **_SNAPSHOT}
    return _new_table(catalog, table, replace(request, properties={**request.properties, **own}), operation_key)


def migrate_table(
    catalog: Catalog, table: TableId, request: NewTableRequest, *, operation_key: OperationKey | None = None
) -> tuple[OpenTable, WriteResult]:
    """Make the folder itself the location of a table, which owns the files from then on.

    Raises:
        AlreadyExistsError: the name is taken.
        InvalidInputError: a location is given; or as `add_files`; nothing was created.
    """
    if request.location is not None:
        raise InvalidInputError("a migrated table has the location of its source; leave location out")
    own = replace(
        request,
        location=absolute(request.source).rstrip("/"),
        properties={**request.properties, **_MIGRATED},
    )
    return _new_table(catalog, table, own, operation_key)


def _new_table(
    catalog: Catalog, table: TableId, request: NewTableRequest, key: OperationKey | None
) -> tuple[OpenTable, WriteResult]:
    state = _of_earlier_try(catalog, table, key)
    if state is None:
        ignored = [f"{request.location}/metadata"] if request.location else []
        files = files_below(catalog.io, request.source, ignored=ignored)
        schema = _schema(catalog, request, files)
        terms = folder_names(files) if request.partition_by is None else request.partition_by
        wanted = _planned(catalog, table, request, schema, terms)
        entries = list(described(catalog.io, files, target_of(wanted)))
        _check_places(catalog, table, wanted, entries)
        mark = {} if key is None else {CREATED_BY: key.work}
        created = CreateTableRequest(
            schema=schema,
            partition_by=terms,
            location=request.location,
            properties={**request.properties, **mark},
        )
        state = create_table(catalog, table, created)
    opened = OpenTable(state, io=state.io or catalog.io, catalog=catalog)
    # The footers are read once more, now through the gate of the table that there is.
    return opened, add_files(Work(opened, operation_key=key), AddFilesRequest(source=request.source))


def _of_earlier_try(catalog: Catalog, table: TableId, key: OperationKey | None) -> TableState | None:
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


def _schema(catalog: Catalog, request: NewTableRequest, files: Sequence[ExistingFile]) -> Schema:
    if request.schema is not None:
        return schema_from_shorthand(request.schema)
    return infer_schema(at_once(lambda file: columns_of(catalog.io, file), files), files)


def _planned(
    catalog: Catalog,
    table: TableId,
    request: NewTableRequest,
    schema: Schema,
    terms: Sequence[str | PartitionField],
) -> TableMetadata:
    """Return the metadata that the table will have, to check the files with before there is a table."""
    return new_table_metadata(
        location=request.location or catalog.default_location(table) or "memory://planned",
        schema=schema,
        spec=spec_from_shorthand(terms, schema),
        properties=dict(request.properties),
        table_uuid=str(uuid4()),
        now_ms=now_ms(),
    )


def _check_places(catalog: Catalog, table: TableId, wanted: TableMetadata, files: Sequence[DataFile]) -> None:
    """Refuse files that the table could not use; a server that chooses the location is asked when there is one."""
    if wanted.location != "memory://planned":
        check_files(catalog.gate(table, wanted, "").around(catalog.io), files)
