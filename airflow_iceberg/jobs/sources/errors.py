"""Errors of reading a source file, as errors of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_iceberg.errors import IcebergError, NotFoundError, store_error
from airflow_iceberg.jobs.sources.unit import Unit, broken


@contextmanager
def read_errors(unit: Unit) -> Iterator[None]:
    """Raise what reading the unit raises as errors of this package.

    Raises:
        FormatError: a damaged file; `.path` is its location.
        NotFoundError: the file no longer exists.
        StorageError: the file cannot be read.
    """
    try:
        yield
    except IcebergError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError(f"source file {unit.location} no longer exists; it existed when the job started") from error
    except (
        ValueError,
        TypeError,
        EOFError,
        IndexError,
        KeyError,
        NotImplementedError,
        OverflowError,
        RecursionError,
    ) as error:
        # pyarrow.ArrowInvalid is a ValueError; fastavro raises many types for a damaged file.
        raise broken(unit, error) from error
    except OSError as error:
        # pyarrow raises a bare OSError without errno for broken bytes, the operating system one with errno.
        if error.errno is None:
            raise broken(unit, error) from error
        raise store_error(f"cannot read {unit.location}", error) from error
