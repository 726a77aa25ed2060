"""Avro schemas as Arrow schemas, for source files: what fastavro's values become. No I/O here."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.arrow.types import EXTENSION_KEY, VARIANT

Convert: TypeAlias = Callable[[Any], Any]

PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
# fastavro gives datetime objects for these: to the microsecond.
LOGICAL: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    # It leaves these as they are stored.
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
# What Iceberg adds to a timestamp: false for one without a zone.
_IS_INSTANT = "adjust-to-utc"


def arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema for an Avro file; raises InvalidInputError if it has no records, or a union of types."""
    if not (isinstance(schema, dict) and schema.get("type") == "record"):
        raise InvalidInputError("an Avro source file must hold records")
    return pa.schema(list(_arrow_type(schema, {}, "")))


def _without_uuids(schema: Any) -> Any:
    """Return the schema with the text or the bytes that UUIDs are stored as."""
    if isinstance(schema, list):
        return [_without_uuids(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _without_uuids(value) if name in _SCHEMAS else value for name, value in schema.items()}
    if found.get("fields"):
        found["fields"] = [{**field, "type": _without_uuids(field["type"])} for field in found["fields"]]
    if found.get("logicalType") == "uuid":
        del found["logicalType"]
    return found


def without_defaults(schema: Any) -> Any:
    """Return the schema without the defaults of fields, which no file with rows needs."""
    if isinstance(schema, list):
        return [without_defaults(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: without_defaults(value) if name in _SCHEMAS else value for name, value in schema.items()}
    if found.get("fields"):
        fields = [{**field, "type": without_defaults(field["type"])} for field in found["fields"]]
        found["fields"] = [{key: value for key, value in field.items() if key != "default"} for field in fields]
    return found


# Members of a schema that are schemas.
_SCHEMAS = ("type", "items", "values")


def read_as(schema: Any) -> tuple[pa.Schema, Convert | None]:
    """Return the Arrow schema that records are read as, and the function that a record needs for it, None for none.

    Arrow takes fastavro's UUID objects in columns alone; below them UUIDs are text, or the bytes that are stored.
    """
    declared, stored = arrow_schema(schema), arrow_schema(_without_uuids(schema))
    fields = [one if one.type == pa.uuid() else other for one, other in zip(declared, stored, strict=True)]
    named: dict[str, Convert | None] = {}
    converts = {field["name"]: _uuids_as_texts(field["type"], named) for field in schema["fields"]}
    below = {f.name: convert for f in fields if f.type != pa.uuid() and (convert := converts[f.name]) is not None}
    return pa.schema(fields), _in_record(below)


def _uuids_as_texts(schema: Any, named: dict[str, Convert | None]) -> Convert | None:
    """Return the function that makes texts of the UUIDs in a value, None if it has none."""
    if isinstance(schema, list):
        found = [_uuids_as_texts(branch, named) for branch in schema]
        return next((convert for convert in found if convert is not None), None)
    if isinstance(schema, str):
        return named.get(schema) or named.get(schema.rsplit(".", 1)[-1])
    kind = schema["type"]
    if kind in ("record", "error"):
        fields = {field["name"]: _uuids_as_texts(field["type"], named) for field in schema["fields"]}
        named[schema["name"]] = _in_record({name: convert for name, convert in fields.items() if convert is not None})
        return named[schema["name"]]
    if kind == "array":
        return _in_items(_uuids_as_texts(schema["items"], named))
    if kind == "map":
        return _in_values(_uuids_as_texts(schema["values"], named))
    if isinstance(kind, dict | list):
        return _uuids_as_texts(kind, named)
    return str if kind == "string" and schema.get("logicalType") == "uuid" else None


def _in_record(fields: Mapping[str, Convert]) -> Convert | None:
    def convert(record: Any) -> Any:
        for name, inner in fields.items():
            if record[name] is not None:
                record[name] = inner(record[name])
        return record

    return convert if fields else None


def _in_items(inner: Convert | None) -> Convert | None:
    return inner and (lambda items: [item if item is None else inner(item) for item in items])


def _in_values(inner: Convert | None) -> Convert | None:
    return inner and (lambda values: {k: item if item is None else inner(item) for k, item in values.items()})


def _arrow_type(schema: Any, named: dict[str, pa.DataType], where: str) -> pa.DataType:
    if isinstance(schema, list):
        return _union(schema, named, where)
    if isinstance(schema, str):
        return _by_name(schema, named, where)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _arrow_type(kind, named, where)
    if kind in ("record", "error"):
        fields = [_field(f["name"], f["type"], named, f"{where}.{f['name']}") for f in schema["fields"]]
        return _remember(schema, pa.struct(fields), named)
    if kind == "array" and schema.get("logicalType") == "map":
        return _map_of_pairs(schema["items"], named, where)
    if kind == "array":
        return pa.list_(_field("item", schema["items"], named, where))
    if kind == "map":
        return pa.map_(pa.string(), _field("value", schema["values"], named, where))
    if kind == "enum":
        return _remember(schema, pa.string(), named)
    if kind == "fixed":
        return _remember(schema, _logical(schema, pa.binary(schema["size"])), named)
    return _logical(schema, _by_name(kind, named, where))


def _field(name: str, schema: Any, named: dict[str, pa.DataType], where: str) -> pa.Field:
    """Return a field, which says that it is a variant if it is one."""
    branches = schema if isinstance(schema, list) else [schema]
    found = pa.field(name, _arrow_type(schema, named, where))
    is_variant = any(isinstance(branch, dict) and branch.get("logicalType") == "variant" for branch in branches)
    return found.with_metadata({EXTENSION_KEY: VARIANT}) if is_variant else found


def _map_of_pairs(pair: Any, named: dict[str, pa.DataType], where: str) -> pa.DataType:
    """Return the type of a map as Iceberg stores it if its keys are no texts: an array of records of key and value."""
    found = _arrow_type(pair, named, where)
    return pa.map_(found.field("key").with_nullable(False), found.field("value"))


def _logical(schema: Mapping[str, Any], plain: pa.DataType) -> pa.DataType:
    name = schema.get("logicalType")
    if name == "decimal":
        precision, scale = schema["precision"], schema.get("scale", 0)
        return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else pa.decimal256(precision, scale)
    if name == "uuid":
        return pa.uuid()
    found = LOGICAL.get(str(name), plain)
    if pa.types.is_timestamp(found) and schema.get(_IS_INSTANT) is False:
        return pa.timestamp(found.unit)
    return found


_MOST_DIGITS = 38


def _union(branches: list[Any], named: dict[str, pa.DataType], where: str) -> pa.DataType:
    rest = [branch for branch in branches if branch != "null"]
    if len(rest) > 1:
        name = where.lstrip(".") or "the record"
        raise InvalidInputError(f"column {name!r} is an Avro union of {len(rest)} types; expected one, or one and null")
    return _arrow_type(rest[0], named, where) if rest else pa.null()


def _by_name(name: str, named: dict[str, pa.DataType], where: str) -> pa.DataType:
    if name in PRIMITIVES:
        return PRIMITIVES[name]
    found = named.get(name) or named.get(name.rsplit(".", 1)[-1])
    if found is None:
        raise InvalidInputError(f"column {where.lstrip('.')!r} has the unknown or recursive Avro type {name!r}")
    return found


def _remember(schema: Mapping[str, Any], kind: pa.DataType, named: dict[str, pa.DataType]) -> pa.DataType:
    named[schema["name"]] = kind
    return kind
