"""Load a table so that nobody reads a row that was not audited.

Shows: `iceberg_wap`, which writes the rows of a run to a branch of the table, audits them there, and moves main forward
to exactly the snapshot that was audited; `IcebergAuditOperator` for an audit of main itself.

All tasks run in their own process, without Spark. Run the DAG as often as you like, and clear what you like: main has
the rows of each run once. With `{"broken": true}` as the run's configuration the audits fail, main stays as it is, and
the rows wait on the branch that the log names.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.operators import (
    Freshness,
    IcebergAppendOperator,
    IcebergAuditOperator,
    IcebergCreateTableOperator,
    NoRows,
    NullShare,
    PythonAudit,
    RowCount,
    SchemaUnchanged,
    UniqueShare,
    iceberg_wap,
)

TABLE = "shop.payments"
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


def few_are_large(scan: Any) -> bool:
    """Whether at most one payment in ten is above 900."""
    amounts = scan.to_arrow()["amount"].to_pylist()
    return sum(amount > 900 for amount in amounts) <= len(amounts) / 10


AUDITS = [
    NoRows("select * from audited where amount <= 0", name="amounts are positive"),
    NoRows(
        "select a.id, a.day from audited a anti join main m on a.id = m.id where a.day <> cast($day as date)",
        params={"day": DAY},
        name="new rows are of the day",
    ),
    RowCount(min=1),
    NullShare("customer", max=0.05),
    UniqueShare("id"),
    Freshness("day", max_age=timedelta(days=365 * 1000)),
    SchemaUnchanged(),
    PythonAudit(few_are_large),
]


@dag(schedule=None, catchup=False, tags=["iceberg", "example"], doc_md=__doc__)
def write_audit_publish() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"id": "long", "day": "date", "customer": "long", "amount": "double"},
        partition_by=["day"],
    )

    @task
    def deliver(day: str, broken: str) -> str:
        """Write the payments of a day as another system would; a broken delivery has a payment that is negative."""
        from pathlib import Path
        from urllib.parse import unquote, urlsplit

        from airflow_iceberg.hooks import IcebergHook

        first = int(day.replace("-", "")) * 1000
        rows = [f"{first + number},{day},{number % 9},{number * 9 % 1000 + 1}" for number in range(100)]
        rows += [f"{first + 100},{day},1,-5"] if broken == "True" else []
        path = Path(f"{unquote(urlsplit(IcebergHook().load_table(TABLE).location).path)}.{day}.csv")
        path.write_text("\n".join(["id,day,customer,amount", *rows]))
        return str(path)

    delivered = deliver(DAY, "{{ dag_run.conf.get('broken', False) }}")
    with iceberg_wap("wap", table=TABLE, audits=AUDITS) as wap:
        IcebergAppendOperator(
            task_id="load",
            table=TABLE,
            files="{{ ti.xcom_pull('deliver') }}",
            branch=wap.branch,
            spark_conn_id=None,
        )
    look = IcebergAuditOperator(task_id="look", table=TABLE, audits=[UniqueShare("id"), RowCount(min=100)])
    create >> delivered >> wap >> look


DAG = write_audit_publish()
