"""New rows as data files, written by a job or in this process, and not yet committed.

Here: what appends and overwrites share before the commit. Not here: the commits (`operations.append`,
`operations.overwrite`), the documents of the job (`operations.staging`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow_iceberg.commit.compose import with_schema
from airflow_iceberg.commit.earlier_epochs import NO_SNAPSHOT, EarlierEpochs
from airflow_iceberg.commit.manifest_merging import MergePolicy
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import ON_RERUN, TRY_NUMBER, OnRerun, OperationKey
from airflow_iceberg.commit.retry_policy import RetryPolicy
from airflow_iceberg.commit.runs.consumed import has_read_in_expired
from airflow_iceberg.commit.runs.doubts import may_be_a_retry
from airflow_iceberg.commit.runs.own_works import OwnWorks, still_there
from airflow_iceberg.commit.runs.removed import changed_item
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import MakesSnapshot
from airflow_iceberg.commit.watermarks import with_watermarks
from airflow_iceberg.commit.write_result import Outcome, WriteResult
from airflow_iceberg.data.arrow_rows import Rows, to_arrow_rows
from airflow_iceberg.data.cast.row_check import RowCheck
from airflow_iceberg.data.write.options import WriteOptions, checked_format, in_format
from airflow_iceberg.data.write.rows import schema_with, write_rows
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError
from airflow_iceberg.expressions.binding import bind
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.jobs.protocol.heartbeat import kept_alive
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.plan import AppendTask, Condition, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.staged_files import check_stored, staged_files
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.history.lineage import RowMarker
from airflow_iceberg.operations.inputs.changes import Changes, consumed_of, consumer_of
from airflow_iceberg.operations.inputs.tables import Input, check_inputs, narrowed, pin, summary_of
from airflow_iceberg.operations.work import CommitRequest, Work

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

ADD_COLUMNS = "add_columns"


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsFunction:
    """A function that returns rows; it is called when no earlier try has done its work, and once.

    Attributes:
        name: its name in errors.
        call: the function; returns what `data.arrow_rows.to_arrow_rows` accepts.
    """

    name: str
    call: Callable[[], object]

    def rows(self, table: OpenTable) -> Rows:
        """Call the function, and return its rows for the table; an iterator without rows has the table's columns."""
        empty = schema_to_arrow(table.schema(), with_field_ids=False)
        return to_arrow_rows(self.call(), name=self.name, empty=empty)


class RerunRequest(CommitRequest, Protocol):
    """What all requests have that add rows."""

    @property
    def on_rerun(self) -> OnRerun:
        """What happens to the rows of an earlier run after the task was cleared."""


class RowsRequest(RerunRequest, Protocol):
    """What the requests of appends and overwrites have in common."""

    @property
    def rows(self) -> Source | pa.Table | pa.RecordBatch | pa.RecordBatchReader | RowsFunction:
        """A source that a job reads, or Arrow rows of this process, or a function that returns some."""

    @property
    def inputs(self) -> Mapping[str, Input | Changes]:
        """Tables that the source reads, by the names that it has for them."""

    @property
    def schema_evolution(self) -> str | None:
        """Whether new columns of the rows are added to the schema of the table, see `ADD_COLUMNS`."""

    @property
    def write_format(self) -> str | None:
        """The format of the data files, "parquet" or "avro"; None for that of the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRows:
    """Data files with new rows, which no snapshot has yet.

    Attributes:
        written_schema: the schema of the files: the planned one, or with more or wider columns of the rows.
        planned_schema: the table's schema when the rows were planned for.
        table_uuid: the uuid of the table that was planned for.
        inputs: the tables that the rows were made from.
    """

    files: tuple[DataFile, ...]
    written_schema: Schema
    planned_schema: Schema
    table_uuid: str
    inputs: tuple[PinnedTable, ...] = ()

    @property
    def summary(self) -> dict[str, str]:
        """Entries for the summary of the snapshot that gets the rows."""
        return summary_of(self.inputs)

    @property
    def paths(self) -> list[str]:
        """The locations of the files."""
        return [file.file_path for file in self.files]

    @property
    def record_count(self) -> int:
        """The number of new rows."""
        return sum(file.record_count for file in self.files)


def check_rows_request(
    request: RowsRequest, *, by_condition: Collection[str] | None = (), taken: Collection[str] = ()
) -> None:
    """Check the words of a request; `by_condition` and `taken` are arguments of `check_inputs`.

    Raises:
        InvalidInputError: an unknown `on_rerun`, `schema_evolution` or `write_format`, or inputs that do not fit the
            source.
    """
    check_on_rerun(request.on_rerun)
    adds_columns(request)
    checked_format(request.write_format)
    check_inputs(request.inputs, request.rows, by_condition=by_condition, taken=taken)


def check_on_rerun(on_rerun: str) -> None:
    """Check what happens to the rows of an earlier run; raises InvalidInputError for an unknown word."""
    if on_rerun not in ON_RERUN:
        raise InvalidInputError(f"unknown on_rerun {on_rerun!r}; one of {', '.join(ON_RERUN)}")


def find_earlier(work: Work, request: RerunRequest) -> WriteResult | None:
    """Search the table for an earlier commit of this work; None means that there is work to do.

    Raises:
        NotFoundError: no such branch.
        IncompatibleChangeError: a run after a later clear has committed already.
    """
    table, branch = work.table, request.branch
    table.check_branch(branch)
    if work.operation_key is None:
        return None
    work.settings(request)  # finds a wrong clock before a job of hours
    landed = work.find_landed(branch)
    if landed is not None:
        return WriteResult.of([landed], table=table.name, branch=branch, outcome=Outcome.FOUND)
    if getattr(request, "replace", None) is None:  # an overwrite may replace such rows in any case
        _epochs(work, work.operation_key, branch, on_rerun=request.on_rerun).check_removed(table.metadata)
    earlier = still_there(table.metadata, OwnWorks.of(table.metadata, work.operation_key, branch))
    if request.on_rerun == "skip" and earlier:
        _check_same_item(work.operation_key, earlier)
        return WriteResult.of([earlier[0]], table=table.name, branch=branch, outcome=Outcome.SKIPPED)
    if request.on_rerun == "skip":
        return _skipped_after_expiry(work, branch)
    if request.on_rerun == "append":
        return _found_in_doubt(work, branch, earlier)
    return None


def _check_same_item(key: OperationKey, earlier: Sequence[Snapshot]) -> None:
    """Check that the rows that are there are those of the item that this index of a mapped task stands for now.

    Raises:
        IncompatibleChangeError: it stood for another one.
    """
    other = changed_item(key, earlier)
    if other is not None:
        raise IncompatibleChangeError(
            f"map index {key.map_index} of task {key.dag_id}.{key.task_id} was expanded with other values when it "
            f"committed snapshot {other.snapshot_id}, and on_rerun is 'skip', so that those of today would not be "
            f"written; nothing was committed; give the task a write_key, or set on_rerun='replace'"
        )


def _skipped_after_expiry(work: Work, branch: str) -> WriteResult | None:
    """Return the result of skipped work whose snapshot has expired; its files are still in the table."""
    assert work.operation_key is not None
    files = _epochs(work, work.operation_key, branch, on_rerun="skip").expired(work.table.metadata)
    if not files:
        return None
    return WriteResult(
        table=work.table.name,
        branch=branch,
        outcome=Outcome.SKIPPED,
        operation_key=work.key_text,
        added_data_files=len(files),
        added_records=sum(file.record_count for file in files),
        added_files_size_bytes=sum(file.file_size_in_bytes for file in files),
    )


def _found_in_doubt(work: Work, branch: str, earlier: Sequence[Snapshot]) -> WriteResult | None:
    """Return the commit of an earlier try or epoch, when Airflow does not tell which: its rows are not added again."""
    assert work.operation_key is not None
    for snapshot in earlier:
        if may_be_a_retry(work.operation_key, snapshot):
            log.warning(
                "%s: snapshot %s holds rows of try %s of this task. Since then tasks of its run were cleared, maybe "
                "other ones, so the rows are not appended again; to append them, clear this task again",
                *(work.table.name, snapshot.snapshot_id, snapshot.summary.get(TRY_NUMBER, "?")),
            )
            return WriteResult.of([snapshot], table=work.table.name, branch=branch, outcome=Outcome.FOUND)
    return None


@contextmanager
def new_rows(
    work: Work,
    request: RowsRequest,
    *,
    condition: Condition | None = None,
    inputs: tuple[PinnedTable, ...] | None = None,
) -> Iterator[NewRows]:
    """Write the rows of a request as data files; the documents of a job are deleted at the end of the block.

    Args:
        condition: what every new row has to satisfy.
        inputs: the inputs, where they are pinned already.

    Raises:
        InvalidInputError, UnsupportedError: rows that do not fit, or a property of the table that would make the write
            or the commit fail; nothing was committed.
        StorageError: the staging prefix cannot be written.
    """
    check_options(work.table, write_format=request.write_format)
    if not isinstance(request.rows, Source):
        yield _write_here(work, request, condition)
        return
    plan = plan_rows(work, request, condition=condition, inputs=inputs)
    staged = work.run_job(plan, lambda result: _stored_rows(work, plan, result))
    io, prefix = work.table.io, plan.staging_location
    # An overwrite of single rows runs another job before its commit.
    with staging.cleared(io, prefix), kept_alive(io, prefix):
        yield staged


def plan_rows(
    work: Work,
    request: RowsRequest,
    *,
    condition: Condition | None = None,
    inputs: tuple[PinnedTable, ...] | None = None,
) -> JobPlan:
    """Write the plan of the job that writes the rows of a source; arguments as of `new_rows`."""
    assert isinstance(request.rows, Source)
    if inputs is None:
        inputs = pin(request.inputs, request.rows, consumer_of(work, request.branch))
    else:
        inputs = narrowed(inputs, request.inputs, request.rows)
    task = staging.append_task(
        in_format(work.table.metadata, request.write_format),
        request.rows,
        row_check=condition,
        adds_columns=adds_columns(request),
        inputs=inputs,
    )
    return work.write_plan(task, work.new_staging())


def rows_of(plan: JobPlan, result: JobResult) -> NewRows:
    """Return the rows that a job wrote, checked against its plan."""
    assert isinstance(plan.task, AppendTask)
    planned = plan.task.write.schema
    return NewRows(
        files=staged_files(plan, result),
        written_schema=result.schema or planned,
        planned_schema=planned,
        table_uuid=plan.table_uuid,
        inputs=plan.inputs,
    )


def _stored_rows(work: Work, plan: JobPlan, result: JobResult) -> NewRows:
    rows = rows_of(plan, result)
    check_stored(work.table.io, plan, rows.files)
    return rows


def _write_here(work: Work, request: RowsRequest, condition: Condition | None) -> NewRows:
    table = work.table
    rows = request.rows.rows(table) if isinstance(request.rows, RowsFunction) else request.rows
    planned = table.schema()
    written = schema_with(table.metadata, rows) if adds_columns(request) else planned
    files = write_rows(
        table.io,
        in_format(table.metadata, request.write_format),
        rows,
        file_prefix=staging.new_file_prefix(work.operation_key, work.try_number or 1),
        schema=written,
        # Bound to the schema of the new rows, in which a column may have a wider type than in the table.
        check=None
        if condition is None
        else RowCheck(row_filter=bind(condition.predicate, written), text=condition.text, schema=written),
    )
    return NewRows(
        files=tuple(files), written_schema=written, planned_schema=planned, table_uuid=table.metadata.table_uuid or ""
    )


def adds_columns(request: RowsRequest) -> bool:
    """Whether new columns of the rows are added to the table's schema.

    Raises:
        InvalidInputError: neither None nor "add_columns".
    """
    if request.schema_evolution not in (None, ADD_COLUMNS):
        raise InvalidInputError(f"schema_evolution is {request.schema_evolution!r}, expected {ADD_COLUMNS!r} or None")
    return request.schema_evolution is not None


def completed(action: MakesSnapshot, staged: NewRows) -> MakesSnapshot:
    """Return the action, with new columns of its files and the watermarks of inputs, if any, in the same commit."""
    action = with_watermarks(action, consumed_of(staged.inputs))
    if staged.written_schema.fields == staged.planned_schema.fields:
        return action
    return with_schema(action, staged.written_schema)


def earlier_epochs(
    work: Work, request: RerunRequest, settings: CommitSettings, written: list[str]
) -> EarlierEpochs | None:
    """Return what finds the rows of the task's earlier epochs; None outside of Airflow.

    Args:
        written: gets the locations of files that it writes.
    """
    key, branch = settings.operation_key, settings.branch
    if key is None:
        return None
    head = work.table.metadata.ref_snapshot(branch)
    since = NO_SNAPSHOT if head is None else head.snapshot_id
    mark = RowMarker(work.table.io, branch, written, key=key, try_number=work.try_number or 1)
    replaces = getattr(request, "replace", None) is not None and getattr(request, "check_filter", False)
    return _epochs(work, key, branch, on_rerun=request.on_rerun, since=since, mark=mark, replaces_its_like=replaces)


def check_options(
    table: OpenTable, *, write_format: str | None = None, writes_files: bool = True, takes_format: bool = True
) -> None:
    """Find what would make the commit fail before anything is written: a job may take hours before the commit.

    Args:
        write_format: the format of the data files; None for that of the table.
        writes_files: whether data files are written in any case.
        takes_format: whether the operation has the argument `write_format`.

    Raises:
        InvalidInputError, UnsupportedError: a property of the table, or a format that is not written.
    """
    _ = table.catalog  # a table without one is read-only
    metadata = in_format(table.metadata, write_format)
    WriteOptions.from_properties(
        metadata.properties,
        table.schema(),
        table.sort_order(),
        writes_files=writes_files,
        takes_format=takes_format,
    )
    RetryPolicy.of(metadata)
    MergePolicy.of(metadata)
    properties = TableProperties.of(metadata.properties)
    _ = properties.summary_partition_limit, properties.metadata_previous_versions_max


def _epochs(work: Work, key: OperationKey, branch: str, **options: Any) -> EarlierEpochs:
    # What it has read of changes is known longer than its snapshots.
    options |= {"has_expired": has_read_in_expired(work.table.metadata, key.work), "planned": work.table.metadata}
    return EarlierEpochs(work.table.io, key, branch, try_number=work.try_number, **options)
