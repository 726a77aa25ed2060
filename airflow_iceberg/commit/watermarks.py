"""How far the changes of an input were read into a table: the watermark, which is committed with the rows.

The summary of each snapshot says which changes its rows were made from. The newest one of the consumer in the branch's
history has the watermark, so that a rollback of the table takes it back, too. Snapshots expire: so the same commit also
sets a property of the table, which is asked where the history does not reach back far enough (`runs.consumed`).

A consumer is a task, with its DAG and map index, or a name that an author has given (`runs.consumers`). A task that is
given a name goes on at its own watermark; so does one that is given the name of another task (`dag.task`).

Where main becomes what a branch is, as when it is published, main gets the watermarks of the branch.

A cleared task reads its own range again. This moves no watermark: the changes after it were read by later runs.

Not here: which snapshots of the input are read (`operations.inputs.changes`), the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_iceberg.commit.compose import Composed
from airflow_iceberg.commit.operation_key import SOURCE_SNAPSHOT_ID, Kin, OperationKey, find_kin, keys_of
from airflow_iceberg.commit.runs.consumed import (
    PREFIX,
    WAYS_OUT,
    Consumed,
    Range,
    all_kept,
    are_objects,
    document_of,
    entry_of,
    number_of,
    property_of,
    range_of,
    texts_of,
)
from airflow_iceberg.commit.runs.consumers import check_is_new, is_named, name_of, task_of
from airflow_iceberg.commit.snapshot_action import MakesSnapshot, next_sequence_number
from airflow_iceberg.errors import IncompatibleChangeError, StalePlanError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemoveProperties, SetProperties, Update
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot


class Watermarks:
    """The watermarks of a task, or a consumer with a name, in a branch of the table that it writes to."""

    def __init__(self, key: OperationKey, branch: str, consumer: str | None = None) -> None:
        self._key = key
        self._branch = branch
        self._consumer = consumer
        self._task = task_of(key, branch, consumer)
        self._unnamed = task_of(key, branch, None)
        self.property = property_of(self._task)

    # -- where the task has come to ------------------------------------------------------------------------------------

    def find(self, metadata: TableMetadata, name: str, table_uuid: str) -> Range | None:
        """Return the last range that moved the watermark of an input; None: nobody has read changes of it before.

        Args:
            table_uuid: the uuid of the input; empty for a table without one.

        Raises:
            IncompatibleChangeError: there was one, or may have been, and it is not known any more; or it is not known
                whose those are that the table has.
        """
        history = self._history(metadata)
        others: list[Snapshot] = []
        names: list[str] = []
        for snapshot in history:
            entry, is_of_task = entry_of(metadata, snapshot, name), self._is_of_task(snapshot)
            if entry is None:
                others += [snapshot] if is_of_task else []
                continue
            if is_of_task and entry.get("consumer") is not None:
                names.append(str(entry["consumer"]))
                self._check_same_name(names, is_known=self._consumer is not None)
            if self._is_mine(snapshot, entry, is_of_task=is_of_task) and not entry.get("again"):
                return range_of(entry)
        kept = self._expired(metadata, name, history)
        if kept is not None:
            return range_of(kept)
        if others:
            raise IncompatibleChangeError(
                f"this task has committed snapshot {others[0].snapshot_id} before, without changes of "
                f"such an input, so that it is not known which of them are in the table; {WAYS_OUT}"
            )
        # What a template says differs from index to index.
        self._check_same_name(names, is_known=self._key.part != "-1")
        self._check_other_branches(metadata, name, history)
        if self._consumer is None:
            self._check_other_installations(metadata, history)
        mine = [self._task, *self._also(metadata)]
        check_is_new(metadata, history, key=self._key, mine=mine, name=name, table_uuid=table_uuid)
        return None

    def _is_mine(self, snapshot: Snapshot, entry: Mapping[str, Any], *, is_of_task: bool) -> bool:
        """Whether a snapshot's changes were read by this consumer, maybe before it had its name."""
        by = entry.get("consumer")
        if by is not None:
            return bool(by == self._consumer)
        names = (name_of(task_of(key, self._branch, None)) for key in _parsed(snapshot))
        return is_of_task or (self._consumer is not None and self._consumer in names)

    def _check_same_name(self, names: Sequence[str], *, is_known: bool) -> None:
        """Refuse a task that has read under another name before, which its author has taken away.

        Raises:
            IncompatibleChangeError: so it is.
        """
        if names and not is_known:
            now = "has no such name" if self._consumer is None else f"is {self._consumer!r}"
            raise IncompatibleChangeError(
                f"this task has read changes of the input as consumer {names[0]!r} before, and {now} now; if it is the "
                f"same reader, set consumer={names[0]!r}; if it is a new one, {WAYS_OUT}"
            )

    def _also(self, metadata: TableMetadata) -> list[list[Any]]:
        """Return the tasks whose watermarks this consumer goes on at, beside its own: those that it has the name of."""
        if self._consumer is None:
            return []
        known = [task for task, _ in all_kept(metadata) if task[-1] == self._branch and not is_named(task)]
        return [task for task in known if task == self._unnamed or name_of(task) == self._consumer]

    def own_range(self, metadata: TableMetadata, name: str) -> Range | None:
        """Return the range of an input that this work has read in another try or epoch; None: none is known.

        Raises:
            IncompatibleChangeError: it has committed without reading changes of the input.
        """
        for kin, snapshot, _ in find_kin(metadata, self._key, self._branch):
            if kin is Kin.LATER:
                continue
            entry = entry_of(metadata, snapshot, name)
            if entry is None:
                raise IncompatibleChangeError(
                    f"an earlier run of {self._key.work} has committed snapshot {snapshot.snapshot_id} "
                    f"without changes of such an input, so that it is not known which it is to read again; {WAYS_OUT}"
                )
            return range_of(entry)
        kept = self._expired(metadata, name, self._history(metadata))
        return range_of(kept) if kept is not None and kept.get("work") == self._key.work else None

    def _history(self, metadata: TableMetadata) -> list[Snapshot]:
        head = metadata.ref_snapshot(self._branch)
        return [] if head is None else list(metadata.ancestors(head.snapshot_id))

    def _is_of_task(self, snapshot: Snapshot, *, any_installation: bool = False) -> bool:
        key = self._key
        for other in _parsed(snapshot):
            if (other.dag_id, other.task_id, other.part) == (key.dag_id, key.task_id, key.part):
                return any_installation or other.installation in (None, key.installation)
        return False

    def _kept(self, metadata: TableMetadata) -> Mapping[str, Mapping[str, Any]]:
        """Return what the property says of each input.

        Raises:
            IncompatibleChangeError: another writer has damaged it.
        """
        text = metadata.properties.get(self.property)
        if text is None:
            return {}
        found = document_of(text)
        if found.get("task") != self._task or not are_objects(found.get("inputs")):
            raise IncompatibleChangeError(
                f"property {self.property} of table {metadata.location} is damaged, which says how far this task has "
                f"read its inputs; remove it, and {WAYS_OUT}"
            )
        kept: Mapping[str, Mapping[str, Any]] = found["inputs"]
        return kept

    def _expired(self, metadata: TableMetadata, name: str, history: Sequence[Snapshot]) -> Mapping[str, Any] | None:
        """Return what the property says of an input, if its snapshot has expired, and None if it was rolled back.

        Raises:
            IncompatibleChangeError: it was rolled back, and nothing tells of the time before.
        """
        if not history:
            return None
        is_whole = history[-1].parent_snapshot_id is None
        picked = {snapshot.summary.get(SOURCE_SNAPSHOT_ID) for snapshot in history} - {None}
        if is_whole and not picked:
            return None
        kept = self._kept_of(metadata, name, history)
        if kept is None or kept.get("target-snapshot-id") in picked:
            return kept
        if is_whole:
            return None
        # Older snapshots may be in the history beside it, if it has not expired itself.
        if all(snapshot.snapshot_id != number_of(kept, "target-snapshot-id") for snapshot in history):
            self._check_not_rolled_back(kept, history)
        return kept

    def _kept_of(self, metadata: TableMetadata, name: str, history: Sequence[Snapshot]) -> Mapping[str, Any] | None:
        """Return what is kept of an input for this branch, or for main, if what has expired is of both."""
        kept = self._kept_or_taken_over(metadata, name)
        if kept is not None or self._branch == MAIN_BRANCH:
            return kept
        main = metadata.ancestors(metadata.current_snapshot_id)
        if any(snapshot.snapshot_id == history[-1].snapshot_id for snapshot in main):
            return Watermarks(self._key, MAIN_BRANCH, self._consumer)._kept_or_taken_over(metadata, name)
        return None

    def _kept_or_taken_over(self, metadata: TableMetadata, name: str) -> Mapping[str, Any] | None:
        kept = self._kept(metadata).get(name)
        if kept is not None:
            return kept
        also = [property_of(task) for task in self._also(metadata)]
        known = {property_of(task): inputs for task, inputs in all_kept(metadata)}
        return next((known[one][name] for one in also if name in known[one]), None)

    def _check_other_branches(self, metadata: TableMetadata, name: str, history: Sequence[Snapshot]) -> None:
        """Refuse where the task has read changes on another branch, which may have become a part of this one since.

        Raises:
            IncompatibleChangeError: it has, and the snapshots that would tell have expired.
        """
        if not history or history[-1].parent_snapshot_id is None:
            return
        for task, inputs in all_kept(metadata):
            entry = inputs.get(name, {})
            target = number_of(entry, "target-snapshot-id")
            if task[:-1] == self._task[:-1] and entry and metadata.snapshot(target) is None:
                raise IncompatibleChangeError(
                    f"this task has read changes on branch {str(task[-1])[:100]!r}, and its snapshot {target} has "
                    f"expired, so that it is not known whether they are in branch {self._branch!r}; {WAYS_OUT}"
                )

    def _check_not_rolled_back(self, kept: Mapping[str, Any], history: Sequence[Snapshot]) -> None:
        """Refuse a watermark whose snapshot is not in the part of the history that is as old as it is."""
        number, moment_ms = number_of(kept, "sequence-number"), number_of(kept, "timestamp-ms")
        for snapshot in history:
            is_older = snapshot.sequence_number < number if number else snapshot.timestamp_ms <= moment_ms
            if is_older:
                raise IncompatibleChangeError(
                    f"the snapshot in which this task has read its changes last was rolled back, and "
                    f"the ones before have expired, so that it is not known which changes are in the table; {WAYS_OUT}"
                )

    def _check_other_installations(self, metadata: TableMetadata, history: Sequence[Snapshot]) -> None:
        found = [snapshot.snapshot_id for snapshot in history if self._is_of_task(snapshot, any_installation=True)]
        tasks = (document_of(text).get("task") for key, text in metadata.properties.items() if key.startswith(PREFIX))
        own = self._task
        if found or any(isinstance(one, list) and one[1:] == own[1:] and one != own for one in tasks):
            raise IncompatibleChangeError(
                f"a task of this name of another Airflow installation has written to the table, and "
                f"may have read the same changes; if it is this one, set its option [airflow_iceberg] installation_id "
                f"to what it was, else {WAYS_OUT}"
            )

    # -- the commit ----------------------------------------------------------------------------------------------------

    def advance(self, metadata: TableMetadata, consumed: Sequence[Consumed], snapshot_id: int) -> Change:
        """Return the change that moves the watermarks, on the metadata that the rows are added to.

        Raises:
            StalePlanError: another run of the task has moved one of them since the rows were read.
        """
        moved = [one for one in consumed if not one.is_again]
        for one in moved:
            if one.is_since_last:
                self._check_not_moved(metadata, one)
        if not moved:
            return Change(updates=(), requirements=())
        place = {
            "work": self._key.work,
            "target-snapshot-id": str(snapshot_id),
            "sequence-number": next_sequence_number(metadata),
            "timestamp-ms": metadata.last_updated_ms,
        }
        try:
            kept = self._kept(metadata)
        except IncompatibleChangeError:
            kept = {}  # what is damaged is written anew
        also = {tuple(task): task for task in self._also(metadata)}
        over = [dict(inputs) for task, inputs in all_kept(metadata) if tuple(task) in also]
        inputs = {}
        for one in moved:
            before = next((known[one.name] for known in (kept, *over) if one.name in known), None)
            begun = self._key.run if one.is_first or before is None else before.get("begun")
            inputs[one.name] = {**texts_of(one.read), **place, **({} if begun is None else {"begun": begun})}
        document = {"task": self._task, "inputs": {**kept, **inputs}}
        updates = {self.property: json.dumps(document)}
        return Change(updates=(SetProperties(updates=updates), *self._taken_over(metadata, inputs)), requirements=())

    def _taken_over(self, metadata: TableMetadata, moved: Mapping[str, Any]) -> Iterator[Update]:
        """Yield the updates that remove the watermarks that this consumer has taken over: one place tells."""
        also = {tuple(task) for task in self._also(metadata)}
        for task, inputs in all_kept(metadata):
            left = {name: entry for name, entry in inputs.items() if name not in moved}
            if tuple(task) not in also or len(left) == len(inputs):
                continue
            if left:
                yield SetProperties(updates={property_of(task): json.dumps({"task": task, "inputs": left})})
            else:
                yield RemoveProperties(removals=(property_of(task),))

    def _check_not_moved(self, metadata: TableMetadata, one: Consumed) -> None:
        found = self.find(metadata, one.name, one.read.table_uuid)
        is_same = one.is_first if found is None else found.to_snapshot_id == one.read.from_snapshot_id
        if not is_same or (found is not None and one.is_first):
            raise StalePlanError(
                f"input {one.name!r}: another run of this task has read its changes meanwhile, up to snapshot "
                f"{None if found is None else found.to_snapshot_id}, so that they would be in the table twice; "
                f"nothing was committed, run it again to read the ones after it"
            )


def with_watermarks(action: MakesSnapshot, consumed: Sequence[Consumed]) -> MakesSnapshot:
    """Return the action, with the watermarks of what its rows were made from in the same commit."""
    key, snapshot_id, branch = action.settings.operation_key, action.settings.snapshot_id, action.settings.branch
    if key is None or not consumed:
        return action

    def first(metadata: TableMetadata) -> Change:
        return Change(updates=advanced(key, consumed, metadata, branch, snapshot_id), requirements=())

    return Composed(first, action)


def advanced(
    key: OperationKey, consumed: Sequence[Consumed], metadata: TableMetadata, branch: str, snapshot_id: int
) -> tuple[Update, ...]:
    """Return the updates that move the watermarks of all consumers in a task; errors as of `Watermarks.advance`."""
    updates: list[Update] = []
    for consumer in dict.fromkeys(one.consumer for one in consumed):
        own = [one for one in consumed if one.consumer == consumer]
        updates += Watermarks(key, branch, consumer).advance(metadata, own, snapshot_id).updates
    return tuple(updates)


def _parsed(snapshot: Snapshot) -> Iterator[OperationKey]:
    return filter(None, map(OperationKey.find, keys_of(snapshot)))


def moved_to_main(metadata: TableMetadata, head: int) -> tuple[Update, ...]:
    """Return the updates that give main, which is moved to a snapshot, the watermarks of what becomes a part of it."""
    of_branches = [(task, inputs) for task, inputs in all_kept(metadata) if task[-1] != MAIN_BRANCH]
    if not of_branches:
        return ()
    was = {one.snapshot_id for one in metadata.ancestors(metadata.current_snapshot_id)}
    published = {one.snapshot_id for one in metadata.ancestors(head)} - was
    updates: dict[str, str] = {}
    for task, inputs in of_branches:
        moved = {name: one for name, one in inputs.items() if number_of(one, "target-snapshot-id") in published}
        if not moved:
            continue
        of_main = [*task[:-1], MAIN_BRANCH]
        name = property_of(of_main)
        kept = document_of(updates.get(name) or metadata.properties.get(name, "")).get("inputs")
        known = kept if are_objects(kept) else {}
        updates[name] = json.dumps({"task": of_main, "inputs": {**(known or {}), **moved}})
    return (SetProperties(updates=updates),) if updates else ()


def removed_with(metadata: TableMetadata, branch: str) -> tuple[Update, ...]:
    """Return the updates that remove the watermarks of a branch, which is removed."""
    names = tuple(property_of(task) for task, _ in all_kept(metadata) if task[-1] == branch)
    found = tuple(name for name in names if name in metadata.properties)
    return (RemoveProperties(removals=found),) if found else ()
