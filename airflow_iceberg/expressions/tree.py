"""Predicates over columns, as a tree of values.

Here: the nodes, their negation, and joining with AND and OR. Not here: what a predicate says of a value (`matching`),
reading SQL text (`sql`), binding names and literals to a schema (`binding`), pruning (`projection`, `metrics`).

A bound tree is in negation normal form: AND and OR over predicates, no NOT. NOT moves inwards without changing SQL's
three-valued answer (De Morgan's laws hold for it, and ``NOT a < b`` is null exactly where ``a < b`` is), and above a
predicate there is nothing left that could turn "not true" into "true". So null and false are equivalent: a row is
selected where the tree is true.

Order of floating point numbers, as in Spark: NaN is greater than every number and equal to itself; -0.0 equals 0.0. In
a bound tree no literal is NaN: ``x = NaN`` has become ``isnan(x)``, which is false, not null, for null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.types import IcebergType, Value

OPPOSITE: Mapping[str, str] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED: Mapping[str, str] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Expression:
    """Any node of a predicate."""


@dataclass(frozen=True, slots=True)
class AlwaysTrue(Expression):
    """Selects every row."""

    def __str__(self) -> str:
        return "true"


@dataclass(frozen=True, slots=True)
class AlwaysFalse(Expression):
    """Selects no row."""

    def __str__(self) -> str:
        return "false"


@dataclass(frozen=True, slots=True)
class AlwaysNull(Expression):
    """NULL as a predicate, like ``x = NULL``: neither it nor its negation selects a row. Binding removes it."""

    def __str__(self) -> str:
        return "null"


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """Negation; binding removes it."""

    operand: Expression

    def __str__(self) -> str:
        return f"not ({self.operand})"


@dataclass(frozen=True, slots=True, init=False)
class _Junction(Expression):
    operands: tuple[Expression, ...]

    def __init__(self, *operands: Expression) -> None:
        object.__setattr__(self, "operands", operands)


@dataclass(frozen=True, slots=True, init=False)
class And(_Junction):
    """True where all operands are true."""

    def __str__(self) -> str:
        return " and ".join(f"({child})" if isinstance(child, Or) else str(child) for child in self.operands)


@dataclass(frozen=True, slots=True, init=False)
class Or(_Junction):
    """True where some operand is true."""

    def __str__(self) -> str:
        return " or ".join(str(child) for child in self.operands)


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name, and once bound by field id.

    Attributes:
        name: full name, ``a.b`` for a field of a struct.
        field_id: the column's id; in projections to a partition spec that of the partition field; None while not bound.
        type: the column's type; None while not bound.
        path: names from the top-level column down to this one, empty while not bound.
    """

    name: str
    field_id: int | None = None
    type: IcebergType | None = None
    path: tuple[str, ...] = ()

    @property
    def is_nested(self) -> bool:
        """Whether the column is a field of a struct, which may be null as a whole."""
        return len(self.path) > 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Predicate(Expression):
    """A statement about one column. The column may be given by its name alone."""

    column: Column

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", _to_column(self.column))


def _to_column(column: Column | str) -> Column:
    return Column(column) if isinstance(column, str) else column


@dataclass(frozen=True, slots=True, init=False)
class Comparison(Predicate):
    """``column op literal`` with op one of = != < <= > >=; null where the column is."""

    op: str
    literal: Value

    def __init__(self, op: str, column: Column | str, literal: Value) -> None:
        if op not in OPPOSITE:
            raise InvalidInputError(f"unknown comparison '{op}' (expected one of {' '.join(OPPOSITE)})")
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "column", _to_column(column))
        object.__setattr__(self, "literal", literal)

    def __str__(self) -> str:
        return f"{self.column} {self.op} {self.literal!r}"


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """``column IN (…)``; the literals of a bound one are sorted and distinct."""

    literals: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.column} in ({', '.join(repr(literal) for literal in self.literals)})"


@dataclass(frozen=True, slots=True)
class NotIn(Predicate):
    """``column NOT IN (…)``; a null among the literals makes it select nothing."""

    literals: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.column} not in ({', '.join(repr(literal) for literal in self.literals)})"


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """``column IS NULL``; a field of a struct that is null is null."""

    def __str__(self) -> str:
        return f"{self.column} is null"


@dataclass(frozen=True, slots=True)
class NotNull(Predicate):
    """``column IS NOT NULL``."""

    def __str__(self) -> str:
        return f"{self.column} is not null"


@dataclass(frozen=True, slots=True)
class IsNan(Predicate):
    """``isnan(column)``; false for null, as in Spark."""

    def __str__(self) -> str:
        return f"isnan({self.column})"


@dataclass(frozen=True, slots=True)
class NotNan(Predicate):
    """``NOT isnan(column)``; true for null, as in Spark."""

    def __str__(self) -> str:
        return f"not isnan({self.column})"


@dataclass(frozen=True, slots=True)
class StartsWith(Predicate):
    """``column LIKE 'prefix%'``, of strings or bytes."""

    prefix: Any

    def __str__(self) -> str:
        return f"startswith({self.column}, {self.prefix!r})"


@dataclass(frozen=True, slots=True)
class NotStartsWith(Predicate):
    """``column NOT LIKE 'prefix%'``."""

    prefix: Any

    def __str__(self) -> str:
        return f"not startswith({self.column}, {self.prefix!r})"


@dataclass(frozen=True, slots=True)
class Like(Predicate):
    """``column LIKE pattern``: % any characters, _ one character, a backslash takes the next one literally."""

    pattern: str

    def __str__(self) -> str:
        return f"{self.column} like {self.pattern!r}"


@dataclass(frozen=True, slots=True)
class NotLike(Predicate):
    """``column NOT LIKE pattern``."""

    pattern: str

    def __str__(self) -> str:
        return f"{self.column} not like {self.pattern!r}"


ALWAYS_TRUE = AlwaysTrue()
ALWAYS_FALSE = AlwaysFalse()

_OPPOSITES = ((In, NotIn), (IsNull, NotNull), (IsNan, NotNan), (StartsWith, NotStartsWith), (Like, NotLike))
_OPPOSITE_KIND: Mapping[type[Predicate], type[Predicate]] = dict(_OPPOSITES) | {no: yes for yes, no in _OPPOSITES}


def all_of(*operands: Expression) -> Expression:
    """Join with AND: flat, without repetitions, constants folded."""
    parts = _flat(operands, And, ALWAYS_TRUE)
    if ALWAYS_FALSE in parts:
        return ALWAYS_FALSE
    return And(*parts) if len(parts) > 1 else next(iter(parts), ALWAYS_TRUE)


def any_of(*operands: Expression) -> Expression:
    """Join with OR: flat, without repetitions, constants folded."""
    parts = _flat(operands, Or, ALWAYS_FALSE)
    if ALWAYS_TRUE in parts:
        return ALWAYS_TRUE
    return Or(*parts) if len(parts) > 1 else next(iter(parts), ALWAYS_FALSE)


def _flat(operands: tuple[Expression, ...], kind: type[_Junction], neutral: Expression) -> dict[Expression, None]:
    parts: dict[Expression, None] = {}
    for operand in operands:
        children = operand.operands if isinstance(operand, kind) else (operand,)
        parts.update((child, None) for child in children if child != neutral)
    return parts


def negate(expression: Expression) -> Expression:
    """Return the negation in negation normal form."""
    match expression:
        case AlwaysTrue():
            return ALWAYS_FALSE
        case AlwaysFalse():
            return ALWAYS_TRUE
        case AlwaysNull():
            return expression
        case Not(operand):
            return without_not(operand)
        case And():
            return Or(*map(negate, expression.operands))
        case Or():
            return And(*map(negate, expression.operands))
        case Comparison():
            return Comparison(OPPOSITE[expression.op], expression.column, expression.literal)
        case Predicate():
            return _OPPOSITE_KIND[type(expression)](*(getattr(expression, item.name) for item in fields(expression)))
    raise InvalidInputError(f"unknown predicate {type(expression).__name__}")


def without_not(expression: Expression) -> Expression:
    """Return the same predicate in negation normal form."""
    match expression:
        case Not(operand):
            return negate(operand)
        case And():
            return And(*map(without_not, expression.operands))
        case Or():
            return Or(*map(without_not, expression.operands))
    return expression


def replace_predicates(expression: Expression, replacement: Callable[[Predicate], Expression]) -> Expression:
    """Return an expression without NOT with each predicate replaced; constants are folded, and null becomes false."""
    match expression:
        case And():
            return all_of(*(replace_predicates(child, replacement) for child in expression.operands))
        case Or():
            return any_of(*(replace_predicates(child, replacement) for child in expression.operands))
        case AlwaysNull() | AlwaysFalse():
            return ALWAYS_FALSE
        case Predicate():
            return replacement(expression)
    return expression


def is_true(expression: Expression, holds: Callable[[Predicate], bool]) -> bool:
    """Tell whether an expression without NOT is true, from the answers of its predicates."""
    match expression:
        case And():
            return all(is_true(child, holds) for child in expression.operands)
        case Or():
            return any(is_true(child, holds) for child in expression.operands)
        case Predicate():
            return holds(expression)
    return not isinstance(expression, AlwaysFalse)


def predicates(expression: Expression) -> Iterator[Predicate]:
    """Yield the predicates of a tree, from left to right."""
    match expression:
        case And() | Or():
            for child in expression.operands:
                yield from predicates(child)
        case Not(operand):
            yield from predicates(operand)
        case Predicate():
            yield expression
