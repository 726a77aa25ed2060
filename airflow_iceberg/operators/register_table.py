"""The operator that registers a table by its metadata file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import true_or_false
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.operators._key import operation_key_of
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergRegisterTableOperator(TableOperator):
    """Brings an existing Iceberg table into a catalog by its metadata file; nothing is copied.

    It does the work of Iceberg's procedure `register_table`. If the catalog has the table already, with metadata that
    has grown out of this file, the task succeeds and changes nothing.

    Args:
        table: the namespace and name that the table gets, `sales.orders`.
        metadata_location: the location of the table's newest metadata file.
        create_namespace: whether the namespace is created if it does not exist.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `RegisterTableResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "metadata_location", "create_namespace")
    ui_color = "#dbeeff"

    def __init__(self, *, metadata_location: str, create_namespace: bool | str = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metadata_location = metadata_location
        self.create_namespace = create_namespace

    def execute(self, context: Context) -> dict[str, Any]:
        """Register the table."""
        from airflow_iceberg.catalogs.base import TableId
        from airflow_iceberg.operations.register_table import (
            RegisterTableRequest,
            RegisterTableResult,
            register_table,
        )

        with airflow_failures():
            request = RegisterTableRequest(metadata_location=self.metadata_location)
            catalog, table = IcebergHook(self.iceberg_conn_id).catalog, TableId.parse(self.table)
            namespace = catalog.namespace_of(table)
            if true_or_false("create_namespace", self.create_namespace):
                catalog.ensure_namespace(namespace)
            state, outcome = register_table(catalog, table, request)
            result = RegisterTableResult.of(state, outcome=outcome, operation_key=str(operation_key_of(context)))
        what = "is registered" if result.done_by_this_try else "was registered before"
        return self.report(context, result, [f"the table {what}, at {result.metadata_location}"])
