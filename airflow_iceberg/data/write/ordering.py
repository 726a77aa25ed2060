"""Rows in order: by a table's sort order, or along a z-curve over several columns.

Here: sorting a table, cutting it into ranges, and choosing their boundaries from a sample. Not here: bringing the rows
of a range to one task (`jobs.compact_sorted`).

Values compare as in Iceberg Java: floats by Java's total order (-0.0 below 0.0, NaN above everything), text by its
UTF-8 bytes, which is the order of its code points, binary and uuid by unsigned bytes. Nulls come first or last as the
field says, whatever the direction.

Spec: Sorting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.dictionaries import plain
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of, valid_of
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import SortOrder
from airflow_iceberg.format.transforms import columns as transforms
from airflow_iceberg.format.transforms.transform import IdentityTransform, Transform, VoidTransform

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ZORDER_BYTES = 8
_UNSORTABLE = (t.UnknownType, *t.GEOSPATIAL)
_MARK = "boundary"
_BITS_AT_ONCE = 32 << 20


class RowOrder(Protocol):
    """How rows are ordered."""

    def keys(self, table: pa.Table) -> pa.Table:
        """Return the columns to sort by, the most significant first."""
        ...

    @property
    def directions(self) -> tuple[str, ...]:
        """Return "ascending" or "descending" for each column of `keys`."""
        ...

    @property
    def columns(self) -> frozenset[str]:
        """Return the top-level columns that `keys` reads."""
        ...


@dataclass(frozen=True, slots=True)
class _Key:
    """A column of a sort order; `path` has the names from the top-level column to the field."""

    path: tuple[str, ...]
    type: t.IcebergType
    transform: Transform
    is_descending: bool
    nulls_first: bool


class SortedRows:
    """The order of a table's sort order, within the partitions of `spec`, which rows of one partition do not need.

    Raises:
        InvalidInputError: a column does not exist, or has no order.
    """

    def __init__(self, order: SortOrder, schema: Schema, *, spec: PartitionSpec | None = None) -> None:
        partition = [
            (field.source_id, field.transform, False, True)
            for field in (spec.fields if spec else ())
            if not isinstance(field.transform, VoidTransform)
        ]
        order_fields = [
            (field.source_id, field.transform, field.direction == "desc", field.null_order == "nulls-first")
            for field in order.fields
        ]
        self._keys = tuple(_key(schema, *field) for field in (*partition, *order_fields))

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions of each key's nulls and values."""
        of_values = ("descending" if key.is_descending else "ascending" for key in self._keys)
        return tuple(word for direction in of_values for word in ("ascending", direction))

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(key.path[0] for key in self._keys)

    def keys(self, table: pa.Table) -> pa.Table:
        """Return for each key a rank of nulls and the values."""
        columns: dict[str, Any] = {}
        for number, key in enumerate(self._keys):
            values = _values(table, key.path)
            if not isinstance(key.transform, IdentityTransform):
                values = transforms.apply(key.transform, values, key.type)
            is_null = pc.is_null(values)
            columns[f"n{number}"] = (pc.invert(is_null) if key.nulls_first else is_null).cast(pa.int8())
            columns[f"k{number}"] = _comparable(values)
        return pa.table(columns)


class ZOrderedRows:
    """Rows along a z-curve: the bits of several columns alternate, so that rows near in all columns come together.

    As in Iceberg Java every column has eight bytes: numbers as ordered longs and doubles, text and binary their first
    bytes; null is all zeros. Where one column has no more bits the others continue.

    Args:
        text_bytes: the number of bytes of text and binary, instead of eight.
        most_bytes: the largest number of bytes that rows are compared by.
    Raises:
        InvalidInputError: no column, a column that does not exist, or one of a type without an order.
    """

    directions = ("ascending",)

    def __init__(
        self, columns: Sequence[str], schema: Schema, *, text_bytes: int = ZORDER_BYTES, most_bytes: int = 2**31 - 1
    ) -> None:
        if not columns:
            raise InvalidInputError("z-order needs at least one column, got none; name the columns to cluster by")
        fields = [schema.find_field(name) for name in columns]
        self._keys = tuple(_key(schema, field.id, IdentityTransform(), False, True) for field in fields)
        self._text_bytes, self._most_bytes = text_bytes, most_bytes

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(key.path[0] for key in self._keys)

    def keys(self, table: pa.Table) -> pa.Table:
        """Return one column of interleaved bytes."""
        text_bytes = min(self._text_bytes, self._most_bytes)
        parts = [_ordered_bytes(_values(table, key.path), text_bytes) for key in self._keys]
        width = min(sum(part.shape[1] for part in parts), self._most_bytes)
        joined = np.empty((table.num_rows, width), np.uint8)
        # A byte for each bit: a few rows at a time.
        step = max(1, _BITS_AT_ONCE // (8 * sum(part.shape[1] for part in parts)))
        for start in range(0, table.num_rows, step):
            joined[start : start + step] = _interleaved([part[start : start + step] for part in parts])[:, :width]
        buffer = pa.py_buffer(joined)
        array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), table.num_rows, [None, buffer])
        return pa.table({"z": array})


def _interleaved(parts: Sequence[Bytes]) -> Bytes:
    """Return the alternating bits of columns: the first bit of each, then the second of those that have one."""
    bits = [np.unpackbits(part, axis=1) for part in parts]
    if len({part.shape[1] for part in bits}) == 1:
        return np.packbits(np.stack(bits, axis=2).reshape(len(bits[0]), -1), axis=1)
    turns = np.argsort(np.concatenate([np.arange(part.shape[1]) for part in bits]), kind="stable")
    return np.packbits(np.concatenate(bits, axis=1)[:, turns], axis=1)


def sort_rows(table: pa.Table, order: RowOrder) -> pa.Table:
    """Return the rows in order; equal rows keep their order."""
    if table.num_rows < 2:
        return table
    return table.take(_sorted_indices(order.keys(table), order.directions))


def cut_rows(table: pa.Table, order: RowOrder, boundaries: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield (range, its rows in order) for the ranges that have rows; a row equal to a boundary is above it.

    Args:
        boundaries: the result of `choose_boundaries`; range 0 is below the first.
    """
    keys = order.keys(table)
    if not boundaries.num_rows:
        yield 0, table.take(_sorted_indices(keys, order.directions))
        return
    # Rows and boundaries are sorted together, and the rows are cut at the boundaries.
    marks = number_array(np.repeat(np.array([0, 1], np.int8), [boundaries.num_rows, table.num_rows]))
    both = pa.concat_tables([boundaries, keys]).append_column(_MARK, marks)
    found = numbers_of(_sorted_indices(both, (*order.directions, "ascending")))
    is_boundary = found < boundaries.num_rows
    rows = found[~is_boundary] - boundaries.num_rows
    ends = np.flatnonzero(is_boundary) - np.arange(boundaries.num_rows)
    taken = table.take(number_array(rows))
    for number, (start, end) in enumerate(zip([0, *ends], [*ends, len(rows)])):
        if end > start:
            yield number, taken.slice(start, end - start)


def choose_boundaries(samples: pa.Table, order: RowOrder, ranges: int) -> pa.Table:
    """Return keys that cut rows into at most `ranges` ranges of about the same size, in order.

    Args:
        samples: keys (`RowOrder.keys`) of rows from the whole table.
    """
    if ranges < 2 or samples.num_rows < 2:
        return samples.slice(0, 0)
    ordered = samples.take(_sorted_indices(samples, order.directions))
    wanted = np.unique(np.linspace(0, ordered.num_rows, ranges + 1).astype(np.int64)[1:-1])
    chosen = ordered.take(number_array(wanted[wanted < ordered.num_rows]))
    # A range between equal boundaries would be empty.
    return chosen.filter(number_array(np.concatenate(([True], _differ_from_last(chosen)))))


def _differ_from_last(rows: pa.Table) -> Mask:
    """Return which rows from the second on differ from the one before."""
    found = np.zeros(rows.num_rows - 1, np.bool_)
    for column in rows.combine_chunks().itercolumns():
        before, after = column.slice(0, len(found)), column.slice(1)
        differ = pc.coalesce(pc.not_equal(before, after), pc.xor(before.is_null(), after.is_null()))
        found |= numbers_of(differ)
    return found


def _sorted_indices(keys: pa.Table, directions: Sequence[str]) -> pa.Array:
    """Return the numbers of the rows in order; equal rows keep their order."""
    # Chunks, and a column with one value for all rows (often: no null), cost several times the rest.
    keys = keys.combine_chunks()
    chosen = [
        (name, direction)
        for name, direction in zip(keys.column_names, directions)
        if keys.column(name).type != pa.int8() or _varies(numbers_of(keys.column(name)))
    ]
    if not chosen or keys.num_rows < 2:
        return number_array(np.arange(keys.num_rows, dtype=np.uint64))
    return pc.sort_indices(keys, sort_keys=chosen)


def _varies(ranks: npt.NDArray[np.int8]) -> bool:
    return bool(len(ranks)) and bool((ranks != ranks[0]).any())


def _key(schema: Schema, source_id: int, transform: Transform, is_descending: bool, nulls_first: bool) -> _Key:
    path = column_path(schema, source_id)
    if path is None:
        raise InvalidInputError(f"cannot sort by field id {source_id}: it is no column, or is in a list or map")
    field = path[-1]
    if not isinstance(field.type, t.PrimitiveType) or isinstance(field.type, _UNSORTABLE):
        name = schema.find_name(source_id)
        raise InvalidInputError(f"cannot sort by column '{name}': type {field.type} has no order")
    return _Key(tuple(part.name for part in path), field.type, transform, is_descending, nulls_first)


def _values(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    column = table.column(path[0])
    if pa.types.is_dictionary(column.type):
        column = plain(column)
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _comparable(values: Any) -> Any:
    """Return values that Arrow sorts in the right order: floats as integers of the same order."""
    if pa.types.is_floating(values.type):
        ordered, is_null = _ordered_longs(values)
        return number_array(ordered, ~is_null)
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values


def _ordered_longs(values: Any) -> tuple[Longs, Mask]:
    """Return floats as longs that compare as Java compares doubles, and which of them are null."""
    filled, is_null = _filled(values.cast(pa.float64()), 0.0)
    # All NaNs are equal, whatever their sign and payload.
    bits = np.where(np.isnan(filled), np.float64("nan"), filled).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)), is_null


def _ordered_bytes(values: Any, text_bytes: int) -> Bytes:
    """Return bytes that compare as the values do, an array of shape (rows, 8 or `text_bytes`); null is all zeros."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _first_bytes(values, text_bytes)
    is_real = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    longs, is_null = _ordered_longs(values) if is_real else _longs(values)
    unsigned = longs.view(np.uint64) ^ np.uint64(1 << 63)
    unsigned[is_null] = 0
    found: Bytes = unsigned.astype(">u8").view(np.uint8).reshape(-1, ZORDER_BYTES)
    return found


def _longs(values: Any) -> tuple[Longs, Mask]:
    narrow = {pa.date32(): pa.int32(), pa.bool_(): pa.int8()}.get(values.type)
    return _filled((values if narrow is None else values.cast(narrow)).cast(pa.int64()), 0)


def _filled(values: Any, stand_in: float) -> tuple[Any, Mask]:
    """Return the values with nulls replaced, and which were null, as arrays of numpy."""
    valid = valid_of(values)
    return np.where(valid, numbers_of(values), stand_in), ~valid


def _first_bytes(values: Any, count: int) -> Bytes:
    starts = pc.binary_slice(values.cast(pa.binary()), 0, count).to_pylist()
    # numpy pads with zeros, which is below every other byte.
    padded = np.array([start or b"" for start in starts], dtype=f"S{count}")
    found: Bytes = padded.view(np.uint8).reshape(-1, count)
    return found
