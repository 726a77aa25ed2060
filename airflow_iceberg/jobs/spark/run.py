"""Runs a job on Spark: Spark schedules, Arrow moves the bytes.

Only the DataFrame API, so that classic Spark and Spark Connect both run it. For files, Spark sees nothing but
numbers: `spark.range(0, n, 1, n)` has one task a partition, and each reads and writes with pyarrow. The rows of a
query or of a callable come through `mapInArrow`. What tasks did comes back as rows of text, one a task; a speculative
or repeated attempt may write files, and only those that a row names count.

The workers need pyarrow and fsspec (fastavro for Avro sources) and the same Python
as the driver; this package comes to them as a zip.
"""

import gc
import importlib
import logging
import os
import pickle
import re
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.jobs import exchange, phase
from airflow_iceberg.jobs.append import gather, needs_exchange, sorts_over_tasks
from airflow_iceberg.jobs.append_sorted import merge_collected
from airflow_iceberg.jobs.context import TaskContext
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobError, JobResult
from airflow_iceberg.jobs.run_plan import rewrite_table, stage_files
from airflow_iceberg.jobs.run_task import collect_rows, run_task, spill_rows, write_rows
from airflow_iceberg.jobs.sources.new_columns import evolved_by, evolved_by_files
from airflow_iceberg.jobs.spark import package
from airflow_iceberg.jobs.task import TaskReport, TaskSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.storage.base import FileIO

    MapFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

log = logging.getLogger(__name__)

REPORT_DDL = "report string"
MAX_MESSAGE = 2000
TIME_ZONE = "spark.sql.session.timeZone"
# Unless the session says otherwise. Spark 4 bounds a batch by its bytes too, and to know them it adds up the buffers of
# all columns at every row, a third of the time that rows take on their way out of the JVM. The number of rows bounds a
# batch as well, and small batches cost nothing: they are joined again here.
SESSION_DEFAULTS: Mapping[str, str] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
}


def run_spark(plan: JobPlan, io: "FileIO", spark: Any, *, storage: Mapping[str, str] | None = None) -> JobResult:
    """Run a job on a Spark session and write its result document, also when it fails.

    The session's time zone becomes UTC: what the dates of a query mean must not depend on the cluster.

    Args:
        plan: what to do.
        io: of the table, for the driver.
        spark: a SparkSession, classic or Connect.
        storage: the properties that `io` was made from, for the workers; may hold secrets.
    Returns:
        the result; a job that failed says so in it and does not raise.
    Raises:
        StorageError: the result document cannot be written.
    """
    timings = phase.Timings()
    try:
        result = _run(plan, io, spark, dict(storage or {}), timings)
    except Exception as error:  # noqa: BLE001 - every failure becomes a result document
        phase.clean_exchange(plan, io)
        result = JobResult.failed(as_iceberg_error(error), timings=timings.total())
    return phase.write_result(plan, io, phase.with_engine(result, f"spark {spark.version}"))


def _run(plan: JobPlan, io: "FileIO", spark: Any, storage: Mapping[str, str], timings: phase.Timings) -> JobResult:
    configure(spark)
    with timings.phase("ship"):
        ship(spark)
    plan = evolved_by_files(plan, io)
    parallelism = plan.parallelism or default_parallelism(spark)
    worker = Worker(plan=plan.to_json(), storage=storage, max_failures=_max_failures(spark))

    def run(specs: Sequence[TaskSpec]) -> list[TaskReport]:
        return _run_tasks(spark, worker, specs)

    if plan.source.kind == "units":
        from airflow_iceberg.jobs.inventory import walk_units

        return walk_units(plan, io, run, timings=timings)
    if plan.source.kind == "table":
        return rewrite_table(plan, io, run, timings=timings)
    if plan.source.kind == "files":
        return stage_files(plan, io, run, parallelism=parallelism, timings=timings)
    with timings.phase("query"), query_errors():
        frame = open_query(plan, spark)
        if plan.last_column_id is not None:
            from airflow_iceberg.jobs.spark.types import arrow_schema

            plan = evolved_by(plan, [arrow_schema(frame.schema.jsonValue())])
            worker = replace(worker, plan=plan.to_json())
        check_frame(plan, frame)
    if sorts_over_tasks(plan):
        with timings.phase("collect"):
            collected = phase.checked(_collect(frame.mapInArrow(worker.collect_query, REPORT_DDL)), io)
        reports = merge_collected(plan, io, collected, run, parallelism=parallelism, timings=timings)
    elif not needs_exchange(plan):
        with timings.phase("write"):
            reports = phase.checked(_collect(frame.mapInArrow(worker.write_query, REPORT_DDL)), io)
    else:
        with timings.phase("spill"):
            spilled = phase.checked(_collect(frame.mapInArrow(worker.spill_query, REPORT_DDL)), io)
        reports = gather(plan, io, spilled, run, parallelism=parallelism, timings=timings)
    return phase.result(plan, reports, source_files=None, timings=timings)


# ---- the driver's side


def configure(spark: Any) -> None:
    """Set what the session needs for our jobs: UTC in any case, the size of batches where nobody has chosen it."""
    spark.conf.set(TIME_ZONE, "UTC")
    for name, value in SESSION_DEFAULTS.items():
        if spark.conf.get(name, None) is None:
            spark.conf.set(name, value)


@contextmanager
def query_errors() -> Iterator[None]:
    """Tell what is wrong with a query from what is wrong with a job."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (ParseException, AnalysisException) as error:
        raise InvalidInputError(f"Spark does not accept the query: {_text(error)}") from error


def open_query(plan: JobPlan, spark: Any) -> Any:
    """Return the DataFrame of a query or a callable.

    Raises:
        InvalidInputError: the query is wrong, the callable is not there or gives no DataFrame.
        IcebergError: the callable raised.
    """
    if plan.source.kind == "sql":
        return spark.sql(plan.source.sql)
    return call(plan.source.callable or "", spark, plan.source.kwargs)


def call(path: str, spark: Any, kwargs: Mapping[str, Any]) -> Any:
    """Call "package.module:function" with the session and return its DataFrame."""
    function = _load(path)
    try:
        frame = function(spark, **kwargs)
    except IcebergError:
        raise
    except Exception as error:
        frame_summary = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(frame_summary.filename)}:{frame_summary.lineno}"
        raise IcebergError(f"python callable {path} raised {_text(error)} ({where})") from error
    if not hasattr(frame, "mapInArrow"):
        raise InvalidInputError(f"python callable {path} returned {type(frame).__name__}, expected a Spark DataFrame")
    return frame


def _load(path: str) -> Callable[..., Any]:
    module_name, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidInputError(
            f"cannot import {module_name} of python callable {path} on the Spark driver: {error}; ship it with py_files"
        ) from error
    for name in names.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise InvalidInputError(f"module {module_name} has no function {names}; python callable {path}")
    return found  # type: ignore[no-any-return]


def check_frame(plan: JobPlan, frame: Any) -> None:
    """Check the columns of a DataFrame before anything runs."""
    from airflow_iceberg.data.cast.rows import check_columns
    from airflow_iceberg.jobs.spark.types import arrow_schema

    schema = frame.schema  # a wrong query fails here on Spark Connect
    if not schema.fields:
        raise InvalidInputError(f"{source_name(plan)} gives no columns; expected a query that returns rows")
    check_columns(arrow_schema(schema.jsonValue()), plan.rows_schema, source=source_name(plan))


def source_name(plan: JobPlan) -> str:
    """Return what messages call the source of a query."""
    return "the query" if plan.source.kind == "sql" else f"python callable {plan.source.callable}"


def _run_tasks(spark: Any, worker: "Worker", specs: Sequence[TaskSpec]) -> list[TaskReport]:
    if not specs:
        return []
    frame = spark.range(0, len(specs), 1, len(specs))
    return _collect(frame.mapInArrow(worker.with_specs(specs), REPORT_DDL))


def _collect(frame: Any) -> list[TaskReport]:
    return [TaskReport.from_json(row[0]) for row in frame.collect()]


def ship(spark: Any) -> None:
    """Bring this package to the workers, unless spark-submit has done so.

    On classic Spark a package that was itself imported from a zip came by `--py-files`, which the workers have too.
    """
    archive = package.archive()
    if archive is not None and not is_connect(spark):
        return
    folder = os.path.join(tempfile.gettempdir(), f"airflow-iceberg-{os.getuid()}")
    path = str(archive or package.build_zip(folder))
    if is_connect(spark):
        _ship_by_connect(spark, path)
    else:
        spark.sparkContext.addPyFile(path)


def _ship_by_connect(spark: Any, path: str) -> None:
    add = getattr(spark, "addArtifacts", None) or spark.addArtifact
    try:
        add(path, pyfile=True)
    except Exception as error:  # noqa: BLE001 - what Connect raises here depends on its version
        # The session has it already: the name holds a hash of the contents, so it is the same.
        log.info("not shipped again: %s", error)


def is_connect(spark: Any) -> bool:
    """Return whether a session is a Spark Connect client, which has no SparkContext."""
    return ".connect." in type(spark).__module__


def default_parallelism(spark: Any) -> int:
    """Return how many tasks the cluster runs at a time, as far as it says."""
    if not is_connect(spark):
        return max(int(spark.sparkContext.defaultParallelism), 1)
    from pyspark.sql import functions

    return max(int(spark.range(1 << 16).select(functions.spark_partition_id()).distinct().count()), 1)


def _max_failures(spark: Any) -> int:
    """Return how often Spark runs a task before it gives up; the last attempt reports its error instead of raising."""
    master = str(spark.conf.get("spark.master", "") or "")
    if master.startswith("local") and "," not in master:
        return 1
    return int(spark.conf.get("spark.task.maxFailures", "4") or 4)


def as_iceberg_error(error: Exception) -> IcebergError:
    """Return an error of Spark as one of ours, in one readable text without stack traces."""
    if isinstance(error, IcebergError):
        return error
    if isinstance(error, ImportError):
        # Of our own modules or Spark's: what a user's function cannot import is told apart where it is called.
        return IcebergError(
            f"the Python of the driver, {sys.executable}, cannot run the job: {error}; install the package there, or "
            f"set spark.pyspark.driver.python (PYSPARK_DRIVER_PYTHON) to a Python that has it"
        )
    return IcebergError(f"the Spark job failed: {_text(error)}")


def _text(error: Exception) -> str:
    """Return class and message of an error, without the stack traces and plans that Spark puts into messages."""
    cause = _java_cause(error)
    text = str(cause.getMessage()) if cause is not None else str(error)
    name = cause.getClass().getSimpleName() if cause is not None else type(error).__name__
    if "Traceback (most recent call last)" in text:
        return _python_error(text)
    for end in ("\nJVM stacktrace", "\n\tat ", "\nDriver stacktrace", "\nThis stopped SparkContext", ";\n", "; line "):
        text = text.split(end, 1)[0]
    return f"{name}: {text.strip()[:MAX_MESSAGE]}"


def _java_cause(error: Exception) -> Any:
    """Return the first cause of an error that came through py4j, None for others.

    "Job aborted due to stage failure" carries its cause as text only in Spark 3.5: then that text it is.
    """
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None and not _repeats(cause, cause.getCause()):
        cause = cause.getCause()
    return cause


def _repeats(error: Any, cause: Any) -> bool:
    """Return whether an error says all that its cause says and more, as a program's name that cannot be started."""
    is_same = error.getClass().getName() == cause.getClass().getName()
    return is_same and str(cause.getMessage()) in str(error.getMessage())


def _python_error(text: str) -> str:
    """Return the last line of a worker's traceback that starts at the left margin: class and message."""
    after = text.rsplit("Traceback (most recent call last)", 1)[1].splitlines()[1:]
    lines = [line.strip() for line in after if line.strip() and not line[0].isspace()]
    found = lines[0] if lines else text.strip()
    missing = re.match(r"ModuleNotFoundError: No module named '([^']+)'", found)
    if missing:
        return (
            f"the Python of the executors has no package {missing[1]!r}; install it there, or set spark.pyspark.python "
            f"(PYSPARK_PYTHON) to a Python that has it; code of your own comes with py_files"
        )
    return found[:MAX_MESSAGE]


# ---- the workers' side


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What is sent to the Python workers: the plan as text, and how to reach the storage.

    Attributes:
        plan: the JobPlan document.
        storage: properties for the FileIO; travel inside Spark's own task messages only.
        max_failures: attempts of a task before Spark gives up.
        specs: what the tasks of `spark.range` have to do, by number, each packed by itself: every task gets them all
            and opens its own, or a table of 100,000 files would take a second and 100 MB of each.
    """

    plan: bytes
    storage: Mapping[str, str]
    max_failures: int
    specs: tuple[bytes, ...] | None = None

    def with_specs(self, specs: Sequence[TaskSpec]) -> "MapFunction":
        """Return the function for `spark.range`."""
        packed = tuple(zlib.compress(pickle.dumps(spec), 1) for spec in specs)
        return replace(self, specs=packed).run_numbers

    def run_numbers(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Run the tasks whose numbers come in."""
        assert self.specs is not None
        context = self._context()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                # Our own bytes, which came with this very function.
                spec: TaskSpec = pickle.loads(zlib.decompress(self.specs[number]))  # noqa: S301
                yield self._report(number, lambda spec=spec: run_task(context, spec))  # type: ignore[misc]
        spare_next_task()

    def write_query(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Write the rows of one partition of a query."""
        context, number = self._context(), _partition_id()
        source = f"partition {number} of {source_name(context.plan)}"
        yield self._report(number, lambda: write_rows(context, number, _tables(batches), source=source))

    def spill_query(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Spill the rows of one partition of a query."""
        context, number = self._context(), _partition_id()
        source, buckets = f"partition {number} of {source_name(context.plan)}", exchange.MIN_BUCKETS
        yield self._report(number, lambda: spill_rows(context, number, buckets, _tables(batches), source=source))

    def collect_query(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Collect the rows of one partition of a query to be sorted."""
        context, number = self._context(), _partition_id()
        source = f"partition {number} of {source_name(context.plan)}"
        yield self._report(number, lambda: collect_rows(context, number, _tables(batches), source=source))

    def _context(self) -> TaskContext:
        from airflow_iceberg.storage.stores.fsspec_io import load_file_io

        plan = JobPlan.from_json(self.plan)
        return TaskContext(plan=plan, io=load_file_io(self.storage))

    def _report(self, number: int, work: Callable[[], TaskReport]) -> "pa.RecordBatch":
        """Return the report of a task as a row; raise only what Spark may mend by trying again."""
        import pyarrow as pa

        from airflow_iceberg.format.arrow.buffers import text_array

        try:
            report = work()
        except Exception as error:
            if _attempt() + 1 < self.max_failures:
                raise
            report = TaskReport(number=number, error=JobError.from_exception(error))
        if report.error is not None:
            self._stop_others()
        return pa.RecordBatch.from_arrays([text_array([report.to_json()])], ["report"])

    def _stop_others(self) -> None:
        context = self._context()
        try:
            context.io.create(context.stop_location, b"a task failed; its report says why\n")
        except IcebergError:
            # It is there already, or the storage is what fails: the job ends a little later then.
            return


def spare_next_task() -> None:
    """Save the next task of this worker what PySpark does between two, 0.15 s of a processor.

    It collects garbage, looking at every object of every module, and has every zip that something was imported from
    read anew. Modules stay, so they need not be looked at; a zip whose importer is forgotten is asked again only when
    something is imported from it.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def _tables(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.Table]":
    import pyarrow as pa

    for batch in batches:
        yield pa.Table.from_batches([batch])


def _partition_id() -> int:
    from pyspark import TaskContext as SparkTaskContext

    context = SparkTaskContext.get()
    return context.partitionId() if context else 0


def _attempt() -> int:
    from pyspark import TaskContext as SparkTaskContext

    context = SparkTaskContext.get()
    return context.attemptNumber() if context else 0
