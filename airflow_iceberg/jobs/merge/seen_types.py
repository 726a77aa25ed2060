"""The types that a merge's SQL sees of columns of the table, as its source files have them.

A column has the table's type, except where values would be lost before the SQL has seen them: a number, date or time
that a value of the table cannot hold keeps the type of the files, as in a query. Of structs, the SQL sees the fields
that a file has, at every depth: a value without a field is refused where a row gets it (`jobs.merge.assignable`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa

from airflow_iceberg.data.cast.assign import rounds
from airflow_iceberg.data.cast.plain import wider_type
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import nested_fields
from airflow_iceberg.format.schemas.schema import Schema

is_ = pa.types


def read_type(
    type_: t.IcebergType, kinds: Sequence[pa.DataType], fixed: Collection[Sequence[str]] = ()
) -> t.IcebergType:
    """Return the type that values of a column of the table are read as: all its fields, each with a type.

    Args:
        kinds: the plain Arrow types of the column in the files of the source; null where nothing is known.
        fixed: the paths below the column of what has the table's type, whatever the files have.
    """
    if () in map(tuple, fixed):
        return type_
    if isinstance(type_, t.StructType):
        below = [(item, [path[1:] for path in fixed if path[0] == item.name]) for item in type_.fields]
        fields = (with_type(one, read_type(one.type, _of_field(kinds, one.name), inner)) for one, inner in below)
        return replace(type_, fields=tuple(fields))
    if isinstance(type_, t.ListType):
        return replace(type_, element=read_type(type_.element, _of_elements(kinds)))
    if isinstance(type_, t.MapType):
        key, value = (read_type(one, _of_entries(kinds, at)) for at, one in enumerate((type_.key, type_.value)))
        return replace(type_, key=key, value=value)
    return _leaf(type_, [kind for kind in kinds if not is_.is_null(kind)])


def seen_type(type_: t.IcebergType, kinds: Sequence[pa.DataType]) -> t.IcebergType | None:
    """Return a type with the fields alone that some file has; None if no file has any.

    Args:
        kinds: as of `read_type`.
    """
    if isinstance(type_, t.StructType) and any(map(is_.is_struct, kinds)):
        fields = []
        for item in type_.fields:
            inner = _of_field(kinds, item.name)
            found = seen_type(item.type, inner) if inner else None
            if found is not None:
                fields.append(with_type(item, found))
        return replace(type_, fields=tuple(fields)) if fields else None
    if isinstance(type_, t.ListType):
        element = seen_type(type_.element, _of_elements(kinds))
        return None if element is None else replace(type_, element=element)
    if isinstance(type_, t.MapType):
        key, value = (seen_type(one, _of_entries(kinds, at)) for at, one in enumerate((type_.key, type_.value)))
        return None if key is None or value is None else replace(type_, key=key, value=value)
    return type_


def known_in(columns: pa.Schema, table: Schema) -> Schema:
    """Return the columns of the table that a source has, as its SQL sees them."""
    found = []
    for field in table.fields:
        if field.name in columns.names:
            kinds = [columns.field(field.name).type]
            seen = seen_type(read_type(field.type, kinds), kinds)
            if seen is not None:
                found.append(with_type(field, seen))
    return Schema(tuple(found))


def with_type(item: t.NestedField, type_: t.IcebergType) -> t.NestedField:
    """Return a field with another type; its defaults are values of its own."""
    return item if type_ == item.type else replace(item, type=type_, initial_default=None, write_default=None)


def _leaf(type_: t.IcebergType, kinds: Sequence[pa.DataType]) -> t.IcebergType:
    if not any(rounds(kind, type_) for kind in kinds):
        return type_
    kind: pa.DataType | None = reduce(lambda one, other: one and wider_type(one, other), kinds)
    # Of kinds that no type holds, values are read as the table's type, if they fit.
    return type_ if kind is None else _type_of(kind) or type_


def _type_of(kind: pa.DataType) -> t.IcebergType | None:
    """Return the type that has the values of a plain number, date or time; None if none has."""
    if is_.is_integer(kind):
        return t.LongType() if kind.bit_width > 32 else t.IntegerType()
    if is_.is_floating(kind):
        return t.DoubleType() if kind.bit_width > 32 else t.FloatType()
    if is_.is_decimal(kind):
        return t.DecimalType(kind.precision, kind.scale) if 0 <= kind.scale <= kind.precision <= 38 else None
    if is_.is_timestamp(kind):
        return t.TimestamptzType() if kind.tz else t.TimestampType()
    return t.DateType() if is_.is_date32(kind) else None


def _of_field(kinds: Iterable[pa.DataType], name: str) -> list[pa.DataType]:
    structs = [kind for kind in kinds if is_.is_struct(kind)]
    return [kind.field(name).type for kind in structs if kind.get_field_index(name) >= 0]


def _of_elements(kinds: Iterable[pa.DataType]) -> list[pa.DataType]:
    return [kind.value_type for kind in kinds if is_.is_list(kind)]


def _of_entries(kinds: Iterable[pa.DataType], at: int) -> list[pa.DataType]:
    return [nested_fields(kind)[at].type for kind in kinds if is_.is_map(kind)]
