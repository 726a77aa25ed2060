"""Follow a table: each run reads what has changed since the run before, and nothing twice.

Shows: `Changes` as an input. The task `journal` writes a line for each order that was added, changed or removed; the
task `shipped` reads only the new lines of the journal.

How far a task has read is committed with its rows. So a run that failed, or was killed, reads from the same place
again; a run that you clear replaces its own lines, and the runs after it are as they were.
"""

from __future__ import annotations

import datetime

from airflow.sdk import dag, task

from airflow_iceberg.operators import Changes, IcebergAppendOperator, IcebergCreateTableOperator

TABLE = "mail.orders"
JOURNAL = f"{TABLE}_journal"
SHIPPED = f"{TABLE}_shipped"


@dag(
    schedule="@daily",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    tags=["iceberg", "example"],
    doc_md=__doc__,
)
def follow_orders() -> None:
    columns = {"id": "long", "status": "string"}
    creates = [
        IcebergCreateTableOperator(task_id="create_orders", table=TABLE, schema=columns),
        IcebergCreateTableOperator(task_id="create_journal", table=JOURNAL, schema={**columns, "change": "string"}),
        IcebergCreateTableOperator(task_id="create_shipped", table=SHIPPED, schema={"id": "long"}),
    ]

    @task
    def take_orders() -> None:
        """Be the shop: two new orders come in, and the oldest one that waits is shipped."""
        import pyarrow as pa

        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        count = table.scan().count()
        table.append(pa.table({"id": [count + 1, count + 2], "status": ["new", "new"]}))
        waiting = table.scan("status = 'new'").to_arrow()["id"].to_pylist()
        oldest = min(waiting)
        rows = pa.table({"id": [oldest], "status": ["shipped"]})
        table.overwrite(rows, "id = :id", predicate_params={"id": oldest})

    journal = IcebergAppendOperator(
        task_id="journal",
        table=JOURNAL,
        sql="select id, status, _change_type as change from orders where _change_type <> 'update_before'",
        inputs={"orders": Changes(TABLE, since="last", mode="changelog", identifier_columns=["id"])},
        spark_conn_id=None,
    )
    shipped = IcebergAppendOperator(
        task_id="shipped",
        table=SHIPPED,
        sql="select id from lines where status = 'shipped'",
        inputs={"lines": Changes(JOURNAL, since="last")},
        spark_conn_id=None,
    )
    creates >> take_orders() >> journal >> shipped


DAG = follow_orders()
