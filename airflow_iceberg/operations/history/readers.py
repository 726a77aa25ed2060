"""Who has read the rows of some snapshots: later snapshots whose summaries name them as their inputs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import DAG_ID, OPERATION_KEY, RUN_ID, TASK_ID
from airflow_iceberg.commit.write_result import inputs_of
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.values.digits import whole_number

log = logging.getLogger(__name__)

# Each takes a request to the catalog, and one to the store.
MOST_TABLES = 100


def find_readers(table: OpenTable, snapshot_ids: Collection[int]) -> list[dict[str, Any]]:
    """Return the snapshots that have read rows of some snapshots, in this table and in those of the same namespace.

    Tables of other namespaces and catalogs are not looked into.
    """
    tainted = _descendants(table.metadata, snapshot_ids)
    found = list(_readers_in(table.metadata, table.name, table, tainted))
    if table.metadata.table_uuid is None:
        return found
    try:
        found_in = table.catalog.list_tables(table.catalog.namespace_of(table.identifier))
        others = [one for one in found_in if one != table.identifier]
    except IcebergError as error:
        log.warning("cannot look for tables that have read %s: %s", table.name, error)
        return found
    if len(others) > MOST_TABLES:
        log.warning("looked for readers of %s in %s of %s tables", table.name, MOST_TABLES, len(others))
    for identifier in others[:MOST_TABLES]:
        try:
            found += _readers_in(table.catalog.load(identifier).metadata, str(identifier), table, tainted)
        except IcebergError as error:
            log.warning("cannot tell whether %s has read %s: %s", identifier, table.name, error)
    return found


def _descendants(metadata: TableMetadata, snapshot_ids: Collection[int]) -> set[int]:
    """Return the snapshots that have some snapshots in their history, and these."""
    found = set(snapshot_ids)
    # A parent is older than its children.
    for snapshot in sorted(metadata.snapshots, key=lambda one: (one.sequence_number, one.timestamp_ms)):
        if snapshot.parent_snapshot_id in found:
            found.add(snapshot.snapshot_id)
    return found


def _readers_in(
    metadata: TableMetadata, name: str, table: OpenTable, tainted: Collection[int]
) -> Iterator[dict[str, Any]]:
    for snapshot in metadata.snapshots:
        entries = [one for one in inputs_of(snapshot).values() if isinstance(one, Mapping)]
        if any(_has_read(one, table, tainted) for one in entries):
            yield _described(snapshot, name)


def _has_read(entry: Mapping[str, Any], table: OpenTable, tainted: Collection[int]) -> bool:
    if entry.get("table-uuid") != (table.metadata.table_uuid or "") or str(entry.get("table")) != table.name:
        return False
    last, first = (whole_number(str(entry.get(name) or "")) for name in ("snapshot-id", "from-snapshot-id"))
    # Changes after a snapshot that has the rows already are others.
    return last in tainted and first not in tainted


def _described(snapshot: Snapshot, name: str) -> dict[str, Any]:
    summary = snapshot.summary
    names = {"dag_id": DAG_ID, "run_id": RUN_ID, "task_id": TASK_ID, "operation_key": OPERATION_KEY}
    return {
        "table": name,
        "snapshot_id": str(snapshot.snapshot_id),
        **{key: summary.get(entry) for key, entry in names.items()},
    }
