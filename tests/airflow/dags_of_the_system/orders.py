"""A lake as authors write it, over a connection in Airflow's database; `test_system` runs these DAGs."""

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_iceberg.events import table_events
from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.operators import Changes, IcebergAppendOperator, IcebergCompactOperator
from airflow_iceberg.sensors import IcebergSnapshotSensor
from airflow_iceberg.triggers import IcebergTableSnapshotTrigger
from tests.airflow.deaths import BEGIN

CONN_ID = "lake"
ORDERS = "sales.orders"
DEFAULTS = {"iceberg_conn_id": CONN_ID}

with DAG("load_orders", schedule=None, start_date=BEGIN, default_args=DEFAULTS):
    landed = IcebergSnapshotSensor(
        task_id="landed", table="sales.landing", deferrable=True, wait_for_table=True, poke_interval=0.5
    )
    append = IcebergAppendOperator(
        task_id="append",
        table=ORDERS,
        sql="select id from landed",
        inputs={"landed": Changes("sales.landing", since="last")},
        spark_conn_id=None,
    )
    landed >> append

with DAG("compact_orders", schedule=None, start_date=BEGIN, default_args=DEFAULTS):
    IcebergCompactOperator(task_id="compact", table=ORDERS, options={"rewrite-all": True}, spark_conn_id=None)

commits = IcebergTableSnapshotTrigger(table=ORDERS, iceberg_conn_id=CONN_ID, poll_interval=1, since="beginning")
orders = Asset("orders", watchers=[AssetWatcher(name="orders_commits", trigger=commits)])

with DAG("react_to_orders", schedule=[orders], start_date=BEGIN):

    @task
    def react(triggering_asset_events: Any) -> list[dict[str, Any]]:
        """Say what was committed."""
        names = ("event_id", "operation", "added_records", "dag_id", "run_id")
        return [
            {"snapshot_id": str(event.snapshot_id), **{name: getattr(event, name) for name in names}}
            for event in table_events(triggering_asset_events)
        ]

    react()

with DAG("marked", schedule=None, start_date=BEGIN, default_args={**DEFAULTS, "retries": 3}):
    IcebergAppendOperator(
        task_id="append",
        table="sales.marked",
        sql="select id from range(1, 4) where reflect('java.lang.Thread', 'sleep', 600000L) is null",
    )

with DAG("careless", schedule=None, start_date=BEGIN):

    @task
    def show() -> None:
        """Print what no one should print, and fail."""
        hook = IcebergHook(CONN_ID)
        print(hook.config.properties)
        hook.load_table(f"sales.{hook.config.properties['token']}")

    show()
