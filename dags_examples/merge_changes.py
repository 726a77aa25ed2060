"""Keep a table like the one of another system, from its feed of changes, and mark what was not changed for long.

Shows: `IcebergMergeOperator` with clauses over a feed with an `op` column, whose newest change of each key is chosen by
SQL over an input; `IcebergUpdateOperator` with a placeholder; merge-on-read by table properties.

All SQL runs in the task's own process, with DuckDB; with `spark_conn_id="spark_default"` it would be Spark's. A retry
finds the commit of an earlier try. Run the DAG as often as you like: the feed that is merged is that of the run.
"""

from __future__ import annotations

from airflow.sdk import dag, task

from airflow_iceberg.operators import (
    IcebergAppendOperator,
    IcebergCreateTableOperator,
    IcebergMergeOperator,
    IcebergUpdateOperator,
    Input,
)

TABLE = "shop.stock"
FEED = f"{TABLE}_feed"
# `{{ ds }}` is undefined in runs without a logical date: those that an asset triggers, or a user without a date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


@dag(schedule=None, catchup=False, tags=["iceberg", "example"], doc_md=__doc__)
def merge_changes() -> None:
    create = IcebergCreateTableOperator(
        task_id="create",
        table=TABLE,
        schema={"article": "long", "pieces": "long", "changed": "date", "state": "string"},
        partition_by=["bucket(4, article)"],
        properties={"format-version": "3", "write.merge.mode": "merge-on-read", "write.update.mode": "merge-on-read"},
    )
    create_feed = IcebergCreateTableOperator(
        task_id="create_feed",
        table=FEED,
        schema={"day": "date", "number": "long", "op": "string", "article": "long", "pieces": "long"},
        partition_by=["day"],
    )

    @task
    def deliver(day: str) -> str:
        """Write the feed of a day as another system would: a thousand articles, of which some are sold or given up."""
        from urllib.parse import unquote, urlsplit

        import pyarrow as pa
        import pyarrow.csv as csv

        from airflow_iceberg.hooks import IcebergHook

        table = IcebergHook().load_table(FEED)
        is_first = table.current_snapshot() is None
        articles = list(range(1000)) * 2 if is_first else [*range(100), *range(90, 110), 5000]
        rows = {
            "day": [day] * len(articles),
            "number": list(range(len(articles))),
            "op": ["d" if not is_first and 90 <= article < 100 else "u" for article in articles],
            "article": articles,
            "pieces": [article % 7 + number % 2 for number, article in enumerate(articles)],
        }
        path = f"{unquote(urlsplit(table.location).path)}.{day}.csv"
        csv.write_csv(pa.table(rows), path)
        return path

    load = IcebergAppendOperator(task_id="load", table=FEED, files="{{ ti.xcom_pull('deliver') }}", spark_conn_id=None)
    merge = IcebergMergeOperator(
        task_id="merge",
        table=TABLE,
        # The feed has each change of an article; the merge needs one row for each.
        sql="select * from feed qualify row_number() over (partition by article order by number desc) = 1",
        inputs={"feed": Input(FEED, row_filter="day = :day", predicate_params={"day": DAY})},
        on=["article"],
        clauses=[
            "when matched and source.op = 'd' then delete",
            "when matched then update set pieces = source.pieces, changed = source.day, state = null",
            """when not matched and source.op <> 'd' then
            insert (article, pieces, changed) values (source.article, source.pieces, source.day)""",
        ],
        spark_conn_id=None,
    )
    mark = IcebergUpdateOperator(
        task_id="mark",
        table=TABLE,
        set={"state": "'not changed since ' || changed"},
        where="changed < cast($day as date)",
        sql_params={"day": DAY},
        spark_conn_id=None,
    )
    [create, create_feed] >> deliver(DAY) >> load >> merge >> mark


DAG = merge_changes()
