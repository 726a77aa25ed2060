"""The operation key of an operator's task, also over the processes of a deferred one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.hooks.task_key import as_said, installation_id
from airflow_iceberg.hooks.task_key import operation_key_of as key_of_task

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.operation_key import OperationKey

__all__ = ["installation_id", "operation_key_of", "stored", "taken_up"]


def operation_key_of(context: Context, operator: Any = None) -> OperationKey:
    """Return the operation key of a task; that of an operator has what its author says with `write_key`."""
    said = (getattr(operator, name, None) for name in ("write_key", "on_removed"))
    return as_said(key_of_task(context), *said)


def stored(key: OperationKey) -> OperationKey:
    """Return a key as a deferred task leaves it for its next process."""
    return replace(key, run_tasks=None)


def taken_up(key: OperationKey, now: OperationKey | None) -> OperationKey:
    """Return the key that a process before this one has left, with what Airflow tells this one."""
    return replace(key, run_tasks=None if now is None else now.run_tasks)
