"""Make a small table from a large one: the parcels of a day, counted by carrier, in one commit and without Spark.

Shows: `inputs` of `IcebergOverwriteOperator` with a query that DuckDB runs in the task's own process (install
`airflow-iceberg[duckdb]`).

The query reads one snapshot of the table, of that only the columns and files that it needs, and the commit says which
snapshot it was. So each row of the small table can be traced back. A day can be counted again as often as you like.
"""

from __future__ import annotations

import datetime
from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.operators import IcebergCreateTableOperator, IcebergOverwriteOperator

TABLE = "shop.parcels"
# `{{ ds }}` is undefined in runs without a logical date: those that an asset triggers, or a user without a date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


@dag(
    schedule="@daily",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    tags=["iceberg", "example"],
    doc_md=__doc__,
)
def daily_parcels() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"id": "long", "day": "date", "carrier": "string", "grams": "int"},
        partition_by=["day"],
    )

    @task
    def some_parcels(day: str) -> None:
        """Add a thousand parcels of the day, as other tasks would."""
        import datetime

        import pyarrow as pa

        from airflow_iceberg.hooks import IcebergHook

        numbers = range(1000)
        IcebergHook().load_table(TABLE).append(
            pa.table(
                {
                    "id": numbers,
                    "day": [datetime.date.fromisoformat(day)] * len(numbers),
                    "carrier": [("mail", "bike", "truck")[number % 3] for number in numbers],
                    "grams": [500 + number for number in numbers],
                }
            )
        )

    create_summary = IcebergCreateTableOperator(
        task_id="create_summary",
        table=f"{TABLE}_by_carrier",
        schema={"day": "date", "carrier": "string", "parcels": "long", "kilograms": "decimal(12,3)"},
        partition_by=["day"],
    )
    count = IcebergOverwriteOperator(
        task_id="count",
        table=f"{TABLE}_by_carrier",
        overwrite_filter="day = :day",
        predicate_params={"day": DAY},
        # The SQL of DuckDB. Of the table only the files of the day are opened, and the ids are not read.
        sql="""
            select day, carrier, count(*) as parcels, round(sum(grams) / 1000, 3)::decimal(12, 3) as kilograms
            from parcels
            where day = $day
            group by all
        """,
        sql_params={"day": DAY},
        inputs={"parcels": TABLE},
        spark_conn_id=None,
    )

    @task
    def tell(result: dict[str, Any]) -> dict[str, str]:
        """Return the table and the snapshot that the new rows were made from."""
        return dict(result["inputs"]["parcels"])

    create >> some_parcels(DAY) >> count
    create_summary >> count
    tell(count.output)


DAG = daily_parcels()
