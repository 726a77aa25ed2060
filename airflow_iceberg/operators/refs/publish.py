"""The operators that bring the changes of other snapshots to a branch: by a snapshot's id, or by its `wap.id`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_iceberg.operators.refs._ref import RefOperator, needed_snapshot, told
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.operations.refs.cherry_pick import CherryPickResult


class PickOperator(RefOperator):
    """An operator that commits the changes of another snapshot to a branch."""

    template_fields: Sequence[str] = (*RefOperator.template_fields, "branch", "snapshot_properties")
    template_fields_renderers: ClassVar[dict[str, str]] = {"snapshot_properties": "json"}

    def __init__(
        self, *, branch: str = "main", snapshot_properties: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.snapshot_properties = snapshot_properties

    def options(self) -> dict[str, Any]:
        """Return the fields of a request that these operators have."""
        return {"branch": self.branch, "snapshot_properties": self.snapshot_properties or {}, **self.guard()}

    def report_pick(self, context: Context, result: CherryPickResult) -> dict[str, Any]:
        """Report what was picked."""
        line = _SENTENCES[result.outcome].format(
            source=result.source_snapshot_id, branch=result.branch, snapshot=result.snapshot_id
        )
        return self.report(context, result, [line, *told(result.appearing, result.disappearing)])


_SENTENCES = {
    "committed": "the changes of snapshot {source} are in branch {branch}, at snapshot {snapshot}",
    "found": "an earlier try of this task has brought the changes to branch {branch}, at snapshot {snapshot}",
    "nothing": "snapshot {source} changes nothing, nothing was committed",
    "dry_run": "a dry run, nothing was committed: the changes of snapshot {source} can be brought to branch {branch}",
}


class IcebergCherryPickOperator(PickOperator):
    """Commits the changes of a snapshot that is not in a branch to it, exactly once per run of the DAG.

    It does the work of Iceberg's procedure `cherrypick_snapshot`: the files of an append, or of a dynamic partition
    overwrite whose partitions nobody has changed since, become part of the branch. If the snapshot was made on the head
    of the branch, the branch moves to it, whatever it changes.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        snapshot_id: the snapshot.
        branch: the branch that gets its changes.
        snapshot_properties: additional entries of the new snapshot's summary.
        expected_snapshot_id: the guard: where the branch must be before; elsewhere the task fails.
        dry_run: whether only to report which rows and files would appear and disappear.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `CherryPickResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*PickOperator.template_fields, "snapshot_id")

    def __init__(self, *, snapshot_id: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.snapshot_id = snapshot_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Pick the snapshot."""
        from airflow_iceberg.operations.refs.cherry_pick import CherryPickRequest, cherry_pick

        with airflow_failures():
            request = CherryPickRequest(snapshot_id=needed_snapshot("snapshot_id", self.snapshot_id), **self.options())
            result = cherry_pick(self.work(context), request)
        return self.report_pick(context, result)


class IcebergPublishChangesOperator(PickOperator):
    """Publishes a commit that a Spark job has staged with `spark.wap.id`, exactly once per run of the DAG.

    It does the work of Iceberg's procedure `publish_changes`.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        wap_id: the `wap.id` of the commit.
        branch: the branch that gets its changes.
        snapshot_properties: additional entries of the new snapshot's summary.
        expected_snapshot_id: the guard: where the branch must be before; elsewhere the task fails.
        dry_run: whether only to report which rows and files would appear and disappear.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `CherryPickResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*PickOperator.template_fields, "wap_id")

    def __init__(self, *, wap_id: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wap_id = wap_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the commit."""
        from airflow_iceberg.operations.refs.publish_changes import PublishChangesRequest, publish_changes

        with airflow_failures():
            request = PublishChangesRequest(wap_id=str(self.wap_id), **self.options())
            result = publish_changes(self.work(context), request)
        return self.report_pick(context, result)
