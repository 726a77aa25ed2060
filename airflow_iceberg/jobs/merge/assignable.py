"""What the clauses of a merge or an update assign, checked by its types, before a row has it.

A value of a struct has all fields of the table, at every depth: a field that it lacks would become null in rows that
have a value there. So it is in Spark's store assignment. Names are matched as they are spelled, in any order. Not here:
values (`data.cast`), columns that a star needs (`jobs.merge.sql`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from airflow_iceberg.data.cast.types import decoded_type
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import INSERT, MergeClause
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import nested_fields
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.merge.sql import value_name

is_ = pa.types


def check_assignable(clauses: Sequence[MergeClause], values: pa.Schema, schema: Schema, *, dialect: str) -> None:
    """Check the types of all values that clauses assign.

    Args:
        clauses: with the table's own spelling of columns, without stars.
        values: the columns of the query of the changes, named as by `sql.value_name`.
        schema: the columns of the table.
    Raises:
        InvalidInputError: a struct without a field of the table, or with another one, at any depth; on Spark a text for
            a column of another type, which Spark casts by no assignment.
    """
    for number, clause in enumerate(clauses):
        for at, name in enumerate(clause.columns):
            value = _Value(clause, dialect)
            value.check(values.field(value_name(number, at)).type, schema.find_field(name).type, name)


class _Value:
    """A value that a clause assigns, whose parts are checked by their paths."""

    def __init__(self, clause: MergeClause, dialect: str) -> None:
        self._clause, self._dialect = clause, dialect

    def check(self, kind: pa.DataType, type_: t.IcebergType, path: str) -> None:
        kind = decoded_type(kind)
        if isinstance(type_, t.StructType) and is_.is_struct(kind):
            self._check_fields(kind, type_, path)
            for item in type_.fields:
                self.check(kind.field(item.name).type, item.type, f"{path}.{item.name}")
            return
        for inner, part, name in _parts(kind, type_):
            self.check(inner, part, f"{path}.{name}")
        takes_texts = self._dialect != "spark" or isinstance(type_, t.StringType | t.UUIDType)
        if is_.is_string(kind) and not takes_texts:
            raise InvalidInputError(
                f"column '{path}' is {type_}, and gets a text by the merge: cast it in the SQL, cast(… as {type_})"
            )

    def _check_fields(self, kind: pa.DataType, type_: t.StructType, path: str) -> None:
        names, known = [item.name for item in kind], [item.name for item in type_.fields]
        what = f"'{self._clause.action}' gives '{path}' a struct"
        both = f"the value has {', '.join(map(repr, names))}, and the table's {', '.join(map(repr, known))}"
        if "" in names:
            raise InvalidInputError(f"{what} of fields without names; the table's has {', '.join(map(repr, known))}")
        for name in (name for name in known if name not in names):
            near = next((other for other in names if fold(other) == fold(name)), None)
            if near is not None:
                raise InvalidInputError(f"{what} without '{path}.{name}': names are matched by case, and {both}")
            raise InvalidInputError(
                f"{what} without '{path}.{name}', which would become null: {both}; add the field to the value"
                f"{'' if self._clause.action == INSERT else ', or set the others by themselves'}"
            )
        for name in names:
            if name not in known:
                raise InvalidInputError(f"{what} with '{path}.{name}', which is not in the table: {both}; leave it out")
            if names.count(name) > 1:
                raise InvalidInputError(f"{what} that has '{path}.{name}' twice; leave one out")


def _parts(kind: pa.DataType, type_: t.IcebergType) -> Iterator[tuple[pa.DataType, t.IcebergType, str]]:
    """Yield the types of elements, keys and values, and what they are called in paths."""
    if isinstance(type_, t.ListType) and not is_.is_map(kind) and hasattr(kind, "value_type"):
        yield kind.value_type, type_.element, "element"
    elif isinstance(type_, t.MapType) and is_.is_map(kind):
        key, value = (field.type for field in nested_fields(kind))
        yield from ((key, type_.key, "key"), (value, type_.value, "value"))
