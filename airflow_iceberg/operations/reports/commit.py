"""What a task committed, as events of assets and lineage tell it: the same, whichever try of the task is asked.

Not here: who is told (`assets`, `lineage`, `links`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.operations.reports.moves import MovedSnapshots, moved_snapshots
from airflow_iceberg.operations.reports.partitions import MOST_PARTITIONS, TouchedPartitions, touched_partitions
from airflow_iceberg.plan.snapshot_events import event_id

log = logging.getLogger(__name__)

# They tell which try committed, or that nothing was committed.
_OF_THE_TRY = ("outcome", "done_by_this_try")
NO_COMMIT = (Outcome.NOTHING, Outcome.DRY_RUN)
"""Outcomes of which there is nothing to tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitReport:
    """What a task committed.

    Attributes:
        result: the result of the operation.
        verb: the operation, `expire_snapshots`; a snapshot has its own word for it.
        metadata: the table after the commit; others may have committed since.
        snapshots: the snapshots of the task, the oldest first; none if the operation makes none, or if they expired.
        partitions: the partitions that they touched.
    """

    result: OperationResult
    verb: str
    metadata: TableMetadata
    snapshots: tuple[Snapshot, ...] = ()
    partitions: TouchedPartitions = field(default_factory=TouchedPartitions)

    @classmethod
    def of(
        cls,
        table: OpenTable,
        result: OperationResult,
        *,
        verb: str,
        most_partitions: int = MOST_PARTITIONS,
        is_move: bool = False,
    ) -> CommitReport:
        """Return the report of a result; partitions that cannot be read are left out, with a warning.

        Args:
            table: the table, after the operation.
            most_partitions: how many partitions are named.
            is_move: whether to name the partitions of the rows that have appeared or disappeared because a branch was
                moved to a snapshot that was made before.
        """
        metadata = table.newest_metadata
        snapshots = tuple(one for one in map(metadata.snapshot, result.made_snapshot_ids) if one is not None)
        place = result.place_of_branch(metadata) if is_move else None
        moved = MovedSnapshots(snapshots=snapshots) if place is None else moved_snapshots(metadata, *place)
        try:
            partitions = touched_partitions(table.io, metadata, moved.snapshots, most=most_partitions)
            partitions = replace(partitions, is_cut=partitions.is_cut or moved.is_cut)
        except IcebergError as error:
            # What was committed is in the table all the same.
            log.warning("%s: the event does not name the partitions of the commit: %s", table.name, error)
            partitions = TouchedPartitions(is_cut=True)
        return cls(result=result, verb=verb, metadata=metadata, snapshots=snapshots, partitions=partitions)

    @property
    def snapshot(self) -> Snapshot | None:
        """The last snapshot of the task."""
        return self.snapshots[-1] if self.snapshots else None

    def _branch(self) -> dict[str, str]:
        """Return the branch that was moved; results of writes have it by themselves."""
        place = self.result.place_of_branch(self.metadata)
        return {} if place is None else {"branch": getattr(self.result, "ref", MAIN_BRANCH)}

    def to_event(self) -> dict[str, Any]:
        """Return plain values for an event; snapshot ids are texts, since JavaScript rounds integers above 2**53."""
        fields = {name: value for name, value in self.result.to_xcom().items() if name not in _OF_THE_TRY}
        uuid, key, last = self.metadata.table_uuid, self.result.operation_key, self.snapshot
        snapshot_id = fields.get("snapshot_id")
        # A branch that is moved to a snapshot is another event than the commit of that snapshot.
        is_of_snapshot = snapshot_id is not None and self.result.makes_snapshots
        return {
            **self._branch(),
            **fields,
            "event_id": event_id(self.result.table, uuid, snapshot_id if is_of_snapshot else key),
            "table_uuid": uuid,
            "operation": self.verb if last is None else last.operation,
            "snapshot_id": snapshot_id,
            "parent_snapshot_id": _text(None if last is None else last.parent_snapshot_id),
            "sequence_number": None if last is None else last.sequence_number,
            "timestamp_ms": None if last is None else last.timestamp_ms,
            "schema_id": self.metadata.current_schema_id if last is None else last.schema_id,
            "partitions": list(self.partitions.names),
            "partition_count": self.partitions.count,
            "partitions_cut": self.partitions.is_cut,
        }


def _text(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)
