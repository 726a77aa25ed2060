"""Units of a file inventory, and their results: the same wherever they run.

`run_unit` runs a unit and returns bytes: a line of JSON with the counts, then Arrow record batches (IPC stream, lz4). A
thread returns them, a job writes them to a file. A reader has one batch in memory at a time.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import pyarrow as pa

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.decompression import DOCUMENT_LIMIT, gunzip
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.manifests.entries import ManifestContent, ManifestFile
from airflow_iceberg.inventory.listed_files import list_files
from airflow_iceberg.plan.path_hashes import SpelledFolder
from airflow_iceberg.storage.base import FileIO

# The compressed size of a manifest's entry, if the list does not tell the number of entries.
ENTRY_BYTES = 150
# The size of a unit's manifests: enough to be worth a task, little enough for several at a time in one process.
UNIT_BYTES = 2 << 20
UNIT_MANIFESTS = 32
MOST_UNITS = 1000
MOST_LISTING_UNITS = 256

# Files and bytes that a unit has counted since it last reported them.
Tick = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestUnit:
    """Manifests whose files are named.

    Attributes:
        is_live: whether only live entries are named; otherwise also deleted ones.
        with_paths: whether the result has the files' paths, not only their hashes.
        may_be_missing: whether a missing manifest is skipped; otherwise an error.
        folders: local folders with their real paths, as the process has them that compares the hashes: links may lead
            to other places where the unit runs.
    """

    manifests: tuple[ManifestFile, ...]
    is_live: bool = True
    with_paths: bool = False
    may_be_missing: bool = False
    folders: tuple[SpelledFolder, ...] = ()
    # A manifest is read at once, and decoding it is most of the work.
    in_small_steps: ClassVar = False

    @property
    def weight(self) -> int:
        """Bytes to read."""
        return sum(manifest.manifest_length for manifest in self.manifests)

    @property
    def files(self) -> int:
        """Entries, as the manifest lists count them."""
        return sum(entry_count(manifest) for manifest in self.manifests)

    def run(self, io: FileIO, tick: Tick) -> Iterator[pa.RecordBatch]:
        """Yield batches as `inventory.named_files.name_files` does."""
        # It needs fastavro, which workers of other jobs do without.
        from airflow_iceberg.inventory.named_files import name_files

        return name_files(
            io,
            self.manifests,
            tick,
            is_live=self.is_live,
            with_paths=self.with_paths,
            may_be_missing=self.may_be_missing,
            folders=self.folders,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "manifests",
            "manifests": [_manifest_to_dict(manifest) for manifest in self.manifests],
            "is-live": self.is_live,
            "with-paths": self.with_paths,
            "may-be-missing": self.may_be_missing,
            "folders": [{"spelled": each.spelled, "real": each.real} for each in self.folders],
        }

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        return cls(
            manifests=tuple(_manifest_from_dict(item) for item in fields.items("manifests")),
            is_live=fields.bool("is-live"),
            with_paths=fields.bool("with-paths"),
            may_be_missing=fields.bool("may-be-missing"),
            folders=tuple(SpelledFolder(each.str("spelled"), each.str("real")) for each in fields.items("folders")),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ListingUnit:
    """Folders whose files are listed, at any depth.

    Attributes:
        root: the table's location with a slash at its end.
        folders: folders below `root`, without a slash at their end; the root itself is "".
        partition_names: names of partition fields: folders that are named after them are not hidden.
        before_ms: the time before which old files were written.
    """

    root: str
    folders: tuple[str, ...] = ("",)
    partition_names: tuple[str, ...] = ()
    before_ms: int
    # A local file system is asked for the status of each file; their number is not known before.
    in_small_steps: ClassVar = True
    files: ClassVar = 0

    @property
    def weight(self) -> int:
        """Folders."""
        return len(self.folders)

    def run(self, io: FileIO, tick: Tick) -> Iterator[pa.RecordBatch]:
        """Yield batches as `inventory.listed_files.list_files` does."""
        names, before_ms = self.partition_names, self.before_ms
        return list_files(io, self.root, self.folders, partition_names=names, before_ms=before_ms, tick=tick)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "listing",
            "root": self.root,
            "folders": list(self.folders),
            "partition-names": list(self.partition_names),
            "before-ms": self.before_ms,
        }

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        return cls(
            root=fields.str("root"),
            folders=tuple(str(name) for name in fields.list("folders")),
            partition_names=tuple(str(name) for name in fields.list("partition-names")),
            before_ms=fields.int("before-ms"),
        )


Unit: TypeAlias = ManifestUnit | ListingUnit


def entry_count(manifest: ManifestFile) -> int:
    """Return the number of a manifest's entries; if v1 does not tell, by its length."""
    known = manifest.entry_count
    return -(-manifest.manifest_length // ENTRY_BYTES) if known is None else known


def manifest_units(
    manifests: Iterable[ManifestFile],
    *,
    is_live: bool,
    with_paths: bool = False,
    may_be_missing: bool = False,
    folders: tuple[SpelledFolder, ...] = (),
) -> list[ManifestUnit]:
    """Divide manifests into units of about the same size."""
    rest = list(manifests)
    most_bytes = max(UNIT_BYTES, sum(manifest.manifest_length for manifest in rest) // MOST_UNITS)
    most = max(UNIT_MANIFESTS, len(rest) // MOST_UNITS)
    cut: list[list[ManifestFile]] = []
    filled = 0
    for manifest in rest:
        if not cut or len(cut[-1]) >= most or filled + manifest.manifest_length > most_bytes:
            cut.append([])
            filled = 0
        cut[-1].append(manifest)
        filled += manifest.manifest_length
    unit = ManifestUnit(
        manifests=(), is_live=is_live, with_paths=with_paths, may_be_missing=may_be_missing, folders=folders
    )
    return [replace(unit, manifests=tuple(part)) for part in cut]


def listing_units(unit: ListingUnit, folders: Sequence[str]) -> list[ListingUnit]:
    """Distribute folders to units like a given one."""
    size = -(-len(folders) // MOST_LISTING_UNITS)
    return [replace(unit, folders=tuple(folders[start : start + size])) for start in range(0, len(folders), size)]


def write_unit(unit: Unit) -> bytes:
    """Return the document of a unit."""
    return gzip.compress(json.dumps(unit.to_dict(), separators=(",", ":")).encode(), compresslevel=3, mtime=0)


def read_unit(data: bytes, *, path: str) -> Unit:
    """Read the document of a unit.

    Raises:
        FormatError: it is damaged, or of an unknown kind.
    """
    try:
        fields = Fields(json.loads(gunzip(data, limit=DOCUMENT_LIMIT)), "", path)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise FormatError(f"the document of a unit of an inventory is damaged: {error}", path=path) from error
    kind = fields.str("kind")
    if kind == "manifests":
        return ManifestUnit.from_dict(fields)
    if kind == "listing":
        return ListingUnit.from_dict(fields)
    raise FormatError(f"unknown kind of a unit of an inventory {kind!r}; one of manifests, listing", path=path)


# -- results -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitResult:
    """The result of a unit.

    Attributes:
        files: the number of files that were read or listed; `rows` may be fewer.
        rows: the number of rows in `batches`.
    """

    files: int
    size_bytes: int
    rows: int
    data: bytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, a batch at a time."""
        with pa.ipc.open_stream(self.data) as reader:
            yield from reader


def run_unit(io: FileIO, unit: Unit, tick: Tick | None = None) -> bytes:
    """Run a unit and return its result, as `read_outcome` reads it.

    Args:
        tick: a function, called with the files and bytes that were found since the last call.

    Raises:
        FormatError, NotFoundError, StorageError: a file cannot be read.
    """
    files = size_bytes = rows = 0

    def count(more_files: int, more_bytes: int) -> None:
        nonlocal files, size_bytes
        files += more_files
        size_bytes += more_bytes
        if tick is not None:
            tick(more_files, more_bytes)

    sink = pa.BufferOutputStream()
    writer = None
    for batch in unit.run(io, count):
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        writer.write_batch(batch)
        rows += batch.num_rows
    if writer is None:
        writer = pa.ipc.new_stream(sink, pa.schema([]))
    writer.close()
    head = json.dumps({"files": files, "size-bytes": size_bytes, "rows": rows})
    return b"".join((head.encode(), b"\n", sink.getvalue().to_pybytes()))


def read_outcome(data: bytes, *, path: str | None = None) -> UnitResult:
    """Read what `run_unit` returned.

    Raises:
        FormatError: it is damaged.
    """
    head, line_end, rest = data.partition(b"\n")
    try:
        fields = Fields(json.loads(head), "", path)
        if not line_end:
            raise ValueError("there is nothing after the counts")
        found = UnitResult(
            files=fields.int("files"), size_bytes=fields.int("size-bytes"), rows=fields.int("rows"), data=rest
        )
        rows = sum(batch.num_rows for batch in found.batches()) if path is not None else found.rows
    except (ValueError, pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"the result of a unit of an inventory is damaged: {error}", path=path) from error
    if rows != found.rows:
        raise FormatError(f"the result of a unit of an inventory has {rows} rows, expected {found.rows}", path=path)
    return found


# -- manifests in documents --------------------------------------------------------------------------------------------

_COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")


def _manifest_to_dict(manifest: ManifestFile) -> dict[str, Any]:
    """Return the values of a manifest's row that are needed to read the manifest."""
    return {
        "path": manifest.manifest_path,
        "length": manifest.manifest_length,
        "spec-id": manifest.partition_spec_id,
        "content": int(manifest.content),
        "sequence-number": manifest.sequence_number,
        "min-sequence-number": manifest.min_sequence_number,
        "snapshot-id": manifest.added_snapshot_id,
        "counts": [getattr(manifest, name) for name in _COUNTS],
        "first-row-id": manifest.first_row_id,
    }


def _manifest_from_dict(fields: Fields) -> ManifestFile:
    counts: Mapping[str, Any] = dict(zip(_COUNTS, fields.list("counts"), strict=True))
    return ManifestFile(
        manifest_path=fields.str("path"),
        manifest_length=fields.int("length"),
        partition_spec_id=fields.int("spec-id"),
        content=ManifestContent(fields.int("content")),
        sequence_number=fields.int("sequence-number"),
        min_sequence_number=fields.int("min-sequence-number"),
        added_snapshot_id=fields.int("snapshot-id"),
        first_row_id=fields.opt_int("first-row-id"),
        **counts,
    )
