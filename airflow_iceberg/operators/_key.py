"""The operation key of an operator's task, also over the processes of a deferred one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.hooks.task_key import as_said, installation_id
from airflow_iceberg.hooks.task_key import operation_key_of as key_of_task

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.operation_key import OperationKey

__all__ = ["installation_id", "left_by", "operation_key_of", "taken_up"]


def operation_key_of(context: Context, operator: Any = None) -> OperationKey:
    """Return the operation key of a task; that of an operator has what its author says with `write_key`."""
    said = (getattr(operator, name, None) for name in ("write_key", "on_removed"))
    return as_said(key_of_task(context), *said)


def left_by(key: OperationKey) -> dict[str, Any]:
    """Return a key as a deferred task leaves it for its next process, in JSON types.

    The epoch is a text: tasks can hand on no integer of more than 64 bits.
    """
    return {**asdict(replace(key, run_tasks=None)), "epoch": str(key.epoch)}


def taken_up(left: Mapping[str, Any], now: OperationKey | None) -> OperationKey:
    """Return the key that a process before this one has left, with what Airflow tells this one."""
    from airflow_iceberg.commit.operation_key import OperationKey

    run_tasks = None if now is None else now.run_tasks
    return OperationKey(**{**left, "epoch": int(left["epoch"]), "run_tasks": run_tasks})
