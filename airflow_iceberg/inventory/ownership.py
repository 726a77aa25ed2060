"""Whether the locations that metadata calls a table's own are not another table's.

Anyone who can commit to a table can let its location or its `write.data.path` name the folder of another table, or a
folder above several. Before files are deleted there, the metadata files that lie beside, above and below are looked at:
a live table has some. Not here: what is deleted, and the gate by which paths are compared (`storage.gate`).
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain

from airflow_iceberg.errors import IcebergError, StorageError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.inventory.seen_metadata import look_at
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.directories import open_directory
from airflow_iceberg.storage.gate import Gate, GatedFileIO, local_path, place_of

log = logging.getLogger(__name__)

# The properties by which a table has files outside of its location.
PLACES = (
    TableProperties.data_path.name,
    TableProperties.object_storage_path.name,
    TableProperties.folder_storage_path.name,
    TableProperties.metadata_path.name,
)
_METADATA = re.compile(r".*\.metadata\.json(\.gz)?")
# Of the metadata files of a folder the oldest and the newest are read. With more folders below a location nothing is
# deleted there.
_MOST_READ = 50
_MOST_FOLDERS = 200
_MOST_SPREAD = 50
_THREADS = 16
# Folders of partitions, and of the hashes, new and old, that spread files over an object store: there may be many. A
# day is no hash: tables are called so, and of a million hashes some twenty look like one.
_DAY = r"(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d"
_HASH = re.compile(rf"[01]{{4}}|[01]{{8}}|(?!{_DAY})[0-9a-f]{{8}}")
_SPREAD = re.compile(rf"[^/]*=.*|{_HASH.pattern}")
# Those of Iceberg 1.3 to 1.6, in base64. Names of tables look so, too, but not hundreds in one folder.
_BASE64 = re.compile(r"[A-Za-z0-9_-]{6}")
# Of the hashes in a folder that is not that of the table's name, so many are looked into all the same.
_MOST_HASHES = 20
# Folders directly below the location of a table, whose own folders are not those of tables. They are looked into where
# the location is not that of the table's name: it may be the folder of namespaces that are called so.
_OF_A_TABLE = re.compile(r"data|metadata|[._].*")
_NEVER_A_TABLE = (".staging", ".quarantine")
_SLASHES = re.compile(r"[/\\]+")
# Folders by which tables of other formats are known, also those that write Iceberg's metadata for readers.
_FORMATS = (({"_delta_log"}, "Delta Lake"), ({".hoodie"}, "Hudi"), ({"snapshot", "schema", "manifest"}, "Paimon"))
# A metadata file of a first version.
_FIRST = re.compile(r"(?:0+-.*|v[01])\.(?:gz\.)?metadata\.json(?:\.gz)?")


def places_of(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the locations that metadata calls the table's own."""
    named = (metadata.properties.get(name) for name in PLACES)
    return (metadata.location, *(place for place in named if place))


def proven_gate(
    io: GatedFileIO,
    metadata: TableMetadata,
    metadata_location: str,
    *,
    is_home: bool,
    is_lent: bool = False,
    is_in_use: Callable[[], bool] = lambda: True,
) -> tuple[Gate, bool]:
    """Return the gate of a table's files without the own locations that may be another table's.

    Each location is looked at, and the folders above and below it: also where the catalog would have placed the table,
    since its namespace may have the name of another table, or lie in the folder of one.

    Args:
        metadata_location: the file to which the catalog's pointer leads.
        is_home: whether the location is that of the table's name in the warehouse: then it may have many folders.
        is_lent: whether a server lends credentials for the location alone: then others need not be readable.
        is_in_use: whether another table may be at the location. It is asked where the table's own place has metadata
            files of another one, which may have been dropped without its files.

    Returns:
        The gate, and whether all was looked at: otherwise another look may find more.
    """
    own, root, is_final = [], place_of(metadata.location), True
    folder = metadata_location.rpartition("/")[0]
    for location in io.gate.own:
        at_home = is_home and place_of(location).is_below(root)
        look = _LookForOthers(io, metadata.location, metadata, folder, at_home, is_lent, is_in_use)
        looks = [(look, location)]
        if (plain := _plain_slashes(location)) != location:
            home, beside = _plain_slashes(metadata.location), _plain_slashes(folder)
            looks.append((replace(look, home=home, folder=beside, is_home=False, formats=[]), plain))
        try:
            foreign = next(filter(None, (each.foreign(place) for each, place in looks)), None)
        except IcebergError as error:
            foreign, is_final = f"it cannot be checked whether it is another table's: {error}", False
        if foreign is None:
            own.append(location)
        else:
            log.warning("nothing is deleted below %s, since %s", location, foreign)
    return Gate(allowed=io.gate.allowed, own=tuple(own)), is_final


def foreign_file(io: GatedFileIO, metadata: TableMetadata, metadata_location: str) -> str | None:
    """Return a metadata file of another table at the location that metadata names, above or below it.

    Raises:
        IcebergError: it cannot be told.
    """
    folder = metadata_location.rpartition("/")[0]
    look = _LookForOthers(io, metadata.location, metadata, folder, is_home=True, is_lent=False, is_new=True)
    return next((path for path, _ in look.found(metadata.location)), None)


def metadata_below(io: FileIO, location: str, *, own: str = "") -> Iterator[str]:
    """Yield the metadata files of other tables at any depth below the folder of a table, by their names alone.

    Args:
        own: the folder of the table's own metadata files.
    Raises:
        IcebergError: the folder cannot be listed.
    """
    start = len(location.rstrip("/")) + 1
    for status in io.list(location):
        first, *others = status.location[start:].split("/")
        is_metadata = others[-2:-1] == ["metadata"] and _METADATA.fullmatch(others[-1])
        if is_metadata and first not in _NEVER_A_TABLE and not _is_same(status.location.rpartition("/")[0], own):
            yield status.location


def foreign_at(
    io: GatedFileIO, folder: str, metadata: TableMetadata, metadata_location: str, *, is_home: bool
) -> str | None:
    """Say which metadata file of another table is in the folder `metadata` of a folder; None if there is none.

    Args:
        is_home: see `proven_gate`.
    Raises:
        IcebergError: it cannot be told.
    """
    look = _LookForOthers(io, metadata.location, metadata, metadata_location.rpartition("/")[0], is_home, False)
    return next((why for _, why in look._foreign(look._metadata_files(folder))), None)


def is_never_a_table(name: str) -> bool:
    """Whether a folder directly below a table is one of this package's own."""
    return name in _NEVER_A_TABLE


def is_spread(name: str) -> bool:
    """Whether a folder is called like those of partitions or hashes, of which a table may have many."""
    return _SPREAD.fullmatch(name) is not None


def neighbour(io: GatedFileIO, location: str, *, is_at_home: bool) -> str | None:
    """Return a metadata file of another table above or below the location of a new one, by the names alone.

    Args:
        is_at_home: whether one at the very location counts, too, unless it is a first version, which a try may have
            left.
    Raises:
        IcebergError: it cannot be told.
    """
    looks = (
        _Look(io, each).neighbours(is_at_home=is_at_home)
        for each in dict.fromkeys((location, _plain_slashes(location)))
    )
    return next(chain.from_iterable(looks), None)


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at the folders around a location.

    Attributes:
        home: the location of the table, below which it has folders of its own.
    """

    io: GatedFileIO
    home: str

    def neighbours(self, *, is_at_home: bool) -> Iterator[str]:
        """Yield metadata files; see `neighbour`."""
        if is_at_home:
            yield from (
                path for path in self._metadata_files(self.home) if not _FIRST.fullmatch(path.rpartition("/")[2])
            )
        above = self._above(self.home)
        next(above, None)
        for folder in chain(above, self._below(self.home, is_home=True, is_new=True)):
            yield from self._metadata_files(folder)

    def _above(self, location: str) -> Iterator[str]:
        """Yield a location, and the folders above it that the gate lets through."""
        folder = location.rstrip("/")
        while self._is_allowed(folder) and place_of(folder).path:
            yield folder
            folder = folder.rpartition("/")[0]

    def _below(self, location: str, *, is_home: bool, is_new: bool = False) -> Iterator[str]:
        """Yield the folders below a location that may be tables, the nearest first.

        Args:
            is_home: whether the catalog would have placed the table there: then it ends after many folders.
            is_new: whether the table has no files yet: then some folders that look like those of its files come last.
        Raises:
            StorageError: there are too many.
        """
        waiting, last, seen, many = deque([(location.rstrip("/"), False)]), deque[tuple[str, bool]](), 0, 0
        while waiting or last:
            above, is_sample = (waiting or last).popleft()
            is_root = _is_same(above, self.home)
            folders = [name for name, is_directory in self._children(above) if is_directory]
            self._listed(above, frozenset(folders))
            short = [name for name in folders if _BASE64.fullmatch(name)]
            hashes = frozenset(short if len(short) > _MOST_FOLDERS else ())
            sample = () if is_home or is_sample else _sample(folders, hashes)
            for name in folders:
                if is_root and name in _NEVER_A_TABLE:
                    continue
                is_many = is_spread(name) or name in hashes
                seen, many = seen + (not is_many), many + is_many
                if is_many and (many > _MOST_SPREAD if is_new else name not in sample):
                    continue
                if seen > _MOST_FOLDERS and is_home:
                    return
                if seen > _MOST_FOLDERS:
                    raise StorageError(f"there are more than {_MOST_FOLDERS} folders below {location}")
                is_inside = is_root and is_home and _OF_A_TABLE.fullmatch(name) is not None
                if is_new and (is_many or is_inside):
                    last.append((f"{above}/{name}", is_sample))
                elif not is_inside:
                    waiting.append((f"{above}/{name}", is_sample or is_many))
                yield f"{above}/{name}"

    def _listed(self, folder: str, folders: Set[str]) -> None:
        """Take note of the folders that a look has found in a folder."""

    def _is_allowed(self, location: str) -> bool:
        try:
            self.io.check(location, "look at")
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


@dataclass(frozen=True, slots=True)
class _LookForOthers(_Look):
    """A look for the metadata files of other tables around a location.

    Attributes:
        folder: that of the metadata file to which the catalog's pointer leads.
        is_home, is_lent, is_in_use: see `proven_gate`.
        is_new: whether the table only gets its name now: who moves its metadata may have left older files.
        formats: the folders of tables of other formats that were found, each with what it is.
    """

    metadata: TableMetadata
    folder: str
    is_home: bool
    is_lent: bool
    is_in_use: Callable[[], bool] = lambda: True
    is_new: bool = False
    formats: list[tuple[str, str]] = field(default_factory=list)

    def foreign(self, location: str) -> str | None:
        """Say which metadata file of another table is in the location, above or below it; None if there is none."""
        return next((why for _, why in self.found(location)), None)

    def found(self, location: str) -> Iterator[tuple[str, str]]:
        """Yield the metadata files of other tables, each with the reason why it is of another one."""
        for folder in self._above(location):
            try:
                files = self._metadata_files(folder)
            except StorageError as error:
                if self.is_lent and folder != location.rstrip("/") and _is_denied(error):
                    break  # nor does what can be deleted reach further up
                raise
            others = self._foreign(files)
            if (self.is_home or self.is_lent) and _is_same(folder, self.home):
                found = [*others]
                others = iter(found if found and self.is_in_use() else ())
            yield from others
        # Credentials may be lent for more than a table: with them alone the end of a look would prove nothing.
        for folder in self._below(location, is_home=self.is_home):
            yield from self.formats
            yield from self._foreign(self._metadata_files(folder))

    def _listed(self, folder: str, folders: Set[str]) -> None:
        if not self.is_new:  # who registers one of these to read it may do so
            kinds = [kind for names, kind in _FORMATS if names <= folders]
            self.formats.extend((folder, f"{folder} is a table of {kind}") for kind in kinds)

    def _foreign(self, files: Sequence[str]) -> Iterator[tuple[str, str]]:
        if not files:
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            for path, why in zip(files, pool.map(self._why_foreign, files), strict=True):
                if why is not None:
                    yield path, why

    def _why_foreign(self, path: str) -> str | None:
        seen, own = look_at(self.io, path), self.metadata
        if seen is None:
            return None
        if seen.uuid is not None and seen.uuid != own.table_uuid:
            return f"{path} is of a table with uuid {seen.uuid}, this one has {own.table_uuid}"
        if seen.uuid is not None and self._is_beside_pointer(path) and _is_at(self.folder, own):
            return None
        # A table that was moved keeps its uuid. One that pretends to be another has the uuid of that one, and perhaps
        # its location, but no metadata file in its folder; or its place of metadata is there, but not its location.
        if not _is_same(seen.location, own.location):
            return f"{path} is of a table at {seen.location}, this one is at {own.location}"
        # At the place of the table's name, others count only if they are in use: see `found`.
        is_believed = self.is_home and (self.is_new or not _is_at(path.rpartition("/")[0], own))
        if not (is_believed or self._is_beside_pointer(path)):
            what = f"{path} is of a table with the uuid of this one, which has its metadata in {self.folder}"
            return f"{what}; an older one of this table can be moved there"
        return None

    def _is_beside_pointer(self, path: str) -> bool:
        return _is_same(path.rpartition("/")[0], self.folder)


def _sample(folders: Sequence[str], others: Set[str]) -> frozenset[str]:
    """Return some of the folders that are called like hashes, evenly chosen: names of tables may look so, too."""
    hashes = [name for name in folders if _HASH.fullmatch(name) or name in others]
    return frozenset(hashes[:: -(-len(hashes) // _MOST_HASHES)]) if hashes else frozenset()


def _plain_slashes(location: str) -> str:
    """Return a remote location without doubled slashes and backslashes, as some servers understand it.

    Those of S3 and of Azure answer for both names of an object, and list it under one alone.
    """
    scheme, separator, rest = location.partition("://")
    if not separator or local_path(location) is not None:
        return location
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority}{slash}{_SLASHES.sub('/', path).lstrip('/')}"


def _is_at(folder: str, metadata: TableMetadata) -> bool:
    """Whether a folder is where a table at this location has its metadata, unless a property says otherwise."""
    return _is_same(folder, f"{metadata.location.rstrip('/')}/metadata")


def _is_denied(error: StorageError) -> bool:
    return error.is_denied or error.is_refused or isinstance(error.__cause__, PermissionError)


def has_metadata(io: FileIO, location: str) -> bool:
    """Whether there are metadata files of a table at a location, by their names alone."""
    with open_directory(io, f"{location}/metadata", "list") as (store, path):
        return any(_METADATA.fullmatch(name) for name in store.names(path, ""))


def files_of(io: FileIO, paths: Sequence[str], metadata: TableMetadata, metadata_location: str) -> list[str]:
    """Return those of some files that are older metadata files of a table, by their own content."""
    folder = metadata_location.rpartition("/")[0]
    is_at_home = _is_at(folder, metadata)

    def is_own(path: str) -> bool:
        above, _, name = path.rpartition("/")
        seen = look_at(io, path) if _METADATA.fullmatch(name) else None
        if seen is None or seen.uuid != metadata.table_uuid:
            return False
        return _is_same(seen.location, metadata.location) or (is_at_home and _is_same(above, folder))

    with ThreadPoolExecutor(_THREADS) as pool:
        return [path for path, is_ours in zip(paths, pool.map(is_own, paths), strict=True) if is_ours]


def _is_same(location: str, other: str) -> bool:
    try:
        return place_of(location) == place_of(other)
    except IcebergError:
        return False
