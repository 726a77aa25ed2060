"""Avro schemas as Arrow schemas, for source files: what fastavro's values become. No I/O here."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError

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
}


def arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema for an Avro file; raises InvalidInputError if it has no records, or a union of types."""
    if not (isinstance(schema, dict) and schema.get("type") == "record"):
        raise InvalidInputError("an Avro source file must hold records")
    return pa.schema(list(_arrow_type(schema, {}, "")))


def _arrow_type(schema: Any, named: dict[str, pa.DataType], where: str) -> pa.DataType:
    if isinstance(schema, list):
        return _union(schema, named, where)
    if isinstance(schema, str):
        return _by_name(schema, named, where)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _arrow_type(kind, named, where)
    if kind in ("record", "error"):
        fields = [pa.field(f["name"], _arrow_type(f["type"], named, f"{where}.{f['name']}")) for f in schema["fields"]]
        return _remember(schema, pa.struct(fields), named)
    if kind == "array":
        return pa.list_(_arrow_type(schema["items"], named, where))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(schema["values"], named, where))
    if kind == "enum":
        return _remember(schema, pa.string(), named)
    if kind == "fixed":
        return _remember(schema, _logical(schema, pa.binary(schema["size"])), named)
    return _logical(schema, _by_name(kind, named, where))


def _logical(schema: Mapping[str, Any], plain: pa.DataType) -> pa.DataType:
    name = schema.get("logicalType")
    if name == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if name == "uuid":
        # fastavro gives UUID objects, which no other Arrow type takes.
        return pa.uuid()
    return LOGICAL.get(str(name), plain)


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
