"""Changes of a table as data: updates, and the requirements under which they may be applied.

Here: each update with its REST form and its effect, and `apply_change`. Not here: the rules that the effects share
(`builder`), the requirements (`requirements`), and how a change is committed (`commit`, `catalogs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from airflow_iceberg.errors import check_storable, check_text
from airflow_iceberg.format.metadata.builder import LAST_ADDED, MetadataBuilder
from airflow_iceberg.format.metadata.requirements import Requirement
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

    def _body(self) -> dict[str, Any]:
        return {item.name.replace("_", "-"): _to_json(getattr(self, item.name)) for item in fields(self)}

    def apply(self, table: MetadataBuilder) -> None:
        """Change the table.

        Raises:
            InvalidInputError: it contradicts the table or the specification.
            CommitConflictError: it was made for an older version of the table.
        """
        raise NotImplementedError


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return value.to_dict() if hasattr(value, "to_dict") else value


@dataclass(frozen=True, kw_only=True, slots=True)
class AssignUUID(Update):
    """Give the table its identity."""

    action: ClassVar[str] = "assign-uuid"
    uuid: str

    def apply(self, table: MetadataBuilder) -> None:
        table.table_uuid = self.uuid


@dataclass(frozen=True, kw_only=True, slots=True)
class UpgradeFormatVersion(Update):
    """Raise the format version."""

    action: ClassVar[str] = "upgrade-format-version"
    format_version: int

    def apply(self, table: MetadataBuilder) -> None:
        table.upgrade(self.format_version)


@dataclass(frozen=True, kw_only=True, slots=True)
class AddSchema(Update):
    """Add a schema; the table chooses its id, and reuses an equal schema."""

    action: ClassVar[str] = "add-schema"
    schema: Schema

    def __post_init__(self) -> None:
        for column_id, column in self.schema.fields_by_id.items():
            check_text(f"the comment of column {column_id}", column.doc or "")

    def apply(self, table: MetadataBuilder) -> None:
        table.add_schema(self.schema)

    def _body(self) -> dict[str, Any]:
        # Deprecated, but older servers still require it.
        return {"schema": self.schema.to_dict(), "last-column-id": self.schema.highest_field_id}


@dataclass(frozen=True, kw_only=True, slots=True)
class SetCurrentSchema(Update):
    """Make a schema the current one; LAST_ADDED is the schema that this change added last."""

    action: ClassVar[str] = "set-current-schema"
    schema_id: int = LAST_ADDED

    def apply(self, table: MetadataBuilder) -> None:
        table.set_current_schema(self.schema_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class AddPartitionSpec(Update):
    """Add a partition spec; the table chooses its id, and reuses an equal spec."""

    action: ClassVar[str] = "add-spec"
    spec: PartitionSpec

    def apply(self, table: MetadataBuilder) -> None:
        table.add_spec(self.spec)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetDefaultSpec(Update):
    """Make a partition spec the default; LAST_ADDED is the spec that this change added last."""

    action: ClassVar[str] = "set-default-spec"
    spec_id: int = LAST_ADDED

    def apply(self, table: MetadataBuilder) -> None:
        table.set_default_spec(self.spec_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class AddSortOrder(Update):
    """Add a sort order; the table chooses its id, and reuses an equal order."""

    action: ClassVar[str] = "add-sort-order"
    sort_order: SortOrder

    def apply(self, table: MetadataBuilder) -> None:
        table.add_sort_order(self.sort_order)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetDefaultSortOrder(Update):
    """Make a sort order the default; LAST_ADDED is the order that this change added last."""

    action: ClassVar[str] = "set-default-sort-order"
    sort_order_id: int = LAST_ADDED

    def apply(self, table: MetadataBuilder) -> None:
        table.set_default_sort_order(self.sort_order_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class AddSnapshot(Update):
    """Add a snapshot; no branch points to it yet."""

    action: ClassVar[str] = "add-snapshot"
    snapshot: Snapshot

    def __post_init__(self) -> None:
        check_storable("of the snapshot", self.snapshot.summary)

    def apply(self, table: MetadataBuilder) -> None:
        table.add_snapshot(self.snapshot)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetSnapshotRef(Update):
    """Create or move a branch or tag."""

    action: ClassVar[str] = "set-snapshot-ref"
    ref_name: str
    ref: SnapshotRef

    def __post_init__(self) -> None:
        check_text("the name of a branch or tag", self.ref_name, is_name=True)

    def apply(self, table: MetadataBuilder) -> None:
        table.set_ref(self.ref_name, self.ref)

    def _body(self) -> dict[str, Any]:
        return {"ref-name": self.ref_name, **self.ref.to_dict()}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveSnapshots(Update):
    """Remove snapshots, with the branches, tags and statistics that refer to them."""

    action: ClassVar[str] = "remove-snapshots"
    snapshot_ids: tuple[int, ...]

    def apply(self, table: MetadataBuilder) -> None:
        table.remove_snapshots(self.snapshot_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveSchemas(Update):
    """Remove unused schemas."""

    action: ClassVar[str] = "remove-schemas"
    schema_ids: tuple[int, ...]

    def apply(self, table: MetadataBuilder) -> None:
        table.remove_schemas(self.schema_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovePartitionSpecs(Update):
    """Remove unused partition specs."""

    action: ClassVar[str] = "remove-partition-specs"
    spec_ids: tuple[int, ...]

    def apply(self, table: MetadataBuilder) -> None:
        table.remove_specs(self.spec_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveSnapshotRef(Update):
    """Remove a branch or tag; its snapshots are kept."""

    action: ClassVar[str] = "remove-snapshot-ref"
    ref_name: str

    def apply(self, table: MetadataBuilder) -> None:
        table.remove_ref(self.ref_name)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetLocation(Update):
    """Set the location of new files; existing files are kept where they are."""

    action: ClassVar[str] = "set-location"
    location: str

    def apply(self, table: MetadataBuilder) -> None:
        table.location = self.location


@dataclass(frozen=True, kw_only=True, slots=True)
class SetProperties(Update):
    """Set table properties."""

    action: ClassVar[str] = "set-properties"
    updates: Mapping[str, str]

    def __post_init__(self) -> None:
        check_storable("of the table", self.updates)

    def apply(self, table: MetadataBuilder) -> None:
        table.set_properties(dict(self.updates))


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveProperties(Update):
    """Remove table properties, those that are set."""

    action: ClassVar[str] = "remove-properties"
    removals: tuple[str, ...]

    def apply(self, table: MetadataBuilder) -> None:
        for key in self.removals:
            table.properties.pop(key, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetStatistics(Update):
    """Set the statistics file of a snapshot.

    Attributes:
        statistics: the document of the table metadata, with `snapshot-id`.
    """

    action: ClassVar[str] = "set-statistics"
    snapshot_id: int
    statistics: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, table: MetadataBuilder) -> None:
        others = [s for s in table.statistics if s.get("snapshot-id") != self.snapshot_id]
        table.statistics = [*others, self.statistics]


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The updates of a table, and the requirements that it must meet."""

    updates: tuple[Update, ...] = ()
    requirements: tuple[Requirement, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the body of a commit in the REST protocol, without the table's name."""
        return {
            "requirements": [r.to_dict() for r in self.requirements],
            "updates": [u.to_dict() for u in self.updates],
        }


def apply_change(base: TableMetadata, change: Change, *, now_ms: int, base_location: str | None) -> TableMetadata:
    """Return the table's next metadata; the base itself if the change changes nothing.

    Args:
        now_ms: the writer's clock; the table's time never goes backwards, even if this clock does.
        base_location: location of the base, for the metadata log; None if it is not stored.
    Raises:
        CommitConflictError: a requirement is not met; see `Requirement.check`.
        InvalidInputError: an update contradicts the table or the specification.
    Spec: Table Metadata; Sequence Numbers; Row Lineage.
    """
    for requirement in change.requirements:
        requirement.check(base)
    table = MetadataBuilder(base, now_ms=now_ms)
    for update in change.updates:
        update.apply(table)
    return table.finish(base_location)
