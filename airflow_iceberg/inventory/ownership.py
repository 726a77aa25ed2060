"""Whether the locations that metadata calls a table's own are not another table's.

Anyone who can commit to a table can let its location or its `write.data.path` name the folder of another table, or a
folder above several. Before files are deleted there, the metadata files that lie beside, above and below are looked at:
a live table has some. Not here: what is deleted, and the gate by which paths are compared (`storage.gate`).
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from airflow_iceberg.errors import IcebergError, StorageError, UnsupportedError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.directories import open_directory
from airflow_iceberg.storage.gate import Gate, GatedFileIO, place_of

log = logging.getLogger(__name__)

# The properties by which a table has files outside of its location.
_PLACES = (
    TableProperties.data_path.name,
    TableProperties.object_storage_path.name,
    TableProperties.folder_storage_path.name,
    TableProperties.metadata_path.name,
)
_METADATA = re.compile(r".*\.metadata\.json(\.gz)?")
# Enough for the first fields of the JSON; quotes within texts are escaped, so that no text looks like a field.
BEGINNING = 4096
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"\\]+)"')
_LOCATION = re.compile(rb'"location"\s*:\s*"([^"\\]+)"')
_UPDATED = re.compile(rb'"last-updated-ms"\s*:\s*(\d{1,19})\b')
# Of the metadata files of a folder the oldest and the newest are read. With more folders below a location nothing is
# deleted there.
_MOST_READ = 50
_MOST_FOLDERS = 200
_THREADS = 16
# Folders of partitions, and of the hashes, new and old, that spread files over an object store: there may be many.
_SPREAD = re.compile(r"[^/]*=.*|[01]{4,}|[0-9a-f]{8}")
# Folders directly below the location of a table.
_OF_A_TABLE = re.compile(r"data|metadata|[._].*")


def places_of(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the locations that metadata calls the table's own."""
    named = (metadata.properties.get(name) for name in _PLACES)
    return (metadata.location, *(place for place in named if place))


class _UncheckedError(Exception):
    """It cannot be told now whether a location is another table's."""


def proven_gate(io: GatedFileIO, metadata: TableMetadata, *, is_expected: bool) -> tuple[Gate, bool]:
    """Return the gate of a table's files without the own locations that may be another table's.

    Args:
        is_expected: whether the catalog itself would place the table at its location, or guarantees it.

    Returns:
        The gate, and whether all was looked at: otherwise another look may find more.
    """
    own, root, is_final = [], place_of(metadata.location), True
    for location in io.gate.own:
        is_home = is_expected and place_of(location).is_below(root)
        try:
            foreign = None if is_home else _Look(io, metadata).foreign(location)
        except _UncheckedError as error:
            foreign, is_final = str(error), False
        if foreign is None:
            own.append(location)
        else:
            log.warning("nothing is deleted below %s, since %s", location, foreign)
    return Gate(allowed=io.gate.allowed, own=tuple(own)), is_final


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at the folders around a location."""

    io: GatedFileIO
    metadata: TableMetadata

    def foreign(self, location: str) -> str | None:
        """Say which metadata file of another table is in the location, above or below it; None if there is none."""
        try:
            return next(self._reasons(location), None)
        except IcebergError as error:
            raise _UncheckedError(f"it cannot be checked whether it is another table's: {error}") from error

    def _reasons(self, location: str) -> Iterator[str]:
        for folder in chain(self._above(location), self._below(location)):
            found = self._metadata_files(folder)
            with ThreadPoolExecutor(_THREADS) as pool:
                yield from (why for why in pool.map(self._why_foreign, found) if why is not None)

    def _above(self, location: str) -> Iterator[str]:
        """Yield a location, and the folders above it that the gate lets through."""
        folder = location.rstrip("/")
        while self._is_allowed(folder) and place_of(folder).path:
            yield folder
            folder = folder.rpartition("/")[0]

    def _below(self, location: str) -> Iterator[str]:
        """Yield the folders below a location that may be tables, the nearest first.

        Raises:
            StorageError: there are too many.
        """
        waiting, seen = deque([location.rstrip("/")]), 0
        while waiting:
            above = waiting.popleft()
            is_home = _is_same(above, self.metadata.location)
            for name, is_directory in self._children(above):
                if not is_directory or _SPREAD.fullmatch(name) or (is_home and _OF_A_TABLE.fullmatch(name)):
                    continue
                seen += 1
                if seen > _MOST_FOLDERS:
                    raise StorageError(f"there are more than {_MOST_FOLDERS} folders below {location}")
                waiting.append(f"{above}/{name}")
                yield f"{above}/{name}"

    def _is_allowed(self, location: str) -> bool:
        try:
            self.io.gate.check(location, "look at")
        except IcebergError:
            return False
        return True

    def _children(self, folder: str) -> list[tuple[str, bool]]:
        with self.io.any_directory(folder, "look at") as (store, path):
            return store.children(path)

    def _metadata_files(self, folder: str) -> list[str]:
        """Return the oldest and the newest metadata files of a table in a folder, by their names."""
        home = f"{folder}/metadata"
        names = sorted(name for name, is_directory in self._children(home) if not is_directory)
        files = [f"{home}/{name}" for name in names if _METADATA.fullmatch(name)]
        return files if len(files) <= 2 * _MOST_READ else [*files[:_MOST_READ], *files[-_MOST_READ:]]

    def _why_foreign(self, path: str) -> str | None:
        seen = look_at(self.io, path)
        own = self.metadata
        if seen is None:
            return None
        if seen.uuid is not None and seen.uuid != own.table_uuid:
            return f"{path} is of a table with uuid {seen.uuid}, this one has {own.table_uuid}"
        # A table that was moved keeps its uuid, and one that pretends to be another has the uuid of that one.
        if not _is_same(seen.location, own.location):
            return f"{path} is of a table at {seen.location}, this one is at {own.location}"
        return None


def has_metadata(io: FileIO, location: str) -> bool:
    """Whether there are metadata files of a table at a location, by their names alone."""
    with open_directory(io, f"{location}/metadata", "list") as (store, path):
        return any(_METADATA.fullmatch(name) for name in store.names(path, ""))


def _is_same(location: str, other: str) -> bool:
    try:
        return place_of(location) == place_of(other)
    except IcebergError:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenMetadata:
    """A metadata file, as far as it was read."""

    path: str
    uuid: str | None
    location: str
    updated_ms: int


def look_at(io: FileIO, path: str) -> SeenMetadata | None:
    """Read the beginning of a metadata file; None for a damaged or missing one, which is of no table.

    Raises:
        StorageError, UnsupportedError: it cannot be told of which table it is.
    """
    try:
        beginning = io.read(path, offset=0, length=BEGINNING)
        found = [pattern.findall(beginning) for pattern in (_UUID, _LOCATION, _UPDATED)]
        # Properties may have the same names.
        if all(len(values) == 1 for values in found):
            uuid, location, updated = (values[0].decode() for values in found)
            return SeenMetadata(path=path, uuid=uuid, location=location, updated_ms=int(updated))
        metadata = metadata_json.read(io.read(path), path=path)
    except (StorageError, UnsupportedError):
        raise  # a live table may have it: one that only a newer version can read, for example
    except (IcebergError, UnicodeDecodeError):
        return None
    return SeenMetadata(
        path=path, uuid=metadata.table_uuid, location=metadata.location, updated_ms=metadata.last_updated_ms
    )
