"""What the table in a server's answer lacks of what was asked: some servers ignore what they do not know.

The answer to a creation or to a commit is the new metadata. Each update of a change is looked up in it; the table may
be newer than the change, since other writers go on. Not here: what follows from a difference (`rest.commits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_iceberg.catalogs.base import TableState
from airflow_iceberg.format.metadata import updates as changed
from airflow_iceberg.format.metadata.requirements import is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, Update
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.format.types import child_fields
from airflow_iceberg.storage.gate import place_of


def of_change(found: TableMetadata, base: TableMetadata, change: Change, asked: TableMetadata) -> list[str]:
    """Return in words what an answer to a commit lacks: "branch 'audit' is missing"; empty if it has all.

    Args:
        found: the table in the answer, or a newer one.
        asked: the base with the change.
    """
    lacks = (one for update in change.updates for one in _lacks(found, base, update, asked))
    return list(dict.fromkeys([*_another(found, base, asked), *lacks]))


def _another(found: TableMetadata, base: TableMetadata, asked: TableMetadata) -> Iterator[str]:
    """Tell of a table that has got the name since: a server may not check which one it changes."""
    if not any(is_same_table(found, one.table_uuid) for one in (base, asked)):
        yield f"it is another table, with the uuid {found.table_uuid}, expected was {base.table_uuid}"


def _lacks(found: TableMetadata, base: TableMetadata, update: Update, asked: TableMetadata) -> Iterator[str]:
    match update:
        case changed.AssignUUID():
            if (found.table_uuid or "").lower() != update.uuid.lower():
                yield f"it has the uuid {found.table_uuid}, asked was {update.uuid}"
        case changed.UpgradeFormatVersion():
            if found.format_version < update.format_version:
                yield from _version(found, update.format_version)
        case changed.AddSchema() | changed.SetCurrentSchema():
            schemas = [_schema(one.schema()) for one in (found, base, asked)]
            yield from _shape("schema", schemas, *(map(_schema, one.schemas) for one in (base, found)))
        case changed.AddPartitionSpec() | changed.SetDefaultSpec():
            specs = [_spec(one.spec()) for one in (found, base, asked)]
            yield from _shape("partition spec", specs, *(map(_spec, one.partition_specs) for one in (base, found)))
        case changed.AddSortOrder() | changed.SetDefaultSortOrder():
            orders = [one.sort_order().fields for one in (found, base, asked)]
            known = ([one.fields for one in each.sort_orders] for each in (base, found))
            yield from _shape("sort order", orders, *known)
        case changed.AddSnapshot():
            number = update.snapshot.snapshot_id
            is_named = any(ref.snapshot_id == number for ref in asked.refs.values())
            is_there = is_named or number not in {one.snapshot_id for one in asked.snapshots}
            if not is_there and number not in _seen(found):
                yield f"snapshot {number} is missing"
            yield from _other_rows(found, update.snapshot)
        case changed.SetSnapshotRef():
            if update.ref_name in asked.refs:  # a change may remove it again
                yield from _ref(found, base, asked, update.ref_name)
        case changed.RemoveSnapshotRef():
            kept = update.ref_name not in asked.refs and found.refs.get(update.ref_name)
            if kept and kept == base.refs.get(update.ref_name):
                yield f"{update.ref_name!r} is still there"
        case changed.RemoveSnapshots():
            yield from _left("snapshots", update.snapshot_ids, (one.snapshot_id for one in found.snapshots))
        case changed.RemoveSchemas():
            yield from _left("schemas", update.schema_ids, (one.schema_id for one in found.schemas))
        case changed.RemovePartitionSpecs():
            yield from _left("partition specs", update.spec_ids, (one.spec_id for one in found.partition_specs))
        case changed.SetLocation():
            yield from _location(found, update.location)
        case changed.SetProperties():
            yield from _properties(found, {k: v for k, v in asked.properties.items() if k in update.updates})
        case changed.RemoveProperties():
            gone = [name for name in update.removals if name in base.properties and name not in asked.properties]
            left_over = [name for name in gone if found.properties.get(name) == base.properties[name]]
            if left_over:
                yield f"properties are still there: {_some(left_over)}"
        case changed.SetStatistics():
            yield from _statistics(found, base, update.snapshot_id, update.statistics)


def of_creation(found: TableMetadata, asked: TableMetadata) -> list[str]:
    """Return in words what an answer to a creation lacks; a server gives a new table its own ids of fields.

    Args:
        asked: the table; without a location if the server chooses it.
    """
    return [
        *_version(found, asked.format_version),
        *(_location(found, asked.location) if asked.location else ()),
        *_columns(found, asked),
        *_new("partition spec", _named_spec(found), _named_spec(asked)),
        *_new("sort order", _named_order(found), _named_order(asked)),
        *_properties(found, asked.properties),
        *(one for snapshot in asked.snapshots for one in _other_rows(found, snapshot)),
        *(one for name in asked.refs for one in _ref(found, None, asked, name)),
        *(one for each in asked.statistics for one in _statistics(found, None, int(each["snapshot-id"]), each)),
    ]


def of_kept(found: TableState, answered: TableState, asked: TableMetadata) -> list[str]:
    """Return in words what a new table lacks as it is found, whose answer lacks nothing; see `of_creation`."""
    return [] if _is_newer(found, answered.metadata_location) else of_creation(found.metadata, asked)


def of_registration(found: TableState, answered: TableState, location: str, before: str | None) -> list[str]:
    """Return in words what a registered table lacks, as it is found.

    Args:
        location: the file to be registered.
        before: the metadata file of the table that had the name before, if it is known.
    """
    uuid = answered.metadata.table_uuid
    if not is_same_table(found.metadata, uuid):
        return [f"its file has the uuid {uuid}, and the table that is there now {found.metadata.table_uuid}"]
    if _is_file(found.metadata_location, location):
        return []
    if before and found.metadata_location == before:
        return [f"its metadata file is still {before}"]
    if _is_newer(found, location):
        return []
    if answered.metadata_location and not _is_file(answered.metadata_location, location):
        return [f"its metadata file is {answered.metadata_location}, asked was {location}"]
    return [] if _is_newer(found, answered.metadata_location) else of_creation(found.metadata, answered.metadata)


def _is_newer(found: TableState, location: str) -> bool:
    """Whether another writer has gone on from the state of a metadata file."""
    return bool(location) and any(earlier == location for _, earlier in found.metadata.metadata_log)


def _is_file(found: str, location: str) -> bool:
    return found == location or (bool(found) and place_of(found) == place_of(location))


def is_another(found: TableMetadata, asked: TableMetadata) -> bool:
    """Tell whether the table in an answer is surely not the one that was to be created, but was there before.

    Servers may leave out and add properties, write values in their own way, put names into lower case, leave out
    columns, and create a table in several steps; they don't give a new table snapshots, more columns, or other values
    for its properties.
    """
    ours, theirs = ({name.lower() for name in each.schema().names} for each in (asked, found))
    values = found.properties
    return (
        bool(found.snapshots)
        or not theirs <= ours
        or not all(is_value(values.get(name, value), value) for name, value in asked.properties.items())
    )


def content(metadata: TableMetadata) -> TableMetadata:
    """Return what is in a table, without the properties that Nessie writes into each answer."""
    own = {name: value for name, value in metadata.properties.items() if not name.startswith("nessie.")}
    return replace(metadata, properties=own)


def _version(found: TableMetadata, version: int) -> Iterator[str]:
    if found.format_version != version:
        yield f"it has format version {found.format_version}, asked was {version}"


def _location(found: TableMetadata, location: str) -> Iterator[str]:
    if place_of(found.location) != place_of(location):
        yield f"its location is {found.location}, asked was {location}"


def _shape(what: str, sides: Sequence[object], before: Iterable[object], known: Iterable[object]) -> Iterator[str]:
    """Compare what is current; another writer may have gone on to a new one since, and then the table knows ours.

    Args:
        sides: as found, as it was before, and as asked.
        before, known: all that the table had before, and has now.
    """
    found, base, asked = sides
    if found == asked or (found not in list(before) and asked in list(known)):
        return
    yield f"it has {'the old' if found == base else 'another'} {what}"


def _new(what: str, found: object, asked: object) -> Iterator[str]:
    if found != asked:
        yield f"it has another {what}"


def _columns(found: TableMetadata, asked: TableMetadata) -> Iterator[str]:
    there = {name.lower() for name in found.schema().names}
    missing = [name for name in asked.schema().names if name.lower() not in there]
    if missing:
        yield f"it lacks the columns {_some(missing)}"
    else:
        yield from _new("schema", _named_schema(found), _named_schema(asked))


def _schema(schema: Schema) -> tuple[Any, ...]:
    return schema.fields, frozenset(schema.identifier_field_ids)


def _spec(spec: PartitionSpec) -> tuple[Any, ...]:
    return tuple((field.name, str(field.transform), field.source_ids or (field.source_id,)) for field in spec.fields)


def _named_schema(metadata: TableMetadata) -> tuple[Any, ...]:
    schema = metadata.schema()
    columns = {
        (_folded(schema, number), _kind(field), field.required, field.doc or "")
        for number, field in schema.fields_by_id.items()
    }
    return columns, {_folded(schema, number) for number in schema.identifier_field_ids}


def _kind(field: Any) -> str:
    return type(field.type).__name__ if child_fields(field.type) else str(field.type)


def _named_spec(metadata: TableMetadata) -> tuple[Any, ...]:
    return tuple((str(field.transform), _sources(metadata, field)) for field in metadata.spec().fields)


def _named_order(metadata: TableMetadata) -> tuple[Any, ...]:
    fields = metadata.sort_order().fields
    return tuple((str(one.transform), _sources(metadata, one), one.direction, one.null_order) for one in fields)


def _sources(metadata: TableMetadata, field: Any) -> tuple[str, ...]:
    return tuple(_folded(metadata.schema(), number) for number in field.source_ids or (field.source_id,))


def _folded(schema: Schema, field_id: int) -> str:
    """Return a name as it is compared: a server may put the names of a new table into lower case."""
    return (schema.find_name(field_id) or "").lower()


def _ref(found: TableMetadata, base: TableMetadata | None, asked: TableMetadata, name: str) -> Iterator[str]:
    """Compare a branch or tag; other writers may have moved it on since, to snapshots that nobody knew before."""
    wanted, there = asked.refs[name], found.refs.get(name)
    kind = "tag" if wanted.type == "tag" else "branch"
    if there is None:
        main = found.refs.get(MAIN_BRANCH)
        yield (
            f"{kind} {name!r} is missing, and main is at snapshot {main.snapshot_id}"
            if main is not None
            else f"{kind} {name!r} is missing"
        )
    elif there.type != wanted.type:
        yield f"{name!r} is a {there.type}, asked was a {kind}"
    elif there.snapshot_id != wanted.snapshot_id and (
        asked.snapshot(there.snapshot_id) is not None or wanted.snapshot_id not in _history(found, there.snapshot_id)
    ):
        # One that was there is where it was, or where nobody has asked for: also if it comes after the snapshot to
        # which a branch was to be set back.
        yield f"{kind} {name!r} is at snapshot {there.snapshot_id}, asked was {wanted.snapshot_id}"
    elif _retention(there) != _retention(wanted):
        before = base.refs.get(name) if base is not None else None
        if before is None or _retention(there) in (_retention(before), _NO_RETENTION):
            yield f"{kind} {name!r} is kept for another time than was asked"


_NO_RETENTION = (None, None, None)


def _retention(ref: SnapshotRef) -> tuple[int | None, ...]:
    return ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep


def _other_rows(found: TableMetadata, asked: Snapshot) -> Iterator[str]:
    """Tell of a snapshot of another manifest list; one that the table does not show any more tells nothing."""
    there = found.snapshot(asked.snapshot_id)
    if there is None or there.manifest_list is None or asked.manifest_list is None:
        return
    if place_of(there.manifest_list) != place_of(asked.manifest_list):
        yield f"snapshot {asked.snapshot_id} has the manifest list {there.manifest_list}, not {asked.manifest_list}"


def _statistics(
    found: TableMetadata, base: TableMetadata | None, snapshot_id: int, asked: Mapping[str, Any]
) -> Iterator[str]:
    there, before = (
        next((one for one in each.statistics if one.get("snapshot-id") == snapshot_id), None) if each else None
        for each in (found, base)
    )
    path = "statistics-path"
    if there is None:
        yield f"the statistics of snapshot {snapshot_id} are missing"
    elif there.get(path) != asked.get(path) and (before is None or there.get(path) == before.get(path)):
        yield f"the statistics of snapshot {snapshot_id} are in {there.get(path)}, asked was {asked.get(path)}"


def _history(metadata: TableMetadata, snapshot_id: int) -> set[int | None]:
    """Return the snapshots of a branch, with the parents of those that the table does not show any more."""
    return {one.parent_snapshot_id for one in metadata.ancestors(snapshot_id)} | {snapshot_id}


def _seen(metadata: TableMetadata) -> set[int | None]:
    return {number for one in metadata.snapshots for number in (one.snapshot_id, one.parent_snapshot_id)}


def _left(what: str, removed: Sequence[int], found: Iterable[int]) -> Iterator[str]:
    left = sorted(set(removed) & set(found))
    if left:
        yield f"{what} are still there: {_some(left)}"


def _properties(found: TableMetadata, asked: Mapping[str, str]) -> Iterator[str]:
    """Compare properties; their values are not shown, as they may be secrets."""
    # Some servers, as SeaweedFS, keep the name mapping themselves, with each change of the schema.
    own = {TableProperties.name_mapping.name}
    other = [
        name for name, value in asked.items() if name not in own and not is_value(found.properties.get(name), value)
    ]
    if other:
        yield f"properties are missing or have other values: {_some(sorted(other))}"


def is_value(found: str | None, asked: str) -> bool:
    """Whether a value is what was asked for, perhaps as the server writes it: `TRUE` as `true`, or a slash cut."""
    return found is not None and found.strip().rstrip("/").lower() == asked.strip().rstrip("/").lower()


def _some(items: Sequence[object]) -> str:
    return ", ".join(map(str, items[:5])) + (", …" if len(items) > 5 else "")
