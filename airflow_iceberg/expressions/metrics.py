"""What can be known about the rows of a file without opening it.

Here: one rule for "may a row with this predicate be in here" over bounds and counts, wherever these come from:
statistics of a data file, the partition summaries of a manifest, the footer of a Parquet file. Not here: partition
values (`projection`), taking statistics while writing (`data.write.metrics`).

Bounds may be truncated: a bound need not be a value of the column. Missing or unreadable statistics prune nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.matching import compare, is_nan
from airflow_iceberg.format.manifests.entries import DataFile, FieldSummary
from airflow_iceberg.format.types import (
    BinaryType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    TimestampNsType,
    TimestamptzNsType,
    UUIDType,
    Value,
)
from airflow_iceberg.format.values.bytes import from_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnRange:
    """Which values of a column a set of rows may hold.

    Attributes:
        may_be_null: whether some row may be null.
        may_be_nan: whether some row may be NaN.
        may_be_value: whether some row may be neither.
        lower: a value that none of those is below, None if unknown.
        upper: a value that none of those is above, None if unknown.
        may_have: tells whether some row may have one of these values, by a Bloom filter; None if unknown.
    """

    may_be_null: bool = True
    may_be_nan: bool = True
    may_be_value: bool = True
    lower: Value = None
    upper: Value = None
    may_have: Callable[[Sequence[Value]], bool] | None = None


def may_match(expression: tree.Expression, ranges: Callable[[tree.Column], ColumnRange]) -> bool:
    """Tell whether a bound predicate may be true of some row."""
    return tree.is_true(expression, lambda predicate: predicate_may_hold(predicate, ranges(predicate.column)))


def must_match(expression: tree.Expression, ranges: Callable[[tree.Column], ColumnRange]) -> bool:
    """Tell whether a bound predicate is certainly true of every row: if no row can fail it or be null."""

    def holds(predicate: tree.Predicate) -> bool:
        # What is in no row by a Bloom filter is left out, and never a proof that all rows match.
        found = replace(ranges(predicate.column), may_have=None)
        is_never_null = isinstance(predicate, (tree.IsNull, tree.NotNull, tree.IsNan, tree.NotNan))
        return (is_never_null or not found.may_be_null) and not may_match(tree.negate(predicate), lambda _: found)

    return tree.is_true(expression, holds)


def predicate_may_hold(predicate: tree.Predicate, found: ColumnRange) -> bool:
    """Tell whether a predicate may be true of some row."""
    match predicate:
        case tree.IsNull():
            return found.may_be_null
        case tree.NotNull():
            return found.may_be_nan or found.may_be_value
        case tree.IsNan():
            return found.may_be_nan
        case tree.NotNan():
            return found.may_be_null or found.may_be_value
        case tree.NotIn() | tree.Comparison(op="!=" | ">" | ">=") if found.may_be_nan:
            # NaN is above every number.
            return True
    if not (found.may_be_value and _value_may_hold(predicate, found.lower, found.upper)):
        return False
    match predicate:
        case tree.Comparison(op="=") if found.may_have is not None:
            return found.may_have((predicate.literal,))
        case tree.In() if found.may_have is not None:
            return found.may_have(_between(predicate.literals, found.lower, found.upper))
    return True


def _value_may_hold(predicate: tree.Predicate, lower: Value, upper: Value) -> bool:
    """Tell whether a value between two bounds, either of them maybe unknown, may satisfy a predicate."""
    match predicate:
        case tree.Comparison():
            return _comparison_may_hold(predicate.op, predicate.literal, lower, upper)
        case tree.In():
            return _some_between(predicate.literals, lower, upper)
        case tree.NotIn():
            return not _is_single(lower, upper) or not _some_between(predicate.literals, lower, upper)
        case tree.StartsWith():
            size = len(predicate.prefix)
            return (lower is None or lower[:size] <= predicate.prefix) and (upper is None or upper >= predicate.prefix)
        case tree.NotStartsWith():
            size = len(predicate.prefix)
            known = lower is not None and upper is not None
            return not (known and lower[:size] == predicate.prefix == upper[:size])
    return True


def _comparison_may_hold(op: str, literal: Value, lower: Value, upper: Value) -> bool:
    match op:
        case "=":
            return (lower is None or lower <= literal) and (upper is None or upper >= literal)
        case "!=":
            return not (_is_single(lower, upper) and lower == literal)
        case "<" | "<=":
            return lower is None or compare(op, lower, literal)
    return upper is None or compare(op, upper, literal)


def _is_single(lower: Value, upper: Value) -> bool:
    return lower is not None and upper is not None and bool(lower == upper)


def _some_between(literals: tuple[Value, ...], lower: Value, upper: Value) -> bool:
    first = 0 if lower is None else bisect_left(literals, lower)
    return first < len(literals) and (upper is None or bool(literals[first] <= upper))


def _between(literals: tuple[Value, ...], lower: Value, upper: Value) -> tuple[Value, ...]:
    first = 0 if lower is None else bisect_left(literals, lower)
    return literals[first : None if upper is None else bisect_right(literals, upper)]


# --- where the ranges come from ---------------------------------------------------------------------------------------


def file_may_match(expression: tree.Expression, file: DataFile) -> bool:
    """Tell whether a data file may hold a selected row, by its statistics."""
    return file.record_count != 0 and may_match(expression, lambda column: file_range(file, column))


def file_must_match(expression: tree.Expression, file: DataFile) -> bool:
    """Tell whether every row of a data file is certainly selected, by its statistics."""
    return must_match(expression, lambda column: file_range(file, column))


def file_range(file: DataFile, column: tree.Column) -> ColumnRange:
    """Return what the statistics of a data file say about a column."""
    values, nulls = _count(file.value_counts, column), _count(file.null_value_counts, column)
    nans = _count(file.nan_value_counts, column) if has_nan(column.type) else 0
    lower, upper = read_bounds(column.type, _get(file.lower_bounds, column), _get(file.upper_bounds, column))
    if has_wrong_bounds(column.type, file.file_format):
        lower, upper = None, None
    return range_from_counts(
        column, rows=file.record_count, values=values, nulls=nulls, nans=nans, lower=lower, upper=upper
    )


def range_from_counts(
    column: tree.Column,
    *,
    rows: int,
    values: int | None,
    nulls: int | None,
    nans: int | None,
    lower: Value,
    upper: Value,
) -> ColumnRange:
    """Return what counts and bounds say about a column; None is unknown, 0 NaNs where the type has none."""
    # ORC counts the values of a field in a struct without the rows in which the struct is null.
    all_rows_counted = not column.is_nested or values == rows
    are_all_null = bool(values) and (nulls or 0) >= (values or 0)
    are_all_nan = bool(values) and bool(nans) and (nulls or 0) + (nans or 0) >= (values or 0)
    return ColumnRange(
        may_be_null=not (nulls == 0 and all_rows_counted),
        may_be_nan=nans != 0 and not are_all_null,
        may_be_value=not (are_all_null or are_all_nan),
        lower=lower,
        upper=upper,
    )


def summary_range(summary: FieldSummary, kind: IcebergType | None) -> ColumnRange:
    """Return what a manifest's summary says about a partition field.

    Nothing about bounds of binary and fixed: where Iceberg Java 1.10 rewrites a manifest, for example to delete one of
    its files, it writes bounds that are values of none of them. Whoever believes them loses rows.
    """
    is_of_bytes = isinstance(kind, BinaryType | FixedType)
    lower, upper = (None, None) if is_of_bytes else read_bounds(kind, summary.lower_bound, summary.upper_bound)
    has_bounds = summary.lower_bound is not None or summary.upper_bound is not None
    # Spec: no bounds if all values are null or NaN. Without nulls and NaNs, the writer left the bounds out.
    is_without_values = not has_bounds and (summary.contains_null or bool(summary.contains_nan))
    return ColumnRange(
        may_be_null=summary.contains_null,
        may_be_nan=has_nan(kind) and summary.contains_nan is not False,
        may_be_value=not is_without_values,
        lower=lower,
        upper=upper,
    )


def has_nan(kind: IcebergType | None) -> bool:
    """Tell whether values of a type can be NaN."""
    return isinstance(kind, (FloatType, DoubleType))


def read_bounds(kind: IcebergType | None, lower: bytes | None, upper: bytes | None) -> tuple[Value, Value]:
    """Decode a pair of bounds; what cannot be relied on is unknown."""
    return trusted_bounds(kind, decode_bound(kind, lower), decode_bound(kind, upper))


def trusted_bounds(kind: IcebergType | None, lower: Value, upper: Value) -> tuple[Value, Value]:
    """Return a pair of canonical bounds, or nothing where they cannot be relied on.

    Old writers wrote NaN as a bound, and then both bounds are wrong.
    """
    # Differs from Java: bounds of UUIDs are not used. It ordered them as signed numbers for years, others as bytes, and
    # the file does not say which.
    if isinstance(kind, UUIDType) or is_nan(lower) or is_nan(upper):
        return None, None
    if lower is not None and upper is not None and lower > upper:
        return None, None
    return lower, upper


def has_wrong_bounds(kind: IcebergType | None, file_format: str) -> bool:
    """Whether the bounds of a column in files of a format may be others than those of its values.

    Iceberg Java 1.9 to 1.11 wrote bounds of nanoseconds in ORC files as microseconds.
    """
    # Differs from Java: it believes them, and rows are lost.
    return file_format.lower() == "orc" and isinstance(kind, TimestampNsType | TimestamptzNsType)


def decode_bound(kind: IcebergType | None, data: bytes | None) -> Value:
    """Return the value of a bound; None for none, and for one that cannot be read."""
    if data is None or kind is None:
        return None
    try:
        return from_bytes(kind, data)
    except IcebergError:
        return None


def _count(counts: Mapping[int, int] | None, column: tree.Column) -> int | None:
    count: int | None = _get(counts, column)
    return count if count is not None and count >= 0 else None


def _get(values: Mapping[int, Any] | None, column: tree.Column) -> Any:
    return None if values is None or column.field_id is None else values.get(column.field_id)
