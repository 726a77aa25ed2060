"""Writes that create their branch if the table does not have it: `create_branch` of their requests.

The branch and the rows are one commit (`commit.refs.new_branch`). Work that has no rows to commit creates the branch
alone, so that what follows finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar

from airflow_iceberg.commit.actions.snapshot_refs import create_ref
from airflow_iceberg.commit.refs.manage_snapshots import action_of
from airflow_iceberg.commit.write_result import Outcome, WriteResult
from airflow_iceberg.operations.work import CommitRequest, Work


class BranchingRequest(CommitRequest, Protocol):
    """A request of an operation that may create its branch."""

    @property
    def create_branch(self) -> bool:
        """Whether a branch that the table does not have is created, from main."""


Request = TypeVar("Request", bound=BranchingRequest)
Operation = Callable[[Work, Request], WriteResult]


def creates_branch(operation: Operation[Request]) -> Operation[Request]:
    """Let an operation create the branch that its request names."""

    @wraps(operation)
    def with_branch(work: Work, request: Request) -> WriteResult:
        if not request.create_branch:
            return operation(work, request)
        with work.table.new_branch(request.branch):
            result = operation(work, request)
        has_snapshot = work.table.metadata.current_snapshot_id is not None
        if result.outcome is Outcome.NOTHING and has_snapshot and request.branch not in work.table.refs:
            create = create_ref(request.branch, kind="branch", if_not_exists=True)
            work.table.change(action_of(work.table, [create]))
        return result

    return with_branch
