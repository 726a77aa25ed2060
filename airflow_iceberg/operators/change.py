"""Changing the rows of a table: `IcebergOverwriteOperator`, `IcebergDeleteOperator`.

Here: the words of the DAG author. Which files are touched decides `deletion_plan`, what is committed `overwriting` and
`deleting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.failures import airflow_failures
from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.operators._arguments import whole_number
from airflow_iceberg.operators._job import JobOperator
from airflow_iceberg.operators.write import FileOptions, RowsOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.submit import SparkConfig


class IcebergOverwriteOperator(RowsOperator):
    """Replaces rows of a table by new ones in one commit, exactly once per run of the DAG.

    `replace` says what goes: `"matching"` the rows that `overwrite_filter` selects, `"partitions"` all rows of the
    partitions that the new rows touch, `"table"` every row. Readers see the old rows or the new ones, never a mixture.
    Another writer's change of what is replaced ends the task with nothing committed, and Airflow tries it again.

    Args:
        table: namespace and name, `sales.orders`.
        overwrite_filter: a predicate in SQL, `"id = {{ params.id }}"`, for `replace="matching"`. Rows of which it is
            null stay. The new rows have to satisfy it, or the task fails and names the row. Files that match in part
            are rewritten without the rows that go.
        replace: `"matching"`, `"partitions"` or `"table"`. Partitions are those of the table's current spec: files of
            older specs stay, and of a table without partitions everything goes.
        isolation_level: `"serializable"` minds rows that others have added meanwhile where this task replaces rows;
            `"snapshot"` minds only what they removed.
        files: URL or path, or several, with globs: `"s3://bucket/{{ params.day }}/*.parquet"`.
        sql: a query in Spark's SQL, or the name of a `.sql` file.
        python_callable: `"package.module:function"`, called in the Spark job with the SparkSession and `op_kwargs`;
            returns a DataFrame.
        op_kwargs: keyword arguments for the callable, JSON values.
        file_options: how `files` are read.
        iceberg_conn_id: the catalog's connection.
        spark_conn_id: where the jobs run: a `spark` connection submits them; None runs them in this process without
            Spark, for `files` only.
        spark_config: resources and options of the Spark jobs.
        branch: the branch to write to.
        snapshot_properties: entries for the snapshot's summary.
        on_rerun: when a person cleared the task and an earlier run has committed: `"replace"` its rows by the new ones
            in one commit, wherever they are; `"append"` leaves those that the filter does not select; `"skip"` the
            work.
        on_empty: when the source has no rows: `"nothing"` is committed and the task succeeds, `"delete"` what is
            replaced all the same (not for partitions), `"skip"` marks the task as skipped, `"fail"` fails it.
        schema_evolution: `"add_columns"` lets columns that the source has more, and wider types where that is legal,
            join the table's schema in the same commit; by default they fail the task.

    Returns:
        table, branch, snapshot_id (text), operation, outcome, done_by_this_try, added_data_files, added_records,
        added_files_size_bytes, deleted_data_files, replaced_records, carried_records and operation_key.
    """

    template_fields: Sequence[str] = (
        "overwrite_filter",
        "replace",
        "isolation_level",
        *RowsOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "overwrite_filter": "sql",
        **RowsOperator.template_fields_renderers,
    }
    known_on_empty: ClassVar[tuple[str, ...]] = ("nothing", "delete", "skip", "fail")
    ui_color = "#fbe8d3"

    def __init__(
        self,
        *,
        table: str,
        overwrite_filter: str | None = None,
        replace: Literal["matching", "partitions", "table"] = "matching",
        isolation_level: Literal["serializable", "snapshot"] = "serializable",
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
        on_empty: Literal["nothing", "delete", "skip", "fail"] = "nothing",
        schema_evolution: Literal["add_columns"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.overwrite_filter = overwrite_filter
        self.replace = replace
        self.isolation_level = isolation_level
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
        """Look whether the work is done; if not run the jobs and commit what they staged."""
        from airflow_iceberg.overwriting import OverwriteRequest, overwrite

        with airflow_failures():
            source = self._source()
            self._check_on_empty()
            if self.on_empty == "delete" and self.replace == "partitions":
                raise InvalidInputError(
                    "on_empty is 'delete', and replace is 'partitions': no row names no partition, so nothing can go"
                )
            request = OverwriteRequest(
                replace=self.replace,
                overwrite_filter=self.overwrite_filter,
                isolation_level=self.isolation_level,
                branch=self.branch,
                on_rerun=self.on_rerun,
                schema_evolution=self.schema_evolution or None,
                deletes_when_empty=self.on_empty == "delete",
                snapshot_properties=self.snapshot_properties or {},
            )
            result = self.carry_out(context, lambda table, **how: overwrite(table, source, request, **how))
        return self._report(context, result)


class IcebergDeleteOperator(JobOperator):
    """Deletes the rows that a predicate selects, exactly once per run of the DAG.

    Files that hold nothing but selected rows go by metadata alone, and if there are no others no job is started. Other
    files are rewritten without the rows (copy-on-write), or the rows are marked as deleted beside them (merge-on-read:
    position deletes in format version 2, deletion vectors in version 3). When other writers change the same files
    meanwhile, all is planned again on the newer table.

    Args:
        table: namespace and name, `sales.orders`.
        predicate: in SQL, `"customer_id = {{ params.customer }}"`. A row goes where it is true, not where it is null;
            `"true"` deletes every row.
        mode: `"copy-on-write"` or `"merge-on-read"`; by default the table's `write.delete.mode`, copy-on-write.
        max_rows: a seat belt: when more rows would go, the task fails and nothing is deleted.
        isolation_level: `"serializable"` minds matching rows that others have added meanwhile, `"snapshot"` does not;
            by default the table's `write.delete.isolation-level`, serializable.
        branch: the branch to delete from.
        snapshot_properties: entries for the snapshot's summary.
        iceberg_conn_id: the catalog's connection.
        spark_conn_id: where the job runs: a `spark` connection submits it; None runs it in this process.
        spark_config: resources and options of the Spark job.

    Returns:
        table, branch, outcome (`committed`, `found`, `nothing`), done_by_this_try, snapshot_id (text), deleted_records,
        removed_data_files, removed_bytes, added_data_files, added_delete_files, removed_delete_files, added_bytes,
        operation_key.
    """

    template_fields: Sequence[str] = (
        "table",
        "predicate",
        "mode",
        "max_rows",
        "isolation_level",
        "branch",
        "snapshot_properties",
        "iceberg_conn_id",
        "spark_conn_id",
        "spark_config",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "predicate": "sql",
        "snapshot_properties": "json",
        "spark_config": "json",
    }
    ui_color = "#fbe0e0"

    def __init__(
        self,
        *,
        table: str,
        predicate: str,
        mode: Literal["copy-on-write", "merge-on-read"] | None = None,
        max_rows: int | str | None = None,
        isolation_level: Literal["serializable", "snapshot"] | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        spark_conn_id: str | None = "spark_default",
        spark_config: SparkConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.predicate = predicate
        self.mode = mode
        self.max_rows = max_rows
        self.isolation_level = isolation_level
        self.branch = branch
        self.snapshot_properties = snapshot_properties
        self.iceberg_conn_id = iceberg_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_config = spark_config

    def execute(self, context: Context) -> dict[str, Any]:
        """Look which files are concerned, run the job if there is need for one, and commit."""
        from airflow_iceberg.deleting import DeleteRequest, delete

        with airflow_failures():
            request = DeleteRequest(
                predicate=self.predicate,
                mode=self.mode or None,
                isolation_level=self.isolation_level or None,
                max_rows=self._most_rows(),
                branch=self.branch,
                snapshot_properties=self.snapshot_properties or {},
            )
            result = self.carry_out(context, lambda table, **how: delete(table, request, **how))
        self.log.info(
            "%s: %s; %d rows and %d data files went, %d data files and %d delete files came",
            result.table,
            _SENTENCES[result.outcome],
            result.deleted_records,
            result.removed_data_files,
            result.added_data_files,
            result.added_delete_files,
        )
        return result.to_xcom()

    def _most_rows(self) -> int | None:
        # A seat belt must not open because a template rendered to nothing.
        if isinstance(self.max_rows, str) and self.max_rows.strip() in ("", "None"):
            raise InvalidInputError(
                f"max_rows is {self.max_rows!r}, expected a number of rows; leave it out for no limit"
            )
        return whole_number("max_rows", self.max_rows)


_SENTENCES = {
    "committed": "deleted rows",
    "found": "an earlier try of this task has deleted the rows already",
    "nothing": "no row matches, nothing was done",
}
