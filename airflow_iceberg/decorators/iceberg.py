"""Functions of a DAG file whose rows are written to a table: the function runs in the task, and returns the rows.

Each decorator makes an operator of the same operation, whose source of rows is the function. Not here: which results
are rows (`data.arrow_rows`), what an operation does (`operations`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.providers.common.compat.sdk import DecoratedOperator
from airflow.sdk.bases.decorator import _TaskDecorator

from airflow_iceberg.decorators.spark import PARAMETERS, FrameJobs
from airflow_iceberg.hooks.given import check_constants
from airflow_iceberg.jobs.spark.package import is_connect
from airflow_iceberg.operators._job import JobOperator, TableOperator
from airflow_iceberg.operators.append import IcebergAppendOperator
from airflow_iceberg.operators.merge import IcebergMergeOperator
from airflow_iceberg.operators.overwrite import IcebergOverwriteOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskDecorator
    from airflow.sdk import Context

    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult

# Arguments of operators about other sources of rows, and about a job that reads them.
_ELSEWHERE = frozenset(("files", "sql", "sql_params", "inputs", "file_options", "spark_config"))
_OWN_FIELDS = ("op_args", "op_kwargs", "config_kwargs")


class _FunctionTask(DecoratedOperator):
    """An operator whose rows are those that its function returns.

    They are written in this process. Those of a Spark DataFrame are written by its session, which the function gets.
    """

    custom_operator_name: ClassVar[str]
    reason_to_wait: ClassVar[str | None] = "the function of the task runs in its process"
    # Operators with a source use the same names for a function of a Spark job.
    python_callable: Any
    op_kwargs: Any
    spark_conn_id: Any
    template_fields_renderers: ClassVar[dict[str, str]] = {"op_args": "py", "op_kwargs": "py"}

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        spark_conn_id: str | None = None,
        config_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        wrong = sorted(_ELSEWHERE & kwargs.keys())
        if wrong:
            raise TypeError(
                f"{self.custom_operator_name} takes no {wrong[0]}: its function returns the rows, and this task writes "
                f"them; give {wrong[0]} to the operator of the same name"
            )
        if inspect.iscoroutinefunction(python_callable) or inspect.isasyncgenfunction(python_callable):
            raise TypeError(f"{self.custom_operator_name} takes no async function, and {python_callable!r} is one")
        parameters = inspect.signature(python_callable).parameters
        wanted = [name for name in PARAMETERS if name in parameters]
        if (spark_conn_id or config_kwargs) and not wanted:
            raise TypeError(
                f"{self.custom_operator_name} takes spark_conn_id and config_kwargs for a function with a parameter "
                f"'spark', and {getattr(python_callable, '__name__', python_callable)!r} has none"
            )
        super().__init__(
            python_callable=_without(python_callable, wanted),
            op_args=op_args,
            op_kwargs=op_kwargs,
            spark_conn_id=spark_conn_id,
            **kwargs,
        )
        self.config_kwargs = config_kwargs or {}
        self._wanted = tuple(wanted)
        self._jobs: FrameJobs | None = None
        # An operator with a source has set them to None: it is given no function of a Spark job.
        self.python_callable = python_callable
        self.op_kwargs = op_kwargs or {}
        self._context: Context | None = None

    def check_before_rendering(self) -> None:
        """Allow a function object: here `python_callable` is one on purpose."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the rows of the function; it is not called if an earlier try has committed them."""
        self._context = context
        try:
            done: dict[str, Any] = super().execute(context)
            return done
        finally:
            if self._jobs is not None:
                self._jobs.stop()

    def source(self) -> Any:
        """Return the source of rows, which calls the function."""
        from airflow_iceberg.operations.new_rows import RowsFunction

        name = getattr(self.python_callable, "__name__", self.task_id)
        if not self._wanted:
            return RowsFunction(name=name, call=self._call)
        self._jobs = FrameJobs(
            self._call_with,
            name=name,
            conn_id=self.spark_conn_id,
            config=self.config_kwargs,
            app_name=f"{self.dag_id}-{self.task_id}",
        )
        return self._jobs.source

    @property
    def dialect(self) -> str:
        """The dialect of the task's SQL."""
        return "spark" if self._wanted else "duckdb"

    def run_job(self, table: OpenTable, plan: JobPlan, *, name: str) -> JobResult:
        """Run a job: one of a DataFrame on its session, any other one in this process."""
        if self._jobs is None:
            assert isinstance(self, JobOperator)
            return JobOperator.run_job(self, table, plan, name=name)
        return self._jobs.run(table, plan)

    def on_kill(self) -> None:
        """Stop the session, or the job in this process."""
        assert isinstance(self, JobOperator)
        JobOperator.on_kill(self)
        if self._jobs is not None:
            self._jobs.kill()

    def _call_with(self, spark: Any) -> Any:
        given = {"spark": spark}
        if "sc" in self._wanted:
            # A session of Spark Connect has none.
            given["sc"] = None if is_connect(spark) else spark.sparkContext
        return self._call(**given)

    def _call(self, **given: Any) -> Any:
        assert self._context is not None
        args, left = _placed(self.python_callable, self.op_args, given)
        known = {**self._context, **self.op_kwargs, **left}
        return self.python_callable(*args, **_determine_kwargs(self.python_callable, args, known))


def _determine_kwargs(
    function: Callable[..., Any], args: Collection[Any], known: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return those of the known values that a function takes by name."""
    try:
        from airflow.providers.common.compat.sdk import determine_kwargs
    except ImportError:  # the common-compat of Airflow 3.1's constraints
        from airflow.utils.operator_helpers import determine_kwargs  # type: ignore[attr-defined]
    found: Mapping[str, Any] = determine_kwargs(function, args, known)
    return found


def _without(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """Return what Airflow checks the arguments of a function by: those that are given later may be left out.

    The author's other arguments have the places that they would have without them.
    """
    if not names:
        return function

    def checked(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    update_wrapper(checked, function)
    signature = inspect.signature(function)
    others = [one for one in signature.parameters.values() if one.name not in names]
    ends = [one for one in others if one.kind is one.VAR_KEYWORD]
    late = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
    kept = [one for one in others if one not in ends]
    checked.__signature__ = signature.replace(parameters=[*kept, *late, *ends])  # type: ignore[attr-defined]
    return checked


def _placed(
    function: Callable[..., Any], args: Collection[Any], late: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a function's arguments by place, with those that are given late, and the late ones that have no place."""
    if not args or not late:
        return tuple(args), dict(late)
    waiting, found, left = list(args), [], dict(late)
    for one in inspect.signature(function).parameters.values():
        if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) or not waiting:
            break
        found.append(left.pop(one.name) if one.name in left else waiting.pop(0))
    return (*found, *waiting), left


class _Decorator(_TaskDecorator[Any, Any, Any]):
    """A decorator whose arguments are checked where they are given, also by `override`, mapped or not."""

    def __attrs_post_init__(self) -> None:
        _check(self.operator_class, self.kwargs)
        super().__attrs_post_init__()  # type: ignore[no-untyped-call]


def _check(operator: type[Any], kwargs: dict[str, Any]) -> None:
    if kwargs.pop("multiple_outputs", None):
        raise TypeError(
            f"{operator.custom_operator_name} has no multiple_outputs: the result is that of the write, one dictionary"
        )
    # What belongs to another source is told when the task is made.
    check_constants(operator, {name: value for name, value in kwargs.items() if name not in _ELSEWHERE})


def _template_fields(operator: type[TableOperator]) -> tuple[str, ...]:
    left_out = {*_ELSEWHERE, "python_callable", "op_kwargs"}
    return (*_OWN_FIELDS, *(name for name in operator.template_fields if name not in left_out))


class _AppendTask(_FunctionTask, IcebergAppendOperator):
    custom_operator_name = "@task.iceberg_append"
    template_fields: Sequence[str] = _template_fields(IcebergAppendOperator)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **IcebergAppendOperator.template_fields_renderers,
        **_FunctionTask.template_fields_renderers,
    }


class _OverwriteTask(_FunctionTask, IcebergOverwriteOperator):
    custom_operator_name = "@task.iceberg_overwrite"
    template_fields: Sequence[str] = _template_fields(IcebergOverwriteOperator)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **IcebergOverwriteOperator.template_fields_renderers,
        **_FunctionTask.template_fields_renderers,
    }


class _MergeTask(_FunctionTask, IcebergMergeOperator):
    custom_operator_name = "@task.iceberg_merge"
    template_fields: Sequence[str] = _template_fields(IcebergMergeOperator)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **IcebergMergeOperator.template_fields_renderers,
        **_FunctionTask.template_fields_renderers,
    }


def append_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """`@task.iceberg_append(table="sales.orders")`: the rows that the function returns are appended, exactly once.

    The function returns an Arrow table, record batch or reader; a frame with the Arrow PyCapsule interface, such as one
    of pandas or Polars; or an iterator of record batches, tables or frames, for example because it is a generator. An
    iterator is written while it is read, one part at a time. The function runs in the task's process, unless an earlier
    try has committed: then it is not called.

    A function with a parameter `spark` gets a session, and `sc` its context, as from `@task.pyspark`, and returns a
    DataFrame. The session's workers write its rows, and the session is stopped in the end.

    Args:
        python_callable: the function, which the decorator gives.
        spark_conn_id: the id of a connection of type `spark` or `spark_connect` for the session; without one it is a
            Spark in the task's process.
        config_kwargs: settings of Spark, `{"spark.driver.memory": "2g"}`, which come before those of the connection.
        kwargs: the arguments of `IcebergAppendOperator`, except those about its source, and those of all operators.
    """
    return _decorator(_AppendTask, python_callable, kwargs)


def overwrite_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """`@task.iceberg_overwrite(table=…, overwrite_filter=…)`: the rows that the function returns replace others.

    The function returns what it may return for `@task.iceberg_append`.

    Args:
        python_callable: the function, which the decorator gives.
        kwargs: the arguments of `IcebergOverwriteOperator`, except those about its source, and those of all operators.
    """
    return _decorator(_OverwriteTask, python_callable, kwargs)


def merge_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """`@task.iceberg_merge(table=…, on=["id"], upsert=True)`: the rows of the function update rows, or are added.

    DuckDB, which has to be installed, runs the merge in the task's process; the merge of a DataFrame is run by its
    session. The function is called once in a try, also if the merge is planned again because another writer has changed
    the same rows: its rows are kept in a file in the table's staging folder meanwhile, unless they are a DataFrame.

    Args:
        python_callable: the function, which the decorator gives.
        kwargs: the arguments of `IcebergMergeOperator`, except those about its source, and those of all operators.
    """
    return _decorator(_MergeTask, python_callable, kwargs)


def _decorator(
    operator: type[_FunctionTask], python_callable: Callable[..., Any] | None, kwargs: dict[str, Any]
) -> TaskDecorator:
    _check(operator, kwargs)

    def decorated(function: Callable[..., Any]) -> Any:
        return _Decorator(function=function, multiple_outputs=False, operator_class=operator, kwargs=dict(kwargs))

    return cast("TaskDecorator", decorated if python_callable is None else decorated(python_callable))
