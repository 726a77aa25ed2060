"""Maintain all tables of a namespace, each by its own tasks: compact, expire snapshots, remove orphan files.

Shows: tasks that are mapped over the tables of a catalog, `max_active_tis_per_dag`, a table's own settings.

The tables are listed in each run, so new ones are maintained, too. A table that fails does not keep the others from
being maintained. A table says by its own properties how it is maintained (`history.expire.min-snapshots-to-keep`,
`write.target-file-size-bytes`), and is left out with `maintenance.skip=true`, a property of this example.

Here all jobs run in the task's own process; with `spark_conn_id="spark_default"` they run on Spark.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag, task

from airflow_iceberg.operators import (
    IcebergCompactOperator,
    IcebergCreateTableOperator,
    IcebergExpireSnapshotsOperator,
    IcebergRemoveOrphanFilesOperator,
)

NAMESPACE = "museum"
TABLES = (f"{NAMESPACE}.visits", f"{NAMESPACE}.tickets")


@dag(schedule="@daily", catchup=False, tags=["iceberg", "example"], doc_md=__doc__)
def maintain_catalog() -> None:
    # A real catalog has its tables already.
    create = IcebergCreateTableOperator.partial(task_id="create", schema={"id": "long"}).expand(table=list(TABLES))

    @task
    def tables() -> list[str]:
        """Return the tables of the namespace that are to be maintained."""
        from airflow_iceberg.hooks import IcebergHook

        hook = IcebergHook()
        names = [str(table) for table in hook.get_conn().list_tables(NAMESPACE)]
        return [name for name in names if hook.load_table(name).properties.get("maintenance.skip") != "true"]

    names = tables()
    create >> names
    # Two tables at a time; what has nothing to do commits nothing.
    compact = IcebergCompactOperator.partial(
        task_id="compact", spark_conn_id=None, max_active_tis_per_dag=2, options={"min-input-files": 5}
    ).expand(table=names)
    # All done, also if one of the tables failed: each operator is safe by itself.
    expire = IcebergExpireSnapshotsOperator.partial(
        task_id="expire", spark_conn_id=None, older_than=timedelta(days=5), retain_last=10, trigger_rule="all_done"
    ).expand(table=names)
    orphans = IcebergRemoveOrphanFilesOperator.partial(
        task_id="orphans", spark_conn_id=None, older_than=timedelta(days=3), trigger_rule="all_done"
    ).expand(table=names)
    compact >> expire >> orphans


DAG = maintain_catalog()
