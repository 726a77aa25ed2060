"""The operators that create, replace and drop branches and tags, and set their retention."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow_iceberg.assets import MAIN
from airflow_iceberg.errors import true_or_false
from airflow_iceberg.hooks.arguments import whole_number
from airflow_iceberg.operators.refs._ref import RefOperator, age_ms
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

_FIELDS = ("action", "snapshot_id", "if_not_exists", "if_exists", "max_ref_age_ms")


class IcebergBranchOperator(RefOperator):
    """Creates, replaces or drops a branch of a table, or sets its retention, exactly once per run of the DAG.

    It does the work of Iceberg's `alter table … create | replace | drop branch`. These are branches of the table; those
    of a Nessie catalog are named in the table, `sales.orders@branch`.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        branch: the name of the branch.
        action: `"create"`; `"replace"`, which creates the branch, or moves it; `"drop"`; or `"retention"`, which sets
            the ages and the number below and leaves the branch where it is.
        snapshot_id: where the branch is created or moved to; by default the current snapshot of main.
        if_not_exists: with `"create"`, whether a branch that exists is left as it is.
        if_exists: with `"drop"`, whether a branch that does not exist is no error.
        max_ref_age_ms: the age at which an expiry removes the branch, in milliseconds or as a timedelta.
        max_snapshot_age_ms: the age of the snapshots of the branch that an expiry keeps.
        min_snapshots_to_keep: the number of snapshots of the branch that an expiry keeps in any case.
        expected_snapshot_id: the guard: where the branch must be before; elsewhere the task fails.
        dry_run: whether only to report what would appear and disappear.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `RefResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *RefOperator.template_fields,
        *("branch", *_FIELDS, "max_snapshot_age_ms", "min_snapshots_to_keep"),
    )
    _is_moved = True

    def __init__(
        self,
        *,
        branch: str,
        action: Literal["create", "replace", "drop", "retention"] = "create",
        snapshot_id: int | str | None = None,
        if_not_exists: bool | str = False,
        if_exists: bool | str = False,
        max_ref_age_ms: timedelta | int | str | None = None,
        max_snapshot_age_ms: timedelta | int | str | None = None,
        min_snapshots_to_keep: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        self.branch = branch
        self.action = action
        super().__init__(**kwargs)
        self.snapshot_id = snapshot_id
        self.if_not_exists = if_not_exists
        self.if_exists = if_exists
        self.max_ref_age_ms = max_ref_age_ms
        self.max_snapshot_age_ms = max_snapshot_age_ms
        self.min_snapshots_to_keep = min_snapshots_to_keep

    def changes_rows(self) -> bool:
        """Tell whether readers of a branch see other rows afterwards: of one that is moved, not of a new one."""
        moves = self.action == "replace" or (self.action == "create" and self.branch == MAIN)
        return moves and self._is_moved

    def told_branch(self) -> Any:
        """Return the branch that is moved; a new one is a change of the table."""
        return self.branch if self.changes_rows() else MAIN

    def execute(self, context: Context) -> dict[str, Any]:
        """Change the branch."""
        from airflow_iceberg.operations.refs.branch import BranchRequest, Retention, branch

        with airflow_failures():
            retention = Retention(
                max_ref_age_ms=age_ms("max_ref_age_ms", self.max_ref_age_ms),
                max_snapshot_age_ms=age_ms("max_snapshot_age_ms", self.max_snapshot_age_ms),
                min_snapshots_to_keep=whole_number("min_snapshots_to_keep", self.min_snapshots_to_keep),
            )
            request = BranchRequest(
                name=self.branch,
                action=self.action,
                snapshot_id=whole_number("snapshot_id", self.snapshot_id),
                retention=retention,
                if_not_exists=true_or_false("if_not_exists", self.if_not_exists),
                if_exists=true_or_false("if_exists", self.if_exists),
                **self.guard(),
            )
            result = branch(self.work(context), request)
        # Where it was, it may have got another retention.
        self._is_moved = result.previous_snapshot_id != result.snapshot_id
        return self.report_ref(context, result)


class IcebergTagOperator(RefOperator):
    """Creates, replaces or drops a tag of a table, or sets its retention, exactly once per run of the DAG.

    It does the work of Iceberg's `alter table … create | replace | drop tag`.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        tag: the name of the tag.
        action: `"create"`, `"replace"`, `"drop"` or `"retention"`, as of `IcebergBranchOperator`.
        snapshot_id: the snapshot that is tagged; by default the current snapshot of main.
        if_not_exists: with `"create"`, whether a tag that exists is left as it is.
        if_exists: with `"drop"`, whether a tag that does not exist is no error.
        max_ref_age_ms: the age at which an expiry removes the tag, in milliseconds or as a timedelta.
        expected_snapshot_id: the guard: where the tag must be before; elsewhere the task fails.
        dry_run: whether only to report what would appear and disappear.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `RefResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*RefOperator.template_fields, "tag", *_FIELDS)
    is_maintenance = True

    def __init__(
        self,
        *,
        tag: str,
        action: Literal["create", "replace", "drop", "retention"] = "create",
        snapshot_id: int | str | None = None,
        if_not_exists: bool | str = False,
        if_exists: bool | str = False,
        max_ref_age_ms: timedelta | int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tag = tag
        self.action = action
        self.snapshot_id = snapshot_id
        self.if_not_exists = if_not_exists
        self.if_exists = if_exists
        self.max_ref_age_ms = max_ref_age_ms

    def execute(self, context: Context) -> dict[str, Any]:
        """Change the tag."""
        from airflow_iceberg.operations.refs.branch import Retention, TagRequest
        from airflow_iceberg.operations.refs.tag import tag

        with airflow_failures():
            request = TagRequest(
                name=self.tag,
                action=self.action,
                snapshot_id=whole_number("snapshot_id", self.snapshot_id),
                retention=Retention(max_ref_age_ms=age_ms("max_ref_age_ms", self.max_ref_age_ms)),
                if_not_exists=true_or_false("if_not_exists", self.if_not_exists),
                if_exists=true_or_false("if_exists", self.if_exists),
                **self.guard(),
            )
            result = tag(self.work(context), request)
        return self.report_ref(context, result)
