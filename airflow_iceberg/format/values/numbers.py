"""Values as the integers behind them: units of a timestamp, digits of a decimal, two's complement."""

from decimal import Decimal

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.values import calendar

NANOS = (t.TimestampNsType, t.TimestamptzNsType)
TIMESTAMPS = t.TIMESTAMPS
WITH_ZONE = (t.TimestamptzType, t.TimestamptzNsType)
RAW = (t.FixedType, t.BinaryType, *t.GEOSPATIAL)
"""The types whose canonical value is the bytes themselves."""


def units_per_second(source_type: t.IcebergType) -> int | None:
    """Return how many units of a timestamp's value make a second; None for a date, which counts days."""
    if isinstance(source_type, t.DateType):
        return None
    return calendar.NANOS_PER_SECOND if isinstance(source_type, NANOS) else calendar.MICROS_PER_SECOND


def minimal_bytes(number: int) -> bytes:
    """Return the shortest big-endian two's complement of an integer."""
    bits = number if number >= 0 else ~number
    return number.to_bytes(bits.bit_length() // 8 + 1, "big", signed=True)


def unscaled(value: Decimal, scale: int) -> int:
    """Return a decimal in units of its last digit.

    Raises:
        InvalidInputError: not a finite number, or one with more digits after the point than the scale.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent + scale < 0:
        raise InvalidInputError(f"{value} is not exact with {scale} digits after the point")
    number = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return -number if sign else number


def scaled(number: int, scale: int) -> Decimal:
    """Return the decimal of that many units of its last digit, exactly, whatever the context's precision."""
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def wrap(value: int, bits: int) -> int:
    """Return an integer as Java casts it to that many bits: numbers that are too large wrap."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half
