"""Decoded columns of manifests as Arrow arrays, made from buffers.

Here: numbers, texts, lists, maps and bounds of many entries at once. Not here: the columns of a table (`arrow`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.arrow.buffers import number_array
from airflow_iceberg.format.arrow.types import array_from_values
from airflow_iceberg.format.avro.columns_read import Column, Ints, Lists
from airflow_iceberg.format.manifests.columns import EntryColumns
from airflow_iceberg.format.types import DecimalType, IcebergType
from airflow_iceberg.format.values.bytes import from_bytes


def text_column(values: list[str]) -> pa.Array:
    """Return texts, most of them equal, as an array."""
    encoded = {value: value.encode() for value in set(values)}
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter((len(encoded[value]) for value in values), np.int32, len(values)), out=offsets[1:])
    data = b"".join([encoded[value] for value in values])
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def number_column(column: Column) -> pa.Array:
    """Return numbers with their nulls."""
    return number_array(column.values, column.valid)


def narrow(values: Ints) -> npt.NDArray[np.int32]:
    """Return 64-bit numbers as 32-bit ones; raises OverflowError if one does not fit."""
    if len(values) and not -(2**31) <= int(values.min()) <= int(values.max()) < 2**31:
        raise OverflowError("an int of more than 32 bits")
    return values.astype(np.int32)


class SharedArrays:
    """Arrays that several lists share: mostly, all maps of statistics are of the same columns."""

    def __init__(self) -> None:
        self._known: list[tuple[Ints, Callable[[Ints], pa.Array], pa.Array]] = []

    def get(self, values: Ints, make: Callable[[Ints], pa.Array]) -> pa.Array:
        """Return `make(values)`, the same array for equal values."""
        for known, made_by, array in self._known:
            if made_by is make and np.array_equal(known, values):
                return array
        self._known.append((values, make, make(values)))
        return self._known[-1][2]


def file_column(entries: EntryColumns, name: str, arrow_type: pa.DataType, shared: SharedArrays) -> pa.Array:
    """Return a column of data files; nulls if the manifests do not have it."""
    lists = entries.records.lists.get(name)
    if lists is not None:
        is_map = pa.types.is_map(arrow_type)
        return _map(entries, lists, arrow_type, shared) if is_map else _list(lists, arrow_type, shared)
    column = entries.records.columns.get(name)
    if column is None:
        return pa.nulls(len(entries), arrow_type)
    return number_column(column) if column.lengths is None else bytes_column(entries, column)


def _offsets(counts: Ints) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return number_array(offsets)


def narrow_column(values: Ints) -> pa.Array:
    """Return numbers as 32-bit ones; raises OverflowError if one does not fit."""
    return number_array(narrow(values))


def _nulls(lists: Lists) -> pa.Array | None:
    return None if lists.valid is None else number_array(~lists.valid)


def _map(entries: EntryColumns, lists: Lists, arrow_type: pa.DataType, shared: SharedArrays) -> pa.Array:
    values = lists.items["value"]
    items = number_column(values) if values.lengths is None else bytes_column(entries, values)
    offsets, keys = shared.get(lists.counts, _offsets), shared.get(lists.items["key"].values, narrow_column)
    return pa.MapArray.from_arrays(offsets, keys, items, type=arrow_type, mask=_nulls(lists))


def _list(lists: Lists, arrow_type: pa.DataType, shared: SharedArrays) -> pa.Array:
    numbers = lists.items["value"].values
    values = narrow_column(numbers) if arrow_type.value_type == pa.int32() else number_array(numbers)
    offsets = shared.get(lists.counts, _offsets)
    return pa.ListArray.from_arrays(offsets, values, type=arrow_type, mask=_nulls(lists))


def bytes_column(entries: EntryColumns, column: Column) -> pa.Array:
    """Return texts or bytes, which are in the decoded data in the order of the column, as an array of bytes."""
    assert column.lengths is not None
    size = len(column.values)
    rows = np.arange(size) if column.valid is None else np.flatnonzero(column.valid)
    if not len(rows):
        return pa.nulls(size, pa.binary())
    # An array of the values and the gaps between them needs no copy; take every second item of it.
    borders = np.empty(2 * len(rows), np.int32)
    borders[0::2] = column.values[rows]
    borders[1::2] = column.values[rows] + column.lengths[rows]
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(entries.records.data)]
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * len(rows) - 1, buffers)
    if column.valid is None:
        return with_gaps.take(number_array(np.arange(0, 2 * size, 2)))
    places = np.zeros(size, np.int64)
    places[rows] = 2 * np.arange(len(rows))
    return with_gaps.take(number_array(places, column.valid))


_WIDTHS: dict[Callable[[pa.DataType], bool], str] = {
    pa.types.is_int32: "<i4",
    pa.types.is_date32: "<i4",
    pa.types.is_int64: "<i8",
    pa.types.is_time64: "<i8",
    pa.types.is_timestamp: "<i8",
    pa.types.is_float32: "<f4",
    pa.types.is_float64: "<f8",
}


def _layout(arrow_type: pa.DataType) -> str | None:
    return next((layout for is_type, layout in _WIDTHS.items() if is_type(arrow_type)), None)


def plain_numbers(column: Column, arrow_type: pa.DataType) -> pa.Array | None:
    """Return numbers as an array of a type that stores numbers; None if the type or the column is of another kind."""
    layout = _layout(arrow_type)
    if layout is None or column.lengths is not None:
        return None
    if (column.values.dtype.kind == "f") is not ("f" in layout):
        return None
    values = narrow(column.values) if layout == "<i4" else column.values.astype(layout, copy=False)
    return number_array(values, column.valid).view(arrow_type)


def bound_column(entries: EntryColumns, column: Column, type_: IcebergType, arrow_type: pa.DataType) -> pa.Array:
    """Return bounds in the type of their column; null for a bound that cannot be read."""
    assert column.lengths is not None
    layout, valid = _layout(arrow_type), column.is_valid()
    width = 0 if layout is None else np.dtype(layout).itemsize
    if layout is not None and bool((column.lengths[valid] == width).all()):
        data = np.frombuffer(entries.records.data, np.uint8)
        values = np.zeros(len(valid), np.dtype(layout))
        values[valid] = data.take(column.values[valid][:, None] + np.arange(width)).view(layout).ravel()
        return number_array(values, None if valid.all() else valid).view(arrow_type)
    raw = bytes_column(entries, column)
    if arrow_type in (pa.string(), pa.binary()):
        try:
            return raw.cast(arrow_type)
        except pa.ArrowInvalid:  # some of them are not UTF-8
            pass
    values_list = [None if item is None else readable_bound(type_, item) for item in raw.to_pylist()]
    return array_from_values(type_, values_list)


def readable_bound(type_: IcebergType, bound: bytes | None) -> Any:
    """Return the value of a bound, None if it cannot be read, or is no value of the type."""
    try:
        value = None if bound is None else from_bytes(type_, bound)
    except IcebergError:
        return None
    if isinstance(type_, DecimalType) and value is not None and not type_.has_room_for(value):
        return None
    return value
