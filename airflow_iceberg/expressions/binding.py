"""Predicates: from SQL text or Python to a bound tree.

Here: `parse_filter`, which resolves names to field ids and makes literals canonical. Not here: the nodes and their
meaning (`tree`), literals (`literals`), SQL syntax (`sql`, which imports sqlglot), the Arrow form of a bound tree
(`arrow`), pruning (`projection`, `metrics`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from airflow_iceberg.errors import InvalidInputError, UnsupportedError, came
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.literals import bind_comparison, bind_in
from airflow_iceberg.expressions.matching import like_prefix
from airflow_iceberg.expressions.params import check_params
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema


def parse_filter(
    row_filter: str | tree.Expression | None,
    schema: Schema,
    case_sensitive: bool = True,
    params: Mapping[str, Any] | None = None,
) -> tree.Expression:
    """Return a predicate bound to the columns of a schema.

    Args:
        row_filter: SQL text in Spark's dialect, a tree built in Python, or None for every row. A tree that is bound
            already is returned as it is.
        case_sensitive: whether names must be spelled as in the schema.
        params: the values of the placeholders of the text, ``:name``, by name.
    Raises:
        NotFoundError: a column does not exist.
        InvalidInputError: the text is no predicate, or something in it cannot be compared.
        UnsupportedError: legal SQL that is not implemented.
    """
    return bind(parse(row_filter, params), schema, case_sensitive=case_sensitive)


def parse(row_filter: str | tree.Expression | None, params: Mapping[str, Any] | None = None) -> tree.Expression:
    """Return a predicate as it stands, its columns by name, and the values of its placeholders as literals.

    Raises:
        InvalidInputError: the text is no predicate, or its placeholders and their values do not fit each other.
        UnsupportedError: legal SQL that is not implemented; there is text, and sqlglot is not installed.
    """
    if isinstance(row_filter, str):
        return _parser()(row_filter, params)
    if check_params(params):
        raise InvalidInputError(
            f"predicate_params are the values of placeholders in SQL, and the filter is {row_filter!r}; leave them out"
        )
    if row_filter is None:
        return tree.ALWAYS_TRUE
    if not isinstance(row_filter, tree.Expression):
        raise InvalidInputError(f"expected a filter as SQL text or an expression, got {came(row_filter)}")
    return row_filter


def filter_text(row_filter: str | tree.Expression, params: Mapping[str, Any] | None) -> str:
    """Return a predicate with the values of its placeholders, for messages."""
    values = ", ".join(f"{name} is {value!r}" for name, value in check_params(params).items())
    return f"{row_filter} ({values})" if values else str(row_filter)


def _parser() -> Callable[[str, Mapping[str, Any] | None], tree.Expression]:
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


def bind(expression: tree.Expression, schema: Schema, *, case_sensitive: bool = True) -> tree.Expression:
    """Resolve columns, make literals canonical, move NOT inwards and fold constants; raises like `parse_filter`."""

    def bound(predicate: tree.Predicate) -> tree.Expression:
        if predicate.column.field_id is not None:
            return predicate
        return _bind_predicate(predicate, _bind_column(predicate.column.name, schema, case_sensitive))

    return tree.replace_predicates(tree.without_not(expression), bound)


def _bind_column(name: str, schema: Schema, case_sensitive: bool) -> tree.Column:
    field = schema.find_field(name, case_sensitive=case_sensitive)
    path = column_path(schema, field.id)
    if path is None:
        raise InvalidInputError(f"column '{name}' is inside a list or map and cannot be used in a filter")
    full_name = schema.find_name(field.id) or name
    return tree.Column(name=full_name, field_id=field.id, type=field.type, path=tuple(step.name for step in path))


def column_path(schema: Schema, field_id: int) -> tuple[t.NestedField, ...] | None:
    """Return the fields from a top-level column down to a field; None if it is unknown, or inside a list or map."""
    if field_id not in schema.fields_by_id:
        return None
    around = tuple(schema.ancestors(field_id))
    if not all(isinstance(field.type, t.StructType) for field in around):
        return None
    return *reversed(around), schema.fields_by_id[field_id]


def _bind_predicate(predicate: tree.Predicate, column: tree.Column) -> tree.Expression:
    match predicate:
        case tree.IsNull():
            return tree.IsNull(column)
        case tree.NotNull():
            return tree.NotNull(column)
        case tree.IsNan() | tree.NotNan():
            _check_type(column, (t.FloatType, t.DoubleType), "isnan() needs a float or double column")
            return tree.IsNan(column) if isinstance(predicate, tree.IsNan) else tree.NotNan(column)
    if isinstance(column.type, t.UnknownType):
        # Such a column holds only nulls, and null compared with anything is null.
        return tree.ALWAYS_FALSE
    if not isinstance(column.type, t.PrimitiveType) or isinstance(column.type, t.GEOSPATIAL):
        raise InvalidInputError(f"column '{column}' ({column.type}) cannot be compared; only IS [NOT] NULL is possible")
    match predicate:
        case tree.Comparison():
            return bind_comparison(predicate.op, column, predicate.literal)
        case tree.In() | tree.NotIn():
            return bind_in(column, predicate.literals, negated=isinstance(predicate, tree.NotIn))
    return _bind_pattern(predicate, column)


def _bind_pattern(predicate: tree.Predicate, column: tree.Column) -> tree.Expression:
    """Bind LIKE and startswith; the fixed beginning of a pattern becomes a predicate, since it can prune."""
    if isinstance(predicate, (tree.StartsWith, tree.NotStartsWith)):
        kind = t.BinaryType if isinstance(predicate.prefix, bytes) else t.StringType
        _check_type(column, (kind,), f"startswith() with {predicate.prefix!r} needs a {kind.name} column")
        return _starts_with(column, predicate.prefix, negated=isinstance(predicate, tree.NotStartsWith))
    if not isinstance(predicate, (tree.Like, tree.NotLike)):
        raise InvalidInputError(f"unknown predicate {type(predicate).__name__}")
    _check_type(column, (t.StringType,), "LIKE needs a string column")
    negated = isinstance(predicate, tree.NotLike)
    prefix, rest = like_prefix(predicate.pattern)
    if re.fullmatch(r"(?:[^\\]|\\.)*", predicate.pattern, re.DOTALL) is None:
        raise InvalidInputError(
            f"the pattern {predicate.pattern!r} of column '{column}' ends with the escape character"
        )
    if rest == "":
        return tree.Comparison("!=" if negated else "=", column, prefix)
    if set(rest) == {"%"}:
        return _starts_with(column, prefix, negated=negated)
    if negated:
        return tree.NotLike(column, predicate.pattern)
    like = tree.Like(column, predicate.pattern)
    return tree.all_of(tree.StartsWith(column, prefix), like) if prefix else like


def _starts_with(column: tree.Column, prefix: Any, *, negated: bool) -> tree.Expression:
    if not prefix:
        return tree.ALWAYS_FALSE if negated else tree.NotNull(column)
    return tree.NotStartsWith(column, prefix) if negated else tree.StartsWith(column, prefix)


def _check_type(column: tree.Column, kinds: tuple[type[t.IcebergType], ...], rule: str) -> None:
    if not isinstance(column.type, kinds):
        raise InvalidInputError(f"{rule}, '{column}' is {column.type}")
