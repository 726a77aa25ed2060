"""What a change expects of the table it is applied to: the requirements of a commit.

Here: the conditions and their checks. Not here: the updates (`changes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_iceberg.errors import CommitConflictError, IncompatibleChangeError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """A condition that a table must meet for a change to be applied."""

    type: ClassVar[str] = ""

    def check(self, metadata: TableMetadata | None) -> None:
        """Check the table; None stands for no table.

        Raises:
            CommitConflictError: the condition is not met.
            IncompatibleChangeError: and never will be.
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
        return {"type": self.type}

    def _problem(self, metadata: TableMetadata) -> str | None:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertCreate(Requirement):
    """There is no such table yet."""

    type: ClassVar[str] = "assert-create"

    def check(self, metadata: TableMetadata | None) -> None:
        """See `Requirement.check`."""
        if metadata is not None:
            raise IncompatibleChangeError(f"requirement failed: table {metadata.location} exists already")


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertTableUUID(Requirement):
    """It is still the same table."""

    type: ClassVar[str] = "assert-table-uuid"
    uuid: str

    def check(self, metadata: TableMetadata | None) -> None:
        """See `Requirement.check`; a table that was replaced under its name never becomes the old one again."""
        if metadata is None:
            raise IncompatibleChangeError(
                f"requirement failed: the table with uuid {self.uuid} does not exist any more"
            )
        if (metadata.table_uuid or "").lower() != (self.uuid or "").lower():
            raise IncompatibleChangeError(
                f"requirement failed: the table has uuid {metadata.table_uuid}, expected {self.uuid}; "
                f"table {metadata.location} was replaced by another one"
            )

    def to_dict(self) -> dict[str, Any]:
        """See `Requirement.to_dict`."""
        return {"type": self.type, "uuid": self.uuid}


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertRefSnapshotId(Requirement):
    """A branch or tag is where it was.

    Attributes:
        snapshot_id: None means that it must not exist.
    """

    type: ClassVar[str] = "assert-ref-snapshot-id"
    ref: str
    snapshot_id: int | None

    def to_dict(self) -> dict[str, Any]:
        """See `Requirement.to_dict`."""
        return {"type": self.type, "ref": self.ref, "snapshot-id": self.snapshot_id}

    def _problem(self, metadata: TableMetadata) -> str | None:
        found = metadata.refs.get(self.ref)
        kind = "branch" if found is None or found.is_branch else "tag"
        if found is None:
            return (
                None
                if self.snapshot_id is None
                else f"{kind} {self.ref!r} does not exist, expected at snapshot {self.snapshot_id}"
            )
        if found.snapshot_id == self.snapshot_id:
            return None
        expected = "none" if self.snapshot_id is None else self.snapshot_id
        return f"{kind} {self.ref!r} is at snapshot {found.snapshot_id}, expected {expected}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertLastAssignedFieldId(Requirement):
    """No column was added."""

    type: ClassVar[str] = "assert-last-assigned-field-id"
    last_assigned_field_id: int

    def to_dict(self) -> dict[str, Any]:
        """See `Requirement.to_dict`."""
        return {"type": self.type, "last-assigned-field-id": self.last_assigned_field_id}

    def _problem(self, metadata: TableMetadata) -> str | None:
        return _differs("last assigned field id", metadata.last_column_id, self.last_assigned_field_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertCurrentSchemaId(Requirement):
    """The current schema is the same."""

    type: ClassVar[str] = "assert-current-schema-id"
    current_schema_id: int

    def to_dict(self) -> dict[str, Any]:
        """See `Requirement.to_dict`."""
        return {"type": self.type, "current-schema-id": self.current_schema_id}

    def _problem(self, metadata: TableMetadata) -> str | None:
        return _differs("current schema id", metadata.current_schema_id, self.current_schema_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertLastAssignedPartitionId(Requirement):
    """No partition field was added."""

    type: ClassVar[str] = "assert-last-assigned-partition-id"
    last_assigned_partition_id: int

    def to_dict(self) -> dict[str, Any]:
        """See `Requirement.to_dict`."""
        return {"type": self.type, "last-assigned-partition-id": self.last_assigned_partition_id}

    def _problem(self, metadata: TableMetadata) -> str | None:
        return _differs("last assigned partition id", metadata.last_partition_id, self.last_assigned_partition_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertDefaultSpecId(Requirement):
    """The partition spec to write with is the same."""

    type: ClassVar[str] = "assert-default-spec-id"
    default_spec_id: int

    def to_dict(self) -> dict[str, Any]:
        """See `Requirement.to_dict`."""
        return {"type": self.type, "default-spec-id": self.default_spec_id}

    def _problem(self, metadata: TableMetadata) -> str | None:
        return _differs("default partition spec id", metadata.default_spec_id, self.default_spec_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertDefaultSortOrderId(Requirement):
    """The sort order to write with is the same."""

    type: ClassVar[str] = "assert-default-sort-order-id"
    default_sort_order_id: int

    def to_dict(self) -> dict[str, Any]:
        """See `Requirement.to_dict`."""
        return {"type": self.type, "default-sort-order-id": self.default_sort_order_id}

    def _problem(self, metadata: TableMetadata) -> str | None:
        return _differs("default sort order id", metadata.default_sort_order_id, self.default_sort_order_id)


def _differs(what: str, found: int, expected: int) -> str | None:
    return None if found == expected else f"the {what} is {found}, expected {expected}"
