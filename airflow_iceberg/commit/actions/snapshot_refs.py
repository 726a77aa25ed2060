"""Branches, tags, rollback, fast-forward and cherry-pick: changes of a table's refs, each a function that makes an
action.

The methods of `commit.manage_snapshots` commit it. Not here: the retention of refs (`expire_snapshots`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from airflow_iceberg.commit.checks import check_same_table, is_same_table, of_this_table
from airflow_iceberg.commit.earlier_epochs import is_appended
from airflow_iceberg.commit.engine import Action
from airflow_iceberg.commit.file_filters import partition_key
from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.operation_key import OPERATION_KEY, PUBLISHED_OPERATION_KEY, SOURCE_SNAPSHOT_ID
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import AlreadyExistsError, IncompatibleChangeError, InvalidInputError, NotFoundError
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, ManifestContent
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshotRef, SetSnapshotRef, Update
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.storage.base import FileIO

PUBLISHED_WAP_ID = "published-wap-id"
WAP_ID = "wap.id"


class ChangeRefs(Action):
    """Creates, moves or drops one ref.

    Args:
        wanted: returns the ref for the newest metadata; None drops it. It raises if the change is impossible.
    """

    def __init__(
        self, name: str, wanted: Callable[[TableMetadata], SnapshotRef | None], *, table_uuid: str, new_uuid: str
    ) -> None:
        self._name = name
        self._wanted = wanted
        self._table_uuid = table_uuid
        self._new_uuid = new_uuid
        # The refs of earlier attempts: a lost answer is found by its effect.
        self._asked: list[SnapshotRef | None] = []

    def __call__(self, metadata: TableMetadata) -> Change:
        check_same_table(metadata, self._table_uuid)
        wanted, found = self._wanted(metadata), metadata.refs.get(self._name)
        if wanted == found:
            return Change(updates=(), requirements=())
        self._asked.append(wanted)
        update: Update = (
            RemoveSnapshotRef(ref_name=self._name)
            if wanted is None
            else SetSnapshotRef(ref_name=self._name, ref=wanted)
        )
        at = AssertRefSnapshotId(ref=self._name, snapshot_id=None if found is None else found.snapshot_id)
        return of_this_table(metadata, (update,), (at,), new_uuid=self._new_uuid)

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the ref is as an attempt has made it."""
        if not is_same_table(metadata, self._table_uuid):
            return None
        return Outcome.COMMITTED if self._asked and metadata.refs.get(self._name) in self._asked else None

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether the ref is as it was: if it has moved, it may have moved on from where the attempt had put it."""
        return metadata.refs.get(self._name) == base.refs.get(self._name)


def create_ref(
    name: str,
    *,
    kind: Literal["branch", "tag"],
    snapshot_id: int | None = None,
    retention: SnapshotRef | None = None,
    replace_existing: bool = False,
    table_uuid: str,
    new_uuid: str,
) -> ChangeRefs:
    """Return the action that creates a branch or a tag.

    Args:
        snapshot_id: the ref's snapshot; the head of main by default.
        retention: a ref whose retention is copied.
        replace_existing: whether an existing ref of this name is moved; the same ref is never an error.
    """

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        target = snapshot_id if snapshot_id is not None else metadata.current_snapshot_id
        if target is None:
            raise InvalidInputError(f"cannot make {kind} {name!r}: table {metadata.location} has no snapshot yet")
        _known(metadata, target)
        basis = retention or SnapshotRef(snapshot_id=target, type=kind)
        ref = replace(basis, snapshot_id=target, type=kind)
        found = metadata.refs.get(name)
        if found is not None and found != ref and not replace_existing:
            raise AlreadyExistsError(
                f"{found.type} {name!r} of table {metadata.location} exists already, at snapshot {found.snapshot_id}"
            )
        if found is not None and found.type != kind:
            raise InvalidInputError(f"{name!r} is a {found.type}, and cannot become a {kind}")
        return ref

    return ChangeRefs(name, wanted, table_uuid=table_uuid, new_uuid=new_uuid)


def drop_ref(
    name: str, *, kind: Literal["branch", "tag"], if_exists: bool = False, table_uuid: str, new_uuid: str
) -> ChangeRefs:
    """Return the action that drops a branch or a tag; its snapshots are kept until they expire."""

    def wanted(metadata: TableMetadata) -> None:
        if name == MAIN_BRANCH:
            raise InvalidInputError("branch 'main' cannot be dropped")
        if name not in metadata.refs and not if_exists:
            raise NotFoundError(f"no {kind} {name!r} in table {metadata.location}")
        if name in metadata.refs and metadata.refs[name].type != kind:
            raise InvalidInputError(f"{name!r} is a {metadata.refs[name].type} of table {metadata.location}, no {kind}")

    return ChangeRefs(name, wanted, table_uuid=table_uuid, new_uuid=new_uuid)


def fast_forward(branch: str, to: str, *, table_uuid: str, new_uuid: str) -> ChangeRefs:
    """Return the action that moves a branch forward to the head of another ref, and creates the branch if necessary.

    The action raises IncompatibleChangeError when the branch has snapshots that the other ref does not have.
    """

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        target = metadata.ref_snapshot(to)
        if target is None:
            raise InvalidInputError(f"cannot fast-forward {branch!r} to {to!r}, which has no snapshot yet")
        found = metadata.refs.get(branch)
        if found is None:
            return SnapshotRef(snapshot_id=target.snapshot_id, type="branch")
        if not found.is_branch:
            raise InvalidInputError(f"{branch!r} is a tag, only branches move forward")
        if not any(s.snapshot_id == found.snapshot_id for s in metadata.ancestors(target.snapshot_id)):
            raise IncompatibleChangeError(
                f"cannot fast-forward branch {branch!r} to {to!r}: snapshot {found.snapshot_id}, its head, is not an "
                f"ancestor of snapshot {target.snapshot_id}; both have changes of their own"
            )
        return replace(found, snapshot_id=target.snapshot_id)

    return ChangeRefs(branch, wanted, table_uuid=table_uuid, new_uuid=new_uuid)


def set_current(snapshot_id: int, *, branch: str = MAIN_BRANCH, table_uuid: str, new_uuid: str) -> ChangeRefs:
    """Return the action that points a branch to any snapshot of the table."""

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        _known(metadata, snapshot_id)
        return _moved(metadata, branch, snapshot_id)

    return ChangeRefs(branch, wanted, table_uuid=table_uuid, new_uuid=new_uuid)


def rollback_to_snapshot(snapshot_id: int, *, branch: str = MAIN_BRANCH, table_uuid: str, new_uuid: str) -> ChangeRefs:
    """Return the action that moves a branch back to one of its ancestors."""

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        _known(metadata, snapshot_id)
        head = metadata.ref_snapshot(branch)
        ancestors = metadata.ancestors(None if head is None else head.snapshot_id)
        if not any(s.snapshot_id == snapshot_id for s in ancestors):
            raise InvalidInputError(
                f"cannot roll back to snapshot {snapshot_id}: it is not an ancestor of the head of branch {branch!r}"
            )
        return _moved(metadata, branch, snapshot_id)

    return ChangeRefs(branch, wanted, table_uuid=table_uuid, new_uuid=new_uuid)


def rollback_to_timestamp(
    timestamp_ms: int, *, branch: str = MAIN_BRANCH, table_uuid: str, new_uuid: str
) -> ChangeRefs:
    """Return the action that moves a branch back to its newest ancestor of before a time."""

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        head = metadata.ref_snapshot(branch)
        for snapshot in metadata.ancestors(None if head is None else head.snapshot_id):
            if snapshot.timestamp_ms < timestamp_ms:
                return _moved(metadata, branch, snapshot.snapshot_id)
        raise InvalidInputError(
            f"cannot roll back to {timestamp_ms} ms since the epoch: branch {branch!r} has no snapshot of before that"
        )

    return ChangeRefs(branch, wanted, table_uuid=table_uuid, new_uuid=new_uuid)


def _known(metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    snapshot = metadata.snapshot(snapshot_id)
    if snapshot is None:
        raise NotFoundError(f"table {metadata.location} has no snapshot {snapshot_id}")
    return snapshot


def _is_as_old(snapshot: Snapshot, source: Snapshot) -> bool:
    """Whether a snapshot is not younger than another one, which all snapshots that have picked that one are."""
    if source.sequence_number:
        return (snapshot.sequence_number or 0) <= source.sequence_number
    return snapshot.timestamp_ms <= source.timestamp_ms  # v1 has no sequence numbers


def _moved(metadata: TableMetadata, branch: str, snapshot_id: int) -> SnapshotRef:
    found = metadata.refs.get(branch)
    if found is None:
        return SnapshotRef(snapshot_id=snapshot_id, type="branch")
    if not found.is_branch:
        raise InvalidInputError(f"{branch!r} is a tag, only branches are moved")
    return replace(found, snapshot_id=snapshot_id)


class CherryPick(SnapshotAction):
    """Commits the changes of a snapshot that is not in the branch: the same files in a new snapshot.

    Appends can be picked, and dynamic overwrites whose partitions no writer has changed since.

    Args:
        source_id: a staged snapshot (write-audit-publish), or one of another branch.
    """

    def __init__(self, io: FileIO, settings: CommitSettings, *, source_id: int) -> None:
        super().__init__(io, settings)
        self._source_id = source_id

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        source = _known(metadata, self._source_id)
        history = list(metadata.ancestors(None if parent is None else parent.snapshot_id))
        self._check_not_picked(source, history)
        added = self._files(source, EntryStatus.ADDED, ManifestContent.DATA)
        self._check_not_picked_and_expired(metadata, source, added, history)
        removed = self._files(source, EntryStatus.DELETED, ManifestContent.DATA)
        deletes = [s for s in EntryStatus for _ in self._files(source, s, ManifestContent.DELETES)]
        replaces = source.summary.get("replace-partitions") == "true"
        if deletes or not (source.operation == "append" or (source.operation == "overwrite" and replaces)):
            raise IncompatibleChangeError(
                f"cannot cherry-pick snapshot {self._source_id}: it is neither an append nor a dynamic overwrite "
                f"(operation {source.operation})"
            )
        if replaces:
            self._check_unchanged(metadata, source, history)
        properties = {SOURCE_SNAPSHOT_ID: str(self._source_id)}
        if WAP_ID in source.summary:
            properties[PUBLISHED_WAP_ID] = source.summary[WAP_ID]
        # A snapshot that was itself picked has the key of the one that it picked.
        key = source.summary.get(OPERATION_KEY) or source.summary.get(PUBLISHED_OPERATION_KEY)
        if key is not None:
            properties[PUBLISHED_OPERATION_KEY] = key
        if replaces:
            properties["replace-partitions"] = "true"
        return FileChanges(
            added=(AddedFiles(files=added),),
            removal=FilesToRemove(files=removed),
            operation=source.operation,
            properties=properties,
            all_there=removed,
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
                    f"{what}: files of it are in branch {self.settings.branch!r} already; the snapshot that has picked "
                    f"it was expired"
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
                            raise IncompatibleChangeError(
                                f"cannot cherry-pick snapshot {source.snapshot_id}: snapshot {snapshot.snapshot_id} "
                                f"has changed a partition since that it replaces ({entry.data_file.file_path})"
                            )
        if source.parent_snapshot_id is not None:
            raise IncompatibleChangeError(
                f"cannot cherry-pick snapshot {source.snapshot_id}: the branch does not go back to its parent "
                f"{source.parent_snapshot_id}, so that it is unknown whether its partitions were changed since"
            )
