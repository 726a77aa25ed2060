"""The entries of manifests as Arrow tables, in the columns of Iceberg's tables `files` and `entries`.

Here: one row for each entry, also deleted ones: the entry's own columns, those of its file, and `readable_metrics`: the
statistics of each column of the table's schema by name. Columns are converted without objects; entries that are objects
give the same table row by row. Not here: reading manifests (`columns`), and which rows a user sees
(`scan.metadata_tables`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.arrow.buffers import number_array
from airflow_iceberg.format.arrow.types import array_from_values, type_to_arrow
from airflow_iceberg.format.manifests.column_arrays import (
    SharedArrays,
    bound_column,
    bytes_column,
    file_column,
    narrow,
    narrow_column,
    number_column,
    plain_numbers,
    readable_bound,
    text_column,
)
from airflow_iceberg.format.manifests.columns import EntryColumns
from airflow_iceberg.format.manifests.entries import DataFile, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.types import LeafType, NestedField, StructType, UnknownType

_COUNTS, _BOUNDS = pa.map_(pa.int32(), pa.int64()), pa.map_(pa.int32(), pa.binary())
_MAPS = {
    **dict.fromkeys(("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"), _COUNTS),
    **dict.fromkeys(("lower_bounds", "upper_bounds"), _BOUNDS),
}
_AFTER_MAPS = {
    "key_metadata": pa.binary(),
    "split_offsets": pa.list_(pa.int64()),
    "equality_ids": pa.list_(pa.int32()),
    "sort_order_id": pa.int32(),
    "first_row_id": pa.int64(),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}
OF_ENTRY = {
    "status": pa.int32(),
    "snapshot_id": pa.int64(),
    "sequence_number": pa.int64(),
    "file_sequence_number": pa.int64(),
}
"""The columns of an entry that are not columns of its file."""
# A metric in `readable_metrics`, and the map with its values.
_METRICS = (
    ("column_size", "column_sizes"),
    ("value_count", "value_counts"),
    ("null_value_count", "null_value_counts"),
    ("nan_value_count", "nan_value_counts"),
    ("lower_bound", "lower_bounds"),
    ("upper_bound", "upper_bounds"),
)


class EntryTables:
    """Converts the entries of a table to Arrow tables.

    Attributes:
        file_columns: names and types of the columns of a file, without `readable_metrics`.
        schema: columns of the entry, columns of the file, and `readable_metrics`.
        metric_ids: field ids of the columns in `readable_metrics`.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._metrics = tuple(_leaves(metadata.schema().fields, ""))
        self._partition = StructType(fields=metadata.partition_fields())
        self.metric_ids = frozenset(field.id for _, field in self._metrics)
        partition = {"partition": type_to_arrow(self._partition)} if self._partition.fields else {}
        self.file_columns: dict[str, pa.DataType] = {
            "content": pa.int32(),
            "file_path": pa.string(),
            "file_format": pa.string(),
            "spec_id": pa.int32(),
            **partition,
            "record_count": pa.int64(),
            "file_size_in_bytes": pa.int64(),
            **_MAPS,
            **_AFTER_MAPS,
        }
        metrics = pa.struct([(name, _metric_type(field)) for name, field in self._metrics])
        self.schema = pa.schema(list({**OF_ENTRY, **self.file_columns, "readable_metrics": metrics}.items()))

    # --- from columns

    def of_columns(self, entries: EntryColumns, *, live_only: bool = False) -> pa.Table:
        """Return the table of entries that were read with `lists` and the keys `metric_ids`."""
        size = len(entries)
        specs = np.array([manifest.partition_spec_id for manifest in entries.manifests], np.int64)
        columns: dict[str, pa.Array] = {
            "status": narrow_column(entries.status),
            **{name: number_column(getattr(entries, name)) for name in list(OF_ENTRY)[1:]},
            "content": narrow_column(entries.content),
            "file_path": bytes_column(entries, entries.records.columns["file_path"]),
            "file_format": text_column([text.upper() for text in entries.file_format]),
            "spec_id": number_array(np.repeat(narrow(specs), np.diff(entries.borders))),
            "record_count": number_array(entries.record_count),
            "file_size_in_bytes": number_array(entries.file_size_in_bytes),
            "first_row_id": number_column(entries.first_row_id),
        }
        if self._partition.fields:
            columns["partition"] = self._partition_column(entries)
        shared = SharedArrays()
        for name in (*_MAPS, *_AFTER_MAPS):
            if name not in columns:
                columns[name] = file_column(entries, name, self.schema.field(name).type, shared)
        metrics = [self._metric(entries, field) for _, field in self._metrics]
        columns["readable_metrics"] = self._struct_of_metrics(metrics, size)
        arrays = [columns[field.name] for field in self.schema]
        arrays = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, self.schema, strict=True)
        ]
        assert all(len(array) == size for array in arrays)
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        return table.filter(number_array(entries.is_live)) if live_only and not entries.is_live.all() else table

    def _partition_column(self, entries: EntryColumns) -> pa.Array:
        chunks = [(each.partition_spec_id, *entries.rows_of(number)) for number, each in enumerate(entries.manifests)]
        arrays = []
        for spec_id, group in groupby(chunks, itemgetter(0)):
            same_spec = list(group)
            arrays.append(self._partition_rows(entries, spec_id, same_spec[0][1], same_spec[-1][2]))
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)

    def _partition_rows(self, entries: EntryColumns, spec_id: int, start: int, end: int) -> pa.Array:
        places = {field.id: place for place, field in enumerate(self._partition_type(spec_id).fields)}
        arrays = []
        for field in self._partition.fields:
            arrow_type = type_to_arrow(field.type)
            if field.id not in places or isinstance(field.type, UnknownType):
                arrays.append(pa.nulls(end - start, arrow_type))
                continue
            place = places[field.id]
            raw = entries.records.columns.get(f"p{place}")
            fast = None
            if raw is not None and entries.partition_is_raw(place):
                is_text = raw.lengths is not None and arrow_type == pa.string()
                fast = bytes_column(entries, raw).cast(arrow_type) if is_text else plain_numbers(raw, arrow_type)
            if fast is not None:
                arrays.append(fast.slice(start, end - start))
            else:
                values = [_partition_value(partition, place) for partition in entries.partition[start:end]]
                arrays.append(array_from_values(field.type, values))
        return pa.StructArray.from_arrays(arrays, fields=list(type_to_arrow(self._partition)))

    def _struct_of_metrics(self, arrays: list[pa.Array], size: int) -> pa.Array:
        if not arrays:
            return pa.array([{}] * size, pa.struct([]))
        return pa.StructArray.from_arrays(arrays, fields=list(self.schema.field("readable_metrics").type))

    def _metric(self, entries: EntryColumns, field: NestedField) -> pa.Array:
        metric_type = _metric_type(field)
        arrays = []
        for number, (_, name) in enumerate(_METRICS):
            arrow_type = metric_type[number].type
            found = entries.records.by_key.get((name, field.id))
            if found is None:
                arrays.append(pa.nulls(len(entries), arrow_type))
            elif found.lengths is None:
                arrays.append(number_column(found))
            else:
                arrays.append(bound_column(entries, found, field.type, arrow_type))
        return pa.StructArray.from_arrays(arrays, fields=list(metric_type))

    # --- from objects

    def of_entries(self, entries: Iterable[ManifestEntry], *, live_only: bool = False) -> pa.Table:
        """Return the same table of entries that are objects."""
        known = [entry for entry in entries if entry.is_live or not live_only]
        schema = pa.schema([field for field in self.schema if field.name != "readable_metrics"])
        table = pa.Table.from_pylist([self._entry_row(entry) for entry in known], schema=schema)
        metrics = [_metric_rows([entry.data_file for entry in known], field) for _, field in self._metrics]
        return table.append_column(self.schema.field("readable_metrics"), self._struct_of_metrics(metrics, len(known)))

    def _entry_row(self, entry: ManifestEntry) -> dict[str, Any]:
        return {
            "status": entry.status.value,
            "snapshot_id": entry.snapshot_id,
            "sequence_number": entry.sequence_number,
            "file_sequence_number": entry.file_sequence_number,
            **self._file_row(entry.data_file),
        }

    def _file_row(self, file: DataFile) -> dict[str, Any]:
        maps = {name: None if (found := getattr(file, name)) is None else list(found.items()) for name in _MAPS}
        return {
            "content": file.content.value,
            "file_path": file.file_path,
            "file_format": file.file_format.upper(),
            "spec_id": file.spec_id,
            "partition": self.partition_row(file.spec_id, file.partition),
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_in_bytes,
            **maps,
            **{name: getattr(file, name) for name in _AFTER_MAPS},
        }

    def partition_row(self, spec_id: int, partition: tuple[Any, ...]) -> dict[str, Any]:
        """Return a partition by the names in the struct of all specs."""
        types = self._partition_type(spec_id)
        # The values of a dropped column that nothing knows any more cannot be shown.
        values = {
            field.id: value.bytes if isinstance(value, uuid.UUID) else value
            for field, value in zip(types.fields, partition, strict=True)
            if not isinstance(field.type, UnknownType)
        }
        return {field.name: values.get(field.id) for field in self._partition.fields}

    def _partition_type(self, spec_id: int) -> StructType:
        return self._metadata.spec(spec_id).partition_type(self._metadata.schema_of_spec(spec_id))


def _leaves(fields: Iterable[NestedField], prefix: str) -> Iterator[tuple[str, NestedField]]:
    """Yield the columns with statistics, by full name; fields inside lists and maps have none."""
    for field in fields:
        if isinstance(field.type, StructType):
            yield from _leaves(field.type.fields, f"{prefix}{field.name}.")
        elif isinstance(field.type, LeafType):
            yield prefix + field.name, field


def _metric_type(field: NestedField) -> pa.StructType:
    bound = type_to_arrow(field.type)
    return pa.struct([(name, bound if name.endswith("bound") else pa.int64()) for name, _ in _METRICS])


def _metric_rows(files: list[DataFile], field: NestedField) -> pa.Array:
    metric_type = _metric_type(field)
    arrays = []
    for number, (_, source) in enumerate(_METRICS):
        found = [(getattr(file, source) or {}).get(field.id) for file in files]
        if source.endswith("bounds"):
            arrays.append(array_from_values(field.type, [readable_bound(field.type, bound) for bound in found]))
        else:
            arrays.append(pa.array(found, metric_type[number].type))
    return pa.StructArray.from_arrays(arrays, fields=list(metric_type))


def _partition_value(partition: tuple[Any, ...], place: int) -> Any:
    if place >= len(partition):
        raise FormatError(f"expected a partition of at least {place + 1} values, got {len(partition)}")
    return partition[place]
