"""The rows that were appended to a table between two of its snapshots.

Not here: which snapshots are read (`plan.snapshot_range`), their own files (`inventory.changes`), reading rows
(`scan.table_scan`, `data`).

As in Iceberg's incremental append scan: snapshots of other operations (overwrites, deletes, compactions) are skipped,
so that an appended file is read as it was, whether or not its rows were deleted since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.inventory.changes import appended_files
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.plan.snapshot_range import find_appends
from airflow_iceberg.scan.table_scan import TableScan, check_int
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class IncrementalAppendScan(TableScan):
    """A read of the rows that some snapshots appended, in the table's current schema.

    Attributes:
        snapshot: the last snapshot of the range; None for a table without rows.
        appends: the snapshots whose files are read, oldest first.
    """

    appends: tuple[Snapshot, ...] = ()

    def iter_files(self, *, whole_files: bool = False) -> Iterator[FileScanTask]:
        """Yield the appended files that may hold matching rows, oldest first, without deletes."""
        return appended_files(self.io, self.metadata, self.appends, schema=self.schema, row_filter=self.row_filter)


def incremental_append_scan(
    metadata: TableMetadata,
    io: FileIO,
    *,
    from_snapshot_id: int | None,
    to_snapshot_id: int | None,
    ref: str | None,
    row_filter: Any,
    predicate_params: Mapping[str, Any] | None,
    selected_fields: Sequence[str],
    limit: int | None,
    case_sensitive: bool,
) -> IncrementalAppendScan:
    """Describe the read; see `Table.incremental_append_scan`."""
    whole = TableScan.of(
        metadata,
        io,
        row_filter=row_filter,
        predicate_params=predicate_params,
        selected_fields=selected_fields,
        snapshot_id=None,
        ref=None,
        as_of_ms=None,
        limit=limit,
        case_sensitive=case_sensitive,
    )
    last = last_snapshot(metadata, to_snapshot_id, ref)
    check_int("from_snapshot_id", from_snapshot_id)
    return IncrementalAppendScan(
        metadata=metadata,
        io=io,
        snapshot=last,
        schema=whole.schema,
        projection=whole.projection,
        row_filter=whole.row_filter,
        limit=limit,
        appends=find_appends(metadata, from_snapshot_id=from_snapshot_id, last=last),
    )


def last_snapshot(metadata: TableMetadata, to_snapshot_id: int | None, ref: str | None) -> Snapshot | None:
    """Return the last snapshot of a range: a snapshot, or the head of a branch.

    Raises:
        InvalidInputError: both are given, or the id is no integer.
        NotFoundError: there is no such snapshot or branch.
    """
    if to_snapshot_id is not None and ref is not None:
        raise InvalidInputError(
            f"an incremental scan ends at one place, got to_snapshot_id={to_snapshot_id} and {ref=}"
        )
    if to_snapshot_id is None:
        return metadata.current_snapshot() if ref in (None, MAIN_BRANCH) else metadata.ref_snapshot(str(ref))
    check_int("to_snapshot_id", to_snapshot_id)
    last = metadata.snapshot(to_snapshot_id)
    if last is None:
        raise NotFoundError(f"snapshot {to_snapshot_id} is not in {metadata.location}; it may have been expired")
    return last
