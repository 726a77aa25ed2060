"""Creations of tables on a REST server: in one request, or staged and then committed with its snapshots.

Not here: the documents (`rest.changes`), and what an answer lacks (`rest.differences`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow_iceberg.catalogs.base import Catalog, Namespace, TableId, TableState
from airflow_iceberg.catalogs.http.exchange import Answer
from airflow_iceberg.catalogs.rest import differences, protocol
from airflow_iceberg.catalogs.rest.changes import commit_body, create_body, creation, is_plain
from airflow_iceberg.catalogs.rest.commits import TableCommits
from airflow_iceberg.catalogs.rest.looks import ruled_out
from airflow_iceberg.catalogs.rest.server import RestServer
from airflow_iceberg.catalogs.rest.states import TableStates
from airflow_iceberg.errors import AlreadyExistsError, StorageError, UnsupportedError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata


class TableCreations:
    """Creates tables.

    Args:
        catalog: the catalog of the tables, which looks for them.
    """

    def __init__(self, server: RestServer, states: TableStates, commits: TableCommits, catalog: Catalog) -> None:
        self._server = server
        self._states = states
        self._commits = commits
        self._catalog = catalog

    def create(self, table: TableId, metadata: TableMetadata) -> TableState:
        """Create a table; one with snapshots is staged first and then committed."""
        # Differs from Java: checked first, since a server (SeaweedFS) may answer the creation of an existing table with
        # success.
        try:
            is_there = self._catalog.table_exists(table)
        except StorageError as error:
            if not error.is_denied:
                raise
            is_there = False  # who may create may not be allowed to look: the server decides
        if is_there:
            raise self._catalog._existing_table(table)
        self.require_namespace(table.namespace)
        self._catalog.check_new_name(table)
        with ruled_out(lambda: not self._catalog.table_exists(table)):
            return self._create_plain(table, metadata) if is_plain(metadata) else self._create_staged(table, metadata)

    def require_namespace(self, namespace: Namespace) -> None:
        """Reject a missing namespace, in which some servers create tables; if it is unreadable, the server decides."""
        with suppress(StorageError, UnsupportedError):
            if not self._catalog.namespace_exists(namespace):
                raise self._catalog._unknown_namespace(namespace)

    def _create_plain(self, table: TableId, metadata: TableMetadata) -> TableState:
        answer = self._create(table, create_body(table.name, metadata))
        purpose = f"create table {table}"
        state = self._states.landed(purpose, lambda: self._states.state(table, answer))
        if differences.is_another(state.metadata, metadata):
            self._states.forget(table)
            raise self._catalog._existing_table(table)
        missing = self._states.landed(purpose, lambda: differences.of_creation(state.metadata, metadata))
        return self._commits.believed(state, purpose, missing)

    def _create(self, table: TableId, body: Mapping[str, Any]) -> Answer:
        return self._server.change(
            protocol.CREATE_TABLE,
            body,
            f"create table {table}",
            {
                404: lambda _: self._catalog._unknown_namespace(table.namespace),
                409: lambda _: self._catalog._existing_table(table),
            },
            namespace=table.namespace,
            headers=self._states.delegation_header(),
        )

    def _create_staged(self, table: TableId, metadata: TableMetadata) -> TableState:
        answer = self._create(table, create_body(table.name, metadata, stage=True))
        staged, delegation = self._states.staged(table, answer)
        uuid = staged.table_uuid or ""
        change = creation(metadata, table_uuid=uuid, location=metadata.location or staged.location)
        purpose = f"create table {table}"
        # Before the table is there: what fails later is taken for no failure of the creation.
        io = self._states.table_io(table, staged.location, delegation)
        refusals = {
            404: lambda found: self._server.error_of(purpose, found),
            409: lambda _: self._catalog._existing_table(table),
        }
        try:
            answer = self._server.change(
                protocol.COMMIT_TABLE, commit_body(table, change), purpose, refusals, table=table
            )
        except AlreadyExistsError:
            # Perhaps a proxy has repeated the request, and it was refused because of itself.
            there = self._commits.if_made(table, uuid, purpose)
            if there is None:
                raise
            return replace(there, io=io)
        state = self._states.landed(purpose, lambda: self._states.state(table, answer, io=io))
        missing = self._states.landed(purpose, lambda: differences.of_creation(state.metadata, metadata))
        return self._commits.believed(state, purpose, missing)
