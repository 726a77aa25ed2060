"""A list of changes to a table as an action: made of whatever the table is when its turn comes.

What the changes mean is in `plan.alter_table`; the loop that lands them in `commit.engine`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_iceberg.commit.checks import check_same_table, check_writable, is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, apply_change
from airflow_iceberg.plan.alter_table.changes import evolve


class AlterTable:
    """Changes of schema, partitioning, sort order, properties and format version, in one commit.

    There is no snapshot to know the work by, so the work is in the table when its result is.

    Args:
        changes: see `plan.alter_table`.
        table_uuid: of the table that was asked for; empty when it had none.
        new_uuid: for a table that has none; the caller's dice.

    Attributes:
        changed: whether the list changed anything; False when its result stood already.
    """

    def __init__(self, changes: Sequence[Mapping[str, Any]], *, table: str, table_uuid: str, new_uuid: str) -> None:
        self._changes = changes
        self._table = table
        self._table_uuid = table_uuid
        self._new_uuid = new_uuid
        self.changed = False
        self._results: list[TableMetadata] = []

    def __call__(self, metadata: TableMetadata) -> Change:
        # Another table that came to the name is not altered, and least of all after the first one may have been.
        check_same_table(metadata, self._table_uuid)
        check_writable(metadata, self._table)
        change = evolve(metadata, self._changes, new_uuid=self._new_uuid)
        # Tried out: what the specification refuses is known before anything is sent, to a REST server too.
        result = apply_change(metadata, change, now_ms=metadata.last_updated_ms, base_location=None)
        check_writable(result, self._table)
        self.changed = bool(change.updates)
        if self.changed:
            self._results.append(result)
        return change

    def has_landed(self, metadata: TableMetadata) -> bool:
        """Whether the table is what an attempt would have made of it, whoever else has written since."""
        if not is_same_table(metadata, self._table_uuid):
            return False
        return any(_same_shape(metadata, result) for result in self._results)

    def succeeded(self, metadata: TableMetadata) -> None:
        """Nothing was written besides the catalog's own metadata file."""

    def failed(self) -> None:
        """Nothing was written besides the catalog's own metadata file."""


def _same_shape(one: TableMetadata, other: TableMetadata) -> bool:
    return (
        one.schema().same_fields(other.schema())
        and one.spec().same_fields(other.spec())
        and one.sort_order().same_fields(other.sort_order())
        and one.format_version == other.format_version
        and one.location == other.location
        and one.properties == other.properties
    )
