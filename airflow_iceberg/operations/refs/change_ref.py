"""Change one ref in one commit, or say what the change would do: what all operations on refs share.

One load and one commit of metadata; only a dry run reads manifests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_iceberg.commit.actions.snapshot_refs import RefChange
from airflow_iceberg.commit.checks import check_writable
from airflow_iceberg.commit.refs.manage_snapshots import action_of
from airflow_iceberg.commit.refs.marks import OnceOnly
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.operations.refs.difference import Difference, Part
from airflow_iceberg.operations.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class RefResult(OperationResult):
    """What a change of a branch or tag did, found done, or would do.

    Attributes:
        ref: the branch or tag.
        previous_snapshot_id: where it was; None if it did not exist.
        snapshot_id: where it is now; None if it does not exist any more.
        appearing, disappearing: what readers of the ref see now, and do not see any more.
    """

    makes_snapshots: ClassVar[bool] = False

    ref: str
    previous_snapshot_id: int | None = None
    snapshot_id: int | None = None
    appearing: Part = field(default_factory=Part)
    disappearing: Part = field(default_factory=Part)

    def place_of_branch(self, metadata: TableMetadata) -> tuple[int | None, int | None]:
        """Return where the branch was and is."""
        return self.previous_snapshot_id, self.snapshot_id


def change_ref(work: Work, change: RefChange, *, dry_run: bool = False) -> RefResult:
    """Make a change of one ref exactly once, or only look what it would do.

    Raises:
        AlreadyExistsError, InvalidInputError, NotFoundError: the change is impossible on this table.
        IncompatibleChangeError: the guard: another writer has moved the ref; or a later run has done the work.
        UnsupportedError: this version does not write the table.
        CommitConflictError, CommitUnknownError: as `commit.engine.commit`.
    """
    table, before = work.table, work.table.metadata
    check_writable(before, table.name)
    action = action_of(table, [change], operation_key=work.operation_key, try_number=work.try_number)
    if dry_run:
        after = action.refs_after(before)
        parts = Difference(before, change.name, before.refs, after).with_files(table.io)
        places = {"previous_snapshot_id": _place(before.refs, change.name), "snapshot_id": _place(after, change.name)}
        return _result(work, change, Outcome.DRY_RUN, parts, **places)
    landed = table.land(action)
    if landed.outcome is Outcome.FOUND:
        return _found(work, change)
    now = table.metadata
    if not action.moves:
        place = _place(now.refs, change.name)
        return _result(work, change, landed.outcome, previous_snapshot_id=place, snapshot_id=place)
    refs_before, refs_after = action.refs_before_and_after
    old, new = action.moves[change.name]
    parts = Difference(now, change.name, refs_before, refs_after).snapshots()
    return _result(work, change, landed.outcome, parts, previous_snapshot_id=old, snapshot_id=new)


def _found(work: Work, change: RefChange) -> RefResult:
    old, new = found_moves(work, change.step, change.name)
    return _result(work, change, Outcome.FOUND, previous_snapshot_id=old, snapshot_id=new)


def found_moves(work: Work, step: str, ref: str) -> tuple[int | None, int | None]:
    """Return where a ref was before and after an earlier try of the same work; where it is now if that is not known."""
    metadata, key = work.table.metadata, work.operation_key
    mark = None if key is None else OnceOnly(key, step, try_number=work.try_number, call="").find(metadata)
    place = _place(metadata.refs, ref)
    return (place, place) if mark is None else mark.moves.get(ref, (place, place))


def _result(
    work: Work, change: RefChange, outcome: Outcome, parts: tuple[Part, Part] | None = None, **more: Any
) -> RefResult:
    appearing, disappearing = parts or (Part(), Part())
    return RefResult(
        table=work.table.name,
        outcome=outcome,
        operation_key=work.key_text,
        ref=change.name,
        appearing=appearing,
        disappearing=disappearing,
        **more,
    )


def _place(refs: Any, name: str) -> int | None:
    ref = refs.get(name)
    return None if ref is None else ref.snapshot_id
