"""Write what functions return: measurements that a generator reads from an API, a day's summary, and corrections.

Shows: `@task.iceberg_append`, `@task.iceberg_overwrite` and `@task.iceberg_merge`, which needs DuckDB.

Each function runs in its task, and its rows are committed exactly once: a retry after the commit does not call the
function again. Run it as often as you like: a second run of the day adds its measurements, and replaces the summary.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.operators import IcebergCreateTableOperator

TABLE = "weather.measurements"
STATIONS = ("Basel", "Bern", "Chur")
# `{{ ds }}` is undefined in runs without a logical date: those that an asset triggers, or a user without a date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


@dag(
    schedule="@daily",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    tags=["iceberg", "example"],
    doc_md=__doc__,
)
def weather_decorators() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"station": "string", "day": "date", "hour": "int", "celsius": "double"},
        partition_by=["day"],
    )
    create_summary = IcebergCreateTableOperator(
        task_id="create_summary",
        table=f"{TABLE}_by_station",
        schema={"station": "string", "day": "date", "warmest": "double", "checked": "boolean"},
    )

    @task.iceberg_append(table=TABLE)
    def measure(station: str, day: str) -> Iterator[Any]:
        """Ask a station hour by hour; each answer is written before the next one is asked for."""
        import pyarrow as pa

        date = datetime.date.fromisoformat(day)
        for hour in range(24):
            rows = {"station": [station], "day": [date], "hour": [hour], "celsius": [10.0 + hour % 12]}
            yield pa.table({**rows, "hour": pa.array(rows["hour"], pa.int32())})

    @task.iceberg_overwrite(
        table=f"{TABLE}_by_station", overwrite_filter="day = :day", predicate_params={"day": DAY}, on_empty="fail"
    )
    def summarize(day: str) -> Any:
        """Return an Arrow table of the warmest hour of each station."""
        from airflow_iceberg.hooks import IcebergHook

        measured = IcebergHook().load_table(TABLE).scan("day = :day", predicate_params={"day": day}).to_arrow()
        warmest = measured.group_by(["station", "day"]).aggregate([("celsius", "max")])
        return warmest.rename_columns(["station", "day", "warmest"])

    @task.iceberg_merge(
        table=f"{TABLE}_by_station",
        on=["station", "day"],
        clauses="when matched then update set warmest = target.warmest + source.off, checked = true",
    )
    def correct(day: str) -> Any:
        """Return what a technician has found: one thermometer shows half a degree too little."""
        import pyarrow as pa

        return pa.table({"station": ["Bern"], "day": [datetime.date.fromisoformat(day)], "off": [0.5]})

    measured = measure.partial(day=DAY).expand(station=STATIONS)
    [create, create_summary] >> measured >> summarize(DAY) >> correct(DAY)


DAG = weather_decorators()
