"""What merges, updates, and deletes by any SQL share: the job that changes files, and the commit.

One round plans on the table as it is, runs the job and commits; if another writer has changed the same rows, there is
another one on the latest snapshot. Not here: the words of requests (`merge`, `update`), the job itself (`jobs.merge`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.actions.overwrite import OverwriteFiles
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.earlier_epochs import EarlierEpochs
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.commit.watermarks import with_watermarks
from airflow_iceberg.commit.write_result import DELETED_ROWS, INSERTED_ROWS, UPDATED_ROWS, Outcome, WriteResult
from airflow_iceberg.data.row_changes import RowChange
from airflow_iceberg.data.write.options import in_format
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.json import expression_from_json
from airflow_iceberg.expressions.merge_clauses import DELETE, NOT_MATCHED_BY_SOURCE, TARGET, MergeClause
from airflow_iceberg.expressions.merge_sql import columns_needed
from airflow_iceberg.expressions.query import needs
from airflow_iceberg.expressions.tree import ALWAYS_TRUE, Expression, all_of
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.properties.property import Property
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.jobs.protocol import sql_params
from airflow_iceberg.jobs.protocol.merge_task import Clause, MergeTask
from airflow_iceberg.jobs.protocol.pinned import PinnedTable, locations_of
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import DIALECTS, Source
from airflow_iceberg.jobs.protocol.staged_files import check_stored, read_changed_files
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.inputs.changes import Changes, consumed_of, consumer_of
from airflow_iceberg.operations.inputs.tables import Input, pin, pin_all, summary_of
from airflow_iceberg.operations.new_rows import RowsFunction, check_options
from airflow_iceberg.operations.row_changes import MERGE_ON_READ, delete_mode, isolation_level, replaced_deletes
from airflow_iceberg.operations.row_level.rows_file import RowsFile, rows_file
from airflow_iceberg.operations.work import CommitRequest, Work
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.redaction import hide
from airflow_iceberg.scan.table_scan import TableScan

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.commit.conflicts import Isolation

OWN_ENTRIES = (INSERTED_ROWS, UPDATED_ROWS, DELETED_ROWS)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLevelChanges:
    """What changes, in SQL.

    Attributes:
        clauses: the clauses of a merge; an update and a delete have one, for the rows that match its condition.
        rows: the source of a merge; None without one.
        on: the condition by which rows match; None without a source.
        keys: the columns that it compares by `=`, of the table and of the source.
        is_unique: whether a null or repeated key of the source is an error.
        params: the values of the placeholders of all SQL here.
        mode_property, isolation_property: the table's properties that apply where the request says nothing.
        write_format: the format of the data files, "parquet" or "avro"; None for that of the table.
        check: called with the number of deleted rows before the commit; may raise.
    """

    clauses: tuple[MergeClause, ...]
    rows: Source | pa.Table | pa.RecordBatch | pa.RecordBatchReader | RowsFunction | None = None
    on: str | None = None
    keys: tuple[tuple[str, str], ...] = ()
    is_unique: bool = False
    dialect: str
    params: Mapping[str, Any] | None = None
    inputs: Mapping[str, Input | Changes] = field(default_factory=dict)
    mode: str | None = None
    isolation_level: str | None = None
    mode_property: Property[Any]
    isolation_property: Property[Any]
    write_format: str | None = None
    check: Callable[[int], None] = lambda _: None

    @property
    def only_deletes(self) -> bool:
        """Whether no row gets a new value, and none is added."""
        return all(clause.action == DELETE for clause in self.clauses)


def check_dialect(dialect: str) -> None:
    """Raise InvalidInputError for a dialect that no engine has."""
    if dialect not in DIALECTS:
        raise InvalidInputError(f"unknown dialect {dialect!r}; one of {', '.join(DIALECTS)}")


def change_rows(work: Work, request: CommitRequest, changes: RowLevelChanges) -> WriteResult:
    """Change rows in one commit; errors as of `operations.row_level.merge`."""
    with rows_file(work, changes.rows) as rows:
        return work.on_latest(lambda: _round(work, request, changes, rows), branch=request.branch)


def _round(work: Work, request: CommitRequest, changes: RowLevelChanges, rows: RowsFile) -> WriteResult:
    table, branch = work.table, request.branch
    work.settings(request)  # fails for a table that cannot be written
    table.check_branch(branch)
    check_options(table, write_format=changes.write_format)
    found = work.find_landed(branch)
    if found is not None:
        return WriteResult.of([found], table=table.name, branch=branch, outcome=Outcome.FOUND)
    if not changes.only_deletes and (lost := _changed_before(work, branch)):
        return lost
    isolation = isolation_level(table.metadata, changes.isolation_level, property_name=changes.isolation_property.name)
    task = _task(work, branch, changes, rows.source())
    plan = work.write_plan(task, work.new_staging(carries_rows=True))
    if work.run is None:
        work = replace(work, run=lambda plan: run_local(plan, table.io))
    done = work.run_job(plan, lambda result: _Done.of(work, plan, result))
    written = [file.file_path for file in done.written]
    with work.new_files(written, plan=plan):
        changes.check(sum(change.deleted_count for change in done.changes))
        if not (done.written or any(map(_is_change, done.changes))):
            return work.nothing(branch)
        action = _action(work, request, plan, done, isolation, only_deletes=changes.only_deletes)
        return work.commit(with_watermarks(action, consumed_of(plan.inputs)), written)


def _changed_before(work: Work, branch: str) -> WriteResult | None:
    """Return the result of an earlier try whose snapshot has expired: values would be computed from its own.

    Raises:
        IncompatibleChangeError: it cannot be told whether there was one.
    """
    if work.operation_key is None:
        return None
    # An earlier run, before the task was cleared, does not count: a cleared task changes the table as it is.
    tries = EarlierEpochs(
        work.table.io, work.operation_key, branch, try_number=work.try_number, on_rerun="append"
    ).changed_before(work.table.metadata)
    if not tries:
        return None
    return WriteResult(table=work.table.name, branch=branch, outcome=Outcome.FOUND, operation_key=work.key_text)


# -- the job -----------------------------------------------------------------------------------------------------------


def _task(work: Work, branch: str, changes: RowLevelChanges, source: Source | None) -> MergeTask:
    """Return what the job does, on the table as it is now."""
    metadata = work.table.metadata
    known = recover_sources(work.table.io, metadata)
    consumer = consumer_of(work, branch)
    schema = metadata.schema()
    known_keys = [(schema.find_field(name, case_sensitive=False), other) for name, other in changes.keys]
    # A field of a struct is compared by the engine alone.
    keys = [(field.name, other) for field, other in known_keys if field in schema.fields]
    values = {name: sql_params.to_json(name, value) for name, value in (changes.params or {}).items()}
    return MergeTask(
        write=staging.write_settings(in_format(metadata, changes.write_format)),
        spec=metadata.spec(),
        specs=known.partition_specs,
        schemas=known.newest_schemas(),
        name_mapping=TableProperties.of(metadata.properties).name_mapping,
        target=_target(work, branch, changes),
        mode=delete_mode(metadata, changes.mode, property_name=changes.mode_property.name),
        clauses=tuple(Clause(**asdict(clause)) for clause in changes.clauses),
        source=source,
        inputs=pin_all(changes.inputs, consumer) if source is None else pin(changes.inputs, source, consumer),
        on=changes.on,
        keys=tuple(name for name, _ in keys),
        source_keys=tuple(name for _, name in keys),
        is_unique=changes.is_unique,
        dialect=changes.dialect,
        sql_params=values or None,
    )


def _target(work: Work, branch: str, changes: RowLevelChanges) -> PinnedTable:
    """Return the table as the job reads it: the columns that the SQL needs, and the rows that it may select."""
    table = work.table
    metadata, schema = table.metadata, table.metadata.schema()
    if not table.metadata_location:
        raise UnsupportedError(f"the catalog gives no metadata file of table {table.name}, which a job would read")
    head = metadata.ref_snapshot(branch)
    texts = [text for clause in changes.clauses for text in (clause.condition, *clause.expressions) if text]
    names = [one.name for one in schema.fields]
    columns = columns_needed([*texts, *([changes.on] if changes.on else [])], names, dialect=changes.dialect)
    return PinnedTable(
        name=TARGET,
        table=table.name,
        catalog=table.catalog.name,
        table_uuid=metadata.table_uuid or "",
        table_location=metadata.location,
        metadata_location=table.metadata_location,
        snapshot_id=None if head is None else head.snapshot_id,
        schema=schema,
        selected_fields=tuple(names) if columns is None else columns,
        row_filter=_row_filter(work, changes),
        locations=locations_of(table.io),
    )


def _row_filter(work: Work, changes: RowLevelChanges) -> Expression:
    """Return a predicate that all rows of the table satisfy which the SQL can select."""
    text = changes.on or changes.clauses[0].condition
    if text is None or any(clause.rows == NOT_MATCHED_BY_SOURCE for clause in changes.clauses):
        return ALWAYS_TRUE
    if hide("sql", text) != text:
        return ALWAYS_TRUE  # others can read the plan, which would have the secret as a literal
    tables = TARGET if changes.on is None else f"{TARGET}, source"
    # Not in brackets: each part of a conjunction counts by itself.
    query = f"select 1 from {tables} where {text}"
    found = needs(query, {TARGET: work.table.metadata.schema()}, params=changes.params, dialect=changes.dialect)
    return found[TARGET].row_filter


# -- the commit --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Done:
    """What the job did, checked against its plan.

    Attributes:
        tasks: the files of the table that changed, by their paths.
        conflict_filter: a predicate that all rows satisfy which the job could select.
    """

    changes: tuple[RowChange, ...]
    written: tuple[DataFile, ...]
    tasks: Mapping[str, FileScanTask]
    conflict_filter: Expression
    inserted_count: int

    @classmethod
    def of(cls, work: Work, plan: JobPlan, result: JobResult) -> _Done:
        task = plan.task
        assert isinstance(task, MergeTask)
        written = read_changed_files(plan, result.data_files)
        check_stored(work.table.io, plan, written)
        changes = tuple(RowChange(**asdict(change)) for change in result.changes)
        paths = {change.file_path for change in changes}
        scan = TableScan.of(
            work.table.metadata, work.table.io, row_filter=task.target.row_filter, snapshot_id=task.target.snapshot_id
        )
        files = scan.iter_files(whole_files=True) if paths else ()
        tasks = {one.file.file_path: one for one in files if one.file.file_path in paths}
        named = {file.referenced_data_file for file in written if file.referenced_data_file is not None}
        for path in (paths | named) - tasks.keys():
            raise FormatError(f"the job changed {path}, which is not a file of its snapshot", path=plan.result_location)
        for change in changes:
            _check_counts(change, tasks[change.file_path].file, plan)
        if len(paths) < len(changes):
            raise FormatError("a file of the table is changed twice", path=plan.result_location)
        found = expression_from_json(
            result.conflict_filter or {"is": "true"}, task.target.schema, path=plan.result_location
        )
        _check_new(result, changes, written, plan)
        return cls(
            changes=changes,
            written=written,
            tasks=tasks,
            conflict_filter=all_of(task.target.row_filter, found),
            inserted_count=result.inserted_count,
        )

    @property
    def data_files(self) -> list[DataFile]:
        return [file for file in self.written if file.content is FileContent.DATA]

    @property
    def delete_files(self) -> list[DataFile]:
        return [file for file in self.written if file.content is not FileContent.DATA]


def _check_counts(change: RowChange, file: DataFile, plan: JobPlan) -> None:
    changed = change.deleted_count + change.updated_count
    if changed > file.record_count:
        why = f"{changed} rows of a file of {file.record_count} are said to be changed: {file.file_path}"
        raise FormatError(why, path=plan.result_location)


def _check_new(result: JobResult, changes: tuple[RowChange, ...], written: tuple[DataFile, ...], plan: JobPlan) -> None:
    """Check that the counts of the summary are those of rows that exist."""
    rows = sum(file.record_count for file in written if file.content is FileContent.DATA)
    updated = sum(change.updated_count for change in changes)
    if result.inserted_count + updated > rows:
        why = f"{result.inserted_count} of its rows are new, and {updated} have new values, of {rows} in its files"
        raise FormatError(why, path=plan.result_location)


def _is_change(change: RowChange) -> bool:
    return bool(change.deleted_count or change.updated_count)


def _action(
    work: Work, request: CommitRequest, plan: JobPlan, done: _Done, isolation: Isolation, *, only_deletes: bool
) -> SnapshotAction:
    task = plan.task
    assert isinstance(task, MergeTask)
    changed = [done.tasks[change.file_path] for change in done.changes if _is_change(change)]
    settings = work.settings(
        request, {**_counts(done, only_deletes=only_deletes), **summary_of(task.inputs)}, table_uuid=plan.table_uuid
    )
    start, schema, io = task.target.snapshot_id, task.write.schema, work.table.io
    if task.mode != MERGE_ON_READ:
        return OverwriteFiles(
            io,
            settings,
            added=done.written,
            removed=[one.file for one in changed],
            conflict_filter=done.conflict_filter,
            written_schema=schema,
            starting_snapshot_id=start,
            isolation=isolation,
        )
    gone = {change.file_path for change in done.changes if change.is_gone}
    marked = [one for one in changed if one.file.file_path not in gone]
    return RowDelta(
        io,
        settings,
        added_deletes=done.delete_files,
        added_data=done.data_files,
        removed_deletes=replaced_deletes(marked) if work.table.metadata.format_version >= 3 else (),
        removed_data=[one.file for one in changed if one.file.file_path in gone],
        updated=[done.tasks[change.file_path].file for change in done.changes if change.updated_count],
        referenced={one.file.file_path for one in marked},
        conflict_filter=done.conflict_filter,
        written_schema=schema,
        starting_snapshot_id=start,
        isolation=isolation,
        command="delete" if only_deletes else "update",
    )


def _counts(done: _Done, *, only_deletes: bool) -> dict[str, str]:
    """Return the entries of the summary that say how many rows were added, updated and deleted."""
    updated = sum(change.updated_count for change in done.changes)
    deleted = sum(change.deleted_count for change in done.changes)
    if only_deletes:
        return {DELETED_ROWS: str(deleted)}
    return {UPDATED_ROWS: str(updated), DELETED_ROWS: str(deleted), INSERTED_ROWS: str(done.inserted_count)}
