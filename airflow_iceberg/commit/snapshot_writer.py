"""The metadata files of a snapshot: manifests of new files, manifests without the removed files, the manifest list.

Each file has a unique name. The writer remembers what it wrote for an attempt, so that the files can be deleted once
the attempt has lost, and a retry reads and rewrites only manifests that are new to it. The actions and
`manifest_filter` decide which files are added and removed, `manifest_merging` which manifests are merged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import UUID

from airflow_iceberg.commit.manifest_filter import ManifestFilter
from airflow_iceberg.commit.manifest_merging import MergePolicy, choose_bins
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.manifests.avro import (
    assign_first_row_ids,
    read_manifest,
    write_manifest,
    write_manifest_list,
)
from airflow_iceberg.format.manifests.columns import read_columns, unpack
from airflow_iceberg.format.manifests.entries import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    counted,
)
from airflow_iceberg.format.manifests.summaries import describe_manifest
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

# About 8 MiB of Avro, the default of `commit.manifest.target-size-bytes`, at some 400 bytes an entry.
ENTRIES_PER_MANIFEST = 20_000
# From about 200 entries on, reading the columns first costs little compared with reading the entries one by one.
LARGE_BYTES = 32 * 1024
# The number of manifests to be merged that are read at the same time.
READ_THREADS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedFiles:
    """New files of one commit.

    Attributes:
        sequence_number: the data sequence number if it is not the commit's: an older one for compacted files, so that
            equality deletes that are written meanwhile still apply to them.
    """

    files: tuple[DataFile, ...]
    sequence_number: int | None = None


Filtered = tuple[ManifestFile, tuple[ManifestEntry, ...]]


class SnapshotWriter:
    """Metadata files of one commit, over all its attempts.

    Args:
        commit_uuid: part of each file's name.
    """

    def __init__(self, io: FileIO, *, snapshot_id: int, commit_uuid: UUID) -> None:
        self._io = io
        self._snapshot_id = snapshot_id
        self._commit_uuid = commit_uuid
        self._attempts = 0
        self._manifest_count = 0
        self._manifests: list[str] = []
        self._lists: dict[str, frozenset[str]] = {}  # with the manifests that each names
        # By the files themselves, too: deletion vectors are those of one base.
        self._added: dict[tuple[object, ...], tuple[ManifestFile, ...]] = {}
        # By path and first row id of the source, and by the filter: the first commit in v3 gives a first row id to a
        # manifest that has none.
        self._filtered: dict[tuple[object, ...], Filtered] = {}
        self._merged: dict[tuple[tuple[str, int | None], ...], ManifestFile] = {}
        self._counted: dict[str, ManifestFile] = {}

    def read_parent(self, parent: Snapshot | None) -> tuple[ManifestFile, ...]:
        return () if parent is None else read_manifests(self._io, parent)

    def has_written(self, manifests: Iterable[ManifestFile]) -> bool:
        """Whether one of the manifests was written here."""
        own = set(self._manifests)
        return bool(own) and any(manifest.manifest_path in own for manifest in manifests)

    def live_entries(self, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
        entries = (entry for manifest in manifests for entry in read_entries(self._io, manifest))
        return (entry for entry in entries if entry.is_live)

    def are_live(self, files: Iterable[DataFile], manifests: Iterable[ManifestFile]) -> bool:
        """Whether one of the files is live in one of the manifests."""
        paths = {file.file_path for file in files}
        return bool(paths) and any(entry.data_file.file_path in paths for entry in self.live_entries(manifests))

    def add_files(self, added: AddedFiles, metadata: TableMetadata) -> tuple[ManifestFile, ...]:
        """Return the manifests of new files, one for each spec and content; they are written once for all attempts."""
        by_spec = sorted(added.files, key=_spec_and_content)
        manifests: list[ManifestFile] = []
        for (spec_id, content), group in groupby(by_spec, key=_spec_and_content):
            files = tuple(group)
            key = (spec_id, content, added.sequence_number, tuple(file.identity for file in files))
            if key not in self._added:
                entries = (self._added_entry(file, added.sequence_number) for file in files)
                self._added[key] = tuple(self._write_all(entries, spec_id, content, metadata))
            manifests += self._added[key]
        return tuple(manifests)

    def _added_entry(self, file: DataFile, sequence_number: int | None) -> ManifestEntry:
        # Numbers that are left out are inherited, so that the manifest is valid for each attempt.
        return ManifestEntry(
            status=EntryStatus.ADDED, snapshot_id=self._snapshot_id, sequence_number=sequence_number, data_file=file
        )

    def _write_all(
        self, entries: Iterable[ManifestEntry], spec_id: int, content: ManifestContent, metadata: TableMetadata
    ) -> Iterator[ManifestFile]:
        rest = list(entries)
        for start in range(0, len(rest), ENTRIES_PER_MANIFEST):
            yield self.write_manifest(rest[start : start + ENTRIES_PER_MANIFEST], spec_id, content, metadata)

    def without_files(self, manifest: ManifestFile, removal: ManifestFilter, metadata: TableMetadata) -> Filtered:
        """Return the manifest without the files that a filter removes, and their entries; the manifest itself if there
        are none.
        """
        key = (manifest.manifest_path, manifest.first_row_id, removal.key)
        if key not in self._filtered:
            self._filtered[key] = self._filter(manifest, removal, metadata)
        return self._filtered[key]

    def _filter(self, manifest: ManifestFile, removal: ManifestFilter, metadata: TableMetadata) -> Filtered:
        path = manifest.manifest_path
        data = self._io.read(path)
        if _surely_keeps_all(data, manifest, removal):
            return manifest, ()
        # Deleted entries are left out: a rewrite that copied them could resurrect their files later.
        live = [entry for entry in read_manifest(data, manifest=manifest, path=path) if entry.is_live]
        taken = [removal.takes(entry) for entry in live]
        if not any(taken):
            return manifest, ()
        # Inherited values were filled in when the entries were read, also row ids: a file keeps its own for ever.
        entries = [
            replace(entry, status=EntryStatus.DELETED, snapshot_id=self._snapshot_id)
            if is_gone
            else replace(entry, status=EntryStatus.EXISTING)
            for entry, is_gone in zip(live, taken, strict=True)
        ]
        removed = tuple(entry for entry, is_gone in zip(live, taken, strict=True) if is_gone)
        return self.write_manifest(entries, manifest.partition_spec_id, manifest.content, metadata), removed

    def merge(self, manifests: Sequence[ManifestFile], metadata: TableMetadata) -> tuple[ManifestFile, ...]:
        """Merge small manifests as the table's properties `commit.manifest.*` say; one that cannot be read is left
        unmerged.

        Args:
            manifests: all manifests of the new snapshot, newest first.
        """
        result = list(manifests)
        touched = [manifest.manifest_path for manifest in manifests if manifest.added_snapshot_id == self._snapshot_id]
        for bin in choose_bins(manifests, touched, MergePolicy.of(metadata)):
            try:
                merged = self._merge_bin(bin, metadata)
            except IcebergError as error:
                log.warning("left %d small manifests of %s unmerged: %s", len(bin), metadata.location, error)
                continue
            result[result.index(bin[0])] = merged
            gone = {manifest.manifest_path for manifest in bin}
            result = [manifest for manifest in result if manifest.manifest_path not in gone]
        return tuple(result)

    def _merge_bin(self, bin: Sequence[ManifestFile], metadata: TableMetadata) -> ManifestFile:
        key = tuple((manifest.manifest_path, manifest.first_row_id) for manifest in bin)
        if key not in self._merged:
            contents = self._read_all([manifest.manifest_path for manifest in bin])
            entries = [
                entry for manifest, data in zip(bin, contents, strict=True) for entry in self._carried(manifest, data)
            ]
            first = bin[0]
            self._merged[key] = self.write_manifest(entries, first.partition_spec_id, first.content, metadata)
        return self._merged[key]

    def _read_all(self, paths: Sequence[str]) -> list[bytes]:
        if len(paths) <= READ_THREADS:
            return [self._io.read(path) for path in paths]
        # Read one after the other from a distant store, they would take so long that the commit loses its race.
        with ThreadPoolExecutor(READ_THREADS) as pool:
            return list(pool.map(self._io.read, paths))

    def _carried(self, manifest: ManifestFile, data: bytes) -> Iterator[ManifestEntry]:
        """Yield the entries of a merged manifest: those of this commit as they are, older live files as existing."""
        path = manifest.manifest_path
        if manifest.added_snapshot_id == self._snapshot_id:
            # As written: inherited values, also row ids, are not known before the list is written.
            yield from read_manifest(data, path=path)
            return
        for entry in read_manifest(data, manifest=manifest, path=path):
            if entry.is_live:
                yield replace(entry, status=EntryStatus.EXISTING)

    def write_manifest(
        self, entries: Sequence[ManifestEntry], spec_id: int, content: ManifestContent, metadata: TableMetadata
    ) -> ManifestFile:
        """Write a manifest of entries as they are."""
        spec = metadata.spec(spec_id)
        schema = recover_sources(self._io, metadata, spec_id).schema_of_spec(spec_id)
        data = write_manifest(
            entries, schema=schema, spec=spec, format_version=metadata.format_version, content=content
        )
        return describe_manifest(
            entries,
            path=self.place_manifest(data, metadata),
            length=len(data),
            spec=spec,
            schema=schema,
            content=content,
            snapshot_id=self._snapshot_id,
        )

    def place_manifest(self, data: bytes, metadata: TableMetadata) -> str:
        """Write a manifest under a unique name, and return its location."""
        location = f"{metadata_folder(metadata)}/{self._commit_uuid}-m{self._manifest_count}.avro"
        self._manifest_count += 1
        self._manifests.append(location)
        self._io.create(location, data)
        return location

    def write_list(
        self,
        manifests: Iterable[ManifestFile],
        metadata: TableMetadata,
        *,
        parent_snapshot_id: int | None,
        sequence_number: int,
    ) -> tuple[str, int | None]:
        """Write the manifest list of one attempt; return its location and the number of row ids that it assigned (v3).

        From v3 on each data manifest without a first row id gets one, also manifests from before an upgrade. The ids
        start at the table's next one, so that each attempt assigns them again.
        """
        self._attempts += 1
        name = f"snap-{self._snapshot_id}-{self._attempts}-{self._commit_uuid}.avro"
        location = f"{metadata_folder(metadata)}/{name}"
        rows = [self._with_counts(manifest, metadata) for manifest in manifests]
        first_row_id, added_rows = None, None
        if metadata.format_version >= 3:
            first_row_id = metadata.next_row_id or 0
            rows, next_row_id = assign_first_row_ids(rows, first_row_id)
            added_rows = next_row_id - first_row_id
        data = write_manifest_list(
            rows,
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=parent_snapshot_id,
            sequence_number=sequence_number,
            format_version=metadata.format_version,
            first_row_id=first_row_id,
        )
        self._lists[location] = frozenset(row.manifest_path for row in rows)
        self._io.create(location, data)
        return location, added_rows

    def _with_counts(self, manifest: ManifestFile, metadata: TableMetadata) -> ManifestFile:
        """Return the row with its counts, which are optional in v1 and required in v2."""
        counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
        rows = (manifest.added_rows_count, manifest.existing_rows_count, manifest.deleted_rows_count)
        if metadata.format_version == 1 or None not in (*counts, *rows):
            return manifest
        path = manifest.manifest_path
        if path not in self._counted:
            self._counted[path] = counted(manifest, read_entries(self._io, manifest))
        return self._counted[path]

    def remove_unused(self, landed: Snapshot | None) -> None:
        """Delete the files that no snapshot uses: all, or those that the landed snapshot of this writer does not use.

        Call it only when each attempt is known to have landed or lost. Never raises: a file that is left is
        unreferenced and harmless.
        """
        try:
            used: set[str] = set()
            if landed is not None and landed.manifest_list is not None:
                # A server may have committed the change with a manifest list of its own.
                own = self._lists.get(landed.manifest_list)
                used = {each.manifest_path for each in read_manifests(self._io, landed)} if own is None else set(own)
                used.add(landed.manifest_list)
            unused = [path for path in (*self._lists, *self._manifests) if path not in used]
            if unused:
                self._io.delete(unused)
        except IcebergError as error:
            log.warning("left unreferenced metadata files of a lost commit behind: %s", error)


def _surely_keeps_all(data: bytes, manifest: ManifestFile, removal: ManifestFilter) -> bool:
    """Whether the paths in a large manifest, which are quick to read, prove that no file of it is removed."""
    paths = removal.paths_of_data()
    if paths is None or manifest.content is not ManifestContent.DATA or manifest.manifest_length < LARGE_BYTES:
        return False
    for part in read_columns([unpack(data, manifest)]):
        if isinstance(part, tuple) or not paths.isdisjoint(part.file_path):
            return False
    return True


def _spec_and_content(file: DataFile) -> tuple[int, ManifestContent]:
    is_data = file.content is FileContent.DATA
    return file.spec_id, ManifestContent.DATA if is_data else ManifestContent.DELETES


def metadata_folder(metadata: TableMetadata) -> str:
    """Return the location of a table's metadata files."""
    return (TableProperties.of(metadata.properties).metadata_path or f"{metadata.location}/metadata").rstrip("/")
