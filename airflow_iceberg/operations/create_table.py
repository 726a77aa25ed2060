"""Create a table: the request becomes metadata, which the catalog stores under a free name."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.commit.checks import check_writable
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    StorageError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.partitions.spec import PartitionField, spec_from_shorthand
from airflow_iceberg.format.properties.kinds import property_text
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.operations.alter_table import check_properties

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateTableRequest:
    """A new table.

    Attributes:
        schema: `{"id": "long not null", "ts": "timestamptz"}`, a Schema, or an Arrow schema.
        partition_by: `["day(ts)", "bucket(16, id)"]`.
        sort_by: `["ts desc nulls last"]`.
        location: the table's base location; None leaves the choice to the catalog.
        if_not_exists: whether an existing table is returned; a warning is logged when it is different.
    """

    schema: Mapping[str, Any] | Schema | pa.Schema
    partition_by: Sequence[str | PartitionField] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateTableResult(OperationResult):
    """What the creation of a table did; nothing, when the table existed."""

    table_uuid: str | None
    location: str
    metadata_location: str

    @classmethod
    def of(cls, state: TableState, *, outcome: str, operation_key: str | None = None) -> CreateTableResult:
        """Describe a table that was created, or found."""
        return cls(
            table=str(state.table),
            outcome=Outcome(outcome),
            operation_key=operation_key,
            table_uuid=state.metadata.table_uuid,
            location=state.metadata.location,
            metadata_location=state.metadata_location,
        )


def create_table(catalog: Catalog, table: TableId, request: CreateTableRequest) -> TableState:
    """Create a table, and return its state.

    Raises:
        AlreadyExistsError: the name is taken.
        NotFoundError: no such namespace, or no such column for the partitioning or sorting.
        InvalidInputError: an unknown type or transform, a property with an invalid value, or a location that is
            another table's, or lies in or above one.
    """
    columns = schema_from_shorthand(request.schema)
    if not columns.fields:
        raise InvalidInputError(
            f"table {table} would have no columns; name them and their types, such as schema={{'id': 'long'}}"
        )
    metadata = new_table_metadata(
        location=(request.location or catalog.new_location(table)).rstrip("/"),
        schema=columns,
        spec=spec_from_shorthand(request.partition_by, columns),
        sort_order=sort_order_from_shorthand(request.sort_by, columns),
        properties=checked_properties(request.properties),
        table_uuid=str(uuid4()),
        now_ms=now_ms(),
    )
    check_writable(metadata, str(table))
    check_properties(metadata.properties)
    if request.location and not _is_there(catalog, table):
        catalog.check_place(table, metadata.location)
    try:
        return catalog.create(table, metadata)
    except AlreadyExistsError:
        if not request.if_not_exists:
            raise
        existing = catalog.load(table)
    except CommitUnknownError as error:
        # A lost answer: whoever has made the table, there is one now. An answer that is another table is told.
        if not request.if_not_exists or error.is_final:
            raise
        try:
            existing = catalog.load(table)
        except IcebergError:
            raise error from None
    _warn_if_different(existing.metadata, metadata, str(table))
    return existing


def _is_there(catalog: Catalog, table: TableId) -> bool:
    try:
        return catalog.table_exists(table)
    except StorageError as error:
        if not error.is_denied:
            raise
        return False  # who may create may not be allowed to look


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with texts as values; raises InvalidInputError."""
    if not isinstance(properties, Mapping):
        raise InvalidInputError(f"properties: expected names and values, got {type(properties).__name__}")
    return {str(name): property_text("properties", str(name), value) for name, value in properties.items()}


def _warn_if_different(there: TableMetadata, wanted: TableMetadata, name: str) -> None:
    """Warn when the existing table is not the one that was described."""
    pairs = {
        "columns": (str(there.schema()), str(wanted.schema())),
        "partitioning": (_terms(there.spec().fields), _terms(wanted.spec().fields)),
        "sort order": (_terms(there.sort_order().fields), _terms(wanted.sort_order().fields)),
    }
    other = [what for what, (left, right) in pairs.items() if left != right]
    if other:
        log.warning(
            "table %s already exists and is not changed; it has other %s than requested; alter it to change it",
            name,
            " and ".join(other),
        )


def _terms(fields: Sequence[Any]) -> list[tuple[str, int]]:
    return [(str(field.transform), field.source_id) for field in fields]
