"""Changes of tables as the REST protocol has them, without any I/O: creations, commits, and what they require.

Not here: sending (`rest.commits`), and what the updates mean (`format.metadata.updates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.format.metadata import requirements as required
from airflow_iceberg.format.metadata import updates as changed
from airflow_iceberg.format.metadata.builder import LAST_ADDED
from airflow_iceberg.format.metadata.requirements import Requirement
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, Update
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH


def commit_body(table: TableId, change: Change) -> dict[str, Any]:
    """Return the body of a commit, with the table's name."""
    return {"identifier": {"namespace": list(table.namespace), "name": table.name}, **change.to_dict()}


def with_requirements(base: TableMetadata, change: Change) -> Change:
    """Return the change with its implicit assumptions as requirements: the server may have newer metadata.

    A catalog that swaps files detects another writer's commit by itself. Here the server applies the updates to the
    table's newest state, so everything that the updates depend on must be asserted.
    """
    implied: list[Requirement] = [required.AssertTableUUID(uuid=base.table_uuid)] if base.table_uuid else []
    for update in change.updates:
        implied += _implied(base, update)
    wanted = list(change.requirements)
    wanted += [requirement for requirement in dict.fromkeys(implied) if requirement not in wanted]
    return Change(updates=change.updates, requirements=tuple(wanted))


def _implied(base: TableMetadata, update: Update) -> Iterator[Requirement]:
    """Yield the assumptions of one update."""
    match update.action:
        case "add-snapshot":
            # Differs from Java: its files fit this schema, in which a column may have become required since, and this
            # spec, which is never removed while it is the default one. Of the format version a server sees itself
            # whether the snapshot has the numbers that it requires.
            yield required.AssertCurrentSchemaId(current_schema_id=base.current_schema_id)
            yield required.AssertDefaultSpecId(default_spec_id=base.default_spec_id)
        case "add-schema":
            yield required.AssertLastAssignedFieldId(last_assigned_field_id=base.last_column_id)
        case "set-current-schema":
            yield required.AssertCurrentSchemaId(current_schema_id=base.current_schema_id)
        case "add-spec":
            yield required.AssertLastAssignedPartitionId(last_assigned_partition_id=base.last_partition_id)
        case "set-default-spec":
            yield required.AssertDefaultSpecId(default_spec_id=base.default_spec_id)
        case "set-default-sort-order":
            yield required.AssertDefaultSortOrderId(default_sort_order_id=base.default_sort_order_id)
        case "set-snapshot-ref" | "remove-snapshot-ref":
            name = update.ref_name  # type: ignore[attr-defined]  # both have it
            yield _unmoved(base, name)
        case "remove-snapshots":
            # Differs from Java: a branch that moved meanwhile may need the snapshots; Java does not check that.
            yield from (_unmoved(base, name) for name in sorted(base.refs))
        case "remove-schemas" | "remove-partition-specs":
            yield required.AssertCurrentSchemaId(current_schema_id=base.current_schema_id)
            yield required.AssertDefaultSpecId(default_spec_id=base.default_spec_id)
            yield from (_unmoved(base, name) for name in sorted(base.refs))


def _unmoved(base: TableMetadata, name: str) -> Requirement:
    ref = base.refs.get(name)
    return required.AssertRefSnapshotId(ref=name, snapshot_id=None if ref is None else ref.snapshot_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shape:
    """A kind of shape of a table: the updates that add one and make it current, and the names of their parts."""

    add: type[Update]
    set: type[Update]
    name: str
    id_name: str
    known: str

    def number_in(self, metadata: TableMetadata, new: Any) -> int | None:
        """Return the id of a shape in a table; None if it has none that is equal."""
        same = (one for one in getattr(metadata, self.known) if one.same_fields(new))
        return next((getattr(one, self.id_name) for one in same), None)


_SHAPES = tuple(
    _Shape(add=add, set=set_, name=name, id_name=id_name, known=known)
    for add, set_, name, id_name, known in (
        (changed.AddSchema, changed.SetCurrentSchema, "schema", "schema_id", "schemas"),
        (changed.AddPartitionSpec, changed.SetDefaultSpec, "spec", "spec_id", "partition_specs"),
        (changed.AddSortOrder, changed.SetDefaultSortOrder, "sort_order", "order_id", "sort_orders"),
    )
)


def with_ids(base: TableMetadata, change: Change, asked: TableMetadata) -> Change:
    """Return the change as servers take it: a shape that the table has is set by its id, a new one has the next id.

    Iceberg Java's server, and those that are built on it, refuse to set the last added schema where an equal one was
    there; others take the id of an added one as it comes.

    Args:
        asked: the base with the change.
    """
    updates: list[Update] = []
    there: dict[str, int] = {}
    for update in change.updates:
        shape = next((one for one in _SHAPES if isinstance(update, one.add | one.set)), None)
        if shape is None:
            updates.append(update)
        elif isinstance(update, shape.add):
            new = getattr(update, shape.name)
            known, number = shape.number_in(base, new), shape.number_in(asked, new)
            if known is not None:
                there[shape.name] = known
                continue
            there.pop(shape.name, None)
            numbered = new if number is None else replace(new, **{shape.id_name: number})
            updates.append(replace(update, **{shape.name: numbered}))
        else:
            updates.append(_set_there(update, there.get(shape.name)))
    return Change(updates=tuple(updates), requirements=change.requirements)


def _set_there(update: Update, number: int | None) -> Update:
    """Return the update that makes a shape the current one, of a shape that was there already if a number is given."""
    (name,) = (item.name for item in fields(update))
    is_last = getattr(update, name) == LAST_ADDED
    return replace(update, **{name: number}) if is_last and number is not None else update


@dataclass(frozen=True, kw_only=True, slots=True)
class NewBranch:
    """A branch that a change begins, and to which it adds rows.

    Attributes:
        at: the snapshot at which it begins.
        first: the update that adds this snapshot, an empty one, if the table has no snapshots yet.
    """

    name: str
    at: int
    first: tuple[changed.AddSnapshot, ...] = ()


def new_branches(base: TableMetadata, change: Change) -> Iterator[NewBranch]:
    """Yield the branches that a change begins, and moves to new snapshots."""
    added = {each.snapshot.snapshot_id: each for each in change.updates if isinstance(each, changed.AddSnapshot)}
    for update in change.updates:
        if not isinstance(update, changed.SetSnapshotRef) or update.ref.type != "branch":
            continue
        line = [update.ref.snapshot_id]
        while line[-1] in added:
            parent = added[line[-1]].snapshot.parent_snapshot_id
            if parent is None or parent in line:
                break
            line.append(parent)
        if update.ref_name in (MAIN_BRANCH, *base.refs) or len(line) == 1:
            continue
        if line[-1] in added or base.snapshot(line[-1]) is not None:
            first = (added[line[-1]],) if line[-1] in added else ()
            yield NewBranch(name=update.ref_name, at=line[-1], first=first)


def beginning(change: Change, branch: NewBranch) -> Change:
    """Return the change that creates a branch of `new_branches` where it begins."""
    ref = next(
        each.ref for each in change.updates if isinstance(each, changed.SetSnapshotRef) and each.ref_name == branch.name
    )
    update = changed.SetSnapshotRef(ref_name=branch.name, ref=replace(ref, snapshot_id=branch.at))
    return Change(updates=(*branch.first, update), requirements=change.requirements)


def after_beginning(change: Change, branch: NewBranch) -> Change:
    """Return a change that moves a branch which has been created since by `beginning`."""
    at = required.AssertRefSnapshotId(ref=branch.name, snapshot_id=branch.at)
    others = (
        one
        for one in change.requirements
        if not (isinstance(one, required.AssertRefSnapshotId) and one.ref == branch.name)
    )
    return Change(updates=tuple(one for one in change.updates if one not in branch.first), requirements=(*others, at))


def is_plain(metadata: TableMetadata) -> bool:
    """Tell whether it is the metadata of a new and empty table, which one request can create."""
    return not (
        metadata.snapshots
        or metadata.refs
        or metadata.statistics
        or metadata.partition_statistics
        or metadata.metadata_log
        or len(metadata.schemas) > 1
        or len(metadata.partition_specs) > 1
        or any(order.order_id != metadata.default_sort_order_id and order.fields for order in metadata.sort_orders)
    )


def create_body(name: str, metadata: TableMetadata, *, stage: bool = False) -> dict[str, Any]:
    """Return the request that creates a table; without a location the server chooses one."""
    order = metadata.sort_order()
    body: dict[str, Any] = {"name": name}
    if metadata.location:
        body["location"] = metadata.location
    body["schema"] = metadata.schema().to_dict()
    body["partition-spec"] = metadata.spec().to_dict()
    if order.fields:
        body["write-order"] = order.to_dict()
    body["stage-create"] = stage
    # The format version is a property in this request only; no server stores it as one.
    body["properties"] = {**metadata.properties, "format-version": str(metadata.format_version)}
    return body


def creation(metadata: TableMetadata, *, table_uuid: str, location: str) -> Change:
    """Return the change that creates a staged table, with snapshots, branches and tags.

    Args:
        table_uuid: the staged table's id, from the server.
        location: the table's own location, or the server's choice.
    """
    updates: list[Update] = [
        changed.AssignUUID(uuid=table_uuid),
        changed.UpgradeFormatVersion(format_version=metadata.format_version),
        changed.SetLocation(location=location),
    ]
    # The server assigns ids in this order, so that the current ones stay the same; those of schemas without gaps, which
    # a table has whose unused schemas were removed. Specs and orders keep theirs, by which manifests name them.
    schemas, numbers = _without_gaps(metadata.schemas)
    updates += [changed.AddSchema(schema=schema) for schema in schemas]
    updates.append(changed.SetCurrentSchema(schema_id=numbers[metadata.current_schema_id]))
    updates += [changed.AddPartitionSpec(spec=spec) for spec in metadata.partition_specs]
    updates.append(changed.SetDefaultSpec(spec_id=metadata.default_spec_id))
    updates += [changed.AddSortOrder(sort_order=order) for order in metadata.sort_orders]
    updates.append(changed.SetDefaultSortOrder(sort_order_id=metadata.default_sort_order_id))
    if metadata.properties:
        updates.append(changed.SetProperties(updates=dict(metadata.properties)))
    snapshots = (replace(one, schema_id=numbers.get(one.schema_id)) for one in metadata.snapshots)
    updates += [changed.AddSnapshot(snapshot=snapshot) for snapshot in snapshots]
    updates += [changed.SetSnapshotRef(ref_name=name, ref=ref) for name, ref in metadata.refs.items()]
    updates += [
        changed.SetStatistics(snapshot_id=int(each["snapshot-id"]), statistics=each) for each in metadata.statistics
    ]
    return Change(updates=tuple(updates), requirements=(required.AssertCreate(),))


def _without_gaps(schemas: Iterable[Schema]) -> tuple[list[Schema], dict[int | None, int]]:
    """Return schemas, each once, with ids from 0 on; and these by the ids that the schemas had."""
    found: list[Schema] = []
    numbers: dict[int | None, int] = {}
    for schema in sorted(schemas, key=lambda one: one.schema_id):
        same = next((one for one in found if one.same_fields(schema)), None)
        if same is None:
            same = replace(schema, schema_id=len(found))
            found.append(same)
        numbers[schema.schema_id] = same.schema_id
    return found, numbers
