"""Rewrite files without changing a row: compaction and sorting.

Not here: which files to rewrite (`plan.compact`), and rewriting metadata alone (`rewrite_manifests`).
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_iceberg.commit.actions.overwrite import named
from airflow_iceberg.commit.attempts.staged import check_files_fit, check_row_ids
from airflow_iceberg.commit.conflicts import History
from airflow_iceberg.commit.file_filters import partition_key
from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.errors import InvalidInputError, StalePlanError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.storage.base import FileIO


class RewriteFiles(SnapshotAction):
    """Replaces data files by others with the same rows.

    Other writers may append, and change other files, meanwhile. Delete files that apply only to the removed data files
    (deletion vectors above all) are removed with them; their rows were left out when the files were read. In v3 the new
    files hold `_row_id` and `_last_updated_sequence_number` as columns: see semantics of row lineage.

    Args:
        removed: data files and delete files that were read; each must still be there, without new deletes.
        added: data files with the remaining rows.
        keep_sequence_number: whether the new files get the sequence number of the starting snapshot, so that equality
            deletes that are written meanwhile still apply; otherwise these are a conflict, too.
        starting_snapshot_id: the snapshot that was read.
    """

    def __init__(
        self,
        io: FileIO,
        settings: CommitSettings,
        *,
        removed: Sequence[DataFile],
        added: Sequence[DataFile],
        written_schema: Schema,
        starting_snapshot_id: int,
        keep_sequence_number: bool = True,
    ) -> None:
        super().__init__(io, settings)
        self._removed = tuple(removed)
        self._added = tuple(added)
        self._written_schema = written_schema
        self._start = starting_snapshot_id
        self._keep_number = keep_sequence_number
        after = sum(file.record_count for file in self._added)
        before = sum(file.record_count for file in self._removed if file.content is FileContent.DATA)
        if after > before:  # fewer, by rows that were deleted before
            raise InvalidInputError(
                f"a rewrite must not change rows: its new files hold {after} rows, those that they replace {before}"
            )

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        check_files_fit(metadata, self._added, written_schema=self._written_schema, settings=self.settings)
        history = History.since(metadata, self.settings.branch, self._start, self.changed_files)
        return FileChanges(
            added=(AddedFiles(files=self._added, sequence_number=self._sequence_number(metadata)),),
            removal=FilesToRemove(files=self._removed),
            operation="replace",
            all_there=self._removed,
            history=history,
        )

    def _sequence_number(self, metadata: TableMetadata) -> int | None:
        start = metadata.snapshot(self._start)
        if start is None:
            raise StalePlanError(f"snapshot {self._start}, which was read, is no longer in the table; re-plan")
        # v1 has no sequence numbers, and after an upgrade all older files have 0.
        return start.sequence_number if self._keep_number and metadata.format_version > 1 else None

    def check(self, removed: Sequence[ManifestEntry], changes: FileChanges, metadata: TableMetadata) -> None:
        """Check that no rows were deleted after they were read: these would come back; and that they keep their ids."""
        inputs = [entry for entry in named(self._removed, removed) if entry.data_file.content is FileContent.DATA]
        if self._added:
            planned = self.settings.format_version
            check_row_ids(self._removed, inputs, from_version=planned, to_version=metadata.format_version)
        if changes.history is not None:
            changes.history.check_no_deletes_for(inputs, equality=not self._equality_deletes_still_apply())

    def _equality_deletes_still_apply(self) -> bool:
        """Whether equality deletes that are written meanwhile apply to the new files as they did to the old ones."""
        if not self._keep_number:
            return False
        # Deletes of a partition apply only in it: not to rows that were moved out of it.
        before = {partition_key(file) for file in self._removed if file.content is FileContent.DATA}
        return {partition_key(file) for file in self._added} <= before
