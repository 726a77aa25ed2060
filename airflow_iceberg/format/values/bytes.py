"""One value: as the bytes of bounds and partition summaries, as JSON, as a user's literal, as a bound.

Not here: which columns get bounds (`data.write.metrics`), values as Arrow (`arrow`), human strings (`transforms`).
"""

import math
import struct
import sys
import uuid
from collections.abc import Hashable, Mapping

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.values import calendar, variant
from airflow_iceberg.format.values.json import from_json, to_json
from airflow_iceberg.format.values.literals import parse_literal, single
from airflow_iceberg.format.values.numbers import RAW, TIMESTAMPS, minimal_bytes, scaled, units_per_second, unscaled

__all__ = [
    "canonical_key",
    "from_bytes",
    "from_json",
    "lower_bound",
    "parse_literal",
    "single",
    "to_bytes",
    "to_json",
    "upper_bound",
]


# --- bytes: Appendix D, Binary single-value serialization -------------------------------------------------------------


def to_bytes(type_: t.IcebergType, value: t.Value) -> bytes:
    """Return the single-value serialization of a canonical value.

    Raises:
        InvalidInputError: the value is out of the type's range.
        UnsupportedError: a nested type; these have no bounds.
    Spec: Appendix D, Binary single-value serialization.
    """
    try:
        return _to_bytes(type_, value)
    except (struct.error, OverflowError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"cannot write {value!r} as {type_}") from error


def _to_bytes(type_: t.IcebergType, value: t.Value) -> bytes:
    if isinstance(type_, t.StringType):
        return bytes(value, "utf-8")
    if isinstance(type_, t.VariantType):
        return b"".join(value)
    if isinstance(type_, RAW):
        return bytes(value)
    if isinstance(type_, t.DecimalType):
        return minimal_bytes(unscaled(value, type_.scale))
    if isinstance(type_, t.UUIDType):
        return bytes(value.bytes)
    layout = _LAYOUTS.get(type(type_))
    if layout is None:
        raise UnsupportedError(f"a value of type {type_} has no single-value form in bytes")
    return struct.pack(layout, value)


_LAYOUTS: Mapping[type[t.IcebergType], str] = {
    t.BooleanType: "<?",
    **dict.fromkeys((t.IntegerType, t.DateType), "<i"),
    **dict.fromkeys((t.LongType, t.TimeType, *t.TIMESTAMPS), "<q"),
    t.FloatType: "<f",
    t.DoubleType: "<d",
}


def from_bytes(type_: t.IcebergType, data: bytes) -> t.Value:
    """Return the value of a single-value serialization.

    The promotion of a column does not change its bounds: four bytes of a long are an int, of a double a float, of a
    timestamp a date.

    Raises:
        FormatError: the length fits neither the type nor one it was promoted from.
        UnsupportedError: a nested type.
    """
    try:
        return _from_bytes(type_, bytes(data))
    except (struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"cannot read {len(data)} bytes as a value of type {type_}: {error}") from error


def _from_bytes(type_: t.IcebergType, data: bytes) -> t.Value:
    if isinstance(type_, t.StringType):
        return data.decode("utf-8")
    if isinstance(type_, t.UnknownType):
        return None
    if isinstance(type_, t.VariantType):
        return variant.split(data)
    if isinstance(type_, RAW):
        return data
    if isinstance(type_, t.DecimalType):
        return scaled(int.from_bytes(data, "big", signed=True), type_.scale)
    if isinstance(type_, t.UUIDType):
        if len(data) != 16:
            raise struct.error("expected 16 bytes")
        return uuid.UUID(bytes=data)
    layout = _LAYOUTS.get(type(type_))
    if layout is None:
        raise UnsupportedError(f"a value of type {type_} has no single-value form in bytes")
    if len(data) == 4 and isinstance(type_, TIMESTAMPS):
        seconds = int(struct.unpack("<i", data)[0]) * calendar.SECONDS_PER_DAY
        return seconds * (units_per_second(type_) or 1)
    if len(data) == 4:
        layout = {"<q": "<i", "<d": "<f"}.get(layout, layout)
    return struct.unpack(layout, data)[0]


# --- bounds -----------------------------------------------------------------------------------------------------------


def lower_bound(type_: t.IcebergType, value: t.Value, length: int | None = None) -> t.Value | None:
    """Return a value that is not above the given minimum, short enough for a lower bound.

    Args:
        value: the least value of a column; None gives None.
        length: code points or bytes to keep of a string or binary; None keeps all. Other types are never cut.
    Returns:
        None where there is no bound: for NaN. A zero becomes −0.0, which sorts below 0.0.
    """
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        return _float_bound(value, -0.0)
    if value is None or length is None or not isinstance(type_, (t.StringType, t.BinaryType)):
        return value
    return value[:length]


def upper_bound(type_: t.IcebergType, value: t.Value, length: int | None = None) -> t.Value | None:
    """Return a value that is not below the given maximum, short enough for an upper bound.

    Args:
        value: the greatest value of a column; None gives None.
        length: code points or bytes to keep of a string or binary; None keeps all.
    Returns:
        A truncated value has its last possible character or byte incremented. None where there is no bound: for NaN,
        and where nothing can be incremented. A zero becomes 0.0, which sorts above −0.0.
    """
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        return _float_bound(value, 0.0)
    if value is None or length is None or not isinstance(type_, (t.StringType, t.BinaryType)) or len(value) <= length:
        return value
    return _raise_text(value[:length]) if isinstance(type_, t.StringType) else _raise_bytes(value[:length])


def _float_bound(value: float | None, zero: float) -> float | None:
    if value is None or math.isnan(value):
        return None
    return zero if value == 0 else value


def _raise_text(text: str) -> str | None:
    for last in range(len(text) - 1, -1, -1):
        code = ord(text[last]) + 1
        # U+D800 to U+DFFF are halves of surrogate pairs and no characters.
        code = 0xE000 if 0xD800 <= code <= 0xDFFF else code
        if code <= sys.maxunicode:
            return text[:last] + chr(code)
    return None


def _raise_bytes(data: bytes) -> bytes | None:
    for last in range(len(data) - 1, -1, -1):
        if data[last] < 0xFF:
            return data[:last] + bytes([data[last] + 1])
    return None


# --- equality ---------------------------------------------------------------------------------------------------------


def canonical_key(value: t.Value) -> Hashable:
    """Return a hashable key that is equal exactly where two values of one type are the same.

    Floats are compared by their bits: 0.0 and −0.0 differ, and every NaN is the same.
    """
    if isinstance(value, float):
        return ("float", "NaN" if math.isnan(value) else struct.pack("<d", value))
    if isinstance(value, (tuple, list)):
        return tuple(canonical_key(item) for item in value)
    if isinstance(value, dict):
        return frozenset((canonical_key(key), canonical_key(item)) for key, item in value.items())
    return value if isinstance(value, Hashable) else bytes(value)
