"""Predicates as JSON: how they travel in the plan of a job, so that whoever reads it need not know SQL.

Here: a tree to plain values and back, bound or not. A bound column is found again by its field id, a column that is not
bound keeps its name alone. Not here: the nodes (`expressions`), binding (`filters`), SQL text (`filter_parser`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.expressions.literals import TypedText

if TYPE_CHECKING:
    from airflow_iceberg.format.schemas.schema import Schema

_CONSTANTS: Mapping[type[tree.Expression], str] = {
    tree.AlwaysTrue: "true",
    tree.AlwaysFalse: "false",
    tree.AlwaysNull: "null",
}
_UNARY: Mapping[type[tree.Predicate], str] = {
    tree.IsNull: "is-null",
    tree.NotNull: "not-null",
    tree.IsNan: "is-nan",
    tree.NotNan: "not-nan",
}
_SETS: Mapping[type[tree.Predicate], str] = {tree.In: "in", tree.NotIn: "not-in"}
_PREFIXES: Mapping[type[tree.Predicate], str] = {tree.StartsWith: "starts-with", tree.NotStartsWith: "not-starts-with"}
_PATTERNS: Mapping[type[tree.Predicate], str] = {tree.Like: "like", tree.NotLike: "not-like"}

# In the order in which they are asked: a bool is an int, and a datetime is a date.
_LITERALS: tuple[tuple[str, type, Callable[..., str], Callable[..., Any]], ...] = (
    ("boolean", bool, lambda value: str(value).lower(), lambda text: {"true": True, "false": False}[text]),
    ("int", int, str, int),
    ("float", float, repr, float),
    ("decimal", Decimal, str, Decimal),
    ("string", str, str, str),
    ("bytes", bytes, bytes.hex, bytes.fromhex),
    ("bytes", bytearray, bytearray.hex, bytes.fromhex),
    ("uuid", UUID, str, UUID),
    ("datetime", datetime, datetime.isoformat, datetime.fromisoformat),
    ("date", date, date.isoformat, date.fromisoformat),
    ("time", time, time.isoformat, time.fromisoformat),
)
_TYPED_TEXT = "text-of-"


def expression_to_json(expression: tree.Expression) -> dict[str, Any]:
    """Return a predicate as plain values.

    Raises:
        InvalidInputError: a literal that has no JSON form.
    """
    match expression:
        case tree.AlwaysTrue() | tree.AlwaysFalse() | tree.AlwaysNull():
            return {"is": _CONSTANTS[type(expression)]}
        case tree.And() | tree.Or():
            word = "and" if isinstance(expression, tree.And) else "or"
            return {"is": word, "of": [expression_to_json(child) for child in expression.operands]}
        case tree.Not(operand):
            return {"is": "not", "of": [expression_to_json(operand)]}
        case tree.Predicate():
            return _predicate_to_json(expression, _column_to_json(expression.column))
    raise InvalidInputError(f"unknown predicate {type(expression).__name__}")


def _predicate_to_json(predicate: tree.Predicate, column: dict[str, Any]) -> dict[str, Any]:
    match predicate:
        case tree.Comparison():
            return {"is": predicate.op, "column": column, "literals": [_literal_to_json(predicate.literal)]}
        case tree.In() | tree.NotIn():
            literals = [_literal_to_json(literal) for literal in predicate.literals]
            return {"is": _SETS[type(predicate)], "column": column, "literals": literals}
        case tree.StartsWith() | tree.NotStartsWith():
            return {
                "is": _PREFIXES[type(predicate)],
                "column": column,
                "literals": [_literal_to_json(predicate.prefix)],
            }
        case tree.Like() | tree.NotLike():
            return {
                "is": _PATTERNS[type(predicate)],
                "column": column,
                "literals": [_literal_to_json(predicate.pattern)],
            }
    return {"is": _UNARY[type(predicate)], "column": column}


def _column_to_json(column: tree.Column) -> dict[str, Any]:
    return {"name": column.name, "id": column.field_id}


def _literal_to_json(literal: Any) -> list[str] | None:
    if literal is None:
        return None
    if isinstance(literal, TypedText):
        return [_TYPED_TEXT + literal.kind, literal.text]
    for name, kind, to_text, _ in _LITERALS:
        if isinstance(literal, kind):
            return [name, to_text(literal)]
    raise InvalidInputError(
        f"the literal {literal!r} of a filter is a {type(literal).__name__}, which a job's plan cannot hold; "
        f"expected a number, text, bytes, a truth value, a date, a time or a uuid"
    )


def expression_from_json(document: Any, schema: Schema, *, path: str | None = None) -> tree.Expression:
    """Return the predicate of its JSON form.

    Args:
        schema: that bound columns are of.
        path: where it was read from, for errors.
    Raises:
        FormatError: not a predicate, or one about columns that the schema does not have.
    """
    try:
        return _from_json(document, schema)
    except IcebergError as error:
        raise FormatError(f"broken predicate: {error}", path=path) from error
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise FormatError(f"broken predicate {str(document)[:200]}: {error!r}", path=path) from error


def _from_json(document: Any, schema: Schema) -> tree.Expression:
    word = document["is"]
    if word in ("and", "or", "not"):
        children = [_from_json(child, schema) for child in document["of"]]
        return tree.Not(*children) if word == "not" else tree.And(*children) if word == "and" else tree.Or(*children)
    if "column" not in document:
        return {"true": tree.ALWAYS_TRUE, "false": tree.ALWAYS_FALSE, "null": tree.AlwaysNull()}[word]
    column = _column_from_json(document["column"], schema)
    for kind, name in _UNARY.items():
        if name == word:
            return kind(column)
    literals = tuple(_literal_from_json(literal) for literal in document["literals"])
    for kind, name in _SETS.items():
        if name == word:
            return kind(column, literals)  # type: ignore[call-arg]
    (literal,) = literals
    for kind, name in {**_PREFIXES, **_PATTERNS}.items():
        if name == word:
            return kind(column, literal)  # type: ignore[call-arg]
    return tree.Comparison(word, column, literal)


def _column_from_json(document: Any, schema: Schema) -> tree.Column:
    name, field_id = document["name"], document["id"]
    if field_id is None:
        return tree.Column(name)
    steps = column_path(schema, field_id)
    if steps is None:
        raise InvalidInputError(f"column '{name}' with id {field_id} is not in the schema of the plan")
    return tree.Column(name=name, field_id=field_id, type=steps[-1].type, path=tuple(step.name for step in steps))


def _literal_from_json(document: Any) -> Any:
    if document is None:
        return None
    kind, text = document
    if kind.startswith(_TYPED_TEXT):
        return TypedText(kind.removeprefix(_TYPED_TEXT), text)
    return {name: from_text for name, _, _, from_text in _LITERALS}[kind](text)
