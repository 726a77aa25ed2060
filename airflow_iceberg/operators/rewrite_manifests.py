"""The operator that rewrites manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_iceberg.hooks.arguments import whole_number
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergRewriteManifestsOperator(TableOperator):
    """Merges manifests, clustered by partition, so that scans open fewer of them; no data file is changed.

    It does the work of Iceberg's procedure `rewrite_manifests`, in this process.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        spec_id: the partition spec whose manifests are rewritten; by default all specs.
        branch: the branch whose manifests are rewritten.
        snapshot_properties: additional entries of the snapshot's summary.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `RewriteManifestsResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "spec_id", "branch", "snapshot_properties")
    template_fields_renderers: ClassVar[dict[str, str]] = {"snapshot_properties": "json"}
    ui_color = "#e4f0da"
    is_maintenance = True

    def __init__(
        self,
        *,
        spec_id: int | str | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.spec_id = spec_id
        self.snapshot_properties = snapshot_properties

    def execute(self, context: Context) -> dict[str, Any]:
        """Rewrite the manifests."""
        from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests

        with airflow_failures():
            request = RewriteManifestsRequest(
                spec_id=whole_number("spec_id", self.spec_id),
                branch=self.branch,
                snapshot_properties=self.snapshot_properties or {},
            )
            result = rewrite_manifests(self.work(context), request)
        line = (
            f"{result.outcome}; {result.manifests_replaced} manifests became {result.manifests_created}, "
            f"{result.manifests_kept} were kept"
        )
        return self.report(context, result, [line])
