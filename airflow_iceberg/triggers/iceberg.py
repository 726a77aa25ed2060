"""The asynchronous half of waiting: looks at a table until a snapshot meets a condition.

Which snapshot that is decides `plan.new_snapshot`; `look` below, one look at a table and what its failures mean to
someone who waits, is shared with the sensor. The triggerer runs many triggers on one event loop: all reading happens in
threads, and this module imports nothing heavy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_iceberg.errors import IcebergError, NotFoundError
from airflow_iceberg.plan.new_snapshot import SnapshotCondition, find_snapshot
from airflow_iceberg.retries import is_final, to_event

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog
    from airflow_iceberg.format.snapshots import Snapshot

log = logging.getLogger(__name__)

# Counts of a snapshot's summary that are handed on, where the writer recorded them.
_COUNTS = (
    "added-data-files",
    "added-records",
    "deleted-data-files",
    "deleted-records",
    "total-data-files",
    "total-records",
)


def look(
    catalog: Catalog, table: str, condition: SnapshotCondition, *, wait_for_table: bool = False
) -> dict[str, Any] | None:
    """Look at a table once; None means: go on waiting.

    Waiting is not failing: a store or a catalog that does not answer is logged and looked at again later.

    Args:
        wait_for_table: whether a table (or branch) that is not there is waited for, too.
    Returns:
        The snapshot, as it goes into XCom.
    Raises:
        IcebergError: waiting longer is pointless, e.g. there is no such table.
    """
    try:
        snapshot = find_snapshot(catalog.load(table).metadata, condition)
    except NotFoundError as error:
        if not wait_for_table:
            raise
        log.info("still waiting: %s", error)
        return None
    except IcebergError as error:
        if is_final(error):
            raise
        log.warning("could not look at table %s, will look again: %s", table, error)
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


class IcebergSnapshotTrigger(BaseTrigger):
    """Fires once, when a branch has a snapshot that meets the condition, or when no snapshot can meet it any more.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        branch, after_snapshot_id, after_snapshot_ms, after_ms, operations, include_maintenance: see
            `SnapshotCondition`; the id as text.
        wait_for_table: whether the trigger waits for a table or branch that does not exist, instead of failing.
        poll_interval: seconds between two checks.
    """

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str,
        branch: str = "main",
        after_snapshot_id: str | None = None,
        after_snapshot_ms: int | None = None,
        after_ms: int | None = None,
        operations: Sequence[str] | None = None,
        include_maintenance: bool = False,
        wait_for_table: bool = False,
        poll_interval: float = 60.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.branch = branch
        self.after_snapshot_id = after_snapshot_id
        self.after_snapshot_ms = after_snapshot_ms
        self.after_ms = after_ms
        self.operations = operations
        self.include_maintenance = include_maintenance
        self.wait_for_table = wait_for_table
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what makes an equal trigger again; the same for equal triggers."""
        return (
            "airflow_iceberg.triggers.iceberg.IcebergSnapshotTrigger",
            {
                "table": self.table,
                "iceberg_conn_id": self.iceberg_conn_id,
                "branch": self.branch,
                "after_snapshot_id": None if self.after_snapshot_id is None else str(self.after_snapshot_id),
                "after_snapshot_ms": self.after_snapshot_ms,
                "after_ms": self.after_ms,
                "operations": None if self.operations is None else list(self.operations),
                "include_maintenance": self.include_maintenance,
                "wait_for_table": self.wait_for_table,
                "poll_interval": self.poll_interval,
            },
        )

    @property
    def condition(self) -> SnapshotCondition:
        """What is waited for."""
        after = self.after_snapshot_id
        return SnapshotCondition(
            branch=self.branch,
            after_snapshot_id=None if after is None else int(after),
            after_snapshot_ms=self.after_snapshot_ms,
            after_ms=self.after_ms,
            operations=None if self.operations is None else tuple(self.operations),
            include_maintenance=self.include_maintenance,
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something to say, and say it once."""
        event: Mapping[str, Any]
        try:
            found = await self._wait()
        except IcebergError as error:
            event = to_event(error)
        else:
            event = {"status": "found", "snapshot": found}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def _wait(self) -> Mapping[str, Any]:
        # One catalog for all looks: a client per look would log in and open connections each time.
        from airflow_iceberg.hooks.iceberg import load_catalog_async

        condition = self.condition
        catalog = await load_catalog_async(self.iceberg_conn_id)
        while True:
            found = await asyncio.to_thread(look, catalog, self.table, condition, wait_for_table=self.wait_for_table)
            if found is not None:
                return found
            await asyncio.sleep(self.poll_interval)
