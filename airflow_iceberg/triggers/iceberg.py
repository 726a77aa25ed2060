"""The trigger of `IcebergSnapshotSensor`, and `look`, one look at a table, which the sensor calls too.

`plan.new_snapshot` decides which snapshot meets the condition. This module imports nothing heavy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.plan.new_snapshot import SnapshotCondition, find_snapshot
from airflow_iceberg.triggers._trigger import SnapshotTrigger, wait_on

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog
    from airflow_iceberg.format.snapshots import Snapshot

# Counts of a snapshot's summary that are part of the result, where the writer recorded them.
_COUNTS = tuple(f"{change}-{what}" for change in ("added", "deleted", "total") for what in ("data-files", "records"))


def look(
    catalog: Catalog, table: str, condition: SnapshotCondition, *, wait_for_table: bool = False
) -> dict[str, Any] | None:
    """Look at a table once.

    A store or a catalog that does not answer is logged, and is no error.

    Args:
        wait_for_table: whether a table or branch that does not exist is no error.

    Returns:
        The snapshot in the form of XCom; None if the wait continues.

    Raises:
        IcebergError: no later look can succeed, for example because the table does not exist.
    """
    try:
        snapshot = find_snapshot(catalog.load(table).metadata, condition)
    except IcebergError as error:
        wait_on(error, table, wait_for_table=wait_for_table)
        return None
    return None if snapshot is None else describe(snapshot, table=table, branch=condition.branch)


def describe(snapshot: Snapshot, *, table: str, branch: str) -> dict[str, Any]:
    """Return a snapshot in JSON types; its id is text, since JavaScript rounds integers above 2**53."""
    counts = {name.replace("-", "_"): _int(snapshot.summary.get(name)) for name in _COUNTS}
    parent = snapshot.parent_snapshot_id
    return {
        "table": table,
        "branch": branch,
        "snapshot_id": str(snapshot.snapshot_id),
        "parent_snapshot_id": None if parent is None else str(parent),
        "timestamp_ms": snapshot.timestamp_ms,
        "operation": snapshot.operation,
        **counts,
    }


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


class IcebergSnapshotTrigger(SnapshotTrigger):
    """Fires once: when a branch has a snapshot that meets the condition, or when no snapshot can meet it any more.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        branch, after_snapshot_id, after_snapshot_ms, after_ms, operations, include_maintenance: see
            `SnapshotCondition`; the id may be text.
        wait_for_table: whether the trigger waits for a table or branch that does not exist, instead of failing.
        poll_interval: seconds between two checks.
    """

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str,
        branch: str = "main",
        after_snapshot_id: str | int | None = None,
        after_snapshot_ms: int | None = None,
        after_ms: int | None = None,
        operations: Sequence[str] | None = None,
        include_maintenance: bool = False,
        wait_for_table: bool = False,
        poll_interval: float = 60.0,
    ) -> None:
        super().__init__(table=table, wait_for_table=wait_for_table, poll_interval=poll_interval)
        self.iceberg_conn_id = iceberg_conn_id
        self.condition = SnapshotCondition(
            branch=branch,
            after_snapshot_id=None if after_snapshot_id is None else int(after_snapshot_id),
            after_snapshot_ms=after_snapshot_ms,
            after_ms=after_ms,
            operations=None if operations is None else tuple(operations),
            include_maintenance=include_maintenance,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments of an equal trigger; the same for equal triggers."""
        after, operations = self.condition.after_snapshot_id, self.condition.operations
        return (
            "airflow_iceberg.triggers.iceberg.IcebergSnapshotTrigger",
            {
                **asdict(self.condition),
                "after_snapshot_id": None if after is None else str(after),
                "operations": None if operations is None else list(operations),
                "table": self.table,
                "iceberg_conn_id": self.iceberg_conn_id,
                "wait_for_table": self.wait_for_table,
                "poll_interval": self.poll_interval,
            },
        )

    async def _wait(self) -> Mapping[str, Any]:
        # One catalog for all looks: a client per look would log in and open connections each time.
        from airflow_iceberg.hooks.iceberg import load_catalog_async

        catalog = await load_catalog_async(self.iceberg_conn_id)
        options = {"wait_for_table": self.wait_for_table}
        while True:
            found = await asyncio.to_thread(look, catalog, self.table, self.condition, **options)
            if found is not None:
                return {"status": "found", "snapshot": found}
            await asyncio.sleep(self.poll_interval)
