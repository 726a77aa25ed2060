"""Metadata columns, which a scan can return, too: their reserved names and ids; their values are `data.read`'s.

Spec: Reserved Field IDs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_iceberg.format import types as t
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec

ROW_ID = t.NestedField(id=2147483540, name="_row_id", type=t.LongType())
LAST_UPDATED = t.NestedField(id=2147483539, name="_last_updated_sequence_number", type=t.LongType())
FILE_PATH = t.NestedField(id=2147483646, name="_file", type=t.StringType(), required=True)
POSITION = t.NestedField(id=2147483645, name="_pos", type=t.LongType(), required=True)
IS_DELETED = t.NestedField(id=2147483644, name="_deleted", type=t.BooleanType(), required=True)
SPEC_ID = t.NestedField(id=2147483643, name="_spec_id", type=t.IntegerType(), required=True)
PARTITION_ID, PARTITION_NAME = 2147483642, "_partition"

# The columns that are the same in every table; `partition_column` is not.
METADATA_COLUMNS: Mapping[str, t.NestedField] = {
    column.name: column for column in (FILE_PATH, POSITION, IS_DELETED, SPEC_ID, ROW_ID, LAST_UPDATED)
}
COLUMN_NAMES = {**{column.id: column.name for column in METADATA_COLUMNS.values()}, PARTITION_ID: PARTITION_NAME}
METADATA_IDS = frozenset((*(column.id for column in METADATA_COLUMNS.values()), PARTITION_ID))

# The columns of a changelog, with Java's names: they are no columns of a file, but of the result.
CHANGE_TYPE = t.NestedField(id=2147483543, name="_change_type", type=t.StringType(), required=True)
CHANGE_ORDINAL = t.NestedField(id=2147483542, name="_change_ordinal", type=t.IntegerType(), required=True)
COMMIT_SNAPSHOT_ID = t.NestedField(id=2147483541, name="_commit_snapshot_id", type=t.LongType(), required=True)
CHANGELOG_COLUMNS = (CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID)

# Partition fields have ids from 1000 on, like columns: inside of `_partition` they get other ids.
_PARTITION_FIELDS = 2_147_000_000


def partition_column(metadata: TableMetadata) -> t.NestedField:
    """Return the column of partition values: a struct of the fields of all specs, null where a file's has none."""
    parts = metadata.partition_fields()
    fields = [t.NestedField(id=_PARTITION_FIELDS + part.id, name=part.name, type=part.type) for part in parts]
    return t.NestedField(id=PARTITION_ID, name=PARTITION_NAME, type=t.StructType(fields=tuple(fields)))


def partition_values(spec: PartitionSpec | None, partition: Sequence[t.Value]) -> Mapping[int, t.Value]:
    """Return a file's partition values by the ids of `partition_column`'s fields."""
    if spec is None:
        return {}
    return {_PARTITION_FIELDS + part.field_id: value for part, value in zip(spec.fields, partition, strict=True)}
