"""The conversions of Arrow types to primitive types of a table: whole arrays, without losing information.

| type of the table | accepted |
|---|---|
| boolean | boolean; text true, false, 1, 0 |
| int, long | integers that fit; floats and decimals without a fraction that fit; text of decimal digits |
| float, double | floats and integers that stay the same number; decimals that print the same; text, not too large |
| decimal | integers and decimals without rounding; floats by the digits that they print as (0.1 is 0.1); text |
| date | dates; timestamps without zone at midnight; text 2026-01-31 |
| time | times that are whole microseconds; text 10:15, 10:15:30.123456 |
| timestamp | timestamps without zone that are whole microseconds; dates as midnight; text without zone |
| timestamptz | timestamps with any zone, likewise; text with Z or an offset |
| string | text; integers, booleans, decimals and dates, which can be written in one way only |
| uuid | 16 bytes; text of 32 hexadecimal digits with or without dashes |
| fixed, binary | bytes (of the right length) |
| variant | structs of `metadata` and `value`, shredded or not (`data.cast.variants`) |
| unknown | nulls |

This is the ANSI store assignment of Spark without the casts that lose information there (rounding, the time of day, a
time zone taken from the session), and with text where Spark requires an explicit cast, since CSV and JSON have little
else. A timestamp without zone never becomes an instant: only the author of the source knows the zone. Text must have no
blanks around it. A double such as 0.1 does not become a float, which would be another number. The nanosecond types
follow the rules of their microsecond types. Dictionaries, run-end encoding, views, large types and extension types
count as the plain types that they stand for.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import number_array, valid_of
from airflow_iceberg.format.arrow.types import type_to_arrow

# Converts a whole array, or raises Misfit or ArrowInvalid when a value does not fit.
Conversion: TypeAlias = Callable[[pa.Array], pa.Array]

is_ = pa.types
_MAX_DIGITS = 38
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class Misfit(Exception):
    """A value of the array does not fit the type."""


def decoded_type(arrow: pa.DataType) -> pa.DataType:
    """Return the plain type that a dictionary, view, large or extension type stands for."""
    while True:
        if isinstance(arrow, pa.BaseExtensionType):
            arrow = arrow.storage_type
        elif is_.is_dictionary(arrow) or is_.is_run_end_encoded(arrow):
            arrow = arrow.value_type
        elif is_.is_large_string(arrow) or is_.is_string_view(arrow):
            return pa.string()
        elif is_.is_large_binary(arrow) or is_.is_binary_view(arrow):
            return pa.binary()
        else:
            return arrow


def decoded(array: pa.Array) -> pa.Array:
    """Return an array as its plain type."""
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif is_.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif is_.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            plain = decoded_type(array.type)
            return array if array.type.equals(plain) else array.cast(plain)


def conversion(arrow: pa.DataType, type_: t.IcebergType) -> Conversion | None:
    """Return the conversion of a plain Arrow type to a primitive type of the table, None if there is none.

    Raises:
        UnsupportedError: the table's type is not written yet.
    """
    if isinstance(type_, t.GEOSPATIAL):
        raise UnsupportedError(f"columns of type {type_} are not written yet")
    if not isinstance(type_, t.PrimitiveType):
        return None
    target = type_to_arrow(type_)
    if is_.is_null(arrow) or isinstance(type_, t.UnknownType):
        return (lambda array: pa.nulls(len(array), target)) if is_.is_null(arrow) else None
    if arrow.equals(target):
        return lambda array: array
    source = next((name for name, is_source in _SOURCES if is_source(arrow)), "")
    convert = _CONVERSIONS[type(type_)].get(source)
    return None if convert is None else partial(convert, target=target)


def refusal_hint(arrow: pa.DataType, type_: t.IcebergType) -> str:
    """Return what to do about a pair of types without a conversion, "" for no advice."""
    instants = (t.TimestamptzType, t.TimestamptzNsType)
    if isinstance(type_, instants) and (is_.is_date(arrow) or is_.is_timestamp(arrow)):
        return "it has no time zone; give it one in the source"
    if isinstance(type_, t.TimestampType | t.TimestampNsType | t.DateType) and is_.is_timestamp(arrow):
        return "it has a time zone, which would be lost"
    return ""


def shown(scalar: pa.Scalar, form: Callable[[Any], str] = repr) -> str:
    """Return a value for a message; instants that Python does not have (year 10000, nanoseconds) as their number,
    and what is no UTF-8 as its bytes.
    """
    try:
        text = form(scalar.as_py())
    except UnicodeDecodeError as error:
        text = form(error.object)
    except (ValueError, OverflowError):
        text = str(scalar.value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


_SHOWN_CHARACTERS = 60


def misfit_hint(value: pa.Scalar, type_: t.IcebergType) -> str:
    """Return what to do about a value that does not fit, "" for no advice."""
    is_text = is_.is_string(value.type) or is_.is_large_string(value.type)
    found = _WRITTEN_TIMESTAMP.fullmatch(value.as_py().strip()) if is_text else None
    if found is None:
        return ""
    if isinstance(type_, t.TimestamptzType | t.TimestamptzNsType) and not found["offset"]:
        return "it has no offset from UTC; write one, such as '2026-01-31 12:30:00+00:00' or '2026-01-31T12:30:00Z'"
    if isinstance(type_, t.TimestampType | t.TimestampNsType) and found["offset"]:
        return "it has an offset from UTC, which would be lost; leave it out, or make the column timestamptz"
    return ""


_WRITTEN_TIMESTAMP = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?\s*(?P<offset>Z|UTC|[+-]\d{2}(:?\d{2})?)?)?", re.IGNORECASE
)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast by Arrow, for pairs where its safe cast is exact or fails."""
    return array.cast(target)


def _require(condition: pa.Array) -> None:
    """Raise Misfit unless all values are true; null counts as true."""
    if pc.all(condition, min_count=0).as_py() is False:
        raise Misfit


def _integer_from_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Arrow reads 0x10 as 16, which a column of text does not mean.
    _require(pc.match_substring_regex(array, r"^-?[0-9]+$"))
    return array.cast(target)


def _integer_from_half(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(pa.float32()).cast(target)


def _float_from_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    result = array.cast(target)
    # A number too large for the type is read as infinity.
    _require(pc.or_(pc.invert(pc.is_inf(result)), pc.match_substring_regex(array, "(?i)inf")))
    return result


def _float_from_integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    result = array.cast(target, safe=False)
    # Compared as exact numbers: casting back could overflow.
    exact = pa.decimal128(38, 0)
    _require(pc.equal(array.cast(pa.decimal128(20, 0)), result.cast(pa.float64()).cast(exact)))
    return result


def _float_from_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    result = array.cast(target)
    if target.bit_width < array.type.bit_width:
        back = result.cast(array.type)
        _require(pc.or_(pc.equal(back, array), pc.is_nan(array)))
    return result


def _float_from_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    result = array.cast(pa.string()).cast(target)
    # By the digits: the float must print as the decimal.
    _require(pc.equal(_decimal_from_text(result.cast(pa.string()), array.type), array))
    return result


def _decimal_from_integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    return _rescaled(array.cast(pa.decimal128(20, 0)), target)


def _rescaled(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Arrow overflows silently when a larger scale makes a value too large for its bits. So integer parts that no table
    # can hold are rejected first, and the rest is rescaled in 256 bits, which have room for 38 + 38 digits.
    source = array.type
    if source.precision - source.scale > _MAX_DIGITS:
        array = array.cast(pa.decimal256(_MAX_DIGITS + source.scale, source.scale))
    scale = max(source.scale, target.scale)
    digits = min(source.precision - source.scale, _MAX_DIGITS) + scale
    return array.cast(pa.decimal256(max(digits, 1), scale)).cast(pa.decimal256(76, target.scale)).cast(target)


def _decimal_from_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    if is_.is_float64(array.type) and target.precision <= 15:
        # Up to 15 digits each decimal is another double, so the cast back proves that nothing was rounded.
        with suppress(pa.ArrowInvalid):
            result = array.cast(target)
            if pc.all(pc.equal(_doubles(result), array), min_count=0).as_py() is not False:
                return result
    return _decimal_from_text(array.cast(pa.string()), target)


def _doubles(array: pa.Array) -> pa.Array:
    """Return decimals of at most 15 digits as the nearest doubles; Arrow's own cast differs in the last bit (1.9)."""
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :: 2][: len(array)]
    # Both operands are exact, so the quotient is rounded once.
    return pa.array(words / 10.0**array.type.scale)


def _decimal_from_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    _require(pc.match_substring_regex(array, _NUMBER))
    simple = pc.match_substring_regex(array, _SIMPLE_NUMBER)
    if pc.all(simple, min_count=0).as_py() is False:
        # Arrow overflows silently, or returns zero, for large exponents and very many digits.
        others = array.filter(pc.invert(simple))
        written_out = pa.array([_written_out(text, target) for text in others.to_pylist()], pa.string())
        array = pc.replace_with_mask(array, pc.fill_null(pc.invert(simple), False), written_out)
    return _rescaled(array.cast(pa.decimal256(76, _MAX_DIGITS)), target)


_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?$"
_SIMPLE_NUMBER = r"^[+-]?[0-9]{0,38}(\.[0-9]{0,37})?$"


def _written_out(text: str, target: pa.DataType) -> str:
    """Return a number without exponent and trailing zeros; raises Misfit if the decimal type cannot hold it."""
    number = _EXACT.create_decimal(text).normalize(_EXACT)
    if not number:
        return "0"
    exponent = number.as_tuple().exponent
    integer_digits = number.adjusted() + 1
    if not isinstance(exponent, int) or -exponent > target.scale or integer_digits > target.precision - target.scale:
        raise Misfit
    return format(number, "f")


def _date_from_timestamp(array: pa.Array, target: pa.DataType) -> pa.Array:
    result = array.cast(target)
    _require(pc.equal(result.cast(array.type), array))
    return result


def _time_from_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    _require(pc.match_substring_regex(array, r"^[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?$"))
    day = pc.binary_join_element_wise("1970-01-01 ", array, "")
    return _timestamp_from_text(day, pa.timestamp("us")).cast(pa.int64()).cast(target)


def _timestamp_from_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        if target.unit == "ns":
            raise
        # More than six digits after the point are accepted if the others are zeros.
        trimmed = pc.replace_substring_regex(array, r"(\.[0-9]{6})0+(Z|[+-][0-9:]+)?$", r"\1\2")
        return trimmed.cast(target)


def _uuid_from_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    _require(pc.match_substring_regex(array, _UUID_TEXT))
    valid = array.drop_null()
    digits = pc.replace_substring(valid, "-", "")
    packed = bytes.fromhex("".join(digits.to_pylist()))
    flat = pa.FixedSizeBinaryArray.from_buffers(target, len(valid), [None, pa.py_buffer(packed)])
    if array.null_count == 0:
        return flat
    is_valid = valid_of(array)
    return flat.take(number_array(np.cumsum(is_valid) - 1, is_valid))


_UUID_TEXT = re.compile(
    r"^([0-9a-fA-F]{32}|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})$"
).pattern


# The first test that is true names the source of a conversion.
_SOURCES: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("text", is_.is_string),
    ("boolean", is_.is_boolean),
    ("integer", is_.is_integer),
    ("half", is_.is_float16),
    ("float", is_.is_floating),
    ("decimal", is_.is_decimal),
    ("date", is_.is_date),
    ("time", is_.is_time),
    ("instant", lambda arrow: is_.is_timestamp(arrow) and arrow.tz is not None),
    ("timestamp", is_.is_timestamp),
    ("binary", is_.is_binary),
    ("fixed", is_.is_fixed_size_binary),
)
_TO_INTEGER = {
    "text": _integer_from_text,
    "half": _integer_from_half,
    **dict.fromkeys(("integer", "float", "decimal"), _cast),
}
_TO_FLOAT = {
    "text": _float_from_text,
    "integer": _float_from_integer,
    **dict.fromkeys(("half", "float"), _float_from_float),
    "decimal": _float_from_decimal,
}
_TO_DECIMAL = {
    "text": _decimal_from_text,
    "integer": _decimal_from_integer,
    **dict.fromkeys(("half", "float"), _decimal_from_float),
    "decimal": _rescaled,
}
_TO_TIMESTAMP = {"text": _timestamp_from_text, "timestamp": _cast, "date": _cast}
_TO_INSTANT = {"text": _timestamp_from_text, "instant": _cast}
_CONVERSIONS: Mapping[type[t.PrimitiveType], Mapping[str, Callable[..., pa.Array]]] = {
    t.BooleanType: {"text": _cast},
    t.IntegerType: _TO_INTEGER,
    t.LongType: _TO_INTEGER,
    t.FloatType: _TO_FLOAT,
    t.DoubleType: _TO_FLOAT,
    t.DecimalType: _TO_DECIMAL,
    t.DateType: {"text": _cast, "date": _cast, "timestamp": _date_from_timestamp},
    t.TimeType: {"text": _time_from_text, "time": _cast},
    t.TimestampType: _TO_TIMESTAMP,
    t.TimestamptzType: _TO_INSTANT,
    t.TimestampNsType: _TO_TIMESTAMP,
    t.TimestamptzNsType: _TO_INSTANT,
    t.StringType: dict.fromkeys(("integer", "boolean", "decimal", "date"), _cast),
    t.UUIDType: {"text": _uuid_from_text, "binary": _cast},
    t.FixedType: {"binary": _cast},
    t.BinaryType: {"fixed": _cast},
}
