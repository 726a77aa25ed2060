"""The operator that creates a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError, true_or_false
from airflow_iceberg.hooks.arguments import from_json
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.operators._key import operation_key_of
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.catalogs.base import Catalog
    from airflow_iceberg.operations.create_table import CreateTableRequest, CreateTableResult


class IcebergCreateTableOperator(TableOperator):
    """Creates a table.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        schema: names and types of the columns, `{"id": "long not null", "ts": "timestamptz"}`, or such an object as
            JSON text.
        partition_by: partition fields, `["day(ts)", "bucket(16, id)"]`.
        sort_by: sort order, `["ts desc nulls last"]`.
        properties: table properties.
        location: the location of the table; by default the catalog chooses it.
        if_not_exists: whether an existing table is kept unchanged; if False, an existing table fails the task, unless
            an earlier try of this task has created it.
        on_difference: what happens if the existing table is another one than described here: `"warn"` logs each
            difference, `"fail"` fails the task with them, `"ignore"` says nothing. Compared are the columns, the
            partitioning, the sort order, and those properties that are given, the format version among them.
        create_namespace: whether the namespace is created if it does not exist.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `CreateTableResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        *("schema", "partition_by", "sort_by", "properties", "location"),
        *("if_not_exists", "on_difference", "create_namespace"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("schema", "partition_by", "sort_by", "properties"), "json"
    )
    ui_color = "#dbeeff"
    is_maintenance = True
    words_at_parse = frozenset(("on_difference",))

    def __init__(
        self,
        *,
        schema: Mapping[str, Any] | str,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | str | None = None,
        location: str | None = None,
        if_not_exists: bool | str = True,
        on_difference: Literal["warn", "fail", "ignore"] = "warn",
        create_namespace: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.schema = schema
        self.partition_by = partition_by
        self.sort_by = sort_by
        self.properties = properties
        self.location = location
        self.if_not_exists = if_not_exists
        self.on_difference = on_difference
        self.create_namespace = create_namespace

    def execute(self, context: Context) -> dict[str, Any]:
        """Create the table."""
        with airflow_failures():
            result = self._create(IcebergHook(self.iceberg_conn_id).catalog, context)
        what = "exists already" if result.outcome == "nothing" else "was created"
        return self.report(context, result, [f"the table {what} at {result.location}"])

    def _create(self, catalog: Catalog, context: Context) -> CreateTableResult:
        from airflow_iceberg.catalogs.base import TableId
        from airflow_iceberg.commit.operation_key import CREATED_BY
        from airflow_iceberg.operations.create_table import CreateTableResult, create_table, tell_differences

        key, table, request = operation_key_of(context), TableId.parse(self.table), self._request()
        if true_or_false("create_namespace", self.create_namespace):
            catalog.ensure_namespace(catalog.namespace_of(table))
        # By its mark a later try knows what this one has made, if the answer is lost.
        is_marked = not self._keeps_existing() or request.on_difference == "fail"
        marks = {CREATED_BY: str(key)} if is_marked else {}
        try:
            made = create_table(catalog, table, replace(request, properties={**request.properties, **marks}))
            return CreateTableResult.of(made, outcome="committed", operation_key=str(key))
        except AlreadyExistsError:
            there = catalog.load(table)
            mark = there.metadata.properties.get(CREATED_BY, "")
            # A try that died after it had created the table has succeeded: the next try must not fail for it.
            is_own = mark.rpartition("/")[0] == key.work
            if not (is_own or self._keeps_existing()):
                raise
            if mark != str(key):
                # After a clear the DAG may describe another table; what the catalog has made of this one is none.
                tell_differences(there, request)
            return CreateTableResult.of(there, outcome="found" if is_own else "nothing", operation_key=str(key))

    def _request(self) -> CreateTableRequest:
        from airflow_iceberg.operations.create_table import CreateTableRequest

        properties = from_json("properties", "a JSON object", self.properties) or {}
        if not isinstance(properties, Mapping):
            raise InvalidInputError(f"properties is not a JSON object but a {type(properties).__name__}")
        return CreateTableRequest(
            schema=from_json("schema", "a JSON object", self.schema),
            partition_by=from_json("partition_by", "a list such as ['day(ts)']", self.partition_by),
            sort_by=from_json("sort_by", "a list such as ['ts desc']", self.sort_by),
            properties=properties,
            location=self.location,
            on_difference=self.on_difference,
        )

    def _keeps_existing(self) -> bool:
        return true_or_false("if_not_exists", self.if_not_exists)
