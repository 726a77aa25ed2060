"""Values as text for people, formatted like Java: this is their form in partition paths."""

import base64
import math
from contextlib import suppress

from airflow_iceberg.format import types as t
from airflow_iceberg.format.values import calendar
from airflow_iceberg.format.values.literals import single as nearest_single
from airflow_iceberg.format.values.numbers import TIMESTAMPS, WITH_ZONE, units_per_second


def human_value(value: t.Value, type_: t.IcebergType) -> str:
    """Return a value of a type as Java writes it in partition paths, before the URL encoding."""
    if value is None:
        return "null"
    if isinstance(type_, t.DateType):
        return human_day(value)
    if isinstance(type_, t.TimeType):
        return _human_time(value)
    if isinstance(type_, TIMESTAMPS):
        zone = "+00:00" if isinstance(type_, WITH_ZONE) else ""
        return calendar.format_timestamp(value, units_per_second(type_) or 1) + zone
    if isinstance(type_, (t.FixedType, t.BinaryType)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        return java_float(value, single=isinstance(type_, t.FloatType))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def human_day(days: int) -> str:
    """Return a date with a year of at least four digits, without the plus sign of ISO 8601 beyond 9999."""
    year, month, day = calendar.civil_from_days(days)
    return f"{year:04}-{month:02}-{day:02}"


def _human_time(micros: int) -> str:
    """Return a time as Java's LocalTime does: seconds only where needed, the fraction in groups of three digits."""
    text = calendar.format_time(micros)
    time, _, fraction = text.partition(".")
    if fraction:
        return f"{time}.{fraction.ljust(-(-len(fraction) // 3) * 3, '0')}"
    return time.removesuffix(":00") if time.endswith(":00") else time


def java_float(value: float, *, single: bool) -> str:
    """Return a float (`single`) or double as Java's `toString` gives it: 1.5, 1.0E300, -0.0, NaN, Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    digits, exponent = _shortest(abs(value), single)
    if value == 0 or -3 <= exponent < 7:
        return sign + _plain(digits, exponent)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float, single: bool) -> tuple[str, int]:
    """Return the fewest digits that give the number back, and the exponent of the first of them."""
    text = f"{value:e}" if value == 0 else _shortest_single(value) if single else f"{value!r}"
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) - 1 + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    return digits.rstrip("0") or "0", point if digits else 0


def _shortest_single(value: float) -> str:
    for precision in range(8):
        text = f"{value:.{precision}e}"
        with suppress(OverflowError):
            if nearest_single(float(text)) == value:
                return text
    return f"{value:.8e}"


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits}"
    padded = digits.ljust(exponent + 1, "0")
    return f"{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"
