"""Readers of the source formats: each yields Arrow tables of a bounded number of rows, in the file's own types.

The text formats are read without guessing types: the table's schema has them, and a guess from the first block could
fail in the last one.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.jobs.sources.avro_schema import arrow_schema
from airflow_iceberg.jobs.sources.unit import Unit, open_filesystem

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO

BATCH_BYTES = 64 << 20
MAX_BATCH_ROWS = 1 << 20
MIN_BATCH_ROWS = 1 << 10
TEXT_BLOCK_BYTES = 16 << 20
JSON_BATCH_ROWS = 50_000
AVRO_BATCH_ROWS = 50_000
# What rounds to the largest float: half a digit above it.
_LARGEST_FLOAT = (2.0 - 2.0**-24) * 2.0**127

CSV_OPTIONS = ("header", "columns", "delimiter", "quote", "escape", "null_values", "encoding", "skip_rows")


def read(unit: Unit, io: "FileIO", *, schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield the rows of a unit; see `sources.files.read_unit`, which also names the errors."""
    known = CSV_OPTIONS if unit.file_format == "csv" else ()
    for name in options:
        if name not in known:
            hint = f"one of {', '.join(known)}" if known else "it has none"
            raise InvalidInputError(f"unknown option {name!r} for {unit.file_format} files; {hint}")
    reader: dict[str, Callable[..., Iterator[pa.Table]]] = {
        "parquet": _read_parquet,
        "csv": _read_csv,
        "jsonl": _read_jsonl,
        "orc": _read_orc,
        "avro": _read_avro,
    }
    yield from reader[unit.file_format](unit, io, schema, options)


# ---- Parquet, ORC


def row_groups(location: str, io: "FileIO") -> list[tuple[int, int]]:
    """Return (rows, compressed size in bytes) of each row group of a Parquet file, from its footer."""
    with _open(location, io) as handle, pq.ParquetFile(handle) as file:
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        sizes = [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups]
        return [(group.num_rows, size) for group, size in zip(groups, sizes, strict=True)]


def _no_rows(schema: Any) -> pa.Table:
    """Return a table of some columns without rows; `empty_table` would import pandas."""
    return pa.Table.from_batches([], schema)


def _read_parquet(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    # INT96 is nanoseconds in pyarrow, which end in 2262; the table has microseconds anyway.
    with _open(unit.location, io) as handle, pq.ParquetFile(handle, coerce_int96_timestamp_unit="us") as file:
        instants = _int96_instants(file, schema)
        yield _as_instants(_no_rows(file.schema_arrow), instants)
        first, end = unit.row_groups or (0, file.metadata.num_row_groups)
        for index in range(first, end):
            rows = _batch_rows(file.metadata.row_group(index))
            for batch in file.iter_batches(batch_size=rows, row_groups=[index], use_threads=False):
                yield _as_instants(pa.Table.from_batches([batch]), instants)


def _batch_rows(group: Any) -> int:
    row_bytes = max(group.total_byte_size // max(group.num_rows, 1), 1)
    return int(min(max(BATCH_BYTES // row_bytes, MIN_BATCH_ROWS), MAX_BATCH_ROWS))


def _int96_instants(file: Any, schema: Schema) -> list[str]:
    """Return the INT96 columns that are timestamptz in the table: INT96 holds instants without a type for them."""
    wanted = {field.name for field in schema.fields if isinstance(field.type, t.TimestamptzType)}
    columns = (file.schema.column(index) for index in range(len(file.schema)))
    return [column.path for column in columns if column.physical_type == "INT96" and column.path in wanted]


def _as_instants(table: pa.Table, names: list[str]) -> pa.Table:
    for name in names:
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, table.column(index).cast(pa.timestamp("us", "UTC")))
    return table


def _read_orc(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    from pyarrow import orc

    with _open(unit.location, io) as handle:
        file = orc.ORCFile(handle)
        yield _no_rows(file.schema)
        for index in range(file.nstripes):
            yield pa.Table.from_batches([file.read_stripe(index)])


# ---- CSV


def _read_csv(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    from pyarrow import csv

    defaults = {"delimiter": "\t" if ".tsv" in unit.location else ",", "quote": '"', "escape": ""}
    characters = {name: _character(options, name, default) for name, default in defaults.items()}
    skip_rows = _count(options, "skip_rows")
    if unit.size_bytes == 0:
        return
    has_header = _flag(options, "header", default=True)
    named = list(_texts(options.get("columns"))) or [field.name for field in schema.fields]
    names = named if not has_header or "columns" in options else None
    text = {field.name: pa.string() for field in schema.fields} | {name: pa.string() for name in names or ()}
    with _open_text(unit, io) as stream:
        reader = csv.open_csv(
            stream,
            read_options=csv.ReadOptions(
                use_threads=False,
                block_size=TEXT_BLOCK_BYTES,
                column_names=names,
                skip_rows=skip_rows + (1 if names and has_header else 0),
                encoding=options.get("encoding", "utf-8"),
            ),
            parse_options=csv.ParseOptions(
                delimiter=characters["delimiter"],
                quote_char=characters["quote"] or False,
                escape_char=characters["escape"] or False,
                newlines_in_values=True,
            ),
            convert_options=csv.ConvertOptions(
                column_types=text,
                null_values=["", *_texts(options.get("null_values"))],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        yield _no_rows(reader.schema)
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _character(options: Mapping[str, str], name: str, default: str) -> str:
    text = options.get(name, default)
    if len(text) > 1 or (name == "delimiter" and not text):
        raise InvalidInputError(f"option {name!r} is {text!r}, expected one character")
    return text


def _count(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "0").strip()
    number = whole_number(text)
    if number is None:
        raise InvalidInputError(f"option {name!r} is {text[:100]!r}, expected a number of at least 0")
    return number


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = str(options.get(name, default)).lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"option {name!r} is {options[name]!r}, expected true or false")
    return text == "true"


def _texts(option: str | None) -> tuple[str, ...]:
    """Return the items of an option that is a JSON list or a comma-separated text."""
    if option is None:
        return ()
    if option.lstrip().startswith("["):
        return tuple(str(item) for item in json.loads(option))
    return tuple(item.strip() for item in option.split(","))


# ---- JSON lines


def _read_jsonl(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    fields = {field.name: field for field in schema.fields}
    with _open_text(unit, io) as stream:
        for first, lines in _line_batches(stream):
            found = (_json_object(line, number, unit) for number, line in enumerate(lines, start=first))
            if rows := [row for row in found if row is not None]:
                yield _json_table(rows, fields)


def _line_batches(stream: pa.NativeFile) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of the first line, lines); a line may cross blocks, the last line may have no line break."""
    rest, first = b"", 1
    while block := stream.read(TEXT_BLOCK_BYTES):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        for start in range(0, len(lines), JSON_BATCH_ROWS):
            part = lines[start : start + JSON_BATCH_ROWS]
            yield first, part
            first += len(part)
    if rest:
        yield first, [rest]


def _json_object(line: bytes, number: int, unit: Unit) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        row = json.loads(line, parse_float=Decimal)
    except ValueError as error:
        message = f"line {number} is not JSON ({error}); expected one object a line"
        raise FormatError(message, path=unit.location) from error
    if not isinstance(row, dict):
        kind = type(row).__name__
        raise FormatError(f"expected one JSON object a line, line {number} is a {kind}", path=unit.location)
    return row


def _json_table(rows: list[dict[str, Any]], fields: Mapping[str, t.NestedField]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:
        # A table without columns has no rows: where all objects are empty, the nulls of one column count them.
        names = dict.fromkeys(list(fields)[:1])
    return pa.table({name: _json_column([row.get(name) for row in rows], fields.get(name)) for name in names})


def _json_column(values: list[Any], field: t.NestedField | None) -> pa.Array:
    kind = field.type if field else t.StringType()
    wanted = _json_arrow(kind)
    try:
        return pa.array([_json_value(value, kind) for value in values], type=wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        # Some value does not fit: the cast finds it in the text, with its row.
        return pa.array([None if value is None else _json_text(value) for value in values], type=pa.string())


def _json_arrow(kind: t.IcebergType) -> pa.DataType:
    """Return the Arrow type of the JSON values of a type: text for types that JSON does not have."""
    if isinstance(kind, t.StructType):
        return pa.struct([pa.field(field.name, _json_arrow(field.type)) for field in kind.fields])
    if isinstance(kind, t.ListType):
        return pa.list_(_json_arrow(kind.element))
    if isinstance(kind, t.MapType):
        return pa.map_(_json_arrow(kind.key), _json_arrow(kind.value))
    return _JSON_TYPES.get(type(kind), pa.string())


_JSON_TYPES: Mapping[type[t.IcebergType], pa.DataType] = {
    t.BooleanType: pa.bool_(),
    t.IntegerType: pa.int64(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
}


def _json_value(value: Any, kind: t.IcebergType) -> Any:
    if value is None:
        return None
    if isinstance(kind, t.StructType):
        return _json_struct(value, kind)
    if isinstance(kind, t.ListType):
        return [_json_value(item, kind.element) for item in _expect(value, list)]
    if isinstance(kind, t.MapType):
        pairs = _expect(value, dict).items()
        return [(_json_key(key, kind.key), _json_value(item, kind.value)) for key, item in pairs]
    if isinstance(kind, t.BooleanType):
        return _expect(value, bool)
    if isinstance(kind, t.IntegerType | t.LongType):
        if isinstance(value, Decimal) and value == value.to_integral_value():
            return int(value)
        return _expect(value, int)
    if isinstance(kind, t.FloatType | t.DoubleType):
        return _json_float(value, kind)
    return _json_text(value)


def _json_float(value: Any, kind: t.IcebergType) -> float:
    """Return the nearest number of the type, as for text; raises OverflowError if it is too large."""
    number = float(_expect(value, (int, float, Decimal)))
    largest = _LARGEST_FLOAT if isinstance(kind, t.FloatType) else sys.float_info.max
    if not isinstance(value, float) and abs(number) > largest:  # a float here is NaN or an infinity, written as such
        raise OverflowError(f"{value} is too large")
    return number


def _json_struct(value: Any, kind: t.StructType) -> dict[str, Any]:
    known = {field.name: field.type for field in kind.fields}
    if unknown := [name for name in _expect(value, dict) if name not in known]:
        raise TypeError(f"unknown fields {unknown}")
    return {name: _json_value(value.get(name), inner) for name, inner in known.items()}


def _json_key(key: str, kind: t.IcebergType) -> Any:
    return key if pa.types.is_string(_json_arrow(kind)) else _json_value(json.loads(key, parse_float=Decimal), kind)


def _expect(value: Any, kinds: Any) -> Any:
    # A bool is an int in Python, but not in JSON.
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise TypeError(f"unexpected {type(value).__name__}")
    return value


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str)


# ---- Avro


def _read_avro(unit: Unit, io: "FileIO", schema: Schema, options: Mapping[str, str]) -> Iterator[pa.Table]:
    try:
        import fastavro
    except ImportError as error:
        message = "reading Avro files needs the package fastavro where the job runs; install it"
        raise InvalidInputError(message) from error

    filesystem, path = open_filesystem(unit.location, io)
    with filesystem.open(path, "rb") as handle:
        reader = fastavro.reader(handle)
        wanted = arrow_schema(reader.writer_schema)
        yield _no_rows(wanted)
        rows: list[Any] = []
        for row in reader:
            rows.append(row)
            if len(rows) == AVRO_BATCH_ROWS:
                yield pa.Table.from_pylist(rows, schema=wanted)
                rows = []
        if rows:
            yield pa.Table.from_pylist(rows, schema=wanted)


# ---- opening


def _open(location: str, io: "FileIO") -> Any:
    """Return a file for pyarrow, which reads a local one without Python."""
    filesystem, path = open_filesystem(location, io)
    if is_local(filesystem):
        return pa.memory_map(path) if filesystem.size(path) else pa.OSFile(path)
    return pa.PythonFile(filesystem.open(path, "rb"), mode="r")


def _open_text(unit: Unit, io: "FileIO") -> pa.NativeFile:
    handle = _open(unit.location, io)
    return pa.CompressedInputStream(handle, unit.compression) if unit.compression else handle


def is_local(filesystem: Any) -> bool:
    """Return whether an fsspec file system is the local one."""
    protocol = filesystem.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)
