"""Rewriting files without changing a row: compaction, sorting, putting delete files together.

Here: `RewriteFiles`. Not here: what to rewrite (`plan.compact`), and rewriting metadata alone (`rewrite_manifests`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_iceberg.commit.actions.overwrite import named
from airflow_iceberg.commit.checks import check_files_fit
from airflow_iceberg.commit.conflicts import History
from airflow_iceberg.commit.removals import Removal
from airflow_iceberg.commit.scopes import partition_key
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
    """Replaces files by others with the same rows.

    Appends, and changes of other files, may have been committed meanwhile. Delete files that apply to nothing but the
    removed data files (deletion vectors above all) go with them; their rows were left out when the files were read. In
    v3 the new files hold `_row_id` and `_last_updated_sequence_number` as columns: see semantics of row lineage.

    Args:
        removed: data files and delete files that were read and go; each has to be there still, without new deletes.
        added: files with the rows that are left. Delete files among them need a sequence number in
            `delete_sequence_numbers`: the highest of those that they replace.
        keep_sequence_number: give the new data files the sequence number of the starting snapshot, so that equality
            deletes written meanwhile still apply; else these are a conflict, too.
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
        delete_sequence_numbers: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(io, settings)
        self._removed = tuple(removed)
        self._added = tuple(file for file in added if file.content is FileContent.DATA)
        self._added_deletes = tuple(file for file in added if file.content is not FileContent.DATA)
        self._delete_numbers = delete_sequence_numbers or {}
        self._written_schema = written_schema
        self._start = starting_snapshot_id
        self._keep_number = keep_sequence_number
        self._check_rows()

    def _check_rows(self) -> None:
        """Rows can only become fewer, by those that were deleted already."""
        after = sum(file.record_count for file in self._added)
        before = sum(file.record_count for file in self._removed if file.content is FileContent.DATA)
        if after > before:
            raise InvalidInputError(
                f"a rewrite must not change rows: its new files hold {after} rows, those that they replace {before}"
            )
        for file in self._added_deletes:
            if file.file_path not in self._delete_numbers:
                raise InvalidInputError(
                    f"missing sequence number of rewritten delete file {file.file_path}: it is the highest one of the "
                    f"files that it replaces"
                )

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        """See `SnapshotAction.changes`."""
        check_files_fit(metadata, (*self._added, *self._added_deletes), written_schema=self._written_schema)
        history = History.since(metadata, self.settings.branch, self._start, self.changed_files)
        return FileChanges(
            added=(
                AddedFiles(files=self._added, sequence_number=self._sequence_number(metadata)),
                *self._deletes_by_number(),
            ),
            removal=Removal(files=self._removed),
            operation="replace",
            all_there=self._removed,
            history=history,
        )

    def _sequence_number(self, metadata: TableMetadata) -> int | None:
        start = metadata.snapshot(self._start)
        if start is None:
            raise StalePlanError(f"snapshot {self._start}, which was read, is not in the table any more; plan again")
        # v1 has no sequence numbers, and after an upgrade all that was there has 0.
        return start.sequence_number if self._keep_number and metadata.format_version > 1 else None

    def _deletes_by_number(self) -> list[AddedFiles]:
        groups: dict[int, list[DataFile]] = {}
        for file in self._added_deletes:
            groups.setdefault(self._delete_numbers[file.file_path], []).append(file)
        return [AddedFiles(files=tuple(files), sequence_number=number) for number, files in sorted(groups.items())]

    def check(self, removed: Sequence[ManifestEntry], changes: FileChanges, metadata: TableMetadata) -> None:
        """Rows that were deleted since they were read would come back."""
        inputs = [entry for entry in named(self._removed, removed) if entry.data_file.content is FileContent.DATA]
        if changes.history is not None:
            changes.history.check_no_deletes_for(inputs, equality=not self._equality_deletes_still_apply())

    def _equality_deletes_still_apply(self) -> bool:
        """Whether equality deletes that came meanwhile reach the new files as they reached the old ones."""
        if not self._keep_number:
            return False
        # Deletes of a partition apply within it: rows that move out of it would escape them.
        before = {partition_key(file) for file in self._removed if file.content is FileContent.DATA}
        return {partition_key(file) for file in self._added} <= before
