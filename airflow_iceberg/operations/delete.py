"""Delete: the rows that a predicate selects, from the choice of files to the commit.

    from airflow_iceberg.jobs.run_local import run_local
    from airflow_iceberg.operations.delete import DeleteRequest, delete
    from airflow_iceberg.operations.work import Work

    work = Work(table, run=lambda plan: run_local(plan, table.io))
    delete(work, DeleteRequest(predicate="customer = 17"))

Where rows are deleted, step by step: the order of the steps and the commit are here; `operations.row_changes` selects
the files that are deleted and those that are rewritten; `jobs.delete` and `data.row_changes` change one file;
`commit.actions.overwrite` and `commit.actions.row_delta` have the commit's rules. If another writer changes the same
files, the delete is re-planned on the latest snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.commit.actions.overwrite import OverwriteFiles
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.conflicts import Isolation
from airflow_iceberg.commit.operation_key import check_properties
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.commit.write_result import DELETED_BEFORE, DELETED_ROWS, Outcome, WriteResult
from airflow_iceberg.data.row_changes import RowChanges
from airflow_iceberg.data.write.options import checked_format
from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.expressions.binding import filter_text
from airflow_iceberg.expressions.merge_clauses import DELETE, MATCHED, MergeClause
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.inputs.tables import Input, check_names
from airflow_iceberg.operations.refs.creates_branch import creates_branch
from airflow_iceberg.operations.row_changes import (
    DELETE_ISOLATION,
    MERGE_ON_READ,
    Deletion,
    change_files,
    changed_tasks,
    delete_mode,
    isolation_level,
    live_rows,
    plan_deletion,
    replaced_deletes,
)
from airflow_iceberg.operations.row_level.changes import (
    OWN_NAMES,
    RowLevelChanges,
    change_rows,
    check_dialect,
    needs_engine,
)
from airflow_iceberg.operations.work import Work
from airflow_iceberg.scan.table_scan import TableScan


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteRequest:
    """Which rows are deleted, and how.

    Attributes:
        predicate: SQL or an expression; a row is deleted where the predicate is true, not where it is null.
        predicate_params: the values of the placeholders of the SQL, `:name`, by name.
        mode: "copy-on-write" or "merge-on-read"; None selects the table's `write.delete.mode`.
        isolation_level: "serializable" or "snapshot"; None selects the table's `write.delete.isolation-level`.
        max_rows: the largest number of rows that may be deleted; with more, nothing is committed. None for no limit.
        dialect: the SQL of the engine that runs the job, "spark": it evaluates a predicate that metadata and Arrow
            cannot, with functions or subqueries. None rejects such a predicate.
        inputs: tables that subqueries of the predicate read, by the names that it has for them.
        write_format: the format of the data files, "parquet" or "avro"; None for that of the table.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
    """

    predicate: str | Expression
    predicate_params: Mapping[str, Any] | None = None
    mode: str | None = None
    isolation_level: str | None = None
    max_rows: int | None = None
    branch: str = MAIN_BRANCH
    create_branch: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    dialect: str | None = None
    inputs: Mapping[str, Input] = field(default_factory=dict)
    write_format: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.predicate, str) and not self.predicate.strip():
            raise InvalidInputError("the predicate of a delete is empty; to delete every row write 'true'")
        if not isinstance(self.predicate, str | Expression):
            raise InvalidInputError(
                f"the predicate of a delete is {came(self.predicate)}, expected SQL such as 'id = 17'"
            )
        if self.max_rows is not None and (type(self.max_rows) is not int or self.max_rows < 0):
            raise InvalidInputError(f"max_rows is {self.max_rows!r}, expected a number of rows, 0 or more")
        checked_format(self.write_format)
        check_properties(self.snapshot_properties, own=(DELETED_ROWS, DELETED_BEFORE))
        if self.dialect is not None:
            check_dialect(self.dialect)
        check_names(self.inputs, taken=OWN_NAMES)
        if self.inputs and (self.dialect is None or not isinstance(self.predicate, str)):
            raise InvalidInputError("inputs are tables that subqueries of a predicate in SQL read, and need Spark")

    @property
    def needs_engine(self) -> bool:
        """Whether the predicate is SQL that only the engine of the job can evaluate.

        Raises:
            InvalidInputError: no predicate.
            UnsupportedError: no engine for it.
        """
        return needs_engine(self.predicate, self.predicate_params, self.dialect) or bool(self.inputs)


@creates_branch
def delete(work: Work, request: DeleteRequest) -> WriteResult:
    """Delete the rows that a predicate selects; a try that finds the commit of an earlier try reports it.

    Files that hold only selected rows are deleted by metadata alone: without other files no job is run.

    Raises:
        InvalidInputError, NotFoundError: the predicate does not fit the table; it selects more rows than `max_rows`.
        StalePlanError: other writers changed the same files, in each round; nothing was committed.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was deleted.
    """
    if request.needs_engine:
        return _delete_by_sql(work, request)
    return work.on_latest(lambda: _round(work, request), branch=request.branch)


def _delete_by_sql(work: Work, request: DeleteRequest) -> WriteResult:
    """Delete the rows that the engine of the job selects."""
    assert isinstance(request.predicate, str)
    assert request.dialect is not None
    changes = RowLevelChanges(
        clauses=(MergeClause(rows=MATCHED, action=DELETE, condition=request.predicate),),
        dialect=request.dialect,
        params=request.predicate_params,
        inputs=request.inputs,
        mode=request.mode,
        isolation_level=request.isolation_level,
        mode_property=TableProperties.delete_mode,
        write_format=request.write_format,
        isolation_property=TableProperties.delete_isolation_level,
        check=lambda rows: _check_rows(work, request, rows),
    )
    return change_rows(work, request, changes)


def _round(work: Work, request: DeleteRequest) -> WriteResult:
    """Plan on the table as it is, change its files and commit."""
    table, branch = work.table, request.branch
    work.settings(request)  # fails for a table that cannot be written
    found = work.find_landed(branch)
    if found is not None:
        return WriteResult.of([found], table=table.name, branch=branch, outcome=Outcome.FOUND)
    mode = delete_mode(table.metadata, request.mode)
    isolation = isolation_level(table.metadata, request.isolation_level, property_name=DELETE_ISOLATION)
    scan = TableScan.of(
        table.metadata,
        table.io,
        row_filter=request.predicate,
        predicate_params=request.predicate_params,
        ref=branch,
    )
    deletion = plan_deletion(scan)
    rows = live_rows(scan, deletion.whole)
    _check_rows(work, request, rows)
    changes, plan = change_files(work, deletion, mode=mode, write_format=request.write_format)
    written = [file.file_path for file in changes.written]
    with work.new_files(written, plan=plan):
        rows += sum(change.deleted_count for change in changes.changes)
        _check_rows(work, request, rows)
        if deletion.is_empty or not (deletion.whole or rows):
            return work.nothing(branch)
        return work.commit(_action(work, request, deletion, changes, mode, isolation, rows), written)


def _check_rows(work: Work, request: DeleteRequest, rows: int) -> None:
    if request.max_rows is not None and rows > request.max_rows:
        shown = filter_text(request.predicate, request.predicate_params)
        raise InvalidInputError(
            f"'{shown}' selects at least {rows} rows of table {work.table.name}, and max_rows is "
            f"{request.max_rows}; nothing was deleted; correct the predicate, or raise max_rows"
        )


def _action(
    work: Work,
    request: DeleteRequest,
    deletion: Deletion,
    changes: RowChanges,
    mode: str,
    isolation: Isolation,
    rows: int,
) -> SnapshotAction:
    if not deletion.partial and request.max_rows is None:
        return _delete_whole_files(work, request, deletion, rows)
    settings = work.settings(request, {DELETED_ROWS: str(rows)})
    changed = changed_tasks(deletion, changes)
    whole = [task.file for task in deletion.whole]
    if not (mode == MERGE_ON_READ and changed):
        return OverwriteFiles(
            work.table.io,
            settings,
            added=changes.written,
            removed=[*whole, *(task.file for task in changed)],
            conflict_filter=deletion.row_filter,
            written_schema=deletion.schema,
            starting_snapshot_id=deletion.snapshot_id,
            isolation=isolation,
        )
    empty = {change.file_path for change in changes.changes if change.is_gone}
    marked = [task for task in changed if task.file.file_path not in empty]
    return RowDelta(
        work.table.io,
        settings,
        added_deletes=changes.written,
        removed_deletes=replaced_deletes(marked) if work.table.metadata.format_version >= 3 else (),
        removed_data=[*whole, *(task.file for task in changed if task.file.file_path in empty)],
        referenced={task.file.file_path for task in marked},
        conflict_filter=deletion.row_filter,
        written_schema=deletion.schema,
        starting_snapshot_id=deletion.snapshot_id,
        isolation=isolation,
    )


def _delete_whole_files(work: Work, request: DeleteRequest, deletion: Deletion, rows: int) -> OverwriteFiles:
    """Return the action that selects whole files by the filter, again on each base."""
    deleted_before = sum(task.file.record_count for task in deletion.whole) - rows
    return OverwriteFiles(
        work.table.io,
        work.settings(request, {DELETED_BEFORE: str(deleted_before)} if deleted_before else {}),
        row_filter=deletion.row_filter,
        written_schema=deletion.schema,
        starting_snapshot_id=deletion.snapshot_id,
        isolation=None,
    )
