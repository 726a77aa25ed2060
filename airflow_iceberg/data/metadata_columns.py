"""Columns that a scan can return beside those of the table: where a row lies, and its lineage (v3).

Here: their names and ids, and their values for some rows of a file. Not here: how they are selected (`scanning`).

Spec: Reserved Field IDs; Row Lineage (a value that the file has, else the first row id of the file plus the position,
and the data sequence number of the file; null where the file has no first row id, which is so before v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_iceberg.spec.types import IntegerType, LongType, NestedField, StringType, Value

if TYPE_CHECKING:
    import pyarrow as pa

ROW_ID = NestedField(id=2147483540, name="_row_id", type=LongType())
LAST_UPDATED = NestedField(id=2147483539, name="_last_updated_sequence_number", type=LongType())
FILE_PATH = NestedField(id=2147483646, name="_file", type=StringType(), required=True)
POSITION = NestedField(id=2147483645, name="_pos", type=LongType(), required=True)
SPEC_ID = NestedField(id=2147483643, name="_spec_id", type=IntegerType(), required=True)

METADATA_COLUMNS: Mapping[str, NestedField] = {
    column.name: column for column in (FILE_PATH, POSITION, SPEC_ID, ROW_ID, LAST_UPDATED)
}
METADATA_IDS = frozenset(column.id for column in METADATA_COLUMNS.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """What is known about all rows of a file.

    Attributes:
        constants: values of identity partition fields, by id of the source column.
        sequence_number: data sequence number.
    """

    location: str
    spec_id: int = 0
    constants: Mapping[int, Value] = field(default_factory=dict)
    first_row_id: int | None = None
    sequence_number: int | None = None


def metadata_column(column_id: int, stored: pa.Array | None, facts: FileFacts, position: int, count: int) -> pa.Array:
    """Return a metadata column for consecutive rows of a file.

    Args:
        column_id: one of `METADATA_IDS`.
        stored: the column as it stands in the file, if there is one.
        position: of the first row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if column_id == FILE_PATH.id:
        return pa.repeat(pa.scalar(facts.location), count)
    if column_id == SPEC_ID.id:
        return pa.repeat(pa.scalar(facts.spec_id, pa.int32()), count)
    if column_id == POSITION.id:
        return _numbers(position, count)
    if facts.first_row_id is None:
        computed = pa.nulls(count, pa.int64())
    elif column_id == ROW_ID.id:
        computed = _numbers(facts.first_row_id + position, count)
    else:
        computed = pa.repeat(pa.scalar(facts.sequence_number, pa.int64()), count)
    return computed if stored is None else pc.coalesce(stored, computed)


def _numbers(start: int, count: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    return pa.array(np.arange(start, start + count, dtype=np.int64))
