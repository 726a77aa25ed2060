"""Literals that users compare with a column, as canonical values of the column's type.

Here: literals of every type, and the predicates that remain when a literal is outside or between the values that its
column can hold (``id > 1.5`` is ``id >= 2``; ``id < 3000000000`` is true of every int). Not here: names and fields
(`binding`), SQL text (`sql`).

Numbers, dates and timestamps are compared as exact rational numbers in the unit of the column, so that rounding never
makes a match. Only literals of float and double columns are rounded to the column's type first: ``f = 0.1`` means the
float that prints as 0.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import inf, nan
from typing import Any
from uuid import UUID

from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.matching import is_nan
from airflow_iceberg.format import types as t
from airflow_iceberg.format.values import calendar
from airflow_iceberg.format.values.literals import single
from airflow_iceberg.format.values.numbers import WITH_ZONE, scaled

NS_PER_DAY = 86_400 * 10**9
_NS_PER_UNIT: dict[type[t.IcebergType], int] = {
    t.DateType: NS_PER_DAY,
    **dict.fromkeys((t.TimeType, t.TimestampType, t.TimestamptzType), 1_000),
    **dict.fromkeys((t.TimestampNsType, t.TimestamptzNsType), 1),
}
_WITHOUT_ZONE = (t.TimestampType, t.TimestampNsType)
# As in Spark: years have a sign if they are before year 0, and may have up to seven digits.
_DAY = re.compile(r"[+-]?\d{4,7}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(
    rf"(?P<date>{_DAY.pattern})"
    r"(?:[T ](?P<time>\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)\s*(?P<zone>Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?",
    re.IGNORECASE | re.ASCII,
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
_SPELLINGS: tuple[tuple[tuple[type[t.IcebergType], ...], str], ...] = (
    ((t.StringType,), "write a string in quotes"),
    ((t.BinaryType, t.FixedType), "write bytes as X'1F'"),
    ((t.BooleanType,), "write true or false"),
    ((t.DateType,), "write a date as '2026-01-31'"),
    ((t.TimeType,), "write a time of day as '12:30:00'"),
    (_WITHOUT_ZONE, "write a timestamp as '2026-01-31 12:30:00'"),
    (WITH_ZONE, "write a timestamp as '2026-01-31 12:30:00+00:00'"),
    ((t.UUIDType,), "write a uuid in quotes, all 36 characters of it"),
)
# Larger exponents would cost memory without limit, and no column holds such numbers.
MAX_EXPONENT = 500
# Characters of a literal in a message.
_MOST_SHOWN = 300


@dataclass(frozen=True, slots=True)
class TypedText:
    """A literal such as ``DATE '2026-01-01'``: text with its type.

    Attributes:
        kind: ``date`` or ``timestamp``.
    """

    kind: str
    text: str


class BoundText(str):
    """A text that was bound to a placeholder: it is to be a value of the column, since its author saw no column.

    ``i = '1.5'`` in SQL selects nothing of an int column; bound to a placeholder, '1.5' is an error.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Exact:
    """A literal between or beyond the values of a column's type, in the unit of the column; maybe infinite."""

    value: Fraction | float


def bind_comparison(op: str, column: tree.Column, literal: Any) -> tree.Expression:
    """Return ``column op literal`` with a canonical literal, or an equal predicate if the column cannot hold it.

    Args:
        column: a bound column.
        literal: the value as the user wrote it; None is SQL's NULL.
    Raises:
        InvalidInputError: the two cannot be compared.
    """
    if literal is None:
        return tree.ALWAYS_FALSE
    value = to_value(column, literal)
    if isinstance(value, Exact):
        if op in ("=", "!="):
            _check_held(column, literal)
        return _fold(op, column, value)
    if is_nan(value):
        return _compare_with_nan(op, column)
    return tree.Comparison(op, column, value)


def bind_in(column: tree.Column, literals: Iterable[Any], *, negated: bool) -> tree.Expression:
    """Return ``column IN (…)`` or ``NOT IN (…)`` with canonical literals.

    ``x NOT IN (1, NULL)`` is never true: it is false for 1 and null for all else.

    Raises:
        InvalidInputError: a literal cannot be compared with the column.
    """
    values = [None if literal is None else _to_value_of_list(column, literal) for literal in literals]
    if negated and None in values:
        return tree.ALWAYS_FALSE
    # A literal that the column cannot hold is equal to none of its values.
    held = [value for value in values if value is not None and not isinstance(value, Exact)]
    numbers = tuple(sorted({value for value in held if not is_nan(value)}))
    if len(numbers) < len(held) and any(map(is_nan, held)):
        rest = bind_in(column, numbers, negated=negated)
        return tree.all_of(_compare_with_nan("!=", column), rest) if negated else tree.any_of(tree.IsNan(column), rest)
    if not numbers:
        return tree.NotNull(column) if negated else tree.ALWAYS_FALSE
    if len(numbers) == 1:
        return tree.Comparison("!=" if negated else "=", column, numbers[0])
    return tree.NotIn(column, numbers) if negated else tree.In(column, numbers)


def _to_value_of_list(column: tree.Column, literal: Any) -> t.Value | Exact:
    value = to_value(column, literal)
    if isinstance(value, Exact):
        _check_held(column, literal)
    return value


def _check_held(column: tree.Column, literal: Any) -> None:
    """Reject a bound text that is none of the values that its column can hold."""
    if isinstance(literal, BoundText):
        raise InvalidInputError(
            f"column '{column}' ({column.type}) holds no value {str(literal)!r}, which is bound to a placeholder, so "
            f"that no row could be equal to it; bind a value of the column's type"
        )


def _compare_with_nan(op: str, column: tree.Column) -> tree.Expression:
    """Compare a float or double column with NaN, which equals itself and is above every number."""
    match op:
        case "=" | ">=":
            return tree.IsNan(column)
        case "!=" | "<":
            return tree.all_of(tree.NotNull(column), tree.NotNan(column))
        case "<=":
            return tree.NotNull(column)
    return tree.ALWAYS_FALSE


def _fold(op: str, column: tree.Column, exact: Exact) -> tree.Expression:
    """Return the predicate that equals a comparison with a value that the column cannot hold."""
    if op == "=":
        return tree.ALWAYS_FALSE
    if op == "!=":
        return tree.NotNull(column)
    if isinstance(column.type, (t.FloatType, t.DoubleType)):
        return _fold_overflow(op, column, positive=exact.value > 0)
    low, high = _range(column.type)
    if exact.value > high:
        return tree.NotNull(column) if op in ("<", "<=") else tree.ALWAYS_FALSE
    if exact.value < low:
        return tree.NotNull(column) if op in (">", ">=") else tree.ALWAYS_FALSE
    floor = exact.value.__floor__()
    if op in ("<", "<="):
        return tree.Comparison("<=", column, _from_units(column.type, floor))
    return tree.Comparison(">=", column, _from_units(column.type, floor + 1))


def _fold_overflow(op: str, column: tree.Column, *, positive: bool) -> tree.Expression:
    """Compare a float or double column with a finite number beyond its largest one, but below infinity."""
    if positive:
        return tree.Comparison("<" if op in ("<", "<=") else ">=", column, inf)
    return tree.Comparison("<=" if op in ("<", "<=") else ">", column, -inf)


def to_value(column: tree.Column, literal: Any) -> t.Value | Exact:
    """Return the canonical value of a literal that is not null, or its exact value where the column holds none such.

    Raises:
        InvalidInputError: the literal cannot be compared with the column.
    """
    kind = column.type
    if isinstance(kind, tuple(_NS_PER_UNIT)):
        return _temporal(column, literal)
    if isinstance(kind, (t.IntegerType, t.LongType, t.DecimalType)):
        return _in_units(kind, _number(column, literal), scale=kind.scale if isinstance(kind, t.DecimalType) else 0)
    if isinstance(kind, (t.FloatType, t.DoubleType)):
        return _floating(column, _number(column, literal))
    if isinstance(kind, t.StringType) and isinstance(literal, str):
        return _text(column, literal)
    if isinstance(kind, t.BooleanType):
        return _boolean(column, literal)
    if isinstance(kind, t.UUIDType):
        return _uuid(column, literal)
    if isinstance(kind, (t.BinaryType, t.FixedType)) and isinstance(literal, (bytes, bytearray)):
        return _binary(column, bytes(literal))
    raise _mismatch(column, literal)


def _number(column: tree.Column, literal: Any) -> Fraction | float:
    """Return a number exactly; infinities and NaN stay floats.

    A float counts as its shortest text, which the user wrote: 0.1, not 0.1000000000000000055.
    """
    if isinstance(literal, bool) or not isinstance(literal, (int, float, Decimal, str)):
        raise _mismatch(column, literal)
    if isinstance(literal, str) and not _is_number(literal, isinstance(column.type, (t.FloatType, t.DoubleType))):
        raise _mismatch(column, literal)
    try:
        number = Decimal(repr(literal) if isinstance(literal, float) else literal)
    except (InvalidOperation, ValueError):
        raise _mismatch(column, literal) from None
    if number.is_nan():
        return nan
    if number.is_infinite() or number.adjusted() > MAX_EXPONENT:
        return -inf if number < 0 else inf
    if number.adjusted() < -MAX_EXPONENT:
        return Fraction(0 if number == 0 else -1 if number < 0 else 1, 10**MAX_EXPONENT)
    return Fraction(number)


def _is_number(text: str, is_floating: bool) -> bool:
    """Tell whether a text is a number in SQL; other forms that Python accepts (``1_0``) are not.

    Only floats and doubles hold NaN and infinities. For other columns such a text is a mistake: ``id < 'nan'`` must
    not select every row.
    """
    text = text.strip()
    return _NUMBER.fullmatch(text) is not None or (is_floating and _NOT_FINITE.fullmatch(text) is not None)


def _in_units(kind: t.IcebergType, number: Fraction | float, *, scale: int = 0) -> t.Value | Exact:
    """Return a number as the column holds it, or exactly in the column's unit if it holds no such number."""
    if number != number:
        return Exact(inf)  # NaN is above every number, like infinity, and these types hold neither
    units = number if isinstance(number, float) else number * 10**scale
    low, high = _range(kind)
    if isinstance(units, float) or units.denominator != 1 or not low <= units <= high:
        return Exact(units)
    return _from_units(kind, units.numerator)


def _from_units(kind: t.IcebergType | None, units: int) -> t.Value:
    if isinstance(kind, t.DecimalType):
        return scaled(units, kind.scale)
    return units


def _range(kind: t.IcebergType | None) -> tuple[int, int]:
    """Return the least and greatest value of a type, in its unit."""
    if isinstance(kind, t.DecimalType):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    bits = 31 if isinstance(kind, (t.IntegerType, t.DateType)) else 63
    return -(2**bits), 2**bits - 1


def _floating(column: tree.Column, number: Fraction | float) -> float | Exact:
    """Round to the column's type; see the module's docstring."""
    if isinstance(number, float):
        return number
    try:
        rounded = number.numerator / number.denominator
        if isinstance(column.type, t.FloatType):
            rounded = single(rounded)
    except OverflowError:
        return Exact(number)
    return rounded + 0.0  # -0.0 becomes 0.0


def _boolean(column: tree.Column, literal: Any) -> bool:
    if isinstance(literal, bool):
        return literal
    if isinstance(literal, str) and literal.strip().lower() in ("true", "false"):
        return literal.strip().lower() == "true"
    raise _mismatch(column, literal)


def _text(column: tree.Column, literal: str) -> str:
    try:
        literal.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"cannot compare column '{column}' (string) with {literal!r}, which is no valid Unicode: {error.reason}"
        ) from None
    return str(literal)


def _uuid(column: tree.Column, literal: Any) -> UUID:
    if isinstance(literal, UUID):
        return literal
    try:
        return UUID(literal)
    except (ValueError, AttributeError, TypeError):
        raise _mismatch(column, literal) from None


def _binary(column: tree.Column, literal: bytes) -> bytes:
    if isinstance(column.type, t.FixedType) and len(literal) != column.type.length:
        raise InvalidInputError(f"cannot compare column '{column}' ({column.type}) with {len(literal)} bytes")
    return literal


def _temporal(column: tree.Column, literal: Any) -> t.Value | Exact:
    """Return a date, time or timestamp in the column's unit since the epoch; without a zone it is UTC."""
    if isinstance(column.type, t.TimeType):
        return _in_units(column.type, Fraction(_time_of_day(column, literal), 1_000))
    text = _temporal_text(column, literal)
    found = _INSTANT.fullmatch(text.strip())
    if found is None:
        raise _mismatch(column, literal)
    if found["zone"] and isinstance(column.type, (*_WITHOUT_ZONE, t.DateType)):
        raise InvalidInputError(
            f"cannot compare column '{column}' ({column.type}), which has no time zone, with '{text}'; "
            "leave out the zone"
        )
    try:
        nanos = calendar.parse_date(found["date"]) * NS_PER_DAY
        of_day = _nanos_of_day(found["time"]) - _offset_ns(found["zone"])
        # Spark casts a text to a date to compare it with a date, and a date to a timestamp for TIMESTAMP '…'.
        nanos += 0 if isinstance(column.type, t.DateType) and isinstance(literal, str) else of_day
    except ValueError as error:
        raise InvalidInputError(f"invalid {column.type} '{text}' compared with column '{column}': {error}") from None
    assert column.type is not None
    return _in_units(column.type, Fraction(nanos, _NS_PER_UNIT[type(column.type)]))


def _temporal_text(column: tree.Column, literal: Any) -> str:
    if isinstance(literal, TypedText):
        # A date is midnight where a timestamp is needed; CAST to a date drops the time.
        day = _DAY.match(literal.text.strip()) if literal.kind == "date" else None
        return literal.text if day is None else day.group()
    if isinstance(literal, (datetime, date)):
        return literal.isoformat()
    if isinstance(literal, str):
        return literal
    raise _mismatch(column, literal)


def _time_of_day(column: tree.Column, literal: Any) -> int:
    text = literal.isoformat() if isinstance(literal, time) and literal.tzinfo is None else literal
    if not isinstance(text, str):
        raise _mismatch(column, literal)
    try:
        return _nanos_of_day(text.strip())
    except ValueError:
        raise _mismatch(column, literal) from None


def _nanos_of_day(text: str | None) -> int:
    """Return nanoseconds since midnight; raises ValueError for a text that is not a time of day."""
    if text is None:
        return 0
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is not a time of day")
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"'{text}' is not a time of day")
    return ((hour * 60 + minute) * 60 + second) * 10**9 + int((found[4] or "0").ljust(9, "0"))


def _offset_ns(zone: str | None) -> int:
    if zone is None or zone.upper() in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    if minutes > 18 * 60:
        raise ValueError(f"'{zone}' is not an offset from UTC")
    return (-1 if zone[0] == "-" else 1) * minutes * 60 * 10**9


def _mismatch(column: tree.Column, literal: Any) -> InvalidInputError:
    shown = f"'{literal.text}'" if isinstance(literal, TypedText) else repr(literal)
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
    if literal is True and not isinstance(column.type, t.BooleanType):
        return InvalidInputError(
            f"cannot compare column '{column}' ({column.type}) with {shown}, and by itself it is no predicate; compare "
            f"it with a value of its type"
        )
    hint = next((f"; {text}" for kinds, text in _SPELLINGS if isinstance(column.type, kinds)), "; write a number")
    is_number = isinstance(literal, int | float | Decimal) and not isinstance(literal, bool)
    # The number may come from a value of a placeholder, which a template was to make a text.
    what = f"; what came is {came(literal)}" if is_number else ""
    return InvalidInputError(f"cannot compare column '{column}' ({column.type}) with {shown}{hint}{what}")
