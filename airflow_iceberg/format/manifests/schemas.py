"""The Avro schemas of manifests and manifest lists as they are written.

Here: schemas as JSON documents. Not here: how the schema of a file is read (`by_field_id`), records (`records`) and
the file around them (`format.avro.container`).
"""

from __future__ import annotations

from typing import Any

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.avro.schemas import primitive_schema, unique_name

Json = Any


def _field(field_id: int, name: str, type_: Json, *, doc: str | None = None) -> dict[str, Json]:
    return {"name": name, "type": type_, **({"doc": doc} if doc else {}), "field-id": field_id}


def _optional(field_id: int, name: str, type_: Json, *, doc: str | None = None) -> dict[str, Json]:
    return {
        "name": name,
        "type": ["null", type_],
        **({"doc": doc} if doc else {}),
        "default": None,
        "field-id": field_id,
    }


def _id_map(key_id: int, value_id: int, value: str) -> dict[str, Json]:
    """Avro's own maps have string keys only: a map by field id is an array of key-value records."""
    fields = [_field(key_id, "key", "int"), _field(value_id, "value", value)]
    return {
        "type": "array",
        "items": {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields},
        "logicalType": "map",
    }


SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field(509, "contains_null", "boolean", doc="True if any file has a null partition value"),
        _optional(518, "contains_nan", "boolean", doc="True if any file has a nan partition value"),
        _optional(510, "lower_bound", "bytes", doc="Partition lower bound for all files"),
        _optional(511, "upper_bound", "bytes", doc="Partition upper bound for all files"),
    ],
}
_PARTITIONS = _optional(
    507, "partitions", {"type": "array", "items": SUMMARY, "element-id": 508}, doc="Summary for each partition"
)
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
FILE_COUNTS = ((504, "added_files_count"), (505, "existing_files_count"), (506, "deleted_files_count"))
ROW_COUNTS = ((512, "added_rows_count"), (513, "existing_rows_count"), (514, "deleted_rows_count"))
_KEY_METADATA = _optional(519, "key_metadata", "bytes", doc="Encryption key metadata blob")


def manifest_list_schema(format_version: int) -> dict[str, Json]:
    """Return the Avro schema of a manifest list. Spec: Manifest Lists."""
    make = _optional if format_version == 1 else _field
    files = [make(field_id, name, "int") for field_id, name in FILE_COUNTS]
    rows = [make(field_id, name, "long") for field_id, name in ROW_COUNTS]
    if format_version == 1:
        fields = [*_LIST_HEAD, _ADDED_SNAPSHOT, *files, _PARTITIONS, *rows, _KEY_METADATA]
    else:
        fields = [*_LIST_HEAD, *_LIST_V2, _ADDED_SNAPSHOT, *files, *rows, _PARTITIONS, _KEY_METADATA]
    if format_version >= 3:
        fields.append(
            _optional(520, "first_row_id", "long", doc="Starting row ID to assign to new rows in ADDED data files")
        )
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
        _field(
            102,
            "partition",
            partition_schema(partition),
            doc="Partition data tuple, schema based on the partition spec",
        ),
        _field(103, "record_count", "long", doc="Number of records in the file"),
        _field(104, "file_size_in_bytes", "long", doc="Total file size in bytes"),
        *([_field(105, "block_size_in_bytes", "long")] if format_version == 1 else []),
        _optional(108, "column_sizes", _id_map(117, 118, "long"), doc="Map of column id to total size on disk"),
        _optional(
            109,
            "value_counts",
            _id_map(119, 120, "long"),
            doc="Map of column id to total count, including null and NaN",
        ),
        _optional(110, "null_value_counts", _id_map(121, 122, "long"), doc="Map of column id to null value count"),
        _optional(
            137,
            "nan_value_counts",
            _id_map(138, 139, "long"),
            doc="Map of column id to number of NaN values in the column",
        ),
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
        fields.append(
            _optional(142, "first_row_id", "long", doc="The first row ID assigned to the first row in the data file")
        )
    if format_version > 1:
        fields.append(
            _optional(143, "referenced_data_file", "string", doc="Location of the data file that all deletes reference")
        )
    if format_version >= 3:
        fields.append(_optional(144, "content_offset", "long", doc="The offset in the file where the content starts"))
        fields.append(
            _optional(145, "content_size_in_bytes", "long", doc="The length of referenced content stored in the file")
        )
    return fields


def partition_schema(partition: t.StructType) -> dict[str, Json]:
    """Return the Avro record of a partition tuple. Spec: Appendix A, Avro."""
    fields: list[Json] = []
    taken: set[str] = set()
    defined: set[str] = set()
    for field in partition.fields:
        name = unique_name(field.name, field.id, taken)
        type_ = primitive_schema(field.type, defined)
        if type_ is None:
            raise UnsupportedError(f"a partition value of type {field.type} cannot be written to a manifest")
        item = _optional(field.id, name, type_)
        if type_ == "null":
            # The type of a void field whose column was dropped is unknown; a union cannot have null twice.
            item["type"] = "null"
        if name != field.name:
            item["iceberg-field-name"] = field.name
        fields.append(item)
    return {"type": "record", "name": "r102", "fields": fields}
