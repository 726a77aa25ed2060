"""The rows of an Avro file as Arrow columns, a block at a time, decoded by fastavro.

The schema that fastavro gets has no logical types: it would convert dates and times to Python objects, which end at the
years 1 and 9999. Not here: containers (`format.avro.container`), columns by field id (`columns`).

Spec: Avro (Appendix A): `field-id`, `element-id`, `key-id` and `value-id`; maps with keys other than strings are arrays
of records with the logical type `map`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any, cast

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader

from airflow_iceberg.data.read.file_fields import fields_by_id, file_fields
from airflow_iceberg.data.read.lazy_bytes import LazyBytes
from airflow_iceberg.data.read.metadata_columns import FileFacts
from airflow_iceberg.data.read.raw_rows import RawRows, needed_columns, rows_without_columns
from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.arrow.types import FIELD_ID_KEY
from airflow_iceberg.format.avro.amplification import refuse_amplification
from airflow_iceberg.format.avro.container import count_records, read_blocks, read_header, write_long
from airflow_iceberg.format.schemas.schema import Schema

Json = Any
Convert = Callable[[Any], Any]
# Columns of unknown type have no bytes, and a table may have many columns.
_MOST_IDLE, _MOST_IDLE_IN_ITEMS = 10_000, 1_000
_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_TIMES: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "timestamp-nanos": pa.timestamp("ns"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_EXACT = Context(prec=100)
_ESCAPES = "surrogateescape"


class AvroSource:
    """An open file and its columns."""

    def __init__(self, handle: Any, facts: FileFacts, name_mapping: str | None) -> None:
        # The container's reader takes bytes; it gets an object that reads them on demand.
        self._data = cast(Any, LazyBytes(handle))
        self._facts = facts
        self._header = read_header(self._data, path=facts.location)
        try:
            written = json.loads(self._header.metadata["avro.schema"])
            self._types = _Types()
            self._record, kind, self._convert = self._types.of(written)
            self._parsed = parse_schema({"type": "array", "items": self._record})
            refuse_amplification(self._parsed["items"], most=_MOST_IDLE, most_in_items=_MOST_IDLE_IN_ITEMS)
        except UnsupportedError:
            raise
        except FormatError as error:
            raise FormatError(str(error), path=facts.location) from error
        except Exception as error:  # the JSON, its nesting, or what fastavro makes of it
            raise FormatError(f"malformed Avro schema: {error}", path=facts.location) from error
        if not pa.types.is_struct(kind):
            raise FormatError(f"expected records, got {kind}", path=facts.location)
        self._schema = pa.schema(list(kind.fields))
        self.fields = file_fields(self._schema, name_mapping, facts.constants, path=facts.location)

    def parts(self) -> Iterator[AvroSource]:
        """Yield the file as a whole."""
        yield self

    def ranges(self, schema: Schema) -> None:
        """Return None: nothing is known before reading."""

    def span(self) -> None:
        """Return None: a part is the whole file."""

    def count_rows(self) -> int:
        """Return the number of rows, by the heads of the blocks."""
        return sum(count_records(self._data, self._header, path=self._facts.location))

    def read(self, schemas: Sequence[Schema], batch_size: int) -> Iterator[RawRows]:
        wanted = needed_columns(schemas, self.fields)
        kept = pa.schema([self._schema.field(field.position) for field in wanted])
        # In the batch they are adjacent.
        fields = fields_by_id(replace(field, position=index) for index, field in enumerate(wanted))
        position = 0
        for count, block in read_blocks(self._data, self._header, path=self._facts.location):
            if not wanted or not block:
                yield from rows_without_columns(self._facts, position, count, batch_size)
                position += count
                continue
            records = self._records(count, block)
            for start in range(0, count, batch_size):
                batch = self._batch(records[start : start + batch_size], kept)
                yield RawRows(position=position, count=batch.num_rows, batch=batch, fields=fields, facts=self._facts)
                position += batch.num_rows

    def _records(self, count: int, block: bytes) -> list[dict[str, Any]]:
        # A block between its number of records and a zero is an array of records.
        if count > len(block):  # without bytes there is no block
            raise FormatError(f"a block of {count} records has {len(block)} bytes", path=self._facts.location)
        data = write_long(count) + block + b"\x00"
        stream = io.BytesIO(data)
        try:
            # A text that is no UTF-8 is carried as it is, its other bytes in Python's escapes.
            records: Any = schemaless_reader(stream, self._parsed, None, handle_unicode_errors=_ESCAPES)
        except Exception as error:  # fastavro raises many types for a damaged block
            raise FormatError(f"damaged Avro block ({error})", path=self._facts.location) from error
        if stream.tell() != len(data) or len(records) != count:
            raise FormatError(f"a block of {count} records has other bytes after them", path=self._facts.location)
        return list(records)

    def _batch(self, records: list[dict[str, Any]], kept: pa.Schema) -> pa.RecordBatch:
        columns = []
        for field in kept:
            convert = self._types.conversions.get(field.name)
            values = [record[field.name] for record in records]
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            try:
                columns.append(_array(values, field.type))
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                raise FormatError(f"a value does not fit {field.type}: {error}") from error
        return pa.RecordBatch.from_arrays(columns, schema=kept)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (UnicodeEncodeError, pa.ArrowInvalid):
        # Rows that another program has written with a text that is no UTF-8, or a decimal of too many digits.
        return pa.array([_unescaped(value) for value in values], _unchecked(kind)).view(kind)


def _unescaped(value: Any) -> Any:
    """Return a value with its texts as the bytes of the file."""
    if isinstance(value, str):
        return value.encode("utf-8", _ESCAPES)
    if isinstance(value, dict):
        return {name: _unescaped(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_unescaped(item) for item in value)
    return value


def _unchecked(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same layout by which Arrow takes every text and every decimal."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_unchecked(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(_unchecked(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_unchecked(kind.value_type)))
    return kind


class _Types:
    """Avro types as Arrow types, and the conversions of fastavro's values for Arrow.

    Attributes:
        conversions: conversions of top-level columns by name; other columns need none.
    """

    def __init__(self) -> None:
        self.conversions: dict[str, Convert] = {}
        self._named: dict[str, tuple[pa.DataType, Convert | None]] = {}
        self._depth = 0
        self._maps = 0

    def of(self, schema: Json) -> tuple[Json, pa.DataType, Convert | None]:
        """Return an Avro type for fastavro, its Arrow type, and a conversion of values that are not null."""
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return schema, _PRIMITIVES[schema], None
            if schema not in self._named and schema.rsplit(".", 1)[-1] not in self._named:
                raise UnsupportedError(f"unknown or recursive Avro type {schema!r}")
            return schema, *self._named.get(schema, self._named[schema.rsplit(".", 1)[-1]])
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.of(kind)
        build = {"record": self._record, "array": self._array, "map": self._map}.get(kind, self._leaf)
        return build(schema)

    def _union(self, branches: list[Json]) -> tuple[Json, pa.DataType, Convert | None]:
        found = [self.of(branch) for branch in branches]
        values = [(kind, convert) for plain, kind, convert in found if plain != "null"]
        if len(values) > 1:
            raise UnsupportedError(f"an Avro union of {len(values)} types, which no Iceberg type is")
        return [plain for plain, _, _ in found], *(values[0] if values else (pa.null(), None))

    def _record(self, schema: Json) -> tuple[Json, pa.DataType, Convert | None]:
        self._depth += 1
        plain, fields, conversions = [], [], {}
        for child in schema["fields"]:
            inner, kind, convert = self.of(child["type"])
            # Without defaults, which may not fit the type without its logical type; a writer's schema needs none.
            plain.append({"name": child["name"], "type": inner})
            fields.append(_field(child["name"], kind, child.get("field-id")))
            if convert is not None:
                conversions[child["name"]] = convert
        self._depth -= 1
        if self._depth == 0:
            self.conversions = conversions
        made = pa.struct(fields), _converter_of_records(conversions) if conversions else None
        self._remember(schema, made)
        return {**_name_of(schema), "type": "record", "fields": plain}, *made

    def _array(self, schema: Json) -> tuple[Json, pa.DataType, Convert | None]:
        inner, kind, convert = self.of(schema["items"])
        plain = {"type": "array", "items": inner}
        if schema.get("logicalType") == "map" and pa.types.is_struct(kind):
            key, value = kind.field(0), kind.field(1)
            names = key.name, value.name
            return plain, pa.map_(key.with_nullable(False), value), _converter_of_entries(*names, convert)
        element = _field("element", kind, schema.get("element-id"))
        made = pa.list_(element)
        if convert is None:
            return plain, made, None
        return plain, made, lambda items: [None if item is None else convert(item) for item in items]

    def _map(self, schema: Json) -> tuple[Json, pa.DataType, Convert | None]:
        inner, kind, convert = self.of(schema["values"])
        key = _field("key", pa.string(), schema.get("key-id")).with_nullable(False)
        made = pa.map_(key, _field("value", kind, schema.get("value-id")))
        # An array of pairs has the same bytes. As a mapping, a key that another writer gave twice would lose a value.
        self._maps += 1
        pair = [{"name": "key", "type": "string"}, {"name": "value", "type": inner}]
        plain = {"type": "record", "name": f"airflow_iceberg_map_{self._maps}", "fields": pair}
        return {"type": "array", "items": plain}, made, _converter_of_pairs(convert)

    def _leaf(self, schema: Json) -> tuple[Json, pa.DataType, Convert | None]:
        kind, logical = schema["type"], schema.get("logicalType")
        plain: Json = kind
        if kind in ("fixed", "enum"):
            own = "size" if kind == "fixed" else "symbols"
            plain = {**_name_of(schema), "type": kind, own: schema[own]}
        elif kind not in _PRIMITIVES:
            return self.of(kind)
        arrow = pa.binary(schema["size"]) if kind == "fixed" else _PRIMITIVES[kind]
        made: tuple[pa.DataType, Convert | None] = arrow, None
        if logical == "decimal" and kind in ("fixed", "bytes"):
            scale = schema.get("scale", 0)
            made = pa.decimal128(schema["precision"], scale), _converter_of_decimals(scale)
        elif logical in _TIMES and kind in ("int", "long"):
            made = _TIMES[logical], None
        if kind in ("fixed", "enum"):
            self._remember(schema, made)
        return plain, *made

    def _remember(self, schema: Json, made: tuple[pa.DataType, Convert | None]) -> None:
        self._named[schema["name"]] = made
        self._named[schema["name"].rsplit(".", 1)[-1]] = made


def _name_of(schema: Json) -> dict[str, Json]:
    return {key: schema[key] for key in ("name", "namespace") if key in schema}


def _field(name: str, kind: pa.DataType, field_id: Any) -> pa.Field:
    if field_id is not None and type(field_id) is not int:
        kind_of_id = type(field_id).__name__
        raise FormatError(f"field '{name}' of an Avro schema has a field id of type {kind_of_id}, expected int")
    metadata = None if field_id is None else {FIELD_ID_KEY: str(field_id).encode()}
    return pa.field(name, kind, metadata=metadata)


def _converter_of_records(conversions: Mapping[str, Convert]) -> Convert:
    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name, inner in conversions.items():
            if record[name] is not None:
                record[name] = inner(record[name])
        return record

    return convert


def _converter_of_entries(key: str, value: str, convert: Convert | None) -> Convert:
    def entry(item: dict[str, Any]) -> tuple[Any, Any]:
        item = convert(item) if convert is not None else item
        return item[key], item[value]

    return lambda items: [entry(item) for item in items]


def _converter_of_pairs(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda pairs: [(pair["key"], pair["value"]) for pair in pairs]
    return lambda pairs: [(pair["key"], None if pair["value"] is None else convert(pair["value"])) for pair in pairs]


def _converter_of_decimals(scale: int) -> Convert:
    return lambda data: Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)
