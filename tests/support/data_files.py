"""Data files and delete files of every format, written as other engines write them: with field ids at every depth."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from airflow_iceberg.data.read import file as file_reading
from airflow_iceberg.data.read.file import FileToRead
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.arrow import row_mask
from airflow_iceberg.expressions.binding import column_path, parse_filter
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import (
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StringType,
    StructType,
)
from airflow_iceberg.storage.base import FileIO

_AVRO: Mapping[type[IcebergType], str] = {
    IntegerType: "int",
    LongType: "long",
    DoubleType: "double",
    StringType: "string",
}


def read_file(io: FileIO, file: DataFile, **options: Any) -> Iterator[pa.RecordBatch]:
    """Call `data.read.file.read_file`; what is known of the file is among the options."""
    known = {field.name: options.pop(field.name) for field in fields(FileToRead) if field.name in options}
    return file_reading.read_file(io, FileToRead(file=file, **known), **options)


def write_data_file(path: Path, file_format: str, schema: Schema, rows: Sequence[Any], **options: Any) -> DataFile:
    """Write rows (dicts) and return the file as a manifest lists it."""
    if file_format == "avro":
        _write_avro(path, schema, rows, **options)
    elif file_format == "orc":
        table = pa.Table.from_pylist(list(rows), schema_to_arrow(schema, with_field_ids=False))
        _write_orc(path, table, schema, **options)
    else:
        pq.write_table(pa.Table.from_pylist(list(rows), schema_to_arrow(schema)), path, **options)
    return DataFile(
        file_path=str(path), file_format=file_format, record_count=len(rows), file_size_in_bytes=path.stat().st_size
    )


def puffin_footer(data: bytes) -> Any:
    """Return the document at the end of a Puffin file."""
    return json.loads(data[-12 - int.from_bytes(data[-12:-8], "little") : -12])


def filtered(rows: pa.Table, row_filter: str | tree.Expression, schema: Schema) -> pa.Table:
    """Return the rows that a filter selects, without the package's reader."""

    def reference(column: tree.Column) -> pc.Expression:
        path = column_path(schema, column.field_id)
        return pc.field(tuple(field.name for field in path)) if len(path) > 1 else pc.field(path[0].name)

    bound = parse_filter(row_filter, schema)
    if isinstance(bound, (tree.AlwaysTrue, tree.AlwaysFalse)):
        return rows if isinstance(bound, tree.AlwaysTrue) else rows.slice(0, 0)
    return rows.filter(row_mask(bound, reference))


def name_mapping(schema: Schema) -> str:
    def mapped(fields: Sequence[Any]) -> list[Any]:
        return [
            {"field-id": field.id, "names": [field.name], "fields": mapped(getattr(field.type, "fields", ()))}
            for field in fields
        ]

    return json.dumps(mapped(schema.fields))


def _write_orc(path: Path, table: pa.Table, schema: Schema, **options: Any) -> None:
    # pyarrow writes metadata of fields as attributes of the types, which is where Iceberg keeps its ids.
    def with_ids(fields: Sequence[Any], kinds: Sequence[pa.Field]) -> list[pa.Field]:
        found = []
        for field, kind in zip(fields, kinds, strict=True):
            inner = kind.type
            if isinstance(field.type, StructType):
                inner = pa.struct(with_ids(field.type.fields, list(inner.fields)))
            found.append(pa.field(kind.name, inner, kind.nullable, {"iceberg.id": str(field.id)}))
        return found

    orc.write_table(table.cast(pa.schema(with_ids(schema.fields, list(table.schema)))), path, **options)


def _write_avro(path: Path, schema: Schema, rows: Sequence[Any], **options: Any) -> None:
    record = _avro_record("table", schema.fields)
    with path.open("wb") as handle:
        fastavro.writer(handle, fastavro.parse_schema(record), list(rows), **{"sync_interval": 50, **options})


def _avro_record(name: str, fields: Sequence[Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field.name, "type": ["null", _avro_type(field)], "default": None, "field-id": field.id}
            for field in fields
        ],
    }


def _avro_type(field: Any) -> Any:
    if isinstance(field.type, StructType):
        return _avro_record(f"r{field.id}", field.type.fields)
    if isinstance(field.type, ListType):
        items = ["null", _avro_type(field.type.element_field)]
        return {"type": "array", "items": items, "element-id": field.type.element_id}
    return _AVRO[type(field.type)]
