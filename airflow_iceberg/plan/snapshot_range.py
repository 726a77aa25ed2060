"""Which snapshots are between two snapshots of a table: the range of an incremental read.

Not here: which files of them are read (`changelog`, `inventory.changes`).
"""

from __future__ import annotations

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot

APPEND, REPLACE = "append", "replace"


def find_appends(
    metadata: TableMetadata, *, from_snapshot_id: int | None, last: Snapshot | None
) -> tuple[Snapshot, ...]:
    """Return the snapshots that appended, after one snapshot and up to another, oldest first.

    Args:
        from_snapshot_id: the snapshot before the first; None for all. It may have expired if its successor has not.
        last: the last snapshot; None for a table without rows.

    Raises:
        InvalidInputError: the first is no ancestor of the last.
    """
    between: list[Snapshot] = []
    found = from_snapshot_id is None
    for snapshot in metadata.ancestors(None if last is None else last.snapshot_id):
        if snapshot.snapshot_id == from_snapshot_id:
            found = True
            break
        between.append(snapshot)
        if snapshot.parent_snapshot_id == from_snapshot_id and from_snapshot_id is not None:
            found = True
            break
    if not found:
        raise InvalidInputError(_not_an_ancestor(metadata, from_snapshot_id, last))
    return tuple(snapshot for snapshot in reversed(between) if snapshot.operation == APPEND)


def find_changes(metadata: TableMetadata, *, from_snapshot_id: int, last: Snapshot | None) -> tuple[Snapshot, ...]:
    """Return the snapshots after one snapshot and up to another, oldest first; both must be in the table.

    Raises:
        InvalidInputError: the first has expired, or is no ancestor of the last.
    """
    between: list[Snapshot] = []
    for snapshot in metadata.ancestors(None if last is None else last.snapshot_id):
        if snapshot.snapshot_id == from_snapshot_id:
            return tuple(reversed(between))
        between.append(snapshot)
    if between and metadata.snapshot(from_snapshot_id) is None:
        raise InvalidInputError(
            f"snapshot {from_snapshot_id}, after which changes are to be read, is not in {metadata.location}; it may "
            f"have been expired, and what was changed then is not known any more; read after another snapshot, the "
            f"oldest is {between[-1].snapshot_id}, or read the table as a whole, and keep snapshots for longer than "
            f"the time between two reads"
        )
    raise InvalidInputError(_not_an_ancestor(metadata, from_snapshot_id, last))


def _not_an_ancestor(metadata: TableMetadata, from_snapshot_id: int | None, last: Snapshot | None) -> str:
    if last is None:
        return f"snapshot {from_snapshot_id} cannot be read from: table {metadata.location} has no snapshot"
    why = "it is on another branch, newer, or was rolled back"
    if from_snapshot_id is not None and metadata.snapshot(from_snapshot_id) is None:
        why = "it is not in the table, nor is the snapshot that followed it; both may have been expired"
    return (
        f"snapshot {from_snapshot_id} is no ancestor of snapshot {last.snapshot_id} in {metadata.location}: {why}; "
        f"choose an ancestor, or read the table as a whole"
    )
