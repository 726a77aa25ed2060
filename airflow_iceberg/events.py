"""Asset events of Iceberg tables, read in one way: those of tasks and those of watchers.

For the task of a DAG that assets schedule: `table_events(triggering_asset_events)`. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class TableEvent:
    """One change of a table, as an asset event tells it.

    Attributes:
        table: the namespace and name of the table.
        snapshot_id: the snapshot; None for an operation that makes none, such as the expiry of snapshots.
        event_id: the same for all events of this snapshot, whoever fired them; to know that it was handled before.
        table_uuid: the identity of the table, which a table of the same name that is made later does not have.
        branch: the branch that was changed; None if the event does not say, which is main.
        parent_snapshot_id, timestamp_ms: the snapshot before, and the time of the commit in milliseconds.
        operation: append, overwrite, delete or replace; None if the event does not say.
        added_records, deleted_records: how many rows were added and deleted; None if they are not known.
        partitions: paths of the changed partitions; None if they are not known. At most 100, of `partition_count`.
        partition_count: the number of the changed partitions.
        snapshot_count: the number of snapshots that the event stands for: more than 1 if its watcher coalesces, or had
            hundreds of new ones. It then has the ids of the first and the last of them.
        first_snapshot_id: the first of them, the one of `snapshot_id` being the last.
        dag_id, run_id, task_id: who made the snapshot; None if it is not a task of Airflow.
        operation_key: the identity of the task's work, from the summary of the snapshot.
        is_from_watcher: whether a watcher has fired the event, instead of the task that made the snapshot.
        partition_key: Airflow's partition key of the event.
        content: all that the event says.
    """

    table: str
    snapshot_id: int | None
    event_id: str
    table_uuid: str | None = None
    branch: str | None = None
    parent_snapshot_id: int | None = None
    timestamp_ms: int | None = None
    operation: str | None = None
    added_records: int | None = None
    deleted_records: int | None = None
    partitions: tuple[str, ...] | None = None
    partition_count: int | None = None
    snapshot_count: int = 1
    first_snapshot_id: int | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    operation_key: str | None = None
    is_from_watcher: bool = False
    partition_key: str | None = None
    content: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def table_events(events: Any) -> list[TableEvent]:
    """Return the changes of tables that asset events tell, each snapshot of a branch once, the oldest event first.

    A triggerer that was killed may fire an event again, and a snapshot may come from its task and from a watcher; both
    are known by table, branch and snapshot. Events of other assets are left out.

    Args:
        events: `triggering_asset_events` of a task's context, `inlet_events[asset]`, or any asset events.
    """
    found: dict[object, TableEvent] = {}
    # Airflow gives the events that start one run in any order.
    for number, event in enumerate(sorted(_each(events), key=_fired)):
        if (one := _table_event(event)) is not None:
            # The same snapshot on another branch is another change.
            of_snapshot = (one.table, one.snapshot_id, one.branch or "main")
            found.setdefault((one.table, "no snapshot", number) if one.snapshot_id is None else of_snapshot, one)
    return list(found.values())


def _fired(event: Any) -> float:
    """Return when an event was fired, for its place among others; 0 for one that does not say."""
    moment = getattr(event, "timestamp", None)
    return moment.timestamp() if isinstance(moment, datetime) else 0.0


def _each(events: Any) -> Iterator[Any]:
    """Yield the events of all assets, each once: an event of an alias is that of its asset, too."""
    if not isinstance(events, Mapping):
        yield from events
        return
    seen = set()
    for of_asset in events.values():
        for event in of_asset:
            if id(event) not in seen:
                seen.add(id(event))
                yield event


def _table_event(event: Any) -> TableEvent | None:
    extra = getattr(event, "extra", None)
    if not isinstance(extra, Mapping):
        return None
    is_from_watcher = extra.get("from_trigger") is True and isinstance(extra.get("payload"), Mapping)
    content = extra["payload"] if is_from_watcher else extra
    table = content.get("table")
    if not isinstance(table, str):
        return None
    number, uuid = _int(content.get("snapshot_id")), _text(content.get("table_uuid"))
    who = content if is_from_watcher else {name: getattr(event, f"source_{name}", None) for name in _WHO}
    return TableEvent(
        table=table,
        snapshot_id=number,
        event_id=_text(content.get("event_id")) or f"{uuid or table}/{number}",
        table_uuid=uuid,
        parent_snapshot_id=_int(content.get("parent_snapshot_id")),
        timestamp_ms=_int(content.get("timestamp_ms")),
        branch=_text(content.get("branch")),
        operation=_text(content.get("operation")),
        operation_key=_text(content.get("operation_key")),
        added_records=_int(content.get("added_records")),
        deleted_records=_int(content.get("deleted_records")),
        partition_count=_int(content.get("partition_count")),
        partitions=_texts(content.get("partitions")),
        snapshot_count=_int(content.get("snapshot_count")) or 1,
        first_snapshot_id=first if (first := _int(content.get("first_snapshot_id"))) is not None else number,
        dag_id=_text(who.get("dag_id")),
        run_id=_text(who.get("run_id")),
        task_id=_text(who.get("task_id")),
        is_from_watcher=is_from_watcher,
        partition_key=_text(getattr(event, "partition_key", None)),
        content=content,
    )


_WHO = ("dag_id", "run_id", "task_id")


def _int(value: Any) -> int | None:
    """Return an id or a count, given as a number or as digits; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit() and len(value) < 21:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, Iterable) or isinstance(value, str | Mapping):
        return None
    return tuple(str(each) for each in value)
