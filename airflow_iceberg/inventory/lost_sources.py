"""Source columns of partition specs that no schema of the table knows any more.

Other writers remove old schemas, even one that alone has the dropped source column of a spec with live files. The
columns are known from manifests: each holds the schema that it was written with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from airflow_iceberg.errors import FormatError, NotFoundError, UnsupportedError
from airflow_iceberg.format.manifests.avro import written_schema
from airflow_iceberg.format.manifests.entries import ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import RECOVERED_SCHEMA_ID, lost_sources
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import NestedField
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.storage.base import FileIO

# Most manifests of one spec that are read for its columns.
_MOST_MANIFESTS = 10


def recover_sources(io: FileIO, metadata: TableMetadata, spec_id: int | None = None) -> TableMetadata:
    """Return the table with a further schema, of the source columns that no schema of it has.

    The result knows the types of partition values; it is never committed. A column that no manifest of a branch or tag
    knows is left out. Nothing is read unless such a column is missing.

    Args:
        spec_id: the only spec whose columns are needed; None for all.

    Raises:
        StorageError: a manifest cannot be read.
    """
    schemas = metadata.newest_schemas()
    specs = metadata.partition_specs if spec_id is None else (metadata.spec(spec_id),)
    lost = {spec.spec_id: missing for spec in specs if (missing := lost_sources(spec, schemas))}
    found: dict[int, NestedField] = {}
    for number, missing in lost.items():
        for manifest in islice(_manifests(io, metadata, number), _MOST_MANIFESTS):
            if found.keys() >= missing:
                break
            known = _columns(io, manifest)
            found |= {source: known[source] for source in missing - found.keys() if source in known}
    if not found:
        return metadata
    names = {column.name: source for source, column in found.items()}
    columns = tuple(
        replace(column, name=column.name if names[column.name] == source else f"{column.name}_{source}")
        for source, column in found.items()
    )
    return replace(metadata, schemas=(*metadata.schemas, Schema(columns, RECOVERED_SCHEMA_ID)))


def _manifests(io: FileIO, metadata: TableMetadata, spec_id: int) -> Iterator[ManifestFile]:
    heads = dict.fromkeys((metadata.current_snapshot_id, *(ref.snapshot_id for ref in metadata.refs.values())))
    for snapshot_id in heads:
        snapshot = None if snapshot_id is None else metadata.snapshot(snapshot_id)
        if snapshot is not None:
            try:
                manifests = read_manifests(io, snapshot)
            except (FormatError, NotFoundError, UnsupportedError):
                continue  # who needs this snapshot will say so
            yield from (manifest for manifest in manifests if manifest.partition_spec_id == spec_id)


def _columns(io: FileIO, manifest: ManifestFile) -> dict[int, NestedField]:
    try:
        schema = written_schema(io.read(manifest.manifest_path), path=manifest.manifest_path)
    except (FormatError, NotFoundError, UnsupportedError):
        return {}
    return {} if schema is None else dict(schema.fields_by_id)
