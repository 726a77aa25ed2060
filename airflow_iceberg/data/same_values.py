"""Whether columns have the same values: nulls, not a number and nested values included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.format.arrow.buffers import numbers_of

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def are_same(left: pa.Array, right: pa.Array) -> bool:
    """Whether two arrays have equal values at all places; False also for what cannot be told.

    Null equals null and not a number equals itself; 0.0 and -0.0 are two values, as are lists in another order.
    """
    left, right = _plain(left), _plain(right)
    if left.type != right.type or len(left) != len(right) or left.null_count != right.null_count:
        return False
    if left.null_count:
        if not pc.is_valid(left).equals(pc.is_valid(right)):
            return False
        left, right = left.drop_null(), right.drop_null()
    kind = left.type
    if pa.types.is_struct(kind):
        return all(map(are_same, left.flatten(), right.flatten()))
    if pa.types.is_map(kind):
        return _offsets_are_same(left, right) and all(map(are_same, _entries(left), _entries(right)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _offsets_are_same(left, right) and are_same(left.flatten(), right.flatten())
    if pa.types.is_floating(kind):
        numbers = pc.invert(pc.is_nan(left))
        if not numbers.equals(pc.invert(pc.is_nan(right))):
            return False
        bits = _BITS[kind.bit_width]
        return bool(left.filter(numbers).view(bits).equals(right.filter(numbers).view(bits)))
    return bool(left.equals(right))


def _plain(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        return column.storage
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _offsets_are_same(left: pa.Array, right: pa.Array) -> bool:
    lengths, others = (np.diff(numbers_of(one.offsets)) for one in (left, right))
    return bool(np.array_equal(lengths, others))


def _entries(column: pa.MapArray) -> list[pa.Array]:
    """Return keys and items of a map without nulls."""
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return [part.slice(first, last - first) for part in (column.keys, column.items)]
