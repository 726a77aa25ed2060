"""Start a DAG once for each day whose rows have changed, and another one for each commit.

Shows: assets of tables (`iceberg_asset`), partition keys of events, `PartitionedAssetTimetable`, `asset_events`.

A load writes whatever days its orders are of. Its task needs no outlets: the table is one, and the event of its commit
has the days that it touched. `revenue` runs once for each of them and replaces that day's total; `notice` runs once for
each commit, however many days it touched.
"""

from __future__ import annotations

import datetime
from typing import Any

from airflow.sdk import PartitionedAssetTimetable, dag, task

from airflow_iceberg.assets import iceberg_asset
from airflow_iceberg.operators import IcebergCreateTableOperator

TABLE = "shop.orders_by_day"
REVENUE = f"{TABLE}_revenue"


@dag(schedule=None, tags=["iceberg", "example"], doc_md=__doc__, params={"days": ["2026-01-01", "2026-01-02"]})
def orders_by_day() -> None:
    create = IcebergCreateTableOperator(
        task_id="create", table=TABLE, schema={"id": "long", "day": "date", "amount": "double"}, partition_by=["day"]
    )
    create_revenue = IcebergCreateTableOperator(
        task_id="create_revenue", table=REVENUE, schema={"day": "date", "revenue": "double"}, partition_by=["day"]
    )

    # Days as they are, `2026-01-01`, in place of Iceberg's `day=2026-01-01`.
    @task.iceberg_append(table=TABLE, partition_keys="value")
    def load(params: dict[str, Any]) -> Any:
        """Return two orders of each day."""
        import pyarrow as pa

        days = [datetime.date.fromisoformat(day) for day in params["days"] for _ in range(2)]
        return pa.table({"id": list(range(len(days))), "day": days, "amount": [10.0] * len(days)})

    [create, create_revenue] >> load()


@dag(schedule=PartitionedAssetTimetable(assets=iceberg_asset(TABLE)), catchup=False, tags=["iceberg", "example"])
def orders_by_day_revenue() -> None:
    # Nobody waits for the revenue, so that its commits are told to nobody.
    @task.iceberg_overwrite(
        table=REVENUE,
        overwrite_filter="day = :day",
        predicate_params={"day": "{{ dag_run.partition_key }}"},
        asset_events=False,
    )
    def sum_up(dag_run: Any) -> Any:
        """Return the revenue of the day that has changed."""
        import pyarrow as pa

        from airflow_iceberg.hooks import IcebergHook

        day = dag_run.partition_key
        orders = IcebergHook().load_table(TABLE).scan("day = :day", predicate_params={"day": day}).to_arrow()
        return pa.table({"day": [datetime.date.fromisoformat(day)], "revenue": [sum(orders["amount"].to_pylist())]})

    sum_up()


@dag(schedule=[iceberg_asset(TABLE)], catchup=False, tags=["iceberg", "example"])
def orders_by_day_notice() -> None:
    @task
    def say(triggering_asset_events: Any) -> list[str]:
        """Say what each commit was."""
        events = [event.extra for found in triggering_asset_events.values() for event in found]
        return [
            f"snapshot {one['snapshot_id']}: {one['added_records']} orders of {one['partitions']}" for one in events
        ]

    say()


DAG = orders_by_day()
REVENUE_DAG = orders_by_day_revenue()
NOTICE_DAG = orders_by_day_notice()
