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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_iceberg.data.read.file import ReadAs, check_supported, find_geo_fields
from airflow_iceberg.data.read.selection import choose_snapshot, project
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.manifests import columns
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata_columns import PARTITION_NAME
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.jobs.protocol.table_input import FileUnit, cut_group
from airflow_iceberg.jobs.spark.frame_schema import SparkRows, spark_ddl
from airflow_iceberg.jobs.spark.run import ship
from airflow_iceberg.plan.scan import FileScanTask, plan_files
from airflow_iceberg.storage.gate import Gate
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.storage.trust import Trust

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.format.snapshots import Snapshot
    from airflow_iceberg.storage.base import FileIO

# Opening a file costs about as much as reading this number of bytes: a task does not get thousands of tiny files.
OPEN_FILE_BYTES = 4 << 20


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
        storage: properties of the FileIO on the driver and the workers; secrets are sent in Spark's task messages only.
            `allowed-locations` among them has the prefixes of files outside of the table's bucket, or its local folder.
    Raises:
        NotFoundError: the metadata file, the snapshot or a column does not exist.
        InvalidInputError: a predicate that does not parse, or does not fit the columns.
        UnsupportedError: a column that Spark has no type for, an encrypted table.
    """
    properties = dict(storage or {})
    location = _metadata_location(table_or_metadata_location)
    gate = Trust.of(properties).gate_of_metadata_file(location)
    reader, items = plan_read(
        gate.around(load_file_io(properties)),
        location,
        snapshot_id=snapshot_id,
        ref=ref,
        as_of_ms=as_of_ms,
        row_filter=row_filter,
        predicate_params=predicate_params,
        selected_fields=selected_fields,
    )
    ddl = spark_ddl(reader.projection, spark_version=spark.version)
    ship(spark)
    packed = tuple(zlib.compress(pickle.dumps(item), 1) for item in items)
    function = _worker(reader, packed, properties, gate)
    # Spark rejects a range of no partitions: an empty table has one task without work.
    return spark.range(0, len(packed), 1, max(len(packed), 1)).mapInArrow(function, ddl)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReader:
    """How tasks read files of a table.

    Attributes:
        projection: the columns of the rows.
        schema: the whole schema, which filters are bound to.
        schemas: all schemas of the table, for equality deletes.
    """

    projection: Schema
    schema: Schema
    schemas: tuple[Schema, ...]
    specs: tuple[PartitionSpec, ...]
    name_mapping: str | None

    def rows(self, io: FileIO, item: Sequence[ReadUnit]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files."""
        specs = {spec.spec_id: spec for spec in self.specs}
        read = ReadAs(io=io, schemas=self.schemas, specs=specs, name_mapping=self.name_mapping)
        deletes = read.delete_reader()
        for one in item:
            unit, row_filter = one.unit, one.residual
            yield from read.rows(unit, deletes, schema=self.projection, table_schema=self.schema, row_filter=row_filter)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadUnit:
    """A file, or some of its row groups, and the filter of its rows."""

    unit: FileUnit
    residual: Expression


def plan_read(
    io: FileIO,
    metadata_location: str,
    *,
    snapshot_id: int | None = None,
    ref: str | None = None,
    as_of_ms: int | None = None,
    row_filter: str | None = None,
    predicate_params: Mapping[str, Any] | None = None,
    selected_fields: Sequence[str] = ("*",),
) -> tuple[TableReader, list[tuple[ReadUnit, ...]]]:
    """Return how to read a table, and the files of each task; raises as `read_table`."""
    if isinstance(selected_fields, str):
        raise InvalidInputError(f"selected_fields is the text {selected_fields!r}, expected a list of columns")
    metadata = metadata_json.read(io.read(metadata_location), path=metadata_location)
    if TableProperties.of(metadata.properties).encryption_key_id is not None:
        raise UnsupportedError(f"table {metadata.location} is encrypted and cannot be read here")
    snapshot, schema = choose_snapshot(metadata, snapshot_id=snapshot_id, ref=ref, as_of_ms=as_of_ms)
    known = recover_sources(io, metadata) if PARTITION_NAME in selected_fields else metadata
    projection = project(known, schema, tuple(selected_fields), case_sensitive=True)
    expression = parse_filter(row_filter, schema, params=predicate_params)
    tasks = [] if snapshot is None else list(_scan(io, metadata, snapshot, schema, expression))
    geo_fields = find_geo_fields(projection)
    for task in tasks:
        check_supported(task.file, task.delete_files, geo_fields)
    reader = TableReader(
        projection=projection,
        schema=schema,
        schemas=metadata.newest_schemas(),
        specs=metadata.partition_specs,
        name_mapping=TableProperties.of(metadata.properties).name_mapping,
    )
    return reader, _items(tasks, TableProperties.of(metadata.properties).split_size_bytes)


def _scan(
    io: FileIO, metadata: TableMetadata, snapshot: Snapshot, schema: Schema, expression: Expression
) -> Iterator[FileScanTask]:
    return plan_files(
        read_manifests(io, snapshot),
        read_columns=lambda wanted, keys: columns.read_columns(
            (columns.unpack(io.read(one.manifest_path), one) for one in wanted), keys=keys
        ),
        metadata=metadata,
        schema=schema,
        row_filter=expression,
    )


def _items(tasks: Sequence[FileScanTask], split_bytes: int) -> list[tuple[ReadUnit, ...]]:
    """Cut files into tasks of about the same size, in the order of the scan; large files are cut between row groups."""
    units = [FileUnit.of(task) for task in tasks]
    residuals = {task.file.file_path: task.residual for task in tasks}
    items: list[tuple[ReadUnit, ...]] = []
    for run in cut_group(units, split_size_bytes=split_bytes):
        most = max(1, split_bytes // OPEN_FILE_BYTES)
        for start in range(0, len(run), most):
            part = run[start : start + most]
            items.append(tuple(ReadUnit(unit=unit, residual=residuals[unit.file.file_path]) for unit in part))
    return items


def _metadata_location(given: Any) -> str:
    location = getattr(given, "metadata_location", given)
    if not isinstance(location, str) or not location.endswith((".json", ".json.gz")):
        raise InvalidInputError(
            f"cannot read {given!r} as a table: expected the location of a metadata file (….metadata.json), such as "
            f"table.metadata_location; a job has no catalog"
        )
    return location


def _worker(
    reader: TableReader, items: Sequence[bytes], storage: Mapping[str, str], gate: Gate
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` over numbers of items."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io, rows = gate.around(load_file_io(storage)), SparkRows(reader.projection)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                item = pickle.loads(zlib.decompress(items[number]))  # noqa: S301 - of this job's own driver
                for found in reader.rows(io, item):
                    yield rows.convert(found)

    return read
