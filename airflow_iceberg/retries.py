"""Which errors Airflow retries, and which fail the task: operators, sensors and triggers all use this module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    FormatError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
    error_class,
)

# No retry can succeed until a person corrects the DAG, the connection, the data or the table. All other errors are
# retried: a retry reads the table first, so that it is safe even if the outcome of this try is unknown; unless the
# table will never tell (`CommitUnknownError.is_final`).
FINAL = (NotFoundError, AlreadyExistsError, InvalidInputError, FormatError, UnsupportedError, IncompatibleChangeError)


def is_final(error: IcebergError) -> bool:
    """Tell whether a retry is useless; an error of an unknown type is retried."""
    return isinstance(error, FINAL) or (isinstance(error, CommitUnknownError) and error.is_final)


def to_airflow(error: IcebergError) -> AirflowException:
    """Return the exception that makes Airflow retry or fail the task, with the same message."""
    kind = AirflowFailException if is_final(error) else AirflowException
    return kind(str(error))


@contextmanager
def airflow_failures() -> Iterator[None]:
    """Turn this package's errors into Airflow's; the original error is the cause."""
    try:
        yield
    except IcebergError as error:
        raise to_airflow(error) from error


def to_event(error: IcebergError) -> dict[str, str]:
    """Return an error as a trigger's event, from which `from_event` restores it in the task."""
    return {"status": "error", "kind": type(error).__name__, "message": str(error)}


def from_event(event: Mapping[str, Any]) -> IcebergError:
    """Return the error in a trigger's event."""
    # A FormatError's path is part of the text already.
    return error_class(event.get("kind", ""))(event.get("message", "the trigger failed without saying why"))
