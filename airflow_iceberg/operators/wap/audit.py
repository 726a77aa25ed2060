"""The operator that audits a branch or a snapshot of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow_iceberg.assets import MAIN
from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.hooks.arguments import whole_number
from airflow_iceberg.operators._inputs import Changes, Input, input_of
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.operations.inputs import tables
    from airflow_iceberg.operations.wap.audits import Audit

AUDITS = "audits"
"""The key of the XCom that has the results, also of audits that have failed."""


class AuditsOperator(TableOperator):
    """What operators share that make audits; its arguments are those of `IcebergAuditOperator`."""

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        "branch",
        "snapshot_id",
        AUDITS,
        "inputs",
        "schema_id",
    )

    def __init__(
        self,
        *,
        branch: str | None = None,
        snapshot_id: int | str | None = None,
        audits: Sequence[Audit] | Audit = (),
        inputs: Mapping[str, Any] | None = None,
        schema_id: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.branch = branch
        self.snapshot_id = snapshot_id
        self.audits = audits
        self.inputs = inputs
        self.schema_id = schema_id

    def told_branch(self) -> str:
        """Return main: the branch is only read."""
        return MAIN

    def inputs_to_read(self) -> dict[str, tables.Input]:
        """Return the inputs of the audits' SQL, to be opened."""
        return inputs_to_read(self.inputs, self.iceberg_conn_id)


def audits_of(given: Sequence[Audit] | Audit) -> Sequence[Audit]:
    """Return audits, given as a list or as the only one."""
    return given if isinstance(given, list | tuple) else (cast("Audit", given),)


def inputs_to_read(inputs: Mapping[str, Any] | None, iceberg_conn_id: str) -> dict[str, tables.Input]:
    """Return inputs, given in the words of a DAG's author, to be opened; each is read at one snapshot.

    Raises:
        InvalidInputError: something else, or changes of a table.
    """
    found = {name: input_of(name, given) for name, given in (inputs or {}).items()}
    changes = [name for name, one in found.items() if isinstance(one, Changes)]
    if changes:
        raise InvalidInputError(f"input {changes[0]!r} is the changes of a table, expected a table at one snapshot")
    return {
        name: one.to_open(iceberg_conn_id=iceberg_conn_id, opened=lambda table: None)
        for name, one in found.items()
        if isinstance(one, Input)
    }


class IcebergAuditOperator(AuditsOperator):
    """Audits one snapshot of a table; the task fails if an audit does.

    All audits are made of the snapshot at which the branch is when the task starts. The task returns it, and only this
    snapshot may be published: `IcebergPublishOperator(snapshot_id=…)`. The results are in the log and in XCom, under
    the key `audits` also when the task fails, each with the first offending rows.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        branch: the branch of the table whose head is audited; main by default.
        snapshot_id: the snapshot that is audited instead.
        audits: what is checked: a list of `NoRows`, `RowCount`, `RowCountChange`, `NullShare`, `UniqueShare`,
            `Freshness`, `SchemaUnchanged` and `PythonAudit`.
        inputs: further tables that the SQL of audits reads, by the names that it has for them, as of
            `IcebergAppendOperator`. `audited` and `main` are there in any case.
        schema_id: the schema of before, for `SchemaUnchanged`; that of main's last snapshot by default.
        sample_rows: the number of offending rows that are shown of each audit; 10. 0 shows none.
        keep_branch_on_failure: whether a branch that has not passed is kept, so that one can look at it.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `AuditReport`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*AuditsOperator.template_fields, "sample_rows", "keep_branch_on_failure")
    ui_color = "#e8e0f0"

    def __init__(
        self, *, sample_rows: int | str = 10, keep_branch_on_failure: bool | str = True, **kwargs: Any
    ) -> None:
        super().__init__(**{"asset_events": False, **kwargs})
        self.sample_rows = sample_rows
        self.keep_branch_on_failure = keep_branch_on_failure

    def execute(self, context: Context) -> dict[str, Any]:
        """Make all audits."""
        from airflow_iceberg.operations.wap.audit import AuditRequest, advice, audit, drop_failed
        from airflow_iceberg.operations.wap.publish import AuditFailedError

        with airflow_failures():
            sample_rows = whole_number("sample_rows", self.sample_rows)
            request = AuditRequest(
                audits=audits_of(self.audits),
                branch=self.branch,
                snapshot_id=whole_number("snapshot_id", self.snapshot_id),
                inputs=self.inputs_to_read(),
                schema_id=whole_number("schema_id", self.schema_id),
                **({} if sample_rows is None else {"sample_rows": sample_rows}),
            )
            work = self.work(context)
            report = audit(work, request)
        for line in report.lines():
            self.log.info("%s: snapshot %s: %s", report.table, report.snapshot_id, line)
        xcom = report.to_xcom()
        context["ti"].xcom_push(key=AUDITS, value=xcom[AUDITS])
        if report.passed:
            return xcom
        is_kept = true_or_false("keep_branch_on_failure", self.keep_branch_on_failure)
        with airflow_failures():
            if not is_kept:
                is_kept = not drop_failed(work, report)
            failed = AuditFailedError(advice(report, is_kept=is_kept))
            failed.advice = "look at the offending rows in the log above, and correct what has written them"
            raise failed
