"""Arrow rows of this process as the source of a job: a Parquet file in a staging folder of its own.

A job may be planned and run several times, in rounds, and a reader or a function gives its rows once. So the file is
written when the first round needs it, row group by row group, and every round reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.data.arrow_rows import Rows
from airflow_iceberg.data.cast.rows import check_rows
from airflow_iceberg.data.write.rows import SOURCE
from airflow_iceberg.errors import InvalidInputError, StorageError
from airflow_iceberg.jobs.protocol.heartbeat import kept_alive
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.new_rows import RowsFunction
from airflow_iceberg.operations.work import Work

# When a row group is complete: batches are gathered up to one of the two.
GROUP_ROWS, GROUP_BYTES = 1 << 17, 64 << 20


class RowsFile:
    """The source of all rounds of one piece of work."""

    def __init__(self, work: Work, rows: object, stack: ExitStack) -> None:
        self._work = work
        self._rows = rows
        self._stack = stack
        self._source: Source | None = rows if isinstance(rows, Source) else None

    def source(self) -> Source | None:
        """Return the source; Arrow rows are written first.

        Raises:
            InvalidInputError: neither a source nor Arrow rows.
            StorageError: the staging folder cannot be written.
        """
        if self._source is None and self._rows is not None:
            self._source = self._written()
        return self._source

    def _written(self) -> Source:
        rows, io, name = self._rows, self._work.table.io, SOURCE
        if isinstance(rows, RowsFunction):
            name = f"the rows of function {rows.name!r}"
            rows = rows.rows(self._work.table)
        if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
            raise InvalidInputError(f"expected an Arrow table, record batch or reader, got {type(rows).__name__}")
        folder = self._work.new_staging()
        self._stack.callback(staging.clear, io, folder)
        self._stack.enter_context(kept_alive(io, folder))
        location = f"{folder}/source.parquet"
        filesystem, inner = io.filesystem(location)
        with ExitStack() as opened:
            with _storage_errors(location):
                filesystem.makedirs(inner.rsplit("/", 1)[0], exist_ok=True)
                sink = opened.enter_context(filesystem.open(inner, "wb"))
                writer = pq.ParquetWriter(sink, rows.schema, compression="lz4", store_schema=True)
                opened.enter_context(writer)
            first_row = 1
            for group in _row_groups(rows):
                # Before they are written: Parquet would cut a decimal that has too many digits.
                check_rows(group, source=name, first_row=first_row)
                first_row += group.num_rows
                with _storage_errors(location):
                    writer.write_table(group)
            with _storage_errors(location):
                opened.close()
        return replace(Source.from_files([location], file_format="parquet"), rows_name=name)


@contextmanager
def rows_file(work: Work, rows: object) -> Iterator[RowsFile]:
    """Give the source of a job; the file is deleted at the end of the block.

    Args:
        rows: a source, Arrow rows, a function that returns some, or None for no source.
    """
    with ExitStack() as stack:
        yield RowsFile(work, rows, stack)


@contextmanager
def _storage_errors(location: str) -> Iterator[None]:
    """Name the file in an error of the store, but not in one of the rows themselves."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {location}: {error}") from error


def _row_groups(rows: Rows) -> Iterator[pa.Table]:
    """Yield the rows in groups that are worth a row group."""
    if isinstance(rows, pa.Table):
        yield rows
        return
    kept: list[pa.RecordBatch] = []
    for batch in [rows] if isinstance(rows, pa.RecordBatch) else rows:
        kept.append(batch)
        if sum(one.num_rows for one in kept) >= GROUP_ROWS or sum(one.nbytes for one in kept) >= GROUP_BYTES:
            yield pa.Table.from_batches(kept)
            kept = []
    if kept:
        yield pa.Table.from_batches(kept)
