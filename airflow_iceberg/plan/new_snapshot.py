"""The snapshot that a sensor waits for: one decision, shared by the sensor and its trigger.

Here: the condition as a value, the search for a snapshot that meets it, and which snapshots are maintenance. Not here:
other conditions (`conditions`), polling and loading (`sensors`, `triggers`). Imports neither Arrow nor Airflow: sensors
are parsed with every DAG file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.plan.conditions.decision import Decision, Facts, described, head_of, when

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot

OPERATIONS = ("append", "replace", "overwrite", "delete")

MAINTENANCE = "airflow.maintenance"
"""Summary entry, with the value "true", of snapshots that change no rows and are not a ``replace``."""

# Counts of a snapshot's summary that are part of the result, where the writer recorded them.
_COUNTS = tuple(f"{change}-{what}" for change in ("added", "deleted", "total") for what in ("data-files", "records"))


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotCondition:
    """The snapshots of a branch that a sensor waits for.

    Attributes:
        branch: a branch or tag.
        after_snapshot_id: the snapshot after which the new one was committed on the branch.
        after_snapshot_ms: time of this snapshot's commit, if known; used after the snapshot has expired.
        after_ms: time, in milliseconds since the epoch, that the new snapshot must be strictly later than.
        operations: operations of the new snapshot, None for any.
        include_maintenance: whether snapshots that change no rows (compaction, rewritten manifests) count. A
            ``replace`` that `operations` names always counts.
    """

    branch: str = "main"
    after_snapshot_id: int | None = None
    after_snapshot_ms: int | None = None
    after_ms: int | None = None
    operations: tuple[str, ...] | None = None
    include_maintenance: bool = False

    def __post_init__(self) -> None:
        if self.operations is None:
            return
        object.__setattr__(self, "operations", tuple(self.operations))
        check_operations(self.operations)

    def waits_for(self) -> str:
        """Return the condition as the end of a sentence."""
        which = "a snapshot" if self.operations is None else f"a snapshot of {' or '.join(self.operations)}"
        since = f" after snapshot {self.after_snapshot_id}" if self.after_snapshot_id is not None else ""
        since += f" after {when(self.after_ms)}" if self.after_ms is not None else ""
        return f"{which} on branch {self.branch!r}{since}"

    def decide(self, metadata: TableMetadata, facts: Facts, *, now_ms: int) -> Decision:
        """Decide by the newest snapshot that meets the condition."""
        found = find_snapshot(metadata, self)
        result = None if found is None else describe(found, branch=self.branch)
        return Decision(result=result, has=head_of(self.branch, metadata.ref_snapshot(self.branch)))


def describe(snapshot: Snapshot, *, branch: str) -> dict[str, Any]:
    """Return a snapshot with its counts in JSON types."""
    counts = {name.replace("-", "_"): whole_number(snapshot.summary.get(name, "")) for name in _COUNTS}
    return {**described(branch, snapshot), **counts}


def is_maintenance(snapshot: Snapshot) -> bool:
    """Tell whether a snapshot changes no rows: a compaction, rewritten manifests, or another that is marked so."""
    return snapshot.operation == "replace" or _is_marked(snapshot)


def is_wanted(snapshot: Snapshot, operations: tuple[str, ...] | None, *, include_maintenance: bool) -> bool:
    """Tell whether a snapshot has one of the operations; a ``replace`` that is named is wanted as it is."""
    if operations is not None:
        return snapshot.operation in operations and (include_maintenance or not _is_marked(snapshot))
    return include_maintenance or not is_maintenance(snapshot)


def check_operations(operations: tuple[str, ...]) -> None:
    """Reject operations that no snapshot can have."""
    unknown = [operation for operation in operations if operation not in OPERATIONS]
    if unknown or not operations:
        got = f"'{unknown[0]}'" if unknown else "none"
        raise InvalidInputError(f"unknown snapshot operation: expected some of {', '.join(OPERATIONS)}, got {got}")


def find_snapshot(metadata: TableMetadata, condition: SnapshotCondition) -> Snapshot | None:
    """Return the newest snapshot of the branch that meets the condition, None while there is none.

    Raises:
        NotFoundError: the branch does not exist; an empty main branch does.
    """
    head = metadata.ref_snapshot(condition.branch)
    if head is None:
        return None
    return next((snapshot for snapshot in _newer(metadata, head, condition) if _counts(snapshot, condition)), None)


def _newer(metadata: TableMetadata, head: Snapshot, condition: SnapshotCondition) -> Iterator[Snapshot]:
    """Yield the snapshots of the branch after the known one, newest first."""
    ancestors = list(metadata.ancestors(head.snapshot_id))
    seen = condition.after_snapshot_id
    position = next((index for index, ancestor in enumerate(ancestors) if ancestor.snapshot_id == seen), None)
    if seen is None:
        yield from ancestors
    elif position is not None:
        yield from ancestors[:position]
    elif (known := metadata.snapshot(seen)) is not None:
        # Rolled back, or on another branch: only the order of the commits relates the two.
        yield from (ancestor for ancestor in ancestors if _is_later(ancestor, known))
    elif condition.after_snapshot_ms is not None:
        # Expired, perhaps after a rollback, so all that are left may be older. Two commits can have one timestamp.
        yield from (ancestor for ancestor in ancestors if ancestor.timestamp_ms >= condition.after_snapshot_ms)
    else:
        # Expired at an unknown time: mostly the oldest snapshots expire, so the others are later.
        yield from ancestors


def _is_later(snapshot: Snapshot, known: Snapshot) -> bool:
    """Tell whether a snapshot was committed after another one; v1 tables have no sequence numbers."""
    if snapshot.sequence_number != known.sequence_number:
        return snapshot.sequence_number > known.sequence_number
    return snapshot.timestamp_ms > known.timestamp_ms


def _counts(snapshot: Snapshot, condition: SnapshotCondition) -> bool:
    """Tell whether a snapshot has the wanted operation and age."""
    if condition.after_ms is not None and snapshot.timestamp_ms <= condition.after_ms:
        return False
    return is_wanted(snapshot, condition.operations, include_maintenance=condition.include_maintenance)


def _is_marked(snapshot: Snapshot) -> bool:
    return snapshot.summary.get(MAINTENANCE) == "true"
