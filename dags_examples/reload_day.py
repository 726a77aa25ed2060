"""Load a day again: the rows of that day are replaced by those of its files, in one commit.

Shows: `IcebergOverwriteOperator` by filter, for one day, and by partition, for all days that the files have.

A reader sees either the old rows of the day or the new ones. A file with a row of another day is rejected, and the
message names the row. Run it as often as you like, also for a day that is already loaded: no row is duplicated.
"""

from __future__ import annotations

import datetime

from airflow.sdk import dag, task

from airflow_iceberg.operators import IcebergCreateTableOperator, IcebergOverwriteOperator

TABLE = "shop.sales"
# `{{ ds }}` is undefined in runs without a logical date: those that an asset triggers, or a user without a date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


@dag(
    schedule="@daily",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    tags=["iceberg", "example"],
    doc_md=__doc__,
)
def reload_day() -> None:
    create = IcebergCreateTableOperator(
        task_id="create", table=TABLE, schema={"id": "long", "day": "date"}, partition_by=["month(day)"]
    )

    @task
    def deliver(day: str) -> str:
        """Write the file of a day as another system would, and return its location; it grows from run to run."""
        import datetime
        from urllib.parse import unquote, urlsplit

        import pyarrow as pa
        import pyarrow.parquet as pq

        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        folder = unquote(urlsplit(table.location).path)
        count = 100 + table.scan("day = :day", predicate_params={"day": day}).count()
        path = f"{folder}.{day}.parquet"
        pq.write_table(pa.table({"id": range(count), "day": [datetime.date.fromisoformat(day)] * count}), path)
        return path

    by_filter = IcebergOverwriteOperator(
        task_id="by_filter",
        table=TABLE,
        files="{{ ti.xcom_pull('deliver') }}",
        # The table is partitioned by month: rows of other days in the same files are kept.
        overwrite_filter="day = :day",
        predicate_params={"day": DAY},
        spark_conn_id=None,
    )
    daily = IcebergCreateTableOperator(
        task_id="daily", table=f"{TABLE}_daily", schema={"id": "long", "day": "date"}, partition_by=["day"]
    )
    by_partition = IcebergOverwriteOperator(
        task_id="by_partition",
        table=f"{TABLE}_daily",
        files="{{ ti.xcom_pull('deliver') }}",
        replace="partitions",
        spark_conn_id=None,
    )
    create >> deliver(DAY) >> [by_filter, daily]
    by_filter >> by_partition
    daily >> by_partition


DAG = reload_day()
