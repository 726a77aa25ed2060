"""The Avro schemas of manifests and manifest lists: what is written, and how a foreign one is read by field id.

Here: schemas as JSON documents. Not here: records (`manifest_avro`) and the file around them (`avro_container`).

fastavro turns logical types into Python objects (and dates before year 1 into errors). So what it is given is never the
schema in the file but its *physical twin*: logical types taken out and every field renamed, by its field id, to the name used
in this package. The bytes of a record are the same for both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.spec import types as t

Json = Any
Convert = Callable[[Any], Any]

# --- what is written -------------------------------------------------------------------------------------------------


def _field(field_id: int, name: str, type_: Json, *, doc: str | None = None) -> dict[str, Json]:
    return {"name": name, "type": type_, **({"doc": doc} if doc else {}), "field-id": field_id}


def _optional(field_id: int, name: str, type_: Json, *, doc: str | None = None) -> dict[str, Json]:
    return {"name": name, "type": ["null", type_], **({"doc": doc} if doc else {}), "default": None, "field-id": field_id}


def _id_map(key_id: int, value_id: int, value: str) -> dict[str, Json]:
    """Avro's own maps have string keys only: a map by field id is an array of key-value records."""
    fields = [_field(key_id, "key", "int"), _field(value_id, "value", value)]
    return {"type": "array", "items": {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields}, "logicalType": "map"}


_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field(509, "contains_null", "boolean", doc="True if any file has a null partition value"),
        _optional(518, "contains_nan", "boolean", doc="True if any file has a nan partition value"),
        _optional(510, "lower_bound", "bytes", doc="Partition lower bound for all files"),
        _optional(511, "upper_bound", "bytes", doc="Partition upper bound for all files"),
    ],
}
_PARTITIONS = _optional(507, "partitions", {"type": "array", "items": _SUMMARY, "element-id": 508}, doc="Summary for each partition")
_LIST_HEAD = [
    _field(500, "manifest_path", "string", doc="Location URI with FS scheme"),
    _field(501, "manifest_length", "long", doc="Total file size in bytes"),
    _field(502, "partition_spec_id", "int", doc="Spec ID used to write"),
]
_LIST_V2 = [
    _field(517, "content", "int", doc="Contents of the manifest: 0=data, 1=deletes"),
    _field(515, "sequence_number", "long", doc="Sequence number when the manifest was added"),
    _field(516, "min_sequence_number", "long", doc="Lowest sequence number in the manifest"),
]
_ADDED_SNAPSHOT = _field(503, "added_snapshot_id", "long", doc="Snapshot ID that added the manifest")
_FILE_COUNTS = ((504, "added_files_count"), (505, "existing_files_count"), (506, "deleted_files_count"))
_ROW_COUNTS = ((512, "added_rows_count"), (513, "existing_rows_count"), (514, "deleted_rows_count"))
_KEY_METADATA = _optional(519, "key_metadata", "bytes", doc="Encryption key metadata blob")


def manifest_list_schema(format_version: int) -> dict[str, Json]:
    """Return the Avro schema of a manifest list. Spec: Manifest Lists."""
    if format_version == 1:
        counts = [_optional(i, name, "int") for i, name in _FILE_COUNTS]
        rows = [_optional(i, name, "long") for i, name in _ROW_COUNTS]
        fields = [*_LIST_HEAD, _ADDED_SNAPSHOT, *counts, _PARTITIONS, *rows, _KEY_METADATA]
    else:
        counts = [_field(i, name, "int") for i, name in _FILE_COUNTS]
        rows = [_field(i, name, "long") for i, name in _ROW_COUNTS]
        fields = [*_LIST_HEAD, *_LIST_V2, _ADDED_SNAPSHOT, *counts, *rows, _PARTITIONS, _KEY_METADATA]
    if format_version >= 3:
        fields.append(_optional(520, "first_row_id", "long", doc="Starting row ID to assign to new rows in ADDED data files"))
    return {"type": "record", "name": "manifest_file", "fields": fields}


def manifest_schema(partition: t.StructType, format_version: int) -> dict[str, Json]:
    """Return the Avro schema of a manifest. Spec: Manifests."""
    entry = [_field(0, "status", "int"), _optional(1, "snapshot_id", "long")]
    if format_version > 1:
        entry += [_optional(3, "sequence_number", "long"), _optional(4, "file_sequence_number", "long")]
    data_file = {"type": "record", "name": "r2", "fields": _data_file_fields(partition, format_version)}
    return {"type": "record", "name": "manifest_entry", "fields": [*entry, _field(2, "data_file", data_file)]}


def _data_file_fields(partition: t.StructType, format_version: int) -> list[dict[str, Json]]:
    content = _field(134, "content", "int", doc="Contents of the file: 0=data, 1=position deletes, 2=equality deletes")
    split_offsets = {"type": "array", "items": "long", "element-id": 133}
    fields = [
        *([content] if format_version > 1 else []),
        _field(100, "file_path", "string", doc="Location URI with FS scheme"),
        _field(101, "file_format", "string", doc="File format name: avro, orc, or parquet"),
        _field(102, "partition", partition_schema(partition), doc="Partition data tuple, schema based on the partition spec"),
        _field(103, "record_count", "long", doc="Number of records in the file"),
        _field(104, "file_size_in_bytes", "long", doc="Total file size in bytes"),
        *([_field(105, "block_size_in_bytes", "long")] if format_version == 1 else []),
        _optional(108, "column_sizes", _id_map(117, 118, "long"), doc="Map of column id to total size on disk"),
        _optional(109, "value_counts", _id_map(119, 120, "long"), doc="Map of column id to total count, including null and NaN"),
        _optional(110, "null_value_counts", _id_map(121, 122, "long"), doc="Map of column id to null value count"),
        _optional(137, "nan_value_counts", _id_map(138, 139, "long"), doc="Map of column id to number of NaN values in the column"),
        _optional(125, "lower_bounds", _id_map(126, 127, "bytes"), doc="Map of column id to lower bound"),
        _optional(128, "upper_bounds", _id_map(129, 130, "bytes"), doc="Map of column id to upper bound"),
        _optional(131, "key_metadata", "bytes", doc="Encryption key metadata blob"),
        _optional(132, "split_offsets", split_offsets, doc="Splittable offsets"),
    ]
    equality_ids = {"type": "array", "items": "int", "element-id": 136}
    if format_version > 1:
        fields.append(_optional(135, "equality_ids", equality_ids, doc="Equality comparison field IDs"))
    fields.append(_optional(140, "sort_order_id", "int", doc="Sort order ID"))
    if format_version >= 3:
        fields.append(_optional(142, "first_row_id", "long", doc="The first row ID assigned to the first row in the data file"))
    if format_version > 1:
        fields.append(_optional(143, "referenced_data_file", "string", doc="Location of the data file that all deletes reference"))
    if format_version >= 3:
        fields.append(_optional(144, "content_offset", "long", doc="The offset in the file where the content starts"))
        fields.append(_optional(145, "content_size_in_bytes", "long", doc="The length of referenced content stored in the file"))
    return fields


def partition_schema(partition: t.StructType) -> dict[str, Json]:
    """Return the Avro record of a partition tuple. Spec: Appendix A, Avro."""
    fields: list[Json] = []
    taken: set[str] = set()
    defined: set[str] = set()
    for field in partition.fields:
        name = avro_name(field.name)
        # Two names may become one when made legal ("a.b" and "a_x2Eb"); readers go by id, so a suffix is free.
        name = name if name not in taken else f"{name}_{field.id}"
        taken.add(name)
        item = _optional(field.id, name, _partition_type(field.type, defined))
        if name != field.name:
            item["iceberg-field-name"] = field.name
        fields.append(item)
    return {"type": "record", "name": "r102", "fields": fields}


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


def _partition_type(type_: t.IcebergType, defined: set[str]) -> Json:
    if type(type_) in _PRIMITIVES:
        return _PRIMITIVES[type(type_)]
    if isinstance(type_, t.FixedType):
        fixed: dict[str, Json] = {"type": "fixed", "size": type_.length, "name": f"fixed_{type_.length}"}
    elif isinstance(type_, t.UUIDType):
        fixed = {"type": "fixed", "size": 16, "logicalType": "uuid", "name": "uuid_fixed"}
    elif isinstance(type_, t.DecimalType):
        logical = {"logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
        fixed = {"type": "fixed", "size": decimal_size(type_.precision), **logical, "name": f"decimal_{type_.precision}_{type_.scale}"}
    else:
        raise UnsupportedError(f"a partition value of type {type_} cannot be written to a manifest")
    # Avro defines a named type once and refers to it by name from then on.
    if fixed["name"] in defined:
        return fixed["name"]
    defined.add(fixed["name"])
    return fixed


def decimal_size(precision: int) -> int:
    """Return how many bytes hold any unscaled value of a precision, in two's complement."""
    return (int("9" * precision).bit_length() + 8) // 8


def avro_name(name: str) -> str:
    """Return the name made legal for Avro: letters, digits and underscores, not starting with a digit."""
    if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        return name
    result = "".join(c if re.match("[A-Za-z0-9_]", c, re.ASCII) else f"_x{ord(c):X}" for c in name)
    return "_" + result if result[:1].isdigit() or not result else result


# --- what is read ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How the records of a file are read.

    Attributes:
        physical: the schema in the file with its logical types taken out and its fields renamed; not yet parsed.
        partition: of each partition field in the order of the file: its name in `physical`, and what makes its value canonical.
    """

    physical: Json
    partition: tuple[tuple[str, Convert | None], ...]


_LIST_NAMES = {
    **{500: "manifest_path", 501: "manifest_length", 502: "partition_spec_id", 517: "content", 515: "sequence_number"},
    **{516: "min_sequence_number", 503: "added_snapshot_id", 507: "partitions", 519: "key_metadata", 520: "first_row_id"},
    **dict(_FILE_COUNTS),
    **dict(_ROW_COUNTS),
    **{509: "contains_null", 518: "contains_nan", 510: "lower_bound", 511: "upper_bound"},
}
_ENTRY_NAMES = {0: "status", 1: "snapshot_id", 3: "sequence_number", 4: "file_sequence_number", 2: "data_file"}
_FILE_NAMES = {
    **{134: "content", 100: "file_path", 101: "file_format", 102: "partition", 103: "record_count", 104: "file_size_in_bytes"},
    **{108: "column_sizes", 109: "value_counts", 110: "null_value_counts", 137: "nan_value_counts", 125: "lower_bounds"},
    **{128: "upper_bounds", 131: "key_metadata", 132: "split_offsets", 135: "equality_ids", 140: "sort_order_id"},
    **{105: "block_size_in_bytes", 142: "first_row_id", 143: "referenced_data_file", 144: "content_offset", 145: "content_size_in_bytes"},
}
_MAP_NAMES = dict.fromkeys((117, 119, 121, 126, 129, 138), "key") | dict.fromkeys((118, 120, 122, 127, 130, 139), "value")

_INT, _LONG, _TEXT, _BYTES = ("int",), ("int", "long"), ("string",), ("bytes",)
_LIST_TYPES = {
    **dict.fromkeys(("manifest_path",), _TEXT),
    **dict.fromkeys(("manifest_length", "sequence_number", "min_sequence_number", "added_snapshot_id", "first_row_id"), _LONG),
    **dict.fromkeys(("partition_spec_id", "content"), _INT),
    **dict.fromkeys([name for _, name in (*_FILE_COUNTS, *_ROW_COUNTS)], _LONG),
    **dict.fromkeys(("key_metadata", "lower_bound", "upper_bound"), _BYTES),
    **dict.fromkeys(("contains_null", "contains_nan"), ("boolean",)),
    "partitions": ("array",),
}
_FILE_TYPES = {
    **dict.fromkeys(("status", "content", "sort_order_id"), _INT),
    **dict.fromkeys(("snapshot_id", "sequence_number", "file_sequence_number", "record_count", "file_size_in_bytes"), _LONG),
    **dict.fromkeys(("first_row_id", "content_offset", "content_size_in_bytes"), _LONG),
    **dict.fromkeys(("file_path", "file_format", "referenced_data_file"), _TEXT),
    **dict.fromkeys(("data_file", "partition"), ("record",)),
    **dict.fromkeys(("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"), ("array",)),
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


def manifest_reading(schema: Json, *, path: str | None = None) -> Reading:
    """Return how the entries of a manifest with this schema are read.

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
    partition = physical.partition(file["partition"])
    return Reading(physical=physical.strip(schema), partition=partition)


def _items(type_: Json) -> Json:
    return type_["items"] if isinstance(type_, dict) and type_.get("type") == "array" else None


class _Physical:
    """Builds the physical twin of a schema: new names by field id, checked types, no logical types."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._renamed: dict[int, str] = {}  # id() of a field's document -> its new name
        self._named: dict[str, Json] = {}

    def record(self, schema: Json, names: Mapping[int, str], types: Mapping[str, tuple[str, ...]], required: tuple[str, ...]) -> dict[str, Json]:
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

    def partition(self, schema: Json) -> tuple[tuple[str, Convert | None], ...]:
        result = []
        for number, field in enumerate(self._fields(schema)):
            name = f"p{number}"
            self._renamed[id(field)] = name
            result.append((name, self._conversion(self._value_type(field["type"]))))
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
            new = [{"name": self._renamed.get(id(f), f"x{i}"), "type": self.strip(f["type"])} for i, f in enumerate(fields)]
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
            return type_ != "null"
        kind = type_.get("type")
        if kind == "record":
            name = self._name(type_)
            return name not in seen and any(self._takes_bytes(f["type"], (*seen, name)) for f in self._fields(type_))
        if kind == "fixed":
            return self._size(type_) > 0
        return kind != "null"

    def _fields(self, schema: Json) -> list[dict[str, Json]]:
        schema = self._resolve(schema)
        fields = schema.get("fields") if isinstance(schema, dict) and schema.get("type") == "record" else None
        if not isinstance(fields, list) or not all(isinstance(f, dict) and "type" in f and isinstance(f.get("name"), str) for f in fields):
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
        if logical == "uuid" and kind == "string":
            return UUID
        if kind not in ("null", "boolean", "int", "long", "float", "double", "string", "bytes", "fixed"):
            raise self._error(f"unexpected Avro type {kind} (expected a primitive) in 'partition'")
        return None

    def _error(self, message: str) -> FormatError:
        return FormatError(message, path=self._path)


_EXACT = Context(prec=60)


def _to_decimal(scale: int) -> Convert:
    return lambda data: Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)
