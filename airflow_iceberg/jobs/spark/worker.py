"""The work of Spark's Python workers: tasks by their numbers, or the rows of a query.

Not here: what a task does (`jobs.run_task`), the driver (`jobs.spark.run`).
"""

from __future__ import annotations

import gc
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zipimport import zipimporter

import pyarrow as pa

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.arrow.buffers import text_array
from airflow_iceberg.jobs.progress import counts_of
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobError
from airflow_iceberg.jobs.run_task import open_context, run_task, stage_rows
from airflow_iceberg.jobs.spark.encrypted import MapFunction
from airflow_iceberg.jobs.spark.query import source_name
from airflow_iceberg.jobs.task import Change, Staging, TaskReport, TaskSpec
from airflow_iceberg.storage.stores.fsspec_io import load_file_io


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A value that is sent to the Python workers, encrypted (`jobs.spark.encrypted`).

    Attributes:
        plan: the JobPlan document.
        storage: properties of the FileIO.
        max_failures: the number of attempts of a task.
        specs: the tasks of `spark.range`, each packed separately: every worker gets all and unpacks its own; to unpack
            those of a table of 100,000 files would take a second and 100 MB.
        staging: the way in which the rows of a query are staged.
        counters: what the files, rows and bytes of a task are added to, for the driver's log; none on Spark Connect.
    """

    plan: bytes
    storage: Mapping[str, str] = field(repr=False)
    max_failures: int
    specs: tuple[bytes, ...] | None = None
    staging: Staging | None = None
    counters: tuple[Any, ...] = ()

    def with_specs(self, specs: Sequence[TaskSpec]) -> MapFunction:
        """Return the function for `spark.range`."""
        packed = tuple(zlib.compress(pickle.dumps(spec), 1) for spec in specs)
        return replace(self, specs=packed).run_numbers

    def run_numbers(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the tasks of these numbers."""
        assert self.specs is not None
        context = self._context()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                # Our own bytes, which were sent with this function.
                spec: TaskSpec = pickle.loads(zlib.decompress(self.specs[number]))  # noqa: S301
                yield self._report(number, lambda spec=spec: run_task(context, spec))  # type: ignore[misc]
        spare_next_task()

    def run_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the rows of one partition of a query."""
        assert self.staging is not None
        context, staging, number = self._context(), self.staging, _partition_id()
        of = "the merge" if isinstance(staging, Change) else source_name(context.task.source)
        source = f"partition {number} of {of}"
        yield self._report(number, lambda: stage_rows(context, number, _tables(batches), staging, source=source))

    def _context(self) -> Any:
        return open_context(JobPlan.from_json(self.plan), load_file_io(self.storage))

    def _report(self, number: int, work: Callable[[], TaskReport]) -> pa.RecordBatch:
        """Return the report of a task as a row; raise only errors that another attempt may not meet."""
        try:
            report = work()
        except Exception as error:
            if _attempt() + 1 < self.max_failures:
                raise
            report = TaskReport(number=number, error=JobError.from_exception(error))
        if report.error is not None:
            self._stop_others()
        for counter, count in zip(self.counters, counts_of(report), strict=False):
            counter.add(count)
        return pa.RecordBatch.from_arrays([text_array([report.to_json()])], ["report"])

    def _stop_others(self) -> None:
        context = self._context()
        try:
            context.io.create(context.stop_location, b"a task failed; its report says why\n")
        except IcebergError:
            # It exists already, or the storage fails: the job then ends a little later.
            return


def spare_next_task() -> None:
    """Avoid most of PySpark's work between two tasks of a worker, 0.15 s of a processor.

    It collects garbage, which looks at every object of every module, and reads every imported zip again. Frozen objects
    are not looked at; a zip whose importer is forgotten is read again only for the next import.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        yield pa.Table.from_arrays([_sound(one) for one in batch.columns], schema=batch.schema)


def _sound(column: pa.Array) -> pa.Array:
    """Return a column with offsets in each of its lists and maps.

    Spark 3.5 sends an inner list without entries without any, which Arrow's format allows no more: `nbytes` of pyarrow,
    and what relies on it, reads them all the same and ends the process.
    """
    return column.take(pa.array(range(len(column)), pa.int64())) if _lacks_offsets(column) else column


def _lacks_offsets(array: pa.Array) -> bool:
    if pa.types.is_struct(array.type):
        return any(_lacks_offsets(array.field(number)) for number in range(array.type.num_fields))
    if not pa.types.is_nested(array.type):
        return False
    if not pa.types.is_fixed_size_list(array.type):
        offsets = array.buffers()[1]
        if offsets is None or not offsets.size:
            return True
    return _lacks_offsets(array.values)


def _spark_context() -> Any:
    from pyspark import TaskContext

    return TaskContext.get()


def _partition_id() -> int:
    context = _spark_context()
    return context.partitionId() if context else 0


def _attempt() -> int:
    context = _spark_context()
    return context.attemptNumber() if context else 0
