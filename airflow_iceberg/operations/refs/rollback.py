"""Roll a branch back to one of its snapshots, or to a time."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.commit.actions import snapshot_refs
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.refs.change_ref import RefResult, change_ref
from airflow_iceberg.operations.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class RollbackRequest:
    """Where a branch is rolled back to: exactly one of a snapshot and a time.

    Attributes:
        snapshot_id: an ancestor of the branch's head.
        timestamp_ms: the branch's newest snapshot from before this time, in milliseconds since the epoch.
        expected_snapshot_id: the guard: where the branch must be before.
        dry_run: whether only to look what the rollback would do.
    """

    snapshot_id: int | None = None
    timestamp_ms: int | None = None
    branch: str = MAIN_BRANCH
    expected_snapshot_id: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if (self.snapshot_id is None) == (self.timestamp_ms is None):
            raise InvalidInputError(
                f"expected a snapshot or a time to roll back to, got snapshot {self.snapshot_id} and time "
                f"{self.timestamp_ms}"
            )


def rollback(work: Work, request: RollbackRequest) -> RefResult:
    """Move a branch back in one commit; raises what `change_ref` raises."""
    branch, expected = request.branch, request.expected_snapshot_id
    if request.snapshot_id is not None:
        change = snapshot_refs.rollback_to_snapshot(request.snapshot_id, branch=branch, expected_snapshot_id=expected)
    else:
        moment_ms = request.timestamp_ms or 0
        change = snapshot_refs.rollback_to_timestamp(moment_ms, branch=branch, expected_snapshot_id=expected)
    return change_ref(work, change, dry_run=request.dry_run)
