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
    """Adds the columns of new files to the table, and commits the files in the same commit.

    Args:
        action: the action that commits the files.
        written: the schema of the files: the table's schema when it was planned on, with more or wider columns.
    """

    def __init__(self, action: SnapshotAction, written: Schema) -> None:
        # The inner action writes all files, so that the base class is not initialized.
        self._action = action
        self._written = written
        self.settings = action.settings
        self.snapshot_id = action.snapshot_id

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        return self._action.changes(metadata, parent)

    def __call__(self, metadata: TableMetadata) -> Change:
        evolution = self._evolution(metadata)
        if not evolution.updates:
            return self._action(metadata)
        evolved = apply_change(metadata, evolution, now_ms=metadata.last_updated_ms, base_location=None)
        change = self._action(evolved)
        if not change.updates:
            return change
        # Requirements are about the table as it is, without the uuid that the same commit may assign.
        asked = [
            one
            for one in change.requirements
            if not (one in evolution.requirements or (metadata.table_uuid is None and isinstance(one, AssertTableUUID)))
        ]
        return Change(updates=(*evolution.updates, *change.updates), requirements=(*evolution.requirements, *asked))

    def _evolution(self, metadata: TableMetadata) -> Change:
        """Return the change that makes the table's schema that of the files.

        Raises:
            StalePlanError: another writer changed the schema meanwhile, so that the ids in the files are of other
                columns.
        """
        result = Evolution(metadata)
        result.columns.union_by_name(self._written)
        if result.columns.schema.fields != self._written.fields:
            raise StalePlanError(
                "the schema of the table was changed while rows with new columns were written; nothing was committed, "
                "re-plan on the latest schema"
            )
        return result.change(str(self.settings.commit_uuid))

    def has_landed(self, metadata: TableMetadata) -> bool:
        return self._action.has_landed(metadata)

    def succeeded(self, metadata: TableMetadata) -> None:
        self._action.succeeded(metadata)

    def failed(self) -> None:
        self._action.failed()
