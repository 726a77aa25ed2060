"""What operators share that read tables and other sources, and those that write new rows; their report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_iceberg.assets import input_assets, with_asset
from airflow_iceberg.backends.config import checked_fields
from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._inputs import Changes, Input, input_of
from airflow_iceberg.operators._job import JobOperator
from airflow_iceberg.redaction import without_secrets
from airflow_iceberg.retries import tell

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.commit.write_result import OperationResult, WriteResult
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.source import Source


Request = TypeVar("Request")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOptions:
    """How the source files are read.

    Attributes:
        file_format: parquet, csv, jsonl, orc or avro; None means the format of each file's suffix.
        format_options: options of the format, for example `{"delimiter": ";"}` for CSV.
    """

    file_format: str | None = None
    format_options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: FileOptions | Mapping[str, Any] | None) -> FileOptions:
        """Return the options, given as they are or as a dictionary of their fields."""
        return given if isinstance(given, cls) else cls(**checked_fields(cls, "file_options", given))

    def serialize(self) -> dict[str, Any]:
        """Return the form that Airflow stores and shows."""
        return {"file_format": self.file_format, "format_options": dict(self.format_options)}


class InputsOperator(JobOperator):
    """An operator whose SQL or function reads further tables, and that commits to a branch."""

    template_fields: Sequence[str] = (
        *JobOperator.template_fields,
        *("inputs", "branch", "create_branch", "snapshot_properties", "write_format"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **JobOperator.template_fields_renderers,
        **{"inputs": "json", "snapshot_properties": "json"},
    }
    _opened: Mapping[str, OpenTable] = {}
    _to_open: Mapping[str, Any] = {}

    def __init__(
        self,
        *,
        inputs: Mapping[str, str | Input | Changes | Mapping[str, Any]] | None = None,
        branch: str = "main",
        create_branch: bool | str = False,
        snapshot_properties: Mapping[str, str] | None = None,
        write_format: Literal["parquet", "avro"] | None = None,
        **kwargs: Any,
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.inputs = inputs
        for asset in input_assets(inputs, self.iceberg_conn_id) if self.asset_events else ():
            self.inlets = with_asset(self.inlets, asset)
        self.create_branch = create_branch
        self.snapshot_properties = snapshot_properties
        self.write_format = write_format

    @property
    def dialect(self) -> str:
        """The dialect of the task's SQL: that of the engine which runs it."""
        return "duckdb" if self.spark_conn_id is None else "spark"

    def creates_branch(self) -> bool:
        """Whether a branch that the table does not have is created."""
        return true_or_false("create_branch", self.create_branch)

    def inputs_to_open(self) -> dict[str, Any]:
        """Return the inputs, each of which is loaded once when the job is planned."""
        opened: dict[str, OpenTable] = {}
        self._opened = opened
        named = {str(name): input_of(name, one) for name, one in (self.inputs or {}).items()}
        self._to_open = {
            name: one.to_open(iceberg_conn_id=self.iceberg_conn_id, opened=partial(opened.__setitem__, name))
            for name, one in named.items()
        }
        return dict(self._to_open)

    def tables_read(self, result: OperationResult) -> Mapping[str, OpenTable]:
        """Return the inputs that the result names; a try that has found the commit of another one loads them."""
        named = {str(name): input_of(name, one) for name, one in (self.inputs or {}).items()}
        read = {name: one for name, one in named.items() if name in getattr(result, "inputs", {})}
        loaded = {
            name: IcebergHook(one.iceberg_conn_id or self.iceberg_conn_id).load_table(one.table)
            for name, one in read.items()
            if name not in self._opened
        }
        return {name: self._opened[name] if name in self._opened else loaded[name] for name in read}

    def opened_inputs(self, plan: JobPlan) -> Mapping[str, OpenTable]:
        """Return the inputs as they were loaded for a plan; those that an earlier process has pinned are loaded now."""
        for table in plan.inputs:
            if table.name not in self._opened:
                self._to_open[table.name].open()
        return {table.name: self._opened[table.name] for table in plan.inputs}


class SourceOperator(InputsOperator):
    """An operator with a source of rows; its arguments are those of `IcebergAppendOperator`."""

    template_fields: Sequence[str] = (
        *InputsOperator.template_fields,
        *("files", "sql", "sql_params", "python_callable", "op_kwargs", "file_options"),
    )
    file_fields: ClassVar[tuple[str, ...]] = ("sql",)
    # Whether there are files today is for `on_empty` to say.
    may_be_empty: ClassVar[frozenset[str]] = frozenset(("files",))
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **InputsOperator.template_fields_renderers,
        **{"sql": "sql", "sql_params": "json", "op_kwargs": "json", "file_options": "json"},
    }

    def __init__(
        self,
        *,
        files: str | Sequence[str] | None = None,
        sql: str | None = None,
        sql_params: Mapping[str, Any] | None = None,
        python_callable: str | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        file_options: FileOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.files = files
        self.sql = sql
        self.sql_params = sql_params
        self.python_callable = python_callable
        self.op_kwargs = op_kwargs
        self.file_options = file_options

    def check_before_rendering(self) -> None:
        """Reject a function object, which rendering would call to get a value."""
        if callable(self.python_callable):
            raise AirflowFailException(
                f"task {self.task_id}: python_callable runs in the Spark job, not here: give its name as "
                f"'package.module:function', got {self.python_callable!r}"
            )

    def source(self) -> Source:
        """Return the source, of which exactly one is given."""
        from airflow_iceberg.jobs.protocol.source import Source

        given = {"files": self.files, "sql": self.sql, "python_callable": self.python_callable}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise InvalidInputError(
                f"task {self.task_id}: exactly one of files, sql and python_callable is needed, "
                f"got {' and '.join(named) if named else 'none'}"
            )
        if self.sql is not None:
            return Source.from_sql(self.sql, self.sql_params, dialect=self.dialect)
        if self.sql_params:
            raise InvalidInputError(
                f"task {self.task_id}: sql_params are the values of placeholders in sql; leave them out"
            )
        if self.python_callable is not None:
            return Source.from_callable(self.python_callable, dict(self.op_kwargs or {}))
        options = FileOptions.of(self.file_options)
        files = [self.files] if isinstance(self.files, str) else [str(name) for name in self.files or ()]
        return Source.from_files(files, file_format=options.file_format, format_options=options.format_options)


class RowsOperator(SourceOperator):
    """An operator that writes new rows; its arguments are those of `IcebergAppendOperator`."""

    template_fields: Sequence[str] = (
        *SourceOperator.template_fields,
        *("on_rerun", "on_empty", "schema_evolution", "write_key", "on_removed"),
    )
    known_on_empty: ClassVar[tuple[str, ...]] = ("nothing", "skip", "fail")

    def __init__(
        self,
        *,
        on_rerun: Literal["replace", "append", "skip"] = "replace",
        on_empty: str = "nothing",
        schema_evolution: Literal["add_columns"] | None = None,
        write_key: str | int | None = None,
        on_removed: Literal["keep", "remove"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.on_rerun = on_rerun
        self.on_empty = on_empty
        self.schema_evolution = schema_evolution
        self.write_key = write_key
        self.on_removed = on_removed

    def rows_request(self, kind: Callable[..., Request], **more: Any) -> Request:
        """Return the request of the operation, of this kind."""
        if self.on_empty not in self.known_on_empty:
            raise InvalidInputError(f"unknown on_empty {self.on_empty!r}; one of {', '.join(self.known_on_empty)}")
        return kind(
            rows=self.source(),
            branch=self.branch,
            create_branch=self.creates_branch(),
            on_rerun=self.on_rerun,
            schema_evolution=self.schema_evolution,
            write_format=self.write_format,
            snapshot_properties=self.snapshot_properties or {},
            inputs=self.inputs_to_open(),
            **more,
        )

    def report_rows(self, context: Context, result: WriteResult) -> dict[str, Any]:
        """Report a write; if the source has no rows, do what `on_empty` says."""
        if result.outcome == "nothing" and self.on_empty == "skip":
            raise AirflowSkipException(f"the source of table {result.table} has no rows")
        if result.outcome == "nothing" and self.on_empty == "fail":
            happened = f"the source of table {result.table} has no rows, and on_empty is 'fail'{self._no_rows()}"
            tell(happened, "correct the source, or find out why it has no rows yet, then clear the task")
            raise AirflowFailException(happened)
        if result.outcome == "nothing":
            # Changes of a table may be none; files and queries are expected to have rows.
            reads_changes = any(isinstance(input_of(name, one), Changes) for name, one in (self.inputs or {}).items())
            level = logging.INFO if reads_changes else logging.WARNING
            self.log.log(level, "%s: the source has no rows, nothing was committed%s", result.table, self._no_rows())
            return self.report(context, result, ())
        snapshot = "that has expired" if result.snapshot_id is None else result.snapshot_id
        sentence = _SENTENCES[result.outcome].format(snapshot=snapshot, rows=result.added_records)
        return self.report(context, result, [sentence])

    def _no_rows(self) -> str:
        """Return what may be wrong with files that have no rows: a glob may match nothing."""
        if not self.files:
            return ""
        names = [self.files] if isinstance(self.files, str) else [str(name) for name in self.files]
        return f": no file matches {without_secrets(', '.join(names))}, or the files are empty; check the path"


_SENTENCES = {
    "committed": "committed snapshot {snapshot} with {rows} new rows",
    "found": "an earlier try of this task committed snapshot {snapshot} with {rows} rows already",
    "skipped": "an earlier run of this task committed snapshot {snapshot} with {rows} rows, and on_rerun is 'skip'",
}
