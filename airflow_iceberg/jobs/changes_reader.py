"""How a job reads the changes of a table that are one of its inputs: the snapshots, cut into tasks, and their rows.

Here: planning on the driver, and reading with Arrow wherever a task runs. Not here: which snapshots
(`operations.inputs`), which rows have changed (`data.changelog`), rows that were only appended: these are read as any
rows (`table_reader`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_iceberg.data.changelog import ChangelogReader
from airflow_iceberg.data.read.file import ReadAs, check_supported, find_geo_fields
from airflow_iceberg.data.read.selection import changelog_columns, identifier_ids
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.inventory.changes import snapshot_changes
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.plan.changelog import FileChange, SnapshotChanges

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangesReader:
    """How tasks read the changes of a table.

    Attributes:
        projection: the columns of the rows.
        schema: the table's columns, by which rows are compared and which the filter is bound to.
        schemas: all schemas of the table, for equality deletes.
        identifiers: as of `data.changelog.ChangelogReader`.
    """

    projection: Schema
    schema: Schema
    schemas: tuple[Schema, ...]
    specs: tuple[PartitionSpec, ...]
    name_mapping: str | None
    row_filter: Expression
    identifiers: tuple[int, ...] | None
    has_row_ids: bool

    def rows(self, io: FileIO, item: Sequence[SnapshotChanges]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a snapshot, or the net changes of several ones."""
        specs = {spec.spec_id: spec for spec in self.specs}
        reader = ChangelogReader(
            read=ReadAs(io=io, schemas=self.schemas, specs=specs, name_mapping=self.name_mapping),
            schema=self.schema,
            projection=self.projection,
            row_filter=self.row_filter,
            identifiers=self.identifiers,
            has_row_ids=self.has_row_ids,
        )
        return reader.rows(item)


def plan_changes(
    table: PinnedTable, io: FileIO, metadata: TableMetadata
) -> tuple[ChangesReader, list[tuple[SnapshotChanges, ...]]]:
    """Return how to read the changelog of an input, and the snapshots of each task."""
    changes, properties = table.changes, TableProperties.of(metadata.properties)
    assert changes is not None
    reader = ChangesReader(
        projection=changelog_columns(metadata, table.schema, table.selected_fields),
        schema=table.schema,
        schemas=metadata.newest_schemas(),
        specs=metadata.partition_specs,
        name_mapping=properties.name_mapping,
        row_filter=table.row_filter,
        identifiers=identifier_ids(
            metadata,
            table.schema,
            compute_updates=changes.compute_updates,
            identifier_columns=changes.identifier_columns,
        ),
        has_row_ids=metadata.format_version >= 3,
    )
    last = None if table.snapshot_id is None else metadata.snapshot(table.snapshot_id)
    found = snapshot_changes(
        io, metadata, from_snapshot_id=changes.from_snapshot_id, last=last, row_filter=table.row_filter
    )
    steps = [step for step in found if step.files]
    geo_fields = find_geo_fields(table.schema)
    for change in (change for step in steps for change in step.files):
        check_supported(change.file, (*(change.before or ()), *(change.after or ())), geo_fields)
    if changes.net and any(change.before is not None for step in steps for change in step.files):
        return reader, [tuple(steps)]
    return reader, [part for step in steps for part in _cut(step, properties.split_size_bytes)]


def _cut(step: SnapshotChanges, split_bytes: int) -> Iterator[tuple[SnapshotChanges, ...]]:
    """Yield the parts of a snapshot that can be read apart: files, if rows were only added, or only removed."""
    is_mixed = any(one.before is not None for one in step.files) and any(one.after is not None for one in step.files)
    if is_mixed:
        yield (step,)
        return
    part: list[FileChange] = []
    size = 0
    for change in step.files:
        if part and size + change.file.file_size_in_bytes / 2 > split_bytes:
            yield (_with(step, part),)
            part, size = [], 0
        part.append(change)
        size += change.file.file_size_in_bytes
    yield (_with(step, part),)


def _with(step: SnapshotChanges, files: Sequence[FileChange]) -> SnapshotChanges:
    return SnapshotChanges(ordinal=step.ordinal, snapshot_id=step.snapshot_id, files=tuple(files))
