"""Nulls in required columns, at every depth."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.format.arrow.buffers import number_array, numbers_of, valid_of
from airflow_iceberg.format.types import IcebergType, ListType, MapType, NestedField, StructType, VariantType


class Offence(Exception):
    """A value that does not fit, or a null in a required column; the index is relative to the checked array."""

    def __init__(self, name: str, index: int, problem: str) -> None:
        super().__init__(problem)
        self.name = name
        self.index = index
        self.problem = problem


def null_problem(item: NestedField) -> str:
    """Return the message for a null in a required field."""
    return f"null, and the column is required ({item.type}); fill it in the source or make the column optional"


def has_required(type_: IcebergType) -> bool:
    """Return whether a field below a nested type is required; map keys and the two binaries of a variant always are."""
    match type_:
        case StructType():
            return any(child.required or has_required(child.type) for child in type_.fields)
        case ListType():
            return type_.element_required or has_required(type_.element)
        case MapType() | VariantType():
            return True
    return False


def map_entries(array: pa.Array) -> pa.Array:
    """Return a map as a list of key-value structs, without a copy."""
    buffers = array.buffers()[:2]
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    return pa.ListArray.from_buffers(
        pa.list_(entries.type), len(array), buffers, array.null_count, array.offset, children=[entries]
    )


def lengths_of(array: pa.Array) -> "npt.NDArray[np.int64]":
    """Return the number of elements of each list, 0 for null."""
    lengths = pc.list_value_length(array)
    return np.where(valid_of(lengths), numbers_of(lengths), 0).astype(np.int64)


def offsets_of(lengths: "npt.NDArray[np.int64]") -> pa.Array:
    """Return where each list starts and ends."""
    return number_array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def mask_of(array: pa.Array) -> "pa.Array | None":
    """Return which values are null, None if none is."""
    return array.is_null() if array.null_count else None


def in_parent(offence: Offence, lengths: "npt.NDArray[np.int64]") -> Offence:
    """Return an offence among elements as one in the list that holds the element."""
    parent = int(np.searchsorted(np.cumsum(lengths), offence.index, side="right"))
    return Offence(offence.name, parent, offence.problem)


def check_nulls(array: pa.Array, item: NestedField, name: str, parent_valid: "pa.Array | None") -> None:
    """Check a converted array and the fields below it; `parent_valid` is where the parent struct is not null."""
    if item.required and array.null_count:
        missing = array.is_null()
        if parent_valid is not None:
            missing = pc.and_(missing, parent_valid)
        index = pc.index(missing, True).as_py()
        if index >= 0:
            raise Offence(name, int(index), null_problem(item))
    if not has_required(item.type):
        return
    match item.type:
        case StructType():
            valid = parent_valid
            if array.null_count:
                valid = array.is_valid() if valid is None else pc.and_(array.is_valid(), valid)
            for position, child in enumerate(item.type.fields):
                check_nulls(array.field(position), child, f"{name}.{child.name}", valid)
        case ListType():
            _check_elements(array, [item.type.element_field], name)
        case MapType():
            _check_elements(map_entries(array), [item.type.key_field, item.type.value_field], name)


def _check_elements(lists: pa.Array, items: Sequence[NestedField], name: str) -> None:
    flat = lists.flatten()
    parts = [flat] if len(items) == 1 else [flat.field(position) for position in range(len(items))]
    for part, item in zip(parts, items, strict=True):
        try:
            check_nulls(part, item, f"{name}.{item.name}", None)
        except Offence as offence:
            raise in_parent(offence, lengths_of(lists)) from None


def filled(array: pa.Array, item: NestedField) -> pa.Array:
    """Return a checked array whose required fields have no nulls, not even below a null parent.

    Arrow's writer rejects such nulls, though the format does not see them. The values in their place are not written.
    """
    if not has_required(item.type):
        return _without_nulls(array) if item.required and array.null_count else array
    mask = mask_of(array) if not item.required else None
    match item.type:
        case StructType():
            children = [filled(array.field(position), child) for position, child in enumerate(item.type.fields)]
            return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
        case VariantType():
            binaries = [_without_nulls(array.field(position)) for position in range(2)]
            return pa.StructArray.from_arrays(binaries, fields=list(array.type), mask=mask)
        case ListType():
            elements = filled(array.flatten(), item.type.element_field)
            return pa.ListArray.from_arrays(offsets_of(lengths_of(array)), elements, type=array.type, mask=mask)
        case MapType() if has_required(item.type.value) or item.type.value_required:
            entries = map_entries(array)
            flat, offsets = entries.flatten(), offsets_of(lengths_of(entries))
            values_ = filled(flat.field(1), item.type.value_field)
            return pa.MapArray.from_arrays(offsets, flat.field(0), values_, type=array.type, mask=mask)
    return _without_nulls(array) if item.required and array.null_count else array


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return an array whose nulls become the values in memory; only for values that are never read."""
    if not pa.types.is_nested(array.type):
        buffers = [None, *array.buffers()[1:]]
        return pa.Array.from_buffers(array.type, len(array), buffers, 0, array.offset)
    if pa.types.is_struct(array.type):
        children = [array.field(position) for position in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(array.type))
    if pa.types.is_map(array.type):
        entries = map_entries(array)
        flat = entries.flatten()
        return pa.MapArray.from_arrays(offsets_of(lengths_of(entries)), flat.field(0), flat.field(1), type=array.type)
    return pa.ListArray.from_arrays(offsets_of(lengths_of(array)), array.flatten(), type=array.type)
