"""What SQL computes for a column of a table, before it is cast: values of another type of the same kind.

`amount * 1.1` is wider than `amount`: an UPDATE or MERGE of SQL rounds it, as Spark's ANSI store assignment does, where
an append rejects it (`data.cast.rows`). So is the time of day cut from a time that becomes a date, and a time without a
zone is one of UTC. A number that is too large for the column is an error in both.
"""

from __future__ import annotations

import decimal
import math

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.cast.nulls import mask_of
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import type_to_arrow

_INTEGERS = (t.IntegerType, t.LongType)
_FLOATS = (t.FloatType, t.DoubleType)
# More digits than any number here has.
_EXACT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)


def assigned(column: pa.ChunkedArray, type_: t.IcebergType) -> pa.ChunkedArray:
    """Return values that SQL assigns to a column of a type, rounded where the column is narrower.

    Raises:
        pyarrow.ArrowInvalid: a number that no integer or decimal holds.
    """
    arrow = column.type
    if pa.types.is_int32(arrow) and column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), type_to_arrow(type_))])  # DuckDB's type of a bare null
    if isinstance(type_, _INTEGERS) and (pa.types.is_floating(arrow) or pa.types.is_decimal(arrow)):
        return _rounded_to_zero(column)
    if isinstance(type_, _FLOATS) and not arrow.equals(type_to_arrow(type_)):
        if pa.types.is_floating(arrow) or pa.types.is_decimal(arrow) or pa.types.is_integer(arrow):
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
    if isinstance(type_, t.StructType) and pa.types.is_struct(arrow):
        chunks = column.chunks or [pa.array([], arrow)]
        return pa.chunked_array([_assigned_fields(chunk, type_) for chunk in chunks])
    return column


def _assigned_fields(structs: pa.StructArray, type_: t.StructType) -> pa.StructArray:
    known = {item.name: item.type for item in type_.fields}
    names = [item.name for item in structs.type]
    # Not the children as they are: below a null struct they have any value.
    columns = [pa.chunked_array([child]) for child in structs.flatten()]
    found = [
        assigned(column, known[name]) if name in known else column for name, column in zip(names, columns, strict=True)
    ]
    return pa.StructArray.from_arrays([one.combine_chunks() for one in found], names=names, mask=mask_of(structs))


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
