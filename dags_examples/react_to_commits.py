"""Watch a table, and run a DAG for each commit to it.

Shows: `IcebergTableSnapshotTrigger` as the trigger of an `AssetWatcher`, and `table_events`, which reads the events.

Whoever commits to the table `shop.orders`, an event of the asset schedules `react_to_commits`. Compactions change no
rows and fire no event. Several commits between two looks are several events, which one run may get together.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, AssetWatcher, dag, task

from airflow_iceberg.events import table_events
from airflow_iceberg.triggers import IcebergTableSnapshotTrigger

TABLE = "shop.orders"

commits = IcebergTableSnapshotTrigger(table=TABLE, exclude_dag_ids=["react_to_commits"], poll_interval=5)
ORDERS = Asset("shop_orders", watchers=[AssetWatcher(name="shop_orders_commits", trigger=commits)])


@dag(schedule=[ORDERS], tags=["iceberg", "example"], doc_md=__doc__)
def react_to_commits() -> None:
    @task
    def react(triggering_asset_events: Any) -> list[dict[str, Any]]:
        """Say what was committed, each snapshot once."""
        return [
            {
                "snapshot_id": str(event.snapshot_id),
                "operation": event.operation,
                "added_records": event.added_records,
                "partitions": event.partitions,
                "dag_id": event.dag_id,
            }
            for event in table_events(triggering_asset_events)
        ]

    react()


DAG = react_to_commits()
