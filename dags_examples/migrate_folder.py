"""Migrate a folder: Parquet files that another program has written become a table where they are, without a copy.

Shows: `IcebergSnapshotTableOperator` to try a table first, `IcebergMigrateTableOperator`.

The first task stands for the other program. The snapshot is a table of the same files at another place, in which rows
can be changed without harm: the files stay the folder's. Then the folder itself becomes a table: run it once. A table
of a Hive Metastore is migrated in the same way, without `source`. Hadoop catalogs cannot do that.
"""

from __future__ import annotations

from airflow.sdk import dag, task

from airflow_iceberg.operators import IcebergMigrateTableOperator, IcebergSnapshotTableOperator

TABLE = "legacy.meters"
TRIAL = "legacy.trial_{{ dag_run.run_after | ts_nodash }}"


@dag(schedule=None, catchup=False, tags=["iceberg", "example"], doc_md=__doc__)
def migrate_folder() -> None:
    @task
    def write() -> str:
        """Write a file for each day, as Hive and Spark do, and return their folder."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from airflow_iceberg.hooks import IcebergHook

        catalog = IcebergHook().catalog
        catalog.create_namespace("legacy", if_not_exists=True)
        folder = catalog.default_location(TABLE)
        for day in ("2026-01-01", "2026-01-02"):
            location = f"{folder}/day={day}/part-0.parquet"
            if catalog.io.exists(location):
                continue  # of an earlier run: a file of a table is never changed
            filesystem, path = catalog.io.filesystem(location)
            filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            with filesystem.open(path, "wb") as sink:
                pq.write_table(pa.table({"meter": [1, 2, 3], "value": [0.5, 1.5, 2.5]}), sink)
        return folder

    folder = write()
    snapshot = IcebergSnapshotTableOperator(task_id="snapshot", table=TRIAL, source=str(folder))

    @task
    def look(trial: str) -> int:
        """Return the rows of the trial; a real DAG would compare them with those of the old program."""
        from airflow_iceberg.hooks import IcebergHook

        return IcebergHook().load_table(trial).scan().count()

    migrate = IcebergMigrateTableOperator(task_id="migrate", table=TABLE, source=str(folder))
    folder >> snapshot >> look(TRIAL) >> migrate


DAG = migrate_folder()
