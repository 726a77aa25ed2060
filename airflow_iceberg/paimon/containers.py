"""The containers of manifests, manifest lists and index manifests: Avro today, ORC and Parquet in older tables.

Records are read as dictionaries (small files) or as columns (data manifests). The names of records and the order of
fields depend on the writer, and some writers wrap records in unions with null. Values are therefore read by field name
alone, and a missing field is null.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import FormatError, UnsupportedError, advised
from airflow_iceberg.format.avro.container import MAGIC, Header, Limits, read_blocks, read_header, write_long
from airflow_iceberg.format.avro.record_columns import ColumnReader

if TYPE_CHECKING:
    import pyarrow as pa

Record = dict[str, Any]

_BATCH = 4096
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_DEEPEST = 16
_MOST_UNPACKED = 1 << 26
_MOST_FIELDS = 4096
# Paimon's own schemas take some kilobytes, and are few: what is kept of them is kept for as long as the process lives.
_MOST_SCHEMA_BYTES = 128 << 10
# Where a file must not take much memory: a manifest has some thousand files in 8 MB, and a list some hundred manifests;
# their records become objects.
_OF_RECORDS = Limits(most_bytes=8 << 20, most_block_bytes=4 << 20, most_records=100_000)
_OF_COLUMNS = Limits(most_bytes=128 << 20, most_block_bytes=16 << 20, most_records=1_000_000)
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column to read.

    Attributes:
        name: the name of the column in the result.
        path: the names of the nested fields, outermost first.
        type: the name of the Arrow type.
        is_required: whether a null, or a file without the field, is an error.
    """

    name: str
    path: tuple[str, ...]
    type: str
    is_required: bool = False


def read_records(data: bytes, *, path: str | None = None, is_limited: bool = False) -> list[Record]:
    """Return the records of a small file.

    Args:
        is_limited: whether a file of a few bytes must not take much memory.

    Raises:
        FormatError: the file is torn or foreign.
        UnsupportedError: the package of the codec is not installed, or it is ORC or Parquet where that is limited.
    """
    kind = _container(data, path, is_limited)
    if kind == "avro":
        return _avro_records(data, path, _OF_RECORDS if is_limited else None)
    table = _arrow_table(data, kind, path)
    try:
        records: list[Record] = table.to_pylist()
    except ValueError as error:  # names in the schema that are no text; Arrow has not looked at them
        raise FormatError(f"damaged {kind} file ({_first_line(error)})", path=path) from error
    return records


def read_columns(
    data: bytes, columns: Sequence[Column], *, path: str | None = None, is_limited: bool = False
) -> pa.Table:
    """Return fields of the records of a file as columns, in the order of `columns`; arguments as of `read_records`.

    Raises:
        FormatError: the file is torn or foreign, or a required value is null or missing.
        UnsupportedError: as of `read_records`.
    """
    import pyarrow as pa

    kind = _container(data, path, is_limited)
    schema = arrow_schema(columns)
    if kind == "avro":
        limits = _OF_COLUMNS if is_limited else None
        table = pa.Table.from_batches(_avro_columns(data, columns, schema, path, limits), schema=schema)
    else:
        source = _arrow_table(data, kind, path)
        table = pa.table([_flat(source, column, path) for column in columns], schema=schema)
    for column in columns:
        if column.is_required and table[column.name].null_count:
            raise FormatError(f"null in '{'.'.join(column.path)}', which every record must have", path=path)
    return table


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of columns."""
    import pyarrow as pa

    return pa.schema([(column.name, _arrow_type(column.type)) for column in columns])


def _arrow_type(name: str) -> pa.DataType:
    import pyarrow as pa

    if name.startswith("list "):
        return pa.list_(_arrow_type(name.removeprefix("list ")))
    return pa.timestamp("ms") if name == "local time" else pa.type_for_alias(name)


def _container(data: bytes, path: str | None, is_limited: bool) -> str:
    if data[:4] == MAGIC:
        return "avro"
    kind = "orc" if data[:3] == b"ORC" else "parquet" if data[:4] == b"PAR1" else None
    if kind is not None and is_limited:
        text = f"{path or 'a manifest'} is {kind.upper()}, which has no limit of memory and is not read here"
        raise advised(UnsupportedError(text), "wait for the table in a worker, with deferrable=False")
    if kind is not None:
        return kind
    found = "an empty file" if not data else f"{bytes(data[:4])!r}"
    raise FormatError(f"unexpected first bytes {found} (expected Avro {MAGIC!r}, ORC or Parquet)", path=path)


# --- ORC and Parquet --------------------------------------------------------------------------------------------------


def _arrow_table(data: bytes, kind: str, path: str | None) -> pa.Table:
    import pyarrow as pa

    source = pa.BufferReader(data)
    try:
        if kind == "orc":
            from pyarrow import orc

            file = orc.ORCFile(source)
            _refuse_bomb(file.nrows, len(data))
            table = file.read()
        else:
            from pyarrow import parquet

            file = parquet.ParquetFile(source)
            groups = range(file.metadata.num_row_groups)
            sizes = [file.metadata.row_group(number).total_byte_size for number in groups]
            _refuse_bomb(file.metadata.num_rows, len(data), max(sizes, default=0))
            table = file.read()
        table.validate(full=True)  # later steps do not check offsets and texts
        return table
    except Exception as error:
        raise FormatError(f"damaged {kind} file of {len(data)} bytes ({_first_line(error)})", path=path) from error


def _refuse_bomb(rows: int, size: int, unpacked: int = 0) -> None:
    """Reject a file that claims to have more records than its bytes allow: every record has its own file name."""
    if rows > size or unpacked > _MOST_UNPACKED + 1000 * size:
        raise ValueError(f"it claims {rows} records and {unpacked} bytes of them")


def _flat(table: pa.Table, column: Column, path: str | None) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    name, *rest = column.path
    target = _arrow_type(column.type)
    try:
        values = table[name]
        for inner in rest:
            values = pc.struct_field(values, inner)
        return values.cast(target, safe=column.type != "local time")
    except (pa.ArrowException, KeyError, ValueError) as error:
        if column.is_required:
            raise _missing(column, path) from error
        return pa.chunked_array([pa.nulls(table.num_rows, target)])


def _missing(column: Column, path: str | None) -> FormatError:
    return FormatError(f"no field '{'.'.join(column.path)}' of type {column.type}; this is another file", path=path)


# --- Avro -------------------------------------------------------------------------------------------------------------


def _avro_columns(
    data: bytes, columns: Sequence[Column], schema: pa.Schema, path: str | None, limits: Limits | None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of an Avro file as columns, some thousand at a time."""
    header = read_header(data, path=path)
    try:
        reader = ColumnReader(_schema(header.metadata.get("avro.schema", b"")), [column.path for column in columns])
    except Exception as error:
        raise _no_schema(error, path) from error
    missing = [column for column in columns if column.is_required and column.path not in reader.found]
    if missing:
        raise _missing(missing[0], path)
    waiting = size = 0
    for count, block in _blocks(data, header, path, limits):
        try:
            reader.read(count, block)
        except (ValueError, IndexError) as error:
            raise FormatError(f"damaged block of {count} records ({_first_line(error)})", path=path) from error
        waiting, size = waiting + count, size + len(block)
        if waiting >= _BATCH or size >= _BATCH_BYTES:
            yield _batch(reader.take(), waiting, columns, schema, path)
            waiting = size = 0
    if waiting:
        yield _batch(reader.take(), waiting, columns, schema, path)


def _batch(
    values: Mapping[tuple[str, ...], list[Any]],
    size: int,
    columns: Sequence[Column],
    schema: pa.Schema,
    path: str | None,
) -> pa.RecordBatch:
    import pyarrow as pa

    from airflow_iceberg.format.arrow.buffers import strict_array

    arrays = []
    for column, field in zip(columns, schema, strict=True):
        try:
            found = values.get(column.path)
            arrays.append(pa.nulls(size, field.type) if found is None else strict_array(found, field.type))
        except (pa.ArrowException, ValueError) as error:
            where = ".".join(column.path)
            raise FormatError(f"unexpected value (expected {column.type}) in '{where}'", path=path) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _avro_records(data: bytes, path: str | None, limits: Limits | None) -> list[Record]:
    header = read_header(data, path=path)
    try:
        schema = _parsed(header.metadata.get("avro.schema", b""))
    except Exception as error:
        raise _no_schema(error, path) from error
    return [
        record for count, block in _blocks(data, header, path, limits) for record in _block(schema, count, block, path)
    ]


def _blocks(data: bytes, header: Header, path: str | None, limits: Limits | None) -> Iterator[tuple[int, bytes]]:
    for count, block in read_blocks(data, header, path=path, limits=limits):
        if limits is not None and len(block) > limits.most_block_bytes:
            what = f"unexpected block of {len(block)} bytes (expected at most {limits.most_block_bytes})"
            raise FormatError(what, path=path)
        yield count, block


def _block(schema: Any, count: int, block: bytes, path: str | None) -> list[Record]:
    """Return the records of a block, read as one array by a single call into C."""
    from fastavro import schemaless_reader

    if not count:
        return []
    source = io.BytesIO(write_long(count) + block + b"\0")
    try:
        records: list[Record] = schemaless_reader(source, schema, None)
    except Exception as error:
        raise FormatError(f"damaged block of {count} records ({_first_line(error)})", path=path) from error
    if len(records) != count or source.tell() != len(source.getbuffer()):
        raise FormatError(f"a block holds {len(records)} records, expected {count}", path=path)
    if not all(type(record) is dict for record in records):
        raise FormatError("unexpected null (expected a record)", path=path)
    return records


@lru_cache(maxsize=8)
def _schema(text: bytes) -> Any:
    """Return the schema in a file, checked; raises any exception, since the text may be anything."""
    if len(text) > _MOST_SCHEMA_BYTES:
        raise ValueError(f"more than {_MOST_SCHEMA_BYTES} bytes")
    physical = _Names().written_out(_physical(json.loads(text)))
    _check(physical, 0)
    record = physical[-1] if isinstance(physical, list) else physical
    if not isinstance(record, dict) or record.get("type") != "record":
        raise ValueError("expected a schema of records")
    if _is_nothing(physical):
        raise ValueError("records of nothing")
    return physical


@lru_cache(maxsize=8)
def _parsed(text: bytes) -> Any:
    from fastavro import parse_schema

    return parse_schema({"type": "array", "items": _schema(text)})


def _no_schema(error: Exception, path: str | None) -> FormatError:
    return FormatError(f"unexpected Avro schema ({_first_line(error)})", path=path)


def _physical(schema: Any) -> Any:
    """Return the schema without logical types, for which fastavro would create a Python object for each value."""
    if isinstance(schema, list):
        return [_physical(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if set(schema) <= {"type", "logicalType"}:
        return _physical(schema["type"])
    result = {key: value for key, value in schema.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if isinstance(result.get(key), (dict, list)):
            result[key] = _physical(result[key])
    if "fields" in result:
        result["fields"] = [{**field, "type": _physical(field["type"])} for field in result["fields"]]
    return result


class _Names:
    """Replaces the name of an earlier record by the record, since early versions of pypaimon write names.

    The name of an enclosing record, and an ambiguous name, are kept: `_check` rejects both.
    """

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._fields = self._records = 0

    def written_out(self, schema: Any) -> Any:
        """Return a schema without references, in which every record has its own name.

        Raises:
            ValueError: the schema grows too large, because named records contain names.
        """
        if isinstance(schema, list):
            return [self.written_out(item) for item in schema]
        if isinstance(schema, str):
            found = None if schema in _PRIMITIVES else self._known.get(schema.rpartition(".")[2])
            return schema if found is None else self.written_out(found)
        if not isinstance(schema, Mapping):
            return schema
        if schema.get("type") != "record":
            inner = {key: self.written_out(schema[key]) for key in ("type", "items") if key in schema}
            return {**schema, **inner}
        result = {**schema, "fields": [self._field(field) for field in schema["fields"]]}
        name = str(schema.get("name")).rpartition(".")[2]
        self._known[name] = None if name in self._known else result
        self._records += 1
        return {**result, "name": f"record_{self._records}"}

    def _field(self, field: Mapping[str, Any]) -> dict[str, Any]:
        self._fields += 1
        if self._fields > _MOST_FIELDS:
            raise ValueError(f"more than {_MOST_FIELDS} fields")
        return {**field, "type": self.written_out(field["type"])}


def _check(schema: Any, depth: int) -> None:
    """Reject what no manifest has, and with which few bytes could be endless values: recursion, empty items."""
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise ValueError(f"unexpected type {schema!r}")
    elif isinstance(schema, list):
        for item in schema:
            _check(item, depth + 1)
    elif schema["type"] == "record":
        for field in schema["fields"]:
            _check(field["type"], depth + 1)
    elif schema["type"] == "array":
        _check(schema["items"], depth + 1)
        if _is_nothing(schema["items"]):
            raise ValueError("an array of nothing")
    else:
        _check(schema["type"], depth + 1)


def _is_nothing(schema: Any) -> bool:
    """Return whether values of a schema have no bytes, so that their number has no limit."""
    if isinstance(schema, Mapping) and schema["type"] == "record":
        return all(_is_nothing(field["type"]) for field in schema["fields"])
    if isinstance(schema, Mapping) and schema["type"] not in ("array", "map"):
        return _is_nothing(schema["type"])
    return bool(schema == "null")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
