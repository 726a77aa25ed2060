"""Wait until a table is complete: a partition, its rows, its age, its schema and an audited branch.

Shows: the sensors for conditions of a table, deferrable, and started in the triggerer without a worker before that.

All of them read metadata only. In one triggerer they share one poll of the table.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from airflow_iceberg.sensors import (
    IcebergBranchPublishedSensor,
    IcebergFreshnessSensor,
    IcebergPartitionSensor,
    IcebergRowCountSensor,
    IcebergSchemaChangeSensor,
)

TABLE = "shop.takings"
# `{{ ds }}` is undefined in runs without a logical date: those that an asset triggers, or a user without a date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


@dag(
    schedule=None,
    tags=["iceberg", "example"],
    doc_md=__doc__,
    default_args={"table": TABLE, "wait_for_table": True, "poke_interval": 5, "timeout": 6 * 60 * 60},
)
def wait_for_tables() -> None:
    IcebergPartitionSensor(task_id="partition", partition={"day": DAY}, min_rows=3, deferrable=True)
    IcebergPartitionSensor(task_id="mark", tag=f"complete-{DAY}", start_from_trigger=True)
    IcebergRowCountSensor(task_id="rows", min_rows=3, mode="reschedule")
    IcebergFreshnessSensor(task_id="fresh", max_age=timedelta(days=1), deferrable=True)
    IcebergSchemaChangeSensor(task_id="schema", columns=["day", "amount"], deferrable=True)
    IcebergBranchPublishedSensor(task_id="published", branch="audit", deferrable=True)


DAG = wait_for_tables()
