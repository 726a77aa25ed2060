"""Who reads the changes of an input into a table: a task, or the name that an author gives to who does.

A consumer that has no watermark reads everything. So it has to be sure that it is a new one, and not one under another
name whose rows are in the table already: of a task that was renamed, moved into a group or mapped, or whose DAG was
renamed. Where the table has watermarks of others for the same input, it is refused, unless

- the others have begun in the same DAG run, and are tasks that it still has: all are new; so they are if the consumer
  has ended well in that run, and had no rows; but not an index that stands for what another one has read further as;
- all of them have names that an author has given.

Not here: the watermarks themselves (`commit.watermarks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from airflow_iceberg.commit.operation_key import ITEM, OperationKey, keys_of
from airflow_iceberg.commit.runs.consumed import WAYS_OUT, all_kept, entries_of, number_of
from airflow_iceberg.commit.runs.removed import missing
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot

_NAMED = ["", ""]


def task_of(key: OperationKey, branch: str, consumer: str | None) -> list[Any]:
    """Return what tells a consumer from others in the property that has its watermark."""
    if consumer is not None:
        return [*_NAMED, consumer, -1, branch]
    return [key.installation or "", *_place(key), branch]


def _place(key: OperationKey) -> list[Any]:
    return [key.dag_id, key.task_id, key.map_index if key.write_key is None else key.part]


def name_of(task: Sequence[Any]) -> str:
    """Return the name of a consumer: `dag.task`, `dag.task[3]`, or the one that its author has given."""
    _, dag_id, task_id, part, _ = task
    if list(task[:2]) == _NAMED:
        return str(task_id)
    return f"{dag_id}.{task_id}" if part == -1 else f"{dag_id}.{task_id}[{part}]"


def is_named(task: Sequence[Any]) -> bool:
    """Whether the author has given the name."""
    return list(task[:2]) == _NAMED


def check_is_new(
    metadata: TableMetadata,
    history: Sequence[Snapshot],
    *,
    key: OperationKey,
    mine: Sequence[Sequence[Any]],
    name: str,
    table_uuid: str,
) -> None:
    """Check that a consumer without a watermark is surely a new one.

    Args:
        history: the snapshots of the branch, newest first.
        mine: the consumers that it is; the first one as it is now.
        name, table_uuid: the input.

    Raises:
        IncompatibleChangeError: others have read changes of the input into the table.
    """
    own = {name_of(one) for one in mine}
    for other in _others(metadata, history, name, table_uuid, branch=str(mine[0][-1]), run=key.run):
        if name_of(other.task) in own or (is_named(mine[0]) and is_named(other.task)):
            continue
        is_new = _was_there(other.begun, key) and not _is_gone(other.task, key)
        if is_new and not (other.is_ahead and _had_my_item(history, other.task, key)):
            continue
        raise IncompatibleChangeError(
            f"{name_of(mine[0])!r} has read no changes of this input yet, and {name_of(other.task)!r} has read some "
            f"into table {metadata.location}, up to snapshot {other.snapshot_id}: if it is the same work, of which "
            f"a task or DAG was renamed, moved or mapped, set consumer={name_of(other.task)!r}, which goes on there; "
            f"if it is other work, {_or_clear(other.begun, key)}{WAYS_OUT}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Other:
    """Somebody who has read changes of an input.

    Attributes:
        begun: the DAG and run in which it has begun to; None: nobody knows.
        snapshot_id: the last snapshot of the input that it has read.
        is_ahead: whether another run has read it.
    """

    task: Sequence[Any]
    begun: str | None
    snapshot_id: object
    is_ahead: bool


def _others(
    metadata: TableMetadata, history: Sequence[Snapshot], name: str, table_uuid: str, *, branch: str, run: str
) -> list[_Other]:
    """Return all who have read changes of an input into a branch, by what its snapshots and properties say.

    Args:
        run: the DAG and run that asks.
    """
    ids = {snapshot.snapshot_id for snapshot in history}
    is_whole = not history or history[-1].parent_snapshot_id is None
    found: dict[str, _Other] = {}
    for snapshot in reversed(history):
        for other_name, entry in entries_of(metadata, snapshot):
            if not _is_same(entry, other_name, name, table_uuid):
                continue
            # Who publishes rows has read nothing himself.
            texts = keys_of(snapshot, own=False) or keys_of(snapshot)
            for other in filter(None, map(OperationKey.find, texts)):
                task = task_of(other, branch, entry.get("consumer"))
                before = found.get(name_of(task))
                begun = before.begun if before else other.run if is_whole else None
                found[name_of(task)] = _Other(
                    task=task,
                    begun=begun,
                    snapshot_id=entry.get("snapshot-id"),
                    is_ahead=other.run != run or (before is not None and before.is_ahead),
                )
    for task, inputs in all_kept(metadata):
        for other_name, entry in inputs.items():
            target = number_of(entry, "target-snapshot-id")
            is_gone = not is_whole and metadata.snapshot(target) is None and task[-1] in (branch, MAIN_BRANCH)
            if _is_same(entry, other_name, name, table_uuid) and (target in ids or is_gone):
                before = found.get(name_of(task))
                begun = entry.get("begun") or (before.begun if before else None)
                is_ahead = not str(entry.get("work")).startswith(f"{run}/")
                found[name_of(task)] = _Other(
                    task=task, begun=begun, snapshot_id=entry.get("snapshot-id"), is_ahead=is_ahead
                )
    return list(found.values())


def _is_same(entry: Any, other_name: str, name: str, table_uuid: str) -> bool:
    uuid = entry.get("table-uuid") or ""
    return uuid == table_uuid if uuid and table_uuid else other_name == name


def _was_there(begun: str | None, key: OperationKey) -> bool:
    """Whether the consumer was a task of a DAG run under the name that it has now."""
    if begun is None or begun == key.run:
        return begun is not None
    dag, _, run = begun.partition("/")
    return key.run_tasks is not None and unquote(dag) == key.dag_id and key.run_tasks.has_ended_well(unquote(run))


def _had_my_item(history: Sequence[Snapshot], task: Sequence[Any], key: OperationKey) -> bool:
    """Whether another index of this task stood in this run for what this one stands for now, and has read as that."""
    _, dag_id, task_id, part, _ = task
    if key.item is None or (dag_id, task_id) != (key.dag_id, key.task_id) or str(part) == key.part:
        return False
    commits = (one for one in history if one.summary.get(ITEM) == key.item)
    keys = filter(None, (OperationKey.find(text) for one in commits for text in keys_of(one)))
    return any((one.run, one.task_id, one.part) == (key.run, task_id, str(part)) for one in keys)


def _or_clear(begun: str | None, key: OperationKey) -> str:
    """Return what a task can do that was there when the others have begun, and has failed then."""
    dag, _, run = (begun or "").partition("/")
    if unquote(dag) != key.dag_id or begun == key.run:
        return ""
    return f"clear its task in DAG run {unquote(run)!r}, where that one has begun, if it has failed there; else "


def _is_gone(task: Sequence[Any], key: OperationKey) -> bool:
    """Whether the DAG run has no such task, or index, any more."""
    tasks, (_, dag_id, task_id, part, _) = key.run_tasks, task
    if is_named(task) or tasks is None or isinstance(part, str):
        return False
    other = OperationKey(dag_id=str(dag_id), run_id=key.run_id, task_id=str(task_id), map_index=int(part))
    if other.task_id != key.task_id:
        return missing(other, tasks.tasks()) is not None
    if (other.map_index < 0) != (key.map_index < 0):
        return True
    indexes = tasks.indexes() if other.map_index >= 0 else None
    return indexes is not None and other.map_index not in indexes
