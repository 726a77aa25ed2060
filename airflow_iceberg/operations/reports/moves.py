"""The snapshots whose rows appear on a branch, or disappear from it, when it is moved to another snapshot.

They are found by the two places alone. So a try that finds the move of an earlier try finds the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.plan.new_snapshot import is_maintenance

MOST_SNAPSHOTS = 100
"""How many snapshots are looked into; each costs some requests to the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedSnapshots:
    """The snapshots that are on one side of a move and not on the other.

    Attributes:
        snapshots: those that changed rows, the newest of each side first.
        is_cut: whether some are missing: there are too many, or they have expired.
    """

    snapshots: tuple[Snapshot, ...]
    is_cut: bool = False


def moved_snapshots(metadata: TableMetadata, old: int | None, new: int | None) -> MovedSnapshots:
    """Return the snapshots by which two places of a branch differ."""
    before, after = _line(metadata, old), _line(metadata, new)
    gone = [one for key, one in before.items() if key not in after]
    come = [one for key, one in after.items() if key not in before]
    differ = [one for one in (*come, *gone) if not is_maintenance(one)]
    is_known = _is_known(gone, before, old) and _is_known(come, after, new)
    return MovedSnapshots(snapshots=tuple(differ[:MOST_SNAPSHOTS]), is_cut=not is_known or len(differ) > MOST_SNAPSHOTS)


def place_before(metadata: TableMetadata, snapshot_id: int) -> int | None:
    """Return where main was before it was last moved to a snapshot; None if nothing tells."""
    log = [one for _, one in metadata.snapshot_log]
    last = max((number for number, one in enumerate(log) if one == snapshot_id), default=0)
    return log[last - 1] if last else None


def _line(metadata: TableMetadata, snapshot_id: int | None) -> dict[int, Snapshot]:
    return {one.snapshot_id: one for one in metadata.ancestors(snapshot_id)}


def _is_known(part: list[Snapshot], line: dict[int, Snapshot], end: int | None) -> bool:
    """Whether nothing is missing in a part of a line: it ends where the lines meet, or where the table begins."""
    if len(part) < len(line) or end is None:
        return True
    return bool(line) and next(reversed(line.values())).parent_snapshot_id is None
