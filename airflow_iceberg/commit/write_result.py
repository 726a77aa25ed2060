"""Results of operations: `OperationResult` for all of them, `WriteResult` for those that make a snapshot.

Counts have the names of the entries of Iceberg's snapshot summary, with the unit where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum
from typing import Any, ClassVar, Self

from airflow_iceberg.catalogs.base import TableState
from airflow_iceberg.commit.operation_key import OPERATION_KEY, find_landed
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.values.digits import whole_number

CARRIED_ROWS = "carried-rows"
"""Entry of an overwrite's summary: rows of rewritten files that were not selected and were kept."""
DELETED_ROWS = "deleted-rows"
"""Entry of a delete's or a merge's summary: deleted rows. `deleted-records` counts all rows of removed files."""
INSERTED_ROWS = "inserted-rows"
"""Entry of a merge's summary: new rows. `added-records` counts all rows of new files."""
UPDATED_ROWS = "updated-rows"
"""Entry of a merge's or an update's summary: rows that got new values."""
DELETED_BEFORE = "rows-deleted-before"
"""Entry of the summary of a change that removes files: rows of theirs that delete files had deleted already."""
INPUTS = "airflow.inputs"
"""Entry of a summary: the snapshots of tables that the new rows were made from, a JSON object by the inputs' names."""


class Outcome(StrEnum):
    """How an operation ended."""

    COMMITTED = "committed"
    """This call did the work."""
    FOUND = "found"
    """An earlier try of the same work had committed it."""
    FINISHED = "finished"
    """An earlier try had committed it, and this call deleted the files that the earlier try left."""
    SKIPPED = "skipped"
    """A run before the task was cleared had committed it, and `on_rerun` is "skip"."""
    NOTHING = "nothing"
    """There was nothing to do."""
    DRY_RUN = "dry_run"
    """Nothing was changed, as requested."""
    CHECKED = "checked"
    """The work was to look at the table, and was done; it changes nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationResult:
    """What every operation reports.

    Attributes:
        table: namespace and name.
        operation_key: key of the Airflow task; None outside of Airflow.
    """

    makes_snapshots: ClassVar[bool] = True
    """Whether the snapshots that the result names were made by the operation."""

    table: str
    outcome: Outcome
    operation_key: str | None = None

    @property
    def done_by_this_try(self) -> bool:
        """Whether this very call did the work."""
        return self.outcome in (Outcome.COMMITTED, Outcome.FINISHED)

    @property
    def made_snapshot_ids(self) -> tuple[int, ...]:
        """The snapshots that the operation made, in this try or an earlier one, the oldest first."""
        if not self.makes_snapshots or self.outcome in (Outcome.NOTHING, Outcome.DRY_RUN):
            return ()
        ids = getattr(self, "snapshot_ids", ()) or (getattr(self, "snapshot_id", None),)
        return tuple(one for one in ids if one is not None)

    def place_of_branch(self, metadata: TableMetadata) -> tuple[int | None, int | None] | None:
        """Return where a branch was and is, if the operation has moved it to a snapshot that was there before."""
        return None

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values for XCom and asset events.

        Snapshot ids are texts, since JavaScript rounds integers above 2**53.
        """
        plain = {item.name: _plain(item.name, getattr(self, item.name)) for item in fields(self)}
        return {**plain, "done_by_this_try": self.done_by_this_try}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(name, item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    is_id = name.endswith(("snapshot_id", "snapshot_ids"))
    return str(value) if is_id and value is not None else value


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteResult(OperationResult):
    """What an append, an overwrite or a delete did, or found done.

    Attributes:
        branch: the branch that was written to.
        snapshot_id: the snapshot that holds the change; None when nothing was ever committed.
        operation: the snapshot's operation; None when there is no snapshot.
        added_records: new rows.
        updated_records: rows that got new values, by a merge or an update.
        deleted_records: rows that the table does not have any more.
        carried_records: rows that were kept and written again, because their files held rows that were replaced or
            deleted.
        inputs: what was read: catalog, table, uuid and snapshot (as text) by the name of the input.
    """

    branch: str
    snapshot_id: int | None = None
    operation: str | None = None
    added_data_files: int = 0
    deleted_data_files: int = 0
    added_delete_files: int = 0
    removed_delete_files: int = 0
    added_records: int = 0
    updated_records: int = 0
    deleted_records: int = 0
    carried_records: int = 0
    added_files_size_bytes: int = 0
    removed_files_size_bytes: int = 0
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshots: Sequence[Snapshot], *, table: str, branch: str, outcome: Outcome, **more: Any) -> Self:
        """Describe the snapshots that hold the work, from their own summaries; the last one gives the ids."""

        def total(name: str) -> int:
            return sum(count_of(snapshot, name) for snapshot in snapshots)

        last = snapshots[-1]
        rows = [RowCounts.of(snapshot) for snapshot in snapshots]
        return cls(
            table=table,
            branch=branch,
            outcome=outcome,
            snapshot_id=last.snapshot_id,
            operation=last.operation,
            added_data_files=total("added-data-files"),
            deleted_data_files=total("deleted-data-files"),
            added_delete_files=total("added-delete-files"),
            removed_delete_files=total("removed-delete-files"),
            added_records=sum(one.added for one in rows),
            updated_records=sum(one.updated for one in rows),
            deleted_records=sum(one.deleted for one in rows),
            carried_records=sum(one.carried for one in rows),
            added_files_size_bytes=total("added-files-size"),
            removed_files_size_bytes=total("removed-files-size"),
            operation_key=last.summary.get(OPERATION_KEY),
            inputs=inputs_of(last),
            **more,
        )


def count_of(snapshot: Snapshot, name: str) -> int:
    """Return a count of a snapshot's summary, 0 where it is not there, or is no number: other writers fill it, too."""
    text = snapshot.summary.get(name)
    return 0 if text is None else whole_number(text) or 0


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What a snapshot did to rows, by its summary; the attributes of `WriteResult`."""

    added: int
    updated: int
    deleted: int
    carried: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> RowCounts:
        """Count the rows."""
        carried, updated = _carried(snapshot), count_of(snapshot, UPDATED_ROWS)
        return cls(count_of(snapshot, "added-records") - carried - updated, updated, _deleted(snapshot), carried)


def inputs_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return what a snapshot's rows were made from, by the names of the inputs; nothing if the summary is no such."""
    if INPUTS not in snapshot.summary:
        return {}
    try:
        found = json.loads(snapshot.summary[INPUTS])
    except (ValueError, RecursionError):
        return {}  # another writer's
    return found if isinstance(found, dict) else {}


def _carried(snapshot: Snapshot) -> int:
    if UPDATED_ROWS in snapshot.summary:
        changed = count_of(snapshot, INSERTED_ROWS) + count_of(snapshot, UPDATED_ROWS)
        return count_of(snapshot, "added-records") - changed
    # A delete and a compaction add no rows: all rows of their new files were kept.
    adds_none = DELETED_ROWS in snapshot.summary or snapshot.operation == "replace"
    return count_of(snapshot, "added-records" if adds_none else CARRIED_ROWS)


def _deleted(snapshot: Snapshot) -> int:
    if snapshot.operation == "replace":
        return 0
    if DELETED_ROWS in snapshot.summary:
        return count_of(snapshot, DELETED_ROWS)
    return count_of(snapshot, "deleted-records") - count_of(snapshot, DELETED_BEFORE) - count_of(snapshot, CARRIED_ROWS)


def describe(state: TableState, settings: CommitSettings, outcome: Outcome, made: Snapshot | None) -> WriteResult:
    """Say what an action did.

    Args:
        state: the table after the commit.
        made: the snapshot of the action's last attempt; the table may not have it any more.
    """
    table, branch, key = str(state.table), settings.branch, settings.operation_key
    mine = (state.metadata.snapshot(settings.snapshot_id) or made) if outcome is Outcome.COMMITTED else None
    if mine is not None:
        return WriteResult.of([mine], table=table, branch=branch, outcome=outcome)
    landed = find_landed(state.metadata, key, branch) if key and outcome is Outcome.FOUND else None
    if landed is not None:
        return WriteResult.of([landed], table=table, branch=branch, outcome=outcome)
    return WriteResult(table=table, branch=branch, outcome=outcome, operation_key=None if key is None else str(key))
