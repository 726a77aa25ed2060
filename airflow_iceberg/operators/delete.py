"""The operator that deletes rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.hooks.arguments import whole_number
from airflow_iceberg.operators._rows import InputsOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergDeleteOperator(InputsOperator):
    """Deletes the rows that a predicate selects, exactly once per run of the DAG.

    Files that have only selected rows are deleted without being opened; if there are no others, no job is started.
    Other files are rewritten without the selected rows (copy-on-write), or the rows are marked as deleted in delete
    files (merge-on-read: position deletes in format version 2, deletion vectors in version 3). If another writer
    changes the same files, the delete is re-planned on the latest snapshot.

    The predicate is Spark SQL: a backslash in a text escapes the next character, unless the text begins with `r'`. With
    a Spark connection it may be any condition of Spark SQL, with functions, casts and subqueries over `inputs`; what
    metadata cannot prove is evaluated by the job. In this process only comparisons of columns with literals are.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        predicate: the rows to delete, in SQL: `"customer_id = :customer"`. Rows for which it is true are deleted, rows
            for which it is false or null are kept; `"true"` deletes every row.
        predicate_params: the values of the predicate's placeholders by name: `{"customer": "{{ params.customer }}"}`.
            A value takes the place of a literal, whatever is in it; a template in the predicate itself becomes SQL.
        inputs: the tables that subqueries of the predicate read, by the names that it has for them:
            `{"blocked": "crm.blocked"}` for `"customer_id in (select id from blocked)"`; needs Spark.
        mode: `"copy-on-write"` or `"merge-on-read"`; by default the table's `write.delete.mode`, copy-on-write.
        max_rows: the maximum number of deleted rows; if more rows match, the task fails and nothing is deleted.
        isolation_level: with `"serializable"`, matching rows that other writers added meanwhile are conflicts, with
            `"snapshot"` they are not; by default the table's `write.delete.isolation-level`, serializable.
        branch: the branch to delete from.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
        snapshot_properties: additional entries of the snapshot's summary.
        write_format: `"parquet"` or `"avro"`, the format of data files; the table's `write.format.default` if left out.
        iceberg_conn_id: the id of the catalog's connection.
        spark_conn_id: the id of the Spark connection that the job is submitted to; None runs it in this process.
        spark_config: resources and options of the Spark job, a `SparkConfig` or a dictionary of its fields.
        deferrable: whether the worker slot is free while a job runs, on YARN and Kubernetes in deploy mode `cluster`;
            elsewhere the task waits. By default Airflow's `[operators] default_deferrable`.
        poll_interval: seconds between two looks of the triggerer at the job; 30.

    Returns:
        the fields of `WriteResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *InputsOperator.template_fields,
        *("predicate", "predicate_params", "mode", "max_rows", "isolation_level"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **InputsOperator.template_fields_renderers,
        **{"predicate": "sql", "predicate_params": "json"},
    }
    ui_color = "#fbe0e0"

    def __init__(
        self,
        *,
        predicate: str,
        predicate_params: Mapping[str, Any] | None = None,
        mode: Literal["copy-on-write", "merge-on-read"] | None = None,
        max_rows: int | str | None = None,
        isolation_level: Literal["serializable", "snapshot"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.predicate = predicate
        self.predicate_params = predicate_params
        self.mode = mode
        self.max_rows = max_rows
        self.isolation_level = isolation_level

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the rows."""
        from airflow_iceberg.operations.delete import DeleteRequest, delete

        with airflow_failures():
            request = DeleteRequest(
                predicate=self.predicate,
                predicate_params=self.predicate_params,
                mode=self.mode,
                isolation_level=self.isolation_level,
                max_rows=whole_number("max_rows", self.max_rows),
                branch=self.branch,
                create_branch=self.creates_branch(),
                snapshot_properties=self.snapshot_properties or {},
                write_format=self.write_format,
                dialect=None if self.spark_conn_id is None else self.dialect,
                inputs=self.inputs_to_open(),
            )
            result = delete(self.work(context), request)
        counts = (
            f"{result.deleted_records} rows and {result.deleted_data_files} data files were deleted, "
            f"{result.added_data_files} data files and {result.added_delete_files} delete files were added"
        )
        return self.report(context, result, [f"{_SENTENCES[result.outcome]}; {counts}"])


_SENTENCES = {
    "committed": "deleted rows",
    "found": "an earlier try of this task has deleted the rows already",
    "nothing": "no row matches, nothing was done",
}
