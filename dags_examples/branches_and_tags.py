"""Write to a branch, check it, publish it, roll it back: branches and tags of a table.

Shows: `create_branch=True` of a writing operator, `IcebergTagOperator`, `IcebergFastForwardOperator`,
`IcebergRollbackOperator` with its dry run and its guard, `IcebergSetCurrentSnapshotOperator`,
`IcebergCherryPickOperator`, `IcebergBranchOperator` with its retention.

None of them starts a job. Every task can be retried: a branch is changed once, although others commit meanwhile.
"""

from __future__ import annotations

from airflow.sdk import dag, task

from airflow_iceberg.operators import (
    IcebergBranchOperator,
    IcebergCherryPickOperator,
    IcebergCreateTableOperator,
    IcebergFastForwardOperator,
    IcebergRollbackOperator,
    IcebergSetCurrentSnapshotOperator,
    IcebergTagOperator,
)

TABLE = "shop.prices"


@dag(schedule=None, tags=["iceberg", "example"], doc_md=__doc__)
def branches_and_tags() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"article": "string", "price": "double"},
        properties={"format-version": "2"},
    )

    @task
    def load() -> str:
        """Replace the table's rows, and return the snapshot."""
        import pyarrow as pa

        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        rows = pa.table({"article": ["pen", "ink"], "price": [2.0, 5.0]})
        return str(table.overwrite(rows).snapshot_id)

    @task
    def reprice() -> str:
        """Write new prices to a branch, which is created from main, and return the snapshot."""
        import pyarrow as pa

        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        rows = pa.table({"article": ["pen", "ink"], "price": [2.2, 5.5]})
        return str(table.overwrite(rows, branch="new_prices", create_branch=True).snapshot_id)

    @task
    def check(snapshot_id: str) -> str:
        """Compare the branch with main before it is published."""
        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        old, new = (sum(table.scan(ref=ref).to_arrow()["price"].to_pylist()) for ref in ("main", "new_prices"))
        if not old < new < 2 * old:
            raise ValueError(f"the prices went from {old} to {new}")
        return snapshot_id

    loaded, repriced = load(), reprice()
    checked = check(repriced)
    tag = IcebergTagOperator(task_id="tag", table=TABLE, tag="last_good", snapshot_id=loaded, action="replace")
    publish = IcebergFastForwardOperator(task_id="publish", table=TABLE, to="new_prices", to_snapshot_id=checked)
    look = IcebergRollbackOperator(task_id="look", table=TABLE, snapshot_id=loaded, dry_run=True)
    back = IcebergRollbackOperator(
        task_id="back",
        table=TABLE,
        snapshot_id=loaded,
        expected_snapshot_id="{{ ti.xcom_pull('publish')['snapshot_id'] }}",
    )
    again = IcebergCherryPickOperator(task_id="again", table=TABLE, snapshot_id=checked)
    good = IcebergSetCurrentSnapshotOperator(task_id="good", table=TABLE, ref="last_good")
    keep = IcebergBranchOperator(
        task_id="keep", table=TABLE, branch="new_prices", action="retention", max_ref_age_ms=86_400_000
    )
    drop = IcebergBranchOperator(task_id="drop", table=TABLE, branch="new_prices", action="drop")
    create >> loaded >> tag >> repriced >> checked >> publish >> look >> back >> again >> good >> keep >> drop


DAG = branches_and_tags()
