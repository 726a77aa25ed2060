"""Rows of an Arrow table by partition, in one pass: all partition fields become one small integer for each row.

The rules (transforms, equality) are in `spec` and `format.values`; here is only the arithmetic.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.arrow.buffers import number_array
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.transforms.columns import apply, physical
from airflow_iceberg.format.transforms.transform import VoidTransform
from airflow_iceberg.format.types import BinaryType, DecimalType, FixedType, IcebergType, StringType, UUIDType, Value

Longs = npt.NDArray[np.int64]

# Integers in a range of at most this many values are codes themselves; others are dictionary-encoded.
_MAX_PLAIN_RANGE = 1 << 20


def group_by_partition(
    table: "pa.Table", spec: PartitionSpec, schema: Schema
) -> "Iterator[tuple[tuple[Value, ...], pa.Table]]":
    """Yield each partition of a table of rows once: its tuple of canonical values and its rows, in their order.

    Args:
        table: rows whose columns have the names and types of the schema.
    Yields:
        Partitions in the order of their first row; nothing for an empty table. Floats are compared by their bits: 0.0
        and −0.0 are two partitions, and NaN is one.
    Raises:
        InvalidInputError: the spec cannot be written with, or a truncated decimal exceeds its precision.
    """
    if not table.num_rows:
        return
    if not spec.fields:
        yield (), table
        return
    spec.validate(schema)
    columns = [_partition_column(table, child, schema) for child in spec.fields]
    codes, count = _combined_codes(columns)
    if count == 1:
        yield _values(columns, np.zeros(1, np.int64), spec, schema)[0], table
        return
    order, starts = _order(codes, count)
    firsts = starts if order is None else order[starts]
    keys = _values(columns, firsts, spec, schema)
    rows = table if order is None else table.take(number_array(order))
    ends = [*starts[1:].tolist(), table.num_rows]
    for key, start, end in zip(keys, starts.tolist(), ends, strict=True):
        yield key, rows.slice(start, end - start)


def _partition_column(table: pa.Table, child: PartitionField, schema: Schema) -> pa.Array:
    source = schema.fields_by_id.get(child.source_id)
    if source is None or isinstance(child.transform, VoidTransform):
        return pa.nulls(table.num_rows)
    path = [source, *schema.ancestors(source.id)][::-1]
    column = table.column(path[0].name)
    for step in path[1:]:
        column = pc.struct_field(column, step.name)
    if not _is_encoded_first(child.transform.result_type(source.type)):
        return apply(child.transform, column, source.type)
    # Encoded by chunk: the strings of many chunks together may be too large for one Arrow array.
    with _of_texts(child):
        chunks = [apply(child.transform, chunk, source.type).dictionary_encode() for chunk in column.chunks]
    return pa.chunked_array(chunks).unify_dictionaries().combine_chunks()


@contextmanager
def _of_texts(child: PartitionField) -> Iterator[None]:
    """Say what is wrong with a text of another program, in a row that is carried; new rows are checked before."""
    try:
        yield
    except (UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise InvalidInputError(
            f"partition '{child.name}' ({child.transform}): a row has a text that is not UTF-8, and it can be no "
            f"partition value: {error}; correct the row, or delete it, before its file is written anew"
        ) from error


def _is_encoded_first(type_: IcebergType) -> bool:
    return isinstance(type_, (StringType, BinaryType, FixedType, UUIDType, DecimalType))


def _combined_codes(columns: list[pa.Array]) -> tuple["Longs", int]:
    """Return the number of each row's partition, in the order of first appearance, and the number of partitions."""
    codes, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        own, own_size = _codes(column)
        if size * own_size > _MAX_PLAIN_RANGE << 20:
            codes, size = _dense(codes, size)
        codes = own if size == 1 else codes * own_size + own
        size *= own_size
    return _dense(codes, size)


def _dense(codes: "Longs", size: int) -> tuple["Longs", int]:
    """Return the codes numbered in the order of first appearance, without gaps, and their number."""
    if (codes[0] == codes).all():
        return np.zeros(len(codes), np.int64), 1
    if size > max(_MAX_PLAIN_RANGE, len(codes)):
        encoded = number_array(codes).dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
    # Written from the last row to the first, so that the first row of each code remains.
    firsts = np.full(size, len(codes), np.int64)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    found = np.flatnonzero(firsts < len(codes))
    numbers = np.zeros(size, np.int64)
    numbers[found[np.argsort(firsts[found])]] = np.arange(len(found))
    return numbers[codes], len(found)


def _codes(column: pa.Array) -> tuple["Longs", int]:
    """Return a number for each value of a column, equal for equal values, and one more than the highest."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64), 1
    kind = column.type
    if pa.types.is_floating(kind):
        column = _float_bits(column)
    elif pa.types.is_date32(kind) or pa.types.is_int32(kind):
        return _range_codes(column.view(pa.int32()), np.int32) or _encoded(column)
    elif pa.types.is_int64(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return _range_codes(column.view(pa.int64()), np.int64) or _encoded(column)
    return _encoded(column)


def _range_codes(column: pa.Array, dtype: Any) -> tuple["Longs", int] | None:
    bounds = pc.min_max(column).as_py()
    low, high = bounds["min"], bounds["max"]
    if high - low >= _MAX_PLAIN_RANGE:
        return None
    codes = physical(column, dtype).astype(np.int64)
    # In two steps: the lowest long minus one is not a long.
    codes -= low
    codes += 1
    if column.null_count:
        codes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return codes, high - low + 2


def _encoded(column: pa.Array) -> tuple["Longs", int]:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    size = len(encoded.dictionary)
    return encoded.indices.fill_null(size).to_numpy().astype(np.int64), size + 1


def _float_bits(column: pa.Array) -> pa.Array:
    """Return floats as integers of their bits, with one form of NaN."""
    bits = pa.int32() if column.type.bit_width == 32 else pa.int64()
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return one_nan.view(bits)


def _order(codes: "Longs", count: int) -> tuple["Longs | None", "Longs"]:
    """Return the row order that groups the partitions, None if they are grouped already, and the start of each."""
    changes = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    if len(changes) == count - 1:
        return None, np.concatenate((np.zeros(1, np.int64), changes))
    # For 16 bits, numpy's stable sort is a radix sort: linear.
    narrow = codes.astype(np.uint16) if count <= 1 << 16 else codes
    starts = np.zeros(count, np.int64)
    np.cumsum(np.bincount(codes, minlength=count)[:-1], out=starts[1:])
    return np.argsort(narrow, kind="stable"), starts


def _values(columns: list[pa.Array], rows: "Longs", spec: PartitionSpec, schema: Schema) -> list[tuple[Value, ...]]:
    types = [child.type for child in spec.partition_type(schema).fields]
    chosen = number_array(rows)
    picked = []
    for child, type_, column in zip(spec.fields, types, columns, strict=True):
        is_null = pa.types.is_null(column.type)
        with _of_texts(child):
            values = [None] * len(rows) if is_null else values_from_array(type_, column.take(chosen))
        if isinstance(type_, DecimalType):
            _check_precision(child, type_, values)
        picked.append(values)
    return list(zip(*picked, strict=True))


def _check_precision(child: PartitionField, type_: DecimalType, values: list[Value]) -> None:
    """Reject truncated decimals that exceed their precision: they cannot be stored."""
    # Differs from Java: Java writes them wrongly.
    for value in values:
        if value is not None and not type_.has_room_for(value):
            raise InvalidInputError(
                f"partition '{child.name}': {child.transform} gives {value}, which type {type_} cannot hold"
            )
