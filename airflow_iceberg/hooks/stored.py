"""What Airflow can store with a DAG: values whose form is the same each time that the DAG is parsed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from numbers import Number
from typing import Any

from airflow_iceberg.errors import InvalidInputError

_STORED = (str, bytes, bool, Number, date, time, timedelta, os.PathLike, type(None))


def check_stored(name: str, value: Any) -> None:
    """Check that Airflow can store the value of an argument; that of another task, or a class or function, is fine.

    Raises:
        InvalidInputError: names the place of a value whose form differs each time that the DAG is parsed.
    """
    if isinstance(value, _STORED) or callable(getattr(value, "resolve", None)) or callable(value):
        return
    if isinstance(value, Mapping):
        for key, one in value.items():
            check_stored(f"{name}[{key!r}]", one)
    elif isinstance(value, Sequence | set | frozenset):
        for one in value:
            check_stored(name, one)
    elif is_dataclass(value):
        for item in fields(value):
            check_stored(f"{name}.{item.name}", getattr(value, item.name))
    elif _is_stored_otherwise(value):
        kind = type(value)
        raise InvalidInputError(
            f"{name} is a {kind.__module__}.{kind.__qualname__}, which Airflow cannot store with the DAG: each parsing "
            f"would be another version of it; give plain values"
        )


def _is_stored_otherwise(value: Any) -> bool:
    kind = type(value)
    is_own = kind.__module__.startswith(("airflow.", "airflow_iceberg."))
    # The text of any object has its address in memory.
    has_address = "__repr__" not in _names_of(kind) and "__str__" not in _names_of(kind)
    return has_address or (callable(getattr(value, "serialize", None)) and not is_own)


def _names_of(kind: type) -> set[str]:
    return {name for owner in kind.__mro__ if owner is not object for name in vars(owner)}
