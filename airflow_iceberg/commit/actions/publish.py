"""Moves main forward to one snapshot, and begins and removes the branch that leads to it: the refs of write, audit,
publish.

Each action names snapshots by their ids, and not by a branch: a branch may move at any time. What a branch has more
than main is applied in a new snapshot by `reapply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from airflow_iceberg.commit.actions.reapply import check_not_taken_back, find_published
from airflow_iceberg.commit.actions.snapshot_refs import ChangeRefs, RefChange
from airflow_iceberg.commit.operation_key import AUDITED_SNAPSHOT_ID
from airflow_iceberg.commit.snapshot_action import FileChanges, SnapshotAction
from airflow_iceberg.commit.watermarks import removed_with
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, NotFoundError, StalePlanError
from airflow_iceberg.format.metadata.requirements import check_same_table, is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef, summarize


class MovedError(StalePlanError):
    """Main has snapshots that the audited one does not have."""


class ForwardTo(ChangeRefs):
    """Moves main forward to one snapshot, whatever the branch is at that led to it.

    The call raises MovedError if main has moved on, NotFoundError if the snapshot is gone, and
    IncompatibleChangeError if main was rolled back behind where the branch began.
    """

    def __init__(self, snapshot_id: int, *, table_uuid: str, new_uuid: str) -> None:
        forward = RefChange(name=MAIN_BRANCH, step=f"publish snapshot {snapshot_id}", wanted=self._moved)
        super().__init__((forward,), table_uuid=table_uuid, new_uuid=new_uuid)
        self._target = snapshot_id
        self._log_before: tuple[tuple[int, int], ...] | None = None

    def __call__(self, metadata: TableMetadata) -> Change:
        change = super().__call__(metadata)
        if change.updates and self._log_before is None:
            self._log_before = metadata.snapshot_log
        return change

    def _moved(self, metadata: TableMetadata) -> SnapshotRef:
        main = metadata.refs.get(MAIN_BRANCH)
        if main is not None and find_published(metadata, self._target) is not None:
            return main
        if metadata.snapshot(self._target) is None:
            raise NotFoundError(f"table {metadata.location} has no snapshot {self._target}; it may have been expired")
        if main is None:
            return SnapshotRef(snapshot_id=self._target, type="branch")
        ancestors = list(metadata.ancestors(self._target))
        newer = list(takewhile(lambda one: one.snapshot_id != main.snapshot_id, ancestors))
        if len(newer) == len(ancestors):
            raise MovedError(
                f"branch 'main' of table {metadata.location} is at snapshot {main.snapshot_id}, which snapshot "
                f"{self._target} does not have: another writer has committed since the branch was made"
            )
        check_not_taken_back(metadata, newer, self._target)
        return replace(main, snapshot_id=self._target)

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the snapshot is in main, also below later ones; or was, and main was rolled back since."""
        found = super().landed(metadata)
        if found is not None or self._log_before is None or not is_same_table(metadata, self._table_uuid):
            return found
        was_main = any(one[1] == self._target and one not in self._log_before for one in metadata.snapshot_log)
        return Outcome.COMMITTED if was_main or find_published(metadata, self._target) is not None else None

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether main's history reaches back to where it was: the snapshot would be part of it."""
        if find_published(metadata, self._target) is not None:
            return False
        history = list(metadata.ancestors(metadata.current_snapshot_id))
        if base.current_snapshot_id is None:
            return not history or history[-1].parent_snapshot_id is None
        return any(snapshot.snapshot_id == base.current_snapshot_id for snapshot in history)


def begin_branch(
    name: str, seen: SnapshotRef | None, *, at: int | None, max_ref_age_ms: int | None, table_uuid: str, new_uuid: str
) -> ChangeRefs:
    """Return the action that lets a branch begin at the head of main as it is then, also one that is there already.

    Args:
        seen: the branch when this try began; if it has moved since, another try is at work, and the action raises
            StalePlanError.
        at: the snapshot to begin at while main has none.
    """

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        found, head = metadata.refs.get(name), metadata.current_snapshot_id or at
        if head is None:
            raise InvalidInputError(f"table {metadata.location} has no snapshot, at which branch {name!r} could begin")
        is_moved = found is not None and (seen is None or found.snapshot_id != seen.snapshot_id)
        if found is not None and is_moved and found.snapshot_id != head:
            raise StalePlanError(
                f"branch {name!r} of table {metadata.location} was moved to snapshot {found.snapshot_id} since this "
                f"try has begun; another try of the task, or another writer, uses it; nothing was changed"
            )
        return replace(found or SnapshotRef(snapshot_id=head), snapshot_id=head, max_ref_age_ms=max_ref_age_ms)

    begin = RefChange(name=name, step=f"begin branch {name!r}", wanted=wanted)
    return ChangeRefs((begin,), table_uuid=table_uuid, new_uuid=new_uuid)


def begin_again(name: str, head: int, *, table_uuid: str, new_uuid: str) -> ChangeRefs:
    """Return the action that lets a branch for another audit begin at a snapshot of main.

    It raises IncompatibleChangeError if the branch has snapshots of others, InvalidInputError if it is a tag, and
    MovedError if the snapshot was expired since.
    """

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        found = metadata.refs.get(name)
        if metadata.snapshot(head) is None:
            raise MovedError(
                f"branch 'main' of table {metadata.location} was at snapshot {head}, which was expired since: other "
                f"writers have committed"
            )
        if found is not None and not found.is_branch:
            raise InvalidInputError(f"{name!r} is a tag of table {metadata.location}; drop it, or choose another name")
        of_main = {one.snapshot_id for one in metadata.ancestors(metadata.current_snapshot_id)}
        of_main |= {snapshot_id for _, snapshot_id in metadata.snapshot_log}  # before it was rolled back
        for snapshot in metadata.ancestors(None if found is None else found.snapshot_id):
            if snapshot.snapshot_id not in of_main and AUDITED_SNAPSHOT_ID not in snapshot.summary:
                raise IncompatibleChangeError(
                    f"branch {name!r} of table {metadata.location}, on which the change would be audited again, has "
                    f"snapshot {snapshot.snapshot_id} of other work, which would be lost; publish it, or drop the "
                    f"branch; nothing was published"
                )
        return replace(found or SnapshotRef(snapshot_id=head), snapshot_id=head)

    begin = RefChange(name=name, step=f"begin branch {name!r}", wanted=wanted)
    return ChangeRefs((begin,), table_uuid=table_uuid, new_uuid=new_uuid)


class _EndBranch(ChangeRefs):
    """Removes a branch, and the watermarks of the tasks that have written to it."""

    def __init__(self, end: RefChange, *, table_uuid: str, new_uuid: str) -> None:
        super().__init__((end,), table_uuid=table_uuid, new_uuid=new_uuid)
        self._branch = end.name

    def __call__(self, metadata: TableMetadata) -> Change:
        change = super().__call__(metadata)
        if not change.updates:
            return change
        return replace(change, updates=(*change.updates, *removed_with(metadata, self._branch)))


def end_branch(name: str, head: int, *, table_uuid: str, new_uuid: str) -> ChangeRefs:
    """Return the action that removes a branch if it is still at this snapshot, else raises IncompatibleChangeError."""

    def wanted(metadata: TableMetadata) -> None:
        found = metadata.refs.get(name)
        if found is not None and (found.snapshot_id != head or not found.is_branch):
            raise IncompatibleChangeError(
                f"branch {name!r} of table {metadata.location} is at snapshot {found.snapshot_id}, expected {head}; it "
                f"was not removed"
            )

    end = RefChange(name=name, step=f"remove branch {name!r}", wanted=wanted)
    return _EndBranch(end, table_uuid=table_uuid, new_uuid=new_uuid)


class FirstSnapshot(SnapshotAction):
    """Gives a branch of an empty table a snapshot without rows: no branch is without one. As in Java's createBranch."""

    def changes(self, metadata: TableMetadata, parent: Snapshot | None) -> FileChanges:
        return FileChanges(operation="append")

    def __call__(self, metadata: TableMetadata) -> Change:
        check_same_table(metadata, self.settings.table_uuid)
        if self.settings.branch in metadata.refs:
            return Change(updates=(), requirements=())
        summary: Mapping[str, str] = summarize(
            added=(),
            removed=(),
            previous=None,
            operation="append",
            properties=self.settings.properties,
            specs={spec.spec_id: spec for spec in metadata.partition_specs},
            schema=metadata.schema(),
            partition_limit=TableProperties.of(metadata.properties).summary_partition_limit,
        )
        return self.change(self.snapshot(metadata, None, (), summary), metadata, None)
