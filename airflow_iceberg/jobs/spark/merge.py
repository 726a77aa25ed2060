"""What the SQL of a merge sees on Spark: views of the rows of both sides, read by our own tasks.

Not here: the query (`jobs.merge.sql`), what becomes of its rows (`jobs.merge.tasks`).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import SOURCE, TARGET
from airflow_iceberg.format.arrow.paths import twins
from airflow_iceberg.format.metadata_columns import POSITION
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.merge import sql
from airflow_iceberg.jobs.merge.seen_types import known_in
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.run_task import open_context
from airflow_iceberg.jobs.spark.encrypted import MapFunction, encrypted
from airflow_iceberg.jobs.spark.errors import query_errors
from airflow_iceberg.jobs.spark.frame_schema import SparkRows, spark_ddl
from airflow_iceberg.storage.stores.fsspec_io import load_file_io

if TYPE_CHECKING:
    from airflow_iceberg.jobs.merge.tasks import Candidates, Matching

CASE_SENSITIVE = "spark.sql.caseSensitive"


def create_views(spark: Any, plan: JobPlan, matching: Matching, source_schema: Any, storage: Mapping[str, str]) -> None:
    """Create the views of the rows of the table and of the source.

    Args:
        source_schema: Spark's schema of the source; None without one, and for source files.
        storage: properties of the FileIO, for the workers.
    Raises:
        InvalidInputError: columns or fields that Spark takes for the same one.
        UnsupportedError: a column of the table that the SQL needs, or of source files, has a type that Spark has not.
    """
    candidates, document = matching.candidates, plan.to_json()
    check_apart(spark, f"'{TARGET}'", schema_to_arrow(candidates.reader.projection))
    check_apart(spark, f"'{SOURCE}'", matching.source_schema or ())
    rows = SparkRows(_without_position(candidates.reader.projection))
    ddl = spark_ddl(_without_position(candidates.reader.projection), spark_version=spark.version)
    place = _Place(sql.ROW_POSITION, sql.ROW_FILE)
    columns = ", ".join([*([ddl] if ddl else []), f"`{place.position}` bigint", f"`{place.file}` int"])
    packed = tuple(zlib.compress(pickle.dumps(item), 1) for item in candidates.items)
    function = _target(document, replace(candidates, items=()), packed, rows, place, storage)
    frame = spark.range(0, len(packed), 1, max(len(packed), 1)).mapInArrow(encrypted(spark, function), columns)
    frame.createOrReplaceTempView(sql.TARGET_ROWS)
    _create_tables(spark, matching, {TARGET: rows.schema.names})
    if matching.source is None or matching.source_schema is None:
        return
    assert isinstance(plan.task, MergeTask)
    of_files = None
    if source_schema is None:
        # Of source files only Arrow's schema is known.
        of_files = FileRows(matching.source_schema, plan.task.write.schema, spark_version=spark.version)
        source_schema = _spark_schema(of_files.schema)
    count = len(matching.source)
    function = _source(document, matching.source, of_files, sql.SOURCE_ROW, storage)
    with_mark = source_schema.__class__([*source_schema.fields]).add(sql.SOURCE_ROW, "boolean")
    frame = spark.range(0, count, 1, max(count, 1)).mapInArrow(encrypted(spark, function), with_mark)
    frame.createOrReplaceTempView(sql.SOURCE_ROWS)
    _create_tables(spark, matching, {SOURCE: source_schema.names})


def check_apart(spark: Any, name: str, columns: Iterable[pa.Field]) -> None:
    """Check that Spark can tell columns apart, and fields of theirs; raises InvalidInputError."""
    is_exact = str(spark.conf.get(CASE_SENSITIVE, "false")).lower() == "true"
    twice = twins(columns, str if is_exact else fold)
    if twice is not None and twice[0] == twice[1]:
        raise InvalidInputError(f"column '{twice[0]}' appears twice in {name}")
    if twice is not None:
        raise InvalidInputError(
            f"{name} has the columns {' and '.join(map(repr, twice))}, which are one for Spark: rename one, or set "
            f"{CASE_SENSITIVE}=true"
        )


@contextmanager
def match_errors() -> Iterator[None]:
    """Raise InvalidInputError for SQL of a merge that Spark rejects, without the names of ours."""
    try:
        with query_errors():
            yield
    except InvalidInputError as error:
        raise InvalidInputError(sql.shown(str(error))) from error


def _create_tables(spark: Any, matching: Matching, columns: Mapping[str, Sequence[str]]) -> None:
    """Let subqueries read the sides as tables, where texts do."""
    for side, names in columns.items():
        if side in matching.tables:
            spark.sql(sql.table_view(side, names, dialect="spark"))


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _without_position(projection: Schema) -> Schema:
    return Schema(tuple(field for field in projection.fields if field.id != POSITION.id))


@dataclass(frozen=True, slots=True)
class _Place:
    """The names of the columns that say where a row is: those of the driver, which workers cannot know."""

    position: str
    file: str


def _target(
    document: bytes,
    candidates: Candidates,
    packed: Sequence[bytes],
    rows: SparkRows,
    place: _Place,
    storage: Mapping[str, str],
) -> MapFunction:
    """Return the function that reads the rows of the table."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io: Any = open_context(JobPlan.from_json(document), load_file_io(storage)).io
        keys = candidates.open_keys(io)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                item = pickle.loads(zlib.decompress(packed[number]))  # noqa: S301 - of this job's own driver
                for found in replace(candidates, items=(item,)).rows(io, 0, keys):
                    yield _with_place(found, rows, place)

    return read


def _with_place(found: pa.RecordBatch, rows: SparkRows, place: _Place) -> pa.RecordBatch:
    """Return rows in Spark's types, with their place, which the last two columns say."""
    names = rows.schema.names
    columns = rows.convert(found.select(names)).columns if names else []
    return pa.RecordBatch.from_arrays([*columns, *found.columns[-2:]], names=[*names, place.position, place.file])


class FileRows:
    """Rows of source files in Spark's types: a value of the table's type is there as in the table's own rows.

    Args:
        schema: the columns of the files.
        table: those of the table.
    Raises:
        UnsupportedError: a column whose type this Spark does not have.
    """

    def __init__(self, schema: pa.Schema, table: Schema, *, spark_version: str) -> None:
        known = known_in(schema, table)
        spark_ddl(known, spark_version=spark_version)
        self._known = {field.name: SparkRows(Schema((field,))) for field in known.fields}
        self.schema = pa.schema(
            [self._known[item.name].schema.field(0) if item.name in self._known else item for item in schema]
        )

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            self._known[name].convert(batch.select([name])).column(0) if name in self._known else batch.column(name)
            for name in batch.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _source(
    document: bytes,
    slices: Sequence[exchange.Slice],
    of_files: FileRows | None,
    mark: str,
    storage: Mapping[str, str],
) -> MapFunction:
    """Return the function that reads the rows of the source that were kept, each with a mark."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io = open_context(JobPlan.from_json(document), load_file_io(storage)).io
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in exchange.read_slices(io, [slices[number]]):
                    for rows in table.to_batches():
                        found = rows if of_files is None else of_files.convert(rows)
                        yield found.append_column(mark, pa.repeat(True, found.num_rows))

    return read
