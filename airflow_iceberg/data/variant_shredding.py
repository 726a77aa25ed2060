"""Variants of a file as pairs of binaries, joined from their parts where the file has columns for them.

Spec: Parquet's Variant Shredding. At most one of `value` and `typed_value` is set, except for an object of which only
some fields have columns; a field without both is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.arrow.buffers import single
from airflow_iceberg.format.arrow.types import primitive_from_arrow, type_to_arrow, values_from_array
from airflow_iceberg.format.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IcebergType,
    LongType,
    UUIDType,
    VariantType,
)
from airflow_iceberg.format.values import variant

# Returns the bytes of one value, None where it is missing.
_Cell = Callable[["_Names"], bytes | None]


class _Names:
    """The dictionary of one variant."""

    def __init__(self, metadata: bytes) -> None:
        is_small = len(metadata) <= _CACHED_BYTES
        self.names = _read_names(metadata) if is_small else variant.read_names(metadata)
        self.ids: Mapping[str, int] = {name: index for index, name in enumerate(self.names)}


_read_names = lru_cache(maxsize=256)(variant.read_names)
_CACHED_BYTES = 4096


def read_variant(array: pa.Array) -> pa.Array:
    """Return variants as structs of two binaries.

    Args:
        array: structs of `metadata`, `value` and, where the file is shredded, `typed_value`.
    Raises:
        FormatError: other columns, or values that contradict each other.
        UnsupportedError: a type that no variant has.
    """
    check_variant_columns(array.type)
    metadata, value = _child(array, "metadata"), _child(array, "value")
    if array.type.get_field_index("typed_value") >= 0:
        value = pa.array(_rows(array, metadata), pa.binary())
    assert metadata is not None
    assert value is not None
    missing, null = array.is_null(), single(variant.NULL, pa.binary())
    # Spec: a value that is missing at the top is not legal, and is read as a null of the variant.
    metadata, value = metadata.cast(pa.binary()), pc.fill_null(value.cast(pa.binary()), null)
    if pc.any(pc.and_not(metadata.is_null(), missing)).as_py():
        raise FormatError("a variant that is not null has no metadata")
    # Neither of the two is nullable, and Arrow's writer sees nulls also below the null of the variant.
    columns, empty = [metadata, value], single(b"", pa.binary())
    if array.null_count:
        columns = [pc.if_else(missing, empty, part) for part in columns]
    mask = missing if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(type_to_arrow(VariantType()).fields), mask=mask)


# --- columns ----------------------------------------------------------------------------------------------------------


def check_variant_columns(kind: pa.DataType) -> None:
    """Check the columns of a variant, down to those of the values that have columns of their own.

    Raises:
        FormatError: they are not those of a variant.
        UnsupportedError: a value has a column of a type that no variant has, or in too many levels.
    """
    names = [field.name for field in kind] if kinds.is_struct(kind) else []
    if names.count("metadata") != 1 or not _is_bytes(kind.field("metadata").type):
        raise FormatError(f"unexpected type {kind} of a variant (expected metadata and value)")
    _check_group(kind, "a variant", 0)


def _check_group(kind: pa.DataType, what: str, level: int) -> None:
    names = [field.name for field in kind] if kinds.is_struct(kind) else []
    counts = names.count("value"), names.count("typed_value")
    if max(counts) != 1:
        raise FormatError(
            f"unexpected type {kind} of {what} (expected a struct of value and typed_value, or one of them)"
        )
    if counts[0] and not _is_bytes(kind.field("value").type):
        raise FormatError(f"unexpected type {kind.field('value').type} of the value of {what} (expected binary)")
    if counts[1]:
        _check_typed(_plain_type(kind.field("typed_value").type), what, level + 1)


def _check_typed(kind: pa.DataType, what: str, level: int) -> None:
    if level > _MOST_LEVELS:
        raise UnsupportedError(f"a variant has columns in more than {_MOST_LEVELS} levels")
    if kinds.is_struct(kind):
        if len({field.name for field in kind}) < kind.num_fields:
            raise FormatError(f"{what} has two columns for a field: {kind}")
        for field in kind:
            _check_group(field.type, f"field '{field.name}' of a variant", level)
    elif kinds.is_list(kind) or kinds.is_large_list(kind):
        _check_group(kind.value_type, "an element of a variant", level)
    elif _primitive_type(kind) is None:
        raise UnsupportedError(f"a variant has a column of type {kind}, which no variant has")


_MOST_LEVELS = 50


def _is_bytes(kind: pa.DataType) -> bool:
    checks = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_string, kinds.is_large_string)
    return any(check(kind) for check in checks)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if kinds.is_dictionary(kind) else kind


def _primitive_type(kind: pa.DataType) -> IcebergType | None:
    """Return the type whose values a column has; None for a type that no variant has."""
    if kinds.is_unsigned_integer(kind):
        return LongType()
    found = primitive_from_arrow(kind)
    if isinstance(found, FixedType):
        # The only fixed type of variants; others differ in their length.
        return UUIDType() if found.length == 16 else BinaryType()
    return found


# --- rows -------------------------------------------------------------------------------------------------------------


def _rows(array: pa.Array, metadata: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = []
    metadata = metadata.cast(pa.binary())
    for is_valid, names, cell in zip(array.is_valid().to_pylist(), metadata.to_pylist(), _cells(array), strict=True):
        if not is_valid:
            found.append(None)
            continue
        if names is None:
            raise FormatError("a variant that is not null has no metadata")
        found.append(cell(_Names(names)))
    return found


def _child(array: pa.Array, name: str) -> pa.Array | None:
    """Return a column of a struct; null where the struct is, below which there may be any bytes."""
    index = array.type.get_field_index(name)
    if index < 0:
        return None
    return array.flatten()[index] if array.null_count else array.field(index)


def _cells(array: pa.Array) -> list[_Cell]:
    """Return the values of a column of `value` and `typed_value`."""
    value, typed = _child(array, "value"), _child(array, "typed_value")
    plain = [None] * len(array) if value is None else value.cast(pa.binary()).to_pylist()
    if typed is None:
        return [_plain(item) for item in plain]
    if kinds.is_dictionary(typed.type):
        typed = typed.dictionary_decode()
    if kinds.is_struct(typed.type):
        return _objects(plain, typed)
    made = _arrays(typed) if kinds.is_list(typed.type) or kinds.is_large_list(typed.type) else _primitives(typed)
    return [_one_of(left, right) for left, right in zip(plain, made, strict=True)]


def _plain(value: bytes | None) -> _Cell:
    return lambda names: value


def _one_of(value: bytes | None, typed: _Cell | None) -> _Cell:
    return _twice if value is not None and typed is not None else _plain(value) if typed is None else typed


def _twice(names: _Names) -> bytes | None:
    # Raised only where the value is used: below a null the columns may have any values.
    raise FormatError("a value of a variant is stored twice, and is no object")


def _objects(plain: list[bytes | None], typed: pa.Array) -> list[_Cell]:
    columns = {field.name: _cells(column) for field, column in zip(typed.type, typed.flatten(), strict=True)}
    cells: list[_Cell] = []
    for row, (value, is_valid) in enumerate(zip(plain, typed.is_valid().to_pylist(), strict=True)):
        own = {name: column[row] for name, column in columns.items()}
        cells.append(_object(value, own) if is_valid else _plain(value))
    return cells


def _object(value: bytes | None, columns: Mapping[str, _Cell]) -> _Cell:
    def cell(names: _Names) -> bytes:
        found = {name: inner(names) for name, inner in columns.items()}
        fields = {name: data for name, data in found.items() if data is not None}
        if value is not None:
            rest = variant.object_fields(names.names, value)
            if rest.keys() & fields.keys():
                raise FormatError(f"field '{min(rest.keys() & fields.keys())}' of a variant is stored twice")
            fields.update(rest)
        return variant.encode_object(names.ids, fields)

    return cell


def _arrays(typed: pa.Array) -> list[_Cell | None]:
    # flatten() leaves out what lies below a null.
    items = _cells(typed.flatten())
    ends = list(accumulate(pc.fill_null(pc.list_value_length(typed), 0).to_pylist(), initial=0))
    spans = zip(ends, ends[1:], typed.is_valid().to_pylist(), strict=False)
    return [_array(items[start:stop]) if is_valid else None for start, stop, is_valid in spans]


def _array(items: list[_Cell]) -> _Cell:
    # Items cannot be missing; a missing one is read as null.
    return lambda names: variant.encode_array([item(names) or variant.NULL for item in items])


def _primitives(typed: pa.Array) -> list[_Cell | None]:
    type_, size = _primitive_type(typed.type), None
    if type_ is None:
        raise UnsupportedError(f"a variant has a column of type {typed.type}, which no variant has")
    try:
        if kinds.is_unsigned_integer(typed.type):
            return [None if value is None else _plain(_unsigned(value, typed.type)) for value in typed.to_pylist()]
        if kinds.is_integer(typed.type):
            size = typed.type.bit_width // 8
        values: list[Any] = values_from_array(type_, typed)
        encode = variant.encode_primitive
        return [None if value is None else _plain(encode(type_, value, int_size=size)) for value in values]
    except (pa.ArrowException, ValueError, OverflowError, ArithmeticError, struct.error) as error:
        raise FormatError(f"a value of a variant is none of type {typed.type}: {error}") from error


def _unsigned(value: int, kind: pa.DataType) -> bytes:
    """Return an integer of a type without signs, which variants do not have, in the next wider type."""
    size = kind.bit_width // 4
    if size <= _LONG_BYTES or value < 1 << 63:
        return variant.encode_primitive(LongType(), value, int_size=min(size, _LONG_BYTES))
    return variant.encode_primitive(DecimalType(20, 0), value)


_LONG_BYTES = 8
