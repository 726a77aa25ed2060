"""Actions that add a snapshot: they turn the newest metadata into updates and requirements.

An action is called again on each newer base. The snapshot id, the new files and their manifests are the same in each
attempt; the parent, the sequence number, the manifest list, the totals and the files to remove are determined again.
Here: `SnapshotAction`, which all such actions share. Not here: the actions (`commit.actions`), the loop (`engine`),
writing manifests (`snapshot_writer`), conflicts between writers (`conflicts`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, cast

from airflow_iceberg.commit.attempts.places import Places
from airflow_iceberg.commit.checks import check_branch, of_this_table
from airflow_iceberg.commit.conflicts import ChangedFiles, History
from airflow_iceberg.commit.earlier_epochs import EarlierEpochs, check_no_later_epoch
from airflow_iceberg.commit.engine import Action, AlreadyCommittedError
from airflow_iceberg.commit.manifest_filter import FilesToRemove, ManifestFilter, RemovedData, missing
from airflow_iceberg.commit.operation_key import find_landed
from airflow_iceberg.commit.runs.doubts import has_picked_gone
from airflow_iceberg.commit.runs.removed import check_own_index
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_writer import AddedFiles, SnapshotWriter
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import IncompatibleChangeError, StalePlanError
from airflow_iceberg.format.json_fields import MAX_LONG
from airflow_iceberg.format.manifests.entries import (
    UNASSIGNED_SEQ,
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId, check_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, RemoveSnapshotRef, SetSnapshotRef, Update
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef, summarize
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChanges:
    """What an action does to the files of one base.

    Attributes:
        operation: the snapshot's operation; None derives it from the files that are added and removed.
        properties: further entries of the summary.
        all_there: files of `removal` that must still be in the table.
        taken_from: older snapshots of which files are added again. While a table has a snapshot, no expiry deletes its
            files: these may be gone once it has not.
        history: the commits since the change was planned; None where they do not matter or are not known.
    """

    added: tuple[AddedFiles, ...] = ()
    removal: FilesToRemove = field(default_factory=FilesToRemove)
    operation: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    all_there: tuple[DataFile, ...] = ()
    taken_from: frozenset[int] = frozenset()
    history: History | None = None

    def added_files(self) -> tuple[DataFile, ...]:
        return tuple(file for group in self.added for file in group.files)


class MakesSnapshot(Action, Protocol):
    """An action that adds a snapshot with these settings: a `SnapshotAction`, or one that is composed of it."""

    settings: CommitSettings

    @property
    def made(self) -> Snapshot | None:
        """The snapshot of the last attempt."""


def as_snapshot_action(action: Action) -> MakesSnapshot | None:
    """Return an action that adds a snapshot, and None for any other."""
    return cast("MakesSnapshot", action) if isinstance(getattr(action, "settings", None), CommitSettings) else None


class SnapshotAction(ABC):
    """A change that adds one snapshot to a branch.

    A subclass says what it changes on a base (`changes`), and may check the removed files before anything is written.
    """

    _earlier: EarlierEpochs | None = None

    def __init__(self, io: FileIO, settings: CommitSettings) -> None:
        self.settings = settings
        self.snapshot_id = settings.snapshot_id
        self.writer = SnapshotWriter(io, snapshot_id=settings.snapshot_id, commit_uuid=settings.commit_uuid)
        self.changed_files = ChangedFiles(io)
        self._places = Places(io)
        self.made: Snapshot | None = None
        self._tried_files: tuple[DataFile, ...] = ()

    @abstractmethod
    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        """Return what to do on this base.

        Args:
            parent: the head of the branch; None for a branch without snapshots.

        Raises:
            StalePlanError, IncompatibleChangeError: it cannot be done any more.
        """

    def check(self, removed: Sequence[ManifestEntry], changes: FileChanges, metadata: TableMetadata) -> None:  # noqa: B027
        """Check the removed files before anything is written that refers to them; raise what `changes` may raise."""

    def check_places(self, changes: FileChanges, kept: Sequence[ManifestFile], metadata: TableMetadata) -> None:
        """Check that new deletes by position are those of one partition; `kept` are the other manifests."""
        is_as_planned = changes.history is not None and not changes.history.snapshots
        new = [file for group in changes.added if group.sequence_number is None for file in group.files]
        added = changes.added_files()
        self._places.check_one_partition(new, added, kept, metadata, is_as_planned=is_as_planned)

    def __call__(self, metadata: TableMetadata) -> Change:
        settings = self.settings
        check_same_table(metadata, settings.table_uuid)
        if settings.operation_key is not None:
            check_no_later_epoch(metadata, settings.operation_key, settings.branch)
        check_branch(metadata, settings.branch)
        parent = metadata.ref_snapshot(settings.branch)
        inherited = self.inherited(parent)
        changes = self.changes(metadata, parent)
        check_kept(metadata, changes.taken_from)
        self._tried_files = changes.added_files()
        kept, removed = self._without(inherited, changes, metadata)
        check_all_there(changes, removed)
        self.check_places(changes, kept, metadata)
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
        change = self.change(self.snapshot(metadata, parent, manifests, summary), metadata, parent)
        return replace(change, updates=(*self._held(changes.taken_from), *change.updates))

    def _held(self, snapshot_ids: Iterable[int]) -> Iterator[Update]:
        """Yield updates that change nothing, and that no table accepts which does not have the snapshots.

        A REST server applies a change to its newest state, whose branches may be as expected after an expiry.
        """
        for snapshot_id in sorted(snapshot_ids):
            name = f"taken-from-{snapshot_id}-{self.settings.commit_uuid}"
            yield SetSnapshotRef(ref_name=name, ref=SnapshotRef(snapshot_id=snapshot_id, type="tag"))
            yield RemoveSnapshotRef(ref_name=name)

    def inherited(self, parent: Snapshot | None) -> tuple[ManifestFile, ...]:
        """Return the manifests of the parent.

        Raises:
            AlreadyCommittedError: one of them was written here. A request that was repeated on its way loses to itself,
                and its snapshot may have expired since.
        """
        manifests = self.writer.read_parent(parent)
        if self.writer.has_written(manifests):
            raise AlreadyCommittedError
        return manifests

    def _without(
        self, manifests: Sequence[ManifestFile], changes: FileChanges, metadata: TableMetadata
    ) -> tuple[list[ManifestFile], list[ManifestEntry]]:
        """Return the manifests of the parent without removed files, data before deletes, and the removed entries."""
        concurrent = None if changes.history is None else changes.history.snapshot_ids
        data = [m for m in manifests if m.content is ManifestContent.DATA]
        deletes = [m for m in manifests if m.content is ManifestContent.DELETES]
        if changes.removal.is_empty:
            return [m for m in manifests if m.may_have_live_files], []
        filter_ = ManifestFilter(changes.removal, metadata, concurrent=concurrent)
        kept, removed = self._filtered(data, filter_, metadata)
        if deletes:
            with_data = RemovedData(
                removed=tuple(entry.data_file for entry in removed),
                min_sequence_number=_min_sequence_number(kept, changes.added, metadata),
            )
            filter_ = ManifestFilter(changes.removal, metadata, concurrent=concurrent, with_data=with_data)
            kept_deletes, removed_deletes = self._filtered(deletes, filter_, metadata)
            kept, removed = kept + kept_deletes, removed + removed_deletes
        return kept, removed

    def _filtered(
        self, manifests: Iterable[ManifestFile], filter_: ManifestFilter, metadata: TableMetadata
    ) -> tuple[list[ManifestFile], list[ManifestEntry]]:
        kept: list[ManifestFile] = []
        removed: list[ManifestEntry] = []
        for manifest in manifests:
            if filter_.may_concern(manifest):
                manifest, gone = self.writer.without_files(manifest, filter_, metadata)
                removed += gone
            # A manifest that lists only files deleted by an earlier snapshot serves no reader of this one.
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
        self.made = Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence_number,
            # A slow clock must not make the table's history run backwards.
            timestamp_ms=max(self.settings.now_ms(), metadata.last_updated_ms),
            manifest_list=location,
            summary=summary,
            schema_id=metadata.current_schema_id,
            first_row_id=None if added_rows is None else metadata.next_row_id or 0,
            added_rows=added_rows,
        )
        return self.made

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

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the snapshot, or one of another process with the same key, is in the table."""
        if metadata.snapshot(self.snapshot_id) is not None:
            return Outcome.COMMITTED
        key, branch = self.settings.operation_key, self.settings.branch
        if key is None or (branch != MAIN_BRANCH and branch not in metadata.refs):
            return None
        found = find_landed(metadata, key, branch)
        if found is not None:
            check_own_index(key, found)
        return None if found is None else Outcome.FOUND

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether the history of the branch reaches back to the base: a landed snapshot would be part of it.

        Unless it was rolled back and cherry-picked, and has expired then.
        """
        branch = self.settings.branch
        if not {branch} <= {*metadata.refs, MAIN_BRANCH}:
            return False
        start, head = base.refs.get(branch), metadata.refs.get(branch)
        history = list(metadata.ancestors(None if head is None else head.snapshot_id))
        if has_picked_gone(metadata, (s for s in history if base.snapshot(s.snapshot_id) is None)):
            return False
        if start is not None:
            return any(snapshot.snapshot_id == start.snapshot_id for snapshot in history)
        # The branch had no snapshot: its history has to be complete.
        return metadata.snapshots == base.snapshots if not history else history[-1].parent_snapshot_id is None

    def has_left_files(self, metadata: TableMetadata) -> bool:
        """Whether manifests or files of an attempt are in the branch."""
        manifests = self.writer.read_parent(metadata.ref_snapshot(self.settings.branch))
        return self.writer.has_written(manifests) or self.writer.are_live(self._tried_files, manifests)

    def succeeded(self, metadata: TableMetadata) -> None:
        """Delete what lost attempts wrote, and log which rows of the task's earlier runs were replaced."""
        landed = metadata.snapshot(self.snapshot_id)
        if landed is None and self.made is not None:
            return  # it has expired since: its manifests may be in use
        if self._earlier is not None and landed is not None:
            self._earlier.log_replaced(metadata.location, self.settings.branch)
            if self._earlier.mark is not None:
                new = partial(self.changed_files.of, landed, EntryStatus.ADDED, ManifestContent.DELETES)
                self._earlier.mark.remove_unused(lambda: {entry.data_file.file_path for entry in new()})
        self.writer.remove_unused(landed)

    def failed(self) -> None:
        self.writer.remove_unused(None)


def next_sequence_number(metadata: TableMetadata) -> int:
    """Return the sequence number of the next commit; always 0 in v1.

    Raises:
        IncompatibleChangeError: there is no next one.
    """
    if metadata.format_version == 1:
        return 0
    if metadata.last_sequence_number >= MAX_LONG:
        raise IncompatibleChangeError(
            f"table {metadata.location} has the last-sequence-number {metadata.last_sequence_number}, the highest one: "
            f"another writer has used up the numbers before; nothing was committed, copy the rows into a new table"
        )
    return metadata.last_sequence_number + 1


def _min_sequence_number(kept: Iterable[ManifestFile], added: Iterable[AddedFiles], metadata: TableMetadata) -> int:
    numbers = [m.min_sequence_number for m in kept if m.may_have_live_files]
    numbers += [group.sequence_number for group in added if group.files and group.sequence_number is not None]
    return min((n for n in numbers if n != UNASSIGNED_SEQ), default=next_sequence_number(metadata))


def check_kept(metadata: TableMetadata, snapshot_ids: Iterable[int]) -> None:
    """Check that the table has the snapshots of which files are added again.

    Raises:
        StalePlanError: one was expired.
    """
    for snapshot_id in sorted(snapshot_ids):
        if metadata.snapshot(snapshot_id) is None:
            raise StalePlanError(
                f"snapshot {snapshot_id}, of which this commit adds files again, was expired since it was planned, and "
                f"they may be deleted; nothing was committed, re-plan on the latest snapshot"
            )


def check_all_there(changes: FileChanges, removed: Iterable[ManifestEntry]) -> None:
    """Check that the files to be removed were there, and data files as often as they were read.

    Raises:
        StalePlanError: another writer has removed one, or added one again; names the writer where the history tells.
    """
    entries = list(removed)
    for file in missing(changes.all_there, entries):
        who = changes.history.who_removed(file) if changes.history is not None else "another writer"
        what = "data file" if file.content is FileContent.DATA else "delete file"
        raise StalePlanError(
            f"{what} {file.file_path}, which this commit replaces, is no longer in the table: removed by {who}; "
            f"nothing was committed, re-plan on the latest snapshot"
        )
    _check_as_often(changes.all_there, entries)


def _check_as_often(read: Iterable[DataFile], removed: Iterable[ManifestEntry]) -> None:
    """Check that data files are removed from no more places than those whose rows were read."""
    known = Counter(file.file_path for file in read if file.content is FileContent.DATA)
    gone = Counter(entry.data_file.file_path for entry in removed if entry.data_file.content is FileContent.DATA)
    for path, count in known.items():
        if gone[path] > count:
            raise StalePlanError(
                f"data file {path}, which this commit replaces, is in the table {gone[path]} times, and its rows were "
                f"read from {count} of these places: it was added once more, or its entries contradict each other; "
                f"nothing was committed, re-plan on the latest snapshot"
            )
