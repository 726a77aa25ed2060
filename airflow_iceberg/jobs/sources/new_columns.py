"""The schema that a job writes by, where columns of the source may join the table's.

Here: looking at the source before its rows are read. Not here: which columns are new (`data.cast.new_columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.sources.files import SourceFile, expand, read_unit, whole_file
from airflow_iceberg.jobs.sources.unit import open_filesystem

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.storage.base import FileIO


def evolved_by(plan: JobPlan, sources: Iterable[pa.Schema]) -> JobPlan:
    """Return the plan with the schema that holds the columns of the sources, too.

    Raises:
        InvalidInputError: a column that the table cannot have.
    """
    from airflow_iceberg.data.cast.new_columns import with_new_columns

    assert plan.last_column_id is not None
    schema = with_new_columns(
        plan.schema,
        sources,
        last_column_id=plan.last_column_id,
        specs=(plan.spec,),
        format_version=plan.format_version,
    )
    return replace(plan, schema=schema)


def evolved_by_files(plan: JobPlan, io: FileIO) -> JobPlan:
    """Return the plan with the schema that holds the columns of the source files, too; the plan itself if unasked."""
    if plan.last_column_id is None or plan.source.kind != "files":
        return plan
    return evolved_by(plan, _schemas(plan, io))


def _schemas(plan: JobPlan, io: FileIO) -> Iterator[pa.Schema]:
    for file in expand(plan.source, io):
        yield from _schema(plan, file, io)


def _schema(plan: JobPlan, file: SourceFile, io: FileIO) -> Iterator[pa.Schema]:
    unit = whole_file(file, plan.source)
    if unit.file_format == "parquet":
        import pyarrow.parquet as pq

        filesystem, path = open_filesystem(unit.location, io)
        with filesystem.open(path, "rb") as handle:
            yield pq.ParquetFile(handle).schema_arrow
        return
    # Other formats say what they hold in their first rows.
    for table in read_unit(unit, io, schema=plan.schema, options=plan.source.format_options):
        yield table.schema
        return
