"""Predicates: from SQL text or Python to a bound tree.

Here: `parse_filter`, which resolves names to field ids and makes literals canonical. Not here: the nodes and their
meaning (`tree`), literals (`literals`), SQL syntax (`sql`, which imports sqlglot), the Arrow form of a bound tree
(`arrow`), pruning (`projection`, `metrics`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.literals import bind_comparison, bind_in
from airflow_iceberg.expressions.matching import like_prefix
from airflow_iceberg.expressions.tree import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    AlwaysNull,
    And,
    Column,
    Comparison,
    Expression,
    In,
    IsNan,
    IsNull,
    Like,
    NotIn,
    NotLike,
    NotNan,
    NotNull,
    NotStartsWith,
    Or,
    Predicate,
    StartsWith,
    all_of,
    any_of,
    without_not,
)
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import (
    BinaryType,
    DoubleType,
    FloatType,
    IcebergType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UnknownType,
    VariantType,
)


def parse_filter(row_filter: str | Expression | None, schema: Schema, case_sensitive: bool = True) -> Expression:
    """Return a predicate bound to the columns of a schema.

    Args:
        row_filter: SQL text in Spark's dialect, a tree built in Python, or None for every row. A tree that is bound
            already is returned as it is.
        case_sensitive: whether names must be spelled as in the schema.
    Raises:
        NotFoundError: a column does not exist.
        InvalidInputError: the text is no predicate, or something in it cannot be compared.
        UnsupportedError: legal SQL that is not implemented.
    """
    return bind(parse(row_filter), schema, case_sensitive=case_sensitive)


def parse(row_filter: str | Expression | None) -> Expression:
    """Return a predicate as it stands, its columns by name.

    Raises:
        InvalidInputError: the text is no predicate.
        UnsupportedError: legal SQL that is not implemented; there is text, and sqlglot is not installed.
    """
    if row_filter is None:
        return ALWAYS_TRUE
    if isinstance(row_filter, str):
        return _parser()(row_filter)
    if not isinstance(row_filter, Expression):
        raise InvalidInputError(f"expected a filter as SQL text or an expression, got {type(row_filter).__name__}")
    return row_filter


def _parser() -> Callable[[str], Expression]:
    try:  # sqlglot is heavy, and not everywhere
        from airflow_iceberg.expressions.sql import parse_sql
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sqlglot":
            raise
        raise UnsupportedError(
            "a predicate in SQL is read by sqlglot, which is not installed here: install it, or build the predicate "
            "of airflow_iceberg.expressions.tree, such as Comparison('>', 'amount', 10)"
        ) from error
    return parse_sql


def bind(expression: Expression, schema: Schema, *, case_sensitive: bool = True) -> Expression:
    """Resolve columns, make literals canonical, move NOT inwards and fold constants.

    Raises:
        NotFoundError, InvalidInputError, UnsupportedError: as `parse_filter`.
    """
    return _bind(without_not(expression), schema, case_sensitive)


def _bind(expression: Expression, schema: Schema, case_sensitive: bool) -> Expression:
    match expression:
        case And():
            return all_of(*(_bind(child, schema, case_sensitive) for child in expression.operands))
        case Or():
            return any_of(*(_bind(child, schema, case_sensitive) for child in expression.operands))
        case AlwaysNull():
            return ALWAYS_FALSE
        case Predicate():
            if expression.column.field_id is not None:
                return expression
            return _bind_predicate(expression, _bind_column(expression.column.name, schema, case_sensitive))
    return expression


def _bind_column(name: str, schema: Schema, case_sensitive: bool) -> Column:
    field = schema.find_field(name, case_sensitive=case_sensitive)
    path = column_path(schema, field.id)
    if path is None:
        raise InvalidInputError(f"column '{name}' lies inside a list or map and cannot be filtered by")
    full_name = schema.find_name(field.id) or name
    return Column(name=full_name, field_id=field.id, type=field.type, path=tuple(step.name for step in path))


def column_path(schema: Schema, field_id: int) -> tuple[NestedField, ...] | None:
    """Return the fields from a top-level column down through structs to a field, None if no structs lead there."""

    def search(fields: Sequence[NestedField]) -> tuple[NestedField, ...] | None:
        for field in fields:
            if field.id == field_id:
                return (field,)
            below = search(field.type.fields) if isinstance(field.type, StructType) else None
            if below is not None:
                return (field, *below)
        return None

    return search(schema.fields)


def _bind_predicate(predicate: Predicate, column: Column) -> Expression:
    match predicate:
        case IsNull():
            return IsNull(column)
        case NotNull():
            return NotNull(column)
        case IsNan() | NotNan():
            _check_type(column, (FloatType, DoubleType), "isnan() needs a float or double column")
            return IsNan(column) if isinstance(predicate, IsNan) else NotNan(column)
    if isinstance(column.type, UnknownType):
        # Nothing but null can be in such a column, and null compared with anything is null.
        return ALWAYS_FALSE
    if not isinstance(column.type, PrimitiveType) or isinstance(column.type, VariantType):
        raise InvalidInputError(f"column '{column}' ({column.type}) cannot be compared; only IS [NOT] NULL is possible")
    match predicate:
        case Comparison():
            return bind_comparison(predicate.op, column, predicate.literal)
        case In() | NotIn():
            return bind_in(column, predicate.literals, negated=isinstance(predicate, NotIn))
    return _bind_pattern(predicate, column)


def _bind_pattern(predicate: Predicate, column: Column) -> Expression:
    """Bind LIKE and startswith; a pattern gives its fixed beginning away, since that can prune."""
    if isinstance(predicate, (StartsWith, NotStartsWith)):
        kind = BinaryType if isinstance(predicate.prefix, bytes) else StringType
        _check_type(column, (kind,), f"startswith() with {predicate.prefix!r} needs a {kind.name} column")
        return _starts_with(column, predicate.prefix, negated=isinstance(predicate, NotStartsWith))
    if not isinstance(predicate, (Like, NotLike)):
        raise InvalidInputError(f"unknown predicate {type(predicate).__name__}")
    _check_type(column, (StringType,), "LIKE needs a string column")
    negated = isinstance(predicate, NotLike)
    prefix, rest = like_prefix(predicate.pattern)
    if re.fullmatch(r"(?:[^\\]|\\.)*", predicate.pattern, re.DOTALL) is None:
        raise InvalidInputError(
            f"the pattern {predicate.pattern!r} of column '{column}' ends with the escape character"
        )
    if rest == "":
        return Comparison("!=" if negated else "=", column, prefix)
    if set(rest) == {"%"}:
        return _starts_with(column, prefix, negated=negated)
    if negated:
        return NotLike(column, predicate.pattern)
    like = Like(column, predicate.pattern)
    return all_of(StartsWith(column, prefix), like) if prefix else like


def _starts_with(column: Column, prefix: Any, *, negated: bool) -> Expression:
    if not prefix:
        return ALWAYS_FALSE if negated else NotNull(column)
    return NotStartsWith(column, prefix) if negated else StartsWith(column, prefix)


def _check_type(column: Column, kinds: tuple[type[IcebergType], ...], rule: str) -> None:
    if not isinstance(column.type, kinds):
        raise InvalidInputError(f"{rule}, '{column}' is {column.type}")
