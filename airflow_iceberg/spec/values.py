"""One value: as the bytes of bounds and partition summaries, as JSON, as a literal that people write, as a bound.

Not here: which columns get bounds (`data.metrics`), values as Arrow (`arrow`), human strings of partitions (`transforms`).
"""

import datetime
import math
import struct
import sys
import uuid
from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.spec import _calendar
from airflow_iceberg.spec._fields import json_type_name
from airflow_iceberg.spec.transforms import minimal_bytes, scaled, units_per_second, unscaled
from airflow_iceberg.spec.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
    Value,
    VariantType,
)

TIMESTAMPS = (TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)
_WITH_ZONE = (TimestamptzType, TimestamptzNsType)
_RAW = (FixedType, BinaryType, GeometryType, GeographyType, VariantType)
_INT_RANGE = (-(1 << 31), (1 << 31) - 1)
_LONG_RANGE = (-(1 << 63), (1 << 63) - 1)
_MICROS_PER_DAY = _calendar.SECONDS_PER_DAY * _calendar.MICROS_PER_SECOND


# --- bytes: Appendix D, Binary single-value serialization -------------------------------------------------------------


def to_bytes(type_: IcebergType, value: Value) -> bytes:
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


def _to_bytes(type_: IcebergType, value: Value) -> bytes:
    if isinstance(type_, StringType):
        return bytes(value, "utf-8")
    if isinstance(type_, _RAW):
        return bytes(value)
    if isinstance(type_, DecimalType):
        return minimal_bytes(unscaled(value, type_.scale))
    if isinstance(type_, UUIDType):
        return bytes(value.bytes)
    layout = _LAYOUTS.get(type(type_))
    if layout is None:
        raise UnsupportedError(f"a value of type {type_} has no single-value form in bytes")
    return struct.pack(layout, value)


_LAYOUTS: Mapping[type[IcebergType], str] = {
    BooleanType: "<?",
    IntegerType: "<i",
    DateType: "<i",
    LongType: "<q",
    TimeType: "<q",
    TimestampType: "<q",
    TimestamptzType: "<q",
    TimestampNsType: "<q",
    TimestamptzNsType: "<q",
    FloatType: "<f",
    DoubleType: "<d",
}


def from_bytes(type_: IcebergType, data: bytes) -> Value:
    """Return the value of a single-value serialization.

    Bounds stay as they were written when a column is promoted: four bytes of a long are an int, of a double a float,
    of a timestamp a date.

    Raises:
        FormatError: the length fits neither the type nor one it was promoted from.
        UnsupportedError: a nested type.
    """
    try:
        return _from_bytes(type_, bytes(data))
    except (struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"cannot read {len(data)} bytes as a value of type {type_}: {error}") from error


def _from_bytes(type_: IcebergType, data: bytes) -> Value:
    if isinstance(type_, StringType):
        return data.decode("utf-8")
    if isinstance(type_, UnknownType):
        return None
    if isinstance(type_, _RAW):
        return data
    if isinstance(type_, DecimalType):
        return scaled(int.from_bytes(data, "big", signed=True), type_.scale)
    if isinstance(type_, UUIDType):
        if len(data) != 16:
            raise struct.error("expected 16 bytes")
        return uuid.UUID(bytes=data)
    layout = _LAYOUTS.get(type(type_))
    if layout is None:
        raise UnsupportedError(f"a value of type {type_} has no single-value form in bytes")
    if len(data) == 4 and isinstance(type_, TIMESTAMPS):
        seconds = int(struct.unpack("<i", data)[0]) * _calendar.SECONDS_PER_DAY
        return seconds * (units_per_second(type_) or 1)
    if len(data) == 4:
        layout = {"<q": "<i", "<d": "<f"}.get(layout, layout)
    return struct.unpack(layout, data)[0]


# --- JSON: Appendix D, JSON single-value serialization ----------------------------------------------------------------


def to_json(type_: IcebergType, value: Value) -> Any:
    """Return the JSON single value of a canonical value, as for defaults. None gives None.

    NaN and the infinities become the strings ``NaN``, ``Infinity`` and ``-Infinity``, since JSON has no numbers for them.

    Raises:
        UnsupportedError: variant, geometry and geography have no JSON form here.
    Spec: Appendix D, JSON single-value serialization.
    """
    if value is None:
        return None
    if isinstance(type_, StructType):
        members = zip(type_.fields, value, strict=True)
        return {str(child.id): to_json(child.type, item) for child, item in members if item is not None}
    if isinstance(type_, ListType):
        return [to_json(type_.element, item) for item in value]
    if isinstance(type_, MapType):
        keys = [to_json(type_.key, key) for key in value]
        return {"keys": keys, "values": [to_json(type_.value, item) for item in value.values()]}
    return _primitive_to_json(type_, value)


def _primitive_to_json(type_: IcebergType, value: Value) -> Any:
    if isinstance(type_, (BooleanType, IntegerType, LongType, StringType)):
        return value
    if isinstance(type_, (FloatType, DoubleType)):
        return value if math.isfinite(value) else _special_float(value)
    if isinstance(type_, DecimalType):
        return format(value, "f")
    if isinstance(type_, UUIDType):
        return str(value)
    if isinstance(type_, (FixedType, BinaryType)):
        return bytes(value).hex()
    if isinstance(type_, DateType):
        return _calendar.format_date(value)
    if isinstance(type_, TimeType):
        return _calendar.format_time(value)
    if isinstance(type_, TIMESTAMPS):
        text = _calendar.format_timestamp(value, units_per_second(type_) or 1)
        return f"{text}+00:00" if isinstance(type_, _WITH_ZONE) else text
    raise UnsupportedError(f"a value of type {type_} has no JSON form")


def _special_float(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def from_json(type_: IcebergType, json: Any, *, path: str | None = None, where: str = "value") -> Value:
    """Return the canonical value of a JSON single value. None gives None.

    Args:
        json: as `to_json` gives it; hexadecimal digits may be of either case.
        path: location of the file, for errors.
        where: place inside the document, for errors.
    Raises:
        FormatError: not a value of the type.
        UnsupportedError: a type without a JSON form.
    """
    try:
        return _from_json(type_, json)
    except (InvalidInputError, ValueError, TypeError, InvalidOperation) as error:
        raise FormatError(f"cannot read {json!r} as a value of type {type_} in '{where}': {error}", path=path) from error


def _from_json(type_: IcebergType, json: Any) -> Value:
    if json is None:
        return None
    if isinstance(type_, StructType):
        known = _expect(json, dict)
        return tuple(_from_json(child.type, known.get(str(child.id))) for child in type_.fields)
    if isinstance(type_, ListType):
        return tuple(_from_json(type_.element, item) for item in _expect(json, list))
    if isinstance(type_, MapType):
        keys = [_hashable(_from_json(type_.key, key)) for key in _expect(_expect(json, dict).get("keys"), list)]
        values = [_from_json(type_.value, item) for item in _expect(json.get("values"), list)]
        return dict(zip(keys, values, strict=True))
    return _primitive_from_json(type_, json)


def _primitive_from_json(type_: IcebergType, json: Any) -> Value:
    if isinstance(type_, BooleanType):
        return _expect(json, bool)
    if isinstance(type_, (IntegerType, LongType)):
        return _in_range(type_, _expect(json, int))
    if isinstance(type_, (FloatType, DoubleType)):
        special = json in ("NaN", "Infinity", "-Infinity")
        number = float(json) if special or type(json) is int else _expect(json, float)
        return single(number) if isinstance(type_, FloatType) else number
    text = _expect(json, str)
    if isinstance(type_, (FixedType, BinaryType)):
        return _fixed_length(type_, bytes.fromhex(text))
    if isinstance(type_, DecimalType):
        return _decimal(type_, Decimal(text), exact_scale=True)
    if isinstance(type_, UUIDType) and len(text) != 36:
        raise ValueError("expected 36 characters")
    if isinstance(type_, TIMESTAMPS):
        return _timestamp_from_json(type_, text)
    if isinstance(type_, (StringType, UUIDType, DateType, TimeType)):
        return _parse_text(type_, text)
    raise UnsupportedError(f"a value of type {type_} has no JSON form")


def _timestamp_from_json(type_: IcebergType, text: str) -> int:
    units, offset = _calendar.parse_timestamp(text, units_per_second(type_) or 1)
    if offset != (0 if isinstance(type_, _WITH_ZONE) else None):
        raise ValueError("the offset must be +00:00" if isinstance(type_, _WITH_ZONE) else "no offset is allowed")
    return _in_range(type_, units)


def _expect(json: Any, kind: type) -> Any:
    if type(json) is not kind:
        raise ValueError(f"unexpected type {json_type_name(json)} (expected {json_type_name(kind())})")
    return json


def _hashable(value: Value) -> Value:
    return canonical_key(value) if isinstance(value, dict) else value


# --- literals that people write ---------------------------------------------------------------------------------------


def parse_literal(type_: IcebergType, value: Any) -> Value:
    """Return the canonical value of what a person wrote for a column: in a filter, in a default, in a test.

    Args:
        type_: type of the column.
        value: a text like ``'2026-01-01'``, or a Python object: date, datetime, time, Decimal, UUID, bytes, a number;
            canonical values are fine. For a timestamptz, what has no zone is UTC. None gives None.
    Raises:
        InvalidInputError: not a value of the type, out of its range, or not exact in it (0.125 as a decimal(9, 2)).
    """
    if value is None:
        return None
    if not isinstance(value, str) and hasattr(value, "item") and hasattr(value, "dtype"):
        value = value.item()  # a numpy scalar
    try:
        return _parse_text(type_, value) if isinstance(value, str) else _parse_object(type_, value)
    except InvalidInputError:
        raise
    except (ValueError, TypeError, InvalidOperation, OverflowError) as error:
        raise InvalidInputError(f"cannot take {value!r} as a value of type {type_}: {error}") from error


def _parse_text(type_: IcebergType, text: str) -> Value:
    parse = _TEXT_PARSERS.get(type(type_))
    if parse is None:
        raise InvalidInputError(f"cannot take a text as a value of type {type_}")
    return parse(type_, text if isinstance(type_, StringType) else text.strip())


def _text_to_boolean(type_: IcebergType, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _text_to_float(type_: IcebergType, text: str) -> float:
    return _to_float(type_, float(text))


def _text_to_timestamp(type_: IcebergType, text: str) -> int:
    units, offset = _calendar.parse_timestamp(text, units_per_second(type_) or 1)
    if offset is not None and not isinstance(type_, _WITH_ZONE):
        raise ValueError("the type has no zone; leave the offset out")
    return _in_range(type_, units)


_TEXT_PARSERS: Mapping[type[IcebergType], Callable[[Any, str], Value]] = {
    BooleanType: _text_to_boolean,
    IntegerType: lambda type_, text: _integral(type_, Decimal(text)),
    LongType: lambda type_, text: _integral(type_, Decimal(text)),
    FloatType: _text_to_float,
    DoubleType: _text_to_float,
    DecimalType: lambda type_, text: _decimal(type_, Decimal(text)),
    DateType: lambda type_, text: _in_range(type_, _calendar.parse_date(text)),
    TimeType: lambda type_, text: _calendar.parse_time(text),
    TimestampType: _text_to_timestamp,
    TimestamptzType: _text_to_timestamp,
    TimestampNsType: _text_to_timestamp,
    TimestamptzNsType: _text_to_timestamp,
    StringType: lambda type_, text: text,
    UUIDType: lambda type_, text: uuid.UUID(text),
}


def _parse_object(type_: IcebergType, value: Any) -> Value:
    if isinstance(type_, BooleanType) or isinstance(value, bool):
        return value if isinstance(value, bool) and isinstance(type_, BooleanType) else _reject(type_, value)
    if isinstance(type_, (IntegerType, LongType)):
        return _integral(type_, value)
    if isinstance(type_, (FloatType, DoubleType)):
        return _to_float(type_, value)
    if isinstance(type_, DecimalType):
        return _decimal(type_, Decimal(repr(value)) if isinstance(value, float) else Decimal(value))
    if isinstance(type_, _RAW) and isinstance(value, (bytes, bytearray, memoryview)):
        return _fixed_length(type_, bytes(value))
    if isinstance(type_, UUIDType):
        return value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=bytes(value))
    if isinstance(type_, (DateType, TimeType, *TIMESTAMPS)):
        return _in_range(type_, value if type(value) is int else _temporal(type_, value))
    return _reject(type_, value)


def _temporal(type_: IcebergType, value: Any) -> int:
    """Return a Python date, time or datetime in the units of a type."""
    if isinstance(type_, TimeType):
        return _micros_of_day(value) if isinstance(value, datetime.time) and not value.tzinfo else _reject(type_, value)
    if not isinstance(value, datetime.date):
        return _reject(type_, value)
    days, micros, offset = value.toordinal() - datetime.date(1970, 1, 1).toordinal(), 0, None
    if isinstance(value, datetime.datetime):
        micros, offset = _micros_of_day(value), value.utcoffset()
    if isinstance(type_, DateType):
        # A datetime is a day only at its start, and only where no zone could make it another one.
        return days if micros == 0 and offset is None else _reject(type_, value)
    if offset is not None and not isinstance(type_, _WITH_ZONE):
        raise InvalidInputError(f"cannot take {value!r} as a value of type {type_}: it has a zone, the type has none")
    total = days * _MICROS_PER_DAY + micros - (offset or datetime.timedelta()) // datetime.timedelta(microseconds=1)
    return total * 1000 if isinstance(type_, (TimestampNsType, TimestamptzNsType)) else total


def _micros_of_day(value: Any) -> int:
    seconds = value.hour * _calendar.SECONDS_PER_HOUR + value.minute * 60 + value.second
    return int(seconds * _calendar.MICROS_PER_SECOND + value.microsecond)


def _integral(type_: IcebergType, value: Any) -> int:
    if not isinstance(value, (int, float, Decimal)) or value != value or value in (math.inf, -math.inf):
        return _reject(type_, value)
    if value != int(value):
        raise InvalidInputError(f"cannot take {value} as a value of type {type_}: it is not a whole number")
    return _in_range(type_, int(value))


def _to_float(type_: IcebergType, value: Any) -> float:
    if not isinstance(value, (int, float, Decimal)):
        return _reject(type_, value)
    try:
        number = float(value)
        return single(number) if isinstance(type_, FloatType) else number
    except OverflowError:
        raise InvalidInputError(f"{value} is out of range for type {type_}") from None


def single(number: float) -> float:
    """Return the 32-bit float that is nearest to a number.

    Raises:
        OverflowError: a finite number that is too large.
    """
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _decimal(type_: DecimalType, value: Decimal, exact_scale: bool = False) -> Decimal:
    if not value.is_finite():
        raise InvalidInputError(f"cannot take {value} as a value of type {type_}")
    exponent = int(value.as_tuple().exponent)
    if exact_scale and exponent != -type_.scale:
        raise InvalidInputError(f"{value} has a scale of {-exponent}, expected {type_.scale}")
    if exponent > type_.precision and value:
        raise InvalidInputError(f"{value} is out of range for type {type_}")
    ratio = value.as_integer_ratio()
    number, rest = divmod(ratio[0] * 10**type_.scale, ratio[1])
    if rest:
        raise InvalidInputError(f"{value} has more digits after the point than type {type_} holds")
    if abs(number) >= 10**type_.precision:
        raise InvalidInputError(f"{value} is out of range for type {type_}")
    return scaled(number, type_.scale)


def _in_range(type_: IcebergType, value: int) -> int:
    low, high = _INT_RANGE if isinstance(type_, (IntegerType, DateType)) else _LONG_RANGE
    if isinstance(type_, TimeType):
        low, high = 0, _MICROS_PER_DAY - 1
    if not low <= value <= high:
        raise InvalidInputError(f"{value} is out of range for type {type_}")
    return value


def _fixed_length(type_: IcebergType, data: bytes) -> bytes:
    if isinstance(type_, FixedType) and len(data) != type_.length:
        raise InvalidInputError(f"{len(data)} bytes do not fit type {type_}")
    return data


def _reject(type_: IcebergType, value: Any) -> NoReturn:
    raise InvalidInputError(f"cannot take {value!r} as a value of type {type_}")


# --- bounds -----------------------------------------------------------------------------------------------------------


def lower_bound(type_: IcebergType, value: Value, length: int | None = None) -> Value | None:
    """Return a value that is not above the given minimum, short enough for a lower bound.

    Args:
        value: the least value of a column; None gives None.
        length: code points or bytes to keep of a string or binary; None keeps all. Other types are never cut.
    Returns:
        None where there is no bound: for NaN. A zero becomes −0.0, which sorts below 0.0.
    """
    if isinstance(type_, (FloatType, DoubleType)):
        return _float_bound(value, -0.0)
    if value is None or length is None or not isinstance(type_, (StringType, BinaryType)):
        return value
    return value[:length]


def upper_bound(type_: IcebergType, value: Value, length: int | None = None) -> Value | None:
    """Return a value that is not below the given maximum, short enough for an upper bound.

    Args:
        value: the greatest value of a column; None gives None.
        length: code points or bytes to keep of a string or binary; None keeps all.
    Returns:
        What is cut is raised in its last place that can be. None where there is no bound: for NaN, and where no
        place can be raised. A zero becomes 0.0, which sorts above −0.0.
    """
    if isinstance(type_, (FloatType, DoubleType)):
        return _float_bound(value, 0.0)
    if value is None or length is None or not isinstance(type_, (StringType, BinaryType)) or len(value) <= length:
        return value
    return _raise_text(value[:length]) if isinstance(type_, StringType) else _raise_bytes(value[:length])


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


def canonical_key(value: Value) -> Hashable:
    """Return something hashable that is equal exactly where two values of one type are the same.

    Floats go by their bits, so that 0.0 and −0.0 differ and every NaN is the same.
    """
    if isinstance(value, float):
        return ("float", "NaN" if math.isnan(value) else struct.pack("<d", value))
    if isinstance(value, (tuple, list)):
        return tuple(canonical_key(item) for item in value)
    if isinstance(value, dict):
        return frozenset((canonical_key(key), canonical_key(item)) for key, item in value.items())
    return value if isinstance(value, Hashable) else bytes(value)


def is_canonical_equal(left: Value, right: Value) -> bool:
    """Tell whether two canonical values of one type are the same, as for the values of a partition."""
    return canonical_key(left) == canonical_key(right)
