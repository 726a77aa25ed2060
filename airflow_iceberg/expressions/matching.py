"""Evaluation of a predicate on one value, and the parts of LIKE patterns."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions import tree
from airflow_iceberg.format.types import Value

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(predicate: tree.Predicate, value: Value) -> bool:
    """Whether a bound predicate is true for one canonical value of its column."""
    match predicate:
        case tree.IsNull():
            return value is None
        case tree.NotNull():
            return value is not None
        case tree.IsNan():
            return is_nan(value)
        case tree.NotNan():
            return not is_nan(value)
    return value is not None and _holds(predicate, value)


def _holds(predicate: tree.Predicate, value: Value) -> bool:
    """Evaluate a predicate that is null for null on a value that is not null."""
    match predicate:
        case tree.Comparison():
            if is_nan(value):
                # Above every number and equal to none; literals are never NaN.
                return predicate.op in (">", ">=", "!=")
            return compare(predicate.op, value, predicate.literal)
        case tree.In():
            return not is_nan(value) and _contains(predicate.literals, value)
        case tree.NotIn():
            return is_nan(value) or not _contains(predicate.literals, value)
        case tree.StartsWith():
            return bool(value[: len(predicate.prefix)] == predicate.prefix)
        case tree.NotStartsWith():
            return bool(value[: len(predicate.prefix)] != predicate.prefix)
        case tree.Like():
            return like_regex(predicate.pattern).fullmatch(value) is not None
        case tree.NotLike():
            return like_regex(predicate.pattern).fullmatch(value) is None
    raise InvalidInputError(f"unknown predicate {type(predicate).__name__}")


def compare(op: str, left: Value, right: Value) -> bool:
    """Compare two canonical values that are neither null nor NaN."""
    return _COMPARE[op](left, right)


def is_nan(value: Value) -> bool:
    """Whether a canonical value is a floating point NaN."""
    return isinstance(value, float) and value != value


def _contains(literals: tuple[Value, ...], value: Value) -> bool:
    position = bisect_left(literals, value)
    return position < len(literals) and bool(literals[position] == value)


@lru_cache(maxsize=256)
def like_regex(pattern: str) -> re.Pattern[str]:
    """Translate a LIKE pattern into a regular expression for `fullmatch`.

    What is between two wildcards is taken where it is first: with the others tried as well, `%a%b%` takes time by the
    square of a text, and each further wildcard multiplies it by the length again.
    """
    first, *rest = like_parts(pattern)
    between = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(f"{first}{between}.*{rest[-1]}" if rest else first, re.DOTALL)


def like_parts(pattern: str) -> list[str]:
    """Return what is between the wildcards `%` of a LIKE pattern as regular expressions."""
    parts, characters = [""], iter(pattern)
    for character in characters:
        if character == "%":
            parts.append("")
        elif character == "\\":
            parts[-1] += re.escape(next(characters, "\\"))
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
    return parts


def with_backslash(pattern: str, escape: str) -> str:
    """Rewrite a LIKE pattern with another escape character to one with a backslash."""
    if escape == "\\":
        return pattern
    result, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            result.append("\\" + next(characters, escape))
        else:
            result.append("\\\\" if character == "\\" else character)
    return "".join(result)


def like_prefix(pattern: str) -> tuple[str, str]:
    """Split a LIKE pattern into the characters that every match starts with, and the rest of the pattern."""
    prefix = []
    position = 0
    while position < len(pattern) and pattern[position] not in "%_":
        if pattern[position] == "\\" and position + 1 < len(pattern):
            position += 1
        prefix.append(pattern[position])
        position += 1
    return "".join(prefix), pattern[position:]
