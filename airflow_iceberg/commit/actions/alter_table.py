"""A list of changes to a table as an action, applied to each newer base, and made once.

The meaning of the changes is in `plan.alter_table`, the marks of lists that were made in `plan.alter_table.applied`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_iceberg.commit.checks import check_writable
from airflow_iceberg.commit.engine import Action
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.requirements import check_same_table, is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, apply_change
from airflow_iceberg.plan.alter_table.applied import Application, Kind
from airflow_iceberg.plan.alter_table.changes import Repetition, evolve, may_be_made, on_repetition, was_never_made

log = logging.getLogger(__name__)

_KINDS = {Repetition.HARMLESS: Kind.MADE, Repetition.RECOGNIZED: Kind.AGAIN}


class AlterTable(Action):
    """Changes of schema, partitioning, sort order, properties and format version, in one commit.

    There is no snapshot to identify the work by: it is in the table when its mark is.

    Args:
        changes: see `plan.alter_table`.
        table_uuid: the uuid of the table that was loaded; empty when it had none.
        work: twelve digits that stand for the work of a task; None outside of Airflow.
        new_uuid: a uuid for a table that has none; it also identifies this call.
        before_commit: is told the table and what it becomes, before anything is sent.
    """

    def __init__(
        self,
        changes: Sequence[Mapping[str, Any]],
        *,
        table: str,
        table_uuid: str,
        work: str | None,
        new_uuid: str,
        before_commit: Callable[[TableMetadata, TableMetadata], None] | None = None,
    ) -> None:
        self._changes = changes
        self._table = table
        self._table_uuid = table_uuid
        self._new_uuid = new_uuid
        self._application = Application(changes=changes, work=work, call=new_uuid, new_uuid=new_uuid)
        self._kinds: list[Kind] = []
        self._before_commit = before_commit

    def __call__(self, metadata: TableMetadata) -> Change:
        # Another table that has the name now is not altered.
        check_same_table(metadata, self._table_uuid)
        check_writable(metadata, self._table)
        change = self._evolved(metadata)
        # Applied here first, so that what the specification forbids fails before anything is sent, also to REST.
        result = _applied(metadata, change)
        check_writable(result, self._table)
        if self._before_commit is not None:
            self._before_commit(metadata, result)
        return self._with_mark(metadata, change, result) if change.updates else change

    def _evolved(self, metadata: TableMetadata) -> Change:
        marks = self._application.marks(metadata)
        if any(mark.kind is Kind.ONCE for mark in marks):
            log.info(
                "%s: this list of changes was made before, and changes its own result when it is made again; nothing "
                "was changed, split it to make its changes once more",
                self._table,
            )
            return Change()
        try:
            return evolve(metadata, self._changes, new_uuid=self._new_uuid)
        except (NotFoundError, AlreadyExistsError) as error:
            if not any(mark.kind is Kind.AGAIN for mark in marks):
                raise
            log.info("%s: this list of changes was made before; nothing was changed: %s", self._table, error)
            return Change()

    def _with_mark(self, metadata: TableMetadata, change: Change, result: TableMetadata) -> Change:
        """Return the change with the mark of the list.

        Raises:
            InvalidInputError: nothing tells whether the list was made, and made again it would lose or exchange values.
        """
        repetition = on_repetition(result, self._changes)
        if repetition is Repetition.UNDOES and not self._application.is_told(metadata):
            self._check_never_made(metadata)
        kind = _KINDS.get(repetition, Kind.ONCE)
        self._kinds.append(kind)
        return Change(
            updates=(*change.updates, *self._application.updates(metadata, kind)), requirements=change.requirements
        )

    def _check_never_made(self, metadata: TableMetadata) -> None:
        # A task's list has a mark, unless all marks were removed: then the state of the table is asked.
        is_new_work = self._application.work is not None and not self._application.has_marks(metadata)
        if was_never_made(metadata, self._changes) or (is_new_work and not may_be_made(metadata, self._changes)):
            return
        advice = "pass operation_key, or " if self._application.work is None else ""
        raise InvalidInputError(
            f"table {self._table}: this list of changes drops or exchanges what it has made itself when it is made "
            f"again, and neither a mark nor the table's schemas tell whether it was made before; nothing was "
            f"changed: {advice}make the changes in two calls (first what is dropped or renamed)"
        )

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the list was made: the table has its mark."""
        mark = self._application.own_mark(metadata) if is_same_table(metadata, self._table_uuid) else None
        if mark is None:
            return None
        return Outcome.COMMITTED if mark.call == self._new_uuid else Outcome.FOUND

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether the table lacks a mark that would be there."""
        return all(self._application.proves_absence(metadata, base, kind) for kind in set(self._kinds))


def _applied(metadata: TableMetadata, change: Change) -> TableMetadata:
    return apply_change(metadata, change, now_ms=metadata.last_updated_ms, base_location=None)
