"""Predicates of generated cases: their text in SQL, and what SQL says of each row: true, false or null.

The meaning is written here a second time on purpose, row by row in plain Python, so that what is tested does not say
what is right. Not a number equals itself and is above every number, and the two zeros are equal, as in Spark.
"""

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from tests.support.case_types import Kind, literal, quoted

Row = Mapping[str, Any]
Answer = bool | None


@dataclass(frozen=True)
class Predicate:
    """A predicate.

    Attributes:
        of: true, false or null for a row.
        columns: that it asks for, without what is behind a dot.
        shape: what it is made of, for reports.
    """

    sql: str
    of: Callable[[Row], Answer]
    columns: frozenset[str]
    shape: str

    def selects(self, row: Row) -> bool:
        return self.of(row) is True


@dataclass(frozen=True)
class _Target:
    """What is compared: a column, or a field of a struct."""

    sql: str
    column: str
    kind: Kind
    of: Callable[[Row], Any]


_Leaf = Callable[[random.Random, _Target, list[Any]], Predicate]


def any_predicate(dice: random.Random, columns: Mapping[str, Kind], rows: Sequence[Row], depth: int = 0) -> Predicate:
    """Return a predicate about the table's columns, most often about the one that it is partitioned by."""
    if depth < 2 and dice.random() < 0.3:
        return _joined(dice, columns, rows, depth)
    targets = _targets(columns)
    weights = [6 if target.sql == "p" else 3 if target.sql == "q" else 1 for target in targets]
    (target,) = dice.choices(targets, weights)
    return _leaf(dice, target, [target.of(row) for row in rows])


def _joined(dice: random.Random, columns: Mapping[str, Kind], rows: Sequence[Row], depth: int) -> Predicate:
    how = dice.choice(["and", "or", "not"])
    left = any_predicate(dice, columns, rows, depth + 1)
    if how == "not":
        return Predicate(f"not ({left.sql})", lambda row: _not(left.of(row)), left.columns, f"not {left.shape}")
    right = any_predicate(dice, columns, rows, depth + 1)
    joined = _and if how == "and" else _or
    return Predicate(
        f"({left.sql}) {how} ({right.sql})",
        lambda row: joined(left.of(row), right.of(row)),
        left.columns | right.columns,
        f"({left.shape} {how} {right.shape})",
    )


def _not(answer: Answer) -> Answer:
    return None if answer is None else not answer


def _and(left: Answer, right: Answer) -> Answer:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: Answer, right: Answer) -> Answer:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def _targets(columns: Mapping[str, Kind]) -> list[_Target]:
    found = []
    for name, kind in columns.items():
        if kind.type.startswith("list"):
            continue
        if kind.type.startswith("struct"):
            found += [_field(name, "a", _INT), _field(name, "b", _STRING)]
        else:
            found.append(_Target(name, name, kind, lambda row, name=name: row[name]))
    return found


def _field(column: str, name: str, kind: Kind) -> _Target:
    return _Target(f"{column}.{name}", column, kind, lambda row: None if row[column] is None else row[column][name])


# -- leaves ------------------------------------------------------------------------------------------------------------


def _leaf(dice: random.Random, target: _Target, held: list[Any]) -> Predicate:
    kind = target.kind
    ways = ["compare"] * 6 + ["in", "not in", "between", "is null", "is not null", "null safe"]
    if kind.type == "string":
        ways += ["like", "starts with", "not like"]
    if kind.is_float:
        ways += ["is nan", "not nan"]
    if kind.type == "boolean":
        ways = ["compare", "compare", "bare", "not bare", "is null", "is not null", "in", "null safe", "is true"]
    values = [value for value in (*held, *kind.values) if value is not None]
    # Those that are held count as often as they are: most literals meet rows.
    return _LEAVES[dice.choice(ways)](dice, target, values)


def _predicate(target: _Target, sql: str, of: Callable[[Any], Answer], shape: str) -> Predicate:
    return Predicate(sql, lambda row: of(target.of(row)), frozenset({target.column}), f"{target.kind.type} {shape}")


def _compare(dice: random.Random, target: _Target, values: list[Any]) -> Predicate:
    op, value = dice.choice(list(_OPERATORS)), dice.choice(values)
    text = literal(target.kind, value)
    sql = f"{text} {_MIRRORED[op]} {target.sql}" if dice.random() < 0.15 else f"{target.sql} {op} {text}"
    return _predicate(target, sql, _operator(op, value), op)


def _operator(op: str, value: Any) -> Callable[[Any], Answer]:
    return lambda held: None if held is None else _OPERATORS[op](_order(held), _order(value))


def _order(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return str(value) if hasattr(value, "hex") and hasattr(value, "int") else value


def _in(dice: random.Random, target: _Target, values: list[Any], *, negated: bool = False) -> Predicate:
    chosen = [dice.choice(values) for _ in range(dice.randint(1, 4))]
    has_null = dice.random() < 0.12
    texts = [literal(target.kind, value) for value in chosen] + (["null"] if has_null else [])
    keys = [_order(value) for value in chosen]

    def of(held: Any) -> Answer:
        if held is None:
            return None
        return True if _order(held) in keys else None if has_null else False

    sql = f"{target.sql} {'not ' if negated else ''}in ({', '.join(texts)})"
    return _predicate(target, sql, (lambda held: _not(of(held))) if negated else of, "not in" if negated else "in")


def _between(dice: random.Random, target: _Target, values: list[Any]) -> Predicate:
    low, high = dice.choice(values), dice.choice(values)
    if dice.random() < 0.9 and _order(low) > _order(high):
        low, high = high, low
    sql = f"{target.sql} between {literal(target.kind, low)} and {literal(target.kind, high)}"
    at_least, at_most = _operator(">=", low), _operator("<=", high)
    return _predicate(target, sql, lambda held: _and(at_least(held), at_most(held)), "between")


def _null_safe(dice: random.Random, target: _Target, values: list[Any]) -> Predicate:
    value = dice.choice([*values[:6], None])
    text = "null" if value is None else literal(target.kind, value)

    def of(held: Any) -> Answer:
        if held is None or value is None:
            return held is None and value is None
        return _order(held) == _order(value)

    return _predicate(target, f"{target.sql} <=> {text}", of, "<=>")


def _starts_with(dice: random.Random, target: _Target, values: list[Any]) -> Predicate:
    prefix = dice.choice(values)[: dice.randint(0, 3)]
    sql = f"startswith({target.sql}, {quoted(prefix)})"
    return _predicate(target, sql, lambda held: None if held is None else held.startswith(prefix), "starts with")


def _like(dice: random.Random, target: _Target, values: list[Any], *, negated: bool = False) -> Predicate:
    value = dice.choice(values)
    head, tail = _like_text(value[: dice.randint(0, 3)]), _like_text(value[-1:])
    pattern = dice.choice([f"{head}%", f"{head}%", f"%{tail}", f"{head}_%", f"{head}%{tail}", _like_text(value)])
    regex = re.compile(_regex(pattern), re.DOTALL)
    of = lambda held: None if held is None else regex.fullmatch(held) is not None  # noqa: E731
    sql = f"{target.sql} {'not ' if negated else ''}like {quoted(pattern)}"
    return _predicate(target, sql, (lambda held: _not(of(held))) if negated else of, "not like" if negated else "like")


def _like_text(text: str) -> str:
    return "".join(f"\\{c}" if c in "%_\\" else c for c in text)


def _regex(pattern: str) -> str:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join(".*" if part == "%" else "." if part == "_" else re.escape(part[-1]) for part in parts)


def _plain(sql: str, shape: str, of: Callable[[Any], Answer]) -> _Leaf:
    """Return what makes a predicate without a literal; `sql` has `{}` in the place of the column."""
    return lambda dice, target, values: _predicate(target, sql.format(target.sql), of, shape)


def _is_true(dice: random.Random, target: _Target, values: list[Any]) -> Predicate:
    wanted = dice.choice([True, False])
    return _predicate(target, f"{target.sql} is {str(wanted).lower()}", lambda held: held is wanted, "is true")


_OPERATORS = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LEAVES = {
    "compare": _compare,
    "in": _in,
    "not in": partial(_in, negated=True),
    "between": _between,
    "is null": _plain("{} is null", "is null", lambda held: held is None),
    "is not null": _plain("{} is not null", "is not null", lambda held: held is not None),
    "null safe": _null_safe,
    "is nan": _plain("isnan({})", "is nan", lambda held: held is not None and math.isnan(held)),
    "not nan": _plain("not isnan({})", "not nan", lambda held: held is None or not math.isnan(held)),
    "starts with": _starts_with,
    "like": _like,
    "not like": partial(_like, negated=True),
    "bare": _plain("{}", "bare", lambda held: held),
    "not bare": _plain("not {}", "not bare", _not),
    "is true": _is_true,
}
_INT = Kind("int", "int", (1, 2, 3, -1))
_STRING = Kind("string", "string", ("x", "y", "ä", "", "zz"))
