"""The statistics of an existing Parquet file, from its footer alone; no row is read.

A footer was written by anybody, so what it claims is checked as far as it can be: counts, offsets and sizes. Not here:
how a bound is shortened and encoded (`data.write.metrics`, `format.values.bytes`).

Not used: bounds of INT96, whose order writers do not agree on, and bounds of a column of which some row group has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kinds

from airflow_iceberg.data.existing.fields import leaves_by_id
from airflow_iceberg.data.existing.footer_bytes import FIXED_WIDTHS, PHYSICAL_TYPES, Chunk, row_groups
from airflow_iceberg.data.existing.target import ColumnRange, Target
from airflow_iceberg.data.read.columns import read_column
from airflow_iceberg.data.read.file_fields import FileField
from airflow_iceberg.data.write.metrics import (
    FileMetrics,
    LeafColumn,
    canonical,
    comparable,
    offset_of,
    put_bounds,
)
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import array_of
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.values.numbers import TIMESTAMPS

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL_BYTES = 8
# Read at once, as Arrow does: the footers of most files are smaller.
_READ_BYTES = 1 << 16
# Parquet's modular encryption: a nonce of 12 bytes and a tag of 16.
_SIGNATURE_BYTES = 28
_MICROS_PER_DAY = 86_400_000_000
# Runs of equal values take few bytes, but pages have headers: no writer comes near this many rows for each byte.
_MOST_ROWS_PER_BYTE = 1 << 16


def read_footer(handle: Any, size_bytes: int, location: str) -> bytes:
    """Return the bytes of the footer, after checking the end of the file.

    Raises:
        UnsupportedError: the footer is encrypted.
        FormatError: not the end of a Parquet file.
    """
    start = max(size_bytes - _READ_BYTES, 0)
    handle.seek(start)
    tail = bytes(handle.read(size_bytes - start))
    handle.seek(0)
    if tail[-4:] == _ENCRYPTED:
        raise encrypted()
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != _MAGIC or length + _TAIL_BYTES + len(_MAGIC) > size_bytes:
        raise FormatError(
            f"cannot read a Parquet file: it ends in {tail[-4:]!r} after a footer of {length} bytes, in a file of "
            f"{size_bytes} bytes; it is torn, or not what its name says",
            path=location,
        )
    if length + _TAIL_BYTES > len(tail):
        handle.seek(size_bytes - length - _TAIL_BYTES)
        tail = bytes(handle.read(length + _TAIL_BYTES))
        handle.seek(0)
    return tail[-length - _TAIL_BYTES : -_TAIL_BYTES]


def encrypted() -> UnsupportedError:
    """Return the error of a file whose columns need keys."""
    return UnsupportedError("the Parquet file is encrypted, and nothing could decrypt it later")


class FooterStatistics:
    """The statistics of one file.

    Args:
        data: the bytes of the footer.
    Raises:
        UnsupportedError: columns are encrypted.
        FormatError: the numbers cannot be right.
    """

    def __init__(self, footer: pq.FileMetaData, data: bytes, *, size_bytes: int, location: str) -> None:
        self._location = location
        # An encrypted file with a readable footer has a signature after it.
        if len(data) - footer.serialized_size == _SIGNATURE_BYTES:
            raise encrypted()
        if len(data) != footer.serialized_size:
            self._refuse(f"{len(data)} bytes, of which it has {footer.serialized_size}")
        self._check_chunks(footer, data)
        self._size_bytes = size_bytes
        self.record_count = footer.num_rows
        self._groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        counts = [group.num_rows for group in self._groups]
        if min(counts, default=0) < 0 or sum(counts) != self.record_count:
            self._refuse(f"{self.record_count} rows, and row groups of {sum(counts)}")
        if self.record_count > size_bytes * _MOST_ROWS_PER_BYTE:
            self._refuse(f"{self.record_count} rows in {size_bytes} bytes")
        self._schema = footer.schema

    def _check_chunks(self, footer: pq.FileMetaData, data: bytes) -> None:
        """Refuse column chunks that Arrow must not look at: it would end the process, and not raise an exception."""
        columns = [footer.schema.column(number) for number in range(len(footer.schema))]
        for chunks in row_groups(data):
            if len(chunks) != len(columns):
                self._refuse(f"{len(chunks)} columns in a row group, and {len(columns)} in the schema")
            for chunk, column in zip(chunks, columns, strict=True):
                self._check_chunk(chunk, column)

    def _check_chunk(self, chunk: Chunk, column: Any) -> None:
        if chunk.is_encrypted:
            raise encrypted()
        kind, name = column.physical_type, f"column '{column.path}'"
        if PHYSICAL_TYPES.get(chunk.type) != kind:
            self._refuse(f"type {chunk.type} of {name}, which is {kind}")
        wrong = chunk.bound_widths - {0, FIXED_WIDTHS.get(kind, column.length)}
        if wrong and kind != "BYTE_ARRAY":
            self._refuse(f"a bound of {min(wrong)} bytes of {name} ({kind})")
        levels = (chunk.repetitions, column.max_repetition_level), (chunk.definitions, column.max_definition_level)
        has_sizes = chunk.has_text_bytes and kind != "BYTE_ARRAY"
        if has_sizes or any(size not in (0, most + 1) for size, most in levels):
            self._refuse(f"sizes of {name} that do not fit its type")

    def int96_leaves(self) -> frozenset[int]:
        """Return the leaf columns that are stored as INT96: timestamps of which the file says no zone."""
        return frozenset(i for i in range(len(self._schema)) if self._schema.column(i).physical_type == "INT96")

    def split_offsets(self) -> tuple[int, ...] | None:
        """Return the starts of the row groups; None if readers could not use them."""
        offsets = tuple(offset_of(group.column(0)) for group in self._groups if group.num_columns)
        is_ascending = all(a < b for a, b in pairwise(offsets))
        return offsets if is_ascending and all(0 < each < self._size_bytes for each in offsets) else None

    def metrics(self, fields: Sequence[FileField], target: Target) -> tuple[FileMetrics, Mapping[int, ColumnRange]]:
        """Return the statistics by the table's metrics modes, and the ranges of the columns of partitions."""
        found = FileMetrics(record_count=self.record_count, split_offsets=self.split_offsets() or ())
        ranges: dict[int, ColumnRange] = {}
        by_id = leaves_by_id(fields)
        int96 = self.int96_leaves()
        for column in target.columns:
            source, mode = by_id.get(column.field_id), target.metrics.mode(column.field_id)
            is_source = column.field_id in target.partition_sources
            is_required = column.field_id in target.required
            if source is None or not (mode.has_counts or is_source or is_required):
                continue
            chunks = [group.column(source.leaf) for group in self._groups]
            size = self._size_of(chunks, column)
            if mode.has_counts and not isinstance(column.type, t.VariantType):
                found.column_sizes[column.field_id] = size
            if column.repeated or isinstance(column.type, t.VariantType):
                continue
            range_ = self._range(column, source, chunks, has_bounds=source.leaf not in int96)
            self._check_nulls(column, range_, is_required)
            if is_source:
                ranges[column.field_id] = range_
            if mode.has_counts:
                found.value_counts[column.field_id] = range_.values
                if range_.nulls is not None:
                    found.null_value_counts[column.field_id] = range_.nulls
            if mode.has_bounds and range_.lower is not None:
                put_bounds(column, mode, range_.lower, range_.upper, found)
        return found, ranges

    def _size_of(self, chunks: Sequence[pq.ColumnChunkMetaData], column: LeafColumn) -> int:
        sizes = [chunk.total_compressed_size for chunk in chunks]
        if min(sizes, default=0) < 0 or sum(sizes) > self._size_bytes:
            self._refuse(f"{sum(sizes)} bytes of column '{'.'.join(column.path)}' in a file of {self._size_bytes}")
        return sum(sizes)

    def _check_nulls(self, column: LeafColumn, range_: ColumnRange, is_required: bool) -> None:
        # Fields of a struct are null where the struct is.
        if is_required and len(column.path) == 1 and range_.nulls:
            raise InvalidInputError(
                f"cannot add {self._location}: column '{column.path[0]}' is required in the table, and {range_.nulls} "
                f"of its values are null; nothing was committed"
            )

    def _range(
        self, column: LeafColumn, source: FileField, chunks: Sequence[pq.ColumnChunkMetaData], *, has_bounds: bool
    ) -> ColumnRange:
        values = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks]
        counts = [item.null_count if item is not None and item.has_null_count else None for item in statistics]
        known = [count for count in counts if count is not None]
        nulls = sum(known) if len(known) == len(counts) else None
        # Not repeated, so there is a value, perhaps null, for each row.
        if values != self.record_count or min(known, default=0) < 0 or (nulls or 0) > values:
            self._refuse(
                f"{values} values and {nulls} nulls of column '{'.'.join(column.path)}' in {self.record_count} rows"
            )
        lower, upper = self._bounds(column, source, chunks, statistics) if has_bounds else (None, None)
        return ColumnRange(values=values, nulls=nulls, lower=lower, upper=upper)

    def _bounds(
        self,
        column: LeafColumn,
        source: FileField,
        chunks: Sequence[pq.ColumnChunkMetaData],
        statistics: Sequence[Any],
    ) -> tuple[t.Value, t.Value]:
        """Return the bounds of the whole file; none if a row group with values has none, or NaN is one."""
        lows, highs = [], []
        kind = source.type.value_type if kinds.is_dictionary(source.type) else source.type
        for chunk, item in zip(chunks, statistics, strict=True):
            if item is not None and item.has_null_count and item.null_count == chunk.num_values:
                continue
            if item is None or not item.has_min_max:
                return None, None
            lows.append(_ordered(kind, item.min_raw))
            highs.append(_ordered(kind, item.max_raw))
        if not lows or any(value != value for value in (*lows, *highs)):
            return None, None
        try:
            low, high = _values(column, source, kind, min(lows), max(highs))
        except (pa.ArrowException, IcebergError, ValueError, TypeError, OverflowError, ArithmeticError):
            return None, None  # bounds that are no values of the type
        self._check_values(column, low, high)
        return (low, high) if low <= high else (None, None)

    def _check_values(self, column: LeafColumn, low: Any, high: Any) -> None:
        """Refuse a file whose statistics tell of a value that its column cannot have; no row is read for it."""
        for value in (low, high):
            is_wrong = isinstance(column.type, t.TimeType) and not 0 <= value < _MICROS_PER_DAY
            if isinstance(column.type, t.DecimalType):
                is_wrong = not column.type.has_room_for(value)
            if is_wrong:
                raise InvalidInputError(
                    f"cannot add {self._location}: column '{'.'.join(column.path)}' has the value {value}, which no "
                    f"{column.type} is; nothing was committed: correct it in the file"
                )

    def _refuse(self, what: str) -> None:
        raise FormatError(f"the footer of the Parquet file cannot be right: it tells of {what}", path=self._location)


def _ordered(kind: pa.DataType, raw: Any) -> Any:
    """Return a physical value in a form whose order in Python is the column's."""
    return comparable(t.DecimalType(38, 0), raw) if kinds.is_decimal(kind) else raw


def _values(column: LeafColumn, source: FileField, kind: pa.DataType, low: Any, high: Any) -> tuple[Any, Any]:
    """Return canonical values of the table's type."""
    if isinstance(column.type, (t.DateType, t.TimeType, *TIMESTAMPS)):
        stored = array_of([low, high], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
        field = t.NestedField(id=column.field_id, name=column.path[-1], type=column.type)
        first, last = values_from_array(column.type, read_column(stored, source, field, {}))
        return first, last
    if isinstance(column.type, t.BinaryType | t.FixedType):
        return bytes(low), bytes(high)
    return canonical(column.type, low), canonical(column.type, high)
