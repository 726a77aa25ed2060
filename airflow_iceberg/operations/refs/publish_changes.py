"""Publish a commit that was staged with a `wap.id`, as Iceberg Java and Spark stage them: no ref points to it.

The commit is picked (`cherry_pick`): main moves to it, or gets its changes in a new snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_iceberg.commit.actions.cherry_pick import PUBLISHED_WAP_ID, WAP_ID
from airflow_iceberg.commit.operation_key import check_properties
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, NotFoundError, came
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.operations.refs.cherry_pick import CherryPickRequest, CherryPickResult, find_pick, pick
from airflow_iceberg.operations.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishChangesRequest:
    """Which staged commit is published.

    Attributes:
        wap_id: the id that it was staged with, the writer's option `spark.wap.id`.
        expected_snapshot_id: the guard: where the branch must be before.
        dry_run: whether only to look what would be published.
    """

    wap_id: str
    branch: str = MAIN_BRANCH
    expected_snapshot_id: int | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False

    def __post_init__(self) -> None:
        if not self.wap_id:
            raise InvalidInputError(f"wap_id is {came(self.wap_id)}, expected a text that is not empty")
        check_properties(self.snapshot_properties)


def publish_changes(work: Work, request: PublishChangesRequest) -> CherryPickResult:
    """Publish a staged commit, in one commit.

    Raises:
        NotFoundError: no commit was staged with the id, or it has expired.
        IncompatibleChangeError: several were; or it was published already; or as `cherry_pick`.
    """
    step = f"publish {request.wap_id!r} to {request.branch!r}"
    found = find_pick(work, request.branch, step)
    if found is not None:
        return found
    source = staged_snapshot(work.table.metadata, request.wap_id, branch=request.branch)
    picked = CherryPickRequest(
        snapshot_id=source.snapshot_id,
        branch=request.branch,
        expected_snapshot_id=request.expected_snapshot_id,
        snapshot_properties=request.snapshot_properties,
        dry_run=request.dry_run,
    )
    return pick(work, picked, step)


def staged_snapshot(metadata: TableMetadata, wap_id: str, *, branch: str = MAIN_BRANCH) -> Snapshot:
    """Return the snapshot that was staged with a `wap.id`; errors as of `publish_changes`."""
    found = [snapshot for snapshot in metadata.snapshots if snapshot.summary.get(WAP_ID) == wap_id]
    if len(found) > 1:
        ids = ", ".join(str(snapshot.snapshot_id) for snapshot in found)
        raise IncompatibleChangeError(
            f"table {metadata.location} has {len(found)} snapshots with wap.id {wap_id!r}: {ids}; cherry-pick one of "
            f"them by its snapshot id"
        )
    if found:
        return found[0]
    head = metadata.ref_snapshot(branch)
    for snapshot in metadata.ancestors(None if head is None else head.snapshot_id):
        if snapshot.summary.get(PUBLISHED_WAP_ID) == wap_id:
            raise IncompatibleChangeError(
                f"wap.id {wap_id!r} was published to branch {branch!r} already, by snapshot {snapshot.snapshot_id}"
            )
    known = sorted({one for s in metadata.snapshots if (one := s.summary.get(WAP_ID)) is not None})
    raise NotFoundError(
        f"table {metadata.location} has no snapshot with wap.id {wap_id!r}; it has: {', '.join(known[:20]) or 'none'}"
    )
