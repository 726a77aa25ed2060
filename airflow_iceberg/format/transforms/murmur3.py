"""Murmur3, the 32-bit variant with seed 0, that the bucket transform is defined by: of one value and of columns.

Written here, as a scalar in plain Python and over columns in numpy, so that the workers of a cluster need no library
for it; the tests compare both with the library `mmh3`. What is hashed of a value of each type: `transforms`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_C1, _C2 = 0xCC9E2D51, 0x1B873593
_MASK = 0xFFFFFFFF
# Rows hashed at a time: small enough for the intermediate columns to stay in the processor's cache.
_SLICE = 32_768


def hash_bytes(data: bytes) -> int:
    """Return the hash of some bytes as a signed 32-bit integer, as Java does."""
    state = 0
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        state ^= _scramble(int.from_bytes(data[start : start + 4], "little"))
        state = (((state << 13) | (state >> 19)) * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        state ^= _scramble(int.from_bytes(data[whole:], "little"))
    state = _finish(state ^ len(data))
    return state - (1 << 32) if state >> 31 else state


def _scramble(block: int) -> int:
    block = (block * _C1) & _MASK
    return (((block << 15) | (block >> 17)) * _C2) & _MASK


def _finish(state: int) -> int:
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK
    return state ^ (state >> 16)


def hash_longs(values: "npt.NDArray[np.int64]") -> "npt.NDArray[np.uint32]":
    """Return the hash of each long as its 8 little-endian bytes, one row a value."""
    import numpy as np

    result = np.empty(len(values), np.uint32)
    words = np.ascontiguousarray(values, np.dtype("<i8")).view(np.dtype("<u4")).reshape(-1, 2)
    for start in range(0, len(values), _SLICE):
        part = words[start : start + _SLICE]
        state = _mix_columns(np.zeros(len(part), np.uint32), part[:, 0].astype(np.uint32))
        result[start : start + _SLICE] = _finish_columns(_mix_columns(state, part[:, 1].astype(np.uint32)), 8)
    return result


def hash_rows(rows: "npt.NDArray[np.uint8]") -> "npt.NDArray[np.uint32]":
    """Return the hash of each row of a matrix of bytes: values of one length."""
    import numpy as np

    count, length = rows.shape
    result = np.empty(count, np.uint32)
    whole = length & ~3
    for start in range(0, count, _SLICE):
        part = rows[start : start + _SLICE]
        state = np.zeros(len(part), np.uint32)
        for block in range(0, whole, 4):
            state = _mix_columns(state, _word(part[:, block : block + 4]))
        if whole < length:
            state ^= _scramble_columns(_word(part[:, whole:]))
        result[start : start + _SLICE] = _finish_columns(state, length)
    return result


def hash_slices(
    data: "npt.NDArray[np.uint8]", starts: "npt.NDArray[np.int64]", lengths: "npt.NDArray[np.int64]"
) -> "npt.NDArray[np.uint32]":
    """Return the hash of each slice of a buffer of bytes, like the values of a string column.

    Args:
        data: the buffer.
        starts: the start of each value.
        lengths: the number of bytes of each value.
    """
    import numpy as np

    result = np.zeros(len(starts), np.uint32)
    for length, rows in _rows_by_length(lengths):
        for first in range(0, len(rows), _SLICE):
            part = rows[first : first + _SLICE]
            places = starts[part][:, None] + np.arange(length)
            result[part] = hash_rows(data[places])
    return result


def _rows_by_length(lengths: "npt.NDArray[np.int64]") -> Any:
    import numpy as np

    order = np.argsort(lengths, kind="stable")
    found, firsts = np.unique(lengths[order], return_index=True)
    return zip(found.tolist(), np.split(order, firsts[1:]), strict=False)


def _word(columns: "npt.NDArray[np.uint8]") -> "npt.NDArray[np.uint32]":
    """Return up to four columns of bytes as one column of little-endian words."""
    import numpy as np

    word = columns[:, 0].astype(np.uint32)
    for index in range(1, columns.shape[1]):
        word |= columns[:, index].astype(np.uint32) << np.uint32(8 * index)
    return word


def _scramble_columns(block: "npt.NDArray[np.uint32]") -> "npt.NDArray[np.uint32]":
    import numpy as np

    block = block * np.uint32(_C1)
    block = (block << np.uint32(15)) | (block >> np.uint32(17))
    block *= np.uint32(_C2)
    return block


def _mix_columns(state: "npt.NDArray[np.uint32]", block: "npt.NDArray[np.uint32]") -> "npt.NDArray[np.uint32]":
    import numpy as np

    state = state ^ _scramble_columns(block)
    state = (state << np.uint32(13)) | (state >> np.uint32(19))
    state *= np.uint32(5)
    state += np.uint32(0xE6546B64)
    return state


def _finish_columns(state: "npt.NDArray[np.uint32]", length: int) -> "npt.NDArray[np.uint32]":
    import numpy as np

    state = state ^ np.uint32(length)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state ^= state >> np.uint32(shift)
        state *= np.uint32(factor)
    state ^= state >> np.uint32(16)
    return state
