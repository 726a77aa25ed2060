"""The data files that hold the rows which snapshots of a table have changed, or appended.

Here: reading the manifests of the snapshots of a range, each once. Not here: which files have changed
(`plan.changelog`), which snapshots are read (`plan.snapshot_range`), the rows (`data.changelog`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from airflow_iceberg.expressions.tree import ALWAYS_TRUE, Expression
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.manifests import read_columns, read_entries, read_manifests
from airflow_iceberg.plan.changelog import FileChange, SnapshotChanges, changed_files
from airflow_iceberg.plan.scan import FileScanTask, plan_files
from airflow_iceberg.plan.snapshot_range import REPLACE, find_changes
from airflow_iceberg.storage.base import FileIO


def appended_files(
    io: FileIO, metadata: TableMetadata, snapshots: Iterable[Snapshot], *, schema: Schema, row_filter: Expression
) -> Iterator[FileScanTask]:
    """Yield the files that snapshots have appended and that may hold matching rows, oldest first, without deletes."""
    return plan_files(
        _own_manifests(io, snapshots),
        lambda manifest: _added_entries(io, manifest),
        metadata=metadata,
        schema=schema,
        row_filter=row_filter,
    )


def _own_manifests(io: FileIO, snapshots: Iterable[Snapshot]) -> Iterator[ManifestFile]:
    for snapshot in snapshots:
        for manifest in read_manifests(io, snapshot):
            # Older manifests are found in older snapshots.
            if manifest.content is ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                yield manifest


def _added_entries(io: FileIO, manifest: ManifestFile) -> Iterator[ManifestEntry]:
    for entry in read_entries(io, manifest):
        # A manifest that an append merged also lists older files.
        if entry.status is EntryStatus.ADDED and entry.snapshot_id == manifest.added_snapshot_id:
            yield entry


def snapshot_changes(
    io: FileIO,
    metadata: TableMetadata,
    *,
    from_snapshot_id: int | None,
    last: Snapshot | None,
    row_filter: Expression,
) -> Iterator[SnapshotChanges]:
    """Yield what each snapshot of a range has changed, oldest first; a compaction has changed nothing.

    Args:
        from_snapshot_id: the snapshot before the first one; None: all live rows of the last one are new.
        last: the last snapshot; None for a table without rows.

    Raises:
        InvalidInputError: the first snapshot has expired, or is no ancestor of the last.
        FormatError, NotFoundError, StorageError: a manifest cannot be read.
    """
    steps: list[tuple[Snapshot | None, Snapshot]]
    if from_snapshot_id is None:
        steps = [] if last is None else [(None, last)]
    else:
        found = find_changes(metadata, from_snapshot_id=from_snapshot_id, last=last)
        steps = [(metadata.snapshot(one.parent_snapshot_id or 0), one) for one in found]
    return _changes(io, metadata, steps, row_filter)


def _changes(
    io: FileIO,
    metadata: TableMetadata,
    steps: Iterable[tuple[Snapshot | None, Snapshot]],
    row_filter: Expression,
) -> Iterator[SnapshotChanges]:
    reader, ordinal = _Reader(io), 0
    for before, after in steps:
        if before is not None and after.operation == REPLACE:
            continue
        files = reader.difference(metadata, before, after, row_filter)
        yield SnapshotChanges(ordinal=ordinal, snapshot_id=after.snapshot_id, files=files)
        ordinal += 1


def difference_of(io: FileIO, metadata: TableMetadata, before: Snapshot | None, after: Snapshot) -> SnapshotChanges:
    """Return the files whose rows may differ between two snapshots, of which none has to be an ancestor of the other.

    Raises:
        FormatError, NotFoundError, StorageError: a manifest cannot be read.
    """
    files = _Reader(io).difference(metadata, before, after, ALWAYS_TRUE)
    return SnapshotChanges(ordinal=0, snapshot_id=after.snapshot_id, files=files)


class _Reader:
    """Reads manifests, and keeps those of the last two snapshots that may be asked for again."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._lists: dict[int, tuple[ManifestFile, ...]] = {}
        # By the row of the manifest: after an upgrade to version 3 a later list gives the same entries row ids.
        self._entries: dict[ManifestFile, tuple[ManifestEntry, ...]] = {}

    def difference(
        self, metadata: TableMetadata, before: Snapshot | None, after: Snapshot, row_filter: Expression
    ) -> tuple[FileChange, ...]:
        """Return the files whose rows may differ between two snapshots; None is a table without rows."""
        files = changed_files(
            () if before is None else self.manifests(before),
            self.manifests(after),
            read=self.live,
            read_some=self.some,
            metadata=metadata,
            row_filter=row_filter,
        )
        return tuple(files)

    def manifests(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        key = snapshot.snapshot_id
        if key not in self._lists:
            kept = list(self._lists.items())[-1:]
            self._lists = {**dict(kept), key: read_manifests(self._io, snapshot)}
            listed = {one for manifests in self._lists.values() for one in manifests}
            self._entries = {one: found for one, found in self._entries.items() if one in listed}
        return self._lists[key]

    def live(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        if manifest not in self._entries:
            self._entries[manifest] = tuple(entry for entry in read_entries(self._io, manifest) if entry.is_live)
        return self._entries[manifest]

    def some(self, manifests: Sequence[ManifestFile], paths: Collection[str] | None) -> Iterator[ManifestEntry]:
        """Yield the live entries of data manifests, or only those of some paths."""
        for part in read_columns(self._io, manifests):
            if isinstance(part, tuple):
                found = (entry for entry in part[1] if entry.is_live)
                yield from (entry for entry in found if paths is None or entry.data_file.file_path in paths)
                continue
            rows = np.flatnonzero(part.is_live)
            if paths is not None:
                names = part.file_path
                rows = np.array([row for row in rows.tolist() if names[row] in paths], np.int64)
            yield from part.entries(rows)
