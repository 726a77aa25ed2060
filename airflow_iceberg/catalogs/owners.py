"""Whose place a location is, by the names of a catalog's tables: what no look at the files tells.

A pointer may lead to a copy of another table's metadata, or to the very file. It costs requests to the catalog, and is
asked before something is deleted. Not here: looks at files (`inventory.ownership`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Protocol

from airflow_iceberg.catalogs.names import Namespace, TableId
from airflow_iceberg.catalogs.state import TableState
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, advised
from airflow_iceberg.storage.gate import Place, place_of

log = logging.getLogger(__name__)

# With more tables in the catalog it is not asked whether one of them is at a place.
_MOST_TABLES = 1000
_THREADS = 16
# Of namespaces in namespaces, where the folders of more may be those above the warehouse.
_MOST_LEVELS = 3

Named = tuple[Namespace, str, str, str | None]
"""A namespace, the name of a table in it, the location of its metadata file, and its own, if the catalog tells it."""


class HasTables(Protocol):
    """What is asked of a catalog; see `Catalog`."""

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]: ...

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]: ...

    def load(self, table: str | TableId) -> TableState: ...

    def id_of(self, table: str | TableId) -> TableId: ...

    def told_location(self, table: TableId) -> str | None: ...

    def other_pointers(self, table: TableId) -> Iterable[Named]: ...


def is_in_use(catalog: HasTables, table: TableId, location: str) -> bool:
    """Whether another table of the catalog may lie at a location, above or below it.

    All are loaded of which the catalog does not say itself that they lie elsewhere. True if it cannot be told.
    """
    place = place_of(location)

    def is_there(name: TableId) -> bool:
        there = _place(catalog, name)
        return there is not None and (there.is_below(place) or place.is_below(there))

    try:
        names = list(islice(_not_elsewhere(catalog, table, place), _MOST_TABLES + 1))
        if len(names) <= _MOST_TABLES:
            with ThreadPoolExecutor(_THREADS) as pool:
                return any(pool.map(is_there, names))
        why = f"the catalog has more than {_MOST_TABLES} tables; remove what a dropped table has left there yourself"
    except IcebergError as error:
        why = str(error)
    log.warning("cannot tell whether another table is at %s: %s", location, why)
    return True


def _not_elsewhere(catalog: HasTables, table: TableId, place: Place) -> Iterator[TableId]:
    """Yield the other tables of a catalog, but for those that lie elsewhere, as it tells itself."""
    listed = [*catalog.other_pointers(table)]
    if not listed:
        found = (name for namespace in _namespaces(catalog) for name in catalog.list_tables(namespace))
        yield from (name for name in found if name != table)
    for namespace, name, pointer, told in listed:
        # Not each program that commits says where the table lies: its metadata file may be elsewhere.
        places = place_told(told), folder_of(pointer)
        if any(each is None or each.is_below(place) or place.is_below(each) for each in places):
            with suppress(InvalidInputError):  # no name
                yield TableId(namespace=namespace, name=name)


def owner_among(catalog: HasTables, names: Iterable[TableId], table: TableId, location: str) -> TableId | None:
    """Return the one of some tables, other than the given one, that is at a location.

    Raises:
        IcebergError: it cannot be told of one of them.
    """
    place, others = place_of(location), [name for name in dict.fromkeys(names) if name != table]
    with ThreadPoolExecutor(_THREADS) as pool:
        places = pool.map(lambda name: _place(catalog, name), others)
        return next((name for name, there in zip(others, places, strict=True) if there == place), None)


def owner_by_pointer(pointers: Iterable[Named], state: TableState) -> TableId | None:
    """Return the one of other tables whose metadata file is in a folder of this table's metadata files.

    Raises:
        InvalidInputError: there is one, and its name is one that no table can have here.
    """
    places = metadata_places(state)
    for namespace, name, pointer, _ in pointers:
        if folder_of(pointer) in places:
            return TableId(namespace=namespace, name=name)
    return None


def metadata_places(state: TableState) -> tuple[Place, ...]:
    """Return the folders of a table's metadata files: by its location, and by its pointer."""
    folders = (f"{state.metadata.location.rstrip('/')}/metadata", state.metadata_location.rpartition("/")[0])
    return tuple(place_of(folder) for folder in folders)


def place_told(location: str | None) -> Place | None:
    """Return the place of a table as its catalog tells it; None if it tells none."""
    with suppress(InvalidInputError):
        return place_of(location) if location else None
    return None


def folder_of(pointer: str) -> Place | None:
    """Return the place of the folder of a metadata file; None for a text that is no location."""
    try:
        return place_of(pointer.rpartition("/")[0])
    except InvalidInputError:
        return None  # nothing is read there


def namesakes(catalog: HasTables, location: str, unique_end: re.Pattern[str]) -> Iterator[TableId]:
    """Yield the names that the last folder of a location may have in each namespace of a catalog."""
    for namespace in _namespaces(catalog):
        for name in names_of_folder(location, unique_end):
            with suppress(InvalidInputError):
                yield catalog.id_of(TableId(namespace=namespace, name=name))


def names_of_folders(catalog: HasTables, location: str, unique_end: re.Pattern[str]) -> tuple[TableId, ...]:
    """Return the tables whose home a location may be: its last folders are a namespace of some levels and a name."""
    *folders, _ = place_of(location).path.strip("/").split("/")
    found = []
    for levels in range(1, min(len(folders), _MOST_LEVELS) + 1):
        for name in names_of_folder(location, unique_end):
            with suppress(InvalidInputError):  # no name
                found.append(catalog.id_of(TableId(namespace=tuple(folders[-levels:]), name=name)))
    return tuple(found)


def names_of_folder(location: str, unique_end: re.Pattern[str]) -> list[str]:
    """Return the names of tables that may have a folder: with and without what makes it unique."""
    name = location.rstrip("/").rpartition("/")[2]
    ends = dict.fromkeys(("", *(found[0] for found in unique_end.finditer(name))))
    return [name.removesuffix(end) for end in ends if name.endswith(end) and name != end]


def _namespaces(catalog: HasTables) -> Iterator[Namespace]:
    waiting: list[Namespace | None] = [None]
    while waiting:
        namespace = waiting.pop()
        waiting += [inner for inner in catalog.list_namespaces(namespace) if inner != namespace]
        if namespace:
            yield namespace


def _place(catalog: HasTables, name: TableId) -> Place | None:
    try:
        return place_of(catalog.load(name).metadata.location)
    except NotFoundError:
        return None  # or dropped meanwhile
    except IcebergError as error:
        return _told_place(catalog, name, error)


def _told_place(catalog: HasTables, name: TableId, error: IcebergError) -> Place:
    """Return where a catalog says that a table is whose metadata cannot be read, say outside of what is trusted.

    Commits of Iceberg Java and of this package tell it, and who cannot commit to the table cannot: it is worth as much
    as the table's metadata.
    """
    with suppress(IcebergError):
        if (there := place_told(catalog.told_location(name))) is not None:
            return there
    raise advised(
        error,
        f"as long as {name} cannot be read, it may be the table whose files are there: let the connection read it, or, "
        f"if nobody needs it, drop it from the catalog without purge",
    )
