"""The rows of a Parquet file, a row group at a time: the columns that are needed, by field id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.data.dictionaries import dictionary_columns
from airflow_iceberg.data.read.file_fields import FileField, fields_by_id, file_fields, find_leaves
from airflow_iceberg.data.read.metadata_columns import FileFacts
from airflow_iceberg.data.read.raw_rows import RawRows, rows_without_columns
from airflow_iceberg.data.read.row_groups import group_ranges
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.expressions.metrics import ColumnRange
from airflow_iceberg.expressions.tree import Column
from airflow_iceberg.format.schemas.schema import Schema


class ParquetSource:
    """An open file and its columns."""

    def __init__(
        self, handle: Any, facts: FileFacts, name_mapping: str | None, *, pre_buffer: bool, keep_dictionaries: bool
    ) -> None:
        # INT96 has nanoseconds, and so a range of years 1677 to 2262; in microseconds nothing overflows.
        settings = {"coerce_int96_timestamp_unit": "us", "pre_buffer": pre_buffer}
        # One lock of its own for all reads: Bloom filters are read between row groups.
        self.handle = handle if isinstance(handle, pa.NativeFile) else pa.PythonFile(handle, mode="r")
        self.parquet = pq.ParquetFile(self.handle, **settings)
        found = dictionary_columns(self.parquet.metadata, self.parquet.schema_arrow) if keep_dictionaries else []
        if found:
            self.parquet = pq.ParquetFile(
                self.handle, metadata=self.parquet.metadata, read_dictionary=found, **settings
            )
        self.facts = facts
        self.name_mapping = name_mapping
        self.fields = file_fields(self.parquet.schema_arrow, name_mapping, facts.constants, path=facts.location)
        leaves = self.fields[-1].leaves.stop if self.fields else 0
        if leaves != len(self.parquet.schema):
            raise UnsupportedError(
                f"a Parquet file has a nested column of a kind that is not read yet: it holds "
                f"{len(self.parquet.schema)} columns of values where {leaves} are expected"
            )

    def parts(self) -> Iterator[_RowGroup]:
        """Yield the row groups."""
        position = 0
        for index in range(self.parquet.num_row_groups):
            group = _RowGroup(self, index, position)
            position += group.metadata.num_rows
            yield group


class _RowGroup:
    def __init__(self, source: ParquetSource, index: int, position: int) -> None:
        self.metadata = source.parquet.metadata.row_group(index)
        self._source = source
        self._index = index
        self._position = position

    def ranges(self, schema: Schema) -> Callable[[Column], ColumnRange]:
        source = self._source
        return group_ranges(self.metadata, schema, source.fields, source.facts.constants, source.handle)

    def span(self) -> tuple[int, int]:
        return self._position, self.metadata.num_rows

    def read(self, schemas: Sequence[Schema], batch_size: int) -> Iterator[RawRows]:
        source, position = self._source, self._position
        leaves = sorted({leaf for schema in schemas for leaf in find_leaves(schema.fields, source.fields)})
        if not leaves:
            yield from rows_without_columns(source.facts, position, self.metadata.num_rows, batch_size)
            return
        # By path: a name with a dot may also select another column, so columns of the batch are looked up by id again.
        paths = [source.parquet.schema.column(leaf).path for leaf in leaves]
        fields: Mapping[int, FileField] | None = None
        for batch in source.parquet.iter_batches(batch_size, row_groups=[self._index], columns=paths):
            fields = fields or fields_by_id(file_fields(batch.schema, source.name_mapping, source.facts.constants))
            yield RawRows(position=position, count=batch.num_rows, batch=batch, fields=fields, facts=source.facts)
            position += batch.num_rows
