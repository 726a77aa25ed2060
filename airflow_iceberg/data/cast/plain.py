"""Columns that the table does not have, in types that every SQL engine has, and the type that holds two others.

Not here: columns that the table has (`data.cast.rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pyarrow as pa

from airflow_iceberg.data.cast.nulls import lengths_of, map_entries, mask_of, offsets_of
from airflow_iceberg.data.cast.types import decoded

is_ = pa.types
_MOST_DIGITS = 38
_DIGITS: Mapping[int, int] = {8: 3, 16: 5, 32: 10, 64: 20}


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that stands for a type of Arrow in SQL: UUIDs and JSON are text, times are microseconds."""
    if isinstance(arrow, pa.BaseExtensionType):
        return pa.string() if arrow.extension_name == "arrow.uuid" else plain_type(arrow.storage_type)
    if is_.is_dictionary(arrow) or is_.is_run_end_encoded(arrow):
        return plain_type(arrow.value_type)
    if is_.is_large_string(arrow) or is_.is_string_view(arrow):
        return pa.string()
    if is_.is_large_binary(arrow) or is_.is_binary_view(arrow) or is_.is_fixed_size_binary(arrow):
        return pa.binary()
    if is_.is_unsigned_integer(arrow):
        return pa.int64() if arrow.bit_width < 64 else pa.decimal128(20, 0)
    if is_.is_timestamp(arrow):
        # Instants of any zone are of one type.
        return pa.timestamp("us", "UTC" if arrow.tz else None)
    if is_.is_struct(arrow):
        return pa.struct([pa.field(item.name, plain_type(item.type)) for item in arrow])
    if is_.is_map(arrow):
        return pa.map_(plain_type(arrow.key_type), plain_type(arrow.item_type))
    if is_.is_list(arrow) or is_.is_large_list(arrow) or is_.is_fixed_size_list(arrow):
        return pa.list_(plain_type(arrow.value_type))
    return arrow


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the plain type that has all values of two plain types, None if there is none."""
    if one.equals(other) or is_.is_null(other):
        return one
    if is_.is_null(one):
        return other
    if is_.is_integer(one) and is_.is_integer(other):
        return max(one, other, key=lambda kind: int(kind.bit_width))
    if is_.is_floating(one) and is_.is_floating(other):
        return max(one, other, key=lambda kind: int(kind.bit_width))
    if (is_.is_decimal(one) or is_.is_decimal(other)) and all(map(_is_exact, (one, other))):
        return _wider_decimal(one, other)
    if is_.is_struct(one) and is_.is_struct(other):
        return _wider_struct(one, other)
    if is_.is_map(one) and is_.is_map(other):
        key, value = wider_type(one.key_type, other.key_type), wider_type(one.item_type, other.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    if is_.is_list(one) and is_.is_list(other):
        element = wider_type(one.value_type, other.value_type)
        return None if element is None else pa.list_(element)
    return None


def plainly(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return a column as a type that `plain_type` and `wider_type` have made of its type.

    Raises:
        pyarrow.ArrowInvalid: a value that the type does not have, such as a nanosecond.
    """
    if column.type.equals(wanted):
        return column
    return pa.chunked_array([_plainly(chunk, wanted) for chunk in column.chunks], type=wanted)


def _is_exact(kind: pa.DataType) -> bool:
    return bool(is_.is_decimal(kind) or is_.is_integer(kind))


def _wider_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    sizes = [(k.precision, k.scale) if is_.is_decimal(k) else (_DIGITS[k.bit_width], 0) for k in (one, other)]
    scale = max(scale for _, scale in sizes)
    digits = max(precision - scale for precision, scale in sizes) + scale
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None


def _wider_struct(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    found = {item.name: item.type for item in one}
    for item in other:
        wider = wider_type(found[item.name], item.type) if item.name in found else item.type
        if wider is None:
            return None
        found[item.name] = wider
    return pa.struct([pa.field(name, kind) for name, kind in found.items()])


def _plainly(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type.equals(wanted):
        return array
    array = decoded(array)
    if is_.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if is_.is_struct(wanted):
        # flatten() applies the parent's nulls to the fields.
        children = dict(zip((item.name for item in array.type), array.flatten(), strict=True))
        columns = [
            _plainly(children[item.name], item.type) if item.name in children else pa.nulls(len(array), item.type)
            for item in wanted
        ]
        return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask_of(array))
    if is_.is_map(wanted):
        entries = map_entries(array)
        flat, offsets = entries.flatten(), offsets_of(lengths_of(entries))
        keys, items = _plainly(flat.field(0), wanted.key_type), _plainly(flat.field(1), wanted.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=mask_of(array))
    if is_.is_list(wanted):
        elements = _plainly(array.flatten(), wanted.value_type)
        return pa.ListArray.from_arrays(offsets_of(lengths_of(array)), elements, type=wanted, mask=mask_of(array))
    if is_.is_fixed_size_binary(array.type) and is_.is_string(wanted):
        texts = [None if value is None else str(UUID(bytes=value)) for value in array.to_pylist()]
        return pa.array(texts, wanted)
    return array.cast(wanted)
