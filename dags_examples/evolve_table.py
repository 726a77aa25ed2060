"""Create a table, change its schema and partitioning, and write rows with the new columns next to the old rows.

Shows: `IcebergAlterTableOperator` with a list of changes, and appending without Spark.

The changes write only metadata: no row is rewritten. Run it again: the table already has the changes, so nothing is
committed for them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import dag, task

from airflow_iceberg.operators import IcebergAlterTableOperator, IcebergCreateTableOperator

TABLE = "shop.evolving_orders"


@dag(schedule=None, tags=["iceberg", "example"], doc_md=__doc__)
def evolve_table() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"id": "long not null", "ts": "timestamptz", "amount": "int"},
        partition_by=["day(ts)"],
    )

    @task
    def sell(columns: dict[str, list[Any]]) -> int:
        """Append some rows in this process and return how many the table has."""
        import pyarrow as pa

        from airflow_iceberg.commit.operation_key import OperationKey
        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(TABLE)
        first = columns["id"][0]
        # The rows of one batch are appended once, however often this task runs.
        key = OperationKey(dag_id="evolve_table", run_id=f"batch-{first}", task_id="sell")
        moments = pa.array([datetime.fromisoformat(text).replace(tzinfo=UTC) for text in columns["ts"]])
        table.append(pa.table({**columns, "ts": moments}), operation_key=key)
        return table.scan().count()

    alter = IcebergAlterTableOperator(
        task_id="alter",
        table=TABLE,
        changes=[
            {"rename_column": {"from": "amount", "to": "pieces"}},
            {"change_type": {"name": "pieces", "type": "long"}},
            {"add_column": {"name": "customer", "type": "struct<name: string, city: string>", "after": "id"}},
            {"add_column": {"name": "customer.country", "type": "string", "doc": "ISO 3166, two letters"}},
            {"replace_partition_field": {"from": "day(ts)", "to": "month(ts)"}},
            {"add_partition_field": "bucket(4, id)"},
            {"set_sort_order": ["ts desc", "id"]},
            {"set_properties": {"write.parquet.compression-codec": "zstd"}},
        ],
    )

    before = sell.override(task_id="sell_before")({"id": [1, 2], "ts": ["2026-01-01", "2026-01-02"], "amount": [3, 4]})
    after = sell.override(task_id="sell_after")(
        {
            "id": [3],
            "ts": ["2026-02-01"],
            "pieces": [5_000_000_000],
            "customer": [{"name": "Ada", "city": "London", "country": "GB"}],
        }
    )
    create >> before >> alter >> after


DAG = evolve_table()
