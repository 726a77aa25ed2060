"""The pages of a column chunk of a Parquet file, by their headers: what each of them becomes when it is decompressed.

The footer says what all pages of a column become, but no reader holds it to that. The header of a page does say how
large it becomes: Arrow makes a buffer of this size, and refuses a page that becomes another. Here: headers, and the
longest text of a dictionary. Not here: what follows for the memory of a reader (`parquet.rows`).

Spec: "Data Pages" and PageHeader in the Parquet format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_iceberg.data.limits.compact import I32, STOP, STRUCT, Skipper, field, integer

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
# Numbers of the enum Encoding.
PLAIN, PLAIN_DICTIONARY, DELTA_LENGTHS, DELTA_TEXTS, RLE_DICTIONARY = 0, 2, 6, 7, 8
# Fields of PageHeader: sizes, and the struct of each kind of page, in which field 1 is the number of values.
_KIND, _SIZE, _STORED = 1, 2, 3
_STRUCTS = {5: DATA, 7: DICTIONARY, 8: DATA_V2}
# Fields of these structs: the encoding by the kind of page, and the length of the repetition levels of DATA_V2.
_VALUES, _ENCODING, _LEVEL_BYTES = 1, {DATA: 2, DICTIONARY: 2, DATA_V2: 4}, 6
# Headers with short bounds take some fifty bytes. Arrow reads those of 16 MiB at most.
_FIRST_WINDOW, _WINDOW_TIMES, _MOST_WINDOW = 1 << 10, 64, 16 << 20
# A chunk that is read at once to look at its pages.
_SMALL_CHUNK = 32 << 10

ReadAt = Callable[[int, int], bytes]
"""Bytes of a file: (number, offset)."""


class Page(NamedTuple):
    """A page, as its header describes it.

    Attributes:
        size: bytes after decompression.
        stored: bytes in the file, without the header.
        values: its values, nulls included; of a dictionary its entries.
        offset: where it begins in the file, after the header.
        level_bytes: of a DATA_V2 page, the repetition levels at its beginning, which are not compressed.
    """

    kind: int
    size: int
    stored: int
    values: int
    encoding: int
    offset: int
    level_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a column chunk lies.

    Attributes:
        values: the number of its values: a reader reads no page after them.
    """

    start: int
    length: int
    values: int


def read_pages(read_at: ReadAt, place: ChunkPlace) -> list[Page]:
    """Return the pages that a reader reads of a column chunk, without their bytes.

    Raises:
        ValueError: a header is damaged.
    """
    found: list[Page] = []
    at, end, left = place.start, place.start + place.length, place.values
    window = _SMALL_CHUNK if place.length <= _SMALL_CHUNK else _FIRST_WINDOW
    data, base = b"", at
    while at < end and left > 0:
        page = _header(data, at - base, base) if at - base < len(data) else None
        if page is None:
            data, base = _at_header(read_at, at, end, window), at
            page = _header(data, 0, base)
        if page is None or page.size < 0 or page.stored < 0 or page.values < 0:
            raise ValueError(f"no header of a page at byte {at}")
        found.append(page)
        if page.kind in (DATA, DATA_V2):
            left -= page.values
        at = page.offset + page.stored
    return found


def _at_header(read_at: ReadAt, at: int, end: int, window: int) -> bytes:
    """Return bytes from `at` with all of a header."""
    while True:
        data = read_at(min(window, end - at), at)
        if len(data) < window or window >= _MOST_WINDOW or _header(data, 0, at) is not None:
            return data
        window *= _WINDOW_TIMES


def _header(data: bytes, at: int, base: int) -> Page | None:
    """Return the page whose header is at an index of the bytes, which begin at `base` of the file; None if cut."""
    try:
        return _page(data, at, base)
    except IndexError:
        return None


def _page(data: bytes, at: int, base: int) -> Page:
    numbers = {_KIND: -1, _SIZE: -1, _STORED: -1}
    structs: dict[int, dict[int, int]] = {}
    skipper, number = Skipper(data), 0
    while True:
        kind, number, at = field(data, at, number)
        if kind == STOP:
            break
        if kind == I32 and number in numbers:
            numbers[number], at = integer(data, at)
        elif kind == STRUCT and number in _STRUCTS:
            found, at = _integers(data, at, skipper)
            # As in Thrift, a second one of the same id adds to the first.
            structs.setdefault(_STRUCTS[number], {}).update(found)
        else:
            at = skipper.value(at, kind)
    page_kind = numbers[_KIND]
    inner = structs.get(page_kind, {})
    return Page(
        kind=page_kind,
        size=numbers[_SIZE],
        stored=numbers[_STORED],
        values=inner.get(_VALUES, 0),
        encoding=inner.get(_ENCODING.get(page_kind, 0), 0),
        offset=base + at,
        level_bytes=inner.get(_LEVEL_BYTES, 0) if page_kind == DATA_V2 else 0,
    )


def _integers(data: bytes, at: int, skipper: Skipper) -> tuple[dict[int, int], int]:
    """Return the integers of a struct by their ids, and where it ends."""
    found: dict[int, int] = {}
    number = 0
    while True:
        kind, number, at = field(data, at, number)
        if kind == STOP:
            return found, at
        if kind == I32:
            found[number], at = integer(data, at)
        else:
            at = skipper.value(at, kind)


# -- the texts of a dictionary -----------------------------------------------------------------------------------------

_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "LZO": 3, "BROTLI": 4, "LZ4": 5, "ZSTD": 6, "LZ4_RAW": 7}


def longest_text(read_at: ReadAt, dictionary: Page, codec: str) -> int:
    """Return the length of the longest text of a dictionary, in bytes; it takes as much memory as the dictionary.

    A dictionary is a page of plain values: Arrow reads it as a file of one column, of which this makes the rest.

    Raises:
        pyarrow.ArrowException, OSError: it is damaged.
    """
    if not dictionary.values:
        return 0
    codec_id = _CODECS.get(codec)
    if codec_id is None:
        return dictionary.size
    page = _page_header(dictionary) + read_at(dictionary.stored, dictionary.offset)
    footer = _footer(dictionary, len(page), codec_id)
    data = b"".join((b"PAR1", page, footer, len(footer).to_bytes(4, "little"), b"PAR1"))
    texts = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).column(0)
    return max((pc.max(pc.binary_length(chunk)).as_py() or 0 for chunk in texts.chunks), default=0)


def _page_header(page: Page) -> bytes:
    inner = b"".join((_i32(1, page.values), _i32(1, PLAIN), _i32(1, 3), _i32(1, 3), b"\0"))
    return b"".join((_i32(1, DATA), _i32(1, page.size), _i32(1, page.stored), b"\x2c", inner, b"\0"))


def _footer(page: Page, length: int, codec_id: int) -> bytes:
    """Return the footer of a file with one required column of binaries, in one page."""
    root = b"\x48\x01r" + _i32(1, 1) + b"\0"
    leaf = _i32(1, 6) + _i32(2, 0) + b"\x18\x01v" + b"\0"
    sizes = _i64(1, page.values) + _i64(1, length) + _i64(1, length) + _i64(2, len(b"PAR1"))
    meta = b"".join((_i32(1, 6), b"\x19\x15\0", b"\x19\x18\x01v", _i32(1, codec_id), sizes, b"\0"))
    chunk = _i64(2, len(b"PAR1")) + b"\x1c" + meta + b"\0"
    group = b"\x19\x1c" + chunk + _i64(1, length) + _i64(1, page.values) + b"\0"
    return _i32(1, 1) + b"\x19\x2c" + root + leaf + _i64(1, page.values) + b"\x19\x1c" + group + b"\0"


def _i32(delta: int, value: int) -> bytes:
    return bytes((delta << 4 | 5,)) + _zigzag(value)


def _i64(delta: int, value: int) -> bytes:
    return bytes((delta << 4 | 6,)) + _zigzag(value)


def _zigzag(value: int) -> bytes:
    rest, result = value << 1, bytearray()
    while rest > 0x7F:
        result.append(rest & 0x7F | 0x80)
        rest >>= 7
    result.append(rest)
    return bytes(result)
