"""Avro records <-> the objects of `entries`.

Here: one record, one object. Not here: whole files (`avro`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.avro.schemas import decimal_size
from airflow_iceberg.format.manifests.by_field_id import EXACT, Reading
from airflow_iceberg.format.manifests.entries import (
    DataFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from airflow_iceberg.format.manifests.schemas import FILE_COUNTS, ROW_COUNTS

Record = dict[str, Any]

# v1 requires a block size of each data file, which nobody reads: Iceberg Java writes this one.
V1_BLOCK_SIZE_BYTES = 64 * 1024 * 1024

_STATUSES = tuple(EntryStatus)
_FILE_CONTENTS = tuple(FileContent)
_MANIFEST_CONTENTS = tuple(ManifestContent)


def record_to_entry(reading: Reading, spec_id: int) -> Callable[[Record], ManifestEntry]:
    """Return the function that makes a manifest entry of a record, without inherited values."""
    names = tuple(name for name, _ in reading.partition)
    conversions = tuple((i, convert) for i, (_, convert) in enumerate(reading.partition) if convert is not None)

    def to_entry(record: Record) -> ManifestEntry:
        file = record["data_file"]
        if not file["file_path"]:
            raise ValueError("empty file path")
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
    """Return a code, None as 0; a negative index would count from the end."""
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
    """Fastavro treats a tuple in a union as a pair of type and value."""
    return None if items is None else list(items)


def entry_to_record(
    partition: t.StructType, format_version: int, content: ManifestContent, spec_id: int
) -> Callable[[ManifestEntry], Record]:
    """Return the function that makes a record of an entry, and rejects an entry that the manifest cannot contain."""
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
            data_file["block_size_in_bytes"] = V1_BLOCK_SIZE_BYTES
        return {
            "status": int(entry.status),
            "snapshot_id": entry.snapshot_id,
            "sequence_number": entry.sequence_number,
            "file_sequence_number": entry.file_sequence_number,
            "data_file": data_file,
        }

    return to_record


def _check_entry(
    entry: ManifestEntry, encoders: Sequence[Any], format_version: int, content: ManifestContent, spec_id: int
) -> None:
    """Reject an entry that would be unreadable, or have another meaning, in this manifest."""
    file, problem = entry.data_file, None
    inherited = (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
    if len(file.partition) != len(encoders):
        problem = f"partition tuple of {len(file.partition)} values (expected {len(encoders)})"
    elif file.spec_id != spec_id:
        problem = f"partition spec {file.spec_id} (expected {spec_id})"
    elif (file.content is FileContent.DATA) is not (content is ManifestContent.DATA):
        problem = f"content {file.content.name.lower()} in a manifest of {content.name.lower()}"
    elif format_version == 1 and (file.content is not FileContent.DATA or entry.snapshot_id is None):
        problem = "delete file, or no snapshot id, in a v1 manifest"
    elif format_version > 1 and entry.status is EntryStatus.EXISTING and None in inherited:
        problem = "status existing without its snapshot id and sequence numbers"
    if problem is not None:
        raise InvalidInputError(f"unexpected {problem} in the entry of file {file.file_path}")


def _decimal_bytes(value: Any, type_: t.DecimalType) -> bytes:
    try:
        return int(value.scaleb(type_.scale, EXACT)).to_bytes(decimal_size(type_.precision), "big", signed=True)
    except OverflowError as error:
        # `truncate` of the smallest values exceeds the precision.
        raise InvalidInputError(f"partition value {value} does not fit into {type_}") from error


def _encoder(type_: t.IcebergType) -> Callable[[Any], Any]:
    """Return the function that makes the Avro value of a canonical value."""
    if isinstance(type_, t.DecimalType):
        return lambda v: None if v is None else _decimal_bytes(v, type_)
    if isinstance(type_, t.UUIDType):
        return lambda v: None if v is None else v.bytes
    return lambda v: v


def record_to_row(record: Record) -> ManifestFile:
    """Return the row of a manifest list that a record holds."""
    get = record.get
    partitions = get("partitions")
    if not record["manifest_path"]:
        raise ValueError("empty manifest path")
    return ManifestFile(
        manifest_path=record["manifest_path"],
        manifest_length=record["manifest_length"],
        partition_spec_id=record["partition_spec_id"],
        content=_MANIFEST_CONTENTS[_code(get("content", 0))],
        # v1 has no sequence numbers: 0.
        sequence_number=get("sequence_number") or 0,
        min_sequence_number=get("min_sequence_number") or 0,
        added_snapshot_id=record["added_snapshot_id"],
        partitions=None if partitions is None else tuple(map(_record_to_summary, partitions)),
        key_metadata=get("key_metadata"),
        first_row_id=get("first_row_id"),
        **{name: get(name) for name in _COUNTS},
    )


def _record_to_summary(record: Record) -> FieldSummary:
    return FieldSummary(
        contains_null=record["contains_null"],
        contains_nan=record.get("contains_nan"),
        lower_bound=record.get("lower_bound"),
        upper_bound=record.get("upper_bound"),
    )


def _values(summary: FieldSummary) -> Record:
    return {name: getattr(summary, name) for name in _SUMMARY}


_SUMMARY = tuple(field.name for field in fields(FieldSummary))
_COUNTS = tuple(name for _, name in (*FILE_COUNTS, *ROW_COUNTS))


def row_to_record(row: ManifestFile, format_version: int) -> Record:
    """Return the record of a row; raises UnsupportedError if counts that the format version requires are unknown."""
    counts = {name: getattr(row, name) for name in _COUNTS}
    if format_version > 1 and None in counts.values():
        # A v1 writer left the counts out; they are required from v2 on, and known only after reading the manifest.
        raise UnsupportedError(
            f"manifest {row.manifest_path} has no file and row counts: rewrite it before the table is changed"
        )
    return {
        "manifest_path": row.manifest_path,
        "manifest_length": row.manifest_length,
        "partition_spec_id": row.partition_spec_id,
        "content": int(row.content),
        "sequence_number": row.sequence_number,
        "min_sequence_number": row.min_sequence_number,
        "added_snapshot_id": row.added_snapshot_id,
        **counts,
        "partitions": None if row.partitions is None else [_values(summary) for summary in row.partitions],
        "key_metadata": row.key_metadata,
        "first_row_id": row.first_row_id,
    }
