"""How the records of a manifest or manifest list are read: by field id, whatever the names in the file's Avro schema.

Here: the schema that records are decoded with. Not here: the schemas that are written (`schemas`).

fastavro turns logical types into Python objects (and dates before year 1 into errors). So it never gets the schema in
the file, but its *physical form*: without logical types, and every field renamed, by its field id, to the name used in
this package. The bytes of a record are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.manifests.schemas import FILE_COUNTS, SUMMARY, manifest_list_schema, manifest_schema
from airflow_iceberg.format.types import StructType

Json = Any
Convert = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How the records of a file are read.

    Attributes:
        physical: the schema in the file without logical types and with renamed fields; not yet parsed.
        partition: name in `physical` and conversion to a canonical value of each partition field, in the spec's order.
        texts: names of the partition fields that are texts.
    """

    physical: Json
    partition: tuple[tuple[str, Convert | None], ...]
    texts: frozenset[str] = frozenset()


_INT, _LONG, _BYTES = ("int",), ("int", "long"), ("bytes",)


def _names_and_types(record: Json) -> tuple[dict[int, str], dict[str, tuple[str, ...]]]:
    """Return the names of a record's fields by field id, and the Avro types that each of them may have."""
    names: dict[int, str] = {}
    types: dict[str, tuple[str, ...]] = {}
    for field in record["fields"]:
        type_ = field["type"][1] if isinstance(field["type"], list) else field["type"]
        kind = type_ if isinstance(type_, str) else type_["type"]
        names[field["field-id"]] = field["name"]
        types[field["name"]] = _LONG if kind == "long" else (kind,)
    return names, types


_LIST_NAMES, _LIST_TYPES = _names_and_types(manifest_list_schema(3))
_LIST_TYPES |= dict.fromkeys((name for _, name in FILE_COUNTS), _LONG)
_SUMMARY_NAMES, _SUMMARY_TYPES = _names_and_types(SUMMARY)
_ENTRY = manifest_schema(StructType(), 3)
_ENTRY_NAMES, _ENTRY_TYPES = _names_and_types(_ENTRY)
_FILE_NAMES, _FILE_TYPES = _names_and_types(_ENTRY["fields"][-1]["type"])
_FILE_NAMES[105] = "block_size_in_bytes"  # of version 1; not used
_MAP_NAMES = {
    **dict.fromkeys((117, 119, 121, 126, 129, 138), "key"),
    **dict.fromkeys((118, 120, 122, 127, 130, 139), "value"),
}
_LIST_REQUIRED = ("manifest_path", "manifest_length", "partition_spec_id", "added_snapshot_id")
_ENTRY_REQUIRED = ("status", "data_file")
_FILE_REQUIRED = ("file_path", "file_format", "partition", "record_count", "file_size_in_bytes")


def manifest_list_reading(schema: Json, *, path: str | None = None) -> Reading:
    """Return how the rows of a manifest list with this schema are read.

    Raises:
        FormatError: the schema is not that of a manifest list.
    """
    physical = _Physical(path)
    fields = physical.record(schema, _LIST_NAMES, _LIST_TYPES, _LIST_REQUIRED)
    items = _items(fields.get("partitions"))
    if items is not None:
        physical.record(items, _SUMMARY_NAMES, _SUMMARY_TYPES, ("contains_null",))
    return Reading(physical=physical.strip(schema), partition=())


def manifest_reading(schema: Json, *, spec: Json = None, path: str | None = None) -> Reading:
    """Return how the entries of a manifest with this schema are read.

    Args:
        spec: the fields of the partition spec in the file's header; without them, or if the schema has other fields,
            partition values are in the order of the file.
    Raises:
        FormatError: the schema is not that of a manifest.
    """
    physical = _Physical(path)
    entry = physical.record(schema, _ENTRY_NAMES, _ENTRY_TYPES, _ENTRY_REQUIRED)
    file = physical.record(entry["data_file"], _FILE_NAMES, _FILE_TYPES, _FILE_REQUIRED)
    for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
        physical.id_map(file.get(name), _LONG)
    for name in ("lower_bounds", "upper_bounds"):
        physical.id_map(file.get(name), _BYTES)
    for name in ("split_offsets", "equality_ids"):
        physical.array_of(file.get(name), _LONG)
    partition = physical.partition(file["partition"], spec)
    return Reading(physical=physical.strip(schema), partition=partition, texts=frozenset(physical.texts))


def _items(type_: Json) -> Json:
    return type_["items"] if isinstance(type_, dict) and type_.get("type") == "array" else None


def _in_order_of(spec: Json, fields: Sequence[dict[str, Json]]) -> Sequence[dict[str, Json]]:
    """Return the fields of a partition in the order of the spec, whose fields have the same ids."""
    known = spec if isinstance(spec, list) else []
    wanted = [item.get("field-id") for item in known if isinstance(item, dict)]
    by_id = {field.get("field-id"): field for field in fields if isinstance(field.get("field-id"), int)}
    if len(by_id) != len(fields) or len(wanted) != len(fields) or not all(isinstance(each, int) for each in wanted):
        return fields
    return [by_id[each] for each in wanted] if by_id.keys() == set(wanted) else fields


class _Physical:
    """Builds the physical form of a schema: new names by field id, checked types, no logical types."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._renamed: dict[int, str] = {}  # id() of a field's document -> its new name
        self._named: dict[str, Json] = {}
        self.texts: list[str] = []  # partition fields that are texts

    def record(
        self, schema: Json, names: Mapping[int, str], types: Mapping[str, tuple[str, ...]], required: tuple[str, ...]
    ) -> dict[str, Json]:
        """Rename the fields of a record and return the type of each known field, without its union."""
        known = {name: name for name in names.values()}
        result: dict[str, Json] = {}
        for field in self._fields(schema):
            field_id = field.get("field-id")
            # A field without an id, which the specification requires, is known by its name.
            name = names.get(field_id) if isinstance(field_id, int) else known.get(field["name"])
            if name is None or name in result:
                continue
            type_ = self._value_type(field["type"])
            if name in types and self._kind(type_) not in types[name]:
                raise self._error(f"unexpected Avro type {self._kind(type_)} (expected {types[name][-1]}) in {name!r}")
            self._renamed[id(field)] = name
            result[name] = type_
        for name in required:
            if name not in result:
                raise self._error(f"missing field {name!r} in the Avro schema")
        return result

    def id_map(self, type_: Json, value_kinds: tuple[str, ...]) -> None:
        items = _items(type_)
        if type_ is None:
            return
        self.record(self._resolve(items), _MAP_NAMES, {"key": _INT, "value": value_kinds}, ("key", "value"))

    def array_of(self, type_: Json, kinds: tuple[str, ...]) -> None:
        if type_ is not None and self._kind(self._resolve(_items(type_))) not in kinds:
            raise self._error(f"unexpected Avro list of {self._kind(_items(type_))} (expected {kinds[-1]})")

    def partition(self, schema: Json, spec: Json) -> tuple[tuple[str, Convert | None], ...]:
        result = []
        for number, field in enumerate(_in_order_of(spec, self._fields(schema))):
            name = f"p{number}"
            self._renamed[id(field)] = name
            type_ = self._value_type(field["type"])
            result.append((name, self._conversion(type_)))
            if self._kind(type_) == "string":
                self.texts.append(name)
        return tuple(result)

    def strip(self, schema: Json) -> Json:
        """Return the schema with new names and without logical types and defaults."""
        if isinstance(schema, str):
            return schema
        if isinstance(schema, list):
            return [self.strip(item) for item in schema]
        if not isinstance(schema, dict):
            raise self._error(f"unexpected Avro schema {type(schema).__name__}")
        match schema.get("type"):
            case "record":
                new = [
                    {"name": self._renamed.get(id(field), f"x{number}"), "type": self.strip(field["type"])}
                    for number, field in enumerate(self._fields(schema))
                ]
                return {"type": "record", "name": self._name(schema), "fields": new}
            case "array":
                return {"type": "array", "items": self.strip(schema.get("items"))}
            case "map":
                return {"type": "map", "values": self.strip(schema.get("values"))}
            case "fixed":
                return {"type": "fixed", "name": self._name(schema), "size": self._size(schema)}
            case "enum":
                return {"type": "enum", "name": self._name(schema), "symbols": schema.get("symbols")}
            case kind:
                return self.strip(kind)

    def _name(self, schema: Json) -> str:
        name = schema.get("name")
        if not isinstance(name, str):
            raise self._error("missing name of an Avro type")
        return name

    def _size(self, schema: Json) -> int:
        size = schema.get("size")
        if type(size) is not int or size < 0:
            raise self._error(f"unexpected size {size!r} (expected an int) of an Avro fixed type")
        return size

    def _fields(self, schema: Json) -> list[dict[str, Json]]:
        schema = self._resolve(schema)
        fields = schema.get("fields") if isinstance(schema, dict) and schema.get("type") == "record" else None
        if not isinstance(fields, list) or not all(
            isinstance(f, dict) and "type" in f and isinstance(f.get("name"), str) for f in fields
        ):
            raise self._error(f"unexpected Avro schema {self._kind(schema)} (expected a record)")
        self._named.setdefault(self._name(schema), schema)
        return fields

    def _value_type(self, type_: Json) -> Json:
        """Return the type of a field, out of its union with null."""
        if isinstance(type_, list):
            others = [item for item in type_ if item != "null"]
            type_ = others[0] if len(others) == 1 else "null" if not others else type_
        return self._resolve(type_)

    def _resolve(self, type_: Json) -> Json:
        if isinstance(type_, dict) and type_.get("type") == "fixed":
            self._named.setdefault(self._name(type_), type_)
        if isinstance(type_, dict) and isinstance(type_.get("type"), dict):
            return self._resolve(type_["type"])
        return self._named.get(type_, type_) if isinstance(type_, str) else type_

    def _kind(self, type_: Json) -> str:
        kind = type_.get("type") if isinstance(type_, dict) else type_
        return kind if isinstance(kind, str) else "union" if isinstance(kind, list) else type(kind).__name__

    def _conversion(self, type_: Json) -> Convert | None:
        """Return what makes a raw Avro value the canonical one, None when it is already."""
        kind = self._kind(type_)
        logical = type_.get("logicalType") if isinstance(type_, dict) else None
        if logical == "decimal" and kind in ("fixed", "bytes"):
            scale = type_.get("scale", 0)
            if type(scale) is not int or not 0 <= scale <= 38:
                raise self._error(f"unexpected scale {scale!r} of an Avro decimal")
            return _to_decimal(scale)
        if logical == "uuid" and kind == "fixed" and self._size(type_) == 16:
            return lambda data: UUID(bytes=data)
        if logical == "timestamp-millis":  # of other writers: Iceberg has no milliseconds
            return lambda millis: int(millis) * 1000
        if logical == "uuid" and kind == "string":
            return UUID
        if kind not in ("null", "boolean", "int", "long", "float", "double", "string", "bytes", "fixed"):
            raise self._error(f"unexpected Avro type {kind} (expected a primitive) in 'partition'")
        return None

    def _error(self, message: str) -> FormatError:
        return FormatError(message, path=self._path)


# Python's own context would round to 28 digits; a decimal of Iceberg has up to 38.
EXACT = Context(prec=60)


def _to_decimal(scale: int) -> Convert:
    return lambda data: Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, EXACT)
