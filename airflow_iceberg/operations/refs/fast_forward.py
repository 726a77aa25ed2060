"""Move a branch forward to the head of another branch or tag."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.commit.actions import snapshot_refs
from airflow_iceberg.operations.refs.change_ref import RefResult, change_ref
from airflow_iceberg.operations.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class FastForwardRequest:
    """Which branch is moved to which ref.

    Attributes:
        branch: the branch that is moved; one that does not exist is created.
        to: a branch or tag that has all snapshots of the branch.
        to_snapshot_id: a guard: where `to` must be, such as the snapshot that was audited.
        expected_snapshot_id: the guard: where the branch must be before.
        dry_run: whether only to look what the move would do.
    """

    branch: str
    to: str
    to_snapshot_id: int | None = None
    expected_snapshot_id: int | None = None
    dry_run: bool = False


def fast_forward(work: Work, request: FastForwardRequest) -> RefResult:
    """Move a branch forward in one commit; raises what `change_ref` raises."""
    change = snapshot_refs.fast_forward(
        request.branch,
        request.to,
        to_snapshot_id=request.to_snapshot_id,
        expected_snapshot_id=request.expected_snapshot_id,
    )
    return change_ref(work, change, dry_run=request.dry_run)
