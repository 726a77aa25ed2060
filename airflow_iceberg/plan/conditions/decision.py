"""`Condition` and `Decision`: what a sensor waits for, and whether a table has it.

Imports neither Arrow nor Airflow: sensors are parsed with every DAG file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What one look at a table says about a condition.

    Attributes:
        result: the task's result, in JSON types; None if the wait continues.
        has: what the table has, as the end of a sentence.
        until_ms: the time from which on the same table is decided about again, in milliseconds since the epoch; None if
            only a change of the table can change the decision.
    """

    result: Mapping[str, Any] | None = None
    has: str
    until_ms: int | None = None


class PartitionTexts(dict[str, str]):
    """The values of a partition as people read them, by the names of its fields.

    Attributes:
        nulls: the fields whose value is null, which as a text is that of the text `null`.
    """

    def __init__(self, texts: Mapping[str, str], nulls: Collection[str]) -> None:
        super().__init__(texts)
        self.nulls = frozenset(nulls)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionCount:
    """The live files of one partition.

    Attributes:
        texts: the partition's values as people read them, by the names of its fields: `PartitionTexts`, or texts alone,
            of which `null` is null or the text.
        records: rows of the data files.
        position_deletes: rows of position deletes; at most so many of the records are deleted.
    """

    texts: Mapping[str, str]
    data_files: int
    records: int
    position_deletes: int

    @property
    def live_records(self) -> int:
        """The number of rows that are surely not deleted by position."""
        return max(self.records - self.position_deletes, 0)


class Facts(Protocol):
    """What manifests say about a table; a condition asks for it only if the metadata file does not say it."""

    def partitions(self, snapshot_id: int) -> tuple[PartitionCount, ...]:
        """Return the partitions of a snapshot."""

    def touched(self, snapshot: Snapshot) -> tuple[Mapping[str, str], ...] | None:
        """Return the partitions in which a snapshot added or removed files; None if there are too many to tell."""

    def added_records(self, snapshot: Snapshot) -> int | None:
        """Return the number of rows in the files that a snapshot added; None if it cannot be told."""


class Condition(Protocol):
    """What a sensor waits for."""

    def waits_for(self) -> str:
        """Return the condition as the end of a sentence."""

    def decide(self, metadata: TableMetadata, facts: Facts, *, now_ms: int) -> Decision:
        """Decide about a table.

        Raises:
            NotFoundError: the branch does not exist.
            InvalidInputError: no table with this schema can meet the condition.
        """


def when(timestamp_ms: int) -> str:
    """Return a time for people; a number that is no time, as metadata may have it, as it is."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"


def head_of(branch: str, snapshot: Snapshot | None) -> str:
    """Return in words what a branch points to."""
    if snapshot is None:
        return f"branch {branch!r} has no snapshot"
    return (
        f"branch {branch!r} is at snapshot {snapshot.snapshot_id} ({snapshot.operation[:20]}) of "
        f"{when(snapshot.timestamp_ms)}"
    )


def described(table_branch: str, snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot in JSON types; its id is text, since JavaScript rounds integers above 2**53."""
    parent = snapshot.parent_snapshot_id
    return {
        "branch": table_branch,
        "snapshot_id": str(snapshot.snapshot_id),
        "parent_snapshot_id": None if parent is None else str(parent),
        "timestamp_ms": snapshot.timestamp_ms,
        "operation": snapshot.operation,
    }
