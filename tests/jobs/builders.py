"""A job's plan in one line, and what is needed to look at what the job left behind."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.protocol.plan import AppendTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.write_settings import WriteSettings
from airflow_iceberg.storage.stores.fsspec_io import load_file_io

COLUMNS = {"id": "long not null", "name": "string", "day": "date"}
IO = load_file_io()


def make_plan(
    root: Path,
    source: Source,
    *,
    columns: Mapping[str, Any] = COLUMNS,
    partition_by: Sequence[str] = (),
    **changes: Any,
) -> JobPlan:
    """Return the plan of an append to a table below a folder; a try of its own at each call.

    Args:
        changes: fields of the plan, of its task, and of the task's write settings.
    """
    schema = schema_from_shorthand(columns)
    location, attempt = f"file://{root}/table", uuid.uuid4().hex[:8]

    def given(kind: type) -> dict[str, Any]:
        return {name: changes.pop(name) for name in [field.name for field in fields(kind)] if name in changes}

    write = {
        "format_version": 2,
        "schema": schema,
        "data_location": f"{location}/data",
        "target_file_size_bytes": 512 << 20,
        **given(WriteSettings),
    }
    task = {"spec": spec_from_shorthand(list(partition_by), schema), "source": source, **given(AppendTask)}
    plan = {
        "table": "sales.orders",
        "table_uuid": "11111111-2222-3333-4444-555555555555",
        "staging_location": f"{location}/.staging/{attempt}-1",
        **changes,
    }
    return JobPlan(task=AppendTask(write=WriteSettings(**write), **task), **plan)


def append_task(plan: JobPlan) -> AppendTask:
    assert isinstance(plan.task, AppendTask)
    return plan.task


def data_files(plan: JobPlan, result: JobResult) -> list[DataFile]:
    task = append_task(plan)
    kind = task.spec.partition_type(task.write.schema)
    return [DataFile.from_dict(document, kind) for document in result.data_files]


def rows_of(plan: JobPlan, result: JobResult) -> list[dict[str, Any]]:
    """Return the rows in the files that a result names."""
    result.raise_for_error()
    tables = [pq.ParquetFile(_path(file.file_path)).read() for file in data_files(plan, result)]
    return pa.concat_tables(tables).to_pylist() if tables else []


def files_below(location: str) -> list[str]:
    return sorted(status.location for status in IO.list(location))


def _path(location: str) -> str:
    return IO.filesystem(location)[1]
