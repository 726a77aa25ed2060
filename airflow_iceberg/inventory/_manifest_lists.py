"""The manifests of a snapshot: out of its manifest list, or out of the snapshot, where v1 names them itself.

Not here: what is in the manifests (`manifests`, `inventory.manifests`, `format.manifests.columns`).
"""

from __future__ import annotations

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.manifests.avro import manifest_spec_id, read_manifest, read_manifest_list
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestFile, counted
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.storage.base import FileIO


def read_manifests(io: FileIO, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot, in the order of its list.

    Raises:
        FormatError, StorageError, NotFoundError: the manifest list is broken or gone, or there is none.
        UnsupportedError: it is encrypted.
    """
    if snapshot.manifest_list is None:
        if snapshot.manifests is None:
            raise FormatError(f"snapshot {snapshot.snapshot_id} has neither a manifest list nor manifests")
        return tuple(_embedded(io, path, snapshot.snapshot_id) for path in snapshot.manifests)
    try:
        return tuple(read_manifest_list(io.read(snapshot.manifest_list), path=snapshot.manifest_list))
    except FormatError as error:
        if snapshot.key_id is None:
            raise
        raise UnsupportedError(
            f"the manifest list of snapshot {snapshot.snapshot_id} is encrypted; encrypted tables cannot be read"
        ) from error


def _embedded(io: FileIO, path: str, snapshot_id: int) -> ManifestFile:
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
        added_snapshot_id=next((one for one in added_by if one is not None), snapshot_id),
    )
    return counted(row, entries)
