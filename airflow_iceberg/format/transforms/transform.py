"""Partition transforms: which partition value a value has.

Here: the transforms of one value, their spec strings, result types and human strings. Not here: transforms of whole
columns (`columns`), how a filter is projected onto a partition (`expressions.projection`), partition specs and paths
(`format.partitions.spec`), the hash function (`murmur3`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.transforms import murmur3
from airflow_iceberg.format.values import calendar
from airflow_iceberg.format.values.numbers import (
    NANOS,
    TIMESTAMPS,
    minimal_bytes,
    scaled,
    units_per_second,
    unscaled,
    wrap,
)
from airflow_iceberg.format.values.text import human_day, human_value

_MAX_PARAMETER = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Transform:
    """A function from a value of the source column to a value of the partition.

    Attributes:
        name: the spec string, of transforms without a parameter.
        preserves_order: whether a ≤ b gives transform(a) ≤ transform(b). For truncate it does not hold for the lowest
            values of int and long, whose truncated value wraps, as in Java.
    """

    name: ClassVar[str] = ""
    preserves_order: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name

    def can_transform(self, source_type: t.IcebergType) -> bool:
        """Tell whether the specification allows the transform for columns of the type; by default all."""
        return True

    def result_type(self, source_type: t.IcebergType) -> t.IcebergType:
        """Return the type of the partition value, by default the source's; a dropped source column is unknown."""
        return source_type

    def apply(self, value: t.Value, source_type: t.IcebergType) -> t.Value:
        """Return the partition value of a canonical value; None stays None.

        Raises:
            InvalidInputError: the transform is not for this type.
        """
        self.check_type(source_type)
        return None if value is None else self._apply(value, source_type)

    def to_human_string(self, value: t.Value, source_type: t.IcebergType) -> str:
        """Return a partition value as text for people and partition paths; None is ``null``.

        Args:
            value: a value of the partition, not of the source column.
            source_type: type of the source column.
        """
        return "null" if value is None else self._human(value, source_type)

    def check_type(self, source_type: t.IcebergType) -> None:
        """Raise InvalidInputError if the transform is not defined for a type."""
        if not self.can_transform(source_type):
            raise InvalidInputError(f"transform {self} is not defined for type {source_type}")

    def _apply(self, value: t.Value, source_type: t.IcebergType) -> t.Value:
        raise NotImplementedError

    def _human(self, value: t.Value, source_type: t.IcebergType) -> str:
        return human_value(value, self.result_type(source_type))


@dataclass(frozen=True, slots=True)
class IdentityTransform(Transform):
    """The value itself."""

    name: ClassVar[str] = "identity"
    preserves_order: ClassVar[bool] = True

    def can_transform(self, source_type: t.IcebergType) -> bool:
        return isinstance(source_type, t.PrimitiveType) and not isinstance(source_type, t.GEOSPATIAL)

    def _apply(self, value: t.Value, source_type: t.IcebergType) -> t.Value:
        return value


@dataclass(frozen=True, slots=True)
class BucketTransform(Transform):
    """The hash of the value without its sign, modulo the number of buckets.

    Spec: Bucket Transform Details; Appendix B has what is hashed of each type.
    """

    num_buckets: int

    def __post_init__(self) -> None:
        _check_parameter("bucket", self.num_buckets)

    def can_transform(self, source_type: t.IcebergType) -> bool:
        allowed = (t.IntegerType, t.LongType, t.DecimalType, t.DateType, t.TimeType, *TIMESTAMPS)
        return isinstance(source_type, (*allowed, t.StringType, t.UUIDType, t.FixedType, t.BinaryType))

    def result_type(self, source_type: t.IcebergType) -> t.IcebergType:
        return t.IntegerType()

    def _apply(self, value: t.Value, source_type: t.IcebergType) -> t.Value:
        # The sign bit is masked: abs() has no result for the smallest integer.
        return (murmur3.hash_bytes(hashed_bytes(value, source_type)) & 0x7FFFFFFF) % self.num_buckets

    def __str__(self) -> str:
        return f"bucket[{self.num_buckets}]"


@dataclass(frozen=True, slots=True)
class TruncateTransform(Transform):
    """Numbers rounded down to a multiple of the width; strings and binaries cut to that many code points or bytes.

    Spec: Truncate Transform Details. The width of a decimal is in units of its last digit.
    """

    width: int
    preserves_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_parameter("truncate", self.width)

    def can_transform(self, source_type: t.IcebergType) -> bool:
        return isinstance(source_type, (t.IntegerType, t.LongType, t.DecimalType, t.StringType, t.BinaryType))

    def _apply(self, value: t.Value, source_type: t.IcebergType) -> t.Value:
        if isinstance(source_type, (t.StringType, t.BinaryType)):
            return value[: self.width]
        if isinstance(source_type, t.DecimalType):
            # The result for the smallest values can exceed the precision: truncate[50] of -9999999.99. It is exact,
            # for planning; code that stores it must check the precision (`partitions.grouping` does).
            number = unscaled(value, source_type.scale)
            return scaled(number - number % self.width, source_type.scale)
        return wrap(value - value % self.width, 64 if isinstance(source_type, t.LongType) else 32)

    def __str__(self) -> str:
        return f"truncate[{self.width}]"


@dataclass(frozen=True, slots=True)
class TimeTransform(Transform):
    """Base of year, month, day and hour: how many of them since the epoch, toward minus infinity, in UTC."""

    preserves_order: ClassVar[bool] = True

    def can_transform(self, source_type: t.IcebergType) -> bool:
        return isinstance(source_type, (t.DateType, *TIMESTAMPS))

    def result_type(self, source_type: t.IcebergType) -> t.IcebergType:
        return t.IntegerType()

    def _apply(self, value: t.Value, source_type: t.IcebergType) -> t.Value:
        # Java casts the result to int; only instants some 245,000 years away make a difference.
        return wrap(self.since_epoch(value, units_per_second(source_type)), 32)

    def since_epoch(self, value: Any, per_second: int | None) -> Any:
        """Return the number of years, months, days or hours since the epoch.

        Args:
            value: an int or a numpy array of int64.
            per_second: units of a second in which value counts; None where it counts days.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class YearTransform(TimeTransform):
    """Years since 1970."""

    name: ClassVar[str] = "year"

    def since_epoch(self, value: Any, per_second: int | None) -> Any:
        return calendar.years_from_days(_days(value, per_second))

    def _human(self, value: t.Value, source_type: t.IcebergType) -> str:
        return f"{calendar.EPOCH_YEAR + value:04}"


@dataclass(frozen=True, slots=True)
class MonthTransform(TimeTransform):
    """Months since January 1970."""

    name: ClassVar[str] = "month"

    def since_epoch(self, value: Any, per_second: int | None) -> Any:
        return calendar.months_from_days(_days(value, per_second))

    def _human(self, value: t.Value, source_type: t.IcebergType) -> str:
        years, month = divmod(value, 12)
        return f"{calendar.EPOCH_YEAR + years:04}-{month + 1:02}"


@dataclass(frozen=True, slots=True)
class DayTransform(TimeTransform):
    """Days since 1970-01-01; the result is a date."""

    name: ClassVar[str] = "day"

    def result_type(self, source_type: t.IcebergType) -> t.IcebergType:
        return t.DateType()

    def since_epoch(self, value: Any, per_second: int | None) -> Any:
        return _days(value, per_second)

    def _human(self, value: t.Value, source_type: t.IcebergType) -> str:
        return human_day(value)


@dataclass(frozen=True, slots=True)
class HourTransform(TimeTransform):
    """Hours since 1970-01-01T00."""

    name: ClassVar[str] = "hour"

    def can_transform(self, source_type: t.IcebergType) -> bool:
        return isinstance(source_type, TIMESTAMPS)

    def since_epoch(self, value: Any, per_second: int | None) -> Any:
        return value // ((per_second or 1) * calendar.SECONDS_PER_HOUR)

    def _human(self, value: t.Value, source_type: t.IcebergType) -> str:
        days, hour = divmod(value, 24)
        return f"{human_day(days)}-{hour:02}"


@dataclass(frozen=True, slots=True)
class VoidTransform(Transform):
    """Always null; replaces a partition field that a version 1 table dropped."""

    name: ClassVar[str] = "void"

    def _apply(self, value: t.Value, source_type: t.IcebergType) -> t.Value:
        return None

    def _human(self, value: t.Value, source_type: t.IcebergType) -> str:
        return "null"


@dataclass(frozen=True, slots=True)
class UnknownTransform(Transform):
    """A transform that this version does not know: files can be read, but neither pruned nor written."""

    text: str

    def result_type(self, source_type: t.IcebergType) -> t.IcebergType:
        # The type is not known. String, as in Java, so that files with such a spec can be read.
        return t.StringType()

    def check_type(self, source_type: t.IcebergType) -> None:
        raise UnsupportedError(f"cannot apply the unknown transform '{self.text}'")

    def _human(self, value: t.Value, source_type: t.IcebergType) -> str:
        return str(value)

    def __str__(self) -> str:
        return self.text


PLAIN_TRANSFORMS: Mapping[str, Transform] = {
    kind.name: kind()
    for kind in (IdentityTransform, YearTransform, MonthTransform, DayTransform, HourTransform, VoidTransform)
}
_WITH_PARAMETER = re.compile(r"(bucket|truncate)\[(\d{1,10})\]", re.IGNORECASE | re.ASCII)


def parse_transform(text: str) -> Transform:
    """Return the transform of a spec string like ``bucket[16]``, an UnknownTransform for others.

    Raises:
        InvalidInputError: the number is out of range, like ``bucket[0]``.
    """
    found = _WITH_PARAMETER.fullmatch(text)
    if not found:
        return PLAIN_TRANSFORMS.get(text.lower()) or UnknownTransform(text)
    number = int(found[2])
    return BucketTransform(number) if found[1].lower() == "bucket" else TruncateTransform(number)


def hashed_bytes(value: t.Value, source_type: t.IcebergType) -> bytes:
    """Return the bytes of a value that are hashed. Spec: Appendix B, 32-bit Hash Requirements.

    An int is hashed like the long of the same value, so that a promotion keeps the buckets; nanoseconds are hashed as
    microseconds.
    """
    if isinstance(source_type, t.StringType):
        return bytes(value, "utf-8")
    if isinstance(source_type, t.UUIDType):
        return bytes(value.bytes)
    if isinstance(source_type, (t.FixedType, t.BinaryType)):
        return bytes(value)
    if isinstance(source_type, t.DecimalType):
        return minimal_bytes(unscaled(value, source_type.scale))
    if isinstance(source_type, NANOS):
        value //= 1000
    return int(value).to_bytes(8, "little", signed=True)


def _days(value: Any, per_second: int | None) -> Any:
    return value if per_second is None else value // (per_second * calendar.SECONDS_PER_DAY)


def _check_parameter(name: str, number: int) -> None:
    if not 1 <= number <= _MAX_PARAMETER:
        raise InvalidInputError(f"invalid transform '{name}[{number}]': the number must be from 1 to {_MAX_PARAMETER}")
