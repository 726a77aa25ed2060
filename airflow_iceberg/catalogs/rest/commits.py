"""Commits to tables of a REST server: what is sent, and whether the answer is what was asked for.

Not here: the documents (`rest.changes`), and what an answer lacks (`rest.differences`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.catalogs.metadata_file import is_gzip_asked
from airflow_iceberg.catalogs.rest import changes, differences, protocol
from airflow_iceberg.catalogs.rest.looks import LOOK, ruled_out
from airflow_iceberg.catalogs.rest.server import OnRefusal, RestServer
from airflow_iceberg.catalogs.rest.states import TableStates
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    advised,
)
from airflow_iceberg.format.metadata.requirements import is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, SetSnapshotRef, apply_change
from airflow_iceberg.format.snapshots import MAIN_BRANCH

_NO_SUCH = "NoSuch"
_NO_BRANCHES = "use a catalog that keeps branches; with Nessie a connection with type=nessie"


class TableCommits:
    """Sends changes of tables.

    Args:
        catalog: the catalog of the tables, which loads them.
    """

    def __init__(self, name: str, server: RestServer, states: TableStates, catalog: Catalog) -> None:
        self._name = name
        self._server = server
        self._states = states
        self._catalog = catalog

    def commit(self, base: TableState, change: Change) -> TableState:
        """Send a change to the server, in one try.

        Raises:
            CommitConflictError: a requirement is not met (any more), or the server can't apply the change to the
                table's newer state.
            InvalidInputError: the server can't apply it to the very state that it was made for.
        """
        if not change.updates:
            return base
        self._check_refs(base.table, change)
        begun, rest = self._with_new_branches(base, change)
        try:
            return self._send(begun, rest, planned=base)
        except (InvalidInputError, StorageError, UnsupportedError) as error:
            names = ", ".join(repr(one.name) for one in changes.new_branches(base.metadata, change))
            if names:
                text = f"branch {names} of table {base.table} was created and stays, without the rows"
                error.args = (f"{text}: {error.args[0]}", *error.args[1:])
                if error.advice is None:
                    advised(error, "remove the branch if nobody needs it")
            raise

    def _with_new_branches(self, base: TableState, change: Change) -> tuple[TableState, Change]:
        """Create the branches that a change begins and adds rows to; return the table with them, and what is left.

        Differs from Java: some servers keep no branches and add the rows to main. So a branch is seen in an answer
        before it gets rows.
        """
        for branch in tuple(changes.new_branches(base.metadata, change)):
            begun = changes.beginning(change, branch)
            try:
                base = self._send(base, begun, advice=f"no rows were sent; {_NO_BRANCHES}")
            except CommitConflictError as error:
                if branch.first and self._is_as_before(base):
                    raise self._main_first(branch.name, error) from error
                raise
            change = changes.after_beginning(change, branch)
        return base, change

    def _main_first(self, name: str, error: CommitConflictError) -> UnsupportedError:
        """Return the error for a branch that is refused though nobody has changed the table: no race is lost."""
        text = f"the server refuses branch {name!r} of a table without snapshots; no rows were sent: {error}"
        return advised(UnsupportedError(text), "write to main first")

    def _send(
        self, base: TableState, change: Change, *, planned: TableState | None = None, advice: str = LOOK
    ) -> TableState:
        """Send a change, and compare the answer with it.

        Args:
            planned: the state that the change was made for, if it is an older one: what the server cannot apply to
                `base` may be right for the table as it is now, as the time of a snapshot by a clock that is slow.
        """
        change, asked = self._prepared(base, change)
        purpose = f"commit to table {base.table}"
        # After any outcome the table is read without its tag: Iceberg Java's tags are hashes of 32 bits.
        self._states.forget(base.table)
        refusals: OnRefusal = {
            400: lambda refusal: self._not_applied(planned or base, purpose, refusal),
            404: lambda _: self._catalog._unknown_table(base.table),
            409: lambda refusal: self._conflict(base.table, refusal),
            422: lambda refusal: self._not_applied(planned or base, purpose, refusal),
        }
        with ruled_out(lambda: self._is_as_before(base)):
            body = changes.commit_body(base.table, change)
            answer = self._server.change(protocol.COMMIT_TABLE, body, purpose, refusals, table=base.table)
        state = self._states.landed(purpose, lambda: self._states.state(base.table, answer, io=base.io))

        def missing_in(found: TableState) -> list[str]:
            return self._states.landed(
                purpose, lambda: differences.of_change(found.metadata, base.metadata, change, asked)
            )

        missing = missing_in(state)
        if missing:  # an answer may be old; the table tells
            state = replace(self._look(base.table, purpose), io=base.io)
            missing = missing_in(state)
        return self.believed(state, purpose, missing, advice=advice)

    def _is_as_before(self, base: TableState) -> bool:
        """Tell whether nobody has changed a table since.

        Nessie names no file in the answer to a commit, but an address of its own, and the file when it is loaded.
        """
        now = self._catalog.load(base.table)
        if base.metadata_location and not base.metadata_location.startswith(("http://", "https://")):
            return now.metadata_location == base.metadata_location
        return differences.content(now.metadata) == differences.content(base.metadata)

    def _look(self, table: TableId, purpose: str) -> TableState:
        """Load a table after a change: whatever goes wrong then, the change may have been made."""
        self._states.forget(table)
        try:
            return self._catalog.load(table)
        except IcebergError as error:
            raise CommitUnknownError(
                f"catalog {self._name} answered that it did {purpose}, and the table cannot be loaded to see that: "
                f"{error}"
            ) from error

    def found(self, answered: TableState, purpose: str) -> TableState:
        """Return a new table as it is found under its name; as it was answered to who may not load it.

        Raises:
            CommitUnknownError: it cannot be loaded.
        """
        try:
            return self._look(answered.table, purpose)
        except CommitUnknownError as error:
            if isinstance(error.__cause__, StorageError) and error.__cause__.is_denied:
                return answered  # who may make a table may not be allowed to load it
            raise

    def if_made(self, table: TableId, uuid: str, purpose: str) -> TableState | None:
        """Return the table that has a name if it has this uuid; None for another one.

        Raises:
            CommitUnknownError: it cannot be loaded.
        """
        try:
            there = self._catalog.load(table)
        except NotFoundError:
            return None
        except IcebergError as error:
            raise CommitUnknownError(
                f"catalog {self._name} cannot {purpose}, since the name is taken, and cannot tell whether by this very "
                f"table: {error}"
            ) from error
        return there if uuid and is_same_table(there.metadata, uuid) else None

    def believed(self, state: TableState, purpose: str, missing: Sequence[str], *, advice: str = LOOK) -> TableState:
        """Return the state in an answer.

        Raises:
            CommitUnknownError: it is another one than was asked for.
        """
        if not missing:
            return state
        self._states.forget(state.table)
        raise advised(
            CommitUnknownError(
                f"catalog {self._name} answered that it did {purpose}, but the table is not what was asked for: "
                f"{'; '.join(missing)}",
                is_final=True,
            ),
            advice,
        )

    def _check_refs(self, table: TableId, change: Change) -> None:
        """Check that a server that is known to keep no branches is not asked for one.

        Raises:
            UnsupportedError: it is.
        """
        if not self._server.config.is_nessie:
            return
        names = sorted(
            {update.ref_name for update in change.updates if isinstance(update, SetSnapshotRef)} - {MAIN_BRANCH}
        )
        if names:
            raise advised(
                UnsupportedError(
                    f"catalog {self._name} cannot set {', '.join(map(repr, names))} of table {table}: its server is "
                    f"Nessie, whose Iceberg REST endpoint keeps no branches and tags of tables, and adds such rows to "
                    f"main; nothing was changed"
                ),
                _NO_BRANCHES,
            )

    def commit_tables(self, several: Sequence[tuple[TableState, Change]]) -> None:
        """Commit all changes to several tables, or none. Load the tables again to see their new states.

        The answer shows nothing, so they are looked at.

        Raises:
            CommitConflictError: a requirement of one of them is not met; no table was changed.
            UnsupportedError: the server doesn't offer it.
            CommitUnknownError: also if one of them is not as it was asked for.
        """
        for base, change in several:
            self._check_refs(base.table, change)
        prepared = [(base, *self._prepared(base, change)) for base, change in several]
        bodies = [changes.commit_body(base.table, change) for base, change, _ in prepared if change.updates]
        if not bodies:
            return
        tables = ", ".join(str(base.table) for base, *_ in prepared)
        purpose = f"commit to tables {tables}"
        for base, *_ in prepared:
            self._states.forget(base.table)

        def missing(refusal: Refusal) -> Exception:
            # Some servers say in the same words that a table is missing, and that they do not know a path.
            is_named = refusal.type.startswith(_NO_SUCH)
            if is_named or not all(self._catalog.table_exists(base.table) for base, *_ in prepared):
                return self._server.error_of(purpose, refusal)
            return self._server.lacks(purpose, protocol.COMMIT_TABLES, f"it answers {refusal}, and all tables exist")

        with ruled_out(lambda: all(self._is_as_before(base) for base, *_ in prepared)):
            self._server.change(
                protocol.COMMIT_TABLES,
                {"table-changes": bodies},
                purpose,
                {
                    404: missing,
                    409: lambda refusal: CommitConflictError(f"tables {tables} in catalog {self._name}: {refusal}"),
                },
            )
        for base, change, asked in prepared:
            if change.updates:
                found = self._look(base.table, purpose)
                lacking = self._states.landed(
                    purpose, partial(differences.of_change, found.metadata, base.metadata, change, asked)
                )
                self.believed(found, purpose, [f"{base.table}: {each}" for each in lacking])

    def _prepared(self, base: TableState, change: Change) -> tuple[Change, TableMetadata]:
        """Return the change with all its requirements, and what it makes of the base: it may be invalid."""
        updated = apply_change(
            base.metadata, change, now_ms=base.metadata.last_updated_ms, base_location=base.metadata_location
        )
        is_gzip_asked(updated.properties)
        sent = changes.with_ids(base.metadata, change, updated)
        return changes.with_requirements(base.metadata, sent) if sent.updates else sent, updated

    def _not_applied(self, base: TableState, purpose: str, refusal: Refusal) -> Exception:
        """Return the error for a change that the server rejects as invalid.

        It may be a conflict that no requirement covers, as a sequence number that is too low because another branch was
        written to. Only if the table has not changed, the change itself is invalid.
        """
        try:
            is_same = self._is_as_before(base)
        except IcebergError as error:
            return error
        if not is_same:
            return self._conflict(base.table, refusal)
        return self._server.error_of(purpose, refusal)

    def _conflict(self, table: TableId, refusal: Refusal) -> Exception:
        return self._catalog._changed_by_another(table, refusal.message or str(refusal))
