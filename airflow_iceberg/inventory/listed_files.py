"""The files that are stored below a table's location.

Here: listing folders, selecting the files that a clean-up looks at, and dividing a location into folders that are
listed in parallel. Not here: which files are the table's (`operations.remove_orphan_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_iceberg.format.arrow.buffers import bytes_array, number_array
from airflow_iceberg.plan.orphan_files import is_hidden
from airflow_iceberg.storage.base import FileIO, FileStatus

STAGING_FOLDER = ".staging"
QUARANTINE_FOLDER = ".quarantine"
BATCH = 50_000
TICK = 1000
# Kinds of files in a clean-up, as flags.
OLD, STAGED, METADATA = 1, 2, 4
# Folders are opened until there are enough to list in parallel, down to a depth.
ENOUGH_FOLDERS, MOST_LEVELS = 64, 6
_UNKNOWN = -(1 << 63)

SCHEMA = pa.schema(
    [
        # Bytes: names on a disk need not be UTF-8.
        pa.field("location", pa.binary(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        # _UNKNOWN if the store does not tell.
        pa.field("modified_ms", pa.int64(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
    ]
)


def is_metadata_file(location: str) -> bool:
    """Whether a file is named like a table's metadata, with or without gzip."""
    return location.endswith((".metadata.json", ".metadata.json.gz"))


def list_files(
    io: FileIO,
    root: str,
    folders: Iterable[str],
    *,
    partition_names: Sequence[str],
    before_ms: int,
    tick: Callable[[int, int], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the files of folders that a clean-up looks at: rows of SCHEMA.

    Hidden files are left out, except documents of jobs, which do not count; young files are left out, except metadata
    files.

    Args:
        root: the table's location with a slash at its end.
        folders: folders below `root`, without a slash at their end; the root itself is "".
        partition_names: names of partition fields: folders that are named after them are not hidden.
        before_ms: the time before which old files were written.
        tick: a function, called with the numbers of files and bytes since the last call.

    Raises:
        StorageError: a folder cannot be listed.
    """
    chosen: list[tuple[FileStatus, int]] = []
    kind_of = _Kinds(root, partition_names, before_ms)
    files = size_bytes = 0
    for folder in folders:
        for status in io.list(f"{root}{folder}/" if folder else root):
            kind = kind_of(status)
            if kind:
                chosen.append((status, kind))
            if kind is None or kind == STAGED:  # a document is no file of a table; a job that lists has its own
                continue
            files, size_bytes = files + 1, size_bytes + status.size_bytes
            if files == TICK:
                tick(files, size_bytes)
                files = size_bytes = 0
            if len(chosen) == BATCH:
                yield _batch(chosen)
                chosen = []
    tick(files, size_bytes)
    yield _batch(chosen)


class _Kinds:
    """Returns the kind of each file of a unit; None for a file in a quarantine, which is ignored.

    A listing returns the files folder by folder. What the folder decides is decided once for all its files: with a
    million files, each check of every path takes a second.
    """

    def __init__(self, root: str, partition_names: Sequence[str], before_ms: int) -> None:
        self._root_length = len(root)
        self._partition_names = partition_names
        self._before_ms = before_ms
        self._folder: str | None = None
        self._is_hidden = False
        self._kind_of_all: int | None = 0

    def __call__(self, status: FileStatus) -> int | None:
        folder, _, name = status.location[self._root_length :].rpartition("/")
        if folder != self._folder:
            self._enter(folder)
        if self._kind_of_all != 0:
            return self._kind_of_all
        if self._is_hidden or (name.startswith(("_", ".")) and is_hidden(name, self._partition_names)):
            return 0
        is_old = status.modified_ms is not None and status.modified_ms < self._before_ms
        return (OLD if is_old else 0) | (METADATA if is_metadata_file(name) else 0)

    def _enter(self, folder: str) -> None:
        """Decide on a folder: the kind of all its files, or 0 if each file has its own."""
        first = folder.partition("/")[0]
        self._folder = folder
        self._kind_of_all = {QUARANTINE_FOLDER: None, STAGING_FOLDER: STAGED}.get(first, 0)
        self._is_hidden = is_hidden(folder, self._partition_names)


def _batch(chosen: Sequence[tuple[FileStatus, int]]) -> pa.RecordBatch:
    columns: list[Any] = [
        bytes_array([status.location.encode("utf-8", "surrogateescape") for status, _ in chosen], pa.binary()),
        number_array(np.array([status.size_bytes for status, _ in chosen], np.int64)),
        number_array(np.array([_UNKNOWN if s.modified_ms is None else s.modified_ms for s, _ in chosen], np.int64)),
        number_array(np.array([kind for _, kind in chosen], np.uint8)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def statuses(batch: pa.RecordBatch) -> Iterator[tuple[FileStatus, int]]:
    """Yield the files of a batch with their kind."""
    for location, size_bytes, modified_ms, kind in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        name = location.decode("utf-8", "surrogateescape")
        moment = None if modified_ms == _UNKNOWN else modified_ms
        yield FileStatus(location=name, size_bytes=size_bytes, modified_ms=moment), kind


def find_folders(io: FileIO, root: str, below: str = "") -> list[str]:
    """Return folders below a table that together hold all its files, each to be listed at any depth.

    A folder that also holds a file is not divided: only a listing tells the file's age.

    Args:
        root: the table's location with a slash at its end.
        below: a folder below it; all of it by default.

    Raises:
        StorageError: a folder cannot be listed.
    """
    folders = [below]
    for _ in range(MOST_LEVELS):
        if len(folders) >= ENOUGH_FOLDERS:  # with their many files they are listed only once, by the units
            break
        inner = [_children(io, root, folder) for folder in folders]
        if not any(inner):
            break
        folders = [name for folder, names in zip(folders, inner, strict=True) for name in names or (folder,)]
    return folders


def _children(io: FileIO, root: str, folder: str) -> list[str]:
    """Return the folders in a folder; none if it holds a file, a link or nothing, or if the store cannot tell."""
    # Only the stores for catalogs that keep tables as directories have this method.
    directory: Any = getattr(io, "directory", None)
    if directory is None:
        return []
    with directory(f"{root}{folder}" if folder else root.rstrip("/"), "list") as (store, path):
        found = store.children(path)
        is_plain = all(is_directory and name for name, is_directory in found)
    if not found or not is_plain:
        return []
    return [f"{folder}/{name}" if folder else name for name, _ in found if folder or name != QUARANTINE_FOLDER]
