"""The rows that were appended to a table between two of its snapshots.

Here: which snapshots are read, and their own files. Not here: pruning (`plan.scan`), reading rows (`scan.table_scan`,
`data`).

As in Iceberg's incremental append scan: snapshots of other operations (overwrites, deletes, compactions) are skipped,
so that an appended file is read as it was, whether or not its rows were deleted since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.plan.scan import FileScanTask, plan_files
from airflow_iceberg.scan.table_scan import TableScan, check_int
from airflow_iceberg.storage.base import FileIO

APPEND = "append"


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
        return plan_files(
            self._manifests(),
            self._added_entries,
            metadata=self.metadata,
            schema=self.schema,
            row_filter=self.row_filter,
        )

    def _manifests(self) -> Iterator[ManifestFile]:
        for snapshot in self.appends:
            for manifest in read_manifests(self.io, snapshot):
                # Older manifests are found in older snapshots.
                if manifest.content is ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                    yield manifest

    def _added_entries(self, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        for entry in read_entries(self.io, manifest):
            # A manifest that an append merged also lists older files.
            if entry.status is EntryStatus.ADDED and entry.snapshot_id == manifest.added_snapshot_id:
                yield entry


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
    last = _last(metadata, to_snapshot_id, ref)
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


def _last(metadata: TableMetadata, to_snapshot_id: int | None, ref: str | None) -> Snapshot | None:
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


def find_appends(
    metadata: TableMetadata, *, from_snapshot_id: int | None, last: Snapshot | None
) -> tuple[Snapshot, ...]:
    """Return the snapshots that appended, after one snapshot and up to another, oldest first.

    Args:
        from_snapshot_id: the snapshot before the first; None for all. It may have expired if its successor has not.
        last: the last snapshot; None for a table without rows.

    Raises:
        InvalidInputError: the first is no ancestor of the last.
    """
    check_int("from_snapshot_id", from_snapshot_id)
    between: list[Snapshot] = []
    found = from_snapshot_id is None
    for snapshot in metadata.ancestors(None if last is None else last.snapshot_id):
        if snapshot.snapshot_id == from_snapshot_id:
            found = True
            break
        between.append(snapshot)
        if snapshot.parent_snapshot_id == from_snapshot_id and from_snapshot_id is not None:
            found = True
            break
    if not found:
        raise InvalidInputError(_not_an_ancestor(metadata, from_snapshot_id, last))
    return tuple(snapshot for snapshot in reversed(between) if snapshot.operation == APPEND)


def _not_an_ancestor(metadata: TableMetadata, from_snapshot_id: int | None, last: Snapshot | None) -> str:
    if last is None:
        return f"snapshot {from_snapshot_id} cannot be read from: table {metadata.location} has no snapshot"
    why = "it is on another branch, newer, or was rolled back"
    if from_snapshot_id is not None and metadata.snapshot(from_snapshot_id) is None:
        why = "it is not in the table, nor is the snapshot that followed it; both may have been expired"
    return (
        f"snapshot {from_snapshot_id} is no ancestor of snapshot {last.snapshot_id} in {metadata.location}: {why}; "
        f"choose an ancestor, or read the table as a whole"
    )
