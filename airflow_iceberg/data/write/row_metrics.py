"""Column statistics that are taken from rows, for formats whose files have none: Avro.

They are the same as those of a Parquet file with the same rows, except for sizes of columns and offsets of row groups,
which such a file does not have. Differs from Java, which writes only the number of rows for an Avro file: readers skip
files by these statistics whatever the format is.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.write.metrics import (
    FileMetrics,
    LeafColumn,
    MetricsPlan,
    count_nan,
    leaf_values,
    put_raw_bounds,
)
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import values_from_array

_FLOATS = (t.FloatType, t.DoubleType)


class RowMetrics:
    """Measures one file: `observe` its rows, then `finish`."""

    def __init__(self, plan: MetricsPlan) -> None:
        # As in Parquet files, there are no counts and no bounds of fields inside lists and maps.
        self._measured = [(column, mode) for _, column, mode in plan.measured if not column.repeated]
        self._found = FileMetrics(record_count=0, split_offsets=None)
        self._bounds: dict[int, tuple[Any, Any]] = {}

    def observe(self, table: pa.Table) -> None:
        """Measure some rows of the file, in Arrow's types of the table's columns."""
        found = self._found
        found.record_count += table.num_rows
        for column, mode in self._measured:
            key, values = column.field_id, leaf_values(table, column.path)
            _add(found.value_counts, key, table.num_rows)
            _add(found.null_value_counts, key, values.null_count)
            if isinstance(column.type, _FLOATS):
                nans = count_nan(values)
                _add(found.nan_value_counts, key, nans)
                if nans:
                    values = values.filter(pc.invert(pc.is_nan(values)))
            if mode.has_bounds and not isinstance(column.type, t.VariantType):
                self._widen(column, values)

    def finish(self) -> FileMetrics:
        """Return the statistics of the file."""
        for column, mode in self._measured:
            if column.field_id in self._bounds:
                put_raw_bounds(column, mode, self._bounds[column.field_id], self._found)
        return self._found

    def _widen(self, column: LeafColumn, values: Any) -> None:
        found = _min_max(column.type, values)
        if found is None:
            return
        known = self._bounds.get(column.field_id, found)
        self._bounds[column.field_id] = min(known[0], found[0]), max(known[1], found[1])


def _min_max(type_: t.LeafType, values: Any) -> tuple[Any, Any] | None:
    """Return the smallest and the largest of values without NaN, canonical except for texts, which are bytes."""
    if isinstance(type_, t.StringType):
        values, type_ = values.cast(pa.binary()), t.BinaryType()
    kind = values.type
    if pa.types.is_temporal(kind):  # Python's dates end at the years 1 and 9999
        values = pa.chunked_array(
            [chunk.view(pa.int32() if kind.bit_width == 32 else pa.int64()) for chunk in values.chunks],
            type=pa.int32() if kind.bit_width == 32 else pa.int64(),
        )
        type_ = t.LongType()
    both = pc.min_max(values)
    if not both["min"].is_valid:
        return None
    low, high = values_from_array(type_, pa.concat_arrays([pa.array([both[end]], values.type) for end in _ENDS]))
    if isinstance(type_, _FLOATS):
        # Both zeros are equal, so each bound is the one that includes the other, as in Parquet.
        low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high
    return low, high


_ENDS = ("min", "max")


def _add(counts: dict[int, int], key: int, more: int) -> None:
    counts[key] = counts.get(key, 0) + more
