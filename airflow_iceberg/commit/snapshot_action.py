"""What a commit changes: actions that turn the newest metadata into updates and requirements.

An action is called again on each newer base. What is fixed over all attempts (the snapshot id, the new files and
their manifests) is made once; what depends on the base (parent, sequence number, manifest list, totals, which files
go) is made anew. Here: `SnapshotAction`, what all actions with a snapshot share, and the checks of a table that every
writer needs. Not here: the actions themselves (`append`, `overwrite`, `row_delta`, `rewrite`, `rewrite_manifests`,
`expire`, `refs`, `alter`), the loop (`engine`), the writing of manifests (`snapshot_writer`), who may commit beside
whom (`conflicts`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_iceberg.commit.checks import check_same_table, of_this_table
from airflow_iceberg.commit.conflicts import ChangedFiles, History
from airflow_iceberg.commit.earlier_runs import EarlierRuns, check_not_overtaken
from airflow_iceberg.commit.operation_key import find_landed
from airflow_iceberg.commit.removals import Removal, RemovalFilter, WithData, missing
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_writer import AddedFiles, SnapshotWriter
from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.format.manifests.entries import (
    UNASSIGNED_SEQ,
    DataFile,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import AddSnapshot, AssertRefSnapshotId, Change, SetSnapshotRef
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef, summarize
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChanges:
    """What an action does to the files of one base.

    Attributes:
        operation: of the snapshot; derived from what comes and goes when None.
        properties: more entries of the summary.
        all_there: files that have to be in the table when they are removed; `removal` names them too.
        history: what was committed since the change was planned, where that matters and can be told.
    """

    added: tuple[AddedFiles, ...] = ()
    removal: Removal = field(default_factory=Removal)
    operation: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    all_there: tuple[DataFile, ...] = ()
    history: History | None = None

    def added_files(self) -> tuple[DataFile, ...]:
        """Return all new files, data and deletes."""
        return tuple(file for group in self.added for file in group.files)


class SnapshotAction(ABC):
    """A change that adds one snapshot to a branch.

    A subclass says what it changes on a base (`changes`), and may look at what is removed before it goes (`check`).
    """

    _earlier: EarlierRuns | None = None

    def __init__(self, io: FileIO, settings: CommitSettings) -> None:
        self.settings = settings
        self.snapshot_id = settings.snapshot_id
        self.writer = SnapshotWriter(io, snapshot_id=settings.snapshot_id, commit_uuid=settings.commit_uuid)
        self.changed_files = ChangedFiles(io)

    @abstractmethod
    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        """Return what to do on this base.

        Args:
            parent: head of the branch, None for a branch without snapshots.

        Raises:
            StalePlanError, IncompatibleChangeError: it can no longer be done.
        """

    def check(self, removed: Sequence[ManifestEntry], changes: FileChanges, metadata: TableMetadata) -> None:  # noqa: B027
        """Look at what goes, before anything is written that refers to it; raise what `changes` may raise."""

    def __call__(self, metadata: TableMetadata) -> Change:
        settings = self.settings
        check_same_table(metadata, settings.table_uuid)
        if settings.operation_key is not None:
            check_not_overtaken(metadata, settings.operation_key, settings.branch)
        parent = metadata.ref_snapshot(settings.branch)
        changes = self.changes(metadata, parent)
        kept, removed = self._without(self.writer.read_parent(parent), changes, metadata)
        check_all_there(changes, removed)
        self.check(removed, changes, metadata)
        if not removed and not changes.added_files():
            return Change(updates=(), requirements=())
        new = tuple(manifest for group in changes.added for manifest in self.writer.add_files(group, metadata))
        manifests = self.writer.merge((*new, *kept), metadata)
        summary = summarize(
            added=changes.added_files(),
            removed=[entry.data_file for entry in removed],
            previous=None if parent is None else parent.summary,
            operation=changes.operation,
            properties={**settings.properties, **changes.properties},
            specs={spec.spec_id: spec for spec in metadata.partition_specs},
            schema=metadata.schema(),
            partition_limit=TableProperties.of(metadata.properties).summary_partition_limit,
        )
        return self.change(self.snapshot(metadata, parent, manifests, summary), metadata, parent)

    def _without(
        self, manifests: Sequence[ManifestFile], changes: FileChanges, metadata: TableMetadata
    ) -> tuple[list[ManifestFile], list[ManifestEntry]]:
        """Return the manifests of the parent without what goes, data before deletes, and what goes."""
        concurrent = None if changes.history is None else changes.history.snapshot_ids
        data = [m for m in manifests if m.content is ManifestContent.DATA]
        deletes = [m for m in manifests if m.content is ManifestContent.DELETES]
        if changes.removal.is_empty:
            return [m for m in manifests if m.may_have_live_files], []
        filter_ = RemovalFilter(changes.removal, metadata, concurrent=concurrent)
        kept, removed = self._filtered(data, filter_, metadata)
        if deletes:
            with_data = WithData(
                removed=tuple(entry.data_file for entry in removed),
                min_sequence_number=_min_sequence_number(kept, changes.added, metadata),
            )
            filter_ = RemovalFilter(changes.removal, metadata, concurrent=concurrent, with_data=with_data)
            kept_deletes, removed_deletes = self._filtered(deletes, filter_, metadata)
            kept, removed = kept + kept_deletes, removed + removed_deletes
        return kept, removed

    def _filtered(
        self, manifests: Iterable[ManifestFile], filter_: RemovalFilter, metadata: TableMetadata
    ) -> tuple[list[ManifestFile], list[ManifestEntry]]:
        kept: list[ManifestFile] = []
        removed: list[ManifestEntry] = []
        for manifest in manifests:
            if filter_.may_concern(manifest):
                manifest, gone = self.writer.without_files(manifest, filter_, metadata)
                removed += gone
            # What only tells of files deleted by an earlier snapshot serves no reader of this one.
            if manifest.may_have_live_files or manifest.added_snapshot_id == self.snapshot_id:
                kept.append(manifest)
        return kept, removed

    def snapshot(
        self,
        metadata: TableMetadata,
        parent: Snapshot | None,
        manifests: Sequence[ManifestFile],
        summary: Mapping[str, str],
    ) -> Snapshot:
        """Write the manifest list and return the snapshot."""
        sequence_number = next_sequence_number(metadata)
        parent_id = None if parent is None else parent.snapshot_id
        location, added_rows = self.writer.write_list(
            manifests, metadata, parent_snapshot_id=parent_id, sequence_number=sequence_number
        )
        return Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence_number,
            # A clock that runs behind must not make the table's history go backwards.
            timestamp_ms=max(self.settings.now_ms(), metadata.last_updated_ms),
            manifest_list=location,
            summary=summary,
            schema_id=metadata.current_schema_id,
            first_row_id=None if added_rows is None else metadata.next_row_id or 0,
            added_rows=added_rows,
        )

    def change(self, snapshot: Snapshot, metadata: TableMetadata, parent: Snapshot | None) -> Change:
        """Return the change that adds the snapshot and moves the branch to it."""
        branch = self.settings.branch
        old = metadata.refs.get(branch)
        ref = (
            replace(old, snapshot_id=snapshot.snapshot_id)
            if old is not None
            else SnapshotRef(snapshot_id=snapshot.snapshot_id, type="branch")
        )
        updates = (AddSnapshot(snapshot=snapshot), SetSnapshotRef(ref_name=branch, ref=ref))
        at = AssertRefSnapshotId(ref=branch, snapshot_id=None if parent is None else parent.snapshot_id)
        return of_this_table(metadata, updates, (at,), new_uuid=str(self.settings.commit_uuid))

    def has_landed(self, metadata: TableMetadata) -> bool:
        """Whether the snapshot, or one of another process with the same key, is in the table."""
        if metadata.snapshot(self.snapshot_id) is not None:
            return True
        key, branch = self.settings.operation_key, self.settings.branch
        if key is None or (branch != MAIN_BRANCH and branch not in metadata.refs):
            return False
        return find_landed(metadata, key, branch) is not None

    def succeeded(self, metadata: TableMetadata) -> None:
        """Remove what lost attempts wrote, and say what was replaced of the task's earlier runs."""
        if self._earlier is not None and metadata.snapshot(self.snapshot_id) is not None:
            self._earlier.log_replaced(metadata.location, self.settings.branch)
        self.writer.remove_unused(metadata.snapshot(self.snapshot_id))

    def failed(self) -> None:
        """Remove what was written."""
        self.writer.remove_unused(None)


def next_sequence_number(metadata: TableMetadata) -> int:
    """Return the sequence number of the next commit; v1 has none: 0 everywhere."""
    return metadata.last_sequence_number + 1 if metadata.format_version > 1 else 0


def _min_sequence_number(kept: Iterable[ManifestFile], added: Iterable[AddedFiles], metadata: TableMetadata) -> int:
    """Return the lowest data sequence number of the data that the new snapshot has."""
    numbers = [m.min_sequence_number for m in kept if m.may_have_live_files]
    numbers += [group.sequence_number for group in added if group.files and group.sequence_number is not None]
    return min((n for n in numbers if n != UNASSIGNED_SEQ), default=next_sequence_number(metadata))


def check_all_there(changes: FileChanges, removed: Iterable[ManifestEntry]) -> None:
    """Check that what had to be removed was there.

    Raises:
        StalePlanError: another writer has removed it; says who, where the history tells.
    """
    for file in missing(changes.all_there, removed):
        who = changes.history.who_removed(file) if changes.history is not None else "another writer"
        what = "data file" if file.content is FileContent.DATA else "delete file"
        raise StalePlanError(
            f"{what} {file.file_path}, which this commit replaces, is not in the table any more: removed by {who}; "
            f"nothing was committed, plan again on the newer table"
        )
