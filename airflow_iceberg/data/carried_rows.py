"""Carried rows: rows that were read from data files, as a new file takes them.

A file of another writer may declare less than the table does: ORC and files with optional fields have nulls below the
null of a struct, also where the table requires a value.
"""

from __future__ import annotations

import pyarrow as pa

from airflow_iceberg.data.cast.nulls import Offence, check_nulls, filled
from airflow_iceberg.data.dictionaries import with_field_ids
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.arrow.types import nested_fields
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import NestedField


def carried_rows(batch: pa.RecordBatch, schema: Schema, row_schema: pa.Schema, *, path: str) -> pa.Table:
    """Return the rows of a data file in the columns of a new one; texts in dictionaries remain so.

    Args:
        schema: the columns of the batch.
        row_schema: the same in Arrow, with field ids.
        path: location of the file that was read, for errors.

    Raises:
        FormatError: a null in a required column.
    """
    table = with_field_ids(batch, row_schema)
    for position, field in enumerate(schema.fields):
        if _has_forbidden_nulls(batch.column(position), row_schema.field(position)):
            column = _without_forbidden_nulls(batch.column(position), field, path)
            table = table.set_column(position, table.schema.field(position), column)
    return table


def _has_forbidden_nulls(array: pa.Array, field: pa.Field) -> bool:
    """Return whether a field that is not nullable has nulls in memory, at any depth."""
    if array.null_count and not field.nullable:
        return True
    children: list[pa.Array] = []
    if pa.types.is_struct(field.type):
        children = [array.field(position) for position in range(field.type.num_fields)]
    elif pa.types.is_map(field.type):
        children = [array.keys, array.items]
    elif pa.types.is_list(field.type):
        children = [array.values]
    return any(map(_has_forbidden_nulls, children, nested_fields(field.type)))


def _without_forbidden_nulls(array: pa.Array, field: NestedField, path: str) -> pa.Array:
    try:
        check_nulls(array, field, field.name, None)
    except Offence as offence:
        raise FormatError(f"column '{offence.name}' is required and has a null in a data file", path=path) from None
    return filled(array, field)
