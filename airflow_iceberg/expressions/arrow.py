"""A bound predicate as a mask over Arrow columns.

Not here: binding (`binding`), and a predicate on one value (`matching.matches`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.matching import like_parts
from airflow_iceberg.format.arrow.types import array_from_values, value_to_scalar
from airflow_iceberg.format.types import DoubleType, FloatType, IcebergType, Value


def row_mask(expression: tree.Expression, read_column: Callable[[tree.Column], pa.Array]) -> pa.Array:
    """Return true for each row that a bound predicate selects, null or false for the others.

    Args:
        expression: a predicate that is not a constant.
        read_column: a function that returns the values of a column for all rows, in the column's Arrow type.

    AND and OR become balanced trees: thousands of operands would otherwise be nested thousands of levels deep.
    """
    if isinstance(expression, (tree.And, tree.Or)):
        join = pc.and_kleene if isinstance(expression, tree.And) else pc.or_kleene
        parts = [row_mask(child, read_column) for child in expression.operands]
        while len(parts) > 1:
            pairs = [parts[index : index + 2] for index in range(0, len(parts), 2)]
            parts = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return parts[0]
    if not isinstance(expression, tree.Predicate) or expression.column.field_id is None:
        raise InvalidInputError(f"the filter '{expression}' is not bound to a schema")
    return _build_predicate(expression, read_column(expression.column))


def _build_predicate(predicate: tree.Predicate, column: Any) -> Any:
    match predicate:
        case tree.IsNull():
            return pc.is_null(column)
        case tree.NotNull():
            return pc.is_valid(column)
        case tree.IsNan():
            return pc.and_kleene(pc.is_valid(column), pc.is_nan(column))
        case tree.NotNan():
            return pc.or_kleene(pc.is_null(column), pc.invert(pc.is_nan(column)))
        case tree.StartsWith():
            return pc.starts_with(column, pattern=predicate.prefix)
        case tree.NotStartsWith():
            return pc.invert(pc.starts_with(column, pattern=predicate.prefix))
        case tree.Like():
            return _build_like(predicate.pattern, column)
        case tree.NotLike():
            return pc.invert(_build_like(predicate.pattern, column))
        case tree.In():
            return pc.is_in(column, value_set=_value_set(predicate.column.type, predicate.literals))
        case tree.NotIn():
            found = pc.is_in(column, value_set=_value_set(predicate.column.type, predicate.literals))
            return pc.and_kleene(pc.is_valid(column), pc.invert(found))
        case tree.Comparison():
            return _build_comparison(predicate, column)
    raise UnsupportedError(f"the predicate '{predicate}' cannot be applied to rows")


def _build_like(pattern: str, column: Any) -> Any:
    if "\\" not in pattern:
        return pc.match_like(column, pattern)
    # Arrow's LIKE applies the escape of '%\\' to the next character and finds nothing.
    return pc.match_substring_regex(column, pattern=f"^(?s:{'.*'.join(like_parts(pattern))})$")


def _build_comparison(predicate: tree.Comparison, column: Any) -> Any:
    functions = {
        "=": pc.equal,
        "!=": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }
    assert predicate.column.type is not None
    result = functions[predicate.op](column, value_to_scalar(predicate.column.type, predicate.literal))
    if predicate.op in (">", ">=") and isinstance(predicate.column.type, (FloatType, DoubleType)):
        # Arrow compares as IEEE 754: every comparison with NaN is false. In Spark NaN is above every number.
        return pc.or_kleene(result, pc.is_nan(column))
    return result


def _value_set(kind: IcebergType | None, literals: tuple[Value, ...]) -> pa.Array:
    assert kind is not None
    values: list[Value] = list(literals)
    if isinstance(kind, (FloatType, DoubleType)) and 0.0 in values:
        # Arrow finds values by their bits; those of -0.0 and 0.0 differ.
        values += [0.0, -0.0]
    return array_from_values(kind, values)
