"""Hypothesis strategies: types, values of a type with nulls and extremes, schemas."""

import math
import uuid
from collections.abc import Iterator
from itertools import count
from typing import Any

from hypothesis import strategies as st

from airflow_iceberg.format import types as kinds
from airflow_iceberg.format.schemas.schema import Schema, assign_fresh_ids
from airflow_iceberg.format.transforms import transform
from airflow_iceberg.format.values.bytes import canonical_key

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
MICROS_PER_DAY = 86_400_000_000

_NUMBERS = (kinds.BooleanType, kinds.IntegerType, kinds.LongType, kinds.FloatType, kinds.DoubleType)
_TIMES = (kinds.DateType, kinds.TimeType, kinds.TimestampType, kinds.TimestamptzType, kinds.TimestampNsType)
_OTHERS = (kinds.TimestamptzNsType, kinds.StringType, kinds.UUIDType, kinds.BinaryType)
PLAIN_TYPES: tuple[kinds.PrimitiveType, ...] = tuple(kind() for kind in (*_NUMBERS, *_TIMES, *_OTHERS))


def decimal_types() -> st.SearchStrategy[kinds.DecimalType]:
    sizes = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))
    return sizes.map(lambda size: kinds.DecimalType(*size))


def primitive_types() -> st.SearchStrategy[kinds.PrimitiveType]:
    """All types that rows can have here; unknown, variant and the geospatial ones have no values."""
    return st.one_of(st.sampled_from(PLAIN_TYPES), decimal_types(), st.integers(0, 20).map(kinds.FixedType))


def transforms() -> st.SearchStrategy[transform.Transform]:
    numbers = st.one_of(st.integers(1, 20), st.sampled_from((1, 2, 1000, INT_MAX - 1, INT_MAX)))
    plain = [getattr(transform, f"{name}Transform")() for name in ("Identity", "Year", "Month", "Day", "Hour", "Void")]
    return st.one_of(
        st.sampled_from(plain), numbers.map(transform.BucketTransform), numbers.map(transform.TruncateTransform)
    )


def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    edges = [edge for edge in (low, low + 1, -1, 0, 1, high - 1, high) if low <= edge <= high]
    return st.one_of(st.integers(low, high), st.sampled_from(edges), st.integers(max(low, -100), min(high, 100)))


def _timestamps(units_per_micro: int) -> st.SearchStrategy[int]:
    day = MICROS_PER_DAY * units_per_micro
    around_midnight = st.builds(
        lambda days, off: days * day + off, st.integers(-800_000, 2_932_896), st.integers(-1, 1)
    )
    within = around_midnight.filter(lambda value: LONG_MIN <= value <= LONG_MAX)
    return st.one_of(_integers(LONG_MIN, LONG_MAX), within)


_SPECIAL_FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf)


def values(type_: kinds.IcebergType) -> st.SearchStrategy[Any]:
    """Canonical values of a type, extremes and special values included, without None at the top."""
    if isinstance(type_, kinds.DecimalType):
        limit = 10**type_.precision - 1
        return _integers(-limit, limit).map(lambda number: transform.scaled(number, type_.scale))
    if isinstance(type_, kinds.FixedType):
        return st.binary(min_size=type_.length, max_size=type_.length)
    if isinstance(type_, (kinds.TimestampType, kinds.TimestamptzType)):
        return _timestamps(1)
    if isinstance(type_, (kinds.TimestampNsType, kinds.TimestamptzNsType)):
        return _timestamps(1000)
    if isinstance(type_, (kinds.FloatType, kinds.DoubleType)):
        width = 32 if isinstance(type_, kinds.FloatType) else 64
        return st.one_of(st.floats(width=width), st.sampled_from(_SPECIAL_FLOATS))
    if isinstance(type_, (kinds.StructType, kinds.ListType, kinds.MapType)):
        return _nested_values(type_)
    plain: dict[type, st.SearchStrategy[Any]] = {
        kinds.BooleanType: st.booleans(),
        kinds.IntegerType: _integers(INT_MIN, INT_MAX),
        kinds.LongType: _integers(LONG_MIN, LONG_MAX),
        kinds.DateType: _integers(INT_MIN, INT_MAX),
        kinds.TimeType: _integers(0, MICROS_PER_DAY - 1),
        kinds.StringType: st.one_of(st.text(max_size=40), st.text("aé日\U0001f600\U0010ffff", max_size=8)),
        kinds.UUIDType: st.binary(min_size=16, max_size=16).map(lambda data: uuid.UUID(bytes=data)),
        kinds.BinaryType: st.binary(max_size=40),
    }
    return plain[type(type_)]


def _nested_values(type_: kinds.IcebergType) -> st.SearchStrategy[Any]:
    if isinstance(type_, kinds.StructType):
        return st.tuples(*(_maybe(child.type, child.required) for child in type_.fields))
    if isinstance(type_, kinds.ListType):
        return st.lists(_maybe(type_.element, type_.element_required), max_size=3).map(tuple)
    assert isinstance(type_, kinds.MapType)
    return st.dictionaries(values(type_.key), _maybe(type_.value, type_.value_required), max_size=3)


def _maybe(type_: kinds.IcebergType, required: bool) -> st.SearchStrategy[Any]:
    return values(type_) if required else st.one_of(st.none(), values(type_))


def columns(type_: kinds.IcebergType, *, max_size: int = 20) -> st.SearchStrategy[list[Any]]:
    """Lists of canonical values of a type, None among them."""
    return st.lists(_maybe(type_, required=False), max_size=max_size)


def names() -> st.SearchStrategy[str]:
    return st.text("abcxyz_", min_size=1, max_size=3)


@st.composite
def types(draw: st.DrawFn, *, depth: int = 2, ids: Iterator[int] | None = None) -> kinds.IcebergType:
    """Any type down to a depth; ids count up, so that a schema of them is legal."""
    ids = ids or count(1)
    kind = draw(st.sampled_from(("primitive", "primitive", "struct", "list", "map"))) if depth else "primitive"
    if kind == "struct":
        return kinds.StructType(fields=draw(_fields(depth - 1, ids)))
    if kind == "list":
        element_id, required = next(ids), draw(st.booleans())
        return kinds.ListType(
            element_id=element_id, element=draw(types(depth=depth - 1, ids=ids)), element_required=required
        )
    if kind == "map":
        key_id, value_id, required = next(ids), next(ids), draw(st.booleans())
        # Keys whose equality is that of Python: no floats.
        key = draw(st.sampled_from((kinds.IntegerType(), kinds.StringType(), kinds.DateType())))
        value = draw(types(depth=depth - 1, ids=ids))
        return kinds.MapType(key_id=key_id, key=key, value_id=value_id, value=value, value_required=required)
    return draw(primitive_types())


@st.composite
def _fields(draw: st.DrawFn, depth: int, ids: Iterator[int]) -> tuple[kinds.NestedField, ...]:
    found = draw(st.lists(names(), min_size=1, max_size=4, unique=True))
    return tuple(
        kinds.NestedField(
            id=next(ids),
            name=name,
            type=draw(types(depth=depth, ids=ids)),
            required=draw(st.booleans()),
            doc=draw(st.one_of(st.none(), st.just("words"))),
        )
        for name in found
    )


@st.composite
def schemas(draw: st.DrawFn, *, depth: int = 2) -> Schema:
    """Legal schemas with fresh ids and with an identifier field where a column allows it."""
    schema = assign_fresh_ids(Schema(draw(_fields(depth, count(1))), schema_id=draw(st.integers(0, 5))))
    may_identify = [
        child.id
        for child in schema.fields
        if child.required
        and isinstance(child.type, kinds.PrimitiveType)
        and not isinstance(child.type, (kinds.FloatType, kinds.DoubleType))
    ]
    identifiers = tuple(may_identify[:1]) if draw(st.booleans()) else ()
    return Schema(schema.fields, schema.schema_id, identifiers)


def is_canonical_equal(left: Any, right: Any) -> bool:
    """Tell whether two canonical values of one type are the same, as for the values of a partition."""
    return canonical_key(left) == canonical_key(right)
