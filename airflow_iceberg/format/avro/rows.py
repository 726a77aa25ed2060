"""Arrow columns as Avro records, thousands of rows at a time.

A record is the concatenation of its fields. Each field becomes one or more *pieces*: Arrow arrays with the bytes of
each row, such as the branch of a union with a number, the length of a text, and the text. Arrow joins the pieces of all
fields row by row, so that no Python object is made for a value. Not here: schemas (`schemas`), blocks (`container`).

Spec: Appendix A, Avro; Avro's binary encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of, single, valid_of
from airflow_iceberg.format.avro.schemas import decimal_size

Octets: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]
Sizes: TypeAlias = npt.NDArray[np.int64]

# Numbers of the branches of a union of null and a type, as they are encoded.
_NULL, _VALUE = 0, 2
_WHOLE = (t.IntegerType, t.LongType, t.DateType, t.TimeType)
_INSTANTS = (t.TimestampType, t.TimestamptzType, t.TimestampNsType, t.TimestamptzNsType)
_BYTES = (t.StringType, t.BinaryType)


def encode_rows(struct: t.StructType, columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Return the bytes of each row, as an array of binary.

    Args:
        columns: the columns of the struct's fields, in the types of `format.arrow.types`.
        count: the number of rows.

    Raises:
        InvalidInputError: a required field is null.
    """
    return _joined(_fields(struct.fields, columns), count)


def _fields(fields: Iterable[t.NestedField], columns: Iterable[pa.Array]) -> list[pa.Array]:
    pieces = []
    for child, column in zip(fields, columns, strict=True):
        if not isinstance(child.type, t.UnknownType):
            pieces += _field(child, column)
    return pieces


def _field(child: t.NestedField, column: pa.Array) -> list[pa.Array]:
    has_nulls = bool(column.null_count)
    if child.required and has_nulls:
        raise InvalidInputError(f"column '{child.name}' is required, and has a null")
    valid = valid_of(column) if has_nulls else None
    match child.type:
        case t.StructType(fields=fields):
            return _struct(child, fields, column, valid)
        case t.VariantType():
            parts = column.type.fields
            fields = tuple(t.NestedField(id=0, name=part.name, type=t.BinaryType(), required=True) for part in parts)
            return _struct(child, fields, column, valid)
        case t.ListType() | t.MapType():
            return _items(child, child.type, column, valid)
    if isinstance(child.type, _BYTES):
        lengths = numbers_of(pc.binary_length(column))
        return [_numbers(lengths, valid, child.required), column.cast(pa.binary())]
    if isinstance(child.type, (*_WHOLE, *_INSTANTS)):
        whole = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
        return [_numbers(numbers_of(whole), valid, child.required)]
    return [_fixed(_octets(child.type, column), valid, child.required)]


def _struct(
    child: t.NestedField, fields: Iterable[t.NestedField], column: pa.Array, valid: Mask | None
) -> list[pa.Array]:
    # The fields of a null struct have no bytes; they may be null although they are required.
    kept = column if valid is None else column.filter(number_array(valid))
    pieces = _fields(fields, [kept.field(number) for number in range(kept.type.num_fields)])
    if valid is not None:
        bodies = _joined(pieces, len(kept))
        sizes = np.zeros(len(column), np.int64)
        sizes[valid] = np.diff(_offsets(bodies))
        pieces = [_sliced(bodies, sizes)]
    return pieces if child.required else [_branches(len(column), valid), *pieces]


def _items(child: t.NestedField, type_: t.ListType | t.MapType, column: pa.Array, valid: Mask | None) -> list[pa.Array]:
    """Return the pieces of lists or maps: the number of the items, the items, and a zero."""
    kept = column if valid is None else column.filter(number_array(valid))
    offsets = numbers_of(kept.offsets).astype(np.int64)
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    counts = np.zeros(len(column), np.int64)
    counts[slice(None) if valid is None else valid] = np.diff(offsets)
    is_map = isinstance(type_, t.MapType)
    columns = [kept.keys, kept.items] if is_map else [kept.values]
    fields = t.child_fields(type_)
    items = _joined(_fields(fields, [part.slice(start, stop - start) for part in columns]), stop - start)
    ends = np.zeros(len(column) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    sizes = np.diff(_offsets(items)[ends])
    is_filled = counts > 0
    closing = _binary(np.zeros(int(is_filled.sum()), np.uint8), is_filled.astype(np.int64))
    return [_numbers(counts, valid, child.required), _sliced(items, sizes), closing]


# -- numbers -----------------------------------------------------------------------------------------------------------


def _numbers(values: npt.NDArray[Any], valid: Mask | None, required: bool) -> pa.Array:
    """Return zig-zag integers of variable length, each after its branch if it is optional."""
    wide = values.astype(np.int64)
    left = ((wide << 1) ^ (wide >> 63)).view(np.uint64)
    if valid is not None:
        left[~valid] = 0
    width = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    lead = 0 if required else 1
    octets = np.empty((len(left), lead + width), np.uint8)
    sizes = np.full(len(left), lead + 1, np.int64)
    for position in range(lead, lead + width):
        low = (left & np.uint64(0x7F)).astype(np.uint8)
        left = left >> np.uint64(7)
        more = left != 0
        octets[:, position] = low | (more.view(np.uint8) << 7)
        sizes += more
    return _with_branches(octets, sizes, valid, required)


def _fixed(octets: Octets, valid: Mask | None, required: bool) -> pa.Array:
    """Return values of one size, each after its branch if it is optional."""
    if not required:
        octets = np.concatenate((np.empty((len(octets), 1), np.uint8), octets), axis=1)
    return _with_branches(octets, np.full(len(octets), octets.shape[1], np.int64), valid, required)


def _with_branches(octets: Octets, sizes: Sizes, valid: Mask | None, required: bool) -> pa.Array:
    if not required:
        octets[:, 0] = _VALUE
    if valid is not None:
        octets[~valid, 0] = _NULL
        sizes[~valid] = 1
    width = octets.shape[1]
    is_full = bool((sizes == width).all())
    return _binary(np.ravel(octets) if is_full else octets[np.arange(width) < sizes[:, None]], sizes)


def _octets(type_: t.IcebergType, column: pa.Array) -> Octets:
    """Return the encoded values of a type of one size; those of nulls may be anything."""
    if isinstance(type_, t.BooleanType):
        return numbers_of(column).view(np.uint8).reshape(-1, 1)
    width = column.type.bit_width // 8
    data, start = column.buffers()[1], column.offset
    if data is None or not width:
        octets = np.zeros((len(column), width), np.uint8)
    else:
        octets = np.frombuffer(data, np.uint8, len(column) * width, start * width).reshape(-1, width)
    if isinstance(type_, t.DecimalType):  # big-endian, in as few bytes as the precision needs
        return octets[:, decimal_size(type_.precision) - 1 :: -1]
    return octets


# -- pieces ------------------------------------------------------------------------------------------------------------


def _branches(count: int, valid: Mask | None) -> pa.Array:
    octets = np.full(count, _VALUE, np.uint8) if valid is None else np.where(valid, _VALUE, _NULL).astype(np.uint8)
    return _binary(octets, np.ones(count, np.int64))


def _joined(pieces: list[pa.Array], count: int) -> pa.Array:
    """Return the pieces of each row one after the other; a null is no bytes."""
    if not pieces:
        return _binary(np.zeros(0, np.uint8), np.zeros(count, np.int64))
    nothing = single(b"", pa.binary())
    # The last argument is what Arrow puts between the pieces.
    return pc.binary_join_element_wise(*pieces, nothing, null_handling="replace", null_replacement=b"")


def _offsets(column: pa.Array) -> npt.NDArray[Any]:
    """Return where the values of an array of binary start in its data, and where the last one ends."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(1, np.int32)
    return np.frombuffer(data, np.int32, len(column) + 1, 4 * column.offset)


def _sliced(column: pa.Array, sizes: Sizes) -> pa.Array:
    """Return the data of an array of binary, all of which is used, cut into values of other sizes."""
    return _binary(column.buffers()[2], sizes)


def _binary(data: Any, sizes: Sizes) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data if data is not None else b"")]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
