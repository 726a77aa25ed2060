"""Maintain a table: compact it if it has many small files, expire old snapshots, remove orphan files.

Shows: `IcebergCompactOperator`, `IcebergRewriteManifestsOperator`, `IcebergExpireSnapshotsOperator`,
`IcebergRemoveOrphanFilesOperator` with its dry run and quarantine, `IcebergRestoreOrphanFilesOperator`.

Every task can run every night: if there is nothing to do, nothing is committed and no job is started. Here all jobs run
in the task's own process; with `spark_conn_id="spark_default"` the compaction of a large table runs on Spark.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag, task

from airflow_iceberg.operators import (
    IcebergCompactOperator,
    IcebergCreateTableOperator,
    IcebergExpireSnapshotsOperator,
    IcebergRemoveOrphanFilesOperator,
    IcebergRestoreOrphanFilesOperator,
    IcebergRewriteManifestsOperator,
)

TABLE = "shop.visits"


@dag(schedule="@daily", catchup=False, tags=["iceberg", "example"], doc_md=__doc__)
def maintain_table() -> None:
    create = IcebergCreateTableOperator(
        task_id="create", table=TABLE, schema={"id": "long", "day": "date"}, partition_by=["day"]
    )

    @task
    def trickle() -> int:
        """Append rows in many small files, and return the number of files of the table."""
        import datetime

        import pyarrow as pa

        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        for number in range(6):
            day = pa.array([datetime.date(2026, 1, 1)] * 10)
            table.append(pa.table({"id": pa.array(range(number * 10, number * 10 + 10)), "day": day}))
        return len(table.scan().plan_files())

    compact = IcebergCompactOperator(
        task_id="compact",
        table=TABLE,
        # Five small files in a partition are rewritten, four are not.
        options={"min-input-files": 5, "target-file-size-bytes": 128 * 1024 * 1024},
        spark_conn_id=None,
    )
    manifests = IcebergRewriteManifestsOperator(task_id="manifests", table=TABLE)
    expire = IcebergExpireSnapshotsOperator(
        task_id="expire", table=TABLE, older_than=timedelta(seconds=0), retain_last=3, clean_expired_metadata=True
    )
    look = IcebergRemoveOrphanFilesOperator(task_id="look", table=TABLE, action="dry_run")
    clean = IcebergRemoveOrphanFilesOperator(task_id="clean", table=TABLE, purge_older_than=timedelta(days=14))

    @task.short_circuit
    def is_missed(cleaned: dict[str, object]) -> bool:
        """Tell whether a moved file is still needed; in this example every moved file is."""
        return cleaned["quarantine"] is not None

    restore = IcebergRestoreOrphanFilesOperator(
        task_id="restore", table=TABLE, quarantine="{{ ti.xcom_pull('clean')['quarantine'] }}"
    )
    create >> trickle() >> compact >> manifests >> expire >> look >> clean
    is_missed(clean.output) >> restore


DAG = maintain_table()
