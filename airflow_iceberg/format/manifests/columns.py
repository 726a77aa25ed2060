"""The entries of manifests as columns, and as objects only on demand.

Here: the same result as `avro.read_manifest`, for thousands of entries at a time: checks, inherited values, partitions.
Not here: the bytes (`format.avro.columns`), the Arrow form of all columns (`arrow`).

Reading has two steps, and the first can run in threads: `unpack` reads and inflates the container, `read_columns`
decodes. Entries that cannot be read as columns are read one by one as objects; that reader also raises the errors of
damaged files. So both readers give the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airflow_iceberg.format.avro.columns import decode_records
from airflow_iceberg.format.avro.columns_read import Column, Ints, Mask, Records
from airflow_iceberg.format.avro.container import Limits, read_blocks, read_header
from airflow_iceberg.format.avro.layout import Layout, NotColumnar, layout_of
from airflow_iceberg.format.manifests.avro import check_length, read_manifest
from airflow_iceberg.format.manifests.blocks import MOST_LARGE, SMALL_BYTES, RecordReader, record_reader
from airflow_iceberg.format.manifests.entries import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from airflow_iceberg.format.manifests.lazy_files import Origin, column_files

# Records are decoded side by side in portions of about this size: large enough for numpy, small for memory.
PORTION_BYTES = 4 << 20
# Decoding maps and lists too needs many times as much memory.
PORTION_BYTES_OF_LISTS = 1 << 20
# A manifest of Iceberg Java has some 50,000 files; one that claims more than this must not get the memory for it.
MOST_RECORDS, MOST_BYTES = 2_000_000, 1 << 30
# This writer and Iceberg Java write formats in upper case; the specification allows both.
_FORMATS = ("PARQUET", "ORC", "AVRO", "PUFFIN", "parquet", "orc", "avro", "puffin")
# Row ids are longs. The sum is a float, which does not wrap but is not exact: this limit is well below 2^63.
_FAR = float(1 << 62)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpacked:
    """A manifest without its container.

    Attributes:
        blocks: number of entries and bytes of each block.
        reader: reader of single records.
        layout: layout for reading records side by side; None if that is impossible.
        limits: how much is decoded; None for all of it.
    """

    manifest: ManifestFile
    data: bytes
    blocks: tuple[tuple[int, bytes], ...]
    reader: RecordReader
    layout: Layout | None
    limits: Limits | None = None


def unpack(data: bytes, manifest: ManifestFile, limits: Limits | None = None) -> Unpacked:
    """Read and inflate the container of a manifest.

    Raises:
        FormatError: the file is truncated or not a manifest, or larger than the limits.
        UnsupportedError: its codec needs a package that is not installed.
    """
    check_length(data, manifest)
    header = read_header(data, path=manifest.manifest_path)
    reader = record_reader(header, manifest.manifest_path)
    blocks = tuple(read_blocks(data, header, path=manifest.manifest_path, limits=limits))
    layout = _layout(header.metadata["avro.schema"], reader)
    return Unpacked(manifest=manifest, data=data, blocks=blocks, reader=reader, layout=layout, limits=limits)


_layouts: dict[bytes, Layout | None] = {}


def _layout(schema: bytes, reader: RecordReader) -> Layout | None:
    if schema not in _layouts:
        if len(_layouts) > (256 if len(schema) <= SMALL_BYTES else MOST_LARGE):
            _layouts.clear()
        try:
            _layouts[schema] = layout_of(reader.reading.physical, "file_format")
        except (NotColumnar, KeyError, TypeError, AttributeError, RecursionError):
            _layouts[schema] = None
    return _layouts[schema]


def read_columns(
    manifests: Iterable[Unpacked], *, lists: bool = False, keys: Collection[int] = (), places: bool = False
) -> Iterator[EntryColumns | tuple[ManifestFile, Iterator[ManifestEntry]]]:
    """Yield the entries of manifests in order, also deleted ones, with inherited values.

    Args:
        lists: whether whole maps and lists are read.
        keys: field ids of the columns whose statistics are read as columns.
        places: whether the start of each field of an entry is read.
    Yields:
        Columns of one or more manifests; or a manifest and its entries, if they cannot be read as columns.
    Raises:
        FormatError: as in `read_manifest`.
    """
    for portion in _portions(manifests, PORTION_BYTES_OF_LISTS if lists else PORTION_BYTES):
        try:
            yield _read_portion(portion, lists=lists, keys=keys, places=places)
        except NotColumnar:
            # Maybe only one of the manifests cannot be read as columns.
            for one in portion:
                try:
                    if len(portion) == 1:
                        raise
                    yield _read_portion([one], lists=lists, keys=keys, places=places)
                except NotColumnar:
                    yield one.manifest, read_manifest(one.data, manifest=one.manifest, limits=one.limits)


def _portions(manifests: Iterable[Unpacked], most_bytes: int) -> Iterator[list[Unpacked]]:
    portion: list[Unpacked] = []
    size = 0
    for one in manifests:
        if portion and (one.layout != portion[0].layout or one.reader is not portion[0].reader or size > most_bytes):
            yield portion
            portion, size = [], 0
        portion.append(one)
        size += sum(len(block) for _, block in one.blocks)
    if portion:
        yield portion


def _read_portion(portion: Sequence[Unpacked], *, lists: bool, keys: Collection[int], places: bool) -> EntryColumns:
    layout = portion[0].layout
    blocks = [block for one in portion for block in one.blocks]
    size = sum(len(block) for _, block in blocks)
    if layout is None or sum(count for count, _ in blocks) > MOST_RECORDS or size > MOST_BYTES:
        raise NotColumnar("the records are of a kind, or too many, and are read one after the other")
    records = decode_records(blocks, layout, _FORMATS, lists=lists, keys=keys, places=places)
    counts = [sum(count for count, _ in one.blocks) for one in portion]
    if any(count < (one.manifest.entry_count or 0) for one, count in zip(portion, counts, strict=True)):
        raise NotColumnar("fewer entries than the manifest list says")
    return EntryColumns(tuple(one.manifest for one in portion), counts, records, portion[0].reader, layout)


class EntryColumns:
    """The entries of some manifests as columns, with inherited values.

    Attributes:
        manifests: manifests of the entries.
        borders: first row of each manifest's entries, and the number of rows.
        status, content, record_count, file_size_in_bytes: numbers of each entry.
        file_path, file_format, referenced_data_file, partition: values of each entry.
        snapshot_id, sequence_number, file_sequence_number, first_row_id: columns that may have nulls.
        records: decoded records with all other fields.
        reader, layout: reader and layout of the records.

    Raises:
        NotColumnar: an entry breaks a rule; the other reader raises the error.
    """

    def __init__(
        self,
        manifests: tuple[ManifestFile, ...],
        counts: Sequence[int],
        records: Records,
        reader: RecordReader,
        layout: Layout,
    ) -> None:
        self.manifests = manifests
        self.borders = [0, *np.cumsum(counts, dtype=np.int64).tolist()]
        self.records = records
        self.reader, self.layout = reader, layout
        self._counts = np.asarray(counts, np.int64)
        self.status = self._code("status", len(EntryStatus))
        self.content = self._code("content", len(FileContent))
        self.record_count = self._natural("record_count")
        self.file_size_in_bytes = self._natural("file_size_in_bytes")
        self.is_live: Mask = self.status != EntryStatus.DELETED
        added_by = self._of_manifest(lambda manifest: manifest.added_snapshot_id)
        own = self._optional("snapshot_id")
        self.snapshot_id = Column(np.where(own.is_valid(), own.values, added_by))
        self.sequence_number = self._inherit_sequence("sequence_number")
        self.file_sequence_number = self._inherit_sequence("file_sequence_number")
        self.first_row_id = self._inherit_row_id()
        self.file_path = self._texts("file_path")
        self.file_format = self._format_texts()
        self.referenced_data_file = self._some_texts("referenced_data_file")
        # Canonical values in the order of the fields of the file.
        self.partition = self._partitions()
        if "" in self.file_path:
            raise NotColumnar("an empty path")

    def __len__(self) -> int:
        return len(self.records)

    # --- the numbers of an entry

    def _code(self, name: str, count: int) -> Ints:
        column = self._optional(name)
        codes = column.values if column.valid is None else np.where(column.valid, column.values, 0)
        if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < count:
            raise NotColumnar(f"an unknown code of {name}")
        return codes

    def _natural(self, name: str) -> Ints:
        column = self._optional(name)
        if column.valid is not None or (len(column.values) and int(column.values.min()) < 0):
            raise NotColumnar(f"no natural number in {name}")
        return column.values

    def _optional(self, name: str) -> Column:
        found = self.records.columns.get(name)
        if found is None:
            size = len(self)
            return Column(np.zeros(size, np.int64), None, np.zeros(size, np.bool_))
        return found

    def _of_manifest(self, get: Callable[[ManifestFile], int]) -> Ints:
        return np.repeat(np.array([get(manifest) for manifest in self.manifests], np.int64), self._counts)

    def _inherit_sequence(self, name: str) -> Column:
        own = self._optional(name)
        if own.valid is None:
            return own
        of_manifest = self._of_manifest(lambda manifest: manifest.sequence_number)
        inherits = ~own.valid & ((self.status == EntryStatus.ADDED) | (of_manifest == 0))
        valid = own.valid | inherits
        if not valid[self.is_live].all():
            raise NotColumnar("an existing file leaves its sequence number to its manifest")
        return Column(np.where(own.valid, own.values, of_manifest), None, None if valid.all() else valid)

    def _inherit_row_id(self) -> Column:
        own = self._optional("first_row_id")
        if not any(m.first_row_id is not None or m.content is ManifestContent.DATA for m in self.manifests):
            return own
        values, valid = own.values.copy(), own.is_valid().copy()
        for manifest, start, end in zip(self.manifests, self.borders, self.borders[1:], strict=False):
            if manifest.content is not ManifestContent.DATA:
                continue
            live = self.is_live[start:end]
            if manifest.first_row_id is None:
                # As in `inherit`: row ids from before the upgrade to v3 are ignored.
                valid[start:end] &= ~live
                continue
            missing = live & ~valid[start:end]
            rows = np.where(missing, self.record_count[start:end], 0)
            if manifest.first_row_id + float(np.abs(rows.astype(np.float64)).sum()) > _FAR:
                raise NotColumnar("row ids that could leave a long, which would wrap")
            ids = manifest.first_row_id + np.cumsum(rows) - rows
            values[start:end] = np.where(missing, ids, values[start:end])
            valid[start:end] |= missing
        return Column(values, None, valid)

    # --- texts and partitions

    def _some_texts(self, name: str) -> list[str | None]:
        column = self.records.columns.get(name)
        if column is None:
            return [None] * len(self)
        if column.valid is None:
            return list(self._texts(name))
        found: list[str | None] = [None] * len(self)
        for row in np.flatnonzero(column.valid).tolist():
            found[row] = self._decoded(int(column.values[row]), int(column.lengths[row]))  # type: ignore[index]
        return found

    def _texts(self, name: str) -> list[str]:
        column, data = self.records.columns[name], self.records.data
        assert column.lengths is not None
        spans = zip(column.values.tolist(), (column.values + column.lengths).tolist(), strict=True)
        try:
            return [data[start:end].decode() for start, end in spans]
        except UnicodeDecodeError as error:
            raise NotColumnar(f"no text in {name}") from error

    def _decoded(self, start: int, length: int) -> str:
        try:
            return self.records.data[start : start + length].decode()
        except UnicodeDecodeError as error:
            raise NotColumnar("no text") from error

    def _format_texts(self) -> list[str]:
        column, data = self.records.columns["file_format"], np.frombuffer(self.records.data, np.uint8)
        assert column.lengths is not None
        if len(self) and bool((column.lengths == column.lengths[0]).all()):
            found = data.take(column.values[:, None] + np.arange(int(column.lengths[0])))
            if bool((found == found[0]).all()):  # almost always
                return [self._decoded(int(column.values[0]), int(column.lengths[0])).lower()] * len(self)
        known: dict[str, str] = {}
        return [known.setdefault(text, text.lower()) for text in self._texts("file_format")]

    def _raw(self, name: str) -> list[Any]:
        """Return the Avro values of a column in Python types; None for null."""
        column = self.records.columns.get(name)
        if column is None:  # of the type null
            return [None] * len(self)
        values: list[Any]
        if column.lengths is None:
            values = column.values.tolist()
        else:
            data, starts = self.records.data, column.values.tolist()
            values = [data[a : a + size] for a, size in zip(starts, column.lengths.tolist(), strict=True)]
        if column.valid is not None:
            values = [value if valid else None for value, valid in zip(values, column.valid.tolist(), strict=True)]
        return values

    def _partitions(self) -> list[tuple[Any, ...]]:
        columns = [self._partition_field(name, convert) for name, convert in self.reader.reading.partition]
        if not columns:
            return [()] * len(self)
        found = zip(*columns, strict=True)
        names = [name for name, _ in self.reader.reading.partition]
        if any(name in self.records.columns and self.records.columns[name].values.dtype.kind == "f" for name in names):
            return list(found)  # 0.0 and -0.0 are equal, but other partitions
        # One tuple for the many files of a partition.
        known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        return [known.setdefault(values, values) for values in found]

    def partition_is_raw(self, place: int) -> bool:
        """Whether the Avro values of a partition field, in column `p<place>` of the records, are canonical."""
        return self.reader.reading.partition[place][1] is None

    def _partition_field(self, name: str, convert: Callable[[Any], Any] | None) -> list[Any]:
        if name in self.reader.reading.texts:
            return self._some_texts(name) if convert is None else self._converted(self._some_texts(name), convert)
        values = self._raw(name)
        return values if convert is None else self._converted(values, convert)

    def _converted(self, values: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
        known: dict[Any, Any] = {None: None}
        try:
            for value in values:
                if value not in known:
                    known[value] = convert(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise NotColumnar("an odd partition value") from error
        return [known[value] for value in values]

    # --- objects

    def rows_of(self, number: int) -> tuple[int, int]:
        """Return the first row of a manifest, and the row after its last one."""
        return self.borders[number], self.borders[number + 1]

    def files(self, rows: Ints) -> Sequence[DataFile]:
        """Return the files of some entries; they decode statistics and other fields on demand."""
        numbers = rows.tolist()
        specs = np.array([manifest.partition_spec_id for manifest in self.manifests])
        origin = Origin(
            self.records,
            rows,
            self.reader,
            spec_id=specs[np.searchsorted(self.borders, rows, side="right") - 1],
            content=self.content[rows],
            first_row_id=_take(self.first_row_id, rows),
        )
        return column_files(
            origin,
            file_path=map(self.file_path.__getitem__, numbers),
            partition=map(self.partition.__getitem__, numbers),
            record_count=self.record_count[rows].tolist(),
            file_size_in_bytes=self.file_size_in_bytes[rows].tolist(),
        )

    def entries(self, rows: Ints) -> list[ManifestEntry]:
        """Return some entries with files as from `files`."""
        columns = (self.snapshot_id, self.sequence_number, self.file_sequence_number)
        found = zip(*(column_values(column, rows) for column in columns), strict=True)
        statuses = [_STATUSES[code] for code in self.status[rows].tolist()]
        return [
            ManifestEntry(
                status=status,
                snapshot_id=snapshot_id,
                sequence_number=sequence_number,
                file_sequence_number=file_sequence_number,
                data_file=file,
            )
            for status, (snapshot_id, sequence_number, file_sequence_number), file in zip(
                statuses, found, self.files(rows), strict=True
            )
        ]


_STATUSES = tuple(EntryStatus)


def column_values(column: Column, rows: Ints) -> list[Any]:
    """Return some numbers of a column in Python types; None for null."""
    values: list[Any] = column.values[rows].tolist()
    if column.valid is None:
        return values
    return [value if valid else None for value, valid in zip(values, column.valid[rows].tolist(), strict=True)]


def _take(column: Column, rows: Ints) -> Column:
    return Column(column.values[rows], None, None if column.valid is None else column.valid[rows])
