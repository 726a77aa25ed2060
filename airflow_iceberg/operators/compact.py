"""The operator that compacts data files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.operators._job import JobOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergCompactOperator(JobOperator):
    """Rewrites small files, large files and files with many deleted rows into files of the target size; no row changes.

    It does the work of Iceberg's procedure `rewrite_data_files`, with its names and defaults. If no file needs a
    rewrite, no job is started. If other writers change files of a group, only this group is re-planned.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        strategy: `"binpack"` keeps the order of rows, `"sort"` sorts them, `"zorder"` clusters them.
        sort_by: for `sort` a list such as `["ts desc nulls last"]`, by default the table's sort order; for `zorder` a
            list of columns.
        where: a predicate in SQL, `"day >= :first_day"`; only files that may have matching rows are rewritten.
        predicate_params: the values of the predicate's placeholders by name:
            `{"first_day": "{{ params.first_day }}"}`. A value takes the place of a literal, whatever is in it.
        options: options with Iceberg's names, `{"target-file-size-bytes": 268435456, "min-input-files": 10,
            "partial-progress.enabled": True}`.
        branch: the branch to compact.
        snapshot_properties: additional entries of the snapshots' summaries.
        write_format: `"parquet"` or `"avro"`, the format of data files; the table's `write.format.default` if left out.
        iceberg_conn_id: the id of the catalog's connection.
        spark_conn_id: the id of the Spark connection that the job is submitted to; None runs it in this process.
        spark_config: resources and options of the Spark job, a `SparkConfig` or a dictionary of its fields.
        deferrable: whether the worker slot is free while a job runs, on YARN and Kubernetes in deploy mode `cluster`;
            elsewhere the task waits. By default Airflow's `[operators] default_deferrable`.
        poll_interval: seconds between two looks of the triggerer at the job; 30.

    Returns:
        the fields of `CompactResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *JobOperator.template_fields,
        *("strategy", "sort_by", "where", "predicate_params", "options", "branch", "snapshot_properties"),
        "write_format",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **JobOperator.template_fields_renderers,
        **{"where": "sql", "predicate_params": "json", "options": "json", "snapshot_properties": "json"},
    }
    ui_color = "#e4f0da"
    is_maintenance = True

    def __init__(
        self,
        *,
        strategy: Literal["binpack", "sort", "zorder"] = "binpack",
        sort_by: Sequence[str] = (),
        where: str | None = None,
        predicate_params: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
        write_format: Literal["parquet", "avro"] | None = None,
        **kwargs: Any,
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.strategy = strategy
        self.sort_by = sort_by
        self.where = where
        self.predicate_params = predicate_params
        self.options = options
        self.snapshot_properties = snapshot_properties
        self.write_format = write_format

    def execute(self, context: Context) -> dict[str, Any]:
        """Compact the files."""
        from airflow_iceberg.operations.compact import CompactRequest, compact

        with airflow_failures():
            request = CompactRequest(
                where=self.where,
                predicate_params=self.predicate_params,
                # Like Iceberg's procedure, in upper and lower case.
                strategy=str(self.strategy).lower(),
                sort_by=(self.sort_by,) if isinstance(self.sort_by, str) else tuple(self.sort_by or ()),
                options=self.options or {},
                branch=self.branch,
                snapshot_properties=self.snapshot_properties or {},
                write_format=self.write_format,
            )
            result = compact(self.work(context), request)
        counts = (
            f"{result.deleted_data_files} files of {result.removed_files_size_bytes} bytes became "
            f"{result.added_data_files} files of {result.added_files_size_bytes} bytes, "
            f"in {len(result.snapshot_ids)} commits"
        )
        return self.report(context, result, [f"{_SENTENCES[result.outcome]}; {counts}"])


_SENTENCES = {
    "committed": "compacted",
    "found": "an earlier try of this task has compacted it already",
    "nothing": "every file is as it should be, nothing was done",
}
