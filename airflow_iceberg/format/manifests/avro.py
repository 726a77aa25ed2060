"""Manifests and manifest lists <-> Avro bytes.

Here: whole files, their blocks, and what stands in their key-value metadata. Not here: the Avro schemas that are
written (`manifest_schemas`) and read (`manifest_reading`), single records (`manifest_records`), the container around
the blocks (`avro_container`), and the rules of inheritance (`manifests`).

fastavro is imported by the functions that call it: the workers of jobs that read no manifests may lack it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.avro.container import Header, read_blocks, read_header, write_container, write_long
from airflow_iceberg.format.manifests.by_field_id import Reading, manifest_list_reading, manifest_reading
from airflow_iceberg.format.manifests.entries import (
    UNASSIGNED_SEQ,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    inherit,
)
from airflow_iceberg.format.manifests.records import (
    Record,
    entry_to_record,
    record_to_entry,
    record_to_row,
    row_to_record,
)
from airflow_iceberg.format.manifests.schemas import manifest_list_schema, manifest_schema
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema

# Blocks of one record each make a file 6.5 times as large, very large ones cost memory.
BLOCK_SIZE_BYTES = 64 * 1024
MOST_RECORDS_AT_ONCE = 5_000
_FORMAT_VERSIONS = (1, 2, 3)

# --- manifests -------------------------------------------------------------------------------------------------------


def write_manifest(
    entries: Iterable[ManifestEntry],
    *,
    schema: Schema,
    spec: PartitionSpec,
    format_version: int,
    content: ManifestContent = ManifestContent.DATA,
    codec: str = "deflate",
) -> bytes:
    """Return a manifest.

    Args:
        schema: the table's current schema; it is kept in the file.
        spec: the partition spec of all the files.
    Raises:
        InvalidInputError: an entry does not belong into this manifest.
        UnsupportedError: the codec or the format version.
    Spec: Manifests.
    """
    writing, to_record = _entry_writing(schema, spec, format_version, content)
    blocks = _encode(map(to_record, entries), writing)
    return manifest_of_blocks(
        blocks, schema=schema, spec=spec, format_version=format_version, content=content, codec=codec
    )


def encode_entries(
    entries: Iterable[ManifestEntry],
    *,
    schema: Schema,
    spec: PartitionSpec,
    format_version: int,
    content: ManifestContent = ManifestContent.DATA,
) -> Iterator[bytes]:
    """Yield the bytes of each entry; arguments and errors as in `write_manifest`."""
    writing, to_record = _entry_writing(schema, spec, format_version, content)
    for entry in entries:
        stream = io.BytesIO()
        _write_record(stream, writing, to_record(entry))
        yield stream.getvalue()


def manifest_of_records(
    records: Sequence[bytes],
    *,
    schema: Schema,
    spec: PartitionSpec,
    format_version: int,
    content: ManifestContent = ManifestContent.DATA,
    codec: str = "deflate",
) -> bytes:
    """Return a manifest of entries that are bytes already, as from `encode_entries` with the same arguments."""
    return manifest_of_blocks(
        _blocks(records), schema=schema, spec=spec, format_version=format_version, content=content, codec=codec
    )


def manifest_of_blocks(
    blocks: Iterable[tuple[int, bytes]],
    *,
    schema: Schema,
    spec: PartitionSpec,
    format_version: int,
    content: ManifestContent,
    codec: str,
) -> bytes:
    """Return a manifest of blocks of entries: their numbers and bytes, not compressed."""
    _check_version(format_version)
    metadata = {
        "avro.schema": _dump(manifest_schema(spec.partition_type(schema), format_version)),
        "schema": _dump(schema.to_dict()),
        "schema-id": str(schema.schema_id),
        # The fields alone, not the spec as it stands in table metadata.
        "partition-spec": _dump(spec.fields_to_list()),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(format_version),
    }
    if format_version > 1:
        metadata["content"] = content.name.lower()
    return write_container(metadata, blocks, codec=codec)


def _entry_writing(
    schema: Schema, spec: PartitionSpec, format_version: int, content: ManifestContent
) -> tuple[Any, Callable[[ManifestEntry], Record]]:
    _check_version(format_version)
    partition = spec.partition_type(schema)
    to_record = entry_to_record(partition, format_version, content, spec.spec_id)
    return _manifest_writing(partition, format_version), to_record


def read_manifest(
    data: bytes, *, manifest: ManifestFile | None = None, path: str | None = None
) -> Iterator[ManifestEntry]:
    """Yield the entries of a manifest, deleted ones too.

    Args:
        manifest: its row in the manifest list: entries then get what they inherit from it, and a file that is shorter
            than it should be is found out.
        path: location for the errors; by default the manifest's.
    Raises:
        FormatError: the file is torn or no manifest.
        UnsupportedError: its codec needs a package that is not installed.
    Spec: Manifests; columns are resolved by field id.
    """
    if path is None and manifest is not None:
        path = manifest.manifest_path
    entries = _read_entries(data, manifest, path)
    return entries if manifest is None else inherit(entries, manifest)


def _read_entries(data: bytes, manifest: ManifestFile | None, path: str | None) -> Iterator[ManifestEntry]:
    if manifest is not None:
        check_length(data, manifest)
    header = read_header(data, path=path)
    decoder = record_reader(header, path)
    spec_id = manifest.partition_spec_id if manifest is not None else _spec_id(header, path)
    to_entry = record_to_entry(decoder.reading, spec_id)
    count = 0
    for records in _decode(data, header, decoder, path):
        count += len(records)
        try:
            yield from map(to_entry, records)
        except (ValueError, IndexError, TypeError, ArithmeticError) as error:
            raise FormatError(f"unexpected value in a manifest entry ({error})", path=path) from error
        except FormatError as error:
            raise FormatError(str(error), path=path) from error
    _check_count(count, manifest, path)


def check_length(data: bytes, manifest: ManifestFile) -> None:
    """Refuse a manifest that is shorter than its row in the manifest list says.

    Raises:
        FormatError: it is.
    """
    if len(data) < manifest.manifest_length:
        raise FormatError(
            f"unexpected length of {len(data)} bytes (expected {manifest.manifest_length}); the file is torn",
            path=manifest.manifest_path,
        )


def _check_count(count: int, manifest: ManifestFile | None, path: str | None) -> None:
    """A file cut at the end of a block looks whole; the manifest list knows better."""
    if manifest is None:
        return
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    expected = sum(c or 0 for c in counts)
    if None not in counts and count < expected:
        raise FormatError(f"unexpected number of entries {count} (expected {expected}); the file is torn", path=path)


def _spec_id(header: Header, path: str | None) -> int:
    text = header.metadata.get("partition-spec-id", b"0")
    if not text.isdigit():
        raise FormatError(f"unexpected text {text!r} (expected an int) in 'partition-spec-id'", path=path)
    return int(text)


def manifest_spec_id(data: bytes, *, path: str | None = None) -> int:
    """Return the partition spec that a manifest was written with, as its header says; 0 where it says nothing.

    Raises:
        FormatError: the file is torn or no manifest.
    """
    return _spec_id(read_header(data, path=path), path)


# --- manifest lists --------------------------------------------------------------------------------------------------


def write_manifest_list(
    manifests: Iterable[ManifestFile],
    *,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    format_version: int,
    first_row_id: int | None = None,
    codec: str = "deflate",
) -> bytes:
    """Return the manifest list of a snapshot; manifests without a sequence number get the snapshot's.

    Args:
        first_row_id: v3: the snapshot's first row id; see `assign_first_row_ids`, which is applied here.
    Raises:
        InvalidInputError: a manifest without a sequence number is not of this snapshot, or v3 lacks its first row id.
    Spec: Manifest Lists.
    """
    _check_version(format_version)
    rows = [_assign_sequence(manifest, snapshot_id, sequence_number) for manifest in manifests]
    metadata = {
        "avro.schema": _dump(manifest_list_schema(format_version)),
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "format-version": str(format_version),
    }
    if format_version > 1:
        metadata["sequence-number"] = str(sequence_number)
    if format_version >= 3:
        if first_row_id is None:
            raise InvalidInputError("missing first_row_id (required for the manifest list of a v3 table)")
        rows, _ = assign_first_row_ids(rows, first_row_id)
        metadata["first-row-id"] = str(first_row_id)
    writing = _list_writing(format_version)
    return write_container(
        metadata, _encode((row_to_record(row, format_version) for row in rows), writing), codec=codec
    )


def assign_first_row_ids(manifests: Iterable[ManifestFile], first_row_id: int) -> tuple[list[ManifestFile], int]:
    """Give data manifests without a first row id one each, and return the next free row id.

    The snapshot's `added-rows` is the difference. Manifests of before an upgrade to v3 count as well: all rows get ids.

    Raises:
        InvalidInputError: the number of rows of a manifest is not known.
    Spec: First Row ID Assignment.
    """
    result = []
    next_row_id = first_row_id
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA and manifest.first_row_id is None:
            added, existing = manifest.added_rows_count, manifest.existing_rows_count
            if added is None or existing is None:
                raise InvalidInputError(
                    f"unknown number of rows (required to assign row ids) in manifest {manifest.manifest_path}"
                )
            manifest = replace(manifest, first_row_id=next_row_id)
            next_row_id += added + existing
        result.append(manifest)
    return result, next_row_id


def _assign_sequence(manifest: ManifestFile, snapshot_id: int, sequence_number: int) -> ManifestFile:
    if manifest.sequence_number != UNASSIGNED_SEQ and manifest.min_sequence_number != UNASSIGNED_SEQ:
        return manifest
    if manifest.added_snapshot_id != snapshot_id:
        raise InvalidInputError(
            f"missing sequence number of manifest {manifest.manifest_path}: it was added by snapshot "
            f"{manifest.added_snapshot_id} and cannot get the one of snapshot {snapshot_id}"
        )
    lowest = manifest.min_sequence_number
    lowest = sequence_number if lowest == UNASSIGNED_SEQ else lowest
    return replace(manifest, sequence_number=sequence_number, min_sequence_number=lowest)


def read_manifest_list(data: bytes, *, path: str | None = None) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot.

    Raises:
        FormatError: the file is torn or no manifest list. One that is cut at the end of a block cannot be told from a
            whole one: no count of manifests is kept anywhere.
        UnsupportedError: its codec needs a package that is not installed.
    Spec: Manifest Lists; columns are resolved by field id.
    """
    header = read_header(data, path=path)
    decoder = _decoder(header, _list_decoder, path)
    result: list[ManifestFile] = []
    for records in _decode(data, header, decoder, path):
        try:
            result.extend(map(record_to_row, records))
        except (ValueError, IndexError, TypeError) as error:
            raise FormatError(f"unexpected value in a manifest list ({error})", path=path) from error
    return tuple(result)


# --- blocks of records -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordReader:
    """Reads the records of files with one schema, one after the other.

    Attributes:
        block: parsed schema of an array of records: a whole block is decoded in one call.
        record: parsed schema of a record.
    """

    block: Any
    record: Any
    reading: Reading

    def read(self, data: bytes) -> Record:
        """Return the record that begins with the first byte; it must be one that was read before."""
        from fastavro import schemaless_reader

        record: Record = schemaless_reader(io.BytesIO(data), self.record, None)
        return record


def record_reader(header: Header, path: str | None) -> RecordReader:
    """Return what reads the entries of a manifest.

    Raises:
        FormatError: its schema is not that of a manifest.
    """
    spec = header.metadata.get("partition-spec", b"")
    return _decoder(header, lambda schema: _manifest_decoder(schema, spec), path)


def _decode(data: bytes, header: Header, decoder: RecordReader, path: str | None) -> Iterator[list[Record]]:
    for count, block in read_blocks(data, header, path=path):
        if count == 0:
            continue
        if count > len(block):  # a record has at least one byte: do not believe in more
            raise FormatError(f"unexpected block of {count} records in {len(block)} bytes", path=path)
        read, found = 0, _records(block, count, decoder)
        while read < count:
            try:
                records = next(found, [])
            except Exception as error:  # fastavro raises whatever happens to go wrong in a damaged block
                raise FormatError(f"damaged Avro block ({type(error).__name__}: {error})", path=path) from error
            if not records:
                break
            read += len(records)
            yield records
        if read != count or next(found, None) is not None:
            raise FormatError(f"unexpected block of {read} records (expected {count}) with bytes left over", path=path)


def _records(block: bytes, count: int, decoder: RecordReader) -> Iterator[list[Record]]:
    """Yield the records of a block, and an empty list when bytes are left behind them."""
    from fastavro import schemaless_reader

    if count <= MOST_RECORDS_AT_ONCE:
        # With their number before and a zero behind them they are an Avro array.
        stream = io.BytesIO(write_long(count) + block + b"\x00")
        yield schemaless_reader(stream, decoder.block, None)
    else:
        # A hostile block becomes millions of records: the first of them must be looked at before the rest is made.
        stream = io.BytesIO(block)
        for start in range(0, count, MOST_RECORDS_AT_ONCE):
            size = min(MOST_RECORDS_AT_ONCE, count - start)
            yield [schemaless_reader(stream, decoder.record, None) for _ in range(size)]
    if stream.read(1):
        yield []


def _decoder(header: Header, build: Callable[[bytes], RecordReader], path: str | None) -> RecordReader:
    if "avro.schema" not in header.metadata:
        raise FormatError("missing 'avro.schema' in the header", path=path)
    try:
        return build(header.metadata["avro.schema"])
    except FormatError as error:
        raise FormatError(str(error), path=path) from error
    except ImportError:  # fastavro is missing: nothing is wrong with the file
        raise
    except Exception as error:  # the JSON, its nesting, or what fastavro makes of it
        raise FormatError(
            f"unexpected 'avro.schema' in the header ({type(error).__name__}: {error})", path=path
        ) from error


@lru_cache(maxsize=256)
def _manifest_decoder(schema: bytes, spec: bytes) -> RecordReader:
    return _parsed(manifest_reading(json.loads(schema), spec=_spec_fields(spec)))


def _spec_fields(text: bytes) -> Any:
    with suppress(ValueError, RecursionError):  # the order of the file is what is left
        return json.loads(text)
    return None


@lru_cache(maxsize=16)
def _list_decoder(schema: bytes) -> RecordReader:
    return _parsed(manifest_list_reading(json.loads(schema)))


def _parse(schema: Any) -> Any:
    from fastavro import parse_schema

    return parse_schema(schema)


def _parsed(reading: Reading) -> RecordReader:
    block, record = _parse({"type": "array", "items": reading.physical}), _parse(reading.physical)
    return RecordReader(block=block, record=record, reading=reading)


def _encode(records: Iterable[Record], writing: Any) -> Iterator[tuple[int, bytes]]:
    stream, count = io.BytesIO(), 0
    for record in records:
        _write_record(stream, writing, record)
        count += 1
        if stream.tell() >= BLOCK_SIZE_BYTES:
            yield count, stream.getvalue()
            stream, count = io.BytesIO(), 0
    if count:
        yield count, stream.getvalue()


def _write_record(stream: io.BytesIO, writing: Any, record: Record) -> None:
    from fastavro import schemaless_writer

    try:
        schemaless_writer(stream, writing, record)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise InvalidInputError(f"value that cannot be written to Avro ({error}) in {_name(record)}") from error


def _blocks(records: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
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
    """Return what reads the entries of manifests as they are written here."""
    return _parsed(manifest_reading(manifest_schema(partition, format_version)))


@lru_cache(maxsize=256)
def _manifest_writing(partition: t.StructType, format_version: int) -> Any:
    return _parse(manifest_reading(manifest_schema(partition, format_version)).physical)


@lru_cache(maxsize=8)
def _list_writing(format_version: int) -> Any:
    return _parse(manifest_list_reading(manifest_list_schema(format_version)).physical)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check_version(format_version: int) -> None:
    if format_version not in _FORMAT_VERSIONS:
        raise UnsupportedError(f"format version {format_version} is not supported (supported: 1, 2, 3)")
