"""Row-level changes: delete files and deletion vectors with new rows, in one snapshot (merge-on-read).

Not here: rewriting files (`overwrite`), writing delete files (`data`), and compacting them (`rewrite_files`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from airflow_iceberg.commit.attempts.staged import check_files_fit, check_had_row_ids, check_row_ids
from airflow_iceberg.commit.conflicts import RULES, History, Isolation, Operation
from airflow_iceberg.commit.file_filters import RowFilter
from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.expressions.tree import ALWAYS_TRUE, Expression
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.storage.base import FileIO


class RowDelta(SnapshotAction):
    """Adds delete files and data files, and removes data files that lose all their rows, in one snapshot.

    A data file has one deletion vector: an older one, and position deletes that the new one contains, are in
    `removed_deletes`.

    Args:
        added_deletes: deletion vectors in v3, position delete files in v2; equality deletes in either.
        added_data: new rows (update, merge).
        removed_deletes: delete files that `added_deletes` replace; each must still be there.
        removed_data: data files that are removed with all their rows; each must still be there.
        updated: the data files whose rows are in `added_data` with new values, as they were read.
        referenced: paths of the data files whose positions `added_deletes` name.
        conflict_filter: the rows of other writers that the change would have had to see; all by default.
        command: "delete", or "update" for updates and merges, whose new rows other writers may have changed.
        starting_snapshot_id: the snapshot that was planned on.
    """

    def __init__(
        self,
        io: FileIO,
        settings: CommitSettings,
        *,
        added_deletes: Sequence[DataFile] = (),
        added_data: Sequence[DataFile] = (),
        removed_deletes: Sequence[DataFile] = (),
        removed_data: Sequence[DataFile] = (),
        updated: Sequence[DataFile] = (),
        referenced: Collection[str] = (),
        conflict_filter: Expression = ALWAYS_TRUE,
        written_schema: Schema,
        starting_snapshot_id: int | None,
        isolation: Isolation = "serializable",
        command: Literal["delete", "update"] = "delete",
    ) -> None:
        super().__init__(io, settings)
        self._deletes = tuple(added_deletes)
        self._data = tuple(added_data)
        self._removed = (*removed_data, *removed_deletes)
        self._updated = tuple(updated)
        self._vectors = tuple(file for file in added_deletes if file.is_deletion_vector)
        self._referenced = frozenset(referenced)
        self._conflict_filter = conflict_filter
        self._written_schema = written_schema
        self._start = starting_snapshot_id
        self._isolation = isolation
        self._command = command

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        check_files_fit(
            metadata, (*self._data, *self._deletes), written_schema=self._written_schema, settings=self.settings
        )
        if self._updated:
            self._check_row_ids(metadata, parent)
        history = History.since(metadata, self.settings.branch, self._start, self.changed_files)
        self._validate(history, metadata)
        return FileChanges(
            added=(AddedFiles(files=self._data), AddedFiles(files=self._deletes)),
            removal=FilesToRemove(files=self._removed, new_vectors=self._vectors),
            all_there=self._removed,
            history=history,
        )

    def _check_row_ids(self, metadata: TableMetadata, parent: Snapshot | None) -> None:
        """Check that the updated rows keep their row ids: those that they did not have when they were read are lost."""
        is_same = (None if parent is None else parent.snapshot_id) == self._start
        planned, to_version = self.settings.format_version, metadata.format_version
        if is_same:
            check_row_ids(self._updated, (), from_version=planned, to_version=to_version)
        else:
            check_had_row_ids(self._updated, from_version=planned, to_version=to_version)

    def _validate(self, history: History, metadata: TableMetadata) -> None:
        is_delete = self._command == "delete"
        operation = Operation.MERGE_ON_READ_DELETE if is_delete else Operation.MERGE_ON_READ_UPDATE
        checks = RULES[operation][self._isolation]
        # A file that was removed with all its rows needs no deletes; a vector for it would refer to no file.
        with_vectors = {file.referenced_data_file for file in self._vectors if file.referenced_data_file is not None}
        history.check_files_there(self._referenced - with_vectors, may_be_deleted=is_delete)
        history.check_files_there(with_vectors)
        history.check_not_added_again(self._referenced | with_vectors)
        history.check_no_new_vectors(with_vectors)
        history.check_rows(checks, RowFilter(self._conflict_filter, metadata))
