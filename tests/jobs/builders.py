"""A job's plan in one line, and what is needed to look at what the job left behind."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
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
    """Return a plan for a table below a folder; a try of its own at each call."""
    schema = schema_from_shorthand(columns)
    location, attempt = f"file://{root}/table", uuid.uuid4().hex[:8]
    staging = f"{location}/.staging/{attempt}"
    settings: dict[str, Any] = {
        "table": "sales.orders",
        "table_location": location,
        "table_uuid": "11111111-2222-3333-4444-555555555555",
        "format_version": 2,
        "schema": schema,
        "spec": spec_from_shorthand(list(partition_by), schema),
        "data_location": f"{location}/data",
        "staging_location": staging,
        "location": f"{staging}/plan.json",
        "result_location": f"{staging}/result.json",
        "file_prefix": f"{attempt}-1",
        "source": source,
    }
    return JobPlan(**{**settings, **changes})


def data_files(plan: JobPlan, result: JobResult) -> list[DataFile]:
    """Return the data files that a result names."""
    kind = plan.spec.partition_type(plan.schema)
    return [DataFile.from_dict(document, kind) for document in result.data_files]


def rows_of(plan: JobPlan, result: JobResult) -> list[dict[str, Any]]:
    """Return the rows in the files that a result names."""
    result.raise_for_error()
    tables = [pq.ParquetFile(_path(file.file_path)).read() for file in data_files(plan, result)]
    return pa.concat_tables(tables).to_pylist() if tables else []


def files_below(location: str) -> list[str]:
    """Return the files below a location, sorted."""
    return sorted(status.location for status in IO.list(location))


def _path(location: str) -> str:
    return IO.filesystem(location)[1]
