"""What a commit changes: actions that turn the newest metadata into updates and requirements.

An action is called again on each newer base. What is fixed over all attempts (the snapshot id, the new files and
their manifests) is made once; what depends on the base (parent, sequence number, manifest list, totals) is made anew.
The loop is in `commit.engine`, the writing of manifests in `commit.snapshot_writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from airflow_iceberg.commit.operation import OperationKey, find_landed
from airflow_iceberg.commit.rerun import EarlierRuns, check_not_overtaken
from airflow_iceberg.commit.snapshot_writer import SnapshotWriter
from airflow_iceberg.errors import StalePlanError, UnsupportedError
from airflow_iceberg.spec.changes import (
    AddSnapshot,
    AssertRefSnapshotId,
    AssertTableUUID,
    AssignUUID,
    Change,
    SetSnapshotRef,
)
from airflow_iceberg.spec.manifests import DataFile, ManifestContent, ManifestFile
from airflow_iceberg.spec.metadata import TableMetadata
from airflow_iceberg.spec.schema import Schema
from airflow_iceberg.spec.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef, summarize
from airflow_iceberg.storage.base import FileIO

WRITABLE_VERSIONS = (1, 2, 3)
ENCRYPTION_KEY = "encryption.key-id"


class ChangeTable:
    """An action without a snapshot: fixed updates that are computed from whatever the table is now."""

    def __init__(self, change: Callable[[TableMetadata], Change]) -> None:
        self._change = change

    def __call__(self, metadata: TableMetadata) -> Change:
        return self._change(metadata)

    def has_landed(self, metadata: TableMetadata) -> bool:
        """Told by the engine from the metadata file's name alone: there is no snapshot to look for."""
        return False

    def succeeded(self, metadata: TableMetadata) -> None:
        """Nothing was written besides the catalog's own metadata file."""

    def failed(self) -> None:
        """Nothing was written besides the catalog's own metadata file."""


class AppendFiles:
    """Adds data files to a branch; replaces those of earlier runs of the same task where it is asked to.

    Args:
        table_uuid, written_schema: the table and the schema that the files were written for; a table that has changed
            so that they no longer fit is answered by StalePlanError.
        snapshot_id, commit_uuid, now_ms: the caller's dice and clock.
        operation: key of the Airflow task, or None outside of Airflow.
        earlier: finds the files of the operation's earlier runs, which are removed in the same commit.
    """

    def __init__(
        self,
        io: FileIO,
        files: Sequence[DataFile],
        *,
        table_uuid: str,
        written_schema: Schema,
        branch: str,
        snapshot_id: int,
        commit_uuid: UUID,
        now_ms: Callable[[], int],
        properties: Mapping[str, str],
        operation: OperationKey | None = None,
        earlier: EarlierRuns | None = None,
    ) -> None:
        self.snapshot_id = snapshot_id
        self._files = tuple(files)
        self._table_uuid = table_uuid
        self._written_schema = written_schema
        self._branch = branch
        self._now_ms = now_ms
        self._properties = properties
        self._operation = operation
        self._new_uuid = str(commit_uuid)
        self._writer = SnapshotWriter(io, snapshot_id=snapshot_id, commit_uuid=commit_uuid)
        self._earlier = earlier

    def __call__(self, metadata: TableMetadata) -> Change:
        check_files_fit(metadata, self._files, table_uuid=self._table_uuid, written_schema=self._written_schema)
        if self._operation is not None:
            check_not_overtaken(metadata, self._operation, self._branch)
        parent = metadata.ref_snapshot(self._branch)
        to_remove = self._earlier.files_to_replace(metadata) if self._earlier else frozenset()
        kept, removed = self._without(self._writer.read_parent(parent), to_remove, metadata)
        if not self._files and not removed:
            return Change(updates=(), requirements=())
        manifests = (*self._writer.add_files(self._files, metadata), *kept)
        return self._change(self._snapshot(metadata, parent, manifests, removed), metadata, parent)

    def _without(
        self, manifests: Sequence[ManifestFile], paths: frozenset[str], metadata: TableMetadata
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        kept: list[ManifestFile] = []
        removed: list[DataFile] = []
        for manifest in manifests:
            # Before v3 there are no deletion vectors; other delete files may serve files that stay.
            is_concerned = manifest.content is ManifestContent.DATA or metadata.format_version > 2
            if paths and is_concerned and manifest.may_have_live_files:
                manifest, gone = self._writer.without_files(manifest, paths, metadata)
                removed += gone
            # What only tells of files deleted by an earlier snapshot serves no reader of this one.
            if manifest.may_have_live_files or manifest.added_snapshot_id == self.snapshot_id:
                kept.append(manifest)
        return kept, removed

    def _snapshot(
        self,
        metadata: TableMetadata,
        parent: Snapshot | None,
        manifests: Sequence[ManifestFile],
        removed: Sequence[DataFile],
    ) -> Snapshot:
        # v1 has no sequence numbers: 0 everywhere.
        sequence_number = metadata.last_sequence_number + 1 if metadata.format_version > 1 else 0
        parent_id = None if parent is None else parent.snapshot_id
        location, added_rows = self._writer.write_list(
            manifests, metadata, parent_snapshot_id=parent_id, sequence_number=sequence_number
        )
        return Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence_number,
            # A clock that runs behind must not make the table's history go backwards.
            timestamp_ms=max(self._now_ms(), metadata.last_updated_ms),
            manifest_list=location,
            summary=summarize(
                added=self._files,
                removed=removed,
                previous=None if parent is None else parent.summary,
                properties=self._properties,
                specs={spec.spec_id: spec for spec in metadata.partition_specs},
                schema=metadata.schema(),
                partition_limit=metadata.property_int("write.summary.partition-limit", 0),
            ),
            schema_id=metadata.current_schema_id,
            first_row_id=None if added_rows is None else metadata.next_row_id or 0,
            added_rows=added_rows,
        )

    def _change(self, snapshot: Snapshot, metadata: TableMetadata, parent: Snapshot | None) -> Change:
        old = metadata.refs.get(self._branch)
        ref = (
            replace(old, snapshot_id=snapshot.snapshot_id)
            if old is not None
            else SnapshotRef(snapshot_id=snapshot.snapshot_id, type="branch")
        )
        updates = (AddSnapshot(snapshot=snapshot), SetSnapshotRef(ref_name=self._branch, ref=ref))
        at = AssertRefSnapshotId(ref=self._branch, snapshot_id=None if parent is None else parent.snapshot_id)
        if metadata.table_uuid is None:
            # Tables of the first Iceberg versions have none; the first commit gives them one.
            return Change(updates=(AssignUUID(uuid=self._new_uuid), *updates), requirements=(at,))
        return Change(updates=updates, requirements=(AssertTableUUID(uuid=metadata.table_uuid), at))

    def has_landed(self, metadata: TableMetadata) -> bool:
        if metadata.snapshot(self.snapshot_id) is not None:
            return True
        if self._operation is None or self._branch_is_gone(metadata):
            return False
        return find_landed(metadata, self._operation, self._branch) is not None

    def _branch_is_gone(self, metadata: TableMetadata) -> bool:
        return self._branch != MAIN_BRANCH and self._branch not in metadata.refs

    def succeeded(self, metadata: TableMetadata) -> None:
        self._writer.remove_unused(metadata.snapshot(self.snapshot_id))

    def failed(self) -> None:
        self._writer.remove_unused(None)


def check_writable(metadata: TableMetadata, table: str) -> None:
    """Refuse tables that this version does not write.

    Raises:
        UnsupportedError: the format version, or encryption that would be written in clear.
    """
    if metadata.format_version not in WRITABLE_VERSIONS:
        raise UnsupportedError(
            f"table {table} has format version {metadata.format_version}; this version of airflow-iceberg writes "
            f"format versions 1, 2 and 3, nothing was changed"
        )
    if ENCRYPTION_KEY in metadata.properties:
        raise UnsupportedError(
            f"table {table} asks for encryption ({ENCRYPTION_KEY}), which is not written here: its rows would be "
            f"stored in clear; nothing was changed"
        )


def check_files_fit(
    metadata: TableMetadata, files: Sequence[DataFile], *, table_uuid: str, written_schema: Schema
) -> None:
    """Check that files written for an older state of the table still fit it.

    Raises:
        StalePlanError: the table was replaced, lost the partition spec of a file, or requires what the files may lack.
    """
    # A table without a uuid may have got one from another writer's commit.
    if table_uuid and (metadata.table_uuid or "") != table_uuid:
        raise StalePlanError(
            f"the table was dropped and made again while the rows were written: its uuid is {metadata.table_uuid}, "
            f"expected {table_uuid}"
        )
    specs = {spec.spec_id for spec in metadata.partition_specs}
    for spec_id in {file.spec_id for file in files} - specs:
        raise StalePlanError(f"partition spec {spec_id} was removed from the table while the rows were written")
    _check_required(written_schema, metadata.schema())


def _check_required(written: Schema, current: Schema) -> None:
    for field_id, field in current.fields_by_id.items():
        before = written.fields_by_id.get(field_id)
        if field.required and (before is None or not before.required):
            raise StalePlanError(
                f"column {current.find_name(field_id)!r} became required while the rows were written; "
                f"rows without a value may be among them"
            )
