"""What an error of this package means to Airflow: try the task again, or stop and let a person decide.

The one place where that is decided; operators, sensors and triggers all come through here. What went wrong is said by
`errors`; nothing here looks at the text of a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_iceberg import errors
from airflow_iceberg.errors import (
    AlreadyExistsError,
    FormatError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)

# No later try can end differently while nobody mends the DAG, the connection, the data or the table.
FINAL = (
    NotFoundError,
    AlreadyExistsError,
    InvalidInputError,
    FormatError,
    UnsupportedError,
    IncompatibleChangeError,
)
# All others are worth another try. It looks at the table first, so that it is safe even when it is unknown what became
# of this one.


def is_final(error: IcebergError) -> bool:
    """Whether trying again is pointless; an error of no known kind is worth another try."""
    return isinstance(error, FINAL)


def to_airflow(error: IcebergError) -> AirflowException:
    """Return the exception that makes Airflow do the right thing, with the same message."""
    kind = AirflowFailException if is_final(error) else AirflowException
    return kind(str(error))


@contextmanager
def airflow_failures() -> Iterator[None]:
    """Turn this package's errors into Airflow's on the way out; the original stays chained."""
    try:
        yield
    except IcebergError as error:
        raise to_airflow(error) from error


def to_event(error: IcebergError) -> dict[str, str]:
    """Describe an error in a trigger's event, from which `from_event` makes it again in the task."""
    return {"status": "error", "kind": type(error).__name__, "message": str(error)}


def from_event(event: dict[str, str]) -> IcebergError:
    """Return the error that a trigger described."""
    kind = getattr(errors, event.get("kind", ""), None)
    if not (isinstance(kind, type) and issubclass(kind, IcebergError)):
        kind = IcebergError
    # A FormatError's path is part of the text already.
    return kind(event.get("message", "the trigger failed without saying why"))
