"""Predicates as JSON, for the plan of a job: a job that reads its plan needs no SQL parser.

Here: a tree to plain values and back, bound or not. A bound column is found again by its field id, a column that is not
bound keeps its name alone. Not here: the nodes (`tree`), binding (`binding`), SQL text (`sql`).
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
from airflow_iceberg.expressions.literals import BoundText, TypedText

if TYPE_CHECKING:
    from airflow_iceberg.format.schemas.schema import Schema

_NAMES: Mapping[type[tree.Expression], str] = {
    tree.AlwaysTrue: "true",
    tree.AlwaysFalse: "false",
    tree.AlwaysNull: "null",
    tree.And: "and",
    tree.Or: "or",
    tree.Not: "not",
    tree.IsNull: "is-null",
    tree.NotNull: "not-null",
    tree.IsNan: "is-nan",
    tree.NotNan: "not-nan",
    tree.In: "in",
    tree.NotIn: "not-in",
    tree.StartsWith: "starts-with",
    tree.NotStartsWith: "not-starts-with",
    tree.Like: "like",
    tree.NotLike: "not-like",
}
_KINDS: Mapping[str, Callable[..., tree.Expression]] = {name: kind for kind, name in _NAMES.items()}

# In the order in which they are asked: a bool is an int, a bound text is a text, and a datetime is a date.
_LITERALS: tuple[tuple[str, type, Callable[..., str], Callable[..., Any]], ...] = (
    ("boolean", bool, lambda value: str(value).lower(), lambda text: {"true": True, "false": False}[text]),
    ("int", int, str, int),
    ("float", float, repr, float),
    ("decimal", Decimal, str, Decimal),
    ("bound-text", BoundText, str, BoundText),
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
            return {"is": _NAMES[type(expression)]}
        case tree.And(operands) | tree.Or(operands):
            return {"is": _NAMES[type(expression)], "of": [expression_to_json(child) for child in operands]}
        case tree.Not(operand):
            return {"is": "not", "of": [expression_to_json(operand)]}
        case tree.Comparison():
            return _predicate_to_json(expression.op, expression, expression.literal)
        case tree.In() | tree.NotIn():
            return _predicate_to_json(_NAMES[type(expression)], expression, *expression.literals)
        case tree.StartsWith() | tree.NotStartsWith():
            return _predicate_to_json(_NAMES[type(expression)], expression, expression.prefix)
        case tree.Like() | tree.NotLike():
            return _predicate_to_json(_NAMES[type(expression)], expression, expression.pattern)
        case tree.Predicate():
            return {"is": _NAMES[type(expression)], "column": _column_to_json(expression.column)}
    raise InvalidInputError(f"unknown predicate {type(expression).__name__}")


def _predicate_to_json(name: str, predicate: tree.Predicate, *literals: Any) -> dict[str, Any]:
    column = _column_to_json(predicate.column)
    return {"is": name, "column": column, "literals": [literal_to_json(literal) for literal in literals]}


def _column_to_json(column: tree.Column) -> dict[str, Any]:
    return {"name": column.name, "id": column.field_id}


def literal_to_json(literal: Any) -> list[str] | None:
    """Return a literal with its kind.

    Raises:
        InvalidInputError: a value that has no JSON form.
    """
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
        schema: the schema that bound columns belong to.
        path: the location of the document, for errors.
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
        return _KINDS[word](*(_from_json(child, schema) for child in document["of"]))
    if "column" not in document:
        return _KINDS[word]()
    column = _column_from_json(document["column"], schema)
    if word in ("in", "not-in"):
        return _KINDS[word](column, tuple(literal_from_json(literal) for literal in document["literals"]))
    literals = (literal_from_json(literal) for literal in document.get("literals", ()))
    return _KINDS[word](column, *literals) if word in _KINDS else tree.Comparison(word, column, *literals)


def _column_from_json(document: Any, schema: Schema) -> tree.Column:
    name, field_id = document["name"], document["id"]
    if field_id is None:
        return tree.Column(name)
    steps = column_path(schema, field_id)
    if steps is None:
        raise InvalidInputError(f"column '{name}' with id {field_id} is not in the schema of the plan")
    return tree.Column(name=name, field_id=field_id, type=steps[-1].type, path=tuple(step.name for step in steps))


def literal_from_json(document: Any) -> Any:
    """Return the literal of its JSON form; raises KeyError, TypeError, ValueError or ArithmeticError for another."""
    if document is None:
        return None
    kind, text = document
    if kind.startswith(_TYPED_TEXT):
        return TypedText(kind.removeprefix(_TYPED_TEXT), text)
    return {name: from_text for name, _, _, from_text in _LITERALS}[kind](text)
