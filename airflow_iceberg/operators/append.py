"""The operator that appends rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg.operators._rows import RowsOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergAppendOperator(RowsOperator):
    """Appends rows to a table, exactly once per run of the DAG.

    A job stages new files; this task commits them in one snapshot that carries the task's operation key. A retry looks
    for that key first and does nothing twice. The rows come from exactly one of `files`, `sql` and `python_callable`.

    Args:
        table: namespace and name, `sales.orders`.
        files: URL or path, or several, with globs: `"s3://bucket/{{ params.day }}/*.parquet"`.
        sql: a query in Spark's SQL, or the name of a `.sql` file.
        python_callable: `"package.module:function"`, called in the Spark job with the SparkSession and `op_kwargs`;
            returns a DataFrame.
        op_kwargs: keyword arguments for the callable, JSON values.
        file_options: how `files` are read.
        iceberg_conn_id: the catalog's connection.
        spark_conn_id: where the job runs: a `spark` connection submits it; None runs it in this process without Spark,
            for `files` only.
        spark_config: resources and options of the Spark job.
        branch: the branch to append to.
        snapshot_properties: entries for the snapshot's summary.
        on_rerun: when a person cleared the task and an earlier run has committed: `"replace"` its rows by the new ones
            in one commit, `"append"` the new ones as well, or `"skip"` the work.
        on_empty: when the source has no rows: `"nothing"` is committed and the task succeeds, `"skip"` marks the task
            as skipped, `"fail"` fails it.
        schema_evolution: `"add_columns"` lets columns that the source has more, and wider types where that is legal,
            join the table's schema in the same commit; by default they fail the task.

    Returns:
        the fields of `WriteResult`, as plain values; see docs/reference.md.
    """

    ui_color = "#dbeeff"

    def execute(self, context: Context) -> dict[str, Any]:
        """Append the rows, or find them appended."""
        from airflow_iceberg.operations.append import AppendRequest, append

        with airflow_failures():
            request = self.rows_request(AppendRequest)
            result = append(self.work(context), request)
        return self.report_rows(context, result)
