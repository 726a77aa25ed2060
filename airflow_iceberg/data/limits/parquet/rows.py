"""How many rows of a Parquet file are read at once, so that they, and what is read for them, stay below the limit.

What the next rows of a column take follows from its pages: a fixed width for each value, the bytes of the pages of
plain texts, and the longest text of a dictionary for each value that is an index of it. A row of a list may have all
values of its column, so that all of them count. Arrow reads any number of rows, but a page and a dictionary as a whole,
of all columns at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.limits.memory import TIMES_STORED, MemoryLimit
from airflow_iceberg.data.limits.parquet.levels import rows_that_begin
from airflow_iceberg.data.limits.parquet.pages import (
    DATA,
    DATA_V2,
    DELTA_TEXTS,
    DICTIONARY,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    ChunkPlace,
    Page,
    ReadAt,
    longest_text,
    read_pages,
)
from airflow_iceberg.errors import FormatError

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
# Of a decimal, in Arrow; of the place of a text; of a level, two bytes for each value.
_DECIMAL_BYTES, _OFFSET_BYTES, _LEVEL_BYTES = 32, 4, 2
# Arrow has a place of this size for each text of a dictionary, beside a copy of them.
_ENTRY_BYTES = 16
_INDICES = frozenset((PLAIN_DICTIONARY, RLE_DICTIONARY))
_NOT_PLAIN = _INDICES | {DELTA_TEXTS}
# Values that are wider count one by one, too.
_WIDE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of values.

    Attributes:
        width: bytes of a value in Arrow, with its levels; of a text without its bytes.
        deepest: its largest repetition level: 0 unless a row has any number of values.
    """

    path: str
    width: int
    is_text: bool
    deepest: int

    @property
    def is_nested(self) -> bool:
        """Whether a row has any number of values."""
        return self.deepest > 0


def leaf_of(column: Any) -> Leaf:
    """Return what a column of a Parquet schema takes.

    Args:
        column: pyarrow's ColumnSchema.
    """
    kind = column.physical_type
    is_text = kind == "BYTE_ARRAY"
    width = _OFFSET_BYTES if is_text else _WIDTHS.get(kind, column.length)
    if column.logical_type.type == "DECIMAL":
        width = max(width, _DECIMAL_BYTES)
    levels = bool(column.max_definition_level) + bool(column.max_repetition_level)
    return Leaf(column.path, width + _LEVEL_BYTES * levels, is_text, column.max_repetition_level)


@dataclass(slots=True)
class ChunkMemory:
    """What a column chunk may take in memory.

    Attributes:
        largest: of its data pages, after decompression.
        longest: the longest text of the dictionary, as far as it is known.
        pages: the data pages of a column of texts or of a nested one.
        begins: the number of rows that begin in each page of a nested column; None if it is not known.
    """

    leaf: Leaf
    codec: str
    stored: int = 0
    largest: int = 0
    dictionary: Page | None = None
    longest: int = 0
    coded: int = 0
    pages: list[Page] = field(default_factory=list)
    begins: list[int] | None = None

    def add(self, page: Page) -> None:
        """Add a page.

        Raises:
            ValueError: it cannot be right.
        """
        if self.codec == "UNCOMPRESSED":
            page = page._replace(size=page.stored)
        if page.kind == DICTIONARY:
            if page.values > page.size:
                raise ValueError(f"a dictionary of {page.values} values in {page.size} bytes")
            self.dictionary = max(page, self.dictionary or page, key=lambda one: one.size)
            self.longest = self.dictionary.size
        elif page.kind in (DATA, DATA_V2):
            self.largest = max(self.largest, page.size)
            self.coded += page.values if page.encoding in _INDICES else 0
            if self.leaf.is_text or self.leaf.is_nested:
                self.pages.append(page)

    def of_page(self, page: Page) -> int:
        """Return what the values of a page may take."""
        found = page.values * self.leaf.width
        if not self.leaf.is_text:
            return found
        if page.encoding in _INDICES:
            return found + page.values * self.longest
        # Texts that are stored as what differs from the text before may each be as large as the page.
        return found + page.size * (page.values if page.encoding == DELTA_TEXTS else 1)

    @property
    def whole(self) -> int:
        """What cannot be read in portions."""
        found = self.largest + (self.leaf.width if self.leaf.width > _WIDE_BYTES else 0)
        if self.dictionary is not None:
            found += 2 * self.dictionary.size + _ENTRY_BYTES * self.dictionary.values
        if not self.leaf.is_nested:
            # A text of the dictionary, or those of two pages of which a portion has the end and the beginning; while
            # they are made, one of the pages is there, too.
            return found + (max(self.largest, self.longest) if self.leaf.is_text else 0)
        sizes = list(map(self.of_page, self.pages))
        return found + (sum(sizes) if self.begins is None else 2 * max(sizes, default=0))

    def rows(self, count: int, of: int) -> int:
        """Return what `count` of the chunk's `of` rows may take, beside the pages at their ends."""
        if self.leaf.is_nested:
            sizes = list(map(self.of_page, self.pages))
            if self.begins is None:
                return sum(sizes) * count // max(of, 1)
            return _most_inside(self.begins, sizes, count)
        found = count * self.leaf.width
        if self.leaf.is_text:
            found += min(count, self.coded) * self.longest
            deltas = [page for page in self.pages if page.encoding == DELTA_TEXTS]
            found += min(count, sum(page.values for page in deltas)) * max((page.size for page in deltas), default=0)
            others = [page for page in self.pages if page.encoding not in _NOT_PLAIN]
            found += _most_inside([page.values for page in others], [page.size for page in others], count)
        return found


def _most_inside(rows: Sequence[int], sizes: Sequence[int], count: int) -> int:
    """Return the most bytes of pages that lie as a whole in `count` rows.

    Args:
        rows, sizes: the rows that begin in each page, and what the page takes.
    """
    if sum(rows) <= count:
        return sum(sizes)
    ends, bytes_until = np.cumsum(np.array(rows, np.float64)), np.cumsum(np.array(sizes, np.float64))
    starts, bytes_before = ends - rows, bytes_until - sizes
    last = np.searchsorted(ends, starts + count, side="right") - 1
    inside = np.where(last >= np.arange(len(ends)), bytes_until[last] - bytes_before, 0)
    return int(inside.max())


class RowGroupLimit:
    """The pages of the wanted columns of a row group, and how many rows of them are read at once.

    Args:
        read_at: reads bytes of the file.
        size: of the file, in bytes.
        padding: bytes after each chunk that may belong to it.
    """

    def __init__(self, read_at: ReadAt, size: int, limit: MemoryLimit, *, padding: int = 0) -> None:
        self._read_at = read_at
        self._size = size
        self._limit = limit
        self._padding = padding

    @property
    def batch_bytes(self) -> int:
        """What the rows that are read at once may take."""
        return self._limit.batch_bytes

    def place(self, chunk: Any) -> ChunkPlace:
        """Return where Arrow finds a column chunk.

        Args:
            chunk: pyarrow's ColumnChunkMetaData.
        Raises:
            FormatError: it is not inside of the file.
        """
        start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < start:
            start = dictionary
        length = chunk.total_compressed_size
        if start < 0 or length < 0 or start + length > self._size:
            raise self._limit.refusal(
                f"column '{chunk.path_in_schema}' claims {length} bytes at byte {start}, and the file has {self._size}"
            )
        return ChunkPlace(start, min(length + self._padding, self._size - start), chunk.num_values)

    def rows(self, chunks: Sequence[tuple[Leaf, Any]], num_rows: int, batch_size: int) -> int:
        """Return how many rows are read at once, `batch_size` or fewer.

        Args:
            chunks: the wanted columns, with pyarrow's ColumnChunkMetaData of each.
        Raises:
            FormatError: not one row can be read below the limit, or a page is damaged.
        """
        if not chunks:
            return batch_size
        found = [self._memory(leaf, chunk) for leaf, chunk in chunks]
        asked = max(1, min(batch_size, num_rows))
        needed = self._needed(found, asked, num_rows)
        if needed > self._limit.batch_bytes or self._whole(found) > self._limit.most_bytes:
            self._look_into_dictionaries(found, asked)
            self._look_into_lists(found)
            needed = self._needed(found, asked, num_rows)
        self._check(found)
        rows = asked
        while rows > 1 and needed > self._limit.batch_bytes:
            rows //= 2
            needed = self._needed(found, rows, num_rows)
        return batch_size if rows == asked else rows

    def _memory(self, leaf: Leaf, chunk: Any) -> ChunkMemory:
        place = self.place(chunk)
        found = ChunkMemory(leaf, chunk.compression, place.length)
        try:
            for page in read_pages(self._read_at, place):
                found.add(page)
        except ValueError as error:
            raise self._damaged(found, error) from error
        return found

    def _needed(self, found: Sequence[ChunkMemory], rows: int, num_rows: int) -> int:
        return sum(each.rows(rows, num_rows) for each in found)

    def _whole(self, found: Sequence[ChunkMemory]) -> int:
        return sum(each.whole for each in found)

    def _stored(self, found: Sequence[ChunkMemory]) -> int:
        # Columns may claim the same bytes.
        return min(sum(each.stored for each in found), self._size)

    def _look_into_dictionaries(self, found: Sequence[ChunkMemory], rows: int) -> None:
        """Find out how long the texts of dictionaries really are, where it matters."""
        enough = self._limit.batch_bytes // (4 * len(found))
        for each in found:
            dictionary = each.dictionary
            if dictionary is None or not each.leaf.is_text:
                continue
            if (each.coded if each.leaf.is_nested else min(rows, each.coded)) * each.longest <= enough:
                continue
            self._limit.check(2 * dictionary.size, dictionary.stored, f"the dictionary of column '{each.leaf.path}'")
            try:
                each.longest = min(each.longest, longest_text(self._read_at, dictionary, each.codec))
            except (pa.ArrowException, OSError) as error:
                raise self._damaged(each, error) from error

    def _look_into_lists(self, found: Sequence[ChunkMemory]) -> None:
        """Find out where the rows of nested columns begin, if all of their values would be too much for one row."""
        most = max(self._limit.most_bytes, TIMES_STORED * self._stored(found))
        if self._whole(found) <= most:
            return
        for each in found:
            if not each.leaf.deepest or each.whole * 4 * len(found) <= most:
                continue
            self._limit.check(2 * each.largest, each.stored, f"a page of column '{each.leaf.path}'")
            try:
                counts = [rows_that_begin(self._read_at, page, each.codec, each.leaf.deepest) for page in each.pages]
            except (ValueError, IndexError, pa.ArrowException, OSError) as error:
                raise self._damaged(each, error) from error
            each.begins = None if None in counts else [count or 0 for count in counts]

    def _check(self, found: Sequence[ChunkMemory]) -> None:
        most = max(found, key=lambda each: each.whole)
        others = f" and {len(found) - 1} others" if len(found) > 1 else ""
        what = f"column '{most.leaf.path}' ({most.whole} bytes){others} of a row group"
        self._limit.check(self._whole(found), self._stored(found), what)

    def _damaged(self, chunk: ChunkMemory, error: Exception) -> FormatError:
        text = f"damaged column '{chunk.leaf.path}' of a row group: {error}"
        return FormatError(text, path=self._limit.location)
