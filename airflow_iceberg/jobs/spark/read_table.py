"""A table as a Spark DataFrame, without an Iceberg jar: for the jobs of users, on Spark 3.5 and 4.

    from airflow_iceberg.jobs.spark.read_table import read_table

    frame = read_table(spark, "s3://lake/sales/orders/metadata/00012-….metadata.json",
                       row_filter="day >= '2026-01-01'", selected_fields=("id", "amount"))

The driver plans: it reads metadata and manifests, prunes files by the filter and cuts the rest into tasks. The workers
read the files with pyarrow, in the table's columns, without deleted rows. A job has no credentials for a catalog: its
author passes the location (`table.metadata_location`, or the XCom of an operator).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.spark.encrypted import encrypted
from airflow_iceberg.jobs.spark.frame_schema import SparkRows, spark_ddl
from airflow_iceberg.jobs.spark.package import ship
from airflow_iceberg.jobs.table_reader import Reader, plan_pinned, plan_read
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.storage.trust import Trust

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.storage.base import FileIO


def read_table(
    spark: Any,
    table_or_metadata_location: Any,
    *,
    snapshot_id: int | None = None,
    ref: str | None = None,
    as_of_ms: int | None = None,
    row_filter: str | None = None,
    predicate_params: Mapping[str, Any] | None = None,
    selected_fields: Sequence[str] = ("*",),
    storage: Mapping[str, str] | None = None,
) -> Any:
    """Return a table, or a part of it, as a DataFrame.

    The DataFrame is of one snapshot, also after later commits to the table. Filters and selections of Spark are not
    pushed down: use the arguments.

    Args:
        spark: a SparkSession, classic or Connect.
        table_or_metadata_location: location of a metadata file, or an object with an attribute `metadata_location`.
        snapshot_id, ref, as_of_ms: the snapshot to read, by at most one of the three; by default main's current one.
        row_filter: a predicate in SQL; files without matching rows are not opened.
        predicate_params: the values of the predicate's placeholders, `:name`, by name.
        selected_fields: columns, also nested ones ("address.city") and metadata columns ("_file", "_row_id").
        storage: properties of the FileIO on the driver and the workers, to which they are sent encrypted.
            `allowed-locations` among them has the prefixes of files outside of the
            table's bucket, or its local folder.
    Raises:
        NotFoundError: the metadata file, the snapshot or a column does not exist.
        InvalidInputError: a predicate that does not parse, or does not fit the columns.
        UnsupportedError: a column that Spark has no type for, an encrypted table.
    """
    properties = dict(storage or {})
    location = _metadata_location(table_or_metadata_location)
    gate = Trust.of(properties).gate_of_metadata_file(location)
    planned = plan_read(
        gate.around(load_file_io(properties)),
        location,
        snapshot_id=snapshot_id,
        ref=ref,
        as_of_ms=as_of_ms,
        row_filter=row_filter,
        predicate_params=predicate_params,
        selected_fields=selected_fields,
    )
    return _frame(spark, planned, properties, gate.around)


def read_pinned(spark: Any, table: PinnedTable, storage: Mapping[str, str]) -> Any:
    """Return a DataFrame of an input of a job; see `read_table`.

    Args:
        storage: properties of the FileIO on the driver and the workers.
    """
    return _frame(spark, plan_pinned(table, table.gated(load_file_io(storage))), storage, table.gated)


def _frame(
    spark: Any,
    planned: tuple[Reader, Sequence[tuple[Any, ...]]],
    storage: Mapping[str, str],
    gated: Callable[[FileIO], FileIO],
) -> Any:
    reader, items = planned
    ddl = spark_ddl(reader.projection, spark_version=spark.version)
    ship(spark)
    packed = tuple(zlib.compress(pickle.dumps(item), 1) for item in items)
    function = _worker(reader, packed, dict(storage), gated)
    # Spark rejects a range of no partitions: an empty table has one task without work.
    return spark.range(0, len(packed), 1, max(len(packed), 1)).mapInArrow(encrypted(spark, function), ddl)


def _metadata_location(given: Any) -> str:
    location = getattr(given, "metadata_location", given)
    if not isinstance(location, str) or not location.endswith((".json", ".json.gz")):
        raise InvalidInputError(
            f"cannot read {given!r} as a table: expected the location of a metadata file (….metadata.json), such as "
            f"table.metadata_location; a job has no catalog"
        )
    return location


def _worker(
    reader: Reader, items: Sequence[bytes], storage: Mapping[str, str], gated: Callable[[FileIO], FileIO]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` over numbers of items."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io, rows = gated(load_file_io(storage)), SparkRows(reader.projection)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                item = pickle.loads(zlib.decompress(items[number]))  # noqa: S301 - of this job's own driver
                for found in reader.rows(io, item):
                    yield rows.convert(found)

    return read
