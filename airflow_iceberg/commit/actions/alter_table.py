"""A list of changes to a table as an action, applied to each newer base.

The meaning of the changes is in `plan.alter_table`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_iceberg.commit.checks import check_same_table, check_writable, is_same_table
from airflow_iceberg.commit.engine import Action
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, apply_change
from airflow_iceberg.plan.alter_table.changes import evolve


class AlterTable(Action):
    """Changes of schema, partitioning, sort order, properties and format version, in one commit.

    There is no snapshot to identify the work by: it is in the table when its result is.

    Args:
        changes: see `plan.alter_table`.
        table_uuid: the uuid of the table that was loaded; empty when it had none.
        new_uuid: a uuid for a table that has none.

    Attributes:
        changed: whether the list changed anything; False when its result was there already.
    """

    def __init__(self, changes: Sequence[Mapping[str, Any]], *, table: str, table_uuid: str, new_uuid: str) -> None:
        self._changes = changes
        self._table = table
        self._table_uuid = table_uuid
        self._new_uuid = new_uuid
        self.changed = False
        self._results: list[TableMetadata] = []

    def __call__(self, metadata: TableMetadata) -> Change:
        # Another table that has the name now is not altered.
        check_same_table(metadata, self._table_uuid)
        check_writable(metadata, self._table)
        change = evolve(metadata, self._changes, new_uuid=self._new_uuid)
        # Applied here first, so that what the specification forbids fails before anything is sent, also to REST.
        result = apply_change(metadata, change, now_ms=metadata.last_updated_ms, base_location=None)
        check_writable(result, self._table)
        self.changed = bool(change.updates)
        if self.changed:
            self._results.append(result)
        return change

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the table is as an attempt would have made it, even if others have written since."""
        if not is_same_table(metadata, self._table_uuid):
            return None
        return Outcome.COMMITTED if any(_same_shape(metadata, result) for result in self._results) else None

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether the table is as it was: a list that is applied twice may undo itself, or change another column."""
        return _same_shape(metadata, base)


def _same_shape(one: TableMetadata, other: TableMetadata) -> bool:
    return (
        one.schema().same_fields(other.schema())
        and one.spec().same_fields(other.spec())
        and one.sort_order().same_fields(other.sort_order())
        and one.format_version == other.format_version
        and one.location == other.location
        and one.properties == other.properties
    )
