"""XXH64, the hash of Parquet's Bloom filters: many values at a time, with the seed 0.

Not a library's: the workers of a cluster read the filters, and have pyarrow and numpy alone.

Spec: XXH64 in the xxHash specification; "Bloom Filter" in the Parquet format.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE = 32


def hash_values(values: Sequence[bytes]) -> Words:
    """Return the hash of each value."""
    result = np.zeros(len(values), np.uint64)
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, value in enumerate(values):
        by_length[len(value)].append(index)
    for length, indexes in by_length.items():
        data = np.frombuffer(b"".join(values[index] for index in indexes), np.uint8)
        result[indexes] = _hash_rows(data.reshape(len(indexes), length))
    return result


def _hash_rows(rows: npt.NDArray[np.uint8]) -> Words:
    """Return the hashes of values of one length, a row each."""
    count, length = rows.shape
    # Arithmetic is modulo 2^64, which numpy would warn of.
    with np.errstate(over="ignore"):
        at = length - length % _STRIPE
        state = _stripes(rows[:, :at]) if at else np.full(count, _P5)
        state += np.uint64(length)
        while at + 8 <= length:
            state ^= _round(np.zeros(count, np.uint64), _words(rows, at, "<u8"))
            state = _rotated(state, 27) * _P1 + _P4
            at += 8
        if at + 4 <= length:
            state ^= _words(rows, at, "<u4") * _P1
            state = _rotated(state, 23) * _P2 + _P3
            at += 4
        for column in range(at, length):
            state ^= rows[:, column].astype(np.uint64) * _P5
            state = _rotated(state, 11) * _P1
        for shift, factor in ((33, _P2), (29, _P3)):
            state ^= state >> np.uint64(shift)
            state *= factor
        return state ^ (state >> np.uint64(32))


def _stripes(rows: npt.NDArray[np.uint8]) -> Words:
    """Return the state after all whole stripes."""
    zero = np.uint64(0)
    lanes: list[Any] = [np.full(len(rows), start) for start in (_P1 + _P2, _P2, zero, zero - _P1)]
    for start in range(0, rows.shape[1], _STRIPE):
        lanes = [_round(lane, _words(rows, start + 8 * number, "<u8")) for number, lane in enumerate(lanes)]
    rotations = zip(lanes, (1, 7, 12, 18), strict=True)
    state: Words = sum((_rotated(lane, bits) for lane, bits in rotations), np.zeros(len(rows), np.uint64))
    for lane in lanes:
        state = (state ^ _round(np.zeros(len(rows), np.uint64), lane)) * _P1 + _P4
    return state


def _words(rows: npt.NDArray[np.uint8], start: int, kind: str) -> Words:
    size = np.dtype(kind).itemsize
    words = np.ascontiguousarray(rows[:, start : start + size]).view(kind)
    return words[:, 0].astype(np.uint64)


def _round(state: Words, words: Words) -> Words:
    return _rotated(state + words * _P2, 31) * _P1


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
