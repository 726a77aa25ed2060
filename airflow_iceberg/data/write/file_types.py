"""Columns in a Parquet file: their Arrow types, their paths, and the casts to these types."""

import pyarrow as pa

from airflow_iceberg.data import arrow_version
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema


def path_of(schema: Schema, field_id: int) -> tuple[str, ...]:
    """Return the names that lead to a field, outermost first."""
    names = [field.name for field in schema.ancestors(field_id)]
    return (*reversed(names), schema.fields_by_id[field_id].name)


def parquet_path(path: tuple[str, ...], schema: Schema) -> tuple[str, ...]:
    """Return the path of a column in the file, which has one more level for lists and maps."""
    parts: list[str] = []
    current: t.IcebergType = schema.as_struct()
    for name in path:
        match current:
            case t.StructType():
                current = next(child.type for child in current.fields if child.name == name)
            case t.ListType():
                current = current.element
                parts.append("list")
            case t.MapType():
                current = current.key if name == "key" else current.value
                parts.append("key_value")
        parts.append(name)
    return tuple(parts)


def file_schema(schema: Schema, row_schema: pa.Schema) -> pa.Schema:
    """Return the schema of the file; raises UnsupportedError for a type that Parquet cannot hold."""
    fields = [
        item.with_type(file_type(child.type, item.type, child.name))
        for child, item in zip(schema.fields, row_schema, strict=True)
        if not isinstance(child.type, t.UnknownType)
    ]
    if not fields:
        raise UnsupportedError("a table without columns cannot be written to parquet; add a column first")
    return pa.schema(fields)


def file_type(type_: t.IcebergType, arrow: pa.DataType, name: str) -> pa.DataType:
    """Return the Arrow type for the right Parquet type; raises UnsupportedError if the type cannot be written."""
    match type_:
        case t.UUIDType() | t.VariantType() if not arrow_version.knows_uuid_and_variant():
            # Without the mark Java would read a uuid as bytes, and nobody a variant.
            raise UnsupportedError(
                f"column '{name}' is of type {type_}, which pyarrow {arrow_version.version()} cannot mark in a Parquet "
                f"file; {arrow_version.what_to_do()}"
            )
        case t.UUIDType():
            return pa.uuid()
        case t.VariantType():
            return arrow  # two binaries, which `variant_footer` annotates
        case t.GeometryType() | t.GeographyType():
            raise UnsupportedError(f"column '{name}' is of type {type_}, which is not written yet")
        case t.FixedType(0):
            raise UnsupportedError(f"column '{name}' is of type {type_}, which parquet cannot hold")
        case t.StructType():
            return _file_struct(type_, arrow, name)
        case t.ListType():
            return pa.list_(_file_element(type_.element, arrow.value_field, f"{name}.element"))
        case t.MapType():
            key = _file_element(type_.key, arrow.key_field, f"{name}.key")
            return pa.map_(key, _file_element(type_.value, arrow.item_field, f"{name}.value"))
    return arrow


def _file_struct(type_: t.StructType, arrow: pa.DataType, name: str) -> pa.DataType:
    fields = [
        arrow.field(position).with_type(file_type(child.type, arrow.field(position).type, f"{name}.{child.name}"))
        for position, child in enumerate(type_.fields)
        if not isinstance(child.type, t.UnknownType)
    ]
    if not fields:
        raise UnsupportedError(f"column '{name}' is a struct without fields, which parquet cannot hold")
    return pa.struct(fields)


def _file_element(type_: t.IcebergType, item: pa.Field, name: str) -> pa.Field:
    if isinstance(type_, t.UnknownType):
        raise UnsupportedError(f"column '{name}' is of type unknown inside a list or map, which parquet cannot hold")
    return item.with_type(file_type(type_, item.type, name))


def to_file_type(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a column in the type that the file has for it."""
    return pa.chunked_array([_array_to_file(chunk, type_) for chunk in column.chunks], type=type_)


def _array_to_file(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(type_):
        return array if array.type.equals(type_) else array.cast(type_)
    # Arrow's cast of structs also matches fields by name, but rejects fields that are left out.
    mask = array.is_null() if array.null_count else None
    children = [_array_to_file(array.field(item.name), item.type) for item in type_]
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
