"""Register a table: a metadata file becomes a table of a catalog, which refers to it from then on."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisterTableRequest:
    """Which metadata file becomes a table.

    Attributes:
        metadata_location: the location of the table's newest metadata file. Only one catalog may commit to the table.
    """

    metadata_location: str

    def __post_init__(self) -> None:
        if not self.metadata_location.split("?")[0].endswith((".metadata.json", ".metadata.json.gz")):
            raise InvalidInputError(
                f"metadata_location is {self.metadata_location!r}, expected the location of a metadata file such as "
                f"s3://bucket/table/metadata/00004-….metadata.json"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisterTableResult(OperationResult):
    """What a registration did; found, when the catalog had the table with this metadata already."""

    table_uuid: str | None
    location: str
    metadata_location: str

    @classmethod
    def of(cls, state: TableState, *, outcome: Outcome, operation_key: str | None = None) -> RegisterTableResult:
        """Describe a table that is registered."""
        return cls(
            table=str(state.table),
            outcome=outcome,
            operation_key=operation_key,
            table_uuid=state.metadata.table_uuid,
            location=state.metadata.location,
            metadata_location=state.metadata_location,
        )


def register_table(catalog: Catalog, table: TableId, request: RegisterTableRequest) -> tuple[TableState, Outcome]:
    """Register a table, and return its state, and whether it was registered by this call.

    A table of this name that has grown out of the same metadata file is found: an earlier try has registered it.

    Raises:
        AlreadyExistsError: the name is that of another table.
        NotFoundError: no such namespace or metadata file.
        InvalidInputError: the connection does not trust the location of the file, or of the table.
        UnsupportedError: the catalog has no pointers (Hadoop).
    """
    try:
        return catalog.register_table(table, request.metadata_location), Outcome.COMMITTED
    except AlreadyExistsError:
        there = catalog.load(table)
        known = {there.metadata_location, *(location for _, location in there.metadata.metadata_log)}
        if request.metadata_location not in known:
            raise
        return there, Outcome.FOUND
