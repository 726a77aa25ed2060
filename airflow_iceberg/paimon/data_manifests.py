"""Data manifests: the files that were added and deleted, and the live files that remain.

Entries are kept in Arrow columns, with serialized bounds and keys: a snapshot may have a hundred thousand files, and
most callers need a few of the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.paimon.binary_row import RowDecoder
from airflow_iceberg.paimon.containers import Column, arrow_schema, read_columns
from airflow_iceberg.paimon.manifest_lists import VERSION, FileFilter, ManifestMeta, exact
from airflow_iceberg.paimon.stats import SimpleStats
from airflow_iceberg.paimon.types import PaimonField

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Partition = tuple[Any, ...]


class FileKind(IntEnum):
    """Whether an entry adds or deletes its file."""

    ADD = 0
    DELETE = 1


def _file(name: str, type_: str, *, required: bool = False) -> Column:
    return Column(name=name, path=("_FILE", f"_{name.upper()}"), type=type_, is_required=required)


def _stats(kind: str) -> tuple[Column, ...]:
    outer = ("_FILE", f"_{kind.upper()}_STATS")
    return (
        Column(name=f"{kind}_min_values", path=(*outer, "_MIN_VALUES"), type="binary"),
        Column(name=f"{kind}_max_values", path=(*outer, "_MAX_VALUES"), type="binary"),
        Column(name=f"{kind}_null_counts", path=(*outer, "_NULL_COUNTS"), type="list int64"),
    )


_VERSION_COLUMN = Column(name="version", path=("_VERSION",), type="int32", is_required=True)
COLUMNS: Sequence[Column] = (
    Column(name="kind", path=("_KIND",), type="int8", is_required=True),
    Column(name="partition", path=("_PARTITION",), type="binary", is_required=True),
    Column(name="bucket", path=("_BUCKET",), type="int32", is_required=True),
    Column(name="total_buckets", path=("_TOTAL_BUCKETS",), type="int32", is_required=True),
    _file("file_name", "string", required=True),
    _file("file_size", "int64", required=True),
    _file("row_count", "int64", required=True),
    _file("min_key", "binary"),
    _file("max_key", "binary"),
    *_stats("key"),
    *_stats("value"),
    _file("min_sequence_number", "int64", required=True),
    _file("max_sequence_number", "int64", required=True),
    _file("schema_id", "int64", required=True),
    _file("level", "int32", required=True),
    _file("extra_files", "list string"),
    _file("creation_time", "local time"),
    _file("delete_row_count", "int64"),
    _file("embedded_file_index", "binary"),
    _file("file_source", "int8"),
    _file("value_stats_cols", "list string"),
    _file("external_path", "string"),
    _file("first_row_id", "int64"),
    _file("write_cols", "list string"),
    _file("write_cols_sequences", "list int64"),
)
_NOT_NEGATIVE = ("file_size", "row_count", "level")
# Two entries are of one file if all of this is equal; partitions by value, since writers serialize them differently.
_IDENTITY = ("partition", "bucket", "level", "file_name", "extra_files", "embedded_file_index", "external_path")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """One entry of a manifest.

    Attributes:
        partition: the values of the partition keys, in the order of the keys.
        bucket: the number of the bucket, from 0; -1 without buckets, -2 for a postponed bucket.
        total_buckets: the number of buckets when the file was written; -1 if it is not fixed.
        min_key, max_key: serialized rows of the primary key without partition keys.
        level: the level in the tree of sorted runs; 0 is not compacted.
        extra_files: the names of further files that belong to this one.
        creation_time: the local time of the writer, in an unknown zone.
        delete_row_count: the number of rows in the file that delete others, None for unknown.
        file_source: 0 for a write, 1 for a compaction, None for unknown.
        value_stats_cols, write_cols: names of columns, as `stats.stats_fields` explains.
        manifest: the location of the entry's manifest.
    """

    kind: FileKind
    partition: Partition
    bucket: int
    total_buckets: int
    file_name: str
    file_size: int
    row_count: int
    min_key: bytes | None
    max_key: bytes | None
    key_stats: SimpleStats | None
    value_stats: SimpleStats | None
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...]
    creation_time: Any
    delete_row_count: int | None
    embedded_file_index: bytes | None
    file_source: int | None
    value_stats_cols: tuple[str, ...] | None
    external_path: str | None
    first_row_id: int | None
    write_cols: tuple[str, ...] | None
    write_cols_sequences: tuple[int, ...] | None
    manifest: str


class FileEntries:
    """Entries of one or many manifests, in order.

    Attributes:
        columns: an Arrow table with the columns of `COLUMNS` and `manifest`.
        partition_fields: the partition keys of the table.
    """

    def __init__(self, columns: pa.Table, partition_fields: Sequence[PaimonField]) -> None:
        self.columns = columns
        self.partition_fields = tuple(partition_fields)

    @classmethod
    def concat(cls, parts: Iterable[FileEntries], partition_fields: Sequence[PaimonField]) -> FileEntries:
        """Return all entries of the parts, in order."""
        import pyarrow as pa

        empty = with_manifest(pa.Table.from_batches([], arrow_schema(COLUMNS)), "")
        return cls(pa.concat_tables([empty, *(part.columns for part in parts)]), partition_fields)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def __iter__(self) -> Iterator[FileEntry]:
        for batch in self.columns.to_batches(max_chunksize=4096):
            try:
                columns = batch.to_pydict()
            except (OverflowError, ValueError) as error:
                # Only times have values that Arrow allows and Python does not.
                path = batch.column("manifest")[0].as_py()
                raise FormatError(f"a file was created at a time that no calendar has: {error}", path=path) from error
            names = list(columns)
            for values in zip(*columns.values(), strict=True):
                yield self._entry(dict(zip(names, values, strict=True)))

    def _entry(self, values: dict[str, Any]) -> FileEntry:
        values["kind"] = FileKind(values["kind"])
        values["partition"] = self.partitions[values["partition"]]
        values["extra_files"] = values["extra_files"] or ()
        for name in ("extra_files", "value_stats_cols", "write_cols", "write_cols_sequences"):
            values[name] = None if values[name] is None else tuple(values[name])
        for kind in ("key", "value"):
            low, high = values.pop(f"{kind}_min_values"), values.pop(f"{kind}_max_values")
            counts = values.pop(f"{kind}_null_counts")
            known = None if counts is None else tuple(counts)
            values[f"{kind}_stats"] = (
                None if low is None or high is None else SimpleStats(min_values=low, max_values=high, null_counts=known)
            )
        return FileEntry(**values)

    @cached_property
    def partitions(self) -> Mapping[bytes, Partition]:
        """The values of every partition, by its bytes.

        Raises:
            FormatError: the bytes are no row of the partition keys.
        """
        import pyarrow.compute as pc

        decoder = RowDecoder(field.type for field in self.partition_fields)
        result = {}
        for blob in pc.unique(self.columns["partition"]).to_pylist():
            try:
                result[blob] = decoder.decode(blob, where="_PARTITION")
            except FormatError as error:
                where = pc.index(self.columns["partition"], blob).as_py()
                raise FormatError(str(error), path=self.columns["manifest"][where].as_py()) from error
        return result

    def take(self, rows: npt.NDArray[np.int64]) -> FileEntries:
        """Return some of the entries, by number."""
        from airflow_iceberg.format.arrow.buffers import number_array

        return FileEntries(self.columns.take(number_array(rows)), self.partition_fields)

    def matching(self, wanted: FileFilter) -> FileEntries:
        """Return the entries of the wanted files."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from airflow_iceberg.format.arrow.buffers import strict_array

        mask = np.ones(len(self), np.bool_)
        for name, numbers in (("bucket", wanted.buckets), ("level", wanted.levels)):
            if numbers is not None:
                mask &= np.isin(_numbers_of(self.columns[name]), list(numbers))
        if wanted.partition:
            keys = [field.name for field in self.partition_fields]
            blobs = [blob for blob, values in self.partitions.items() if wanted.takes(values, keys)]
            mask &= pc.is_in(self.columns["partition"], strict_array(blobs, pa.binary())).to_numpy()
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def added_records(self) -> int:
        """Return the number of added records minus the number of deleted ones."""
        signs = 1 - 2 * _numbers_of(self.columns["kind"]).astype("i8")
        return int((signs * _numbers_of(self.columns["row_count"])).sum())

    def live(self) -> FileEntries:
        """Return the entries of the live files: those that were added once more than they were deleted.

        The order of the entries does not matter, since manifests may be sorted. A compaction that moves a file to
        another level deletes and adds it, with one name.

        Raises:
            FormatError: a file was deleted but never added, or added twice.
        """
        import numpy as np
        import pyarrow as pa

        if not len(self):
            return self
        names = pa.concat_arrays(self.columns["file_name"].chunks).dictionary_encode()
        codes = _numbers_of(names.indices)
        is_single = np.bincount(codes)[codes] == 1
        is_add = _numbers_of(self.columns["kind"]) == FileKind.ADD
        self._refuse(np.flatnonzero(is_single & ~is_add), "deleted but never added")
        kept = np.flatnonzero(is_single & is_add)
        others = self._balanced(np.flatnonzero(~is_single))
        if len(kept) == len(self):
            return self
        return self.take(np.sort(np.concatenate([kept, others])))

    def _balanced(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows of live files among those whose file name occurs in several rows."""
        import numpy as np

        balance: dict[Any, int] = {}
        last: dict[Any, int] = {}
        kinds = _numbers_of(self.columns["kind"])[rows].tolist()
        for row, kind, key in zip(rows.tolist(), kinds, self._identities(rows), strict=True):
            balance[key] = balance.get(key, 0) + (1 if kind == FileKind.ADD else -1)
            if kind == FileKind.ADD or key not in last:
                last[key] = row
        for wrong, problem in ((-1, "deleted but never added"), (1, "added twice")):
            bad = [last[key] for key, count in balance.items() if (count - 1 if wrong > 0 else count) * wrong > 0]
            self._refuse(np.array(bad, np.int64), problem)
        return np.array([last[key] for key, count in balance.items() if count], np.int64)

    def _identities(self, rows: npt.NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
        columns = FileEntries(self.columns.select(_IDENTITY), ()).take(rows).columns.to_pydict()
        keys = {blob: tuple(map(exact, values)) for blob, values in self.partitions.items()}
        for blob, bucket, level, name, extra, index, external in zip(*columns.values(), strict=True):
            yield keys[blob], bucket, level, name, tuple(extra or ()), index, external

    def _refuse(self, rows: npt.NDArray[np.int64], problem: str) -> None:
        if not len(rows):
            return
        entry = next(iter(self.take(rows[:1])))
        raise FormatError(
            f"file {entry.file_name} in bucket {entry.bucket} at level {entry.level} was {problem} "
            f"(a manifest is missing, or its list names it twice) by an entry",
            path=entry.manifest,
        )


def _numbers_of(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    from airflow_iceberg.format.arrow.buffers import numbers_of

    return numbers_of(column)


def with_manifest(columns: pa.Table, name: str) -> pa.Table:
    """Return entries with a column for the name of their manifest, a dictionary with one value."""
    import numpy as np
    import pyarrow as pa

    from airflow_iceberg.format.arrow.buffers import number_array, text_array

    codes = number_array(np.zeros(columns.num_rows, np.int32))
    names = pa.DictionaryArray.from_arrays(codes, text_array([name]))
    return columns.append_column("manifest", names)


def read_manifest(
    data: bytes,
    partition_fields: Sequence[PaimonField],
    *,
    manifest: ManifestMeta | None = None,
    path: str,
    is_limited: bool = False,
) -> FileEntries:
    """Return the entries of a data manifest.

    Args:
        is_limited: as of `read_records`.
        manifest: the line of the manifest list, whose counts are compared with the entries.
        path: the location of the manifest, for the errors and for `manifest` of the entries.

    Raises:
        FormatError: the file is torn or foreign.
        UnsupportedError: the version of the format is unknown.
    """
    import pyarrow.compute as pc

    columns = read_columns(data, (_VERSION_COLUMN, *COLUMNS), path=path, is_limited=is_limited)
    versions = set(pc.unique(columns["version"]).to_pylist())
    if versions - {VERSION}:
        found = min(versions - {VERSION})
        raise UnsupportedError(f"version {found} of a manifest entry (known: {VERSION}) of {path}")
    kinds = {item["values"]: item["counts"] for item in pc.value_counts(columns["kind"]).to_pylist()}
    unknown = [kind for kind in kinds if kind not in (FileKind.ADD, FileKind.DELETE)]
    if unknown:
        raise FormatError(f"unexpected kind {unknown[0]} of an entry (expected 0 or 1) in '_KIND'", path=path)
    found_files = (kinds.get(FileKind.ADD, 0), kinds.get(FileKind.DELETE, 0))
    if manifest is not None and found_files != (manifest.added_files, manifest.deleted_files):
        expected = f"{manifest.added_files} and {manifest.deleted_files} by its manifest list"
        raise FormatError(
            f"found {found_files[0]} added and {found_files[1]} deleted files, expected {expected}", path=path
        )
    for name in _NOT_NEGATIVE:
        if columns.num_rows and pc.min(columns[name]).as_py() < 0:
            raise FormatError(f"negative number in '_FILE._{name.upper()}'", path=path)
    return FileEntries(with_manifest(columns.drop_columns(["version"]), path), partition_fields)
