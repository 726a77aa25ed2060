"""The files that a table's manifests name: read in one way for expiry, the removal of orphan files and purging.

Here: manifest lists to manifests, manifests to files. Not here: which of the files are deleted
(`inventory.reachable_files`, `operations.remove_orphan_files`, `inventory.purge`), and what a scan reads of a manifest
(`inventory.manifests`, `plan.scan`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_iceberg.errors import NotFoundError
from airflow_iceberg.format.arrow.buffers import bytes_array, number_array, numbers_of
from airflow_iceberg.format.manifests.columns import Unpacked, read_columns, unpack
from airflow_iceberg.format.manifests.entries import ManifestFile
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.plan.path_hashes import HashedPaths, SpelledFolder, hash_paths
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

THREADS = 8
# Manifest lists that are read ahead: the rows of thousands of snapshots do not fit into memory.
AHEAD = 32

SCHEMA = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("store", pa.string(), nullable=False),
        pa.field("content", pa.uint8(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        # The location, where the hash is that of its text alone: see `inventory.spellings`.
        pa.field("unplaced", pa.string()),
    ]
)
SCHEMA_WITH_PATHS = SCHEMA.append(pa.field("path", pa.string(), nullable=False))


def name_files(
    io: FileIO,
    manifests: Iterable[ManifestFile],
    tick: Callable[[int, int], None],
    *,
    is_live: bool,
    with_paths: bool,
    may_be_missing: bool,
    folders: Sequence[SpelledFolder] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the files that manifests name: rows of SCHEMA, with paths of SCHEMA_WITH_PATHS.

    `hash` is of the path alone, as `plan.path_hashes` has it; `store` is scheme and authority; `size_bytes` is the
    file's own for a deletion vector, too, as the entries say it.

    Args:
        tick: a function, called with the numbers of files and bytes since the last call.
        is_live: whether only live entries are named; otherwise also deleted ones.
        may_be_missing: whether a missing manifest is skipped; otherwise an error.
        folders: local folders whose real paths are known.
    Raises:
        FormatError, NotFoundError, StorageError: a manifest cannot be read.
    """
    for part in read_columns(_opened(io, manifests, may_be_missing)):
        if isinstance(part, tuple):
            files = [entry.data_file for entry in part[1] if entry.is_live or not is_live]
            paths = [file.file_path for file in files]
            kinds: Any = [int(file.content) for file in files]
            sizes: Any = [file.file_size_in_bytes for file in files]
        elif is_live and not part.is_live.all():
            rows = part.is_live.nonzero()[0]
            paths = [part.file_path[row] for row in rows.tolist()]
            kinds, sizes = part.content[rows], part.file_size_in_bytes[rows]
        else:
            paths, kinds, sizes = part.file_path, part.content, part.file_size_in_bytes
        tick(len(paths), int(sum(sizes)) if isinstance(sizes, list) else int(sizes.sum()))
        yield _batch(paths, kinds, sizes, with_paths, folders)


def _opened(io: FileIO, manifests: Iterable[ManifestFile], may_be_missing: bool) -> Iterator[Unpacked]:
    for manifest in manifests:
        try:
            data = io.read(manifest.manifest_path)
        except NotFoundError:
            if not may_be_missing:
                raise
            log.info("manifest %s was deleted before, with the files that it named", manifest.manifest_path)
            continue
        yield unpack(data, manifest)


def _batch(
    paths: Sequence[str], kinds: Any, sizes: Any, with_paths: bool, folders: Sequence[SpelledFolder]
) -> pa.RecordBatch:
    hashed = hash_paths(paths, folders)
    names = [f"{scheme}://{authority}".encode() for scheme, authority in hashed.names]
    columns: list[Any] = [
        number_array(hashed.hashes),
        bytes_array([names[place] for place in hashed.stores.tolist()], pa.string()),
        number_array(np.asarray(kinds, np.uint8)),
        number_array(np.asarray(sizes, np.int64)),
        _some(paths, hashed.unplaced),
    ]
    if not with_paths:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    columns.append(bytes_array([path.encode() for path in paths], pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_PATHS)


def _some(paths: Sequence[str], chosen: Sequence[int]) -> pa.Array:
    """Return some of the paths in their places, and no value in all others."""
    if not chosen:
        return pa.nulls(len(paths), pa.string())
    found: list[str | None] = [None] * len(paths)
    for number in chosen:
        found[number] = paths[number]
    return pa.array(found, pa.string())


def hashed_paths(batch: pa.RecordBatch) -> HashedPaths:
    """Return the paths of a batch in the form that sets of paths need."""
    stores = batch.column("store").dictionary_encode()
    names = (str(name).partition("://") for name in stores.dictionary.to_pylist())
    return HashedPaths(
        hashes=numbers_of(batch.column("hash")),
        stores=numbers_of(stores.indices).astype(np.int64),
        names=tuple((scheme, authority) for scheme, _, authority in names),
    )


# -- from snapshots to manifests ---------------------------------------------------------------------------------------


def find_manifests(
    io: FileIO, snapshots: Iterable[Snapshot], *, may_be_missing: bool = False
) -> dict[str, ManifestFile]:
    """Return the manifests of snapshots by path, each once, with what is needed to read them.

    Args:
        may_be_missing: whether a snapshot without its manifest list is skipped; otherwise an error.

    Raises:
        FormatError, NotFoundError, StorageError: a manifest list cannot be read, or a snapshot has none.
        UnsupportedError: it is encrypted.
    """

    def read(snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        if snapshot.manifest_list is None and snapshot.manifests is None and may_be_missing:
            return ()
        try:
            return read_manifests(io, snapshot)
        except NotFoundError:
            if not may_be_missing:
                raise
            return ()

    found: dict[str, ManifestFile] = {}
    waiting = list(snapshots)
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(waiting), AHEAD):
            for rows in pool.map(read, waiting[start : start + AHEAD]):
                for row in rows:
                    if row.manifest_path not in found:
                        found[row.manifest_path] = replace(row, partitions=None, key_metadata=None)
    return found
