"""Arrow rows of this process become data files, by the same steps as in a job's task (`jobs.append`)."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from airflow_iceberg.data.cast.new_columns import with_new_columns
from airflow_iceberg.data.cast.row_check import RowCheck
from airflow_iceberg.data.cast.rows import check_columns, conform
from airflow_iceberg.data.write.file_layout import UNSORTED_ORDER_ID
from airflow_iceberg.data.write.options import WriteOptions, data_location
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.data.write.sorted import SortedRuns, unsortable, write_order
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader

log = logging.getLogger(__name__)

SOURCE = "the Arrow rows"
# Many rows without partitions are written into one file for each thread: a few files, also on a large machine.
MAX_THREADS = 4


def schema_with(metadata: TableMetadata, rows: Rows) -> Schema:
    """Return the table's schema with the new columns and the wider types of the rows.

    Raises:
        InvalidInputError: not Arrow; a column that the table cannot have.
    """
    _check_arrow(rows)
    return with_new_columns(
        metadata.schema(),
        [rows.schema],
        last_column_id=metadata.last_column_id,
        specs=(metadata.spec(),),
        format_version=metadata.format_version,
    )


def write_rows(
    io: FileIO,
    metadata: TableMetadata,
    rows: Rows,
    *,
    file_prefix: str,
    schema: Schema | None = None,
    check: RowCheck | None = None,
) -> tuple[DataFile, ...]:
    """Write rows for the table's current spec; after an error all new files are deleted.

    Args:
        schema: the schema of the files; the table's by default, or the result of `schema_with`.
        check: the check of every row.
    Raises:
        InvalidInputError: not Arrow; a column is missing, unknown, or has a value that does not fit.
    """
    _check_arrow(rows)
    written = schema or metadata.schema()
    # Write defaults exist from version 3 on.
    filled = written if metadata.format_version >= 3 else written.without_write_defaults()
    check_columns(rows.schema, filled, source=SOURCE)
    writer = rows_writer(io, metadata, written, file_prefix)
    try:
        first_row = 1
        for table in _tables(rows):
            conformed = conform(table, filled, source=SOURCE, first_row=first_row, threads=encoding_threads())
            if check is not None:
                check.check(conformed, source=SOURCE, first_row=first_row)
            writer.write(conformed)
            first_row += table.num_rows
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _check_arrow(rows: object) -> None:
    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise InvalidInputError(
            f"expected an Arrow table, record batch or record batch reader, got {type(rows).__name__}; "
            f"convert it, e.g. by pyarrow.Table.from_pandas"
        )


def rows_writer(
    io: FileIO, metadata: TableMetadata, schema: Schema, file_prefix: str, *, folder: str | None = None
) -> PartitionedWriter | SortedRuns:
    """Return the writer of rows for the table: in its sort order, if it has one.

    Args:
        folder: where the files are written; None for the table's own place of data files.
    """
    spec, order = metadata.spec(), metadata.sort_order()
    options = WriteOptions.from_properties(metadata.properties, schema, order)

    def new_writer(sort_order_id: int = UNSORTED_ORDER_ID) -> PartitionedWriter:
        return PartitionedWriter(
            io,
            schema=schema,
            spec=spec,
            options=options,
            data_location=folder or data_location(metadata.location, metadata.properties),
            file_prefix=file_prefix,
            threads=encoding_threads(),
            sort_order_id=sort_order_id,
        )

    if not order.fields:
        return new_writer()
    reason = unsortable(order, schema, spec)
    if reason is not None:
        log.warning("rows are not sorted by the table's sort order %d: %s", order.order_id, reason)
        return new_writer()
    return SortedRuns(lambda: new_writer(order.order_id), write_order(order, schema, spec))


def encoding_threads() -> int:
    """Return how many files are encoded at a time: as many as this process has cores, at most 4."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_THREADS)


def _tables(rows: Rows) -> Iterator[pa.Table]:
    if isinstance(rows, pa.Table):
        yield rows
    else:
        yield from (pa.Table.from_batches([one]) for one in ([rows] if isinstance(rows, pa.RecordBatch) else rows))
