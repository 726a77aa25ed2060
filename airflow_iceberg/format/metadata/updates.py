"""Changes of a table as data: updates, and the requirements under which they may be applied.

Here: each update with its REST form and its effect, and `apply_change`. Not here: the rules that the effects share
(`draft`), the requirements (`requirements`, whose names are found here too), and how a change lands (`commit`,
`catalogs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_iceberg.format.metadata.draft import LAST_ADDED, Draft
from airflow_iceberg.format.metadata.requirements import (
    Requirement,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import SortOrder


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """One step of a change."""

    action: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the form of the REST protocol."""
        return {"action": self.action, **self._body()}

    def apply(self, draft: Draft) -> None:
        """Make the step.

        Raises:
            InvalidInputError: it contradicts the table or the specification.
            CommitConflictError: it was made for an older version of the table.
        """
        raise NotImplementedError

    def _body(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class AssignUUID(Update):
    """Give the table its identity."""

    action: ClassVar[str] = "assign-uuid"
    uuid: str

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.table_uuid = self.uuid

    def _body(self) -> dict[str, Any]:
        return {"uuid": self.uuid}


@dataclass(frozen=True, kw_only=True, slots=True)
class UpgradeFormatVersion(Update):
    """Go to a later format version."""

    action: ClassVar[str] = "upgrade-format-version"
    format_version: int

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.upgrade(self.format_version)

    def _body(self) -> dict[str, Any]:
        return {"format-version": self.format_version}


@dataclass(frozen=True, kw_only=True, slots=True)
class AddSchema(Update):
    """Add a schema; its id is chosen by the table, and an equal schema is reused."""

    action: ClassVar[str] = "add-schema"
    schema: Schema

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.add_schema(self.schema)

    def _body(self) -> dict[str, Any]:
        # Deprecated, and still asked for by older servers.
        return {"schema": self.schema.to_dict(), "last-column-id": self.schema.highest_field_id}


@dataclass(frozen=True, kw_only=True, slots=True)
class SetCurrentSchema(Update):
    """Make a schema the current one; LAST_ADDED means the one that this change added last."""

    action: ClassVar[str] = "set-current-schema"
    schema_id: int = LAST_ADDED

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.set_current_schema(self.schema_id)

    def _body(self) -> dict[str, Any]:
        return {"schema-id": self.schema_id}


@dataclass(frozen=True, kw_only=True, slots=True)
class AddPartitionSpec(Update):
    """Add a partition spec; its id is chosen by the table, and an equal spec is reused."""

    action: ClassVar[str] = "add-spec"
    spec: PartitionSpec

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.add_spec(self.spec)

    def _body(self) -> dict[str, Any]:
        return {"spec": self.spec.to_dict()}


@dataclass(frozen=True, kw_only=True, slots=True)
class SetDefaultSpec(Update):
    """Make a partition spec the one to write with; LAST_ADDED means the one that this change added last."""

    action: ClassVar[str] = "set-default-spec"
    spec_id: int = LAST_ADDED

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.set_default_spec(self.spec_id)

    def _body(self) -> dict[str, Any]:
        return {"spec-id": self.spec_id}


@dataclass(frozen=True, kw_only=True, slots=True)
class AddSortOrder(Update):
    """Add a sort order; its id is chosen by the table, and an equal order is reused."""

    action: ClassVar[str] = "add-sort-order"
    sort_order: SortOrder

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.add_sort_order(self.sort_order)

    def _body(self) -> dict[str, Any]:
        return {"sort-order": self.sort_order.to_dict()}


@dataclass(frozen=True, kw_only=True, slots=True)
class SetDefaultSortOrder(Update):
    """Make a sort order the one to write with; LAST_ADDED means the one that this change added last."""

    action: ClassVar[str] = "set-default-sort-order"
    sort_order_id: int = LAST_ADDED

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.set_default_sort_order(self.sort_order_id)

    def _body(self) -> dict[str, Any]:
        return {"sort-order-id": self.sort_order_id}


@dataclass(frozen=True, kw_only=True, slots=True)
class AddSnapshot(Update):
    """Add a snapshot, which no branch points to yet."""

    action: ClassVar[str] = "add-snapshot"
    snapshot: Snapshot

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.add_snapshot(self.snapshot)

    def _body(self) -> dict[str, Any]:
        return {"snapshot": self.snapshot.to_dict()}


@dataclass(frozen=True, kw_only=True, slots=True)
class SetSnapshotRef(Update):
    """Create or move a branch or tag."""

    action: ClassVar[str] = "set-snapshot-ref"
    ref_name: str
    ref: SnapshotRef

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.set_ref(self.ref_name, self.ref)

    def _body(self) -> dict[str, Any]:
        return {"ref-name": self.ref_name, **self.ref.to_dict()}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveSnapshots(Update):
    """Remove snapshots, and with them what points to them."""

    action: ClassVar[str] = "remove-snapshots"
    snapshot_ids: tuple[int, ...]

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.remove_snapshots(self.snapshot_ids)

    def _body(self) -> dict[str, Any]:
        return {"snapshot-ids": list(self.snapshot_ids)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveSchemas(Update):
    """Forget schemas that nothing uses any more."""

    action: ClassVar[str] = "remove-schemas"
    schema_ids: tuple[int, ...]

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.remove_schemas(self.schema_ids)

    def _body(self) -> dict[str, Any]:
        return {"schema-ids": list(self.schema_ids)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovePartitionSpecs(Update):
    """Forget partition specs that no file is of any more."""

    action: ClassVar[str] = "remove-partition-specs"
    spec_ids: tuple[int, ...]

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.remove_specs(self.spec_ids)

    def _body(self) -> dict[str, Any]:
        return {"spec-ids": list(self.spec_ids)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveSnapshotRef(Update):
    """Remove a branch or tag; its snapshots stay."""

    action: ClassVar[str] = "remove-snapshot-ref"
    ref_name: str

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.remove_ref(self.ref_name)

    def _body(self) -> dict[str, Any]:
        return {"ref-name": self.ref_name}


@dataclass(frozen=True, kw_only=True, slots=True)
class SetLocation(Update):
    """Write new files elsewhere; what is there stays."""

    action: ClassVar[str] = "set-location"
    location: str

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.location = self.location

    def _body(self) -> dict[str, Any]:
        return {"location": self.location}


@dataclass(frozen=True, kw_only=True, slots=True)
class SetProperties(Update):
    """Set table properties."""

    action: ClassVar[str] = "set-properties"
    updates: Mapping[str, str]

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        draft.set_properties(dict(self.updates))

    def _body(self) -> dict[str, Any]:
        return {"updates": dict(self.updates)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveProperties(Update):
    """Remove table properties, those that are there."""

    action: ClassVar[str] = "remove-properties"
    removals: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        for key in self.removals:
            draft.properties.pop(key, None)

    def _body(self) -> dict[str, Any]:
        return {"removals": list(self.removals)}


@dataclass(frozen=True, kw_only=True, slots=True)
class SetStatistics(Update):
    """Name the statistics file of a snapshot.

    Attributes:
        statistics: the document as it stands in table metadata, `snapshot-id` included.
    """

    action: ClassVar[str] = "set-statistics"
    snapshot_id: int
    statistics: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, draft: Draft) -> None:
        """See `Update.apply`."""
        others = [s for s in draft.statistics if s.get("snapshot-id") != self.snapshot_id]
        draft.statistics = [*others, self.statistics]

    def _body(self) -> dict[str, Any]:
        return {"snapshot-id": self.snapshot_id, "statistics": dict(self.statistics)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What to do, and what the table must be like for it."""

    updates: tuple[Update, ...] = ()
    requirements: tuple[Requirement, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the body of a commit in the REST protocol, without the table's name."""
        return {
            "requirements": [r.to_dict() for r in self.requirements],
            "updates": [u.to_dict() for u in self.updates],
        }


def apply_change(base: TableMetadata, change: Change, *, now_ms: int, base_location: str | None) -> TableMetadata:
    """Return the table's next metadata; the base itself when the change changes nothing.

    Args:
        now_ms: the writer's clock; the table's own time never goes backwards whatever it says.
        base_location: where the base is kept, for the metadata log; None when it is not kept anywhere.
    Raises:
        CommitConflictError: a requirement is not met; see `Requirement.check`.
        InvalidInputError: an update contradicts the table or the specification.
    Spec: Table Metadata; Sequence Numbers; Row Lineage.
    """
    for requirement in change.requirements:
        requirement.check(base)
    draft = Draft(base, now_ms=now_ms)
    for update in change.updates:
        update.apply(draft)
    return draft.finish(base_location)
