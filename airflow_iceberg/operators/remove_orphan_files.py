"""The operators that remove orphan files, and restore them from quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.hooks.arguments import timestamp_ms
from airflow_iceberg.operators._job import InventoryOperator, TableOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.sdk import Context

    from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest


class IcebergRemoveOrphanFilesOperator(InventoryOperator):
    """Finds files below a table's location that no metadata of the table names, and moves them to a quarantine.

    It does the work of Iceberg's procedure `remove_orphan_files`, and `IcebergRestoreOrphanFilesOperator` can undo it.
    Files of the last three days are kept, since the files of running jobs are in no snapshot yet. Jobs list the files
    of a large table and read its manifests.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        action: the treatment of orphan files: `"quarantine"` moves them to `<table>/.quarantine/<run>/`, `"delete"`
            deletes them permanently, `"dry_run"` only reports them.
        older_than: the time before which orphan files were written: a `datetime`, ISO text, or an age as a `timedelta`;
            3 days.
        location: the folder to search, below the table's location; by default the whole location.
        options: `equal_schemes`, `equal_authorities` (`{"nn1,nn2": "cluster"}`), `prefix_mismatch_mode` (`"error"`,
            `"ignore"`, `"delete"`), `allow_recent` (accept an `older_than` of less than 24 hours).
        purge_older_than: the time before which quarantines are deleted permanently, given like `older_than`.
        iceberg_conn_id: the id of the catalog's connection.
        spark_conn_id: the id of the Spark connection that the jobs for a large table are submitted to; None does
            everything in this process.
        spark_config: resources and options of those jobs, a `SparkConfig` or a dictionary of its fields.
        deferrable: accepted as by other operators; this one waits for its jobs.
        spark_from_files: the number of files from which on a table is large; for listing, the number in the summaries
            of its snapshots, for manifests, the number of their entries; 1,000,000.

    Returns:
        the fields of `RemoveOrphanFilesResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *InventoryOperator.template_fields,
        *("action", "older_than", "location", "options", "purge_older_than"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"options": "json", "spark_config": "json"}
    ui_color = "#e4f0da"
    is_maintenance = True

    def __init__(
        self,
        *,
        # Differs from Java: its procedure deletes the files, which nobody can undo.
        action: Literal["quarantine", "delete", "dry_run"] = "quarantine",
        older_than: datetime | timedelta | str | None = None,
        location: str | None = None,
        options: Mapping[str, Any] | None = None,
        purge_older_than: datetime | timedelta | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.action = action
        self.older_than = older_than
        self.location = location
        self.options = options
        self.purge_older_than = purge_older_than

    def execute(self, context: Context) -> dict[str, Any]:
        """Find the orphan files, and move or delete them."""
        from airflow_iceberg.operations.remove_orphan_files import remove_orphan_files

        with airflow_failures():
            request = self._request()
            work = self.work(context)
            result = remove_orphan_files(work, request, inventory=self.open_inventory(work))
        return self.report(context, result, result.lines())

    def _request(self) -> RemoveOrphanFilesRequest:
        from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest

        if not isinstance(self.options or {}, Mapping):
            raise InvalidInputError(f"options are {self.options!r}, expected names and values")
        options = dict(self.options or {})
        unknown = sorted(set(options) - set(_ORPHAN_OPTIONS))
        if unknown:
            raise InvalidInputError(f"unknown option {unknown[0]!r}; one of {', '.join(_ORPHAN_OPTIONS)}")
        if "allow_recent" in options:
            options["allow_recent"] = true_or_false("allow_recent", options["allow_recent"])
        if isinstance(options.get("prefix_mismatch_mode"), str):
            # Iceberg's documentation writes ERROR, IGNORE and DELETE.
            options["prefix_mismatch_mode"] = options["prefix_mismatch_mode"].lower()
        return RemoveOrphanFilesRequest(
            action=self.action,
            older_than_ms=timestamp_ms("older_than", self.older_than),
            location=self.location,
            purge_older_than_ms=timestamp_ms("purge_older_than", self.purge_older_than),
            **options,
        )


_ORPHAN_OPTIONS = ("allow_recent", "equal_authorities", "equal_schemes", "prefix_mismatch_mode")


class IcebergRestoreOrphanFilesOperator(TableOperator):
    """Moves the files of a quarantine back to their original locations.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        quarantine: the name of the quarantine, from the result of the task that created it:
            `"{{ ti.xcom_pull('clean')['quarantine'] }}"`.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `RestoreResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "quarantine")
    ui_color = "#e4f0da"
    is_maintenance = True

    def __init__(self, *, quarantine: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quarantine = quarantine

    def execute(self, context: Context) -> dict[str, Any]:
        """Move the files back."""
        from airflow_iceberg.operations.quarantine import restore_quarantine

        with airflow_failures():
            result = restore_quarantine(self.work(context), self.quarantine)
        return self.report(context, result, [f"{result.restored_files} files were moved back"])
