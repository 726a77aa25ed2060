"""The operator that gives rows new values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.operators._rows import InputsOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergUpdateOperator(InputsOperator):
    """Gives the rows that a condition selects new values, exactly once per run of the DAG.

    Files that cannot have such rows are not opened. If another writer changes the same rows, the update is planned
    again on the latest snapshot. A retry finds the commit of an earlier try: `amount + 1` is added once. A cleared task
    updates once more.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        set: the columns, each with its new value in SQL over the columns of the row: `{"total": "price * amount"}`. A
            text has quotes of its own: `{"status": "'done'"}`. A name may be in backticks or double quotes.
        where: the rows to update, in SQL; rows for which it is false or null are kept. It may read `inputs`:
            `"customer_id in (select id from blocked)"`. `"true"` updates every row.
        sql_params: the values of the placeholders of `set` and `where` by name, `:name`, or `$name` for DuckDB.
        inputs: the tables that the SQL reads, by the names that it has for them: `{"blocked": "crm.blocked"}`, or an
            `Input`.
        mode: `"copy-on-write"` or `"merge-on-read"`; by default the table's `write.update.mode`, copy-on-write.
        isolation_level: with `"serializable"`, rows that other writers added meanwhile and that could be selected are
            conflicts, with `"snapshot"` they are not; by default the table's `write.update.isolation-level`,
            serializable.
        iceberg_conn_id: the id of the catalog's connection.
        spark_conn_id: the id of the Spark connection that the job is submitted to: the SQL is Spark's; None runs it
            in this process with DuckDB, whose SQL it is then.
        spark_config: resources and options of the Spark job, a `SparkConfig` or a dictionary of its fields.
        deferrable: whether the worker slot is free while a job runs, on YARN and Kubernetes in deploy mode `cluster`;
            elsewhere the task waits. By default Airflow's `[operators] default_deferrable`.
        poll_interval: seconds between two looks of the triggerer at the job; 30.
        branch: the branch to write to.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
        snapshot_properties: additional entries of the snapshot's summary.
        write_format: the format of the new data files, `"parquet"` or `"avro"`; by default that of the table.

    Returns:
        the fields of `WriteResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *("set", "where", "sql_params", "mode", "isolation_level"),
        *InputsOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **InputsOperator.template_fields_renderers,
        **{"set": "json", "where": "sql", "sql_params": "json"},
    }
    ui_color = "#fbf3d3"

    def __init__(
        self,
        *,
        set: Mapping[str, str],
        where: str,
        sql_params: Mapping[str, Any] | None = None,
        mode: Literal["copy-on-write", "merge-on-read"] | None = None,
        isolation_level: Literal["serializable", "snapshot"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.set = set
        self.where = where
        self.sql_params = sql_params
        self.mode = mode
        self.isolation_level = isolation_level

    def execute(self, context: Context) -> dict[str, Any]:
        """Update the rows."""
        from airflow_iceberg.operations.row_level.update import UpdateRequest, update

        with airflow_failures():
            request = UpdateRequest(
                set=self.set,
                where=self.where,
                params=self.sql_params,
                params_name="sql_params",
                dialect=self.dialect,
                mode=self.mode,
                isolation_level=self.isolation_level,
                branch=self.branch,
                create_branch=self.creates_branch(),
                snapshot_properties=self.snapshot_properties or {},
                write_format=self.write_format,
                inputs=self.inputs_to_open(),
            )
            result = update(self.work(context), request)
        counts = f"{result.updated_records} rows have new values, {result.carried_records} others were written again"
        return self.report(context, result, [f"{_SENTENCES[result.outcome]}; {counts}"])


_SENTENCES = {
    "committed": "updated rows",
    "found": "an earlier try of this task has updated the rows already",
    "nothing": "no row is selected, nothing was done",
}
