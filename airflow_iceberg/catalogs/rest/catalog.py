"""`RestCatalog`: tables of a server with the Iceberg REST protocol.

Here: the request of each method, and the meaning of its error responses. Not here: sending to the server
(`rest.server`), its documents (`rest.protocol`) and lists (`rest.listings`), the states in its answers
(`rest.states`), and credentials for files (`rest.credentials`).

Unlike the other catalogs this one does not write metadata files: it sends updates and requirements, and the server
applies them to the table's current state. The metadata in its answer is authoritative.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from airflow_iceberg.catalogs.base import Catalog, Namespace, TableId, TableState, join_levels
from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.catalogs.http.settings import without_login
from airflow_iceberg.catalogs.metadata_file import is_gzip_asked
from airflow_iceberg.catalogs.owners import names_of_folders, owner_among
from airflow_iceberg.catalogs.rest import protocol
from airflow_iceberg.catalogs.rest.commits import TableCommits
from airflow_iceberg.catalogs.rest.creations import TableCreations
from airflow_iceberg.catalogs.rest.differences import is_value
from airflow_iceberg.catalogs.rest.doubts import refuse_shared
from airflow_iceberg.catalogs.rest.listings import Listings
from airflow_iceberg.catalogs.rest.looks import check_made, confirmed, looked_up
from airflow_iceberg.catalogs.rest.server import RestServer
from airflow_iceberg.catalogs.rest.states import TableStates
from airflow_iceberg.errors import (
    AlreadyExistsError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.trust import is_location

_T = TypeVar("_T")
_NO_SUCH = "NoSuch"
_NOT_EMPTY = "NamespaceNotEmptyException"
_FEW_PAGES = 2


class RestCatalog(Catalog):
    """Tables on a server.

    Args:
        properties: `uri`, `warehouse`, `prefix`; `credential`, `token`, `oauth2-server-uri`, `scope`, `audience`,
            `resource`; `header.*`, `ssl.*`, `rest.*`; and those of the storage. The server may add and override some.
        io: access to files; by default that of the properties, with the server's.
    """

    def __init__(self, name: str, properties: Mapping[str, str], *, io: FileIO | None = None) -> None:
        self._given_io = io
        self._own_io: FileIO | None = io
        self.name = name
        self.properties: Mapping[str, str] = dict(properties)
        self._server = RestServer(name, self.properties)
        self._states = TableStates(name, self._server, given_io=io)
        self._listings = Listings(self._server, self._unknown_namespace)
        self._commits = TableCommits(name, self._server, self._states, self)
        self._creations = TableCreations(self._server, self._states, self._commits, self)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"RestCatalog(name={self.name!r}, uri={without_login(self.properties.get('uri', ''))!r})"

    @property
    def io(self) -> FileIO:  # type: ignore[override]  # made on first use, with the server's properties
        """Access to files, unless the server gives a table credentials of its own (`TableState.io`)."""
        with self._lock:
            if self._own_io is None:
                self._own_io = load_file_io(self._server.store_properties)
            return self._own_io

    def limit_reads(self, check: Callable[[], None] | None = None) -> None:
        self._states.limit_reads()

    def _owner_of(self, state: TableState, *, is_home: bool, drops: bool = False) -> TableId | None:
        """Return the table whose name leads to a location; that each table has its own is the server's matter."""
        if is_home:
            return None
        location = state.metadata.location
        if is_location(self.properties.get("warehouse", "")):
            return owner_among(self, self._names_of(location), state.table, location)
        # The warehouse is a name: nobody but the server knows where the folders of namespaces begin.
        names = names_of_folders(self, location, self.unique_end)
        for name in names:
            try:
                if owner := owner_among(self, (name,), state.table, location):
                    return owner
            except InvalidInputError:
                continue  # the server takes no such name, say one of two levels
            except IcebergError:  # a guess: some servers refuse to answer for what they do not know
                if state.table not in names:
                    raise
        return None

    def _is_lent(self, state: TableState) -> bool:
        return self._states.is_lent(state.io)

    def check_held(self, namespace: Namespace, *name: str) -> None:
        if not "".join(namespace).isalnum():  # no request for levels that can have no separator in them
            self._server.config.check_levels(namespace, self.name)

    def doubt(self, io: FileIO, state: TableState) -> str | None:
        return self._states.doubt(io, state)

    # -- tables ----------------------------------------------------------------------------------------------------

    def load(self, table: str | TableId) -> TableState:
        """Return the table's current state; the server sends it only if it has changed since the last time."""
        table = self.id_of(table)
        known = self._states.recall(table)
        headers = {**self._states.delegation_header(), **({"If-None-Match": known.etag} if known else {})}
        answer = self._server.read(
            protocol.LOAD_TABLE,
            f"load table {table}",
            {404: lambda refusal: self._missing(table, refusal)},
            table=table,
            headers=headers,
        )
        if answer.status == 304:
            if known is None:
                raise StorageError(
                    f"catalog {self.name} answers that table {table} has not changed, without being asked"
                )
            return known.state
        return self._states.state(table, answer)

    def kind_of_name(self, table: TableId) -> str | None:
        return self._listings.kind_of_name(table)

    def table_exists(self, table: str | TableId) -> bool:
        table = self.id_of(table)
        return self._is_there(table)

    def _is_there(self, table: TableId, *, is_sure: bool = False) -> bool:
        asked = protocol.TABLE_EXISTS, protocol.LOAD_TABLE
        return self._server.exists(*asked, f"look for table {table}", is_sure=is_sure, table=table)

    def _seen(self, purpose: str, is_done: Callable[[], bool], lacks: str) -> AbstractContextManager[None]:
        """Look after a change whose answer shows nothing; see `confirmed`."""
        return confirmed(self._told(purpose), is_done, lacks)

    def _told(self, purpose: str) -> str:
        return f"catalog {self.name} answered that it did {purpose}"

    def create(self, table: str | TableId, metadata: TableMetadata) -> TableState:
        """Create a table; one with snapshots is staged first and then committed.

        Raises:
            CommitUnknownError: also if another table than was asked for is found under its name, or none.
        """
        table = self.id_of(table)
        is_gzip_asked(metadata.properties)
        return self._creations.create(table, metadata)

    def commit(self, base: TableState, change: Change) -> TableState:
        """Send a change to the server, in one try.

        Raises:
            CommitConflictError: a requirement is not met (any more), or the server can't apply the change to the
                table's newer state.
            InvalidInputError: the server can't apply it to the very state that it was made for.
            UnsupportedError: the server keeps no branches.
            CommitUnknownError: also if the answer is not what was asked for.
        """
        return self._commits.commit(base, change)

    def commit_tables(self, changes: Sequence[tuple[TableState, Change]]) -> None:
        """Commit all changes to several tables, or none. Load the tables again to see their new states.

        Raises:
            CommitConflictError: a requirement of one of them is not met; no table was changed.
            UnsupportedError: the server doesn't offer it.
        """
        self._commits.commit_tables(changes)

    def drop_table(self, table: str | TableId, *, purge: bool = False) -> None:
        """Remove a table; with `purge` the server is asked to delete its files.

        Raises:
            InvalidInputError: another table surely is in the place of the one to purge; nothing was dropped.
            CommitUnknownError: also if the server has dropped nothing, and says that it has.
        """
        table = self.id_of(table)
        if purge:
            refuse_shared(self, table)
        self._states.forget(table)
        purpose = f"drop table {table}"
        with self._seen(purpose, lambda: not self._is_there(table, is_sure=True), "a table of this name is there"):
            self._server.change(
                protocol.DROP_TABLE,
                None,
                purpose,
                {404: lambda _: self._no_table(table)},
                table=table,
                query={"purgeRequested": "true" if purge else "false"},
            )

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        table, to = self.id_of(table), self.id_of(to)
        self._states.forget(table)
        self._states.forget(to)
        purpose = f"rename table {table} to {to}"
        self._server.way(protocol.RENAME_TABLE, purpose)
        self._creations.require_namespace(to.namespace)
        self.check_new_name(to)

        def missing(refusal: Refusal) -> Exception:
            if not refusal.type.startswith(_NO_SUCH) and self._is_there(table):
                return self._server.lacks(purpose, protocol.RENAME_TABLE, f"it answers {refusal}, and {table} is there")
            return self._no_table(table)

        def is_done() -> bool:
            return self._is_there(to) and not self._is_there(table, is_sure=True)

        with self._seen(purpose, is_done, f"there is no table {to}, or one of the old name, too"):
            self._server.change(
                protocol.RENAME_TABLE,
                {"source": protocol.identifier(table), "destination": protocol.identifier(to)},
                purpose,
                {404: missing, 409: lambda _: self._existing_target(table, to)},
            )

    def register_table(self, table: str | TableId, metadata_location: str, *, overwrite: bool = False) -> TableState:
        """Bring an existing table into the catalog by its metadata file.

        Args:
            overwrite: let a table of that name, if there is one, point to the file, where the server can do that.
        Raises:
            CommitUnknownError: also if another table than that of the file is found under its name, or none.
        """
        return self._creations.register(self.id_of(table), metadata_location, overwrite=overwrite)

    def default_location(self, table: str | TableId) -> str:
        """Return nothing: the server chooses the location of a new table."""
        self.id_of(table)
        return ""

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        namespace = self.levels_of(namespace)
        return self._found_in(namespace, tuple(sorted(set(self._listings.tables(namespace)))))

    def some_names(self, above: Namespace) -> Iterable[str]:
        if above:
            return (table.name for table in self._listings.tables(above, most_pages=_FEW_PAGES))
        return (space[-1] for space in self._listings.namespaces((), most_pages=_FEW_PAGES))

    def _found_in(self, namespace: Namespace, found: tuple[_T, ...]) -> tuple[_T, ...]:
        """Return a listing; some servers list nothing in a namespace that does not exist."""
        if namespace and not found and not self.namespace_exists(namespace):
            raise self._unknown_namespace(namespace)
        return found

    # -- namespaces ------------------------------------------------------------------------------------------------

    def _create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> bool:
        purpose = f"create namespace {join_levels(namespace)}"
        body = {"namespace": list(namespace), "properties": properties}
        try:
            with looked_up(lambda: _has(self.load_namespace_properties(namespace), properties)):
                self._server.change(
                    protocol.CREATE_NAMESPACE, body, purpose, {409: lambda refusal: AlreadyExistsError(str(refusal))}
                )
        except AlreadyExistsError:
            return False
        # What a server makes of the properties is its affair.
        check_made(self._told(purpose), lambda: self._has_namespace(namespace), "it is not there")
        return True

    def drop_namespace(self, namespace: str | Namespace) -> None:
        namespace = self.levels_of(namespace)
        name = join_levels(namespace)
        purpose = f"drop namespace {name}"

        def not_empty(refusal: Refusal) -> Exception:
            if refusal.status == 409 or refusal.type == _NOT_EMPTY:
                if (held := self._listings.some_content(namespace)) is not None:
                    return self._not_empty(namespace, *held)
                return InvalidInputError(f"namespace {name} is not empty, drop what it holds first: {refusal.message}")
            return self._server.error_of(purpose, refusal)

        def missing(_: Refusal) -> Exception:
            # Some servers list a namespace only because of those below it.
            inside = self._listings.namespaces(namespace)
            if not inside:
                return self._unknown_namespace(namespace)
            return InvalidInputError(f"namespace {name} is not empty, drop {join_levels(inside[0])} first")

        refusals = {400: not_empty, 404: missing, 409: not_empty}
        with self._seen(purpose, lambda: not self._has_namespace(namespace, is_sure=True), "it is there"):
            self._server.change(protocol.DROP_NAMESPACE, None, purpose, refusals, namespace=namespace)

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        above = self.levels_of(parent) if parent else ()
        return self._found_in(above, self._listings.namespaces(above))

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        return self._has_namespace(self.levels_of(namespace))

    def _has_namespace(self, namespace: Namespace, *, is_sure: bool = False) -> bool:
        asked = protocol.NAMESPACE_EXISTS, protocol.LOAD_NAMESPACE
        purpose = f"look for namespace {join_levels(namespace)}"
        return self._server.exists(*asked, purpose, is_sure=is_sure, namespace=namespace)

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        namespace = self.levels_of(namespace)
        purpose = f"load namespace {join_levels(namespace)}"
        answer = self._server.read(
            protocol.LOAD_NAMESPACE,
            purpose,
            {404: lambda _: self._unknown_namespace(namespace)},
            namespace=namespace,
        )
        return self._server.parsed(answer, purpose, lambda found: protocol.config_texts(found, "properties"))

    def _update_namespace(self, namespace: Namespace, new: dict[str, str], old: frozenset[str]) -> None:
        def is_done() -> bool:
            found = self.load_namespace_properties(namespace)
            return _has(found, new) and old.isdisjoint(found)

        purpose = f"change properties of namespace {join_levels(namespace)}"
        with self._seen(purpose, is_done, "they are not what was asked for"):
            self._server.change(
                protocol.UPDATE_NAMESPACE,
                {"removals": sorted(old), "updates": new},
                purpose,
                {404: lambda _: self._unknown_namespace(namespace)},
                namespace=namespace,
            )

    # -- errors ----------------------------------------------------------------------------------------------------

    def _missing(self, table: TableId, refusal: Refusal) -> NotFoundError:
        """Return the error for a missing table, or for its namespace if the server says so."""
        if refusal.type == protocol.NO_NAMESPACE:
            return self._unknown_namespace(table.namespace)
        return self._no_table(table)


def _has(found: Mapping[str, str], asked: Mapping[str, str]) -> bool:
    return all(is_value(found.get(name), value) for name, value in asked.items())
