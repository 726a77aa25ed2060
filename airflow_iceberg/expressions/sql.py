"""SQL text to an unbound predicate. Imports sqlglot; imported only when there is text to parse.

Here: Spark's syntax for predicates. Not here: names, types and folding (`filters.bind`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

import sqlglot
from sqlglot import expressions as sql
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.literals import MAX_EXPONENT, TypedText
from airflow_iceberg.expressions.matching import compare, with_backslash
from airflow_iceberg.expressions.params import Params

_COMPARISONS: Mapping[type[sql.Expression], str] = {
    sql.EQ: "=",
    sql.NEQ: "!=",
    sql.LT: "<",
    sql.LTE: "<=",
    sql.GT: ">",
    sql.GTE: ">=",
}
_INTEGERS = {sql.DataType.Type[name] for name in ("TINYINT", "SMALLINT", "INT", "BIGINT")}
_FLOATS = {sql.DataType.Type[name] for name in ("FLOAT", "DOUBLE")}
_TEXTS = {sql.DataType.Type[name] for name in ("TEXT", "VARCHAR", "CHAR", "NVARCHAR", "NCHAR")}
_TIMESTAMPS = {sql.DataType.Type[f"TIMESTAMP{zone}"] for zone in ("", "TZ", "LTZ", "NTZ")}
_DATES = {sql.DataType.Type[name] for name in ("DATE", "DATE32")}


class FilterDialect(Spark):  # type: ignore[misc]
    """Spark's dialect, with a doubled quote inside a string as one quote, as in standard SQL.

    Spark before 4.0 joins ``'it''s'`` to ``its``, which nobody means.
    """

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        """Splits the text into words."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']


def parse_sql(text: str, params: Mapping[str, Any] | None = None) -> tree.Expression:
    """Return the predicate that a text says; columns by name, literals as Python values.

    Args:
        params: the values of the placeholders of the text, ``:name``, by name.
    Raises:
        InvalidInputError: not a predicate; a placeholder without a value, or a value without a placeholder.
        UnsupportedError: SQL that is not implemented here.
    """
    bound = Params(params, text)
    try:
        predicate = _Reader(text, bound).predicate(_statement(text))
    except RecursionError:
        raise InvalidInputError(f"the filter is nested too deeply: '{text[:80]}…'") from None
    bound.check_used()
    return predicate


@lru_cache(maxsize=256)
def _statement(text: str) -> sql.Expression:
    """Return the one predicate of a text, which no value of a placeholder is in yet."""
    if not text.strip():
        raise InvalidInputError("the filter is empty; for every row leave it out, or write 'true'")
    try:
        statements = sqlglot.parse(text, read=FilterDialect)
    except SqlglotError as error:
        raise InvalidInputError(f"cannot parse the filter '{text}': {_reason(error)}{_hint(text)}") from error
    if len(statements) != 1 or statements[0] is None:
        raise InvalidInputError(f"expected one predicate, got {len(statements)} statements in the filter '{text}'")
    return statements[0]


def _hint(text: str) -> str:
    """Say what may be wrong with a placeholder of a text that is not understood."""
    found = re.search(r"(?<![:\w]):\s*(\w+)", text)
    return f"; ':{found[1]}' cannot be the name of a placeholder if it is a word of SQL or a number" if found else ""


def _reason(error: SqlglotError) -> str:
    """Return what sqlglot says in one line, without its classes and colours."""
    details = (getattr(error, "errors", None) or [{}])[0]
    found = str(details.get("description") or str(error).splitlines()[0])
    if found.startswith("Required keyword"):
        found = "something is missing"
    found = found.partition(" but got <")[0]  # what follows is an object of sqlglot's
    place = f" near line {details['line']}, column {details['col']}" if details.get("line") else ""
    return f"{found.rstrip('.').split(chr(27))[0].lower()}{place}"


class _Reader:
    """Turns sqlglot's tree into ours; holds the text for messages, and the values of placeholders."""

    def __init__(self, text: str, params: Params) -> None:
        self._text = text
        self._params = params

    def predicate(self, node: sql.Expression) -> tree.Expression:
        result = self._predicate(node)
        # Newer versions of sqlglot write NOT LIKE and its kin as an argument of the node.
        return tree.Not(result) if node.args.get("negate") else result

    def _predicate(self, node: sql.Expression) -> tree.Expression:
        match node:
            case sql.Paren():
                return self.predicate(node.this)
            case sql.And() | sql.Or():
                parts = [self.predicate(part) for part in node.flatten()]
                return tree.And(*parts) if isinstance(node, sql.And) else tree.Or(*parts)
            case sql.Not():
                return tree.Not(self.predicate(node.this))
            case sql.Boolean():
                return tree.ALWAYS_TRUE if node.this else tree.ALWAYS_FALSE
            case sql.Null():
                return tree.AlwaysNull()
            case sql.Column() | sql.Dot():
                return tree.Comparison("=", self._column(node), True)
            case sql.EQ() | sql.NEQ() | sql.LT() | sql.LTE() | sql.GT() | sql.GTE():
                return self._comparison(_COMPARISONS[type(node)], node.this, node.expression)
        return self._special(node)

    def _special(self, node: sql.Expression) -> tree.Expression:
        match node:
            case sql.NullSafeEQ():
                return self._null_safe(node.this, node.expression)
            case sql.NullSafeNEQ():
                return tree.Not(self._null_safe(node.this, node.expression))
            case sql.Is():
                return self._is(node)
            case sql.Between():
                low = self._comparison(">=", node.this, node.args["low"])
                return tree.And(low, self._comparison("<=", node.this, node.args["high"]))
            case sql.In() if (node.expressions or _placeholder(node.args.get("field"))) and not node.args.get("query"):
                return self._in(node)
            case sql.Escape():
                return self._escaped(node)
            case sql.Like() if isinstance(node.expression, _PATTERNS):
                return self._like(node, "\\")
            case sql.IsNan():
                return tree.IsNan(self._column(node.this))
            case sql.StartsWith():
                return self._starts_with(node)
        raise self._unsupported(node)

    def _comparison(self, op: str, left: sql.Expression, right: sql.Expression) -> tree.Expression:
        left, right = left.unnest(), right.unnest()
        if _is_column(left) and _is_column(right):
            raise UnsupportedError(f"two columns cannot be compared in a filter yet: '{left.sql()} {op} {right.sql()}'")
        if _is_column(left):
            return tree.Comparison(op, self._column(left), self._literal(right))
        if _is_column(right):
            return tree.Comparison(tree.MIRRORED[op], self._column(right), self._literal(left))
        return self._constant(op, self._literal(left), self._literal(right))

    def _constant(self, op: str, left: Any, right: Any) -> tree.Expression:
        """Fold a comparison of two literals, as in ``1 = 1``."""
        if left is None or right is None:
            return tree.AlwaysNull()
        if not _are_comparable(left, right):
            raise InvalidInputError(
                f"cannot compare {left!r} with {right!r} in the filter '{self._text}'; "
                "quotes of both kinds make a text, the name of a column stands bare or in backticks"
            )
        return tree.ALWAYS_TRUE if compare(op, left, right) else tree.ALWAYS_FALSE

    def _null_safe(self, left: sql.Expression, right: sql.Expression) -> tree.Expression:
        left, right = (right, left) if _is_column(right.unnest()) else (left, right)
        column, name = self._column(left), _placeholder(right.unnest())
        literal = self._params.value(name, nullable=True) if name else self._literal(right)
        return (
            tree.IsNull(column)
            if literal is None
            else tree.And(tree.NotNull(column), tree.Comparison("=", column, literal))
        )

    def _is(self, node: sql.Is) -> tree.Expression:
        column = self._column(node.this)
        match node.expression:
            case sql.Null():
                return tree.IsNull(column)
            case sql.Boolean():
                return tree.And(tree.NotNull(column), tree.Comparison("=", column, bool(node.expression.this)))
        raise self._unsupported(node)

    def _in(self, node: sql.In) -> tree.Expression:
        literals: list[Any] = []
        for item in node.expressions or (node.args["field"],):
            name = _placeholder(item.unnest())
            literals += self._params.values(name) if name else (self._literal(item.unnest()),)
        return tree.In(self._column(node.this), tuple(literals))

    def _escaped(self, node: sql.Escape) -> tree.Expression:
        escape = self._literal(node.expression)
        if not isinstance(node.this, sql.Like) or not isinstance(escape, str) or len(escape) != 1:
            raise self._unsupported(node)
        result = self._like(node.this, escape)
        return tree.Not(result) if node.this.args.get("negate") else result

    def _like(self, node: sql.Like, escape: str) -> tree.Expression:
        column, pattern = self._column(node.this), self._literal(node.expression)
        if pattern is not None and not isinstance(pattern, str):
            raise InvalidInputError(
                f"LIKE needs a pattern in quotes, such as 'abc%', got {pattern!r} in the filter '{self._text}'"
            )
        return tree.AlwaysNull() if pattern is None else tree.Like(column, with_backslash(pattern, escape))

    def _starts_with(self, node: sql.StartsWith) -> tree.Expression:
        prefix = self._literal(node.expression)
        return tree.AlwaysNull() if prefix is None else tree.StartsWith(self._column(node.this), prefix)

    def _column(self, node: sql.Expression) -> tree.Column:
        node = node.unnest()
        if not _is_column(node):
            raise self._unsupported(node)
        return tree.Column(".".join(part.name for part in node.parts))

    def _literal(self, node: sql.Expression) -> Any:
        """Return a literal as a Python value; dates and timestamps as text that knows its kind."""
        match node:
            case sql.Paren():
                return self._literal(node.this)
            case sql.Literal():
                return node.this if node.is_string else _number(node.this)
            case sql.Placeholder() if name := _placeholder(node):
                return self._params.value(name)
            case sql.Neg():
                return self._negative(node)
            case sql.Boolean():
                return bool(node.this)
            case sql.Null():
                return None
            case sql.HexString():
                digits = node.this
                return bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}")
            case sql.RawString():
                return node.this
            case sql.Concat() if all(isinstance(part, sql.Literal) and part.is_string for part in node.expressions):
                return "".join(part.this for part in node.expressions)
            case sql.Cast() | sql.TryCast():
                return self._cast(node)
        if _is_column(node):
            raise UnsupportedError(f"a column is not supported here in a filter: '{node.sql()}'; expected a literal")
        raise self._unsupported(node)

    def _negative(self, node: sql.Neg) -> Any:
        if _is_column(node.this.unnest()):
            raise self._unsupported(node)
        value = self._literal(node.this)
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return value.copy_negate() if isinstance(value, Decimal) else -value
        raise self._unsupported(node)

    def _cast(self, node: sql.Cast) -> Any:
        """Evaluate a cast of a literal, as also ``DATE '…'`` and ``5L`` are."""
        if _is_column(node.this.unnest()):
            raise self._unsupported(node)
        value, kind = self._literal(node.this), node.to.this
        if value is None:
            return None
        try:
            return _cast_literal(value, kind)
        except (ValueError, ArithmeticError):
            kind_name = node.to.sql("spark")
            raise InvalidInputError(f"cannot cast {value!r} to {kind_name} in the filter '{self._text}'") from None
        except LookupError:
            raise self._unsupported(node) from None

    def _unsupported(self, node: sql.Expression) -> UnsupportedError:
        """Say what is not supported, in which filter, and how the same rows are selected without it."""
        if isinstance(node, (sql.Placeholder, sql.Parameter)):
            return UnsupportedError(
                f"a placeholder is written :name and takes the place of a literal, such as column = :name; got the "
                f"filter '{self._text}'"
            )
        shown, column = node.sql("spark"), node.find(sql.Column)
        if not isinstance(node, _CALCULATIONS):
            return UnsupportedError(
                f"'{shown}' is not supported in a filter; got the filter '{self._text}', expected columns that are "
                f"compared with literals by {_OPERATORS}"
            )
        if column is None:
            return UnsupportedError(
                f"a calculated value is not supported in a filter: '{shown}' in '{self._text}'; write the value as a "
                "literal, such as 42, 'text' or DATE '2026-01-31' (a DAG can calculate it with a template in "
                "predicate_params)"
            )
        return UnsupportedError(
            f"a function, cast or calculation on a column is not supported in a filter: '{shown}' in '{self._text}'; "
            f"compare the column {column.sql('spark')} itself with literals: {_instead(node, column.sql('spark'))}"
        )


# What calculates a value from others.
_CALCULATIONS = (sql.Func, sql.Cast, sql.Neg, sql.Add, sql.Sub, sql.Mul, sql.Div, sql.Mod, sql.Case, sql.DPipe)
_OPERATORS = "= != < <= > >= IN BETWEEN LIKE IS NULL, joined with AND, OR and NOT"
# By the names of functions: what selects the same rows with the column alone.
_INSTEAD: Mapping[str, str] = {
    r"date|time|year|month|week|day|hour|minute|second|quarter": (
        "use a range, such as {column} >= '2026-01-31' and {column} < '2026-02-01'"
    ),
    r"upper|lower|ucase|lcase|initcap|trim": "list the spellings that occur, such as {column} in ('abc', 'ABC')",
    r"substr|^left$|startswith|regexp|like": "use LIKE with % and _, such as {column} like 'abc%'",
    r"coalesce|nvl|ifnull": "write null as a condition of its own, such as ({column} = 0 or {column} is null)",
    r"^(add|sub|mul|div|neg)$": "calculate the literal instead: {column} > 9 for {column} + 1 > 10",
}


def _instead(node: sql.Expression, column: str) -> str:
    name = node.name if isinstance(node, sql.Anonymous) else node.key
    if isinstance(node, sql.Cast):
        name = node.to.this.value
    found = (words for pattern, words in _INSTEAD.items() if re.search(pattern, name.lower()))
    return next(found, f"use {_OPERATORS}").format(column=column)


# What LIKE may compare with.
_PATTERNS = (sql.Literal, sql.Concat, sql.RawString, sql.Null, sql.Placeholder)


def _placeholder(node: sql.Expression | None) -> str | None:
    """Return the name of ``:name``; None for everything else, also for ``?`` and ``{{ name }}``."""
    return node.this if isinstance(node, sql.Placeholder) and isinstance(node.this, str) else None


def _is_column(node: sql.Expression) -> bool:
    return isinstance(node, (sql.Column, sql.Dot)) and all(isinstance(part, sql.Identifier) for part in node.parts)


def _are_comparable(left: Any, right: Any) -> bool:
    numbers = (int, Decimal)
    are_numbers = all(isinstance(side, numbers) and not isinstance(side, bool) for side in (left, right))
    return are_numbers or any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, bytes, bool))


def _number(text: str) -> int | Decimal:
    return int(text) if text.isdigit() and len(text) <= MAX_EXPONENT else Decimal(text)


def _cast_literal(value: Any, kind: sql.DataType.Type) -> Any:
    """Cast a literal to a SQL type.

    Raises:
        ValueError, ArithmeticError: the value does not fit.
        LookupError: the type is not implemented.
    """
    casts: list[tuple[set[sql.DataType.Type], Callable[[Any], Any]]] = [
        (_INTEGERS, _integer),
        (_FLOATS, lambda given: float(given)),
        ({sql.DataType.Type.DECIMAL}, lambda given: Decimal(given)),
        (_TEXTS, lambda given: given if isinstance(given, str) else str(given)),
        (_DATES, lambda given: TypedText("date", _text(given))),
        (_TIMESTAMPS, lambda given: TypedText("timestamp", _text(given))),
        ({sql.DataType.Type.BOOLEAN}, _boolean),
        ({sql.DataType.Type.BINARY, sql.DataType.Type.VARBINARY}, _binary),
    ]
    for kinds, cast in casts:
        if kind in kinds:
            return cast(value)
    raise LookupError(kind)


def _integer(value: Any) -> int:
    number = Decimal(value)
    if number.adjusted() > MAX_EXPONENT:  # a few characters such as 1e999999999 would fill the memory
        raise ValueError(value)
    return int(number)


def _text(value: Any) -> str:
    if isinstance(value, TypedText):
        return value.text
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if isinstance(value, bool):
        return value
    raise ValueError(value)


def _binary(value: Any) -> bytes:
    return value if isinstance(value, bytes) else _text(value).encode()
