"""The JSON single-value serialization: one value of any type as JSON, as for defaults. Part of `values`.

Spec: Appendix D, JSON single-value serialization.
"""

import math
from decimal import Decimal, InvalidOperation
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.json_fields import json_type_name
from airflow_iceberg.format.values import calendar
from airflow_iceberg.format.values.literals import fixed_length, in_range, parse_text, single, to_decimal
from airflow_iceberg.format.values.numbers import TIMESTAMPS, WITH_ZONE, units_per_second


def to_json(type_: t.IcebergType, value: t.Value) -> Any:
    """Return the JSON single value of a canonical value, as for defaults. None gives None.

    JSON has no numbers for NaN and the infinities: they become ``NaN``, ``Infinity`` and ``-Infinity``.

    Raises:
        UnsupportedError: variant, geometry and geography have no JSON form here.
    Spec: Appendix D, JSON single-value serialization.
    """
    if value is None:
        return None
    if isinstance(type_, t.StructType):
        members = zip(type_.fields, value, strict=True)
        return {str(child.id): to_json(child.type, item) for child, item in members if item is not None}
    if isinstance(type_, t.ListType):
        return [to_json(type_.element, item) for item in value]
    if isinstance(type_, t.MapType):
        keys = [to_json(type_.key, key) for key in value]
        return {"keys": keys, "values": [to_json(type_.value, item) for item in value.values()]}
    return _primitive_to_json(type_, value)


def _primitive_to_json(type_: t.IcebergType, value: t.Value) -> Any:
    if isinstance(type_, (t.BooleanType, t.IntegerType, t.LongType, t.StringType)):
        return value
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        return value if math.isfinite(value) else _special_float(value)
    if isinstance(type_, t.DecimalType):
        return format(value, "f")
    if isinstance(type_, t.UUIDType):
        return str(value)
    if isinstance(type_, (t.FixedType, t.BinaryType)):
        return bytes(value).hex()
    if isinstance(type_, t.DateType):
        return calendar.format_date(value)
    if isinstance(type_, t.TimeType):
        return calendar.format_time(value)
    if isinstance(type_, TIMESTAMPS):
        text = calendar.format_timestamp(value, units_per_second(type_) or 1)
        return f"{text}+00:00" if isinstance(type_, WITH_ZONE) else text
    raise UnsupportedError(f"a value of type {type_} has no JSON form")


def _special_float(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def from_json(type_: t.IcebergType, json: Any, *, path: str | None = None, where: str = "value") -> t.Value:
    """Return the canonical value of a JSON single value. None gives None.

    Args:
        json: a result of `to_json`; hexadecimal digits may be of either case.
        path: location of the file, for errors.
        where: place inside the document, for errors.
    Raises:
        FormatError: not a value of the type.
        UnsupportedError: a type without a JSON form.
    """
    try:
        return _from_json(type_, json)
    except (InvalidInputError, ValueError, TypeError, InvalidOperation) as error:
        raise FormatError(
            f"cannot read {json!r} as a value of type {type_} in '{where}': {error}", path=path
        ) from error


def _from_json(type_: t.IcebergType, json: Any) -> t.Value:
    if json is None:
        return None
    if isinstance(type_, t.StructType):
        known = _expect(json, dict)
        return tuple(_from_json(child.type, known.get(str(child.id))) for child in type_.fields)
    if isinstance(type_, t.ListType):
        return tuple(_from_json(type_.element, item) for item in _expect(json, list))
    if isinstance(type_, t.MapType):
        keys = [_from_json(type_.key, key) for key in _expect(_expect(json, dict).get("keys"), list)]
        values = [_from_json(type_.value, item) for item in _expect(json.get("values"), list)]
        return dict(zip(keys, values, strict=True))
    return _primitive_from_json(type_, json)


def _primitive_from_json(type_: t.IcebergType, json: Any) -> t.Value:
    if isinstance(type_, t.BooleanType):
        return _expect(json, bool)
    if isinstance(type_, (t.IntegerType, t.LongType)):
        return in_range(type_, _expect(json, int))
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        special = json in ("NaN", "Infinity", "-Infinity")
        number = float(json) if special or type(json) is int else _expect(json, float)
        return single(number) if isinstance(type_, t.FloatType) else number
    text = _expect(json, str)
    if isinstance(type_, (t.FixedType, t.BinaryType)):
        return fixed_length(type_, bytes.fromhex(text))
    if isinstance(type_, t.DecimalType):
        return to_decimal(type_, Decimal(text), exact_scale=True)
    if isinstance(type_, t.UUIDType) and len(text) != 36:
        raise ValueError("expected 36 characters")
    if isinstance(type_, TIMESTAMPS):
        return _timestamp_from_json(type_, text)
    if isinstance(type_, (t.StringType, t.UUIDType, t.DateType, t.TimeType)):
        return parse_text(type_, text)
    raise UnsupportedError(f"a value of type {type_} has no JSON form")


def _timestamp_from_json(type_: t.IcebergType, text: str) -> int:
    units, offset = calendar.parse_timestamp(text, units_per_second(type_) or 1)
    if offset != (0 if isinstance(type_, WITH_ZONE) else None):
        raise ValueError("the offset must be +00:00" if isinstance(type_, WITH_ZONE) else "no offset is allowed")
    return in_range(type_, units)


def _expect(json: Any, kind: type) -> Any:
    if type(json) is not kind:
        raise ValueError(f"unexpected type {json_type_name(json)} (expected {json_type_name(kind())})")
    return json
