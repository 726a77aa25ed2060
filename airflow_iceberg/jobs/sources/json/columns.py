"""Columns of a table from JSON objects: in the table's types, or an error that names column, line and value.

The number of a row is that of its line, also where other lines are blank.

JSON has types; a value is taken as the table's type if it loses nothing. A number is as it is written: a decimal gets
its digits, a text its characters, a float the nearest number. What JSON has no type for is a text, which is parsed as
that of a CSV file is (`data.cast.types`). A key that is missing is null, or the default (`sources.json.absent`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.cast.nulls import Offence, in_parent, offsets_of
from airflow_iceberg.data.cast.rows import check_columns, conform
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.sources.json.absent import if_missing
from airflow_iceberg.jobs.sources.json.text import JsonNumber, Lines, decode, printable, with_texts

# Of a long; a number with an exponent may have millions.
_MOST_DIGITS = 19
_SHOWN_CHARACTERS = 60


class _NeedsText(Exception):
    """A text column has a value that is no text, so that its place in the line is needed."""


def table_of(lines: Lines, schema: Schema, location: str, read_as: Schema | None = None) -> pa.Table:
    """Return the rows of lines with the columns of a schema.

    Args:
        lines: number, line and object of each row, at least one.
        schema: the columns; keys that it does not have are an error.
        read_as: the same columns; objects without a key get the default of the field if it is required here.
    Raises:
        InvalidInputError: a value that does not fit, a null in a required column, or an unknown key; the message names
            column, line and value.
    """
    known = {field.name for field in schema.fields}
    for number, _, row in lines:
        if not row.keys() <= known:
            _refuse_unknown(row, schema, f"line {number} of {location}")
    columns = [_column(lines, field, location) for field in (read_as or schema).fields]
    table = pa.table(columns, names=[field.name for field in schema.fields])
    first, last = lines[0][0], lines[-1][0]
    if last - first + 1 == len(lines):
        return conform(table, schema, source=location, first_row=first)
    try:
        return conform(table, schema, source=location)
    except InvalidInputError:
        # Blank lines are among them: each row by itself tells its line.
        for at, (number, _, _) in enumerate(lines):
            conform(table.slice(at, 1), schema, source=location, first_row=number)
        raise


def _refuse_unknown(row: Mapping[str, Any], schema: Schema, source: str) -> None:
    known = {field.name for field in schema.fields}
    names = [printable(name) for name in row if name not in known]
    check_columns(pa.schema([pa.field(name, pa.null()) for name in names]), schema, source=source)


def _column(lines: Lines, field: t.NestedField, location: str) -> pa.Array:
    name, kind, missing = field.name, field.type, if_missing(field)
    try:
        try:
            return _array([row.get(name, missing) for _, _, row in lines], kind, name)
        except _NeedsText:
            texts = [with_texts(line, name, kind) if name in row else missing for _, line, row in lines]
            return _array(texts, kind, name, exact=True)
    except Offence as offence:
        line = lines[offence.index][0]
        raise InvalidInputError(f"column '{offence.name}', row {line} of {location}: {offence.problem}") from None


def _array(values: list[Any], kind: t.IcebergType, name: str, *, exact: bool = False) -> pa.Array:
    """Return values in the type, or as text where JSON does not have it.

    Args:
        exact: whether values of string columns are texts of the line already.
    Raises:
        Offence: an object, an array or a text that cannot be.
    """
    if isinstance(kind, t.StructType):
        return _structs(values, kind, name, exact)
    if isinstance(kind, t.ListType):
        return _lists(values, kind, name, exact)
    if isinstance(kind, t.MapType):
        return _maps(values, kind, name, exact)
    kinds = set(map(type, values))
    if kinds <= {type(None)}:
        return pa.nulls(len(values))  # also of a type that JSON does not have
    if isinstance(kind, t.StringType):
        needs_text = not exact and not kinds <= {str, type(None)}
        return _texts([_written(value) for value in values] if needs_text else values, name)
    if bytes in kinds:
        return pa.array([value if isinstance(value, bytes) else None for value in values], pa.binary())
    if kinds & {dict, list}:
        index = next(at for at, value in enumerate(values) if isinstance(value, dict | list))
        raise _misfit(name, index, values[index], kind)
    found = _NATIVE[type(kind)](values, kinds) if type(kind) in _NATIVE else None
    return _texts([_parsed(value) for value in values], name) if found is None else found


# -- nested values -----------------------------------------------------------------------------------------------------


def _structs(values: list[Any], kind: t.StructType, name: str, exact: bool) -> pa.Array:
    _expect(values, dict, kind, name)
    known = {field.name: field for field in kind.fields}
    for index, value in enumerate(values):
        if value is not None and not value.keys() <= known.keys():
            unknown = next(key for key in value if key not in known)
            raise Offence(
                f"{name}.{printable(unknown)}",
                index,
                f"the table's column '{name}' has no such field, only {', '.join(known)}",
            )
    children = []
    for field in kind.fields:
        missing = if_missing(field)
        found = [None if value is None else value.get(field.name, missing) for value in values]
        children.append(_array(found, field.type, f"{name}.{field.name}", exact=exact))
    return pa.StructArray.from_arrays(children, names=[field.name for field in kind.fields], mask=_mask(values))


def _lists(values: list[Any], kind: t.ListType, name: str, exact: bool) -> pa.Array:
    _expect(values, list, kind, name)
    lengths = _lengths(values)
    try:
        elements = _array([i for v in values if v for i in v], kind.element, f"{name}.element", exact=exact)
    except Offence as offence:
        raise in_parent(offence, lengths) from None
    return pa.ListArray.from_arrays(offsets_of(lengths), elements, mask=_mask(values))


def _maps(values: list[Any], kind: t.MapType, name: str, exact: bool) -> pa.Array:
    _expect(values, dict, kind, name)
    lengths = _lengths(values)
    keys: list[Any] = [key for value in values if value for key in value]
    try:
        if not isinstance(kind.key, t.PrimitiveType):
            keys = _decoded_keys(keys, kind.key, name)
        found = _array(keys, kind.key, f"{name}.key")
        items = _array([i for v in values if v for i in v.values()], kind.value, f"{name}.value", exact=exact)
    except Offence as offence:
        raise in_parent(offence, lengths) from None
    return pa.MapArray.from_arrays(offsets_of(lengths), found, items, mask=_mask(values))


def _decoded_keys(keys: list[str], kind: t.IcebergType, name: str) -> list[Any]:
    found = []
    for index, key in enumerate(keys):
        try:
            found.append(decode(key))
        except ValueError:
            raise _misfit(f"{name}.key", index, key, kind) from None
    return found


def _expect(values: list[Any], wanted: type, kind: t.IcebergType, name: str) -> None:
    if set(map(type, values)) <= {wanted, type(None)}:
        return
    index = next(at for at, value in enumerate(values) if not isinstance(value, wanted | None))
    raise _misfit(name, index, values[index], kind)


def _misfit(name: str, index: int, value: Any, kind: t.IcebergType) -> Offence:
    text = value if isinstance(value, JsonNumber) else printable(json.dumps(value, ensure_ascii=False))
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
    found = {dict: "object", list: "array", str: "string", bool: "boolean"}.get(type(value), "number")
    return Offence(name, index, f"value {shown} ({found}) does not fit {kind}; change the value or the column's type")


def _lengths(values: list[Any]) -> Any:
    return np.fromiter((len(value) if value else 0 for value in values), np.int64, len(values))


def _mask(values: list[Any]) -> pa.Array | None:
    return pa.array([value is None for value in values], pa.bool_()) if None in values else None


# -- texts and numbers -------------------------------------------------------------------------------------------------


def _texts(values: list[Any], name: str) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can spell.
        index = next(at for at, value in enumerate(values) if value is not None and not _is_utf8(value))
        shown = ascii(values[index])[:_SHOWN_CHARACTERS]
        raise Offence(name, index, f"text {shown} cannot be written as UTF-8; change the value") from None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _written(value: Any) -> str | None:
    """Return the text of a value in a string column; raises _NeedsText where only its line has that."""
    if value is None or isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int) and value:
        return str(value)
    raise _NeedsText  # also for 0, which may be -0, and for NaN


def _parsed(value: Any) -> str | None:
    """Return the text that is parsed as a type that JSON does not have, or that a message shows."""
    if value is None or isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    return str(value)


def _longs(values: list[Any], kinds: set[type]) -> pa.Array | None:
    if kinds - {int, type(None)}:
        values = [_whole(value) for value in values]
        if set(map(type, values)) - {int, type(None)}:
            return _texts([_parsed(value) for value in values], "")
    try:
        return pa.array(values, pa.int64())
    except OverflowError:
        return None


def _whole(value: Any) -> Any:
    """Return a number without a fraction as an integer, any other value as it is."""
    if not isinstance(value, JsonNumber):
        return value
    number = Decimal(value)
    if number.adjusted() >= _MOST_DIGITS or number != number.to_integral_value():
        return value
    return int(number)


def _doubles(values: list[Any], kinds: set[type]) -> pa.Array | None:
    if kinds - {int, JsonNumber, float, type(None)}:
        return None
    try:
        found = [None if value is None else float(value) for value in values]
    except OverflowError:
        return None
    array = pa.array(found, pa.float64())
    if pc.any(pc.is_inf(array)).as_py():
        for given, number in zip(values, found, strict=True):
            if number is not None and math.isinf(number) and not isinstance(given, float):
                return None  # too large, and not written as Infinity
    return array


def _booleans(values: list[Any], kinds: set[type]) -> pa.Array | None:
    return pa.array(values, pa.bool_()) if not kinds - {bool, type(None)} else None


# Floats are parsed from text: by way of a double they would be rounded twice.
_NATIVE: Mapping[type[t.IcebergType], Callable[[list[Any], set[type]], pa.Array | None]] = {
    t.BooleanType: _booleans,
    t.IntegerType: _longs,
    t.LongType: _longs,
    t.DoubleType: _doubles,
}
