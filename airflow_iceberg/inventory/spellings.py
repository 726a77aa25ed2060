"""One form of each location for comparison: what a table's metadata spells in several ways is one file.

Metadata may name a local file through a link above the table, say `/outer/wh/t/a` for `/real/wh/t/a`, and a listing
has the other name. Here: the disk is asked, in the process that compares. Where the manifests are read, perhaps on
another machine, only the folders count that it has sent along; what lies elsewhere comes back as text. Of a location
that cannot be resolved nobody knows where its file is: then no file of its name is deleted.

Below the table no link is followed when a file is opened, but other programs follow them: a path through one is
resolved here, too, so that the file behind it is no orphan.

Not here: the pure part (`plan.path_hashes`), and the files of a table (`inventory.named_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError, StorageError
from airflow_iceberg.format.arrow.buffers import numbers_of
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.inventory.named_files import hashed_paths
from airflow_iceberg.plan.orphan_files import EqualStores, KnownFiles, file_name
from airflow_iceberg.plan.path_hashes import Hashes, Mask, SpelledFolder, hash_paths, normal_path, placed_path
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.directories import open_directory
from airflow_iceberg.storage.gate import GatedFileIO, local_path, place_of
from airflow_iceberg.storage.real_paths import RealPaths

# More below one table are somebody's attack: each path of its metadata is compared with all of them.
_MOST_LINKS = 200


class Spellings:
    """The spellings of the files of a table.

    Args:
        links: the links below the location, see `links_below`: needed where files are compared by hashes.

    Attributes:
        folders: the table's folder, if it is local, as its location spells it and as it really is; and the links.
    """

    def __init__(self, location: str, links: Sequence[str] = ()) -> None:
        self.folders = _folders_of(location, links)
        self._real = RealPaths()

    def known_files(self, equal_stores: EqualStores | None = None) -> KnownFiles:
        """Return a set of files in which none is yet."""
        return KnownFiles(equal_stores, self.folders)

    def add(self, known: KnownFiles, locations: Iterable[str]) -> None:
        """Add files of the table."""
        given = list(locations)
        hashed = hash_paths(given, self.folders)
        known.add_hashed(hashed)
        self._add_elsewhere(known, [given[number] for number in hashed.unplaced])

    def add_batch(self, known: KnownFiles, batch: pa.RecordBatch) -> None:
        """Add the files of a batch of `inventory.named_files`."""
        known.add_hashed(hashed_paths(batch))
        self._add_elsewhere(known, _unplaced(batch)[1])

    def _add_elsewhere(self, known: KnownFiles, locations: Sequence[str]) -> None:
        if not locations:
            return
        real = [self._real.path(each) for each in locations]
        known.add(path for path in real if path is not None)
        known.add_lost(each for each, path in zip(locations, real, strict=True) if path is None)

    def hashes(self, batch: pa.RecordBatch) -> tuple[Hashes, Mask, frozenset[str]]:
        """Return the hashes of a batch of `inventory.named_files`, which of its files are lost, and their names.

        A file is lost if nobody knows where it is.
        """
        found = numbers_of(batch.column("hash"))
        is_lost = np.zeros(len(found), np.bool_)
        rows, locations = _unplaced(batch)
        if not locations:
            return found, is_lost, frozenset()
        real = [self._real.path(each) for each in locations]
        is_lost[rows] = [path is None for path in real]
        found = found.copy()
        found[rows] = hash_paths(
            [path or each for path, each in zip(real, locations, strict=True)], self.folders
        ).hashes
        names = (file_name(each) for path, each in zip(real, locations, strict=True) if path is None)
        return found, is_lost, frozenset(names)

    def unreached(self, candidates: Iterable[str], kept: Iterable[str]) -> list[str]:
        """Return the candidates that surely are none of the kept files, each file once."""
        paths: set[str] = set()
        names: set[str] = set()
        for location in kept:
            path = self._path(location)
            if path is None:
                names.add(file_name(location))
            else:
                paths.add(path)
        found: dict[str, str] = {}
        for location in candidates:
            path = self._path(location)
            if path is not None and path not in paths and file_name(location) not in names:
                found.setdefault(path, location)
        return list(found.values())

    def _path(self, location: str) -> str | None:
        path, is_sure = placed_path(location, self.folders)
        real = self._real.path(location)
        if real is None:  # in the table's folder nothing is there
            return path if is_sure else None
        return placed_path(real, self.folders)[0]


def links_below(io: FileIO, location: str) -> list[str]:
    """Return the links below a table's location, by their paths from there; none for a remote table.

    Raises:
        StorageError: it cannot be looked at, or there are too many.
    """
    if local_path(location) is None:
        return []
    opened = io.any_directory if isinstance(io, GatedFileIO) else partial(open_directory, io)
    with opened(location, "look for links below") as (store, path):
        found = list(islice(store.links(path), _MOST_LINKS + 1))
    if len(found) > _MOST_LINKS:
        raise StorageError(
            f"there are more than {_MOST_LINKS} symbolic links below {location}, so that it cannot be told which of "
            f"its files are in use; remove them"
        )
    return found


def forgotten_metadata(before: TableMetadata, after: TableMetadata, metadata_location: str) -> list[str]:
    """Return the metadata files in the log of a table's version that a later one does not name any more."""
    kept = (metadata_location, *(location for _, location in after.metadata_log))
    return Spellings(after.location).unreached((location for _, location in before.metadata_log), kept)


def _folders_of(location: str, links: Sequence[str]) -> tuple[SpelledFolder, ...]:
    try:
        path = local_path(location)
        real = normal_path(place_of(location).path)
    except InvalidInputError:
        return ()
    if path is None or not real or ".." in path:
        return ()
    spelled = dict.fromkeys((normal_path(path), real))
    found = [SpelledFolder(each, real) for each in spelled]
    found += [SpelledFolder(normal_path(f"{each}/{link}"), "") for each in spelled for link in links]
    return tuple(sorted(found, key=lambda each: len(each.spelled), reverse=True))


def _unplaced(batch: pa.RecordBatch) -> tuple[list[int], list[str]]:
    column = batch.column("unplaced")
    if column.null_count == len(column):
        return [], []
    found = {row: location for row, location in enumerate(column.to_pylist()) if location is not None}
    return list(found), list(found.values())
