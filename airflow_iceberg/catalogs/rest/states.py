"""States of tables in a REST server's answers: metadata, credentials for files, and tags.

Not here: requests that change a table (`rest.catalog`), and the use of credentials (`rest.credentials`).
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakSet

from airflow_iceberg.catalogs.base import TableId, TableState
from airflow_iceberg.catalogs.http.exchange import Answer
from airflow_iceberg.catalogs.metadata_file import one_at_a_time
from airflow_iceberg.catalogs.pointer import MOST_SNAPSHOTS
from airflow_iceberg.catalogs.rest import protocol
from airflow_iceberg.catalogs.rest.credentials import (
    DELEGATION,
    DELEGATION_HEADER,
    Delegation,
    refresh_path,
    table_access,
    table_io,
)
from airflow_iceberg.catalogs.rest.doubts import doubt
from airflow_iceberg.catalogs.rest.server import RestServer
from airflow_iceberg.catalogs.rest.trust import StoreAccess
from airflow_iceberg.errors import (
    CommitUnknownError,
    IcebergError,
    StorageError,
    advised,
)
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.inventory.limited import MOST_KEPT_BYTES, TO_DO, ReadLimits, is_within, too_large
from airflow_iceberg.storage.base import FileIO

_REMEMBERED_TABLES = 16
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """A table in the server's last answer, and the tag by which the server detects a change."""

    etag: str
    state: TableState


class TableStates:
    """Reads states from answers and remembers the last of them. Thread-safe.

    Args:
        given_io: the user's own access to files; None if it depends on the properties and the server.

    Attributes:
        limits: how large the metadata in an answer may be; None where only the server's answers are limited.
    """

    def __init__(self, catalog: str, server: RestServer, *, given_io: FileIO | None) -> None:
        self._catalog = catalog
        self._server = server
        self._given_io = given_io
        self.limits: ReadLimits | None = None
        self._lock = threading.Lock()
        self._lent: WeakSet[FileIO] = WeakSet()
        self._sure: TableState | None = None
        self._remembered: OrderedDict[TableId, Remembered] = OrderedDict()

    def limit_reads(self) -> None:
        """See `Catalog.limit_reads`."""
        self.limits = ReadLimits()
        self._server.limit_tables(self.limits.answer_bytes, TO_DO)

    def state(self, table: TableId, answer: Answer, *, io: FileIO | None = None) -> TableState:
        """Return the state in an answer to a load, a creation or a commit, and remember it under its tag."""
        purpose = f"read table {table}"
        with one_at_a_time(f"table {table}", 0 if self.limits is None else len(answer.body)):
            document = self._document(table, answer, purpose)
            with self._server.understood(answer, purpose):
                location = Fields(document).opt_str("metadata-location") or ""
                delegation = Delegation.from_dict(document)
                metadata = self._metadata(document, location or None)
        io = io or self.table_io(table, metadata.location, delegation)
        state = TableState(table=table, metadata=metadata, metadata_location=location, io=io)
        is_small = self.limits is None or is_within(metadata, MOST_KEPT_BYTES)
        if (etag := answer.headers.get("ETag")) and is_small:
            self._remember(table, Remembered(etag=etag, state=state))
        else:
            self.forget(table)
        return state

    def staged(self, table: TableId, answer: Answer) -> tuple[TableMetadata, Delegation]:
        """Return what an answer says of a table that is not there yet."""

        def read(document: Mapping[str, Any]) -> tuple[TableMetadata, Delegation]:
            return self._metadata(document, None), Delegation.from_dict(document)

        return self._server.parsed(answer, f"create table {table}", read)

    def _document(self, table: TableId, answer: Answer, purpose: str) -> dict[str, Any]:
        if self.limits is not None:
            most, values = self.limits.metadata_memory - len(answer.body), self.limits.metadata_values
            try:
                metadata_json.check_size(answer.body, f"table {table}", values, most)
            except metadata_json.TooLargeError as error:
                raise too_large(str(error)) from error
        return self._server.document(answer, purpose)

    def _metadata(self, document: Mapping[str, Any], location: str | None) -> TableMetadata:
        found = Fields({"metadata": document.get("metadata")}).mapping("metadata")
        try:
            return metadata_json.from_dict(found, path=location, is_limited=self.limits is not None)
        except metadata_json.TooLargeError as error:
            raise too_large(str(error)) from error

    def landed(self, purpose: str, read: Callable[[], _T]) -> _T:
        """Read the answer to a change that was made: whatever goes wrong then doesn't undo the change.

        Not only an invalid answer: for the access to the files a token may have to be renewed.
        """
        try:
            return read()
        except IcebergError as error:
            raise CommitUnknownError(
                f"catalog {self._catalog} did {purpose}, and its answer cannot be used: {error}; load the table to see "
                "it"
            ) from error

    def table_io(self, table: TableId, location: str, delegation: Delegation) -> FileIO | None:
        """Return the FileIO of a table if the server gives it properties of its own; None for the catalog's."""
        if self._given_io is not None:
            return None

        http, config = self._server.http, self._server.config
        has_signer = config.offers(protocol.SIGN_TABLE)
        signer = config.path(protocol.SIGN_TABLE, table.namespace, table.name) if has_signer else None

        def access_of(where: str, found: Delegation) -> StoreAccess:
            given = self._server.given
            return table_access(given, config, found, where, uri=http.uri, bearer=self._server.bearer, signer=signer)

        access = access_of(location, delegation)
        if not delegation.credentials and access.properties == self._server.store_properties:
            return None
        found = table_io(location, delegation, access_of, lambda given: self._new_delegation(table, given))
        if any(access.is_theirs):
            with self._lock:
                self._lent.add(found)
        return found

    def is_lent(self, io: FileIO | None) -> bool:
        """Whether the server lends the credentials with which a table's files are reached."""
        with self._lock:
            return io is not None and io in self._lent

    def doubt(self, io: FileIO, state: TableState) -> str | None:
        """Return what `rest.doubts.doubt` does; once for each state, whose file is read for it."""
        if state is self._sure:
            return None
        found = doubt(io, state)
        self._sure = state if found is None else self._sure
        return found

    def _new_delegation(self, table: TableId, given: Mapping[str, str]) -> Delegation:
        """Request new credentials of a table's files, at the server's address for them or at the protocol's."""
        config, purpose = self._server.config, f"get credentials of table {table}"
        if path := refresh_path(given, self._server.http.uri):
            answer = self._server.read_path(path, purpose, {}, headers=self.delegation_header())
        else:
            endpoint = protocol.LOAD_CREDENTIALS if config.offers(protocol.LOAD_CREDENTIALS) else protocol.LOAD_TABLE
            answer = self._server.read(endpoint, purpose, {}, table=table, headers=self.delegation_header())
        found = self._server.parsed(answer, purpose, Delegation.from_dict)
        if (ended_ms := found.ended_ms(time.time_ns() // 1_000_000)) is not None:
            when = dt.datetime.fromtimestamp(ended_ms / 1000, dt.UTC).isoformat(timespec="seconds")
            text = f"catalog {self._catalog} cannot {purpose}: those that its server lends expired at {when} already"
            raise advised(StorageError(text), "compare the clocks of this machine and of the server")
        return found

    def delegation_header(self) -> dict[str, str]:
        name = f"header.{DELEGATION_HEADER}".lower()
        given = any(each.lower() == name for each in self._server.config.properties)
        return {} if given or self._given_io is not None else {DELEGATION_HEADER: DELEGATION}

    def recall(self, table: TableId) -> Remembered | None:
        with self._lock:
            return self._remembered.get(table)

    def _remember(self, table: TableId, found: Remembered) -> None:
        with self._lock:
            self._remembered[table] = found
            self._remembered.move_to_end(table)
            while len(self._remembered) > 1 and self._is_too_much():
                self._remembered.popitem(last=False)

    def _is_too_much(self) -> bool:
        snapshots = sum(len(one.state.metadata.snapshots) for one in self._remembered.values())
        return len(self._remembered) > _REMEMBERED_TABLES or snapshots > MOST_SNAPSHOTS

    def forget(self, table: TableId) -> None:
        with self._lock:
            self._remembered.pop(table, None)
