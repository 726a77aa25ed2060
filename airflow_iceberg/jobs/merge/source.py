"""The source of a merge: its rows are read once, and kept in spill files, with their keys once more by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_iceberg.data.cast.rows import check_rows
from airflow_iceberg.format.arrow.paths import at_path
from airflow_iceberg.jobs.context import coalesced, fill
from airflow_iceberg.jobs.merge.source_columns import SourceColumns
from airflow_iceberg.jobs.phase import Job
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.sources.files import read_unit
from airflow_iceberg.jobs.sources.new_columns import Tasks, describe_source
from airflow_iceberg.jobs.task import Keep, StageUnits, TaskReport

if TYPE_CHECKING:
    from airflow_iceberg.jobs.merge.tasks import MergeContext

# Buckets of the rows of a source, and of their keys.
ROWS, KEYS = 0, 1


def source_columns(job: Job[MergeTask], tasks: Tasks) -> SourceColumns | None:
    """Return the columns of the source files, None without any.

    Raises:
        InvalidInputError: as `SourceColumns.of`.
    """
    return SourceColumns.of(describe_source(job, tasks), job.task.write.rows_schema, job.task.keys)


def read_source(context: MergeContext, spec: StageUnits) -> Iterator[pa.Table]:
    """Yield the rows of source files with all columns of the source: those of the table have its types."""
    columns, table = spec.columns, context.schema
    assert columns is not None, "a unit has columns"
    options = context.task.source.format_options if context.task.source else {}
    for unit in spec.units:
        first_row = unit.first_row
        schema = columns.json_schema() if unit.file_format == "jsonl" else table
        for rows in read_unit(unit, context.io, schema=schema, options=options):
            yield columns.united(rows, unit.name, first_row=first_row)
            first_row += rows.num_rows


def keep(context: MergeContext, number: int, tables: Iterable[pa.Table], staging: Keep, source: str) -> TaskReport:
    """Keep checked rows of the source, so that it is asked for them once; messages call it `source`."""

    def cut(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        yield ROWS, table
        if staging.keys:
            yield KEYS, pa.table({str(at): at_path(table, path) for at, path in enumerate(staging.keys)})

    return TaskReport.of_slices(number, fill(context.spill(number, cut), coalesced(tables)))


def valid(tables: Iterable[pa.Table], source: str) -> Iterator[pa.Table]:
    """Yield rows of a query, checked: the SQL of a merge also sees columns that the table does not have."""
    first_row = 1
    for table in tables:
        check_rows(table, source=source, first_row=first_row)
        first_row += table.num_rows
        yield table
