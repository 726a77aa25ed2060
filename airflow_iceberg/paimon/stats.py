"""SimpleStats: bounds and null counts of the columns of a file, and which columns those are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from airflow_iceberg.errors import FormatError
from airflow_iceberg.paimon.binary_row import RowDecoder, row_arity
from airflow_iceberg.paimon.schema import SYSTEM_FIELDS, PaimonSchema
from airflow_iceberg.paimon.types import PaimonField

Value = Any

# Columns that are stored in their own files: without "write-cols", other files do not have them.
_DEDICATED = ("BLOB", "VECTOR")


@dataclass(frozen=True, kw_only=True, slots=True)
class SimpleStats:
    """The statistics in a manifest, not decoded yet.

    Attributes:
        min_values, max_values: the bounds, serialized BinaryRows.
        null_counts: the null count of each column, None for unknown.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnStats:
    """The statistics of one column in one file; None for unknown.

    Attributes:
        min, max: the bounds. Text and bytes may be truncated. None also if all values are null.
    """

    min: Value
    max: Value
    null_count: int | None


def stats_fields(
    schema: PaimonSchema, value_stats_cols: Sequence[str] | None, write_cols: Sequence[str] | None, arity: int
) -> tuple[PaimonField, ...]:
    """Return the fields of the columns in `_VALUE_STATS`.

    Args:
        schema: the schema of the file, by its `_SCHEMA_ID`, not of the snapshot.
        value_stats_cols: `_VALUE_STATS_COLS`: exactly these columns; empty for no statistics at all.
        write_cols: `_WRITE_COLS`: the columns of the file; with or without Paimon's own.
        arity: the number of bounds, which shows whether Paimon's own columns, or columns in other files, are counted.

    Raises:
        FormatError: `value_stats_cols` names a column that the schema does not have.
    """
    if value_stats_cols is not None:
        return tuple(SYSTEM_FIELDS.get(name) or schema.field(name) for name in value_stats_cols)
    if write_cols is not None:
        fields = tuple(field for name in write_cols if (field := schema.find(name)) is not None)
        if arity == len(fields):
            return fields
        found = (schema.find(name) or SYSTEM_FIELDS.get(name) for name in write_cols)
        return tuple(field for field in found if field is not None)
    if arity != len(schema.fields):
        return tuple(field for field in schema.fields if field.type.root not in _DEDICATED)
    return schema.fields


class StatsDecoder:
    """Decodes the statistics of files, many of which have the same columns.

    Args:
        schemas: the schemas of the files, by id.
    """

    def __init__(self, schemas: Mapping[int, PaimonSchema]) -> None:
        self._schemas = schemas
        self._plan = lru_cache(maxsize=256)(self._make_plan)

    def decode(
        self,
        stats: SimpleStats,
        *,
        schema_id: int,
        value_stats_cols: Sequence[str] | None,
        write_cols: Sequence[str] | None,
        path: str | None = None,
    ) -> dict[str, ColumnStats]:
        """Return the statistics of a file by the names of its columns, without Paimon's own columns.

        Raises:
            FormatError: the bounds are no rows of these columns, or the schema does not have a column.
        """
        arity = row_arity(stats.min_values, where="_VALUE_STATS._MIN_VALUES", path=path)
        if not arity:  # a writer without statistics writes rows without fields
            return {}
        dense = None if value_stats_cols is None else tuple(value_stats_cols)
        written = None if write_cols is None else tuple(write_cols)
        try:
            names, decoder = self._plan(schema_id, dense, written, arity)
        except FormatError as error:
            raise error if error.path or path is None else FormatError(str(error), path=path) from error
        lower = decoder.decode(stats.min_values, where="_VALUE_STATS._MIN_VALUES", path=path)
        upper = decoder.decode(stats.max_values, where="_VALUE_STATS._MAX_VALUES", path=path)
        counts = _null_counts(stats, len(names), path)
        return {
            name: ColumnStats(min=low, max=high, null_count=count)
            for name, low, high, count in zip(names, lower, upper, counts, strict=True)
            if name not in SYSTEM_FIELDS
        }

    def _make_plan(
        self, schema_id: int, dense: tuple[str, ...] | None, written: tuple[str, ...] | None, arity: int
    ) -> tuple[tuple[str, ...], RowDecoder]:
        schema = self._schemas.get(schema_id)
        if schema is None:
            raise FormatError(f"statistics are of schema {schema_id}, which the table does not have")
        fields = stats_fields(schema, dense, written, arity)
        return tuple(field.name for field in fields), RowDecoder(field.type for field in fields)


def _null_counts(stats: SimpleStats, size: int, path: str | None) -> tuple[int | None, ...]:
    counts = stats.null_counts or ()
    if len(counts) > size:
        raise FormatError(f"{len(counts)} null counts for {size} columns in '_VALUE_STATS._NULL_COUNTS'", path=path)
    # Some writers write -1 for unknown.
    known = tuple(None if count is None or count < 0 else count for count in counts)
    return known + (None,) * (size - len(counts))
