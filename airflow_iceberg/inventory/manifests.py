"""Manifests of a snapshot, read ahead: read and decompressed in threads, decoded in the caller's.

Here: how many at a time, so that memory does not grow with the table. Not here: decoding (`format.manifests.columns`),
and which manifests are needed (`plan.scan`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.manifests import columns
from airflow_iceberg.format.manifests.avro import manifest_spec_id, read_manifest, read_manifest_list
from airflow_iceberg.format.manifests.columns import EntryColumns, Unpacked, unpack
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestEntry, ManifestFile, counted
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.limited import MANIFESTS_AHEAD, list_limits, manifest_limits, too_large
from airflow_iceberg.storage.base import FileIO

Part: TypeAlias = "EntryColumns | tuple[ManifestFile, Iterator[ManifestEntry]]"

# Stores answer slowly and in parallel, and decompression takes longer than decoding.
THREADS = 2
# The compressed size of the manifests that are read ahead, at least two. With all columns decoding takes longer, and
# needs more memory.
AHEAD_BYTES, AHEAD_BYTES_OF_LISTS = 4 << 20, 1 << 20
_MOST_PARTITION_VALUES = 1_500_000


def read_columns(
    io: FileIO,
    manifests: Iterable[ManifestFile],
    *,
    lists: bool = False,
    keys: Collection[int] = (),
    places: bool = False,
) -> Iterator[Part]:
    """Yield the entries of manifests in their order; see `format.manifests.columns.read_columns`.

    Raises:
        FormatError, StorageError, NotFoundError: a manifest cannot be read.
    """
    ahead = _ahead(io, manifests, AHEAD_BYTES_OF_LISTS if lists else AHEAD_BYTES)
    return columns.read_columns(ahead, lists=lists, keys=keys, places=places)


def _ahead(io: FileIO, manifests: Iterable[ManifestFile], most_bytes: int) -> Iterator[Unpacked]:
    limits = manifest_limits(io)
    most = sys.maxsize if limits is None else MANIFESTS_AHEAD

    def open_one(manifest: ManifestFile) -> Unpacked:
        found = unpack(io.read(manifest.manifest_path), manifest, limits)
        # A null in a partition is one byte of the file, and some places in tuples and arrays.
        values = len(found.reader.reading.partition) * sum(count for count, _ in found.blocks)
        if limits is not None and values > _MOST_PARTITION_VALUES:
            raise too_large(f"{manifest.manifest_path} has {values} values of partitions, which are not read here")
        return found

    rest = iter(manifests)
    waiting: deque[tuple[int, Future[Unpacked]]] = deque()
    pool = ThreadPoolExecutor(THREADS)
    try:
        while True:
            while len(waiting) < 2 or (len(waiting) < most and sum(size for size, _ in waiting) < most_bytes):
                manifest = next(rest, None)
                if manifest is None:
                    break
                waiting.append((manifest.manifest_length, pool.submit(open_one, manifest)))
            if not waiting:
                return
            yield waiting.popleft()[1].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def read_entries(io: FileIO, manifest: ManifestFile) -> Iterator[ManifestEntry]:
    """Return the entries of a manifest with what they inherit from its row in the list."""
    path = manifest.manifest_path
    return read_manifest(io.read(path), manifest=manifest, path=path, limits=manifest_limits(io))


def read_manifests(io: FileIO, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot, in the order of its list.

    Raises:
        FormatError, StorageError, NotFoundError: the manifest list is broken or gone, or there is none.
        UnsupportedError: it is encrypted.
    """
    if snapshot.manifest_list is None:
        if snapshot.manifests is None:
            raise FormatError(f"snapshot {snapshot.snapshot_id} has neither a manifest list nor manifests")
        return tuple(_embedded(io, path, snapshot.snapshot_id) for path in snapshot.manifests)
    try:
        data = io.read(snapshot.manifest_list)
        return read_manifest_list(data, path=snapshot.manifest_list, limits=list_limits(io))
    except FormatError as error:
        if snapshot.key_id is None:
            raise
        raise UnsupportedError(
            f"the manifest list of snapshot {snapshot.snapshot_id} is encrypted; encrypted tables cannot be read"
        ) from error


def _embedded(io: FileIO, path: str, snapshot_id: int) -> ManifestFile:
    """Return the row of a manifest that a v1 snapshot names without a list, from the manifest's own content."""
    data = io.read(path)
    entries = list(read_manifest(data, path=path, limits=manifest_limits(io)))
    added_by = (entry.snapshot_id for entry in entries if entry.status is EntryStatus.ADDED)
    row = ManifestFile(
        manifest_path=path,
        manifest_length=len(data),
        partition_spec_id=manifest_spec_id(data, path=path),
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=next((one for one in added_by if one is not None), snapshot_id),
    )
    return counted(row, entries)
