"""The rows that were changed in a table between two of its snapshots, as Arrow batches.

Not here: which files have changed (`inventory.changes`), which of their rows (`data.changelog`), rows that were only
appended (`incremental_scan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_iceberg.data.changelog import ChangelogReader
from airflow_iceberg.data.read.file import ReadAs, check_supported, find_geo_fields
from airflow_iceberg.data.read.selection import changelog_columns, identifier_ids
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.inventory.changes import snapshot_changes
from airflow_iceberg.plan.changelog import SnapshotChanges
from airflow_iceberg.plan.snapshot_range import find_appends
from airflow_iceberg.scan.incremental_scan import IncrementalAppendScan, last_snapshot
from airflow_iceberg.scan.table_scan import TableScan, check_int

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.storage.base import FileIO

MODES = ("append", "changelog")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangesOptions:
    """Which changes are read.

    Attributes:
        mode: "append", the rows that were appended; "changelog", those that were added, removed or updated.
        net: whether a row that was added and removed again is left out, and only what differs in the end is read.
        compute_updates: whether the old and the new version of a row are `update_before` and `update_after`.
        identifier_columns: the columns that identify a row, for updates.
    """

    mode: str = "append"
    net: bool = False
    compute_updates: bool = False
    identifier_columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidInputError(f"mode is {self.mode!r}, expected one of {', '.join(MODES)}")
        if self.mode == "append" and (self.net or self.compute_updates or self.identifier_columns):
            raise InvalidInputError(
                "net, compute_updates and identifier_columns are for mode='changelog': appended rows have no earlier "
                "versions"
            )


def read_changes(
    metadata: TableMetadata,
    io: FileIO,
    options: ChangesOptions,
    *,
    from_snapshot_id: int | None,
    to_snapshot_id: int | None,
    ref: str | None,
    scan: Mapping[str, Any],
) -> pa.RecordBatchReader:
    """Return the changes as a stream; see `Table.changes`.

    Args:
        scan: further arguments of `TableScan.of`.
    """
    check_int("from_snapshot_id", from_snapshot_id)
    last = last_snapshot(metadata, to_snapshot_id, ref)
    if options.mode == "append":
        whole = TableScan.of(metadata, io, snapshot_id=to_snapshot_id, ref=ref, **scan)
        return whole.to_arrow_batch_reader() if from_snapshot_id is None else _appends(whole, from_snapshot_id)
    selected = {**scan}
    fields = selected.pop("selected_fields")
    case_sensitive = selected["case_sensitive"]
    whole = TableScan.of(metadata, io, snapshot_id=to_snapshot_id, ref=ref, **selected)
    if isinstance(fields, str):
        raise InvalidInputError(f"selected_fields is the text {fields!r}, expected a list of columns")
    identifiers = identifier_ids(
        metadata,
        whole.schema,
        compute_updates=options.compute_updates,
        identifier_columns=options.identifier_columns,
    )
    reader = reader_of(whole, tuple(fields), identifiers, case_sensitive=case_sensitive)
    steps = snapshot_changes(io, metadata, from_snapshot_id=from_snapshot_id, last=last, row_filter=whole.row_filter)
    return _streamed(reader, steps, net=options.net)


def reader_of(
    whole: TableScan, fields: tuple[str, ...], identifiers: tuple[int, ...] | None, *, case_sensitive: bool = True
) -> ChangelogReader:
    """Return what reads changes in the columns of a scan.

    Args:
        fields: the columns of the result.
        identifiers: see `ChangelogReader`.
    """
    metadata = whole.metadata
    return ChangelogReader(
        read=ReadAs(
            io=whole.io,
            schemas=metadata.newest_schemas(),
            specs={spec.spec_id: spec for spec in metadata.partition_specs},
            name_mapping=TableProperties.of(metadata.properties).name_mapping,
        ),
        schema=whole.schema,
        projection=changelog_columns(metadata, whole.schema, fields, case_sensitive=case_sensitive),
        row_filter=whole.row_filter,
        identifiers=identifiers,
        has_row_ids=metadata.format_version >= 3,
    )


def _appends(whole: TableScan, from_snapshot_id: int) -> pa.RecordBatchReader:
    scan = IncrementalAppendScan(
        metadata=whole.metadata,
        io=whole.io,
        snapshot=whole.snapshot,
        schema=whole.schema,
        projection=whole.projection,
        row_filter=whole.row_filter,
        limit=None,
        appends=find_appends(whole.metadata, from_snapshot_id=from_snapshot_id, last=whole.snapshot),
    )
    return scan.to_arrow_batch_reader()


def _streamed(reader: ChangelogReader, steps: Iterator[SnapshotChanges], *, net: bool) -> pa.RecordBatchReader:
    import pyarrow as pa

    found = list(steps)
    geo_fields = find_geo_fields(reader.schema)
    for change in (change for step in found for change in step.files):
        check_supported(change.file, (*(change.before or ()), *(change.after or ())), geo_fields)
    groups = [found] if net else [[step] for step in found]
    batches = (batch for group in groups for batch in reader.rows(group))
    return pa.RecordBatchReader.from_batches(schema_to_arrow(reader.projection, with_field_ids=False), batches)
