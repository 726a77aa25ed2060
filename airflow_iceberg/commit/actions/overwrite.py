"""Overwrite: rows that a predicate selects, the partitions of the new rows, or files that were rewritten.

Here: `OverwriteFiles` (by filter, copy-on-write, deletes of whole files) and `ReplacePartitions` (dynamic overwrite).
Not here: delete files (`row_delta`) and changes that keep all rows (`rewrite_files`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from airflow_iceberg.commit.attempts.staged import check_files_fit, check_row_ids
from airflow_iceberg.commit.conflicts import RULES, Check, ConflictFilter, History, Isolation, Operation
from airflow_iceberg.commit.earlier_epochs import EarlierEpochs
from airflow_iceberg.commit.file_filters import PartitionFilter, RowFilter
from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.runs.replaced import Replaced
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.expressions.tree import ALWAYS_FALSE, ALWAYS_TRUE, Expression
from airflow_iceberg.format.manifests.entries import DataFile, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.transforms.transform import VoidTransform
from airflow_iceberg.storage.base import FileIO


class OverwriteFiles(SnapshotAction):
    """Removes files by predicate, by name or both, and adds others, in one snapshot.

    By predicate: all files with only selected rows are removed, from the table as it is when the commit lands. A file
    that holds selected rows and may hold others is an error, unless it is named. By name: files whose rows were read
    and rewritten (copy-on-write); each must still be there, without new deletes.

    A delete of whole files by metadata alone is `row_filter` with `isolation=None`: files are selected again on each
    base, so that there is nothing to validate.

    Args:
        added: new data files.
        removed: data files whose remaining rows are in `added`.
        row_filter: a predicate bound to `written_schema`; each file that it covers is removed.
        conflict_filter: the rows of other writers that the change would have had to see; by default `row_filter`, and
            without one all rows.
        starting_snapshot_id: the snapshot that was planned on; None when the branch had none.
        isolation: "serializable" or "snapshot" as in `conflicts.RULES`; None validates only the named files.
        earlier: finds the rows of the task's earlier epochs, which are deleted in the same commit.
        settled: the paths of those of `removed` of which `added` has no rows of earlier epochs.
    """

    def __init__(
        self,
        io: FileIO,
        settings: CommitSettings,
        *,
        added: Sequence[DataFile] = (),
        removed: Sequence[DataFile] = (),
        row_filter: Expression = ALWAYS_FALSE,
        conflict_filter: Expression | None = None,
        written_schema: Schema,
        starting_snapshot_id: int | None,
        isolation: Isolation | None = "serializable",
        earlier: EarlierEpochs | None = None,
        settled: Collection[str] = (),
    ) -> None:
        super().__init__(io, settings)
        self._settled = frozenset(settled)
        self._added = tuple(added)
        self._removed = tuple(removed)
        self._row_filter = row_filter
        is_by_filter = row_filter != ALWAYS_FALSE
        self._conflict_filter = conflict_filter or (row_filter if is_by_filter else ALWAYS_TRUE)
        self._written_schema = written_schema
        self._start = starting_snapshot_id
        self._isolation = isolation
        self._earlier = earlier

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        check_files_fit(metadata, self._added, written_schema=self._written_schema, settings=self.settings)
        history = self._history(metadata)
        if history is not None and self._isolation is not None:
            self._validate(history, metadata, self._isolation)
        found = self._replaced(metadata)
        return FileChanges(
            added=(AddedFiles(files=self._added), *found.added),
            removal=found.with_removal(FilesToRemove(files=self._removed, row_filter=self._row_filter)),
            properties=found.properties,
            all_there=(*self._removed, *found.marked.removed),
            history=history,
        )

    def _replaced(self, metadata: TableMetadata) -> Replaced:
        """Return what goes with the rows of earlier epochs, but for files that are removed in any case."""
        if self._earlier is None:
            return Replaced()
        named = {file.file_path for file in self._removed} - self._settled
        selected = RowFilter(self._row_filter, metadata)
        return self._earlier.replaced(
            metadata,
            removes=lambda file: file.file_path in self._settled or selected.covers(file),
            rewrites=lambda file: file.file_path in named,
        )

    def _history(self, metadata: TableMetadata) -> History | None:
        try:
            return History.since(metadata, self.settings.branch, self._start, self.changed_files)
        except StalePlanError:
            if self._isolation is None and not self._removed:
                return None
            raise

    def _validate(self, history: History, metadata: TableMetadata, isolation: Isolation) -> None:
        is_by_filter = self._row_filter != ALWAYS_FALSE
        checks = RULES[Operation.OVERWRITE if is_by_filter else Operation.COPY_ON_WRITE][isolation]
        checked = checks if is_by_filter else checks & {Check.ADDED_DATA}
        history.check_rows(checked, RowFilter(self._conflict_filter, metadata))

    def check(self, removed: Sequence[ManifestEntry], changes: FileChanges, metadata: TableMetadata) -> None:
        """Check that the named files got no deletes and no row ids after their rows were read: these would be lost."""
        rewritten = named(self._removed, removed)
        if self._removed and self._added:
            planned = self.settings.format_version
            check_row_ids(self._removed, rewritten, from_version=planned, to_version=metadata.format_version)
        if self._removed and changes.history is not None:
            changes.history.check_no_deletes_for(rewritten)


class ReplacePartitions(SnapshotAction):
    """Adds files and removes all others in their partitions (dynamic overwrite).

    As in Iceberg Java a partition is a tuple of the table's current spec: files of older specs are kept, even where
    they hold rows of the same days. Without partitions all files are removed, whatever their spec.

    Args:
        files: new data files, all of the current spec; without any nothing is changed.
        starting_snapshot_id, isolation, earlier: see `OverwriteFiles`.
    """

    def __init__(
        self,
        io: FileIO,
        settings: CommitSettings,
        *,
        files: Sequence[DataFile],
        written_schema: Schema,
        starting_snapshot_id: int | None,
        isolation: Isolation | None = "serializable",
        earlier: EarlierEpochs | None = None,
    ) -> None:
        super().__init__(io, settings)
        self._files = tuple(files)
        self._written_schema = written_schema
        self._start = starting_snapshot_id
        self._isolation = isolation
        self._earlier = earlier

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        check_files_fit(metadata, self._files, written_schema=self._written_schema, settings=self.settings)
        self._check_spec(metadata)
        whole = bool(self._files) and _is_unpartitioned(metadata.spec())
        history = None
        if self._isolation is not None:
            history = History.since(metadata, self.settings.branch, self._start, self.changed_files)
            replaced: ConflictFilter = (
                RowFilter(ALWAYS_TRUE, metadata) if whole else PartitionFilter(self._files, metadata)
            )
            history.check_rows(RULES[Operation.REPLACE_PARTITIONS][self._isolation], replaced)
        found = Replaced()
        if self._earlier is not None:
            in_partitions = PartitionFilter(self._files, metadata)
            found = self._earlier.replaced(metadata, removes=lambda file: whole or in_partitions.concerns(file))
        removal = FilesToRemove(
            partitions=() if whole else self._files, row_filter=ALWAYS_TRUE if whole else ALWAYS_FALSE
        )
        return FileChanges(
            added=(AddedFiles(files=self._files), *found.added),
            removal=found.with_removal(removal),
            # As Iceberg Java calls it even when there was nothing to replace.
            operation="overwrite",
            properties={"replace-partitions": "true", **found.properties},
            all_there=found.marked.removed,
            history=history,
        )

    def _check_spec(self, metadata: TableMetadata) -> None:
        for file in self._files:
            if file.spec_id != metadata.default_spec_id:
                raise StalePlanError(
                    f"file {file.file_path} was written with partition spec {file.spec_id}, the table has "
                    f"{metadata.default_spec_id} now, by which it would replace other files; re-plan"
                )


def _is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether no field parts anything: v1 keeps a dropped field as void."""
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def named(files: Iterable[DataFile], removed: Iterable[ManifestEntry]) -> Iterable[ManifestEntry]:
    """Return the entries of the files that were named."""
    identities = {file.identity for file in files}
    return [entry for entry in removed if entry.data_file.identity in identities]
