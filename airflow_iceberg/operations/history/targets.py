"""Which snapshots an undo takes back: those of a DAG run, a task, or an operation key, in the history of a branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_iceberg.commit.operation_key import (
    SOURCE_SNAPSHOT_ID,
    OperationKey,
    find_undone,
    keys_of,
    undone_in,
)
from airflow_iceberg.commit.runs.doubts import history_tells_all
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.values.digits import whole_number

# How an epoch is made of the start of its run in microseconds, the number of clears, and that of tries.
_CLEARS, _STARTS = 10_000, 100_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The work that is undone: by its operation key, or by DAG and run.

    Attributes:
        operation_key: the key of one task in one epoch, as snapshots have it.
        dag_id, run_id: a DAG run, with all epochs of its tasks.
        task_id, map_index: only this task of the run, and this index of a mapped task.
        started_ms: a time before all commits of the work, if one is known that its key does not tell.
    """

    operation_key: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    started_ms: int | None = None

    def __post_init__(self) -> None:
        by_run = (self.dag_id, self.run_id, self.task_id, self.map_index)
        if self.operation_key is not None:
            if any(part is not None for part in by_run):
                raise InvalidInputError("an undo takes an operation_key, or dag_id and run_id, not both")
            OperationKey.parse(self.operation_key)
            return
        if not self.dag_id or not self.run_id:
            raise InvalidInputError("an undo needs an operation_key, or dag_id and run_id, which name a DAG run")
        if self.map_index is not None and not self.task_id:
            raise InvalidInputError(f"map_index is {self.map_index}, and no task_id says of which task; give it, too")

    def __str__(self) -> str:
        if self.operation_key is not None:
            return f"operation {self.operation_key}"
        task = f", task {self.task_id!r}" if self.task_id else ""
        index = f", map index {self.map_index}" if self.map_index is not None else ""
        return f"DAG {self.dag_id!r}, run {self.run_id!r}{task}{index}"

    def selects(self, key: OperationKey) -> bool:
        """Whether a work is selected."""
        if self.operation_key is not None:
            return str(key) == str(OperationKey.parse(self.operation_key))
        return (
            (key.dag_id, key.run_id) == (self.dag_id, self.run_id)
            and self.task_id in (None, key.task_id)
            # A part that its author has named has no index in its key.
            and (self.map_index is None or (key.write_key is None and key.map_index == self.map_index))
        )

    def keys_in(self, metadata: TableMetadata, snapshot: Snapshot) -> list[OperationKey]:
        """Return the selected works of a snapshot; a cherry-pick of another program has those of its source."""
        # An undo is taken back only if it is named: else a cleared undo would undo itself.
        if self.operation_key is None and undone_in(snapshot):
            return []
        texts = keys_of(snapshot)
        source = whole_number(snapshot.summary.get(SOURCE_SNAPSHOT_ID, ""))
        picked = None if source is None else metadata.snapshot(source)
        texts += keys_of(picked) if picked is not None else []
        return [key for key in filter(None, map(OperationKey.find, texts)) if self.selects(key)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """The snapshots to undo, and those of others.

    Attributes:
        snapshots: the snapshots to undo, oldest first.
        later: the other snapshots of the branch after the first one of these, oldest first.
        history: all snapshots of the branch from the first one of these on, oldest first.
        keys: the works of the snapshots, those of the first one first.
        undone: the snapshots of the work that were undone before, and by which snapshot, as its summary says.
    """

    snapshots: tuple[Snapshot, ...]
    later: tuple[Snapshot, ...]
    history: tuple[Snapshot, ...]
    keys: tuple[OperationKey, ...]
    undone: Mapping[int, int]

    @property
    def tokens(self) -> frozenset[str]:
        """The tokens that files of these works have in their names."""
        return frozenset(key.file_token for key in self.keys)


def find_targets(metadata: TableMetadata, selection: Selection, branch: str) -> Targets:
    """Return the snapshots that an undo takes back; none if they are undone, or are not in the branch.

    Raises:
        NotFoundError: no snapshot of the table is of this work.
        IncompatibleChangeError: some of them may have expired, they are of several Airflow installations, or one has
            rows of other works as well.
    """
    head = metadata.ref_snapshot(branch)
    history = [] if head is None else list(metadata.ancestors(head.snapshot_id))
    undone = find_undone(history)
    of_run = {s.snapshot_id: found for s in history if (found := selection.keys_in(metadata, s))}
    keys = tuple(dict.fromkeys(key for found in of_run.values() for key in found))
    if head is not None and not history_tells_all(metadata, head, _first_start_ms(selection, keys)):
        raise IncompatibleChangeError(
            f"cannot undo {selection} on branch {branch!r}: the history of the branch does not surely reach back to "
            f"the beginning of the run (snapshots were expired), so that it is not known which rows are the run's; "
            f"nothing was changed; delete its rows with a predicate instead, and keep snapshots "
            f"longer than you want to undo"
        )
    if not of_run and not any(selection.keys_in(metadata, snapshot) for snapshot in metadata.snapshots):
        raise NotFoundError(
            f"no snapshot of table {metadata.location} is of {selection}; `airflow iceberg runs` lists the runs that "
            f"have written to it"
        )
    if len({key.installation for key in keys}) > 1:
        raise IncompatibleChangeError(
            f"{selection} is a run of several Airflow installations: {', '.join(sorted(map(str, keys)))}; nothing was "
            f"changed; undo one of them by its operation_key"
        )
    wanted = [s for s in history if s.snapshot_id in of_run and s.snapshot_id not in undone]
    # A compaction by the run has changed no row.
    targets = tuple(reversed([s for s in wanted if s.operation != "replace"]))
    _check_alone(metadata, selection, targets, keys)
    first = next((at for at, s in enumerate(history) if targets and s is targets[0]), 0)
    ids = {snapshot.snapshot_id for snapshot in targets}
    later = tuple(s for s in reversed(history[:first]) if s.snapshot_id not in ids)
    before = {number: by for number, by in undone.items() if number in of_run}
    keys = tuple(dict.fromkeys((*(of_run[targets[0].snapshot_id] if targets else ()), *keys)))
    since = tuple(reversed(history[: first + 1])) if targets else ()
    return Targets(snapshots=targets, later=later, history=since, keys=keys, undone=before)


def _check_alone(
    metadata: TableMetadata, selection: Selection, targets: tuple[Snapshot, ...], keys: tuple[OperationKey, ...]
) -> None:
    """Check that no snapshot has rows of other works: one that publishes a branch has those of all that wrote to it."""
    newest = {key.work: key.epoch for key in sorted(keys, key=lambda key: key.epoch)}
    for snapshot in targets:
        source = whole_number(snapshot.summary.get(SOURCE_SNAPSHOT_ID, ""))
        picked = None if source is None else metadata.snapshot(source)
        texts = keys_of(snapshot, own=False) + (keys_of(picked) if picked is not None else [])
        # What a cleared task had written before is not in a snapshot that has its later rows.
        found = filter(None, map(OperationKey.find, texts))
        others = [key for key in found if not selection.selects(key) and newest.get(key.work, -1) < key.epoch]
        if others:
            raise IncompatibleChangeError(
                f"cannot undo {selection}: snapshot {snapshot.snapshot_id} has its rows together with those of "
                f"operation {others[0]}, as they were published together; nothing was changed; undo the DAG run as a "
                f"whole, or delete the rows with a predicate"
            )


def _first_start_ms(selection: Selection, keys: tuple[OperationKey, ...]) -> int | None:
    """Return a time before all commits of the selected works, from their epochs; None if they do not tell."""
    if selection.started_ms is not None:
        return selection.started_ms
    if selection.operation_key is not None:
        keys = (OperationKey.parse(selection.operation_key),)
    elif any(key.epoch // _CLEARS % _CLEARS for key in keys):
        return None  # the run was cleared: epochs that are not known may have begun before
    starts = [key.epoch // _STARTS // 1000 for key in keys]
    return min(starts) if starts and min(starts) > 0 else None
