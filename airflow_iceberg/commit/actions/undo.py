"""Undo: removes what earlier snapshots have added, and adds what they have removed, in one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from airflow_iceberg.commit.attempts.staged import check_files_fit, check_not_upgraded
from airflow_iceberg.commit.conflicts import History, describe
from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.runs.own_works import replaced_in
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, ManifestContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.storage.base import FileIO


class Undo(SnapshotAction):
    """Removes files, and adds files as they were before: with their sequence numbers and, in version 3, row ids.

    Other writers may append rows meanwhile. After any other commit the undo is planned again.

    Args:
        removed: data files and delete files; each must still be there.
        restored: files with their old sequence numbers.
        restored_from: the snapshots that have these files.
        vectors: new delete files for rows that lie in files with other rows.
        is_of_run: whether a snapshot is of the run that is undone.
        written_schema: the schema that the table had before the run.
        starting_snapshot_id: the snapshot that was planned on.
    """

    def __init__(
        self,
        io: FileIO,
        settings: CommitSettings,
        *,
        removed: Sequence[DataFile],
        restored: Sequence[ManifestEntry] = (),
        restored_from: Collection[int] = (),
        vectors: Sequence[DataFile] = (),
        is_of_run: Callable[[Snapshot], bool],
        written_schema: Schema,
        starting_snapshot_id: int,
    ) -> None:
        super().__init__(io, settings)
        self._removed = tuple(removed)
        self._restored = tuple(restored)
        self._restored_from = frozenset(restored_from) if restored else frozenset()
        self._vectors = tuple(vectors)
        self._is_of_run = is_of_run
        self._written_schema = written_schema
        self._start = starting_snapshot_id

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        history = History.since(metadata, self.settings.branch, self._start, self.changed_files)
        for snapshot in history.snapshots:
            # An append of a task that was cleared may replace rows that are in none of its files.
            if snapshot.operation != "append" or self._is_of_run(snapshot) or replaced_in(snapshot):
                raise StalePlanError(
                    f"{describe(snapshot)} was committed while the undo was planned; nothing was committed, re-plan on "
                    f"the latest snapshot"
                )
            self._check_not_added(snapshot)
        restored = tuple(entry.data_file for entry in self._restored)
        check_files_fit(
            metadata, (*restored, *self._vectors), written_schema=self._written_schema, settings=self.settings
        )
        return FileChanges(
            added=(*self._groups(metadata), AddedFiles(files=self._vectors)),
            removal=FilesToRemove(files=self._removed, new_vectors=self._vectors),
            # Never an append: who reads appended rows has read the restored ones before.
            operation="overwrite" if restored else "delete",
            all_there=self._removed,
            taken_from=self._restored_from,
            history=history,
        )

    def check(self, removed: Sequence[ManifestEntry], changes: FileChanges, metadata: TableMetadata) -> None:
        """Check that rows which are restored did not get row ids after the plan, in files that are removed."""
        if self._restored:
            check_not_upgraded(from_version=self.settings.format_version, to_version=metadata.format_version)

    def _check_not_added(self, snapshot: Snapshot) -> None:
        """Check that an append has not added one of the files anew: it would be removed, or would be there twice."""
        planned = {file.file_path for file in (*self._removed, *(entry.data_file for entry in self._restored))}
        for entry in self.changed_files.of(snapshot, EntryStatus.ADDED, ManifestContent.DATA):
            if entry.data_file.file_path in planned:
                raise StalePlanError(
                    f"{describe(snapshot)} has added file {entry.data_file.file_path} again while the undo was "
                    f"planned; nothing was committed, re-plan on the latest snapshot"
                )

    def _groups(self, metadata: TableMetadata) -> tuple[AddedFiles, ...]:
        by_number: dict[int | None, list[DataFile]] = {}
        for entry in self._restored:
            number = entry.sequence_number if metadata.format_version > 1 else None
            by_number.setdefault(number, []).append(entry.data_file)
        return tuple(AddedFiles(files=tuple(files), sequence_number=number) for number, files in by_number.items())
