"""Forgetting schemas and partition specs that nothing in a table uses any more: the second half of an expiry.

In use is the current schema, the schema of each snapshot, the default spec, and the spec of each manifest that a
snapshot names. While there are delete files, every schema stays: equality deletes may be about a column that only an
old schema knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.commit.checks import check_same_table, is_same_table, of_this_table
from airflow_iceberg.format.manifests.entries import ManifestContent
from airflow_iceberg.format.metadata.requirements import AssertCurrentSchemaId, AssertDefaultSpecId, AssertRefSnapshotId
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemovePartitionSpecs, RemoveSchemas, Update
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """What goes."""

    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether all stays."""
        return not (self.schema_ids or self.spec_ids)


class ForgetUnused:
    """Removes unused schemas and partition specs, against branches that did not move meanwhile.

    Attributes:
        forgotten: what the last attempt removed.
    """

    def __init__(self, io: FileIO, *, table_uuid: str, new_uuid: str) -> None:
        self._io = io
        self._table_uuid = table_uuid
        self._new_uuid = new_uuid
        self.forgotten = Forgotten()

    def __call__(self, metadata: TableMetadata) -> Change:
        check_same_table(metadata, self._table_uuid)
        self.forgotten = find_unused(self._io, metadata)
        if self.forgotten.is_empty:
            return Change(updates=(), requirements=())
        updates: list[Update] = []
        if self.forgotten.schema_ids:
            updates.append(RemoveSchemas(schema_ids=self.forgotten.schema_ids))
        if self.forgotten.spec_ids:
            updates.append(RemovePartitionSpecs(spec_ids=self.forgotten.spec_ids))
        refs = (AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items())
        requirements = (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
            *refs,
        )
        return of_this_table(metadata, tuple(updates), requirements, new_uuid=self._new_uuid)

    def has_landed(self, metadata: TableMetadata) -> bool:
        """Whether what the last attempt removed is gone, whoever did it."""
        if self.forgotten.is_empty or not is_same_table(metadata, self._table_uuid):
            return False
        schemas = {schema.schema_id for schema in metadata.schemas}
        specs = {spec.spec_id for spec in metadata.partition_specs}
        return not schemas & set(self.forgotten.schema_ids) and not specs & set(self.forgotten.spec_ids)

    def succeeded(self, metadata: TableMetadata) -> None:
        """Nothing was written besides the catalog's own metadata file."""

    def failed(self) -> None:
        """Nothing was written besides the catalog's own metadata file."""


def find_unused(io: FileIO, metadata: TableMetadata) -> Forgotten:
    """Return the schemas and specs that nothing uses."""
    manifests = [manifest for snapshot in metadata.snapshots for manifest in read_manifests(io, snapshot)]
    specs = {metadata.default_spec_id, *(manifest.partition_spec_id for manifest in manifests)}
    spec_ids = tuple(spec.spec_id for spec in metadata.partition_specs if spec.spec_id not in specs)
    if any(manifest.content is ManifestContent.DELETES for manifest in manifests):
        return Forgotten(spec_ids=spec_ids)
    schemas = {metadata.current_schema_id, *(snapshot.schema_id for snapshot in metadata.snapshots)}
    # Snapshots of the first versions do not say their schema: which one it was nobody can tell.
    if None in schemas:
        return Forgotten(spec_ids=spec_ids)
    return Forgotten(
        schema_ids=tuple(schema.schema_id for schema in metadata.schemas if schema.schema_id not in schemas),
        spec_ids=spec_ids,
    )
