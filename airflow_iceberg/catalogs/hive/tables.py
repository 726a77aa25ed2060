"""What the Hive Metastore shows of an Iceberg table: parameters, columns and classes, as Iceberg Java writes them.

Not here: when it is written (`hive.swap`). Only `metadata_location` is authoritative for Iceberg; the rest is for Hive,
for other engines and for users.
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
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema

METADATA_LOCATION = "metadata_location"
PREVIOUS_METADATA_LOCATION = "previous_metadata_location"
TABLE_TYPE = "table_type"
ICEBERG = "ICEBERG"
ENGINE_ENABLED = "engine.hive.enabled"
LOCK_ENABLED = "engine.hive.lock-enabled"
TABLE_OWNER = "hive.metastore.table.owner"
MAX_SIZE = "iceberg.hive.table-property-max-size"
# What the value of a parameter may have in the metastore's databases.
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
# Without them Hive could not even show the table; it can't read it either.
_PLACEHOLDER_CLASSES = (
    "org.apache.hadoop.mapred.FileInputFormat",
    "org.apache.hadoop.mapred.FileOutputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
)

# Properties that mean the same to Hive under another name.
_HIVE_NAMES = {TableProperties.gc_enabled.name: "external.table.purge"}
_STATISTICS = {"total-data-files": "numFiles", "total-records": "numRows", "total-files-size": "totalSize"}
# Ours alone: no property of the table may set them.
_OWN = frozenset({METADATA_LOCATION, PREVIOUS_METADATA_LOCATION, TABLE_TYPE, "EXTERNAL", _STORAGE_HANDLER, TABLE_OWNER})
# Shown of the metadata, where they exist and fit; stale ones go.
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
# Statistics of columns that Hive computed of rows that are no longer all.
_OUTDATED = "COLUMN_STATS_ACCURATE"


def is_iceberg(table: Table) -> bool:
    """Tell whether a table of the metastore is an Iceberg table; views and Hive's own tables are not."""
    return str((table.parameters or {}).get(TABLE_TYPE, "")).upper() == ICEBERG


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
    """Return the table that is to be made.

    Args:
        location: of the metadata file.
        owner: unless the table's properties name one.
    """
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
    """Let a table of the metastore show newer metadata; entries of other programs are kept.

    Args:
        table: is changed.
        location: of the new metadata file.
        before: the metadata that it showed until now; its properties go unless the new metadata has them.
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
    """What a catalog's properties say of the tables in the metastore.

    Attributes:
        engine_enabled: whether Hive is to read tables that don't say themselves.
        is_hive2: whether times with a zone are shown without one; None leaves it to the server's version.
        max_value_chars: parameters that are longer are left out; with 0, as in Iceberg Java, schema, partitioning, sort
            order and snapshot are not shown at all.
    Raises:
        InvalidInputError: a property can't be understood.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        asked = properties.get("iceberg.engine.hive.enabled") or properties.get(ENGINE_ENABLED)
        self.engine_enabled = _is_on(asked, False)
        hive2 = properties.get("hive.hive2-compatible")
        self.is_hive2 = None if hive2 is None else _is_on(hive2, False)
        limit = properties.get(MAX_SIZE, "").strip() or str(MAX_VALUE_CHARS)
        if not (limit.isascii() and limit.isdigit()):
            raise InvalidInputError(f"property {MAX_SIZE} is {limit!r}, expected a number of characters")
        self.max_value_chars = int(limit)


def _counted(metadata: TableMetadata) -> dict[str, str]:
    """Return the metadata entries that are always shown besides the properties: they are short."""
    counts = {"snapshot-count": str(len(metadata.snapshots))}
    if metadata.table_uuid:
        counts["uuid"] = metadata.table_uuid
    snapshot = metadata.current_snapshot()
    if snapshot is not None:
        counts |= {hive: snapshot.summary[key] for key, hive in _STATISTICS.items() if key in snapshot.summary}
    return counts


def _described(metadata: TableMetadata, options: Options) -> dict[str, str]:
    """Return what is shown where it fits: schema, partitioning, sort order and snapshot."""
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
