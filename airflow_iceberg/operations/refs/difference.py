"""What appears and what disappears when a ref moves: snapshots by the metadata, files and rows by the manifests.

Only a dry run asks for files and rows: it reads the manifests that one side has and the other has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_iceberg.commit.operation_key import OPERATION_KEY
from airflow_iceberg.commit.write_result import count_of
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.storage.base import FileIO

MOST_LISTED = 100
"""The most snapshots, and the most files, that a result names one by one."""

Refs = Mapping[str, SnapshotRef]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of a table that appears, or disappears, with a change.

    Attributes:
        snapshot_count: the snapshots.
        snapshots: the newest of them, at most `MOST_LISTED`, as plain values with their ids as text.
        data_files, delete_files: the files; None outside of a dry run, as `rows`.
        rows: the rows in the data files, those that delete files have deleted included.
        files: locations of files, at most `MOST_LISTED`.
    """

    snapshot_count: int = 0
    snapshots: tuple[Mapping[str, Any], ...] = ()
    data_files: int | None = None
    delete_files: int | None = None
    rows: int | None = None
    files: tuple[str, ...] = ()

    def with_files(self, files: Sequence[DataFile]) -> Part:
        """Return the same part with its files."""
        data = [file for file in files if file.content is FileContent.DATA]
        return replace(
            self,
            data_files=len(data),
            delete_files=len(files) - len(data),
            rows=sum(file.record_count for file in data),
            files=tuple(sorted(file.file_path for file in files)[:MOST_LISTED]),
        )


def part_of(snapshots: Sequence[Snapshot]) -> Part:
    """Describe snapshots, newest first."""
    return Part(snapshot_count=len(snapshots), snapshots=tuple(map(_told, snapshots[:MOST_LISTED])))


def _told(snapshot: Snapshot) -> dict[str, Any]:
    counts = ("added-records", "deleted-records", "added-data-files", "deleted-data-files")
    return {
        "snapshot_id": str(snapshot.snapshot_id),
        "timestamp_ms": snapshot.timestamp_ms,
        "operation": snapshot.operation,
        **{name.replace("-", "_"): count_of(snapshot, name) for name in counts},
        "operation_key": snapshot.summary.get(OPERATION_KEY),
    }


class Difference:
    """What a change of refs makes appear and disappear.

    A ref that is moved shows another history; one that is created shows what is there already; one that is dropped
    hides what no other ref has.
    """

    def __init__(self, metadata: TableMetadata, name: str, before: Refs, after: Refs) -> None:
        self._metadata = metadata
        old, new = before.get(name), after.get(name)
        self._is_move = old is not None and new is not None
        self._old = None if old is None else metadata.snapshot(old.snapshot_id)
        self._new = None if new is None or old is None else metadata.snapshot(new.snapshot_id)
        heads = (metadata.snapshot(ref.snapshot_id) for other, ref in after.items() if other != name)
        self._others = () if old is None or new is not None else tuple(head for head in heads if head is not None)

    def snapshots(self) -> tuple[Part, Part]:
        """Return what appears and what disappears, by the metadata alone."""
        if self._old is not None and self._new is not None and self._old.snapshot_id == self._new.snapshot_id:
            return Part(), Part()
        appearing = self._without(self._new, [self._old]) if self._is_move else []
        disappearing = self._without(self._old, [self._new] if self._is_move else self._others)
        return part_of(appearing), part_of(disappearing)

    def with_files(self, io: FileIO) -> tuple[Part, Part]:
        """Return the same with files and rows; reads manifests."""
        appearing, disappearing = self.snapshots()
        others = [self._new] if self._is_move else self._others
        appeared = files_without(io, self._new, [self._old]) if self._is_move else []
        return appearing.with_files(appeared), disappearing.with_files(files_without(io, self._old, others))

    def _without(self, head: Snapshot | None, others: Iterable[Snapshot | None]) -> list[Snapshot]:
        """Return the history of a snapshot, newest first, without those of others; each snapshot is met once."""
        if head is None:
            return []
        seen: set[int] = set()
        for other in others:
            for snapshot in self._metadata.ancestors(None if other is None else other.snapshot_id):
                if snapshot.snapshot_id in seen:
                    break
                seen.add(snapshot.snapshot_id)
        return [one for one in self._metadata.ancestors(head.snapshot_id) if one.snapshot_id not in seen]


def files_without(io: FileIO, head: Snapshot | None, others: Iterable[Snapshot | None]) -> list[DataFile]:
    """Return the live files of a snapshot that others do not have; reads the manifests that they do not share."""
    if head is None:
        return []
    theirs: dict[str, ManifestFile] = {}
    for other in others:
        theirs |= {} if other is None else {one.manifest_path: one for one in read_manifests(io, other)}
    own = {one.manifest_path: one for one in read_manifests(io, head)}
    kept = {file.file_path for path in theirs.keys() - own.keys() for file in _live(io, theirs[path])}
    return [file for path in own.keys() - theirs.keys() for file in _live(io, own[path]) if file.file_path not in kept]


def _live(io: FileIO, manifest: ManifestFile) -> Iterable[DataFile]:
    return (entry.data_file for entry in read_entries(io, manifest) if entry.is_live)
