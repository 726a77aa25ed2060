"""The pick of a snapshot that is not in the branch: its files in a new snapshot, or the snapshot itself.

The checks are those of Iceberg Java. Not here: moves of a branch without a new snapshot (`snapshot_refs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_iceberg.commit.actions.snapshot_refs import check_expected, known_snapshot
from airflow_iceberg.commit.checks import of_this_table
from airflow_iceberg.commit.file_filters import partition_key
from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.operation_key import OPERATION_KEY, PUBLISHED_OPERATION_KEY, SOURCE_SNAPSHOT_ID
from airflow_iceberg.commit.refs.marks import OnceOnly
from airflow_iceberg.commit.runs.names import is_appended
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction, check_all_there
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, ManifestContent
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId, check_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, SetSnapshotRef
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.storage.base import FileIO

PUBLISHED_WAP_ID = "published-wap-id"
WAP_ID = "wap.id"


def _can_be_copied(source: Snapshot) -> bool:
    """Whether the files of a snapshot can become part of another one: an append, or a dynamic overwrite."""
    replaces = source.summary.get("replace-partitions", "").lower() == "true"
    return source.operation == "append" or (source.operation == "overwrite" and replaces)


def _history(metadata: TableMetadata, head: Snapshot | None) -> list[Snapshot]:
    return [] if head is None else list(metadata.ancestors(head.snapshot_id))


def _is_as_old(snapshot: Snapshot, source: Snapshot) -> bool:
    """Whether a snapshot is not younger than another one, which all snapshots that have picked that one are."""
    if source.sequence_number:
        return (snapshot.sequence_number or 0) <= source.sequence_number
    return snapshot.timestamp_ms <= source.timestamp_ms  # v1 has no sequence numbers


class CherryPick(SnapshotAction):
    """Commits the changes of a snapshot that is not in the branch.

    If it was made on the head of the branch, the branch moves to it, whatever it is. Otherwise its files become part of
    a new snapshot: those of appends, and of dynamic overwrites whose partitions no writer has changed since.

    Args:
        source_id: a staged snapshot (write-audit-publish), or one of another branch.
        once: how other tries of the same work are recognized; None outside of Airflow.
        expected_snapshot_id: the guard: where the branch must be before; None for any place.

    Attributes:
        parent_id: the head of the branch before the last attempt.
    """

    def __init__(
        self,
        io: FileIO,
        settings: CommitSettings,
        *,
        source_id: int,
        once: OnceOnly | None = None,
        expected_snapshot_id: int | None = None,
    ) -> None:
        super().__init__(io, settings)
        self._source_id = source_id
        self._once = once
        self._expected = expected_snapshot_id
        self._has_forwarded = False
        self.parent_id: int | None = None

    def __call__(self, metadata: TableMetadata) -> Change:
        check_same_table(metadata, self.settings.table_uuid)
        if self._once is not None:
            self._once.check(metadata)
        branch = self.settings.branch
        parent = metadata.ref_snapshot(branch)
        self.parent_id = None if parent is None else parent.snapshot_id
        check_expected(branch, self.parent_id, self._expected, f"cherry-pick snapshot {self._source_id}")
        source = known_snapshot(metadata, self._source_id)
        change = self._forward(metadata, source) if self.is_forward(metadata) else super().__call__(metadata)
        if self._once is None or self.made is None or not change.updates:
            return change
        mark = self._once.updates(metadata, {branch: (self.parent_id, self.made.snapshot_id)})
        return replace(change, updates=(*change.updates, *mark))

    def is_forward(self, metadata: TableMetadata) -> bool:
        """Whether the snapshot was made on the head of the branch, so that the branch moves to the snapshot itself.

        Raises:
            NotFoundError: no such snapshot or branch.
            IncompatibleChangeError: its `wap.id` was published already.
        """
        source, parent = known_snapshot(metadata, self._source_id), metadata.ref_snapshot(self.settings.branch)
        is_forward = source.parent_snapshot_id == (None if parent is None else parent.snapshot_id)
        if is_forward and _can_be_copied(source):
            self._check_not_picked(source, _history(metadata, parent))
        return is_forward

    def look(self, metadata: TableMetadata) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """Return the files that a pick would add and remove; raises what it would raise, and writes nothing."""
        parent = metadata.ref_snapshot(self.settings.branch)
        at = None if parent is None else parent.snapshot_id
        check_expected(self.settings.branch, at, self._expected, f"cherry-pick snapshot {self._source_id}")
        if self.is_forward(metadata):
            source = known_snapshot(metadata, self._source_id)
            files = {
                status: [file for content in ManifestContent for file in self._files(source, status, content)]
                for status in (EntryStatus.ADDED, EntryStatus.DELETED)
            }
            return tuple(files[EntryStatus.ADDED]), tuple(files[EntryStatus.DELETED])
        changes = self.changes(metadata, parent)
        live = list(self.writer.live_entries(self.writer.read_parent(parent))) if changes.all_there else []
        check_all_there(changes, live)
        return changes.added_files(), changes.all_there

    def _forward(self, metadata: TableMetadata, source: Snapshot) -> Change:
        self.made, self._has_forwarded = source, True
        branch = self.settings.branch
        old = metadata.refs.get(branch) or SnapshotRef(snapshot_id=source.snapshot_id, type="branch")
        update = SetSnapshotRef(ref_name=branch, ref=replace(old, snapshot_id=source.snapshot_id))
        at = AssertRefSnapshotId(ref=branch, snapshot_id=self.parent_id)
        return of_this_table(metadata, (update,), (at,), new_uuid=str(self.settings.commit_uuid))

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the table has the mark of this work, the new snapshot, or the picked one in the branch."""
        if self._once is not None:
            marked = self._once.landed(metadata)
            is_there = metadata.snapshot(self.snapshot_id) is not None
            return marked or (Outcome.COMMITTED if is_there else None)
        if self._has_forwarded and self.settings.branch in metadata.refs:
            head = metadata.ref_snapshot(self.settings.branch)
            if any(snapshot.snapshot_id == self._source_id for snapshot in _history(metadata, head)):
                return Outcome.COMMITTED
        return super().landed(metadata)

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        if self._once is not None:
            return self._once.proves_absence(metadata, base)
        return super().has_surely_not_landed(metadata, base)

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        source = known_snapshot(metadata, self._source_id)
        history = _history(metadata, parent)
        self._check_not_picked(source, history)
        added = self._files(source, EntryStatus.ADDED, ManifestContent.DATA)
        self._check_not_picked_and_expired(metadata, source, added, history)
        removed = self._files(source, EntryStatus.DELETED, ManifestContent.DATA)
        if not _can_be_copied(source) or self._files(source, EntryStatus.ADDED, ManifestContent.DELETES):
            raise IncompatibleChangeError(
                f"cannot cherry-pick snapshot {self._source_id}: it is neither an append nor a dynamic overwrite "
                f"(operation {source.operation}), nor was it made on the head of branch {self.settings.branch!r}"
            )
        if source.operation == "overwrite":
            self._check_unchanged(metadata, source, history)
        properties = {SOURCE_SNAPSHOT_ID: str(self._source_id)}
        if WAP_ID in source.summary:
            properties[PUBLISHED_WAP_ID] = source.summary[WAP_ID]
        # A snapshot that was itself picked has the key of the one that it picked.
        key = source.summary.get(OPERATION_KEY) or source.summary.get(PUBLISHED_OPERATION_KEY)
        if key is not None:
            properties[PUBLISHED_OPERATION_KEY] = key
        return FileChanges(
            added=(AddedFiles(files=added),),
            removal=FilesToRemove(files=removed),
            operation=source.operation,
            properties=properties,
            all_there=removed,
            taken_from=frozenset({self._source_id}),
        )

    def _check_not_picked_and_expired(
        self, metadata: TableMetadata, source: Snapshot, added: Sequence[DataFile], history: Sequence[Snapshot]
    ) -> None:
        """Refuse a snapshot that may have been picked by one that has expired since."""
        if not history or history[-1].parent_snapshot_id is None or _is_as_old(history[-1], source):
            return
        paths = {file.file_path for file in added}
        what = f"cannot cherry-pick snapshot {self._source_id}"
        for entry in self.writer.live_entries(self.writer.read_parent(history[0])):
            path, number = entry.data_file.file_path, entry.file_sequence_number
            if path in paths:
                raise IncompatibleChangeError(
                    f"{what}: files of it are in branch {self.settings.branch!r} already, so that there is nothing to "
                    f"pick; the snapshot that has picked it was expired"
                )
            is_younger = not number or number > (source.sequence_number or 0)
            if is_younger and not is_appended(metadata, entry):
                raise IncompatibleChangeError(
                    f"{what}: the history of branch {self.settings.branch!r} does not reach back to it (snapshots were "
                    f"expired), and file {path} may hold its rows; if they are missing, write them to the branch again"
                )

    def _files(self, source: Snapshot, status: EntryStatus, content: ManifestContent) -> tuple[DataFile, ...]:
        entries = self.changed_files.of(source, status, content)
        # New row ids are assigned: those of the source belong to rows that are in no branch.
        return tuple(
            replace(entry.data_file, first_row_id=None) if status is EntryStatus.ADDED else entry.data_file
            for entry in entries
        )

    def _check_not_picked(self, source: Snapshot, history: Sequence[Snapshot]) -> None:
        wap_id = source.summary.get(WAP_ID)
        for snapshot in history:
            summary = snapshot.summary
            if snapshot.snapshot_id == source.snapshot_id:
                why = "it is in the branch already"
            elif summary.get(SOURCE_SNAPSHOT_ID) == str(source.snapshot_id):
                why = f"snapshot {snapshot.snapshot_id} has picked it already"
            elif wap_id is not None and wap_id in (summary.get(PUBLISHED_WAP_ID), summary.get(WAP_ID)):
                why = f"snapshot {snapshot.snapshot_id} has published its wap.id {wap_id!r} already"
            else:
                continue
            raise IncompatibleChangeError(f"cannot cherry-pick snapshot {source.snapshot_id}: {why}")

    def _check_unchanged(self, metadata: TableMetadata, source: Snapshot, history: Sequence[Snapshot]) -> None:
        files = (
            *self._files(source, EntryStatus.ADDED, ManifestContent.DATA),
            *self._files(source, EntryStatus.DELETED, ManifestContent.DATA),
        )
        partitions = {partition_key(file) for file in files}
        for snapshot in history:
            if snapshot.snapshot_id == source.parent_snapshot_id:
                return
            for status in (EntryStatus.ADDED, EntryStatus.DELETED):
                for content in ManifestContent:
                    for entry in self.changed_files.of(snapshot, status, content):
                        if partition_key(entry.data_file) in partitions:
                            # Differs from Java: it takes only new data files for a change of the partition.
                            raise IncompatibleChangeError(
                                f"cannot cherry-pick snapshot {source.snapshot_id}: snapshot {snapshot.snapshot_id} "
                                f"has changed a partition since that it replaces ({entry.data_file.file_path})"
                            )
        if source.parent_snapshot_id is not None:
            raise IncompatibleChangeError(
                f"cannot cherry-pick snapshot {source.snapshot_id}: the branch does not go back to its parent "
                f"{source.parent_snapshot_id}, so that it is unknown whether its partitions were changed since"
            )
