"""The partitions that a snapshot has touched: those of the files that it added or removed.

They are read from the snapshot's own manifests. So a try that finds the commit of an earlier try names the same ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.format.manifests.entries import EntryStatus
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.transforms.transform import DayTransform, IdentityTransform
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.plan.snapshot_events import short_name
from airflow_iceberg.storage.base import FileIO

MOST_PARTITIONS = 100
"""How many partitions a report names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TouchedPartitions:
    """The partitions that snapshots have touched.

    Attributes:
        names: paths in Iceberg's form, `day=2026-01-01/region=eu`, sorted; at most as many as were asked for.
        values: in the same order, what is short for the paths: the bare value of a partition with one field that is the
            column itself or its day, else the path.
        count: the number of partitions, also of those that are not named.
        is_cut: whether partitions are missing in `names`, or names were shortened.
    """

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    count: int = 0
    is_cut: bool = False


def touched_partitions(
    io: FileIO, metadata: TableMetadata, snapshots: Iterable[Snapshot], *, most: int = MOST_PARTITIONS
) -> TouchedPartitions:
    """Return the partitions that snapshots have touched; none of a table without partitions.

    Args:
        most: how many of them are named, the first ones by their names.

    Raises:
        IcebergError: a manifest cannot be read.
    """
    found: dict[Hashable, tuple[int, tuple[Any, ...]]] = {}
    for snapshot in snapshots:
        for spec_id, partition in _partitions(io, snapshot):
            # Of equal tuples, 0.0 and -0.0 are two partitions, and NaN is one.
            found.setdefault((spec_id, canonical_key(partition)), (spec_id, partition))
    metadata = recover_sources(io, metadata) if found else metadata
    named = sorted({_named(metadata, spec_id, partition) for spec_id, partition in found.values()} - {("", "")})
    kept = [(short_name(name), short_name(value)) for name, value in named[:most]]
    return TouchedPartitions(
        names=tuple(name for name, _ in kept),
        values=tuple(value for _, value in kept),
        count=len(named),
        is_cut=kept != named,
    )


def _partitions(io: FileIO, snapshot: Snapshot) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for manifest in read_manifests(io, snapshot):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in read_entries(io, manifest):
                # A manifest that was merged, or rewritten, lists files of other snapshots, too.
                if entry.status is not EntryStatus.EXISTING and entry.snapshot_id == snapshot.snapshot_id:
                    yield entry.data_file.spec_id, tuple(entry.data_file.partition)


def _named(metadata: TableMetadata, spec_id: int, partition: tuple[Any, ...]) -> tuple[str, str]:
    spec = metadata.spec(spec_id)
    if not spec.fields:
        return "", ""
    schema = metadata.schema_of_spec(spec_id)
    name = spec.partition_path(partition, schema)
    transform = spec.fields[0].transform
    if len(spec.fields) > 1 or not isinstance(transform, IdentityTransform | DayTransform):
        return name, name
    source = schema.fields_by_id.get(spec.fields[0].source_id)
    value = "" if source is None else transform.to_human_string(partition[0], source.type)
    # Nobody could tell an empty text from a missing one, and Airflow takes none; PostgreSQL takes no NUL.
    return name, value if value.strip() and "\0" not in value else name
