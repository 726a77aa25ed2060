"""The operator that rewrites manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._arguments import whole_number
from airflow_iceberg.operators._job import operation_of
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergRewriteManifestsOperator(BaseOperator):
    """Puts manifests together, clustered by partition, so that scans open fewer of them; no data file is touched.

    The work of Iceberg's procedure `rewrite_manifests`. It runs in this process.

    Args:
        table: namespace and name, `sales.orders`.
        spec_id: manifests of this partition spec alone; all by default.
        branch: the branch whose manifests are rewritten.
        snapshot_properties: entries for the snapshot's summary.
        iceberg_conn_id: the catalog's connection.

    Returns:
        table, branch, outcome (`committed`, `found`, `nothing`), snapshot_id (text), manifests_created,
        manifests_replaced, manifests_kept, operation_key.
    """

    template_fields: Sequence[str] = ("table", "spec_id", "branch", "snapshot_properties", "iceberg_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"snapshot_properties": "json"}
    ui_color = "#e4f0da"

    def __init__(
        self,
        *,
        table: str,
        spec_id: int | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.spec_id = spec_id
        self.branch = branch
        self.snapshot_properties = snapshot_properties
        self.iceberg_conn_id = iceberg_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Rewrite the manifests, or find them rewritten."""
        from airflow_iceberg.operations.rewrite_manifests import rewrite_manifests

        with airflow_failures():
            spec_id = None if self.spec_id is None else whole_number("spec_id", self.spec_id)
            table = IcebergHook(self.iceberg_conn_id).load_table(self.table)
            result = rewrite_manifests(
                table,
                spec_id=spec_id,
                branch=self.branch,
                operation=operation_of(context),
                try_number=int(context["ti"].try_number),
                snapshot_properties=self.snapshot_properties or {},
            )
        self.log.info(
            "%s: %s; %d manifests became %d, %d stayed",
            result.table,
            result.outcome,
            result.manifests_replaced,
            result.manifests_created,
            result.manifests_kept,
        )
        return result.to_xcom()
