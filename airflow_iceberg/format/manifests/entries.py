"""Data files, manifest entries and manifests as values, and the rules between them.

Here: `DataFile`, `ManifestEntry`, `ManifestFile`, the values that an entry inherits from its manifest, and the counts
of a manifest. Not here: their Avro form (`avro`), and snapshots and their summaries (`format.snapshots`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.types import StructType
from airflow_iceberg.format.values import bytes as values
from airflow_iceberg.format.values.digits import whole_number

UNASSIGNED_SEQ = -1
"""The sequence number of a manifest that is not committed yet: the writer of the manifest list assigns it."""


class FileContent(IntEnum):
    """What a file of a table holds."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


class ManifestContent(IntEnum):
    """Which kind of files a manifest tracks: data files, or delete files, never both."""

    DATA = 0
    DELETES = 1


class EntryStatus(IntEnum):
    """Whether the snapshot of a manifest kept, added or deleted a file."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """A data file, a delete file or a deletion vector, with what is known about its rows.

    Attributes:
        file_path: location, never changed.
        file_format: "parquet", "orc", "avro" or "puffin", in lower case.
        partition: canonical values in the order of the fields of the spec `spec_id`.
        column_sizes: bytes by field id; the counts are numbers of values by field id.
        lower_bounds: single-value bytes by field id; not necessarily the smallest value.
        split_offsets: starts of the row groups, in bytes, ascending.
        content_offset: start of the blob of a deletion vector in its Puffin file, in bytes.
    Spec: Manifests, Data File Fields.
    """

    content: FileContent = FileContent.DATA
    file_path: str
    file_format: str
    partition: tuple[Any, ...] = ()
    spec_id: int = 0
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.file_path:
            raise FormatError("a data file has an empty 'file_path'")
        if self.record_count < 0 or self.file_size_in_bytes < 0:
            raise FormatError(
                f"unexpected negative count (record_count {self.record_count}, file_size_in_bytes "
                f"{self.file_size_in_bytes}) in the entry of file {self.file_path}"
            )

    @property
    def identity(self) -> tuple[str, int | None]:
        """The key of a file: several deletion vectors share one Puffin file, so the path alone is not enough."""
        return self.file_path, self.content_offset

    def without_statistics(self) -> DataFile:
        """Return the file without the statistics, which only planning needs."""
        return replace(self, **NO_STATISTICS)

    @property
    def is_deletion_vector(self) -> bool:
        """Whether this is a deletion vector (v3): a position delete inside a Puffin file."""
        return self.content is FileContent.POSITION_DELETES and self.file_format == "puffin"

    @property
    def size_bytes(self) -> int:
        """Bytes of this file alone: for a deletion vector its blob, not the shared Puffin file."""
        if self.is_deletion_vector and self.content_size_in_bytes is not None:
            return self.content_size_in_bytes
        return self.file_size_in_bytes

    def to_dict(self, partition_type: StructType) -> dict[str, Any]:
        """Return the JSON form that a job reports: bytes as base64, absent fields left out.

        Args:
            partition_type: the tuple type of the spec `spec_id`, as `PartitionSpec.partition_type` gives it.
        """
        result: dict[str, Any] = {
            "content": self.content.name.lower().replace("_", "-"),
            "file-path": self.file_path,
            "file-format": self.file_format,
            "spec-id": self.spec_id,
            "partition": _partition_to_json(self.partition, partition_type),
            "record-count": self.record_count,
            "file-size-in-bytes": self.file_size_in_bytes,
        }
        for name in _COUNT_MAPS + _BOUND_MAPS + _ID_LISTS + _PLAIN:
            value = getattr(self, name)
            if value is not None:
                result[name.replace("_", "-")] = _to_json(name, value)
        return result

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], partition_type: StructType, *, path: str | None = None) -> DataFile:
        """Read the form of `to_dict`; raises FormatError for a key that is missing or of another type."""
        fields = Fields(value, "", path)
        optional: dict[str, Any] = {name: _int_map(fields, name) for name in _COUNT_MAPS}
        optional |= {name: _bound_map(fields, name) for name in _BOUND_MAPS}
        optional |= {name: _int_list(fields, name) for name in _ID_LISTS}
        optional |= {name: fields.opt_int(name.replace("_", "-")) for name in _PLAIN_INTS}
        return cls(
            content=_content(fields),
            file_path=fields.str("file-path"),
            file_format=fields.str("file-format"),
            spec_id=fields.int("spec-id"),
            partition=_partition_from_json(fields, partition_type),
            record_count=fields.int("record-count"),
            file_size_in_bytes=fields.int("file-size-in-bytes"),
            key_metadata=_from_base64(fields, "key-metadata") if "key-metadata" in fields else None,
            referenced_data_file=fields.opt_str("referenced-data-file"),
            **optional,
        )


_COUNT_MAPS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUND_MAPS = ("lower_bounds", "upper_bounds")
NO_STATISTICS: Mapping[str, Any] = dict.fromkeys((*_COUNT_MAPS, *_BOUND_MAPS))
_ID_LISTS = ("split_offsets", "equality_ids")
_PLAIN_INTS = ("sort_order_id", "first_row_id", "content_offset", "content_size_in_bytes")
_PLAIN = ("key_metadata", "referenced_data_file", *_PLAIN_INTS)


def _to_json(name: str, value: Any) -> Any:
    if name in _COUNT_MAPS:
        return {str(key): count for key, count in value.items()}
    if name in _BOUND_MAPS:
        return {str(key): base64.b64encode(bound).decode() for key, bound in value.items()}
    if name == "key_metadata":
        return base64.b64encode(value).decode()
    return list(value) if name in _ID_LISTS else value


def _partition_to_json(partition: tuple[Any, ...], partition_type: StructType) -> list[Any]:
    if len(partition) != len(partition_type.fields):
        raise InvalidInputError(
            f"unexpected partition tuple {partition!r} (expected {len(partition_type.fields)} values)"
        )
    pairs = zip(partition_type.fields, partition, strict=True)
    return [None if value is None else values.to_json(field.type, value) for field, value in pairs]


def _partition_from_json(fields: Fields, partition_type: StructType) -> tuple[Any, ...]:
    items, types = fields.list("partition"), partition_type.fields
    if len(items) != len(types):
        fields.fail("partition", f"unexpected number of values {len(items)} (expected {len(types)})")
    return tuple(
        None if item is None else values.from_json(field.type, item, path=fields.path, where=f"partition.{field.name}")
        for field, item in zip(types, items, strict=True)
    )


def _content(fields: Fields) -> FileContent:
    text = fields.str("content")
    name = text.upper().replace("-", "_")
    if name not in FileContent.__members__:
        fields.fail("content", f"unexpected value {text!r} (expected data, position-deletes or equality-deletes)")
    return FileContent[name]


def _key(text: str, fields: Fields) -> int:
    number = whole_number(text)
    if number is None:
        raise FormatError(f"unexpected key {text[:100]!r} (expected a field id) in '{fields.where}'", path=fields.path)
    return number


def _int_map(fields: Fields, name: str) -> dict[int, int] | None:
    inner = fields.opt_child(name.replace("_", "-"))
    return None if inner is None else {_key(key, inner): inner.int(key) for key in inner.data}


def _bound_map(fields: Fields, name: str) -> dict[int, bytes] | None:
    inner = fields.opt_child(name.replace("_", "-"))
    return None if inner is None else {_key(key, inner): _from_base64(inner, key) for key in inner.data}


def _int_list(fields: Fields, name: str) -> tuple[int, ...] | None:
    key = name.replace("_", "-")
    return fields.int_list(key) if key in fields else None


def _from_base64(fields: Fields, key: str) -> bytes:
    try:
        return base64.b64decode(fields.str(key), validate=True)
    except ValueError:
        fields.fail(key, "unexpected text (expected base64)")


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestEntry:
    """One file in a manifest, with the snapshot that added or deleted it.

    Attributes:
        snapshot_id: snapshot that added the file, or deleted it (status deleted); None is inherited.
        sequence_number: data sequence number, which deletes are compared with; None is inherited.
        file_sequence_number: sequence number of the commit that added the file; None is inherited.
    Spec: Manifests, Manifest Entry Fields.
    """

    status: EntryStatus
    snapshot_id: int | None = None
    sequence_number: int | None = None
    file_sequence_number: int | None = None
    data_file: DataFile

    @property
    def is_live(self) -> bool:
        """Whether the file belongs to the snapshot that reads this manifest."""
        return self.status is not EntryStatus.DELETED


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldSummary:
    """The range of the partition values of a manifest's files in one partition field.

    Attributes:
        contains_nan: whether a value is NaN; None means unknown (old writers).
        lower_bound: single-value bytes of the values that are neither null nor NaN; None without such values.
    """

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestFile:
    """A row of a manifest list: the location of a manifest, and what is known without opening it.

    Attributes:
        manifest_length: size in bytes.
        sequence_number: number of the commit that added the manifest; UNASSIGNED_SEQ before the commit; 0 in v1.
        min_sequence_number: lowest data sequence number of the live entries.
        added_files_count: number of added files; None (v1) means unknown, not 0; the same for the other counts.
        partitions: a summary for each field of the spec, in its order; None means unknown.
        first_row_id: first row id of the first entry that does not have one; v3 data manifests.
    Spec: Manifest Lists.
    """

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: ManifestContent = ManifestContent.DATA
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files_count: int | None = None
    existing_files_count: int | None = None
    deleted_files_count: int | None = None
    added_rows_count: int | None = None
    existing_rows_count: int | None = None
    deleted_rows_count: int | None = None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: int | None = None

    @property
    def entry_count(self) -> int | None:
        """Number of entries in the manifest; None is unknown."""
        counts = (self.added_files_count, self.existing_files_count, self.deleted_files_count)
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def may_have_live_files(self) -> bool:
        """Whether the manifest may hold files of the snapshot: unknown counts may."""
        return self.added_files_count != 0 or self.existing_files_count != 0


def counted(manifest: ManifestFile, entries: Iterable[ManifestEntry]) -> ManifestFile:
    """Return a row with the counts of the manifest's entries, which v1 writers may leave out and v2 requires."""
    files, rows = [0, 0, 0], [0, 0, 0]
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.data_file.record_count
    return replace(
        manifest,
        added_files_count=files[EntryStatus.ADDED],
        existing_files_count=files[EntryStatus.EXISTING],
        deleted_files_count=files[EntryStatus.DELETED],
        added_rows_count=rows[EntryStatus.ADDED],
        existing_rows_count=rows[EntryStatus.EXISTING],
        deleted_rows_count=rows[EntryStatus.DELETED],
    )


def inherit(entries: Iterable[ManifestEntry], manifest: ManifestFile) -> Iterator[ManifestEntry]:
    """Fill in the values that entries inherit from their manifest: snapshot id, sequence numbers, first row ids (v3).

    Raises:
        FormatError: an existing entry has no sequence number, and the sequence number of its manifest is not 0.
    Spec: Sequence Number Inheritance, First Row ID Inheritance.
    """
    next_row_id = manifest.first_row_id if manifest.content is ManifestContent.DATA else None
    for entry in entries:
        file = entry.data_file
        if manifest.content is ManifestContent.DATA and entry.is_live:
            # An id in a manifest without first row id was written before the upgrade to v3: it has no meaning.
            if next_row_id is None:
                file = file if file.first_row_id is None else replace(file, first_row_id=None)
            elif file.first_row_id is None:
                file = replace(file, first_row_id=next_row_id)
                next_row_id += file.record_count
        yield ManifestEntry(
            status=entry.status,
            snapshot_id=manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id,
            sequence_number=_inherited_sequence(entry.sequence_number, entry, manifest),
            file_sequence_number=_inherited_sequence(entry.file_sequence_number, entry, manifest),
            data_file=file,
        )


def _inherited_sequence(own: int | None, entry: ManifestEntry, manifest: ManifestFile) -> int | None:
    if own is not None:
        return own
    # v1 has no sequence numbers: all are 0. From v2 on, only files of the manifest's own commit may omit it.
    if entry.status is EntryStatus.ADDED or manifest.sequence_number == 0:
        return manifest.sequence_number
    if entry.is_live:
        raise FormatError(
            f"missing sequence number (required for status existing) in the entry of file {entry.data_file.file_path}",
            path=manifest.manifest_path,
        )
    return None
