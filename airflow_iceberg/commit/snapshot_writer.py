"""Writes the metadata files of a snapshot: manifests of new files, manifests without the removed ones, the list.

Every file gets a name that nobody else uses. What was written for an attempt is remembered, so that it can be removed
once the attempt is known to have lost, and so that a retry reads and rewrites only manifests that it has not seen.
Which files go in and out is decided in the actions and in `removals`, which manifests are merged in `merging`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import UUID

from airflow_iceberg.commit.manifest_merging import MergePolicy, choose_bins
from airflow_iceberg.commit.removals import RemovalFilter
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
    describe_manifest,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

# About 8 MiB of Avro, which is what `commit.manifest.target-size-bytes` asks for, at some 400 bytes an entry.
ENTRIES_PER_MANIFEST = 20_000
# From about 200 entries on, looking at them as columns first costs little of what reading them one by one does.
LARGE_BYTES = 32 * 1024
# Manifests to be merged that are read at the same time, where there are more of them.
READ_THREADS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedFiles:
    """New files of one commit.

    Attributes:
        sequence_number: data sequence number, where it is not the commit's: older for the outputs of a compaction, so
            that equality deletes written meanwhile still apply to them.
    """

    files: tuple[DataFile, ...]
    sequence_number: int | None = None


Filtered = tuple[ManifestFile, tuple[ManifestEntry, ...]]


class SnapshotWriter:
    """Metadata files of one commit, over all its attempts.

    Args:
        commit_uuid: part of every file's name; the caller's dice.
    """

    def __init__(self, io: FileIO, *, snapshot_id: int, commit_uuid: UUID) -> None:
        self._io = io
        self._snapshot_id = snapshot_id
        self._commit_uuid = commit_uuid
        self._attempts = 0
        self._manifest_count = 0
        self._manifests: list[str] = []
        self._lists: dict[str, frozenset[str]] = {}  # which manifests each of them names
        self._added: dict[tuple[int, ManifestContent, int | None], tuple[ManifestFile, ...]] = {}
        # By path and first row id of the source, and what was asked for: the first commit in v3 gives a first row id
        # to a manifest that has none.
        self._filtered: dict[tuple[object, ...], Filtered] = {}
        self._merged: dict[tuple[tuple[str, int | None], ...], ManifestFile] = {}
        self._counted: dict[str, ManifestFile] = {}

    def read_parent(self, parent: Snapshot | None) -> tuple[ManifestFile, ...]:
        """Return the manifests of the snapshot that the new one follows."""
        return () if parent is None else read_manifests(self._io, parent)

    def add_files(self, added: AddedFiles, metadata: TableMetadata) -> tuple[ManifestFile, ...]:
        """Write the manifests of new files, one spec and content a manifest; written once, used by every attempt."""
        by_spec = sorted(added.files, key=_spec_and_content)
        manifests: list[ManifestFile] = []
        for (spec_id, content), group in groupby(by_spec, key=_spec_and_content):
            key = (spec_id, content, added.sequence_number)
            if key not in self._added:
                entries = (self._added_entry(file, added.sequence_number) for file in group)
                self._added[key] = tuple(self._write_all(entries, spec_id, content, metadata))
            manifests += self._added[key]
        return tuple(manifests)

    def _added_entry(self, file: DataFile, sequence_number: int | None) -> ManifestEntry:
        # Numbers that are left out are inherited, so that the manifest fits every attempt.
        return ManifestEntry(
            status=EntryStatus.ADDED,
            snapshot_id=self._snapshot_id,
            sequence_number=sequence_number,
            data_file=file,
        )

    def _write_all(
        self, entries: Iterable[ManifestEntry], spec_id: int, content: ManifestContent, metadata: TableMetadata
    ) -> Iterator[ManifestFile]:
        rest = list(entries)
        for start in range(0, len(rest), ENTRIES_PER_MANIFEST):
            yield self.write_manifest(rest[start : start + ENTRIES_PER_MANIFEST], spec_id, content, metadata)

    def without_files(self, manifest: ManifestFile, removal: RemovalFilter, metadata: TableMetadata) -> Filtered:
        """Return the manifest with the files deleted that a removal takes, and their entries.

        A manifest that holds none of them is returned as it is.
        """
        key = (manifest.manifest_path, manifest.first_row_id, removal.key)
        if key not in self._filtered:
            self._filtered[key] = self._filter(manifest, removal, metadata)
        return self._filtered[key]

    def _filter(self, manifest: ManifestFile, removal: RemovalFilter, metadata: TableMetadata) -> Filtered:
        path = manifest.manifest_path
        data = self._io.read(path)
        if _surely_keeps_all(data, manifest, removal):
            return manifest, ()
        # Entries that were already deleted are left out: a rewrite that copied them could resurrect them later.
        live = [entry for entry in read_manifest(data, manifest=manifest, path=path) if entry.is_live]
        taken = [removal.takes(entry) for entry in live]
        if not any(taken):
            return manifest, ()
        # What entries inherit was filled in when they were read, row ids too: a file keeps its own for ever.
        entries = [
            replace(entry, status=EntryStatus.DELETED, snapshot_id=self._snapshot_id)
            if goes
            else replace(entry, status=EntryStatus.EXISTING)
            for entry, goes in zip(live, taken, strict=True)
        ]
        removed = tuple(entry for entry, goes in zip(live, taken, strict=True) if goes)
        return self.write_manifest(entries, manifest.partition_spec_id, manifest.content, metadata), removed

    def merge(self, manifests: Sequence[ManifestFile], metadata: TableMetadata) -> tuple[ManifestFile, ...]:
        """Put small manifests together, as the table's properties `commit.manifest.*` ask for.

        Merging is never needed: when a manifest cannot be read, all stay as they are.

        Args:
            manifests: all of the new snapshot, newest first.
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
        # One after the other they would keep a commit to a distant store so long that it loses its race.
        with ThreadPoolExecutor(READ_THREADS) as pool:
            return list(pool.map(self._io.read, paths))

    def _carried(self, manifest: ManifestFile, data: bytes) -> Iterator[ManifestEntry]:
        """Yield what a merged manifest takes over: what this commit did as it is, all older live files as existing."""
        path = manifest.manifest_path
        if manifest.added_snapshot_id == self._snapshot_id:
            # As written: what is left to be inherited is not known before the list is written, row ids either.
            yield from read_manifest(data, path=path)
            return
        for entry in read_manifest(data, manifest=manifest, path=path):
            if entry.is_live:
                yield replace(entry, status=EntryStatus.EXISTING)

    def write_manifest(
        self, entries: Sequence[ManifestEntry], spec_id: int, content: ManifestContent, metadata: TableMetadata
    ) -> ManifestFile:
        """Write one manifest of entries that stand as they are to be kept."""
        spec = metadata.spec(spec_id)
        schema = metadata.schema_of_spec(spec_id)
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
        """Store a manifest under a name that nobody else uses, and return its location."""
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
        """Write the manifest list of one attempt and return its location and (v3) how many row ids it gave out.

        From v3 on every data manifest without a first row id gets one, those of before an upgrade too; as the ids
        start at the table's next one, each attempt assigns anew.
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
        """Return the row with its counts, which v1 writers may leave out and v2 requires."""
        counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
        rows = (manifest.added_rows_count, manifest.existing_rows_count, manifest.deleted_rows_count)
        if metadata.format_version == 1 or None not in (*counts, *rows):
            return manifest
        path = manifest.manifest_path
        if path not in self._counted:
            self._counted[path] = counted(manifest, read_entries(self._io, manifest))
        return self._counted[path]

    def remove_unused(self, landed: Snapshot | None) -> None:
        """Remove what no snapshot uses: everything, or what the landed snapshot of this writer leaves over.

        To be called only when each attempt is known to have landed or lost. Never raises: what stays behind is
        unreferenced and harmless.
        """
        try:
            used: set[str] = set()
            if landed is not None and landed.manifest_list is not None:
                # A server may have landed what we sent with a list of its own.
                own = self._lists.get(landed.manifest_list)
                used = {each.manifest_path for each in read_manifests(self._io, landed)} if own is None else set(own)
                used.add(landed.manifest_list)
            unused = [path for path in (*self._lists, *self._manifests) if path not in used]
            if unused:
                self._io.delete(unused)
        except IcebergError as error:
            log.warning("left unreferenced metadata files of a lost commit behind: %s", error)


def _surely_keeps_all(data: bytes, manifest: ManifestFile, removal: RemovalFilter) -> bool:
    """Tell whether the paths in a large manifest alone say that no file of it goes; that is quick to find out."""
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
    """Return where the metadata files of a table lie."""
    return (TableProperties.of(metadata.properties).metadata_path or f"{metadata.location}/metadata").rstrip("/")
