"""How far a task has read the changes of its inputs: the watermark, which is committed with the rows.

The summary of each snapshot says which changes its rows were made from (`write_result.INPUTS`). The newest one of the
task in the branch's history has the watermark, so that a rollback of the table takes it back, too. Snapshots expire: so
the same commit also sets a property of the table, which is asked where the history does not reach back far enough:

    airflow.consumed.<digest of the task and the branch> = {"task": …, "inputs": {<name>: {"snapshot-id": …, …}}}

Where main becomes what a branch is, as when it is published, main gets the watermarks of the branch.

A cleared task reads its own range again. This moves no watermark: the changes after it were read by later runs.

Not here: which snapshots of the input are read (`operations.inputs.changes`), the rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.commit.compose import Composed
from airflow_iceberg.commit.operation_key import (
    SOURCE_SNAPSHOT_ID,
    Kin,
    OperationKey,
    find_kin,
    keys_of,
)
from airflow_iceberg.commit.snapshot_action import MakesSnapshot, next_sequence_number
from airflow_iceberg.commit.write_result import INPUTS
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, StalePlanError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemoveProperties, SetProperties, Update
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.format.values.digits import whole_number

PREFIX = "airflow.consumed."

WAYS_OUT = "say in `since` which snapshot, tag or time of the input to read after, or None to read all of its rows"


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The changes of an input that were read.

    Attributes:
        table_uuid: the uuid of the input; empty for a table without one.
        from_snapshot_id: the snapshot after which they begin; None: all rows of the last one.
        to_snapshot_id: the last snapshot; None: the input had none.
    """

    table_uuid: str
    from_snapshot_id: int | None
    to_snapshot_id: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Consumed:
    """The changes of an input that a commit's rows were made from.

    Attributes:
        name: the name of the input.
        read: the range.
        is_again: whether a cleared task has read its own range again.
        is_since_last: whether the range begins at the watermark.
        is_first: whether there was none when the work was planned.
    """

    name: str
    read: Range
    is_again: bool = False
    is_since_last: bool = False
    is_first: bool = False


class Watermarks:
    """The watermarks of a task in a branch of the table that it writes to."""

    def __init__(self, key: OperationKey, branch: str) -> None:
        self._key = key
        self._branch = branch
        self._task = [key.installation or "", key.dag_id, key.task_id, key.map_index, branch]
        self.property = _property_of(self._task)

    # -- where the task has come to ------------------------------------------------------------------------------------

    def find(self, metadata: TableMetadata, name: str) -> Range | None:
        """Return the last range that moved the watermark of an input; None: the task has never read changes of it.

        Raises:
            IncompatibleChangeError: there was one, or may have been, and it is not known any more.
        """
        history = self._history(metadata)
        others: list[Snapshot] = []
        for snapshot in history:
            if not self._is_of_task(snapshot):
                continue
            entry = _entry(metadata, snapshot, name)
            if entry is not None and not entry.get("again"):
                return _range(entry)
            others += [snapshot] if entry is None else []
        kept = self._expired(metadata, name, history)
        if kept is not None:
            return _range(kept)
        if others:
            raise IncompatibleChangeError(
                f"this task has committed snapshot {others[0].snapshot_id} before, without changes of "
                f"such an input, so that it is not known which of them are in the table; {WAYS_OUT}"
            )
        self._check_other_branches(metadata, name, history)
        self._check_other_installations(metadata, history)
        return None

    def own_range(self, metadata: TableMetadata, name: str) -> Range | None:
        """Return the range of an input that this work has read in another try or epoch; None: none is known.

        Raises:
            IncompatibleChangeError: it has committed without reading changes of the input.
        """
        for kin, snapshot, _ in find_kin(metadata, self._key, self._branch):
            if kin is Kin.LATER:
                continue
            entry = _entry(metadata, snapshot, name)
            if entry is None:
                raise IncompatibleChangeError(
                    f"an earlier run of {self._key.work} has committed snapshot {snapshot.snapshot_id} "
                    f"without changes of such an input, so that it is not known which it is to read again; {WAYS_OUT}"
                )
            return _range(entry)
        kept = self._expired(metadata, name, self._history(metadata))
        return _range(kept) if kept is not None and kept.get("work") == self._key.work else None

    def _history(self, metadata: TableMetadata) -> list[Snapshot]:
        head = metadata.ref_snapshot(self._branch)
        return [] if head is None else list(metadata.ancestors(head.snapshot_id))

    def _is_of_task(self, snapshot: Snapshot, *, any_installation: bool = False) -> bool:
        for text in keys_of(snapshot):
            try:
                other = OperationKey.parse(text)
            except InvalidInputError:
                continue
            key = self._key
            if (other.dag_id, other.task_id, other.map_index) == (key.dag_id, key.task_id, key.map_index):
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
        found = _document(text)
        if found.get("task") != self._task or not _are_objects(found.get("inputs")):
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
        self._check_not_rolled_back(kept, history)
        return kept

    def _kept_of(self, metadata: TableMetadata, name: str, history: Sequence[Snapshot]) -> Mapping[str, Any] | None:
        """Return what is kept of an input for this branch, or for main, if what has expired is of both."""
        kept = self._kept(metadata).get(name)
        if kept is not None or self._branch == MAIN_BRANCH:
            return kept
        main = metadata.ancestors(metadata.current_snapshot_id)
        if any(snapshot.snapshot_id == history[-1].snapshot_id for snapshot in main):
            return Watermarks(self._key, MAIN_BRANCH)._kept(metadata).get(name)
        return None

    def _check_other_branches(self, metadata: TableMetadata, name: str, history: Sequence[Snapshot]) -> None:
        """Refuse where the task has read changes on another branch, which may have become a part of this one since.

        Raises:
            IncompatibleChangeError: it has, and the snapshots that would tell have expired.
        """
        if not history or history[-1].parent_snapshot_id is None:
            return
        for task, inputs in _all_kept(metadata):
            entry = inputs.get(name, {})
            target = _number(entry, "target-snapshot-id")
            if task[:-1] == self._task[:-1] and entry and metadata.snapshot(target) is None:
                raise IncompatibleChangeError(
                    f"this task has read changes on branch {str(task[-1])[:100]!r}, and its snapshot {target} has "
                    f"expired, so that it is not known whether they are in branch {self._branch!r}; {WAYS_OUT}"
                )

    def _check_not_rolled_back(self, kept: Mapping[str, Any], history: Sequence[Snapshot]) -> None:
        """Refuse a watermark whose snapshot is not in the part of the history that is as old as it is."""
        number, moment_ms = _number(kept, "sequence-number"), _number(kept, "timestamp-ms")
        for snapshot in history:
            is_older = snapshot.sequence_number < number if number else snapshot.timestamp_ms <= moment_ms
            if is_older:
                raise IncompatibleChangeError(
                    f"the snapshot in which this task has read its changes last was rolled back, and "
                    f"the ones before have expired, so that it is not known which changes are in the table; {WAYS_OUT}"
                )

    def _check_other_installations(self, metadata: TableMetadata, history: Sequence[Snapshot]) -> None:
        found = [snapshot.snapshot_id for snapshot in history if self._is_of_task(snapshot, any_installation=True)]
        tasks = (_document(text).get("task") for key, text in metadata.properties.items() if key.startswith(PREFIX))
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
        inputs = {one.name: {**_texts(one.read), **place} for one in moved}
        try:
            kept = self._kept(metadata)
        except IncompatibleChangeError:
            kept = {}  # what is damaged is written anew
        document = {"task": self._task, "inputs": {**kept, **inputs}}
        return Change(updates=(SetProperties(updates={self.property: json.dumps(document)}),), requirements=())

    def _check_not_moved(self, metadata: TableMetadata, one: Consumed) -> None:
        found = self.find(metadata, one.name)
        is_same = one.is_first if found is None else found.to_snapshot_id == one.read.from_snapshot_id
        if not is_same or (found is not None and one.is_first):
            raise StalePlanError(
                f"input {one.name!r}: another run of this task has read its changes meanwhile, up to snapshot "
                f"{None if found is None else found.to_snapshot_id}, so that they would be in the table twice; "
                f"nothing was committed, run it again to read the ones after it"
            )


def with_watermarks(action: MakesSnapshot, consumed: Sequence[Consumed]) -> MakesSnapshot:
    """Return the action, with the watermarks of what its rows were made from in the same commit."""
    key, snapshot_id = action.settings.operation_key, action.settings.snapshot_id
    if key is None or not consumed:
        return action
    watermarks = Watermarks(key, action.settings.branch)
    return Composed(lambda metadata: watermarks.advance(metadata, consumed, snapshot_id), action)


def moved_to_main(metadata: TableMetadata, head: int) -> tuple[Update, ...]:
    """Return the updates that give main, which is moved to a snapshot, the watermarks of what becomes a part of it."""
    of_branches = [(task, inputs) for task, inputs in _all_kept(metadata) if task[-1] != MAIN_BRANCH]
    if not of_branches:
        return ()
    was = {one.snapshot_id for one in metadata.ancestors(metadata.current_snapshot_id)}
    published = {one.snapshot_id for one in metadata.ancestors(head)} - was
    updates: dict[str, str] = {}
    for task, inputs in of_branches:
        moved = {name: one for name, one in inputs.items() if _number(one, "target-snapshot-id") in published}
        if not moved:
            continue
        of_main = [*task[:-1], MAIN_BRANCH]
        name = _property_of(of_main)
        kept = _document(updates.get(name) or metadata.properties.get(name, "")).get("inputs")
        known = kept if _are_objects(kept) else {}
        updates[name] = json.dumps({"task": of_main, "inputs": {**(known or {}), **moved}})
    return (SetProperties(updates=updates),) if updates else ()


def removed_with(metadata: TableMetadata, branch: str) -> tuple[Update, ...]:
    """Return the updates that remove the watermarks of a branch, which is removed."""
    names = tuple(_property_of(task) for task, _ in _all_kept(metadata) if task[-1] == branch)
    found = tuple(name for name in names if name in metadata.properties)
    return (RemoveProperties(removals=found),) if found else ()


def _all_kept(metadata: TableMetadata) -> Iterator[tuple[list[Any], Mapping[str, Mapping[str, Any]]]]:
    """Yield the tasks and branches of all watermarks that properties have, and what they say of each input."""
    for name, text in metadata.properties.items():
        found = _document(text) if name.startswith(PREFIX) else {}
        task, inputs = found.get("task"), found.get("inputs")
        if isinstance(task, list) and len(task) == 5 and isinstance(inputs, dict) and _are_objects(inputs):
            yield task, inputs


def _property_of(task: Sequence[Any]) -> str:
    return f"{PREFIX}{hashlib.sha256(json.dumps(task).encode()).hexdigest()[:16]}"


def consumed_by(snapshot: Snapshot) -> tuple[Consumed, ...] | None:
    """Return which changes a snapshot's rows were made from, as its summary says; None if they were read again."""
    entries = _document(snapshot.summary.get(INPUTS, "{}"))
    read = {name: one for name, one in entries.items() if isinstance(one, dict) and "from-snapshot-id" in one}
    if any(one.get("again") for one in read.values()):
        return None
    return tuple(
        Consumed(name=name, read=_range(one), is_since_last=True, is_first=one["from-snapshot-id"] is None)
        for name, one in read.items()
    )


def _texts(read: Range) -> dict[str, str | None]:
    """Return a range as `_range` reads it; ids are texts, since JavaScript rounds integers above 2**53."""
    first, last = read.from_snapshot_id, read.to_snapshot_id
    return {
        "table-uuid": read.table_uuid,
        "from-snapshot-id": None if first is None else str(first),
        "snapshot-id": None if last is None else str(last),
    }


def _entry(metadata: TableMetadata, snapshot: Snapshot, name: str) -> Mapping[str, Any] | None:
    """Return what a snapshot's summary says of the changes of an input; None: its rows were not made from any.

    A cherry-pick says nothing itself: the snapshot does whose files it has.
    """
    for each in _with_source(metadata, snapshot):
        entry = _document(each.summary.get(INPUTS, "{}")).get(name)
        if isinstance(entry, dict) and "mode" in entry:
            return entry
    return None


def _with_source(metadata: TableMetadata, snapshot: Snapshot) -> Iterator[Snapshot]:
    yield snapshot
    source = whole_number(snapshot.summary.get(SOURCE_SNAPSHOT_ID, ""))
    found = None if source is None else metadata.snapshot(source)
    if found is not None:
        yield found


def _range(entry: Mapping[str, Any]) -> Range:
    """Read a range; raises IncompatibleChangeError if it is damaged, since without ids it would be the whole table."""
    first, last = (entry.get(name, "") for name in ("from-snapshot-id", "snapshot-id"))
    if any(one is not None and whole_number(str(one)) is None for one in (first, last)):
        raise IncompatibleChangeError(f"what this task has read last is damaged: {json.dumps(entry)}; {WAYS_OUT}")
    return Range(
        table_uuid=str(entry.get("table-uuid") or ""),
        from_snapshot_id=None if first is None else int(first),
        to_snapshot_id=None if last is None else int(last),
    )


def _number(entry: Mapping[str, Any], name: str) -> int:
    return whole_number(str(entry.get(name))) or 0


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _are_objects(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())
