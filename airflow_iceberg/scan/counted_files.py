"""The live files of a snapshot by partition, counted without opening a data file, and what one snapshot changed.

For those who look at tables that may be huge: each function reads at most so much, and says whether it left some out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import Any

from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.inventory.limited import limits_of
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.inventory.manifests import read_columns, read_entries, read_manifests
from airflow_iceberg.storage.base import FileIO

MOST_ENTRIES = 250_000
"""How many entries of manifests are counted."""
MOST_BYTES = 256 << 20
"""The compressed size of the manifests that are read."""
MOST_MANIFESTS = 500
"""How many manifests are read: each is a request to the store."""
# A manifest of an old table that does not say how many entries it has is taken for one of this many.
_UNKNOWN_COUNT = 10_000
MOST_PARTITION_BYTES = 32 << 20
"""The memory of the partitions that are told apart: their values may be long, or many."""
_PARTITION_BYTES, _VALUE_BYTES = 64, 100
_MOST_NAME = 300
_MOST_PATH = 4_000


def live_files(
    io: FileIO, manifests: Iterable[ManifestFile]
) -> Iterator[tuple[int, tuple[Any, ...], int, int, int, int | None]]:
    """Yield spec, partition, content, rows, bytes and the snapshot that added it, of each live file."""
    for part in read_columns(io, manifests):
        if isinstance(part, tuple):
            for entry in part[1]:
                if entry.is_live:
                    file = entry.data_file
                    numbers = (file.content.value, file.record_count, file.file_size_in_bytes, entry.snapshot_id)
                    yield file.spec_id, file.partition, *numbers
            continue
        for number, manifest in enumerate(part.manifests):
            rows = slice(*part.rows_of(number))
            columns = (part.content, part.record_count, part.file_size_in_bytes, part.snapshot_id.values)
            found = zip(
                part.is_live[rows].tolist(), part.partition[rows], *(c[rows].tolist() for c in columns), strict=True
            )
            for is_live, partition, *values in found:
                if is_live:
                    yield manifest.partition_spec_id, partition, *values


def partition_bytes(partition: Sequence[Any]) -> int:
    """Return how much memory a partition takes, about, while its values and their texts are held."""
    texts = sum(len(value) for value in partition if isinstance(value, str | bytes))
    return _PARTITION_BYTES + _VALUE_BYTES * len(partition) + texts


@dataclass(kw_only=True, slots=True)
class PartitionFiles:
    """The files of a partition.

    Attributes:
        name: its path, `day=2026-01-01`; empty for a table without partitions.
        small_files: data files below the size that was asked for.
        deleted_rows: rows that position deletes and deletion vectors mark, at most.
    """

    name: str
    spec_id: int
    data_files: int = 0
    small_files: int = 0
    rows: int = 0
    size_bytes: int = 0
    delete_files: int = 0
    deleted_rows: int = 0
    equality_deletes: int = 0

    @property
    def badness(self) -> tuple[int, int, int]:
        """What partitions are sorted by: the first to be compacted has the largest."""
        return self.small_files + self.delete_files, self.data_files, self.rows

    def count(self, content: int, rows: int, size: int, small_below: int) -> None:
        """Count one file."""
        if content == 0:
            self.data_files += 1
            self.rows += rows
            self.size_bytes += size
            self.small_files += size < small_below
        else:
            self.delete_files += 1
            self.deleted_rows += rows if content == 1 else 0
            self.equality_deletes += rows if content == 2 else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedFiles:
    """The live files of a snapshot, by partition.

    Attributes:
        total: the sum of all partitions.
        worst: the partitions with the most small files and delete files, the worst first.
        partition_count: the number of all partitions.
        partitions_to_compact: how many have so many small files that a compaction combines them.
        manifests, manifests_read: how many the snapshot has, and how many of them were read.
        manifest_bytes: the size of all of them.
        has_more: whether those that were read have more files than the list says, or too many partitions to tell apart.
    """

    total: PartitionFiles
    worst: tuple[PartitionFiles, ...] = ()
    partition_count: int = 0
    partitions_to_compact: int = 0
    manifests: int = 0
    manifests_read: int = 0
    manifest_bytes: int = 0
    has_more: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether files were left out."""
        return self.manifests_read < self.manifests or self.has_more


def count_files(
    metadata: TableMetadata,
    io: FileIO,
    snapshot: Snapshot | None,
    *,
    small_below: int,
    min_small_files: int,
    most_partitions: int,
    most_entries: int = MOST_ENTRIES,
) -> CountedFiles:
    """Count the live files of a snapshot by partition, those of the newest manifests first.

    Args:
        small_below: the size in bytes below which a data file is small.
        min_small_files: how many small files of a partition a compaction combines.
        most_partitions: how many partitions are returned.
        most_entries: how many entries of manifests are read at most; at least one manifest is.

    Raises:
        IcebergError: a manifest cannot be read.
    """
    total = PartitionFiles(name="", spec_id=-1)
    if snapshot is None:
        return CountedFiles(total=total)
    manifests = read_manifests(io, snapshot)
    chosen = _first(io, manifests, most_entries)
    # What the list says of them is believed no further: a forged one must not take memory for each of its partitions.
    most = max(most_entries, sum(map(_entries_of, chosen)))
    found_files = live_files(io, chosen)
    groups: dict[Hashable, tuple[tuple[Any, ...], PartitionFiles]] = {}
    left = MOST_PARTITION_BYTES
    for spec_id, partition, content, rows, size, _ in islice(found_files, most):
        key = (spec_id, canonical_key(partition))
        if key not in groups:
            left -= partition_bytes(partition)
            if left < 0:
                break
            groups[key] = (tuple(partition), PartitionFiles(name="", spec_id=spec_id))
        for one in (groups[key][1], total):
            one.count(content, rows, size, small_below)
    has_more = left < 0 or next(found_files, None) is not None
    worst = nlargest(most_partitions, groups.values(), key=lambda group: group[1].badness)
    known = recover_sources(io, metadata) if groups else metadata
    for values, found in worst:
        found.name = _partition_name(known, found.spec_id, values)
    return CountedFiles(
        total=total,
        worst=tuple(found for _, found in worst),
        partition_count=len(groups),
        partitions_to_compact=sum(found.small_files >= min_small_files for _, found in groups.values()),
        manifests=len(manifests),
        manifests_read=len(chosen),
        has_more=has_more,
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
    )


def _partition_name(metadata: TableMetadata, spec_id: int, values: tuple[Any, ...]) -> str:
    spec = metadata.spec(spec_id)
    if not spec.fields:
        return ""
    begun = tuple(value[:_MOST_NAME] if isinstance(value, str | bytes) else value for value in values)
    return spec.partition_path(begun, metadata.schema_of_spec(spec_id))[:_MOST_NAME]


def _first(io: FileIO, manifests: Sequence[ManifestFile], most_entries: int) -> list[ManifestFile]:
    """Return the newest manifests that have so many entries and bytes at most, or the newest one."""
    chosen, entries, size = list[ManifestFile](), 0, 0
    for manifest in sorted(_readable(io, manifests), key=lambda one: one.sequence_number, reverse=True):
        entries += _entries_of(manifest)
        size += manifest.manifest_length
        if chosen and (entries > most_entries or size > MOST_BYTES or len(chosen) >= MOST_MANIFESTS):
            break
        chosen.append(manifest)
    return chosen


def _readable(io: FileIO, manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the manifests that are not larger, as they say themselves, than is read of one."""
    limits = limits_of(io)
    most_bytes, most_entries = (
        (MOST_BYTES, None) if limits is None else (limits.file_bytes, limits.manifest.most_records)
    )
    return [
        one
        for one in manifests
        if one.manifest_length <= most_bytes and (most_entries is None or _entries_of(one) <= most_entries)
    ]


def _entries_of(manifest: ManifestFile) -> int:
    return _UNKNOWN_COUNT if manifest.entry_count is None else max(manifest.entry_count, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedFile:
    """A file that a snapshot added or removed."""

    is_added: bool
    content: int
    path: str
    rows: int
    size_bytes: int
    partition: str


def changed_files(
    metadata: TableMetadata, io: FileIO, snapshot: Snapshot, *, most: int
) -> tuple[tuple[ChangedFile, ...], bool]:
    """Return files that a snapshot added or removed, and whether there are more than the most that were asked for.

    Raises:
        IcebergError: a manifest cannot be read.
    """
    own = [one for one in read_manifests(io, snapshot) if one.added_snapshot_id == snapshot.snapshot_id]
    readable = _readable(io, own)[:MOST_MANIFESTS]
    entries = (entry for manifest in readable for entry in read_entries(io, manifest))
    mine = (
        entry
        for entry in islice(entries, MOST_ENTRIES)
        if entry.status is not EntryStatus.EXISTING and entry.snapshot_id == snapshot.snapshot_id
    )
    files, known = list[ChangedFile](), None
    for entry in islice(mine, most):
        # One at a time: what an entry says of its file may be as long as a manifest.
        known = recover_sources(io, metadata) if known is None else known
        files.append(_changed(known, entry))
    has_more = next(mine, None) is not None or len(readable) < len(own) or next(entries, None) is not None
    return tuple(files), has_more


def _changed(metadata: TableMetadata, entry: ManifestEntry) -> ChangedFile:
    file = entry.data_file
    return ChangedFile(
        is_added=entry.status is EntryStatus.ADDED,
        content=file.content.value,
        path=file.file_path[:_MOST_PATH],
        rows=file.record_count,
        size_bytes=file.file_size_in_bytes,
        partition=_partition_name(metadata, file.spec_id, file.partition),
    )
