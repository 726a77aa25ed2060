"""Errors of Spark as IcebergErrors: one readable text, without stack traces and plans."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_iceberg.errors import IcebergError, InvalidInputError, UnsupportedError, advised
from airflow_iceberg.redaction import said

MAX_MESSAGE = 2000
# Spark Connect puts the class of an error that Python has none for before its message: "(org.apache.spark.X) [Y] …".
_SERVER_CLASS = re.compile(r"\((?:\w+\.)+(\w+)\) ")
_INSTALL = (
    "install it there, or set spark.pyspark.python (PYSPARK_PYTHON) to a Python that has it; send your own code with "
    "py_files"
)
# Errors of a request that Spark's server has not answered itself.
_OF_GRPC = ("SparkConnectGrpcException", "_InactiveRpcError", "_MultiThreadedRendezvous")


@contextmanager
def query_errors() -> Iterator[None]:
    """Raise InvalidInputError for a query that Spark rejects."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (ParseException, AnalysisException) as error:
        raise InvalidInputError(f"Spark does not accept the query: {text_of(error)}") from error


def as_iceberg_error(error: Exception) -> IcebergError:
    """Return an error of Spark as an IcebergError."""
    if isinstance(error, IcebergError):
        return error
    if isinstance(error, ImportError):
        # Of our own modules or Spark's: errors of a user's function are handled where it is called.
        return advised(
            UnsupportedError(f"the Python of the driver, {sys.executable}, cannot run the job: {error}"),
            "install the package there, or set spark.pyspark.driver.python (PYSPARK_DRIVER_PYTHON) to a Python that "
            "has it",
        )
    text = text_of(error)
    if text.endswith(_INSTALL):
        # No retry finds it there.
        return advised(UnsupportedError(f"the Spark job failed: {text.removesuffix(f'; {_INSTALL}')}"), _INSTALL)
    return IcebergError(f"the Spark job failed: {text}")


def text_of(error: Exception) -> str:
    """Return class and message of an error, without the stack traces and plans of Spark's messages."""
    cause = _java_cause(error)
    text = str(cause.getMessage()) if cause is not None else grpc_error(error)[1] or str(error)
    name = cause.getClass().getSimpleName() if cause is not None else type(error).__name__
    if of_server := _SERVER_CLASS.match(text):
        name, text = of_server[1], text[of_server.end() :]
    if "Traceback (most recent call last)" in text:
        return _python_error(text)
    for end in ("\nJVM stacktrace", "\n\tat ", "\nDriver stacktrace", "\nThis stopped SparkContext", ";\n", "; line "):
        text = text.split(end, 1)[0]
    return f"{name}: {said(text.strip(), MAX_MESSAGE)}"


def grpc_error(error: Exception) -> tuple[str | None, str]:
    """Return the status code and the details of a request to Spark Connect that failed; (None, "") for other errors."""
    # Spark's error is raised while the request's is handled, and has only the text of its `repr`.
    for each in (error, error.__context__):
        code, details = getattr(each, "code", None), getattr(each, "details", None)
        if type(each).__module__.startswith("grpc") and callable(code) and callable(details):
            return str(code().name), "" if type(error).__name__ not in _OF_GRPC else str(details() or "")
    return None, ""


def _java_cause(error: Exception) -> Any:
    """Return the first cause of an error that came through py4j, None for others.

    In Spark 3.5 "Job aborted due to stage failure" has its cause in the text only, and is returned itself.
    """
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None and not _repeats(cause, cause.getCause()):
        cause = cause.getCause()
    return cause


def _repeats(error: Any, cause: Any) -> bool:
    """Return whether an error contains its cause's message and more, such as the name of a program."""
    is_same = error.getClass().getName() == cause.getClass().getName()
    return is_same and str(cause.getMessage()) in str(error.getMessage())


def _python_error(text: str) -> str:
    """Return the last line of a worker's traceback that starts at the left margin: class and message."""
    after = text.rsplit("Traceback (most recent call last)", 1)[1].splitlines()[1:]
    lines = [line.strip() for line in after if line.strip() and not line[0].isspace()]
    found = lines[0] if lines else text.strip()
    missing = re.match(r"ModuleNotFoundError: No module named '([^']+)'", found)
    if missing:
        return f"the Python of the executors has no package {missing[1]!r}; {_INSTALL}"
    return said(found, MAX_MESSAGE)
