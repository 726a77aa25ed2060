"""Load a table day by day, and load past days again: each run replaces the partition of its own day.

Shows: `@task.iceberg_overwrite` with `overwrite_filter`, `catchup`, and a backfill.

Airflow makes a run for each day since the start date. Runs of different days write different partitions, so several can
run at the same time, in any order. To load past days again, for example after the source was corrected:

    airflow backfill create --dag-id backfill_days --from-date 2026-01-01 --to-date 2026-01-31 \
        --reprocess-behavior completed
"""

from __future__ import annotations

import datetime
from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.operators import IcebergCreateTableOperator

TABLE = "energy.readings"
# `{{ ds }}` is undefined in runs without a logical date: those that an asset triggers, or a user without a date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


@dag(
    schedule="@daily",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=True,
    max_active_runs=4,
    tags=["iceberg", "example"],
    doc_md=__doc__,
)
def backfill_days() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"day": "date not null", "meter": "long not null", "kwh": "double"},
        partition_by=["day"],
    )

    @task.iceberg_overwrite(table=TABLE, overwrite_filter="day = :day", predicate_params={"day": DAY})
    def read_meters(day: str) -> Any:
        """Return the readings of a day; a real function asks the system that has them."""
        import datetime

        import pyarrow as pa

        at = datetime.date.fromisoformat(day)
        meters = range(1, 11)
        return pa.table({"day": [at] * 10, "meter": list(meters), "kwh": [at.day + meter / 10 for meter in meters]})

    create >> read_meters(DAY)


DAG = backfill_days()
