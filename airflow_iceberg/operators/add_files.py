"""The operator that adds existing files to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.errors import true_or_false
from airflow_iceberg.hooks.arguments import from_json
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergAddFilesOperator(TableOperator):
    """Adds existing Parquet, ORC and Avro files to a table where they are, exactly once per run of the DAG.

    It does the work of Iceberg's procedure `add_files`, in this process: it reads only the footers of the files, and
    commits one snapshot. From then on the files are files of the table: an expiry may delete them, if they lie in a
    location of the table's own.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        files: the locations of the files, as a list or as JSON text.
        source: instead of `files`, a folder: all files below it. Folders `name=value` are values of partition fields.
            Or the name of a table of the Hive Metastore that is the catalog, `old.orders`, which is no Iceberg table.
        partition_filter: the values of partition fields by name: only those files of `source` are added,
            `{"day": "{{ dag_run.run_after | ds }}"}`.
        check_duplicate_files: whether a file that the table has already fails the task.
        rewrite_unfit: whether the rows of files that readers of Iceberg would misread are written into new files of the
            table, in the same commit and in this process; by default such a file fails the task.
        branch: the branch to add to.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
        snapshot_properties: additional entries of the snapshot's summary.
        on_rerun: what a cleared task does if its earlier run has committed: `"replace"` leaves the table with the files
            that are named now, `"append"` adds them, `"skip"` does nothing. No file is deleted from the store.
        write_key, on_removed: as of `IcebergAppendOperator`.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `WriteResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        *("files", "source", "partition_filter", "check_duplicate_files", "rewrite_unfit", "branch", "create_branch"),
        *("snapshot_properties", "on_rerun", "write_key", "on_removed"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"partition_filter": "json", "snapshot_properties": "json"}
    ui_color = "#dbeeff"

    def __init__(
        self,
        *,
        files: Sequence[str] | str | None = None,
        source: str | None = None,
        partition_filter: Mapping[str, Any] | str | None = None,
        check_duplicate_files: bool | str = True,
        rewrite_unfit: bool | str = False,
        branch: str = "main",
        create_branch: bool | str = False,
        snapshot_properties: Mapping[str, str] | None = None,
        on_rerun: Literal["replace", "append", "skip"] = "replace",
        write_key: str | int | None = None,
        on_removed: Literal["keep", "remove"] | None = None,
        **kwargs: Any,
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.files = files
        self.source = source
        self.partition_filter = partition_filter
        self.check_duplicate_files = check_duplicate_files
        self.rewrite_unfit = rewrite_unfit
        self.create_branch = create_branch
        self.snapshot_properties = snapshot_properties
        self.on_rerun = on_rerun
        self.write_key = write_key
        self.on_removed = on_removed

    def execute(self, context: Context) -> dict[str, Any]:
        """Add the files."""
        from airflow_iceberg.operations.add_files import AddFilesRequest, add_files

        with airflow_failures():
            request = AddFilesRequest(
                files=None if self.files is None else from_json("files", "a list of locations", self.files),
                source=self.source,
                partition_filter=from_json("partition_filter", "a JSON object", self.partition_filter),
                check_duplicate_files=true_or_false("check_duplicate_files", self.check_duplicate_files),
                rewrite_unfit=true_or_false("rewrite_unfit", self.rewrite_unfit),
                branch=self.branch,
                create_branch=true_or_false("create_branch", self.create_branch),
                snapshot_properties=self.snapshot_properties or {},
                on_rerun=self.on_rerun,
            )
            result = add_files(self.work(context), request)
        snapshot = "that has expired" if result.snapshot_id is None else result.snapshot_id
        line = _SENTENCES[result.outcome].format(
            snapshot=snapshot, files=result.added_data_files, rows=result.added_records, gone=result.deleted_data_files
        )
        return self.report(context, result, [line])


_SENTENCES = {
    "committed": "committed snapshot {snapshot} with {files} new files, {rows} rows, without {gone} of an earlier run",
    "found": "an earlier try of this task committed snapshot {snapshot} with {files} files already",
    "skipped": "an earlier run of this task committed snapshot {snapshot} with {files} files, and on_rerun is 'skip'",
    "nothing": "all files with rows are in the table since an earlier run of this task, nothing was committed",
}
