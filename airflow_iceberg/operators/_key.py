"""The operation key of an operator's task, and what tells whether a task is asked for the same again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.hooks.digests import slow_digest
from airflow_iceberg.hooks.task_key import as_said, installation_id
from airflow_iceberg.hooks.task_key import operation_key_of as key_of_task

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.operation_key import OperationKey

__all__ = ["installation_id", "operation_key_of", "request_digest", "stored", "taken_up"]


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


def request_digest(arguments: Mapping[str, Any], salt: str) -> str:
    """Return a digest of a task's rendered arguments, by which a later process knows that it is asked for the same.

    Args:
        salt: a random number, in hexadecimal digits.
    """
    return slow_digest(arguments, salt)
