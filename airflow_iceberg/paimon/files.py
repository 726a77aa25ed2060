"""The files of a Paimon snapshot, and their locations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError, advised
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.paimon.data_manifests import FileEntries, FileEntry, Partition, read_manifest
from airflow_iceberg.paimon.history import PaimonHistory
from airflow_iceberg.paimon.index_files import check_vector_file, read_hashes, read_vector
from airflow_iceberg.paimon.index_manifests import DELETION_VECTORS, HASH, IndexFile, VectorRange, read_index_manifest
from airflow_iceberg.paimon.literals import check_written, partition_values
from airflow_iceberg.paimon.manifest_lists import FileFilter, ManifestMeta, read_manifest_list
from airflow_iceberg.paimon.paths import PathRules
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.snapshots import Snapshot, Statistics
from airflow_iceberg.paimon.stats import ColumnStats, StatsDecoder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ListKind = Literal["base", "delta", "changelog"]

_ANY = FileFilter()


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionVector:
    """A deletion vector that has not been read yet.

    Attributes:
        index: the file of the vector.
        vector: its place in that file, and its data file.
    """

    index: IndexFile
    vector: VectorRange


class PaimonFiles(PaimonHistory):
    """One branch of a Paimon table, and the files of its snapshots."""

    def manifests(self, snapshot: Snapshot, kind: ListKind = "base") -> tuple[ManifestMeta, ...]:
        """Return the manifests of a snapshot: those it found (base), wrote (delta) or those of its changelog."""
        name, size = {
            "base": (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            "delta": (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            "changelog": (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
        }[kind]
        if not name:
            return ()
        location = f"{self.location}/manifest/{name}"
        data = self._read(location, f"{kind} manifest list of snapshot {snapshot.id}", size)
        return read_manifest_list(data, path=location, is_limited=self.most_bytes is not None)

    def filter_of(self, snapshot: Snapshot, partition: Mapping[str, Any] | None) -> FileFilter:
        """Return a filter for the files of a partition, None for all files; `literals` reads the values."""
        if partition is None:
            return _ANY
        return FileFilter(partition=partition_values(self.schema(snapshot.schema_id), partition))

    def check_partition(self, snapshot: Snapshot | None, partition: Mapping[str, Any]) -> None:
        """Check that the files of a snapshot can be in a partition; `literals` reads the values.

        Args:
            snapshot: None for the newest schema of the table.

        Raises:
            InvalidInputError: a name is no partition key, or a key cannot have the value.
        """
        check_written(self.schema(None if snapshot is None else snapshot.schema_id), partition)

    def live_files(self, snapshot: Snapshot, wanted: FileFilter = _ANY) -> FileEntries:
        """Return the live files of a snapshot, on all levels.

        Raises:
            FormatError: the manifests contradict each other, or one of them is torn or foreign.
            InvalidInputError: the filter does not fit the table.
        """
        manifests = (*self.manifests(snapshot, "base"), *self.manifests(snapshot, "delta"))
        return self._entries(snapshot, manifests, wanted).live()

    def delta_files(self, snapshot: Snapshot, wanted: FileFilter = _ANY) -> FileEntries:
        """Return the files that a snapshot added and deleted."""
        return self._entries(snapshot, self.manifests(snapshot, "delta"), wanted)

    def changelog_files(self, snapshot: Snapshot, wanted: FileFilter = _ANY) -> FileEntries:
        """Return the files of a snapshot's changelog, which are not live files."""
        return self._entries(snapshot, self.manifests(snapshot, "changelog"), wanted)

    def _entries(self, snapshot: Snapshot, manifests: Iterable[ManifestMeta], wanted: FileFilter) -> FileEntries:
        schema = self.schema(snapshot.schema_id)
        wanted.check(schema)
        fields = schema.partition_fields
        parts, size, is_limited = [], 0, self.most_bytes is not None
        for manifest in manifests:
            location = f"{self.location}/manifest/{manifest.file_name}"
            if wanted.may_hold(manifest, fields, path=location):
                data = self._read(location, f"manifest of snapshot {snapshot.id}", manifest.file_size_bytes)
                entries = read_manifest(data, fields, manifest=manifest, path=location, is_limited=is_limited)
                parts.append(entries.matching(wanted))
                size += parts[-1].columns.nbytes
                if self.most_bytes is not None and size > self.most_bytes:
                    text = f"the manifests of {self.location} have entries of more than {self.most_bytes} bytes"
                    to_do = "wait for the table in a worker, with deferrable=False"
                    raise advised(UnsupportedError(f"{text}, which are not read here"), to_do)
        return FileEntries.concat(parts, fields)

    def stats(self, entries: Iterable[FileEntry]) -> Iterator[dict[str, ColumnStats]]:
        """Yield the statistics of each file, by the names of its columns when it was written."""
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
        """The names of the table's directories."""
        return PathRules.of(self.schema())

    def data_file_location(self, entry: FileEntry) -> str:
        """Return the location that a data file should have."""
        if entry.external_path:
            return entry.external_path
        directory = self.path_rules.bucket_directory(self.schema(entry.schema_id), entry.partition, entry.bucket)
        return f"{self.location}/{directory}/{entry.file_name}"

    def find_data_file(self, entry: FileEntry) -> str:
        """Return the location of an existing data file: where Java or pypaimon write it, or where a listing finds it.

        Raises:
            NotFoundError: it does not exist.
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

    def index_file_location(self, index: IndexFile) -> str:
        """Return the location that an index file should have."""
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
        schema, is_limited = self.schema(snapshot.schema_id), self.most_bytes is not None
        return read_index_manifest(data, schema, path=location, is_limited=is_limited)

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
        indexes = (index for index in self.index_files(snapshot) if index.index_type == DELETION_VECTORS)
        found: dict[tuple[Partition, int, str], DeletionVector] = {}
        for index in indexes:
            for vector in index.vectors:
                key = (index.partition, index.bucket, vector.data_file)
                if key in found:
                    path = f"{self.location}/manifest/{snapshot.index_manifest}"
                    raise FormatError(f"two deletion vectors of data file {vector.data_file}", path=path)
                found[key] = DeletionVector(index=index, vector=vector)
        return tuple(found.values())

    def read_vectors(self, vectors: Iterable[DeletionVector]) -> Iterator[tuple[DeletionVector, RowPositions]]:
        """Yield the deleted rows of data files; an index file is read once if its vectors are adjacent.

        Raises:
            FormatError: a file is torn or foreign, or its number of rows is wrong.
        """
        location, data = "", b""
        for item in vectors:
            place = self.index_file_location(item.index)
            if place != location:
                location, data = place, self._read(place, f"deletion vectors of bucket {item.index.bucket}")
                check_vector_file(data, item.index, path=place)
            yield item, read_vector(data[item.vector.offset :], item.vector, path=place)

    def statistics(self, snapshot: Snapshot) -> Statistics | None:
        """Return the statistics file of a snapshot, None if no ANALYZE ran before it."""
        if not snapshot.statistics:
            return None
        location = f"{self.location}/statistics/{snapshot.statistics}"
        return Statistics.from_json(self._read(location, f"statistics of snapshot {snapshot.id}"), path=location)


class _Schemas(Mapping[int, PaimonSchema]):
    """The schemas of a table by id, read when they are used."""

    def __init__(self, table: PaimonFiles) -> None:
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
