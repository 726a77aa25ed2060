"""What the SQL of a merge sees on Spark: the views `target` and `source`, read by our own tasks.

Not here: the query (`jobs.merge.sql`), what becomes of its rows (`jobs.merge.tasks`).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.expressions.merge_clauses import SOURCE, TARGET
from airflow_iceberg.format.metadata_columns import POSITION
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.merge import sql
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.run_task import open_context
from airflow_iceberg.jobs.spark.frame_schema import SparkRows, spark_ddl
from airflow_iceberg.storage.stores.fsspec_io import load_file_io

if TYPE_CHECKING:
    from airflow_iceberg.jobs.merge.tasks import Candidates, Matching

Rows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def create_views(spark: Any, plan: JobPlan, matching: Matching, source_schema: Any, storage: Mapping[str, str]) -> None:
    """Create the views `target` and `source`.

    Args:
        source_schema: Spark's schema of the source; None without a source.
        storage: properties of the FileIO, for the workers.
    """
    candidates, document = matching.candidates, plan.to_json()
    rows = SparkRows(_without_position(candidates.reader.projection))
    ddl = spark_ddl(_without_position(candidates.reader.projection), spark_version=spark.version)
    columns = ", ".join([*([ddl] if ddl else []), f"`{sql.POSITION}` bigint", f"`{sql.FILE}` int"])
    packed = tuple(zlib.compress(pickle.dumps(item), 1) for item in candidates.items)
    function = _target(document, replace(candidates, items=()), packed, rows, storage)
    spark.range(0, len(packed), 1, max(len(packed), 1)).mapInArrow(function, columns).createOrReplaceTempView(TARGET)
    if matching.source is None:
        return
    count = len(matching.source)
    function = _source(document, matching.source, storage)
    frame = spark.range(0, count, 1, max(count, 1)).mapInArrow(function, source_schema)
    frame.createOrReplaceTempView(SOURCE)


def _without_position(projection: Schema) -> Schema:
    return Schema(tuple(field for field in projection.fields if field.id != POSITION.id))


def _target(
    document: bytes, candidates: Candidates, packed: Sequence[bytes], rows: SparkRows, storage: Mapping[str, str]
) -> Rows:
    """Return the function that reads the rows of the table."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io: Any = open_context(JobPlan.from_json(document), load_file_io(storage)).io
        keys = candidates.open_keys(io)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                item = pickle.loads(zlib.decompress(packed[number]))  # noqa: S301 - of this job's own driver
                for found in replace(candidates, items=(item,)).rows(io, 0, keys):
                    yield _with_place(found, rows)

    return read


def _with_place(found: pa.RecordBatch, rows: SparkRows) -> pa.RecordBatch:
    """Return rows in Spark's types, with their place."""
    names = rows.schema.names
    columns = rows.convert(found.select(names)).columns if names else []
    place = [found.column(POSITION.name), found.column(sql.FILE)]
    return pa.RecordBatch.from_arrays([*columns, *place], names=[*names, sql.POSITION, sql.FILE])


def _source(document: bytes, slices: Sequence[exchange.Slice], storage: Mapping[str, str]) -> Rows:
    """Return the function that reads the rows of the source that were kept."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io = open_context(JobPlan.from_json(document), load_file_io(storage)).io
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in exchange.read_slices(io, [slices[number]]):
                    yield from table.append_column(sql.IS_SOURCE, pa.repeat(True, table.num_rows)).to_batches()

    return read
