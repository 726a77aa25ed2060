"""The Bloom filters of a Parquet file: they tell of a value that no row of a row group has it.

A filter that cannot be read, or is of another kind, tells nothing. One that lies hides rows, as wrong statistics do;
it can do no more: its size is limited, and it is never taken for a proof that rows match.

Spec: "Bloom Filter" in the Parquet format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from airflow_iceberg.data.read.xxhash64 import hash_values
from airflow_iceberg.data.thrift import I32, STOP, STRUCT, CompactReader
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow.parquet as pq

    from airflow_iceberg.data.read.file_fields import FileField

# parquet-mr's filters have at most 1 MiB, unless a table asks for more.
MOST_BYTES = 16 << 20
_HEADER_BYTES = 64
_BLOCK_BYTES = 32
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_INTEGERS = (t.IntegerType, t.LongType, t.DateType)
_MICROS = (t.TimestampType, t.TimestamptzType)

MayHave = Callable[[Sequence[t.Value]], bool]


def bloom_filter(
    handle: pa.NativeFile,
    group: pq.RowGroupMetaData,
    source: FileField,
    type_: t.IcebergType,
) -> MayHave | None:
    """Return what tells whether one of some values may be in a column of a row group; None without a filter.

    The filter is read when it is asked for the first time.

    Args:
        handle: the file.
        source: the column in the file.
        type_: the column's type in the table, of whose canonical values is asked.
    """
    chunk = group.column(source.leaf)
    # pyarrow has these from version 24 on.
    offset, encode = getattr(chunk, "bloom_filter_offset", None), _encoding(chunk.physical_type, source.type, type_)
    if not offset or encode is None:
        return None
    found: list[npt.NDArray[np.uint32] | None] = []

    def may_have(values: Sequence[t.Value]) -> bool:
        if not found:
            found.append(_read(handle, offset, most_bytes=min(MOST_BYTES, group.total_byte_size)))
        blocks = found[0]
        return blocks is None or _contains_any(blocks, _hashes(tuple(values), encode))

    return may_have


# -- the bytes ---------------------------------------------------------------------------------------------------------


def _read(handle: pa.NativeFile, offset: int, *, most_bytes: int) -> npt.NDArray[np.uint32] | None:
    """Return the blocks of a filter; None if there is none that can be used, or the rows are less to read."""
    if not 0 < offset < handle.size():
        return None
    try:
        size, start = _header(handle.read_at(_HEADER_BYTES, offset))
    except (FormatError, IndexError, ValueError, OverflowError, RecursionError):
        return None
    if not 0 < size <= most_bytes or size % _BLOCK_BYTES:
        return None
    data = handle.read_at(size, offset + start)
    return np.frombuffer(data, "<u4").reshape(-1, len(_SALT)) if len(data) == size else None


def _header(data: bytes) -> tuple[int, int]:
    """Return the size of the bits, and where they begin.

    Raises:
        FormatError: a kind of filter that the specification does not have yet, or no header.
    """
    reader, size = CompactReader(data), 0
    found: list[tuple[int, int]] = []
    for field in reader.fields():
        found.append(field)
        if field == (1, I32):
            size = reader.integer()
            continue
        # Algorithm, hash and compression: a union, of whose members the first is the only one so far, and empty. What
        # is not known is not skipped either: it may be of any length.
        for member in reader.fields() if field[1] == STRUCT else ():
            if member != (1, STRUCT) or reader.byte() != STOP:
                raise FormatError("a Bloom filter of an unknown kind")
    if found != [(1, I32), (2, STRUCT), (3, STRUCT), (4, STRUCT)]:
        raise FormatError("no header of a Bloom filter")
    return size, reader.at


def _contains_any(blocks: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> bool:
    chosen = ((hashes >> np.uint64(32)) * np.uint64(len(blocks))) >> np.uint64(32)
    keys = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    masks = np.uint32(1) << ((keys[:, None] * _SALT) >> np.uint32(27))
    return bool(((blocks[chosen] & masks) == masks).all(axis=1).any())


# -- the values --------------------------------------------------------------------------------------------------------

Encode = Callable[[t.Value], bytes | None]


@lru_cache(maxsize=16)
def _hashes(values: tuple[t.Value, ...], encode: Encode) -> npt.NDArray[np.uint64]:
    """Return the hashes of values that the column can hold; a task asks each row group for the same ones."""
    return hash_values([data for value in values if (data := encode(value)) is not None])


def _encoding(physical: str, kind: pa.DataType, type_: t.IcebergType) -> Encode | None:
    """Return how a value is written in PLAIN encoding; None for types whose equal values may have other bytes."""
    if physical in ("INT32", "INT64"):
        is_same = (
            (isinstance(type_, _INTEGERS) and (kinds.is_signed_integer(kind) or kinds.is_date32(kind)))
            or (isinstance(type_, _MICROS) and kinds.is_timestamp(kind) and kind.unit == "us")
        )  # fmt: skip
        return (_as_int32 if physical == "INT32" else _as_int64) if is_same else None
    if physical == "BYTE_ARRAY" and isinstance(type_, t.StringType):
        return _as_text
    if physical == "FIXED_LEN_BYTE_ARRAY" and isinstance(type_, t.UUIDType):
        return _as_uuid
    return None


def _as_int32(value: Any) -> bytes | None:
    return value.to_bytes(4, "little", signed=True) if -(1 << 31) <= value < 1 << 31 else None


def _as_int64(value: Any) -> bytes | None:
    return value.to_bytes(8, "little", signed=True)  # type: ignore[no-any-return]


def _as_text(value: Any) -> bytes | None:
    return value.encode(errors="surrogatepass")  # type: ignore[no-any-return]


def _as_uuid(value: Any) -> bytes | None:
    return value.bytes  # type: ignore[no-any-return]
