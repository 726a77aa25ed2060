"""Manifests of a snapshot opened ahead of need: read and inflated in threads, decoded in the caller's.

Here: how many at a time, so that memory does not grow with the table. Not here: decoding (`format.manifests.columns`),
and which manifests are needed (`plan.scan`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from airflow_iceberg.format.manifests.entries import ManifestEntry, ManifestFile
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    from airflow_iceberg.format.manifests.columns import EntryColumns, Unpacked

Part: TypeAlias = "EntryColumns | tuple[ManifestFile, Iterator[ManifestEntry]]"

# Stores answer slowly and in parallel, and inflating takes longer than decoding.
THREADS = 2
# So much of manifests, compressed, is on its way at a time; of larger ones two. With all that stands in them decoding
# takes longer, and memory is short.
AHEAD_BYTES, AHEAD_BYTES_OF_LISTS = 4 << 20, 1 << 20


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
    from airflow_iceberg.format.manifests import columns

    ahead = _ahead(io, manifests, AHEAD_BYTES_OF_LISTS if lists else AHEAD_BYTES)
    return columns.read_columns(ahead, lists=lists, keys=keys, places=places)


def _ahead(io: FileIO, manifests: Iterable[ManifestFile], most_bytes: int) -> Iterator[Unpacked]:
    from airflow_iceberg.format.manifests.columns import unpack

    def open_one(manifest: ManifestFile) -> Unpacked:
        return unpack(io.read(manifest.manifest_path), manifest)

    rest = iter(manifests)
    waiting: deque[tuple[int, Future[Unpacked]]] = deque()
    pool = ThreadPoolExecutor(THREADS)
    try:
        while True:
            while len(waiting) < 2 or sum(size for size, _ in waiting) < most_bytes:
                manifest = next(rest, None)
                if manifest is None:
                    break
                waiting.append((manifest.manifest_length, pool.submit(open_one, manifest)))
            if not waiting:
                return
            yield waiting.popleft()[1].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
