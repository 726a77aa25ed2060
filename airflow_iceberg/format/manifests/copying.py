"""Entries of manifests as bytes of another manifest, mostly copied without decoding.

Here: `EntryEncoder`: live entries become existing ones with explicit inherited values; the bytes of their files are
copied. Only the first numbers, and in v3 the row id, are encoded again. Not here: decoding (`columns`), the choice of
entries for each manifest (`commit.actions.rewrite_manifests`), the file (`avro`).

Copying requires that the fields of both manifests have the same bytes. If not (a column was promoted since, or another
writer was unusual), entries become objects and are encoded one by one; both ways give the same entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from airflow_iceberg.format.avro.columns_read import Ints
from airflow_iceberg.format.avro.container import write_long
from airflow_iceberg.format.avro.layout import NotColumnar, Step, layout_of
from airflow_iceberg.format.manifests.avro import encode_entries
from airflow_iceberg.format.manifests.blocks import RecordReader, manifest_reader
from airflow_iceberg.format.manifests.by_field_id import Convert
from airflow_iceberg.format.manifests.columns import EntryColumns, column_values
from airflow_iceberg.format.manifests.entries import EntryStatus, FileContent, ManifestContent, ManifestEntry
from airflow_iceberg.format.manifests.records import V1_BLOCK_SIZE_BYTES
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema

# Known for every entry, and always encoded again.
_HEAD = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
_ROW_ID = "first_row_id"
# Required fields that an entry of the other format version (v1, v2) does not have.
_REQUIRED = {"content": write_long(FileContent.DATA), "block_size_in_bytes": write_long(V1_BLOCK_SIZE_BYTES)}


@dataclass(frozen=True, slots=True)
class EncodedEntries:
    """Existing entries encoded for a manifest; every list has an item for each entry.

    Attributes:
        records: Avro bytes.
        identities: identities of the files, as in `DataFile.identity`.
        partitions: canonical values, as in `DataFile.partition`.
        sequence_numbers: data sequence numbers.
    """

    records: list[bytes]
    identities: list[tuple[str, int | None]]
    partitions: list[tuple[Any, ...]]
    record_counts: list[int]
    sequence_numbers: list[int]

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def joined(cls, parts: Iterable[EncodedEntries]) -> EncodedEntries:
        """Return the entries of several parts, one after the other."""
        result = cls(records=[], identities=[], partitions=[], record_counts=[], sequence_numbers=[])
        for part in parts:
            for mine, more in zip(result._lists(), part._lists(), strict=True):
                mine.extend(more)
        return result

    def taken(self, rows: Sequence[int]) -> EncodedEntries:
        """Return some of the entries, in the order of `rows`."""
        return EncodedEntries(*([values[row] for row in rows] for values in self._lists()))

    def _lists(self) -> tuple[list[Any], ...]:
        return self.records, self.identities, self.partitions, self.record_counts, self.sequence_numbers


@dataclass(frozen=True, slots=True)
class _Copy:
    """The bytes of the fields from `start` to before `end`, in the order of the source's layout."""

    start: int
    end: int


# Part of a record: bytes that all records share, bytes of the source, or None for the row id.
_Piece = bytes | _Copy | None


class EntryEncoder:
    """Encodes the live entries of manifests, for manifests of one partition spec, content and format version."""

    def __init__(self, *, schema: Schema, spec: PartitionSpec, format_version: int, content: ManifestContent) -> None:
        self._schema, self._spec = schema, spec
        self._version, self._content = format_version, content
        reader = manifest_reader(spec.partition_type(schema), format_version)
        self._partition = reader.reading.partition
        self._steps = _steps(reader)
        self._heads: dict[tuple[int, int, int], bytes] = {}

    def of_columns(self, columns: EntryColumns) -> EncodedEntries:
        """Return the live entries of columns that were read with their places.

        Raises:
            InvalidInputError: an entry does not belong to the manifest.
        """
        rows = np.flatnonzero(columns.is_live)
        try:
            pieces = self._pieces(columns)
        except NotColumnar:
            return self.of_entries(columns.entries(rows))
        is_data = columns.content[rows] == FileContent.DATA
        if not (is_data if self._content is ManifestContent.DATA else ~is_data).all():
            return self.of_entries(columns.entries(rows))  # which raises the error
        numbers = rows.tolist()
        sequence_numbers = column_values(columns.sequence_number, rows)
        offset = columns.records.columns.get("content_offset")
        offsets = repeat(None) if offset is None else column_values(offset, rows)
        return EncodedEntries(
            records=list(map(b"".join, zip(*self._parts(columns, rows, pieces), strict=False))),
            identities=list(zip(map(columns.file_path.__getitem__, numbers), offsets, strict=False)),
            partitions=list(map(columns.partition.__getitem__, numbers)),
            record_counts=columns.record_count[rows].tolist(),
            sequence_numbers=sequence_numbers,
        )

    def of_entries(self, entries: Iterable[ManifestEntry]) -> EncodedEntries:
        """Return the live ones of entries with inherited values.

        Raises:
            InvalidInputError: an entry does not belong to the manifest.
        """
        existing = [replace(entry, status=EntryStatus.EXISTING) for entry in entries if entry.is_live]
        records = encode_entries(
            existing, schema=self._schema, spec=self._spec, format_version=self._version, content=self._content
        )
        return EncodedEntries(
            records=list(records),
            identities=[entry.data_file.identity for entry in existing],
            partitions=[entry.data_file.partition for entry in existing],
            record_counts=[entry.data_file.record_count for entry in existing],
            sequence_numbers=[entry.sequence_number or 0 for entry in existing],
        )

    # --- what is copied

    def _pieces(self, columns: EntryColumns) -> list[_Piece]:
        """Return the parts of a record after its head.

        Raises:
            NotColumnar: a field has other bytes in the source than in the target.
        """
        source = (*columns.layout.before, *columns.layout.after)
        if not self._steps or len(columns.records.places) != len(source):
            raise NotColumnar("the places of the fields are not known")
        self._check_partition(source, columns.reader.reading.partition)
        numbers = {step.name: number for number, step in enumerate(source)}
        pieces: list[_Piece] = []
        for step in self._steps:
            if step.name in _HEAD:
                continue
            if step.name == _ROW_ID:
                pieces.append(None)
            elif step.name not in numbers:
                pieces.append(_default(step))
            elif not _is_same(source[numbers[step.name]], step):
                raise NotColumnar(f"another type of {step.name!r}")
            else:
                pieces.append(_Copy(numbers[step.name], numbers[step.name] + 1))
        return list(_joined(pieces))

    def _check_partition(self, source: Sequence[Step], partition: Sequence[tuple[str, Convert | None]]) -> None:
        mine, its = dict(self._partition), dict(partition)
        wanted = [step for step in self._steps if step.name in mine]
        found = [step for step in source if step.name in its]
        if len(mine) != len(its) or len(wanted) != len(found) or not all(map(_is_same, found, wanted)):
            raise NotColumnar("another type of partition")
        for step in wanted:
            if not _means_the_same(step, mine[step.name], its[step.name]):
                raise NotColumnar(f"another meaning of {step.name!r}")

    def _parts(self, columns: EntryColumns, rows: Ints, pieces: Sequence[_Piece]) -> list[Iterable[bytes]]:
        data, records = columns.records.data, columns.records
        parts: list[Iterable[bytes]] = [self._record_heads(columns, rows)]
        for piece in pieces:
            if piece is None:
                ids = column_values(columns.first_row_id, rows)
                parts.append(b"\x00" if found is None else b"\x02" + write_long(found) for found in ids)
            elif isinstance(piece, bytes):
                parts.append(repeat(piece))
            else:
                starts = records.places[piece.start][rows].tolist()
                ends = (records.places[piece.end] if piece.end < len(records.places) else records.starts[1:])[rows]
                parts.append(data[start:end] for start, end in zip(starts, ends.tolist(), strict=True))
        return parts

    def _record_heads(self, columns: EntryColumns, rows: Ints) -> Iterator[bytes]:
        names = (columns.snapshot_id, columns.sequence_number, columns.file_sequence_number)
        found = zip(*(column_values(column, rows) for column in names), strict=True)
        known = self._heads
        for numbers in found:
            head = known.get(numbers)
            if head is None:
                head = known[numbers] = self._head(numbers)
            yield head

    def _head(self, numbers: tuple[int, int, int]) -> bytes:
        # A live entry has all of them, some by inheritance. v1 has only the snapshot id.
        written = numbers[:1] if self._version == 1 else numbers
        return write_long(EntryStatus.EXISTING) + b"".join(b"\x02" + write_long(number) for number in written)


def _steps(reader: RecordReader) -> tuple[Step, ...]:
    """Return the fields of a manifest; none if their types cannot be copied, which is rare."""
    try:
        layout = layout_of(reader.reading.physical, "file_format")
    except NotColumnar:
        return ()
    return *layout.before, *layout.after


def _is_same(one: Step, other: Step) -> bool:
    items = [[item.kind for item in step.items] for step in (one, other)]
    return (one.kind, one.null, one.size, items[0]) == (other.kind, other.null, other.size, items[1])


def _means_the_same(step: Step, mine: Convert | None, its: Convert | None) -> bool:
    if mine is None or its is None:
        return mine is its
    if step.kind != "fixed":
        return False
    # Decimals of another scale may have the same bytes, and so may a UUID.
    sample = bytes(range(1, step.size + 1))
    return bool(mine(sample) == its(sample))


def _default(step: Step) -> bytes:
    if step.null is not None:
        return write_long(step.null)
    if step.name not in _REQUIRED:
        raise NotColumnar(f"{step.name!r} is required")
    return _REQUIRED[step.name]


def _joined(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """Join fields that follow each other in both manifests; nearly all of them do."""
    last: _Piece = b""
    for piece in pieces:
        if isinstance(last, _Copy) and isinstance(piece, _Copy) and last.end == piece.start:
            last = _Copy(last.start, piece.end)
        elif isinstance(last, bytes) and isinstance(piece, bytes):
            last += piece
        else:
            yield last
            last = piece
    yield last
