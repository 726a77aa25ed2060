"""Bringing rows into a table: `IcebergAppendOperator`, and what it shares with `IcebergOverwriteOperator`.

Here: the order of the steps, the words of the DAG author, and what Airflow is told afterwards. Not here: where the job
runs (`submit`), what is committed and whether it was already (`table`), what an error means to Airflow (`failures`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_iceberg.errors import CommitUnknownError, IcebergError, InvalidInputError
from airflow_iceberg.failures import airflow_failures
from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.operators._job import JobOperator, operation_of
from airflow_iceberg.submit import SparkConfig

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.operation import OperationKey, WriteResult
    from airflow_iceberg.jobs.protocol import Source
    from airflow_iceberg.overwriting import OverwriteResult
    from airflow_iceberg.table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOptions:
    """How the source files are read.

    Attributes:
        file_format: parquet, csv, jsonl, orc or avro; None goes by each file's suffix.
        format_options: of the format, e.g. `{"delimiter": ";"}` for CSV.
    """

    file_format: str | None = None
    format_options: Mapping[str, str] = field(default_factory=dict)

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows and keeps of the DAG."""
        return {"file_format": self.file_format, "format_options": dict(self.format_options)}


class RowsOperator(JobOperator):
    """What operators share that bring rows: their sources, and what Airflow is told afterwards."""

    template_fields: Sequence[str] = (
        "table",
        "files",
        "sql",
        "python_callable",
        "op_kwargs",
        "file_options",
        "iceberg_conn_id",
        "spark_conn_id",
        "spark_config",
        "branch",
        "snapshot_properties",
        "on_rerun",
        "on_empty",
        "schema_evolution",
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "sql": "sql",
        "op_kwargs": "json",
        "file_options": "json",
        "spark_config": "json",
        "snapshot_properties": "json",
    }
    known_on_empty: ClassVar[tuple[str, ...]] = ("nothing", "skip", "fail")

    table: str
    files: str | Sequence[str] | None
    sql: str | None
    python_callable: str | None
    op_kwargs: Mapping[str, Any] | None
    file_options: FileOptions | Mapping[str, Any] | None
    on_empty: str

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> None:
        """Render the templates; a function object is refused first, since Airflow would call it to get a value."""
        if callable(self.python_callable):
            raise AirflowFailException(
                f"task {self.task_id}: python_callable runs in the Spark job, not here: give its name as "
                f"'package.module:function', got {self.python_callable!r}"
            )
        super().render_template_fields(context, jinja_env)

    def _check_on_empty(self) -> None:
        if self.on_empty not in self.known_on_empty:
            raise InvalidInputError(f"unknown on_empty {self.on_empty!r}; one of {', '.join(self.known_on_empty)}")

    def _source(self) -> Source:
        from airflow_iceberg.jobs.protocol import Source

        given = {"files": self.files, "sql": self.sql, "python_callable": self.python_callable}
        # A template that renders to nothing is given, and wrong: it must not look like the absence of a source.
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise InvalidInputError(
                f"task {self.task_id}: exactly one of files, sql and python_callable is needed, "
                f"got {' and '.join(named) if named else 'none'}"
            )
        if self.sql is not None:
            return Source.from_sql(self.sql)
        if self.python_callable is not None:
            return Source.from_callable(self.python_callable, dict(self.op_kwargs or {}))
        options = self._file_options()
        files = [self.files] if isinstance(self.files, str) else [str(name) for name in self.files or ()]
        return Source.from_files(files, file_format=options.file_format, format_options=options.format_options)

    def _file_options(self) -> FileOptions:
        """Return how files are read; a template, or a DAG author, may give a dictionary."""
        if not isinstance(self.file_options, Mapping):
            return self.file_options or FileOptions()
        unknown = sorted(set(self.file_options) - {"file_format", "format_options"})
        if unknown:
            raise InvalidInputError(
                f"task {self.task_id}: unknown file option {unknown[0]!r}; one of file_format, format_options (with "
                f"what belongs to the format, such as the delimiter of CSV)"
            )
        return FileOptions(**self.file_options)

    def _report(self, context: Context, result: WriteResult | OverwriteResult) -> dict[str, Any]:
        """Say what happened, in the log, in the asset events and in XCom: the same for work done and work found."""
        if result.outcome == "empty":
            self.log.warning(_SENTENCES["empty"], result.table)
        else:
            self.log.info(_SENTENCES[result.outcome], result.table, result.snapshot_id, result.added_records)
        if result.outcome == "empty" and self.on_empty == "skip":
            raise AirflowSkipException(f"the source of table {result.table} has no rows")
        if result.outcome == "empty" and self.on_empty == "fail":
            raise AirflowFailException(f"the source of table {result.table} has no rows, and on_empty is 'fail'")
        xcom = result.to_xcom()
        add_to_asset_events(context, self.outlets, xcom)
        return xcom


class IcebergAppendOperator(RowsOperator):
    """Appends rows to a table, exactly once per run of the DAG.

    A job stages new files; this task commits them in one snapshot that carries the task's operation key. A retry looks
    for that key first and does nothing twice. The rows come from exactly one of `files`, `sql` and `python_callable`.

    Args:
        table: namespace and name, `sales.orders`.
        files: URL or path, or several, with globs: `"s3://bucket/{{ params.day }}/*.parquet"`.
        sql: a query in Spark's SQL, or the name of a `.sql` file.
        python_callable: `"package.module:function"`, called in the Spark job with the SparkSession and `op_kwargs`;
            returns a DataFrame.
        op_kwargs: keyword arguments for the callable, JSON values.
        file_options: how `files` are read.
        iceberg_conn_id: the catalog's connection.
        spark_conn_id: where the job runs: a `spark` connection submits it; None runs it in this process without Spark,
            for `files` only.
        spark_config: resources and options of the Spark job.
        branch: the branch to append to.
        snapshot_properties: entries for the snapshot's summary.
        on_rerun: when a person cleared the task and an earlier run has committed: `"replace"` its rows by the new ones
            in one commit, `"append"` the new ones as well, or `"skip"` the work.
        on_empty: when the source has no rows: `"nothing"` is committed and the task succeeds, `"skip"` marks the task
            as skipped, `"fail"` fails it.
        schema_evolution: `"add_columns"` lets columns that the source has more, and wider types where that is legal,
            join the table's schema in the same commit; by default they fail the task.

    Returns:
        table, branch, snapshot_id (text), operation, outcome, done_by_this_try, counts and operation_key.
    """

    ui_color = "#dbeeff"

    def __init__(
        self,
        *,
        table: str,
        files: str | Sequence[str] | None = None,
        sql: str | None = None,
        python_callable: str | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        file_options: FileOptions | Mapping[str, Any] | None = None,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        spark_conn_id: str | None = "spark_default",
        spark_config: SparkConfig | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
        on_rerun: Literal["replace", "append", "skip"] = "replace",
        on_empty: Literal["nothing", "skip", "fail"] = "nothing",
        schema_evolution: Literal["add_columns"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.files = files
        self.sql = sql
        self.python_callable = python_callable
        self.op_kwargs = op_kwargs
        self.file_options = file_options
        self.iceberg_conn_id = iceberg_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_config = spark_config
        self.branch = branch
        self.snapshot_properties = snapshot_properties
        self.on_rerun = on_rerun
        self.on_empty = on_empty
        self.schema_evolution = schema_evolution

    def execute(self, context: Context) -> dict[str, Any]:
        """Look whether the work is done; if not plan it, run the job and commit what it staged."""
        from airflow_iceberg.commit.operation import check_properties

        with airflow_failures():
            source = self._source()
            operation, try_number = operation_of(context), int(context["ti"].try_number)
            self._check_on_empty()
            check_properties(self.snapshot_properties or {})
            table = IcebergHook(self.iceberg_conn_id).load_table(self.table)
            result = table.find_append(operation, branch=self.branch, on_rerun=self.on_rerun)
            if result is None:
                result = self._write(table, source, operation, try_number)
        return self._report(context, result)

    def _write(self, table: Table, source: Source, operation: OperationKey, try_number: int) -> WriteResult:
        from airflow_iceberg.submit import run_job

        # Before the plan is written: what is wrong with the back end is found without leaving anything behind.
        backend = self.open_backend(table, source, name=str(operation))
        plan = table.plan_append(
            source,
            operation=operation,
            try_number=try_number,
            branch=self.branch,
            schema_evolution=self.schema_evolution or None,
        )
        try:
            staged = run_job(backend, table, plan)
        except Exception:
            table.discard(plan)
            raise
        try:
            return table.commit_append(
                plan,
                staged,
                operation=operation,
                try_number=try_number,
                branch=self.branch,
                on_rerun=self.on_rerun,
                snapshot_properties=self.snapshot_properties,
            )
        except CommitUnknownError:
            raise  # the commit may have landed: its files must stay
        except IcebergError:
            table.discard(plan, staged)
            raise


_SENTENCES = {
    "committed": "%s: committed snapshot %s with %s new rows",
    "found": "%s: an earlier try of this task committed snapshot %s with %s rows already, nothing is left to do",
    "skipped": "%s: an earlier run of this task committed snapshot %s with %s rows, and on_rerun is 'skip'",
    "empty": "%s: the source has no rows (or a glob of its files has no match), nothing was committed",
}


def add_to_asset_events(context: Context, outlets: Sequence[Any], extra: Mapping[str, Any]) -> None:
    """Give the event of every asset that the task writes what it wrote; an alias names no asset by itself."""
    from airflow.sdk import Asset
    from airflow.sdk.definitions.asset import AssetRef

    for outlet in outlets or ():
        if isinstance(outlet, Asset | AssetRef):
            context["outlet_events"][outlet].extra.update(extra)
