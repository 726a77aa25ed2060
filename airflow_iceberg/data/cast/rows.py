"""Rows of a source as rows of a table: columns by name, casts that lose nothing.

Names match case-sensitively. A missing column becomes its write default, if the given schema has one, or null. A cast
that could lose information, or that would be a guess, is rejected; see `data.cast.types` for the list.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.cast import nulls, types
from airflow_iceberg.data.cast.nulls import Offence, in_parent, lengths_of, mask_of, offsets_of
from airflow_iceberg.data.cast.types import Conversion, Misfit, conversion
from airflow_iceberg.data.cast.valid import Damaged, check_keys, check_values, first_refused, has_maps
from airflow_iceberg.data.cast.variants import BadVariant, check_variant_type, variant_column
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import value_to_scalar
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.defaults import write_default

# Larger chunks are converted piece by piece: offsets of the plain Arrow types have 32 bits.
_CHUNK_BYTES = 1024 * 1024 * 1024
# The values of fewer rows are checked sooner than threads are started.
_THREADED_BYTES = 32 * 1024 * 1024


def conform(table: pa.Table, schema: Schema, *, source: str, first_row: int = 1, threads: int = 1) -> pa.Table:
    """Return the rows with exactly the columns and types of a table's schema.

    Columns that have the table's type are not copied.

    Args:
        schema: the table's schema; the result has the Arrow schema `schema_to_arrow(schema)`.
        source: the file or query, for errors.
        first_row: the number of the first row within the source, from 1, for errors.
        threads: the number of columns whose values are checked at a time, above 1 in a process without other tasks.
    Raises:
        InvalidInputError: a column is missing, unknown, or of a type that cannot become the table's; a value does not
            fit; a required column has a null. The message names column, source, row and value.
        UnsupportedError: the table has a type that is not written yet.
    """
    check_columns(table.schema, schema, source=source)
    _check_columns(table, schema, source, first_row, threads)
    target = schema_to_arrow(schema)
    columns = []
    for item, arrow in zip(schema.fields, target, strict=True):
        position = table.schema.get_field_index(item.name)
        if position < 0:
            columns.append(_missing_column(table.num_rows, item, arrow.type, source, first_row))
        else:
            columns.append(_column(table.column(position), item, arrow.type, source, first_row))
    return pa.Table.from_arrays(columns, schema=target)


def check_columns(arrow_schema: pa.Schema, schema: Schema, *, source: str) -> None:
    """Check names and types, but no rows, so that a load fails before it reads; raises as `conform`."""
    _check_fields(list(arrow_schema), schema.fields, "", source)


def _check_fields(found: Sequence[pa.Field], wanted: Sequence[t.NestedField], prefix: str, source: str) -> None:
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


def _fail_extra(name: str, wanted: Sequence[t.NestedField], prefix: str, source: str) -> NoReturn:
    near = next((item.name for item in wanted if fold(item.name) == fold(name)), None)
    if near is not None:
        advice = f"names are matched by case, and the table's column is '{prefix}{near}'"
    else:
        advice = f"add it to the table or leave it out; the table has {', '.join(item.name for item in wanted)}"
    raise InvalidInputError(f"column '{prefix}{name}' of {source} is not in the table: {advice}")


def _check_type(arrow: pa.DataType, type_: t.IcebergType, name: str, source: str) -> None:
    arrow = types.decoded_type(arrow)
    if pa.types.is_null(arrow):
        return
    if isinstance(type_, t.StructType) and pa.types.is_struct(arrow):
        _check_fields(list(arrow), type_.fields, f"{name}.", source)
    elif isinstance(type_, t.ListType) and _is_list(arrow):
        _check_type(arrow.value_type, type_.element, f"{name}.element", source)
    elif isinstance(type_, t.MapType) and pa.types.is_map(arrow):
        _check_type(arrow.key_type, type_.key, f"{name}.key", source)
        _check_type(arrow.item_type, type_.value, f"{name}.value", source)
    elif isinstance(type_, t.VariantType):
        check_variant_type(arrow, name, source)
    elif not isinstance(type_, t.PrimitiveType) or conversion(arrow, type_) is None:
        hint = types.refusal_hint(arrow, type_)
        raise InvalidInputError(
            f"column '{name}' is {arrow} in {source} and cannot become {type_}{hint and f': {hint}'}"
        )


def _is_list(arrow: pa.DataType) -> bool:
    kinds = pa.types
    is_view = kinds.is_list_view(arrow) or kinds.is_large_list_view(arrow)
    return bool(is_view or kinds.is_list(arrow) or kinds.is_large_list(arrow) or kinds.is_fixed_size_list(arrow))


def _missing_column(rows: int, item: t.NestedField, arrow: pa.DataType, source: str, first_row: int) -> pa.Array:
    """Return a column that the rows do not have: the same as if each of them had its default, or null."""
    column = _default_column(item, arrow, rows)
    try:
        nulls.check_nulls(column, item, item.name, None)
    except Offence as offence:
        _fail(offence, source, first_row)
    return nulls.filled(column, item)


def _default_column(item: t.NestedField, arrow: pa.DataType, rows: int) -> pa.Array:
    value = write_default(item)
    return pa.nulls(rows, arrow) if value is None else pa.repeat(value_to_scalar(item.type, value), rows)


def _column(
    column: pa.ChunkedArray, item: t.NestedField, arrow: pa.DataType, source: str, first_row: int
) -> pa.ChunkedArray:
    """Convert one column, whose values are checked, and check its nulls and keys, chunk by chunk."""
    same = column.type.equals(arrow) and not _has_variant(item.type)
    # The keys of maps are required, so that maps are looked at below.
    if same and not nulls.has_required(item.type):
        if item.required and column.null_count:
            index = int(pc.index(column.is_null(), True).as_py())
            _fail(Offence(item.name, index, nulls.null_problem(item)), source, first_row)
        return column
    chunks = []
    for chunk in _pieces(column):
        try:
            converted = chunk if same else _converted(chunk, item.type, arrow, item.name)
            nulls.check_nulls(converted, item, item.name, None)
            check_keys(converted, item.name)
        except Offence as offence:
            _fail(offence, source, first_row)
        chunks.append(nulls.filled(converted, item))
        first_row += len(chunk)
    return pa.chunked_array(chunks, type=arrow)


def check_rows(table: pa.Table, *, source: str, first_row: int) -> None:
    """Check the values of rows that are not yet those of a table: an engine, or a file between, would take them.

    Raises:
        InvalidInputError: as `conform`, for values that no type has, such as texts that are no UTF-8, and for maps that
            have a key twice.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        _check_column(column, name, source, first_row)
        at = first_row
        for chunk in column.chunks if has_maps(column.type) else ():
            try:
                check_keys(chunk, name)
            except Offence as offence:
                _fail(offence, source, at)
            at += len(chunk)


def python_rows(rows: pa.Table | pa.RecordBatch, *, source: str) -> list[dict[str, Any]]:
    """Return rows as dictionaries.

    Raises:
        InvalidInputError: a text that another program has written is not UTF-8, so that Python has no text for it.
    """
    try:
        found: list[dict[str, Any]] = rows.to_pylist()
    except UnicodeDecodeError:
        check_rows(rows if isinstance(rows, pa.Table) else pa.table(rows), source=source, first_row=1)
        raise
    return found


def _check_columns(table: pa.Table, schema: Schema, source: str, first_row: int, threads: int) -> None:
    """Check the values of all columns of rows; of several that have a wrong one, the table's first one is reported."""
    positions = [table.schema.get_field_index(item.name) for item in schema.fields]
    columns = [(table.column(at), table.column_names[at]) for at in positions if at >= 0]
    if threads < 2 or table.nbytes < _THREADED_BYTES:
        for column, name in columns:
            _check_column(column, name, source, first_row)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda one: _check_column(one[0], one[1], source, first_row), columns))


def _check_column(column: pa.ChunkedArray, name: str, source: str, first_row: int) -> None:
    for chunk in column.chunks:
        try:
            check_values(chunk, name)
        except Offence as offence:
            _fail(offence, source, first_row)
        except Damaged as damage:
            raise InvalidInputError(
                f"column '{damage.name}' of {source}, rows {first_row} to {first_row + len(chunk) - 1}: the Arrow data "
                f"({column.type}) is damaged: {damage}; correct the program that makes it"
            ) from None
        first_row += len(chunk)


def _pieces(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    waiting = list(reversed(column.chunks))
    while waiting:
        chunk = waiting.pop()
        if len(chunk) > 1 and chunk.nbytes > _CHUNK_BYTES:
            half = len(chunk) // 2
            waiting += [chunk.slice(half), chunk.slice(0, half)]
        else:
            yield chunk


def _fail(offence: Offence, source: str, first_row: int) -> NoReturn:
    row = first_row + offence.index
    raise InvalidInputError(f"column '{offence.name}', row {row} of {source}: {offence.problem}") from None


def _has_variant(type_: t.IcebergType) -> bool:
    """Return whether a type is or contains a variant, whose bytes are checked whatever their Arrow type is."""
    return isinstance(type_, t.VariantType) or any(_has_variant(child.type) for child in t.child_fields(type_))


# -- conversion of one array, nulls not yet checked --------------------------------------------------------------------


def _converted(array: pa.Array, type_: t.IcebergType, arrow: pa.DataType, name: str) -> pa.Array:
    if array.type.equals(arrow) and not _has_variant(type_):
        return array
    array = types.decoded(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), arrow)
    match type_:
        case t.StructType():
            return _struct(array, type_, arrow, name)
        case t.ListType():
            return _list(array, type_, arrow, name)
        case t.MapType():
            return _map(array, type_, arrow, name)
        case t.VariantType():
            try:
                return variant_column(array)
            except BadVariant as error:
                raise Offence(name, error.index, str(error)) from None
    convert = conversion(array.type, type_)
    if convert is None:
        raise UnsupportedError(f"column '{name}' cannot be converted from {array.type} to {type_}")
    return _primitive(array, convert, type_, name)


def _primitive(array: pa.Array, convert: Conversion, type_: t.IcebergType, name: str) -> pa.Array:
    try:
        return convert(array)
    except (pa.ArrowInvalid, Misfit):
        index = first_refused(array, convert, (pa.ArrowInvalid, Misfit))
        shown = types.shown(array[index])
        hint = types.misfit_hint(array[index], type_) or "change the value or the column's type"
        problem = f"value {shown} ({array.type}) does not fit {type_}; {hint}"
    raise Offence(name, index, problem)


def _struct(array: pa.Array, type_: t.StructType, arrow: pa.DataType, name: str) -> pa.Array:
    # flatten() applies the parent's nulls to the fields, so that values below a null are never converted.
    children = dict(zip((item.name for item in array.type), array.flatten(), strict=True))
    columns = []
    for position, child in enumerate(type_.fields):
        found = children.get(child.name)
        wanted = arrow.field(position).type
        if found is None:
            columns.append(_default_column(child, wanted, len(array)))
        else:
            columns.append(_converted(found, child.type, wanted, f"{name}.{child.name}"))
    return pa.StructArray.from_arrays(columns, fields=list(arrow), mask=mask_of(array))


def _list(array: pa.Array, type_: t.ListType, arrow: pa.DataType, name: str) -> pa.Array:
    lengths, elements = lengths_of(array), array.flatten()
    try:
        converted = _converted(elements, type_.element, arrow.value_type, f"{name}.element")
    except Offence as offence:
        raise in_parent(offence, lengths) from None
    return pa.ListArray.from_arrays(offsets_of(lengths), converted, type=arrow, mask=mask_of(array))


def _map(array: pa.Array, type_: t.MapType, arrow: pa.DataType, name: str) -> pa.Array:
    entries = nulls.map_entries(array)
    lengths = lengths_of(entries)
    flat = entries.flatten()
    keys, items = flat.field(0), flat.field(1)
    try:
        keys = _converted(keys, type_.key, arrow.key_type, f"{name}.key")
        items = _converted(items, type_.value, arrow.item_type, f"{name}.value")
    except Offence as offence:
        raise in_parent(offence, lengths) from None
    return pa.MapArray.from_arrays(offsets_of(lengths), keys, items, type=arrow, mask=mask_of(array))
