"""One Parquet data file, and what all Parquet files of a writer share (`ParquetLayout`).

Not here: what files of all formats share (`data.write.file_layout`), when a row group or a file ends and which
partition a row belongs to (`data.write.partitioned`), statistics (`data.write.metrics`).
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.data.dictionaries import SAMPLED_ROWS, is_dictionary_of, plain_columns, with_types
from airflow_iceberg.data.write.file_layout import FileLayout, storage_errors
from airflow_iceberg.data.write.file_types import file_schema, parquet_path, path_of, to_file_type
from airflow_iceberg.data.write.metrics import MetricsAccumulator
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.variant_footer import AnnotatingSink
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import Value, VariantType
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

# The rows of a smaller sample, and how many times as many rows a row group has to have for each of the two.
_FEW_SAMPLED_ROWS, _FEW_SAMPLES, _MANY_SAMPLES = 16_384, 2, 4


class ParquetLayout(FileLayout):
    """What all Parquet files of a writer have in common; arguments and errors as of `FileLayout`."""

    file_format = "parquet"

    def __init__(self, io: FileIO, **layout: Any) -> None:
        super().__init__(io, **layout)
        self.file_schema = file_schema(self.schema, self.row_schema)
        self.variants = _variant_paths(self.schema)
        self._rows_are_file_rows = self.row_schema.equals(self.file_schema)
        self._settings = {
            **encoder_settings(self.options),
            "write_statistics": self._columns_but(self.options.without_statistics),
            "use_dictionary": self._columns_but(self.options.without_dictionary),
        }
        # Java stores the schema under this key, too.
        self._footer_entries = {"iceberg.schema": json.dumps(self.schema.to_dict(), separators=(",", ":"))}

    def open(self, partition: tuple[Value, ...], first: pa.Table) -> ParquetFile:
        """Open a new file for a first row group; errors as of `FileLayout.open`."""
        self.options.check_format()
        return ParquetFile(self, partition, first)

    def encoded_bytes(self, sample: pa.Table) -> int:
        """Return the size of some rows as a row group."""
        sink = pa.MockOutputStream()
        with self.parquet_writer(sink, sample.schema, rows=1, plain=self.plain_columns(sample)) as writer:
            writer.write_table(sample, row_group_size=sample.num_rows)
            return int(sink.size())

    def parquet_writer(
        self,
        sink: Any,
        schema: pa.Schema,
        *,
        rows: int,
        footers: list[Any] | None = None,
        plain: frozenset[str] = frozenset(),
    ) -> pq.ParquetWriter:
        """Return an encoder into a sink.

        Args:
            schema: the schema of the rows: `file_schema`, with dictionaries for some texts.
            rows: the number of rows of the first row group, the most values that Bloom filters are sized for.
            footers: a list that the footer is appended to on close.
            plain: columns that are written without a dictionary.
        """
        settings = dict(self._settings)
        if plain:
            settings["use_dictionary"] = self._columns_but(self.options.without_dictionary | plain)
        if filters := self._bloom_filters(rows):
            settings["bloom_filter_options"] = filters
        writer = pq.ParquetWriter(sink, schema, metadata_collector=footers, **settings)
        writer.add_key_value_metadata(self._footer_entries)
        return writer

    def to_file(self, table: pa.Table) -> pa.Table:
        """Return rows in the types of the file, mostly without a copy; texts in dictionaries remain so."""
        if self._rows_are_file_rows:
            return table
        columns, fields = [], []
        for item in self.file_schema:
            column = table.column(item.name)
            if is_dictionary_of(column.type, item.type):
                item = item.with_type(column.type)
            columns.append(column if column.type.equals(item.type) else to_file_type(column, item.type))
            fields.append(item)
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def plain_columns(self, rows: pa.Table) -> frozenset[str]:
        """Return the columns to write without a dictionary, by the first row group of a file, unless it is small."""
        if rows.num_rows < _FEW_SAMPLES * _FEW_SAMPLED_ROWS:
            return frozenset()
        sampled = SAMPLED_ROWS if rows.num_rows >= _MANY_SAMPLES * SAMPLED_ROWS else _FEW_SAMPLED_ROWS
        return plain_columns(rows, most_bytes=self.options.dict_size_bytes, sampled=sampled)

    def _columns_but(self, without: frozenset[str]) -> bool | list[str]:
        """Return the columns of a file except some, by their paths in the file; True for all."""
        if not without:
            return True
        found: list[str] = []
        for column in self.columns:
            if ".".join(column.path) not in without:
                path = ".".join(parquet_path(column.path, self.schema))
                is_variant = isinstance(column.type, VariantType)
                found += [f"{path}.metadata", f"{path}.value"] if is_variant else [path]
        return found

    def _bloom_filters(self, rows: int) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        if not self.options.bloom_filters or not _supports("bloom_filter_options"):
            return found
        for column in self.columns:
            wanted = self.options.bloom_filters.get(".".join(column.path))
            if wanted is not None:
                distinct = max(1, min(wanted.distinct_values, rows))
                path = ".".join(parquet_path(column.path, self.schema))
                found[path] = {"ndv": distinct, "fpp": wanted.false_positives}
        return found


def encoder_settings(options: WriteOptions) -> Mapping[str, Any]:
    """Return the arguments of the Parquet writer that are the same for all columns."""
    settings: dict[str, Any] = {
        "compression": options.compression,
        "compression_level": options.compression_level,
        "data_page_size": options.page_size_bytes,
        "data_page_version": options.page_version,
        "dictionary_pagesize_limit": options.dict_size_bytes,
        "store_decimal_as_integer": True,
        # No Arrow schema in the footer: readers use Parquet's own types, and small files remain small.
        "store_schema": False,
    }
    if _supports("max_rows_per_page"):
        settings["max_rows_per_page"] = options.page_row_limit
    if options.bloom_filters and not _supports("bloom_filter_options"):
        log.warning("Bloom filters are enabled, but pyarrow %s cannot write them", pa.__version__)
    return settings


@cache
def _supports(argument: str) -> bool:
    """Return whether this version of pyarrow has an argument of the Parquet writer."""
    return argument in inspect.signature(pq.ParquetWriter.__init__).parameters


def _variant_paths(schema: Schema) -> frozenset[tuple[str, ...]]:
    found = (field for field in schema.fields_by_id.values() if isinstance(field.type, VariantType))
    return frozenset(parquet_path(path_of(schema, field.id), schema) for field in found)


class ParquetFile:
    """One Parquet file that is being written; see `file_layout.OpenFile`.

    Args:
        first: the first row group, which is not written here.
    """

    def __init__(self, layout: ParquetLayout, partition: tuple[Value, ...], first: pa.Table) -> None:
        self.location = layout.next_location(partition)
        self._spec_id = layout.spec.spec_id
        self._partition = partition
        self._sort_order_id = layout.sort_order_id
        self._metrics = MetricsAccumulator(layout.metrics)
        self._footers: list[pq.FileMetaData] = []
        with storage_errors(self.location):
            self._sink = layout.open_sink(self.location)
        self._annotating = AnnotatingSink(self._sink, layout.variants) if layout.variants else None
        target = self._sink if self._annotating is None else pa.PythonFile(self._annotating, mode="w")
        self._schema = first.schema
        try:
            plain = layout.plain_columns(first)
            self._writer = layout.parquet_writer(
                target, self._schema, rows=first.num_rows, footers=self._footers, plain=plain
            )
        except BaseException:
            self._sink.close()
            raise

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def write_rows(self, table: pa.Table) -> None:
        """Write rows, already in the file's types, as one row group."""
        table = with_types(table, self._schema)
        self._metrics.observe(table)
        with storage_errors(self.location):
            self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> DataFile:
        """Write the footer and describe the file."""
        with storage_errors(self.location):
            if self._annotating is not None:
                self._annotating.hold()
            self._writer.close()
            if self._annotating is not None:
                self._annotating.finish()
            size_bytes = self.size_bytes
            self._sink.close()
        return DataFile(
            file_path=self.location,
            file_format="parquet",
            partition=self._partition,
            spec_id=self._spec_id,
            file_size_in_bytes=size_bytes,
            sort_order_id=self._sort_order_id,
            **vars(self._metrics.finish(self._footers[0])),
        )

    def abort(self) -> None:
        """Close the file's handles; the caller deletes the file."""
        for part in (self._writer, self._sink):
            with suppress(Exception):
                part.close()
