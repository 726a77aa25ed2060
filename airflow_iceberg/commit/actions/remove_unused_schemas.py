"""Remove schemas and partition specs that nothing in a table uses any more: the second half of an expiry.

Used are the current schema, the schema of each snapshot, the default spec, and the spec of each manifest of a snapshot;
also the newest schema with each source column of these specs, which decides the type of the partition values.
While there are delete files all schemas are kept: an equality delete may use a column that only an old schema has.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.commit.checks import of_this_table
from airflow_iceberg.commit.engine import Action
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.format.manifests.entries import ManifestContent
from airflow_iceberg.format.metadata.requirements import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    check_same_table,
    is_same_table,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemovePartitionSpecs, RemoveSchemas, Update
from airflow_iceberg.format.partitions.spec import dropped_sources
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class UnusedSchemas:
    """The ids of unused schemas and partition specs."""

    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.schema_ids or self.spec_ids)


class RemoveUnusedSchemas(Action):
    """Removes unused schemas and partition specs, if no branch has moved meanwhile.

    Attributes:
        unused: the ids that the last attempt removed.
    """

    def __init__(self, io: FileIO, *, table_uuid: str, new_uuid: str) -> None:
        self._io = io
        self._table_uuid = table_uuid
        self._new_uuid = new_uuid
        self.unused = UnusedSchemas()

    def __call__(self, metadata: TableMetadata) -> Change:
        check_same_table(metadata, self._table_uuid)
        self.unused = find_unused(self._io, metadata)
        if self.unused.is_empty:
            return Change(updates=(), requirements=())
        schemas, specs = self.unused.schema_ids, self.unused.spec_ids
        updates: tuple[Update, ...] = (
            *((RemoveSchemas(schema_ids=schemas),) if schemas else ()),
            *((RemovePartitionSpecs(spec_ids=specs),) if specs else ()),
        )
        refs = (AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items())
        requirements = (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
            *refs,
        )
        return of_this_table(metadata, updates, requirements, new_uuid=self._new_uuid)

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the schemas and specs of the last attempt are removed, by any writer."""
        if self.unused.is_empty or not is_same_table(metadata, self._table_uuid):
            return None
        schemas = {schema.schema_id for schema in metadata.schemas}
        specs = {spec.spec_id for spec in metadata.partition_specs}
        is_left = schemas & set(self.unused.schema_ids) or specs & set(self.unused.spec_ids)
        return None if is_left else Outcome.COMMITTED

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """True: what is unused is decided again, and to remove it twice does no harm."""
        return True


def find_unused(io: FileIO, metadata: TableMetadata) -> UnusedSchemas:
    """Return the schemas and specs that nothing uses."""
    manifests = [manifest for snapshot in metadata.snapshots for manifest in read_manifests(io, snapshot)]
    specs = {metadata.default_spec_id, *(manifest.partition_spec_id for manifest in manifests)}
    spec_ids = tuple(spec.spec_id for spec in metadata.partition_specs if spec.spec_id not in specs)
    if any(manifest.content is ManifestContent.DELETES for manifest in manifests):
        return UnusedSchemas(spec_ids=spec_ids)
    newest_first = metadata.newest_schemas()
    # Differs from Java: it also removes the schemas that alone know the source columns of a spec with live files.
    of_sources = (dropped_sources(metadata.spec(spec_id), newest_first).values() for spec_id in specs)
    schemas = {
        metadata.current_schema_id,
        *(snapshot.schema_id for snapshot in metadata.snapshots),
        *(schema.schema_id for found in of_sources for schema in found),
    }
    # Snapshots of the first versions do not name their schema.
    if None in schemas:
        return UnusedSchemas(spec_ids=spec_ids)
    return UnusedSchemas(
        schema_ids=tuple(schema.schema_id for schema in metadata.schemas if schema.schema_id not in schemas),
        spec_ids=spec_ids,
    )
