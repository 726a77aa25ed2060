"""`PaimonTable`: a Paimon table at a location, read.

Here: which files are read for a question, and the rules by which the latest snapshot is found. All I/O of the package
is here, through a `FileIO`; what the bytes mean is in the other modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.paimon.data_manifests import FileEntries, FileEntry, Partition, read_manifest
from airflow_iceberg.paimon.index_files import check_vector_file, read_hashes, read_vector
from airflow_iceberg.paimon.index_manifests import DELETION_VECTORS, HASH, IndexFile, VectorRange, read_index_manifest
from airflow_iceberg.paimon.manifest_lists import FileFilter, ManifestMeta, read_manifest_list
from airflow_iceberg.paimon.paths import PathRules
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.snapshots import Snapshot, Statistics, Tag
from airflow_iceberg.paimon.stats import ColumnStats, StatsDecoder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from airflow_iceberg.format.deletion_vectors import RowPositions
    from airflow_iceberg.paimon.system_tables import PaimonInspection
    from airflow_iceberg.storage.base import FileIO

MAIN_BRANCH = "main"
ListKind = Literal["base", "delta", "changelog"]

_ANY = FileFilter()
_NUMBER = re.compile(r"0|[1-9][0-9]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionVector:
    """A deletion vector that has not been read yet.

    Attributes:
        index: the file that it lies in.
        vector: where it lies there, and the data file that it is of.
    """

    index: IndexFile
    vector: VectorRange

    @property
    def key(self) -> tuple[Partition, int, str]:
        """Partition, bucket and name of the data file."""
        return self.index.partition, self.index.bucket, self.vector.data_file


class PaimonTable:
    """One branch of a Paimon table. Schemas are read once; snapshots, hints and tags anew each time.

    Args:
        location: directory of the table.
        io: reads the location.
        branch: `main`, or a branch: it has snapshots, schemas and tags of its own, and shares all other files.
    """

    def __init__(self, location: str, io: FileIO, *, branch: str = MAIN_BRANCH) -> None:
        self.location = location.rstrip("/")
        self.io = io
        self.branch_name = branch
        self._schemas: dict[int, PaimonSchema] = {}

    @classmethod
    def load(cls, location: str, io: FileIO, *, branch: str = MAIN_BRANCH) -> PaimonTable:
        """Return a table after making sure that there is one.

        Raises:
            NotFoundError: there is no schema at the location, or no such branch.
        """
        table = cls(location, io, branch=branch)
        table.schema()
        return table

    def __repr__(self) -> str:
        return f"PaimonTable({self.location!r}, branch={self.branch_name!r})"

    @property
    def inspect(self) -> PaimonInspection:
        """What the table holds, as Arrow tables."""
        from airflow_iceberg.paimon.system_tables import PaimonInspection

        return PaimonInspection(self)

    # --- schemas ------------------------------------------------------------------------------------------------------

    def schema_ids(self) -> tuple[int, ...]:
        """Return the numbers of all schemas, ascending.

        Raises:
            NotFoundError: there are none: this is no Paimon table, or no branch of it.
        """
        ids = self._numbers("schema", "schema-")
        if not ids:
            raise NotFoundError(
                f"no Paimon table at {self._root}: expected files schema-0 and on in {self._root}/schema, found none"
            )
        return ids

    def schema(self, schema_id: int | None = None) -> PaimonSchema:
        """Return a schema, the newest one by default."""
        number = self.schema_ids()[-1] if schema_id is None else schema_id
        if number not in self._schemas:
            location = f"{self._root}/schema/schema-{number}"
            schema = PaimonSchema.from_json(self._read(location, f"schema {number}"), path=location)
            if schema.id != number:
                raise FormatError(f"unexpected schema id {schema.id} (expected {number})", path=location)
            self._schemas[number] = schema
        return self._schemas[number]

    def schemas(self) -> tuple[PaimonSchema, ...]:
        """Return all schemas, oldest first."""
        return tuple(self.schema(number) for number in self.schema_ids())

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def latest_snapshot_id(self) -> int | None:
        """Return the id of the latest snapshot, None for a table that nothing was written to yet.

        The hint is believed only when its snapshot is there and the next one is not: it is written after the snapshot,
        and not every writer gets that far.

        Raises:
            FormatError: there is a hint, and no snapshot.
        """
        hint = self._hint("LATEST")
        if hint is not None and self._has(hint) and not self._has(hint + 1):
            return hint
        ids = self._numbers("snapshot", "snapshot-")
        if not ids:
            self._refuse_hints_without_files()
        return ids[-1] if ids else None

    def earliest_snapshot_id(self) -> int | None:
        """Return the id of the earliest snapshot that has not expired, None for a table without any."""
        hint = self._hint("EARLIEST")
        if hint is not None and self._has(hint) and not self._has(hint - 1):
            return hint
        ids = self._numbers("snapshot", "snapshot-")
        if not ids:
            self._refuse_hints_without_files()
        return ids[0] if ids else None

    def snapshot_ids(self) -> tuple[int, ...]:
        """Return the ids of all snapshots that have not expired, ascending.

        Raises:
            FormatError: one in the middle is missing: snapshots expire from one end and are rolled back at the other.
        """
        ids = self._numbers("snapshot", "snapshot-")
        if not ids:
            self._refuse_hints_without_files()
        for before, after in pairwise(ids):
            if after != before + 1:
                missing = self._snapshot_location(before + 1)
                raise FormatError(f"a snapshot is missing between {before} and {after}; expected a file", path=missing)
        return ids

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield all snapshots that have not expired, oldest first; one that goes away before it is read is left out."""
        for number in self.snapshot_ids():
            found = self.find_snapshot(number)
            if found is None:
                ids = self._numbers("snapshot", "snapshot-")
                is_gone = bool(ids) and not ids[0] < number < ids[-1]  # expired, or rolled back
                found = None if is_gone else self.snapshot(number)
            if found is not None:
                yield found

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """Return a snapshot by its id.

        Raises:
            NotFoundError: it has expired, was rolled back or never was; the message says which there are.
        """
        found = self.find_snapshot(snapshot_id)
        if found is None:
            ids = self._numbers("snapshot", "snapshot-")
            known = f"it has {ids[0]} to {ids[-1]}" if ids else "it has none"
            raise NotFoundError(f"no snapshot {snapshot_id} of table {self._root}; {known}")
        return found

    def find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot by its id, or None where there is none."""
        location = self._snapshot_location(snapshot_id)
        try:
            data = self.io.read(location)
        except NotFoundError:
            return None
        return self._checked(Snapshot.from_json(data, path=location), snapshot_id, location)

    def latest_snapshot(self) -> Snapshot | None:
        """Return the latest snapshot, None for a table that nothing was written to yet; see `latest_snapshot_id`."""
        hint = self._hint("LATEST")
        if hint is not None and not self._has(hint + 1) and (found := self.find_snapshot(hint)) is not None:
            return found
        number = self.latest_snapshot_id()
        return None if number is None else self.snapshot(number)

    def changelog_ids(self) -> tuple[int, ...]:
        """Return the ids of the snapshots whose changelogs are kept after they expired, ascending."""
        return self._numbers("changelog", "changelog-")

    def changelog(self, snapshot_id: int) -> Snapshot:
        """Return what is kept of an expired snapshot for its changelog."""
        location = f"{self._root}/changelog/changelog-{snapshot_id}"
        data = self._read(location, f"changelog {snapshot_id}")
        return self._checked(Snapshot.from_json(data, path=location), snapshot_id, location)

    def _checked(self, snapshot: Snapshot, expected: int, location: str) -> Snapshot:
        if snapshot.id != expected:
            raise FormatError(f"unexpected snapshot id {snapshot.id} (expected {expected})", path=location)
        return snapshot

    def _snapshot_location(self, snapshot_id: int) -> str:
        return f"{self._root}/snapshot/snapshot-{snapshot_id}"

    def _has(self, snapshot_id: int) -> bool:
        return self.io.exists(self._snapshot_location(snapshot_id))

    def _hint(self, name: str) -> int | None:
        """Return the number in a hint, None where there is none or it is no number."""
        try:
            text = self.io.read(f"{self._root}/snapshot/{name}", length=32).decode("ascii", "replace").strip()
        except NotFoundError:
            return None
        return int(text) if _NUMBER.fullmatch(text) else None

    def _refuse_hints_without_files(self) -> None:
        for name in ("LATEST", "EARLIEST"):
            location = f"{self._root}/snapshot/{name}"
            if self.io.exists(location):
                text = self.io.read(location, length=32).decode("ascii", "replace").strip()
                raise FormatError(
                    f"the hint says snapshot {text!r}, expected files snapshot-* beside it, found none", path=location
                )

    # --- tags and branches --------------------------------------------------------------------------------------------

    def tag_names(self) -> tuple[str, ...]:
        """Return the names of all tags, sorted."""
        return tuple(sorted(name.removeprefix("tag-") for name in self._names("tag") if name.startswith("tag-")))

    def has_tag(self, name: str) -> bool:
        """Tell whether there is a tag of this name."""
        return self.io.exists(f"{self._root}/tag/tag-{name}")

    def tag(self, name: str) -> Tag:
        """Return a tag.

        Raises:
            NotFoundError: there is none of this name; the message says which there are.
        """
        location = f"{self._root}/tag/tag-{name}"
        try:
            data = self.io.read(location)
        except NotFoundError as error:
            known = ", ".join(self.tag_names()) or "none"
            raise NotFoundError(f"no tag '{name}' of table {self._root}; it has {known}") from error
        return Tag.from_json(name, data, path=location)

    def tags(self) -> tuple[Tag, ...]:
        """Return all tags, sorted by name."""
        return tuple(self.tag(name) for name in self.tag_names())

    def branches(self) -> tuple[str, ...]:
        """Return the names of all branches, sorted, without `main`."""
        base = f"{self.location}/branch/"
        heads = {status.location.removeprefix(base).split("/")[0] for status in self.io.list(base)}
        return tuple(sorted(head.removeprefix("branch-") for head in heads if head.startswith("branch-")))

    def branch(self, name: str) -> PaimonTable:
        """Return a branch as a table of its own.

        Raises:
            NotFoundError: there is none of this name; the message says which there are.
        """
        if name != MAIN_BRANCH and name not in self.branches():
            known = ", ".join((MAIN_BRANCH, *self.branches()))
            raise NotFoundError(f"no branch '{name}' of table {self.location}; it has {known}")
        return PaimonTable(self.location, self.io, branch=name)

    # --- files --------------------------------------------------------------------------------------------------------

    def manifests(self, snapshot: Snapshot, kind: ListKind = "base") -> tuple[ManifestMeta, ...]:
        """Return the manifests of a snapshot: those it found, those it wrote, or those of its changelog."""
        name, size = {
            "base": (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            "delta": (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            "changelog": (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
        }[kind]
        if not name:
            return ()
        location = f"{self.location}/manifest/{name}"
        data = self._read(location, f"{kind} manifest list of snapshot {snapshot.id}", size)
        return read_manifest_list(data, path=location)

    def live_files(self, snapshot: Snapshot, wanted: FileFilter = _ANY) -> FileEntries:
        """Return the files that a snapshot consists of, deleted rows and all levels included.

        Raises:
            FormatError: the manifests contradict each other, or one of them is torn or foreign.
            InvalidInputError: the filter does not fit the table.
        """
        manifests = (*self.manifests(snapshot, "base"), *self.manifests(snapshot, "delta"))
        return self._entries(snapshot, manifests, wanted).live()

    def delta_files(self, snapshot: Snapshot, wanted: FileFilter = _ANY) -> FileEntries:
        """Return what a snapshot added and deleted."""
        return self._entries(snapshot, self.manifests(snapshot, "delta"), wanted)

    def changelog_files(self, snapshot: Snapshot, wanted: FileFilter = _ANY) -> FileEntries:
        """Return the files of a snapshot's changelog, which are never part of the table's state."""
        return self._entries(snapshot, self.manifests(snapshot, "changelog"), wanted)

    def _entries(self, snapshot: Snapshot, manifests: Iterable[ManifestMeta], wanted: FileFilter) -> FileEntries:
        schema = self.schema(snapshot.schema_id)
        wanted.check(schema)
        fields = schema.partition_fields
        parts = []
        for manifest in manifests:
            location = f"{self.location}/manifest/{manifest.file_name}"
            if wanted.may_hold(manifest, fields, path=location):
                data = self._read(location, f"manifest of snapshot {snapshot.id}", manifest.file_size_bytes)
                entries = read_manifest(data, fields, manifest=manifest, path=location)
                parts.append(entries.matching(wanted))
        return FileEntries.concat(parts, fields)

    def stats(self, entries: Iterable[FileEntry]) -> Iterator[dict[str, ColumnStats]]:
        """Yield the statistics of each file, by the names that columns had when it was written."""
        decoder = StatsDecoder(_Schemas(self))
        for entry in entries:
            if entry.value_stats is None:
                yield {}
                continue
            yield decoder.decode(
                entry.value_stats,
                schema_id=entry.schema_id,
                value_stats_cols=entry.value_stats_cols,
                write_cols=entry.write_cols,
                path=entry.manifest,
            )

    # --- where files are ----------------------------------------------------------------------------------------------

    @cached_property
    def path_rules(self) -> PathRules:
        """How the table names its directories."""
        return PathRules.of(self.schema())

    def data_file_location(self, entry: FileEntry) -> str:
        """Return where a data file should be, without looking."""
        if entry.external_path:
            return entry.external_path
        directory = self.path_rules.bucket_directory(self.schema(entry.schema_id), entry.partition, entry.bucket)
        return f"{self.location}/{directory}/{entry.file_name}"

    def find_data_file(self, entry: FileEntry) -> str:
        """Return where a data file is: where Java writes it, where pypaimon did, or where a listing finds it.

        Raises:
            NotFoundError: at none of these places.
        """
        expected = self.data_file_location(entry)
        if self.io.exists(expected):
            return expected
        if not entry.external_path and entry.partition:
            schema = self.schema(entry.schema_id)
            for directory in self.path_rules.python_bucket_directories(schema, entry.partition, entry.bucket):
                location = f"{self.location}/{directory}/{entry.file_name}"
                if self.io.exists(location):
                    return location
            # The text of a FLOAT or DOUBLE depends on the version of Java.
            if any(field.type.root in ("FLOAT", "DOUBLE") for field in schema.partition_fields):
                root = "/".join(part for part in (self.location, self.path_rules.directory) if part)
                for status in self.io.list(root):
                    if status.location.endswith(f"/{entry.file_name}"):
                        return status.location
        raise NotFoundError(f"no data file at {expected}, which manifest {entry.manifest} names")

    def extra_file_locations(self, entry: FileEntry) -> tuple[str, ...]:
        """Return where the files that belong to a data file should be: beside it."""
        directory = self.data_file_location(entry).rpartition("/")[0]
        return tuple(f"{directory}/{name}" for name in entry.extra_files)

    def index_file_location(self, index: IndexFile) -> str:
        """Return where an index file should be."""
        if index.external_path:
            return index.external_path
        rules = self.path_rules
        if rules.index_in_data and index.index_type in (HASH, DELETION_VECTORS):
            directory = rules.bucket_directory(self.schema(), index.partition, index.bucket)
            return f"{self.location}/{directory}/{index.file_name}"
        return f"{self.location}/index/{index.file_name}"

    # --- indexes and statistics ---------------------------------------------------------------------------------------

    def index_files(self, snapshot: Snapshot) -> tuple[IndexFile, ...]:
        """Return all index files of a snapshot."""
        if not snapshot.index_manifest:
            return ()
        location = f"{self.location}/manifest/{snapshot.index_manifest}"
        data = self._read(location, f"index manifest of snapshot {snapshot.id}")
        return read_index_manifest(data, self.schema(snapshot.schema_id), path=location)

    def hashes(self, index: IndexFile) -> npt.NDArray[np.int32]:
        """Return the hashes in an index file of type HASH."""
        if index.index_type != HASH:
            raise InvalidInputError(f"index file {index.file_name} is of type {index.index_type}, expected {HASH}")
        location = self.index_file_location(index)
        return read_hashes(self._read(location, f"index file of bucket {index.bucket}"), index, path=location)

    def deletion_vectors(self, snapshot: Snapshot) -> tuple[DeletionVector, ...]:
        """Return the deletion vectors of a snapshot, not read yet.

        Raises:
            FormatError: a data file has two of them.
        """
        found = [
            DeletionVector(index=index, vector=vector)
            for index in self.index_files(snapshot)
            if index.index_type == DELETION_VECTORS
            for vector in index.vectors
        ]
        keys = set()
        for item in found:
            if item.key in keys:
                name, path = item.vector.data_file, f"{self.location}/manifest/{snapshot.index_manifest}"
                raise FormatError(f"two deletion vectors of data file {name}", path=path)
            keys.add(item.key)
        return tuple(found)

    def read_vectors(self, vectors: Iterable[DeletionVector]) -> Iterator[tuple[DeletionVector, RowPositions]]:
        """Yield the deleted rows of data files; each index file is read once where its vectors come together.

        Raises:
            FormatError: a torn or foreign file, or another number of rows than the manifest says.
        """
        location, data = "", b""
        for item in vectors:
            place = self.index_file_location(item.index)
            if place != location:
                location, data = place, self._read(place, f"deletion vectors of bucket {item.index.bucket}")
                check_vector_file(data, item.index, path=place)
            yield item, read_vector(data[item.vector.offset :], item.vector, path=place)

    def statistics(self, snapshot: Snapshot) -> Statistics | None:
        """Return the statistics file of a snapshot, None where no ANALYZE was run before it."""
        if not snapshot.statistics:
            return None
        location = f"{self.location}/statistics/{snapshot.statistics}"
        return Statistics.from_json(self._read(location, f"statistics of snapshot {snapshot.id}"), path=location)

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def _root(self) -> str:
        """Directory of the branch's own files."""
        if self.branch_name == MAIN_BRANCH:
            return self.location
        return f"{self.location}/branch/branch-{self.branch_name}"

    def _read(self, location: str, what: str, size: int | None = None) -> bytes:
        """Return a file that the table needs, after checking its size where that is known."""
        try:
            data = self.io.read(location)
        except NotFoundError as error:
            expected = "" if size is None else f" of {size} bytes"
            raise NotFoundError(
                f"cannot read {location}: expected the {what}{expected}, found no file; "
                f"it was lost, or has expired in the meantime"
            ) from error
        if size is not None and len(data) != size:
            raise FormatError(f"unexpected {len(data)} bytes of the {what} (expected {size})", path=location)
        return data

    def _names(self, folder: str) -> Iterator[str]:
        base = f"{self._root}/{folder}/"
        for status in self.io.list(base):
            yield status.location.removeprefix(base)

    def _numbers(self, folder: str, prefix: str) -> tuple[int, ...]:
        texts = (name.removeprefix(prefix) for name in self._names(folder) if name.startswith(prefix))
        return tuple(sorted(int(text) for text in texts if _NUMBER.fullmatch(text)))


class _Schemas(Mapping[int, PaimonSchema]):
    """The schemas of a table by id, read when they are asked for."""

    def __init__(self, table: PaimonTable) -> None:
        self._table = table

    def __getitem__(self, schema_id: int) -> PaimonSchema:
        try:
            return self._table.schema(schema_id)
        except NotFoundError as error:
            raise KeyError(schema_id) from error

    def __iter__(self) -> Iterator[int]:
        return iter(self._table.schema_ids())

    def __len__(self) -> int:
        return len(self._table.schema_ids())
