"""Pick a snapshot of elsewhere: its changes are committed to a branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

from airflow_iceberg.commit.actions.cherry_pick import CherryPick
from airflow_iceberg.commit.actions.snapshot_refs import known_snapshot
from airflow_iceberg.commit.operation_key import SOURCE_SNAPSHOT_ID, check_properties
from airflow_iceberg.commit.refs.marks import OnceOnly
from airflow_iceberg.commit.write_result import Outcome, WriteResult
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.operations.refs.difference import Part, part_of
from airflow_iceberg.operations.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class CherryPickRequest:
    """Which snapshot is picked.

    Attributes:
        snapshot_id: a staged snapshot, or one of another branch.
        expected_snapshot_id: the guard: where the branch must be before.
        dry_run: whether only to look what the pick would do.
    """

    snapshot_id: int
    branch: str = MAIN_BRANCH
    expected_snapshot_id: int | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_properties(self.snapshot_properties)


@dataclass(frozen=True, kw_only=True, slots=True)
class CherryPickResult(WriteResult):
    """What a pick did, found done, or would do.

    Attributes:
        source_snapshot_id: the snapshot that was picked; `snapshot_id`, if the branch was moved to it.
        previous_snapshot_id: the head of the branch before.
        appearing, disappearing: what readers of the branch see now, and do not see any more.
    """

    source_snapshot_id: int | None = None
    previous_snapshot_id: int | None = None
    appearing: Part = field(default_factory=Part)
    disappearing: Part = field(default_factory=Part)


def cherry_pick(work: Work, request: CherryPickRequest) -> CherryPickResult:
    """Commit the changes of a snapshot to a branch, in one commit.

    Raises:
        IncompatibleChangeError: it can not be picked, or was picked already; or the branch is not where it is expected.
        NotFoundError: no such snapshot or branch.
        StalePlanError: files that the snapshot replaces are gone.
        CommitConflictError, CommitUnknownError: as `commit.engine.commit`.
    """
    step = f"cherry-pick snapshot {request.snapshot_id} to {request.branch!r}"
    return find_pick(work, request.branch, step) or pick(work, request, step)


def find_pick(work: Work, branch: str, step: str) -> CherryPickResult | None:
    """Return the result of an earlier try of the same work; None: there is work to do.

    Raises:
        IncompatibleChangeError: a run after a later clear has done it, or nothing tells any more whether it was done.
    """
    if work.operation_key is None:
        return None
    metadata = work.table.metadata
    mark = OnceOnly(work.operation_key, step, try_number=work.try_number, call="").find(metadata)
    if mark is None:
        return None
    old, new = mark.moves.get(branch, (None, None))
    made = None if new is None else metadata.snapshot(new)
    if made is None:
        return CherryPickResult(
            table=work.table.name,
            branch=branch,
            outcome=Outcome.FOUND,
            operation_key=work.key_text,
            snapshot_id=new,
            previous_snapshot_id=old,
        )
    return _result_of(work, branch, made, Outcome.FOUND, old)


def pick(work: Work, request: CherryPickRequest, step: str) -> CherryPickResult:
    """Pick a snapshot, as a step of the work that was not found done."""
    table, key = work.table, work.operation_key
    once = None if key is None else OnceOnly(key, step, try_number=work.try_number, call=str(uuid4()))
    action = CherryPick(
        table.io,
        work.settings(request),
        source_id=request.snapshot_id,
        once=once,
        expected_snapshot_id=request.expected_snapshot_id,
    )
    if request.dry_run:
        return _look(work, request, action)
    landed = table.land(action)
    if action.made is None or landed.outcome is Outcome.FOUND:
        nothing = CherryPickResult(
            table=table.name,
            branch=request.branch,
            outcome=landed.outcome,
            operation_key=work.key_text,
            source_snapshot_id=request.snapshot_id,
        )
        return find_pick(work, request.branch, step) or nothing
    return _result_of(work, request.branch, action.made, landed.outcome, action.parent_id)


def _result_of(
    work: Work, branch: str, made: Snapshot, outcome: Outcome, previous_snapshot_id: int | None
) -> CherryPickResult:
    source = whole_number(made.summary.get(SOURCE_SNAPSHOT_ID, ""))
    # Of a branch that was moved, the snapshot has the key of the task that wrote it.
    result = CherryPickResult.of(
        [made],
        table=work.table.name,
        branch=branch,
        outcome=outcome,
        source_snapshot_id=made.snapshot_id if source is None else source,
        previous_snapshot_id=previous_snapshot_id,
        appearing=part_of([made]),
    )
    return replace(result, operation_key=work.key_text)


def _look(work: Work, request: CherryPickRequest, action: CherryPick) -> CherryPickResult:
    """Say what a pick would do; raises what it would raise."""
    table, metadata = work.table, work.table.metadata
    source, parent = known_snapshot(metadata, request.snapshot_id), metadata.ref_snapshot(request.branch)
    added, removed = action.look(metadata)
    return CherryPickResult(
        table=table.name,
        branch=request.branch,
        outcome=Outcome.DRY_RUN,
        operation_key=work.key_text,
        snapshot_id=source.snapshot_id if action.is_forward(metadata) else None,
        operation=source.operation,
        source_snapshot_id=source.snapshot_id,
        previous_snapshot_id=None if parent is None else parent.snapshot_id,
        appearing=part_of([source]).with_files(added),
        disappearing=Part().with_files(removed),
    )
