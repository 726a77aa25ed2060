"""Readers of the source formats: each yields Arrow tables of a bounded number of rows, in the file's own types.

The text formats are read without guessing types: the table's schema has them, and a guess from the first block could
fail in the last one. Not here: CSV (`sources.csv_files`), the text, the types and the columns of JSON
(`sources.json.text`, `sources.json.shape`, `sources.json.columns`).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.data.declared import declared_rows, orc_columns, parquet_columns
from airflow_iceberg.data.existing.parquet_footer import read_footer
from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.avro.amplification import refuse_amplification
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.sources import csv_files
from airflow_iceberg.jobs.sources.avro_blocks import plain_blocks
from airflow_iceberg.jobs.sources.avro_schema import arrow_schema, read_as, without_defaults
from airflow_iceberg.jobs.sources.json.absent import with_required
from airflow_iceberg.jobs.sources.json.columns import table_of
from airflow_iceberg.jobs.sources.json.text import Lines, read_objects
from airflow_iceberg.jobs.sources.open_file import open_binary, open_text
from airflow_iceberg.jobs.sources.unit import Unit, open_filesystem

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO

BATCH_BYTES = 64 << 20
MAX_BATCH_ROWS = 1 << 20
MIN_BATCH_ROWS = 1 << 10
TEXT_BLOCK_BYTES = 16 << 20
JSON_BATCH_ROWS = 50_000
AVRO_BATCH_ROWS = 50_000
# Source files are of anybody, and may have many columns.
_MOST_IDLE = 1_000


def read(unit: Unit, io: "FileIO", *, schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield the rows of a unit; see `sources.files.read_unit`, which also names the errors."""
    check_options(unit, options)
    reader: dict[str, Callable[..., Iterator[pa.Table]]] = {
        "parquet": _read_parquet,
        "csv": _read_csv,
        "jsonl": _read_jsonl,
        "orc": _read_orc,
        "avro": _read_avro,
    }
    yield from reader[unit.file_format](unit, io, schema, options)


def columns(unit: Unit, io: "FileIO", *, schema: Schema, options: Mapping[str, str]) -> pa.Schema | None:
    """Return the columns of a file, with the types that its format declares; None for an empty file.

    Not for JSON lines, whose rows have the columns (`objects`).
    """
    check_options(unit, options)
    reader: dict[str, Callable[..., pa.Schema | None]] = {
        "parquet": _parquet_columns,
        "csv": _csv_columns,
        "orc": _orc_columns,
        "avro": _avro_columns,
    }
    return reader[unit.file_format](unit, io, schema, options)


def objects(unit: Unit, io: "FileIO") -> Iterator[Lines]:
    """Yield the objects of a file of JSON lines, in batches."""
    with open_text(unit, io) as stream:
        yield from read_objects(stream, unit.location, block_bytes=TEXT_BLOCK_BYTES, batch_rows=JSON_BATCH_ROWS)


def check_options(unit: Unit, options: Mapping[str, str]) -> None:
    """Raise InvalidInputError for an option that the format does not have."""
    known = csv_files.OPTIONS if unit.file_format == "csv" else ()
    for name in options:
        if name not in known:
            hint = f"one of {', '.join(known)}" if known else "it has none"
            raise InvalidInputError(f"unknown option {name!r} for {unit.file_format} files; {hint}")


# ---- Parquet, ORC


def row_groups(location: str, io: "FileIO") -> list[tuple[int, int]]:
    """Return (rows, compressed size in bytes) of each row group of a Parquet file, from its footer."""
    with open_binary(location, io) as handle, pq.ParquetFile(handle) as file:
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        sizes = [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups]
        return [(group.num_rows, size) for group, size in zip(groups, sizes, strict=True)]


def _no_rows(schema: Any) -> pa.Table:
    """Return a table of some columns without rows; `empty_table` would import pandas."""
    return pa.Table.from_batches([], schema)


def _read_parquet(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    # INT96 is nanoseconds in pyarrow, which end in 2262; the table has microseconds anyway.
    with open_binary(unit.location, io) as handle, pq.ParquetFile(handle, coerce_int96_timestamp_unit="us") as file:
        declared = _with_instants(file, handle, schema, unit.location)
        yield _as_instants(_no_rows(file.schema_arrow), declared)
        first, end = unit.row_groups or (0, file.metadata.num_row_groups)
        for index in range(first, end):
            rows = _batch_rows(file.metadata.row_group(index))
            for batch in file.iter_batches(batch_size=rows, row_groups=[index], use_threads=False):
                yield _as_instants(pa.Table.from_batches([batch]), declared)


def _parquet_columns(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> pa.Schema:
    with open_binary(unit.location, io) as handle, pq.ParquetFile(handle, coerce_int96_timestamp_unit="us") as file:
        return _declared(file, handle, schema, unit.location)


def _declared(file: Any, handle: Any, schema: Schema, location: str) -> pa.Schema:
    handle.seek(0, 2)
    footer = read_footer(handle, int(handle.tell()), location)
    return parquet_columns(file.schema_arrow, footer, location, known=schema)


def _batch_rows(group: Any) -> int:
    row_bytes = max(group.total_byte_size // max(group.num_rows, 1), 1)
    return int(min(max(BATCH_BYTES // row_bytes, MIN_BATCH_ROWS), MAX_BATCH_ROWS))


def _with_instants(file: Any, handle: Any, schema: Schema, location: str) -> pa.Schema | None:
    """Return the columns of a file that has INT96, of which Arrow does not say that they are instants; else None."""
    if all(file.schema.column(index).physical_type != "INT96" for index in range(len(file.schema))):
        return None
    return _declared(file, handle, schema, location)


def _as_instants(table: pa.Table, declared: pa.Schema | None) -> pa.Table:
    return table if declared is None else declared_rows(table, declared, pa.types.is_timestamp)


def _read_orc(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    from pyarrow import orc

    with open_binary(unit.location, io) as handle:
        file = orc.ORCFile(handle)
        declared = orc_columns(file.schema)
        yield declared_rows(_no_rows(file.schema), declared, pa.types.is_time)
        for index in range(file.nstripes):
            yield declared_rows(pa.Table.from_batches([file.read_stripe(index)]), declared, pa.types.is_time)


def _orc_columns(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> pa.Schema:
    from pyarrow import orc

    with open_binary(unit.location, io) as handle:
        return orc_columns(orc.ORCFile(handle).schema)


# ---- CSV, JSON lines


def _read_csv(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    yield from csv_files.read_csv(unit, io, schema, options, block_bytes=TEXT_BLOCK_BYTES)


def _csv_columns(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> pa.Schema | None:
    return csv_files.csv_columns(unit, io, schema, options, block_bytes=TEXT_BLOCK_BYTES)


def _read_jsonl(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    read_as = with_required(schema, unit.absent)
    for lines in objects(unit, io):
        yield table_of(lines, schema, unit.location, read_as)


# ---- Avro


def _read_avro(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    fastavro = _fastavro()
    filesystem, path = open_filesystem(unit.location, io)
    with filesystem.open(path, "rb") as handle:
        reader = _avro_reader(fastavro, handle, unit.location)
        _refuse_amplification(reader.writer_schema, unit.location)
        wanted, convert = read_as(reader.writer_schema)
        yield _no_rows(wanted)
        rows: list[Any] = []
        for row in reader:
            rows.append(row if convert is None else convert(row))
            if len(rows) == AVRO_BATCH_ROWS:
                yield pa.Table.from_pylist(rows, schema=wanted)
                rows = []
        if rows:
            yield pa.Table.from_pylist(rows, schema=wanted)


def _refuse_amplification(schema: Any, location: str) -> None:
    try:
        refuse_amplification(schema, most=_MOST_IDLE, most_in_items=_MOST_IDLE)
    except ValueError as error:
        raise FormatError(str(error), path=location) from error


def _avro_columns(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> pa.Schema:
    filesystem, path = open_filesystem(unit.location, io)
    with filesystem.open(path, "rb") as handle:
        return arrow_schema(_avro_reader(_fastavro(), handle, unit.location).writer_schema)


def _avro_reader(fastavro: Any, handle: Any, location: str) -> Any:
    """Return the reader of an Avro file, also if a default does not fit its field.

    Some writers put the JSON of Iceberg's defaults there, such as "2026-01-01" for a date, which is an int in Avro.
    """
    try:
        return fastavro.reader(plain_blocks(handle, location))
    except fastavro.schema.SchemaParseException:
        handle.seek(0)
        header = fastavro.schemaless_reader(handle, _AVRO_HEADER)
        schema = without_defaults(json.loads(header["meta"]["avro.schema"]))
        handle.seek(0)
        # fastavro checks the defaults of the schema that is asked for, and then none of the file's.
        return fastavro.reader(plain_blocks(handle, location), schema)


_AVRO_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
    ],
}


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        message = "reading Avro files needs the package fastavro where the job runs; install it"
        raise InvalidInputError(message) from error
    return fastavro
