"""Table properties that name columns, after columns are renamed, dropped or added.

Properties of one column (`write.metadata.metrics.column.price`) are renamed or removed with it. A name mapping
(`schema.name-mapping.default`), which is used to read files without field ids, gets new names and keeps the old ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.properties.property import ColumnProperty
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.name_mapping import read_name_mapping
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import NestedField, child_fields

NAME_MAPPING = TableProperties.name_mapping.name
COLUMN_PREFIXES = tuple(each.prefix for each in vars(TableProperties).values() if isinstance(each, ColumnProperty))


def name_mapping_of(schema: Schema) -> str:
    """Return the name mapping of a schema, in which each field has the name that it has now."""
    return json.dumps([_new_entry(field) for field in schema.fields], separators=(",", ":"))


def follow_columns(properties: Mapping[str, str], before: Schema, after: Schema) -> dict[str, str]:
    """Return a table's properties after a change of its schema.

    Args:
        properties: the properties before, with those that the same change has set.
    """
    if before.same_fields(after):
        return dict(properties)
    names = ((_followed(name, before, after), value) for name, value in properties.items())
    result = {name: value for name, value in names if name is not None}
    if NAME_MAPPING in result:
        result[NAME_MAPPING] = _followed_mapping(result[NAME_MAPPING], before, after)
    return result


def _followed(name: str, before: Schema, after: Schema) -> str | None:
    """Return the new name of a property, None if its column was dropped."""
    prefix = next((prefix for prefix in COLUMN_PREFIXES if name.startswith(prefix)), None)
    if prefix is None:
        return name
    column = name.removeprefix(prefix)
    field_id = before.names.get(column)
    if field_id is None or after.names.get(column) == field_id:
        return name
    now = after.find_name(field_id)
    return None if now is None else prefix + now


def _followed_mapping(text: str, before: Schema, after: Schema) -> str:
    try:
        read_name_mapping(NAME_MAPPING, text)
    except FormatError:
        # Readers reject an invalid mapping; here it is kept.
        return text
    return json.dumps(_level(json.loads(text), after.fields, before), separators=(",", ":"))


def _level(mapping: Sequence[Mapping[str, Any]], fields: Sequence[NestedField], before: Schema) -> list[dict[str, Any]]:
    """Return the mapping of one struct with new names and new columns; dropped columns are kept.

    A name stays with the column that had it first: files without field ids that have it were written for that column.
    So columns that exchange their names do not exchange the values in such files, and a column that gets the name of
    a dropped one does not get its values.
    """
    # Differs from Java: Java gives the name to the column that has it now, whose values the old files do not have.
    now = {field.id: field for field in fields}
    taken = {name for entry in mapping for name in entry.get("names") or ()}
    result = []
    for entry in mapping:
        field_id, names = entry.get("field-id"), list(entry.get("names") or ())
        field = None if field_id is None else now.get(field_id)
        if field is None:
            result.append({**entry, "names": names})
            continue
        names += [] if field.name in taken else [field.name]
        children = child_fields(field.type)
        below = {"fields": _level(entry.get("fields") or (), children, before)} if children else {}
        result.append({**entry, "names": names, **below})
    known = {entry.get("field-id") for entry in mapping}
    added = [field for field in fields if field.id not in known and field.id not in before.fields_by_id]
    return result + [{**_new_entry(field), "names": [field.name] * (field.name not in taken)} for field in added]


def _new_entry(field: NestedField) -> dict[str, Any]:
    entry: dict[str, Any] = {"field-id": field.id, "names": [field.name]}
    children = child_fields(field.type)
    if children:
        entry["fields"] = [_new_entry(child) for child in children]
    return entry
