"""The blocks of manifests and manifest lists: bytes to fastavro's records and back.

Not here: the container around the blocks (`format.avro.container`), the meaning of a record's fields (`records`), and
columns of many records (`columns`).

fastavro is imported inside functions: the workers of jobs that read no manifests may not have it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.avro.amplification import refuse_amplification
from airflow_iceberg.format.avro.container import Header, Limits, read_blocks, write_long
from airflow_iceberg.format.manifests.by_field_id import Reading, manifest_list_reading, manifest_reading
from airflow_iceberg.format.manifests.records import Record
from airflow_iceberg.format.manifests.schemas import manifest_list_schema, manifest_schema

# Blocks of one record each make a file 6.5 times as large; very large blocks need much memory.
BLOCK_SIZE_BYTES = 64 * 1024
MOST_RECORDS_AT_ONCE = 5_000
_MOST_SCHEMA_BYTES = 1 << 20
# The schema of a manifest takes some kilobytes.
SMALL_BYTES, MOST_LARGE = 16 << 10, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordReader:
    """Reads the records of files with one schema, one after the other.

    Attributes:
        block: parsed schema of an array of records, which decodes a whole block in one call.
        record: parsed schema of a record.
    """

    block: Any
    record: Any
    reading: Reading

    def read(self, data: bytes) -> Record:
        """Return the record that starts at the first byte; its bytes must have been decoded without error before."""
        from fastavro import schemaless_reader

        record: Record = schemaless_reader(io.BytesIO(data), self.record, None)
        return record


def manifest_list_reader(header: Header, path: str | None) -> RecordReader:
    """Return the reader of a manifest list's rows; raises FormatError if its schema is not of a manifest list."""
    return _decoder(header, _list_decoder, path)


def record_reader(header: Header, path: str | None) -> RecordReader:
    """Return the reader of a manifest's entries; raises FormatError if its schema is not of a manifest."""
    spec = header.metadata.get("partition-spec", b"")
    return _decoder(header, lambda schema: _manifest_decoder(schema, spec), path)


def decode_blocks(
    data: bytes, header: Header, decoder: RecordReader, path: str | None, limits: Limits | None = None
) -> Iterator[list[Record]]:
    """Yield the records of a file, some thousands at a time; raises FormatError for a damaged block."""
    for count, block in read_blocks(data, header, path=path, limits=limits):
        if count == 0:
            continue
        if limits is not None and len(block) > limits.most_block_bytes:
            text = f"unexpected block of {len(block)} bytes, more than {limits.most_block_bytes} are not read here"
            raise FormatError(text, path=path)
        if count > len(block):  # a record has at least one byte
            raise FormatError(f"unexpected block of {count} records in {len(block)} bytes", path=path)
        read, found = 0, _records(block, count, decoder)
        while read < count:
            try:
                records = next(found, [])
            except Exception as error:  # fastavro raises errors of many types for a damaged block
                raise FormatError(f"damaged Avro block ({type(error).__name__}: {error})", path=path) from error
            if not records:
                break
            read += len(records)
            yield records
        if read != count or next(found, None) is not None:
            raise FormatError(f"unexpected block of {read} records (expected {count}) with bytes left over", path=path)


def _records(block: bytes, count: int, decoder: RecordReader) -> Iterator[list[Record]]:
    """Yield the records of a block, and an empty list if bytes are left over after them."""
    from fastavro import schemaless_reader

    if count <= MOST_RECORDS_AT_ONCE:
        # With their number before and a zero after them, the records are an Avro array.
        stream = io.BytesIO(write_long(count) + block + b"\x00")
        yield schemaless_reader(stream, decoder.block, None)
    else:
        # A malicious block becomes millions of records: the caller checks the first ones before the rest is decoded.
        stream = io.BytesIO(block)
        for start in range(0, count, MOST_RECORDS_AT_ONCE):
            size = min(MOST_RECORDS_AT_ONCE, count - start)
            yield [schemaless_reader(stream, decoder.record, None) for _ in range(size)]
    if stream.read(1):
        yield []


def _decoder(header: Header, build: Callable[[bytes], RecordReader], path: str | None) -> RecordReader:
    if "avro.schema" not in header.metadata:
        raise FormatError("missing 'avro.schema' in the header", path=path)
    if any(len(header.metadata.get(name, b"")) > _MOST_SCHEMA_BYTES for name in ("avro.schema", "partition-spec")):
        # It has the columns of a partition, and none of the table's; and it is remembered.
        raise FormatError(f"unexpected schema or partition spec of more than {_MOST_SCHEMA_BYTES} bytes", path=path)
    try:
        return build(header.metadata["avro.schema"])
    except ImportError:  # a worker without fastavro: nothing is wrong with the file
        raise
    except FormatError as error:
        raise FormatError(str(error), path=path) from error
    except Exception as error:  # from the JSON, its nesting, or fastavro's parser
        raise FormatError(
            f"unexpected 'avro.schema' in the header ({type(error).__name__}: {error})", path=path
        ) from error


def _kept(make: Callable[..., RecordReader], most: int) -> Callable[..., RecordReader]:
    """Return a function that keeps its results: the small ones, and the last of large ones.

    A result takes some thirty times its text, for as long as the process lives, also if a stranger wrote it.
    """
    small, large = lru_cache(maxsize=most)(make), lru_cache(maxsize=MOST_LARGE)(make)
    return lambda *texts: (small if sum(map(len, texts)) <= SMALL_BYTES else large)(*texts)


def _decode_manifest(schema: bytes, spec: bytes) -> RecordReader:
    return _parsed(manifest_reading(json.loads(schema), spec=_spec_fields(spec)))


def _spec_fields(text: bytes) -> Any:
    with suppress(ValueError, RecursionError):  # without the spec, the order of the file's fields counts
        return json.loads(text)
    return None


def _decode_list(schema: bytes) -> RecordReader:
    return _parsed(manifest_list_reading(json.loads(schema)))


_manifest_decoder, _list_decoder = _kept(_decode_manifest, 256), _kept(_decode_list, 16)


def _parsed(reading: Reading) -> RecordReader:
    from fastavro import parse_schema

    record = parse_schema(reading.physical)
    try:
        refuse_amplification(record)
    except ValueError as error:
        raise FormatError(str(error)) from error
    block = parse_schema({"type": "array", "items": reading.physical})
    return RecordReader(block=block, record=record, reading=reading)


def encode_blocks(records: Iterable[Record], writing: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file: the number of records and the uncompressed bytes of each."""
    stream, count = io.BytesIO(), 0
    for record in records:
        write_record(stream, writing, record)
        count += 1
        if stream.tell() >= BLOCK_SIZE_BYTES:
            yield count, stream.getvalue()
            stream, count = io.BytesIO(), 0
    if count:
        yield count, stream.getvalue()


def write_record(stream: io.BytesIO, writing: Any, record: Record) -> None:
    """Append a record to a stream; raises InvalidInputError for a value that Avro cannot store."""
    from fastavro import schemaless_writer

    try:
        schemaless_writer(stream, writing, record)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise InvalidInputError(f"value that cannot be written to Avro ({error}) in {_name(record)}") from error


def blocks_of(records: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield encoded records as blocks."""
    start = size = 0
    for number, record in enumerate(records, 1):
        size += len(record)
        if size >= BLOCK_SIZE_BYTES or number == len(records):
            yield number - start, b"".join(records[start:number])
            start, size = number, 0


def _name(record: Record) -> str:
    return str(record.get("manifest_path") or record["data_file"]["file_path"])


@lru_cache(maxsize=256)
def manifest_reader(partition: t.StructType, format_version: int) -> RecordReader:
    """Return the reader of entries with the schema that this writer uses."""
    return _parsed(manifest_reading(manifest_schema(partition, format_version)))


@lru_cache(maxsize=256)
def manifest_writing(partition: t.StructType, format_version: int) -> Any:
    """Return the parsed schema that manifests are written with."""
    from fastavro import parse_schema

    return parse_schema(manifest_reading(manifest_schema(partition, format_version)).physical)


@lru_cache(maxsize=8)
def manifest_list_writing(format_version: int) -> Any:
    """Return the parsed schema that manifest lists are written with."""
    from fastavro import parse_schema

    return parse_schema(manifest_list_reading(manifest_list_schema(format_version)).physical)
