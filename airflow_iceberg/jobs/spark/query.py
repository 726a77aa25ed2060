"""The rows of a query or a Python callable: a DataFrame, whose rows Spark brings to the tasks."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark.errors import text_of

_ESCAPED = "spark.sql.parser.escapedStringLiterals"


def open_query(source: Source, spark: Any, inputs: Mapping[str, Any] | None = None) -> Any:
    """Return the DataFrame of a query or a callable.

    Args:
        inputs: DataFrames: views of these names for the query, arguments of the callable.

    Raises:
        InvalidInputError: the query is wrong, or in another dialect; the callable does not exist, or returns no
            DataFrame.
        IcebergError: the callable raised.
    """
    if source.kind != "sql":
        return call(source.callable or "", spark, {**(inputs or {}), **source.kwargs})
    if source.dialect != "spark":
        raise InvalidInputError(f"the query is written in the SQL of {source.dialect}, and this is Spark")
    for name, frame in (inputs or {}).items():
        frame.createOrReplaceTempView(name)
    return run_sql(source.sql or "", source.sql_args, spark)


def run_sql(query: str, values: Mapping[str, Any], spark: Any) -> Any:
    """Return the DataFrame of a query with values for its placeholders.

    Raises:
        InvalidInputError: values that Spark cannot bind.
    """
    return spark.sql(query, args=_arguments(values, spark)) if values else spark.sql(query)


def _arguments(values: Mapping[str, Any], spark: Any) -> dict[str, Any]:
    """Return the values that Spark binds to the placeholders of a query.

    Raises:
        InvalidInputError: a session in which a text would be compared with another one, or a list for Spark 3.5.
    """
    from pyspark.sql import functions

    if str(spark.conf.get(_ESCAPED, "false")).lower() == "true":
        # Spark from 4.1 on writes the values into the query, as literals with escapes, and parses it again.
        raise InvalidInputError(
            f"sql_params cannot be bound while {_ESCAPED} is true: a text with a quote would become another one; leave "
            f"the setting out"
        )
    lists = [name for name, value in values.items() if isinstance(value, list)]
    if lists and spark.version.startswith("3."):
        raise InvalidInputError(
            f"sql_params has a list for :{lists[0]}, which Spark {spark.version} cannot bind; use Spark 4, or a "
            f"placeholder for each value"
        )
    return {
        name: functions.array(*map(functions.lit, value)) if isinstance(value, list) else value
        for name, value in values.items()
    }


def call(path: str, spark: Any, kwargs: Mapping[str, Any]) -> Any:
    """Call "package.module:function" with the session and return its DataFrame."""
    function = _load(path)
    try:
        frame = function(spark, **kwargs)
    except IcebergError:
        raise
    except Exception as error:
        frame_summary = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(frame_summary.filename)}:{frame_summary.lineno}"
        raise IcebergError(f"python callable {path} raised {text_of(error)} ({where})") from error
    if not hasattr(frame, "mapInArrow"):
        raise InvalidInputError(f"python callable {path} returned {type(frame).__name__}, expected a Spark DataFrame")
    return frame


def _load(path: str) -> Callable[..., Any]:
    module_name, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidInputError(
            f"cannot import {module_name} of python callable {path} on the Spark driver: {error}; ship it with py_files"
        ) from error
    for name in names.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise InvalidInputError(f"module {module_name} has no function {names}; python callable {path}")
    return found  # type: ignore[no-any-return]


def source_name(source: Source) -> str:
    """Return what messages call the source of a query."""
    return "the query" if source.kind == "sql" else f"python callable {source.callable}"
