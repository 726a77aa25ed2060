"""Values for the placeholders of a query, ``:name``: which ones a query takes, and their form in a plan.

Here: values as JSON and back. Not here: binding them, which Spark does (`jobs.spark.query`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.json import literal_from_json, literal_to_json

_KINDS = (str, bool, int, float, Decimal, date, datetime, bytes, bytearray)
# What no placeholder is in: texts, quoted names and comments.
_NOT_SQL = re.compile(
    r"""[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)


def checked(
    params: Mapping[str, Any] | None, sql: str, *, mark: str = ":", argument: str = "sql_params"
) -> Mapping[str, Any]:
    """Return the values by name; Spark rejects a placeholder without a value, and ignores a value without placeholder.

    Args:
        mark: what a placeholder begins with.
        argument: what the caller calls the values, for errors.

    Raises:
        InvalidInputError: no names with values, or one that is not a placeholder of the query.
    """
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise InvalidInputError(f"{argument} are a {type(params).__name__}, expected names with values")
    before = re.escape(mark)
    placeholders = set(re.findall(rf"(?<!{before}){before}\s*(\w+)", _NOT_SQL.sub(" ", sql)))
    unused = sorted(str(name) for name in params if name not in placeholders)
    if unused:
        raise InvalidInputError(
            f"{argument} has {', '.join(map(repr, unused))}, and the query has no placeholder {mark}{unused[0]}; a "
            f"placeholder stands without quotes, such as column = {mark}{unused[0]}"
        )
    return params


def to_json(name: str, value: Any, *, dialect: str | None, argument: str = "sql_params") -> Any:
    """Return a value in JSON.

    Args:
        dialect: "duckdb", or else Spark's: whose query it is for.
        argument: as of `checked`.

    Raises:
        InvalidInputError: the engine takes no such value.
    """
    if isinstance(value, list | tuple):
        if not value or any(isinstance(item, list | tuple) for item in value):
            raise InvalidInputError(f"{argument}[{name!r}] is {value!r}, expected a list of one or more single values")
        return ["list", [to_json(name, item, dialect=dialect, argument=argument) for item in value]]
    if hasattr(value, "item") and hasattr(value, "dtype"):
        value = value.item()  # a scalar of numpy
    if value is not None and not isinstance(value, _KINDS):
        raise InvalidInputError(
            f"{argument}[{name!r}] is a {type(value).__name__}, expected text, a number, a truth value, a date, a "
            f"timestamp, bytes, None, or a list of them"
        )
    # To DuckDB it is a timestamp without a zone, which it compares with others as one of UTC, the zone of its session.
    if dialect != "duckdb" and isinstance(value, datetime) and value.utcoffset() is None:
        raise InvalidInputError(
            f"{argument}[{name!r}] is {value.isoformat()!r} without a time zone, which Spark would take for a time of "
            f"the driver's; give it a zone, or bind a text, and write timestamp_ntz(:{name}) in the query"
        )
    bits, engine = (128, "DuckDB") if dialect == "duckdb" else (64, "Spark")
    if isinstance(value, int) and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise InvalidInputError(
            f"{argument}[{name!r}] is {Decimal(value):.3e}, which is no integer of {engine}'s; bind a Decimal"
        )
    try:
        return literal_to_json(_text(value) if isinstance(value, str) else value)
    except UnicodeEncodeError:
        raise InvalidInputError(f"{argument}[{name!r}] is no Unicode text: it has half of a character") from None


def _text(value: str) -> str:
    value.encode()
    return str.__str__(value)


def from_json(name: str, document: Any) -> Any:
    """Return the value of its JSON form.

    Raises:
        InvalidInputError: not such a form.
    """
    try:
        if isinstance(document, list) and document[0] == "list":
            return [literal_from_json(item) for item in document[1]]
        return literal_from_json(document)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InvalidInputError(f"sql_params[{name!r}] is not in the form of a plan: {error!r}") from error
