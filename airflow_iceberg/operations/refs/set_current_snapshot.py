"""Point a branch to any snapshot of the table."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.commit.actions import snapshot_refs
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.refs.change_ref import RefResult, change_ref
from airflow_iceberg.operations.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class SetCurrentSnapshotRequest:
    """Where a branch is moved to: exactly one of a snapshot and a ref.

    Attributes:
        ref: a branch or tag, whose snapshot becomes that of the branch.
        branch: the branch that is moved; one that does not exist is created.
        expected_snapshot_id: the guard: where the branch must be before.
        dry_run: whether only to look what the move would do.
    """

    snapshot_id: int | None = None
    ref: str | None = None
    branch: str = MAIN_BRANCH
    expected_snapshot_id: int | None = None
    dry_run: bool = False


def set_current_snapshot(work: Work, request: SetCurrentSnapshotRequest) -> RefResult:
    """Move a branch in one commit; raises what `change_ref` raises."""
    change = snapshot_refs.set_current(
        request.snapshot_id,
        ref=request.ref,
        branch=request.branch,
        expected_snapshot_id=request.expected_snapshot_id,
    )
    return change_ref(work, change, dry_run=request.dry_run)
