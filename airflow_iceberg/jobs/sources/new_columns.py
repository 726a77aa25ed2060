"""What the files of a source have, over all of them: new columns of an append, keys that no object of a file has.

Not here: what one file has (`sources.describe`), the schema with new columns (`data.cast.new_columns`), the columns of
a merge's source (`jobs.merge.source_columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from airflow_iceberg.data.cast.new_columns import with_new_columns
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.phase import Job
from airflow_iceberg.jobs.protocol.plan import AppendTask
from airflow_iceberg.jobs.sources.describe import FileColumns, describe_units, json_columns
from airflow_iceberg.jobs.sources.json.absent import Absent
from airflow_iceberg.jobs.sources.unit import Unit
from airflow_iceberg.jobs.task import DescribeUnits

Tasks = tuple[tuple[Unit, ...], ...]

# As many bytes of JSON and as many files are read by the driver: a phase on Spark takes longer.
_MOST_JSON_BYTES = 4 << 20
_MOST_FILES = 16


def describe_source(job: Job[Any], tasks: Tasks) -> tuple[FileColumns, ...]:
    """Return the columns of all files of a source, in their order."""
    units = [unit for task in tasks for unit in task]
    size = sum(unit.size_bytes for unit in units if unit.file_format == "jsonl")
    if size <= _MOST_JSON_BYTES and len(units) <= _MOST_FILES:
        with job.timings.phase(DescribeUnits.phase):
            return describe_units(job.task, units, job.io)
    reports = job.run(DescribeUnits.phase, [DescribeUnits(number=i, units=one) for i, one in enumerate(tasks)])
    # Of a file that was cut for several tasks, all have said the same.
    found = {one["location"]: one for report in reports for one in report.columns}
    return tuple(FileColumns.from_dict(one) for one in found.values())


def with_columns_of(task: AppendTask, sources: Iterable[pa.Schema]) -> AppendTask:
    """Return the task with new columns of the sources in its schema, or the task itself if it adds none.

    Raises:
        InvalidInputError: a column that the table cannot have.
    """
    if task.last_column_id is None:
        return task
    schema = with_new_columns(
        task.write.schema,
        sources,
        last_column_id=task.last_column_id,
        specs=(task.spec,),
        format_version=task.write.format_version,
    )
    return replace(task, write=replace(task.write, schema=schema))


def with_source(job: Job[AppendTask], tasks: Tasks) -> tuple[AppendTask, Tasks]:
    """Return the task with new columns of its source files in its schema, and what is to be read of each file.

    Raises:
        InvalidInputError: a column that the table cannot have.
    """
    defaults = Absent(job.task.rows_schema).paths
    has_json = any(unit.file_format == "jsonl" for task in tasks for unit in task)
    if job.task.last_column_id is None and not (defaults and has_json):
        return job.task, tasks
    files = describe_source(job, tasks)
    task = with_columns_of(job.task, _schemas(files, job.task.write.schema))
    absent = {file.location: file.absent for file in files}

    def read(unit: Unit) -> Unit:
        return replace(unit, absent=absent.get(unit.location, ()))

    return task, tuple(tuple(map(read, units)) for units in tasks)


def _schemas(files: Sequence[FileColumns], table: Schema) -> Iterator[pa.Schema]:
    """Yield the columns of files; those of text first, since a column that one file has as text is text."""
    yield from (file.schema for file in files if file.schema is not None and file.file_format == "csv")
    yield from (file.schema for file in files if file.schema is not None and file.file_format != "csv")
    yield json_columns(files, table)
