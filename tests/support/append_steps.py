"""The steps of an append one by one, for tests that look or fail between them."""

from typing import Any

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OnRerun, OperationKey
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.append import AppendRequest, commit_rows
from airflow_iceberg.operations.new_rows import check_options, find_earlier, plan_rows, rows_of
from airflow_iceberg.operations.work import Work

NO_ROWS = Source.from_files("file:///never-read.parquet")


def find_append(table: OpenTable, operation_key: OperationKey, on_rerun: OnRerun = "replace") -> WriteResult | None:
    request = AppendRequest(rows=NO_ROWS, on_rerun=on_rerun)
    return find_earlier(Work(table, operation_key=operation_key), request)


def plan_append(
    table: OpenTable,
    source: Source,
    *,
    branch: str = "main",
    schema_evolution: str | None = None,
    **work: Any,
) -> JobPlan:
    """Plan; `work` are the options of `Work`."""
    check_options(table)
    request = AppendRequest(rows=source, branch=branch, schema_evolution=schema_evolution)
    return plan_rows(Work(table, **work), request)


def read_result(table: OpenTable, plan: JobPlan) -> JobResult:
    result = staging.read_result(table.io, plan)
    result.raise_for_error()
    return result


def commit_append(
    table: OpenTable,
    plan: JobPlan,
    result: JobResult,
    *,
    operation_key: OperationKey | None = None,
    try_number: int = 1,
    **request: Any,
) -> WriteResult:
    """Commit; `request` are options of the request."""
    assert plan.source is not None
    work = Work(table, operation_key=operation_key, try_number=try_number)
    written = commit_rows(work, AppendRequest(rows=plan.source, **request), rows_of(plan, result))
    staging.clear(table.io, plan.staging_location)
    return written


def discard(table: OpenTable, plan: JobPlan) -> None:
    staging.clear(table.io, plan.staging_location)
