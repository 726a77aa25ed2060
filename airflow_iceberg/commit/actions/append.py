"""Append data files: the only change that conflicts with no other writer, unless its files no longer fit the table."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_iceberg.commit.attempts.staged import check_files_fit
from airflow_iceberg.commit.earlier_epochs import EarlierEpochs
from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.runs.replaced import Replaced
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.storage.base import FileIO


class AppendFiles(SnapshotAction):
    """Adds data files to a branch, and replaces those of the task's earlier epochs.

    Args:
        written_schema: the schema of the files; if the table has changed so that they no longer fit, StalePlanError.
        earlier: finds the rows of earlier epochs, which are removed in the same commit.
    """

    def __init__(
        self,
        io: FileIO,
        files: Sequence[DataFile],
        settings: CommitSettings,
        *,
        written_schema: Schema,
        earlier: EarlierEpochs | None = None,
    ) -> None:
        super().__init__(io, settings)
        self._files = tuple(files)
        self._written_schema = written_schema
        self._earlier = earlier

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        check_files_fit(metadata, self._files, written_schema=self._written_schema, settings=self.settings)
        found = self._earlier.replaced(metadata) if self._earlier else Replaced()
        return FileChanges(
            added=(AddedFiles(files=self._files), *found.added),
            removal=found.with_removal(FilesToRemove()),
            properties=found.properties,
            all_there=found.marked.removed,
        )
