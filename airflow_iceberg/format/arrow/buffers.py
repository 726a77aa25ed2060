"""Numbers of numpy as Arrow arrays and back, pieces of bytes, and single values, made from buffers.

`pa.array`, `pa.scalar` and `to_numpy` import pandas if it is installed, only to check their arguments for its types.
That costs each Python worker of Spark more than a second and 50 MB, so tasks use these functions for their batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        (np.uint16, pa.uint16()),
        (np.float16, pa.float16()),
        (np.int32, pa.int32()),
        (np.uint32, pa.uint32()),
        (np.int64, pa.int64()),
        (np.uint64, pa.uint64()),
        (np.float32, pa.float32()),
        (np.float64, pa.float64()),
        (np.bool_, pa.bool_()),
    )
}
_PYTHON: Mapping[str, type] = {"b": bool, "i": int, "u": int, "f": float}
_DTYPES = {arrow_type: dtype for dtype, arrow_type in _ARROW_TYPES.items()}


def number_array(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers or booleans as an array of their type; None for `valid` means that none is null.

    The numbers are not copied: they must not change afterwards.
    """
    if values.dtype not in _ARROW_TYPES:  # another width or byte order, which is rare
        return pa.array(values, mask=None if valid is None else ~valid)
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    buffers = [None if valid is None else _bits(valid), data]
    return pa.Array.from_buffers(_ARROW_TYPES[values.dtype], len(values), buffers)


def numbers_of(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the numbers or booleans of a column, with any value for nulls.

    If possible nothing is copied: the numbers must not be changed.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):  # older releases of pyarrow
        return np.concatenate([numbers_of(chunk) for chunk in column.chunks])
    dtype, start, end = _DTYPES[column.type], column.offset, column.offset + len(column)
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), dtype)
    if dtype == np.bool_:
        return _flags(data, start, end)
    found: npt.NDArray[Any] = np.frombuffer(data, dtype, count=end)[start:]
    return found


def valid_of(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return True for the values of a column that are not null."""
    return numbers_of(column.is_valid())


def bytes_array(values: Sequence[bytes], kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return pieces of bytes as an array of binary, or of string if they are UTF-8; `valid` as in `number_array`."""
    buffers = [None if valid is None else _bits(valid), _offsets(values), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def text_array(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array."""
    return bytes_array([text.encode() for text in texts], pa.string())


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return Python values that are not null as `pa.array` does; texts, numbers and instants are made from buffers."""
    types = set(map(type, values))
    if types == {str} and kind == pa.string():
        return text_array(values)
    if types == {bytes} and kind == pa.binary():
        return bytes_array(values, kind)
    if types == {int} and pa.types.is_temporal(kind):
        return number_array(np.array(values, f"i{kind.bit_width // 8}")).view(kind)
    if kind in _DTYPES and types == {_PYTHON.get(_DTYPES[kind].kind)}:
        return number_array(np.array(values, _DTYPES[kind]))
    return pa.array(values, kind)


def strict_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return whole numbers, times, bytes, texts (as bytes in UTF-8) or lists of them as an array; None is null.

    Unlike `array_of`, this converts nothing.

    Raises:
        ValueError: a value of another kind, or out of the type's range.
    """
    expected = _strict_type(kind)
    found = set(map(type, values))
    others = found - {expected, type(None)}
    if others:
        raise ValueError(f"unexpected {others.pop().__name__}")
    if expected not in found:
        return pa.nulls(len(values), kind)
    valid, known = None, values
    if type(None) in found:
        valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        nothing = expected()
        known = [value or nothing for value in values]
    if expected is int:
        return number_array(_whole_numbers(known, kind), valid).view(kind)
    if expected is list:
        items = strict_array([item for value in known for item in value], kind.value_type)
        validity = None if valid is None else _bits(valid)
        return pa.Array.from_buffers(kind, len(values), [validity, _offsets(known)], children=[items])
    result = bytes_array(known, kind, valid)
    if kind == pa.string():
        result.validate(full=True)  # UTF-8
    return result


def _strict_type(kind: pa.DataType) -> type:
    if pa.types.is_list(kind):
        return list
    return bytes if pa.types.is_binary(kind) or pa.types.is_string(kind) else int


def _whole_numbers(values: Sequence[int], kind: pa.DataType) -> npt.NDArray[Any]:
    try:
        numbers = np.array(values, np.int64)
    except OverflowError as error:
        raise ValueError(str(error)) from error
    width = np.dtype(f"int{kind.bit_width}")
    limits = np.iinfo(width)
    if numbers.min() < limits.min or numbers.max() > limits.max:
        raise ValueError(f"a number that does not fit into {kind}")
    return numbers.astype(width, copy=False)


def single(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return one value as `pa.scalar` does."""
    return pa.scalar(None, kind) if value is None else array_of([value], kind)[0]


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise ValueError("more than 2 GB in one batch")
    return pa.py_buffer(offsets.astype(np.int32))


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _flags(data: pa.Buffer, start: int, end: int) -> npt.NDArray[np.bool_]:
    octets = np.frombuffer(data, np.uint8)[start // 8 : -(-end // 8)]
    return np.unpackbits(octets, bitorder="little")[start % 8 : start % 8 + end - start].view(np.bool_)
