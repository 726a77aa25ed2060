"""A column of a data file, found by field id, as a column of a schema; and the values of a column that the file lacks.

Spec: Column Projection (the four rules for ids that a file does not have, in this order: identity partition value, name
mapping, initial default, null), Schema Evolution (promotions), Name Mapping Serialization.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from airflow_iceberg.data.cast.nulls import Offence, check_nulls, filled
from airflow_iceberg.data.read.file_fields import FileField, fields_by_id, is_list
from airflow_iceberg.data.variant_shredding import read_variant
from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import single
from airflow_iceberg.format.arrow.types import type_to_arrow, value_to_scalar
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.transforms.transform import IdentityTransform
from airflow_iceberg.format.values.defaults import initial_default, without_value

_TIMESTAMPS = (t.TimestampType, t.TimestamptzType, t.TimestampNsType, t.TimestamptzNsType)


# --- columns that the file does not have ------------------------------------------------------------------------------


def identity_constants(spec: PartitionSpec | None, partition: tuple[t.Value, ...]) -> Mapping[int, t.Value]:
    """Return the values of identity partition fields, which whole columns have, by id of the source column.

    Raises:
        FormatError: the partition does not fit the spec.
    """
    if spec is None:
        return {}
    expected, found = len(spec.fields), len(partition)
    if found != expected:
        raise FormatError(f"expected a partition of {expected} values in spec {spec.spec_id}, got {found}")
    pairs = zip(spec.fields, partition, strict=True)
    return {field.source_id: value for field, value in pairs if isinstance(field.transform, IdentityTransform)}


def missing_column(field: t.NestedField, count: int, constants: Mapping[int, t.Value], *, prefix: str = "") -> pa.Array:
    """Return a column of `count` rows for a file that does not have it.

    Args:
        constants: the result of `identity_constants`.
        prefix: the full name of the struct that has the column, and a dot; for errors.
    Raises:
        FormatError: the column, or a field below it, is required and has no value; also where a struct that lacks a
            field is null in all rows, so that the answer is that of the file, not of some rows.
    """
    value = missing_value(field, constants)
    name = without_value(field, value, prefix)
    if name is not None:
        # As in Iceberg Java, PyIceberg and iceberg-rust: null is no value of the column.
        raise FormatError(
            f"column '{name}' is required and has no initial default, and a data file does not have it; make the "
            f"column optional, then its rows have null there, or delete the file's rows"
        )
    if value is None:
        return filled(pa.nulls(count, type_to_arrow(field.type)), field)
    return filled(pa.repeat(value_to_scalar(field.type, value), count), field)


def missing_value(field: t.NestedField, constants: Mapping[int, t.Value]) -> t.Value:
    """Return the value of a column that a file does not have; raises FormatError for a default of another type."""
    return constants[field.id] if field.id in constants else initial_default(field)


# --- columns that it has ----------------------------------------------------------------------------------------------


def is_geo(kind: t.IcebergType) -> bool:
    """Return whether a type is one whose values cannot be read."""
    return isinstance(kind, t.GEOSPATIAL)


def read_column(
    array: pa.Array, source: FileField, target: t.NestedField, constants: Mapping[int, t.Value], *, prefix: str = ""
) -> pa.Array:
    """Return a column of a file, whose values and field are `array` and `source`, as the schema's field `target`.

    Args:
        constants: the result of `identity_constants`, for fields of structs.
        prefix: as of `missing_column`.
    Raises:
        FormatError: a type that cannot become the schema's, or a value that does not fit.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if is_geo(target.type):
        raise UnsupportedError(f"column '{target.name}' is {target.type}, which is not read; select other columns")
    if isinstance(array, pa.NullArray):
        # A column of unknown type that has another type now; all of its values are null.
        nulls = pa.nulls(len(array), type_to_arrow(target.type))
        return nulls if target.required else filled(nulls, target)
    below = f"{prefix}{target.name}."
    match target.type:
        case t.VariantType():
            return read_variant(array)
        case t.StructType() as kind:
            return _read_struct(array, source, target, kind, constants, below)
        case t.ListType() as kind:
            return _read_list(array, source, target, kind, constants, below)
        case t.MapType() as kind:
            return _read_map(array, source, target, kind, constants, below)
        case t.UnknownType():
            return pa.nulls(len(array))
    return _read_primitive(array, target)


def _read_struct(
    array: pa.Array,
    source: FileField,
    target: t.NestedField,
    kind: t.StructType,
    constants: Mapping[int, t.Value],
    below: str,
) -> pa.Array:
    if not kinds.is_struct(array.type):
        raise _wrong_type(array, target)
    by_id = fields_by_id(source.children)
    columns = []
    for child in kind.fields:
        found = by_id.get(child.id)
        if found is None:
            columns.append(missing_column(child, len(array), constants, prefix=below))
        else:
            # `field` respects the offset of a slice, but not the nulls of the struct itself.
            column = read_column(array.field(found.position), found, child, constants, prefix=below)
            columns.append(_without_hidden_nulls(column, child, array))
    mask = array.is_null() if array.null_count else None
    if not columns:
        return pa.array([{}] * len(array), pa.struct([]), mask=mask)
    return pa.StructArray.from_arrays(columns, fields=list(type_to_arrow(kind).fields), mask=mask)


def _without_hidden_nulls(column: pa.Array, child: t.NestedField, parents: pa.Array) -> pa.Array:
    """Return a field of structs without its nulls below those of the structs, which Arrow's writers refuse.

    ORC and Avro have such nulls for every field, Parquet for those that the file has as optional ones.
    """
    if not (child.required and column.null_count and parents.null_count):
        return column
    try:
        check_nulls(column, child, child.name, parents.is_valid())
    except Offence:
        return column  # a file that breaks the specification; whoever rewrites it says so
    return filled(column, child)


def _read_list(
    array: pa.Array,
    source: FileField,
    target: t.NestedField,
    kind: t.ListType,
    constants: Mapping[int, t.Value],
    below: str,
) -> pa.Array:
    if not is_list(array.type):
        raise _wrong_type(array, target)
    if not kinds.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets, start, stop = _own_offsets(array)
    values, field = array.values.slice(start, stop - start), source.children[0]
    element = read_column(values, field, kind.element_field, constants, prefix=below)
    # The mask distinguishes a null list from an empty one.
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, element, type=type_to_arrow(kind), mask=mask)


def _read_map(
    array: pa.Array,
    source: FileField,
    target: t.NestedField,
    kind: t.MapType,
    constants: Mapping[int, t.Value],
    below: str,
) -> pa.Array:
    if not kinds.is_map(array.type):
        raise _wrong_type(array, target)
    offsets, start, stop = _own_offsets(array)
    size = stop - start
    keys = read_column(array.keys.slice(start, size), source.children[0], kind.key_field, constants, prefix=below)
    values = read_column(array.items.slice(start, size), source.children[1], kind.value_field, constants, prefix=below)
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(offsets, keys, values, type=type_to_arrow(kind), mask=mask)


def _own_offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return the offsets of a list or map, which may be a slice, from 0, and the span of its child."""
    offsets = array.offsets
    if not len(array):
        return pa.array([0], pa.int32()), 0, 0
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    # Also computed when it starts at 0: a mask cannot be combined with offsets that are a slice.
    return pc.subtract(offsets, single(start, offsets.type)), start, stop


def _read_primitive(array: pa.Array, target: t.NestedField) -> pa.Array:
    expected = type_to_arrow(target.type)
    if array.type == expected:
        return array
    if kinds.is_dictionary(array.type):
        return _read_primitive(array.dictionary_decode(), target)
    if not may_become(array.type, target.type):
        raise _wrong_type(array, target)
    try:
        if kinds.is_timestamp(array.type):
            # The stored values are the same with and without a zone.
            zone = expected.tz if kinds.is_timestamp(expected) else None
            array = array.view(pa.timestamp(array.type.unit, tz=zone))
        elif kinds.is_date(array.type) and kinds.is_timestamp(expected):
            array = array.cast(pa.timestamp(expected.unit)).view(expected)
        elif kinds.is_time(expected) and kinds.is_int64(array.type):
            array = array.view(expected)
        return array.cast(expected)
    except pa.ArrowException as error:
        raise FormatError(
            f"column '{target.name}' of type {array.type} has a value that does not fit {target.type}: {error}"
        ) from error


def may_become(found: pa.DataType, expected: t.IcebergType) -> bool:
    """Return whether values of a file's type are values of a column's type, directly or by promotion."""
    match expected:
        case t.BooleanType():
            return bool(kinds.is_boolean(found))
        case t.IntegerType() | t.LongType():
            return bool(kinds.is_integer(found)) and (found.bit_width <= 32 or isinstance(expected, t.LongType))
        case t.FloatType() | t.DoubleType():
            return bool(kinds.is_floating(found)) and (found.bit_width <= 32 or isinstance(expected, t.DoubleType))
        case t.DecimalType():
            return bool(kinds.is_decimal(found)) and found.scale == expected.scale
        case t.DateType():
            return bool(kinds.is_date(found))
        case t.TimeType():
            # ORC stores microseconds in a long.
            return bool(kinds.is_time(found)) or bool(kinds.is_int64(found))
        case t.TimestampType() | t.TimestamptzType() | t.TimestampNsType() | t.TimestamptzNsType():
            return bool(kinds.is_timestamp(found)) or (kinds.is_date(found) and isinstance(expected, _TIMESTAMPS[::2]))
        case t.StringType() | t.BinaryType():
            # Old writers do not annotate strings.
            return any(check(found) for check in _BYTES)
        case t.UUIDType() | t.FixedType():
            length = expected.length if isinstance(expected, t.FixedType) else 16
            is_fixed = bool(kinds.is_fixed_size_binary(found)) and found.byte_width == length
            return is_fixed or bool(kinds.is_binary(found))  # in ORC binaries have no length
    return False


_BYTES = (
    *(kinds.is_string, kinds.is_large_string, kinds.is_string_view),
    *(kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary),
)


def _wrong_type(array: pa.Array, target: t.NestedField) -> FormatError:
    return FormatError(f"unexpected type {array.type} (expected {target.type}) of column '{target.name}'")
