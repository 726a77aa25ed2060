"""What a write reports: `WriteResult`, made of the snapshot that landed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from airflow_iceberg.catalogs.base import TableState
from airflow_iceberg.commit.operation_key import OPERATION_KEY, find_landed
from airflow_iceberg.commit.settings import CommitSettings

if TYPE_CHECKING:
    from airflow_iceberg.format.snapshots import Snapshot


def describe(state: TableState, settings: CommitSettings) -> WriteResult:
    """Say what became of an action, from the table that holds its snapshot."""
    table, branch, operation = str(state.table), settings.branch, settings.operation
    mine = state.metadata.snapshot(settings.snapshot_id)
    if mine is not None:
        return result_of(mine, table=table, branch=branch, outcome="committed")
    landed = find_landed(state.metadata, operation, branch) if operation else None
    if landed is not None:
        return result_of(landed, table=table, branch=branch, outcome="found")
    key = str(operation) if operation else None
    return WriteResult(table=table, branch=branch, outcome="empty", operation_key=key)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteResult:
    """What a write did, or found done.

    Attributes:
        snapshot_id: the snapshot that holds the rows; None when nothing was ever committed.
        operation: the snapshot's operation; None when there is no snapshot.
        outcome: `committed` by this call, `found` (an earlier try committed it), `skipped` (a run before the task was
            cleared committed it, and the caller asked for nothing more), or `empty` (no rows, nothing committed).
    """

    table: str
    branch: str
    outcome: Literal["committed", "found", "skipped", "empty"]
    snapshot_id: int | None = None
    operation: str | None = None
    added_data_files: int = 0
    added_records: int = 0
    added_files_size_bytes: int = 0
    deleted_data_files: int = 0
    deleted_records: int = 0
    operation_key: str | None = None

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values, see `xcom_of`."""
        return xcom_of(self)


def xcom_of(result: Any) -> dict[str, Any]:
    """Return the fields of a result as plain values, and whether this very try has done the work.

    The snapshot id is text, since JavaScript rounds integers above 2**53.

    Args:
        result: with the fields `outcome` and, if it has one, `snapshot_id`.
    """
    found = {item.name: getattr(result, item.name) for item in fields(result)}
    if found.get("snapshot_id") is not None:
        found["snapshot_id"] = str(found["snapshot_id"])
    return {**found, "done_by_this_try": result.outcome == "committed"}


def result_of(
    snapshot: Snapshot, *, table: str, branch: str, outcome: Literal["committed", "found", "skipped"]
) -> WriteResult:
    """Describe a snapshot that holds the work, from its own summary."""

    def count(name: str) -> int:
        return int(snapshot.summary.get(name, "0"))

    return WriteResult(
        table=table,
        branch=branch,
        outcome=outcome,
        snapshot_id=snapshot.snapshot_id,
        operation=snapshot.operation,
        added_data_files=count("added-data-files"),
        added_records=count("added-records"),
        added_files_size_bytes=count("added-files-size"),
        deleted_data_files=count("deleted-data-files"),
        deleted_records=count("deleted-records"),
        operation_key=snapshot.summary.get(OPERATION_KEY),
    )
