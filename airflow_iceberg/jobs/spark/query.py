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


def open_query(source: Source, spark: Any) -> Any:
    """Return the DataFrame of a query or a callable.

    Raises:
        InvalidInputError: the query is wrong, the callable does not exist or returns no DataFrame.
        IcebergError: the callable raised.
    """
    if source.kind == "sql":
        return spark.sql(source.sql)
    return call(source.callable or "", spark, source.kwargs)


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
