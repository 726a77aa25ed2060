"""Wait until an Apache Paimon table has new rows for the day, then inspect exactly that snapshot.

Shows: `PaimonSnapshotSensor`, deferrable, with a filter by partition, and `PaimonHook` to inspect a table's metadata.

The table `db.orders` is in the warehouse of the connection `paimon_default`; Flink, Spark or pypaimon write it. The
sensor reads one or two small files in each poll and needs no Paimon. It returns the identity of a snapshot, and the
report reads exactly that snapshot, even if the table has changed since then.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.sensors import PaimonSnapshotSensor

TABLE = "db.orders"
# `{{ ds }}` is undefined in runs without a logical date: those that an asset triggers, or a user without a date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


@dag(schedule=None, tags=["paimon", "example"], doc_md=__doc__)
def paimon_wait() -> None:
    new_orders = PaimonSnapshotSensor(
        task_id="new_orders",
        table=TABLE,
        partition={"dt": DAY},
        min_new_records=3,
        commit_kinds=["APPEND", "OVERWRITE"],
        wait_for_table=True,
        poke_interval=5,
        timeout=6 * 60 * 60,
        deferrable=True,
    )

    @task
    def report(snapshot: dict[str, Any]) -> dict[str, Any]:
        """Count the rows of the snapshot by partition."""
        from airflow_iceberg.hooks import PaimonHook

        table = PaimonHook().get_table(TABLE)
        partitions = table.inspect.partitions(int(snapshot["snapshot_id"]))
        return {
            "snapshot_id": snapshot["snapshot_id"],
            "new_records": snapshot["new_records"],
            "rows_by_day": {
                str(row["partition"]["dt"]): row["record_count"] for row in partitions.to_pylist() if row["file_count"]
            },
        }

    report(new_orders.output)


DAG = paimon_wait()
