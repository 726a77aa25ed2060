"""The trigger of `IcebergSnapshotSensor`.

`plan.new_snapshot` decides which snapshot meets the condition; `waiting` says what a look means. This module imports
nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow_iceberg.plan.new_snapshot import SnapshotCondition
from airflow_iceberg.triggers._trigger import SnapshotTrigger
from airflow_iceberg.triggers.conditions import wait_for
from airflow_iceberg.triggers.waiting import Waiting


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
        waiting = Waiting(self.table, self.condition, wait_for_table=self.wait_for_table)
        return {"status": "found", "snapshot": await wait_for(waiting, self.iceberg_conn_id, self.poll_interval)}
