"""Rows as 128 bits each, whole columns at a time: equal rows have equal bits, and others almost surely have not.

Null equals null, NaN equals NaN, and 0.0 is not -0.0, as in Iceberg Java. The keys are random: whoever writes rows
cannot make two different ones equal. Memory: 16 bytes a row. Not here: what rows are compared for (`data.changelog`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.arrow.buffers import numbers_of, valid_of

Words = npt.NDArray[np.uint64]
Hashes = npt.NDArray[np.uint64]
"""Two columns of 64 bits."""

_LANES = 2
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class RowHasher:
    """Hashes rows; the results of one hasher can be compared with each other, and with no others."""

    def __init__(self) -> None:
        self._lanes = tuple(_Lane(secrets.randbits(64), secrets.randbits(64)) for _ in range(_LANES))

    def rows(self, columns: Sequence[pa.Array], count: int) -> Hashes:
        """Return the bits of rows.

        Args:
            columns: the columns of the rows, always in the same order.
        """
        found = np.empty((count, _LANES), np.uint64)
        for number, lane in enumerate(self._lanes):
            found[:, number] = lane.struct(columns, count)
        return found


class _Lane:
    """One half of the bits."""

    def __init__(self, seed: int, null: int) -> None:
        self._seed = np.uint64(seed | 1)
        self._factor = np.uint64((seed * int(_GOLDEN) | 1) & 0xFFFFFFFFFFFFFFFF)
        self._null = np.uint64(null)

    def struct(self, columns: Sequence[pa.Array], count: int) -> Words:
        found = np.full(count, self._seed, np.uint64)
        for column in columns:
            found = self._mix(found * _GOLDEN + self._column(column))
        return found

    def _column(self, array: pa.Array) -> Words:
        if kinds.is_null(array.type):
            return np.full(len(array), self._null, np.uint64)
        found = self._values(array)
        return np.where(valid_of(array), found, self._null) if array.null_count else found

    def _values(self, array: pa.Array) -> Words:
        """Return a hash of each value, any one for nulls."""
        kind = array.type
        if kinds.is_struct(kind):
            return self.struct([array.field(number) for number in range(kind.num_fields)], len(array))
        if kinds.is_map(kind):
            return self._segments(self.struct([array.keys, array.items], len(array.keys)), numbers_of(array.offsets))
        if kinds.is_list(kind) or kinds.is_large_list(kind):
            return self._segments(self._column(array.values), numbers_of(array.offsets))
        if kinds.is_string(kind) or kinds.is_binary(kind) or kinds.is_large_string(kind) or kinds.is_large_binary(kind):
            return self._bytes(array)
        if kinds.is_fixed_size_binary(kind) or kinds.is_decimal(kind):
            width = kind.byte_width
            data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
            starts = (np.arange(len(array) + 1, dtype=np.int64) + array.offset) * width
            return self._of_bytes(data, starts)
        return self._mix(_integers(array).view(np.uint64))

    def _bytes(self, array: pa.Array) -> Words:
        is_large = kinds.is_large_string(array.type) or kinds.is_large_binary(array.type)
        _, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return np.zeros(len(array), np.uint64)
        starts = np.frombuffer(offsets, np.int64 if is_large else np.int32)[array.offset :][: len(array) + 1]
        return self._of_bytes(np.frombuffer(data or b"", np.uint8), starts.astype(np.int64))

    def _of_bytes(self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> Words:
        """Return the hash of each span of bytes: of its words of eight bytes, and of its length."""
        lengths = np.diff(starts)
        counts = -(-lengths // 8)
        firsts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=firsts[1:])
        within = np.arange(firsts[-1], dtype=np.int64) - np.repeat(firsts[:-1], counts)
        places = np.repeat(starts[:-1], counts) + 8 * within
        padded = np.concatenate([data, np.zeros(8, np.uint8)])
        at_any_byte = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))
        missing = np.maximum(8 - (np.repeat(lengths, counts) - 8 * within), 0).astype(np.uint64) * np.uint64(8)
        words = at_any_byte[places] & (np.uint64(0xFFFFFFFFFFFFFFFF) >> missing)
        sums = self._sums(words, within, firsts)
        return self._mix(sums + lengths.astype(np.uint64) * _GOLDEN)

    def _segments(self, items: Words, offsets: npt.NDArray[np.int64]) -> Words:
        """Return the hash of each list, of the hashes of its items."""
        starts = offsets.astype(np.int64)
        counts = np.diff(starts)
        firsts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=firsts[1:])
        within = np.arange(firsts[-1], dtype=np.int64) - np.repeat(firsts[:-1], counts)
        sums = self._sums(items[np.repeat(starts[:-1], counts) + within], within, firsts)
        return self._mix(sums + counts.astype(np.uint64) * _GOLDEN)

    def _sums(self, words: Words, within: npt.NDArray[np.int64], firsts: npt.NDArray[np.int64]) -> Words:
        """Return the sum of each segment's words, each mixed with its place in the segment."""
        mixed = self._mix(words ^ self._mix(within.astype(np.uint64) * _GOLDEN))
        total = np.zeros(len(mixed) + 1, np.uint64)
        np.cumsum(mixed, out=total[1:])
        return total[firsts[1:]] - total[firsts[:-1]]

    def _mix(self, words: Words) -> Words:
        """Return other words for words, each for one: the finalizer of SplitMix64, behind a secret."""
        found: Words = (words ^ self._seed) * self._factor
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return found ^ (found >> np.uint64(31))


def _integers(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return values as integers that are equal where the values are."""
    kind = array.type
    if kinds.is_floating(kind):
        # By their bits, which are different for many NaNs.
        numbers = numbers_of(array).astype(np.float64)
        numbers[np.isnan(numbers)] = np.nan
        return numbers.view(np.int64)
    if kinds.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if kinds.is_boolean(kind):
        array = array.cast(pa.int8())
    if not kinds.is_integer(array.type):
        raise UnsupportedError(f"rows with a column of type {kind} cannot be compared")
    return numbers_of(array).astype(np.int64)
