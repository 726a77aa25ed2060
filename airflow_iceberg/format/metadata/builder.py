"""The builder of table metadata, which updates change.

Here: the rules for every update: ids of equal parts are reused, main is the current snapshot, the logs have no holes,
time does not go backwards. Not here: the updates (`updates`) and the finished document (`table_metadata`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow_iceberg.errors import CommitConflictError, IncompatibleChangeError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.json_fields import MAX_INT, MAX_LONG
from airflow_iceberg.format.metadata.table_metadata import (
    RESERVED_PROPERTIES,
    SUPPORTED_FORMAT_VERSIONS,
    TableMetadata,
    check_fits,
    check_schema,
)
from airflow_iceberg.format.partitions.evolution import check_column_names
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import SortOrder

LAST_ADDED = -1
"""A placeholder for the id of the schema, spec or order that was added last in the same change."""


class MetadataBuilder:
    """A table's metadata between two versions; used only inside `apply_change`."""

    def __init__(self, base: TableMetadata, *, now_ms: int) -> None:
        self.base = base
        self.now_ms = now_ms
        self.format_version = base.format_version
        self.table_uuid = base.table_uuid
        self.location = base.location
        self.last_sequence_number = base.last_sequence_number
        self.last_column_id = base.last_column_id
        self.last_partition_id = base.last_partition_id
        self.next_row_id = base.next_row_id
        self.schemas = list(base.schemas)
        self.specs = list(base.partition_specs)
        self.orders = list(base.sort_orders)
        self.current_schema_id = base.current_schema_id
        self.default_spec_id = base.default_spec_id
        self.default_order_id = base.default_sort_order_id
        self.properties = dict(base.properties)
        self.snapshots = {snapshot.snapshot_id: snapshot for snapshot in base.snapshots}
        self.refs = dict(base.refs)
        self.statistics = list(base.statistics)
        self.snapshot_log = list(base.snapshot_log)
        self._added_snapshots: set[int] = set()
        self._removed_snapshots = False
        self._last_ids: dict[str, int] = {}

    # --- schemas, specs and orders ---

    def upgrade(self, version: int) -> None:
        """Raise the format version; existing files are kept."""
        if version not in SUPPORTED_FORMAT_VERSIONS:
            raise UnsupportedError(f"format version {version} is not supported (supported: 1, 2, 3)")
        if version < self.format_version:
            raise InvalidInputError(
                f"format version {self.format_version} of table {self.location} cannot be downgraded to {version}"
            )
        self.format_version = version
        if version >= 3 and self.next_row_id is None:
            self.next_row_id = 0

    def add_schema(self, schema: Schema) -> None:
        """Add a schema, unless there is an equal one."""
        check_schema(schema, self.format_version)
        self._add("schema", self.schemas, schema, "schema_id")
        self.last_column_id = max(self.last_column_id, schema.highest_field_id)

    def set_current_schema(self, schema_id: int) -> None:
        """Make a schema the current one."""
        self.current_schema_id = self._chosen("schema", schema_id, [s.schema_id for s in self.schemas])

    def add_spec(self, spec: PartitionSpec) -> None:
        """Add a partition spec, unless there is an equal one."""
        self._add("partition spec", self.specs, spec, "spec_id")
        self.last_partition_id = max([self.last_partition_id, *(f.field_id for f in spec.fields)])

    def set_default_spec(self, spec_id: int) -> None:
        """Make a partition spec the default one."""
        self.default_spec_id = self._chosen("partition spec", spec_id, [s.spec_id for s in self.specs])

    def remove_schemas(self, schema_ids: Sequence[int]) -> None:
        """Remove schemas; raises InvalidInputError for the current one."""
        if self.current_schema_id in schema_ids:
            raise InvalidInputError(f"cannot remove schema {self.current_schema_id}: it is the current one")
        self.schemas = [schema for schema in self.schemas if schema.schema_id not in set(schema_ids)]

    def remove_specs(self, spec_ids: Sequence[int]) -> None:
        """Remove partition specs; raises InvalidInputError for the default one."""
        if self.default_spec_id in spec_ids:
            raise InvalidInputError(f"cannot remove partition spec {self.default_spec_id}: it is the default one")
        self.specs = [spec for spec in self.specs if spec.spec_id not in set(spec_ids)]

    def add_sort_order(self, order: SortOrder) -> None:
        """Add a sort order, unless there is an equal one; order 0 is always the unsorted one."""
        if not order.fields and not any(known.order_id == 0 for known in self.orders):
            self.orders.append(replace(order, order_id=0))
        self._add("sort order", self.orders, order, "order_id", first_id=1)

    def set_default_sort_order(self, order_id: int) -> None:
        """Make a sort order the default one."""
        self.default_order_id = self._chosen("sort order", order_id, [o.order_id for o in self.orders])

    def _add(self, what: str, known: list[Any], new: Any, id_name: str, *, first_id: int = 0) -> None:
        same = next((getattr(item, id_name) for item in known if item.same_fields(new)), None)
        if same is None:
            same = max((getattr(item, id_name) for item in known), default=first_id - 1) + 1
            known.append(replace(new, **{id_name: same}))
        self._last_ids[what] = same

    def _chosen(self, what: str, wanted: int, known: Sequence[int]) -> int:
        if wanted == LAST_ADDED:
            if what not in self._last_ids:
                raise InvalidInputError(f"no {what} was added in this change: there is no last one")
            return self._last_ids[what]
        if wanted not in known:
            raise InvalidInputError(
                f"unknown {what} id {wanted}; table {self.location} has: {', '.join(map(str, known))}"
            )
        return wanted

    # --- snapshots and refs ---

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a snapshot; no branch points to it yet."""
        if snapshot.snapshot_id in self.snapshots:
            raise InvalidInputError(f"snapshot {snapshot.snapshot_id} is in table {self.location} already")
        if self.format_version > 1 and snapshot.parent_snapshot_id is not None:
            self._check_sequence(snapshot)
        if self.format_version >= 3:
            self._take_row_ids(snapshot)
        self.snapshots[snapshot.snapshot_id] = snapshot
        self._added_snapshots.add(snapshot.snapshot_id)
        if self.format_version > 1:
            self.last_sequence_number = max(self.last_sequence_number, snapshot.sequence_number)

    def _check_sequence(self, snapshot: Snapshot) -> None:
        if snapshot.sequence_number <= self.last_sequence_number:
            raise CommitConflictError(
                f"sequence number {snapshot.sequence_number} of snapshot {snapshot.snapshot_id} is not above "
                f"{self.last_sequence_number}, the last one of table {self.location}"
            )

    def _take_row_ids(self, snapshot: Snapshot) -> None:
        if snapshot.first_row_id is None or snapshot.added_rows is None or snapshot.added_rows < 0:
            raise InvalidInputError(
                f"snapshot {snapshot.snapshot_id} has no first-row-id and added-rows, which format version 3 requires"
            )
        free = self.next_row_id or 0
        if snapshot.first_row_id < free:
            raise CommitConflictError(
                f"first-row-id {snapshot.first_row_id} of snapshot {snapshot.snapshot_id} is below {free}, "
                f"the next one of table {self.location}"
            )
        # Differs from Java: Java adds to the table's own number, and would assign ids that the snapshot skipped twice.
        self.next_row_id = snapshot.first_row_id + snapshot.added_rows

    def set_ref(self, name: str, ref: SnapshotRef) -> None:
        """Create or move a branch or tag; the snapshot log records moves of main."""
        if self.refs.get(name) == ref:
            return
        if ref.snapshot_id not in self.snapshots:
            raise InvalidInputError(
                f"unknown snapshot {ref.snapshot_id} for {ref.type} {name!r} of table {self.location}"
            )
        if name == MAIN_BRANCH and not ref.is_branch:
            raise InvalidInputError("'main' must be a branch, not a tag")
        moved = name not in self.refs or self.refs[name].snapshot_id != ref.snapshot_id
        self.refs[name] = ref
        if name == MAIN_BRANCH and moved:
            self._log_main(ref.snapshot_id)

    def _log_main(self, snapshot_id: int) -> None:
        added = snapshot_id in self._added_snapshots
        changed_ms = self.snapshots[snapshot_id].timestamp_ms if added else self.now_ms
        # Readers reject a log whose times go backwards, which the clocks of two writers may do.
        last_ms = self.snapshot_log[-1][0] if self.snapshot_log else changed_ms
        self.snapshot_log.append((max(changed_ms, last_ms), snapshot_id))

    def remove_ref(self, name: str) -> None:
        """Remove a branch or tag, if it exists."""
        self.refs.pop(name, None)

    def remove_snapshots(self, snapshot_ids: Sequence[int]) -> None:
        """Remove snapshots with their statistics and the branches and tags that point to them."""
        gone = {i for i in snapshot_ids if self.snapshots.pop(i, None) is not None}
        if not gone:
            return
        self._removed_snapshots = True
        self.statistics = [s for s in self.statistics if s.get("snapshot-id") not in gone]
        self.refs = {name: ref for name, ref in self.refs.items() if ref.snapshot_id not in gone}

    # --- properties ---

    def set_properties(self, properties: dict[str, str]) -> None:
        """Set properties; "format-version" upgrades the table, other names of metadata fields are never kept."""
        version = TableProperties.of(properties).format_version
        if version is not None:
            self.upgrade(version)
        self.properties |= {key: value for key, value in properties.items() if key not in RESERVED_PROPERTIES}

    # --- the result ---

    def finish(self, base_location: str | None) -> TableMetadata:
        """Return the new metadata, or the base itself if it is equal.

        Raises:
            InvalidInputError: schema, partition spec and sort order do not fit together any more.
        """
        self._check()
        main = self.refs.get(MAIN_BRANCH)
        current_id = None if main is None else main.snapshot_id
        kept = tuple(s for s in self.base.partition_statistics if s.get("snapshot-id") in self.snapshots)
        result = replace(
            self.base,
            format_version=self.format_version,
            table_uuid=self.table_uuid,
            location=self.location,
            last_sequence_number=self.last_sequence_number,
            last_column_id=self.last_column_id,
            current_schema_id=self.current_schema_id,
            schemas=tuple(self.schemas),
            default_spec_id=self.default_spec_id,
            partition_specs=tuple(self.specs),
            last_partition_id=self.last_partition_id,
            properties=self.properties,
            current_snapshot_id=current_id,
            snapshots=tuple(self.snapshots.values()),
            snapshot_log=tuple(self._final_log(current_id)),
            sort_orders=tuple(self.orders),
            default_sort_order_id=self.default_order_id,
            refs=self.refs,
            statistics=tuple(self.statistics),
            partition_statistics=kept,
            next_row_id=self.next_row_id,
        )
        if result == self.base:
            return self.base
        self._check_numbers(result)
        return replace(result, last_updated_ms=self._updated_ms(result), metadata_log=self._metadata_log(base_location))

    def _check_numbers(self, result: TableMetadata) -> None:
        """Check each number that was computed: nobody could read a table with one beyond its type.

        Numbers that another writer has given remain as they are.
        """
        known, new = _numbers(self.base), _numbers(result)
        for what, numbers in new.items():
            most = MAX_LONG if what in _LONGS else MAX_INT
            for number in numbers - known[what]:
                if not 0 <= number <= most:
                    raise IncompatibleChangeError(
                        f"the {what} of table {self.location} would be {number}, and the format ends at {most}: "
                        f"another writer has used up the numbers before; nothing was committed, copy the rows into a "
                        f"new table"
                    )

    def _check(self) -> None:
        if self.format_version > 1 and self.table_uuid is None:
            raise InvalidInputError(
                f"table {self.location} has no uuid, which format version {self.format_version} requires"
            )
        base = self.base
        chosen = (self.current_schema_id, self.default_spec_id, self.default_order_id)
        if chosen != (base.current_schema_id, base.default_spec_id, base.default_sort_order_id):
            schema = next(s for s in self.schemas if s.schema_id == self.current_schema_id)
            spec = next(s for s in self.specs if s.spec_id == self.default_spec_id)
            order = next(o for o in self.orders if o.order_id == self.default_order_id)
            check_fits(schema, spec, order, self.format_version)
            if base.schemas and self.current_schema_id != base.current_schema_id:
                check_column_names(self.specs, base.schema(), schema)

    def _final_log(self, current_id: int | None) -> list[tuple[int, int]]:
        """Return the snapshot log without steps inside this change, and without entries before a hole."""
        passed = self._added_snapshots - {current_id}
        old, new = self.base.snapshot_log, self.snapshot_log[len(self.base.snapshot_log) :]
        log = [*old, *(entry for entry in new if entry[1] not in passed)]
        if self._removed_snapshots:
            holes = [i for i, (_, snapshot_id) in enumerate(log) if snapshot_id not in self.snapshots]
            log = log[holes[-1] + 1 :] if holes else log
        return log

    def _updated_ms(self, result: TableMetadata) -> int:
        logged = result.snapshot_log[-1][0] if result.snapshot_log else 0
        added = max((self.snapshots[i].timestamp_ms for i in self._added_snapshots if i in self.snapshots), default=0)
        return max(self.now_ms, self.base.last_updated_ms, logged, added)

    def _metadata_log(self, base_location: str | None) -> tuple[tuple[int, str], ...]:
        log = self.base.metadata_log
        if base_location is not None:
            log = (*log, (self.base.last_updated_ms, base_location))
        keep = max(1, TableProperties.of(self.properties).metadata_previous_versions_max)
        return log[-keep:]


_LONGS = ("last-sequence-number", "next-row-id")


def _numbers(metadata: TableMetadata) -> dict[str, set[int]]:
    """Return the numbers of metadata that commits compute, by what they are."""
    partition_fields = {field.field_id for spec in metadata.partition_specs for field in spec.fields}
    return {
        "last-sequence-number": {metadata.last_sequence_number},
        "next-row-id": {metadata.next_row_id or 0},
        "last-column-id": {metadata.last_column_id},
        "last-partition-id": {metadata.last_partition_id, *partition_fields},
        "schema-id": {schema.schema_id for schema in metadata.schemas},
        "spec-id": {spec.spec_id for spec in metadata.partition_specs},
        "order-id": {order.order_id for order in metadata.sort_orders},
    }
