"""Rows in any order to files in the order of the table, in runs of bounded size.

A file claims an order only if all of its rows are in it. So a run has its own files: rows of the next run may belong
before them. Not here: how rows compare (`data.write.ordering`), an order over many tasks (`jobs.append_sorted`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from airflow_iceberg.data.write.ordering import RowOrder, SortedRows, sort_rows
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import SortOrder

log = logging.getLogger(__name__)

# The size of a run's rows in memory; sorting them needs as much again.
RUN_BYTES = 384 << 20


def write_order(order: SortOrder, schema: Schema, spec: PartitionSpec) -> SortedRows:
    """Return the order in which rows are written: partition by partition, then by the table's sort order.

    Raises:
        InvalidInputError: a column of the order does not exist, is in a list, or has no order.
        UnsupportedError: an unknown transform.
    """
    return SortedRows(order, schema, spec=spec)


def unsortable(order: SortOrder, schema: Schema, spec: PartitionSpec) -> str | None:
    """Return why rows cannot be sorted by an order, None if they can."""
    try:
        rows = schema_to_arrow(schema).empty_table()
        write_order(order, schema, spec).keys(rows)
    except (InvalidInputError, UnsupportedError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return str(error)
    return None


class RowFiles(Protocol):
    """A writer of rows into data files, such as `PartitionedWriter`."""

    def write(self, table: pa.Table) -> None: ...
    def close(self) -> tuple[DataFile, ...]: ...
    def abort(self) -> None: ...


class SortedRuns:
    """Writes rows in any order into sorted files; used like a `PartitionedWriter`.

    Args:
        new_writer: a function that returns a writer whose files claim the order; called for each run.
        run_bytes: the size of a run in memory; RUN_BYTES by default.
    """

    def __init__(self, new_writer: Callable[[], RowFiles], order: RowOrder, *, run_bytes: int | None = None) -> None:
        self._new_writer = new_writer
        self._order = order
        self._run_bytes = RUN_BYTES if run_bytes is None else run_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._writers: list[RowFiles] = []
        self._files: list[DataFile] = []

    def write(self, table: pa.Table) -> None:
        """Take rows that `cast.rows.conform` returned; a full run is sorted and written."""
        if not table.num_rows:
            return
        pieces = max(1, -(-table.nbytes // self._run_bytes))
        step = -(-table.num_rows // pieces)
        for start in range(0, table.num_rows, step):
            piece = table.slice(start, step)
            self._held.append(piece)
            self._held_bytes += piece.nbytes
            if self._held_bytes >= self._run_bytes:
                self._end_run()

    def close(self) -> tuple[DataFile, ...]:
        """Write the waiting rows and describe the files of all runs."""
        self._end_run()
        return tuple(self._files)

    def abort(self) -> None:
        """Delete every file that was written."""
        self._held = []
        for writer in self._writers:
            writer.abort()

    def _end_run(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held, self._held_bytes = [], 0
        writer = self._new_writer()
        self._writers.append(writer)
        writer.write(sort_rows(rows, self._order))
        self._files.extend(writer.close())
