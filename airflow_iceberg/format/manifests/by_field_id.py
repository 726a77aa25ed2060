"""How the records of a manifest or manifest list are read: by field id, whatever the file's Avro schema calls them.

Here: what becomes of the schema found in a file. Not here: the schemas that are written (`manifest_schemas`).

fastavro turns logical types into Python objects (and dates before year 1 into errors). So what it is given is never
the schema in the file but its *physical twin*: logical types taken out and every field renamed, by its field id, to the
name used in this package. The bytes of a record are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.manifests.schemas import FILE_COUNTS, ROW_COUNTS

Json = Any
Convert = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How the records of a file are read.

    Attributes:
        physical: the schema in the file with its logical types taken out and its fields renamed; not yet parsed.
        partition: of each partition field in the order of its spec: its name in `physical`, and what makes its value
            canonical.
        texts: the names of those that are texts.
    """

    physical: Json
    partition: tuple[tuple[str, Convert | None], ...]
    texts: frozenset[str] = frozenset()


_LIST_NAMES = {
    **{500: "manifest_path", 501: "manifest_length", 502: "partition_spec_id", 517: "content", 515: "sequence_number"},
    **{
        516: "min_sequence_number",
        503: "added_snapshot_id",
        507: "partitions",
        519: "key_metadata",
        520: "first_row_id",
    },
    **dict(FILE_COUNTS),
    **dict(ROW_COUNTS),
    **{509: "contains_null", 518: "contains_nan", 510: "lower_bound", 511: "upper_bound"},
}
_ENTRY_NAMES = {0: "status", 1: "snapshot_id", 3: "sequence_number", 4: "file_sequence_number", 2: "data_file"}
_FILE_NAMES = {
    **{
        134: "content",
        100: "file_path",
        101: "file_format",
        102: "partition",
        103: "record_count",
        104: "file_size_in_bytes",
    },
    **{
        108: "column_sizes",
        109: "value_counts",
        110: "null_value_counts",
        137: "nan_value_counts",
        125: "lower_bounds",
    },
    **{128: "upper_bounds", 131: "key_metadata", 132: "split_offsets", 135: "equality_ids", 140: "sort_order_id"},
    **{
        105: "block_size_in_bytes",
        142: "first_row_id",
        143: "referenced_data_file",
        144: "content_offset",
        145: "content_size_in_bytes",
    },
}
_MAP_NAMES = dict.fromkeys((117, 119, 121, 126, 129, 138), "key") | dict.fromkeys(
    (118, 120, 122, 127, 130, 139), "value"
)

_INT, _LONG, _TEXT, _BYTES = ("int",), ("int", "long"), ("string",), ("bytes",)
_LIST_TYPES = {
    **dict.fromkeys(("manifest_path",), _TEXT),
    **dict.fromkeys(
        ("manifest_length", "sequence_number", "min_sequence_number", "added_snapshot_id", "first_row_id"), _LONG
    ),
    **dict.fromkeys(("partition_spec_id", "content"), _INT),
    **dict.fromkeys([name for _, name in (*FILE_COUNTS, *ROW_COUNTS)], _LONG),
    **dict.fromkeys(("key_metadata", "lower_bound", "upper_bound"), _BYTES),
    **dict.fromkeys(("contains_null", "contains_nan"), ("boolean",)),
    "partitions": ("array",),
}
_FILE_TYPES = {
    **dict.fromkeys(("status", "content", "sort_order_id"), _INT),
    **dict.fromkeys(
        ("snapshot_id", "sequence_number", "file_sequence_number", "record_count", "file_size_in_bytes"), _LONG
    ),
    **dict.fromkeys(("first_row_id", "content_offset", "content_size_in_bytes"), _LONG),
    **dict.fromkeys(("file_path", "file_format", "referenced_data_file"), _TEXT),
    **dict.fromkeys(("data_file", "partition"), ("record",)),
    **dict.fromkeys(
        ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"),
        ("array",),
    ),
    **dict.fromkeys(("split_offsets", "equality_ids"), ("array",)),
    "key_metadata": _BYTES,
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
        physical.record(items, _LIST_NAMES, _LIST_TYPES, ("contains_null",))
    return Reading(physical=physical.strip(schema), partition=())


def manifest_reading(schema: Json, *, spec: Json = None, path: str | None = None) -> Reading:
    """Return how the entries of a manifest with this schema are read.

    Args:
        spec: the fields of the partition spec, as the file's header has them; without them, or when they are not those
            of the schema, partition values are taken in the order of the file.
    Raises:
        FormatError: the schema is not that of a manifest.
    """
    physical = _Physical(path)
    entry = physical.record(schema, _ENTRY_NAMES, _FILE_TYPES, _ENTRY_REQUIRED)
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
    """Return the fields of a partition in the order of the spec's, which have the same ids."""
    known = spec if isinstance(spec, list) else []
    wanted = [item.get("field-id") for item in known if isinstance(item, dict)]
    by_id = {field.get("field-id"): field for field in fields if isinstance(field.get("field-id"), int)}
    if len(by_id) != len(fields) or len(wanted) != len(fields) or not all(isinstance(each, int) for each in wanted):
        return fields
    return [by_id[each] for each in wanted] if by_id.keys() == set(wanted) else fields


class _Physical:
    """Builds the physical twin of a schema: new names by field id, checked types, no logical types."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._renamed: dict[int, str] = {}  # id() of a field's document -> its new name
        self._named: dict[str, Json] = {}
        self.texts: list[str] = []  # partition fields that are texts

    def record(
        self, schema: Json, names: Mapping[int, str], types: Mapping[str, tuple[str, ...]], required: tuple[str, ...]
    ) -> dict[str, Json]:
        """Rename the fields of a record and return the type of each known one, taken out of its union."""
        known = {name: name for name in names.values()}
        result: dict[str, Json] = {}
        for field in self._fields(schema):
            field_id = field.get("field-id")
            # A field without an id, which the spec requires, still says by its name what it is.
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
        kind = schema.get("type")
        if kind == "record":
            fields = self._fields(schema)
            new = [
                {"name": self._renamed.get(id(f), f"x{i}"), "type": self.strip(f["type"])} for i, f in enumerate(fields)
            ]
            return {"type": "record", "name": self._name(schema), "fields": new}
        if kind == "array":
            items = schema.get("items")
            if not self._takes_bytes(items, ()):
                # A few bytes could claim billions of such items.
                raise self._error("unexpected Avro list of items without bytes")
            return {"type": "array", "items": self.strip(items)}
        if kind == "map":
            return {"type": "map", "values": self.strip(schema.get("values"))}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name(schema), "size": self._size(schema)}
        if kind == "enum":
            return {"type": "enum", "name": self._name(schema), "symbols": schema.get("symbols")}
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

    def _takes_bytes(self, type_: Json, seen: tuple[str, ...]) -> bool:
        """Return whether every value of a type has at least one byte."""
        type_ = self._resolve(type_)
        if isinstance(type_, list):
            return True  # the number of the branch
        if not isinstance(type_, dict):
            return bool(type_ != "null")
        kind = type_.get("type")
        if kind == "record":
            name = self._name(type_)
            return name not in seen and any(self._takes_bytes(f["type"], (*seen, name)) for f in self._fields(type_))
        if kind == "fixed":
            return self._size(type_) > 0
        return bool(kind != "null")

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
