"""The operators that publish audited snapshots: of one table, or of several together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_iceberg.assets import asset_of, tell_write, with_asset
from airflow_iceberg.errors import true_or_false
from airflow_iceberg.hooks.arguments import is_nothing, whole_number
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.operators._key import operation_key_of
from airflow_iceberg.operators.wap.audit import AuditsOperator, audits_of, inputs_to_read
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.operations.wap.audits import Audit


NO_UUID = "none"
"""The uuid of a table of format version 1 that has none: a text, since a guard that is nothing would be none."""


class IcebergPublishOperator(AuditsOperator):
    """Publishes exactly the snapshot that was audited, once.

    If main is where the branch began, it moves forward to the snapshot, wherever the branch is by now. If main has
    moved on, the same files are committed in one new snapshot, where the conflict rules allow it: appends, and dynamic
    overwrites whose partitions nobody has changed since. Any other change is applied to main's head on a branch of its
    own, is audited again, and published as it was audited; without `audits`, or if the files that it replaces have
    changed, nothing is published and the task fails.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        snapshot_id: the snapshot that was audited:
            `"{{ ti.xcom_pull(task_ids='audit')['snapshot_id'] }}"`.
        branch: the branch of the table that led to the snapshot.
        table_uuid: the uuid of the table that was audited; another table of the same name is refused.
        audits: what is checked again when main has moved on.
        always_audit: whether also a change that the conflict rules allow is audited again when main has moved on.
        inputs: as of the audits.
        schema_id: as of the audits.
        snapshot_properties: additional entries of the summary of a new snapshot.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `PublishResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *AuditsOperator.template_fields,
        "table_uuid",
        "always_audit",
        "snapshot_properties",
    )
    # It is refused in any case, with words about the audit.
    may_be_nothing = frozenset(("snapshot_id",))
    ui_color = "#d8f0dc"

    def __init__(
        self,
        *,
        table_uuid: str | None = None,
        always_audit: bool | str = False,
        snapshot_properties: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table_uuid = table_uuid
        self.always_audit = always_audit
        self.snapshot_properties = snapshot_properties

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the snapshot, or find it published."""
        from airflow_iceberg.operations.wap.publish import PublishRequest, audited_id, publish

        with airflow_failures():
            request = PublishRequest(
                snapshot_id=audited_id(audited(self.snapshot_id), self.table),
                branch=self.branch,
                table_uuid=_uuid(self.table_uuid),
                audits=audits_of(self.audits),
                inputs=self.inputs_to_read(),
                schema_id=whole_number("schema_id", self.schema_id),
                is_always_audited=true_or_false("always_audit", self.always_audit),
                snapshot_properties=self.snapshot_properties or {},
            )
            result = publish(self.work(context), request)
        return self.report(context, result, [result.sentence])


class PublishTablesOperator(TableOperator):
    """Publishes audited snapshots of several tables: in one commit of a Nessie catalog, else one table after the other.

    Args:
        published: of each table, by its name, the arguments of `IcebergPublishOperator`.
        audits: the audits of each table, by its name.

    Returns:
        the fields of `PublishTablesResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *("iceberg_conn_id", "partition_keys", "published", "audits", "inputs", "always_audit"),
    )
    may_be_nothing = frozenset(("published",))
    ui_color = IcebergPublishOperator.ui_color

    def __init__(
        self,
        *,
        published: Mapping[str, Mapping[str, Any]],
        audits: Mapping[str, Sequence[Audit]],
        inputs: Mapping[str, Any] | None = None,
        always_audit: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(table="", asset_events=False, **kwargs)
        for name in published:
            self.outlets = with_asset(self.outlets, asset_of(name, self.iceberg_conn_id))
        self.published = published
        self.audits = audits
        self.inputs = inputs
        self.always_audit = always_audit

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the snapshots, those that are not published yet."""
        from airflow_iceberg.operations.wap.publish import PublishRequest, audited_id
        from airflow_iceberg.operations.wap.together import publish_all
        from airflow_iceberg.operations.work import Work

        with airflow_failures():
            hook, key = IcebergHook(self.iceberg_conn_id), operation_key_of(context)
            asked = []
            for table, given in self.published.items():
                request = PublishRequest(
                    snapshot_id=audited_id(audited(given["snapshot_id"]), table),
                    branch=given["branch"],
                    table_uuid=_uuid(given["table_uuid"]),
                    audits=self.audits[table],
                    inputs=inputs_to_read(self.inputs, self.iceberg_conn_id),
                    schema_id=whole_number("schema_id", given["schema_id"]),
                    is_always_audited=true_or_false("always_audit", self.always_audit),
                )
                work = Work(hook.load_table(table), operation_key=key, try_number=int(context["ti"].try_number))
                asked.append((work, request))
            published = publish_all(asked)
        for result in published.tables:
            self.log.info("%s: %s", result.table, result.sentence)
        for (work, _), result in zip(asked, published.tables, strict=True):
            tell_write(
                context,
                work.table,
                result,
                iceberg_conn_id=self.iceberg_conn_id,
                verb="publish",
                partition_keys=self.partition_keys,
            )
        return published.to_xcom()


def audited(given: int | str | None) -> int | None:
    """Return the id that a task group's audit has returned; None for none."""
    return None if is_nothing(given) else whole_number("snapshot_id", given)


def _uuid(given: str | None) -> str | None:
    return "" if given == NO_UUID else given
