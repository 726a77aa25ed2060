"""Rows of a data file of any format, and the columns of a schema made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.dictionaries import is_dictionary_of
from airflow_iceberg.data.read.columns import missing_column, read_column
from airflow_iceberg.data.read.file_fields import FileField, find_leaves
from airflow_iceberg.data.read.metadata_columns import FileFacts, metadata_column
from airflow_iceberg.expressions.metrics import ColumnRange
from airflow_iceberg.expressions.tree import Column
from airflow_iceberg.format.metadata_columns import METADATA_IDS
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import NestedField, StringType

BATCH_SIZE = 131_072


@dataclass(frozen=True, kw_only=True, slots=True)
class RawRows:
    """Consecutive rows of a file.

    Attributes:
        position: the position of the first row in the file.
        batch: the columns; None if no column of the file is needed.
        fields: the columns of the batch, by field id.
        deleted: the mask of the deleted rows, if the reader selects it; None for none.
    """

    position: int
    count: int
    batch: pa.RecordBatch | None
    fields: Mapping[int, FileField]
    facts: FileFacts
    deleted: Any = None

    def build(self, schema: Schema, mask: Any = None, *, keep_dictionaries: bool = False) -> pa.RecordBatch:
        """Return the rows, or those where the mask is true, with the columns of a schema.

        Args:
            keep_dictionaries: whether texts that were read as dictionaries are returned without decoding them.
        """
        if not schema.fields:
            count = self.count if mask is None else pc.sum(mask).as_py() or 0
            return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        arrow = _arrow_schema(schema)
        if keep_dictionaries:
            columns = [self.column(field) if found is None else found for field, found in self._dictionaries(schema)]
            arrow = pa.schema([field.with_type(column.type) for field, column in zip(arrow, columns, strict=True)])
        else:
            columns = [self.column(field) for field in schema.fields]
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow)
        return batch if mask is None else batch.filter(mask)

    def column(self, field: NestedField) -> pa.Array:
        """Return one column."""
        stored = self._stored(field)
        if field.id in METADATA_IDS:
            return metadata_column(field, stored, self.facts, self.position, self.count, self.deleted)
        return missing_column(field, self.count, self.facts.constants) if stored is None else stored

    def _dictionaries(self, schema: Schema) -> Iterator[tuple[NestedField, pa.Array | None]]:
        """Yield the fields, with the values of text columns that were read as dictionaries."""
        for field in schema.fields:
            found = self.fields.get(field.id)
            stored = None if found is None or self.batch is None else self.batch.column(found.position)
            is_kept = (
                stored is not None and isinstance(field.type, StringType) and is_dictionary_of(stored.type, pa.string())
            )
            yield field, stored if is_kept else None

    def _stored(self, field: NestedField) -> pa.Array | None:
        found = self.fields.get(field.id)
        if found is None or self.batch is None:
            return None
        return read_column(self.batch.column(found.position), found, field, self.facts.constants)


@lru_cache(maxsize=64)
def _arrow_schema(schema: Schema) -> pa.Schema:
    return schema_to_arrow(schema, with_field_ids=False)


class Part(Protocol):
    """A part of a file that is read or skipped as a whole: a row group, a stripe, or the file."""

    def ranges(self, schema: Schema) -> Callable[[Column], ColumnRange] | None:
        """Return the statistics of the columns of a schema in this part; None for none."""
        ...

    def span(self) -> tuple[int, int] | None:
        """Return the position of the first row and the number of rows; None if they are not known before reading."""
        ...

    def read(self, schemas: Sequence[Schema], batch_size: int) -> Iterator[RawRows]:
        """Yield the rows of the part with the columns that the schemas need."""
        ...


class Source(Protocol):
    """An open file."""

    fields: tuple[FileField, ...]

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the file in order."""
        ...


def needed_columns(schemas: Iterable[Schema], fields: Sequence[FileField]) -> tuple[FileField, ...]:
    """Return the top-level columns of a file that the schemas need."""
    leaves = {leaf for schema in schemas for leaf in find_leaves(schema.fields, fields)}
    return tuple(field for field in fields if any(leaf in leaves for leaf in field.leaves))


def rows_without_columns(facts: FileFacts, position: int, count: int, batch_size: int) -> Iterator[RawRows]:
    """Yield rows without any column."""
    for start in range(0, count, batch_size):
        rows = min(batch_size, count - start)
        yield RawRows(position=position + start, count=rows, batch=None, fields={}, facts=facts)
