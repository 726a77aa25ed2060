"""Create a table: the request becomes metadata, which the catalog stores under a free name."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
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
from airflow_iceberg.operations.reports.table_differences import table_differences

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

OnDifference = Literal["warn", "fail", "ignore"]
ON_DIFFERENCE: tuple[OnDifference, ...] = ("warn", "fail", "ignore")
MOST_TOLD = 20
"""How many differences of a table are told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateTableRequest:
    """A new table.

    Attributes:
        schema: `{"id": "long not null", "ts": "timestamptz"}`, a Schema, or an Arrow schema.
        partition_by: `["day(ts)", "bucket(16, id)"]`.
        sort_by: `["ts desc nulls last"]`.
        location: the table's base location; None leaves the choice to the catalog.
        if_not_exists: whether an existing table is returned.
        on_difference: what happens if that is another table than described: "warn" logs each difference, "fail" is an
            error that names them, "ignore" says nothing.
    """

    schema: Mapping[str, Any] | Schema | pa.Schema
    partition_by: Sequence[str | PartitionField] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    if_not_exists: bool = False
    on_difference: OnDifference = "warn"

    def __post_init__(self) -> None:
        if self.on_difference not in ON_DIFFERENCE:
            raise InvalidInputError(f"unknown on_difference {self.on_difference!r}; one of {', '.join(ON_DIFFERENCE)}")


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
        AlreadyExistsError: the name is taken, or `on_difference` is "fail" and the table is another one than described.
        NotFoundError: no such namespace, or no such column for the partitioning or sorting.
        InvalidInputError: an unknown type or transform, a property with an invalid value, or a location that is
            another table's, or lies in or above one.
    """
    metadata = _described(table, request, (request.location or catalog.new_location(table)).rstrip("/"))
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
        if metadata.table_uuid == existing.metadata.table_uuid:
            return existing
        try:
            tell_differences(existing, request)
        except AlreadyExistsError:
            raise error from None  # it may be this one, as its catalog has made it
        return existing
    tell_differences(existing, request)
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


def tell_differences(there: TableState, request: CreateTableRequest) -> None:
    """Say how a table that exists differs from what was asked for, in the way that the request says.

    Raises:
        AlreadyExistsError: it differs, and `on_difference` is "fail"; nothing was changed.
        InvalidInputError, NotFoundError: no such table could be created, as of `create_table`.
    """
    if request.on_difference == "ignore":
        return
    asked = _described(there.table, request, there.metadata.location)
    every = table_differences(there.metadata, asked, checked_properties(request.properties))
    found = [str(one) for one in islice(every, MOST_TOLD)]
    if next(every, None) is not None:
        found.append("and others")
    if found and request.on_difference == "fail":
        raise AlreadyExistsError(
            f"table {there.table} exists, and is not what was asked for: {' | '.join(found)} | alter the table, or "
            f"correct what is asked for, or set on_difference to 'warn' or 'ignore'"
        )
    for text in found:
        log.warning("table %s exists and was not changed: %s", there.table, text)


def _described(table: TableId, request: CreateTableRequest, location: str) -> TableMetadata:
    """Return the table that a request describes."""
    columns = schema_from_shorthand(request.schema)
    if not columns.fields:
        raise InvalidInputError(
            f"table {table} would have no columns; name them and their types, such as schema={{'id': 'long'}}"
        )
    return new_table_metadata(
        location=location,
        schema=columns,
        spec=spec_from_shorthand(request.partition_by, columns),
        sort_order=sort_order_from_shorthand(request.sort_by, columns),
        properties=checked_properties(request.properties),
        table_uuid=str(uuid4()),
        now_ms=now_ms(),
    )
