"""Rows of this process as Arrow: tables, readers, frames of other libraries, and iterators of them, one part at a time.

A frame gives its rows by the Arrow PyCapsule interface (`__arrow_c_stream__`), so that neither pandas nor Polars is
imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError, UnsupportedError

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader

_EXPECTED = "an Arrow table or reader, a pandas or Polars frame, or an iterator of record batches"


def to_arrow_rows(found: object, *, name: str, empty: pa.Schema) -> Rows:
    """Return rows as Arrow; those of an iterator are taken from it while they are read.

    Args:
        name: the name of the function that has returned the rows, for errors.
        empty: the schema of an iterator that gives nothing.

    Raises:
        InvalidInputError: no rows; a part of an iterator with other columns than the first one, when it is reached.
        UnsupportedError: a Spark DataFrame.
    """
    rows = _arrow(found, name)
    if rows is not None:
        return rows
    if found is None:
        raise InvalidInputError(
            f"function {name!r} returned None, expected {_EXPECTED}; to write nothing, return a table without rows"
        )
    if isinstance(found, Iterable) and not isinstance(found, str | bytes | Mapping):
        return _reader(_batches(found, name), name, empty)
    raise InvalidInputError(f"function {name!r} returned a {type(found).__name__}, expected {_EXPECTED}")


def _arrow(found: object, name: str) -> Rows | None:
    """Return what is Arrow, or says that it can be; None for anything else."""
    if isinstance(found, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return found
    # From Spark 4.2 on its DataFrames have the Arrow interface, too, by which the driver would collect all rows.
    if type(found).__module__.partition(".")[0] == "pyspark":
        raise UnsupportedError(
            f"function {name!r} returned a Spark {type(found).__name__} of a session of its own; give it a parameter "
            f"'spark', which is the session that writes the rows, or give the operator the name of the function, "
            f"python_callable='package.module:{name}'"
        )
    try:
        if hasattr(found, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(found)
        if hasattr(found, "__arrow_c_array__"):
            return pa.record_batch(found)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"function {name!r} returned a {type(found).__name__} that cannot become an Arrow table: {error}"
        ) from error
    return None


def _batches(parts: Iterable[object], name: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of the parts, with the number of their part."""
    for number, part in enumerate(parts, start=1):
        rows = _arrow(part, name)
        if rows is None:
            raise InvalidInputError(
                f"part {number} of the rows of function {name!r} is a {type(part).__name__}, expected a record batch, "
                f"a table or a frame"
            )
        if isinstance(rows, pa.RecordBatch):
            yield number, rows
        elif isinstance(rows, pa.Table):
            # A table without rows has no batch, but it has columns.
            yield from ((number, batch) for batch in rows.to_batches() or [_no_rows(rows.schema)])
        else:
            yield from ((number, batch) for batch in rows)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


def _reader(batches: Iterator[tuple[int, pa.RecordBatch]], name: str, empty: pa.Schema) -> pa.RecordBatchReader:
    first = next(batches, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(empty, [])
    schema = first[1].schema
    return pa.RecordBatchReader.from_batches(schema, _alike(chain([first], batches), schema, name))


def _alike(batches: Iterable[tuple[int, pa.RecordBatch]], schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    for number, batch in batches:
        if not batch.schema.equals(schema):
            raise InvalidInputError(
                f"part {number} of the rows of function {name!r} has the columns {_columns(batch.schema)}, and the "
                f"first part has {_columns(schema)}; all parts need the same columns and types, in one order"
            )
        yield batch


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name} {one.type}" for one in schema)
