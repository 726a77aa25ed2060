"""What queries need of the tables that they read: columns, and which rows.

    needs("select id from orders where day > '2026-01-01'", {"orders": schema}, dialect="spark")
    needs_of_all([Statement(text="o.id = source.id", dialect="spark", over=("o", "source"))], {"o": schema})

Here: what the texts of one task prove together. What they do not prove is read: all columns, all rows. A text itself is
run by an engine, on what was read, and stays as it is. Imports sqlglot, by `queries`. Not here: what one text proves
(`queries`); predicates of our own (`sql`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.queries.grammar import parsed, understood, used
from airflow_iceberg.expressions.queries.names import Names, lost_words, sources
from airflow_iceberg.expressions.queries.rows import VALUES, Rows
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.schemas.schema import Schema


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A text that an engine runs.

    Attributes:
        text: a query; with `over` an expression or a condition.
        dialect: "spark" or "duckdb".
        params: the values of its placeholders.
        over: the names of the tables whose rows an expression sees.
        others: the names of further tables that it may read, besides those whose columns are known.
    """

    text: str
    dialect: str
    params: Mapping[str, Any] | None = None
    over: tuple[str, ...] = ()
    others: Collection[str] = ()

    @property
    def query(self) -> str:
        return f"select (\n{self.text}\n) from {', '.join(self.over)}" if self.over else self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What is needed of a table.

    Attributes:
        columns: the names of top-level columns, in the order of the table; None for all.
        row_filter: a bound predicate that all rows satisfy which can be used.
    """

    columns: tuple[str, ...] | None = None
    row_filter: tree.Expression = tree.ALWAYS_TRUE


ALL = Need()


def tables_of(query: str, *, dialect: str) -> set[str] | None:
    """Return the names of the tables that a query reads, in small letters; None if its text is not understood.

    Args:
        dialect: "spark" or "duckdb".
    """
    found = parsed(query, dialect=dialect)
    return None if found is None else {table.name.lower() for table in found.find_all(sql.Table) if not table.db}


def needs(
    query: str,
    schemas: Mapping[str, Schema],
    *,
    params: Mapping[str, Any] | None = None,
    dialect: str,
    others: Collection[str] = (),
) -> dict[str, Need]:
    """Return what a query needs of tables, by their names; arguments as of `Statement` and `needs_of_all`."""
    return needs_of_all([Statement(text=query, dialect=dialect, params=params, others=others)], schemas)


def needs_of_all(statements: Iterable[Statement], schemas: Mapping[str, Schema]) -> dict[str, Need]:
    """Return what several texts need of tables, by their names: of each what any of them needs.

    Args:
        schemas: the tables' columns, by the names that the texts have for them.
    """
    found = [_understood(statement, schemas) for statement in statements]
    known = [one for one in found if one is not None]
    if len(known) < len(found) or not all(map(_is_named_plainly, schemas.values())):
        return dict.fromkeys(schemas, ALL)
    return {name: _need(known, fold(name), schema) for name, schema in schemas.items()}


@dataclass(frozen=True, slots=True)
class _Understood:
    """A text that is understood."""

    names: Names
    rows: Rows


def _understood(statement: Statement, schemas: Mapping[str, Schema]) -> _Understood | None:
    """Return what is found in a text; None if it may need anything."""
    try:
        found = understood(statement.query, dialect=statement.dialect)
        if found is None or (statement.over and not _is_expression(found, statement.over)):
            return None
        columns = {fold(name): frozenset(map(fold, _columns(schema))) for name, schema in schemas.items()}
        others = {fold(name) for name in (*statement.over, *statement.others)}
        # Spark has tables of its own besides, and DuckDB none: another name there may be one more for a table of these.
        lost = lost_words(statement.query, found, dialect=statement.dialect)
        names = Names(found, lost, columns, others, is_open=statement.dialect == "spark")
        return _Understood(names, Rows(found, names, statement.params or {})) if names.is_clear else None
    except (SqlglotError, RecursionError):
        return None


def _is_expression(query: sql.Query, over: tuple[str, ...]) -> bool:
    """Whether the text of an expression is one, and does not end the brackets that are put around it."""
    is_select = isinstance(query, sql.Select) and used(query).keys() <= {"expressions", "from", "joins"}
    return is_select and len(query.expressions) == 1 and [source.name for source, _ in sources(query)] == list(over)


def _need(found: list[_Understood], name: str, schema: Schema) -> Need:
    filters = [row_filter for one in found for row_filter in one.rows.of(name, schema)]
    if not filters:
        return ALL  # no text reads it
    used_columns: set[str] = set()
    for one in found:
        named = one.names.of(name)
        if named is None:
            return Need(row_filter=tree.any_of(*filters))
        used_columns |= named
    columns = tuple(column for column in _columns(schema) if fold(column) in used_columns)
    return Need(columns=columns or _smallest(schema), row_filter=tree.any_of(*filters))


def _smallest(schema: Schema) -> tuple[str, ...] | None:
    """Return a column to count rows by, for texts that need none."""
    return next(((field.name,) for field in schema.fields if type(field.type) in VALUES), None)


def _is_named_plainly(schema: Schema) -> bool:
    names = _columns(schema)
    return len(set(map(fold, names))) == len(names) and all(re.fullmatch(r"\w+", name) for name in names)


def _columns(schema: Schema) -> list[str]:
    return [field.name for field in schema.fields]
