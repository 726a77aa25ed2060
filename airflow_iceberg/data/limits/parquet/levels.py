"""How many rows begin in a page of a nested column: the header does not say it, but the levels of its values do.

Needed only where all values of a column chunk together would be too much for one row, since a page is decompressed for
it once more.

Spec: "Nested Encoding", and RLE / Bit-Packing Hybrid, in the Parquet format.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.limits.compact import varint
from airflow_iceberg.data.limits.parquet.pages import DATA_V2, Page, ReadAt

_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4_RAW": "lz4_raw"}
_LENGTH_BYTES = 4
# Bytes that become one of memory for each bit at once.
_STEP_BYTES = 1 << 16


def rows_that_begin(read_at: ReadAt, page: Page, codec: str, deepest: int) -> int | None:
    """Return the number of rows that begin in a data page; None for a codec that is not known.

    Args:
        deepest: the largest repetition level of the column, 1 or more.
    Raises:
        ValueError, IndexError, pyarrow.ArrowException, OSError: the page is damaged.
    """
    width = deepest.bit_length()
    if page.kind == DATA_V2:
        return _zeros(read_at(page.level_bytes, page.offset), width, page.values)
    data = read_at(page.stored, page.offset)
    if codec != "UNCOMPRESSED":
        if codec not in _CODECS:
            return None
        data = memoryview(pa.Codec(_CODECS[codec]).decompress(data, page.size))  # type: ignore[assignment]
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    return _zeros(bytes(data[_LENGTH_BYTES : _LENGTH_BYTES + length]), width, page.values)


def _zeros(data: bytes, width: int, count: int) -> int:
    """Return how many of `count` values of some bits each are 0."""
    at = seen = zeros = 0
    value_bytes = (width + 7) // 8
    while seen < count:
        head, at = varint(data, at)
        if head & 1:
            values = min((head >> 1) * 8, count - seen)
            zeros += values - _others(data, at, width, values)
            at += (head >> 1) * width
        else:
            values = min(head >> 1, count - seen)
            if not any(data[at : at + value_bytes]):
                zeros += values
            at += value_bytes
        seen += values
        if at > len(data):
            raise ValueError("its levels are cut off")
    return zeros


def _others(data: bytes, at: int, width: int, values: int) -> int:
    """Return how many of some bit-packed values are not 0."""
    found, step = 0, _STEP_BYTES * 8
    for first in range(0, values, step):
        here = min(step, values - first)
        start = at + first * width // 8
        packed = np.frombuffer(data, np.uint8, count=(here * width + 7) // 8, offset=start)
        bits = np.unpackbits(packed, bitorder="little")[: here * width]
        found += int(np.count_nonzero(bits if width == 1 else bits.reshape(here, width).any(axis=1)))
    return found
