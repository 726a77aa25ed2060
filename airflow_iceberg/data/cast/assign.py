"""What SQL computes for a column of a table, before it is cast: values of another type of the same kind.

`amount * 1.1` is wider than `amount`: an UPDATE or MERGE of SQL rounds it, as Spark's ANSI store assignment does, where
an append rejects it (`data.cast.rows`). So is the time of day cut from a time that becomes a date, and a time without a
zone is one of UTC. A number that is too large for the column is an error in both. This holds at every depth, and for
values of every source: `rounds` tells for which types of a source its values are kept as they are until then.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.cast.nulls import lengths_of, map_entries, mask_of, offsets_of
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import type_to_arrow

_INTEGERS = (t.IntegerType, t.LongType)
_FLOATS = (t.FloatType, t.DoubleType)
# More digits than any number here has.
_EXACT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)


def assigned(column: pa.ChunkedArray, type_: t.IcebergType) -> pa.ChunkedArray:
    """Return values that SQL assigns to a column of a type, rounded where the column is narrower, at every depth.

    Raises:
        pyarrow.ArrowInvalid: a number that no integer or decimal holds.
    """
    arrow = column.type
    if pa.types.is_int32(arrow) and column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), type_to_arrow(type_))])  # DuckDB's type of a bare null
    if isinstance(type_, _NESTED):
        is_kind, inner = _INNER[type(type_)]
        if not is_kind(arrow) or arrow.equals(type_to_arrow(type_)):
            return column
        return pa.chunked_array([inner(chunk, type_) for chunk in column.chunks or [pa.array([], arrow)]])
    if isinstance(type_, _INTEGERS) and (pa.types.is_floating(arrow) or pa.types.is_decimal(arrow)):
        return _rounded_to_zero(column)
    if isinstance(type_, _FLOATS) and not arrow.equals(type_to_arrow(type_)):
        if pa.types.is_decimal(arrow):
            # Arrow's own cast is not the nearest number: -185.7 becomes -185.70000000000002.
            return column.cast(pa.string()).cast(type_to_arrow(type_))
        if pa.types.is_floating(arrow) or pa.types.is_integer(arrow):
            return column.cast(type_to_arrow(type_), safe=False)
    if isinstance(type_, t.DecimalType) and pa.types.is_decimal(arrow) and arrow.scale > type_.scale:
        # Rounding may give a digit more than the values have.
        wide = column.cast(pa.decimal256(76, arrow.scale))
        return pc.round(wide, ndigits=type_.scale, round_mode="half_towards_infinity").cast(
            pa.decimal128(38, type_.scale)
        )
    if isinstance(type_, t.DecimalType) and pa.types.is_floating(arrow):
        return _rounded_to_decimal(column, type_.scale)
    if isinstance(type_, t.DateType | t.TimestampType | t.TimestamptzType):
        return _moved(column, type_)
    return column


def assigned_exactly(column: pa.ChunkedArray, type_: t.IcebergType) -> pa.ChunkedArray:
    """Return values of a key as those of a column, by which they are found again.

    Raises:
        pyarrow.ArrowInvalid: also for a value that would be rounded.
    """
    if not rounds(column.type, type_):
        return assigned(column, type_)
    if isinstance(type_, _FLOATS):
        return column  # cast where it is checked
    found = assigned(column, type_)
    # Decimals of so many digits hold all values of both.
    common = pa.decimal256(76, column.type.scale) if pa.types.is_decimal(column.type) else column.type
    same = pc.equal(column.cast(common), found.cast(common, safe=False))
    if pc.all(same, min_count=0).as_py() is False:
        at = pc.index(same, False).as_py()
        raise pa.ArrowInvalid(f"the key {column[at].as_py()} would become {found[at].as_py()}")
    return found


def rounds(arrow: pa.DataType, type_: t.IcebergType) -> bool:
    """Whether `assigned` may give values of a plain Arrow type other ones, as a column of the type.

    An append rejects such values (`data.cast.rows`).
    """
    is_number = pa.types.is_floating(arrow) or pa.types.is_decimal(arrow) or pa.types.is_integer(arrow)
    if isinstance(type_, _INTEGERS):
        return bool(pa.types.is_floating(arrow) or (pa.types.is_decimal(arrow) and arrow.scale > 0))
    if isinstance(type_, t.DoubleType):
        return is_number and not (pa.types.is_floating(arrow) or (pa.types.is_integer(arrow) and arrow.bit_width <= 32))
    if isinstance(type_, t.FloatType):
        return is_number and not (pa.types.is_floating(arrow) and arrow.bit_width <= 32)
    if isinstance(type_, t.DecimalType):
        return bool(pa.types.is_floating(arrow) or (pa.types.is_decimal(arrow) and arrow.scale > type_.scale))
    if isinstance(type_, t.DateType):
        return bool(pa.types.is_timestamp(arrow)) and arrow.unit == "us"
    if isinstance(type_, t.TimestampType | t.TimestamptzType):
        is_time = pa.types.is_timestamp(arrow) and arrow.unit == "us"
        is_day = pa.types.is_date32(arrow) and isinstance(type_, t.TimestamptzType)
        return is_day or (is_time and not arrow.equals(type_to_arrow(type_)))
    return False


def _assigned_fields(structs: pa.StructArray, type_: t.StructType) -> pa.StructArray:
    known = {item.name: item.type for item in type_.fields}
    names = [item.name for item in structs.type]
    # Not the children as they are: below a null struct they have any value.
    found = [
        _assigned_inside(child, known[name]) if name in known else child
        for name, child in zip(names, structs.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(found, names=names, mask=mask_of(structs))


def _assigned_elements(lists: pa.Array, type_: t.ListType) -> pa.ListArray:
    elements = _assigned_inside(lists.flatten(), type_.element)
    return pa.ListArray.from_arrays(offsets_of(lengths_of(lists)), elements, mask=mask_of(lists))


def _assigned_entries(maps: pa.MapArray, type_: t.MapType) -> pa.MapArray:
    entries = map_entries(maps)
    flat, offsets = entries.flatten(), offsets_of(lengths_of(entries))
    keys, items = _assigned_inside(flat.field(0), type_.key), _assigned_inside(flat.field(1), type_.value)
    return pa.MapArray.from_arrays(offsets, keys, items, mask=mask_of(maps))


def _assigned_inside(values: pa.Array, type_: t.IcebergType) -> pa.Array:
    found = assigned(pa.chunked_array([values]), type_)
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow))


_INNER: Mapping[type[t.IcebergType], tuple[Callable[[pa.DataType], bool], Callable[[Any, Any], pa.Array]]] = {
    t.StructType: (pa.types.is_struct, _assigned_fields),
    t.ListType: (_is_list, _assigned_elements),
    t.MapType: (pa.types.is_map, _assigned_entries),
}
_NESTED = tuple(_INNER)


def _rounded_to_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    whole = pc.trunc(column) if pa.types.is_floating(column.type) else pc.round(column, round_mode="towards_zero")
    return (
        whole.cast(pa.decimal128(38, 0)).cast(pa.int64()) if pa.types.is_decimal(whole.type) else whole.cast(pa.int64())
    )


def _rounded_to_decimal(column: pa.ChunkedArray, scale: int) -> pa.ChunkedArray:
    """Round floats as they are written: 1.005 is 1.01, though the number that is stored is a little less."""
    unit = decimal.Decimal(1).scaleb(-scale)
    values = column.cast(pa.float64()).to_pylist()
    for value in values:
        if value is not None and not math.isfinite(value):
            raise pa.ArrowInvalid(f"{value} is no decimal")
    found = [None if v is None else decimal.Decimal(repr(v)).quantize(unit, context=_EXACT) for v in values]
    return pa.chunked_array([pa.array(found, pa.decimal128(38, scale))])


def _moved(column: pa.ChunkedArray, type_: t.IcebergType) -> pa.ChunkedArray:
    """Return dates and times as those of another type; a zone is UTC, as that of the session is."""
    arrow, target = column.type, type_to_arrow(type_)
    is_time = pa.types.is_timestamp(arrow) and arrow.unit == "us"
    if arrow.equals(target) or not (is_time or pa.types.is_date32(arrow)):
        return column
    if isinstance(type_, t.DateType):
        return pc.floor_temporal(column.cast(pa.timestamp("us")), unit="day").cast(target)
    return column.cast(pa.timestamp("us")).cast(target)
