"""What a change expects of the table it is applied to: the requirements of a commit.

Here: the conditions and their checks. Not here: the updates (`updates`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from airflow_iceberg.errors import CommitConflictError, IncompatibleChangeError, TableReplacedError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata


def is_same_table(metadata: TableMetadata, table_uuid: str | None) -> bool:
    """Whether the table has this uuid; one without may have got it from another writer's commit.

    Spec: Table Metadata Fields, `table-uuid`: an error must be raised if it is another one after a refresh.
    """
    return not table_uuid or (metadata.table_uuid or "").lower() == table_uuid.lower()


def check_same_table(metadata: TableMetadata, table_uuid: str | None, table: object = None) -> None:
    """Check that the table is the one that was loaded, or planned for.

    Args:
        table: its name; None if only its location is known.

    Raises:
        TableReplacedError: another table has its name.
    """
    if not is_same_table(metadata, table_uuid):
        raise replaced(table or metadata.location, found=metadata.table_uuid, expected=table_uuid)


def replaced(table: object, *, found: str | None, expected: str | None) -> TableReplacedError:
    """Return the error for another table that has the name of the one that was loaded; with the uuids of both."""
    return TableReplacedError(
        f"table {table} was replaced: another table has its name, with uuid {found}, expected {expected}; nothing was "
        f"committed to the new one, load the table by its name to work on that"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """A condition that a table must meet for a change to be applied."""

    type: ClassVar[str] = ""

    def check(self, metadata: TableMetadata | None) -> None:
        """Check the table; None stands for no table.

        Raises:
            CommitConflictError: the condition is not met.
            IncompatibleChangeError: the condition will never be met again.
        """
        if metadata is None:
            raise CommitConflictError(f"requirement failed: {self.type}: the table does not exist")
        problem = self._problem(metadata)
        if problem is not None:
            raise CommitConflictError(
                f"requirement failed: {problem}; table {metadata.location} was changed by another writer"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the form of the REST protocol."""
        return {"type": self.type} | {item.name.replace("_", "-"): getattr(self, item.name) for item in fields(self)}

    def _problem(self, metadata: TableMetadata) -> str | None:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertCreate(Requirement):
    """The table does not exist yet."""

    type: ClassVar[str] = "assert-create"

    def check(self, metadata: TableMetadata | None) -> None:
        if metadata is not None:
            raise IncompatibleChangeError(f"requirement failed: table {metadata.location} exists already")


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertTableUUID(Requirement):
    """The name still belongs to the same table; a table that was replaced never comes back."""

    type: ClassVar[str] = "assert-table-uuid"
    uuid: str

    def check(self, metadata: TableMetadata | None) -> None:
        if metadata is None:
            raise IncompatibleChangeError(
                f"requirement failed: the table with uuid {self.uuid} does not exist any more"
            )
        if (metadata.table_uuid or "").lower() != (self.uuid or "").lower():
            raise IncompatibleChangeError(
                f"requirement failed: the table has uuid {metadata.table_uuid}, expected {self.uuid}; "
                f"table {metadata.location} was replaced by another one"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertRefSnapshotId(Requirement):
    """A branch or tag still points to the same snapshot.

    Attributes:
        snapshot_id: the snapshot of the branch or tag; None means that it must not exist.
    """

    type: ClassVar[str] = "assert-ref-snapshot-id"
    ref: str
    snapshot_id: int | None

    def _problem(self, metadata: TableMetadata) -> str | None:
        found = metadata.refs.get(self.ref)
        if (None if found is None else found.snapshot_id) == self.snapshot_id:
            return None
        if found is None:
            return f"branch {self.ref!r} does not exist, expected at snapshot {self.snapshot_id}"
        kind = "branch" if found.is_branch else "tag"
        expected = "none" if self.snapshot_id is None else self.snapshot_id
        return f"{kind} {self.ref!r} is at snapshot {found.snapshot_id}, expected {expected}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _SameId(Requirement):
    """An id in the metadata is still the same; the only field of a subclass is the expected id.

    Attributes:
        found_in: the attribute of TableMetadata.
        what: the id in error messages.
    """

    found_in: ClassVar[str] = ""
    what: ClassVar[str] = ""

    def _problem(self, metadata: TableMetadata) -> str | None:
        found, expected = getattr(metadata, self.found_in), getattr(self, fields(self)[0].name)
        return None if found == expected else f"the {self.what} is {found}, expected {expected}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertLastAssignedFieldId(_SameId):
    """No column was added."""

    type: ClassVar[str] = "assert-last-assigned-field-id"
    found_in: ClassVar[str] = "last_column_id"
    what: ClassVar[str] = "last assigned field id"
    last_assigned_field_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertCurrentSchemaId(_SameId):
    """The current schema is the same."""

    type: ClassVar[str] = "assert-current-schema-id"
    found_in: ClassVar[str] = "current_schema_id"
    what: ClassVar[str] = "current schema id"
    current_schema_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertLastAssignedPartitionId(_SameId):
    """No partition field was added."""

    type: ClassVar[str] = "assert-last-assigned-partition-id"
    found_in: ClassVar[str] = "last_partition_id"
    what: ClassVar[str] = "last assigned partition id"
    last_assigned_partition_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertDefaultSpecId(_SameId):
    """The default partition spec is the same."""

    type: ClassVar[str] = "assert-default-spec-id"
    found_in: ClassVar[str] = "default_spec_id"
    what: ClassVar[str] = "default partition spec id"
    default_spec_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertDefaultSortOrderId(_SameId):
    """The default sort order is the same."""

    type: ClassVar[str] = "assert-default-sort-order-id"
    found_in: ClassVar[str] = "default_sort_order_id"
    what: ClassVar[str] = "default sort order id"
    default_sort_order_id: int
