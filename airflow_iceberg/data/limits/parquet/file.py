"""A Parquet file that is read below a limit of memory: every reader of rows opens its files here.

Not here: what a footer (`parquet.footer`) and the pages of a row group (`parquet.rows`) may become.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.data.limits.fetched import FetchedFile
from airflow_iceberg.data.limits.memory import MemoryLimit
from airflow_iceberg.data.limits.parquet.footer import TAIL_BYTES, check_footer
from airflow_iceberg.data.limits.parquet.rows import Leaf, RowGroupLimit, leaf_of

# Files of writers before parquet-mr 1.2.9 have chunks that are too short by the header of their dictionary; Arrow reads
# as many bytes after each of them.
_TOO_SHORT = re.compile(r"\s*parquet-mr\b(?!.*version\s+(1\.([3-9]|\d\d)|[2-9]|\d\d))", re.IGNORECASE | re.DOTALL)
_PADDING = 100
# Small portions are joined again to as many rows, since each batch costs the steps after this some time.
_JOINED_ROWS = 16_384


class LimitedParquet:
    """An open file.

    Args:
        handle: an Arrow file, or one of fsspec.
        settings: how the columns are read: arguments of `pyarrow.parquet.ParquetFile`.
    Attributes:
        handle: an Arrow file for other reads: one lock for all of them.
        parquet: the file as pyarrow reads it; rows are read by `batches`.
    Raises:
        FormatError: the footer may become more than the limit.
    """

    def __init__(self, handle: Any, limit: MemoryLimit, **settings: Any) -> None:
        self._fetched = None if isinstance(handle, pa.NativeFile) else FetchedFile(handle)
        if self._fetched is None:
            self.handle = handle
        else:
            size = self._fetched.size
            self._fetched.fetch([(max(size - TAIL_BYTES, 0), min(size, TAIL_BYTES))])
            self.handle = pa.PythonFile(self._fetched, mode="r")
        check_footer(self.handle, limit)
        # What is fetched has been fetched by then.
        self._settings = {"pre_buffer": False, **settings}
        self.parquet = pq.ParquetFile(self.handle, **self._settings)
        self._leaves: dict[int, Leaf] = {}
        is_short = _TOO_SHORT.match(self.parquet.metadata.created_by or "") is not None
        self._limits = RowGroupLimit(self._read_at, self.handle.size(), limit, padding=_PADDING if is_short else 0)

    def keep_dictionaries(self, paths: list[str]) -> None:
        """Read these columns as dictionaries."""
        self.parquet = pq.ParquetFile(
            self.handle, metadata=self.parquet.metadata, read_dictionary=paths, **self._settings
        )

    def batches(
        self, group: int, batch_size: int, leaves: Sequence[int] | None = None, *, use_threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group, at most `batch_size` at a time.

        Args:
            leaves: the numbers of the columns of values; all by default.
        Raises:
            FormatError: not even one row fits into the limit.
        """
        metadata, schema = self.parquet.metadata.row_group(group), self.parquet.schema
        wanted = range(len(schema)) if leaves is None else leaves
        chunks = [(self._leaf(leaf), metadata.column(leaf)) for leaf in wanted]
        if self._fetched is not None:
            places = [self._limits.place(chunk) for _, chunk in chunks]
            self._fetched.fetch([(place.start, place.length) for place in places])
        rows = self._limits.rows(chunks, metadata.num_rows, batch_size)
        # By path: a name with a dot may also select another column.
        paths = None if leaves is None else [leaf.path for leaf, _ in chunks]
        found = self.parquet.iter_batches(rows, row_groups=[group], columns=paths, use_threads=use_threads)
        return found if rows >= min(batch_size, _JOINED_ROWS) else _joined(found, self._limits.batch_bytes)

    def _leaf(self, number: int) -> Leaf:
        found = self._leaves.get(number)
        if found is None:
            found = self._leaves[number] = leaf_of(self.parquet.schema.column(number))
        return found

    def _read_at(self, size: int, offset: int) -> bytes:
        return self.handle.read_at(size, offset)


def _joined(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger batches, as far as they are small."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = batch.nbytes
        if waiting and (rows >= _JOINED_ROWS or size + more > most_bytes // 2):
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + more
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
