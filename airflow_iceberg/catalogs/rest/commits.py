"""Commits to tables of a REST server: what is sent, and whether the answer is what was asked for.

Not here: the documents (`rest.changes`), and what an answer lacks (`rest.differences`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.catalogs.metadata_file import is_gzip_asked
from airflow_iceberg.catalogs.rest import changes, differences, protocol
from airflow_iceberg.catalogs.rest.server import RestServer
from airflow_iceberg.catalogs.rest.states import TableStates
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    NotFoundError,
    UnsupportedError,
    advised,
)
from airflow_iceberg.format.metadata.requirements import is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, SetSnapshotRef, apply_change
from airflow_iceberg.format.snapshots import MAIN_BRANCH

log = logging.getLogger(__name__)

_LOOK = "look at the table before you try again: the server may have made something else of it"
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
        begun, change = self._with_new_branches(base, change)
        return self._send(begun, change, planned=base)

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
                if branch.first and self._catalog.load(base.table).metadata_location == base.metadata_location:
                    raise self._main_first(branch.name, error) from error
                raise
            change = changes.after_beginning(change, branch)
        return base, change

    def _main_first(self, name: str, error: CommitConflictError) -> UnsupportedError:
        """Return the error for a branch that is refused though nobody has changed the table: no race is lost."""
        text = f"the server refuses branch {name!r} of a table without snapshots; no rows were sent: {error}"
        return advised(UnsupportedError(text), "write to main first")

    def _send(
        self, base: TableState, change: Change, *, planned: TableState | None = None, advice: str = _LOOK
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
        answer = self._server.change(
            protocol.COMMIT_TABLE,
            changes.commit_body(base.table, change),
            purpose,
            {
                400: lambda refusal: self._not_applied(planned or base, purpose, refusal),
                404: lambda _: self._catalog._unknown_table(base.table),
                409: lambda refusal: self._conflict(base.table, refusal),
                422: lambda refusal: self._not_applied(planned or base, purpose, refusal),
            },
            table=base.table,
        )
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

    def registered(self, answered: TableState, purpose: str) -> TableState:
        """Return a table that was registered, as it is found under its name.

        Raises:
            CommitUnknownError: it is another one than the server answered, or it cannot be loaded.
        """
        found = self._look(answered.table, purpose)
        missing = differences.of_registration(found.metadata, answered.metadata)
        return self.believed(found, purpose, missing)

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

    def believed(self, state: TableState, purpose: str, missing: Sequence[str], *, advice: str = _LOOK) -> TableState:
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

        Raises:
            CommitConflictError: a requirement of one of them is not met; no table was changed.
            UnsupportedError: the server doesn't offer it.
        """
        for base, change in several:
            self._check_refs(base.table, change)
        prepared = [(base.table, self._prepared(base, change)[0]) for base, change in several]
        bodies = [changes.commit_body(table, change) for table, change in prepared if change.updates]
        if not bodies:
            return
        tables = ", ".join(str(table) for table, _ in prepared)
        for table, _ in prepared:
            self._states.forget(table)
        self._server.change(
            protocol.COMMIT_TABLES,
            {"table-changes": bodies},
            f"commit to tables {tables}",
            {409: lambda refusal: CommitConflictError(f"tables {tables} in catalog {self._name}: {refusal}")},
        )

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
            now = self._catalog.load(base.table)
        except IcebergError as error:
            return error
        if now.metadata_location != base.metadata_location:
            return self._conflict(base.table, refusal)
        return self._server.error_of(purpose, refusal)

    def _conflict(self, table: TableId, refusal: Refusal) -> Exception:
        return self._catalog._changed_by_another(table, refusal.message or str(refusal))


@contextmanager
def looked_up(is_done: Callable[[], bool]) -> Iterator[None]:
    """Let one more look tell whether a change was made whose answer is lost.

    Raises:
        CommitUnknownError: it was not, so that it may still arrive, or nothing can be seen.
    """
    try:
        yield
    except CommitUnknownError as error:
        try:
            is_made = is_done()
        except IcebergError:
            is_made = False
        if not is_made:
            raise
        log.info("%s; it was made, as a look has shown", error)
