"""Table metadata: the document that a catalog points to.

Here: `TableMetadata`, and the metadata of a new table. Not here: its JSON form (`json`), how it changes (`updates`),
and where it is kept (`catalogs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from airflow_iceberg.errors import (
    FormatError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
    came,
    check_storable,
    check_text,
)
from airflow_iceberg.format import types as t
from airflow_iceberg.format.avro.schemas import avro_name
from airflow_iceberg.format.metadata.spec_schemas import SchemasOfSpecs
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.evolving_fields import check_column_name
from airflow_iceberg.format.schemas.schema import Schema, assign_fresh_ids
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import SortOrder
from airflow_iceberg.format.transforms.transform import VoidTransform
from airflow_iceberg.format.values.json import from_json

_T = TypeVar("_T")

SUPPORTED_FORMAT_VERSIONS = (1, 2, 3)
DEFAULT_FORMAT_VERSION = 2
# Partition field ids start at 1000: the last one of a table that never had any is 999.
NO_PARTITION_ID = 999
RESERVED_PROPERTIES = frozenset(
    (
        *("format-version", "uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary"),
        *("current-snapshot-timestamp-ms", "current-schema", "default-partition-spec", "default-sort-order"),
    )
)
"""Properties that users may set, but that are fields of the metadata: they are never kept as properties."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableMetadata:
    """One version of a table's metadata.

    Attributes:
        table_uuid: the table's uuid; None in old v1 tables, until the next commit assigns one.
        last_sequence_number: highest sequence number of a snapshot; 0 in v1.
        last_column_id: highest field id ever assigned; ids of dropped columns are not reused.
        last_partition_id: highest partition field id ever assigned; 999 without partition fields.
        snapshots: the snapshots in the order of the file: oldest first.
        snapshot_log: (time in ms, snapshot id) of each move of main.
        metadata_log: (time in ms, location) of earlier metadata files.
        refs: branches and tags by name; "main" is the snapshot `current_snapshot_id`.
        statistics: documents of the file, like `partition_statistics` and `encryption_keys`.
        next_row_id: lowest free row id; v3.
        unknown: other keys of the file, written back unchanged.
    Spec: Table Metadata.
    """

    format_version: int
    table_uuid: str | None
    location: str
    last_sequence_number: int = 0
    last_updated_ms: int
    last_column_id: int
    current_schema_id: int
    schemas: tuple[Schema, ...]
    default_spec_id: int
    partition_specs: tuple[PartitionSpec, ...]
    last_partition_id: int
    properties: Mapping[str, str] = field(default_factory=dict)
    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    snapshot_log: tuple[tuple[int, int], ...] = ()
    metadata_log: tuple[tuple[int, str], ...] = ()
    sort_orders: tuple[SortOrder, ...]
    default_sort_order_id: int
    refs: Mapping[str, SnapshotRef] = field(default_factory=dict)
    statistics: tuple[Mapping[str, Any], ...] = ()
    partition_statistics: tuple[Mapping[str, Any], ...] = ()
    next_row_id: int | None = None
    encryption_keys: tuple[Mapping[str, Any], ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=dict)
    _snapshots_by_id: Mapping[int, Snapshot] = field(init=False, repr=False, compare=False)
    _specs_by_id: Mapping[int, PartitionSpec] = field(init=False, repr=False, compare=False)
    _schemas_of_specs: SchemasOfSpecs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # As Iceberg Java and PyIceberg: ClickHouse writes a slash at the end, and misreads paths with two in a row.
        object.__setattr__(self, "location", _without_slashes(self.location))
        object.__setattr__(self, "_snapshots_by_id", {snapshot.snapshot_id: snapshot for snapshot in self.snapshots})
        object.__setattr__(self, "_specs_by_id", {spec.spec_id: spec for spec in self.partition_specs})
        object.__setattr__(self, "_schemas_of_specs", SchemasOfSpecs())
        _check(self)

    def schema(self, schema_id: int | None = None) -> Schema:
        """Return a schema, by default the current one; raises NotFoundError for an unknown id."""
        wanted = self.current_schema_id if schema_id is None else schema_id
        return _find("schema", wanted, {schema.schema_id: schema for schema in self.schemas})

    def spec(self, spec_id: int | None = None) -> PartitionSpec:
        """Return a partition spec, by default the one to write with; raises NotFoundError for an unknown id."""
        wanted = self.default_spec_id if spec_id is None else spec_id
        return _find("partition spec", wanted, self._specs_by_id)

    def newest_schemas(self) -> tuple[Schema, ...]:
        """Return all schemas: the current one, then the others, the newest first."""
        older = sorted(self.schemas, key=lambda schema: schema.schema_id, reverse=True)
        return (self.schema(), *(schema for schema in older if schema.schema_id != self.current_schema_id))

    def schema_of_spec(self, spec_id: int) -> Schema:
        """Return a schema with the source columns of a spec, which decide the types of the partition values.

        This is the current schema, unless a column was dropped; see `partitions.spec.with_sources`.

        Raises:
            NotFoundError: there is no such spec.
        """
        return self._schemas_of_specs.get(self.spec(spec_id), self.newest_schemas)

    def partition_fields(self) -> tuple[t.NestedField, ...]:
        """Return the partition fields of all specs, each id once: the partition struct of metadata tables.

        The newest name and type win, as in Iceberg's own metadata tables. A field that became void (version 1 keeps
        it) has its earlier type, since its values are older. Of two fields with one name, the newer one keeps it; the
        id is appended to the other's.
        """
        found: dict[int, t.NestedField] = {}
        for spec in self.partition_specs:
            types = spec.partition_type(self.schema_of_spec(spec.spec_id)).fields
            for part, shown in zip(spec.fields, types, strict=True):
                earlier = found.get(shown.id) if isinstance(part.transform, VoidTransform) else None
                found[shown.id] = shown if earlier is None else replace(shown, type=earlier.type)
        newest = {found[key].name: key for key in sorted(found)}
        return tuple(
            shown if newest[shown.name] == key else replace(shown, name=f"{shown.name}_{key}")
            for key, shown in sorted(found.items())
        )

    def sort_order(self, order_id: int | None = None) -> SortOrder:
        """Return a sort order, by default the one to write with; raises NotFoundError for an unknown id."""
        wanted = self.default_sort_order_id if order_id is None else order_id
        return _find("sort order", wanted, {order.order_id: order for order in self.sort_orders})

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot, None if the table does not have it (any more)."""
        return self._snapshots_by_id.get(snapshot_id)

    def current_snapshot(self) -> Snapshot | None:
        """Return the snapshot of main, None if the table is empty."""
        return None if self.current_snapshot_id is None else self.snapshot(self.current_snapshot_id)

    def ref_snapshot(self, ref: str = MAIN_BRANCH) -> Snapshot | None:
        """Return the snapshot of a branch or tag; None for main of an empty table.

        Raises:
            NotFoundError: there is no such branch or tag.
        """
        if ref in self.refs:
            return self.snapshot(self.refs[ref].snapshot_id)
        if ref == MAIN_BRANCH:
            return None
        if not isinstance(ref, str):
            raise InvalidInputError(f"the name of a branch or tag is {came(ref)}, expected text")
        known = ", ".join(sorted(self.refs)) or "none"
        raise NotFoundError(f"no branch or tag {ref!r} in table {self.location}; it has: {known}")

    def snapshot_as_of(self, timestamp_ms: int) -> Snapshot | None:
        """Return the snapshot that was current at a time, None if there was none yet or it has expired.

        Other writers' logs may be out of order: the time counts, and of two entries of one time the later one.
        """
        found = None
        for entry in self.snapshot_log:
            if entry[0] <= timestamp_ms and (found is None or entry[0] >= found[0]):
                found = entry
        return None if found is None else self.snapshot(found[1])

    def ancestors(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """Yield a snapshot, its parent, and so on, newest first, up to the oldest that the table still has."""
        seen: set[int] = set()
        while snapshot_id is not None and snapshot_id not in seen:
            seen.add(snapshot_id)
            snapshot = self.snapshot(snapshot_id)
            if snapshot is None:
                return
            yield snapshot
            snapshot_id = snapshot.parent_snapshot_id


def _find(what: str, wanted: int, known: Mapping[int, _T]) -> _T:
    if wanted not in known:
        raise NotFoundError(f"no {what} with id {wanted}; the table has: {', '.join(map(str, sorted(known)))}")
    return known[wanted]


def _check(metadata: TableMetadata) -> None:
    """Check that everything exists that the metadata refers to: every object is legal."""
    _check_ids(metadata)
    if len(metadata._snapshots_by_id) != len(metadata.snapshots):
        raise FormatError("two snapshots with the same id in 'snapshots'")
    highest = metadata.last_sequence_number
    for snapshot in metadata.snapshots:
        if metadata.format_version > 1 and not 0 <= snapshot.sequence_number <= highest:
            raise FormatError(
                f"unexpected sequence number {snapshot.sequence_number} (expected 0 to {highest}, the table's "
                f"last-sequence-number) of snapshot {snapshot.snapshot_id}"
            )
    for name, ref in metadata.refs.items():
        if ref.snapshot_id not in metadata._snapshots_by_id:
            raise FormatError(f"unknown snapshot {ref.snapshot_id} in 'refs.{name}'")
    main = metadata.refs.get(MAIN_BRANCH)
    if main is not None and not main.is_branch:
        raise FormatError("unexpected tag (expected a branch) in 'refs.main'")
    head = None if main is None else main.snapshot_id
    if head != metadata.current_snapshot_id:
        raise FormatError(
            f"branch 'main' is at snapshot {head}, but 'current-snapshot-id' is {metadata.current_snapshot_id}"
        )


def _check_ids(metadata: TableMetadata) -> None:
    if metadata.format_version not in SUPPORTED_FORMAT_VERSIONS:
        raise UnsupportedError(
            f"format version {metadata.format_version} of table {metadata.location} is not supported "
            f"(supported: 1, 2, 3)"
        )
    for wanted, known, name in (
        (metadata.current_schema_id, [s.schema_id for s in metadata.schemas], "current-schema-id"),
        (metadata.default_spec_id, [s.spec_id for s in metadata.partition_specs], "default-spec-id"),
        (metadata.default_sort_order_id, [o.order_id for o in metadata.sort_orders], "default-sort-order-id"),
    ):
        if wanted not in known:
            raise FormatError(
                f"unexpected id {wanted} (expected one of {', '.join(map(str, known)) or 'none'}) in '{name}'"
            )


def _without_slashes(location: str) -> str:
    """Return a table's location without slashes at its end; the root of a store keeps them."""
    bare = location.rstrip("/")
    return location if not bare or bare.endswith(":") else bare


# --- new tables ------------------------------------------------------------------------------------------------------


def new_table_metadata(
    *,
    location: str,
    schema: Schema,
    spec: PartitionSpec | None = None,
    sort_order: SortOrder | None = None,
    properties: Mapping[str, str] | None = None,
    table_uuid: str,
    now_ms: int,
    format_version: int = DEFAULT_FORMAT_VERSION,
) -> TableMetadata:
    """Return the metadata of a new table: fresh ids for all columns and partition fields.

    Args:
        spec: the partition spec with source ids of `schema`, like the sort order; they become the fresh ids.
        properties: "format-version" is the format version, and is not kept as a property.
    Raises:
        InvalidInputError: the schema, spec or order does not fit the format version.
        UnsupportedError: the format version.
    """
    properties = dict(properties or {})
    check_storable("of the table", properties)
    asked_version = TableProperties.of(properties).format_version
    format_version = format_version if asked_version is None else asked_version
    if format_version not in SUPPORTED_FORMAT_VERSIONS:
        raise UnsupportedError(f"format version {format_version} is not supported (supported: 1, 2, 3)")
    for column in schema.fields:
        check_column_name(column.name)
    for name, field_id in schema.names.items():
        check_text("the name of a column", name, is_name=True)
        check_text(f"the comment of column {name}", schema.fields_by_id[field_id].doc or "")
    fresh = replace(assign_fresh_ids(schema), schema_id=0)
    ids = {field_id: fresh.names[name] for name, field_id in schema.names.items()}
    new_spec = _fresh_spec(spec or PartitionSpec(spec_id=0, fields=()), ids)
    new_order = _fresh_order(sort_order, ids)
    check_fits(fresh, new_spec, new_order, format_version)
    return TableMetadata(
        format_version=format_version,
        table_uuid=table_uuid,
        location=location,
        last_updated_ms=now_ms,
        last_column_id=fresh.highest_field_id,
        current_schema_id=0,
        schemas=(fresh,),
        default_spec_id=0,
        partition_specs=(new_spec,),
        last_partition_id=max((f.field_id for f in new_spec.fields), default=NO_PARTITION_ID),
        properties={key: value for key, value in properties.items() if key not in RESERVED_PROPERTIES},
        sort_orders=(new_order,),
        default_sort_order_id=new_order.order_id,
        next_row_id=0 if format_version >= 3 else None,
    )


def _fresh_id(ids: Mapping[int, int], source_id: int, what: str) -> int:
    if source_id not in ids:
        raise InvalidInputError(f"unknown column id {source_id} in the {what}")
    return ids[source_id]


def _fresh_spec(spec: PartitionSpec, ids: Mapping[int, int]) -> PartitionSpec:
    fields = []
    for number, old in enumerate(spec.fields, NO_PARTITION_ID + 1):
        what = f"partition field {old.name!r}"
        sources = None if old.source_ids is None else tuple(_fresh_id(ids, source, what) for source in old.source_ids)
        source = _fresh_id(ids, old.source_id, what)
        fields.append(replace(old, source_id=source, field_id=number, source_ids=sources))
    return PartitionSpec(spec_id=0, fields=tuple(fields))


def _fresh_order(order: SortOrder | None, ids: Mapping[int, int]) -> SortOrder:
    if order is None or not order.fields:
        return SortOrder(order_id=0, fields=())
    fields = tuple(replace(f, source_id=_fresh_id(ids, f.source_id, "sort order")) for f in order.fields)
    return SortOrder(order_id=1, fields=fields)


# --- what a format version allows ------------------------------------------------------------------------------------

_V3_TYPES = (t.TimestampNsType, t.TimestamptzNsType, t.UnknownType, t.VariantType, t.GeometryType, t.GeographyType)


def check_fits(schema: Schema, spec: PartitionSpec, order: SortOrder, format_version: int) -> None:
    """Check that a table of a format version can be written with a schema, a partition spec and a sort order.

    Raises:
        InvalidInputError: a type, default, transform or source column that this table cannot have.
    """
    check_schema(schema, format_version)
    spec.validate(schema)
    order.validate(schema)
    _check_avro_names(spec)
    if format_version < 3 and any(part.source_ids for part in spec.fields):
        raise InvalidInputError(
            f"a transform of several columns needs format version 3, the table has {format_version}"
        )


def _check_avro_names(spec: PartitionSpec) -> None:
    """Reject partition names with the same form in Avro."""
    # Differs from Java: it accepts them, and cannot read such manifests.
    names: dict[str, str] = {}
    for part in spec.fields:
        other = names.setdefault(avro_name(part.name), part.name)
        if other != part.name:
            raise InvalidInputError(
                f"partition names {other!r} and {part.name!r} are both {avro_name(part.name)!r} in Avro: "
                f"name one of them differently"
            )


def check_schema(schema: Schema, format_version: int) -> None:
    """Check a schema of a format version.

    Raises:
        InvalidInputError: a type or a default needs a later version, or a default is no value of its column.
    """
    for field_id, column in schema.fields_by_id.items():
        _check_defaults(column, schema.find_name(field_id) or column.name)
        if format_version >= 3:
            continue
        what = f"type {column.type}" if isinstance(column.type, _V3_TYPES) else "the initial default"
        if isinstance(column.type, _V3_TYPES) or column.initial_default is not None:
            raise InvalidInputError(
                f"{what} of column {schema.find_name(field_id)!r} needs format version 3 (the table has "
                f"{format_version})"
            )


def _check_defaults(column: t.NestedField, name: str) -> None:
    for what, default in (("initial", column.initial_default), ("write", column.write_default)):
        if default is None:
            continue
        if isinstance(column.type, (t.UnknownType, t.VariantType, *t.GEOSPATIAL)):
            # Spec: Default values.
            raise InvalidInputError(
                f"column {name!r} is {column.type}, whose {what} default must be null, not {default!r}"
            )
        try:
            from_json(column.type, default)
        except FormatError as error:
            raise InvalidInputError(f"the {what} default of column {name!r}: {error}") from error
