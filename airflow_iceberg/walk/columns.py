"""Numbers and texts as Arrow columns and back, by their bytes.

`pyarrow.array` and `to_numpy` import pandas to see whether they need it, which takes longer than most walks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TYPES = {np.dtype(np.uint64): pa.uint64(), np.dtype(np.int64): pa.int64(), np.dtype(np.uint8): pa.uint8()}
KINDS: dict[str, np.dtype[Any]] = {
    "uint64": np.dtype(np.uint64),
    "int64": np.dtype(np.int64),
    "int32": np.dtype(np.int32),
    "uint8": np.dtype(np.uint8),
}


def numbers(values: NDArray[Any]) -> pa.Array:
    """Return numbers of 64 bits, or of 8 without a sign, as a column."""
    whole = np.ascontiguousarray(values)
    return pa.Array.from_buffers(TYPES[whole.dtype], len(whole), [None, pa.py_buffer(whole)])


def values_of(column: pa.Array) -> NDArray[Any]:
    """Return the numbers of a column without nulls."""
    dtype = KINDS[str(column.type)]
    if not len(column):
        return np.empty(0, dtype)
    found: NDArray[Any] = np.frombuffer(column.buffers()[1], dtype)[column.offset : column.offset + len(column)]
    return found


def mask(values: NDArray[np.bool_]) -> pa.Array:
    """Return truth values as a column, to filter others by."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def pieces(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Return pieces of bytes as a column of a type: binary, or string where they are UTF-8."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))])
