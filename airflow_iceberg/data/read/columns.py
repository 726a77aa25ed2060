"""A column of a data file, found by field id, made a column of a schema.

Here: the tree of a file's fields with their ids (its own, or those of a name mapping), promotion of types, nested
fields that were added, dropped, renamed or moved, and what stands in for a column that the file does not have. Not
here: opening files and filtering rows (`read`).

Spec: Column Projection (the four rules for ids that a file does not have, in this order: identity partition value, name
mapping, initial default, null), Schema Evolution (promotions), Name Mapping Serialization.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.variant_shredding import read_variant
from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.arrow.buffers import single
from airflow_iceberg.format.arrow.types import FIELD_ID_KEY, type_to_arrow, value_to_scalar
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.transforms.transform import IdentityTransform
from airflow_iceberg.format.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
    Value,
    VariantType,
)
from airflow_iceberg.format.values.bytes import from_json

_ORC_ID_KEY = b"iceberg.id"
_TIMESTAMPS = (TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)


# --- the fields of a file ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class FileField:
    """A field of a file's schema.

    Attributes:
        field_id: None where neither the file nor a name mapping has one.
        type: Arrow type; of an extension type what it stores.
        position: index among the fields around it.
        leaf: index of its first leaf column among all of the file.
        children: of a struct its fields, of a list the element, of a map key and value.
    """

    field_id: int | None
    name: str
    type: pa.DataType
    position: int
    leaf: int
    children: tuple[FileField, ...] = ()

    @property
    def leaves(self) -> range:
        """The leaf columns below the field."""
        return range(self.leaf, self.children[-1].leaves.stop if self.children else self.leaf + 1)


def file_fields(schema: pa.Schema, name_mapping: str | None = None) -> tuple[FileField, ...]:
    """Return the columns of a file with their field ids.

    Args:
        schema: of the file, or of a batch of some of its columns.
        name_mapping: JSON that gives ids to columns without one, by name.
    Raises:
        UnsupportedError: the file has no ids and there is no mapping.
        FormatError: the mapping is malformed.
    """
    mapping = _read_mapping(name_mapping)
    fields = _children(list(schema), mapping, 0)
    if fields and not any(field.field_id is not None for field in _walk(fields)):
        raise UnsupportedError(
            "a data file has no field ids, and nothing in it is named by the table's property "
            f"'{TableProperties.name_mapping}'; set that property to say which column is which"
        )
    return fields


def _walk(fields: Iterable[FileField]) -> Iterator[FileField]:
    for field in fields:
        yield field
        yield from _walk(field.children)


def _children(fields: Sequence[pa.Field], mapping: _Names, leaf: int) -> tuple[FileField, ...]:
    found = []
    for position, field in enumerate(fields):
        child = _file_field(field, position, mapping, leaf)
        leaf = child.leaves.stop
        found.append(child)
    return tuple(found)


def _file_field(field: pa.Field, position: int, mapping: _Names, leaf: int, *, name: str | None = None) -> FileField:
    name = field.name if name is None else name
    mapped_id, below = mapping.get(name, (None, {}))
    field_id = _own_id(field)
    kind = field.type.storage_type if hasattr(field.type, "storage_type") else field.type
    return FileField(
        field_id=mapped_id if field_id is None else field_id,
        name=name,
        type=kind,
        position=position,
        leaf=leaf,
        children=_nested(kind, below, leaf),
    )


def _nested(kind: pa.DataType, mapping: _Names, leaf: int) -> tuple[FileField, ...]:
    import pyarrow.types as kinds

    if kinds.is_struct(kind):
        return _children(list(kind.fields), mapping, leaf)
    if kinds.is_map(kind):
        key = _file_field(kind.key_field, 0, mapping, leaf, name="key")
        return key, _file_field(kind.item_field, 1, mapping, key.leaves.stop, name="value")
    if _is_list(kind):
        return (_file_field(kind.value_field, 0, mapping, leaf, name="element"),)
    return ()


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _own_id(field: pa.Field) -> int | None:
    metadata = field.metadata or {}
    text = metadata.get(FIELD_ID_KEY, metadata.get(_ORC_ID_KEY))
    return int(text) if text is not None and int(text) >= 0 else None


_Names = dict[str, tuple[int | None, "_Names"]]
"""Field id and the names below, by each name that a field had."""


def _read_mapping(text: str | None) -> _Names:
    if not text:
        return {}
    try:
        return _mapped_names(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"malformed name mapping in property '{TableProperties.name_mapping}': {error}") from error


def _mapped_names(items: Iterable[Mapping[str, Any]]) -> _Names:
    names: _Names = {}
    for item in items:
        field_id = item.get("field-id")
        entry = (None if field_id is None else int(field_id), _mapped_names(item.get("fields") or ()))
        names.update((str(name), entry) for name in item["names"])
    return names


def fields_by_id(fields: Iterable[FileField]) -> Mapping[int, FileField]:
    """Return the fields that have an id, by it.

    Raises:
        FormatError: two fields have the same.
    """
    found: dict[int, FileField] = {}
    for field in fields:
        if field.field_id is None:
            continue
        if field.field_id in found:
            names = f"'{found[field.field_id].name}' and '{field.name}'"
            raise FormatError(f"columns {names} have the same field id {field.field_id}")
        found[field.field_id] = field
    return found


def find_leaves(wanted: Iterable[NestedField], fields: Sequence[FileField]) -> Iterator[int]:
    """Yield the leaf columns of a file that are needed for some fields.

    Raises:
        UnsupportedError: a struct whose fields have no ids.
    """
    by_id = fields_by_id(fields)
    for target in wanted:
        source = by_id.get(target.id)
        if source is not None and not isinstance(target.type, UnknownType):
            yield from _needed_leaves(target, source)


def _needed_leaves(target: NestedField, source: FileField) -> Iterable[int]:
    if isinstance(target.type, StructType) and source.children:
        if all(child.field_id is None for child in source.children):
            # Some writers give ids to top-level columns alone. To go by name here could return another column's values.
            raise UnsupportedError(
                f"the fields of struct '{target.name}' have no field ids in a data file that has ids elsewhere"
            )
        # Without any field in common, some leaf still has to tell where the struct is null.
        return tuple(find_leaves(target.type.fields, source.children)) or source.leaves[:1]
    if isinstance(target.type, ListType) and len(source.children) == 1:
        return _needed_leaves(target.type.element_field, source.children[0])
    if isinstance(target.type, MapType) and len(source.children) == 2:
        # Maps are read whole; walked through for what cannot be read.
        for field, child in zip((target.type.key_field, target.type.value_field), source.children, strict=True):
            _needed_leaves(field, child)
    return source.leaves


# --- columns that the file does not have ------------------------------------------------------------------------------


def identity_constants(spec: PartitionSpec | None, partition: tuple[Value, ...]) -> Mapping[int, Value]:
    """Return the values that the partition gives to whole columns, by field id.

    Raises:
        FormatError: the partition does not fit the spec.
    """
    if spec is None:
        return {}
    if len(partition) != len(spec.fields):
        raise FormatError(
            f"expected a partition of {len(spec.fields)} values in spec {spec.spec_id}, got {len(partition)}"
        )
    pairs = zip(spec.fields, partition, strict=True)
    return {field.source_id: value for field, value in pairs if isinstance(field.transform, IdentityTransform)}


def missing_column(field: NestedField, count: int, constants: Mapping[int, Value]) -> pa.Array:
    """Return a column for rows of a file that does not have it.

    Args:
        count: number of rows.
        constants: values of identity partition fields, by id of the source column.
    """
    kind = type_to_arrow(field.type)
    value = missing_value(field, constants)
    if value is None:
        return pa.nulls(count, kind)
    return pa.repeat(value_to_scalar(field.type, value), count)


def missing_value(field: NestedField, constants: Mapping[int, Value]) -> Value:
    """Return the one value of a column that a file does not have.

    Raises:
        FormatError: the default does not fit the type of the column.
    """
    if field.id in constants:
        return constants[field.id]
    if field.initial_default is None:
        return None
    if isinstance(field.type, StructType):
        # Spec: a struct's default is an empty one; the defaults of its fields apply.
        return tuple(missing_value(child, {}) for child in field.type.fields)
    return from_json(field.type, field.initial_default, where=f"initial-default of column '{field.name}'")


# --- columns that it has ----------------------------------------------------------------------------------------------


def is_geo(kind: IcebergType) -> bool:
    """Tell whether a type is one whose values are carried along, but not understood."""
    return isinstance(kind, (GeometryType, GeographyType))


def read_column(array: pa.Array, source: FileField, target: NestedField, constants: Mapping[int, Value]) -> pa.Array:
    """Return a column of a file as the schema has it.

    Args:
        array: values as they lie in the file.
        source: the field of the file that they belong to.
        target: the field of the schema.
        constants: as in `missing_column`, for fields of structs.
    Raises:
        FormatError: a type that can't become the schema's, or a value that does not fit.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if is_geo(target.type):
        raise UnsupportedError(f"column '{target.name}' is {target.type}, which is not read; select other columns")
    if isinstance(target.type, VariantType) and not isinstance(array, pa.NullArray):
        return read_variant(array)
    if isinstance(array, pa.NullArray):
        # A column of unknown type that has become something else since; nothing but null was in it.
        return pa.nulls(len(array), type_to_arrow(target.type))
    if isinstance(target.type, StructType):
        return _read_struct(array, source, target, target.type, constants)
    if isinstance(target.type, ListType):
        return _read_list(array, source, target, target.type, constants)
    if isinstance(target.type, MapType):
        return _read_map(array, source, target, target.type, constants)
    if isinstance(target.type, UnknownType):
        return pa.nulls(len(array))
    return _read_primitive(array, target)


def _read_struct(
    array: pa.Array, source: FileField, target: NestedField, kind: StructType, constants: Mapping[int, Value]
) -> pa.Array:
    import pyarrow.types as kinds

    if not kinds.is_struct(array.type):
        raise _wrong_type(array, target)
    by_id = fields_by_id(source.children)
    columns = [_struct_field(array, by_id.get(child.id), child, constants) for child in kind.fields]
    mask = array.is_null() if array.null_count else None
    if not columns:
        return pa.array([{}] * len(array), pa.struct([]), mask=mask)
    return pa.StructArray.from_arrays(columns, fields=list(type_to_arrow(kind).fields), mask=mask)


def _struct_field(
    array: pa.Array, source: FileField | None, target: NestedField, constants: Mapping[int, Value]
) -> pa.Array:
    if source is None:
        return missing_column(target, len(array), constants)
    # `field` minds the offset of a slice, and leaves out whether the struct itself is null.
    return read_column(array.field(source.position), source, target, constants)


def _read_list(
    array: pa.Array, source: FileField, target: NestedField, kind: ListType, constants: Mapping[int, Value]
) -> pa.Array:
    import pyarrow.types as kinds

    if not _is_list(array.type):
        raise _wrong_type(array, target)
    if not kinds.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets, start, stop = _own_offsets(array)
    element = read_column(array.values.slice(start, stop - start), source.children[0], kind.element_field, constants)
    # The mask keeps a null list apart from an empty one.
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, element, type=type_to_arrow(kind), mask=mask)


def _read_map(
    array: pa.Array, source: FileField, target: NestedField, kind: MapType, constants: Mapping[int, Value]
) -> pa.Array:
    import pyarrow.types as kinds

    if not kinds.is_map(array.type):
        raise _wrong_type(array, target)
    offsets, start, stop = _own_offsets(array)
    size = stop - start
    keys = read_column(array.keys.slice(start, size), source.children[0], kind.key_field, constants)
    values = read_column(array.items.slice(start, size), source.children[1], kind.value_field, constants)
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(offsets, keys, values, type=type_to_arrow(kind), mask=mask)


def _own_offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return the offsets of a list or map from 0, and the span of the child that is its own: it may be a slice."""
    offsets = array.offsets
    if not len(array):
        return pa.array([0], pa.int32()), 0, 0
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    # Computed even when it starts at 0: a mask cannot be combined with offsets that are a slice themselves.
    return pc.subtract(offsets, single(start, offsets.type)), start, stop


def _read_primitive(array: pa.Array, target: NestedField) -> pa.Array:
    import pyarrow.types as kinds

    expected = type_to_arrow(target.type)
    if array.type == expected:
        return array
    if kinds.is_dictionary(array.type):
        return _read_primitive(array.dictionary_decode(), target)
    if not _may_become(array.type, target.type):
        raise _wrong_type(array, target)
    try:
        if kinds.is_timestamp(array.type):
            # Only the type says whether there is a zone; what is stored is the same.
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


def _may_become(found: pa.DataType, expected: IcebergType) -> bool:
    """Tell whether values of a file's type are values of a column's type, now or by promotion."""
    import pyarrow.types as kinds

    match expected:
        case BooleanType():
            return bool(kinds.is_boolean(found))
        case IntegerType() | LongType():
            wide = isinstance(expected, LongType)
            return bool(kinds.is_integer(found)) and (found.bit_width <= 32 or wide)
        case FloatType() | DoubleType():
            wide = isinstance(expected, DoubleType)
            return bool(kinds.is_floating(found)) and (found.bit_width <= 32 or wide)
        case DecimalType():
            return bool(kinds.is_decimal(found)) and found.scale == expected.scale
        case DateType():
            return bool(kinds.is_date(found))
        case TimeType():
            # ORC has no type for it: microseconds in a long.
            return bool(kinds.is_time(found)) or bool(kinds.is_int64(found))
        case TimestampType() | TimestamptzType() | TimestampNsType() | TimestamptzNsType():
            return bool(kinds.is_timestamp(found)) or (kinds.is_date(found) and isinstance(expected, _TIMESTAMPS[::2]))
        case StringType() | BinaryType():
            # Old writers leave strings without their annotation.
            return _is_bytes(found)
        case UUIDType() | FixedType():
            length = expected.length if isinstance(expected, FixedType) else 16
            is_fixed = bool(kinds.is_fixed_size_binary(found)) and found.byte_width == length
            return is_fixed or bool(kinds.is_binary(found))  # ORC has binaries without a length only
    return False


def _is_bytes(found: pa.DataType) -> bool:
    import pyarrow.types as kinds

    checks = (
        kinds.is_string,
        kinds.is_large_string,
        kinds.is_string_view,
        kinds.is_binary,
        kinds.is_large_binary,
        kinds.is_binary_view,
        kinds.is_fixed_size_binary,
    )
    return any(check(found) for check in checks)


def _wrong_type(array: pa.Array, target: NestedField) -> FormatError:
    return FormatError(f"unexpected type {array.type} (expected {target.type}) of column '{target.name}'")
