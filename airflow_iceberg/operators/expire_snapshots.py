"""The operator that expires snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_iceberg.errors import true_or_false
from airflow_iceberg.hooks.arguments import timestamp_ms, whole_number
from airflow_iceberg.operators._job import InventoryOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.sdk import Context


class IcebergExpireSnapshotsOperator(InventoryOperator):
    """Removes old snapshots, then the files that no other snapshot uses.

    It does the work of Iceberg's procedure `expire_snapshots`, with its rules for branches and tags. Files are deleted
    only after the commit is known to have succeeded. If a try is killed before that, the next try deletes them, or,
    three days later, the next task that expires snapshots of the table. A job reads the manifests of a large table.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        older_than: the time before which snapshots are expired: a `datetime`, ISO text (also from a template; UTC if it
            has no time zone), or an age as a `timedelta`. By default the table's `history.expire.max-snapshot-age-ms`
            (5 days).
        retain_last: the number of snapshots of each branch that are always kept; by default the table's
            `history.expire.min-snapshots-to-keep` (1).
        snapshot_ids: ids of further snapshots to expire.
        clean_expired_metadata: whether schemas and partition specs that nothing uses any more are removed.
        dry_run: whether nothing is changed, and the result reports what would be removed and how many bytes each ref
            keeps.
        iceberg_conn_id: the id of the catalog's connection.
        spark_conn_id: the id of the Spark connection that the job for a large table is submitted to; None reads every
            table in this process.
        spark_config: resources and options of that job, a `SparkConfig` or a dictionary of its fields.
        deferrable: accepted as by other operators; this one waits for its jobs.
        spark_from_files: the number of manifest entries from which on a table is large; 1,000,000.

    Returns:
        the fields of `ExpireSnapshotsResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *InventoryOperator.template_fields,
        *("older_than", "retain_last", "snapshot_ids", "clean_expired_metadata", "is_dry_run"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"snapshot_ids": "json", "spark_config": "json"}
    ui_color = "#e4f0da"
    is_maintenance = True

    def __init__(
        self,
        *,
        older_than: datetime | timedelta | str | None = None,
        retain_last: int | str | None = None,
        snapshot_ids: Sequence[int | str] | int | str = (),
        clean_expired_metadata: bool | str = False,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.retain_last = retain_last
        self.snapshot_ids = snapshot_ids
        self.clean_expired_metadata = clean_expired_metadata
        # Not `dry_run`, which is a method of Airflow's.
        self.is_dry_run = dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Expire the snapshots and delete their files, or finish the work of an earlier try."""
        from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots

        with airflow_failures():
            request = ExpireSnapshotsRequest(
                older_than_ms=timestamp_ms("older_than", self.older_than),
                retain_last=whole_number("retain_last", self.retain_last),
                snapshot_ids=tuple(_snapshot_ids(self.snapshot_ids)),
                clean_expired_metadata=true_or_false("clean_expired_metadata", self.clean_expired_metadata),
                dry_run=true_or_false("dry_run", self.is_dry_run),
            )
            work = self.work(context)
            result = expire_snapshots(work, request, inventory=self.open_inventory(work))
        return self.report(context, result, result.lines())


def _snapshot_ids(given: Any) -> list[int]:
    """Return snapshot ids, given as a list or as text."""
    if isinstance(given, str):
        given = [part for part in given.strip("[]() ").split(",") if part.strip()]
    if isinstance(given, int):
        given = [given]
    return [one for item in given or () if (one := whole_number("snapshot_ids", item)) is not None]
