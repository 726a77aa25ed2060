"""Append: new rows become a snapshot of the table, once for each operation key.

    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.jobs.run_local import run_local
    from airflow_iceberg.operations.append import AppendRequest, append
    from airflow_iceberg.operations.work import Work

    work = Work(table, run=lambda plan: run_local(plan, table.io))
    append(work, AppendRequest(rows=Source.from_files(["s3://landing/*.parquet"])))

Here: the order of the steps. Not here: how the rows are written (`operations.new_rows`), the commit's rules
(`commit.actions.append`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.operation_key import OnRerun, check_properties
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.inputs.changes import Changes
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.new_rows import (
    NewRows,
    RowsFunction,
    check_rows_request,
    completed,
    earlier_epochs,
    find_earlier,
    new_rows,
)
from airflow_iceberg.operations.refs.creates_branch import creates_branch
from airflow_iceberg.operations.work import Work

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True, slots=True)
class AppendRequest:
    """What is appended.

    Attributes:
        rows: a source that a job reads, or Arrow rows of this process, or a function that returns some.
        on_rerun: what happens to the rows of an earlier run after the task was cleared: "replace" them in the same
            commit, "append" the new rows to them, or "skip" the work.
        schema_evolution: "add_columns" adds new columns of the rows, and wider types where that is legal, to the
            table's schema in the same commit.
        inputs: tables that a query or a callable reads, by the names that it has for them.
        write_format: the format of the data files, "parquet" or "avro"; None for that of the table.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
    """

    rows: Source | pa.Table | pa.RecordBatch | pa.RecordBatchReader | RowsFunction
    branch: str = MAIN_BRANCH
    create_branch: bool = False
    on_rerun: OnRerun = "replace"
    schema_evolution: str | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Input | Changes] = field(default_factory=dict)
    write_format: str | None = None

    def __post_init__(self) -> None:
        check_rows_request(self)
        check_properties(self.snapshot_properties)


@creates_branch
def append(work: Work, request: AppendRequest) -> WriteResult:
    """Append rows; a try that finds the commit of an earlier try reports it.

    Raises:
        InvalidInputError: a column is missing, unknown, or holds a value that does not fit.
        StalePlanError: another writer changed the schema meanwhile; nothing was committed.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was deleted.
    """
    found = find_earlier(work, request)
    if found is not None:
        return found
    with new_rows(work, request) as staged, work.new_files(written := staged.paths):
        return commit_rows(work, request, staged, written)


def commit_rows(work: Work, request: AppendRequest, staged: NewRows, written: list[str] | None = None) -> WriteResult:
    """Commit files that hold new rows.

    Args:
        written: their locations; gets those of other files that are written for the commit.
    """
    written = staged.paths if written is None else written
    settings = work.settings(request, staged.summary, table_uuid=staged.table_uuid)
    action = AppendFiles(
        work.table.io,
        staged.files,
        settings,
        written_schema=staged.written_schema,
        earlier=earlier_epochs(work, request, settings, written),
    )
    return work.commit(completed(action, staged), written)
