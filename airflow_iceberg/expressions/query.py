"""What a query needs of the tables that it reads: columns, and which rows. Imports sqlglot.

Here: what the text of a query proves. What it does not prove is read: all columns, all rows. The query itself is run by
an engine, on what was read, and stays as it is. Not here: predicates of our own (`sql`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.binding import bind
from airflow_iceberg.expressions.literals import TypedText
from airflow_iceberg.expressions.sql import parse_sql
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema

# What may ask for columns or rows that are not in the text.
_OPAQUE = (
    *(sql.Lateral, sql.Pivot, sql.TableSample, sql.QueryTransform, sql.Command, sql.MatchRecognize, sql.Version),
    sql.Columns,
)
# Engines compare such values with columns of these types as `expressions` does; floats have other precisions.
_MOMENTS = (t.TimestampType, t.TimestamptzType)
_VALUES: Mapping[type, tuple[type, ...]] = {
    t.BooleanType: (bool,),
    **dict.fromkeys((t.IntegerType, t.LongType, t.DecimalType), (int, Decimal)),
    t.StringType: (str,),
    t.DateType: (date,),
    **dict.fromkeys(_MOMENTS, (date,)),
}
# And texts, where they are written so. Engines round other ones, or compare a decimal with a text as floats.
_TEXTS: Mapping[type, str] = {
    **dict.fromkeys((t.IntegerType, t.LongType), r"-?\d{1,18}"),
    t.DateType: r"\d{4}-\d\d-\d\d",
    **dict.fromkeys(_MOMENTS, r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?"),
}
_CASTS = ("date", "timestamp", "timestamptz", "timestampltz", "timestampntz")


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What a query needs of a table.

    Attributes:
        columns: the names of top-level columns, in the order of the table; None for all.
        row_filter: a bound predicate that all rows satisfy which the query can use.
    """

    columns: tuple[str, ...] | None = None
    row_filter: tree.Expression = tree.ALWAYS_TRUE


ALL = Need()


def tables_of(query: str, *, dialect: str) -> set[str] | None:
    """Return the names of the tables that a query reads, in small letters; None if its text is not understood.

    Args:
        dialect: "spark" or "duckdb".
    """
    found = _parse(query, dialect)
    return None if found is None else {table.name.lower() for table in found.find_all(sql.Table) if not table.db}


def needs(
    query: str, schemas: Mapping[str, Schema], *, params: Mapping[str, Any] | None = None, dialect: str
) -> dict[str, Need]:
    """Return what a query needs of tables, by their names.

    Args:
        schemas: the tables' columns, by the names that the query has for them.
        params: the values of the query's placeholders.
        dialect: "spark" or "duckdb".
    """
    try:
        scopes = _scopes(query, schemas, dialect)
    except (SqlglotError, RecursionError):
        return dict.fromkeys(schemas, ALL)
    reader = _Reader(params or {}, _unresolved(scopes))
    return {name: reader.need(_references(scopes, name), schema) for name, schema in schemas.items()}


def _parse(query: str, dialect: str) -> sql.Query | None:
    try:
        statements = sqlglot.parse(query, read=dialect)
    except (SqlglotError, RecursionError):
        return None
    return statements[0] if len(statements) == 1 and isinstance(statements[0], sql.Query) else None


def _scopes(query: str, schemas: Mapping[str, Schema], dialect: str) -> list[Scope]:
    """Return the scopes of a query, its columns with the names of their tables; none if something is not proved."""
    found = _parse(query, dialect)
    known = {name.lower(): dict.fromkeys(map(str.lower, _columns(each)), "unknown") for name, each in schemas.items()}
    if found is None or not _is_plain(found, schemas):
        return []
    resolved = qualify(
        found,
        dialect=dialect,
        schema=known,
        # Engines take a name in WHERE for a column, before they take it for an alias.
        expand_alias_refs=False,
        quote_identifiers=False,
        identify=False,
    )
    scopes = list(traverse_scope(resolved))
    read = {id(table) for scope in scopes for table in scope.sources.values() if isinstance(table, sql.Table)}
    ctes = {cte.alias.lower() for cte in resolved.find_all(sql.CTE)}
    named = [table for table in resolved.find_all(sql.Table) if table.name.lower() not in ctes]
    return scopes if all(id(table) in read for table in named) else []


def _is_plain(query: sql.Query, schemas: Mapping[str, Schema]) -> bool:
    """Whether each column that the query needs is named, or meant by a star, and no name means two things."""
    ctes = {cte.alias.lower() for cte in query.find_all(sql.CTE)}
    if query.find(*_OPAQUE) or ctes & {name.lower() for name in schemas}:
        return False
    # NATURAL joins by columns that are not named; for ASOF and POSITIONAL it matters which other rows there are.
    if any(join.method or join.kind == "POSITIONAL" for join in query.find_all(sql.Join)):
        return False
    if any(star.args.get("except_") or star.args.get("replace") or star.args.get("rename") for star in _stars(query)):
        return False
    if not all(isinstance(_holder(star), sql.Select | sql.Count) and not _is_distinct(star) for star in _stars(query)):
        return False
    return all(_is_named_plainly(schema) for schema in schemas.values())


def _stars(query: sql.Query) -> Iterator[sql.Star]:
    found: Iterator[sql.Star] = query.find_all(sql.Star)
    return found


def _holder(star: sql.Star) -> sql.Expression | None:
    """Return what a star is in, `t.*` as a whole."""
    return star.parent.parent if isinstance(star.parent, sql.Column) else star.parent


def _is_distinct(star: sql.Star) -> bool:
    return isinstance(star.parent, sql.Distinct)


def _is_named_plainly(schema: Schema) -> bool:
    names = _columns(schema)
    return len({name.lower() for name in names}) == len(names) and all(re.fullmatch(r"\w+", name) for name in names)


def _columns(schema: Schema) -> list[str]:
    return [field.name for field in schema.fields]


def _references(scopes: Iterable[Scope], name: str) -> list[tuple[Scope, str]]:
    """Return each place where a query reads a table: its scope, and the table's name there."""
    return [
        (scope, alias)
        for scope in scopes
        for alias, source in scope.sources.items()
        if isinstance(source, sql.Table) and not source.db and source.name.lower() == name.lower()
    ]


def _unresolved(scopes: Iterable[Scope]) -> set[str]:
    """Return the names of columns whose table sqlglot does not tell, such as those in QUALIFY."""
    found = (column for scope in scopes for column in scope.expression.find_all(sql.Column))
    return {column.name.lower() for column in found if not column.table}


class _Reader:
    """Finds what a query needs of one table.

    Args:
        params: the values of the query's placeholders.
        unresolved: the names of columns that may be those of any table.
    """

    def __init__(self, params: Mapping[str, Any], unresolved: set[str]) -> None:
        self._params = params
        self._unresolved = unresolved

    def need(self, references: list[tuple[Scope, str]], schema: Schema) -> Need:
        if not references:
            return ALL
        used = {column.name.lower() for scope, alias in references for column in scope.source_columns(alias)}
        used |= self._unresolved & {name.lower() for name in _columns(schema)}
        columns = tuple(name for name in _columns(schema) if name.lower() in used)
        if len(columns) != len(used):
            return ALL  # a name that the table does not have: the engine says so
        filters = [self._filter(scope, alias, schema) for scope, alias in references]
        return Need(columns=columns or self._smallest(schema), row_filter=tree.any_of(*filters))

    def _smallest(self, schema: Schema) -> tuple[str, ...] | None:
        """Return a column to count rows by, for a query that needs none."""
        return next(((field.name,) for field in schema.fields if type(field.type) in _VALUES), None)

    def _filter(self, scope: Scope, alias: str, schema: Schema) -> tree.Expression:
        """Return what WHERE asks of the rows of a table, for one reference to it."""
        select = scope.expression
        where = select.args.get("where") if isinstance(select, sql.Select) else None
        if where is None or not _is_kept(select, alias):
            return tree.ALWAYS_TRUE
        parts = where.this.flatten() if isinstance(where.this, sql.And) else [where.this]
        return tree.all_of(*(found for part in parts if (found := self._predicate(part, alias, schema)) is not None))

    def _predicate(self, part: sql.Expression, alias: str, schema: Schema) -> tree.Expression | None:
        """Return a part of WHERE as a predicate on one table; None if it is none."""
        columns = list(part.find_all(sql.Column))
        if not columns or any(column.table != alias for column in columns) or part.find(sql.Query):
            return None
        named = part.copy()
        for column in named.find_all(sql.Column):
            column.set("table", None)
        if any("\\" in text.this for text in named.find_all(sql.Literal) if text.is_string):
            return None  # what a backslash means differs
        if _has_floats(named):
            return None
        names = {found.this for found in named.find_all(sql.Placeholder) if isinstance(found.this, str)}
        try:
            params = {name: self._params[name] for name in names}
            found = parse_sql(named.sql("spark"), params or None)
            is_alike = all(_is_compared_alike(each, schema) for each in tree.predicates(found))
            return bind(found, schema, case_sensitive=False) if is_alike else None
        except (IcebergError, SqlglotError, KeyError):
            return None


def _is_kept(select: sql.Select, alias: str) -> bool:
    """Whether a row of a table that WHERE does not select can be left out before the joins.

    Not before a join that makes up rows of nulls for those that are not there: `where x is null` would find them.
    """
    joins = select.args.get("joins") or []
    if any(join.side in ("RIGHT", "FULL") for join in joins):
        return False
    mine = [join for join in joins if join.alias_or_name == alias]
    return all(not join.side and join.kind in ("", "INNER", "CROSS") for join in mine)


def _has_floats(part: sql.Expression) -> bool:
    """Whether a number is a float, with which engines compare other numbers as floats, too."""
    numbers = (number.this.lower() for number in part.find_all(sql.Literal) if not number.is_string)
    casts = part.find_all(sql.Cast)  # `date '2026-01-01'` is one
    return any("e" in number for number in numbers) or not all(cast.is_type(*_CASTS) for cast in casts)


def _is_compared_alike(predicate: tree.Predicate, schema: Schema) -> bool:
    """Whether engines compare the values of a column with these literals as `expressions` does."""
    kind = schema.find_field(predicate.column.name, case_sensitive=False).type
    match predicate:
        case tree.Comparison(literal=literal):
            return _is_plain_value(literal, kind)
        case tree.In(literals=literals) | tree.NotIn(literals=literals):
            return all(_is_plain_value(literal, kind) for literal in literals)
        case tree.IsNull() | tree.NotNull():
            return True
        case tree.StartsWith(prefix=text) | tree.NotStartsWith(prefix=text):
            return isinstance(kind, t.StringType) and "\\" not in text
        case tree.Like(pattern=text) | tree.NotLike(pattern=text):
            return isinstance(kind, t.StringType) and "\\" not in text
        case _:
            return False


def _is_plain_value(value: object, kind: t.IcebergType) -> bool:
    """Whether a literal is a value of the type for every engine; a text may be cast in many ways."""
    text = value.text if isinstance(value, TypedText) else value
    if type(kind) in _TEXTS and isinstance(text, str):
        return re.fullmatch(_TEXTS[type(kind)], text) is not None
    if isinstance(value, bool) and not isinstance(kind, t.BooleanType):
        return False
    if isinstance(value, datetime) and isinstance(kind, t.DateType):
        return False
    return isinstance(value, _VALUES.get(type(kind), ()))
