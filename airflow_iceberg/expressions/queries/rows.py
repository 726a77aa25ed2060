"""Which rows of a table a query leaves out: a predicate that each row satisfies which it can use.

    where o.id > 3 and o.id = r.id      ->      id > 3, for the table that is called o

A part of WHERE counts if it compares columns of one table with literals as all engines and `expressions` do, and if no
join before it makes up rows of nulls, or keeps rows that are missing, where the table's rows are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.binding import bind
from airflow_iceberg.expressions.literals import TypedText
from airflow_iceberg.expressions.queries.grammar import argument, joins_of, kind_of
from airflow_iceberg.expressions.queries.names import Names, sources
from airflow_iceberg.expressions.sql import parse_sql
from airflow_iceberg.format import types as t
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.schemas.schema import Schema

# What a condition may consist of.
_CONDITIONS = frozenset(
    (
        *(sql.And, sql.Or, sql.Not, sql.Paren, sql.EQ, sql.NEQ, sql.LT, sql.LTE, sql.GT, sql.GTE),
        *(sql.NullSafeEQ, sql.NullSafeNEQ, sql.Is, sql.In, sql.Between, sql.Like, sql.StartsWith),
        *(
            sql.Column,
            sql.Identifier,
            sql.Literal,
            sql.Boolean,
            sql.Null,
            sql.Neg,
            sql.Placeholder,
            sql.Cast,
            sql.DataType,
        ),
    )
)
# Joins that keep a row of the left side as it is, or leave it out, whatever rows are beside it there.
_KEEPS_LEFT = frozenset(
    (side, kind)
    for side, kinds in {"": ("", "INNER", "CROSS", "SEMI", "ANTI"), "LEFT": ("", "OUTER", "SEMI", "ANTI")}.items()
    for kind in kinds
)
# Those that do so with a row of the right side.
_KEEPS_RIGHT = frozenset([("", ""), ("", "INNER"), ("", "CROSS")])
# Engines compare such values with columns of these types as `expressions` does; floats have other precisions.
_MOMENTS = (t.TimestampType, t.TimestamptzType)
VALUES: Mapping[type, tuple[type, ...]] = {
    t.BooleanType: (bool,),
    **dict.fromkeys((t.IntegerType, t.LongType, t.DecimalType), (int, Decimal)),
    t.StringType: (str,),
    t.DateType: (date,),
    **dict.fromkeys(_MOMENTS, (date,)),
}
# And texts, where they are written so. Engines round other ones, take those that are too large for nulls, or compare a
# decimal with a text as floats.
_TEXTS: Mapping[type, str] = {
    t.IntegerType: r"-?\d{1,9}",
    t.LongType: r"-?\d{1,18}",
    t.DateType: r"\d{4}-\d\d-\d\d",
    **dict.fromkeys(_MOMENTS, r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?"),
}
# And in a list, where Spark compares them with the column's value as a text: those that are written as Spark does.
_LISTED_TEXTS: Mapping[type, str] = {
    t.IntegerType: r"0|-?[1-9]\d{0,8}",
    t.LongType: r"0|-?[1-9]\d{0,17}",
    t.DateType: r"\d{4}-\d\d-\d\d",
}
_CASTS = ("date", "timestamp", "timestamptz", "timestampltz", "timestampntz")


class Rows:
    """Finds what a query asks of the rows of one table.

    Args:
        names: the names in the query.
        params: the values of the query's placeholders.
    """

    def __init__(self, statement: sql.Query, names: Names, params: Mapping[str, Any]) -> None:
        self._statement = statement
        self._names = names
        self._params = params

    def of(self, name: str, schema: Schema) -> Iterator[tree.Expression]:
        """Yield what each place that reads a table asks of its rows."""
        for table in self._statement.find_all(sql.Table):
            if fold(table.name) == name:
                yield self._filter(table, schema)

    def _filter(self, table: sql.Table, schema: Schema) -> tree.Expression:
        select = table.parent.parent
        where = argument(select, "where")
        if where is None or not _is_kept(select, table):
            return tree.ALWAYS_TRUE
        place = _Place(select, table, schema, self._names)
        return tree.all_of(
            *(found for part in _parts(where.this) if (found := self._predicate(part, place)) is not None)
        )

    def _predicate(self, part: sql.Expression, place: _Place) -> tree.Expression | None:
        """Return a part of WHERE as a predicate on one table; None if it is none."""
        named = sql.Paren(this=part.copy())
        if not all(type(node) in _CONDITIONS for node in named.walk()) or named.find(sql.Column) is None:
            return None
        for column in list(named.find_all(sql.Column)):
            path = place.path(column)
            if path is None:
                return None
            column.replace(sql.column(*reversed(path), quoted=True))
        if any("\\" in text.this for text in named.find_all(sql.Literal) if text.is_string):
            return None  # what a backslash means differs
        if _has_floats(named):
            return None
        given = {found.this for found in named.find_all(sql.Placeholder) if isinstance(found.this, str)}
        try:
            params = {name: self._params[name] for name in given}
            found = parse_sql(named.sql("spark"), params or None)
            is_alike = all(_is_compared_alike(each, place.schema) for each in tree.predicates(found))
            return bind(found, place.schema, case_sensitive=False) if is_alike else None
        except (IcebergError, SqlglotError, KeyError):
            return None


class _Place:
    """A table in the FROM of a SELECT, and what its columns are called there."""

    def __init__(self, select: sql.Select, table: sql.Table, schema: Schema, names: Names) -> None:
        self.schema = schema
        self._names = names
        self._alias = fold(table.alias_or_name)
        beside = [source for source, _ in sources(select) if source is not table]
        self._is_only = all(fold(source.alias_or_name) != self._alias for source in beside)
        self._columns = {fold(field.name) for field in schema.fields}
        # A name that several of them have is an error, unless it is in USING, or of a join that shows one side.
        self._others = {column for source in beside for column in names.columns_of(source)}
        self._others |= {fold(name.name) for join in joins_of(select) for name in join.args.get("using") or ()}

    def path(self, column: sql.Column) -> list[str] | None:
        """Return the names of a column of the table and of fields in it; None if it may be another one."""
        parts = [part.name for part in column.parts]
        first = fold(parts[0])
        if any(fold(part) in self._names.tables for part in parts[1:-1]):
            return None  # the first one may be a schema
        is_alias, is_column = first in self._names.tables, self._names.is_column(first)
        if is_alias and not is_column:
            is_mine = first == self._alias and self._is_only and len(parts) > 1
            return parts[1:] if is_mine and fold(parts[1]) in self._columns else None
        if is_alias or first in self._others or first not in self._columns:
            return None
        return parts


def _parts(condition: sql.Expression) -> Iterator[sql.Expression]:
    """Yield the parts of a condition that are joined by AND."""
    condition = condition.unnest()
    if not isinstance(condition, sql.And):
        yield condition
        return
    for part in condition.flatten():
        yield from _parts(part)


def _is_kept(select: sql.Select, table: sql.Table) -> bool:
    """Whether a row of a table that WHERE does not select can be left out before the joins.

    Not before a join that makes up rows of nulls for those that are not there: `where x is null` would find them.
    """
    joins = joins_of(select)
    mine = [join for join in joins if join.this is table]
    return all(kind_of(join) in _KEEPS_LEFT for join in joins) and all(kind_of(join) in _KEEPS_RIGHT for join in mine)


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
            return _is_plain_value(literal, kind, _TEXTS)
        case tree.In(literals=literals) | tree.NotIn(literals=literals):
            # Beside a text, Spark may compare numbers, too, as texts: 2.0 is another one than 2.
            is_mixed = len({isinstance(literal, str) for literal in literals}) > 1
            return not is_mixed and all(_is_plain_value(literal, kind, _LISTED_TEXTS) for literal in literals)
        case tree.IsNull() | tree.NotNull():
            return True
        case tree.StartsWith(prefix=text) | tree.NotStartsWith(prefix=text):
            return isinstance(kind, t.StringType) and "\\" not in text
        case tree.Like(pattern=text) | tree.NotLike(pattern=text):
            return isinstance(kind, t.StringType) and "\\" not in text
        case _:
            return False


def _is_plain_value(value: object, kind: t.IcebergType, texts: Mapping[type, str]) -> bool:
    """Whether a literal is a value of the type for every engine; a text may be cast in many ways.

    Args:
        texts: how texts that stand for values of other types are written, by the types.
    """
    text = value.text if isinstance(value, TypedText) else value
    if isinstance(text, str) and not isinstance(kind, t.StringType):
        written = _TEXTS if isinstance(value, TypedText) else texts
        return type(kind) in written and re.fullmatch(written[type(kind)], text) is not None
    if isinstance(value, bool) and not isinstance(kind, t.BooleanType):
        return False
    if isinstance(value, datetime) and isinstance(kind, t.DateType):
        return False
    if isinstance(value, int | Decimal) and not -_end_of(kind) < value < _end_of(kind):
        # `null <= 9223372036854775808` is true for Spark 4.2, which leaves the comparison out.
        return False
    return isinstance(value, VALUES.get(type(kind), ()))


def _end_of(kind: t.IcebergType) -> int:
    """Return a number that is larger than all of a type."""
    match kind:
        case t.DecimalType():
            return int(10 ** (kind.precision - kind.scale))
        case t.IntegerType():
            return 1 << 31
        case _:
            return 1 << 63
