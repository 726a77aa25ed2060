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
    """Where a branch is rolled back to: exactly one of a snapshot, a ref and a time.

    Attributes:
        snapshot_id: an ancestor of the branch's head.
        ref: a tag or branch at such a snapshot.
        timestamp_ms: the branch's newest snapshot from before this time, in milliseconds since the epoch.
        expected_snapshot_id: the guard: where the branch must be before.
        dry_run: whether only to look what the rollback would do.
    """

    snapshot_id: int | None = None
    ref: str | None = None
    timestamp_ms: int | None = None
    branch: str = MAIN_BRANCH
    expected_snapshot_id: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if [self.snapshot_id, self.ref, self.timestamp_ms].count(None) != 2:
            raise InvalidInputError(
                f"expected a snapshot, a ref or a time to roll back to, got snapshot {self.snapshot_id}, ref "
                f"{self.ref!r} and time {self.timestamp_ms}"
            )


def rollback(work: Work, request: RollbackRequest) -> RefResult:
    """Move a branch back in one commit; raises what `change_ref` raises."""
    branch, expected = request.branch, request.expected_snapshot_id
    if request.timestamp_ms is None:
        change = snapshot_refs.rollback_to_snapshot(
            request.snapshot_id, ref=request.ref, branch=branch, expected_snapshot_id=expected
        )
    else:
        change = snapshot_refs.rollback_to_timestamp(request.timestamp_ms, branch=branch, expected_snapshot_id=expected)
    return change_ref(work, change, dry_run=request.dry_run)
