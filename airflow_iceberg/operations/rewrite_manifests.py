"""Rewriting a table's manifests: one commit of metadata alone. The rules are in `commit.actions.rewrite_manifests`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.actions.rewrite_manifests import RewriteManifests
from airflow_iceberg.commit.operation_key import OperationKey, find_landed
from airflow_iceberg.commit.write_result import xcom_of
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot

if TYPE_CHECKING:
    from airflow_iceberg.table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class RewriteManifestsResult:
    """What a rewrite of manifests did.

    Attributes:
        outcome: "committed"; "found", when an earlier try of the task has done it; "nothing", when manifests are as few
            as they would become.
    """

    table: str
    branch: str
    outcome: str
    snapshot_id: int | None = None
    manifests_created: int = 0
    manifests_replaced: int = 0
    manifests_kept: int = 0
    operation_key: str | None = None

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values, see `xcom_of`."""
        return xcom_of(self)


def rewrite_manifests(
    table: Table,
    *,
    spec_id: int | None = None,
    branch: str = MAIN_BRANCH,
    operation: OperationKey | None = None,
    try_number: int = 1,
    snapshot_properties: Mapping[str, str] | None = None,
) -> RewriteManifestsResult:
    """Put the manifests of a branch together, clustered by partition.

    Args:
        spec_id: manifests of this partition spec alone; all by default.

    Raises:
        InvalidInputError: no such spec.
        NotFoundError: no such branch.
    """
    known = sorted(spec.spec_id for spec in table.metadata.partition_specs)
    if spec_id is not None and spec_id not in known:
        raise InvalidInputError(f"spec_id is {spec_id}, expected one of {', '.join(map(str, known))}")
    settings = table.commit_settings(
        branch=branch, operation=operation, try_number=try_number, snapshot_properties=snapshot_properties
    )
    landed = None if operation is None else find_landed(table.metadata, operation, branch)
    if landed is not None:
        return _describe(table, branch, "found", landed, operation)
    action = RewriteManifests(table.io, settings, spec_ids=None if spec_id is None else (spec_id,))
    written = table.commit(action)
    snapshot = None if written.snapshot_id is None else table.metadata.snapshot(written.snapshot_id)
    outcome = written.outcome if snapshot is not None else "nothing"
    return _describe(table, branch, outcome, snapshot, operation)


def _describe(
    table: Table, branch: str, outcome: str, snapshot: Snapshot | None, operation: OperationKey | None
) -> RewriteManifestsResult:
    summary = {} if snapshot is None else snapshot.summary
    return RewriteManifestsResult(
        table=table.name,
        branch=branch,
        outcome=outcome,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        manifests_created=int(summary.get("manifests-created", "0")),
        manifests_replaced=int(summary.get("manifests-replaced", "0")),
        manifests_kept=int(summary.get("manifests-kept", "0")),
        operation_key=None if operation is None else str(operation),
    )
