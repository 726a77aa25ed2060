"""Applies what a branch has staged to another branch that has moved on: the same files in one new snapshot.

A cherry-pick of all snapshots that the branch has more, as one: no reader sees a part of them. Rows that were written
and replaced again on the branch are not applied. Not here: the move of a branch forward to the staged snapshot itself,
which needs no new one (`snapshot_refs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from airflow_iceberg.commit.attempts.staged import check_files_fit, check_row_ids
from airflow_iceberg.commit.conflicts import ChangedFiles, History
from airflow_iceberg.commit.file_filters import partition_key
from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.operation_key import (
    AUDITED_SNAPSHOT_ID,
    EXISTING_FILES,
    PUBLISHED_OPERATION_KEY,
    SOURCE_SNAPSHOT_ID,
    OperationKey,
    keys_of,
)
from airflow_iceberg.commit.runs.consumed import Consumed, consumed_by
from airflow_iceberg.commit.runs.rows import may_carry_rows
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.commit.watermarks import advanced
from airflow_iceberg.commit.write_result import INPUTS, Outcome
from airflow_iceberg.errors import IncompatibleChangeError, NotFoundError
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, ManifestContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, Update
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.storage.base import FileIO

_REPLACE_PARTITIONS = "replace-partitions"


@dataclass(frozen=True, kw_only=True, slots=True)
class Staged:
    """What a branch has more than another one.

    Attributes:
        base: the newest snapshot that both have; None if the other one had none when the branch was made.
        snapshots: the snapshots of the branch after it, oldest first, without those whose changes were applied before.
    """

    base: int | None
    snapshots: tuple[Snapshot, ...]


def staged_since(metadata: TableMetadata, snapshot_id: int, history: Sequence[Snapshot]) -> Staged | None:
    """Return what a snapshot has more than a branch; None if the histories do not reach back to where they part.

    Args:
        history: the snapshots of the branch, newest first.
    """
    known = {snapshot.snapshot_id for snapshot in history}
    applied = {snapshot.summary.get(AUDITED_SNAPSHOT_ID) for snapshot in history}
    own: list[Snapshot] = []
    oldest: Snapshot | None = None
    is_new = True
    for snapshot in metadata.ancestors(snapshot_id):
        if snapshot.snapshot_id in known:
            return Staged(base=snapshot.snapshot_id, snapshots=tuple(reversed(own)))
        is_new = is_new and str(snapshot.snapshot_id) not in applied
        own += [snapshot] if is_new else []
        oldest = snapshot
    is_whole = oldest is not None and oldest.parent_snapshot_id is None
    if is_whole and (not history or history[-1].parent_snapshot_id is None):
        return Staged(base=None, snapshots=tuple(reversed(own)))
    return None


def check_not_taken_back(metadata: TableMetadata, snapshots: Iterable[Snapshot], audited_id: int) -> None:
    """Check that no snapshot which is to be published was main's head before: main was rolled back since.

    Raises:
        IncompatibleChangeError: one was, and its changes would come back.
    """
    heads = {snapshot_id for _, snapshot_id in metadata.snapshot_log}
    for snapshot in snapshots:
        if snapshot.snapshot_id in heads:
            raise IncompatibleChangeError(
                f"cannot publish audited snapshot {audited_id}: main of table {metadata.location} was at snapshot "
                f"{snapshot.snapshot_id} of its history, and was rolled back since, so that changes which were taken "
                f"back would come back; write the rows again on main as it is; or, if they are to come back, move main "
                f"to the audited snapshot with set_current_snapshot"
            )


def find_published(metadata: TableMetadata, audited_id: int, branch: str = MAIN_BRANCH) -> Snapshot | None:
    """Return the snapshot by which an audited one was published: itself, or the one that has its changes.

    That is also one with the changes of a later snapshot of the audited branch.
    """
    ref = metadata.refs.get(branch)
    history = list(metadata.ancestors(None if ref is None else ref.snapshot_id))
    known = {snapshot.snapshot_id for snapshot in history}
    for snapshot in history:
        applied = whole_number(snapshot.summary.get(AUDITED_SNAPSHOT_ID, ""))
        if audited_id in (snapshot.snapshot_id, applied):
            return snapshot
        for older in metadata.ancestors(applied):
            if older.snapshot_id in known:
                break
            if older.snapshot_id == audited_id:
                return snapshot
    return None


def missing_change(metadata: TableMetadata, audited_id: int, files: ChangedFiles) -> str | None:
    """Return a file that an audited snapshot has added or removed, and those that say that they publish it have not.

    Summaries may be forged. None if there is none, or if the snapshots that tell may have expired.
    """
    history = list(metadata.ancestors(metadata.current_snapshot_id))
    known: set[int | None] = {snapshot.snapshot_id for snapshot in history}
    staged = list(takewhile(lambda one: one.snapshot_id not in known, metadata.ancestors(audited_id)))
    is_whole = not history or history[-1].parent_snapshot_id is None
    if not staged or staged[-1].parent_snapshot_id not in (known | {None} if is_whole else known):
        return None
    added: set[str] = set()
    removed: set[str] = set()
    for snapshot in reversed(staged):
        gone = _paths(files, snapshot, EntryStatus.DELETED)
        removed |= gone - added
        added = (added - gone) | _paths(files, snapshot, EntryStatus.ADDED)
    ids = {snapshot.snapshot_id for snapshot in staged}
    for snapshot in history:
        applied = whole_number(snapshot.summary.get(AUDITED_SNAPSHOT_ID, ""))
        told = takewhile(lambda one: one.snapshot_id not in known, metadata.ancestors(applied))
        if any(one.snapshot_id in ids for one in told):
            added -= _paths(files, snapshot, EntryStatus.ADDED)
            removed -= _paths(files, snapshot, EntryStatus.DELETED)
    return min(added | removed, default=None)


def _paths(files: ChangedFiles, snapshot: Snapshot, status: EntryStatus) -> set[str]:
    return {entry.data_file.file_path for entry in files.of(snapshot, status, ManifestContent.DATA)}


class Reapply(SnapshotAction):
    """Commits the net change of the snapshots that lead to an audited one, on a branch that has moved on.

    Without `is_audited_again` only what a cherry-pick allows: appends, and dynamic overwrites whose partitions no
    writer has changed since. With it, other overwrites, too, if the files that they replace are still there and no rows
    of them were deleted: the result is audited before it is published.

    Args:
        audited_id: the audited snapshot.
        branch: the branch that has moved on; `settings.branch` is the one that gets the snapshot.
    """

    def __init__(
        self, io: FileIO, settings: CommitSettings, *, audited_id: int, is_audited_again: bool = False
    ) -> None:
        super().__init__(io, settings)
        self._audited_id = audited_id
        self._again = is_audited_again
        self._consumed: tuple[OperationKey, tuple[Consumed, ...]] | None = None
        # What `changes` has found on the base of this attempt, for `check`.
        self._staged: tuple[Snapshot, ...] = ()

    def __call__(self, metadata: TableMetadata) -> Change:
        change = super().__call__(metadata)
        if not change.updates:
            return change
        return replace(change, updates=(*self._moved_watermarks(metadata), *change.updates))

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        if metadata.snapshot(self._audited_id) is None:
            raise NotFoundError(f"table {metadata.location} has no snapshot {self._audited_id}; it may have expired")
        history = list(metadata.ancestors(None if parent is None else parent.snapshot_id))
        staged = staged_since(metadata, self._audited_id, history)
        if staged is None:
            raise self._refused(
                f"branch {self.settings.branch!r} does not reach back to where the audited branch began (snapshots "
                f"were expired, or it was rolled back), so that it is unknown what was changed since"
            )
        check_not_taken_back(metadata, staged.snapshots, self._audited_id)
        self._check_not_picked(staged, history)
        self._check_applied(metadata, staged)
        self._staged = staged.snapshots
        added, removed = self._net(staged)
        for snapshot in staged.snapshots:
            # Columns may have become required, and specs may have been removed, while the rows waited.
            schemas = (one for one in metadata.schemas if one.schema_id == snapshot.schema_id)
            check_files_fit(metadata, added, written_schema=next(schemas, metadata.schema()), settings=self.settings)
        self._check_not_applied(metadata, parent, added, history, staged)
        since = History.since(metadata, self.settings.branch, staged.base, self.changed_files)
        replaces = bool(removed) or any(_REPLACE_PARTITIONS in one.summary for one in staged.snapshots)
        if replaces and not self._again:
            self._check_partitions(staged, since)
        return FileChanges(
            added=(AddedFiles(files=added),),
            removal=FilesToRemove(files=removed),
            operation="overwrite" if removed else "append",
            properties=self._properties(metadata, staged),
            all_there=removed,
            taken_from=frozenset({self._audited_id}),
            history=since,
        )

    def check(self, removed: Sequence[ManifestEntry], changes: FileChanges, metadata: TableMetadata) -> None:
        """Check that no rows of the replaced files were deleted since, which would come back, and that the rows which
        were carried into new files have the row ids with which they were read.
        """
        if changes.history is not None and removed:
            changes.history.check_no_deletes_for(removed)
        # Before version 3 there are no row ids, and nothing is read for them.
        for snapshot in self._staged if removed and metadata.format_version >= 3 else ():
            if self._carries_rows(snapshot):
                # Snapshots of version 3 alone have first row ids.
                version = 2 if snapshot.first_row_id is None else 3
                read = self._replaced_by(snapshot, metadata)
                check_row_ids(read, removed, from_version=version, to_version=metadata.format_version)

    def _replaced_by(self, snapshot: Snapshot, metadata: TableMetadata) -> Iterable[DataFile]:
        """Yield the files that a snapshot has replaced, with their row ids: entries of deleted files may lack these."""
        gone = {file.file_path for file in self._data(snapshot, EntryStatus.DELETED)}
        # It is there: the history was followed through it.
        before = self.writer.read_parent(metadata.snapshot(snapshot.parent_snapshot_id or 0))
        return (e.data_file for e in self.writer.live_entries(before) if e.data_file.file_path in gone)

    def _carries_rows(self, snapshot: Snapshot) -> bool:
        """Whether the new files of a snapshot may hold rows of files that it replaces; not in a dynamic overwrite."""
        if snapshot.summary.get(_REPLACE_PARTITIONS) == "true" or not any(self._data(snapshot, EntryStatus.DELETED)):
            return False
        return may_carry_rows(snapshot, (file.file_path for file in self._data(snapshot, EntryStatus.ADDED)))

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the changes are in the branch, by whatever process.

        The key of the task does not tell: it may have published an earlier snapshot.
        """
        if metadata.snapshot(self.snapshot_id) is not None:
            return Outcome.COMMITTED
        if self.settings.branch != MAIN_BRANCH and self.settings.branch not in metadata.refs:
            return None
        published = find_published(metadata, self._audited_id, self.settings.branch)
        return None if published is None else Outcome.FOUND

    def _net(self, staged: Staged) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """Return the files that the staged snapshots have added and removed in the end.

        Raises:
            IncompatibleChangeError: one of them has added or removed delete files.
        """
        added: dict[str, DataFile] = {}
        removed: dict[str, DataFile] = {}
        for snapshot in staged.snapshots:
            if any(True for status in _CHANGED for _ in self._entries(snapshot, status, ManifestContent.DELETES)):
                raise self._refused(
                    f"snapshot {snapshot.snapshot_id} has delete files (merge-on-read), which belong to the state that "
                    f"the branch began with"
                )
            for file in self._data(snapshot, EntryStatus.DELETED):
                if added.pop(file.file_path, None) is None:
                    removed[file.file_path] = file
            for file in self._data(snapshot, EntryStatus.ADDED):
                # New row ids are assigned: those of the staged rows are in no other branch.
                added[file.file_path] = replace(file, first_row_id=None)
        return tuple(added.values()), tuple(removed.values())

    def _entries(self, snapshot: Snapshot, status: EntryStatus, content: ManifestContent) -> Iterable[DataFile]:
        return (entry.data_file for entry in self.changed_files.of(snapshot, status, content))

    def _data(self, snapshot: Snapshot, status: EntryStatus) -> Iterable[DataFile]:
        return self._entries(snapshot, status, ManifestContent.DATA)

    def _check_not_picked(self, staged: Staged, history: Sequence[Snapshot]) -> None:
        own = {str(snapshot.snapshot_id) for snapshot in staged.snapshots}
        for snapshot in history:
            if snapshot.summary.get(SOURCE_SNAPSHOT_ID) in own:
                raise self._refused(f"snapshot {snapshot.snapshot_id} has picked a part of it already")

    def _check_applied(self, metadata: TableMetadata, staged: Staged) -> None:
        """Check that the changes which are left out, as a summary says that they were applied before, are in main."""
        applied = staged.snapshots[0].parent_snapshot_id if staged.snapshots else None
        if applied is None or applied == staged.base:
            return
        missing = missing_change(metadata, applied, self.changed_files)
        if missing is not None:
            raise self._refused(
                f"a snapshot of main says ({AUDITED_SNAPSHOT_ID}) that it has the changes of snapshot {applied}, and "
                f"does not have that of file {missing}: its summary is forged"
            )

    def _check_not_applied(
        self,
        metadata: TableMetadata,
        parent: Snapshot | None,
        added: Sequence[DataFile],
        history: Sequence[Snapshot],
        staged: Staged,
    ) -> None:
        """Check the files themselves, where an applied snapshot has expired: the audited one may have led to it.

        Also where files were added that were there already: another task may have added the same to main.
        """
        applied = (whole_number(snapshot.summary.get(AUDITED_SNAPSHOT_ID, "")) for snapshot in history)
        is_known = all(each is None or metadata.snapshot(each) is not None for each in applied)
        if is_known and not any(EXISTING_FILES in one.summary for one in staged.snapshots):
            return
        if self.writer.are_live(added, self.writer.read_parent(parent)):
            raise self._refused("files of it are in the branch already")

    def _check_partitions(self, staged: Staged, since: History) -> None:
        """Check that each overwrite is a dynamic one, of partitions that no writer has changed since."""
        partitions = set()
        for snapshot in staged.snapshots:
            removes = list(self._data(snapshot, EntryStatus.DELETED))
            if removes and snapshot.summary.get(_REPLACE_PARTITIONS) != "true":
                raise self._refused(
                    f"snapshot {snapshot.snapshot_id} ({snapshot.operation}) has removed files, and is no dynamic "
                    f"overwrite of partitions"
                )
            if snapshot.summary.get(_REPLACE_PARTITIONS) == "true":
                added = self._data(snapshot, EntryStatus.ADDED)
                partitions |= {partition_key(file) for file in (*removes, *added)}
        for snapshot in since.snapshots:
            if AUDITED_SNAPSHOT_ID in snapshot.summary and self._is_own(since.metadata, snapshot):
                continue
            for status in _CHANGED:
                for content in ManifestContent:
                    for file in self._entries(snapshot, status, content):
                        if partition_key(file) in partitions:
                            raise self._refused(
                                f"snapshot {snapshot.snapshot_id} has changed a partition since that it replaces "
                                f"({file.file_path})"
                            )

    def _is_own(self, metadata: TableMetadata, snapshot: Snapshot) -> bool:
        """Whether a snapshot has applied changes that the audited one has, too."""
        applied = snapshot.summary[AUDITED_SNAPSHOT_ID]
        return any(str(older.snapshot_id) == applied for older in metadata.ancestors(self._audited_id))

    def _read_changes(self, staged: Staged) -> tuple[OperationKey, tuple[Consumed, ...]] | None:
        """Return which changes of tables the rows were made from, and whose they are; None if they were not.

        Raises:
            IncompatibleChangeError: one summary cannot tell it for all of them, or they are those of a cleared task.
        """
        made = [one for one in staged.snapshots if '"from-snapshot-id"' in one.summary.get(INPUTS, "")]
        if not made:
            return None
        consumed, others = consumed_by(made[0]), [one for one in staged.snapshots if one is not made[0]]
        keys = keys_of(made[0])
        has_more = any(True for one in others for status in _CHANGED for _ in self._data(one, status))
        if has_more or len(keys) != 1 or consumed is None:
            raise self._refused(
                "its rows were made from changes of a table, by several commits or by a task that was cleared, so that "
                "a later run would not know what it is to read"
            )
        return OperationKey.parse(keys[0]), consumed

    def _moved_watermarks(self, metadata: TableMetadata) -> tuple[Update, ...]:
        """Return the updates that move the watermarks; raises StalePlanError if others have moved them since."""
        if self._consumed is None:
            return ()
        return advanced(*self._consumed, metadata, self.settings.branch, self.snapshot_id)

    def _properties(self, metadata: TableMetadata, staged: Staged) -> dict[str, str]:
        """Return what the summary tells of the works whose rows are published.

        Raises:
            IncompatibleChangeError: one summary cannot tell it for all of them.
        """
        keys = list(dict.fromkeys(key for one in staged.snapshots for key in keys_of(one)))
        with_inputs = [one.summary[INPUTS] for one in staged.snapshots if INPUTS in one.summary]
        adding = [one for one in staged.snapshots if any(True for _ in self._data(one, EntryStatus.ADDED))]
        is_of_one = len(keys) < 2 and all(keys_of(one) for one in adding)
        if not is_of_one and any(EXISTING_FILES in one.summary for one in staged.snapshots):
            raise self._refused("tasks have staged rows next to existing files, whose names do not tell their task")
        self._consumed = self._read_changes(staged)
        if self._consumed is not None:
            self._moved_watermarks(metadata)  # before anything is written: another run may have read the same
        properties = {AUDITED_SNAPSHOT_ID: str(self._audited_id)}
        if keys:
            properties[PUBLISHED_OPERATION_KEY] = "\n".join(keys)
        if with_inputs:
            properties[INPUTS] = with_inputs[-1]
        if any(EXISTING_FILES in one.summary for one in staged.snapshots):
            properties[EXISTING_FILES] = "true"
        return properties

    def _refused(self, why: str) -> IncompatibleChangeError:
        return IncompatibleChangeError(
            f"cannot apply audited snapshot {self._audited_id} to branch {self.settings.branch!r}, which has moved on: "
            f"{why}"
        )


_CHANGED = (EntryStatus.ADDED, EntryStatus.DELETED)
