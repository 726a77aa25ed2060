"""Arguments of operators and sensors in the forms that DAG authors and templates give them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.redaction import secrets_of


def is_nothing(value: Any) -> bool:
    """Tell whether a rendered value is nothing: None, an empty text, list or dictionary, or the text 'None'."""
    return is_empty(value) or (isinstance(value, str) and value.strip() in ("", "None"))


def is_empty(value: Any) -> bool:
    """Tell whether a value is None, or an empty text, list, dictionary or set."""
    return value is None or (isinstance(value, str | list | tuple | dict | set | frozenset) and len(value) == 0)


def timestamp_ms(name: str, value: Any) -> int | None:
    """Return a moment in milliseconds since the epoch, given as a datetime, as ISO text, or as an age before now."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return int(time.time() * 1000) - int(value.total_seconds() * 1000)
    if isinstance(value, str):
        return iso_ms(name, value, instead="a timedelta")
    if not isinstance(value, datetime):
        raise InvalidInputError(f"{name} is {came(value)}, expected a datetime, a timedelta or ISO text")
    return to_ms(value)


def iso_ms(name: str, text: str, *, instead: str) -> int:
    """Return an ISO 8601 time in milliseconds since the epoch.

    Args:
        instead: the other values of the argument, for the error.
    """
    try:
        return to_ms(datetime.fromisoformat(str(text).strip()))
    except ValueError as error:
        raise InvalidInputError(
            f"{name}={text!r}: expected {instead} or a time such as '2026-01-31T00:00:00+00:00'"
        ) from error


def to_ms(moment: datetime) -> int:
    """Return a time in milliseconds since the epoch; UTC if it has no time zone."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # By way of microseconds, which a float holds exactly; logical dates are pendulum's, whose differences are not ours.
    return round(moment.timestamp() * 1_000_000) // 1000


def whole_number(name: str, value: Any) -> int | None:
    """Return a whole number, given as one or as text."""
    if value is None:
        return None
    try:
        if isinstance(value, bool | float):
            raise ValueError
        return int(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} is {value!r}, expected a whole number") from error


def seconds(name: str, value: Any) -> float | None:
    """Return a length of time in seconds, given as a timedelta, as a number, or as its text."""
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        found = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} is {value!r}, expected a timedelta or a number of seconds") from error
    if not 0 < found < float("inf"):
        raise InvalidInputError(f"{name} is {value!r}, expected a length of time above 0")
    return found


def interval_s(name: str, value: Any) -> float:
    """Return a length of time in seconds, as `seconds` does, that may not be left out."""
    found = seconds(name, value)
    if found is None:
        raise InvalidInputError(f"{name} is None, expected a timedelta or a number of seconds")
    return found


def from_json(name: str, expected: str, value: Any) -> Any:
    """Return a value, parsed if a template made it text.

    Args:
        expected: the expected value, for the error.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise InvalidInputError(f"{name} is not {expected}: {error}") from error


def names(name: str, value: Any) -> tuple[str, ...] | None:
    """Return names, given as a list, as its JSON text, or as one text with commas; None for none."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = from_json(name, "a list of names", value)
    if value is None:
        return None
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, Sequence):
        raise InvalidInputError(f"{name} is {came(value)}, expected a list of names")
    return tuple(str(each) for each in value)


def mask_secrets(arguments: Mapping[str, Any]) -> None:
    """Mask the secrets in arguments of a task in all that Airflow logs, stores and shows of it from here on."""
    from airflow.sdk.log import mask_secret

    for name, value in arguments.items():
        given = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        text = given if isinstance(given, str) else json.dumps(given, default=str)
        for secret in secrets_of({name: text}):
            mask_secret(secret)
