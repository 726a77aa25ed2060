"""Manifests and manifest lists <-> Avro bytes.

Here: one record <-> one object, and what stands in the key-value metadata of the files. Not here: the Avro schemas
(`manifest_schemas`), the file around the records (`avro_container`), and the rules of inheritance (`manifests`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.spec import types as t
from airflow_iceberg.spec.avro_container import Header, read_blocks, read_header, read_long, write_container, write_long
from airflow_iceberg.spec.manifest_schemas import (
    Reading,
    decimal_size,
    manifest_list_reading,
    manifest_list_schema,
    manifest_reading,
    manifest_schema,
)
from airflow_iceberg.spec.manifests import (
    UNASSIGNED_SEQ,
    DataFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    inherit,
)
from airflow_iceberg.spec.partitioning import PartitionSpec
from airflow_iceberg.spec.schema import Schema

# Blocks of one record each make a file 6.5 times as large, very large ones cost memory.
BLOCK_SIZE_BYTES = 64 * 1024
# v1 requires a block size of each data file, which nobody reads: Iceberg Java writes this one.
_V1_BLOCK_SIZE_BYTES = 64 * 1024 * 1024
_FORMAT_VERSIONS = (1, 2, 3)

Record = dict[str, Any]


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
    _check_version(format_version)
    partition = spec.partition_type(schema)
    avro = manifest_schema(partition, format_version)
    writing = _manifest_writing(partition, format_version)
    to_record = _entry_to_record(partition, format_version, content, spec.spec_id)
    metadata = {
        "avro.schema": _dump(avro),
        "schema": _dump(schema.to_dict()),
        "schema-id": str(schema.schema_id),
        # The fields alone, not the spec as it stands in table metadata.
        "partition-spec": _dump(spec.fields_to_list()),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(format_version),
    }
    if format_version > 1:
        metadata["content"] = content.name.lower()
    return write_container(metadata, _encode(map(to_record, entries), writing), codec=codec)


def read_manifest(data: bytes, *, manifest: ManifestFile | None = None, path: str | None = None) -> Iterator[ManifestEntry]:
    """Yield the entries of a manifest, deleted ones too.

    Args:
        manifest: its row in the manifest list: entries then get what they inherit from it, and a file that is shorter than
            it should be is found out.
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
    if manifest is not None and len(data) < manifest.manifest_length:
        raise FormatError(f"unexpected length of {len(data)} bytes (expected {manifest.manifest_length}); the file is torn", path=path)
    header = read_header(data, path=path)
    decoder = _decoder(header, _manifest_decoder, path)
    spec_id = manifest.partition_spec_id if manifest is not None else _spec_id(header, path)
    to_entry = _record_to_entry(decoder, spec_id)
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


def _check_count(count: int, manifest: ManifestFile | None, path: str | None) -> None:
    """A file cut at the end of a block looks whole; the manifest list knows better."""
    if manifest is None:
        return
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    if all(c is not None for c in counts) and count < sum(c for c in counts if c is not None):
        raise FormatError(f"unexpected number of entries {count} (expected {sum(c for c in counts if c)}); the file is torn", path=path)


def _spec_id(header: Header, path: str | None) -> int:
    text = header.metadata.get("partition-spec-id", b"0")
    if not text.isdigit():
        raise FormatError(f"unexpected text {text!r} (expected an int) in 'partition-spec-id'", path=path)
    return int(text)


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
    return write_container(metadata, _encode((_row_to_record(row, format_version) for row in rows), writing), codec=codec)


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
            if manifest.added_rows_count is None or manifest.existing_rows_count is None:
                raise InvalidInputError(f"unknown number of rows (required to assign row ids) in manifest {manifest.manifest_path}")
            manifest = replace(manifest, first_row_id=next_row_id)
            next_row_id += manifest.added_rows_count + manifest.existing_rows_count
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
            result.extend(map(_record_to_row, records))
        except (ValueError, IndexError, TypeError) as error:
            raise FormatError(f"unexpected value in a manifest list ({error})", path=path) from error
    return tuple(result)


# --- blocks of records -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Decoder:
    block: Any  # parsed schema of an array of records: a whole block is decoded in one call
    reading: Reading


def _decode(data: bytes, header: Header, decoder: _Decoder, path: str | None) -> Iterator[list[Record]]:
    for count, block in read_blocks(data, header, path=path):
        if count == 0:
            continue
        if count > len(block):  # a record has at least one byte: do not believe in more
            raise FormatError(f"unexpected block of {count} records in {len(block)} bytes", path=path)
        # The records of a block, with their number before and a zero behind them, are an Avro array.
        stream = io.BytesIO(write_long(count) + block + b"\x00")
        try:
            records = schemaless_reader(stream, decoder.block, None)
        except Exception as error:  # fastavro raises whatever happens to go wrong in a damaged block
            raise FormatError(f"damaged Avro block ({type(error).__name__}: {error})", path=path) from error
        if len(records) != count or stream.read(1):
            raise FormatError(f"unexpected block of {len(records)} records (expected {count}) with bytes left over", path=path)
        yield records


def _decoder(header: Header, build: Callable[[bytes], _Decoder], path: str | None) -> _Decoder:
    if "avro.schema" not in header.metadata:
        raise FormatError("missing 'avro.schema' in the header", path=path)
    try:
        return build(header.metadata["avro.schema"])
    except FormatError as error:
        raise FormatError(str(error), path=path) from error
    except Exception as error:  # the JSON, its nesting, or what fastavro makes of it
        raise FormatError(f"unexpected 'avro.schema' in the header ({type(error).__name__}: {error})", path=path) from error


@lru_cache(maxsize=256)
def _manifest_decoder(schema: bytes) -> _Decoder:
    return _parsed(manifest_reading(json.loads(schema)))


@lru_cache(maxsize=16)
def _list_decoder(schema: bytes) -> _Decoder:
    return _parsed(manifest_list_reading(json.loads(schema)))


def _parsed(reading: Reading) -> _Decoder:
    return _Decoder(block=parse_schema({"type": "array", "items": reading.physical}), reading=reading)


def _encode(records: Iterable[Record], writing: Any) -> Iterator[tuple[int, bytes]]:
    stream, count = io.BytesIO(), 0
    for record in records:
        try:
            schemaless_writer(stream, writing, record)
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise InvalidInputError(f"value that cannot be written to Avro ({error}) in {_name(record)}") from error
        count += 1
        if stream.tell() >= BLOCK_SIZE_BYTES:
            yield count, stream.getvalue()
            stream, count = io.BytesIO(), 0
    if count:
        yield count, stream.getvalue()


def _name(record: Record) -> str:
    return record.get("manifest_path") or record["data_file"]["file_path"]


@lru_cache(maxsize=256)
def _manifest_writing(partition: t.StructType, format_version: int) -> Any:
    return parse_schema(manifest_reading(manifest_schema(partition, format_version)).physical)


@lru_cache(maxsize=8)
def _list_writing(format_version: int) -> Any:
    return parse_schema(manifest_list_reading(manifest_list_schema(format_version)).physical)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check_version(format_version: int) -> None:
    if format_version not in _FORMAT_VERSIONS:
        raise UnsupportedError(f"format version {format_version} is not supported (supported: 1, 2, 3)")


# --- records <-> objects ---------------------------------------------------------------------------------------------

_STATUSES = tuple(EntryStatus)
_FILE_CONTENTS = tuple(FileContent)
_MANIFEST_CONTENTS = tuple(ManifestContent)


def _record_to_entry(decoder: _Decoder, spec_id: int) -> Callable[[Record], ManifestEntry]:
    names = tuple(name for name, _ in decoder.reading.partition)
    conversions = tuple((i, convert) for i, (_, convert) in enumerate(decoder.reading.partition) if convert is not None)

    def to_entry(record: Record) -> ManifestEntry:
        file = record["data_file"]
        get, raw = file.get, file["partition"]
        partition = [raw[name] for name in names]
        for i, convert in conversions:
            if partition[i] is not None:
                partition[i] = convert(partition[i])
        split_offsets, equality_ids = get("split_offsets"), get("equality_ids")
        data_file = DataFile(
            content=_FILE_CONTENTS[_code(get("content", 0))],
            file_path=file["file_path"],
            file_format=file["file_format"].lower(),
            partition=tuple(partition),
            spec_id=spec_id,
            record_count=file["record_count"],
            file_size_in_bytes=file["file_size_in_bytes"],
            column_sizes=_to_map(get("column_sizes")),
            value_counts=_to_map(get("value_counts")),
            null_value_counts=_to_map(get("null_value_counts")),
            nan_value_counts=_to_map(get("nan_value_counts")),
            lower_bounds=_to_map(get("lower_bounds")),
            upper_bounds=_to_map(get("upper_bounds")),
            key_metadata=get("key_metadata"),
            split_offsets=None if split_offsets is None else tuple(split_offsets),
            equality_ids=None if equality_ids is None else tuple(equality_ids),
            sort_order_id=get("sort_order_id"),
            first_row_id=get("first_row_id"),
            referenced_data_file=get("referenced_data_file"),
            content_offset=get("content_offset"),
            content_size_in_bytes=get("content_size_in_bytes"),
        )
        return ManifestEntry(
            status=_STATUSES[_code(record["status"])],
            snapshot_id=record.get("snapshot_id"),
            sequence_number=record.get("sequence_number"),
            file_sequence_number=record.get("file_sequence_number"),
            data_file=data_file,
        )

    return to_entry


def _code(value: int | None) -> int:
    """Return a code, None as 0; a negative one would count from the end."""
    if value is None:
        return 0
    if value < 0:
        raise ValueError(f"unknown code {value}")
    return value


def _to_map(items: list[Record] | None) -> dict[int, Any] | None:
    return None if items is None else {item["key"]: item["value"] for item in items}


def _from_map(items: Mapping[int, Any] | None) -> list[Record] | None:
    return None if items is None else [{"key": key, "value": value} for key, value in items.items()]


def _to_list(items: tuple[int, ...] | None) -> list[int] | None:
    """fastavro takes a tuple in a union for a pair of type and value."""
    return None if items is None else list(items)


def _entry_to_record(
    partition: t.StructType, format_version: int, content: ManifestContent, spec_id: int
) -> Callable[[ManifestEntry], Record]:
    encoders = [_encoder(field.type) for field in partition.fields]

    def to_record(entry: ManifestEntry) -> Record:
        file = entry.data_file
        _check_entry(entry, encoders, format_version, content, spec_id)
        raw = {f"p{i}": encode(value) for i, (encode, value) in enumerate(zip(encoders, file.partition, strict=True))}
        data_file = {
            "content": int(file.content),
            "file_path": file.file_path,
            "file_format": file.file_format.upper(),
            "partition": raw,
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_in_bytes,
            "column_sizes": _from_map(file.column_sizes),
            "value_counts": _from_map(file.value_counts),
            "null_value_counts": _from_map(file.null_value_counts),
            "nan_value_counts": _from_map(file.nan_value_counts),
            "lower_bounds": _from_map(file.lower_bounds),
            "upper_bounds": _from_map(file.upper_bounds),
            "key_metadata": file.key_metadata,
            "split_offsets": _to_list(file.split_offsets),
            "equality_ids": _to_list(file.equality_ids),
            "sort_order_id": file.sort_order_id,
            "first_row_id": file.first_row_id,
            "referenced_data_file": file.referenced_data_file,
            "content_offset": file.content_offset,
            "content_size_in_bytes": file.content_size_in_bytes,
        }
        if format_version == 1:
            data_file["block_size_in_bytes"] = _V1_BLOCK_SIZE_BYTES
        return {
            "status": int(entry.status),
            "snapshot_id": entry.snapshot_id,
            "sequence_number": entry.sequence_number,
            "file_sequence_number": entry.file_sequence_number,
            "data_file": data_file,
        }

    return to_record


def _check_entry(entry: ManifestEntry, encoders: Sequence[Any], format_version: int, content: ManifestContent, spec_id: int) -> None:
    """Refuse an entry that its manifest would make unreadable or mean something else."""
    file = entry.data_file
    problem = None
    if len(file.partition) != len(encoders):
        problem = f"partition tuple of {len(file.partition)} values (expected {len(encoders)})"
    elif file.spec_id != spec_id:
        problem = f"partition spec {file.spec_id} (expected {spec_id})"
    elif (file.content is FileContent.DATA) is not (content is ManifestContent.DATA):
        problem = f"content {file.content.name.lower()} in a manifest of {content.name.lower()}"
    elif format_version == 1 and (file.content is not FileContent.DATA or entry.snapshot_id is None):
        problem = "delete file, or no snapshot id, in a v1 manifest"
    elif format_version > 1 and entry.status is EntryStatus.EXISTING and None in (
        entry.snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
    ):
        problem = "status existing without its snapshot id and sequence numbers"
    if problem is not None:
        raise InvalidInputError(f"unexpected {problem} in the entry of file {file.file_path}")


def _encoder(type_: t.IcebergType) -> Callable[[Any], Any]:
    """Return what makes a canonical value the raw Avro one."""
    if isinstance(type_, t.DecimalType):
        size, scale = decimal_size(type_.precision), type_.scale
        return lambda v: None if v is None else int(v.scaleb(scale)).to_bytes(size, "big", signed=True)
    if isinstance(type_, t.UUIDType):
        return lambda v: None if v is None else v.bytes
    return lambda v: v


def _record_to_row(record: Record) -> ManifestFile:
    get = record.get
    partitions = get("partitions")
    return ManifestFile(
        manifest_path=record["manifest_path"],
        manifest_length=record["manifest_length"],
        partition_spec_id=record["partition_spec_id"],
        content=_MANIFEST_CONTENTS[_code(get("content", 0))],
        # v1 has no sequence numbers: 0.
        sequence_number=get("sequence_number") or 0,
        min_sequence_number=get("min_sequence_number") or 0,
        added_snapshot_id=record["added_snapshot_id"],
        added_files_count=get("added_files_count"),
        existing_files_count=get("existing_files_count"),
        deleted_files_count=get("deleted_files_count"),
        added_rows_count=get("added_rows_count"),
        existing_rows_count=get("existing_rows_count"),
        deleted_rows_count=get("deleted_rows_count"),
        partitions=None if partitions is None else tuple(map(_record_to_summary, partitions)),
        key_metadata=get("key_metadata"),
        first_row_id=get("first_row_id"),
    )


def _record_to_summary(record: Record) -> FieldSummary:
    return FieldSummary(
        contains_null=record["contains_null"],
        contains_nan=record.get("contains_nan"),
        lower_bound=record.get("lower_bound"),
        upper_bound=record.get("upper_bound"),
    )


_COUNTS = (
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
)


def _row_to_record(row: ManifestFile, format_version: int) -> Record:
    counts = {name: getattr(row, name) for name in _COUNTS}
    if format_version > 1 and None in counts.values():
        # Known only after reading the manifest (it was written by a v1 writer), and required from v2 on.
        raise UnsupportedError(f"manifest {row.manifest_path} has no file and row counts: rewrite it before the table is changed")
    return {
        "manifest_path": row.manifest_path,
        "manifest_length": row.manifest_length,
        "partition_spec_id": row.partition_spec_id,
        "content": int(row.content),
        "sequence_number": row.sequence_number,
        "min_sequence_number": row.min_sequence_number,
        "added_snapshot_id": row.added_snapshot_id,
        **counts,
        "partitions": None if row.partitions is None else [_summary_to_record(summary) for summary in row.partitions],
        "key_metadata": row.key_metadata,
        "first_row_id": row.first_row_id,
    }


def _summary_to_record(summary: FieldSummary) -> Record:
    return {
        "contains_null": summary.contains_null,
        "contains_nan": summary.contains_nan,
        "lower_bound": summary.lower_bound,
        "upper_bound": summary.upper_bound,
    }
