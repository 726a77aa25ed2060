"""Rows as they come to rows as the table wants them: columns by name, casts that lose nothing.

Here: matching of names at every level, what is missing or too much, nulls, and errors that name column, source, row and
value. Not here: what one type becomes another by (`data.cast.types`), writing (`data.write.partitioned`), reading of
sources (`jobs`).

Names match case-sensitively. A missing column becomes its write default, if the schema that is given has one, or null.
Everything that could lose something, or that would be a guess, is refused; see `data.cast.types` for the list.
"""

from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.cast.types import (
    Conversion,
    Misfit,
    conversion,
    decoded,
    decoded_type,
    misfit_hint,
    refusal_hint,
)
from airflow_iceberg.data.cast.variants import BadVariant, check_variant_type, variant_column
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of, valid_of
from airflow_iceberg.format.arrow.types import value_to_scalar
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    VariantType,
    child_fields,
)
from airflow_iceberg.format.values import bytes as values

_CHUNK_BYTES = 1024 * 1024 * 1024
"""Larger chunks are converted piece by piece: offsets of the plain Arrow types have 32 bits."""
_SHOWN_CHARACTERS = 60


class _Offence(Exception):
    """A value that does not fit, or a null that must not be; the index is relative to the array at hand."""

    def __init__(self, name: str, index: int, problem: str) -> None:
        super().__init__(problem)
        self.name = name
        self.index = index
        self.problem = problem


def conform(table: pa.Table, schema: Schema, *, source: str, first_row: int = 1) -> pa.Table:
    """Return the rows with exactly the columns and types of a table's schema.

    Columns whose type is the table's already are not copied.

    Args:
        table: rows as they come.
        schema: of the table; the result has the Arrow schema `schema_to_arrow(schema)`.
        source: file or query, for errors.
        first_row: number of the first row within the source, for errors; counted from 1.
    Raises:
        InvalidInputError: a column is missing, too much, or of a type that cannot become the table's; a value does not
            fit; a null stands in a required column. The message names column, source, row and value.
        UnsupportedError: the table has a type that is not written yet.
    """
    check_columns(table.schema, schema, source=source)
    target = schema_to_arrow(schema)
    columns = []
    for item, arrow in zip(schema.fields, target, strict=True):
        position = table.schema.get_field_index(item.name)
        if position < 0:
            columns.append(_default_column(item, arrow.type, table.num_rows))
        else:
            columns.append(_column(table.column(position), item, arrow.type, source, first_row))
    return pa.Table.from_arrays(columns, schema=target)


def check_columns(arrow_schema: pa.Schema, schema: Schema, *, source: str) -> None:
    """Check names and types without any rows, so that a load fails before it reads.

    Raises:
        InvalidInputError, UnsupportedError: as `conform`; a value that does not fit and a null are not seen here.
    """
    _check_fields(list(arrow_schema), schema.fields, "", source)


def _check_fields(found: Sequence[pa.Field], wanted: Sequence[NestedField], prefix: str, source: str) -> None:
    by_name: dict[str, pa.Field] = {}
    known = {item.name for item in wanted}
    for item in found:
        if item.name in by_name:
            raise InvalidInputError(f"column '{prefix}{item.name}' appears twice in {source}")
        if item.name not in known:
            _fail_extra(item.name, wanted, prefix, source)
        by_name[item.name] = item
    for field in wanted:
        name = f"{prefix}{field.name}"
        if field.name in by_name:
            _check_type(by_name[field.name].type, field.type, name, source)
        elif field.required and field.write_default is None:
            columns = ", ".join(by_name) or "no columns"
            raise InvalidInputError(
                f"required column '{name}' ({field.type}) is missing in {source}, which has {columns}"
            )


def _fail_extra(name: str, wanted: Sequence[NestedField], prefix: str, source: str) -> NoReturn:
    near = next((item.name for item in wanted if item.name.casefold() == name.casefold()), None)
    if near is not None:
        advice = f"names are matched by case, and the table's column is '{prefix}{near}'"
    else:
        advice = f"add it to the table or leave it out; the table has {', '.join(item.name for item in wanted)}"
    raise InvalidInputError(f"column '{prefix}{name}' of {source} is not in the table: {advice}")


def _check_type(arrow: pa.DataType, type_: IcebergType, name: str, source: str) -> None:
    arrow = decoded_type(arrow)
    if pa.types.is_null(arrow):
        return
    if isinstance(type_, StructType) and pa.types.is_struct(arrow):
        _check_fields(list(arrow), type_.fields, f"{name}.", source)
    elif isinstance(type_, ListType) and _is_list(arrow):
        _check_type(arrow.value_type, type_.element, f"{name}.element", source)
    elif isinstance(type_, MapType) and pa.types.is_map(arrow):
        _check_type(arrow.key_type, type_.key, f"{name}.key", source)
        _check_type(arrow.item_type, type_.value, f"{name}.value", source)
    elif isinstance(type_, VariantType):
        check_variant_type(arrow, name, source)
    elif not isinstance(type_, PrimitiveType) or conversion(arrow, type_) is None:
        hint = refusal_hint(arrow, type_)
        raise InvalidInputError(
            f"column '{name}' is {arrow} in {source} and cannot become {type_}{hint and f': {hint}'}"
        )


def _is_list(arrow: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(arrow)
        or kinds.is_large_list(arrow)
        or kinds.is_fixed_size_list(arrow)
        or kinds.is_list_view(arrow)
        or kinds.is_large_list_view(arrow)
    )


def _default_column(item: NestedField, arrow: pa.DataType, rows: int) -> pa.Array:
    if item.write_default is None:
        return pa.nulls(rows, arrow)
    value = values.from_json(item.type, item.write_default, path=f"write-default of column '{item.name}'")
    return pa.repeat(value_to_scalar(item.type, value), rows)


def _column(
    column: pa.ChunkedArray, item: NestedField, arrow: pa.DataType, source: str, first_row: int
) -> pa.ChunkedArray:
    """Convert and check one column, chunk by chunk."""
    same = column.type.equals(arrow) and not _has_variant(item.type)
    if same and not _has_required(item.type):
        if item.required and column.null_count:
            _fail(_Offence(item.name, _first_null(column), _null_problem(item)), source, first_row)
        return column
    chunks = []
    for chunk in _pieces(column):
        try:
            converted = chunk if same else _converted(chunk, item.type, arrow, item.name)
            _check_nulls(converted, item, item.name, None)
        except _Offence as offence:
            _fail(offence, source, first_row)
        chunks.append(_filled(converted, item))
        first_row += len(chunk)
    return pa.chunked_array(chunks, type=arrow)


def _pieces(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    waiting = list(reversed(column.chunks))
    while waiting:
        chunk = waiting.pop()
        if len(chunk) > 1 and chunk.nbytes > _CHUNK_BYTES:
            half = len(chunk) // 2
            waiting += [chunk.slice(half), chunk.slice(0, half)]
        else:
            yield chunk


def _fail(offence: _Offence, source: str, first_row: int) -> NoReturn:
    row = first_row + offence.index
    raise InvalidInputError(f"column '{offence.name}', row {row} of {source}: {offence.problem}") from None


def _null_problem(item: NestedField) -> str:
    return f"null, and the column is required ({item.type}); fill it in the source or make the column optional"


def _has_required(type_: IcebergType) -> bool:
    """Return whether something below a nested type is required; map keys always are."""
    match type_:
        case StructType():
            return any(child.required or _has_required(child.type) for child in type_.fields)
        case ListType():
            return type_.element_required or _has_required(type_.element)
        case MapType():
            return True
    return False


def _has_variant(type_: IcebergType) -> bool:
    """Return whether a variant is the type or is inside of it: its bytes are looked at whatever their Arrow type."""
    return isinstance(type_, VariantType) or any(_has_variant(child.type) for child in child_fields(type_))


def _first_null(array: "pa.Array | pa.ChunkedArray") -> int:
    return int(pc.index(array.is_null(), True).as_py())


# -- conversion of one array, nulls not yet checked --------------------------------------------------------------------


def _converted(array: pa.Array, type_: IcebergType, arrow: pa.DataType, name: str) -> pa.Array:
    if array.type.equals(arrow) and not _has_variant(type_):
        return array
    array = decoded(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), arrow)
    match type_:
        case StructType():
            return _struct(array, type_, arrow, name)
        case ListType():
            return _list(array, type_, arrow, name)
        case MapType():
            return _map(array, type_, arrow, name)
        case VariantType():
            try:
                return variant_column(array)
            except BadVariant as error:
                raise _Offence(name, error.index, str(error)) from None
    convert = conversion(array.type, type_)
    if convert is None:
        raise UnsupportedError(f"column '{name}' cannot be converted from {array.type} to {type_}")
    return _primitive(array, convert, type_, name)


def _primitive(array: pa.Array, convert: Conversion, type_: IcebergType, name: str) -> pa.Array:
    try:
        return convert(array)
    except (pa.ArrowInvalid, Misfit):
        index = _first_misfit(array, convert)
        shown = _shown(array[index])
        hint = misfit_hint(array[index], type_) or "change the value or the column's type"
        problem = f"value {shown} ({array.type}) does not fit {type_}; {hint}"
    raise _Offence(name, index, problem)


def _first_misfit(array: pa.Array, convert: Conversion) -> int:
    """Return the index of the first value that cannot be converted, by halving."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(array.slice(low, middle - low))
            low = middle
        except (pa.ArrowInvalid, Misfit):
            high = middle
    return low


def _shown(scalar: pa.Scalar) -> str:
    try:
        text = repr(scalar.as_py())
    except (ValueError, OverflowError):
        text = str(scalar)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _struct(array: pa.Array, type_: StructType, arrow: pa.DataType, name: str) -> pa.Array:
    # flatten() hands the parent's nulls down, so that what lies under a null is never converted.
    children = dict(zip((item.name for item in array.type), array.flatten(), strict=True))
    columns = []
    for position, child in enumerate(type_.fields):
        found = children.get(child.name)
        wanted = arrow.field(position).type
        if found is None:
            columns.append(_default_column(child, wanted, len(array)))
        else:
            columns.append(_converted(found, child.type, wanted, f"{name}.{child.name}"))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(arrow), mask=mask)


def _list(array: pa.Array, type_: ListType, arrow: pa.DataType, name: str) -> pa.Array:
    lengths, elements = _lengths(array), array.flatten()
    try:
        converted = _converted(elements, type_.element, arrow.value_type, f"{name}.element")
    except _Offence as offence:
        raise _in_parent(offence, lengths) from None
    return pa.ListArray.from_arrays(_offsets(lengths), converted, type=arrow, mask=_mask(array))


def _map(array: pa.Array, type_: MapType, arrow: pa.DataType, name: str) -> pa.Array:
    entries = _map_entries(array)
    lengths = _lengths(entries)
    flat = entries.flatten()
    keys, items = flat.field(0), flat.field(1)
    try:
        keys = _converted(keys, type_.key, arrow.key_type, f"{name}.key")
        items = _converted(items, type_.value, arrow.item_type, f"{name}.value")
    except _Offence as offence:
        raise _in_parent(offence, lengths) from None
    return pa.MapArray.from_arrays(_offsets(lengths), keys, items, type=arrow, mask=_mask(array))


def _map_entries(array: pa.Array) -> pa.Array:
    """Return a map as the list of key-value structs that it is in memory, which more functions understand."""
    buffers = array.buffers()[:2]
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    return pa.ListArray.from_buffers(
        pa.list_(entries.type), len(array), buffers, array.null_count, array.offset, children=[entries]
    )


def _lengths(array: pa.Array) -> "npt.NDArray[np.int64]":
    """Return the number of elements of each list, 0 for null."""
    lengths = pc.list_value_length(array)
    return np.where(valid_of(lengths), numbers_of(lengths), 0).astype(np.int64)


def _offsets(lengths: "npt.NDArray[np.int64]") -> pa.Array:
    return number_array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def _mask(array: pa.Array) -> "pa.Array | None":
    return array.is_null() if array.null_count else None


def _in_parent(offence: _Offence, lengths: "npt.NDArray[np.int64]") -> _Offence:
    """Return an offence among elements as one in the list that holds the element."""
    parent = int(np.searchsorted(np.cumsum(lengths), offence.index, side="right"))
    return _Offence(offence.name, parent, offence.problem)


# -- nulls where there must be none ------------------------------------------------------------------------------------


def _check_nulls(array: pa.Array, item: NestedField, name: str, parent_valid: "pa.Array | None") -> None:
    """Check an array, converted already, and what is below it.

    Args:
        parent_valid: which rows of the parent struct are there; None when all are.
    """
    if item.required and array.null_count:
        missing = array.is_null()
        if parent_valid is not None:
            missing = pc.and_(missing, parent_valid)
        index = pc.index(missing, True).as_py()
        if index >= 0:
            raise _Offence(name, int(index), _null_problem(item))
    if not _has_required(item.type):
        return
    match item.type:
        case StructType():
            valid = _both_valid(array, parent_valid)
            for position, child in enumerate(item.type.fields):
                _check_nulls(array.field(position), child, f"{name}.{child.name}", valid)
        case ListType():
            _check_elements(array, [item.type.element_field], name)
        case MapType():
            _check_elements(_map_entries(array), [item.type.key_field, item.type.value_field], name)


def _both_valid(array: pa.Array, parent_valid: "pa.Array | None") -> "pa.Array | None":
    """Return which rows of a struct are there, seen together with its parent."""
    if not array.null_count:
        return parent_valid
    return array.is_valid() if parent_valid is None else pc.and_(array.is_valid(), parent_valid)


def _check_elements(lists: pa.Array, items: Sequence[NestedField], name: str) -> None:
    flat = lists.flatten()
    parts = [flat] if len(items) == 1 else [flat.field(position) for position in range(len(items))]
    for part, item in zip(parts, items, strict=True):
        try:
            _check_nulls(part, item, f"{name}.{item.name}", None)
        except _Offence as offence:
            raise _in_parent(offence, _lengths(lists)) from None


def _filled(array: pa.Array, item: NestedField) -> pa.Array:
    """Return a checked array in which required fields have no nulls at all, not even below a parent that is null.

    Arrow's writer refuses such nulls, though the format does not see them. What stands in their place is never written.
    """
    if not _has_required(item.type):
        return _without_nulls(array) if item.required and array.null_count else array
    mask = _mask(array) if not item.required else None
    match item.type:
        case StructType():
            children = [_filled(array.field(position), child) for position, child in enumerate(item.type.fields)]
            return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
        case ListType():
            elements = _filled(array.flatten(), item.type.element_field)
            return pa.ListArray.from_arrays(_offsets(_lengths(array)), elements, type=array.type, mask=mask)
        case MapType() if _has_required(item.type.value) or item.type.value_required:
            entries = _map_entries(array)
            flat, offsets = entries.flatten(), _offsets(_lengths(entries))
            values_ = _filled(flat.field(1), item.type.value_field)
            return pa.MapArray.from_arrays(offsets, flat.field(0), values_, type=array.type, mask=mask)
    return _without_nulls(array) if item.required and array.null_count else array


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return an array whose nulls count as the values that lie in memory there; only for what is never looked at."""
    if pa.types.is_nested(array.type):
        return _unmasked_nested(array)
    buffers = [None, *array.buffers()[1:]]
    return pa.Array.from_buffers(array.type, len(array), buffers, 0, array.offset)


def _unmasked_nested(array: pa.Array) -> pa.Array:
    if pa.types.is_struct(array.type):
        children = [array.field(position) for position in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(array.type))
    if pa.types.is_map(array.type):
        entries = _map_entries(array)
        flat = entries.flatten()
        return pa.MapArray.from_arrays(_offsets(_lengths(entries)), flat.field(0), flat.field(1), type=array.type)
    return pa.ListArray.from_arrays(_offsets(_lengths(array)), array.flatten(), type=array.type)
