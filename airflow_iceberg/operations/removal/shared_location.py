"""Whether another table has its files in a table's location, or below it: they would all look like orphans.

Here: reading metadata files that a table does not name. Not here: what is an orphan (`plan.orphan_files`,
`operations.remove_orphan_files`).

Most metadata files that a table does not name are its own: versions that its log has dropped, and files of commits that
lost. The beginning of a file tells, so that thousands of them are cheap. If two catalogs have the table and both have
committed to it, a metadata file is named as the past of another unknown one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from airflow_iceberg.catalogs.base import Catalog, Namespace, TableId
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.errors import (
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    advised,
)
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.inventory.ownership import places_of
from airflow_iceberg.inventory.seen_metadata import SeenMetadata, look_at
from airflow_iceberg.inventory.spellings import Spellings
from airflow_iceberg.plan.orphan_files import EqualStores
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.gate import local_path, place_of

log = logging.getLogger(__name__)

THREADS = 16


def check_not_shared(table: OpenTable, metadata_files: Iterable[str]) -> None:
    """Refuse a location that is shared with another table, or in which another table is stored.

    Args:
        metadata_files: metadata files below the table's location.

    Raises:
        IncompatibleChangeError: one is of another table, or of this table as another catalog has it.
        StorageError: one cannot be read.
    """
    spellings = Spellings(table.location)
    known = spellings.known_files()
    spellings.add(known, [table.metadata_location, *(location for _, location in table.metadata.metadata_log)])
    found = list(metadata_files)
    unknown = [path for path, verdict in zip(found, known.classify_all(found), strict=True) if verdict == "orphan"]
    with ThreadPoolExecutor(THREADS) as pool:
        seen = [one for one in pool.map(lambda location: look_at(table.io, location), unknown) if one is not None]
    for one in seen:
        why = _foreign(table, one)
        if why is not None:
            raise _shared(table, why)
    _check_not_forked(table, seen)


def _foreign(table: OpenTable, one: SeenMetadata) -> str | None:
    """Say why a metadata file is of another table; None if it may be of this one."""
    own = table.metadata.table_uuid
    if one.uuid is not None and one.uuid != own:
        return f"{one.path} is of a table with uuid {one.uuid}, this one has {own}"
    # Tables of the first versions have no uuid and are told apart by their location only. A table that was moved or
    # copied keeps its uuid.
    folder = table.metadata_location.rpartition("/")[0]
    if not _is_same(one.location, table.location) and not _is_same(one.path.rpartition("/")[0], folder):
        return f"{one.path} is of a table at {one.location}"
    return None


def _check_not_forked(table: OpenTable, seen: Sequence[SeenMetadata]) -> None:
    """Refuse a table that another catalog has as well, and has committed to."""
    log = table.metadata.metadata_log
    since_ms = min((moment for moment, _ in log), default=table.metadata.last_updated_ms)
    # Older files may have been dropped from the log.
    recent = [one for one in seen if one.updated_ms > since_ms]
    if len(recent) < 2:
        return
    spellings = Spellings(table.location)
    past = spellings.known_files()
    for one in recent:
        spellings.add(past, (location for _, location in _metadata_log(table.io, one.path)))
    for one in recent:
        if past.classify(one.path) != "orphan":
            raise _shared(
                table,
                f"{one.path} is a version of the same table that this catalog does not know, and that was committed "
                f"to; the table seems to be in another catalog, too, or to have been set back to an older version: "
                f"then move the later metadata files away",
            )


def _metadata_log(io: FileIO, path: str) -> Sequence[tuple[int, str]]:
    try:
        return metadata_json.read(io.read(path), path=path).metadata_log
    except IcebergError:
        return ()


def _path(location: str) -> str:
    return EqualStores().split(location)[2]


def _is_same(location: str, other: str) -> bool:
    """Whether two locations have one path, as they are written or after all links."""
    return _path(location) == _path(other) or _path(_real(location)) == _path(_real(other))


def _real(location: str) -> str:
    """Return the location after all links; a remote one as it is."""
    try:
        return location if local_path(location) is None else place_of(location).path
    except InvalidInputError:
        return location


def _shared(table: OpenTable, why: str) -> IncompatibleChangeError:
    return IncompatibleChangeError(
        f"table {table.name} shares its location {table.location} with another table: {why}; files of one would look "
        f"like orphans of the other, nothing was touched"
    )


# -- tables whose files are written into the location of this one ------------------------------------------------------


def without_files_of_others(table: OpenTable, orphans: Sequence[FileStatus]) -> list[FileStatus]:
    """Return the orphans without those in a place below the table's location that another table has declared its own.

    A table may write its data or its metadata into the location of another one, in which none of its metadata files
    tells of it. All tables of the catalog are looked at; one that may not be read is logged.

    Raises:
        StorageError: one cannot be read now.
    """
    places = sorted(set(_places_of_others(table))) if orphans else []
    if not places:
        return list(orphans)
    below = tuple(f"{path}/" for path, _ in places)
    root, real = table.location.rstrip("/"), _real(table.location).rstrip("/")
    kept = [one for one in orphans if not _path(f"{real}{one.location[len(root) :]}").startswith(below)]
    if len(kept) < len(orphans):
        names = ", ".join(sorted({name for _, name in places}))
        log.warning(
            "%s: %d files in places of other tables (%s) are kept, though they look like orphans",
            *(table.name, len(orphans) - len(kept), names),
        )
    return kept


def _places_of_others(table: OpenTable) -> Iterator[tuple[str, str]]:
    """Yield the paths in or at the table's location that other tables of the catalog have as theirs, and whose."""
    catalog = _catalog_of(table)
    if catalog is None:
        return
    stores = EqualStores()
    own = stores.split(_real(table.location))
    with ThreadPoolExecutor(THREADS) as pool:
        for places in pool.map(lambda name: _places_of(catalog, name, table), _others(catalog, table)):
            for place in places:
                scheme, authority, path = stores.split(_real(place.rstrip("/")))
                is_same_store = all(not a or not b or a == b for a, b in ((scheme, own[0]), (authority, own[1])))
                if is_same_store and f"{path.rstrip('/')}/".startswith(f"{own[2].rstrip('/')}/"):
                    yield path.rstrip("/"), places[0]


def _catalog_of(table: OpenTable) -> Catalog | None:
    try:
        return table.catalog
    except UnsupportedError:
        return None


def _others(catalog: Catalog, table: OpenTable) -> Iterator[TableId]:
    """Yield the names of the catalog's other tables, in namespaces at any depth."""
    waiting: list[Namespace | None] = [None]
    while waiting:
        namespace = waiting.pop()
        try:
            waiting += [inner for inner in catalog.list_namespaces(namespace) if inner != namespace]
            names = () if namespace is None else catalog.list_tables(namespace)
        except IcebergError as error:
            _refuse_temporary(table.location, "a table that cannot be listed", error)
            log.warning("%s: cannot list tables whose files may be in its location: %s", table.name, error)
            continue
        yield from (name for name in names if name != table.identifier)


def _refuse_temporary(location: str, what: str, error: IcebergError) -> None:
    """Raise an error that may be none the next time: what cannot be asked now may have files in the location."""
    if isinstance(error, StorageError) and not (error.is_denied or error.is_refused):
        text = f"cannot tell whether {what} has files in {location}: {error}"
        raise advised(StorageError(text), "try again; if the store of that table is gone for good, drop it") from error


def _places_of(catalog: Catalog, name: TableId, table: OpenTable) -> tuple[str, ...]:
    """Return the locations that another table has as its own; of one that may not be read, what the catalog tells."""
    try:
        other = catalog.load(name).metadata
    except NotFoundError:
        return ()  # dropped meanwhile
    except IcebergError as error:
        _refuse_temporary(table.location, f"table {name}", error)
        log.warning("cannot tell whether table %s has files in the location that is cleaned: %s", name, error)
        with suppress(IcebergError):
            told = catalog.told_location(name)
            return (told,) if told else ()
        return ()
    is_same = (other.table_uuid, other.location) == (table.metadata.table_uuid, table.location)
    return () if is_same else places_of(other)
