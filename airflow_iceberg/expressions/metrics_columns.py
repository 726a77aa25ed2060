"""What can be known about the rows of many files without opening them: `metrics`, a column at a time.

Here: the same rule for the files of some manifests, with numpy where bounds are numbers, and one file after the other
(by `metrics` itself) where they are texts, decimals or else. Not here: the rule's reasons; both are tested to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.metrics import (
    ColumnRange,
    decode_bound,
    has_nan,
    has_wrong_bounds,
    predicate_may_hold,
    read_bounds,
)
from airflow_iceberg.format import types as t
from airflow_iceberg.format.avro import columns_read
from airflow_iceberg.format.manifests.columns import EntryColumns

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = Any
"""An array of integers or of floats."""

_LAYOUTS = {
    **dict.fromkeys((t.IntegerType, t.DateType), "<i4"),
    **dict.fromkeys((t.LongType, t.TimeType, *t.TIMESTAMPS), "<i8"),
    t.FloatType: "<f4",
    t.DoubleType: "<f8",
}


def columns_of(expression: tree.Expression) -> frozenset[int]:
    """Return the ids of the columns of a bound predicate."""
    ids = (predicate.column.field_id for predicate in tree.predicates(expression))
    return frozenset(field_id for field_id in ids if field_id is not None)


def rows_may_match(expression: tree.Expression, entries: EntryColumns, rows: Ints) -> Mask:
    """Tell which of some files may hold a selected row, by their statistics.

    Args:
        expression: a bound predicate, whose columns' statistics were requested when the entries were read.
        rows: the files, by their rows among the entries.
    """
    known: dict[tree.Column, _Ranges] = {}

    def ranges(column: tree.Column) -> _Ranges:
        if column not in known:
            known[column] = _Ranges.of(entries, rows, column)
        return known[column]

    found: Mask = (entries.record_count[rows] != 0) & _may_match(expression, ranges, len(rows))
    return found


def _may_match(expression: tree.Expression, ranges: Callable[[tree.Column], _Ranges], size: int) -> Mask:
    match expression:
        case tree.And() | tree.Or():
            join = np.logical_and if isinstance(expression, tree.And) else np.logical_or
            found: Mask = join.reduce([_may_match(child, ranges, size) for child in expression.operands])
            return found
        case tree.Predicate():
            return _may_hold(expression, ranges(expression.column))
    return np.full(size, not isinstance(expression, tree.AlwaysFalse))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bounds:
    """Bounds that are numbers, and where there are any that can be relied on."""

    lower: Numbers
    upper: Numbers
    has_lower: Mask
    has_upper: Mask


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ranges:
    """As `ColumnRange`, of many files.

    Attributes:
        bounds: the bounds of each file as numbers; None if they are no numbers.
        raw: the bounds of each file as values, for tests of one file at a time.
    """

    may_be_null: Mask
    may_be_nan: Mask
    may_be_value: Mask
    bounds: _Bounds | None
    raw: Callable[[], Iterator[tuple[t.Value, t.Value]]]

    @classmethod
    def of(cls, entries: EntryColumns, rows: Ints, column: tree.Column) -> _Ranges:
        """Return what the statistics of some files say about a column; see `range_from_counts`."""
        values, has_values = _counts(entries, "value_counts", column, rows)
        nulls, has_nulls = _counts(entries, "null_value_counts", column, rows)
        if has_nan(column.type):
            nans, has_nans = _counts(entries, "nan_value_counts", column, rows)
        else:
            nans, has_nans = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        # Unknown counts are 0 here, like `or 0` in `range_from_counts`.
        some = has_values & (values != 0)
        are_all_null = some & (nulls >= values)
        are_all_nan = some & (nans != 0) & (nulls + nans >= values)
        all_rows_counted = has_values & (values == entries.record_count[rows]) if column.is_nested else True
        return cls(
            may_be_null=~(has_nulls & (nulls == 0) & all_rows_counted),
            may_be_nan=~(has_nans & (nans == 0)) & ~are_all_null,
            may_be_value=~(are_all_null | are_all_nan),
            bounds=_bounds(entries, rows, column),
            raw=lambda: _raw_bounds(entries, rows, column),
        )

    def single(self) -> Iterator[ColumnRange]:
        """Yield the range of each file."""
        flags = (self.may_be_null.tolist(), self.may_be_nan.tolist(), self.may_be_value.tolist())
        for may_be_null, may_be_nan, may_be_value, (lower, upper) in zip(*flags, self.raw(), strict=True):
            yield ColumnRange(
                may_be_null=may_be_null, may_be_nan=may_be_nan, may_be_value=may_be_value, lower=lower, upper=upper
            )


def _counts(entries: EntryColumns, name: str, column: tree.Column, rows: Ints) -> tuple[Ints, Mask]:
    found = _statistic(entries, name, column)
    if found is None:
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    numbers = found.values[rows]
    valid = numbers >= 0 if found.valid is None else found.valid[rows] & (numbers >= 0)
    return np.where(valid, numbers, 0), valid


def _statistic(entries: EntryColumns, name: str, column: tree.Column) -> columns_read.Column | None:
    return None if column.field_id is None else entries.records.by_key.get((name, column.field_id))


def _bounds(entries: EntryColumns, rows: Ints, column: tree.Column) -> _Bounds | None:
    layout = _LAYOUTS.get(type(column.type))  # type: ignore[arg-type]
    if layout is None:
        return None
    lower, has_lower = _numbers(entries, rows, column, "lower_bounds", layout)
    upper, has_upper = _numbers(entries, rows, column, "upper_bounds", layout)
    # As in `trusted_bounds`.
    both = has_lower & has_upper
    with np.errstate(invalid="ignore"):
        wrong = (has_lower & (lower != lower)) | (has_upper & (upper != upper)) | (both & (lower > upper))
    wrong |= _are_wrong(entries, rows, column)
    return _Bounds(lower=lower, upper=upper, has_lower=has_lower & ~wrong, has_upper=has_upper & ~wrong)


def _numbers(entries: EntryColumns, rows: Ints, column: tree.Column, name: str, layout: str) -> tuple[Numbers, Mask]:
    dtype = np.dtype(layout)
    result = np.zeros(len(rows), np.float64 if dtype.kind == "f" else np.int64)
    found = _statistic(entries, name, column)
    if found is None or found.lengths is None:
        return result, np.zeros(len(rows), np.bool_)
    starts, lengths = found.values[rows], found.lengths[rows]
    valid = found.is_valid()[rows]
    whole = np.flatnonzero(valid & (lengths == dtype.itemsize))
    data = np.frombuffer(entries.records.data, np.uint8)
    if len(whole):
        result[whole] = data[starts[whole][:, None] + np.arange(dtype.itemsize)].view(layout).ravel()
    # Bounds written before a promotion are shorter; other lengths cannot be read.
    for row in np.flatnonzero(valid & (lengths != dtype.itemsize)).tolist():
        start = int(starts[row])
        value = decode_bound(column.type, entries.records.data[start : start + int(lengths[row])])
        valid[row] = value is not None and (result.dtype.kind == "f" or -(2**63) <= value < 2**63)
        result[row] = value if valid[row] else 0
    return result, valid


def _raw_bounds(entries: EntryColumns, rows: Ints, column: tree.Column) -> Iterator[tuple[t.Value, t.Value]]:
    texts = [_bytes(entries, rows, column, name) for name in ("lower_bounds", "upper_bounds")]
    wrong = _are_wrong(entries, rows, column).tolist()
    for lower, upper, is_wrong in zip(*texts, wrong, strict=True):
        yield (None, None) if is_wrong else read_bounds(column.type, lower, upper)


def _are_wrong(entries: EntryColumns, rows: Ints, column: tree.Column) -> Mask:
    """Return the files whose bounds of a column may be wrong; see `has_wrong_bounds`."""
    if type(column.type) not in (t.TimestampNsType, t.TimestamptzNsType):  # the usual case, and the files are many
        return np.zeros(len(rows), np.bool_)
    found: Mask = np.array([has_wrong_bounds(column.type, entries.file_format[row]) for row in rows.tolist()], np.bool_)
    return found


def _bytes(entries: EntryColumns, rows: Ints, column: tree.Column, name: str) -> list[bytes | None]:
    found, data = _statistic(entries, name, column), entries.records.data
    if found is None or found.lengths is None:
        return [None] * len(rows)
    starts, ends = found.values[rows], (found.values + found.lengths)[rows]
    spans = zip(starts.tolist(), ends.tolist(), found.is_valid()[rows].tolist(), strict=True)
    return [data[start:end] if valid else None for start, end, valid in spans]


# --- the rule ---------------------------------------------------------------------------------------------------------


def _may_hold(predicate: tree.Predicate, found: _Ranges) -> Mask:
    match predicate:
        case tree.IsNull():
            return found.may_be_null
        case tree.NotNull():
            return found.may_be_nan | found.may_be_value
        case tree.IsNan():
            return found.may_be_nan
        case tree.NotNan():
            return found.may_be_null | found.may_be_value
        case tree.Comparison() | tree.In() | tree.NotIn() if found.bounds is not None and _are_numbers(
            predicate, found.bounds
        ):
            result: Mask = found.may_be_value & _value_may_hold(predicate, found.bounds)
            if isinstance(predicate, tree.NotIn) or (
                isinstance(predicate, tree.Comparison) and predicate.op in ("!=", ">", ">=")
            ):
                result |= found.may_be_nan  # NaN is above every number
            return result
    return np.fromiter((predicate_may_hold(predicate, one) for one in found.single()), np.bool_, len(found.may_be_null))


def _are_numbers(predicate: tree.Comparison | tree.In | tree.NotIn, bounds: _Bounds) -> bool:
    """Tell whether numpy compares the literals as Python does."""
    literals = (predicate.literal,) if isinstance(predicate, tree.Comparison) else predicate.literals
    is_float = bounds.lower.dtype.kind == "f"
    # An upsert asks for as many as there are keys: no step in Python for each.
    if not set(map(type, literals)) <= {float if is_float else int}:
        return False
    return is_float or not literals or (min(literals) >= -(2**63) and max(literals) < 2**63)


def _value_may_hold(predicate: tree.Comparison | tree.In | tree.NotIn, bounds: _Bounds) -> Any:
    lower, upper = bounds.lower, bounds.upper
    is_single = bounds.has_lower & bounds.has_upper & (lower == upper)
    if isinstance(predicate, tree.In):
        return _some_between(predicate.literals, bounds)
    if isinstance(predicate, tree.NotIn):
        return ~(is_single & _some_between(predicate.literals, bounds))
    literal: Any = predicate.literal
    match predicate.op:
        case "=":
            return (~bounds.has_lower | (lower <= literal)) & (~bounds.has_upper | (upper >= literal))
        case "!=":
            return ~(is_single & (lower == literal))
        case "<":
            return ~bounds.has_lower | (lower < literal)
        case "<=":
            return ~bounds.has_lower | (lower <= literal)
        case ">":
            return ~bounds.has_upper | (upper > literal)
    return ~bounds.has_upper | (upper >= literal)


def _some_between(literals: tuple[t.Value, ...], bounds: _Bounds) -> Any:
    if not literals:
        return np.zeros(len(bounds.lower), np.bool_)
    sorted_literals = np.array(literals, bounds.lower.dtype)
    first = np.where(bounds.has_lower, np.searchsorted(sorted_literals, bounds.lower, side="left"), 0)
    exists = first < len(literals)
    found = sorted_literals[np.minimum(first, len(literals) - 1)]
    return exists & (~bounds.has_upper | (found <= bounds.upper))
