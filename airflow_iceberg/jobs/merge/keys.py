"""The keys of a source: which files, row groups and rows of the table can match them.

Only what is proved is left out: pairs of columns that `on` compares by `=`, of types whose values the engines compare
as `expressions` does. The engine's join decides the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.expressions import tree
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.paths import at_path
from airflow_iceberg.format.arrow.types import type_to_arrow, values_from_array
from airflow_iceberg.format.schemas.schema import Schema

# Engines compare floats with other precisions, and texts with numbers by a cast.
_COMPARED = (
    t.IntegerType,
    t.LongType,
    t.StringType,
    t.DecimalType,
    t.DateType,
    t.TimestampType,
    t.TimestamptzType,
)
# Up to so many keys a filter names each; beyond, it has the smallest and the largest.
MOST_LITERALS_OF_FILES = 200_000
MOST_LITERALS_OF_ROWS = 1_000
MOST_LITERALS_OF_CONFLICTS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """The distinct keys of a source.

    Attributes:
        columns: columns of the table or fields of structs, bound, each with the values that can match, without nulls,
            sorted.
    """

    columns: tuple[tuple[tree.Column, pa.Array], ...] = ()

    @classmethod
    def of(cls, tables: Iterable[pa.Table], schema: Schema, key_ids: Sequence[int]) -> Keys:
        """Return the keys of rows.

        Args:
            tables: the keys of the source, as `source.keep` has kept them.
            schema: the columns of the table.
            key_ids: the fields of the table that they are compared with.
        """
        found: list[list[pa.Array]] = [[] for _ in key_ids]
        for table in tables:
            for gathered, column in zip(found, table.columns, strict=True):
                # Nested values have no order here, and no hash: the empty ones tell that there are such.
                is_nested = pa.types.is_nested(column.type)
                gathered.append(pa.array([], column.type) if is_nested else pc.unique(column))
        fields = [schema.find_field(field_id) for field_id in key_ids]
        columns = [
            (tree.Column(schema.find_name(field.id) or "", field.id, field.type, schema.path(field.id)), known)
            for field, parts in zip(fields, found, strict=True)
            if (known := _comparable(parts, field.type)) is not None
        ]
        return cls(columns=tuple(columns))

    def filter(self, most_literals: int) -> tree.Expression:
        """Return a bound predicate that all rows of the table satisfy which can match.

        Args:
            most_literals: the largest number of keys that it names.
        """
        return tree.all_of(*(_filter(column, values, most_literals) for column, values in self.columns))

    def mask(self, table: pa.Table) -> pa.ChunkedArray | None:
        """Return which rows of the table can match; None for all."""
        mask = None
        for column, values in self.columns:
            found = pc.is_in(at_path(table, column.path), value_set=values)
            mask = found if mask is None else pc.and_(mask, found)
        return mask


def _comparable(parts: Sequence[pa.Array], type_: t.IcebergType) -> pa.Array | None:
    """Return the values as the table's type, None if engines may compare them in another way."""
    if not isinstance(type_, _COMPARED):
        return None
    target = type_to_arrow(type_)
    arrays = [_cast(part, target) for part in parts]
    if any(array is None for array in arrays):
        return None
    joined = pa.concat_arrays(arrays) if arrays else pa.array([], target)
    values = pc.drop_null(pc.unique(joined))
    return values.take(pc.array_sort_indices(values))


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if values.type == target or pa.types.is_null(values.type):
        return values.cast(target)
    texts = pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type)
    if not (pa.types.is_integer(values.type) and pa.types.is_integer(target)) and not (texts and target == pa.string()):
        return None
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        return None  # a key beyond the range of the column; the engine compares the wider numbers


def _filter(column: tree.Column, values: pa.Array, most_literals: int) -> tree.Expression:
    assert column.type is not None
    if len(values) == 0:
        return tree.ALWAYS_FALSE
    if len(values) <= most_literals:
        return tree.In(column, tuple(values_from_array(column.type, values)))
    # The bounds of the order in which the specification compares values: Arrow's of these types.
    first, last = values_from_array(column.type, values.take([0, len(values) - 1]))
    return tree.all_of(tree.Comparison(">=", column, first), tree.Comparison("<=", column, last))
