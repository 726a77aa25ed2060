"""Branches, tags, rollback, fast-forward and cherry-pick as methods of a table, named as in PyIceberg and Iceberg.

The changes themselves are in `commit.actions.snapshot_refs`; expiry by the retention of refs is `expire_snapshots`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from airflow_iceberg.commit.actions import snapshot_refs
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.format.snapshots import MAIN_BRANCH, SnapshotRef


class ManageSnapshots(OpenTable):
    """A table whose branches and tags can be changed; each call is one commit, with the errors of `change`."""

    def create_branch(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        replace_existing: bool = False,
        max_ref_age_ms: int | None = None,
        max_snapshot_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
    ) -> None:
        """Create a branch; one that exists with the same snapshot and retention is left as it is.

        Args:
            snapshot_id: the head of the branch; the current snapshot of main if left out.
            replace_existing: whether an existing branch is moved to the snapshot and gets this retention.
            max_ref_age_ms, max_snapshot_age_ms, min_snapshots_to_keep: what `expire_snapshots` keeps of the branch; the
                table's properties decide if left out.

        Raises:
            AlreadyExistsError: a different branch or tag of this name exists.
            InvalidInputError: an existing tag was to be replaced, or the table has no snapshot yet.
            NotFoundError: no such snapshot.
        """
        retention = SnapshotRef(
            snapshot_id=0,
            max_ref_age_ms=max_ref_age_ms,
            max_snapshot_age_ms=max_snapshot_age_ms,
            min_snapshots_to_keep=min_snapshots_to_keep,
        )
        options = {"kind": "branch", "retention": retention, "replace_existing": replace_existing}
        self._change_ref(snapshot_refs.create_ref, name, snapshot_id=snapshot_id, **options)

    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        replace_existing: bool = False,
        max_ref_age_ms: int | None = None,
    ) -> None:
        """Create a tag; arguments and errors as of `create_branch`."""
        retention = SnapshotRef(snapshot_id=0, type="tag", max_ref_age_ms=max_ref_age_ms)
        options = {"kind": "tag", "retention": retention, "replace_existing": replace_existing}
        self._change_ref(snapshot_refs.create_ref, name, snapshot_id=snapshot_id, **options)

    def remove_branch(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a branch; its snapshots are kept until they expire.

        Raises:
            InvalidInputError: the branch is main, or the name is a tag.
            NotFoundError: no such branch.
        """
        self._change_ref(snapshot_refs.drop_ref, name, kind="branch", if_exists=if_exists)

    def remove_tag(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a tag; arguments and errors as of `remove_branch`."""
        self._change_ref(snapshot_refs.drop_ref, name, kind="tag", if_exists=if_exists)

    def fast_forward(self, branch: str, to: str) -> None:
        """Move a branch forward to the head of another branch or tag; a branch that does not exist is created.

        Raises:
            IncompatibleChangeError: the branch has snapshots that the other one does not have.
            InvalidInputError: `branch` is a tag, or the other one has no snapshot yet.
            NotFoundError: no branch or tag `to`.
        """
        self._change_ref(snapshot_refs.fast_forward, branch, to)

    def set_current_snapshot(self, snapshot_id: int, *, branch: str = MAIN_BRANCH) -> None:
        """Move a branch to any snapshot of the table; a branch that does not exist is created.

        Raises:
            InvalidInputError: the branch is a tag.
            NotFoundError: no such snapshot.
        """
        self._change_ref(snapshot_refs.set_current, snapshot_id, branch=branch)

    def rollback_to_snapshot(self, snapshot_id: int, *, branch: str = MAIN_BRANCH) -> None:
        """Move a branch back to one of its ancestors.

        Raises:
            InvalidInputError: the snapshot is not an ancestor of the branch's head.
            NotFoundError: no such snapshot or branch.
        """
        self._change_ref(snapshot_refs.rollback_to_snapshot, snapshot_id, branch=branch)

    def rollback_to_timestamp(self, timestamp_ms: int, *, branch: str = MAIN_BRANCH) -> None:
        """Move a branch back to its newest snapshot from before a time, in milliseconds since the epoch.

        Raises:
            InvalidInputError: the branch has no older snapshot.
            NotFoundError: no such branch.
        """
        self._change_ref(snapshot_refs.rollback_to_timestamp, timestamp_ms, branch=branch)

    def cherry_pick(self, snapshot_id: int, *, branch: str = MAIN_BRANCH) -> WriteResult:
        """Commit the changes of a snapshot that is not in the branch: an append, or a dynamic partition overwrite.

        Raises:
            IncompatibleChangeError: another kind of change, picked already, or its partitions have changed since.
            NotFoundError: no such snapshot or branch.
        """
        settings = self.commit_settings(branch=branch)
        return self.commit(snapshot_refs.CherryPick(self.io, settings, source_id=snapshot_id))

    def _change_ref(self, make: Callable[..., snapshot_refs.ChangeRefs], *args: Any, **options: Any) -> None:
        uuid = self.metadata.table_uuid or ""
        self.change(make(*args, **options, table_uuid=uuid, new_uuid=str(uuid4())))
