"""Which tasks a DAG run has: what Airflow tells a worker, which sees no database.

The DAG is the one that the worker has parsed: of this version of the file, or of the run's, if its bundle has versions.
How many indexes a mapped task has is what the API server says. Not here: what follows from it (`commit.runs.removed`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_iceberg.hooks.digests import slow_digest
from airflow_iceberg.redaction import said

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

_ENDED_WELL = ("success", "skipped")
_REMOVED = "removed"


class TasksOfRun:
    """The tasks of the run of a task that runs; see `RunTasks`."""

    def __init__(self, context: Context, dag: Any) -> None:
        self._ti = context["ti"]
        self._dag = dag

    @classmethod
    def of(cls, context: Context) -> TasksOfRun | None:
        """Return the tasks of the run of a context; None if it has no DAG."""
        dag = context.get("dag")
        return None if getattr(dag, "task_dict", None) is None else cls(context, dag)

    def tasks(self) -> Mapping[str, bool]:
        """Return the ids of the DAG's tasks, and whether each is mapped."""
        return {task_id: _is_mapped(task) for task_id, task in self._dag.task_dict.items()}

    def indexes(self) -> Mapping[int, bool] | None:
        """Return the indexes of this task, and whether each has ended well; None if the API server does not say."""
        ti = self._ti
        found = self._states(ti.run_id)
        if found is None:
            return None
        start = f"{ti.task_id}_"
        states = {name.removeprefix(start): state for name, state in found.items() if name.startswith(start)}
        known = {int(index): state for index, state in states.items() if index.isdigit() and state != _REMOVED}
        # The task itself is one of them, else the answer is about something else.
        return {index: state in _ENDED_WELL for index, state in known.items()} if ti.map_index in known else None

    def has_ended_well(self, run_id: str) -> bool:
        """Whether this task, or index, is known to have ended well in another run of its DAG."""
        ti = self._ti
        is_index = ti.map_index is not None and int(ti.map_index) >= 0
        name = f"{ti.task_id}_{ti.map_index}" if is_index else ti.task_id
        return (self._states(run_id) or {}).get(name) == "success"

    def _states(self, run_id: str) -> Mapping[str, str | None] | None:
        """Return the states of the instances of this task in a run; None if the API server does not say."""
        ti = self._ti
        ask = getattr(ti, "get_task_states", None)
        if ask is None:
            return None
        try:
            found: Mapping[str, Any] = ask(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[run_id])
        except Exception as error:  # noqa: BLE001 - what Airflow raises depends on its version
            log.warning("Airflow does not say which states task %s.%s has: %s", ti.dag_id, ti.task_id, said(error))
            return None
        return dict(found.get(run_id) or {})


def _is_mapped(task: Any) -> bool:
    groups = getattr(task, "iter_mapped_task_groups", None)
    return bool(getattr(task, "is_mapped", False)) or (groups is not None and next(iter(groups()), None) is not None)


# What these say of reruns, they say of all items; they are changed for one clear.
_ABOUT_RERUNS = frozenset(("on_removed", "on_rerun"))


def item_of(context: Context) -> str | None:
    """Return a digest of what the index of a mapped task stands for: of its rendered arguments that differ by index.

    Of the values that are given to `expand`; in a mapped group of all that are given and rendered. Those that are left
    out do not count: an argument that is given to all items later changes none of them.
    """
    ti: Any = context["ti"]
    task: Any = context.get("task")
    if ti.map_index is None or int(ti.map_index) < 0 or not hasattr(task, "template_fields"):
        return None
    mapped = getattr(context.get("dag"), "task_dict", {}).get(ti.task_id)
    same: Mapping[str, Any] = getattr(mapped, "partial_kwargs", {})
    given = vars(task).get("_BaseOperator__init_kwargs", task.template_fields)
    names = [name for name in task.template_fields if name in given and name not in {*same, *_ABOUT_RERUNS}]
    values = {name: getattr(task, name, None) for name in names}
    if isinstance(by_name := getattr(task, "op_kwargs", None), Mapping):
        shared = same.get("op_kwargs") or {}
        values["op_kwargs"] = {name: value for name, value in by_name.items() if name not in shared}
    # Without a value that tells the indexes apart, all would stand for the same.
    if not any(values.values()):
        return None
    salt = hashlib.sha256(f"{ti.dag_id}/{ti.run_id}/{ti.task_id}".encode()).hexdigest()
    return slow_digest(values, salt)[:16]
