"""What SQL computes for a column of a table, before it is cast: numbers that are narrower in the table.

`amount * 1.1` is wider than `amount`: an UPDATE or MERGE of SQL rounds it, as Spark's ANSI store assignment does, where
an append rejects it (`data.cast.rows`). A number that is too large for the column is an error in both.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import type_to_arrow

_INTEGERS = (t.IntegerType, t.LongType)
_FLOATS = (t.FloatType, t.DoubleType)


def assigned(column: pa.ChunkedArray, type_: t.IcebergType) -> pa.ChunkedArray:
    """Return values that SQL assigns to a column of a type, rounded where the column is narrower."""
    arrow = column.type
    if isinstance(type_, _INTEGERS) and (pa.types.is_floating(arrow) or pa.types.is_decimal(arrow)):
        return _rounded_to_zero(column)
    if isinstance(type_, _FLOATS) and not arrow.equals(type_to_arrow(type_)):
        if pa.types.is_floating(arrow) or pa.types.is_decimal(arrow) or pa.types.is_integer(arrow):
            return column.cast(type_to_arrow(type_), safe=False)
    if isinstance(type_, t.DecimalType) and pa.types.is_decimal(arrow) and arrow.scale > type_.scale:
        rounded = pc.round(column, ndigits=type_.scale, round_mode="half_towards_infinity")
        return rounded.cast(pa.decimal128(38, type_.scale))
    if isinstance(type_, t.DecimalType) and pa.types.is_floating(arrow):
        return column.cast(pa.decimal128(38, type_.scale))
    return column


def _rounded_to_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    whole = pc.trunc(column) if pa.types.is_floating(column.type) else pc.round(column, round_mode="towards_zero")
    return (
        whole.cast(pa.decimal128(38, 0)).cast(pa.int64()) if pa.types.is_decimal(whole.type) else whole.cast(pa.int64())
    )
