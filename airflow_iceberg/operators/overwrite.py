"""Changing the rows of a table: `IcebergOverwriteOperator`, `IcebergDeleteOperator`.

Here: the words of the DAG author. Which files are touched decides `operations.row_changes`, what is committed
`operations.overwrite` and `operations.delete`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operators._rows import RowsOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


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
        the fields of `WriteResult`, as plain values; see docs/reference.md.
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
        overwrite_filter: str | None = None,
        replace: Literal["matching", "partitions", "table"] = "matching",
        isolation_level: Literal["serializable", "snapshot"] = "serializable",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.overwrite_filter = overwrite_filter
        self.replace = replace
        self.isolation_level = isolation_level

    def execute(self, context: Context) -> dict[str, Any]:
        """Look whether the work is done; if not run the jobs and commit what they staged."""
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
                isolation_level=self.isolation_level,
                deletes_when_empty=self.on_empty == "delete",
            )
            result = overwrite(self.work(context), request)
        return self.report_rows(context, result)
