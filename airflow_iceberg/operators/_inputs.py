"""The tables that the query or the callable of a task reads, in the words of a DAG's author."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_iceberg.backends.config import checked_fields
from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.hooks.arguments import is_nothing, timestamp_ms, whole_number
from airflow_iceberg.hooks.iceberg import IcebergHook

if TYPE_CHECKING:
    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.operations.inputs import changes as operations_changes
    from airflow_iceberg.operations.inputs import tables as operations_inputs


@dataclass(frozen=True, slots=True)
class Input:
    """A table that is read at one snapshot, which is chosen when the job is planned.

    Attributes:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of its catalog's connection; None is that of the task.
        ref: the branch or tag to read.
        snapshot_id: the snapshot to read.
        as_of: the time whose snapshot is read.
        row_filter: a predicate in SQL; only rows that satisfy it are read.
        predicate_params: the values of the predicate's placeholders, `:name`, by name.
        selected_fields: the columns to read, also metadata columns such as `_row_id`; by default those that the query
            needs, or all for a callable.
    """

    table: str
    _: KW_ONLY
    iceberg_conn_id: str | None = None
    ref: str | None = None
    snapshot_id: int | str | None = None
    as_of: datetime | str | None = None
    row_filter: str | None = None
    predicate_params: Mapping[str, Any] | None = None
    selected_fields: Sequence[str] = ("*",)

    def serialize(self) -> dict[str, Any]:
        """Return the form that Airflow stores and shows."""
        given = {name: value for name, value in _fields(self).items() if value is not None}
        return {**given, **({"as_of": str(self.as_of)} if self.as_of is not None else {})}

    def to_open(self, *, iceberg_conn_id: str, opened: Callable[[OpenTable], object]) -> operations_inputs.Input:
        """Return the input for an operation.

        Args:
            iceberg_conn_id: the connection of the task.
            opened: called with the table when it is loaded.
        """
        from airflow_iceberg.operations.inputs import tables as operations_inputs

        return operations_inputs.Input(
            open=_loader(self.iceberg_conn_id or iceberg_conn_id, self.table, opened),
            ref=self.ref,
            snapshot_id=whole_number("snapshot_id", self.snapshot_id),
            as_of_ms=timestamp_ms("as_of", self.as_of),
            row_filter=self.row_filter,
            predicate_params=self.predicate_params,
            selected_fields=self.selected_fields,
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows of a table that were appended or changed since the task has read them last.

    The last snapshot that was read is committed with the rows that were made from them. So a retry, a killed task and
    a run after it neither lose nor repeat a change; a cleared task reads the changes of its own run again.

    Attributes:
        table: the namespace and name of the table, `sales.orders`.
        since: where the changes begin: `"last"`, after those that this task has read last, or all rows if it has read
            none; or after a snapshot (its id), a tag, or a time; None: all rows.
        mode: `"append"`, the rows that were appended; `"changelog"`, all changes, with the columns `_change_type`
            (`insert`, `delete`, `update_before`, `update_after`), `_change_ordinal` and `_commit_snapshot_id`.
        net: of a changelog, only what is different in the end, not each snapshot's changes.
        compute_updates: of a changelog, whether the old and the new version of a row are an update.
        identifier_columns: the columns that identify a row, for updates; by default the table's identifier fields, or
            the `_row_id` of the row (version 3).
        iceberg_conn_id: the id of its catalog's connection; None is that of the task.
        ref: the branch to read; main by default.
        row_filter: a predicate in SQL; only changed rows that satisfy it are read.
        predicate_params: the values of the predicate's placeholders, `:name`, by name.
        selected_fields: the columns to read.
        consumer: the name of who reads, `"orders-to-silver"`, by which the next run finds how far it has come; by
            default its DAG, task and map index. With a name, all of them may be renamed. The name of another task,
            `"dag.task"`, takes over how far that has come.
    """

    table: str
    _: KW_ONLY
    since: int | str | datetime | None = "last"
    mode: str = "append"
    net: bool = False
    compute_updates: bool = False
    identifier_columns: Sequence[str] = ()
    iceberg_conn_id: str | None = None
    ref: str | None = None
    row_filter: str | None = None
    predicate_params: Mapping[str, Any] | None = None
    selected_fields: Sequence[str] = ("*",)
    consumer: str | None = None

    def serialize(self) -> dict[str, Any]:
        """Return the form that Airflow stores and shows."""
        since = self.since if self.since is None or isinstance(self.since, int | str) else str(self.since)
        given = {name: value for name, value in _fields(self).items() if value is not None}
        return {**given, "since": since}

    def to_open(self, *, iceberg_conn_id: str, opened: Callable[[OpenTable], object]) -> operations_changes.Changes:
        """Return the changes for an operation; arguments as of `Input.to_open`."""
        from airflow_iceberg.operations.inputs import changes as operations_changes

        return operations_changes.Changes(
            open=_loader(self.iceberg_conn_id or iceberg_conn_id, self.table, opened),
            ref=self.ref,
            options=operations_changes.ChangesOptions(
                mode=self.mode,
                net=true_or_false("net", self.net),
                compute_updates=true_or_false("compute_updates", self.compute_updates),
                identifier_columns=self.identifier_columns,
            ),
            row_filter=self.row_filter,
            predicate_params=self.predicate_params,
            selected_fields=self.selected_fields,
            consumer=_consumer(self.consumer),
            **_since(self.since),
        )


def input_of(name: object, given: object) -> Input | Changes:
    """Return an input, given as it is, as the name of a table, or as a dictionary of its fields."""
    if isinstance(given, Input | Changes):
        return given
    if isinstance(given, str):
        return Input(given)
    if isinstance(given, Mapping) and "table" in given:
        kind = Changes if "since" in given else Input
        return kind(**checked_fields(kind, f"input {name!r}", given))
    raise InvalidInputError(
        f"input {name!r} is {given!r}, expected the name of a table, or Input('sales.orders', …), or "
        f"Changes('sales.orders', …)"
    )


def _fields(given: Input | Changes) -> dict[str, Any]:
    """Return the fields as they are: a copy of another task's value would be one of its DAG."""
    return {item.name: getattr(given, item.name) for item in fields(given)}


def _loader(conn_id: str, table: str, opened: Callable[[OpenTable], object]) -> Callable[[], OpenTable]:
    def load() -> OpenTable:
        found = IcebergHook(conn_id).load_table(table)
        opened(found)
        return found

    return load


def _consumer(given: object) -> str | None:
    if given is not None and (not isinstance(given, str) or is_nothing(given)):
        raise InvalidInputError(f"consumer is {given!r}, expected a name, such as 'orders-to-silver'")
    return given


def _since(given: object) -> dict[str, Any]:
    """Return where changes begin: what is neither "last", a number nor a time is the name of a tag."""
    if given is None:
        return {}
    if not isinstance(given, int | str | datetime) or isinstance(given, bool):
        raise InvalidInputError(f"since is {given!r}, expected 'last', a snapshot id, a tag, a time or None")
    text = str(given).strip()
    if text == "last":
        return {"is_since_last": True}
    if isinstance(given, datetime):
        return {"as_of_ms": timestamp_ms("since", given)}
    if text.isascii() and text.isdigit():
        return {"snapshot_id": int(text)}
    try:
        return {"as_of_ms": timestamp_ms("since", text)}
    except InvalidInputError:
        return {"since_ref": text}
