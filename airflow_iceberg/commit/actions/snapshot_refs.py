"""Branches and tags, rollback and fast-forward: changes of a table's refs, each a function that describes one.

`ChangeRefs` makes one or several of them in one commit; it makes no snapshot, and reads no manifest. Not here: the pick
of a snapshot (`cherry_pick`), how a retry knows that its change was made (`commit.refs.marks`), and the retention of
refs (`expire_snapshots`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from airflow_iceberg.commit.checks import of_this_table
from airflow_iceberg.commit.engine import Action
from airflow_iceberg.commit.refs.marks import Moves, OnceOnly
from airflow_iceberg.commit.watermarks import moved_to_main
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import (
    AlreadyExistsError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    came,
)
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId, check_same_table, is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshotRef, SetSnapshotRef, Update
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef

Kind = Literal["branch", "tag"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RefChange:
    """The creation, the move or the removal of one ref.

    Attributes:
        name: the ref.
        step: what is done, in words that are the same at each try of a task.
        wanted: returns the ref for the newest metadata; None drops it. It raises if the change is impossible.
        expected_snapshot_id: the guard: where the ref must be before the change; None for any place.
    """

    name: str
    step: str
    wanted: Callable[[TableMetadata], SnapshotRef | None]
    expected_snapshot_id: int | None = None

    def on(self, metadata: TableMetadata) -> SnapshotRef | None:
        """Return the ref as it is to be; as it is already, if there is nothing to do."""
        found = metadata.refs.get(self.name)
        expected = self.expected_snapshot_id
        if expected is None or (found is not None and found.snapshot_id == expected):
            return self.wanted(metadata)
        try:
            is_done = self.wanted(metadata) == found
        except IcebergError:
            is_done = False
        if not is_done:
            check_expected(self.name, _place(found), expected, self.step)
        return found


def check_expected(name: str, found: int | None, expected: int | None, what: str) -> None:
    """Check a guard: a ref is where the caller has seen it.

    Raises:
        IncompatibleChangeError: it is not.
    """
    if expected not in (None, found):
        where = "does not exist" if found is None else f"is at snapshot {found}"
        raise IncompatibleChangeError(
            f"cannot {what}: {name!r} {where}, expected_snapshot_id is {expected}: another writer has changed it "
            f"since; nothing was changed, look at what is there, and ask again with the new snapshot"
        )


class ChangeRefs(Action):
    """Creates, moves or drops refs, all in one commit.

    Args:
        changes: made in this order, each on the result of those before it.
        once: how other tries of the same work are recognized; None outside of Airflow.

    Attributes:
        moves: where the refs that the last attempt changes were, and where they are to be.
        refs_before_and_after: all refs of the table, without and with the last attempt.
    """

    def __init__(
        self, changes: Sequence[RefChange], *, table_uuid: str, new_uuid: str, once: OnceOnly | None = None
    ) -> None:
        self._changes = changes
        self._table_uuid = table_uuid
        self._new_uuid = new_uuid
        self._once = once
        self.moves: Moves = {}
        self.refs_before_and_after: tuple[Mapping[str, SnapshotRef], Mapping[str, SnapshotRef]] = ({}, {})
        # The refs of earlier attempts: a lost answer is found by its effect.
        self._asked: list[Mapping[str, SnapshotRef | None]] = []

    def __call__(self, metadata: TableMetadata) -> Change:
        check_same_table(metadata, self._table_uuid)
        if self._once is not None:
            self._once.check(metadata)
        refs = self.refs_after(metadata)
        before = metadata.refs
        changed = {name: refs.get(name) for name in (*refs, *before) if refs.get(name) != before.get(name)}
        self.refs_before_and_after = before, refs
        self.moves = {name: (_place(before.get(name)), _place(ref)) for name, ref in changed.items()}
        if not changed:
            return Change(updates=(), requirements=())
        self._asked.append(changed)
        updates = [_update(name, ref) for name, ref in changed.items()]
        if self._once is not None:
            updates += self._once.updates(metadata, self.moves)
        if MAIN_BRANCH in refs:
            updates += moved_to_main(metadata, refs[MAIN_BRANCH].snapshot_id)
        at = tuple(AssertRefSnapshotId(ref=name, snapshot_id=old) for name, (old, _) in self.moves.items())
        return of_this_table(metadata, tuple(updates), at, new_uuid=self._new_uuid)

    def refs_after(self, metadata: TableMetadata) -> Mapping[str, SnapshotRef]:
        """Return all refs of the table after the changes; raises what makes one impossible."""
        shown = metadata
        for change in self._changes:
            ref = change.on(shown)
            if ref == shown.refs.get(change.name):
                continue
            refs = {name: other for name, other in shown.refs.items() if name != change.name or ref is not None}
            refs |= {} if ref is None else {change.name: ref}
            shown = with_refs(shown, refs)
        return shown.refs

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the table has the mark of this work; without a work, whether the refs are as an attempt made them."""
        if not is_same_table(metadata, self._table_uuid):
            return None
        if self._once is not None:
            return self._once.landed(metadata)
        done = any(all(metadata.refs.get(n) == ref for n, ref in asked.items()) for asked in self._asked)
        return Outcome.COMMITTED if done else None

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether the mark would be there; without a work, whether the refs have never moved.

        If one has moved, it may have moved on from where an attempt had put it. Main may have come back: its log tells.
        """
        if self._once is not None:
            return self._once.proves_absence(metadata, base)
        names = {name for asked in self._asked for name in asked}
        if MAIN_BRANCH in names and metadata.snapshot_log != base.snapshot_log:
            return False
        return all(metadata.refs.get(name) == base.refs.get(name) for name in names)


def with_refs(metadata: TableMetadata, refs: Mapping[str, SnapshotRef]) -> TableMetadata:
    """Return the metadata of the same table with other refs."""
    main = refs.get(MAIN_BRANCH)
    return replace(metadata, refs=refs, current_snapshot_id=_place(main))


def _place(ref: SnapshotRef | None) -> int | None:
    return None if ref is None else ref.snapshot_id


def _update(name: str, ref: SnapshotRef | None) -> Update:
    return RemoveSnapshotRef(ref_name=name) if ref is None else SetSnapshotRef(ref_name=name, ref=ref)


# -- branches and tags ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """What `expire_snapshots` keeps of a ref; None leaves it as it is, or to the table's properties."""

    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None

    def of(self, ref: SnapshotRef) -> SnapshotRef:
        """Return a ref with this retention."""
        given = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        return replace(ref, **given)


def create_ref(
    name: str,
    *,
    kind: Kind,
    snapshot_id: int | None = None,
    retention: Retention | None = None,
    replace_existing: bool = False,
    if_not_exists: bool = False,
    expected_snapshot_id: int | None = None,
) -> RefChange:
    """Return the change that creates a branch or a tag, or moves one; the same ref again is never an error.

    Args:
        snapshot_id: the ref's snapshot; the head of main by default.
        replace_existing: whether an existing ref of this name is moved. It keeps what `retention` leaves out.
        if_not_exists: whether an existing ref of this name and kind is left as it is.
    """

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        found = metadata.refs.get(name)
        if found is not None and found.type != kind:
            raise AlreadyExistsError(
                f"{name!r} is a {found.type} of table {metadata.location} already, at snapshot {found.snapshot_id}; "
                f"it cannot become a {kind}"
            )
        if found is not None and if_not_exists:
            return found
        target = snapshot_id if snapshot_id is not None else metadata.current_snapshot_id
        if target is None:
            raise InvalidInputError(f"cannot make {kind} {name!r}: table {metadata.location} has no snapshot yet")
        known_snapshot(metadata, target)
        is_moved = found is not None and replace_existing
        basis = found if found is not None and is_moved else SnapshotRef(snapshot_id=target, type=kind)
        ref = (retention or Retention()).of(replace(basis, snapshot_id=target))
        if found is not None and found != ref and not replace_existing:
            raise AlreadyExistsError(
                f"{found.type} {name!r} of table {metadata.location} exists already, at snapshot {found.snapshot_id}"
            )
        return ref

    step = f"{'replace' if replace_existing else 'create'} {kind} {name!r}"
    return RefChange(name=_named(name, kind), step=step, wanted=wanted, expected_snapshot_id=expected_snapshot_id)


def set_retention(name: str, *, kind: Kind, retention: Retention, expected_snapshot_id: int | None = None) -> RefChange:
    """Return the change that sets the retention of a branch or a tag, which stays where it is."""

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        return retention.of(_known_ref(metadata, name, kind))

    step = f"set the retention of {kind} {name!r}"
    return RefChange(name=_named(name, kind), step=step, wanted=wanted, expected_snapshot_id=expected_snapshot_id)


def drop_ref(name: str, *, kind: Kind, if_exists: bool = False, expected_snapshot_id: int | None = None) -> RefChange:
    """Return the change that drops a branch or a tag; its snapshots are kept until they expire."""

    def wanted(metadata: TableMetadata) -> None:
        if name == MAIN_BRANCH:
            raise InvalidInputError("branch 'main' cannot be dropped")
        if name in metadata.refs or not if_exists:
            _known_ref(metadata, name, kind)

    step = f"drop {kind} {name!r}"
    return RefChange(name=_named(name, kind), step=step, wanted=wanted, expected_snapshot_id=expected_snapshot_id)


def _named(name: object, kind: str) -> str:
    if not isinstance(name, str) or name.strip() in ("", "None"):
        raise InvalidInputError(f"the name of the {kind} is {came(name)}, expected a text that is not empty")
    return name


def _known_ref(metadata: TableMetadata, name: str, kind: Kind) -> SnapshotRef:
    found = metadata.refs.get(name)
    if found is None:
        known = ", ".join(sorted(n for n, ref in metadata.refs.items() if ref.type == kind)) or "none"
        raise NotFoundError(f"no {kind} {name!r} in table {metadata.location}; it has: {known}")
    if found.type != kind:
        raise InvalidInputError(f"{name!r} is a {found.type} of table {metadata.location}, no {kind}")
    return found


# -- moving a branch --------------------------------------------------------------------------------------------------


def fast_forward(
    branch: str, to: str, *, to_snapshot_id: int | None = None, expected_snapshot_id: int | None = None
) -> RefChange:
    """Return the change that moves a branch forward to the head of another ref, and creates the branch if necessary.

    It raises IncompatibleChangeError when the branch has snapshots that the other ref does not have.

    Args:
        to_snapshot_id: a guard: where the other ref must be, such as the snapshot that was audited.
    """

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        target = metadata.ref_snapshot(to)
        if target is None:
            raise InvalidInputError(f"cannot fast-forward {branch!r} to {to!r}, which has no snapshot yet")
        if to_snapshot_id not in (None, target.snapshot_id):
            raise IncompatibleChangeError(
                f"cannot fast-forward {branch!r} to {to!r}: it is at snapshot {target.snapshot_id}, expected "
                f"{to_snapshot_id}: another writer has committed to it since; nothing was changed"
            )
        found = metadata.refs.get(branch)
        if found is None:
            return SnapshotRef(snapshot_id=target.snapshot_id, type="branch")
        if not found.is_branch:
            raise InvalidInputError(f"{branch!r} is a tag, only branches move forward")
        if not any(s.snapshot_id == found.snapshot_id for s in metadata.ancestors(target.snapshot_id)):
            raise IncompatibleChangeError(
                f"cannot fast-forward branch {branch!r} to {to!r}: snapshot {found.snapshot_id}, its head, is not an "
                f"ancestor of snapshot {target.snapshot_id}; both have changes of their own"
            )
        return replace(found, snapshot_id=target.snapshot_id)

    step = f"fast-forward {branch!r} to {to!r}"
    return RefChange(name=_named(branch, "branch"), step=step, wanted=wanted, expected_snapshot_id=expected_snapshot_id)


def set_current(
    snapshot_id: int | None = None,
    *,
    ref: str | None = None,
    branch: str = MAIN_BRANCH,
    expected_snapshot_id: int | None = None,
) -> RefChange:
    """Return the change that points a branch to any snapshot of the table, or to that of another ref."""
    if (snapshot_id is None) == (ref is None):
        raise InvalidInputError(f"expected a snapshot_id or a ref, got {snapshot_id!r} and {ref!r}")

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        target = metadata.ref_snapshot(ref) if ref is not None else known_snapshot(metadata, snapshot_id or 0)
        if target is None:
            raise InvalidInputError(f"cannot move branch {branch!r} to {ref!r}, which has no snapshot yet")
        return _moved(metadata, branch, target.snapshot_id)

    step = f"set the current snapshot of {branch!r}"
    return RefChange(name=_named(branch, "branch"), step=step, wanted=wanted, expected_snapshot_id=expected_snapshot_id)


def rollback_to_snapshot(
    snapshot_id: int | None = None,
    *,
    ref: str | None = None,
    branch: str = MAIN_BRANCH,
    expected_snapshot_id: int | None = None,
) -> RefChange:
    """Return the change that moves a branch back to one of its ancestors, by its id or by a ref that is there."""

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        target = metadata.ref_snapshot(ref) if ref is not None else known_snapshot(metadata, snapshot_id or 0)
        head = metadata.ref_snapshot(branch)
        ancestors = metadata.ancestors(None if head is None else head.snapshot_id)
        if target is None or not any(s.snapshot_id == target.snapshot_id for s in ancestors):
            what = snapshot_id if target is None else target.snapshot_id
            raise InvalidInputError(
                f"cannot roll back to snapshot {what}: it is not an ancestor of the head of branch {branch!r}"
            )
        return _moved(metadata, branch, target.snapshot_id)

    step = f"roll back {branch!r}"
    return RefChange(name=_named(branch, "branch"), step=step, wanted=wanted, expected_snapshot_id=expected_snapshot_id)


def rollback_to_timestamp(
    timestamp_ms: int, *, branch: str = MAIN_BRANCH, expected_snapshot_id: int | None = None
) -> RefChange:
    """Return the change that moves a branch back to its newest ancestor of before a time."""

    def wanted(metadata: TableMetadata) -> SnapshotRef:
        head = metadata.ref_snapshot(branch)
        for snapshot in metadata.ancestors(None if head is None else head.snapshot_id):
            if snapshot.timestamp_ms < timestamp_ms:
                return _moved(metadata, branch, snapshot.snapshot_id)
        raise InvalidInputError(
            f"cannot roll back to {timestamp_ms} ms since the epoch: branch {branch!r} has no snapshot of before that"
        )

    step = f"roll back {branch!r}"
    return RefChange(name=_named(branch, "branch"), step=step, wanted=wanted, expected_snapshot_id=expected_snapshot_id)


def known_snapshot(metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    """Return a snapshot of the table; raises NotFoundError if it has none of this id (any more)."""
    snapshot = metadata.snapshot(snapshot_id)
    if snapshot is None:
        newest = sorted(metadata.snapshots, key=lambda one: one.timestamp_ms, reverse=True)[:3]
        error = NotFoundError(f"table {metadata.location} has no snapshot {snapshot_id}")
        ids = ", ".join(str(one.snapshot_id) for one in newest)
        error.advice = f"it may have expired: choose one that the table has ({f'the newest: {ids}' if ids else 'none'})"
        raise error
    return snapshot


def _moved(metadata: TableMetadata, branch: str, snapshot_id: int) -> SnapshotRef:
    found = metadata.refs.get(branch)
    if found is None:
        return SnapshotRef(snapshot_id=snapshot_id, type="branch")
    if not found.is_branch:
        raise InvalidInputError(f"{branch!r} is a tag, only branches are moved")
    return replace(found, snapshot_id=snapshot_id)
