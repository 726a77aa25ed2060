"""The operator that appends rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg.operators._rows import RowsOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergAppendOperator(RowsOperator):
    """Appends rows to a table, exactly once per run of the DAG.

    A job stages new files, and this task commits them in one snapshot that has the task's operation key. A retry first
    looks for that key, so it commits nothing twice. The rows come from exactly one of `files`, `sql` and
    `python_callable`.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        files: one or more URLs or paths of source files, with globs:
            `"s3://bucket/{{ dag_run.run_after | ds }}/*.parquet"`.
        sql: a query, or the name of a `.sql` file: in Spark SQL, or without a Spark connection in the SQL of DuckDB.
        sql_params: the values of the query's placeholders by name: `{"day": "{{ params.day }}"}` for `day = :day`.
            Spark binds them; a template in the query itself becomes SQL.
        inputs: the tables that the query or the function reads, by the names that it has for them:
            `{"orders": "sales.orders"}`, or an `Input` with a branch, a snapshot, a filter or another connection. Each
            is read at one snapshot, which the commit names (`airflow.inputs`).
        python_callable: the name of a function, `"package.module:function"`, that the Spark job calls with the
            SparkSession and `op_kwargs`, and that returns a DataFrame.
        op_kwargs: keyword arguments of the function, JSON values.
        file_options: format and format options of `files`, a `FileOptions` or a dictionary of its fields.
        iceberg_conn_id: the id of the catalog's connection.
        spark_conn_id: the id of the Spark connection that the job is submitted to; None runs it in this process
            without Spark, for `files` and for `sql` over `inputs`.
        spark_config: resources and options of the Spark job, a `SparkConfig` or a dictionary of its fields.
        deferrable: whether the worker slot is free while a job runs, on YARN and Kubernetes in deploy mode `cluster`;
            elsewhere the task waits. By default Airflow's `[operators] default_deferrable`.
        poll_interval: seconds between two looks of the triggerer at the job; 30.
        branch: the branch to append to.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
        snapshot_properties: additional entries of the snapshot's summary.
        on_rerun: what a cleared task does if its earlier run has committed: `"replace"` replaces the rows of the
            earlier run by the new ones in one commit, `"append"` adds the new ones, `"skip"` does nothing.
        write_key: what this part of the task's work is for, `"{{ params.region }}"` or a file: it takes the place of
            the map index, so that a mapped task may be expanded in another order after a clear, and with more or fewer
            items. Each item needs one of its own.
        on_removed: what a write does with rows of its DAG run that no task of it will write again, since a task was
            renamed or removed, or an index is gone: `"keep"` leaves them, and those that a deleted run of the same id
            may have written; `"remove"` takes them out in the same commit; by default it fails where it meets some.
        on_empty: what happens if the source has no rows: `"nothing"` commits nothing and the task succeeds, `"skip"`
            marks the task as skipped, `"fail"` fails it.
        schema_evolution: `"add_columns"` adds new columns of the source to the table's schema, and widens types where
            that is legal, in the same commit; by default new columns and wider types fail the task.
        write_format: `"parquet"` or `"avro"`, the format of data files; the table's `write.format.default` if left out.

    Returns:
        the fields of `WriteResult`, as plain values; see docs/reference.md.
    """

    ui_color = "#dbeeff"

    def execute(self, context: Context) -> dict[str, Any]:
        """Append the rows."""
        from airflow_iceberg.operations.append import AppendRequest, append

        with airflow_failures():
            request = self.rows_request(AppendRequest)
            result = append(self.work(context), request)
        return self.report_rows(context, result)
