"""Canonical values of what users write: texts, Python dates, numbers. Part of `values`."""

import datetime
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.values import calendar
from airflow_iceberg.format.values.numbers import NANOS, RAW, TIMESTAMPS, WITH_ZONE, scaled, units_per_second

_INT_RANGE = (-(1 << 31), (1 << 31) - 1)
_LONG_RANGE = (-(1 << 63), (1 << 63) - 1)
_MAX_LONG_DIGITS = 40
_MICROS_PER_DAY = calendar.SECONDS_PER_DAY * calendar.MICROS_PER_SECOND


def parse_literal(type_: t.IcebergType, value: Any) -> t.Value:
    """Return the canonical value of what a user wrote for a column: in a filter, in a default, in a test.

    Args:
        type_: type of the column.
        value: a text like ``'2026-01-01'``, or a Python object: date, datetime, time, Decimal, UUID, bytes, a number;
            canonical values are accepted. For a timestamptz, a value without a zone is UTC. None gives None.
    Raises:
        InvalidInputError: not a value of the type, out of its range, or not exact in it (0.125 as a decimal(9, 2)).
    """
    if value is None:
        return None
    if hasattr(value, "item") and hasattr(value, "dtype"):
        # A numpy scalar; its datetimes lose their unit as Python objects, but not as text.
        value = str(value) if value.dtype.kind == "M" else value.item()
    try:
        return parse_text(type_, value) if isinstance(value, str) else _parse_object(type_, value)
    except InvalidInputError:
        raise
    except (ValueError, TypeError, InvalidOperation, OverflowError) as error:
        raise InvalidInputError(f"cannot take {value!r} as a value of type {type_}: {error}") from error


def parse_text(type_: t.IcebergType, text: str) -> t.Value:
    """Return the canonical value of a text.

    Raises:
        InvalidInputError: a type that is not written as text.
        ValueError, ArithmeticError: not a value of the type.
    """
    if "_" in text and not isinstance(type_, t.StringType):
        raise ValueError("unexpected '_'")
    parse = _TEXT_PARSERS.get(type(type_))
    if parse is None:
        raise InvalidInputError(f"cannot take a text as a value of type {type_}")
    return parse(type_, text if isinstance(type_, t.StringType) else text.strip())


def _text_to_boolean(type_: t.IcebergType, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _unicode(text: str) -> str:
    """Return a text; half a surrogate pair, which Python's texts and JSON can have, is no text of UTF-8."""
    if not text.isascii():
        text.encode()
    return text


def _text_to_timestamp(type_: t.IcebergType, text: str) -> int:
    units, offset = calendar.parse_timestamp(text, units_per_second(type_) or 1)
    if offset is not None and not isinstance(type_, WITH_ZONE):
        raise ValueError("the type has no zone; leave the offset out")
    return in_range(type_, units)


_TEXT_PARSERS: Mapping[type[t.IcebergType], Callable[[Any, str], t.Value]] = {
    t.BooleanType: _text_to_boolean,
    t.IntegerType: lambda type_, text: _integral(type_, Decimal(text)),
    t.LongType: lambda type_, text: _integral(type_, Decimal(text)),
    t.FloatType: lambda type_, text: _to_float(type_, float(text)),
    t.DoubleType: lambda type_, text: _to_float(type_, float(text)),
    t.DecimalType: lambda type_, text: to_decimal(type_, Decimal(text)),
    t.DateType: lambda type_, text: in_range(type_, calendar.parse_date(text)),
    t.TimeType: lambda type_, text: calendar.parse_time(text),
    **dict.fromkeys(TIMESTAMPS, _text_to_timestamp),
    t.StringType: lambda type_, text: _unicode(text),
    t.UUIDType: lambda type_, text: uuid.UUID(text),
}


def _parse_object(type_: t.IcebergType, value: Any) -> t.Value:
    if isinstance(type_, t.BooleanType) or isinstance(value, bool):
        return value if isinstance(value, bool) and isinstance(type_, t.BooleanType) else _reject(type_, value)
    if isinstance(type_, (t.IntegerType, t.LongType)):
        return _integral(type_, value)
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        return _to_float(type_, value)
    if isinstance(type_, t.DecimalType):
        return to_decimal(type_, Decimal(repr(value)) if isinstance(value, float) else Decimal(value))
    if isinstance(type_, RAW) and isinstance(value, (bytes, bytearray, memoryview)):
        return fixed_length(type_, bytes(value))
    if isinstance(type_, t.UUIDType):
        return value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=bytes(value))
    if isinstance(type_, (t.DateType, t.TimeType, *TIMESTAMPS)):
        return in_range(type_, value if type(value) is int else _temporal(type_, value))
    return _reject(type_, value)


def _temporal(type_: t.IcebergType, value: Any) -> int:
    """Return a Python date, time or datetime in the units of a type."""
    if isinstance(type_, t.TimeType):
        return _micros_of_day(value) if isinstance(value, datetime.time) and not value.tzinfo else _reject(type_, value)
    if not isinstance(value, datetime.date):
        return _reject(type_, value)
    days, micros, offset = value.toordinal() - datetime.date(1970, 1, 1).toordinal(), 0, None
    if isinstance(value, datetime.datetime):
        micros, offset = _micros_of_day(value), value.utcoffset()
    if isinstance(type_, t.DateType):
        # A datetime is a day only at its start, and only where no zone could make it another one.
        return days if micros == 0 and offset is None else _reject(type_, value)
    if offset is not None and not isinstance(type_, WITH_ZONE):
        raise InvalidInputError(f"cannot take {value!r} as a value of type {type_}: it has a zone, the type has none")
    total = days * _MICROS_PER_DAY + micros - (offset or datetime.timedelta()) // datetime.timedelta(microseconds=1)
    return total * 1000 if isinstance(type_, NANOS) else total


def _micros_of_day(value: Any) -> int:
    seconds = value.hour * calendar.SECONDS_PER_HOUR + value.minute * 60 + value.second
    return int(seconds * calendar.MICROS_PER_SECOND + value.microsecond)


def _integral(type_: t.IcebergType, value: Any) -> int:
    if not isinstance(value, (int, float, Decimal)) or value != value or value in (math.inf, -math.inf):
        return _reject(type_, value)
    if isinstance(value, Decimal) and abs(value.adjusted()) > _MAX_LONG_DIGITS:
        raise InvalidInputError(f"{value} is out of range for type {type_}")
    if value != int(value):
        raise InvalidInputError(f"cannot take {value} as a value of type {type_}: it is not a whole number")
    return in_range(type_, int(value))


def _to_float(type_: t.IcebergType, value: Any) -> float:
    if not isinstance(value, (int, float, Decimal)):
        return _reject(type_, value)
    try:
        number = float(value)
        return single(number) if isinstance(type_, t.FloatType) else number
    except OverflowError:
        raise InvalidInputError(f"{value} is out of range for type {type_}") from None


def single(number: float) -> float:
    """Return the 32-bit float that is nearest to a number; raises OverflowError for a finite one that is too large."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def to_decimal(type_: t.DecimalType, value: Decimal, exact_scale: bool = False) -> Decimal:
    """Return a decimal with exactly the type's scale; with `exact_scale`, the value must have this scale.

    Raises:
        InvalidInputError: not finite, or not exact in the type.
    """
    if not value.is_finite():
        raise InvalidInputError(f"cannot take {value} as a value of type {type_}")
    sign, digits, exponent = value.as_tuple()
    if exact_scale and exponent != -type_.scale:
        raise InvalidInputError(f"{value} has a scale of {-int(exponent)}, expected {type_.scale}")
    # By digits, not by arithmetic: an exponent of a million would take too long.
    text = "".join(map(str, digits)).lstrip("0")
    shift = int(exponent) + type_.scale
    if text and len(text) + shift > type_.precision:
        raise InvalidInputError(f"{value} is out of range for type {type_}")
    if text[shift:].strip("0") if shift < 0 else False:
        raise InvalidInputError(f"{value} has more digits after the point than type {type_} holds")
    number = int(text + "0" * shift if shift >= 0 else text[:shift] or "0") if text else 0
    return scaled(-number if sign else number, type_.scale)


def in_range(type_: t.IcebergType, value: int) -> int:
    """Return the integer itself; raises InvalidInputError if the type cannot hold it."""
    low, high = _INT_RANGE if isinstance(type_, (t.IntegerType, t.DateType)) else _LONG_RANGE
    if isinstance(type_, t.TimeType):
        low, high = 0, _MICROS_PER_DAY - 1
    if not low <= value <= high:
        raise InvalidInputError(f"{value} is out of range for type {type_}")
    return value


def fixed_length(type_: t.IcebergType, data: bytes) -> bytes:
    """Return the bytes themselves; raises InvalidInputError for a fixed of another length."""
    if isinstance(type_, t.FixedType) and len(data) != type_.length:
        raise InvalidInputError(f"{len(data)} bytes do not fit type {type_}")
    return data


def _reject(type_: t.IcebergType, value: Any) -> NoReturn:
    raise InvalidInputError(f"cannot take {value!r} as a value of type {type_}")
