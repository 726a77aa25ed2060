"""The schema of a table with the new columns of a source, and with its wider types where the table may take them.

Other columns change nothing; `data.cast.rows` casts them. Not here: which type a column of Arrow has
(`format.arrow.types`), what a file says beside Arrow's types (`data.declared`), legal changes
(`format.schemas.evolution`), the commit (`commit.compose`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.arrow.types import EXTENSION_KEY
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.arrow import schema_from_arrow
from airflow_iceberg.format.schemas.evolution import SchemaEvolution
from airflow_iceberg.format.schemas.promotion import is_promotion
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)


def with_new_columns(
    schema: Schema,
    sources: Iterable[pa.Schema],
    *,
    last_column_id: int,
    specs: Sequence[PartitionSpec],
    format_version: int,
) -> Schema:
    """Return a schema with the new columns and the wider types of sources.

    New columns come last, in the order of the sources, and are optional. Names are case-sensitive.

    Args:
        last_column_id: the highest field id that the table ever assigned.
    Raises:
        InvalidInputError: a column of a type that the table cannot have; two sources that contradict each other; a name
            that differs from one of the table by case alone.
    """
    evolution = SchemaEvolution(
        schema, last_column_id=last_column_id, history=(schema,), specs=specs, format_version=format_version
    )
    for source in sources:
        for column in source:
            wanted = _wanted(evolution.schema, column, format_version)
            if wanted is not None:
                evolution.union_by_name(Schema((wanted,)))
    return evolution.schema


def _wanted(schema: Schema, column: pa.Field, format_version: int) -> NestedField | None:
    """Return the column that a column of a source adds or widens, None for neither."""
    known = next((field for field in schema.fields if field.name == column.name), None)
    called = {key: value for key, value in (column.metadata or {}).items() if key == EXTENSION_KEY}
    plain = pa.schema([column.with_metadata(called)])
    if known is None:
        added = schema_from_arrow(plain).fields[0]
        return replace(added, id=max(1, added.id))
    try:
        found = schema_from_arrow(plain).fields[0]
    except IcebergError:
        return None  # a type that no column has may still be cast to one
    wider = _wider(known.type, found.type, format_version)
    return None if wider is None else NestedField(id=1, name=known.name, type=wider, required=known.required)


def _wider(old: IcebergType, new: IcebergType, format_version: int) -> IcebergType | None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        known = {field.name: field for field in old.fields}
        asked: list[NestedField] = []
        for field in new.fields:
            if field.name not in known:
                asked.append(field)
            elif (wider := _wider(known[field.name].type, field.type, format_version)) is not None:
                asked.append(replace(field, type=wider, required=known[field.name].required))
        return StructType(fields=tuple(asked)) if asked else None
    if isinstance(old, ListType) and isinstance(new, ListType):
        element = _wider(old.element, new.element, format_version)
        return None if element is None else replace(new, element=element, element_required=old.element_required)
    if isinstance(old, MapType) and isinstance(new, MapType):
        # The keys of a map never change.
        value = _wider(old.value, new.value, format_version)
        return None if value is None else replace(new, key=old.key, value=value, value_required=old.value_required)
    return new if is_promotion(old, new, format_version) else None
