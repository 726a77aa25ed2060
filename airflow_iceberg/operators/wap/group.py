"""The task group of write, audit, publish.

    with iceberg_wap(group_id="wap", table="sales.orders", audits=[NoRows("select * from audited where id is null")]) as
        wap: IcebergAppendOperator(task_id="load", table="sales.orders", branch=wap.branch, …)

Here: which tasks the group has, and in which order. What they do is decided in `operations.wap`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup, TriggerRule
from airflow.sdk.definitions.taskgroup import MappedTaskGroup

from airflow_iceberg.assets import asset_of
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators.wap.audit import IcebergAuditOperator
from airflow_iceberg.operators.wap.branch import CleanUpBranchOperator, StartBranchOperator
from airflow_iceberg.operators.wap.publish import NO_UUID, IcebergPublishOperator, PublishTablesOperator

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from airflow_iceberg.operations.wap.audits import Audit

# The same in all tries of a DAG run, also after a clear, and another one in each run and group, and in each copy of a
# group that is mapped.
_RUN = "ti.dag_id ~ ' ' ~ ti.run_id"
_BRANCH = "wap_{{{{ macros.uuid.uuid5(macros.uuid.NAMESPACE_OID, " + _RUN + " ~ ' {group}'{index}).hex[:16] }}}}"


class WapGroup(TaskGroup):
    """What `iceberg_wap` returns.

    Args:
        group_id: the id of the group.
        audits: the audits of each table.
        table: the one table, if another task names it, or the copy of a mapped group; `audits` have any name for it.
        approval, keep_branch_on_failure: as of `iceberg_wap`.
        inputs: further tables that the SQL of audits reads.
        always_audit: whether the change is audited again whenever main has moved on, also where the conflict rules
            allow it without.
        sample_rows: the number of offending rows that are shown of each audit.
        max_ref_age_ms: the age at which `expire_snapshots` removes a branch that was left.
        iceberg_conn_id: the id of the catalog's connection.
        outlets: the assets that get an event when the rows are published.
        kwargs: further arguments of `TaskGroup`.

    Attributes:
        branch: the name of the branch that the tasks of the group write to, a template.
    """

    def __init__(
        self,
        *,
        group_id: str,
        audits: Mapping[str, Sequence[Audit]],
        table: Any = None,
        branch: str | None = None,
        approval: bool | Mapping[str, Any] | None = None,
        keep_branch_on_failure: bool | str = True,
        always_audit: bool | str = False,
        inputs: Mapping[str, Any] | None = None,
        sample_rows: int | str = 10,
        max_ref_age_ms: int | str | None = None,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        outlets: Sequence[Any] = (),
        **kwargs: Any,
    ) -> None:
        if approval is not None and not isinstance(approval, bool | Mapping):
            raise InvalidInputError(f"approval is {approval!r}, expected True, False, or arguments of ApprovalOperator")
        super().__init__(group_id=group_id, **kwargs)
        self._is_mapped = _is_in_mapped_group(self)
        index = " ~ ' ' ~ ti.map_index" if self._is_mapped else ""
        self.branch = _BRANCH.format(group=self.group_id, index=index) if branch is None else branch
        self._audits = audits
        self._given = dict.fromkeys(audits, table) if table is not None else {name: name for name in audits}
        self._approval = approval
        self._options: dict[str, Any] = {
            "keep_branch_on_failure": keep_branch_on_failure,
            "always_audit": always_audit,
            "inputs": inputs,
            "sample_rows": sample_rows,
            "max_ref_age_ms": max_ref_age_ms,
            "iceberg_conn_id": iceberg_conn_id,
            "outlets": list(outlets),
        }
        self._names = _names(audits)
        self._starts: dict[str, BaseOperator] = {}

    def __enter__(self) -> WapGroup:
        """Make the tasks that come before those of the author."""
        super().__enter__()
        options = self._options
        for table in self._audits:
            self._starts[table] = StartBranchOperator(
                task_id=self._task("create_branch", table),
                table=self._given[table],
                branch=self.branch,
                max_ref_age_ms=options["max_ref_age_ms"],
                iceberg_conn_id=options["iceberg_conn_id"],
            )
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        """Make the tasks that come after those of the author, and put all in order."""
        try:
            if exc_type is None:
                self._finish()
        finally:
            super().__exit__(exc_type, exc_value, traceback)  # type: ignore[no-untyped-call]

    def _finish(self) -> None:
        own = {task.task_id for task in self._starts.values()}
        written = {task.task_id: task for task in self.iter_tasks() if task.task_id not in own}
        if not written:
            raise InvalidInputError(
                f"task group {self.group_id!r} has no task that writes to the branch; make it inside 'with "
                f"iceberg_wap(…) as wap:', with branch=wap.branch"
            )
        for task in written.values():
            self._silence(task)
        firsts = [task for task in written.values() if not task.upstream_task_ids & written.keys()]
        lasts = [task for task in written.values() if not task.is_teardown and not _followers(task, written)]
        audits = {table: self._audit(table) for table in self._audits}
        for table, start in self._starts.items():
            start >> firsts
            # So that the audits do not run in a group that is skipped as a whole.
            start >> audits[table]
            lasts >> audits[table]
        publish = self._publish()
        before: Any = list(audits.values())
        if self._approval:
            approve = self._approve()
            before >> approve
            before = approve
        before >> publish
        for table in self._audits:
            publish >> CleanUpBranchOperator(
                task_id=self._task("clean_up", table),
                table=self._given[table],
                branch=self.branch,
                snapshot_id=self._audited(table, "snapshot_id"),
                iceberg_conn_id=self._options["iceberg_conn_id"],
            )

    def _silence(self, task: Any) -> None:
        """Let a task that writes to the branch tell nobody of new rows: `publish` does."""
        asset = asset_of(getattr(task, "table", None), getattr(task, "iceberg_conn_id", None))
        if getattr(task, "asset_events", False) and asset is not None and task.table in self._audits:
            task.asset_events = False
            task.outlets = [one for one in task.outlets if getattr(one, "uri", None) != asset.uri]

    def _audit(self, table: str) -> BaseOperator:
        return IcebergAuditOperator(
            task_id=self._task("audit", table),
            table=self._given[table],
            branch=self.branch,
            audits=self._audits[table],
            schema_id=self._begun(table, "schema_id"),
            # A task that had no rows to write may be skipped; what was written is audited.
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            **{
                name: self._options[name]
                for name in ("inputs", "sample_rows", "keep_branch_on_failure", "iceberg_conn_id")
            },
        )

    def _publish(self) -> BaseOperator:
        options: dict[str, Any] = {
            name: self._options[name] for name in ("inputs", "always_audit", "iceberg_conn_id", "outlets")
        }
        published: dict[str, dict[str, Any]] = {
            table: {
                "branch": self.branch,
                "snapshot_id": self._audited(table, "snapshot_id"),
                "table_uuid": self._audited(table, "table_uuid", NO_UUID),
                "schema_id": self._begun(table, "schema_id"),
            }
            for table in self._audits
        }
        if len(published) > 1:
            return PublishTablesOperator(task_id="publish", published=published, audits=self._audits, **options)
        [(table, given)] = published.items()
        return IcebergPublishOperator(
            task_id="publish", table=self._given[table], audits=self._audits[table], **given, **options
        )

    def _approve(self) -> BaseOperator:
        from airflow.providers.standard.operators.hitl import ApprovalOperator

        given = {} if self._approval is True else dict(self._approval)  # type: ignore[arg-type]
        reports = [f"**{table}**\n\n{self._audited(table, 'report')}" for table in self._audits]
        named = {"subject": f"Publish {', '.join(self._audits)}?", "body": "\n\n".join(reports)}
        return ApprovalOperator(**{"task_id": "approve", **named, **given})

    def _task(self, what: str, table: str) -> str:
        return f"{what}_{self._names[table]}" if len(self._audits) > 1 else what

    def _audited(self, table: str, name: str, instead: str = "") -> str:
        return self._from_xcom(self._task("audit", table), name, instead)

    def _begun(self, table: str, name: str) -> str:
        return self._from_xcom(self._task("create_branch", table), name)

    def _from_xcom(self, task: str, name: str, instead: str = "") -> str:
        """Return a template for a value that a task has returned; without it, or if it is empty, another text."""
        task_id = self.child_id(task)  # type: ignore[no-untyped-call]
        index = ", map_indexes=ti.map_index" if self._is_mapped else ""
        pulled = f"(ti.xcom_pull(task_ids='{task_id}'{index}) or {{}}).get('{name}', '')"
        return f"{{{{ {pulled} or '{instead}' }}}}" if instead else f"{{{{ {pulled} }}}}"


def iceberg_wap(
    group_id: str = "wap",
    *,
    table: Any = None,
    tables: Sequence[str] = (),
    audits: Audit | Sequence[Audit] | Mapping[str, Sequence[Audit]],
    approval: bool | Mapping[str, Any] | None = None,
    branch: str | None = None,
    keep_branch_on_failure: bool = True,
    **options: Any,
) -> WapGroup:
    """Return a task group: create a branch, write to it, audit it, publish what was audited, remove the branch.

    The author's tasks are made inside the group, and write with `branch=wap.branch`. Main is not changed before the
    audits have passed, and then it gets exactly the snapshot that was audited, once, wherever tasks are killed or
    cleared. A failed audit keeps the branch and says how to look at it.

    Args:
        group_id: the id of the task group, which the ids of its tasks begin with.
        table: the namespace and name of the table, `sales.orders`; also a template, or the value of another task. To
            publish as many tables as a task names, make the group inside a `@task_group`, and `expand` that over them.
        tables: several tables instead. A Nessie catalog publishes them in one commit; with other catalogs they are
            published one after the other, and a retry goes on where the one before has stopped.
        audits: what is checked, a list; for several tables a list for all of them, or a dictionary of lists by table.
        approval: whether a person has to approve before anything is published: True, or the arguments of Airflow's
            `ApprovalOperator`, such as `{"subject": …, "assigned_users": …}`.
        branch: the name of the branch of the table (not of a Nessie catalog), a template; by default a name that each
            DAG run has for itself.
        keep_branch_on_failure: whether a branch that has not passed is kept.
        options: the other arguments of `WapGroup`: `inputs`, `always_audit`, `sample_rows`, `max_ref_age_ms`,
            `iceberg_conn_id`, `outlets`, and those of Airflow's `TaskGroup`.

    Raises:
        InvalidInputError: no table, or audits that are not those of its tables.
    """
    if not isinstance(tables, list | tuple) or not all(isinstance(name, str) and name.strip() for name in tables):
        raise InvalidInputError(
            "iceberg_wap has tables that are no list of names, expected tables=['sales.orders', …]; for tables that "
            "another task names, make the group with table=… inside a @task_group, and expand that over them"
        )
    is_given = table is not None and table != ""
    if is_given == bool(tables):
        raise InvalidInputError("iceberg_wap needs table='sales.orders', or tables=[…] with several of them")
    if is_given and not (isinstance(table, str) or hasattr(table, "resolve")):
        raise InvalidInputError(f"iceberg_wap has table={table!r}, expected 'sales.orders', or the value of a task")
    is_named = isinstance(table, str)
    names = ([table] if is_named else [_UNNAMED]) if is_given else list(dict.fromkeys(tables))
    return WapGroup(
        group_id=group_id,
        table=None if not is_given or is_named else table,
        audits=_audits_by_table(names, audits),
        branch=branch,
        approval=approval,
        keep_branch_on_failure=keep_branch_on_failure,
        **options,
    )


_UNNAMED = "the table"


def _is_in_mapped_group(group: Any) -> bool:
    while group is not None:
        if isinstance(group, MappedTaskGroup):
            return True
        group = group.parent_group
    return False


def _audits_by_table(tables: Sequence[str], audits: Any) -> dict[str, list[Audit]]:
    if not isinstance(audits, Mapping):
        given = list(audits) if isinstance(audits, list | tuple) else [audits]
        audits = dict.fromkeys(tables, given)
    if set(audits) != set(tables) or not all(audits.values()):
        raise InvalidInputError(
            f"audits are for {', '.join(map(str, audits)) or 'no table'}, expected some for each of {', '.join(tables)}"
        )
    return {table: list(audits[table]) for table in tables}


def _names(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return a name for each table that a task's id can have."""
    found: dict[str, str] = {}
    for number, table in enumerate(tables):
        name = re.sub(r"\W+", "_", table)
        found[table] = f"{name}_{number}" if name in found.values() else name
    return found


def _followers(task: Any, tasks: Mapping[str, Any]) -> bool:
    return any(one in tasks and not tasks[one].is_teardown for one in task.downstream_task_ids)
