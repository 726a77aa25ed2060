"""Arrow arrays out of Python lists, strictly: a value of another kind is an error, nothing is converted.

Here: the few types that manifests have. `pyarrow.array` would do, but it imports pandas where that is installed, which
takes longer and more memory than reading a table of a hundred thousand files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_NONE = type(None)


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return an array of whole numbers, times, bytes, texts (as bytes in UTF-8) or lists of them; None is null.

    Raises:
        ValueError: a value of another kind, or out of the type's range.
    """
    import pyarrow as pa

    kinds = set(map(type, values))
    expected = _python_type(type_)
    if kinds - {expected, _NONE}:
        raise ValueError(f"unexpected {(kinds - {expected, _NONE}).pop().__name__}")
    if expected not in kinds:
        return pa.nulls(len(values), type_)
    validity = _validity(values) if _NONE in kinds else None
    if expected is int:
        return _numbers(values, type_, validity)
    return _lists(values, type_, validity) if expected is list else _bytes(values, type_, validity)


def rows_of(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return numbers of rows as an array, to take these rows."""
    import numpy as np
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers.astype(np.int64, copy=False))])


def numbers_of(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return a column of whole numbers without nulls; `to_numpy` would import pandas too."""
    import numpy as np
    import pyarrow as pa

    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    width = array.type.bit_width // 8
    data = array.buffers()[1] or b""
    return np.frombuffer(data, f"i{width}", count=len(array), offset=width * array.offset)


def _python_type(type_: pa.DataType) -> type:
    import pyarrow.types as kinds

    if kinds.is_list(type_):
        return list
    return bytes if kinds.is_binary(type_) or kinds.is_string(type_) else int


def _validity(values: Sequence[Any]) -> pa.Buffer:
    import numpy as np
    import pyarrow as pa

    known = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return pa.py_buffer(np.packbits(known, bitorder="little"))


def _numbers(values: Sequence[int | None], type_: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    try:
        numbers = np.array(values if validity is None else [value or 0 for value in values], np.int64)
    except OverflowError as error:
        raise ValueError(str(error)) from error
    width = np.dtype(f"int{type_.bit_width}")
    limits = np.iinfo(width)
    if numbers.min() < limits.min or numbers.max() > limits.max:
        raise ValueError(f"a number that does not fit into {type_}")
    return pa.Array.from_buffers(type_, len(values), [validity, pa.py_buffer(numbers.astype(width, copy=False))])


def _bytes(values: Sequence[bytes | None], type_: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    import pyarrow as pa

    known = values if validity is None else [value or b"" for value in values]
    buffers = [validity, _offsets(known), pa.py_buffer(b"".join(known))]  # type: ignore[arg-type]
    result = pa.Array.from_buffers(type_, len(values), buffers)
    if type_ == pa.string():
        result.validate(full=True)  # UTF-8
    return result


def _lists(values: Sequence[list[Any] | None], type_: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    import pyarrow as pa

    known = values if validity is None else [value or [] for value in values]
    items = array_of([item for value in known for item in value or ()], type_.value_type)
    return pa.Array.from_buffers(type_, len(values), [validity, _offsets(known)], children=[items])


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    import numpy as np
    import pyarrow as pa

    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise ValueError("more than 2 GB in one batch")
    return pa.py_buffer(offsets.astype(np.int32))
