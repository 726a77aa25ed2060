"""Runs a job on Spark: Spark schedules, Arrow moves the bytes.

Only the DataFrame API, so that classic Spark and Spark Connect both run it. For files, Spark sees only numbers:
`spark.range(0, n, 1, n)` has one task for each partition, which reads and writes with pyarrow. The rows of a query or
of a callable come through `mapInArrow`. The reports of tasks are rows of text; a speculative or repeated attempt may
write files, and only files that a report names are used.

The workers need pyarrow and fsspec (fastavro for Avro sources) and the same Python as the driver; this package is sent
to them as a zip. Not here: what the workers run (`jobs.spark.worker`), what the job does (`jobs.run_plan`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.phase import Timings
from airflow_iceberg.jobs.progress import Progress
from airflow_iceberg.jobs.run_plan import run_job
from airflow_iceberg.jobs.spark.encrypted import MapFunction, encrypted
from airflow_iceberg.jobs.spark.errors import as_iceberg_error, query_errors
from airflow_iceberg.jobs.spark.following import Counters, new_counters, reports_of
from airflow_iceberg.jobs.spark.inputs import open_inputs
from airflow_iceberg.jobs.spark.merge import check_apart, create_views, match_errors
from airflow_iceberg.jobs.spark.package import is_connect, ship
from airflow_iceberg.jobs.spark.query import open_query, run_sql, source_name
from airflow_iceberg.jobs.spark.types import arrow_schema
from airflow_iceberg.jobs.spark.worker import Worker
from airflow_iceberg.jobs.task import Staging, TaskReport, TaskSpec

if TYPE_CHECKING:
    from airflow_iceberg.jobs.merge.tasks import Matching
    from airflow_iceberg.jobs.protocol.merge_task import MergeTask
    from airflow_iceberg.jobs.protocol.plan import AppendTask, JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

REPORT_DDL = "report string"
TIME_ZONE = "spark.sql.session.timeZone"
# Unless the session sets them. Spark 4 limits the bytes of a batch, too: it adds up the buffers of all columns at every
# row, a third of the time that rows need to leave the JVM. The number of rows limits a batch as well, and small batches
# cost nothing: they are joined again here.
SESSION_DEFAULTS: Mapping[str, str] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
}


def run_spark(
    plan: JobPlan,
    io: FileIO,
    spark: Any,
    *,
    storage: Mapping[str, str] | None = None,
    inputs: Mapping[str, Mapping[str, str]] | None = None,
    secret: str | None = None,
    as_error: Callable[[Exception], Exception] = as_iceberg_error,
) -> JobResult:
    """Run a job on a Spark session and write its result document, also when it fails.

    The session's time zone becomes UTC: the meaning of a query's dates must not depend on the cluster.

    Args:
        io: access to the table's files, for the driver.
        spark: a SparkSession, classic or Connect.
        storage: the properties that `io` was made from, for the workers; may hold secrets.
        inputs: the properties of the FileIO of inputs whose files are reached with others, by the inputs' names.
        secret: what the result is signed with, if another process reads it.
        as_error: a function that returns the error to report for an error of Spark.
    Returns:
        the result, also of a job that failed.
    Raises:
        StorageError: the result document cannot be written.
    """

    def start(timings: Timings) -> _Spark:
        configure(spark)
        with timings.phase("ship"):
            ship(spark)
        return _Spark(
            spark=spark,
            storage=storage or {},
            inputs=inputs or {},
            parallelism=plan.parallelism or default_parallelism(spark),
            plan=plan,
            progress=Progress(f"{plan.operation} {plan.table}"),
        )

    return run_job(plan, io, start, engine=f"spark {spark.version}", as_error=as_error, secret=secret)


@dataclass(kw_only=True, slots=True)
class _Spark:
    """Runs tasks on a session; see `jobs.phase.Engine`."""

    spark: Any
    storage: Mapping[str, str] = field(repr=False)
    inputs: Mapping[str, Mapping[str, str]] = field(repr=False)
    parallelism: int
    plan: JobPlan
    progress: Progress
    source_schema: Any = None
    counters: Counters = ()

    def run(self, plan: JobPlan, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        if not specs:
            return []
        frame = self.spark.range(0, len(specs), 1, len(specs))
        return self.collect(frame, self.worker(plan).with_specs(specs), tasks=len(specs))

    def collect(self, frame: Any, function: MapFunction, *, tasks: int | None = None) -> list[TaskReport]:
        """Let Spark's tasks run a function over the rows of a frame, and return their reports."""
        self.progress.begin(tasks)
        frame = frame.mapInArrow(encrypted(self.spark, function), REPORT_DDL)
        return reports_of(frame, self.spark, self.progress, self.counters)

    def query(self, task: AppendTask | MergeTask) -> _Query:
        assert task.source is not None
        name = source_name(task.source)
        with query_errors():
            frame = open_query(task.source, self.spark, self._open_inputs(task))
            schema = frame.schema  # a wrong query fails here on Spark Connect
        if not schema.fields:
            raise InvalidInputError(f"{name} gives no columns; expected a query that returns rows")
        check_apart(self.spark, name, [pa.field(column.name, pa.null()) for column in schema.fields])
        self.source_schema = schema
        return _Query(engine=self, frame=frame, name=name, schema=arrow_schema(schema.jsonValue()))

    def match(self, task: MergeTask, matching: Matching, query: str) -> _Query:
        frame = self._matches(task, matching, query)
        with match_errors():
            schema = frame.schema
        return _Query(engine=self, frame=frame, name="the merge", schema=arrow_schema(schema.jsonValue()))

    def first(self, task: MergeTask, matching: Matching, query: str) -> Sequence[Any] | None:
        row = self._matches(task, matching, query).first()
        return None if row is None else tuple(row)

    def _matches(self, task: MergeTask, matching: Matching, query: str) -> Any:
        # A name in backticks is one name here, and no pattern that columns of ours match, too.
        self.spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "false")
        create_views(self.spark, self.plan, matching, self.source_schema, self.storage)
        if task.source is None or task.source.kind != "sql":
            for name, frame in self._open_inputs(task).items():
                frame.createOrReplaceTempView(name)
        with match_errors():
            return run_sql(query, task.sql_args, self.spark)

    def _open_inputs(self, task: AppendTask | MergeTask) -> dict[str, Any]:
        return open_inputs(task.inputs, self.spark, self.storage, self.inputs)

    def worker(self, plan: JobPlan, staging: Staging | None = None) -> Worker:
        failures, self.counters = _max_failures(self.spark), new_counters(self.spark)
        return Worker(
            plan=plan.to_json(),
            storage=self.storage,
            max_failures=failures,
            staging=staging,
            counters=self.counters,
        )


@dataclass(kw_only=True, slots=True)
class _Query:
    """The rows of a DataFrame; see `jobs.phase.Query`."""

    engine: _Spark
    frame: Any
    name: str
    schema: pa.Schema

    def stage(self, plan: JobPlan, staging: Staging) -> list[TaskReport]:
        return self.engine.collect(self.frame, self.engine.worker(plan, staging).run_rows)


def configure(spark: Any) -> None:
    """Set the session's time zone to UTC, and the size of batches where the user has not set it."""
    spark.conf.set(TIME_ZONE, "UTC")
    for name, value in SESSION_DEFAULTS.items():
        if spark.conf.get(name, None) is None:
            spark.conf.set(name, value)


def default_parallelism(spark: Any) -> int:
    """Return the number of tasks that the cluster runs at a time, as Spark reports it."""
    if not is_connect(spark):
        return max(int(spark.sparkContext.defaultParallelism), 1)
    (count,) = spark.range(1 << 16).selectExpr("spark_partition_id() as part").selectExpr("max(part) + 1").first()
    return max(int(count or 1), 1)


def _max_failures(spark: Any) -> int:
    """Return the number of attempts of a task; the last attempt reports its error instead of raising."""
    master = str(spark.conf.get("spark.master", "") or "")
    if master.startswith("local") and "," not in master:
        return 1
    return int(spark.conf.get("spark.task.maxFailures", "4") or 4)
