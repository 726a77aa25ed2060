"""Append: the rows of a source become data files.

Not here: a sort over all tasks (`jobs.append_sorted`), source files (`jobs.sources`), the exchange of rows between
tasks (`jobs.exchange`), queries (`jobs.spark.query`), the commit (`operations.append`, `operations.overwrite`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_iceberg.data.cast.row_check import RowCheck
from airflow_iceberg.data.cast.rows import conform
from airflow_iceberg.data.write.ordering import SortedRows
from airflow_iceberg.data.write.sorted import SortedRuns, unsortable, write_order
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format.properties.known import property_warnings
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.context import RowsContext, RowSink, coalesced, fill
from airflow_iceberg.jobs.phase import Job, Query, check_rows, checked, clean_exchange
from airflow_iceberg.jobs.protocol.plan import AppendTask
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, JobResult
from airflow_iceberg.jobs.sources.files import read_unit, task_count
from airflow_iceberg.jobs.sources.unit import Unit
from airflow_iceberg.jobs.task import GatherBuckets, Spill, StageUnits, Staging, TaskReport, Write

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.format.manifests.entries import DataFile

log = logging.getLogger(__name__)


# -- the tasks ---------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class AppendContext(RowsContext[AppendTask]):
    """What the tasks of an append share."""

    row_check: RowCheck | None = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.row_check = _row_check(self.task)

    def row_order(self) -> SortedRows:
        return write_order(self.task.write.sort_order, self.task.write.schema, self.task.spec)

    def sink(self, number: int) -> RowSink:
        """Return the writer of one task's rows: in the table's order, if the plan requires it."""
        if not self.task.sorts_rows:
            return self.writer(number)
        return SortedRuns(lambda: self.writer(number), self.row_order())

    def rows(self, spec: StageUnits) -> Iterator[pa.Table]:
        """Yield the rows of source files, cast to the table's columns."""
        for unit in spec.units:
            options = self.task.source.format_options
            tables = read_unit(unit, self.io, schema=self.task.rows_schema, options=options)
            yield from self.cast(tables, unit.location, first_row=unit.first_row)

    def cast(self, tables: Iterable[pa.Table], source: str, *, first_row: int = 1) -> Iterator[pa.Table]:
        """Yield rows cast to the table's columns, and checked; `source` and `first_row` are for messages."""
        schema = self.task.rows_schema
        for table in coalesced(tables):
            rows = conform(table, schema, source=source, first_row=first_row)
            if self.row_check is not None:
                self.row_check.check(rows, source=source, first_row=first_row)
            yield rows
            first_row += table.num_rows


def _row_check(task: AppendTask) -> RowCheck | None:
    if task.row_check is None:
        return None
    # Bound here: new columns and wider types of the source may have changed the schema since the plan was made.
    schema = task.write.schema
    return RowCheck(row_filter=parse_filter(task.row_check.predicate, schema), text=task.row_check.text, schema=schema)


def write(context: AppendContext, number: int, tables: Iterable[pa.Table]) -> TaskReport:
    """Write rows into data files."""
    return context.write(number, context.sink(number), tables)


def spill(context: AppendContext, number: int, tables: Iterable[pa.Table], *, buckets: int) -> TaskReport:
    """Cut rows into buckets of whole partitions, and spill them."""
    cut = exchange.cut_by_partition(context.task.spec, context.task.write.schema, buckets)
    return TaskReport.of_slices(number, fill(context.spill(number, cut), tables))


def gather_buckets(context: AppendContext, spec: GatherBuckets) -> TaskReport:
    """Write spilled rows into data files."""
    files: list[DataFile] = []
    for group in spec.groups:
        # One writer for each group: after its buckets no rows of their partitions follow, and memory is free.
        files.extend(fill(context.sink(spec.number), coalesced(exchange.read_slices(context.io, group))))
    return context.report(spec.number, files)


# -- the job -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRows:
    """The rows of a source before they are staged.

    Attributes:
        run: the first phase of the job, which stages the rows.
        tasks: the number of the tasks of that phase; None leaves it to Spark.
        source_files: the number of source files; None for a query or a callable.
    """

    run: Callable[[Staging], list[TaskReport]]
    tasks: int | None = None
    source_files: int | None = None


def rows_of_files(job: Job[AppendTask], units: Sequence[tuple[Unit, ...]]) -> SourceRows:
    """Return the rows of source files; `units` has the units of each task."""

    def run(staging: Staging) -> list[TaskReport]:
        return job.run(staging.phase, [StageUnits(number=i, units=u, staging=staging) for i, u in enumerate(units)])

    return SourceRows(run=run, tasks=len(units), source_files=len({unit.location for task in units for unit in task}))


def rows_of_query(job: Job[AppendTask], query: Query) -> SourceRows:
    """Return the rows of a query or a callable."""

    def run(staging: Staging) -> list[TaskReport]:
        with job.timings.phase(staging.phase):
            return checked(query.stage(job.plan, staging), job.io)

    return SourceRows(run=run)


def stage(job: Job[AppendTask], rows: SourceRows) -> list[TaskReport]:
    """Write rows into data files; distribution mode "hash" brings the rows of a partition to one task."""
    needs_exchange = not job.task.spec.is_unpartitioned and job.task.distribution_mode != "none"
    if not needs_exchange or rows.tasks in (0, 1):
        return rows.run(Write())
    spilled = rows.run(Spill(exchange.bucket_count(rows.tasks or 0)))
    slices = [piece for report in spilled for piece in report.slices]
    target = job.task.write.target_file_size_bytes
    size = sum(piece.size_bytes for piece in slices) // exchange.MEMORY_TO_PARQUET
    count = task_count(size, parallelism=job.engine.parallelism, target_file_size_bytes=target) if slices else 0
    dealt = exchange.deal(slices, count, target_file_size_bytes=target) if slices else []
    reports = job.run("gather", [GatherBuckets(number=number, groups=groups) for number, groups in enumerate(dealt)])
    check_rows("exchange", spilled, reports)
    clean_exchange(job.plan, job.io)
    return reports


def result(job: Job[AppendTask], rows: SourceRows, reports: Sequence[TaskReport]) -> JobResult:
    """Return the result of a job that succeeded."""
    return JobResult(
        status=SUCCEEDED,
        data_files=tuple(file for report in reports for file in report.data_files),
        schema=None if job.task.last_column_id is None else job.task.write.schema,
        record_count=sum(report.record_count for report in reports),
        source_files=rows.source_files,
        warnings=_warnings(job.plan.table, job.task),
        timings=job.timings.total(),
    )


def _warnings(table: str, task: AppendTask) -> tuple[str, ...]:
    """Return the settings of the table that this version does not follow."""
    found, order = property_warnings(task.write.properties), task.write.sort_order
    if order.fields and not task.sorts_rows:
        reason = unsortable(order, task.write.schema, task.spec) or "the plan does not require it"
        text = f"rows of table {table} are not sorted by its sort order {order.order_id}: {reason}"
        log.warning(text)
        found = (*found, text)
    return found
