"""Take back what this run has loaded if a check does not like it.

Shows: `IcebergUndoOperator`. It removes the rows of the run in one commit, although other runs have written since, and
says before, in a dry run, which rows and files these are. Clear the run, and its rows are written again.

Rows of other runs are kept: a rollback would take them back, too.
"""

from __future__ import annotations

import datetime
from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.operators import IcebergCreateTableOperator, IcebergUndoOperator

TABLE = "shop.readings"
# The sensor that sends nonsense on some days.
DAY = "{{ (dag_run.logical_date or dag_run.run_after).day }}"


@dag(
    schedule="@daily",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    tags=["iceberg", "example"],
    doc_md=__doc__,
)
def undo_run() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"day": "int", "celsius": "double"},
        # Rows of a run are also found after a compaction.
        properties={"format-version": "3"},
    )

    @task.iceberg_append(table=TABLE)
    def load(day: str) -> Any:
        import pyarrow as pa

        celsius = [20.0 + hour if int(day) % 2 else -300.0 for hour in range(24)]
        return pa.table({"day": pa.array([int(day)] * 24, pa.int32()), "celsius": celsius})

    # Without names of a DAG and a run, it is this run that is undone.
    look = IcebergUndoOperator(task_id="look", table=TABLE, undo_task_id="load", dry_run=True)

    @task.branch
    def check(day: str) -> str:
        from airflow_iceberg.hooks import IcebergHook

        readings = IcebergHook().load_table(TABLE)
        wrong = readings.scan("day = :day and celsius < -273.15", predicate_params={"day": int(day)}).count()
        return "undo" if wrong else "keep"

    undo = IcebergUndoOperator(task_id="undo", table=TABLE, undo_task_id="load")

    @task
    def keep() -> None:
        """Do nothing: the rows are right."""

    create >> load(DAY) >> look >> check(DAY) >> [undo, keep()]


DAG = undo_run()
