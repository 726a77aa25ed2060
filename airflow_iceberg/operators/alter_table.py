"""The operator that alters a table: columns, partitioning, sort order, properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators.create_table import _from_json
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergAlterTableOperator(BaseOperator):
    """Changes schema, partitioning, sort order, properties or format version of a table, all in one commit.

    A list whose result stands already changes nothing: the task may be tried again, cleared, or run every day.

    Args:
        table: namespace and name, `sales.orders`.
        changes: what to do, in this order, or such a list as JSON text:
            `[{"add_column": {"name": "price", "type": "decimal(9, 2)", "after": "id"}},
            {"rename_column": {"from": "ts", "to": "moment"}}]`; docs/how-to/alter-a-table.md lists all changes.
        iceberg_conn_id: the catalog's connection.

    Returns:
        table, changed: whether something was committed, schema_id, spec_id, sort_order_id, format_version and
        metadata_location of the table now.
    """

    template_fields: Sequence[str] = ("table", "changes", "iceberg_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"changes": "json"}
    ui_color = "#dbeeff"

    def __init__(
        self,
        *,
        table: str,
        changes: Sequence[Mapping[str, Any]] | str,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.changes = changes
        self.iceberg_conn_id = iceberg_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Make the changes, or find them made."""
        with airflow_failures():
            changes = _from_json("changes", "a JSON list", self.changes)
            result = IcebergHook(self.iceberg_conn_id).load_table(self.table).alter(changes)
        self.log.info("table %s %s", result.table, "was changed" if result.changed else "is as it should be already")
        return result.to_xcom()
