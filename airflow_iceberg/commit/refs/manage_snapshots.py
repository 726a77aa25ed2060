"""Several changes of branches and tags in one commit, with the methods of PyIceberg's `ManageSnapshots`.

    table.manage_snapshots().create_tag(3051729675574597004, "v1").remove_branch("audit").commit()

    with table.manage_snapshots() as changes:        # commits at the end, unless the block raises
        changes.create_branch(3051729675574597004, "audit").rollback_to_snapshot(3051729675574597004)

The changes themselves are in `commit.actions.snapshot_refs`; the methods of a table that make one in `operations.refs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self
from uuid import uuid4

from airflow_iceberg.commit.actions import snapshot_refs
from airflow_iceberg.commit.actions.snapshot_refs import ChangeRefs, RefChange, Retention
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.refs.marks import OnceOnly


class ManageSnapshots:
    """Collects changes, each made on the result of those before it; nothing is done before `commit`.

    Args:
        operation_key: key of an Airflow task, whose earlier commit of the same steps is found.
    """

    def __init__(self, table: OpenTable, *, operation_key: OperationKey | None = None) -> None:
        self._table = table
        self._key = operation_key
        self._changes: list[RefChange] = []

    def create_tag(self, snapshot_id: int, tag_name: str, max_ref_age_ms: int | None = None) -> Self:
        """Create a tag of a snapshot."""
        retention = Retention(max_ref_age_ms=max_ref_age_ms)
        return self._add(snapshot_refs.create_ref(tag_name, kind="tag", snapshot_id=snapshot_id, retention=retention))

    def create_branch(
        self,
        snapshot_id: int,
        branch_name: str,
        max_ref_age_ms: int | None = None,
        max_snapshot_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
    ) -> Self:
        """Create a branch at a snapshot."""
        retention = Retention(
            max_ref_age_ms=max_ref_age_ms,
            max_snapshot_age_ms=max_snapshot_age_ms,
            min_snapshots_to_keep=min_snapshots_to_keep,
        )
        return self._add(
            snapshot_refs.create_ref(branch_name, kind="branch", snapshot_id=snapshot_id, retention=retention)
        )

    def remove_tag(self, tag_name: str) -> Self:
        """Remove a tag."""
        return self._add(snapshot_refs.drop_ref(tag_name, kind="tag"))

    def remove_branch(self, branch_name: str) -> Self:
        """Remove a branch; its snapshots are kept until they expire."""
        return self._add(snapshot_refs.drop_ref(branch_name, kind="branch"))

    def set_current_snapshot(self, snapshot_id: int | None = None, ref_name: str | None = None) -> Self:
        """Move main to any snapshot of the table, or to that of a branch or tag."""
        return self._add(snapshot_refs.set_current(snapshot_id, ref=ref_name))

    def rollback_to_snapshot(self, snapshot_id: int) -> Self:
        """Move main back to one of its ancestors."""
        return self._add(snapshot_refs.rollback_to_snapshot(snapshot_id))

    def rollback_to_timestamp(self, timestamp_ms: int) -> Self:
        """Move main back to its newest snapshot from before a time, in milliseconds since the epoch."""
        return self._add(snapshot_refs.rollback_to_timestamp(timestamp_ms))

    def fast_forward(self, branch_name: str, to: str) -> Self:
        """Move a branch forward to the head of another branch or tag."""
        return self._add(snapshot_refs.fast_forward(branch_name, to))

    def commit(self) -> None:
        """Make all changes in one commit, or none of them.

        Raises:
            AlreadyExistsError, InvalidInputError, NotFoundError, IncompatibleChangeError: one is impossible.
            CommitConflictError, CommitUnknownError: see `commit.engine.commit`.
        """
        changes, self._changes = self._changes, []
        if changes:
            self._table.change(action_of(self._table, changes, operation_key=self._key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()

    def _add(self, change: RefChange) -> Self:
        self._changes.append(change)
        return self


def action_of(
    table: OpenTable,
    changes: Sequence[RefChange],
    *,
    operation_key: OperationKey | None = None,
    try_number: int | None = None,
) -> ChangeRefs:
    """Return the action that makes changes of refs, for one commit."""
    call = str(uuid4())
    once = None
    if operation_key is not None:
        step = "; ".join(change.step for change in changes)
        once = OnceOnly(operation_key, step, try_number=try_number, call=call)
    return ChangeRefs(changes, table_uuid=table.metadata.table_uuid or "", new_uuid=call, once=once)
