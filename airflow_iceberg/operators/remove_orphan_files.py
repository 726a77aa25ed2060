"""The operators that remove orphan files, and restore them from quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operators._arguments import moment_ms, yes_or_no
from airflow_iceberg.operators._job import InventoryOperator, TableOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.sdk import Context

    from airflow_iceberg.operations.remove_orphan_files import OrphanRequest


class IcebergRemoveOrphanFilesOperator(InventoryOperator):
    """Finds files below a table that are not the table's, and moves them into a quarantine.

    The work of Iceberg's procedure `remove_orphan_files`, with a way back: `IcebergRestoreOrphanFilesOperator`. Files
    of the last three days stay, since those of running jobs are in no table yet. The files of a large table are listed,
    and its manifests read, by jobs.

    Args:
        table: namespace and name, `sales.orders`.
        action: `"quarantine"` moves orphans to `<table>/.quarantine/<run>/`, `"delete"` deletes them for good,
            `"dry_run"` only says which they are.
        older_than: files written before that moment: a `datetime`, ISO text or a `timedelta`, the age; 3 days.
        location: a folder below the table's location; all of it by default.
        options: `equal_schemes`, `equal_authorities` (`{"nn1,nn2": "cluster"}`), `prefix_mismatch_mode` (`"error"`,
            `"ignore"`, `"delete"`), `allow_recent` (take an `older_than` of less than 24 hours).
        purge_older_than: quarantines of before that moment are deleted for good, given like `older_than`.
        iceberg_conn_id: the catalog's connection.
        spark_conn_id: where the jobs for a large table run; None does everything in this process.
        spark_config: resources and options of those jobs.
        spark_from_files: a table is large from so many files on, by the summaries of its snapshots for listing them,
            by entries of manifests for reading these; 1,000,000.

    Returns:
        the fields of `OrphanResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        "table",
        "action",
        "older_than",
        "location",
        "options",
        "purge_older_than",
        "iceberg_conn_id",
        "spark_conn_id",
        "spark_config",
        "spark_from_files",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"options": "json", "spark_config": "json"}
    ui_color = "#e4f0da"

    def __init__(
        self,
        *,
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
        """Look for orphans and put them out of the way."""
        from airflow_iceberg.operations.remove_orphan_files import remove_orphan_files

        with airflow_failures():
            request = self._request()
            work = self.work(context)
            result = remove_orphan_files(work, request, inventory=self.open_inventory(work))
        return self.report(context, result, result.lines())

    def _request(self) -> OrphanRequest:
        from airflow_iceberg.operations.remove_orphan_files import OrphanRequest

        if not isinstance(self.options or {}, Mapping):
            raise InvalidInputError(f"options are {self.options!r}, expected names and values")
        options = dict(self.options or {})
        unknown = sorted(set(options) - set(_ORPHAN_OPTIONS))
        if unknown:
            raise InvalidInputError(f"unknown option {unknown[0]!r}; one of {', '.join(_ORPHAN_OPTIONS)}")
        if "allow_recent" in options:
            options["allow_recent"] = yes_or_no("allow_recent", options["allow_recent"])
        if isinstance(options.get("prefix_mismatch_mode"), str):
            # Iceberg's documentation writes ERROR, IGNORE and DELETE.
            options["prefix_mismatch_mode"] = options["prefix_mismatch_mode"].lower()
        return OrphanRequest(
            action=self.action,
            older_than_ms=moment_ms("older_than", self.older_than),
            location=self.location or None,
            purge_older_than_ms=moment_ms("purge_older_than", self.purge_older_than),
            **options,
        )


_ORPHAN_OPTIONS = ("allow_recent", "equal_authorities", "equal_schemes", "prefix_mismatch_mode")


class IcebergRestoreOrphanFilesOperator(TableOperator):
    """Moves the files of a quarantine back to where they were.

    Args:
        table: namespace and name, `sales.orders`.
        quarantine: its name, as the task that made it returned it:
            `"{{ ti.xcom_pull('clean')['quarantine'] }}"`.
        iceberg_conn_id: the catalog's connection.

    Returns:
        the fields of `RestoreResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = ("table", "quarantine", "iceberg_conn_id")
    ui_color = "#e4f0da"

    def __init__(self, *, quarantine: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quarantine = quarantine

    def execute(self, context: Context) -> dict[str, Any]:
        """Move the files back, or find them moved back."""
        from airflow_iceberg.operations.quarantine import restore_quarantine

        with airflow_failures():
            result = restore_quarantine(self.work(context), self.quarantine)
        return self.report(context, result, [f"{result.restored_files} files were moved back"])
