"""The values of metadata columns: the location of a row, whether it is deleted, its lineage (v3).

Spec: Row Lineage (a value that the file has, else the first row id of the file plus the position,
and the data sequence number of the file; null where the file has no first row id, which is so before v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import number_array, single
from airflow_iceberg.format.arrow.types import type_to_arrow, value_to_scalar
from airflow_iceberg.format.metadata_columns import (
    COLUMN_NAMES,
    FILE_PATH,
    IS_DELETED,
    PARTITION_ID,
    POSITION,
    ROW_ID,
    SPEC_ID,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """The values that are the same for all rows of a file.

    Attributes:
        constants: the values of identity partition fields, by id of the source column.
        partition: the result of `partition_values`.
        sequence_number: the data sequence number.
    """

    location: str
    spec_id: int = 0
    constants: Mapping[int, t.Value] = field(default_factory=dict)
    partition: Mapping[int, t.Value] = field(default_factory=dict)
    first_row_id: int | None = None
    sequence_number: int | None = None


def metadata_column(
    column: t.NestedField, stored: pa.Array | None, facts: FileFacts, position: int, count: int, deleted: Any = None
) -> pa.Array:
    """Return a metadata column for consecutive rows of a file.

    Args:
        column: a column whose id is one of `METADATA_IDS`.
        stored: the column of the file, if there is one.
        position: the position of the first row.
        deleted: the mask of the deleted rows; None for none.
    Raises:
        FormatError: a column of the table has a reserved id.
    """
    column_id = column.id
    if column.name != COLUMN_NAMES[column_id]:
        # Differs from Java: it reads the path, the position … of the row as the column's value, or crashes.
        raise FormatError(
            f"column '{column.name}' has field id {column_id}, which is reserved for '{COLUMN_NAMES[column_id]}', so "
            f"that its values cannot be distinguished",
            path=facts.location,
        )
    if column_id == FILE_PATH.id:
        return pa.repeat(single(facts.location, pa.string()), count)
    if column_id == SPEC_ID.id:
        return pa.repeat(single(facts.spec_id, pa.int32()), count)
    if column_id == IS_DELETED.id:
        return number_array(np.zeros(count, np.bool_) if deleted is None else deleted)
    if column_id == PARTITION_ID:
        return _partition_struct(column.type, facts.partition, count)
    if column_id == POSITION.id:
        return _numbers(position, count)
    if facts.first_row_id is None:
        computed = pa.nulls(count, pa.int64())
    elif column_id == ROW_ID.id:
        computed = _numbers(facts.first_row_id + position, count)
    else:
        computed = pa.repeat(single(facts.sequence_number, pa.int64()), count)
    return computed if stored is None else pc.coalesce(stored, computed)


def _partition_struct(kind: t.IcebergType, values: Mapping[int, t.Value], count: int) -> pa.Array:
    fields = list(type_to_arrow(kind).fields)
    if not fields:
        return pa.array([{}] * count, pa.struct([]))
    columns = []
    for child, arrow in zip(t.child_fields(kind), fields, strict=True):
        value = values.get(child.id)
        is_null = value is None or isinstance(child.type, t.UnknownType)
        columns.append(pa.nulls(count, arrow.type) if is_null else pa.repeat(value_to_scalar(child.type, value), count))
    return pa.StructArray.from_arrays(columns, fields=fields)


def _numbers(start: int, count: int) -> pa.Array:
    return number_array(np.arange(start, start + count, dtype=np.int64))
