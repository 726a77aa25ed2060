"""Work of a DAG run that no task of it will do again: its rows stay in the table, whatever the run's tasks write.

A task replaces the rows of its earlier runs, which it knows by its operation key. A task that was renamed, or an index
that stands for another file now, has another key: the rows of the old one would be there beside its own. What a run has
written is known by the DAG and the run in the key; whether the key is still one of the run, by what Airflow tells
(`RunTasks`) and by the table:

==========================================  ============================================================================
the DAG has no such task any more           or it is mapped now, or is no more
another index of this task                  which the run has no more; or which stood for what this index stands for now
another `write_key` of this task            if all its indexes have written since, or have ended, and none has this one;
                                            any map index, if the task has a `write_key` now, and the other way round
==========================================  ============================================================================

Not here: what becomes of the rows (`commit.earlier_epochs`), and what Airflow tells (`hooks.run_tasks`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from airflow_iceberg.commit.operation_key import (
    ITEM,
    MAP_INDEX,
    OPERATION_KEY,
    PARTS,
    OperationKey,
    find_undone,
    keys_of,
    undone_in,
)
from airflow_iceberg.commit.write_result import UPDATED_ROWS
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.values.digits import whole_number

_WAYS_OUT = (
    "set on_removed='remove' to take these rows out in the same commit, on_removed='keep' to leave them, or undo the "
    "old task's run first (airflow iceberg undo)"
)
_OF_INDEXES = "; a write_key, which says what each index of the task stands for, holds in any order of the items"


def ways_out(key: OperationKey, found: Removed) -> str:
    """Return what an author can do about rows of his run that the task of a key would double."""
    first = ""
    if found.may_write_else:
        first = (
            f"clear map index {key.map_index} again when map index {found.key.map_index} has written what it stands "
            f"for now, since the rows of map index {key.map_index} may be missing until then; if both are refused, "
        )
    return first + _WAYS_OUT + (_OF_INDEXES if key.map_index >= 0 and key.write_key is None else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """A commit of the run whose task will not replace its rows.

    Attributes:
        why: a sentence without a subject that says so.
        may_write_else: whether it is of a map index of the task that may still write what it stands for now.
    """

    key: OperationKey
    snapshot: Snapshot
    why: str
    may_write_else: bool = False


def check_own_index(key: OperationKey, landed: Snapshot) -> None:
    """Check that a commit that is found under a `write_key` is this index's own.

    Raises:
        IncompatibleChangeError: two indexes of the task have the same one.
    """
    of = landed.summary.get(MAP_INDEX)
    if key.write_key is None or landed.summary.get(OPERATION_KEY) != str(key) or of == str(key.map_index):
        return
    raise IncompatibleChangeError(
        f"map indexes {of} and {key.map_index} of task {key.dag_id}.{key.task_id} have one write_key, "
        f"{key.write_key!r}: the first one has committed snapshot {landed.snapshot_id}, and this one would be taken "
        f"for it; nothing was committed, give each item a write_key of its own"
    )


def find_removed(
    metadata: TableMetadata, key: OperationKey, branch: str, *, skips: bool = False
) -> tuple[Removed, ...]:
    """Return the commits of the run in the history of a branch that no task will make again; none are undone.

    Args:
        skips: whether a cleared task leaves it at what it has written, so that it may stand for rows without a commit.
    """
    tasks = key.run_tasks
    commits = _of_run(metadata, key, branch) if tasks is not None else []
    if tasks is None or not commits:
        return ()
    found = []
    siblings, mapped = _Siblings(key, commits, skips=skips), tasks.tasks()
    for other, snapshot in commits:
        if other.task_id != key.task_id:
            why = missing(other, mapped)
        else:
            why = siblings.why(other, snapshot)
        # Changes of rows that were there, deletes and compactions add none of their own.
        if why is not None and UPDATED_ROWS not in snapshot.summary and snapshot.operation not in ("replace", "delete"):
            may_write = other.task_id == key.task_id and siblings.may_write_else(other, snapshot)
            found.append(Removed(key=other, snapshot=snapshot, why=why, may_write_else=may_write))
    return tuple(found)


def missing(key: OperationKey, mapped: Mapping[str, bool]) -> str | None:
    """Return why no other task of the run writes under a key any more; None if one does.

    Args:
        mapped: the DAG's tasks, and whether each is mapped.
    """
    if key.task_id not in mapped:
        return f"the DAG has no task {key.task_id!r} any more"
    is_mapped = mapped[key.task_id]
    if key.write_key is None and is_mapped != (key.map_index >= 0):
        return f"task {key.task_id!r} is {'mapped' if is_mapped else 'not mapped'} now"
    return None


def changed_item(key: OperationKey, earlier: Collection[Snapshot]) -> Snapshot | None:
    """Return an earlier commit of this index in which it stood for something else than it does now."""
    known = (snapshot for snapshot in earlier if key.write_key is None and key.item is not None)
    return next((one for one in known if one.summary.get(ITEM, key.item) != key.item), None)


def _of_run(metadata: TableMetadata, key: OperationKey, branch: str) -> list[tuple[OperationKey, Snapshot]]:
    """Return the commits of the run that are not undone, newest first."""
    head = metadata.ref_snapshot(branch)
    history = [] if head is None else list(metadata.ancestors(head.snapshot_id))
    found = [(other, snapshot) for snapshot in history for other in _keys(snapshot, key)]
    undone = find_undone(history) if found else {}
    return [(other, snapshot) for other, snapshot in found if snapshot.snapshot_id not in undone]


def _keys(snapshot: Snapshot, key: OperationKey) -> Iterator[OperationKey]:
    known = (key.installation, None) if key.older_epoch is not None else (key.installation,)
    # Who publishes rows, or undoes some, has none of his own.
    texts = keys_of(snapshot, own=False) or ([] if undone_in(snapshot) else keys_of(snapshot))
    for text in texts:
        other = OperationKey.find(text) if text.startswith(f"{key.run}/") else None
        if other is not None and other.installation in known:
            yield other


class _Siblings:
    """The commits of the same task of the run, by all of its indexes.

    Args:
        commits: those of all tasks of the run, newest first.
        skips: as of `find_removed`.
    """

    def __init__(
        self, key: OperationKey, commits: Collection[tuple[OperationKey, Snapshot]], *, skips: bool = False
    ) -> None:
        self._key = key
        self._skips = skips
        self._commits = [(other, snapshot) for other, snapshot in commits if other.task_id == key.task_id]
        self._indexes: tuple[Mapping[int, bool] | None] | None = None
        self._all_present: Collection[str | None] | None = None

    def why(self, other: OperationKey, snapshot: Snapshot) -> str | None:
        """Return why no index of the task will make a commit again; None if one may."""
        key = self._key
        if other.part == key.part or other.epoch > key.epoch:
            return None
        if (other.write_key is None) != (key.write_key is None):
            is_of_now = other.epoch == key.epoch or self._writes_both()
            return None if is_of_now else f"the task has {'a' if key.write_key else 'no'} write_key now"
        if key.write_key is not None:
            return self._why_written(other)
        if (other.map_index < 0) != (key.map_index < 0):
            return f"the task is {'not mapped' if key.map_index < 0 else 'mapped'} now"
        if self._has_moved(other, snapshot):
            return f"what map index {other.map_index} stood for is map index {key.map_index} now"
        indexes = self._ask()
        if indexes is not None and other.map_index not in indexes:
            return f"the task has no map index {other.map_index} in this run any more"
        return None

    def may_write_else(self, other: OperationKey, snapshot: Snapshot) -> bool:
        """Whether a commit is of another index that the task still has, and that stands for something else now."""
        if min(other.map_index, self._key.map_index) < 0 or not self._has_moved(other, snapshot):
            return False
        indexes = self._ask()
        return indexes is None or other.map_index in indexes

    def _has_moved(self, other: OperationKey, snapshot: Snapshot) -> bool:
        """Whether another index has written before what this one stands for now, and this one something else."""
        item = self._key.item
        if item is None or snapshot.summary.get(ITEM) != item or other.epoch >= self._key.epoch:
            return False
        own = [one for known, one in self._commits if known.part == self._key.part]
        if not own and len({known.part for known, one in self._commits if one.summary.get(ITEM) == item}) > 1:
            return False  # several indexes stand for the same, and so may this one that has not written yet
        return all(one.summary.get(ITEM) != item for one in own)

    def _writes_both(self) -> bool:
        """Whether the task's function writes with a write_key and without one."""
        kinds: dict[tuple[str | None, int], set[bool]] = {}
        for other, snapshot in self._commits:
            if other.write is not None:
                place = snapshot.summary.get(MAP_INDEX), other.epoch
                kinds.setdefault(place, set()).add(other.write_key is None)
        return any(len(kind) > 1 for kind in kinds.values())

    def _ask(self) -> Mapping[int, bool] | None:
        """Return the indexes of the task; Airflow is asked once."""
        if self._indexes is None:
            self._indexes = (self._key.run_tasks.indexes() if self._key.run_tasks is not None else None,)
        return self._indexes[0]

    # -- a task with a write_key -----------------------------------------------------------------------------------

    def _why_written(self, other: OperationKey) -> str | None:
        key = self._key
        # Every clear is another number of the run; without one, all keys are of now.
        is_before = other.epoch // PARTS < key.epoch // PARTS if key.map_index >= 0 else other.epoch < key.epoch
        if not is_before:
            return None
        if key.map_index < 0:
            return f"the task's write_key is {key.write_key!r} now" if self._is_last() else None
        present = self._present()
        if present is None or other.write_key in present:
            return None
        return f"no map index of the task has write_key {other.write_key!r} any more"

    def _is_last(self) -> bool:
        """Whether the task will not write under another key; the next write of a function may do so."""
        return self._key.write is None or (self._key.on_removed == "remove" and not self._skips)

    def _present(self) -> Collection[str | None] | None:
        """Return the write_keys that the indexes of the task have now; None as long as one of them may write another.

        An index has its newest ones, if it has written since the clear, or was not cleared.
        """
        if self._all_present is None:
            key, indexes, newest = self._key, self._ask(), self._newest()
            if indexes is None:
                return None
            present = {key.write_key}
            if key.map_index in newest and (not self._is_last() or newest[key.map_index][0].epoch == key.epoch):
                present |= {one.write_key for one in newest[key.map_index]}
            for index in indexes:
                if index == key.map_index:
                    continue
                known = newest.get(index, [])
                is_now = any(one.epoch // PARTS >= key.epoch // PARTS for one in known)
                # A function that has begun to write may go on; who skips his work has no newer commit.
                if not ((is_now and key.write is None) or (indexes[index] and (is_now or not self._skips))):
                    return None
                # A snapshot that was published does not say whose index its rows are of.
                present |= {one.write_key for one in known} if known else self._published()
            self._all_present = present
        return self._all_present

    def _newest(self) -> dict[int, list[OperationKey]]:
        """Return the newest keys of each index: those of one epoch."""
        newest: dict[int, list[OperationKey]] = {}
        for other, snapshot in self._commits:
            index = whole_number(snapshot.summary.get(MAP_INDEX, ""))
            if index is None or snapshot.summary.get(OPERATION_KEY) != str(other):
                continue
            known = newest.setdefault(index, [])
            if not known or known[0].epoch == other.epoch:
                known.append(other)
        return newest

    def _published(self) -> set[str | None]:
        return {one.write_key for one, snapshot in self._commits if snapshot.summary.get(OPERATION_KEY) != str(one)}
