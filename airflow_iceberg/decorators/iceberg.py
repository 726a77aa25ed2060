"""Functions of a DAG file whose rows are written to a table: the function runs in the task, and returns the rows.

Each decorator makes an operator of the same operation, whose source of rows is the function. Not here: which results
are rows (`data.arrow_rows`), what an operation does (`operations`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import DecoratedOperator, task_decorator_factory

from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.operators.append import IcebergAppendOperator
from airflow_iceberg.operators.merge import IcebergMergeOperator
from airflow_iceberg.operators.overwrite import IcebergOverwriteOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskDecorator
    from airflow.sdk import Context

# Arguments of operators about other sources of rows, and about a job that reads them.
_ELSEWHERE = frozenset(("files", "sql", "sql_params", "inputs", "file_options", "spark_conn_id", "spark_config"))


class _FunctionTask(DecoratedOperator):
    """An operator whose rows are those that its function returns; written in this process, without Spark."""

    custom_operator_name: ClassVar[str]
    # Operators with a source use the same names for a function of a Spark job.
    python_callable: Any
    op_kwargs: Any
    template_fields_renderers: ClassVar[dict[str, str]] = {"op_args": "py", "op_kwargs": "py"}

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
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
        super().__init__(
            python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, spark_conn_id=None, **kwargs
        )
        # An operator with a source has set them to None: it is given no function of a Spark job.
        self.python_callable = python_callable
        self.op_kwargs = op_kwargs or {}
        self._context: Context | None = None

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> None:
        """Render the templates; here `python_callable` is a function on purpose."""
        assert isinstance(self, TableOperator)
        TableOperator.render_template_fields(self, context, jinja_env)

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the rows of the function; it is not called if an earlier try has committed them."""
        self._context = context
        done: dict[str, Any] = super().execute(context)
        return done

    def source(self) -> Any:
        """Return the source of rows, which calls the function."""
        from airflow_iceberg.operations.new_rows import RowsFunction

        return RowsFunction(name=getattr(self.python_callable, "__name__", self.task_id), call=self._call)

    def _call(self) -> Any:
        assert self._context is not None
        known = {**self._context, **self.op_kwargs}
        return self.python_callable(*self.op_args, **self.determine_kwargs(known))


def _template_fields(operator: type[TableOperator]) -> tuple[str, ...]:
    left_out = {*_ELSEWHERE, "python_callable", "op_kwargs"}
    return ("op_args", "op_kwargs", *(name for name in operator.template_fields if name not in left_out))


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

    Args:
        kwargs: the arguments of `IcebergAppendOperator`, except those about its source and about Spark, and those of
            all operators.
    """
    return _decorator(_AppendTask, python_callable, kwargs)


def overwrite_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """`@task.iceberg_overwrite(table=…, overwrite_filter=…)`: the rows that the function returns replace others.

    Args:
        kwargs: the arguments of `IcebergOverwriteOperator`, except those about its source and about Spark, and those of
            all operators.
    """
    return _decorator(_OverwriteTask, python_callable, kwargs)


def merge_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """`@task.iceberg_merge(table=…, on=["id"], upsert=True)`: the rows of the function update rows, or are added.

    DuckDB, which has to be installed, runs the merge in the task's process. The function is called once in a try, also
    if the merge is planned again because another writer has changed the same rows: its rows are kept in a file in the
    table's staging folder meanwhile.

    Args:
        kwargs: the arguments of `IcebergMergeOperator`, except those about its source and about Spark, and those of all
            operators.
    """
    return _decorator(_MergeTask, python_callable, kwargs)


def _decorator(
    operator: type[_FunctionTask], python_callable: Callable[..., Any] | None, kwargs: dict[str, Any]
) -> TaskDecorator:
    if kwargs.pop("multiple_outputs", None):
        raise TypeError(
            f"{operator.custom_operator_name} has no multiple_outputs: the result is that of the write, one dictionary"
        )
    return task_decorator_factory(
        python_callable=python_callable, multiple_outputs=False, decorated_operator_class=operator, **kwargs
    )
