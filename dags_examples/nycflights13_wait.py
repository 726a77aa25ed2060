"""Wait until the flights have a new snapshot, then report on exactly that snapshot.

Shows: `IcebergSnapshotSensor`, deferrable, and reading a table in a task without Spark.

The sensor stores the snapshot that its previous run returned and waits for a newer one. It frees its worker slot while
it waits. The report reads exactly the returned snapshot, even if the table has changed since then.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.sensors import IcebergSnapshotSensor

TABLE = "nyc.flights"


@dag(schedule=None, tags=["iceberg", "example"], doc_md=__doc__)
def nycflights13_wait() -> None:
    new_flights = IcebergSnapshotSensor(
        task_id="new_flights",
        table=TABLE,
        after="last_seen",
        wait_for_table=True,
        poke_interval=10,
        timeout=6 * 60 * 60,
        deferrable=True,
    )

    @task
    def report(snapshot: dict[str, Any]) -> dict[str, Any]:
        """Count the flights of the snapshot, and those that left more than an hour late, by carrier."""
        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        snapshot_id = int(snapshot["snapshot_id"])
        late = table.scan("dep_delay > 60", selected_fields=("carrier",), snapshot_id=snapshot_id).to_arrow()
        worst = late.group_by("carrier").aggregate([([], "count_all")]).sort_by([("count_all", "descending")])
        return {
            "snapshot_id": snapshot["snapshot_id"],
            "flights": table.scan(snapshot_id=snapshot_id).count(),
            "an_hour_late": late.num_rows,
            "worst_carriers": [(row["carrier"], row["count_all"]) for row in worst.slice(0, 3).to_pylist()],
        }

    report(new_flights.output)


DAG = nycflights13_wait()
