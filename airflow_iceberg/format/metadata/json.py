"""Table metadata <-> its JSON document, for format versions 1, 2 and 3.

Here: fields that a version omits or writes twice. Not here: the meaning of the fields (`table_metadata`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.decompression import GrowthError, gunzip
from airflow_iceberg.format.first_bytes import refuse_other_kinds
from airflow_iceberg.format.json_fields import MAX_LONG, Fields
from airflow_iceberg.format.metadata.spec_schemas import excess_work
from airflow_iceberg.format.metadata.table_metadata import NO_PARTITION_ID, SUPPORTED_FORMAT_VERSIONS, TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import SortOrder

# Documents of the catalog's other objects, which begin like a table's, by the field that only they have.
_OTHERS = {"view-uuid": "view", "function-uuid": "function"}
_SUPPORTED_CODECS = (
    f"supported are gzip and none: set the table's property {TableProperties.metadata_compression_codec} with the "
    "writer that made the file"
)
# Measured with a million properties: key, value, and their places in two dictionaries.
_VALUE_BYTES = 200
# What stands before values; also as escapes, in texts that are lists or documents themselves.
_MARKS = (b",", b"[", b"{", b"\\u002c", b"\\u002C", b"\\u005b", b"\\u005B", b"\\u007b", b"\\u007B")
# Names of columns, which a document may spell out in less than it takes to have them; see `Schema.names_bytes`.
_MOST_NAMES_BYTES, _MOST_NAMES_BYTES_BESIDE_OTHERS = 512 << 20, 32 << 20
# The name of a partition field is told again with each partition.
_LONGEST_PARTITION_FIELD = 1_000
_KNOWN = frozenset(
    (
        *("format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id"),
        *("schemas", "current-schema-id", "partition-spec", "partition-specs", "default-spec-id", "last-partition-id"),
        *("schema", "properties", "current-snapshot-id", "snapshots", "snapshot-log", "metadata-log", "sort-orders"),
        *("default-sort-order-id", "refs", "statistics", "partition-statistics", "next-row-id", "encryption-keys"),
    )
)


class TooLargeError(UnsupportedError):
    """A document has more than its reader takes, who knows what to do about it."""


def read(
    data: bytes,
    *,
    path: str | None = None,
    most_bytes: int | None = None,
    most_values: int | None = None,
    most_memory: int | None = None,
) -> TableMetadata:
    """Read a metadata file; gzip is detected by the first bytes, whatever the file's name.

    Args:
        most_bytes, most_values: the size of a document, decompressed, and about how many values it may have.
        most_memory: how many bytes of memory it may take while it is read, about.

    Raises:
        FormatError: the file is torn, no JSON, or breaks the specification.
        TooLargeError: it is larger than that.
        UnsupportedError: format version 4 or later, another compression, encryption, or the document of a view or a
            function.
    """
    given = [data]
    del data  # it is not needed when its text is decoded, and both may be large
    document = _parse(given, path, most_bytes, most_values, most_memory)
    return from_dict(document, path=path, is_limited=most_memory is not None)


def write(metadata: TableMetadata) -> bytes:
    """Return the metadata file, uncompressed."""
    document = to_dict(metadata)
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell and UTF-8 cannot
        return json.dumps(document, separators=(",", ":")).encode()


def _parse(
    given: list[bytes], path: str | None, most_bytes: int | None, most_values: int | None, most_memory: int | None
) -> Mapping[str, Any]:
    data = given.pop()
    if not data:
        raise FormatError("unexpected empty file (expected table metadata); the file is torn", path=path)
    try:
        if data[:2] == b"\x1f\x8b":
            data = gunzip(data, limit=most_bytes)
        refuse_other_kinds(data, "table metadata", path=path, compressed=_SUPPORTED_CODECS)
        check_size(data, path, most_values, most_memory)
        text = data.decode(json.detect_encoding(data), "surrogatepass")
        del data
        document = json.loads(text, parse_constant=_no_number)
    except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:
        if most_bytes is not None and isinstance(error, GrowthError):
            raise _too_large(path, f"more than {most_bytes} bytes") from error
        raise FormatError(
            f"unexpected content (expected a JSON document: {error}); the file is torn, or not what it seems", path=path
        ) from error
    if not isinstance(document, dict):
        raise FormatError(f"unexpected type {type(document).__name__} (expected object)", path=path)
    return document


def check_size(data: bytes, path: str | None, most_values: int | None, most_memory: int | None) -> None:
    """Raise `TooLargeError` for a document of more values, or that takes more memory, than is read here."""
    if most_values is None and most_memory is None:
        return
    values = sum(map(data.count, _MARKS))
    if most_values is not None and values > most_values:
        raise _too_large(path, f"more than {most_values} values")
    # Its text, and the texts in it, beside its objects.
    memory = 2 * len(data) * _width(data) + _VALUE_BYTES * values
    if most_memory is not None and memory > most_memory:
        raise _too_large(path, f"values for more than {most_memory} bytes of memory")


def _too_large(path: str | None, what: str) -> TooLargeError:
    return TooLargeError(f"{path or 'the table metadata'} has {what}, which are not read here")


def _width(data: bytes) -> int:
    """Return how many bytes each character takes that Python decodes from UTF-8: as many as the widest one."""
    if data.isascii():
        return 1
    return 4 if data.translate(None, bytes(range(0xF0))) else 2


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def from_dict(value: Mapping[str, Any], *, path: str | None = None, is_limited: bool = False) -> TableMetadata:
    """Return the metadata in a JSON document; raises like `read`.

    Args:
        is_limited: whether the process does the work of others, too.
    """
    fields = Fields(value, "", path)
    where = f" of {path}" if path else ""
    for key, kind in _OTHERS.items():
        if key in value and "table-uuid" not in value:
            found = f"unexpected metadata of a {kind} (expected that of a table){where}"
            raise UnsupportedError(f"{found}: name a table, {kind}s are not supported")
    version = fields.int("format-version")
    if version not in SUPPORTED_FORMAT_VERSIONS:
        known = ", ".join(map(str, SUPPORTED_FORMAT_VERSIONS))
        raise UnsupportedError(f"format version {version}{where} is not supported (supported: {known})")
    try:
        return _read(fields, version, is_limited)
    except (FormatError, InvalidInputError) as error:
        # The checks of the parts do not know the file.
        if isinstance(error, FormatError) and error.path is not None:
            raise
        raise FormatError(str(error), path=path) from error
    except RecursionError as error:
        raise FormatError("types are nested too deeply in 'schemas'", path=path) from error


def _read(fields: Fields, version: int, is_limited: bool) -> TableMetadata:
    schemas, current_schema_id = _read_schemas(fields, version, is_limited)
    specs, default_spec_id = _read_specs(fields, version)
    if is_limited:
        _check_specs(fields.path, schemas, specs, current_schema_id)
    orders, default_order_id = _read_orders(fields, version)
    current_id, refs = _read_refs(fields)
    snapshots = _read_snapshots(fields)
    last_partition_id = fields.opt_int("last-partition-id") if version == 1 else fields.int("last-partition-id")
    # Other writers may give lower numbers than are in use: then the next commit would use an id twice.
    partition_ids = (f.field_id for spec in specs for f in spec.fields)
    column_ids = (schema.highest_field_id for schema in schemas)
    row_ids = ((s.first_row_id or 0) + (s.added_rows or 0) for s in snapshots)
    return TableMetadata(
        format_version=version,
        table_uuid=fields.opt_str("table-uuid") if version == 1 else fields.str("table-uuid"),
        location=fields.str("location"),
        last_sequence_number=0 if version == 1 else fields.int("last-sequence-number"),
        last_updated_ms=fields.int("last-updated-ms"),
        last_column_id=max(fields.int("last-column-id"), *column_ids, 0),
        current_schema_id=current_schema_id,
        schemas=schemas,
        default_spec_id=default_spec_id,
        partition_specs=specs,
        last_partition_id=max(last_partition_id or 0, *partition_ids, NO_PARTITION_ID),
        properties=fields.str_map("properties") if "properties" in fields else {},
        current_snapshot_id=current_id,
        snapshots=snapshots,
        snapshot_log=tuple((e.int("timestamp-ms"), e.int("snapshot-id")) for e in _items(fields, "snapshot-log")),
        metadata_log=tuple((e.int("timestamp-ms"), e.str("metadata-file")) for e in _items(fields, "metadata-log")),
        sort_orders=orders,
        default_sort_order_id=default_order_id,
        refs=refs,
        statistics=_raw(fields, "statistics"),
        partition_statistics=_raw(fields, "partition-statistics"),
        next_row_id=min(max(fields.int("next-row-id"), *row_ids, 0), MAX_LONG) if version >= 3 else None,
        encryption_keys=_raw(fields, "encryption-keys"),
        unknown=fields.rest(_KNOWN),
    )


def _items(fields: Fields, key: str) -> tuple[Fields, ...]:
    return tuple(fields.items(key)) if key in fields else ()


def _raw(fields: Fields, key: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(item.data for item in _items(fields, key))


def _read_schemas(fields: Fields, version: int, is_limited: bool) -> tuple[tuple[Schema, ...], int]:
    if version == 1 and "schemas" not in fields:
        schema = Schema.from_dict({**fields.mapping("schema"), "schema-id": 0}, path=fields.path, where="schema")
        return (schema,), 0
    schemas: list[Schema] = []
    most = left = _MOST_NAMES_BYTES_BESIDE_OTHERS if is_limited else _MOST_NAMES_BYTES
    for item in fields.items("schemas"):
        schemas.append(Schema.from_dict(item.data, path=fields.path, where=item.where))
        left -= schemas[-1].names_bytes
        if left < 0:
            raise _too_large(fields.path, f"names of columns that take more than {most} bytes in all schemas")
    return tuple(schemas), fields.int("current-schema-id")


def _read_specs(fields: Fields, version: int) -> tuple[tuple[PartitionSpec, ...], int]:
    if version == 1 and "partition-specs" not in fields:
        return (PartitionSpec.from_fields(fields.list("partition-spec"), path=fields.path),), 0
    items = fields.items("partition-specs")
    specs = tuple(PartitionSpec.from_dict(item.data, path=fields.path, where=item.where) for item in items)
    return specs, fields.int("default-spec-id")


def _check_specs(path: str | None, schemas: Sequence[Schema], specs: Sequence[PartitionSpec], current_id: int) -> None:
    """Raise `TooLargeError` for specs that make much work of little text."""
    current = next((one for one in schemas if one.schema_id == current_id), None)
    if what := "" if current is None else excess_work(current, schemas, specs):
        raise _too_large(path, what)
    longest = max((len(one.name) for spec in specs for one in spec.fields), default=0)
    if longest > _LONGEST_PARTITION_FIELD:
        raise _too_large(path, f"a partition field whose name has {longest} characters")


def _read_orders(fields: Fields, version: int) -> tuple[tuple[SortOrder, ...], int]:
    if version == 1 and "sort-orders" not in fields:
        return (SortOrder(order_id=0, fields=()),), 0
    orders = tuple(
        SortOrder.from_dict(item.data, path=fields.path, where=item.where) for item in fields.items("sort-orders")
    )
    return orders, fields.int("default-sort-order-id")


def _read_refs(fields: Fields) -> tuple[int | None, dict[str, SnapshotRef]]:
    """Return the current snapshot id and the refs; a current snapshot implies main, even if the file omits it."""
    current = fields.opt_int("current-snapshot-id")
    current = None if current == -1 else current
    child = fields.opt_child("refs") or Fields({}, "refs", fields.path)
    refs = {
        name: SnapshotRef.from_dict(child.mapping(name), path=fields.path, where=child.place(name))
        for name in child.data
    }
    if current is not None and MAIN_BRANCH not in refs:
        refs = {MAIN_BRANCH: SnapshotRef(snapshot_id=current), **refs}
    return current, refs


def _read_snapshots(fields: Fields) -> tuple[Snapshot, ...]:
    if "snapshots" not in fields:
        return ()
    items = fields.list("snapshots")
    return tuple(Snapshot.from_dict(item, path=fields.path, where=f"snapshots[{i}]") for i, item in enumerate(items))


def to_dict(metadata: TableMetadata) -> dict[str, Any]:
    """Return the JSON document, in the order in which Iceberg Java writes it, for diffs."""
    result: dict[str, Any] = {"format-version": metadata.format_version}
    if metadata.table_uuid is not None:
        result["table-uuid"] = metadata.table_uuid
    result["location"] = metadata.location
    if metadata.format_version > 1:
        result["last-sequence-number"] = metadata.last_sequence_number
    result["last-updated-ms"] = metadata.last_updated_ms
    result["last-column-id"] = metadata.last_column_id
    result |= _schemas_and_specs(metadata)
    result["properties"] = dict(metadata.properties)
    # "No snapshot" is -1 up to v2 and null from v3 on.
    none = -1 if metadata.format_version < 3 else None
    result["current-snapshot-id"] = none if metadata.current_snapshot_id is None else metadata.current_snapshot_id
    if metadata.next_row_id is not None:
        result["next-row-id"] = metadata.next_row_id
    if metadata.encryption_keys:
        result["encryption-keys"] = list(metadata.encryption_keys)
    result["refs"] = {name: ref.to_dict() for name, ref in metadata.refs.items()}
    result["snapshots"] = [snapshot.to_dict() for snapshot in metadata.snapshots]
    result["statistics"] = list(metadata.statistics)
    result["partition-statistics"] = list(metadata.partition_statistics)
    result["snapshot-log"] = [{"timestamp-ms": ms, "snapshot-id": i} for ms, i in metadata.snapshot_log]
    result["metadata-log"] = [{"timestamp-ms": ms, "metadata-file": file} for ms, file in metadata.metadata_log]
    return {**result, **metadata.unknown}


def _schemas_and_specs(metadata: TableMetadata) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if metadata.format_version == 1:  # for readers from before schemas and specs had ids
        result["schema"] = metadata.schema().to_dict()
    result["current-schema-id"] = metadata.current_schema_id
    result["schemas"] = [schema.to_dict() for schema in metadata.schemas]
    if metadata.format_version == 1:
        result["partition-spec"] = metadata.spec().fields_to_list()
    result["default-spec-id"] = metadata.default_spec_id
    result["partition-specs"] = [spec.to_dict() for spec in metadata.partition_specs]
    result["last-partition-id"] = metadata.last_partition_id
    result["default-sort-order-id"] = metadata.default_sort_order_id
    result["sort-orders"] = [order.to_dict() for order in metadata.sort_orders]
    return result
