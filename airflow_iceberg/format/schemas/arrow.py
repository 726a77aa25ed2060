"""An Iceberg schema as an Arrow schema, and back."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.arrow.types import (
    FIELD_ID_KEY,
    field_from_arrow,
    field_to_arrow,
    nested_fields,
    read_field_id,
)
from airflow_iceberg.format.schemas.schema import Schema, assign_fresh_ids


def schema_to_arrow(schema: Schema, *, with_field_ids: bool = True) -> pa.Schema:
    """Return the Arrow schema of a table's columns.

    Args:
        schema: the columns.
        with_field_ids: whether every field at every depth carries its id as Parquet's field id.
    Raises:
        UnsupportedError: a type that has no Arrow form.
    """
    try:
        return pa.schema([field_to_arrow(child, with_field_ids) for child in schema.fields])
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can spell
        raise UnsupportedError(f"a column name or comment cannot be written as UTF-8 ({error})") from error


def schema_from_arrow(arrow_schema: pa.Schema) -> Schema:
    """Return the Iceberg schema of an Arrow schema.

    Field ids are taken from ``PARQUET:field_id`` when every field at every depth has one; otherwise all are given
    afresh, as in Java: ids that are known only in part are worse than none.

    Raises:
        InvalidInputError: a type that Iceberg cannot hold; the message names the column.
    """
    fields = tuple(arrow_schema)
    known = all(_has_ids(child) for child in fields)
    numbers = count(1)

    def next_id(child: Any) -> int:
        return _own_id(child) if known else next(numbers)

    schema = Schema(tuple(field_from_arrow(child, child.name, next_id) for child in fields))
    return schema if known else assign_fresh_ids(schema)


def _own_id(child: pa.Field) -> int:
    try:
        return read_field_id(child.metadata[FIELD_ID_KEY])
    except ValueError as error:
        raise InvalidInputError(f"column '{child.name}' has {error} in its metadata; correct or remove it") from error


def _has_ids(child: pa.Field) -> bool:
    return FIELD_ID_KEY in (child.metadata or {}) and all(_has_ids(nested) for nested in nested_fields(child.type))
