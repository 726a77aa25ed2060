"""Add existing files: Parquet files that another program has written become an Iceberg table, and are not rewritten.

Shows: `IcebergAddFilesOperator` with a folder of partitions, `IcebergRegisterTableOperator`.

The first task stands for the other program. The table is then dropped from its catalog, which keeps its files, and
comes back by its newest metadata file: so tables also move from one catalog to another. Hadoop catalogs cannot do that.
"""

from __future__ import annotations

from airflow.sdk import dag, task

from airflow_iceberg.operators import (
    IcebergAddFilesOperator,
    IcebergCreateTableOperator,
    IcebergRegisterTableOperator,
)

TABLE = "archive.readings"


@dag(schedule=None, catchup=False, tags=["iceberg", "example"], doc_md=__doc__)
def add_existing_files() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"sensor": "long", "value": "double", "day": "date"},
        partition_by=["day"],
    )

    @task
    def write() -> str:
        """Write a file for each day, as Hive and Spark do, and return their folder."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        folder = f"{table.location}/landing"
        for day in ("2026-01-01", "2026-01-02"):
            location = f"{folder}/day={day}/part-0.parquet"
            if table.io.exists(location):
                continue  # of an earlier run: a file of a table is never changed
            filesystem, path = table.io.filesystem(location)
            filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            with filesystem.open(path, "wb") as sink:
                pq.write_table(pa.table({"sensor": [1, 2, 3], "value": [0.5, 1.5, 2.5]}), sink)
        return folder

    folder = write()
    add = IcebergAddFilesOperator(task_id="add", table=TABLE, source=str(folder))

    @task
    def drop() -> str:
        """Drop the table from its catalog, and return its newest metadata file."""
        from airflow_iceberg.hooks import IcebergHook

        hook = IcebergHook()
        location = hook.load_table(TABLE).metadata_location
        hook.catalog.drop_table(TABLE)
        return location

    dropped = drop()
    register = IcebergRegisterTableOperator(task_id="register", table=TABLE, metadata_location=str(dropped))
    create >> folder >> add >> dropped >> register


DAG = add_existing_files()
