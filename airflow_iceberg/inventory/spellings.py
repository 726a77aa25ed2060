"""One form of each location for comparison: what a table's metadata spells in several ways is one file.

Metadata may name a local file through a link above the table, say `/outer/wh/t/a` for `/real/wh/t/a`, and a listing
has the other name. Here: the disk is asked, in the process that compares. Where the manifests are read, perhaps on
another machine, only the folders count that it has sent along; what lies elsewhere comes back as text. Of a location
that cannot be resolved nobody knows where its file is: then no file of its name is deleted.

Not here: the pure part (`plan.path_hashes`), and the files of a table (`inventory.named_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.arrow.buffers import numbers_of
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.inventory.named_files import hashed_paths
from airflow_iceberg.plan.orphan_files import EqualStores, KnownFiles, file_name
from airflow_iceberg.plan.path_hashes import Hashes, Mask, SpelledFolder, hash_paths, normal_path, placed_path
from airflow_iceberg.storage.gate import local_path, place_of
from airflow_iceberg.storage.real_paths import RealPaths


class Spellings:
    """The spellings of the files of a table.

    Attributes:
        folders: the table's folder, if it is local, as its location spells it and as it really is.
    """

    def __init__(self, location: str) -> None:
        self.folders = _folders_of(location)
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
        if is_sure:
            return path
        real = self._real.path(location)
        return None if real is None else placed_path(real, self.folders)[0]


def forgotten_metadata(before: TableMetadata, after: TableMetadata, metadata_location: str) -> list[str]:
    """Return the metadata files in the log of a table's version that a later one does not name any more."""
    kept = (metadata_location, *(location for _, location in after.metadata_log))
    return Spellings(after.location).unreached((location for _, location in before.metadata_log), kept)


def _folders_of(location: str) -> tuple[SpelledFolder, ...]:
    try:
        path = local_path(location)
        real = normal_path(place_of(location).path)
    except InvalidInputError:
        return ()
    if path is None or not real or ".." in path:
        return ()
    spelled = dict.fromkeys((normal_path(path), real))
    return tuple(SpelledFolder(each, real) for each in sorted(spelled, key=len, reverse=True))


def _unplaced(batch: pa.RecordBatch) -> tuple[list[int], list[str]]:
    column = batch.column("unplaced")
    if column.null_count == len(column):
        return [], []
    found = {row: location for row, location in enumerate(column.to_pylist()) if location is not None}
    return list(found), list(found.values())
