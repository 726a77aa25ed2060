"""What a predicate about rows says about the partitions of these rows.

Here: the inclusive projection of a predicate through a partition spec, and residuals: what is left of a predicate for
the rows of one partition. Not here: statistics of files and manifests (`metrics`), the transforms themselves
(`format.transforms.transform`).

An inclusive projection is true of every partition that may hold a selected row. Whether all rows of a partition are
selected (the strict question) needs no second set of rules: they are if the *negated* predicate, projected
inclusively, is not true, and no row can be null.

Spec: Scan Planning. What cannot be projected (void, unknown transforms, several sources) prunes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from airflow_iceberg.errors import FormatError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.matching import matches
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec
from airflow_iceberg.format.transforms import transform as kinds
from airflow_iceberg.format.transforms.transform import BucketTransform, HourTransform, Transform, TruncateTransform
from airflow_iceberg.format.types import DecimalType, IcebergType, IntegerType, LongType, Value
from airflow_iceberg.format.values.numbers import scaled, units_per_second, unscaled

_MICROS_PER_HOUR = 3_600_000_000
# Residuals are cached for this many partitions; the files of one partition mostly follow each other.
_CACHED_PARTITIONS = 8192


def project(expression: tree.Expression, spec: PartitionSpec) -> tree.Expression:
    """Return a predicate over partition values that is true of every partition that may hold a selected row.

    Args:
        expression: a bound predicate in negation normal form.
    Returns:
        The same kind of tree; its columns carry the ids of partition fields.
    """

    def projected(predicate: tree.Predicate) -> tree.Expression:
        fields = (field for field in spec.fields if _is_source(predicate.column, field))
        return tree.all_of(*(_project_field(predicate, field) for field in fields))

    return tree.replace_predicates(expression, projected)


def _is_source(column: tree.Column, field: PartitionField) -> bool:
    several = field.source_ids is not None and len(field.source_ids) > 1
    return not several and field.source_id == column.field_id


def _project_field(predicate: tree.Predicate, field: PartitionField) -> tree.Expression:
    source_type = predicate.column.type
    if source_type is None or not field.transform.can_transform(source_type):
        return tree.ALWAYS_TRUE
    result_type = field.transform.result_type(source_type)
    target = tree.Column(name=field.name, field_id=field.field_id, type=result_type, path=(field.name,))
    return _project_predicate(predicate, field.transform, source_type, target)


def _project_predicate(
    predicate: tree.Predicate, transform: Transform, source_type: IcebergType, target: tree.Column
) -> tree.Expression:
    if isinstance(transform, kinds.IdentityTransform):
        return _move(predicate, target)
    if not isinstance(transform, (BucketTransform, TruncateTransform, kinds.TimeTransform)):
        return tree.ALWAYS_TRUE
    # These transforms map null, and nothing but null, to null.
    if isinstance(predicate, (tree.IsNull, tree.NotNull)):
        return _move(predicate, target)
    if isinstance(predicate, (tree.Comparison, tree.In)):
        return _project_values(predicate, transform, source_type, target)
    if isinstance(transform, TruncateTransform) and isinstance(predicate, (tree.StartsWith, tree.NotStartsWith)):
        return _project_prefix(predicate, transform.width, target)
    return tree.ALWAYS_TRUE


def _move(predicate: tree.Predicate, target: tree.Column) -> tree.Expression:
    """Return the same predicate for another column."""
    if isinstance(predicate, tree.Comparison):
        return tree.Comparison(predicate.op, target, predicate.literal)
    return replace(predicate, column=target)


def _project_values(
    predicate: tree.Comparison | tree.In, transform: Transform, source_type: IcebergType, target: tree.Column
) -> tree.Expression:
    """Project = and IN through any transform, and the order through those that keep it."""
    if isinstance(predicate, tree.In) or predicate.op == "=":
        literals = predicate.literals if isinstance(predicate, tree.In) else (predicate.literal,)
        results = {result for literal in literals for result in _results(transform, literal, source_type)}
        return _equal_to_one(target, results)
    if predicate.op == "!=" or isinstance(transform, BucketTransform):
        # Other values share the partition of the literal.
        return tree.ALWAYS_TRUE
    literal = predicate.literal
    if predicate.op in ("<", "<="):
        limit = literal if predicate.op == "<=" else _step(literal, source_type, -1)
        return _at_most(transform, limit, source_type, target)
    limit = literal if predicate.op == ">=" else _step(literal, source_type, +1)
    return _at_least(transform, limit, source_type, target)


def _equal_to_one(target: tree.Column, results: set[Value]) -> tree.Expression:
    if len(results) == 1:
        return tree.Comparison("=", target, *results)
    return tree.In(target, tuple(sorted(results)))


def _step(literal: Value, source_type: IcebergType, by: int) -> Value:
    """Return the next value of a countable type, maybe outside its range; the literal itself for other types."""
    if isinstance(literal, int):
        return literal + by
    if isinstance(literal, Decimal) and isinstance(source_type, DecimalType):
        return scaled(unscaled(literal, source_type.scale) + by, source_type.scale)
    return literal


def _apply(transform: Transform, literal: Value, source_type: IcebergType) -> Value:
    """Transform a literal; numbers without the wrap at the range of the result type, which would break the order."""
    if isinstance(transform, kinds.TimeTransform):
        return transform.since_epoch(literal, units_per_second(source_type))
    if isinstance(transform, TruncateTransform):
        if isinstance(literal, int):
            return literal - literal % transform.width
        if isinstance(literal, Decimal) and isinstance(source_type, DecimalType):
            number = unscaled(literal, source_type.scale)
            return scaled(number - number % transform.width, source_type.scale)
    return transform.apply(literal, source_type)


def _results(transform: Transform, literal: Value, source_type: IcebergType) -> Iterator[Value]:
    """Yield every partition value that files with rows of the literal may have been given."""
    result = _apply(transform, literal, source_type)
    yield result
    if isinstance(transform, kinds.TimeTransform) and result < 0:
        # Iceberg Java before 0.11 rounded towards zero.
        yield result + 1
    # In Java, results beyond the range of their type wrap: those of the lowest numbers (the column may have been an
    # int, and promoted since), and the hours of the first and last timestamps.
    if isinstance(transform, HourTransform):
        yield (result + 2**31) % 2**32 - 2**31
    if isinstance(transform, TruncateTransform) and isinstance(source_type, (IntegerType, LongType)):
        yield from (result + 2**bits for bits in (32, 64) if result < -(2 ** (bits - 1)) <= literal)


def _at_most(transform: Transform, limit: Value, source_type: IcebergType, target: tree.Column) -> tree.Expression:
    """Project ``column <= limit`` through a transform that keeps the order."""
    result = _apply(transform, limit, source_type)
    if isinstance(transform, kinds.TimeTransform) and result < 0:
        # As in `_results`: a negative result may have been written as the next one.
        result += 1
    wrapped = (
        tree.And(tree.Comparison(">=", target, low), tree.Comparison("<=", target, high))
        for low, high in _wrapped_ranges(transform, source_type)
    )
    return tree.any_of(tree.Comparison("<=", target, result), *wrapped)


def _at_least(transform: Transform, limit: Value, source_type: IcebergType, target: tree.Column) -> tree.Expression:
    """Project ``column >= limit`` through a transform that keeps the order."""
    result = tree.Comparison(">=", target, _apply(transform, limit, source_type))
    if isinstance(transform, HourTransform):
        # As in `_wrapped_ranges`: the last hours of a timestamp are beyond the range of an int.
        return tree.any_of(result, tree.Comparison("<=", target, (2**63 - 1) // _MICROS_PER_HOUR - 2**32))
    return result


def _wrapped_ranges(transform: Transform, source_type: IcebergType) -> Iterator[tuple[int, int]]:
    """Yield the ranges of partition values that Java may have written for the lowest values of a type.

    Their results are below the range of the result type and wrap to its top.
    """
    if isinstance(transform, HourTransform):
        yield -(2**63) // _MICROS_PER_HOUR + 2**32, 2**31 - 1
    if isinstance(transform, TruncateTransform) and isinstance(source_type, (IntegerType, LongType)):
        for top in (2**31 - 1, 2**63 - 1):
            yield top - transform.width, top


def _project_prefix(
    predicate: tree.StartsWith | tree.NotStartsWith, width: int, target: tree.Column
) -> tree.Expression:
    prefix = predicate.prefix
    if isinstance(predicate, tree.StartsWith):
        return tree.Comparison("=", target, prefix[:width]) if len(prefix) >= width else tree.StartsWith(target, prefix)
    # The truncated value does not show whether the row has a longer prefix.
    return tree.NotStartsWith(target, prefix) if len(prefix) <= width else tree.ALWAYS_TRUE


def evaluate(expression: tree.Expression, values: Callable[[int], Value]) -> bool:
    """Tell whether a projected predicate is true of one partition.

    Args:
        values: the value of a partition field, by field id.
    """

    def holds(predicate: tree.Predicate) -> bool:
        field_id = predicate.column.field_id
        return field_id is not None and matches(predicate, values(field_id))

    return tree.is_true(expression, holds)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A predicate with what decides, for a partition, that it holds for none or for all of its rows."""

    predicate: tree.Predicate
    may_hold: tree.Expression
    may_fail: tree.Expression

    def residual(self, values: Callable[[int], Value]) -> tree.Expression:
        if not evaluate(self.may_hold, values):
            return tree.ALWAYS_FALSE
        return self.predicate if evaluate(self.may_fail, values) else tree.ALWAYS_TRUE


class Residuals:
    """What is left of a predicate for the rows of a partition of one spec.

    ``AlwaysFalse`` means that no row can be selected, ``AlwaysTrue`` that all are.
    """

    def __init__(self, expression: tree.Expression, spec: PartitionSpec) -> None:
        self._expression = expression
        self._positions = {field.field_id: index for index, field in enumerate(spec.fields)}
        self._leaves = {predicate: _leaf(predicate, spec) for predicate in tree.predicates(expression)}
        self._cached = lru_cache(maxsize=_CACHED_PARTITIONS)(self._compute)

    def of(self, partition: tuple[Any, ...]) -> tree.Expression:
        """Return the residual for a partition.

        Args:
            partition: canonical values in the order of the spec's fields.
        """
        return self._cached(partition)

    def _compute(self, partition: tuple[Any, ...]) -> tree.Expression:
        def value_of(field_id: int) -> Value:
            return partition[self._positions[field_id]]

        try:
            return tree.replace_predicates(self._expression, lambda leaf: self._leaves[leaf].residual(value_of))
        except TypeError as error:
            # The schema in the manifest has other partition types than the spec of the manifest.
            raise FormatError(f"partition values {partition!r} are not of the types of their spec ({error})") from error


def _leaf(predicate: tree.Predicate, spec: PartitionSpec) -> _Leaf:
    may_fail = project(tree.negate(predicate), spec)
    if not isinstance(predicate, (tree.IsNull, tree.NotNull, tree.IsNan, tree.NotNan)):
        # A null row fails both the predicate and its negation.
        may_fail = tree.any_of(may_fail, project(tree.IsNull(predicate.column), spec))
    return _Leaf(predicate, project(predicate, spec), may_fail)
