"""Iceberg types and values as Arrow's, and back: the one place that knows which type stands for which.

Not here: schemas (`format.schemas.arrow`), which casts lose nothing (`data.cast.rows`), transforms over columns
(`format.transforms.columns`).
"""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import array_of, single
from airflow_iceberg.format.json_fields import MAX_INT

FIELD_ID_KEY = b"PARQUET:field_id"
# What the metadata of a field say of a type that this Arrow knows by its storage alone.
EXTENSION_KEY, VARIANT = b"ARROW:extension:name", b"arrow.parquet.variant"
_VARIANTS = (VARIANT, b"parquet.variant")
_UUID = b"arrow.uuid"
_UUID_BYTES = 16
_DOC_KEY = b"doc"
_ID = re.compile(rb"-?[0-9]{1,10}")
_PRIMITIVES: Mapping[type[t.IcebergType], pa.DataType] = {
    t.BooleanType: pa.bool_(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimeType: pa.time64("us"),
    t.TimestampType: pa.timestamp("us"),
    t.TimestamptzType: pa.timestamp("us", tz="UTC"),
    t.TimestampNsType: pa.timestamp("ns"),
    t.TimestamptzNsType: pa.timestamp("ns", tz="UTC"),
    t.StringType: pa.string(),
    t.UUIDType: pa.binary(16),
    t.BinaryType: pa.binary(),
    t.GeometryType: pa.binary(),
    t.GeographyType: pa.binary(),
    t.UnknownType: pa.null(),
    t.VariantType: pa.struct(
        [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    ),
}


def read_field_id(text: bytes) -> int:
    """Return the field id in the metadata of a file's or an Arrow field; other writers give -1 for none.

    Raises:
        ValueError: it is no whole number of 32 bits.
    """
    if not _ID.fullmatch(text) or not -MAX_INT - 1 <= int(text) <= MAX_INT:
        shown = text[:100].decode(errors="replace")
        raise ValueError(f"the field id {shown!r}, expected a whole number of 32 bits")
    return int(text)


def type_to_arrow(type_: t.IcebergType, *, with_field_ids: bool = False) -> pa.DataType:
    """Return the Arrow type of an Iceberg type.

    Raises:
        UnsupportedError: a type that has no Arrow form.
    """
    if isinstance(type_, t.StructType):
        return pa.struct([field_to_arrow(child, with_field_ids) for child in type_.fields])
    if isinstance(type_, t.ListType):
        return pa.list_(field_to_arrow(type_.element_field, with_field_ids))
    if isinstance(type_, t.MapType):
        key = field_to_arrow(type_.key_field, with_field_ids)
        return pa.map_(key, field_to_arrow(type_.value_field, with_field_ids))
    if isinstance(type_, t.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, t.FixedType):
        return pa.binary(type_.length)
    found = _PRIMITIVES.get(type(type_))
    if found is None:
        raise UnsupportedError(f"type {type_} has no Arrow form")
    return found


def field_to_arrow(child: t.NestedField, with_field_ids: bool) -> pa.Field:
    """Return a field with its comment and, if requested, its id at every depth."""
    metadata = {FIELD_ID_KEY: str(child.id).encode()} if with_field_ids else {}
    if with_field_ids and child.doc is not None:
        metadata[_DOC_KEY] = child.doc.encode()
    arrow_type = type_to_arrow(child.type, with_field_ids=with_field_ids)
    return pa.field(child.name, arrow_type, nullable=not child.required, metadata=metadata or None)


def nested_fields(arrow_type: pa.DataType) -> tuple[pa.Field, ...]:
    """Return the fields in a nested type, none of a primitive one."""
    if kinds.is_map(arrow_type):
        return arrow_type.key_field, arrow_type.item_field
    if kinds.is_struct(arrow_type):
        return tuple(arrow_type.field(index) for index in range(arrow_type.num_fields))
    if _is_list(arrow_type):
        return (arrow_type.value_field,)
    return ()


def _is_list(arrow_type: pa.DataType) -> bool:
    checks = (
        kinds.is_list,
        kinds.is_large_list,
        kinds.is_fixed_size_list,
        kinds.is_list_view,
        kinds.is_large_list_view,
    )
    return any(check(arrow_type) for check in checks)


def field_from_arrow(child: pa.Field, name: str, next_id: Callable[[Any], int], column: str = "") -> t.NestedField:
    """Return a field of an Arrow schema; `column` is its full name, for errors."""
    column = column or child.name
    own_id = next_id(child)
    doc = (child.metadata or {}).get(_DOC_KEY)
    return t.NestedField(
        id=own_id,
        name=name,
        type=_type_of_field(child, column, next_id),
        required=not child.nullable,
        doc=doc.decode() if doc is not None else None,
    )


def _type_of_field(child: pa.Field, column: str, next_id: Callable[[Any], int]) -> t.IcebergType:
    """Return the type of a field at any depth: by what it is called, or else by how it is stored."""
    name, stored = _extension(child)
    if name in _VARIANTS and kinds.is_struct(stored):
        return t.VariantType()
    if name == _UUID and kinds.is_fixed_size_binary(stored) and stored.byte_width == _UUID_BYTES:
        return t.UUIDType()
    return _type_from_arrow(stored, column, next_id)


def _extension(child: pa.Field) -> tuple[bytes, pa.DataType]:
    """Return the name of an extension type, "" for none, and the type that it is stored as, without encodings."""
    name, stored = (child.metadata or {}).get(EXTENSION_KEY, b""), child.type
    while True:
        if isinstance(stored, pa.BaseExtensionType):
            name, stored = stored.extension_name.encode(), stored.storage_type
        elif kinds.is_dictionary(stored) or kinds.is_run_end_encoded(stored):
            stored = stored.value_type
        else:
            return name, stored


def _type_from_arrow(arrow_type: pa.DataType, column: str, next_id: Callable[[Any], int]) -> t.IcebergType:
    nested = nested_fields(arrow_type)
    if kinds.is_struct(arrow_type):
        members = (field_from_arrow(child, child.name, next_id, f"{column}.{child.name}") for child in nested)
        return t.StructType(fields=tuple(members))
    if kinds.is_map(arrow_type):
        key = field_from_arrow(nested[0], "key", next_id, f"{column}.key")
        value = field_from_arrow(nested[1], "value", next_id, f"{column}.value")
        return t.MapType(
            key_id=key.id, key=key.type, value_id=value.id, value=value.type, value_required=value.required
        )
    if nested:
        element = field_from_arrow(nested[0], "element", next_id, f"{column}.element")
        return t.ListType(element_id=element.id, element=element.type, element_required=element.required)
    found = primitive_from_arrow(arrow_type)
    if found is None:
        raise InvalidInputError(f"column '{column}': Iceberg has no type for Arrow's {arrow_type}")
    return found


def _is_small(arrow_type: pa.DataType) -> bool:
    return bool(kinds.is_int32(arrow_type)) or (kinds.is_integer(arrow_type) and arrow_type.bit_width < 32)


_CHECKS: tuple[tuple[Callable[[Any], bool], t.IcebergType], ...] = (
    (kinds.is_boolean, t.BooleanType()),
    (_is_small, t.IntegerType()),
    (lambda kind: kinds.is_int64(kind) or kinds.is_uint32(kind), t.LongType()),
    (lambda kind: kinds.is_float16(kind) or kinds.is_float32(kind), t.FloatType()),
    (kinds.is_float64, t.DoubleType()),
    (kinds.is_date, t.DateType()),
    (lambda kind: kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind), t.StringType()),
    (lambda kind: kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind), t.BinaryType()),
    (kinds.is_null, t.UnknownType()),
)


def primitive_from_arrow(arrow_type: pa.DataType) -> t.IcebergType | None:
    """Return the least Iceberg type that holds every value of a primitive Arrow type, None where there is none."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        if arrow_type.extension_name == "arrow.uuid":
            return t.UUIDType()
        return primitive_from_arrow(arrow_type.storage_type)
    if kinds.is_timestamp(arrow_type):
        return _timestamp_from_arrow(arrow_type)
    if kinds.is_decimal(arrow_type):
        fits = 0 <= arrow_type.scale <= arrow_type.precision <= 38
        return t.DecimalType(arrow_type.precision, arrow_type.scale) if fits else None
    if kinds.is_fixed_size_binary(arrow_type):
        return t.FixedType(arrow_type.byte_width)
    if kinds.is_time(arrow_type):
        # Nanoseconds of a time of day do not fit Iceberg's microseconds.
        return None if arrow_type == pa.time64("ns") else t.TimeType()
    for check, found in _CHECKS:
        if check(arrow_type):
            return found
    return None


def _timestamp_from_arrow(arrow_type: pa.DataType) -> t.IcebergType:
    # Every zone is an instant; Iceberg keeps the instant and forgets the zone.
    if arrow_type.unit == "ns":
        return t.TimestamptzNsType() if arrow_type.tz else t.TimestampNsType()
    return t.TimestamptzType() if arrow_type.tz else t.TimestampType()


def array_from_values(type_: t.IcebergType, values: Sequence[t.Value]) -> pa.Array:
    """Return canonical values as an Arrow array of the type's Arrow type; None becomes null."""
    plain = [_to_plain(type_, value) for value in values]
    return pa.array(plain, type_to_arrow(type_)) if None in plain else array_of(plain, type_to_arrow(type_))


def _to_plain(type_: t.IcebergType, value: t.Value) -> Any:
    """Return a canonical value as what pyarrow accepts for its type."""
    if value is None:
        return None
    if isinstance(type_, t.UUIDType):
        return value.bytes
    if isinstance(type_, t.VariantType):
        if not isinstance(value, tuple) or len(value) != 2:
            kind = type(value).__name__
            raise FormatError(f"unexpected value of type {kind} of a variant, expected its two binaries")
        return {"metadata": value[0], "value": value[1]}
    if isinstance(type_, t.StructType):
        return {child.name: _to_plain(child.type, item) for child, item in zip(type_.fields, value, strict=True)}
    if isinstance(type_, t.ListType):
        return [_to_plain(type_.element, item) for item in value]
    if isinstance(type_, t.MapType):
        return [(_to_plain(type_.key, key), _to_plain(type_.value, item)) for key, item in value.items()]
    return value


def values_from_array(type_: t.IcebergType, array: pa.Array | pa.ChunkedArray) -> list[t.Value]:
    """Return the canonical values of an Arrow column; null becomes None.

    Args:
        type_: Iceberg type of the column.
        array: values of that type's Arrow type, or of one that casts to it without loss.
    """
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in values_from_array(type_, chunk)]
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(type_, (t.StructType, t.ListType, t.MapType)):
        return _nested_values(type_, array)
    expected = type_to_arrow(type_)
    array = array if array.type == expected else array.cast(expected)
    if isinstance(type_, t.DateType):
        return list(array.view(pa.int32()).to_pylist())
    if isinstance(type_, (t.TimeType, t.TimestampType, t.TimestamptzType, t.TimestampNsType, t.TimestamptzNsType)):
        return list(array.view(pa.int64()).to_pylist())
    if isinstance(type_, t.UUIDType):
        return [None if item is None else uuid.UUID(bytes=item) for item in array.to_pylist()]
    if isinstance(type_, t.VariantType):
        return [None if item is None else (item["metadata"], item["value"]) for item in array.to_pylist()]
    return list(array.to_pylist())


def _nested_values(type_: t.IcebergType, array: pa.Array) -> list[t.Value]:
    valid = array.is_valid().to_pylist()
    if isinstance(type_, t.StructType):
        children = zip(type_.fields, array.flatten(), strict=True)
        columns = [values_from_array(child.type, column) for child, column in children]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(array))
        return [row if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]
    offsets = array.offsets.to_pylist()
    spans = [slice(start, stop) for start, stop in pairwise(offsets)]
    if isinstance(type_, t.ListType):
        items = values_from_array(type_.element, array.values)
        return [tuple(items[span]) if is_valid else None for span, is_valid in zip(spans, valid, strict=True)]
    assert isinstance(type_, t.MapType)
    keys, values = values_from_array(type_.key, array.keys), values_from_array(type_.value, array.items)
    return [
        dict(zip(keys[span], values[span], strict=True)) if is_valid else None
        for span, is_valid in zip(spans, valid, strict=True)
    ]


def value_to_scalar(type_: t.IcebergType, value: t.Value) -> pa.Scalar:
    """Return a canonical value as an Arrow scalar of the type's Arrow type."""
    return single(_to_plain(type_, value), type_to_arrow(type_))
