"""What a Paimon sensor waits for: one decision, shared by the sensor and its trigger.

Here: the condition, the progress, and one look at the table. Not here: polling, and how an event ends a task (the
sensor and its trigger). This module does not import Arrow: sensors are parsed with every DAG file.

A look usually reads the hint and one snapshot file. Its progress is the start of the next look, so every snapshot is
checked once, the newest first. Snapshot ids are used again after a rollback, and old snapshots expire: a look that
finds either ends the wait, since the snapshot that the user waits for may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError, NotFoundError, SnapshotsLostError
from airflow_iceberg.paimon.snapshots import COMMIT_KINDS

if TYPE_CHECKING:
    from airflow_iceberg.paimon.index_manifests import VectorRange
    from airflow_iceberg.paimon.manifest_lists import FileFilter
    from airflow_iceberg.paimon.snapshots import Snapshot
    from airflow_iceberg.paimon.table import PaimonTable


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonCondition:
    """Which snapshot ends the wait; it must meet all conditions that are given.

    Attributes:
        after_ms: the time after which snapshots count, in milliseconds since the epoch.
        commit_kinds: some of APPEND, COMPACT, OVERWRITE, ANALYZE; None for all.
        min_watermark: the minimum watermark of the snapshot, in milliseconds since the epoch.
        min_new_records: the minimum number of records that were added since the start, in all snapshots of these kinds
            together, whatever their watermark; in the partition, if there is one.
        partition: values of partition keys, as `literals` reads them: the snapshot must change files or deletion
            vectors of this partition.
        tag: the tag of the snapshot; nothing else is read until it exists.
        fully_compacted: whether every bucket (of the partition, if there is one) must have only one sorted run, and
            that above level 0. Only tables with a primary key have levels.
    """

    after_ms: int | None = None
    commit_kinds: tuple[str, ...] | None = None
    min_watermark: int | None = None
    min_new_records: int | None = None
    partition: Mapping[str, Any] | None = None
    tag: str | None = None
    fully_compacted: bool = False

    def __post_init__(self) -> None:
        if self.min_new_records is not None and self.min_new_records < 1:
            raise InvalidInputError(f"min_new_records is {self.min_new_records}, expected 1 or more")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """How far the table has been checked.

    Attributes:
        snapshot_id: the last snapshot that was checked; 0 for none.
        identity: the identity of that snapshot; None if only its id is known, and a rollback to it cannot be noticed.
        new_records: the records that were added by the snapshots checked since the wait began.
    """

    snapshot_id: int
    identity: str | None = None
    new_records: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the progress in JSON types; the id is text, as in all XComs."""
        return {"snapshot_id": str(self.snapshot_id), "identity": self.identity, "new_records": self.new_records}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Seen:
        """Read what `to_dict` returned."""
        return cls(
            snapshot_id=int(value["snapshot_id"]),
            identity=value.get("identity"),
            new_records=int(value.get("new_records", 0)),
        )


class EventKind(Enum):
    """Why the wait ends."""

    SNAPSHOT = "snapshot"
    ROLLED_BACK = "rolled_back"
    EXPIRED_GAP = "expired_gap"


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonEvent:
    """The end of the wait.

    Attributes:
        snapshot: the snapshot that meets the condition; after a rollback or a gap the latest one, None if there is
            none.
        seen: the progress before this look.
        new_records: the records that were added since the wait began; None unless they were counted.
        missed: the first and last id of the snapshots that expired unseen.
    """

    kind: EventKind
    snapshot: Snapshot | None
    seen: Seen | None = None
    new_records: int | None = None
    missed: tuple[int, int] | None = None

    @property
    def snapshot_id(self) -> int | None:
        """Id of the snapshot."""
        return None if self.snapshot is None else self.snapshot.id

    def to_dict(self) -> dict[str, Any]:
        """Return the event in JSON types; ids are text, as in all XComs."""
        snapshot = self.snapshot
        return {
            "event": self.kind.value,
            "snapshot_id": None if snapshot is None else str(snapshot.id),
            **{name: None if snapshot is None else getattr(snapshot, ours) for name, ours in _IN_XCOM.items()},
            "new_records": self.new_records,
            "seen_snapshot_id": None if self.seen is None else str(self.seen.snapshot_id),
            "missed": None if self.missed is None else [str(number) for number in self.missed],
        }


# Attributes of a snapshot by their names in XCom.
_IN_XCOM = {
    **{"identity": "identity", "timestamp_ms": "time_ms", "commit_kind": "commit_kind", "schema_id": "schema_id"},
    **{"watermark": "watermark", "total_records": "total_record_count", "delta_records": "delta_record_count"},
}


def lost(event: Mapping[str, Any], table: str) -> SnapshotsLostError:
    """Return the error for a rollback or a gap, given as `PaimonEvent.to_dict` returned it."""
    now = "no snapshot any more" if event["snapshot_id"] is None else f"snapshot {event['snapshot_id']}"
    if event["event"] == EventKind.EXPIRED_GAP.value:
        first, last = event["missed"]
        what = f"snapshots {first} to {last} of {table} expired before they were seen"
        remedy = "keep snapshots longer, or check more often"
    else:
        what = f"{table} was rolled back or created again after snapshot {event['seen_snapshot_id']}, the last one seen"
        remedy = "discard what was read from the lost snapshots"
    return SnapshotsLostError(f"{what}; it is now at {now}: {remedy}, and read the whole table once")


Look = tuple[Seen | None, PaimonEvent | None]


def look(table: PaimonTable, condition: PaimonCondition, seen: Seen | None = None) -> Look:
    """Look at the table once.

    Args:
        seen: the progress that the last look returned, or the start: only later snapshots count. None starts with all
            existing snapshots (for full compaction, with the newest of them that counts).

    Returns:
        The progress, and the event, None if the wait continues.

    Raises:
        NotFoundError: the table does not exist.
        InvalidInputError: the condition does not fit the table.
    """
    try:
        return _look_once(table, condition, seen)
    except NotFoundError:
        # Snapshots, with their manifests, may expire while they are read. The second try reads the others.
        before = _range(table)
    try:
        return _look_once(table, condition, seen)
    except NotFoundError:
        if _range(table) == before:
            raise
        return seen, None


def _range(table: PaimonTable) -> tuple[int | None, int | None]:
    return table.earliest_snapshot_id(), table.latest_snapshot_id()


def _look_once(table: PaimonTable, condition: PaimonCondition, seen: Seen | None) -> Look:
    head = table.latest_snapshot()
    if condition.partition is not None:
        table.check_partition(head, condition.partition)
    if head is None:
        table.schema_ids()  # raises an error if the table does not exist
        if seen is None or not seen.snapshot_id:
            return seen, None
        return Seen(snapshot_id=0), PaimonEvent(kind=EventKind.ROLLED_BACK, snapshot=None, seen=seen)
    event = None if seen is None else _what_went_away(table, condition, seen, head)
    if event is not None:
        return Seen(snapshot_id=head.id, identity=head.identity), event
    if condition.tag is not None:
        return _look_at_tag(table, condition, condition.tag, seen)
    return _look_behind(table, condition, seen, head)


def _look_at_tag(table: PaimonTable, condition: PaimonCondition, tag: str, seen: Seen | None) -> Look:
    """Look at the snapshot of a tag, which may be an old one."""
    if not table.has_tag(tag):
        return seen, None
    snapshot = table.tag(tag).snapshot
    is_new = seen is None or snapshot.id > seen.snapshot_id
    if not is_new or not _is_wanted(snapshot, condition) or not _has_watermark(snapshot, condition):
        return seen, None
    records = None if condition.min_new_records is None else _records(table, snapshot, condition)
    if (records or 0) < (condition.min_new_records or 0):
        return seen, None
    # Manifests are read last, and only if they have to be.
    if not (_changes_partition(table, snapshot, condition) and _is_compacted_enough(table, snapshot, condition)):
        return seen, None
    event = PaimonEvent(kind=EventKind.SNAPSHOT, snapshot=snapshot, seen=seen, new_records=records)
    return Seen(snapshot_id=snapshot.id, identity=snapshot.identity), event


def _look_behind(table: PaimonTable, condition: PaimonCondition, seen: Seen | None, head: Snapshot) -> Look:
    records = None if condition.min_new_records is None else (0 if seen is None else seen.new_records)
    unseen: Iterator[Snapshot] | Sequence[Snapshot] = _unseen(table, condition, seen, head)
    if records is not None:
        unseen = tuple(unseen)
        records += sum(_records(table, snapshot, condition) for snapshot in unseen)
    is_enough = (records or 0) >= (condition.min_new_records or 0)
    found = _newest(table, condition, unseen, seen) if is_enough else None
    now = Seen(snapshot_id=head.id, identity=head.identity, new_records=records or 0)
    if found is None:
        return now, None
    event = PaimonEvent(kind=EventKind.SNAPSHOT, snapshot=found, seen=seen, new_records=records)
    return replace(now, new_records=0), event


def _newest(
    table: PaimonTable, condition: PaimonCondition, unseen: Iterable[Snapshot], seen: Seen | None
) -> Snapshot | None:
    """Return the first of these snapshots that meets the condition; manifests are read for as few as possible."""
    for snapshot in unseen:
        if not _has_watermark(snapshot, condition) or not _changes_partition(table, snapshot, condition):
            continue
        if _is_compacted_enough(table, snapshot, condition):
            return snapshot
        if seen is None:
            return None  # the files of older snapshots are not worth reading all their manifests
    return None


def _what_went_away(table: PaimonTable, condition: PaimonCondition, seen: Seen, head: Snapshot) -> PaimonEvent | None:
    """Return the event that the table was rolled back to before the progress, or that snapshots expired unseen."""
    rolled_back = PaimonEvent(kind=EventKind.ROLLED_BACK, snapshot=head, seen=seen)
    if head.id < seen.snapshot_id:
        return rolled_back
    if head.id == seen.snapshot_id:
        return None if seen.identity in (None, head.identity) else rolled_back
    before = table.find_snapshot(seen.snapshot_id) if seen.snapshot_id else None
    if before is not None:
        return None if seen.identity in (None, before.identity) else rolled_back
    if condition.tag is not None:
        return None  # a tag keeps its snapshot from expiring
    earliest = table.earliest_snapshot_id()
    if earliest is None or earliest <= seen.snapshot_id + 1:
        return None
    missed = (seen.snapshot_id + 1, earliest - 1)
    return PaimonEvent(kind=EventKind.EXPIRED_GAP, snapshot=head, seen=seen, missed=missed)


def _unseen(table: PaimonTable, condition: PaimonCondition, seen: Seen | None, head: Snapshot) -> Iterator[Snapshot]:
    """Yield the snapshots of the wanted kinds that have not been checked, newest first."""
    number, snapshot, first = head.id, head, 0 if seen is None else seen.snapshot_id + 1
    while number >= first:
        if condition.after_ms is not None and snapshot.time_ms <= condition.after_ms:
            return
        if _is_wanted(snapshot, condition):
            yield snapshot
        first = first or table.earliest_snapshot_id() or head.id
        number -= 1
        if number >= first:
            snapshot = table.snapshot(number)


def _is_wanted(snapshot: Snapshot, condition: PaimonCondition) -> bool:
    """Return whether a snapshot is late enough and of a wanted kind, so that its records count."""
    if condition.after_ms is not None and snapshot.time_ms <= condition.after_ms:
        return False
    return condition.commit_kinds is None or snapshot.commit_kind in condition.commit_kinds


def _has_watermark(snapshot: Snapshot, condition: PaimonCondition) -> bool:
    if condition.min_watermark is None:
        return True
    return snapshot.watermark is not None and snapshot.watermark >= condition.min_watermark


def _records(table: PaimonTable, snapshot: Snapshot, condition: PaimonCondition) -> int:
    """Return the number of records that a snapshot added; 0 if it removed some."""
    if condition.partition is None and snapshot.delta_record_count is not None:
        return max(snapshot.delta_record_count, 0)
    return max(table.delta_files(snapshot, table.filter_of(snapshot, condition.partition)).added_records(), 0)


def _changes_partition(table: PaimonTable, snapshot: Snapshot, condition: PaimonCondition) -> bool:
    if condition.partition is None:
        return True
    wanted = table.filter_of(snapshot, condition.partition)
    return len(table.delta_files(snapshot, wanted)) > 0 or _changes_vectors(table, snapshot, wanted)


def _changes_vectors(table: PaimonTable, snapshot: Snapshot, wanted: FileFilter) -> bool:
    """Return whether a snapshot changed deletion vectors, as a delete does that changes no data files.

    Every snapshot names all index files, so they are compared with those of the snapshot before. If that one has
    expired, a commit that changed no data files is assumed to have changed vectors.
    """
    before = table.find_snapshot(snapshot.id - 1) if snapshot.id > 1 else None
    if before is not None:
        if before.index_manifest == snapshot.index_manifest:
            return False
        return _vectors(table, before, wanted) != _vectors(table, snapshot, wanted)
    if snapshot.commit_kind == "ANALYZE" or table.manifests(snapshot, "delta"):
        return False
    return bool(_vectors(table, snapshot, wanted))


def _vectors(table: PaimonTable, snapshot: Snapshot, wanted: FileFilter) -> set[tuple[str, VectorRange]]:
    keys = table.schema(snapshot.schema_id).partition_keys
    found = table.deletion_vectors(snapshot)
    return {(item.index.file_name, item.vector) for item in found if wanted.takes(item.index.partition, keys)}


def _is_compacted_enough(table: PaimonTable, snapshot: Snapshot, condition: PaimonCondition) -> bool:
    if not condition.fully_compacted:
        return True
    if not table.schema(snapshot.schema_id).primary_keys:
        raise InvalidInputError(
            f"fully_compacted is set for {table.location}, which has no primary key: the files of such a table "
            f"have no levels; use commit_kinds=('COMPACT',) instead"
        )
    levels: dict[tuple[str, int], set[int]] = {}
    entries = table.live_files(snapshot, table.filter_of(snapshot, condition.partition))
    sums = entries.columns.select(["partition", "bucket", "level"]).group_by(["partition", "bucket", "level"])
    for row in sums.aggregate([]).to_pylist():
        levels.setdefault((repr(entries.partitions[row["partition"]]), row["bucket"]), set()).add(row["level"])
    return all(len(found) == 1 and 0 not in found for found in levels.values())


def should_keep(table: PaimonTable, kept: Seen | None, now: Seen) -> bool:
    """Return whether the progress should be stored, because the stored progress is old.

    A restarted triggerer starts at the stored progress. Once half of the existing snapshots are newer than it, it may
    soon expire, and a restart would then look like a gap.
    """
    earliest = table.earliest_snapshot_id() or now.snapshot_id
    return (0 if kept is None else kept.snapshot_id) < earliest + (now.snapshot_id - earliest) // 2
