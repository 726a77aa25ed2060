"""Columns of which some rows get new values; the others keep theirs, mostly without a look at them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_iceberg.format.arrow.buffers import number_array, numbers_of

# Places among the rows of a column, ascending, and the value of each.
Given = tuple[npt.NDArray[np.int64], pa.ChunkedArray]

_PLAIN = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def with_values(stored: pa.Array | None, given: Sequence[Given], count: int) -> pa.Array:
    """Return a column of `count` rows with new values at some places.

    Args:
        stored: the values of the file; a dictionary of texts remains one. None if all rows are given values.
    """
    if stored is None:
        return _taken([], given, count)
    if not given:
        return stored
    if _are_numbers(stored) and all(values.type.equals(stored.type) and not values.null_count for _, values in given):
        return _with_numbers(stored, given)
    return _taken([stored], given, count)


def _taken(pieces: list[pa.Array], given: Sequence[Given], count: int) -> pa.Array:
    """Return the column by the place of each value among those of the file, which may be missing, and the new ones."""
    start, chosen, stored = len(pieces) * count, np.arange(count), pieces[0] if pieces else None
    for places, values in given:
        chosen[places] = np.arange(start, start + len(values))
        start += len(values)
        pieces += values.chunks
    if stored is not None and pa.types.is_dictionary(stored.type):
        encoded = [stored, *(piece.dictionary_encode() for piece in pieces[1:])]
        pieces = pa.chunked_array(encoded, type=stored.type).unify_dictionaries().chunks
    return pa.concat_arrays(pieces).take(number_array(chosen))


def _are_numbers(column: pa.Array) -> bool:
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    is_time = pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
    return (is_number or is_time) and not column.null_count


def _with_numbers(stored: pa.Array, given: Sequence[Given]) -> pa.Array:
    """As `with_values`, of numbers and times without nulls: one copy of the column, in which values are replaced."""
    plain = _PLAIN[stored.type.bit_width]
    numbers = numbers_of(stored.view(plain)).copy()
    for places, values in given:
        numbers[places] = numbers_of(pa.chunked_array([chunk.view(plain) for chunk in values.chunks], type=plain))
    return number_array(numbers).view(stored.type)
