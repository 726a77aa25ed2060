"""The names of a task's own writes: by its name, a later try finds a write that was committed.

A write without a name is told from others by its kind and its order (`append-1`). So the order must be that of the try
before: a process that cannot know it refuses such a write, since it could be taken for another one, and its rows be
lost. Not here: the writes (`hooks.task_table`).
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.operation_key import TRY_NUMBER
from airflow_iceberg.errors import CommitUnknownError, IcebergError, InvalidInputError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.table import Table

_ENDED = ("success", "failed", "up_for_retry", "skipped")
_GIVE_NAMES = "give each write of the task a name"


@dataclass(slots=True)
class TaskWrites:
    """The writes of one try of a task, over all of its tables.

    Attributes:
        names: what was written, or is being written, by the uuid of the table and name.
        counts: how many writes of a kind have no name, by the uuid of the table and kind.
        unknown: writes without a name whose outcome nobody knows, by the same.
        threads: the one that makes the writes without a name, by the same.
        told: the fields of the last event, by the asset's URI.
    """

    names: set[tuple[str, str]] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    unknown: dict[tuple[str, str], str] = field(default_factory=dict)
    threads: dict[tuple[str, str], threading.Thread] = field(default_factory=dict)
    told: dict[str, Sequence[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def named(self, context: Context, table: Table, verb: str, name: str | None) -> Iterator[str]:
        """Give a write its name; after one that failed, the next one without a name has the same name.

        Args:
            context: that of the task.
            table: the table.
            verb: the kind of the write.
            name: the name that its author has given it.

        Raises:
            InvalidInputError: the name is used; or the write has none, and could be taken for another one.
        """
        place = _place(table)
        with self._lock:
            if name is None:
                self._check_order(context, table, verb)
            named = name if name is not None else f"{verb}-{self.counts[place, verb] + 1}"
            if (place, named) in self.names:
                raise InvalidInputError(
                    f"this task has made a write named {named!r} to table {table.name} already; give each write a "
                    f"name of its own"
                )
            self.names.add((place, named))
        try:
            yield named
        except BaseException as error:
            self.names.discard((place, named))
            # A timeout, for one, may have come after the commit.
            if name is None and (isinstance(error, CommitUnknownError) or not isinstance(error, IcebergError)):
                self.unknown[place, verb] = named
            raise
        self.counts[place, verb] += name is None

    def _check_order(self, context: Context, table: Table, verb: str) -> None:
        place = _place(table)
        if (place, verb) in self.unknown:
            raise InvalidInputError(
                f"nobody knows whether write {self.unknown[place, verb]!r} to table {table.name} was committed; let "
                f"its error fail the task, whose retry finds out, or give the writes names"
            )
        if _goes_on(context):
            raise InvalidInputError(
                f"the task goes on after a deferral, and which writes to table {table.name} it has made before is not "
                f"known here; {_GIVE_NAMES}"
            )
        if _has_ended(context):
            raise InvalidInputError(
                f"the task has ended, and a write to table {table.name} would take the number of one that its next try "
                f"makes; {_GIVE_NAMES}"
            )
        # Kept as an object: the number of a thread that has ended is given to another one.
        if self.threads.setdefault((place, verb), threading.current_thread()) is not threading.current_thread():
            raise InvalidInputError(
                f"several threads of the task write to table {table.name}, and their order may be another one at the "
                f"next try; {_GIVE_NAMES}"
            )


# Of the newest tries in this process. A worker's process has one; `dag.test()` and tests have many.
_MOST_TRIES = 100
_tries: OrderedDict[Any, TaskWrites] = OrderedDict()
_lock = threading.Lock()


def writes_of(context: Context) -> TaskWrites:
    """Return the writes of the try of a task, over all its tables."""
    ti = context["ti"]
    # Another one at each try.
    this = getattr(ti, "id", None) or (ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.try_number)
    with _lock:
        found = _tries.setdefault(this, TaskWrites())
        _tries.move_to_end(this)
        while len(_tries) > _MOST_TRIES:
            _tries.popitem(last=False)
    return found


def check_try_of_found(context: Context, table: Table, snapshot_id: int | None, named: str) -> None:
    """Check that a write without a name that was found is one of an earlier try.

    A task that is rescheduled, as a sensor is between its looks, begins anew in the same try. In a process that stays,
    its second look makes a second write.

    Raises:
        InvalidInputError: it is one of this try, before the task was rescheduled.
    """
    if snapshot_id is None or not context.get("task_reschedule_count"):
        return
    snapshot = table.metadata.snapshot(snapshot_id)
    if snapshot is not None and snapshot.summary.get(TRY_NUMBER) == str(context["ti"].try_number):
        raise InvalidInputError(
            f"the task was rescheduled, and had made write {named!r} to table {table.name} before; the rows of this "
            f"one are not written; {_GIVE_NAMES}"
        )


def _place(table: Table) -> str:
    """Return what tells a table from others: two connections may lead to one. Each `write_key` has names of its own."""
    place = table.metadata.table_uuid or table.location
    write_key = getattr(table, "write_key", None)
    return place if write_key is None else f"{place}={write_key}"


def _goes_on(context: Context) -> bool:
    """Whether another process of the same try was before this one: the task was deferred."""
    return getattr(getattr(context["ti"], "_ti_context_from_server", None), "next_method", None) is not None


def _has_ended(context: Context) -> bool:
    """Whether one of the task's callbacks runs, or somebody has kept its table."""
    return "exception" in context or getattr(context["ti"], "state", None) in _ENDED
