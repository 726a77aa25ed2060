"""Tables of connections, opened for a page, and what was worked out about them, kept by the state of the table.

A metadata file never changes, and its name alone does not tell states apart: a table that was dropped and created again
in a Hadoop catalog begins with `v1.metadata.json` once more, and a REST server need not name a file at all.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook

from airflow_iceberg.catalogs.base import Catalog, Namespace, TableId
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, StorageError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.hooks.late_threads import Place, stop_if_late, when_late
from airflow_iceberg.inventory.limited import is_within
from airflow_iceberg.redaction import hidden_texts, replaced
from airflow_iceberg.table import Table
from airflow_iceberg.ui.access import CONNECTION_TYPES
from airflow_iceberg.ui.render import error_text

T = TypeVar("T")

MOST_NAMESPACES = 100
"""How many namespaces are looked into for one page."""
MOST_TABLES = 1_000
_MOST_NAME = 1_000
_MOST_CATALOGS = 8
_MOST_KEPT = 128
_MOST_KEPT_BYTES = 512 << 10
_LOCK_TIMEOUT_S = 20


class Kept:
    """The last results that were asked for, by a key; safe for threads."""

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._found: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of a key, made if it is not kept; two threads may both make one.

        A result that says what could not be read is not kept: the store may answer the next time. Nor is one that is
        larger than what a page shows.
        """
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                found: T = self._found[key]
                return found
        stop_if_late()
        made = make()
        if getattr(made, "error", "") or (self._most_bytes is not None and not is_within(made, self._most_bytes)):
            return made
        with self._lock:
            self._found[key] = made
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        return made

    def forget(self, key: Hashable) -> None:
        """Make the result of a key anew when it is asked for again."""
        with self._lock:
            self._found.pop(key, None)


catalogs, results = Kept(_MOST_CATALOGS), Kept(_MOST_KEPT, _MOST_KEPT_BYTES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Connected:
    """A connection, read but not opened.

    Attributes:
        version: a digest of the connection: another one after it was changed.
    """

    conn_id: str
    version: str
    hook: IcebergHook

    @property
    def place(self) -> Place:
        """Where those wait who ask its catalog or its stores."""
        return Place(f"connection {self.conn_id!r}", self.version)


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A connection's catalog.

    Attributes:
        secrets: the texts that no error may show.
    """

    conn_id: str
    version: str
    catalog: Catalog
    secrets: tuple[str, ...]
    lock: Lock

    def table(self, name: str) -> Table:
        """Load a table, whose metadata is read again only if it has changed.

        Raises:
            NotFoundError, InvalidInputError: there is no such table, or it is no name of one.
        """
        if len(name) > _MOST_NAME:
            raise InvalidInputError(f"the name of the table has {len(name)} characters, expected {_MOST_NAME} at most")
        return self._alone(lambda: Table.load(self.catalog, name))

    def listing(self, below: str = "") -> Listing:
        """Return the tables of a catalog, or of a namespace, and of the namespaces in it.

        Raises:
            NotFoundError: there is no such namespace.
        """
        return self._alone(lambda: _listing(self.catalog, below))

    def result(self, table: Table, what: Hashable, make: Callable[[], T]) -> T:
        """Return what was worked out from this state of a table."""
        metadata = table.metadata
        state = (
            table.metadata_location,
            metadata.table_uuid,
            metadata.last_updated_ms,
            metadata.last_sequence_number,
            metadata.current_snapshot_id,
        )
        return results.get((self.version, table.name, state, what), lambda: self._told(make()))

    def _told(self, made: T) -> T:
        """Return a result; if it has an error, with the text of it that a page may show."""
        problem = getattr(made, "problem", None)
        # It is a dataclass.
        return made if problem is None else replace(made, error=error_text(problem, self.secrets))  # type: ignore[type-var]

    def _alone(self, ask: Callable[[], T]) -> T:
        # Clients of catalogs are not all made for several threads; and one that hangs holds up its own pages alone.
        if not self.lock.acquire(timeout=_LOCK_TIMEOUT_S):
            raise StorageError(f"the catalog of connection {self.conn_id!r} has not answered others for a while")
        try:
            return ask()
        finally:
            self.lock.release()


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """Tables, and the namespaces that were not looked into since there are too many."""

    tables: tuple[TableId, ...]
    unread: tuple[Namespace, ...] = ()
    is_cut: bool = False


def connect(conn_id: str) -> Connected:
    """Read a connection.

    Raises:
        NotFoundError: there is no such connection, or it is none of an Iceberg catalog.
    """
    if not conn_id.isprintable():
        raise NotFoundError(f"connection {conn_id!r} does not exist")  # no database has to be asked
    hook = IcebergHook(conn_id)
    try:
        kind = BaseHook.get_connection(conn_id).conn_type
    except AirflowNotFoundException as error:
        raise NotFoundError(f"connection {conn_id!r} does not exist") from error
    if kind not in CONNECTION_TYPES:
        raise NotFoundError(f"connection {conn_id!r} is not one of an Iceberg catalog")
    config = hook.config
    told = json.dumps([conn_id, config.name, dict(config.properties)], sort_keys=True, default=str)
    return Connected(conn_id=conn_id, version=hashlib.sha256(told.encode()).hexdigest(), hook=hook)


def open_catalog(connected: Connected) -> Opened:
    """Open the catalog of a connection, or return it if it is open."""
    version, config = connected.version, connected.hook.config

    def make() -> Opened:
        secrets = tuple(hidden_texts({**config.properties, **config.pages}))
        try:
            catalog = connected.hook.catalog
        except IcebergError as error:
            # All its words are the connection's, or ours.
            error.args = (replaced(str(error), secrets),)
            raise
        catalog.remember_states()
        catalog.limit_reads(stop_if_late)
        return Opened(conn_id=connected.conn_id, version=version, catalog=catalog, secrets=secrets, lock=Lock())

    # A thread that is given up may keep the catalog's lock, and its connections, for ever.
    when_late(lambda: catalogs.forget(version))
    return catalogs.get(version, make)


def _listing(catalog: Catalog, below: str) -> Listing:
    waiting: list[Namespace] = [catalog.levels_of(below)] if below else list(catalog.list_namespaces())
    tables, looked = list[TableId](), 0
    while waiting and looked < MOST_NAMESPACES and len(tables) < MOST_TABLES:
        namespace = waiting.pop(0)
        looked += 1
        tables += catalog.list_tables(namespace)
        waiting += catalog.list_namespaces(namespace)
    return Listing(
        tables=tuple(tables[:MOST_TABLES]), unread=tuple(waiting[:MOST_TABLES]), is_cut=len(tables) > MOST_TABLES
    )
