"""What a Paimon sensor waits for: one decision, shared by the sensor and its trigger.

Here: the condition and what was seen so far as values, and one look at the table. Not here: polling, and how an event
becomes the end of a task (the sensor and its trigger). Imports no Arrow: sensors are parsed with every DAG file.

A look reads the hint and as a rule one snapshot file. What it saw goes into the next look, so that every snapshot is
judged once. Snapshot ids are used again after a rollback and expire at the other end: a look that finds either says so
at once, since what was waited for may be among what is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.paimon.snapshots import COMMIT_KINDS

if TYPE_CHECKING:
    from airflow_iceberg.paimon.snapshots import Snapshot
    from airflow_iceberg.paimon.table import PaimonTable


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonCondition:
    """Which snapshot counts as news; everything that is given has to hold for it.

    Attributes:
        after_ms: only snapshots committed strictly later than this time, milliseconds since the epoch.
        commit_kinds: some of APPEND, COMPACT, OVERWRITE, ANALYZE; None for any.
        min_watermark: the snapshot's watermark is at least this, milliseconds since the epoch.
        min_new_records: so many records came, in all snapshots of these kinds since the one last seen together.
        partition: values of partition keys: the snapshot changed files of this partition.
        tag: the snapshot has this tag; nothing else is looked at before there is one.
        fully_compacted: every bucket (of the partition, where one is given) is one sorted run above level 0.
    """

    after_ms: int | None = None
    commit_kinds: tuple[str, ...] | None = None
    min_watermark: int | None = None
    min_new_records: int | None = None
    partition: Mapping[str, Any] | None = None
    tag: str | None = None
    fully_compacted: bool = False

    def __post_init__(self) -> None:
        if self.commit_kinds is None:
            return
        object.__setattr__(self, "commit_kinds", tuple(self.commit_kinds))
        unknown = [kind for kind in self.commit_kinds if kind not in COMMIT_KINDS]
        if unknown or not self.commit_kinds:
            got = f"'{unknown[0]}'" if unknown else "none"
            raise InvalidInputError(f"unknown commit kind: expected some of {', '.join(COMMIT_KINDS)}, got {got}")

    def to_dict(self) -> dict[str, Any]:
        """Return the condition in JSON types, for the trigger."""
        kinds = None if self.commit_kinds is None else list(self.commit_kinds)
        return {**asdict(self), "commit_kinds": kinds}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> PaimonCondition:
        """Read what `to_dict` returned."""
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """How far the table has been looked at.

    Attributes:
        snapshot_id: this snapshot and all before it have been judged; 0 for none.
        identity: of that snapshot; None where only its id is known, and nothing can be said of a rollback to it.
        new_records: of the snapshots that were judged since the wait began.
    """

    snapshot_id: int
    identity: str | None = None
    new_records: int = 0


class EventKind(Enum):
    """What a look found."""

    SNAPSHOT = "snapshot"
    ROLLED_BACK = "rolled_back"
    EXPIRED_GAP = "expired_gap"


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonEvent:
    """The end of waiting.

    Attributes:
        snapshot_id, identity: the snapshot that was waited for; or, after a rollback or behind a gap, the latest one,
            None for a table that has none any more.
        seen: what had been seen when the snapshots went away.
        missed: first and last id of the snapshots that expired unseen.
    """

    kind: EventKind
    snapshot_id: int | None
    identity: str | None
    seen: Seen | None = None
    missed: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the event in JSON types; ids as text, as everywhere in XCom."""
        return {
            "kind": self.kind.value,
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
            "identity": self.identity,
            "seen_snapshot_id": None if self.seen is None else str(self.seen.snapshot_id),
            "missed": None if self.missed is None else [str(number) for number in self.missed],
        }


def look(
    table: PaimonTable, condition: PaimonCondition, seen: Seen | None = None
) -> tuple[Seen | None, PaimonEvent | None]:
    """Look at the table once.

    Args:
        seen: what the look before returned, or where to start: only later snapshots count. None starts with the
            latest snapshot, or with those after `condition.after_ms`.
    Returns:
        What to give to the next look, and the event, None while there is nothing to tell.
    Raises:
        NotFoundError: there is no such table.
    """
    latest = table.latest_snapshot_id()
    if latest is None:
        return (seen, _rolled_back(None, seen)) if seen is not None and seen.snapshot_id else (seen, None)
    if condition.tag is not None and condition.tag not in table.tag_names():
        return seen, None
    try:
        return _look_behind(table, condition, seen, latest)
    except NotFoundError:
        # A snapshot went away between the listing and the reading; the next look sees which end it was at.
        if table.latest_snapshot_id() == latest:
            raise
        return seen, None


def _look_behind(
    table: PaimonTable, condition: PaimonCondition, seen: Seen | None, latest: int
) -> tuple[Seen | None, PaimonEvent | None]:
    head = table.snapshot(latest)
    if seen is not None:
        event = _what_went_away(table, seen, head)
        if event is not None:
            return seen, event
    found, records = None, 0 if seen is None else seen.new_records
    for snapshot in _unseen(table, condition, seen, head):
        if not _is_wanted(snapshot, condition):
            continue
        records += max(snapshot.delta_record_count or 0, 0)
        if records >= (condition.min_new_records or 0) and _holds_wanted_files(table, snapshot, condition):
            found = snapshot
    now = Seen(snapshot_id=head.id, identity=head.identity, new_records=records)
    if found is None:
        # A tag may be put on a snapshot that was judged before there was one.
        return (seen if condition.tag is not None else now), None
    return replace(now, new_records=0), PaimonEvent(
        kind=EventKind.SNAPSHOT, snapshot_id=found.id, identity=found.identity, seen=seen
    )


def _what_went_away(table: PaimonTable, seen: Seen, head: Snapshot) -> PaimonEvent | None:
    """Return the event that the table was rolled back behind what was seen, or that snapshots expired unseen."""
    if head.id < seen.snapshot_id:
        return _rolled_back(head, seen)
    if head.id == seen.snapshot_id:
        return None if seen.identity in (None, head.identity) else _rolled_back(head, seen)
    try:
        before = table.snapshot(seen.snapshot_id) if seen.snapshot_id else None
    except NotFoundError:
        before = None
    if before is not None:
        return None if seen.identity in (None, before.identity) else _rolled_back(head, seen)
    earliest = table.earliest_snapshot_id()
    if earliest is None or earliest <= seen.snapshot_id + 1:
        return None
    return PaimonEvent(
        kind=EventKind.EXPIRED_GAP,
        snapshot_id=head.id,
        identity=head.identity,
        seen=seen,
        missed=(seen.snapshot_id + 1, earliest - 1),
    )


def _rolled_back(head: Snapshot | None, seen: Seen | None) -> PaimonEvent:
    return PaimonEvent(
        kind=EventKind.ROLLED_BACK,
        snapshot_id=None if head is None else head.id,
        identity=None if head is None else head.identity,
        seen=seen,
    )


def _unseen(table: PaimonTable, condition: PaimonCondition, seen: Seen | None, head: Snapshot) -> Iterator[Snapshot]:
    """Yield the snapshots that have not been judged, oldest first."""
    if condition.tag is not None:
        tagged = table.tag(condition.tag).snapshot
        if seen is None or tagged.id > seen.snapshot_id:
            yield tagged
        return
    if seen is not None:
        first = seen.snapshot_id + 1
    elif condition.after_ms is not None:
        first = _first_after(table, condition.after_ms, head)
    else:
        first = head.id
    for number in range(first, head.id):
        yield table.snapshot(number)
    if first <= head.id:
        yield head


def _first_after(table: PaimonTable, after_ms: int, head: Snapshot) -> int:
    """Return the id of the first snapshot after a time, found from the latest one backwards."""
    earliest = table.earliest_snapshot_id() or head.id
    number, snapshot = head.id, head
    while snapshot.time_ms > after_ms:
        if number <= earliest:
            return number
        number -= 1
        snapshot = table.snapshot(number)
    return number + 1


def _is_wanted(snapshot: Snapshot, condition: PaimonCondition) -> bool:
    """Tell whether what the snapshot file itself says is what is waited for."""
    if condition.after_ms is not None and snapshot.time_ms <= condition.after_ms:
        return False
    if condition.commit_kinds is not None and snapshot.commit_kind not in condition.commit_kinds:
        return False
    return condition.min_watermark is None or (snapshot.watermark or -1) >= condition.min_watermark


def _holds_wanted_files(table: PaimonTable, snapshot: Snapshot, condition: PaimonCondition) -> bool:
    """Tell whether the files of the snapshot are what is waited for; manifests are read only when they have to be."""
    from airflow_iceberg.paimon.manifests import FileFilter

    wanted = FileFilter(partition=condition.partition)
    if condition.partition is not None and not len(table.delta_files(snapshot, wanted)):
        return False
    if not condition.fully_compacted:
        return True
    levels: dict[tuple[Any, int], set[int]] = {}
    for entry in table.live_files(snapshot, wanted):
        levels.setdefault((repr(entry.partition), entry.bucket), set()).add(entry.level)
    return all(len(found) == 1 and 0 not in found for found in levels.values())
