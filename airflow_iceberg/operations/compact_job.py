"""The plan of a compaction: which files, in which groups, and the documents of the job.

The scan gives the files, `plan.compact` chooses, `operations.staging` writes the job's documents. Not here: running the
job and committing (`operations.compact`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_iceberg.data.write.options import WriteOptions, in_format
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile, ManifestContent
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import SortOrder
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.jobs.protocol.plan import CompactTask, JobPlan, Sorting, ZOrder
from airflow_iceberg.jobs.protocol.table_input import WORK_FILE, FileUnit, TableInput, WorkItem, cut_group
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.compact import FileGroup, RewriteOptions, plan_groups
from airflow_iceberg.plan.dangling_deletes import dangling_deletes
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.scan.table_scan import TableScan


@dataclass(frozen=True, kw_only=True, slots=True)
class Compaction:
    """What is rewritten.

    Attributes:
        snapshot_id: the snapshot that was read; None for a table without rows.
        schema: the table's schema, which the new files have.
        spec: the partition spec of the new files.
        groups: the groups, in the order in which they are rewritten; none if nothing has to be.
    """

    snapshot_id: int | None
    schema: Schema
    spec: PartitionSpec
    groups: tuple[FileGroup, ...]
    options: RewriteOptions


def plan_compaction(scan: TableScan, options: RewriteOptions) -> Compaction:
    """Choose the files of a scan that are rewritten.

    Raises:
        InvalidInputError: the output spec is not one of the table's.
    """
    metadata, snapshot = scan.metadata, scan.snapshot
    spec = output_spec(metadata, options)
    return Compaction(
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        schema=metadata.schema(),
        spec=spec,
        groups=plan_groups(_WholeFiles(scan), options, output_spec_id=spec.spec_id),
        options=options,
    )


@dataclass(frozen=True, slots=True)
class _WholeFiles:
    """The files of a scan, with all their deletes; not kept in memory."""

    scan: TableScan

    def __iter__(self) -> Iterator[FileScanTask]:
        return self.scan.iter_files(whole_files=True)


def find_dangling(scan: TableScan) -> tuple[DataFile, ...]:
    """Return the delete files of a scan of a whole table that apply to no data file any more."""
    if scan.snapshot is None:
        return ()
    manifests = read_manifests(scan.io, scan.snapshot)
    deletes = [
        entry
        for manifest in manifests
        if manifest.content is ManifestContent.DELETES and manifest.may_have_live_files
        for entry in read_entries(scan.io, manifest)
        if entry.is_live
    ]
    if not deletes:
        return ()
    data = ((task.file, task.sequence_number) for task in scan.iter_files())
    return dangling_deletes(data, deletes, scan.metadata)


def output_spec(metadata: TableMetadata, options: RewriteOptions) -> PartitionSpec:
    """Return the spec of the new files: the requested one, else the table's own."""
    known = {spec.spec_id: spec for spec in metadata.partition_specs}
    chosen = metadata.default_spec_id if options.output_spec_id is None else options.output_spec_id
    if chosen not in known:
        raise InvalidInputError(f"output-spec-id is {chosen}, expected one of {', '.join(map(str, sorted(known)))}")
    if chosen != metadata.default_spec_id:
        try:
            known[chosen].validate(metadata.schema())
        except InvalidInputError as error:
            raise InvalidInputError(
                f"output-spec-id is {chosen}, a spec by which no files can be written any more: {error}"
            ) from error
    return known[chosen]


def write_compact_plan(
    work: Work,
    compaction: Compaction,
    *,
    sort_order: SortOrder | None = None,
    zorder_columns: Sequence[str] = (),
    write_format: str | None = None,
) -> JobPlan:
    """Write the plan of the job and its work document, and return the plan.

    Args:
        sort_order: the order of the rows in each group; without it and without z-order, they keep their order.
        zorder_columns: the columns by which the rows of each group are clustered.
        write_format: the format of the data files; None for that of the table.

    Raises:
        InvalidInputError: a column cannot be sorted by, or both arguments are given.
        UnsupportedError: files of the table's format are not written.
        StorageError: the staging prefix cannot be written; nothing was started.
    """
    if sort_order is not None and zorder_columns:
        raise InvalidInputError("a compaction sorts by a sort order or by z-order, got both")
    metadata, options = in_format(work.table.metadata, write_format), compaction.options
    WriteOptions.from_properties(metadata.properties, metadata.schema())  # refuses a format before a job is started
    prefix = work.new_staging(carries_rows=True)
    task = CompactTask(
        # A task writes one file: it may become a little larger than the target before a second one is begun.
        write=staging.write_settings(
            metadata, sort_order=sort_order, target_file_size_bytes=options.write_max_file_size_bytes
        ),
        spec=compaction.spec,
        table=TableInput.write(
            work.table.io,
            recover_sources(work.table.io, metadata),
            work_items(compaction.groups),
            work_location=f"{prefix}/{WORK_FILE}",
        ),
        sorting=_sorting(metadata, options, sort_order, tuple(zorder_columns)),
    )
    return work.write_plan(task, prefix)


def _sorting(
    metadata: TableMetadata, options: RewriteOptions, order: SortOrder | None, zorder_columns: tuple[str, ...]
) -> Sorting | None:
    ranges = options.shuffle_partitions_per_file
    if order is not None:
        return Sorting(claimed_order_id=claimed_order_id(metadata, order), ranges_per_output=ranges)
    if not zorder_columns:
        return None
    zorder = ZOrder(
        columns=zorder_columns, text_bytes=options.var_length_contribution, most_bytes=options.max_output_size
    )
    return Sorting(zorder=zorder, ranges_per_output=ranges)


def claimed_order_id(metadata: TableMetadata, order: SortOrder) -> int:
    """Return the table's id of an order; 0 if it has none: then no file claims to be sorted."""
    return next((known.order_id for known in metadata.sort_orders if known.fields == order.fields), 0)


def work_items(groups: Sequence[FileGroup]) -> list[WorkItem]:
    """Cut groups into tasks, one for each expected file."""
    items: list[WorkItem] = []
    for group in groups:
        units = [FileUnit.of(task) for task in group.tasks]
        for run in cut_group(units, split_size_bytes=group.input_split_size_bytes):
            items.append(WorkItem(number=len(items), group=group.number, units=run))
    return items
