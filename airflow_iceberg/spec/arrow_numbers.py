"""Numbers of numpy as Arrow arrays, and a text or two, without `pa.array`.

Here: `number_array`, `text_array`. `pa.array` imports pandas, where it is installed, only to ask whether it was given
something of it: more than a second and 50 MB of every Python worker of Spark. So what tasks do with each batch makes
its arrays of buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_ARROW_TYPES = {
    np.dtype(kind): arrow_type
    for kind, arrow_type in (
        (np.int8, pa.int8()),
        (np.uint8, pa.uint8()),
        (np.int16, pa.int16()),
        (np.int32, pa.int32()),
        (np.uint32, pa.uint32()),
        (np.int64, pa.int64()),
        (np.uint64, pa.uint64()),
        (np.float32, pa.float32()),
        (np.float64, pa.float64()),
        (np.bool_, pa.bool_()),
    )
}


def number_array(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers or booleans as an array of the type that they are of; without `valid` all of them are.

    The numbers are not copied: they must not change afterwards.
    """
    if values.dtype not in _ARROW_TYPES:  # of another width or byte order, which is rare
        return pa.array(values, mask=None if valid is None else ~valid)
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    buffers = [None if valid is None else _bits(valid), data]
    return pa.Array.from_buffers(_ARROW_TYPES[values.dtype], len(values), buffers)


def text_array(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array; for a few of them."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
