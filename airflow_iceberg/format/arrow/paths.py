"""Paths of fields in Arrow columns, in exact spelling.

    spelled_path(("a", "ID"), schema)      ->      ("a", "id"), as the schema spells it
    at_path(table, ("a", "id"))            ->      the values of field id of column a

Not here: names by themselves (`format.names`), the fields of a table by name and id (`format.schemas.schema`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.format.names import Path, spelled


def spelled_path(path: Sequence[str], schema: pa.Schema, *, where: str) -> Path | None:
    """Return a path as a schema spells it; None if it has no such column or field. Arguments as of `spelled`."""
    found: list[str] = []
    fields: Iterable[pa.Field] = schema
    for name in path:
        by_name = {field.name: field for field in fields}
        own = spelled(name, by_name, where=where)
        if own is None:
            return None
        found.append(own)
        kind = by_name[own].type
        fields = kind if pa.types.is_struct(kind) else ()
    return tuple(found)


def type_at(schema: pa.Schema, path: Path) -> pa.DataType:
    """Return the type of the field at a path that the schema has."""
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(kind.get_field_index(name)).type
    return kind


def at_path(rows: Any, path: Path) -> Any:
    """Return the values at a path of a table or a batch; null where a struct around them is null."""
    values = rows.column(rows.schema.get_field_index(path[0]))
    for name in path[1:]:
        values = pc.struct_field(values, [values.type.get_field_index(name)])
    return values


def twins(fields: Iterable[pa.Field], same: Callable[[str], str], prefix: str = "") -> tuple[str, str] | None:
    """Return two fields of one struct that an engine takes for one, by their full names, at any depth; None without.

    Args:
        fields: the columns.
        same: gives names that the engine takes for one the same text: `fold`, `fold_ascii`.
    """
    seen: dict[str, str] = {}
    for field in fields:
        name = prefix + field.name
        other = seen.get(same(field.name))
        if other is not None:
            return other, name
        seen[same(field.name)] = name
        found = twins(_below(field.type), same, f"{name}.")
        if found is not None:
            return found
    return None


def _below(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_dictionary(kind):
        return _below(kind.value_type)
    if pa.types.is_map(kind):
        return [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
    return [kind.field(at) for at in range(kind.num_fields)] if pa.types.is_nested(kind) else []
