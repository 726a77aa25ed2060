"""The Hive Metastore's entry of an Iceberg table: parameters, columns and classes, as Iceberg Java writes them.

Only `metadata_location` is authoritative for Iceberg; the rest is for Hive, for other engines and for users.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_iceberg.catalogs.hive.column_types import column_type
from airflow_iceberg.catalogs.hive.thrift_interface import (
    FieldSchema,
    PrincipalType,
    SerDeInfo,
    StorageDescriptor,
    Table,
)
from airflow_iceberg.errors import InvalidInputError, switch, true_or_false
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.digits import whole_number

METADATA_LOCATION = "metadata_location"
PREVIOUS_METADATA_LOCATION = "previous_metadata_location"
TABLE_TYPE = "table_type"
ICEBERG = "ICEBERG"
ENGINE_ENABLED = "engine.hive.enabled"
LOCK_ENABLED = "engine.hive.lock-enabled"
TABLE_OWNER = "hive.metastore.table.owner"
MAX_SIZE = "iceberg.hive.table-property-max-size"
# The longest value of a parameter in the metastore's databases.
MAX_VALUE_CHARS = 32_672
MAX_COMMENT_CHARS = 256
# Hive's word for times with a zone. A Hive 2 doesn't know it and fails at the next change of a table that has it.
ZONED, ZONED_HIVE2 = "timestamp with local time zone", "timestamp"
_MAX_RETENTION = 2**31 - 1

_STORAGE_HANDLER = "storage_handler"
_HIVE_CLASSES = (
    "org.apache.iceberg.mr.hive.HiveIcebergInputFormat",
    "org.apache.iceberg.mr.hive.HiveIcebergOutputFormat",
    "org.apache.iceberg.mr.hive.HiveIcebergSerDe",
)
_HIVE_STORAGE_HANDLER = "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"
# Hive cannot read such a table, and without these classes it could not even list it.
_PLACEHOLDER_CLASSES = (
    "org.apache.hadoop.mapred.FileInputFormat",
    "org.apache.hadoop.mapred.FileOutputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
)

# Properties that have another name in Hive.
_HIVE_NAMES = {TableProperties.gc_enabled.name: "external.table.purge"}
_STATISTICS = {"total-data-files": "numFiles", "total-records": "numRows", "total-files-size": "totalSize"}
# Parameters that no property of the table may set.
_OWN = frozenset({METADATA_LOCATION, PREVIOUS_METADATA_LOCATION, TABLE_TYPE, "EXTERNAL", _STORAGE_HANDLER, TABLE_OWNER})
# Parameters from the metadata, if they exist and fit; old ones are removed.
_SHOWN = (
    "uuid",
    "snapshot-count",
    "current-snapshot-id",
    "current-snapshot-timestamp-ms",
    "current-snapshot-summary",
    "current-schema",
    "default-partition-spec",
    "default-sort-order",
    *_STATISTICS.values(),
)
# Hive's statistics of columns, which do not cover new rows.
_OUTDATED = "COLUMN_STATS_ACCURATE"


def is_iceberg(table: Table) -> bool:
    """Tell whether a table of the metastore is an Iceberg table; views and Hive's own tables are not."""
    return str((table.parameters or {}).get(TABLE_TYPE, "")).upper() == ICEBERG


def told_location(table: Table | None) -> str | None:
    """Return the location that the entry of an Iceberg table has beside its metadata."""
    return table.sd.location or None if table is not None and is_iceberg(table) and table.sd is not None else None


def new_table(
    database: str,
    name: str,
    metadata: TableMetadata,
    location: str,
    *,
    now_ms: int,
    owner: str,
    options: Options,
    zoned: str,
) -> Table:
    """Return the entry of a new table; `owner` is used unless the table's properties name one."""
    table = Table(
        tableName=name,
        dbName=database,
        owner=metadata.properties.get(TABLE_OWNER, owner),
        ownerType=PrincipalType.USER,
        createTime=now_ms // 1000,
        lastAccessTime=now_ms // 1000,
        retention=_MAX_RETENTION,
        partitionKeys=[],
        parameters={},
        tableType="EXTERNAL_TABLE",
    )
    update_table(table, metadata, location, before=None, options=options, zoned=zoned)
    return table


def update_table(
    table: Table,
    metadata: TableMetadata,
    location: str,
    *,
    before: TableMetadata | None,
    options: Options,
    zoned: str = ZONED,
) -> None:
    """Change the entry of a table to newer metadata; parameters of other programs are kept.

    Args:
        table: the entry, which is changed.
        location: location of the new metadata file.
        before: the previous metadata, whose properties are removed.
        zoned: the server's word for times with a zone.
    """
    has_hive = _is_on(metadata.properties.get(ENGINE_ENABLED), options.engine_enabled)
    old = dict(table.parameters or {})
    parameters = {key: value for key, value in old.items() if key not in _SHOWN and key != _OUTDATED}
    for key in before.properties if before else ():
        if key not in _OWN:
            parameters.pop(_HIVE_NAMES.get(key, key), None)
    shown = {_HIVE_NAMES.get(key, key): value for key, value in metadata.properties.items() if key not in _OWN}
    fits = options.max_value_chars or MAX_VALUE_CHARS
    parameters |= {key: value for key, value in (shown | _described(metadata, options)).items() if len(value) <= fits}
    parameters |= _counted(metadata)
    parameters |= {"EXTERNAL": "TRUE", TABLE_TYPE: ICEBERG, METADATA_LOCATION: location}
    if old.get(METADATA_LOCATION):
        parameters[PREVIOUS_METADATA_LOCATION] = old[METADATA_LOCATION]
    if has_hive:
        parameters[_STORAGE_HANDLER] = _HIVE_STORAGE_HANDLER
    else:
        parameters.pop(_STORAGE_HANDLER, None)
    table.parameters = parameters
    table.sd = _storage(metadata, has_hive=has_hive, zoned=zoned, was=table.sd)


class Options:
    """A catalog's properties for the entries of its tables.

    Attributes:
        engine_enabled: whether Hive can read tables without that property.
        is_hive2: whether times with a zone become times without one; None if it depends on the server's version.
        max_value_chars: length of a parameter at most, longer ones are left out; 0, as in Iceberg Java, for no schema,
            partitioning, sort order and snapshot.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.engine_enabled = switch(properties, "iceberg.engine.hive.enabled", ENGINE_ENABLED)
        hive2 = properties.get("hive.hive2-compatible", "").strip()
        self.is_hive2 = true_or_false("property 'hive.hive2-compatible'", hive2) if hive2 else None
        limit = properties.get(MAX_SIZE, "").strip() or str(MAX_VALUE_CHARS)
        number = whole_number(limit)
        if number is None:
            raise InvalidInputError(f"property {MAX_SIZE} is {limit[:100]!r}, expected a number of characters")
        self.max_value_chars = number


def _counted(metadata: TableMetadata) -> dict[str, str]:
    """Return the parameters from the metadata that are always written, since they are short."""
    counts = {"snapshot-count": str(len(metadata.snapshots))}
    if metadata.table_uuid:
        counts["uuid"] = metadata.table_uuid
    snapshot = metadata.current_snapshot()
    if snapshot is not None:
        counts |= {hive: snapshot.summary[key] for key, hive in _STATISTICS.items() if key in snapshot.summary}
    return counts


def _described(metadata: TableMetadata, options: Options) -> dict[str, str]:
    """Return the parameters that are written if they fit: schema, partitioning, sort order and snapshot."""
    if not options.max_value_chars:
        return {}
    facts = {"current-schema": _json(metadata.schema().to_dict())}
    if (spec := metadata.spec()).fields:
        facts["default-partition-spec"] = _json(spec.to_dict())
    if (order := metadata.sort_order()).fields:
        facts["default-sort-order"] = _json(order.to_dict())
    snapshot = metadata.current_snapshot()
    if snapshot is not None:
        facts["current-snapshot-id"] = str(snapshot.snapshot_id)
        facts["current-snapshot-timestamp-ms"] = str(snapshot.timestamp_ms)
        summary = {key: value for key, value in snapshot.summary.items() if key != "operation"}
        facts["current-snapshot-summary"] = _json(summary)
    return facts


def _storage(
    metadata: TableMetadata, *, has_hive: bool, zoned: str, was: StorageDescriptor | None
) -> StorageDescriptor:
    reads, writes, serde = _HIVE_CLASSES if has_hive else _PLACEHOLDER_CLASSES
    storage = was or StorageDescriptor(
        compressed=False, numBuckets=0, bucketCols=[], sortCols=[], parameters={}, storedAsSubDirectories=False
    )
    info = storage.serdeInfo or SerDeInfo(parameters={})
    info.serializationLib = serde
    storage.serdeInfo, storage.inputFormat, storage.outputFormat = info, reads, writes
    storage.location = metadata.location
    storage.cols = hive_columns(metadata.schema(), zoned=zoned)
    return storage


def hive_columns(schema: Schema, *, zoned: str = ZONED) -> list[FieldSchema]:
    """Return the columns as Hive describes them."""
    return [
        FieldSchema(
            name=column.name,
            type=column_type(column.type, zoned=zoned, other="binary"),
            comment=(column.doc or "")[:MAX_COMMENT_CHARS],
        )
        for column in schema.fields
    ]


def _is_on(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
