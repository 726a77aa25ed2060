"""The events of a watched table: which snapshots are new since a watermark, which of them count, what an event says.

Here: `Watermark`, `new_snapshots`, `EventFilter` and `payload`. Not here: polling, and where the watermark is kept
(`triggers`); the reading of events (`events`). Imports neither Arrow nor Airflow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.partitions.spec import partition_name
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.plan.conditions.decision import Facts
from airflow_iceberg.plan.conditions.partition import by_field, is_in, may_be_null, texts_of
from airflow_iceberg.plan.new_snapshot import check_operations, describe, is_wanted

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot

# What one event holds at most: it is stored in Airflow's database, and summaries may be written by anybody.
MOST_PARTITIONS, _MOST_TEXT = 100, 250
_WRITER = {"dag_id": "airflow.dag-id", "run_id": "airflow.run-id", "task_id": "airflow.task-id"}
_KEY = "airflow.operation-key"
_PARTITION, _INCLUDED, _CHANGED = "partitions.", "partition-summaries-included", "changed-partition-count"


@dataclass(frozen=True, kw_only=True, slots=True)
class Watermark:
    """The last snapshot of a branch whose event was fired.

    Attributes:
        table_uuid: the table; another one of the same name starts again.
        snapshot_id: None while the branch was empty.
        sequence_number, timestamp_ms: those of the snapshot, by which later ones are known after it has expired;
            without a snapshot, the time from which on snapshots count.
    """

    table_uuid: str | None
    snapshot_id: int | None = None
    sequence_number: int = 0
    timestamp_ms: int = 0

    @classmethod
    def of(cls, metadata: TableMetadata, snapshot: Snapshot | None) -> Watermark:
        """Return the watermark at a snapshot."""
        if snapshot is None:
            return cls(table_uuid=metadata.table_uuid)
        return cls(
            table_uuid=metadata.table_uuid,
            snapshot_id=snapshot.snapshot_id,
            sequence_number=snapshot.sequence_number,
            timestamp_ms=snapshot.timestamp_ms,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; ids are texts."""
        number = None if self.snapshot_id is None else str(self.snapshot_id)
        return {
            "table_uuid": self.table_uuid,
            "snapshot_id": number,
            "sequence_number": str(self.sequence_number),
            "timestamp_ms": str(self.timestamp_ms),
        }

    @classmethod
    def from_dict(cls, value: Any) -> Watermark | None:
        """Read the JSON form; None for a value that is none."""
        if not isinstance(value, Mapping):
            return None
        try:
            uuid, number = value["table_uuid"], value["snapshot_id"]
            return cls(
                table_uuid=None if uuid is None else str(uuid),
                snapshot_id=None if number is None else int(number),
                sequence_number=int(value["sequence_number"]),
                timestamp_ms=int(value["timestamp_ms"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class News:
    """What is new on a branch.

    Attributes:
        snapshots: the new ones, oldest first.
        watermark: the watermark once their events were fired.
        problem: what a person should know, such as snapshots that expired before they were seen.
    """

    snapshots: tuple[Snapshot, ...]
    watermark: Watermark
    problem: str | None = None


def new_snapshots(metadata: TableMetadata, branch: str, known: Watermark) -> News:
    """Return the snapshots of a branch after the watermark.

    After a rollback the watermark stays, until there is a commit on the older snapshot: a table that is moved forward
    again has nothing new.

    Raises:
        NotFoundError: the branch does not exist; an empty main branch does.
    """
    head = metadata.ref_snapshot(branch)
    line = list(metadata.ancestors(None if head is None else head.snapshot_id))
    if known.table_uuid != metadata.table_uuid and None not in (known.table_uuid, metadata.table_uuid):
        again = f"the table was created again, all {len(line)} snapshots of the new one count as new"
        return News(snapshots=tuple(reversed(line)), watermark=Watermark.of(metadata, head), problem=again)
    if head is None or known.snapshot_id is None:
        is_lost = head is None and known.snapshot_id is not None
        lost = f"branch {branch!r} has lost its snapshots" if is_lost else None
        mark = known if is_lost else Watermark.of(metadata, head)
        if known.snapshot_id is None:
            line = [snapshot for snapshot in line if snapshot.timestamp_ms >= known.timestamp_ms]
        return News(snapshots=tuple(reversed(line)), watermark=mark, problem=lost)
    new, problem = _after(metadata, line, known)
    return News(
        snapshots=tuple(reversed(new)), watermark=Watermark.of(metadata, head) if new else known, problem=problem
    )


def _after(metadata: TableMetadata, line: list[Snapshot], known: Watermark) -> tuple[list[Snapshot], str | None]:
    """Return the snapshots of a line that come after the watermark, newest first, and what is wrong."""
    for position, snapshot in enumerate(line):
        if snapshot.snapshot_id == known.snapshot_id:
            return line[:position], None
        if snapshot.parent_snapshot_id == known.snapshot_id:
            return line[: position + 1], None  # it has expired, and nothing after it
    seen = {snapshot.snapshot_id for snapshot in metadata.ancestors(known.snapshot_id)}
    if seen:
        new = [snapshot for snapshot in line if snapshot.snapshot_id not in seen]
        # A line may end where snapshots have expired: then only the order of the commits relates the two.
        if len(new) == len(line):
            new = [snapshot for snapshot in new if _is_later(snapshot, known)]
        return (
            new,
            f"the branch was rolled back: snapshot {known.snapshot_id}, the last one seen, is not on it any more",
        )
    # By its time, too: the commits of a table that was restored from an earlier metadata file count from there on.
    new = [one for one in line if _is_later(one, known) or one.timestamp_ms > known.timestamp_ms]
    if known.sequence_number > metadata.last_sequence_number:
        # Or a catalog's answer is older than one before it: then nothing is new, and the watermark stays.
        return new, (
            f"the table is at an earlier state: it has had {metadata.last_sequence_number} commits, and snapshot "
            f"{known.snapshot_id}, the last one seen, was commit {known.sequence_number}; what is committed after that "
            f"snapshot's time counts as new"
        )
    return new, (
        f"snapshot {known.snapshot_id}, the last one seen, has expired; snapshots after it may have expired unseen, "
        f"the events go on with {new[-1].snapshot_id if new else 'the next snapshot'}; "
        f"keep snapshots for longer than the triggerer may be down"
    )


def _is_later(snapshot: Snapshot, known: Watermark) -> bool:
    """Tell whether a snapshot was committed after the watermark; v1 tables have no sequence numbers."""
    if snapshot.sequence_number or known.sequence_number:
        return snapshot.sequence_number > known.sequence_number
    return snapshot.timestamp_ms >= known.timestamp_ms


def start_of(metadata: TableMetadata, branch: str, since: str | int | None, since_ms: int | None = None) -> Watermark:
    """Return the watermark of a watcher that has none yet.

    Args:
        since: "beginning", or the id of a snapshot; None for the current snapshot.
        since_ms: a time, in milliseconds since the epoch, instead.

    Raises:
        InvalidInputError: the table does not have this snapshot.
    """
    head = metadata.ref_snapshot(branch)
    if since_ms is not None:
        line = metadata.ancestors(None if head is None else head.snapshot_id)
        return Watermark.of(metadata, next((each for each in line if each.timestamp_ms <= since_ms), None))
    if since is None:
        return Watermark.of(metadata, head)
    if since == "beginning":
        return Watermark.of(metadata, None)
    found = metadata.snapshot(int(since))
    if found is None:
        raise InvalidInputError(
            f"since={str(since)!r} is no snapshot of table {metadata.location}; give a snapshot that it has, a time, "
            f"or 'beginning'"
        )
    return Watermark.of(metadata, found)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFilter:
    """Which snapshots fire an event; all that is given must hold.

    Attributes:
        operations: operations of the snapshot; None for all that change rows.
        include_maintenance: whether snapshots that change no rows (compaction, rewritten manifests) count.
        partition: values of partition fields, None for null; the snapshot must have changed this partition.
        min_records: the least number of added rows.
        dag_ids: DAGs of this Airflow, or of others with this provider, whose commits count.
        exclude_dag_ids: DAGs whose commits do not count.
    """

    operations: tuple[str, ...] | None = None
    include_maintenance: bool = False
    partition: Mapping[str, str | None] = field(default_factory=dict)
    min_records: int | None = None
    dag_ids: tuple[str, ...] | None = None
    exclude_dag_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.operations is not None:
            object.__setattr__(self, "operations", tuple(self.operations))
            check_operations(tuple(self.operations))
        object.__setattr__(self, "partition", texts_of(self.partition))

    def check(self, metadata: TableMetadata) -> None:
        """Check that snapshots of a table can pass.

        Raises:
            InvalidInputError: the table has no such partition field, or it cannot have the value.
        """
        by_field(metadata, self.partition)

    def passes(self, metadata: TableMetadata, snapshot: Snapshot, facts: Facts) -> bool:
        """Tell whether a snapshot fires an event; what cannot be told for certain does, rather than being lost."""
        if not is_wanted(snapshot, self.operations, include_maintenance=self.include_maintenance):
            return False
        dag_id = snapshot.summary.get(_WRITER["dag_id"])
        if dag_id in self.exclude_dag_ids or (self.dag_ids is not None and dag_id not in self.dag_ids):
            return False
        if self.min_records is not None:
            added = added_records(snapshot, facts)
            if added is not None and added < self.min_records:
                return False
        if not self.partition:
            return True
        wanted = by_field(metadata, self.partition)
        touched = facts.touched(snapshot) if may_be_null(wanted) else touched_partitions(snapshot, facts)
        return touched is None or any(is_in(each, wanted) for each in touched)


def added_records(snapshot: Snapshot, facts: Facts) -> int | None:
    """Return the number of rows that a snapshot added; by its manifests if its summary has no usable number."""
    if "added-records" in snapshot.summary:
        found = whole_number(snapshot.summary["added-records"])
        return facts.added_records(snapshot) if found is None else found
    # Writers leave out what is zero; a summary with no count at all says nothing.
    has_counts = any(name.startswith(("added-", "deleted-", "total-")) for name in snapshot.summary)
    return 0 if has_counts else facts.added_records(snapshot)


def touched_partitions(snapshot: Snapshot, facts: Facts) -> tuple[Mapping[str, str], ...] | None:
    """Return the partitions that a snapshot changed, by its summary or its manifests; None if it cannot be told."""
    named = [name.removeprefix(_PARTITION) for name in snapshot.summary if name.startswith(_PARTITION)]
    is_complete = snapshot.summary.get(_INCLUDED) == "true"
    if is_complete and whole_number(snapshot.summary.get(_CHANGED, "")) == len(named):
        return tuple(_texts(path) for path in named)
    return facts.touched(snapshot)


def _texts(path: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in path.split("/"))
    return {unquote_plus(name): unquote_plus(text) for name, _, text in pairs}


def event_id(table: str, table_uuid: str | None, snapshot_id: object) -> str:
    """Return what identifies an event of a snapshot, however often and by whomever it is fired."""
    return f"{table_uuid or table}/{snapshot_id}"


def payload(
    table: str, metadata: TableMetadata, branch: str, snapshot: Snapshot, partitions: Iterable[Mapping[str, str]] | None
) -> dict[str, Any]:
    """Return an event's payload in JSON types; ids are texts.

    Args:
        partitions: the partitions that the snapshot changed, None if that is unknown.
    """
    # As the events of tasks have them: consumers read both in one way.
    paths = None if partitions is None else sorted({short_name(partition_name(texts)) for texts in partitions if texts})
    writer = {name: _short(snapshot.summary.get(entry)) for name, entry in _WRITER.items()}
    described = describe(snapshot, branch=branch)
    return {
        "event": "snapshot",
        "event_id": event_id(table, metadata.table_uuid, snapshot.snapshot_id),
        "table": table,
        "table_uuid": metadata.table_uuid,
        **described,
        "operation": _short(described["operation"]),
        "sequence_number": snapshot.sequence_number,
        "schema_id": snapshot.schema_id,
        "partitions": None if paths is None else paths[:MOST_PARTITIONS],
        "partition_count": None if paths is None else len(paths),
        **writer,
        "operation_key": _short(snapshot.summary.get(_KEY), most=4 * _MOST_TEXT),
    }


def coalesced(payloads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one payload for several: that of the last one, with the sums of the counts and all partitions.

    Each may stand for several itself.
    """
    first, last = payloads[0], payloads[-1]
    sums = {
        name: sum(found) if None not in (found := [each[name] for each in payloads]) else None
        for name in ("added_records", "deleted_records", "added_data_files", "deleted_data_files")
    }
    paths: set[str] | None = set()
    for each in payloads:
        is_known = each["partitions"] is not None and each["partition_count"] == len(each["partitions"])
        paths = paths | set(each["partitions"]) if is_known and paths is not None else None
    return {
        **last,
        **sums,
        "snapshot_count": sum(each.get("snapshot_count", 1) for each in payloads),
        "first_snapshot_id": first.get("first_snapshot_id", first["snapshot_id"]),
        "partitions": None if paths is None else sorted(paths)[:MOST_PARTITIONS],
        "partition_count": None if paths is None else len(paths),
    }


def short_name(name: str) -> str:
    """Return a partition's name of at most 250 characters: the digest at the end of a long one keeps it apart."""
    if len(name) <= _MOST_TEXT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: _MOST_TEXT - len(digest) - 1]}~{digest}"


def _short(text: str | None, most: int = _MOST_TEXT) -> str | None:
    return None if text is None else text[:most]
