"""Manifests and manifest lists as Avro bytes, and back.

Here: whole files, and their key-value metadata. Not here: their blocks (`blocks`), the Avro schemas for writing
(`schemas`) and reading (`by_field_id`), single records (`records`), and the rules of inheritance (`entries`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from airflow_iceberg.errors import FormatError, IncompatibleChangeError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.avro.container import Header, Limits, read_header, write_container
from airflow_iceberg.format.manifests.blocks import (
    blocks_of,
    decode_blocks,
    encode_blocks,
    manifest_list_reader,
    manifest_list_writing,
    manifest_writing,
    record_reader,
    write_record,
)
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
from airflow_iceberg.format.values.digits import MAX_LONG, whole_number

_FORMAT_VERSIONS = (1, 2, 3)
# Of the table's schema in a header: each column has some five values.
_MOST_SCHEMA_BYTES, _MOST_SCHEMA_VALUES = 16 << 20, 500_000

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
        schema: current schema of the table, which is stored in the file.
        spec: partition spec of all the data files.
    Raises:
        InvalidInputError: an entry does not belong to this manifest.
        UnsupportedError: unknown codec or format version.
    Spec: Manifests.
    """
    writing, to_record = _entry_writing(schema, spec, format_version, content)
    blocks = encode_blocks(map(to_record, entries), writing)
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
        write_record(stream, writing, to_record(entry))
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
    """Return a manifest of encoded entries, as from `encode_entries` with the same arguments."""
    return manifest_of_blocks(
        blocks_of(records), schema=schema, spec=spec, format_version=format_version, content=content, codec=codec
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
    """Return a manifest of blocks of entries: the number of entries and the uncompressed bytes of each block."""
    _check_version(format_version)
    metadata = {
        "avro.schema": _dump(manifest_schema(spec.partition_type(schema), format_version)),
        "schema": _dump(schema.to_dict()),
        "schema-id": str(schema.schema_id),
        # The fields alone, not the whole spec as in table metadata.
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
    return manifest_writing(partition, format_version), to_record


def read_manifest(
    data: bytes, *, manifest: ManifestFile | None = None, path: str | None = None, limits: Limits | None = None
) -> Iterator[ManifestEntry]:
    """Yield the entries of a manifest, deleted ones too.

    Args:
        manifest: row of the manifest list. With it entries get inherited values, and a truncated file is detected.
        path: location for errors; the manifest's if left out.
        limits: how much is decoded; all of it if left out.
    Raises:
        FormatError: the file is truncated or not a manifest, or larger than the limits.
        UnsupportedError: its codec needs a package that is not installed.
    Spec: Manifests; columns are resolved by field id.
    """
    if path is None and manifest is not None:
        path = manifest.manifest_path
    entries = _read_entries(data, manifest, path, limits)
    return entries if manifest is None else inherit(entries, manifest)


def _read_entries(
    data: bytes, manifest: ManifestFile | None, path: str | None, limits: Limits | None
) -> Iterator[ManifestEntry]:
    if manifest is not None:
        check_length(data, manifest)
    header = read_header(data, path=path)
    decoder = record_reader(header, path)
    spec_id = manifest.partition_spec_id if manifest is not None else _spec_id(header, path)
    to_entry = record_to_entry(decoder.reading, spec_id)
    count = 0
    for records in decode_blocks(data, header, decoder, path, limits):
        count += len(records)
        try:
            yield from map(to_entry, records)
        except (ValueError, IndexError, TypeError, ArithmeticError) as error:
            raise FormatError(f"unexpected value in a manifest entry ({error})", path=path) from error
        except FormatError as error:
            raise FormatError(str(error), path=path) from error
    _check_count(count, manifest, path)


def check_length(data: bytes, manifest: ManifestFile) -> None:
    """Raise FormatError if a manifest is shorter than its row in the manifest list says."""
    if len(data) < manifest.manifest_length:
        raise FormatError(
            f"unexpected length of {len(data)} bytes (expected {manifest.manifest_length}); the file is torn",
            path=manifest.manifest_path,
        )


def _check_count(count: int, manifest: ManifestFile | None, path: str | None) -> None:
    # A file that is cut at the end of a block looks complete; only the manifest list has the number of entries.
    expected = None if manifest is None else manifest.entry_count
    if expected is not None and count < expected:
        raise FormatError(f"unexpected number of entries {count} (expected {expected}); the file is torn", path=path)


def _spec_id(header: Header, path: str | None) -> int:
    text = header.metadata.get("partition-spec-id", b"0")
    number = whole_number(text.decode("latin-1"))
    if number is None:
        raise FormatError(f"unexpected text {text[:100]!r} (expected an int) in 'partition-spec-id'", path=path)
    return number


def manifest_spec_id(data: bytes, *, path: str | None = None) -> int:
    """Return the partition spec id in a manifest's header, 0 if it has none.

    Raises:
        FormatError: the file is truncated or not a manifest.
    """
    return _spec_id(read_header(data, path=path), path)


def written_schema(data: bytes, *, path: str | None = None) -> Schema | None:
    """Return the table's schema at the time when a manifest was written, from its header; None if it has none.

    Raises:
        FormatError: the file is truncated or not a manifest, or the schema is illegal.
    """
    text = read_header(data, path=path).metadata.get("schema")
    if text is None:
        return None
    if len(text) > _MOST_SCHEMA_BYTES or sum(map(text.count, (b",", b"[", b"{"))) > _MOST_SCHEMA_VALUES:
        most = f"{_MOST_SCHEMA_BYTES} with {_MOST_SCHEMA_VALUES} values"
        raise FormatError(f"unexpected 'schema' of {len(text)} bytes (expected at most {most})", path=path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"unexpected text (expected JSON) in 'schema': {error}", path=path) from error
    if not isinstance(document, dict):
        raise FormatError(f"unexpected {type(document).__name__} (expected an object) in 'schema'", path=path)
    return Schema.from_dict(document, path=path)


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
        first_row_id: version 3: first row id of the snapshot, for `assign_first_row_ids`.
    Raises:
        InvalidInputError: a manifest of another snapshot has no sequence number, or v3 without a first row id.
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
    writing = manifest_list_writing(format_version)
    return write_container(
        metadata, encode_blocks((row_to_record(row, format_version) for row in rows), writing), codec=codec
    )


def assign_first_row_ids(manifests: Iterable[ManifestFile], first_row_id: int) -> tuple[list[ManifestFile], int]:
    """Assign first row ids to the data manifests that have none, and return the next free row id.

    The difference is the snapshot's `added-rows`. Manifests from before an upgrade to v3 count too: all rows get ids.

    Raises:
        InvalidInputError: the number of rows of a manifest is unknown.
        IncompatibleChangeError: its number of rows is negative, or the row ids are used up.
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
            if added < 0 or existing < 0 or next_row_id > MAX_LONG:
                raise IncompatibleChangeError(
                    f"cannot give row ids to manifest {manifest.manifest_path} of {added} new and {existing} existing "
                    f"rows, from {manifest.first_row_id} on: the manifest list has a wrong number of rows, or the ids "
                    f"are used up; nothing was committed, rewrite the manifests, or copy the rows into a new table"
                )
        elif manifest.content is ManifestContent.DELETES and manifest.first_row_id is not None:
            manifest = replace(manifest, first_row_id=None)  # of another writer: delete files have no row ids
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


def read_manifest_list(
    data: bytes, *, path: str | None = None, limits: Limits | None = None
) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot.

    Args:
        limits: how much is decoded; all of it if left out.
    Raises:
        FormatError: the file is truncated or not a manifest list. A cut at the end of a block cannot be detected: the
            number of manifests is not stored anywhere.
        UnsupportedError: its codec needs a package that is not installed.
    Spec: Manifest Lists; columns are resolved by field id.
    """
    header = read_header(data, path=path)
    decoder = manifest_list_reader(header, path)
    result: list[ManifestFile] = []
    for records in decode_blocks(data, header, decoder, path, limits):
        try:
            result.extend(map(record_to_row, records))
        except (ValueError, IndexError, TypeError) as error:
            raise FormatError(f"unexpected value in a manifest list ({error})", path=path) from error
    return tuple(result)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check_version(format_version: int) -> None:
    if format_version not in _FORMAT_VERSIONS:
        raise UnsupportedError(f"format version {format_version} is not supported (supported: 1, 2, 3)")
