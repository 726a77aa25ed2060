"""The operator that merges a source of rows into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_iceberg.errors import true_or_false
from airflow_iceberg.operators._rows import SourceOperator
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergMergeOperator(SourceOperator):
    """Lets rows of a source update and delete the rows of a table that they match, and adds the others, in one commit.

    The rows come from exactly one of `files`, `sql` and `python_callable`; they need not have the columns of the table.
    `clauses` say what happens to which rows, in the words of SQL's MERGE; `upsert=True` is the short form of "update
    all columns, or insert". Each row gets the first clause that applies to it. Only files that can contain a key of the
    source are read. If another writer changes the same rows, the merge is planned again on the latest snapshot.

    A retry finds the commit of an earlier try. A cleared task merges once more, into the table as it is then.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        on: the columns that are compared, `["id"]`, or a condition in SQL over `target`, the table, and `source`:
            `"target.id = source.order_id and target.day >= '2026-01-01'"`.
        clauses: one text or several: `"when matched and source.op = 'd' then delete"`, `"when matched then update set
            amount = source.amount"` (or `update set *`), `"when not matched then insert (id) values (source.id)"` (or
            `insert *`), `"when not matched by source then delete"`. Conditions and values are any SQL of the engine:
            that of Spark, or without a Spark connection of DuckDB. They see the sides that the rows of the clause have.
        clause_params: the values of the placeholders of `on` and `clauses` by name, `:name`, or `$name` for DuckDB.
        upsert: rows that match get all columns of the source, the others are added. Instead of `clauses`. A key that
            is null, or in two rows of the source, is an error.
        mode: `"copy-on-write"` or `"merge-on-read"`; by default the table's `write.merge.mode`, copy-on-write.
        isolation_level: with `"serializable"`, rows that other writers added meanwhile and that could match are
            conflicts, with `"snapshot"` they are not; by default the table's `write.merge.isolation-level`,
            serializable.
        files: one or more URLs or paths of source files, with globs; they may have columns that the table has not.
        sql: a query, or the name of a `.sql` file: in Spark SQL, or without a Spark connection in the SQL of DuckDB.
        sql_params: the values of the placeholders of `sql` by name.
        inputs: the tables that the query, the function or the clauses read, by the names that it has for them:
            `{"orders": "sales.orders"}`, or an `Input`.
        python_callable: the name of a function, `"package.module:function"`, that the Spark job calls with the
            SparkSession and `op_kwargs`, and that returns a DataFrame.
        op_kwargs: keyword arguments of the function, JSON values.
        file_options: format and format options of `files`, a `FileOptions` or a dictionary of its fields.
        iceberg_conn_id: the id of the catalog's connection.
        spark_conn_id: the id of the Spark connection that the job is submitted to; None runs it in this process with
            DuckDB, for `files` and for `sql` over `inputs`.
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
        *("on", "clauses", "clause_params", "upsert", "mode", "isolation_level"),
        *SourceOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **SourceOperator.template_fields_renderers,
        **{"on": "sql", "clauses": "sql", "clause_params": "json"},
    }
    file_fields = (*SourceOperator.file_fields, "clauses")
    ui_color = "#e4dcf7"

    def __init__(
        self,
        *,
        on: str | Sequence[str],
        clauses: str | Sequence[str] | None = None,
        clause_params: Mapping[str, Any] | None = None,
        upsert: bool | str = False,
        mode: Literal["copy-on-write", "merge-on-read"] | None = None,
        isolation_level: Literal["serializable", "snapshot"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.on = on
        self.clauses = clauses
        self.clause_params = clause_params
        self.upsert = upsert
        self.mode = mode
        self.isolation_level = isolation_level

    def execute(self, context: Context) -> dict[str, Any]:
        """Merge the rows."""
        from airflow_iceberg.operations.row_level.merge import MergeRequest, merge

        with airflow_failures():
            request = MergeRequest(
                rows=self.source(),
                on=self.on,
                clauses=self.clauses,
                params=self.clause_params,
                params_name="clause_params",
                upsert=true_or_false("upsert", self.upsert),
                dialect=self.dialect,
                mode=self.mode,
                isolation_level=self.isolation_level,
                branch=self.branch,
                create_branch=self.creates_branch(),
                snapshot_properties=self.snapshot_properties or {},
                write_format=self.write_format,
                inputs=self.inputs_to_open(),
            )
            result = merge(self.work(context), request)
        counts = (
            f"{result.added_records} rows were added, {result.updated_records} updated and {result.deleted_records} "
            f"deleted"
        )
        return self.report(context, result, [f"{_SENTENCES[result.outcome]}; {counts}"])


_SENTENCES = {
    "committed": "merged the source",
    "found": "an earlier try of this task has merged the source already",
    "nothing": "no clause applies to a row, or all rows have their new values already: nothing was done",
}
