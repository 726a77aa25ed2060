"""The difference of two states: snapshots, branches or tags of a table, or two tables.

Schema, properties and partitions come from metadata. Rows are compared if they are few enough: those of one table in
the files that only one of the states has, those of two tables all, by key columns or as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_iceberg.data.cast.rows import python_rows
from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.manifests.entries import ManifestContent
from airflow_iceberg.format.names import Path
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.type_text import begun_type
from airflow_iceberg.operations.history.net_changes import live_entries
from airflow_iceberg.redaction import hide
from airflow_iceberg.scan.difference import find_difference
from airflow_iceberg.scan.table_scan import TableScan

if TYPE_CHECKING:
    from airflow_iceberg.commit.open_table import OpenTable

MOST_ROWS = 1_000_000
KINDS = {"delete": "removed", "insert": "added", "update_before": "before", "update_after": "after"}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """A table at a snapshot; without one it has no rows."""

    table: OpenTable
    snapshot: Snapshot | None

    @classmethod
    def of(cls, table: OpenTable, at: str | int | None = None) -> State:
        """Return the state of a table at a branch, a tag or a snapshot id; that of main if None.

        Raises:
            NotFoundError: no such branch, tag or snapshot.
        """
        metadata = table.metadata
        if at is None:
            return cls(table=table, snapshot=metadata.current_snapshot())
        text = str(at)
        if text not in metadata.refs and text.isascii() and text.isdigit() and len(text) < 20:
            found = metadata.snapshot(int(text))
            if found is None:
                raise NotFoundError(f"table {table.name} has no snapshot {text}; it may have expired")
            return cls(table=table, snapshot=found)
        return cls(table=table, snapshot=metadata.ref_snapshot(text))

    @property
    def schema(self) -> Schema:
        """The schema of the snapshot."""
        metadata = self.table.metadata
        wanted = None if self.snapshot is None else self.snapshot.schema_id
        return next((one for one in metadata.schemas if one.schema_id == wanted), metadata.schema())

    def partitions(self) -> dict[str, tuple[int, int]]:
        """Return files and rows by partition; rows that delete files mark count as rows."""
        found: dict[str, tuple[int, int]] = {}
        metadata = self.table.metadata
        entries = live_entries(self.table.io, self.snapshot, ManifestContent.DATA) if self.snapshot else ()
        for entry in entries:
            file = entry.data_file
            spec = metadata.spec(file.spec_id)
            name = spec.partition_path(file.partition, metadata.schema_of_spec(file.spec_id)) if spec.fields else ""
            files, rows = found.get(name, (0, 0))
            found[name] = (files + 1, rows + file.record_count)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class StateDiff:
    """How a state differs from another one.

    Attributes:
        schema: columns that are added, removed or changed, each a sentence.
        properties: the two values of properties that differ, None where one is not set.
        partitions: files and rows of both states, of partitions that differ.
        counts: rows by kind: added, removed, and updated (where rows can be identified).
        rows: the first rows that differ, with `_change`: added, removed, before and after.
        note: why rows were not compared, or not all of them are shown; None if they were.
    """

    schema: tuple[str, ...] = ()
    properties: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    partitions: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] = ()
    note: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether no difference was found."""
        return not (self.schema or self.properties or any(self.counts.values()) or self.note)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "schema": list(self.schema), "rows": [dict(row) for row in self.rows]}


def diff(
    left: State, right: State, *, key_columns: Sequence[str] = (), limit: int = 20, most_rows: int = MOST_ROWS
) -> StateDiff:
    """Compare two states.

    Args:
        key_columns: the columns that identify a row, whose two versions are then an update.
        limit: the largest number of rows to return.
        most_rows: the largest number of rows to read; above it rows are not compared.

    Raises:
        InvalidInputError: the key columns do not identify a row.
        NotFoundError: no such column.
    """
    is_one = left.table.metadata.table_uuid == right.table.metadata.table_uuid and bool(right.table.metadata.table_uuid)
    changes = _of_one_table if is_one else _of_two_tables
    counts, rows, note = changes(left, right, key_columns, limit, most_rows)
    before, after = left.partitions(), right.partitions()
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return StateDiff(
        schema=tuple(schema_changes(left.schema, right.schema, by_id=is_one)),
        properties={} if is_one else _properties(left.table, right.table),
        partitions={name: (before.get(name, (0, 0)), after.get(name, (0, 0))) for name in names},
        counts=counts,
        rows=tuple(rows),
        note=note,
    )


def schema_changes(before: Schema, after: Schema, *, by_id: bool, most: int | None = None) -> Iterator[str]:
    """Yield what differs; columns of one table are known by their ids, those of two tables by their names.

    Args:
        most: how many characters of a name and of a type count; None: all.
    """

    def columns(schema: Schema) -> dict[Any, tuple[str, int]]:
        return {(number if by_id else name): (name, number) for name, number in schema.names.items()}

    # The text of a struct has those of all its fields in it: one at a time.
    old, new = columns(before), columns(after)
    for key in [*old, *(key for key in new if key not in old)]:
        was = _described(before, *old[key], most) if key in old else None
        now = _described(after, *new[key], most) if key in new else None
        if was is not None and now is None:
            yield f"column {was[0]} is removed"
        elif was is None and now is not None:
            yield f"column {' '.join(now)} is added"
        elif was is not None and now is not None and was != now:
            yield f"column {' '.join(was)} is now {' '.join(now)}"


def _described(schema: Schema, name: str, number: int, most: int | None) -> tuple[str, str]:
    """Return the name and the type of a column."""
    found = schema.fields_by_id[number]
    kind = str(found.type) if most is None else begun_type(found.type, most)
    return name[:most], f"{kind}{' required' if found.required else ''}"


def _properties(left: OpenTable, right: OpenTable) -> dict[str, tuple[str | None, str | None]]:
    old, new = left.properties, right.properties
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return {name: (hide(name, old.get(name)), hide(name, new.get(name))) for name in names}


Compared = tuple[dict[str, int], list[dict[str, Any]], str | None]


def _of_one_table(left: State, right: State, keys: Sequence[str], limit: int, most_rows: int) -> Compared:
    after = right.snapshot
    if after is None:
        # Rows are compared in the columns of the second state, which has none.
        counts, rows, note = _of_one_table(right, left, keys, limit, most_rows) if left.snapshot else ({}, [], None)
        turned = [{**row, "_change": "removed"} for row in rows]
        return {"removed": counts["added"]} if counts else {}, turned, note
    table = right.table
    found = find_difference(table.metadata, table.io, left.snapshot, after, identifier_columns=keys)
    if found.record_count > most_rows:
        return {}, [], _too_many(found.record_count, most_rows)
    kinds: Counter[str] = Counter()
    rows = []
    for batch in found.rows():
        for row in python_rows(batch, source="the rows that differ"):
            kind = KINDS[row.pop("_change_type")]
            kinds[kind] += 1
            if len(rows) < limit:
                rows.append({"_change": kind, **{name: row[name] for name in row if name[:8] not in _OWN}})
    return {"added": kinds["added"], "removed": kinds["removed"], "updated": kinds["after"]}, rows, None


_OWN = ("_change_", "_commit_")


def _of_two_tables(left: State, right: State, keys: Sequence[str], limit: int, most_rows: int) -> Compared:
    count = sum(rows for state in (left, right) for _, rows in state.partitions().values())
    if count > most_rows:
        return {}, [], _too_many(count, most_rows)
    common = [name for name in (field.name for field in left.schema.fields) if name in right.schema.names]
    paths = [_key_path(key, left.schema, right.schema, common) for key in keys]
    old, new = (_rows(state, common) for state in (left, right))
    if keys:
        return _by_key(_keyed(old, paths), _keyed(new, paths), limit)
    gone, come = Counter(map(_whole, old)), Counter(map(_whole, new))
    removed, added = gone - come, come - gone
    both = [("removed", old, removed), ("added", new, added)]
    rows: list[dict[str, Any]] = []
    for change, every, differing in both:
        left_over = Counter(differing)
        for row in every:
            if len(rows) < limit and left_over[_whole(row)] > 0:
                left_over[_whole(row)] -= 1
                rows.append({"_change": change, **row})
    return {"added": added.total(), "removed": removed.total()}, rows, None


def _rows(state: State, columns: Sequence[str]) -> list[dict[str, Any]]:
    if state.snapshot is None or not columns:
        return []
    table = state.table
    scan = TableScan.of(
        table.metadata, table.io, snapshot_id=state.snapshot.snapshot_id, selected_fields=tuple(columns)
    )
    return python_rows(scan.to_arrow(), source=f"table {table.name}")


def _whole(row: Mapping[str, Any]) -> str:
    return repr(row)


def _key_path(key: str, left: Schema, right: Schema, common: Sequence[str]) -> Path:
    paths = {schema.path(schema.find_key(key).id) for schema in (left, right) if key in schema.names}
    if key not in left.names or key not in right.names or len(paths) > 1:
        raise NotFoundError(f"key column {key!r} is not in both tables; both have {', '.join(common) or 'none'}")
    return paths.pop()


def _keyed(rows: Sequence[dict[str, Any]], keys: Sequence[Path]) -> dict[str, dict[str, Any]]:
    found = {repr([_at(row, path) for path in keys]): row for row in rows}
    if len(found) < len(rows):
        raise InvalidInputError(
            f"several rows have the same {', '.join(map('.'.join, keys))}; key columns must identify a row"
        )
    return found


def _at(row: Mapping[str, Any], path: Path) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    return value


def _by_key(old: Mapping[str, dict[str, Any]], new: Mapping[str, dict[str, Any]], limit: int) -> Compared:
    removed = [key for key in old if key not in new]
    added = [key for key in new if key not in old]
    updated = [key for key in old if key in new and _whole(old[key]) != _whole(new[key])]
    rows = [{"_change": "removed", **old[key]} for key in removed] + [{"_change": "added", **new[key]} for key in added]
    for key in updated:
        rows += [{"_change": "before", **old[key]}, {"_change": "after", **new[key]}]
    return {"added": len(added), "removed": len(removed), "updated": len(updated)}, rows[:limit], None


def _too_many(count: int, most: int) -> str:
    return f"rows were not compared: {count} rows would have to be read, and at most {most} are"
