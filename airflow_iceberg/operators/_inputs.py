"""The tables that the query or the callable of a task reads, in the words of a DAG's author."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_iceberg.backends.config import checked_fields
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.arguments import timestamp_ms, whole_number
from airflow_iceberg.hooks.iceberg import IcebergHook

if TYPE_CHECKING:
    from airflow_iceberg.commit.open_table import OpenTable
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

    @classmethod
    def of(cls, name: object, given: object) -> Input:
        """Return an input, given as it is, as the name of a table, or as a dictionary of its fields."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(given)
        if isinstance(given, Mapping) and "table" in given:
            return cls(**checked_fields(cls, f"input {name!r}", given))
        raise InvalidInputError(
            f"input {name!r} is {given!r}, expected the name of a table, or Input('sales.orders', …)"
        )

    def serialize(self) -> dict[str, Any]:
        """Return the form that Airflow stores and shows."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return {**given, **({"as_of": str(self.as_of)} if self.as_of is not None else {})}

    def to_open(self, *, iceberg_conn_id: str, opened: Callable[[OpenTable], object]) -> operations_inputs.Input:
        """Return the input for an operation.

        Args:
            iceberg_conn_id: the connection of the task.
            opened: called with the table when it is loaded.
        """
        from airflow_iceberg.operations.inputs import tables as operations_inputs

        def load() -> OpenTable:
            table = IcebergHook(self.iceberg_conn_id or iceberg_conn_id).load_table(self.table)
            opened(table)
            return table

        return operations_inputs.Input(
            open=load,
            ref=self.ref or None,
            snapshot_id=whole_number("snapshot_id", self.snapshot_id),
            as_of_ms=timestamp_ms("as_of", self.as_of),
            row_filter=self.row_filter,
            predicate_params=self.predicate_params,
            selected_fields=self.selected_fields,
        )
