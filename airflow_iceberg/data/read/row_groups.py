"""The statistics and Bloom filters of Parquet files as ranges of columns in a row group, for `expressions.metrics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kinds

from airflow_iceberg.data.read.bloom_filters import bloom_filter
from airflow_iceberg.data.read.columns import missing_value, read_column
from airflow_iceberg.data.read.file_fields import FileField, fields_by_id
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.expressions.matching import is_nan
from airflow_iceberg.expressions.metrics import ColumnRange, has_nan, range_from_counts, trusted_bounds
from airflow_iceberg.expressions.tree import Column
from airflow_iceberg.format.arrow.buffers import array_of
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import LeafType, NestedField, Value
from airflow_iceberg.format.values.defaults import without_value

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def group_ranges(
    group: pq.RowGroupMetaData,
    schema: Schema,
    fields: Sequence[FileField],
    constants: Mapping[int, Value],
    handle: pa.NativeFile,
) -> Callable[[Column], ColumnRange]:
    """Return the range of each column of the filter in one row group.

    Args:
        schema: the schema of the filter's columns.
        fields: the fields of the file.
        constants: the values of identity partition fields that the file may lack.
        handle: the file, which Bloom filters are read from.
    """

    def ranges(column: Column) -> ColumnRange:
        path = column_path(schema, column.field_id or 0)
        if path is None or not isinstance(path[-1].type, LeafType):
            return ColumnRange()
        source = _find(path, fields)
        if source is not None:
            found = _group_range(group, column, source, path[-1])
            return replace(found, may_have=bloom_filter(handle, group, source, path[-1].type))
        # A field that was added to a struct is null where the struct is null.
        return _missing_range(path[0], constants) if len(path) == 1 else ColumnRange()

    return ranges


def _find(path: Sequence[NestedField], fields: Sequence[FileField]) -> FileField | None:
    """Return the field of the file that a path of structs leads to."""
    found: FileField | None = None
    for step in path:
        found = fields_by_id(fields).get(step.id)
        if found is None:
            return None
        fields = found.children
    return found


def _missing_range(field: NestedField, constants: Mapping[int, Value]) -> ColumnRange:
    value = missing_value(field, constants)
    if without_value(field, value) is not None:
        return ColumnRange()  # the rows are read, and that says what is wrong with the file
    is_value = value is not None and not is_nan(value)
    bounds = value if is_value else None
    return ColumnRange(
        may_be_null=value is None, may_be_nan=is_nan(value), may_be_value=is_value, lower=bounds, upper=bounds
    )


def _group_range(group: pq.RowGroupMetaData, column: Column, source: FileField, field: NestedField) -> ColumnRange:
    chunk = group.column(source.leaf)
    statistics = chunk.statistics
    if statistics is None:
        return ColumnRange(may_be_nan=has_nan(column.type))
    lower, upper = _bounds(statistics, source, field)
    return range_from_counts(
        column,
        rows=group.num_rows,
        values=chunk.num_values,
        nulls=statistics.null_count if statistics.has_null_count else None,
        # Parquet does not count NaNs, and its bounds ignore them.
        nans=None if has_nan(column.type) else 0,
        lower=lower,
        upper=upper,
    )


def _bounds(statistics: pq.Statistics, source: FileField, field: NestedField) -> tuple[Value, Value]:
    """Return the bounds as canonical values of the column's type, None for unreliable ones."""
    if not statistics.has_min_max:
        return None, None
    try:
        array = _min_and_max(statistics, source.type)
        if array is None:
            return None, None
        lower, upper = values_from_array(field.type, read_column(array, source, field, {}))
    except (pa.ArrowException, IcebergError, ValueError, TypeError, OverflowError):
        return None, None
    return trusted_bounds(field.type, lower, upper)


def _min_and_max(statistics: pq.Statistics, kind: pa.DataType) -> pa.Array | None:
    """Return the bounds in the file's type; None if pyarrow does not return them exactly.

    As it returns them, some decimals are bare integers, and dates and timestamps have only the years 1 to 9999 of
    Python, and no nanoseconds: these are taken as the integers that they are in the file.
    """
    if any(check(kind) for check in (kinds.is_date32, kinds.is_time, kinds.is_timestamp)):
        least, greatest = statistics.min_raw, statistics.max_raw
        if not (isinstance(least, int) and isinstance(greatest, int)):
            return None
        return array_of([least, greatest], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    least, greatest = statistics.min, statistics.max
    return array_of([least, greatest], kind) if _is_exact(least, kind) else None


def _is_exact(value: Any, kind: pa.DataType) -> bool:
    expected: list[tuple[Callable[[Any], bool], type]] = [
        (kinds.is_boolean, bool),
        (kinds.is_integer, int),
        (kinds.is_floating, float),
        (kinds.is_string, str),
        (kinds.is_decimal, Decimal),
    ]
    return any(check(kind) and isinstance(value, python) for check, python in expected)
