"""Keeping tables in shape: compaction, rewriting of manifests, expiry of snapshots, orphan files.

Here: the words of the DAG author. Which files are rewritten decides `plan.compaction`, what is committed `compacting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk import BaseOperator

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.failures import airflow_failures
from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.operators._arguments import moment_ms, whole_number, yes_or_no
from airflow_iceberg.operators._job import JobOperator, operation_of
from airflow_iceberg.operators._walk import WalkOperator

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.sdk import Context

    from airflow_iceberg.cleaning import OrphanRequest
    from airflow_iceberg.submit import SparkConfig


class IcebergCompactOperator(JobOperator):
    """Rewrites small, large and much deleted files into files of the target size; no row changes.

    The work of Iceberg's procedure `rewrite_data_files`, with its names and defaults. When every file is as it should
    be, nothing is started. Groups whose files other writers change meanwhile are planned again, alone.

    Args:
        table: namespace and name, `sales.orders`.
        strategy: `"binpack"` puts rows together as they are; `"sort"` sorts them, `"zorder"` clusters them.
        sort_by: for `sort` such a list as `["ts desc nulls last"]`, by default the table's sort order; for `zorder`
            columns.
        where: a predicate in SQL: only files that may hold matching rows, `"day >= '{{ params.first_day }}'"`.
        options: by Iceberg's names, `{"target-file-size-bytes": 268435456, "min-input-files": 10,
            "partial-progress.enabled": True}`.
        branch: the branch to compact.
        snapshot_properties: entries for the snapshots' summaries.
        iceberg_conn_id: the catalog's connection.
        spark_conn_id: where the job runs: a `spark` connection submits it; None runs it in this process.
        spark_config: resources and options of the Spark job.

    Returns:
        table, branch, outcome (`committed`, `found`, `nothing`), snapshot_id (text) and snapshot_ids, file_groups,
        rewritten_data_files, rewritten_bytes, added_data_files, added_bytes, records, removed_delete_files,
        failed_file_groups, operation_key.
    """

    template_fields: Sequence[str] = (
        "table",
        "strategy",
        "sort_by",
        "where",
        "options",
        "branch",
        "snapshot_properties",
        "iceberg_conn_id",
        "spark_conn_id",
        "spark_config",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "where": "sql",
        "options": "json",
        "snapshot_properties": "json",
        "spark_config": "json",
    }
    ui_color = "#e4f0da"

    def __init__(
        self,
        *,
        table: str,
        strategy: Literal["binpack", "sort", "zorder"] = "binpack",
        sort_by: Sequence[str] = (),
        where: str | None = None,
        options: Mapping[str, Any] | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        spark_conn_id: str | None = "spark_default",
        spark_config: SparkConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.strategy = strategy
        self.sort_by = sort_by
        self.where = where
        self.options = options
        self.branch = branch
        self.snapshot_properties = snapshot_properties
        self.iceberg_conn_id = iceberg_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_config = spark_config

    def execute(self, context: Context) -> dict[str, Any]:
        """Look what is to be rewritten, run the job and commit what it wrote."""
        from airflow_iceberg.compacting import CompactionRequest, compact

        with airflow_failures():
            request = CompactionRequest(
                where=self.where,
                # Written by people; Iceberg's procedure takes it in any case, too.
                strategy=str(self.strategy).lower(),
                sort_by=(self.sort_by,) if isinstance(self.sort_by, str) else tuple(self.sort_by or ()),
                options=self.options or {},
                branch=self.branch,
                snapshot_properties=self.snapshot_properties or {},
            )
            result = self.carry_out(context, lambda table, **how: compact(table, request, **how))
        self.log.info(
            "%s: %s; %d files of %d bytes became %d files of %d bytes, in %d commits",
            result.table,
            _SENTENCES[result.outcome],
            result.rewritten_data_files,
            result.rewritten_bytes,
            result.added_data_files,
            result.added_bytes,
            len(result.snapshot_ids),
        )
        return result.to_xcom()


_SENTENCES = {
    "committed": "compacted",
    "found": "an earlier try of this task has compacted it already",
    "nothing": "every file is as it should be, nothing was done",
}


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
        from airflow_iceberg.manifest_rewriting import rewrite_manifests

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


class IcebergExpireSnapshotsOperator(WalkOperator):
    """Removes old snapshots, then the files that only they reached.

    The work of Iceberg's procedure `expire_snapshots`, with its rules for branches and tags. Files are deleted only
    once the commit is known to have landed; a try that dies in between is finished by the next one, or, once it is
    three days old, by the next task that expires snapshots of the table. The manifests of a large table are read by a
    job.

    Args:
        table: namespace and name, `sales.orders`.
        older_than: snapshots of before that moment may go: a `datetime`, ISO text (a template; UTC if it names no
            zone) or a `timedelta`, the age. By default the table's `history.expire.max-snapshot-age-ms` (5 days).
        retain_last: so many snapshots of each branch stay; by default the table's
            `history.expire.min-snapshots-to-keep` (1).
        snapshot_ids: these go besides.
        clean_expired_metadata: forget schemas and partition specs that nothing uses any more.
        dry_run: change nothing, and say what would go and how many bytes each ref keeps alive.
        iceberg_conn_id: the catalog's connection.
        spark_conn_id: where the job for a large table runs; None reads every table in this process.
        spark_config: resources and options of that job.
        spark_from_files: a table is large from so many entries of manifests on; 1,000,000.

    Returns:
        table, outcome (`committed`, `finished`: files that an earlier try had left, `nothing`, `dry-run`),
        expired_snapshots, expired_refs, deleted_data_files_count, deleted_position_delete_files_count,
        deleted_equality_delete_files_count, deleted_manifest_files_count, deleted_manifest_lists_count,
        deleted_statistics_files_count, deleted_bytes, failed_files, removed_schemas, removed_partition_specs, refs (of
        a dry run: name, snapshots, size_bytes, exclusive_bytes), staging_files (left by jobs that died, removed).
    """

    template_fields: Sequence[str] = (
        "table",
        "older_than",
        "retain_last",
        "snapshot_ids",
        "iceberg_conn_id",
        "spark_conn_id",
        "spark_config",
        "spark_from_files",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"snapshot_ids": "json", "spark_config": "json"}
    ui_color = "#e4f0da"

    def __init__(
        self,
        *,
        table: str,
        older_than: datetime | timedelta | str | None = None,
        retain_last: int | str | None = None,
        snapshot_ids: Sequence[int | str] = (),
        clean_expired_metadata: bool = False,
        dry_run: bool = False,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        spark_conn_id: str | None = "spark_default",
        spark_config: SparkConfig | None = None,
        spark_from_files: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.older_than = older_than
        self.retain_last = retain_last
        self.snapshot_ids = snapshot_ids
        self.clean_expired_metadata = clean_expired_metadata
        # Not `dry_run`, which is a method of Airflow's.
        self._is_dry_run = dry_run
        self.iceberg_conn_id = iceberg_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_config = spark_config
        self.spark_from_files = spark_from_files

    def execute(self, context: Context) -> dict[str, Any]:
        """Expire the snapshots and delete their files, or finish what an earlier try began."""
        from airflow_iceberg.expiring import ExpireRequest, expire_snapshots

        with airflow_failures():
            request = ExpireRequest(
                older_than_ms=moment_ms("older_than", self.older_than),
                retain_last=whole_number("retain_last", self.retain_last),
                snapshot_ids=tuple(_snapshot_ids(self.snapshot_ids)),
                clean_expired_metadata=yes_or_no("clean_expired_metadata", self.clean_expired_metadata),
                dry_run=yes_or_no("dry_run", self._is_dry_run),
            )
            table = IcebergHook(self.iceberg_conn_id).load_table(self.table)
            walk = self.open_walker(table, context)
            result = expire_snapshots(table, request, operation=operation_of(context), walk=walk)
        for line in result.lines():
            self.log.info("%s: %s", result.table, line)
        return result.to_xcom()


def _snapshot_ids(given: Any) -> list[int]:
    """Return snapshot ids, as a list or as the text that a template made of one."""
    if isinstance(given, str):
        given = [part for part in given.strip("[]() ").split(",") if part.strip()]
    if isinstance(given, int):
        given = [given]
    found = [whole_number("snapshot_ids", item) for item in given or ()]
    # One that a template left empty is none of the table's.
    return [-1 if item is None else item for item in found]


class IcebergRemoveOrphanFilesOperator(WalkOperator):
    """Finds files below a table that are not the table's, and moves them into a quarantine.

    The work of Iceberg's procedure `remove_orphan_files`, with a way back: `IcebergRestoreOrphanFilesOperator`. Files
    of the last three days stay, since those of running jobs are in no table yet. The files of a large table are listed,
    and its manifests read, by jobs.

    Args:
        table: namespace and name, `sales.orders`.
        action: `"quarantine"` moves orphans to `<table>/.quarantine/<run>/`, `"delete"` deletes them for good,
            `"dry-run"` only says which they are.
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
        table, outcome (`quarantined`, `deleted`, `dry-run`, `nothing`), listed_files, orphan_files, orphan_bytes,
        orphans (the first of them), quarantine (its name), staging_files (left by jobs that died), staging_bytes,
        purged_quarantines.
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
        table: str,
        action: Literal["quarantine", "delete", "dry-run"] = "quarantine",
        older_than: datetime | timedelta | str | None = None,
        location: str | None = None,
        options: Mapping[str, Any] | None = None,
        purge_older_than: datetime | timedelta | str | None = None,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        spark_conn_id: str | None = "spark_default",
        spark_config: SparkConfig | None = None,
        spark_from_files: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.action = action
        self.older_than = older_than
        self.location = location
        self.options = options
        self.purge_older_than = purge_older_than
        self.iceberg_conn_id = iceberg_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_config = spark_config
        self.spark_from_files = spark_from_files

    def execute(self, context: Context) -> dict[str, Any]:
        """Look for orphans and put them out of the way."""
        from airflow_iceberg.cleaning import remove_orphans

        with airflow_failures():
            request = self._request()
            table = IcebergHook(self.iceberg_conn_id).load_table(self.table)
            walk = self.open_walker(table, context)
            result = remove_orphans(table, request, operation=operation_of(context), walk=walk)
        for line in result.lines():
            self.log.info("%s: %s", result.table, line)
        return result.to_xcom()

    def _request(self) -> OrphanRequest:
        from airflow_iceberg.cleaning import OrphanRequest

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


class IcebergRestoreOrphanFilesOperator(BaseOperator):
    """Moves the files of a quarantine back to where they were.

    Args:
        table: namespace and name, `sales.orders`.
        quarantine: its name, as the task that made it returned it:
            `"{{ ti.xcom_pull('clean')['quarantine'] }}"`.
        iceberg_conn_id: the catalog's connection.

    Returns:
        table, quarantine, restored_files, restored_bytes.
    """

    template_fields: Sequence[str] = ("table", "quarantine", "iceberg_conn_id")
    ui_color = "#e4f0da"

    def __init__(
        self, *, table: str, quarantine: str, iceberg_conn_id: str = IcebergHook.default_conn_name, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.quarantine = quarantine
        self.iceberg_conn_id = iceberg_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Bring the files back."""
        from airflow_iceberg.quarantine import restore_quarantine

        with airflow_failures():
            result = restore_quarantine(IcebergHook(self.iceberg_conn_id).load_table(self.table), self.quarantine)
        self.log.info("%s: %d files are back where they were", result.table, result.restored_files)
        return result.to_xcom()
