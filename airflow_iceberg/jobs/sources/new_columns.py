"""The schema of the files of an append, where new columns of the source (`data.cast.new_columns`) are added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.data.cast.new_columns import with_new_columns
from airflow_iceberg.jobs.protocol.plan import AppendTask
from airflow_iceberg.jobs.sources.files import SourceFile, expand, read_unit, whole_file
from airflow_iceberg.jobs.sources.unit import open_filesystem

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


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


def with_columns_of_files(task: AppendTask, io: FileIO) -> AppendTask:
    """Return the task with new columns of its source files in its schema, as `with_columns_of`."""
    return with_columns_of(task, (schema for file in expand(task.source, io) for schema in _schema(task, file, io)))


def _schema(task: AppendTask, file: SourceFile, io: FileIO) -> Iterator[pa.Schema]:
    unit = whole_file(file, task.source)
    if unit.file_format == "parquet":
        filesystem, path = open_filesystem(unit.location, io)
        with filesystem.open(path, "rb") as handle:
            yield pq.ParquetFile(handle).schema_arrow
        return
    # The columns of other formats are known from the first rows.
    for table in read_unit(unit, io, schema=task.write.schema, options=task.source.format_options):
        yield table.schema
        return
