"""Schemas of Spark DataFrames, in their JSON form, as the Arrow schemas that `mapInArrow` gives.

The JSON form has been the same since Spark 2; pyspark's own conversion has another signature in each version.
"""

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.arrow.types import EXTENSION_KEY, VARIANT

PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    # Of Spark 4. Python's side of a variant is its two binaries, as in the table.
    "variant": pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TEXT = re.compile(r"(var)?char\(\d+\)|string( collate .*)?")
_TIME = re.compile(r"time(\(\d+\))?")


def arrow_schema(document: Mapping[str, Any]) -> pa.Schema:
    """Return the Arrow schema of a DataFrame from its `schema.jsonValue()`.

    Raises:
        InvalidInputError: a column has a type that cannot leave the JVM as Arrow, such as an interval.
    """
    return pa.schema(list(_arrow_type(document, "")))


def _arrow_type(kind: Any, where: str) -> pa.DataType:
    if isinstance(kind, str):
        return _primitive(kind, where)
    if kind["type"] == "struct":
        fields = kind["fields"]
        return pa.struct([_field(f["name"], f["type"], f"{where}.{f['name']}") for f in fields])
    if kind["type"] == "array":
        return pa.list_(_field("item", kind["elementType"], f"{where}.element"))
    if kind["type"] == "map":
        key = _arrow_type(kind["keyType"], f"{where}.key")
        return pa.map_(key, _field("value", kind["valueType"], f"{where}.value"))
    if kind["type"] == "udt" and "sqlType" in kind:
        return _arrow_type(kind["sqlType"], where)
    return _primitive(str(kind["type"]), where)


def _field(name: str, kind: Any, where: str) -> pa.Field:
    """Return a field, which says that it is a variant if it is one."""
    found = pa.field(name, _arrow_type(kind, where))
    return found.with_metadata({EXTENSION_KEY: VARIANT}) if kind == "variant" else found


def _primitive(name: str, where: str) -> pa.DataType:
    if name in PRIMITIVES:
        return PRIMITIVES[name]
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    if _TEXT.fullmatch(name):
        return pa.string()
    if _TIME.fullmatch(name):
        return pa.time64("ns")
    raise InvalidInputError(
        f"column '{where.lstrip('.')}' has Spark's type {name}, which no Iceberg column takes; cast it in the query"
    )
