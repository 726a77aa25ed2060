"""Whether the key of a row is in a set of keys: equality deletes, whole columns at a time.

Null equals null, NaN equals NaN, and 0.0 is not -0.0, as in Iceberg Java. Memory: the keys.

Spec: Equality Delete Files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.arrow.buffers import numbers_of, valid_of

Codes = npt.NDArray[np.int64]


class KeySet:
    """A set of keys of one or more columns, which are arrays of the same length."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        # Each column's values are numbered; a pair of numbers of two columns is one number, which is numbered again, so
        # that numbers remain small for any number of columns.
        self._first = _lookup(columns[0])
        self._rest: list[tuple[_Lookup, _Integers]] = []
        codes = self._first.codes(columns[0])
        for column in columns[1:]:
            lookup = _lookup(column)
            pairs = _pairs(codes, lookup.codes(column), lookup.size)
            both = _Integers(pairs, pairs < 0)
            codes = both.codes_of(pairs, pairs < 0)
            self._rest.append((lookup, both))
        self.size_bytes = 2 * sum(column.nbytes for column in columns) + 16 * len(columns[0])

    def matches(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Return which rows have a key of the set."""
        codes = self._first.codes(columns[0])
        for column, (lookup, both) in zip(columns[1:], self._rest, strict=True):
            pairs = _pairs(codes, lookup.codes(column), lookup.size)
            codes = both.codes_of(pairs, pairs < 0)
        return codes >= 0


def _pairs(left: Codes, right: Codes, size: int) -> Codes:
    return np.where((left < 0) | (right < 0), -1, left * max(size, 1) + right)


class _Integers:
    """Numbers integers by their index among the sorted values."""

    def __init__(self, values: Codes, nulls: npt.NDArray[np.bool_]) -> None:
        self._values = np.unique(values[~nulls])
        self._null_code = len(self._values) if nulls.any() else -1
        self.size = len(self._values) + 1

    def codes(self, array: pa.Array) -> Codes:
        values, nulls = _integers(array)
        return self.codes_of(values, nulls, self._null_code)

    def codes_of(self, values: Codes, nulls: npt.NDArray[np.bool_] | None, null_code: int = -1) -> Codes:
        """Return the number of each value, -1 for one that is not in the set."""
        if not len(self._values):
            codes = np.full(len(values), -1, np.int64)
        else:
            places = np.minimum(np.searchsorted(self._values, values), len(self._values) - 1)
            codes = np.where(self._values[places] == values, places, -1)
        return codes if nulls is None else np.where(nulls, null_code, codes)


class _Hashed:
    """Numbers values of any other type."""

    def __init__(self, array: pa.Array) -> None:
        self._values = pc.unique(array)
        self.size = len(self._values)

    def codes(self, array: pa.Array) -> Codes:
        """Return the number of each value, -1 for one that is not in the set."""
        found = pc.index_in(_plain(array), value_set=self._values)
        codes: Codes = np.where(valid_of(found), numbers_of(found), -1).astype(np.int64)
        return codes


_Lookup = _Integers | _Hashed


def _lookup(array: pa.Array) -> _Lookup:
    checks = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_temporal, kinds.is_null)
    if any(check(array.type) for check in checks):
        return _Integers(*_integers(array))
    if kinds.is_nested(array.type):
        raise UnsupportedError(f"equality deletes by a column of type {array.type} are not read")
    return _Hashed(_plain(array))


def _integers(array: pa.Array) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Return values as integers that are equal where the values are, and which of them are null."""
    valid = valid_of(array)
    kind = array.type
    if kinds.is_null(kind):
        return np.zeros(len(array), np.int64), ~valid
    if kinds.is_floating(kind):
        # By their bits, which are different for many NaNs.
        numbers = np.where(valid, numbers_of(array), 0).astype(np.float64)
        numbers[np.isnan(numbers)] = np.nan
        return numbers.view(np.int64), ~valid
    if kinds.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if kinds.is_boolean(kind):
        array = array.cast(pa.int8())
    return np.where(valid, numbers_of(array), 0).astype(np.int64), ~valid


def _plain(array: pa.Array) -> pa.Array:
    """Return values that are compared as bytes in one type."""
    return array.cast(pa.binary()) if kinds.is_fixed_size_binary(array.type) else array
