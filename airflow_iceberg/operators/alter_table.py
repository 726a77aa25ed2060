"""The operator that alters a table: columns, partitioning, sort order, properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_iceberg.hooks.arguments import from_json
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergAlterTableOperator(TableOperator):
    """Changes schema, partitioning, sort order, properties or format version of a table, all in one commit.

    In one DAG run the list is made once, and nothing is changed if the table already has its result, so the task can be
    retried, cleared, or run every day.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        changes: a list of changes, made in this order, or such a list as JSON text:
            `[{"add_column": {"name": "price", "type": "decimal(9, 2)", "after": "id"}},
            {"rename_column": {"from": "ts", "to": "moment"}}]`; docs/how-to/alter-a-table.md lists all changes.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `AlterTableResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "changes")
    template_fields_renderers: ClassVar[dict[str, str]] = {"changes": "json"}
    ui_color = "#dbeeff"
    is_maintenance = True

    def __init__(self, *, changes: Sequence[Mapping[str, Any]] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.changes = changes

    def execute(self, context: Context) -> dict[str, Any]:
        """Make the changes."""
        from airflow_iceberg.operations.alter_table import AlterTableRequest, alter_table

        with airflow_failures():
            request = AlterTableRequest(changes=from_json("changes", "a JSON list", self.changes))
            result = alter_table(self.work(context), request)
        line = "the table was changed" if result.done_by_this_try else "the table has the changes already"
        return self.report(context, result, [line])
