"""New tables on a REST server: created in one request, staged and then committed with their snapshots, or registered.

A new table is loaded once before it is told: some servers answer rightly, and keep another table or none. Not here: the
documents (`rest.changes`), and what an answer lacks (`rest.differences`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow_iceberg.catalogs.base import Catalog, Namespace, TableId, TableState
from airflow_iceberg.catalogs.http.exchange import Answer
from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.catalogs.rest import differences, protocol
from airflow_iceberg.catalogs.rest.changes import commit_body, create_body, creation, is_plain
from airflow_iceberg.catalogs.rest.commits import TableCommits
from airflow_iceberg.catalogs.rest.looks import looked_up, ruled_out
from airflow_iceberg.catalogs.rest.server import RestServer
from airflow_iceberg.catalogs.rest.states import TableStates
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IcebergError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    advised,
)
from airflow_iceberg.format.metadata.requirements import is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata


class TableCreations:
    """Creates and registers tables.

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
        return self._kept(state, metadata, purpose)

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
        found = self._kept(state, metadata, purpose)
        return found if found.io is not None else replace(found, io=io)

    def _kept(self, answered: TableState, asked: TableMetadata, purpose: str) -> TableState:
        """Return a new table as it is found under its name.

        Raises:
            CommitUnknownError: the answer, or the table that is found, is another one than was asked for; or none is
                found.
        """
        missing = self._states.landed(purpose, lambda: differences.of_creation(answered.metadata, asked))
        self._commits.believed(answered, purpose, missing)
        # Differs from Java: it believes the answer.
        found = self._commits.found(answered, purpose)
        uuids = found.metadata.table_uuid, answered.metadata.table_uuid
        if not is_same_table(found.metadata, answered.metadata.table_uuid):
            # Not final: who needs a table of this name, whoever has made it, has one.
            text = f"did {purpose}, but the table that is there has the uuid {uuids[0]}, and the answer {uuids[1]}"
            error = CommitUnknownError(f"catalog {self._catalog.name} answered that it {text}")
            raise advised(error, "another writer may have made it at the same moment: look at the table")
        missing = self._states.landed(purpose, lambda: differences.of_kept(found, answered, asked))
        return self._commits.believed(found, purpose, missing)

    def register(self, table: TableId, location: str, *, overwrite: bool) -> TableState:
        """Bring a table into the catalog by its metadata file; with `overwrite` also in the place of another one."""
        purpose = f"register table {table}"
        body: dict[str, Any] = {"name": table.name, "metadata-location": location}
        if overwrite:
            body["overwrite"] = True
        self._catalog.check_new_name(table)
        self._states.forget(table)
        self.require_namespace(table.namespace)
        before = self._location_of(table) if overwrite else None

        def missing(refusal: Refusal) -> Exception:
            is_gone = refusal.type == protocol.NO_NAMESPACE
            with suppress(StorageError, UnsupportedError):  # who may register may not be allowed to look
                is_gone = is_gone or not self._catalog.namespace_exists(table.namespace)
            if is_gone:
                return self._catalog._unknown_namespace(table.namespace)
            return NotFoundError(f"cannot {purpose} from {location}: {refusal}")

        answers: list[Answer] = []
        with looked_up(lambda: self._catalog.load(table).metadata_location == location):
            answers.append(
                self._server.change(
                    protocol.REGISTER_TABLE,
                    body,
                    purpose,
                    {404: missing, 409: lambda _: self._catalog._existing_table(table)},
                    namespace=table.namespace,
                    headers=self._states.delegation_header(),
                )
            )
        if not answers:
            return self._catalog.load(table)
        answered = self._states.landed(purpose, lambda: self._states.state(table, answers[0]))
        # Some servers lend nothing with this answer, and some (SeaweedFS) keep another table than they answer.
        found = self._commits.found(answered, purpose)
        lacks = self._states.landed(purpose, lambda: differences.of_registration(found, answered, location, before))
        return self._commits.believed(found, purpose, lacks)

    def _location_of(self, table: TableId) -> str | None:
        """Return the metadata file of the table that has a name; None if there is none, or none that can be loaded: a
        registration in its place may be what mends it.
        """
        try:
            return self._catalog.load(table).metadata_location
        except IcebergError:
            return None
