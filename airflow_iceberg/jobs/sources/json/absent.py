"""Fields with a default that objects of JSON lines do not have: which these are, and what stands for their values.

A field that no object of a file has gets its default, as a column that a file of another format does not have. A key
that only some objects have is null in the others; if the field is required, null is no value, and they get its default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema

# The names on the way to a field; below a list "element", below a map "value".
Path = tuple[str, ...]


class Absent:
    """Finds the fields with a default that no object has.

    Attributes:
        paths: those that were not seen yet.
    """

    def __init__(self, schema: Schema) -> None:
        self._fields = schema.fields
        self.paths = set(_with_default(schema.fields, ()))
        self._parents = {path[:end] for path in self.paths for end in range(1, len(path))}

    def look(self, row: Mapping[str, Any]) -> None:
        """Look at an object."""
        if self.paths:
            self._members(row, self._fields, ())

    def _members(self, row: Mapping[str, Any], fields: Sequence[t.NestedField], parent: Path) -> None:
        for field in fields:
            path = (*parent, field.name)
            if field.name in row:
                self.paths.discard(path)
                if path in self._parents:
                    self._value(row[field.name], field.type, path)

    def _value(self, value: Any, kind: t.IcebergType, path: Path) -> None:
        match kind, value:
            case t.StructType(), dict():
                self._members(value, kind.fields, path)
            case t.ListType(), list():
                for item in value:
                    self._value(item, kind.element, (*path, "element"))
            case t.MapType(), dict():
                for item in value.values():
                    self._value(item, kind.value, (*path, "value"))


def _with_default(fields: Sequence[t.NestedField], parent: Path) -> Iterator[Path]:
    for field in fields:
        path = (*parent, field.name)
        if field.write_default is not None:
            yield path
        yield from _below(field.type, path)


def _below(kind: t.IcebergType, path: Path) -> Iterator[Path]:
    match kind:
        case t.StructType():
            yield from _with_default(kind.fields, path)
        case t.ListType():
            yield from _below(kind.element, (*path, "element"))
        case t.MapType():
            yield from _below(kind.value, (*path, "value"))


def with_required(schema: Schema, absent: Collection[Path]) -> Schema:
    """Return the schema with the fields of some paths as required ones, whose default objects without the key get."""
    return replace(schema, fields=_marked(schema.fields, (), absent)) if absent else schema


def _marked(fields: Sequence[t.NestedField], parent: Path, absent: Collection[Path]) -> tuple[t.NestedField, ...]:
    return tuple(
        replace(
            field,
            required=field.required or (*parent, field.name) in absent,
            type=_marked_type(field.type, (*parent, field.name), absent),
        )
        for field in fields
    )


def _marked_type(kind: t.IcebergType, path: Path, absent: Collection[Path]) -> t.IcebergType:
    match kind:
        case t.StructType():
            return t.StructType(fields=_marked(kind.fields, path, absent))
        case t.ListType():
            return replace(kind, element=_marked_type(kind.element, (*path, "element"), absent))
        case t.MapType():
            return replace(kind, value=_marked_type(kind.value, (*path, "value"), absent))
    return kind


def if_missing(field: t.NestedField) -> Any:
    """Return what stands for a key that an object does not have: JSON of the default if the field is required, or None.

    Of binary and fixed, which JSON does not have, the bytes.
    """
    return _default(field) if field.required else None


def _default(field: t.NestedField) -> Any:
    found = field.write_default
    match field.type:
        case _ if found is None:
            return None
        case t.StructType():
            members = {child.name: _default(child) for child in field.type.fields}
            return {name: value for name, value in members.items() if value is not None}
        case t.MapType():
            return dict(zip(map(str, found["keys"]), found["values"], strict=True))
        case t.BinaryType() | t.FixedType():
            return bytes.fromhex(found)
    return found
