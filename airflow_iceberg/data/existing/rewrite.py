"""The rows of files that readers of a table would misread, as rows of the table: cast as those of an append.

A column is found by its id, or by the table's name mapping, as a reader finds it. So are the values of columns that the
file does not have: those of its folders, and initial defaults. Bytes become the text of a `string` column if they are
UTF-8; a column of Parquet's null type is null. Not here: whether a file fits (`fields`), and the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from airflow_iceberg.data.cast.nulls import mask_of
from airflow_iceberg.data.cast.rows import conform
from airflow_iceberg.data.cast.types import shown
from airflow_iceberg.data.existing.describe import format_of
from airflow_iceberg.data.existing.partition import folder_values
from airflow_iceberg.data.existing.target import ExistingFile, Target
from airflow_iceberg.data.read.columns import missing_column
from airflow_iceberg.data.read.file_fields import FileField, fields_by_id, is_list, walk
from airflow_iceberg.data.read.metadata_columns import FileFacts
from airflow_iceberg.data.read.open_source import open_source
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of
from airflow_iceberg.storage.base import FileIO

_BATCH_ROWS = 1 << 17


def rows_of(io: FileIO, file: ExistingFile, target: Target) -> Iterator[pa.Table]:
    """Yield the rows of a file with the columns and types of the table's schema.

    Raises:
        InvalidInputError: a value does not fit its column, or the file contradicts its folder; the message names
            column, file, row and value.
        FormatError, UnsupportedError, StorageError: the file cannot be read.
    """
    constants = folder_values(file, target.spec, target.schema)
    first_row = 1
    with open_source(io, format_of(io, file), FileFacts(location=file.location), target.name_mapping) as source:
        opened: Any = source
        select = _Select(constants, _int96_ids(opened))
        for part in opened.parts():
            for rows in part.read([target.schema], _BATCH_ROWS):
                fields = rows.fields or {}
                wanted = target.schema.fields
                columns = [select.column(rows.batch, fields.get(item.id), item, rows.count) for item in wanted]
                table = pa.table(columns, names=[item.name for item in wanted])
                found = conform(table, target.schema, source=file.location, first_row=first_row)
                _check_folders(found, constants, target, file, first_row)
                yield found
                first_row += rows.count


def _int96_ids(source: Any) -> frozenset[int]:
    """Return the ids of the columns that are stored as INT96: instants of which the file says no zone."""
    if not hasattr(source, "parquet"):
        return frozenset()
    leaves = source.parquet.schema
    stored = {at for at in range(len(leaves)) if leaves.column(at).physical_type == "INT96"}
    plain = (field for field in walk(source.fields) if not field.children and field.leaf in stored)
    return frozenset(field.field_id for field in plain if field.field_id is not None)


class _Select:
    """Takes the columns of a table out of those of a file, in the file's types."""

    def __init__(self, constants: Mapping[int, t.Value], instants: frozenset[int]) -> None:
        self._constants = constants
        self._instants = instants

    def column(self, batch: pa.RecordBatch, found: FileField | None, wanted: t.NestedField, count: int) -> pa.Array:
        if found is None:
            return missing_column(wanted, count, self._constants)
        return self._values(batch.column(found.position), found, wanted)

    def _values(self, array: pa.Array, found: FileField, wanted: t.NestedField) -> pa.Array:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if kinds.is_dictionary(array.type):
            array = array.dictionary_decode()
        match wanted.type:
            case t.StructType() as struct if kinds.is_struct(array.type):
                return self._struct(array, found, struct)
            case t.ListType() as list_ if is_list(array.type):
                lists = array if kinds.is_list(array.type) else array.cast(pa.list_(array.type.value_field))
                offsets, start, size = _own_offsets(lists)
                values = self._values(lists.values.slice(start, size), found.children[0], list_.element_field)
                return pa.ListArray.from_arrays(offsets, values, mask=mask_of(lists))
            case t.MapType() as map_ if kinds.is_map(array.type):
                offsets, start, size = _own_offsets(array)
                key, item = found.children
                keys = self._values(array.keys.slice(start, size), key, map_.key_field)
                items = self._values(array.items.slice(start, size), item, map_.value_field)
                return pa.MapArray.from_arrays(offsets, keys, items, mask=mask_of(array))
            case t.StringType() if _is_bytes(array.type):
                return array.cast(pa.binary()).view(pa.string())
            case t.TimestamptzType() if found.field_id in self._instants:
                return array.view(pa.timestamp("us", tz="UTC"))
        return array

    def _struct(self, array: pa.Array, found: FileField, struct: t.StructType) -> pa.Array:
        by_id = fields_by_id(found.children)
        columns = []
        for child in struct.fields:
            inner = by_id.get(child.id)
            columns.append(
                missing_column(child, len(array), {})
                if inner is None
                else self._values(array.field(inner.position), inner, child)
            )
        return pa.StructArray.from_arrays(columns, names=[child.name for child in struct.fields], mask=mask_of(array))


def _own_offsets(lists: pa.Array) -> tuple[pa.Array, int, int]:
    """Return the offsets of a list or map from 0, and the span of its child."""
    if not len(lists):
        return pa.array([0], pa.int32()), 0, 0
    offsets = numbers_of(lists.offsets)
    start = int(offsets[0])
    return number_array(offsets - start), start, int(offsets[-1]) - start


def _is_bytes(kind: pa.DataType) -> bool:
    checks = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary)
    return any(check(kind) for check in checks)


def _check_folders(
    rows: pa.Table, constants: Mapping[int, t.Value], target: Target, file: ExistingFile, first_row: int
) -> None:
    """Refuse rows that contradict the folder of their file."""
    for field_id, value in constants.items():
        field = target.schema.fields_by_id[field_id]
        column = rows.column(field.name) if field in target.schema.fields else None
        if column is None or not len(column):
            continue
        expected = missing_column(field, 1, constants)[0]
        is_same = column.is_null() if value is None else pc.fill_null(pc.equal(column, expected), False)
        index = pc.index(is_same, False).as_py()
        if index >= 0:
            raise InvalidInputError(
                f"cannot add {file.location}: its folder says that column '{field.name}' is {shown(expected)}, and row "
                f"{first_row + index} has {shown(column[index])}; nothing was committed"
            )
