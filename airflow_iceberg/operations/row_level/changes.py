"""What merges, updates, and deletes by any SQL share: the job that changes files, and the commit.

One round plans on the table as it is, runs the job and commits; if another writer has changed the same rows, there is
another one on the latest snapshot. Not here: the words of requests (`merge`, `update`), the job itself (`jobs.merge`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.actions.overwrite import OverwriteFiles
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.earlier_epochs import NO_SNAPSHOT, EarlierEpochs
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.commit.watermarks import with_watermarks
from airflow_iceberg.commit.write_result import DELETED_ROWS, INSERTED_ROWS, UPDATED_ROWS, Outcome, WriteResult
from airflow_iceberg.data.write.options import in_format
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.assignments import whole_columns
from airflow_iceberg.expressions.binding import parse
from airflow_iceberg.expressions.clause_names import check_names, reads_table
from airflow_iceberg.expressions.merge_clauses import DELETE, NOT_MATCHED_BY_SOURCE, SOURCE, TARGET, MergeClause
from airflow_iceberg.expressions.merge_sql import columns_needed
from airflow_iceberg.expressions.query import Statement, needs
from airflow_iceberg.expressions.tree import ALWAYS_TRUE, Expression
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.properties.property import Property
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.jobs.protocol import sql_params
from airflow_iceberg.jobs.protocol.merge_task import Clause, MatchKey, MergeTask
from airflow_iceberg.jobs.protocol.pinned import PinnedTable, locations_of
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.source import DIALECTS, Source
from airflow_iceberg.jobs.protocol.table_input import WORK_FILE, FileUnit, TableInput, WorkItem
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.inputs.changes import Changes, Consumer, consumed_of, consumer_of
from airflow_iceberg.operations.inputs.tables import Input, pin, pin_all, summary_of
from airflow_iceberg.operations.new_rows import RowsFunction, check_options
from airflow_iceberg.operations.row_changes import MERGE_ON_READ, delete_mode, isolation_level, replaced_deletes
from airflow_iceberg.operations.row_level import match_keys
from airflow_iceberg.operations.row_level.done import Done, is_change
from airflow_iceberg.operations.row_level.rows_file import RowsFile, rows_file
from airflow_iceberg.operations.work import CommitRequest, Work
from airflow_iceberg.redaction import hide

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.commit.conflicts import Isolation

OWN_ENTRIES = (INSERTED_ROWS, UPDATED_ROWS, DELETED_ROWS)
# The views of the SQL besides the inputs.
OWN_NAMES = (TARGET, SOURCE)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLevelChanges:
    """What changes, in SQL.

    Attributes:
        clauses: the clauses of a merge; an update and a delete have one, for the rows that match its condition.
        rows: the source of a merge; None without one.
        on: the condition by which rows match; None without a source, and with `columns`.
        columns: the names of the columns and fields by which rows match, instead of a condition.
        is_unique: whether a null or repeated key of the source is an error.
        params: the values of the placeholders of all SQL here; errors call them `params_name`.
        mode_property, isolation_property: the table's properties that apply where the request says nothing.
        write_format: the format of the data files, "parquet" or "avro"; None for that of the table.
        check: called with the number of deleted rows before the commit; may raise.
    """

    clauses: tuple[MergeClause, ...]
    rows: Source | pa.Table | pa.RecordBatch | pa.RecordBatchReader | RowsFunction | None = None
    on: str | None = None
    columns: tuple[str, ...] = ()
    is_unique: bool = False
    dialect: str
    params: Mapping[str, Any] | None = None
    params_name: str = "params"
    inputs: Mapping[str, Input | Changes] = field(default_factory=dict)
    mode: str | None = None
    isolation_level: str | None = None
    mode_property: Property[Any]
    isolation_property: Property[Any]
    write_format: str | None = None
    check: Callable[[int], None] = lambda _: None

    @property
    def texts(self) -> list[str]:
        """All SQL here."""
        texts = [text for clause in self.clauses for text in (clause.condition, *clause.expressions)]
        return [text for text in (*texts, self.on) if text]

    @property
    def only_deletes(self) -> bool:
        """Whether no row gets a new value, and none is added."""
        return all(clause.action == DELETE for clause in self.clauses)


def check_dialect(dialect: str) -> None:
    """Raise InvalidInputError for a dialect that no engine has."""
    if dialect not in DIALECTS:
        raise InvalidInputError(f"unknown dialect {dialect!r}; one of {', '.join(DIALECTS)}")


def needs_engine(predicate: str | Expression, params: Mapping[str, Any] | None, dialect: str | None) -> bool:
    """Whether a predicate is SQL that only the engine of a job can evaluate.

    Args:
        dialect: the SQL of that engine; None without one.

    Raises:
        InvalidInputError: no predicate.
        UnsupportedError: there is no engine for it.
    """
    try:
        parse(predicate, params)
    except UnsupportedError:
        if dialect is None or not isinstance(predicate, str):
            raise
        return True
    return False


def change_rows(work: Work, request: CommitRequest, changes: RowLevelChanges) -> WriteResult:
    """Change rows in one commit; errors as of `operations.row_level.merge`."""
    if not isinstance(changes.rows, Source | None):
        work = work.waiting("the file with its rows is one of this process")
    head = work.table.metadata.ref_snapshot(request.branch)
    since = NO_SNAPSHOT if head is None else head.snapshot_id
    with rows_file(work, changes.rows) as rows:
        return work.on_latest(lambda: _round(work, request, changes, rows, since), branch=request.branch)


def _round(work: Work, request: CommitRequest, changes: RowLevelChanges, rows: RowsFile, since: int) -> WriteResult:
    table, branch = work.table, request.branch
    work.settings(request)  # fails for a table that cannot be written
    table.check_branch(branch)
    check_options(table, write_format=changes.write_format)
    found = work.find_landed(branch)
    if found is not None:
        return WriteResult.of([found], table=table.name, branch=branch, outcome=Outcome.FOUND)
    if not changes.only_deletes and (lost := _changed_before(work, branch, since)):
        return lost
    isolation = isolation_level(table.metadata, changes.isolation_level, property_name=changes.isolation_property.name)
    plan, done = run_changes(work, branch, changes, rows.source())
    written = [file.file_path for file in done.written]
    with work.new_files(written, plan=plan):
        changes.check(sum(change.deleted_count for change in done.changes))
        if not (done.written or any(map(is_change, done.changes))):
            return work.nothing(branch)
        action = _action(work, request, plan, done, isolation, only_deletes=changes.only_deletes)
        return work.commit(with_watermarks(action, consumed_of(plan.inputs)), written)


def run_changes(
    work: Work, branch: str, changes: RowLevelChanges, source: Source | None = None, *, beside: Beside | None = None
) -> tuple[JobPlan, Done]:
    """Run the job that changes files of the table as it is; the plan's documents are still there.

    Args:
        source: the rows of a merge.
        beside: what an overwrite does besides.
    """
    staging_location = work.new_staging(carries_rows=True)
    task = _task(work, branch, changes, source, beside)
    if beside is not None:
        task = beside.added_to(task, work, staging_location)
    plan = work.write_plan(task, staging_location)
    if work.run is None:
        work = replace(work, run=lambda plan: run_local(plan, work.table.io))
    return plan, work.run_job(plan, lambda result: Done.of(work, plan, result))


def _changed_before(work: Work, branch: str, since: int) -> WriteResult | None:
    """Return the result of another try whose snapshot has expired: values would be computed from its own.

    Args:
        since: the head of the branch when the work began.

    Raises:
        IncompatibleChangeError: it cannot be told whether there was one.
    """
    if work.operation_key is None:
        return None
    # An earlier run, before the task was cleared, does not count: a cleared task changes the table as it is.
    tries = EarlierEpochs(
        work.table.io, work.operation_key, branch, try_number=work.try_number, on_rerun="append", since=since
    ).changed_before(work.table.metadata)
    if not tries:
        return None
    return WriteResult(table=work.table.name, branch=branch, outcome=Outcome.FOUND, operation_key=work.key_text)


# -- the job -----------------------------------------------------------------------------------------------------------


def _task(
    work: Work, branch: str, changes: RowLevelChanges, source: Source | None, beside: Beside | None = None
) -> MergeTask:
    """Return what the job does, on the table as it is now."""
    metadata = work.table.metadata
    known = recover_sources(work.table.io, metadata)
    consumer = consumer_of(work, branch)
    schema = metadata.schema()
    with_defaults = schema if metadata.format_version >= 3 else schema.without_write_defaults()
    clauses = whole_columns(changes.clauses, with_defaults, dialect=changes.dialect)
    changes = replace(changes, clauses=clauses)
    keys: tuple[MatchKey, ...] = ()
    if changes.columns:
        keys = match_keys.of_columns(changes.columns, schema)
        changes = replace(changes, on=match_keys.condition_of(keys, schema, dialect=changes.dialect))
    elif changes.on is not None:
        keys = match_keys.of_condition(changes.on, schema, dialect=changes.dialect)
    inputs = _inputs(changes, source, consumer)
    check_names(
        changes.clauses,
        on=changes.on,
        target=[field.name for field in schema.fields],
        source=getattr(getattr(changes.rows, "schema", None), "names", None),
        others=[
            field.name
            for table in (*inputs, *(beside.inputs if beside is not None else ()))
            for field in table.schema.fields
        ],
        dialect=changes.dialect,
    )
    given = (changes.params or {}).items()
    named = {"dialect": changes.dialect, "argument": changes.params_name}
    values = {name: sql_params.to_json(name, value, **named) for name, value in given}
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
        inputs=inputs,
        on=changes.on,
        keys=keys,
        is_unique=changes.is_unique,
        has_only_keys=changes.is_unique,
        dialect=changes.dialect,
        sql_params=values or None,
    )


def _inputs(changes: RowLevelChanges, source: Source | None, consumer: Consumer) -> tuple[PinnedTable, ...]:
    """Pin the inputs: what the source's query and the other SQL need of each."""
    if source is None:
        return pin_all(changes.inputs, consumer)
    beside = [
        Statement(text=text, dialect=changes.dialect, params=changes.params, over=OWN_NAMES)
        for text in changes.texts
        if any(reads_table([text], name.lower(), dialect=changes.dialect) for name in changes.inputs)
    ]
    return pin(changes.inputs, source, consumer, beside=beside)


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """What an overwrite does besides, whose filter selects the rows that are deleted.

    Attributes:
        unchanged: the paths of files that it removes with all their rows.
        new_files: its new files, of which the filter must select all rows; none if they are not checked.
        schema: the columns of the new files.
        inputs: the tables that the filter reads, pinned together with those of the new rows.
    """

    unchanged: Collection[str] = ()
    new_files: Sequence[DataFile] = ()
    schema: Schema
    inputs: tuple[PinnedTable, ...] = ()

    def added_to(self, task: MergeTask, work: Work, staging_location: str) -> MergeTask:
        """Return a task that does this, too."""
        return replace(
            task,
            inputs=self.inputs,
            unchanged=tuple(sorted(self.unchanged)),
            new_rows=self._new_rows(work, staging_location) if self.new_files else None,
        )

    def _new_rows(self, work: Work, staging_location: str) -> TableInput:
        units = [FileUnit(file=file.without_statistics(), sequence_number=0) for file in self.new_files]
        items = [WorkItem(number=number, group=number, units=(unit,)) for number, unit in enumerate(units)]
        found = TableInput.write(
            work.table.io, work.table.metadata, items, work_location=f"{staging_location}/{WORK_FILE}"
        )
        return replace(found, schemas=(self.schema, *found.schemas))


def _target(work: Work, branch: str, changes: RowLevelChanges) -> PinnedTable:
    """Return the table as the job reads it: the columns that the SQL needs, and the rows that it may select."""
    table = work.table
    metadata, schema = table.metadata, table.metadata.schema()
    if not table.metadata_location:
        raise UnsupportedError(f"the catalog gives no metadata file of table {table.name}, which a job would read")
    head = metadata.ref_snapshot(branch)
    names = [one.name for one in schema.fields]
    # A subquery may read the table, too: all of it.
    is_read = reads_table(changes.texts, TARGET, dialect=changes.dialect)
    columns = None if is_read else columns_needed(changes.texts, names, dialect=changes.dialect)
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
        row_filter=ALWAYS_TRUE if is_read else _row_filter(work, changes),
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
    found = needs(
        query,
        {TARGET: work.table.metadata.schema()},
        params=changes.params,
        dialect=changes.dialect,
        others=(SOURCE, *changes.inputs),
    )
    return found[TARGET].row_filter


# -- the commit --------------------------------------------------------------------------------------------------------


def _action(
    work: Work, request: CommitRequest, plan: JobPlan, done: Done, isolation: Isolation, *, only_deletes: bool
) -> SnapshotAction:
    task = plan.task
    assert isinstance(task, MergeTask)
    changed = done.changed
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
        updated=done.updated,
        referenced={one.file.file_path for one in marked},
        conflict_filter=done.conflict_filter,
        written_schema=schema,
        starting_snapshot_id=start,
        isolation=isolation,
        command="delete" if only_deletes else "update",
    )


def _counts(done: Done, *, only_deletes: bool) -> dict[str, str]:
    """Return the entries of the summary that say how many rows were added, updated and deleted."""
    updated = sum(change.updated_count for change in done.changes)
    deleted = sum(change.deleted_count for change in done.changes)
    if only_deletes:
        return {DELETED_ROWS: str(deleted)}
    return {UPDATED_ROWS: str(updated), DELETED_ROWS: str(deleted), INSERTED_ROWS: str(done.inserted_count)}
