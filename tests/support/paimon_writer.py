"""A small writer of Paimon metadata for tests: rows as bytes, and tables of any number of files that don't exist.

table = PaimonBuilder(io, "memory:///t", fields={"id": "BIGINT", "p": "STRING"}, partition_keys=["p"])
table.commit([table.add("a.parquet", partition=("x",), rows=3)])
"""

import io
import json
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa

from airflow_iceberg.format.avro.container import write_container
from airflow_iceberg.paimon.containers import read_records
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.types import PaimonField, PaimonType, parse_type
from airflow_iceberg.storage.base import FileIO

FIXED = {"TINYINT": "<b", "SMALLINT": "<h", "INT": "<i", "DATE": "<i", "BIGINT": "<q", "FLOAT": "<f", "DOUBLE": "<d"}
WIDTHS = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INT": 4, "DATE": 4, "TIME": 4, "FLOAT": 4}


def encode_row(values: Sequence[Any], types: Sequence[PaimonType]) -> bytes:
    """Return a serialized BinaryRow with its arity before it."""
    return len(types).to_bytes(4, "big") + _row(values, types)


def _row(values: Sequence[Any], types: Sequence[PaimonType]) -> bytes:
    start = (len(types) + 63 + 8) // 64 * 8
    nulls = sum(1 << (index + 8) for index, value in enumerate(values) if value is None)
    return _region(nulls.to_bytes(start, "little"), values, types, [8] * len(types))


def _array(values: Sequence[Any], element: PaimonType) -> bytes:
    nulls = sum(1 << index for index, value in enumerate(values) if value is None)
    head = struct.pack("<i", len(values)) + nulls.to_bytes((len(values) + 31) // 32 * 4, "little")
    return _region(head, values, [element] * len(values), [WIDTHS.get(element.root, 8)] * len(values))


def _map(value: Mapping[Any, Any], key: PaimonType, item: PaimonType) -> bytes:
    keys = _array(list(value), key)
    return struct.pack("<i", len(keys)) + keys + _array(list(value.values()), item)


def _region(head: bytes, values: Sequence[Any], types: Sequence[PaimonType], widths: Sequence[int]) -> bytes:
    end = len(head) + sum(widths)
    end += -end % 8
    slots, variable = bytearray(), bytearray()
    for value, type_, width in zip(values, types, widths, strict=True):
        slot, part = (bytes(width), b"") if value is None else _slot(value, type_, end + len(variable))
        slots += slot.ljust(width, b"\0")
        variable += part + bytes(-len(part) % 8)
    return (head + bytes(slots)).ljust(end, b"\0") + bytes(variable)


def _slot(value: Any, type_: PaimonType, offset: int) -> tuple[bytes, bytes]:
    """Return the slot of a value and what belongs into the variable part at an offset."""
    root = type_.root
    if root in FIXED:
        return struct.pack(FIXED[root], value), b""
    if root == "BOOLEAN":
        return bytes([value]), b""
    if root == "TIME":
        return struct.pack("<i", value // 1000), b""
    if root == "DECIMAL":
        unscaled = int(Decimal(value).scaleb(type_.scale, context=_WIDE))
        if type_.precision <= 18:
            return struct.pack("<q", unscaled), b""
        data = unscaled.to_bytes((unscaled.bit_length() // 8) + 1, "big", signed=True)
        return struct.pack("<ii", len(data), offset), data.ljust(16, b"\0")
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        nanos = value if type_.precision > 6 else value * 1000
        millis, rest = divmod(nanos, 1_000_000)
        if type_.precision <= 3:
            return struct.pack("<q", millis), b""
        return struct.pack("<ii", rest, offset), struct.pack("<q", millis)
    if root in ("CHAR", "VARCHAR", "BINARY", "VARBINARY", "BLOB"):
        data = value.encode() if isinstance(value, str) else value
        if len(data) <= 7:
            return data.ljust(7, b"\0") + bytes([0x80 | len(data)]), b""
    else:
        data = _nested(value, type_)
    return struct.pack("<ii", len(data), offset), data


def _nested(value: Any, type_: PaimonType) -> bytes:
    if type_.root == "ARRAY":
        return _array(value, _known(type_.element))
    if type_.root == "VECTOR":
        element = _known(type_.element)
        width = WIDTHS.get(element.root, 8)
        data = b"".join(_slot(item, element, 0)[0].ljust(width, b"\0") for item in value)
        return data + bytes(-len(data) % 8)
    if type_.root == "MAP":
        return _map(value, _known(type_.key), _known(type_.value))
    if type_.root == "MULTISET":
        return _map(value, _known(type_.element), parse_type("INT NOT NULL"))
    if type_.root == "VARIANT":
        return struct.pack("<i", len(value[0])) + value[0] + value[1]
    return _row(value, [field.type for field in type_.fields])


def _known(type_: PaimonType | None) -> PaimonType:
    assert type_ is not None
    return type_


_WIDE = Context(prec=80)

# --- manifests --------------------------------------------------------------------------------------------------------


def nullable(type_: Any) -> list[Any]:
    return ["null", type_]


def array(type_: Any) -> dict[str, Any]:
    return {"type": "array", "items": type_}


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": type_} for key, type_ in fields.items()]}


def stats_schema(name: str) -> dict[str, Any]:
    counts = nullable(array(nullable("long")))
    return record(name, _MIN_VALUES="bytes", _MAX_VALUES="bytes", _NULL_COUNTS=counts)


def each(names: str, type_: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), type_)


STRINGS = nullable(array("string"))
START = each("_VERSION _KIND", "int") | {"_PARTITION": "bytes", "_BUCKET": "int"}
FILE = record(
    "file",
    _FILE_NAME="string",
    **each("_FILE_SIZE _ROW_COUNT", "long"),
    **each("_MIN_KEY _MAX_KEY", "bytes"),
    _KEY_STATS=stats_schema("key_stats"),
    _VALUE_STATS=stats_schema("value_stats"),
    **each("_MIN_SEQUENCE_NUMBER _MAX_SEQUENCE_NUMBER _SCHEMA_ID", "long"),
    _LEVEL="int",
    _EXTRA_FILES=array("string"),
    _CREATION_TIME=nullable({"type": "long", "logicalType": "timestamp-millis"}),
    _DELETE_ROW_COUNT=nullable("long"),
    _EMBEDDED_FILE_INDEX=nullable("bytes"),
    _FILE_SOURCE=nullable("int"),
    _VALUE_STATS_COLS=STRINGS,
    _EXTERNAL_PATH=nullable("string"),
    _FIRST_ROW_ID=nullable("long"),
    _WRITE_COLS=STRINGS,
)
ENTRY = record("entry", **START, _TOTAL_BUCKETS="int", _FILE=FILE)
LISTED = record(
    "manifest",
    _VERSION="int",
    _FILE_NAME="string",
    **each("_FILE_SIZE _NUM_ADDED_FILES _NUM_DELETED_FILES", "long"),
    _PARTITION_STATS=stats_schema("stats"),
    _SCHEMA_ID="long",
    **each("_MIN_BUCKET _MAX_BUCKET _MIN_LEVEL _MAX_LEVEL", nullable("int")),
)
RANGE = record("range", f0="string", f1="int", f2="int", _CARDINALITY=nullable("long"))
INDEX = record(
    "index",
    **START,
    **each("_INDEX_TYPE _FILE_NAME", "string"),
    **each("_FILE_SIZE _ROW_COUNT", "long"),
    _DELETIONS_VECTORS_RANGES=nullable(array(RANGE)),
)
EMPTY_ROW = encode_row((), ())
NO_STATS = {"_MIN_VALUES": EMPTY_ROW, "_MAX_VALUES": EMPTY_ROW, "_NULL_COUNTS": []}


def write_avro(schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], *, codec: str = "zstandard") -> bytes:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    blocks = []
    rows = list(records)
    for start in range(0, len(rows), 100):
        target = io.BytesIO()
        for row in rows[start : start + 100]:
            fastavro.schemaless_writer(target, parsed, row)
        blocks.append((len(rows[start : start + 100]), target.getvalue()))
    return write_container({"avro.schema": json.dumps(schema)}, blocks, codec=codec)


def as_arrow(data: bytes) -> pa.Table:
    """Return the entries of a manifest as a table, to be written as ORC or Parquet."""
    stats = pa.struct([("_MIN_VALUES", "binary"), ("_MAX_VALUES", "binary"), ("_NULL_COUNTS", pa.list_(pa.int64()))])
    records = read_records(data)
    plain = pa.Table.from_pylist(records)
    kinds = {"_KEY_STATS": stats, "_VALUE_STATS": stats, "_EXTRA_FILES": pa.list_(pa.string())}
    inner = [pa.field(field.name, kinds.get(field.name, field.type)) for field in plain.schema.field("_FILE").type]
    known = [field for field in inner if field.type not in (pa.null(), pa.list_(pa.null()))]
    fields = [pa.field(f.name, pa.struct(known)) if f.name == "_FILE" else f for f in plain.schema]
    return pa.Table.from_pylist(records, schema=pa.schema(fields))


def schema_of(
    *fields: PaimonField, partition_keys: tuple[str, ...] = (), options: Mapping[str, str] | None = None
) -> PaimonSchema:
    return PaimonSchema(
        version=3,
        id=0,
        fields=fields,
        highest_field_id=max((field.id for field in fields), default=-1),
        partition_keys=partition_keys,
        primary_keys=(),
        options=options or {},
    )


class PaimonBuilder:
    """Writes a table commit by commit; the data files that it names are never there."""

    def __init__(
        self,
        store: FileIO,
        location: str,
        *,
        fields: Mapping[str, str],
        partition_keys: Sequence[str] = (),
        primary_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.store, self.location = store, location
        self.types = {name: parse_type(text) for name, text in fields.items()}
        self.partition_types = [self.types[name] for name in partition_keys]
        self.snapshots: list[dict[str, Any]] = []
        self.base: list[dict[str, Any]] = []
        schema = {
            "version": 3,
            "id": 0,
            "fields": [{"id": index, "name": name, "type": text} for index, (name, text) in enumerate(fields.items())],
            "highestFieldId": len(fields) - 1,
            "partitionKeys": list(partition_keys),
            "primaryKeys": list(primary_keys),
            "options": dict(options or {}),
        }
        self.write("schema/schema-0", json.dumps(schema).encode())

    def write(self, name: str, data: bytes) -> None:
        self.store.delete([f"{self.location}/{name}"])
        self.store.create(f"{self.location}/{name}", data)

    def add(
        self,
        name: str,
        *,
        partition: Sequence[Any] = (),
        rows: int = 1,
        kind: int = 0,
        bounds: tuple[Sequence[Any], Sequence[Any]] | None = None,
        bucket: int = 0,
        level: int = 0,
        **more: Any,
    ) -> dict[str, Any]:
        """Return an entry that adds a file, or deletes it where kind is 1."""
        stats: Mapping[str, Any] = NO_STATS
        if bounds is not None:
            low, high = (encode_row(values, list(self.types.values())) for values in bounds)
            stats = {"_MIN_VALUES": low, "_MAX_VALUES": high, "_NULL_COUNTS": [0] * len(self.types)}
        file = {
            **{"_FILE_NAME": name, "_FILE_SIZE": 1000, "_ROW_COUNT": rows, "_MIN_KEY": EMPTY_ROW},
            **{"_MAX_KEY": EMPTY_ROW, "_KEY_STATS": NO_STATS, "_VALUE_STATS": stats, "_MIN_SEQUENCE_NUMBER": 0},
            **{"_MAX_SEQUENCE_NUMBER": 0, "_SCHEMA_ID": 0, "_LEVEL": level, "_EXTRA_FILES": []},
            **{"_CREATION_TIME": 1_795_231_444_000, "_DELETE_ROW_COUNT": 0, "_FILE_SOURCE": 0},
            **more,
        }
        blob = encode_row(partition, self.partition_types)
        entry = {"_VERSION": 2, "_KIND": kind, "_PARTITION": blob, "_BUCKET": bucket, "_TOTAL_BUCKETS": -1}
        return {**entry, "_FILE": file}

    def manifest(self, entries: Sequence[Mapping[str, Any]], name: str | None = None) -> dict[str, Any]:
        name = name or f"manifest-{uuid.uuid4()}-0"
        data = write_avro(ENTRY, entries)
        self.write(f"manifest/{name}", data)
        kinds = [entry["_KIND"] for entry in entries]
        partitions = sorted({entry["_PARTITION"] for entry in entries})
        known = len(partitions) == 1 and bool(self.partition_types)
        stats = {"_MIN_VALUES": partitions[0], "_MAX_VALUES": partitions[0], "_NULL_COUNTS": None}
        return {
            **{"_VERSION": 2, "_FILE_NAME": name, "_FILE_SIZE": len(data), "_NUM_ADDED_FILES": kinds.count(0)},
            **{"_NUM_DELETED_FILES": kinds.count(1), "_PARTITION_STATS": stats if known else NO_STATS},
            "_SCHEMA_ID": 0,
            "_MIN_BUCKET": min(entry["_BUCKET"] for entry in entries),
            "_MAX_BUCKET": max(entry["_BUCKET"] for entry in entries),
            "_MIN_LEVEL": min(entry["_FILE"]["_LEVEL"] for entry in entries),
            "_MAX_LEVEL": max(entry["_FILE"]["_LEVEL"] for entry in entries),
        }

    def manifest_list(self, manifests: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
        name = f"manifest-list-{uuid.uuid4()}-0"
        data = write_avro(LISTED, manifests)
        self.write(f"manifest/{name}", data)
        return name, len(data)

    def commit(self, entries: Sequence[Mapping[str, Any]] = (), **more: Any) -> dict[str, Any]:
        """Write a snapshot that makes these changes, and the hint; return the snapshot."""
        delta = [self.manifest(entries)] if entries else []
        base_name, base_size = self.manifest_list(self.base)
        delta_name, delta_size = self.manifest_list(delta)
        number = len(self.snapshots) + 1
        rows = sum((1 - 2 * entry["_KIND"]) * entry["_FILE"]["_ROW_COUNT"] for entry in entries)
        before = self.snapshots[-1]["totalRecordCount"] if self.snapshots else 0
        snapshot = {
            **{"version": 3, "id": number, "schemaId": 0, "commitUser": "tests", "commitKind": "APPEND"},
            **{"baseManifestList": base_name, "baseManifestListSize": base_size},
            **{"deltaManifestList": delta_name, "deltaManifestListSize": delta_size},
            **{"commitIdentifier": 2**63 - 1, "timeMillis": 1_795_231_444_000 + number},
            **{"totalRecordCount": before + rows, "deltaRecordCount": rows},
            **more,
        }
        self.base += delta
        self.snapshots.append(snapshot)
        self.write(f"snapshot/snapshot-{number}", json.dumps(snapshot).encode())
        self.write("snapshot/LATEST", str(number).encode())
        return snapshot

    def commits(self, count: int) -> None:
        for _ in range(count):
            self.commit()

    def tag(self, name: str, snapshot: int) -> None:
        self.write(f"tag/tag-{name}", json.dumps(self.snapshots[snapshot - 1]).encode())

    def expire(self, before: int) -> None:
        self.store.delete(f"{self.location}/snapshot/snapshot-{number}" for number in range(1, before))

    def roll_back(self, to: int) -> None:
        later = range(to + 1, len(self.snapshots) + 1)
        self.store.delete(f"{self.location}/snapshot/snapshot-{number}" for number in later)
        del self.snapshots[to:]
        self.base = self.base[:to]
        self.write("snapshot/LATEST", str(to).encode())
