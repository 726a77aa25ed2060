"""A change of files and the schema that its rows need, in one commit.

Here: `WithNewColumns`, around any action that makes a snapshot. Not here: which columns are new
(`data.cast.new_columns`), and what is legal (`plan.alter_table`).
"""

from __future__ import annotations

from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.format.metadata.requirements import AssertTableUUID
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, apply_change
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.plan.alter_table.evolution import Evolution


class WithNewColumns(SnapshotAction):
    """Gives the table the columns of new files, and commits these on it.

    Args:
        action: what is committed.
        written: the schema of the new files: that of the table when it was planned on, with more or wider columns.
    """

    def __init__(self, action: SnapshotAction, written: Schema) -> None:
        # Nothing of its own is written, so that nothing of the base class's is needed.
        self._action = action
        self._written = written
        self.settings = action.settings
        self.snapshot_id = action.snapshot_id

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        """See `SnapshotAction.changes`."""
        return self._action.changes(metadata, parent)

    def __call__(self, metadata: TableMetadata) -> Change:
        evolution = self._evolution(metadata)
        if not evolution.updates:
            return self._action(metadata)
        evolved = apply_change(metadata, evolution, now_ms=metadata.last_updated_ms, base_location=None)
        change = self._action(evolved)
        if not change.updates:
            return change
        # What is asked of the table is asked of it as it is, without the uuid that the same commit may bring.
        asked = [
            one
            for one in change.requirements
            if not (one in evolution.requirements or (metadata.table_uuid is None and isinstance(one, AssertTableUUID)))
        ]
        return Change(updates=(*evolution.updates, *change.updates), requirements=(*evolution.requirements, *asked))

    def _evolution(self, metadata: TableMetadata) -> Change:
        """Return what makes the table's schema that of the files.

        Raises:
            StalePlanError: another writer changed the schema meanwhile: the ids in the files are not those of the
                columns any more.
        """
        result = Evolution(metadata)
        result.columns.union_by_name(self._written)
        if result.columns.schema.fields != self._written.fields:
            raise StalePlanError(
                "the schema of the table was changed while rows with new columns were written; nothing was committed, "
                "plan again on the newer table"
            )
        return result.change(str(self.settings.commit_uuid))

    def has_landed(self, metadata: TableMetadata) -> bool:
        """See `SnapshotAction.has_landed`."""
        return self._action.has_landed(metadata)

    def succeeded(self, metadata: TableMetadata) -> None:
        """See `SnapshotAction.succeeded`."""
        self._action.succeeded(metadata)

    def failed(self) -> None:
        """See `SnapshotAction.failed`."""
        self._action.failed()
