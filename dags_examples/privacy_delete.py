"""Delete the rows of one customer, by key, and fail if there are more rows than expected.

Shows: `IcebergDeleteOperator` with a parameter of the DAG as a value of its predicate, and with `max_rows`;
merge-on-read by a table property; a compaction that then removes the deleted rows from the data files permanently.

A delete that matches nothing commits nothing, so the DAG can be run again for the same customer. Here all jobs run in
the task's own process; with `spark_conn_id="spark_default"` the job of a large table runs on Spark.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag, task

from airflow_iceberg.operators import (
    IcebergCompactOperator,
    IcebergCreateTableOperator,
    IcebergDeleteOperator,
    IcebergExpireSnapshotsOperator,
)

TABLE = "shop.customer_orders"


@dag(
    schedule=None,
    catchup=False,
    tags=["iceberg", "example"],
    doc_md=__doc__,
    params={"customer": Param(17, type="integer", minimum=0)},
)
def privacy_delete() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"id": "long", "customer": "long", "day": "date"},
        partition_by=["day"],
        # Delete files mark the rows as deleted, which is fast; the compaction removes them.
        properties={"format-version": "3", "write.delete.mode": "merge-on-read"},
    )

    @task
    def some_orders() -> None:
        """Add orders of a hundred customers on three days, unless the table has rows."""
        import datetime

        import pyarrow as pa

        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        if table.current_snapshot() is None:
            days = [datetime.date(2026, 1, 1 + number % 3) for number in range(3000)]
            customers = [number // 3 % 100 for number in range(3000)]
            table.append(pa.table({"id": range(3000), "customer": customers, "day": days}))

    forget = IcebergDeleteOperator(
        task_id="forget",
        table=TABLE,
        # A value that is bound to a placeholder is never SQL, whatever the user gives as the parameter.
        predicate="customer = :customer",
        predicate_params={"customer": "{{ params.customer }}"},
        # A customer has some dozens of orders. A predicate that selects thousands is wrong, so nothing is deleted.
        max_rows=500,
        spark_conn_id=None,
    )
    take_out = IcebergCompactOperator(
        task_id="take_out", table=TABLE, options={"delete-file-threshold": 1}, spark_conn_id=None
    )
    # Earlier snapshots still have the deleted rows until they expire.
    expire = IcebergExpireSnapshotsOperator(
        task_id="expire", table=TABLE, older_than=timedelta(seconds=0), retain_last=1
    )
    create >> some_orders() >> forget >> take_out >> expire


DAG = privacy_delete()
