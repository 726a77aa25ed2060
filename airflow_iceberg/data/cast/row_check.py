"""New rows checked by a predicate: an overwrite by filter writes only rows that its filter selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.cast import types
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.arrow import row_mask
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.expressions.tree import AlwaysFalse, AlwaysTrue, Column, Expression, predicates
from airflow_iceberg.format.schemas.schema import Schema


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCheck:
    """A predicate that every new row has to satisfy, bound to `schema`, and its text as the author wrote it."""

    row_filter: Expression
    text: str
    schema: Schema

    def check(self, rows: pa.Table, *, source: str, first_row: int) -> None:
        """Raise InvalidInputError for a row of which the predicate is false or null; the message shows the row.

        Args:
            rows: rows with the columns of the schema.
            source: the source of the rows, for messages.
            first_row: the number of the first row in the source.
        """
        if isinstance(self.row_filter, AlwaysTrue) or not rows.num_rows:
            return
        if isinstance(self.row_filter, AlwaysFalse):
            position = 0
        else:
            selected = pc.fill_null(row_mask(self.row_filter, lambda column: self._values(rows, column)), False)
            if pc.all(selected).as_py():
                return
            position = pc.index(selected, False).as_py()
        row = f"row {first_row + position} of {source}"
        raise does_not_match(row, self.text, self._shown(rows.slice(position, 1)))

    def _values(self, rows: pa.Table, column: Column) -> Any:
        path = column_path(self.schema, column.field_id or 0)
        assert path is not None, "the filter is bound to the schema"
        values = rows.column(path[0].name)
        return pc.struct_field(values, [step.name for step in path[1:]]) if len(path) > 1 else values

    def _shown(self, row: pa.Table) -> str:
        columns = {predicate.column.name: predicate.column for predicate in predicates(self.row_filter)}
        values = (
            f"{name} is {types.shown(self._values(row, column)[0], shown_value)}" for name, column in columns.items()
        )
        return ", ".join(values) or "no row does"


def does_not_match(row: str, text: str, shown: str) -> InvalidInputError:
    """Return the error for a row of which the filter is not true; `shown` has its values."""
    return InvalidInputError(
        f"{row} does not match the overwrite's filter {text!r}: {shown}; an overwrite writes only rows that it would "
        f"replace: correct the rows, widen the filter, or set check_filter=False to append them anyway"
    )


def shown_value(value: Any) -> str:
    """Return a value as messages show it."""
    return "null" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
