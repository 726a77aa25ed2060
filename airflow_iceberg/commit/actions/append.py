"""Appending data files: the one change that conflicts with nothing but a table that its files no longer fit."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_iceberg.commit.checks import check_files_fit
from airflow_iceberg.commit.earlier_runs import EarlierRuns
from airflow_iceberg.commit.removals import Removal
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.storage.base import FileIO


class AppendFiles(SnapshotAction):
    """Adds data files to a branch; replaces those of earlier runs of the same task where it is asked to.

    Args:
        written_schema: the schema that the files were written for; a table that has changed so that they no longer fit
            is answered by StalePlanError.
        earlier: finds the files of the operation's earlier runs, which are removed in the same commit.
    """

    def __init__(
        self,
        io: FileIO,
        files: Sequence[DataFile],
        settings: CommitSettings,
        *,
        written_schema: Schema,
        earlier: EarlierRuns | None = None,
    ) -> None:
        super().__init__(io, settings)
        self._files = tuple(files)
        self._written_schema = written_schema
        self._earlier = earlier

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        """See `SnapshotAction.changes`."""
        check_files_fit(metadata, self._files, written_schema=self._written_schema)
        to_remove = self._earlier.files_to_replace(metadata) if self._earlier else frozenset()
        return FileChanges(added=(AddedFiles(files=self._files),), removal=Removal(paths=to_remove))
