"""Partition transforms over Arrow columns: the same results as `Transform.apply`, computed by numpy on whole buffers.

The hot path of every load. The rules (what a day is, what is hashed of a decimal) are in `transform` and
`format.values.calendar`; here is only how they are applied to buffers.
"""

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import number_array, valid_of
from airflow_iceberg.format.arrow.types import type_to_arrow
from airflow_iceberg.format.transforms import murmur3
from airflow_iceberg.format.transforms import transform as kinds
from airflow_iceberg.format.transforms.transform import Transform
from airflow_iceberg.format.values.numbers import units_per_second

# Below this share of distinct values in a sample, a column of strings is dictionary-encoded before it is hashed.
_REPEATS_WORTH_ENCODING = 0.5
_SAMPLE_ROWS = 8_192
# Decimals of up to as many digits fit 64 bits.
_LONG_DIGITS = 18
# Up to this range of days (some 2,700 years), results are looked up in a table instead of computed for each row.
_MAX_LOOKUP_DAYS = 1_000_000


def apply(transform: Transform, array: Any, source_type: t.IcebergType) -> pa.Array:
    """Return the partition values of a column, equal to `Transform.apply` on each value; nulls stay null.

    Args:
        array: Array or ChunkedArray of the Arrow type of the source type, dictionary-encoded or not.
        source_type: Iceberg type of the column.
    Raises:
        InvalidInputError: the transform is not defined for this type.
        UnsupportedError: the transform is unknown.
    """
    transform.check_type(source_type)
    return _apply(transform, array, source_type)


def _apply(transform: Transform, array: Any, source_type: t.IcebergType) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        chunks = [_apply(transform, chunk, source_type) for chunk in array.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], type_to_arrow(transform.result_type(source_type)))
    if pa.types.is_dictionary(array.type):
        return _apply(transform, array.dictionary, source_type).take(array.indices)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(transform, kinds.VoidTransform):
        return pa.nulls(len(array), _void_type(array, source_type))
    array = _as_type(array, source_type)
    if isinstance(transform, kinds.BucketTransform):
        return _bucket(array, source_type, transform.num_buckets)
    if isinstance(transform, kinds.TruncateTransform):
        return _truncate(array, source_type, transform.width)
    if isinstance(transform, kinds.TimeTransform):
        return _since_epoch(transform, array, source_type)
    return array


def _void_type(array: pa.Array, source_type: t.IcebergType) -> pa.DataType:
    try:
        return type_to_arrow(source_type)
    except UnsupportedError:
        return array.type


def _as_type(array: pa.Array, source_type: t.IcebergType) -> pa.Array:
    expected = type_to_arrow(source_type)
    return array if array.type == expected else array.cast(expected)


def physical(array: pa.Array, dtype: "npt.DTypeLike") -> "npt.NDArray[Any]":
    """Return the values buffer of a primitive array as numpy, without a copy; null slots hold anything."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype)[array.offset : array.offset + len(array)]


def with_nulls_of(values: "npt.NDArray[Any]", array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Return numpy values as an Arrow array that is null where another array is."""
    return number_array(values, valid_of(array) if array.null_count else None).view(arrow_type)


def _bucket(array: pa.Array, source_type: t.IcebergType, num_buckets: int) -> pa.Array:
    if isinstance(source_type, (t.StringType, t.BinaryType)) and _repeats(array):
        encoded = array.dictionary_encode()
        return _bucket(encoded.dictionary, source_type, num_buckets).take(encoded.indices)
    hashes = _hashes(array, source_type)
    hashes &= np.uint32(0x7FFFFFFF)
    buckets = hashes % np.uint32(num_buckets)
    return with_nulls_of(buckets.view(np.int32), array, pa.int32())


def _repeats(array: pa.Array) -> bool:
    sample = array.slice(0, _SAMPLE_ROWS)
    return len(sample) > 0 and pc.count_distinct(sample).as_py() < _REPEATS_WORTH_ENCODING * len(sample)


def _hashes(array: pa.Array, source_type: t.IcebergType) -> "npt.NDArray[np.uint32]":
    if isinstance(source_type, (t.StringType, t.BinaryType)):
        return _hash_variable(array)
    if isinstance(source_type, (t.UUIDType, t.FixedType)):
        width = array.type.byte_width
        if not width:
            return np.full(len(array), murmur3.hash_bytes(b"") & 0xFFFFFFFF, np.uint32)
        return murmur3.hash_rows(_byte_rows(array, width))
    if isinstance(source_type, t.DecimalType):
        return _hash_decimals(array)
    if isinstance(source_type, (t.IntegerType, t.DateType)):
        return murmur3.hash_longs(physical(array, np.int32).astype(np.int64))
    values = physical(array, np.int64)
    if isinstance(source_type, (t.TimestampNsType, t.TimestamptzNsType)):
        values = values // 1000
    return murmur3.hash_longs(values)


def _byte_rows(array: pa.Array, width: int) -> "npt.NDArray[np.uint8]":
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros((len(array), width), np.uint8)
    flat = np.frombuffer(data, np.uint8)
    return flat[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _hash_variable(array: pa.Array) -> "npt.NDArray[np.uint32]":
    if not len(array):
        return np.zeros(0, np.uint32)
    _, offset_buffer, data_buffer = array.buffers()
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    stored = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)
    offsets = stored[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return murmur3.hash_slices(data, offsets[:-1], np.diff(offsets))


def _hash_decimals(array: pa.Array) -> "npt.NDArray[np.uint32]":
    """Hash the shortest big-endian two's complement of each number: rows of one length at a time."""
    words = physical_words(array)
    if array.type.precision <= _LONG_DIGITS:
        return _hash_short_decimals(words[:, 0])
    rows = np.ascontiguousarray(words.view(np.uint8)[:, ::-1])
    # A leading byte can go when it only repeats the sign of the byte after it.
    sign = np.where(rows[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    significant = (rows != sign).argmax(axis=1)
    significant[~(rows != sign).any(axis=1)] = 15
    first = rows[np.arange(len(rows)), significant] if len(rows) else rows[:, 0]
    # The first byte that differs must itself carry the sign, or the one before it stays.
    significant -= ((first & 0x80) != (sign[:, 0] & 0x80)) & (significant > 0)
    result = np.zeros(len(rows), np.uint32)
    for start in np.unique(significant).tolist():
        chosen = significant == start
        result[chosen] = murmur3.hash_rows(rows[chosen][:, start:])
    return result


def _hash_short_decimals(numbers: "npt.NDArray[np.int64]") -> "npt.NDArray[np.uint32]":
    """Hash numbers of up to 18 digits, of which the low word is the whole number."""
    magnitudes = numbers ^ (numbers >> 63)
    result = np.empty(len(numbers), np.uint32)
    limit = 0
    for length in range(1, 9):
        # Numbers of this length: from what one byte less cannot hold up to 2^(8·length − 1).
        chosen = np.flatnonzero((magnitudes >= limit) & (magnitudes <= (1 << (8 * length - 1)) - 1))
        limit = 1 << (8 * length - 1)
        if len(chosen):
            shifted = numbers[chosen] << (64 - 8 * length)
            result[chosen] = murmur3.hash_rows(shifted.astype(">i8").view(np.uint8).reshape(-1, 8)[:, :length])
    return result


def _truncate(array: pa.Array, source_type: t.IcebergType, width: int) -> pa.Array:
    if isinstance(source_type, t.StringType):
        return pc.utf8_slice_codeunits(array, 0, width)
    if isinstance(source_type, t.BinaryType):
        return pc.binary_slice(array, 0, width)
    if isinstance(source_type, t.DecimalType):
        return _truncate_decimals(array, source_type, width)
    dtype = np.int32 if isinstance(source_type, t.IntegerType) else np.int64
    values = physical(array, dtype)
    return with_nulls_of(values - np.mod(values, dtype(width)), array, array.type)


def _truncate_decimals(array: pa.Array, source_type: t.DecimalType, width: int) -> pa.Array:
    if source_type.precision > _LONG_DIGITS:
        return _truncate_wide_decimals(array, source_type, width)
    # Up to 18 digits the low word of the 128 bits is the number; the high word repeats its sign.
    words = np.zeros((len(array), 2), np.int64)
    low = physical_words(array)[:, 0]
    words[:, 0] = low - np.mod(low, np.int64(width))
    words[:, 1] = words[:, 0] >> 63
    return _decimals_from_words(words, array)


def _truncate_wide_decimals(array: pa.Array, source_type: t.DecimalType, width: int) -> pa.Array:
    words = physical_words(array)
    low, high = words[:, 0].view(np.uint64), words[:, 1]
    # The rest of the division, 32 bits at a time so that no intermediate leaves 64: high·2^64 + low, modulo width.
    divisor = np.uint64(width)
    rest = np.mod(high, np.int64(width)).astype(np.uint64)
    shift, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    rest = ((rest << shift) | (low >> shift)) % divisor
    rest = ((rest << shift) | (low & mask)) % divisor
    result = np.empty((len(array), 2), np.int64)
    result[:, 0] = (low - rest).view(np.int64)
    result[:, 1] = high - (rest > low)
    return _decimals_from_words(result, array)


def physical_words(array: pa.Array) -> "npt.NDArray[np.int64]":
    """Return the two little-endian words of each 128-bit decimal, low word first."""
    return np.ascontiguousarray(_byte_rows(array, 16)).view(np.int64).reshape(-1, 2)


def _decimals_from_words(words: "npt.NDArray[np.int64]", array: pa.Array) -> pa.Array:
    validity = array.is_valid().buffers()[1] if array.null_count else None
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(words))]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count)


def _since_epoch(transform: Any, array: pa.Array, source_type: t.IcebergType) -> pa.Array:
    per_second = units_per_second(source_type)
    values = physical(array, np.int32 if per_second is None else np.int64)
    result_type = type_to_arrow(transform.result_type(source_type))
    if isinstance(transform, (kinds.YearTransform, kinds.MonthTransform)):
        result = _by_day(transform, kinds.DayTransform().since_epoch(values, per_second))
    else:
        result = transform.since_epoch(values, per_second)
    return with_nulls_of(result.astype(np.int32), array, result_type)


def _by_day(transform: Any, days: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    """Return the months or years of days; a column has few distinct days, so they are computed once and looked up."""
    if not len(days):
        return days
    low, high = int(days.min()), int(days.max())
    if high - low > min(_MAX_LOOKUP_DAYS, 4 * len(days) + 1000):
        return cast("npt.NDArray[Any]", transform.since_epoch(days.astype(np.int64), None))
    table = transform.since_epoch(np.arange(low, high + 1, dtype=np.int64), None).astype(np.int32)
    return cast("npt.NDArray[Any]", table[days - low])
