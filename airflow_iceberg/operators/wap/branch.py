"""The operators that begin and remove the branch of a task group of write, audit, publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_iceberg.hooks.arguments import whole_number
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.operators.wap.publish import audited
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class StartBranchOperator(TableOperator):
    """Lets a branch of a table begin at the head of main, before tasks write to it.

    Args:
        branch: the branch of the table.
        max_ref_age_ms: the age at which `expire_snapshots` removes the branch if nothing else did.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "branch", "max_ref_age_ms")
    ui_color = "#f2e9d8"

    def __init__(self, *, branch: str, max_ref_age_ms: int | str | None = None, **kwargs: Any) -> None:
        # Main does not change: nobody is to be told.
        super().__init__(**{"asset_events": False, **kwargs})
        self.branch = branch
        self.max_ref_age_ms = max_ref_age_ms

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin the branch."""
        from airflow_iceberg.operations.wap.branch import start_branch

        with airflow_failures():
            age = whole_number("max_ref_age_ms", self.max_ref_age_ms)
            result = start_branch(self.work(context), self.branch, max_ref_age_ms=age)
        where = f"branch {result.branch!r} of the table begins at snapshot {result.snapshot_id}"
        return self.report(context, result, [where])


class CleanUpBranchOperator(TableOperator):
    """Removes a branch of a table whose audited snapshot was published.

    Args:
        branch: the branch of the table.
        snapshot_id: the snapshot that was audited and published.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "branch", "snapshot_id")
    may_be_nothing = frozenset(("snapshot_id",))  # refused in any case, with words about the audit
    ui_color = "#f2e9d8"

    def __init__(self, *, branch: str, snapshot_id: int | str | None, **kwargs: Any) -> None:
        # Main does not change: nobody is to be told.
        super().__init__(**{"asset_events": False, **kwargs})
        self.branch = branch
        self.snapshot_id = snapshot_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Remove the branch; one with snapshots that were not audited is kept."""
        from airflow_iceberg.operations.wap.branch import clean_up
        from airflow_iceberg.operations.wap.publish import audited_id

        with airflow_failures():
            snapshot_id = audited_id(audited(self.snapshot_id), self.table)
            result = clean_up(self.work(context), self.branch, snapshot_id)
        kept = "is kept: it has snapshots that were not audited" if result.is_kept else "is removed"
        return self.report(context, result, [f"branch {result.branch!r} of the table {kept}"])
