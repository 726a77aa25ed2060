"""The operator that appends rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.errors import CommitUnknownError, IcebergError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._job import operation_of
from airflow_iceberg.operators._rows import FileOptions, RowsOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.operation_key import OperationKey
    from airflow_iceberg.commit.write_result import WriteResult
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.table import Table


class IcebergAppendOperator(RowsOperator):
    """Appends rows to a table, exactly once per run of the DAG.

    A job stages new files; this task commits them in one snapshot that carries the task's operation key. A retry looks
    for that key first and does nothing twice. The rows come from exactly one of `files`, `sql` and `python_callable`.

    Args:
        table: namespace and name, `sales.orders`.
        files: URL or path, or several, with globs: `"s3://bucket/{{ ds }}/*.parquet"`.
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
        table, branch, snapshot_id (text), operation, outcome, done_by_this_try, counts and operation_key.
    """

    ui_color = "#dbeeff"

    def __init__(
        self,
        *,
        table: str,
        files: str | Sequence[str] | None = None,
        sql: str | None = None,
        python_callable: str | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        file_options: FileOptions | Mapping[str, Any] | None = None,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        spark_conn_id: str | None = "spark_default",
        spark_config: SparkConfig | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
        on_rerun: Literal["replace", "append", "skip"] = "replace",
        on_empty: Literal["nothing", "skip", "fail"] = "nothing",
        schema_evolution: Literal["add_columns"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.files = files
        self.sql = sql
        self.python_callable = python_callable
        self.op_kwargs = op_kwargs
        self.file_options = file_options
        self.iceberg_conn_id = iceberg_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_config = spark_config
        self.branch = branch
        self.snapshot_properties = snapshot_properties
        self.on_rerun = on_rerun
        self.on_empty = on_empty
        self.schema_evolution = schema_evolution

    def execute(self, context: Context) -> dict[str, Any]:
        """Look whether the work is done; if not plan it, run the job and commit what it staged."""
        from airflow_iceberg.commit.operation_key import check_properties

        with airflow_failures():
            source = self._source()
            operation, try_number = operation_of(context), int(context["ti"].try_number)
            self._check_on_empty()
            check_properties(self.snapshot_properties or {})
            table = IcebergHook(self.iceberg_conn_id).load_table(self.table)
            result = table.find_append(operation, branch=self.branch, on_rerun=self.on_rerun)
            if result is None:
                result = self._write(table, source, operation, try_number)
        return self._report(context, result)

    def _write(self, table: Table, source: Source, operation: OperationKey, try_number: int) -> WriteResult:
        from airflow_iceberg.backends.backend import run_job

        # Before the plan is written: what is wrong with the back end is found without leaving anything behind.
        backend = self.open_backend(table, source, name=str(operation))
        plan = table.plan_append(
            source,
            operation=operation,
            try_number=try_number,
            branch=self.branch,
            schema_evolution=self.schema_evolution or None,
        )
        try:
            staged = run_job(backend, table, plan)
        except Exception:
            table.discard(plan)
            raise
        try:
            return table.commit_append(
                plan,
                staged,
                operation=operation,
                try_number=try_number,
                branch=self.branch,
                on_rerun=self.on_rerun,
                snapshot_properties=self.snapshot_properties,
            )
        except CommitUnknownError:
            raise  # the commit may have landed: its files must stay
        except IcebergError:
            table.discard(plan, staged)
            raise
