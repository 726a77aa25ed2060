"""Rewrite a table's manifests: one commit of metadata alone. The rules are in `commit.actions.rewrite_manifests`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_iceberg.commit.actions.rewrite_manifests import RewriteManifests
from airflow_iceberg.commit.operation_key import check_properties
from airflow_iceberg.commit.write_result import OperationResult, Outcome, count_of
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.operations.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class RewriteManifestsRequest:
    """Which manifests are rewritten.

    Attributes:
        spec_id: the partition spec whose manifests are rewritten; None for all specs.
    """

    spec_id: int | None = None
    branch: str = MAIN_BRANCH
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_properties(self.snapshot_properties)


@dataclass(frozen=True, kw_only=True, slots=True)
class RewriteManifestsResult(OperationResult):
    """What a rewrite of manifests did; nothing, when there are as few manifests as there would be afterwards."""

    branch: str
    snapshot_id: int | None = None
    manifests_created: int = 0
    manifests_replaced: int = 0
    manifests_kept: int = 0


def rewrite_manifests(work: Work, request: RewriteManifestsRequest) -> RewriteManifestsResult:
    """Merge the manifests of a branch, clustered by partition.

    Raises:
        InvalidInputError: no such spec.
        NotFoundError: no such branch.
    """
    table = work.table
    known = sorted(spec.spec_id for spec in table.metadata.partition_specs)
    if request.spec_id is not None and request.spec_id not in known:
        raise InvalidInputError(f"spec_id is {request.spec_id}, expected one of {', '.join(map(str, known))}")
    settings = work.settings(request)
    landed = work.find_landed(request.branch)
    if landed is not None:
        return _describe(work, request, Outcome.FOUND, landed)
    spec_ids = None if request.spec_id is None else (request.spec_id,)
    action = RewriteManifests(table.io, settings, spec_ids=spec_ids)
    written = table.commit(action)
    # Another writer may have expired it already.
    snapshot = None if written.snapshot_id is None else table.metadata.snapshot(written.snapshot_id) or action.made
    return _describe(work, request, written.outcome, snapshot)


def _describe(
    work: Work, request: RewriteManifestsRequest, outcome: Outcome, snapshot: Snapshot | None
) -> RewriteManifestsResult:
    def count(name: str) -> int:
        return 0 if snapshot is None else count_of(snapshot, name)

    return RewriteManifestsResult(
        table=work.table.name,
        branch=request.branch,
        outcome=outcome,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        manifests_created=count("manifests-created"),
        manifests_replaced=count("manifests-replaced"),
        manifests_kept=count("manifests-kept"),
        operation_key=work.key_text,
    )
