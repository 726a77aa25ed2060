"""Several writes of one function, each committed exactly once: bookings are added, some corrected, old ones removed.

Shows: `IcebergHook().task_table`, names of writes.

The function may be killed between any two of its writes. Its retry finds those that are in the table, and makes the
others. A cleared task replaces the rows that it has added.
"""

from __future__ import annotations

import datetime
from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.assets import iceberg_asset
from airflow_iceberg.operators import IcebergCreateTableOperator

TABLE = "bank.bookings"
BALANCES = f"{TABLE}_balances"


@dag(schedule=None, tags=["iceberg", "example"], doc_md=__doc__, default_args={"retries": 2})
def settle_accounts() -> None:
    create = IcebergCreateTableOperator(
        task_id="create", table=TABLE, schema={"id": "long", "account": "string", "day": "date", "amount": "double"}
    )
    create_balances = IcebergCreateTableOperator(
        task_id="create_balances", table=BALANCES, schema={"account": "string", "balance": "double"}
    )

    @task(outlets=[iceberg_asset(TABLE), iceberg_asset(BALANCES)])
    def settle() -> dict[str, Any]:
        """Book, correct, forget, and bring the balances up to date."""
        import pyarrow as pa

        from airflow_iceberg.hooks import IcebergHook

        hook, day = IcebergHook(), datetime.date(2026, 1, 1)
        bookings, balances = hook.task_table(TABLE), hook.task_table(BALANCES)
        new = {"id": [1, 2, 3], "account": ["ada", "bob", "ada"], "day": [day] * 3, "amount": [10.0, 20.0, 5.0]}
        done = [
            bookings.append(pa.table(new), name="bookings"),
            bookings.upsert(pa.table({**new, "amount": [11.0, 20.0, 5.0]}).slice(0, 1), ["id"], name="corrections"),
            bookings.delete("day < '2020-01-01'", name="old"),
        ]
        by_account = bookings.scan().to_arrow().group_by("account").aggregate([("amount", "sum")])
        done.append(balances.overwrite(by_account.rename_columns(["account", "balance"])))
        return {str(number): result.outcome.value for number, result in enumerate(done)}

    [create, create_balances] >> settle()


DAG = settle_accounts()
