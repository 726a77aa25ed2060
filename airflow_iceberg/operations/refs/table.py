"""The methods of a table that change its branches and tags, named as in PyIceberg and in Iceberg's procedures."""

from __future__ import annotations

from typing import Any

from airflow_iceberg import operations
from airflow_iceberg.commit.actions.snapshot_refs import Retention
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.refs.manage_snapshots import ManageSnapshots
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.operations.refs.change_ref import RefResult
from airflow_iceberg.operations.refs.cherry_pick import CherryPickResult
from airflow_iceberg.operations.work import Work


class ChangesRefs(OpenTable):
    """A table whose branches and tags can be changed; each call is one commit.

    Arguments of all methods:
        expected_snapshot_id: the guard: where the ref must be before; elsewhere, nothing is changed.
        operation_key: key of an Airflow task, whose earlier commit is found; the work is not done twice, whatever other
            writers have done to the ref since.
        dry_run: whether only to say what would appear and disappear: snapshots, rows and files.

    Further errors of all methods:
        IncompatibleChangeError: the guard; or the work was done by a later run.
        CommitConflictError, CommitUnknownError: see `commit.engine.commit`.
    """

    def manage_snapshots(self, *, operation_key: OperationKey | None = None) -> ManageSnapshots:
        """Return an object that collects several changes of refs for one commit, as PyIceberg's; see there."""
        return ManageSnapshots(self, operation_key=operation_key)

    def create_branch(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        replace_existing: bool = False,
        if_not_exists: bool = False,
        max_ref_age_ms: int | None = None,
        max_snapshot_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
        **options: Any,
    ) -> RefResult:
        """Create a branch; one that exists with the same snapshot and retention is left as it is.

        Args:
            snapshot_id: the head of the branch; the current snapshot of main if left out.
            replace_existing: whether an existing branch is moved to the snapshot; it keeps the retention that is left
                out here.
            if_not_exists: whether an existing branch is left as it is.
            max_ref_age_ms, max_snapshot_age_ms, min_snapshots_to_keep: what `expire_snapshots` keeps of the branch; the
                table's properties decide if left out.
            options: `expected_snapshot_id`, `operation_key` and `dry_run`.

        Raises:
            AlreadyExistsError: a different branch, or a tag, of this name exists.
            InvalidInputError: the table has no snapshot yet.
            NotFoundError: no such snapshot.
        """
        retention = Retention(
            max_ref_age_ms=max_ref_age_ms,
            max_snapshot_age_ms=max_snapshot_age_ms,
            min_snapshots_to_keep=min_snapshots_to_keep,
        )
        work, options = self._work(options)
        request = operations.branch.BranchRequest(
            name=name,
            action="replace" if replace_existing else "create",
            snapshot_id=snapshot_id,
            retention=retention,
            if_not_exists=if_not_exists,
            **options,
        )
        return operations.branch.branch(work, request)

    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        replace_existing: bool = False,
        if_not_exists: bool = False,
        max_ref_age_ms: int | None = None,
        **options: Any,
    ) -> RefResult:
        """Create a tag; arguments and errors as of `create_branch`."""
        work, options = self._work(options)
        request = operations.branch.TagRequest(
            name=name,
            action="replace" if replace_existing else "create",
            snapshot_id=snapshot_id,
            retention=Retention(max_ref_age_ms=max_ref_age_ms),
            if_not_exists=if_not_exists,
            **options,
        )
        return operations.tag.tag(work, request)

    def remove_branch(self, name: str, *, if_exists: bool = False, **options: Any) -> RefResult:
        """Remove a branch; its snapshots are kept until they expire.

        Raises:
            InvalidInputError: the branch is main, or the name is a tag.
            NotFoundError: no such branch.
        """
        work, options = self._work(options)
        request = operations.branch.BranchRequest(name=name, action="drop", if_exists=if_exists, **options)
        return operations.branch.branch(work, request)

    def remove_tag(self, name: str, *, if_exists: bool = False, **options: Any) -> RefResult:
        """Remove a tag; arguments and errors as of `remove_branch`."""
        work, options = self._work(options)
        request = operations.branch.TagRequest(name=name, action="drop", if_exists=if_exists, **options)
        return operations.tag.tag(work, request)

    def fast_forward(self, branch: str, to: str, *, to_snapshot_id: int | None = None, **options: Any) -> RefResult:
        """Move a branch forward to the head of another branch or tag; a branch that does not exist is created.

        Args:
            to_snapshot_id: a guard: where `to` must be, such as the snapshot that was audited.

        Raises:
            IncompatibleChangeError: the branch has snapshots that the other one does not have.
            InvalidInputError: `branch` is a tag, or the other one has no snapshot yet.
            NotFoundError: no branch or tag `to`.
        """
        work, options = self._work(options)
        request = operations.fast_forward.FastForwardRequest(
            branch=branch, to=to, to_snapshot_id=to_snapshot_id, **options
        )
        return operations.fast_forward.fast_forward(work, request)

    def set_current_snapshot(
        self,
        snapshot_id: int | None = None,
        *,
        ref: str | None = None,
        branch: str = MAIN_BRANCH,
        **options: Any,
    ) -> RefResult:
        """Move a branch to any snapshot of the table, or to that of a ref; a branch that does not exist is created.

        Raises:
            InvalidInputError: the branch is a tag, or both or neither of a snapshot and a ref are given.
            NotFoundError: no such snapshot or ref.
        """
        work, options = self._work(options)
        request = operations.set_current_snapshot.SetCurrentSnapshotRequest(
            snapshot_id=snapshot_id, ref=ref, branch=branch, **options
        )
        return operations.set_current_snapshot.set_current_snapshot(work, request)

    def rollback_to_snapshot(self, snapshot_id: int, *, branch: str = MAIN_BRANCH, **options: Any) -> RefResult:
        """Move a branch back to one of its ancestors.

        Raises:
            InvalidInputError: the snapshot is not an ancestor of the branch's head.
            NotFoundError: no such snapshot or branch.
        """
        work, options = self._work(options)
        request = operations.rollback.RollbackRequest(snapshot_id=snapshot_id, branch=branch, **options)
        return operations.rollback.rollback(work, request)

    def rollback_to_timestamp(self, timestamp_ms: int, *, branch: str = MAIN_BRANCH, **options: Any) -> RefResult:
        """Move a branch back to its newest snapshot from before a time, in milliseconds since the epoch.

        Raises:
            InvalidInputError: the branch has no older snapshot.
            NotFoundError: no such branch.
        """
        work, options = self._work(options)
        request = operations.rollback.RollbackRequest(timestamp_ms=timestamp_ms, branch=branch, **options)
        return operations.rollback.rollback(work, request)

    def cherry_pick(self, snapshot_id: int, *, branch: str = MAIN_BRANCH, **options: Any) -> CherryPickResult:
        """Commit the changes of a snapshot that is not in the branch: an append, or a dynamic partition overwrite.

        If the snapshot was made on the head of the branch, the branch moves to it, whatever it changes.

        Raises:
            IncompatibleChangeError: another kind of change, picked already, or its partitions have changed since.
            NotFoundError: no such snapshot or branch.
        """
        work, options = self._work(options)
        request = operations.cherry_pick.CherryPickRequest(snapshot_id=snapshot_id, branch=branch, **options)
        return operations.cherry_pick.cherry_pick(work, request)

    def publish_changes(self, wap_id: str, *, branch: str = MAIN_BRANCH, **options: Any) -> CherryPickResult:
        """Publish the commit that was staged with a `wap.id`, as Iceberg's procedure does.

        Raises:
            IncompatibleChangeError: several have this id, or it was published already, or as of `cherry_pick`.
            NotFoundError: no such commit.
        """
        work, options = self._work(options)
        request = operations.publish_changes.PublishChangesRequest(wap_id=wap_id, branch=branch, **options)
        return operations.publish_changes.publish_changes(work, request)

    def staged_snapshot(self, wap_id: str) -> Snapshot:
        """Return the snapshot that was staged with a `wap.id`; read it by `scan(snapshot_id=…)`.

        Raises:
            IncompatibleChangeError: several have this id, or it was published already.
            NotFoundError: no such snapshot.
        """
        return operations.publish_changes.staged_snapshot(self.metadata, wap_id)

    def _work(self, options: dict[str, Any]) -> tuple[Work, dict[str, Any]]:
        """Return the work of one call, and the options for its request."""
        unknown = options.keys() - {"expected_snapshot_id", "operation_key", "dry_run"}
        if unknown:
            raise TypeError(f"unexpected keyword argument {sorted(unknown)[0]!r}")
        key = options.get("operation_key")
        return Work(self, operation_key=key), {
            name: value for name, value in options.items() if name != "operation_key"
        }
