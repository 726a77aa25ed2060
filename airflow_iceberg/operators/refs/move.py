"""The operators that move a branch: back, forward, or anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_iceberg.hooks.arguments import timestamp_ms, whole_number
from airflow_iceberg.operators.refs._ref import RefOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergRollbackOperator(RefOperator):
    """Moves a branch back to one of its snapshots, or to a time, exactly once per run of the DAG.

    It does the work of Iceberg's procedures `rollback_to_snapshot` and `rollback_to_timestamp`. A retry does not roll
    back what others have committed after the first try. The rows of the snapshots that disappear are kept until they
    expire; `IcebergSetCurrentSnapshotOperator` brings them back.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        snapshot_id: a snapshot in the history of the branch; or
        ref: a tag or branch at such a snapshot; or
        timestamp: a time: the newest snapshot of the branch from before it. A datetime, ISO text, or a timedelta before
            now.
        branch: the branch that is moved.
        expected_snapshot_id: the guard: where the branch must be before; elsewhere the task fails.
        dry_run: whether only to report which snapshots, rows and files would disappear.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `RefResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*RefOperator.template_fields, "snapshot_id", "ref", "timestamp", "branch")

    def __init__(
        self,
        *,
        snapshot_id: int | str | None = None,
        ref: str | None = None,
        timestamp: datetime | timedelta | str | None = None,
        branch: str = "main",
        **kwargs: Any,
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.snapshot_id = snapshot_id
        self.ref = ref
        self.timestamp = timestamp

    def execute(self, context: Context) -> dict[str, Any]:
        """Roll the branch back."""
        from airflow_iceberg.operations.refs.rollback import RollbackRequest, rollback

        with airflow_failures():
            request = RollbackRequest(
                snapshot_id=whole_number("snapshot_id", self.snapshot_id),
                ref=self.ref,
                timestamp_ms=timestamp_ms("timestamp", self.timestamp),
                branch=self.branch,
                **self.guard(),
            )
            result = rollback(self.work(context), request)
        return self.report_ref(context, result)


class IcebergSetCurrentSnapshotOperator(RefOperator):
    """Moves a branch to any snapshot of the table, also to one that is not in its history.

    It does the work of Iceberg's procedure `set_current_snapshot`, exactly once per run of the DAG.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        snapshot_id: the snapshot; or
        ref: a branch or tag, whose snapshot it is.
        branch: the branch that is moved; one that does not exist is created.
        expected_snapshot_id: the guard: where the branch must be before; elsewhere the task fails.
        dry_run: whether only to report what would appear and disappear.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `RefResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*RefOperator.template_fields, "snapshot_id", "ref", "branch")

    def __init__(
        self,
        *,
        snapshot_id: int | str | None = None,
        ref: str | None = None,
        branch: str = "main",
        **kwargs: Any,
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.snapshot_id = snapshot_id
        self.ref = ref

    def execute(self, context: Context) -> dict[str, Any]:
        """Move the branch."""
        from airflow_iceberg.operations.refs.set_current_snapshot import (
            SetCurrentSnapshotRequest,
            set_current_snapshot,
        )

        with airflow_failures():
            request = SetCurrentSnapshotRequest(
                snapshot_id=whole_number("snapshot_id", self.snapshot_id),
                ref=self.ref,
                branch=self.branch,
                **self.guard(),
            )
            result = set_current_snapshot(self.work(context), request)
        return self.report_ref(context, result)


class IcebergFastForwardOperator(RefOperator):
    """Moves a branch forward to the head of another branch or tag, exactly once per run of the DAG.

    It does the work of Iceberg's procedure `fast_forward`. The branch must have no snapshots of its own.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        to: the branch or tag that has all snapshots of the branch.
        branch: the branch that is moved; one that does not exist is created.
        to_snapshot_id: a guard: where `to` must be, such as the snapshot that was audited.
        expected_snapshot_id: the guard: where the branch must be before; elsewhere the task fails.
        dry_run: whether only to report what would appear.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `RefResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*RefOperator.template_fields, "to", "branch", "to_snapshot_id")

    def __init__(
        self, *, to: str, branch: str = "main", to_snapshot_id: int | str | None = None, **kwargs: Any
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.to = to
        self.to_snapshot_id = to_snapshot_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Move the branch forward."""
        from airflow_iceberg.operations.refs.fast_forward import FastForwardRequest, fast_forward

        with airflow_failures():
            request = FastForwardRequest(
                branch=self.branch,
                to=self.to,
                to_snapshot_id=whole_number("to_snapshot_id", self.to_snapshot_id),
                **self.guard(),
            )
            result = fast_forward(self.work(context), request)
        return self.report_ref(context, result)
