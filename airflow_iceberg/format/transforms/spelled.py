"""Partition values as people write them: in the form of a partition path, or as a value of the type.

The inverse of `Transform.to_human_string`, and more: `1` for a double, a timestamp where a partition begins. Not here:
how values are written as text (`transform`, `format.values.text`).
"""

import base64
import re

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.transforms.transform import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from airflow_iceberg.format.values import calendar
from airflow_iceberg.format.values.literals import fixed_length, parse_text

_EXAMPLES = {
    YearTransform: "a year like 2026",
    MonthTransform: "a month like 2026-01",
    DayTransform: "a date like 2026-01-01",
    HourTransform: "an hour like 2026-01-01-10",
}
_YEAR = re.compile(r"[+-]?\d{4,9}", re.ASCII)
_MONTH = re.compile(r"([+-]?\d{4,9})-(\d{2})", re.ASCII)
_HOUR = re.compile(r"(.+)-(\d{2})", re.ASCII)
_LATE_YEAR = re.compile(r"\d{5,}-", re.ASCII)
# Paths pad years to four characters, of which the sign of one before year 0 is the first.
_EARLY_YEAR = re.compile(r"-(\d{3})(?=-|$)", re.ASCII)


def is_typed(transform: Transform, source_type: t.IcebergType) -> bool:
    """Tell whether it is known which values a partition field has: not if its column or its transform is unknown."""
    return not isinstance(transform, UnknownTransform) and not isinstance(
        transform.result_type(source_type), t.UnknownType
    )


def spelled_value(transform: Transform, source_type: t.IcebergType, text: str) -> t.Value:
    """Return the partition value that a text spells; one that is not null.

    Raises:
        InvalidInputError: the field cannot have such a value; says what is expected.
    """
    try:
        return _value(transform, source_type, text)
    except (InvalidInputError, ValueError, ArithmeticError) as error:
        raise InvalidInputError(f"expected {_expected(transform, source_type)}") from error


def _value(transform: Transform, source_type: t.IcebergType, text: str) -> t.Value:
    if isinstance(transform, VoidTransform):
        raise ValueError("all values of the field are null")
    is_date = isinstance(transform, TimeTransform) or isinstance(source_type, t.DateType)
    if is_date and _EARLY_YEAR.match(text.strip()):
        text = f"-0{text.strip()[1:]}"
    if isinstance(transform, TimeTransform):
        found = _time_value(transform, source_type, text.strip())
        _check_range(transform, source_type, found)
        return found
    value = _literal(transform.result_type(source_type), text)
    if isinstance(transform, BucketTransform) and not 0 <= value < transform.num_buckets:
        raise ValueError("no such bucket")
    if isinstance(transform, TruncateTransform) and transform.apply(value, source_type) != value:
        raise ValueError("not truncated")
    return value


def _literal(type_: t.IcebergType, text: str) -> t.Value:
    if isinstance(type_, (t.BinaryType, t.FixedType)):
        return fixed_length(type_, base64.b64decode(text, validate=True))
    return parse_text(type_, text)


def _time_value(transform: TimeTransform, source_type: t.IcebergType, text: str) -> int:
    if isinstance(transform, YearTransform) and _YEAR.fullmatch(text):
        return int(text) - calendar.EPOCH_YEAR
    found = _MONTH.fullmatch(text)
    if isinstance(transform, MonthTransform) and found and 1 <= int(found[2]) <= 12:
        return (int(found[1]) - calendar.EPOCH_YEAR) * 12 + int(found[2]) - 1
    # Paths have years after 9999 without the plus sign of ISO 8601.
    text = f"+{text}" if _LATE_YEAR.match(text) else text
    found = _HOUR.fullmatch(text)
    if isinstance(transform, HourTransform) and found and found[1].count("-") > 1 and int(found[2]) < 24:
        return calendar.parse_date(found[1]) * 24 + int(found[2])
    if isinstance(transform, DayTransform) and len(text) < len("2026-01-01T00"):
        return calendar.parse_date(text)
    if not isinstance(source_type, t.PrimitiveType) or isinstance(source_type, t.UnknownType):
        raise ValueError("the column's type is not known")
    start = parse_text(source_type, text)
    value: int = transform.apply(start, source_type)
    if transform.apply(start - 1, source_type) == value:
        raise ValueError("not the beginning of a partition")
    return value


def _check_range(transform: TimeTransform, source_type: t.IcebergType, value: int) -> None:
    """Refuse a time that no value of the column has: 20260101 may be a day without its hyphens, and is no year."""
    if not isinstance(source_type, t.PrimitiveType) or isinstance(source_type, t.UnknownType):
        return
    bits = 31 if isinstance(source_type, t.DateType) else 63
    first, last = -(1 << bits), (1 << bits) - 1
    if isinstance(transform, HourTransform) and isinstance(source_type, t.TimestampType | t.TimestamptzType):
        first, last = -(1 << 31), (1 << 31) - 1  # there are more microseconds than hours in an int
    else:
        first, last = (transform.apply(end, source_type) for end in (first, last))
    if not first <= value <= last:
        raise ValueError("out of range")


def _expected(transform: Transform, source_type: t.IcebergType) -> str:
    if isinstance(transform, VoidTransform):
        return "None, since the values of a void field are null"
    if isinstance(transform, BucketTransform):
        return f"a bucket from 0 to {transform.num_buckets - 1}"
    for kind, example in _EXAMPLES.items():
        if isinstance(transform, kind):
            return example
    type_ = transform.result_type(source_type)
    examples = {
        t.BooleanType: "true or false",
        t.DateType: "a date like 2026-01-01",
        t.BinaryType: "bytes in Base64, as in the partition's path",
        t.FixedType: "bytes in Base64, as in the partition's path",
    }
    plain = examples.get(type(type_), f"a value of type {type_}")
    return f"{plain} that {transform} gives" if isinstance(transform, TruncateTransform) else plain
