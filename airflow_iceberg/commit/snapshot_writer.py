"""Writes the metadata files of a snapshot: manifests of new files, manifests without the removed ones, the list.

Every file gets a name that nobody else uses. What was written for an attempt is remembered, so that it can be removed
once the attempt is known to have lost. Which files go in and out is decided in `commit.actions`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from uuid import UUID

from airflow_iceberg.errors import FormatError, IcebergError, StalePlanError, UnsupportedError
from airflow_iceberg.spec.manifest_avro import (
    assign_first_row_ids,
    manifest_spec_id,
    read_manifest,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from airflow_iceberg.spec.manifests import (
    DataFile,
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    counted,
    describe_manifest,
)
from airflow_iceberg.spec.metadata import TableMetadata
from airflow_iceberg.spec.snapshots import Snapshot
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

# About 8 MiB of Avro, which is what `commit.manifest.target-size-bytes` asks for, at some 400 bytes an entry.
ENTRIES_PER_MANIFEST = 20_000


# Path and first row id of the source manifest, and the paths that were asked for.
_FilterKey = tuple[str, int | None, frozenset[str]]


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
        self._lists: list[str] = []
        self._added: dict[int, tuple[ManifestFile, ...]] = {}
        self._filtered: dict[_FilterKey, tuple[ManifestFile, tuple[DataFile, ...]]] = {}
        self._counted: dict[str, ManifestFile] = {}

    def read_parent(self, parent: Snapshot | None) -> tuple[ManifestFile, ...]:
        """Return the manifests of the snapshot that the new one follows."""
        return () if parent is None else read_manifests(self._io, parent)

    def add_files(self, files: Sequence[DataFile], metadata: TableMetadata) -> tuple[ManifestFile, ...]:
        """Write the manifests of new files, one spec a manifest; written once and used by every attempt."""
        by_spec = sorted(files, key=lambda file: file.spec_id)
        manifests: list[ManifestFile] = []
        for spec_id, group in groupby(by_spec, key=lambda file: file.spec_id):
            if spec_id not in self._added:
                self._added[spec_id] = tuple(self._write_added(spec_id, group, metadata))
            manifests += self._added[spec_id]
        return tuple(manifests)

    def _write_added(self, spec_id: int, files: Iterable[DataFile], metadata: TableMetadata) -> Iterator[ManifestFile]:
        rest = list(files)
        for start in range(0, len(rest), ENTRIES_PER_MANIFEST):
            chunk = rest[start : start + ENTRIES_PER_MANIFEST]
            # Both sequence numbers stay null, so that they are inherited and the manifest fits every attempt.
            entries = [
                ManifestEntry(status=EntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file) for file in chunk
            ]
            yield self._write_manifest(entries, spec_id, ManifestContent.DATA, metadata)

    def without_files(
        self, manifest: ManifestFile, paths: frozenset[str], metadata: TableMetadata
    ) -> tuple[ManifestFile, tuple[DataFile, ...]]:
        """Return the manifest with the files of these paths deleted, and those files.

        Deletion vectors of these files go with them. A manifest that holds none of them is returned as it is. The
        result is kept by source manifest: a retry reads and rewrites only manifests that it has not seen.
        """
        # The first row id is part of it: the first commit in v3 gives one to a manifest that has none.
        key = (manifest.manifest_path, manifest.first_row_id, paths)
        if key not in self._filtered:
            self._filtered[key] = self._filter(manifest, paths, metadata)
        return self._filtered[key]

    def _filter(
        self, manifest: ManifestFile, paths: frozenset[str], metadata: TableMetadata
    ) -> tuple[ManifestFile, tuple[DataFile, ...]]:
        live = [entry for entry in read_entries(self._io, manifest) if entry.is_live]
        removed = tuple(entry.data_file for entry in live if _goes_with(entry.data_file, paths))
        if not removed:
            return manifest, ()
        # Entries that were already deleted are left out: a rewrite that copied them could resurrect them later.
        # What entries inherit was filled in when they were read, row ids too: a file keeps its own for ever.
        entries = [
            replace(entry, status=EntryStatus.DELETED, snapshot_id=self._snapshot_id)
            if _goes_with(entry.data_file, paths)
            else replace(entry, status=EntryStatus.EXISTING)
            for entry in live
        ]
        return self._write_manifest(entries, manifest.partition_spec_id, manifest.content, metadata), removed

    def _write_manifest(
        self, entries: Sequence[ManifestEntry], spec_id: int, content: ManifestContent, metadata: TableMetadata
    ) -> ManifestFile:
        spec = metadata.spec(spec_id)
        schema = metadata.schema_of_spec(spec_id)
        data = write_manifest(
            entries, schema=schema, spec=spec, format_version=metadata.format_version, content=content
        )
        location = f"{metadata_folder(metadata)}/{self._commit_uuid}-m{self._manifest_count}.avro"
        self._manifest_count += 1
        self._manifests.append(location)
        self._io.create(location, data)
        return describe_manifest(
            entries,
            path=location,
            length=len(data),
            spec=spec,
            schema=schema,
            content=content,
            snapshot_id=self._snapshot_id,
        )

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
        self._lists.append(location)
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
                if self._attempts > 1 or self._filtered:
                    used = {manifest.manifest_path for manifest in read_manifests(self._io, landed)}
                else:
                    used = set(self._manifests)
                used.add(landed.manifest_list)
            unused = [path for path in (*self._lists, *self._manifests) if path not in used]
            if unused:
                self._io.delete(unused)
        except IcebergError as error:
            log.warning("left unreferenced metadata files of a lost commit behind: %s", error)


def _goes_with(file: DataFile, paths: frozenset[str]) -> bool:
    """Whether a file is one of these data files, or the deletion vector of one: that must not outlive it."""
    return file.file_path in paths or (file.is_deletion_vector and file.referenced_data_file in paths)


def metadata_folder(metadata: TableMetadata) -> str:
    """Return where the metadata files of a table lie."""
    return metadata.properties.get("write.metadata.path", f"{metadata.location}/metadata").rstrip("/")


def read_manifests(io: FileIO, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot.

    Raises:
        FormatError, StorageError, NotFoundError: the manifest list is broken or gone.
        UnsupportedError: it is encrypted.
    """
    if snapshot.manifest_list is not None:
        try:
            return read_manifest_list(io.read(snapshot.manifest_list), path=snapshot.manifest_list)
        except FormatError as error:
            if snapshot.key_id is None:
                raise
            raise UnsupportedError(
                f"the manifest list of snapshot {snapshot.snapshot_id} is encrypted; encrypted tables cannot be read"
            ) from error
    if snapshot.manifests is None:
        raise StalePlanError(f"snapshot {snapshot.snapshot_id} has no manifest list")
    return tuple(_embedded_manifest(io, path, snapshot.snapshot_id) for path in snapshot.manifests)


def _embedded_manifest(io: FileIO, path: str, snapshot_id: int) -> ManifestFile:
    """Return the row of a manifest that a v1 snapshot names itself, without a list: all that is known is in it."""
    data = io.read(path)
    entries = list(read_manifest(data, path=path))
    added_by = (entry.snapshot_id for entry in entries if entry.status is EntryStatus.ADDED)
    row = ManifestFile(
        manifest_path=path,
        manifest_length=len(data),
        partition_spec_id=manifest_spec_id(data, path=path),
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=next((found for found in added_by if found is not None), snapshot_id),
    )
    return counted(row, entries)


def read_entries(io: FileIO, manifest: ManifestFile) -> Iterator[ManifestEntry]:
    """Return the entries of a manifest with what they inherit from its row in the list."""
    return read_manifest(io.read(manifest.manifest_path), manifest=manifest, path=manifest.manifest_path)
