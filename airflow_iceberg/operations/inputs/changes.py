"""Changes of a table as an input: the rows that were appended or changed since the task has read it last.

    inputs = {"orders": Changes(open=lambda: Table.load(catalog, "sales.orders"), is_since_last=True)}

Here: at which snapshots the changes begin and end. They end at the current snapshot when the job is planned. They begin
at the watermark, which is committed with the rows (`commit.watermarks`); a task that was cleared reads its own range
again. A retry of a try that committed nothing begins at the same watermark and may end later: nothing was written, and
the commit checks that the watermark is still the same. Not here: the rows of the range (`jobs.changes_reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.commit.earlier_epochs import EarlierEpochs
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.runs.consumed import WAYS_OUT, Consumed, Range
from airflow_iceberg.commit.watermarks import Watermarks
from airflow_iceberg.data.read.selection import choose_snapshot
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.jobs.protocol.pinned import PinnedChanges, PinnedTable
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.snapshot_range import find_appends, find_changes
from airflow_iceberg.scan.changelog import ChangesOptions

__all__ = ["Changes", "ChangesOptions", "Consumer", "choose_range", "consumed_of", "consumer_of"]


_LONGEST = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """A table whose changes are read, and which of them.

    Attributes:
        open: loads the table; called when the job is planned.
        is_since_last: whether the changes begin where this task has read last. Otherwise they begin after the snapshot
            that at most one of `snapshot_id`, `since_ref` and `as_of_ms` selects; without one all rows are new.
        ref: the branch that is read; main by default.
        options: which changes, as of `Table.changes`.
        row_filter, predicate_params, selected_fields: as of `Input`.
        consumer: the name of who reads, which is the same after a task is renamed; None: the task is it.
    """

    open: Callable[[], OpenTable]
    is_since_last: bool = False
    snapshot_id: int | None = None
    since_ref: str | None = None
    as_of_ms: int | None = None
    ref: str | None = None
    options: ChangesOptions = field(default_factory=ChangesOptions)
    row_filter: str | None = None
    predicate_params: Mapping[str, Any] | None = None
    selected_fields: Sequence[str] = ("*",)
    consumer: str | None = None

    def __post_init__(self) -> None:
        name = self.consumer
        if name is not None and not (name.strip() and name.isprintable() and len(name) <= _LONGEST):
            raise InvalidInputError(f"consumer is {name!r}, expected a name of at most {_LONGEST} characters")
        if isinstance(self.selected_fields, str):
            raise InvalidInputError(f"selected_fields is the text {self.selected_fields!r}, expected a list of columns")


@dataclass(frozen=True, kw_only=True, slots=True)
class Consumer:
    """The work that reads inputs: its table, its branch and its key.

    Attributes:
        pinned: the inputs, if a job was started with them that the work goes on with.
    """

    table: OpenTable
    branch: str
    key: OperationKey | None
    try_number: int | None
    pinned: tuple[PinnedTable, ...] | None = None


def consumer_of(work: Work, branch: str) -> Consumer:
    """Return who reads inputs in some work."""
    pinned = None if work.deferred is None else work.deferred.inputs()
    return Consumer(table=work.table, branch=branch, key=work.operation_key, try_number=work.try_number, pinned=pinned)


def choose_range(
    name: str, one: Changes, source: TableMetadata, consumer: Consumer
) -> tuple[PinnedChanges, int | None, Range | None]:
    """Return which changes are read, the last snapshot, None if the table has none, and the watermark.

    Args:
        source: the table whose changes are read.

    Raises:
        InvalidInputError: the changes cannot be told: a snapshot has expired, or is of another history.
        IncompatibleChangeError: the watermark is not known.
        NotFoundError: no such snapshot, tag or branch.
    """
    head, _ = choose_snapshot(source, snapshot_id=None, ref=one.ref, as_of_ms=None)
    last = None if head is None else head.snapshot_id
    is_again = is_first = False
    known: Range | None = None
    if one.is_since_last:
        known, is_again = _last_read(name, one, source, consumer)
        _check_same_table(known, source)
        is_first = known is None
        first = None if known is None else known.to_snapshot_id
        if known is not None and is_again:
            first, last = known.from_snapshot_id, known.to_snapshot_id
    else:
        first = _given(one, source)
    _check_history(one, source, first, last)
    changes = PinnedChanges(
        from_snapshot_id=first,
        mode=one.options.mode,
        net=one.options.net,
        compute_updates=one.options.compute_updates,
        identifier_columns=tuple(one.options.identifier_columns),
        is_again=is_again,
        is_since_last=one.is_since_last,
        is_first=is_first,
        consumer=one.consumer,
    )
    return changes, last, None if is_again else known


def _last_read(name: str, one: Changes, source: TableMetadata, consumer: Consumer) -> tuple[Range | None, bool]:
    """Return the range that this work reads again, and True; or the one that the task has read last, and False."""
    if consumer.key is None:
        raise InvalidInputError("only a task has a last time, which its operation key tells; say where changes begin")
    watermarks, metadata = Watermarks(consumer.key, consumer.branch, one.consumer), consumer.table.metadata
    own = watermarks.own_range(metadata, name)
    if own is not None:
        return own, True
    _check_nothing_is_there(consumer)
    return watermarks.find(metadata, name, source.table_uuid or ""), False


def _check_nothing_is_there(consumer: Consumer) -> None:
    """Check that no rows of an earlier run or try of the work are in the table, whose range is not known any more.

    Raises:
        IncompatibleChangeError: they are, or that cannot be told.
    """
    assert consumer.key is not None
    epochs = EarlierEpochs(consumer.table.io, consumer.key, consumer.branch, try_number=consumer.try_number)
    if epochs.expired(consumer.table.metadata):
        raise IncompatibleChangeError(
            f"rows of an earlier run or try of {consumer.key.work} are in table {consumer.table.name}, and its "
            f"snapshot has expired, so that it is not known which changes it is to read again; {WAYS_OUT}, or run it "
            f"with on_rerun='skip'"
        )


def _check_same_table(known: Range | None, source: TableMetadata) -> None:
    if known is not None and known.table_uuid != (source.table_uuid or ""):
        raise InvalidInputError(
            f"the task has last read changes of a table with uuid {known.table_uuid}, and this one has "
            f"{source.table_uuid}: it was dropped and created again, or is another one; {WAYS_OUT}"
        )


def _given(one: Changes, source: TableMetadata) -> int | None:
    """Return the snapshot after which changes begin, as the author has said."""
    if one.snapshot_id is None and one.since_ref is None and one.as_of_ms is None:
        return None
    try:
        found, _ = choose_snapshot(source, snapshot_id=one.snapshot_id, ref=one.since_ref, as_of_ms=one.as_of_ms)
    except NotFoundError as error:
        raise NotFoundError(f"{error}; {WAYS_OUT}") from error
    return None if found is None else found.snapshot_id


def _check_history(one: Changes, source: TableMetadata, first: int | None, last: int | None) -> None:
    """Check that the changes can be told, before a job is started.

    Raises:
        InvalidInputError: a snapshot has expired, or is of another history.
    """
    head = None if last is None else source.snapshot(last)
    if last is not None and head is None:
        raise InvalidInputError(
            f"the changes that are to be read again end at snapshot {last}, which is not in {source.location}; it may "
            f"have been expired; {WAYS_OUT}"
        )
    if first is None:
        return
    find = find_appends if one.options.mode == "append" else find_changes
    try:
        find(source, from_snapshot_id=first, last=head)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}; {WAYS_OUT}") from error


def consumed_of(tables: Sequence[PinnedTable]) -> tuple[Consumed, ...]:
    """Return which changes the rows of a job were made from."""
    return tuple(
        Consumed(
            name=table.name,
            read=Range(
                table_uuid=table.table_uuid,
                from_snapshot_id=table.changes.from_snapshot_id,
                to_snapshot_id=table.snapshot_id,
                reads=table.changes.reads,
            ),
            consumer=table.changes.consumer,
            is_again=table.changes.is_again,
            is_since_last=table.changes.is_since_last,
            is_first=table.changes.is_first,
        )
        for table in tables
        if table.changes is not None
    )
