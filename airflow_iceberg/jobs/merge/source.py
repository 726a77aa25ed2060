"""The source of a merge: its rows are read once, and kept in spill files, with their keys once more by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_iceberg.data.cast.rows import check_rows, conform
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.context import coalesced, fill
from airflow_iceberg.jobs.sources.files import read_unit
from airflow_iceberg.jobs.task import Keep, StageUnits, TaskReport

if TYPE_CHECKING:
    from airflow_iceberg.jobs.merge.tasks import MergeContext

# Buckets of the rows of a source, and of their keys.
ROWS, KEYS = 0, 1


def read_source(context: MergeContext, spec: StageUnits) -> Iterator[pa.Table]:
    """Yield the rows of source files; columns of the table have its types, others those of the files."""
    fields = {item.name: item for item in context.task.write.schema.fields}
    schema: pa.Schema | None = None
    for unit in spec.units:
        options = context.task.source.format_options if context.task.source else {}
        first_row = unit.first_row
        for table in read_unit(unit, context.io, schema=context.task.write.schema, options=options):
            check_rows(table, source=unit.location, first_row=first_row)
            known = [name for name in table.column_names if name in fields]
            optional = Schema(tuple(replace(fields[name], required=False) for name in known))
            rows = conform(table.select(known), optional, source=unit.location, first_row=first_row)
            columns = [
                rows.column(name) if name in fields else _plain(table.column(name)) for name in table.column_names
            ]
            found = pa.table(columns, names=table.column_names)
            check_same_columns(schema, found.schema)
            schema = found.schema
            yield found
            first_row += table.num_rows


def check_same_columns(schema: pa.Schema | None, other: pa.Schema) -> None:
    """Raise InvalidInputError unless two source files have the same columns; the first schema may be missing."""
    if schema is not None and not other.equals(schema):
        one, two = (", ".join(f"{field.name} {field.type}" for field in each) for each in (schema, other))
        raise InvalidInputError(
            f"the source files have different columns: {one}, and {two}; a merge needs the same in all of them"
        )


def spelled(keys: Sequence[str], schema: pa.Schema, source: str) -> tuple[str, ...]:
    """Return the source's own spelling of key columns.

    Raises:
        InvalidInputError: it has no such column.
    """
    found = {name.lower(): name for name in schema.names}
    for name in keys:
        if name.lower() not in found:
            raise InvalidInputError(
                f"column {name!r}, by which rows are matched, is not in {source}, which has {', '.join(schema.names)}"
            )
    return tuple(found[name.lower()] for name in keys)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type that every engine has; nested columns stay as they are."""
    kinds, arrow = pa.types, column.type
    if kinds.is_dictionary(arrow):
        return _plain(column.cast(arrow.value_type))
    if kinds.is_large_string(arrow) or kinds.is_string_view(arrow):
        return column.cast(pa.string())
    if kinds.is_large_binary(arrow) or kinds.is_binary_view(arrow) or kinds.is_fixed_size_binary(arrow):
        return column.cast(pa.binary())
    if kinds.is_unsigned_integer(arrow):
        return column.cast(pa.int64())
    if kinds.is_timestamp(arrow) and arrow.unit != "us":
        return column.cast(pa.timestamp("us", arrow.tz), safe=False)
    return column


def keep(context: MergeContext, number: int, tables: Iterable[pa.Table], staging: Keep, source: str) -> TaskReport:
    """Keep rows of the source, so that it is asked for them once; messages call it `source`."""

    def cut(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        yield ROWS, table
        if staging.keys:
            yield KEYS, table.select(list(spelled(staging.keys, table.schema, source)))

    return TaskReport.of_slices(number, fill(context.spill(number, cut), _valid(coalesced(tables), source)))


def _valid(tables: Iterable[pa.Table], source: str) -> Iterator[pa.Table]:
    """Yield rows after a check of their values: the SQL of a merge also sees columns that the table does not have."""
    first_row = 1
    for table in tables:
        check_rows(table, source=source, first_row=first_row)
        first_row += table.num_rows
        yield table
