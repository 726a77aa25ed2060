"""Arrow rows of this process become data files: conform, write, and nothing stays behind when it fails.

The same two steps as in a job's task (`jobs.tasks`), for rows that are in memory already.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_iceberg.data.cast import check_columns, conform
from airflow_iceberg.data.options import WriteOptions, data_location
from airflow_iceberg.data.write import PartitionedWriter
from airflow_iceberg.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from airflow_iceberg.spec.manifests import DataFile
    from airflow_iceberg.spec.metadata import TableMetadata
    from airflow_iceberg.storage.base import FileIO

SOURCE = "the Arrow rows"
MAX_THREADS = 4
"""Many rows without partitions go to as many files as threads encode them: a few files, however large the machine."""


def write_rows(
    io: FileIO,
    metadata: TableMetadata,
    rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
    *,
    file_prefix: str,
) -> tuple[DataFile, ...]:
    """Write rows for the table's current schema and spec; returns one DataFile a file.

    Raises:
        InvalidInputError: not Arrow; a column is missing, extra, or holds a value that does not fit; nothing is left
            behind.
    """
    import pyarrow as pa

    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise InvalidInputError(
            f"expected an Arrow table, record batch or record batch reader, got {type(rows).__name__}; "
            f"make one of it, e.g. by pyarrow.Table.from_pandas"
        )
    schema, spec = metadata.schema(), metadata.spec()
    check_columns(rows.schema, schema, source=SOURCE)
    writer = PartitionedWriter(
        io,
        schema=schema,
        spec=spec,
        options=WriteOptions.from_properties(metadata.properties, schema, metadata.sort_order()),
        data_location=data_location(metadata.location, metadata.properties),
        file_prefix=file_prefix,
        threads=encoding_threads(),
    )
    try:
        first_row = 1
        for table in _tables(rows):
            writer.write(conform(table, schema, source=SOURCE, first_row=first_row))
            first_row += table.num_rows
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def encoding_threads() -> int:
    """Return how many files are encoded at a time: as many as this process has cores, at most 4."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_THREADS)


def _tables(rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> Iterator[pa.Table]:
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    else:
        for batch in rows:
            yield pa.Table.from_batches([batch])
