"""Types <-> the JSON of metadata. Spec: Appendix C, Schemas."""

from collections.abc import Mapping
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.json_fields import Fields, json_type_name


def type_from_json(value: Any, *, path: str | None = None, where: str = "type") -> t.IcebergType:
    """Read a type of metadata JSON.

    Args:
        value: a type string, or the object of a struct, list or map.
        path: location of the file, for errors.
        where: place inside the document, for errors.
    Raises:
        FormatError: no such type, or a malformed one.
    Spec: Appendix C, Schemas.
    """
    if isinstance(value, str):
        return _leaf_from_json(value, path, where)
    if not isinstance(value, Mapping):
        raise FormatError(f"unexpected type {json_type_name(value)} (expected str or object) in '{where}'", path=path)
    fields = Fields(value, where, path)
    kind = fields.str("type")
    if kind == "struct":
        return t.StructType(fields=tuple(_field_from_json(child) for child in fields.items("fields")))
    if kind == "list":
        return _list_from_json(fields)
    if kind == "map":
        return _map_from_json(fields)
    return fields.fail("type", f"unknown nested type '{kind}' (expected struct, list or map)")


def _leaf_from_json(text: str, path: str | None, where: str) -> t.LeafType:
    try:
        found = t.parse_leaf(text)
    except InvalidInputError as error:
        raise FormatError(f"{error} in '{where}'", path=path) from error
    if found is None:
        raise FormatError(f"unknown type '{text}' in '{where}'", path=path)
    return found


def _child_type(fields: Fields, key: str) -> t.IcebergType:
    return type_from_json(fields.raw(key), path=fields.path, where=fields.place(key))


def _field_from_json(fields: Fields) -> t.NestedField:
    return t.NestedField(
        id=fields.int("id"),
        name=fields.name("name"),
        type=_child_type(fields, "type"),
        required=fields.bool("required"),
        doc=fields.opt_str("doc"),
        initial_default=fields.data.get("initial-default"),
        write_default=fields.data.get("write-default"),
    )


def _list_from_json(fields: Fields) -> t.ListType:
    return t.ListType(
        element_id=fields.int("element-id"),
        element=_child_type(fields, "element"),
        element_required=fields.bool("element-required"),
    )


def _map_from_json(fields: Fields) -> t.MapType:
    return t.MapType(
        key_id=fields.int("key-id"),
        key=_child_type(fields, "key"),
        value_id=fields.int("value-id"),
        value=_child_type(fields, "value"),
        value_required=fields.bool("value-required"),
    )


def type_to_json(type_: t.IcebergType) -> str | dict[str, Any]:
    """Return the type as metadata JSON has it, keys in Java's order. Inverse of `type_from_json`."""
    if isinstance(type_, t.StructType):
        return {"type": "struct", "fields": [field_to_json(child) for child in type_.fields]}
    if isinstance(type_, t.ListType):
        return {"type": "list", **_inner_to_json(type_.element_field), "element-required": type_.element_required}
    if isinstance(type_, t.MapType):
        inner = _inner_to_json(type_.key_field) | _inner_to_json(type_.value_field)
        return {"type": "map", **inner, "value-required": type_.value_required}
    return str(type_)


def _inner_to_json(field: t.NestedField) -> dict[str, Any]:
    return {f"{field.name}-id": field.id, field.name: type_to_json(field.type)}


def field_to_json(field: t.NestedField) -> dict[str, Any]:
    """Return the field as metadata JSON has it, keys in Java's order."""
    optional = {"doc": field.doc, "initial-default": field.initial_default, "write-default": field.write_default}
    result = {"id": field.id, "name": field.name, "required": field.required, "type": type_to_json(field.type)}
    return result | {key: value for key, value in optional.items() if value is not None}
