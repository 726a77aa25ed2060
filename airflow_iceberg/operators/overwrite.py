"""The operator that overwrites rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.operators._rows import RowsOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergOverwriteOperator(RowsOperator):
    """Replaces rows of a table by new ones in one commit, exactly once per run of the DAG.

    `replace` selects which existing rows are replaced: `"matching"` the rows that `overwrite_filter` selects,
    `"partitions"` all rows of the partitions that have new rows, `"table"` every row. Readers see either the old rows
    or the new ones. If another writer changes the rows that are replaced, nothing is committed, and Airflow retries the
    task.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        overwrite_filter: a predicate in SQL, `"day = :day"`, for `replace="matching"`. Rows for which it is null are
            kept. The new rows must satisfy it, or the task fails and names the row; see `check_filter`. Files that
            match in part are rewritten without the matching rows. With a Spark connection it may be any condition of
            Spark SQL, with functions, casts and subqueries over `inputs`; in this process only comparisons of columns
            with literals are.
        predicate_params: the values of the filter's placeholders by name: `{"day": "{{ params.day }}"}`. A value takes
            the place of a literal, whatever is in it; a template in the filter itself becomes SQL.
        check_filter: False also takes new rows that the filter does not select: the task deletes the rows that it
            selects and appends the new rows, in one commit.
        replace: `"matching"`, `"partitions"` or `"table"`. Partitions are those of the table's current spec: files of
            older specs are kept; if the current spec has no partition fields, all rows are replaced.
        isolation_level: with `"serializable"`, rows that other writers added meanwhile where this task replaces rows
            are conflicts; with `"snapshot"` only rows that other writers removed are.
        files: one or more URLs or paths of source files, with globs:
            `"s3://bucket/{{ dag_run.run_after | ds }}/*.parquet"`.
        sql: a query, or the name of a `.sql` file: in Spark SQL, or without a Spark connection in the SQL of DuckDB.
        sql_params: the values of the query's placeholders by name: `{"day": "{{ params.day }}"}` for `day = :day`.
            Spark binds them; a template in the query itself becomes SQL.
        inputs: the tables that the query, the function or the filter reads, by the names that it has for them:
            `{"orders": "sales.orders"}`, or an `Input` with a branch, a snapshot, a filter or another connection. Each
            is read at one snapshot, which the commit names (`airflow.inputs`).
        python_callable: the name of a function, `"package.module:function"`, that the Spark job calls with the
            SparkSession and `op_kwargs`, and that returns a DataFrame.
        op_kwargs: keyword arguments of the function, JSON values.
        file_options: format and format options of `files`, a `FileOptions` or a dictionary of its fields.
        iceberg_conn_id: the id of the catalog's connection.
        spark_conn_id: the id of the Spark connection that the jobs are submitted to; None runs them in this process
            without Spark, for `files` and for `sql` over `inputs`.
        spark_config: resources and options of the Spark jobs, a `SparkConfig` or a dictionary of its fields.
        deferrable: whether the worker slot is free while a job runs, on YARN and Kubernetes in deploy mode `cluster`;
            elsewhere the task waits. By default Airflow's `[operators] default_deferrable`.
        poll_interval: seconds between two looks of the triggerer at the job; 30.
        branch: the branch to write to.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
        snapshot_properties: additional entries of the snapshot's summary.
        on_rerun: what a cleared task does if its earlier run has committed: `"replace"` also replaces the rows of the
            earlier run by the new ones in one commit, wherever they are; `"append"` keeps those of them that the filter
            does not select; `"skip"` does nothing.
        write_key, on_removed: as of `IcebergAppendOperator`.
        on_empty: what happens if the source has no rows: `"nothing"` commits nothing and the task succeeds, `"delete"`
            deletes the rows that would be replaced (not for partitions), `"skip"` marks the task as skipped, `"fail"`
            fails it.
        schema_evolution: `"add_columns"` adds new columns of the source to the table's schema, and widens types where
            that is legal, in the same commit; by default new columns and wider types fail the task.
        write_format: `"parquet"` or `"avro"`, the format of data files; the table's `write.format.default` if left out.

    Returns:
        the fields of `WriteResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *("overwrite_filter", "predicate_params", "check_filter", "replace", "isolation_level"),
        *RowsOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "overwrite_filter": "sql",
        "predicate_params": "json",
        **RowsOperator.template_fields_renderers,
    }
    known_on_empty: ClassVar[tuple[str, ...]] = ("nothing", "delete", "skip", "fail")
    ui_color = "#fbe8d3"

    def __init__(
        self,
        *,
        overwrite_filter: str | None = None,
        predicate_params: Mapping[str, Any] | None = None,
        check_filter: bool | str = True,
        replace: Literal["matching", "partitions", "table"] = "matching",
        isolation_level: Literal["serializable", "snapshot"] = "serializable",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.overwrite_filter = overwrite_filter
        self.predicate_params = predicate_params
        self.check_filter = check_filter
        self.replace = replace
        self.isolation_level = isolation_level

    def execute(self, context: Context) -> dict[str, Any]:
        """Replace the rows."""
        from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite

        with airflow_failures():
            if self.on_empty == "delete" and self.replace == "partitions":
                raise InvalidInputError(
                    "on_empty is 'delete', and replace is 'partitions': without rows there are no partitions to delete"
                )
            request = self.rows_request(
                OverwriteRequest,
                replace=self.replace,
                overwrite_filter=self.overwrite_filter,
                predicate_params=self.predicate_params,
                check_filter=true_or_false("check_filter", self.check_filter),
                isolation_level=self.isolation_level,
                deletes_when_empty=self.on_empty == "delete",
                dialect=None if self.spark_conn_id is None else self.dialect,
            )
            result = overwrite(self.work(context), request)
        return self.report_rows(context, result)
