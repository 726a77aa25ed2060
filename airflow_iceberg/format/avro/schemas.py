"""The Avro schemas of Iceberg types, as this package writes them.

Here: types and names. Not here: the fields of manifests (`format.manifests.schemas`), the bytes of values (`rows`).

Spec: Appendix A, Avro.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema

Json = Any

_PRIMITIVES: Mapping[type[t.IcebergType], Json] = {
    t.BooleanType: "boolean",
    t.IntegerType: "int",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.BinaryType: "bytes",
    t.UnknownType: "null",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimeType: {"type": "long", "logicalType": "time-micros"},
    t.TimestampType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    t.TimestamptzType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    t.TimestampNsType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    t.TimestamptzNsType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
}


def primitive_schema(type_: t.IcebergType, defined: set[str]) -> Json | None:
    """Return the Avro type of a primitive one, None for others.

    Args:
        defined: the named types of the document so far: Avro defines one once and refers to it by name from then on.
    """
    if type(type_) in _PRIMITIVES:
        return _PRIMITIVES[type(type_)]
    if isinstance(type_, t.FixedType):
        # Differs from Java: as the specification requires; Java (to 1.11) reads fixed as bytes, and fails on own files.
        fixed: dict[str, Json] = {"type": "fixed", "size": type_.length, "name": f"fixed_{type_.length}"}
    elif isinstance(type_, t.UUIDType):
        fixed = {"type": "fixed", "size": 16, "logicalType": "uuid", "name": "uuid_fixed"}
    elif isinstance(type_, t.DecimalType):
        logical = {"logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
        name = f"decimal_{type_.precision}_{type_.scale}"
        fixed = {"type": "fixed", "size": decimal_size(type_.precision), **logical, "name": name}
    else:
        return None
    if fixed["name"] in defined:
        return fixed["name"]
    defined.add(fixed["name"])
    return fixed


def decimal_size(precision: int) -> int:
    """Return the number of bytes for any unscaled value of a precision, in two's complement."""
    return (int("9" * precision).bit_length() + 8) // 8


def unique_name(name: str, field_id: int, taken: set[str]) -> str:
    """Return the name of a field made legal for Avro, and different from those of its siblings, to which it is added.

    Two names may have the same legal form ("a.b" and "a_x2Eb"). Readers use ids, so a suffix is harmless.
    """
    found = avro_name(name)
    while found in taken:
        found = f"{found}_{field_id}"
    taken.add(found)
    return found


def avro_name(name: str) -> str:
    """Return the name made legal for Avro: letters, digits and underscores, not starting with a digit."""
    if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        return name
    result = "".join(c if re.match("[A-Za-z0-9_]", c, re.ASCII) else f"_x{ord(c):X}" for c in name)
    return "_" + result if result[:1].isdigit() or not result else result


def record_schema(schema: Schema, name: str = "table") -> Json:
    """Return the Avro record of the rows of a table; columns of unknown type are left out.

    Raises:
        UnsupportedError: a type whose values are not written.
    """
    return _Schemas().record(schema.as_struct(), name)


class _Schemas:
    def __init__(self) -> None:
        self._defined: set[str] = set()

    def record(self, struct: t.StructType, name: str) -> Json:
        taken: set[str] = set()
        children = [child for child in struct.fields if not isinstance(child.type, t.UnknownType)]
        return {"type": "record", "name": name, "fields": [self._field(child, taken) for child in children]}

    def _field(self, child: t.NestedField, taken: set[str]) -> Json:
        name = unique_name(child.name, child.id, taken)
        found = {"name": name, "type": self._value(child)}
        if child.doc is not None:
            found["doc"] = child.doc
        if not child.required:
            found["default"] = None
        found["field-id"] = child.id
        if name != child.name:
            found["iceberg-field-name"] = child.name
        return found

    def _value(self, child: t.NestedField) -> Json:
        found = self._type(child)
        return found if child.required else ["null", found]

    def _type(self, child: t.NestedField) -> Json:
        match child.type:
            case t.StructType():
                return self.record(child.type, f"r{child.id}")
            case t.ListType(element_id=element_id):
                return {"type": "array", "items": self._value(child.type.element_field), "element-id": element_id}
            case t.MapType():
                return self._map(child.type)
            case t.VariantType():
                parts = [{"name": name, "type": "bytes"} for name in ("metadata", "value")]
                return {"type": "record", "logicalType": "variant", "name": f"r{child.id}", "fields": parts}
        found = None if isinstance(child.type, t.UnknownType) else primitive_schema(child.type, self._defined)
        if found is None:
            raise UnsupportedError(f"column '{child.name}' is of type {child.type}, which is not written to avro files")
        return found

    def _map(self, type_: t.MapType) -> Json:
        key, value = type_.key_field, type_.value_field
        if isinstance(type_.key, t.StringType):
            return {"type": "map", "values": self._value(value), "key-id": key.id, "value-id": value.id}
        # Avro's own maps have string keys only.
        taken: set[str] = set()
        fields = [self._field(key, taken), self._field(value, taken)]
        record = {"type": "record", "name": f"k{key.id}_v{value.id}", "fields": fields}
        return {"type": "array", "items": record, "logicalType": "map"}
