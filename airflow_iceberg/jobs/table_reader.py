"""How a job reads a table at one snapshot: its files, cut into tasks, and the rows of a task.

Here: planning on the driver, and reading with Arrow wherever a task runs. Not here: what brings the rows to a query
(`jobs.spark.read_table`, `jobs.duckdb_query`), the files of a compaction or a delete (`jobs.protocol.table_input`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow_iceberg.data.read.file import ReadAs, check_supported, find_geo_fields
from airflow_iceberg.data.read.selection import choose_snapshot, project
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.tree import Expression, all_of
from airflow_iceberg.format.manifests import columns
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.requirements import check_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata_columns import PARTITION_NAME
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.inventory.changes import appended_files
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.jobs.changes_reader import plan_changes
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.table_input import FileUnit, cut_group
from airflow_iceberg.plan.scan import FileScanTask, plan_files
from airflow_iceberg.plan.snapshot_range import APPEND, find_appends

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.format.snapshots import Snapshot
    from airflow_iceberg.storage.base import FileIO

# Opening a file costs about as much as reading this number of bytes: a task does not get thousands of tiny files.
OPEN_FILE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReader:
    """How tasks read files of a table.

    Attributes:
        projection: the columns of the rows.
        schema: the whole schema, which filters are bound to.
        schemas: all schemas of the table, for equality deletes.
    """

    projection: Schema
    schema: Schema
    schemas: tuple[Schema, ...]
    specs: tuple[PartitionSpec, ...]
    name_mapping: str | None

    def rows(self, io: FileIO, item: Sequence[ReadUnit]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files."""
        specs = {spec.spec_id: spec for spec in self.specs}
        read = ReadAs(io=io, schemas=self.schemas, specs=specs, name_mapping=self.name_mapping)
        deletes = read.delete_reader()
        for one in item:
            unit, row_filter = one.unit, one.residual
            yield from read.rows(unit, deletes, schema=self.projection, table_schema=self.schema, row_filter=row_filter)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadUnit:
    """A file, or some of its row groups, and the filter of its rows."""

    unit: FileUnit
    residual: Expression


def plan_read(
    io: FileIO,
    metadata_location: str,
    *,
    snapshot_id: int | None = None,
    ref: str | None = None,
    as_of_ms: int | None = None,
    row_filter: str | None = None,
    predicate_params: Mapping[str, Any] | None = None,
    selected_fields: Sequence[str] = ("*",),
) -> tuple[TableReader, list[tuple[ReadUnit, ...]]]:
    """Return how to read a table, and the files of each task; arguments and errors as of `jobs.spark.read_table`."""
    if isinstance(selected_fields, str):
        raise InvalidInputError(f"selected_fields is the text {selected_fields!r}, expected a list of columns")
    metadata = metadata_json.read(io.read(metadata_location), path=metadata_location)
    if TableProperties.of(metadata.properties).encryption_key_id is not None:
        raise UnsupportedError(f"table {metadata.location} is encrypted and cannot be read here")
    snapshot, schema = choose_snapshot(metadata, snapshot_id=snapshot_id, ref=ref, as_of_ms=as_of_ms)
    expression = parse_filter(row_filter, schema, params=predicate_params)
    return _planned(io, metadata, snapshot, schema, expression, tuple(selected_fields))


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedFiles:
    """The files of a table at the snapshot that a job was planned with."""

    table: PinnedTable
    io: FileIO
    metadata: TableMetadata
    snapshot: Snapshot | None

    @classmethod
    def open(cls, table: PinnedTable, io: FileIO) -> PinnedFiles:
        """Read the metadata file.

        Raises:
            NotFoundError: it is gone.
            TableReplacedError: a table that was made anew has a file of this name.
            FormatError: it is not the one that the job was planned with.
        """
        metadata = metadata_json.read(io.read(table.metadata_location), path=table.metadata_location)
        snapshot = None if table.snapshot_id is None else metadata.snapshot(table.snapshot_id)
        check_same_table(metadata, table.table_uuid, table.table)
        if (snapshot is None) != (table.snapshot_id is None):
            raise FormatError(f"not the metadata of table {table.table} that was planned", path=table.metadata_location)
        return cls(table=table, io=io, metadata=metadata, snapshot=snapshot)

    @property
    def split_size_bytes(self) -> int:
        return TableProperties.of(self.metadata.properties).split_size_bytes

    def tasks(self, row_filter: Expression) -> list[FileScanTask]:
        """Return the files that may hold rows of the table's filter and of another one, with all their deletes."""
        if self.snapshot is None:
            return []
        found = all_of(self.table.row_filter, row_filter)
        return list(_scan(self.io, self.metadata, self.snapshot, self.table.schema, found, whole_files=True))

    def reader(self, selected_fields: tuple[str, ...]) -> TableReader:
        """Return how tasks read columns of the files."""
        known = recover_sources(self.io, self.metadata)
        projection = project(known, self.table.schema, selected_fields, case_sensitive=True)
        return _reader(known, projection, self.table.schema)


class Reader(Protocol):
    """How tasks read their items: `TableReader`, or that of a changelog."""

    @property
    def projection(self) -> Schema:
        """The columns of the rows."""

    def rows(self, io: FileIO, item: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an item."""


def plan_pinned(table: PinnedTable, io: FileIO) -> tuple[Reader, Sequence[tuple[Any, ...]]]:
    """Return how to read an input of a job, and the items of each task.

    Raises:
        NotFoundError: the metadata file is gone.
        FormatError: it is not the one that the job was planned with.
    """
    found = PinnedFiles.open(table, io)
    changes, metadata = table.changes, found.metadata
    if changes is not None and changes.mode != APPEND:
        return plan_changes(table, io, metadata)
    if changes is None or changes.from_snapshot_id is None:
        return _planned(io, metadata, found.snapshot, table.schema, table.row_filter, table.selected_fields)
    appends = find_appends(metadata, from_snapshot_id=changes.from_snapshot_id, last=found.snapshot)
    tasks = appended_files(io, metadata, appends, schema=table.schema, row_filter=table.row_filter)
    return _reading(io, metadata, list(tasks), table.schema, table.selected_fields)


def _planned(
    io: FileIO,
    metadata: TableMetadata,
    snapshot: Snapshot | None,
    schema: Schema,
    expression: Expression,
    selected_fields: tuple[str, ...],
) -> tuple[TableReader, list[tuple[ReadUnit, ...]]]:
    tasks = [] if snapshot is None else list(_scan(io, metadata, snapshot, schema, expression))
    return _reading(io, metadata, tasks, schema, selected_fields)


def _reading(
    io: FileIO,
    metadata: TableMetadata,
    tasks: Sequence[FileScanTask],
    schema: Schema,
    selected_fields: tuple[str, ...],
) -> tuple[TableReader, list[tuple[ReadUnit, ...]]]:
    known = recover_sources(io, metadata) if PARTITION_NAME in selected_fields else metadata
    projection = project(known, schema, selected_fields, case_sensitive=True)
    geo_fields = find_geo_fields(projection)
    for task in tasks:
        check_supported(task.file, task.delete_files, geo_fields)
    return _reader(metadata, projection, schema), cut_files(
        tasks, TableProperties.of(metadata.properties).split_size_bytes
    )


def _reader(metadata: TableMetadata, projection: Schema, schema: Schema) -> TableReader:
    return TableReader(
        projection=projection,
        schema=schema,
        schemas=metadata.newest_schemas(),
        specs=metadata.partition_specs,
        name_mapping=TableProperties.of(metadata.properties).name_mapping,
    )


def _scan(
    io: FileIO,
    metadata: TableMetadata,
    snapshot: Snapshot,
    schema: Schema,
    expression: Expression,
    *,
    whole_files: bool = False,
) -> Iterator[FileScanTask]:
    return plan_files(
        read_manifests(io, snapshot),
        read_columns=lambda wanted, keys: columns.read_columns(
            (columns.unpack(io.read(one.manifest_path), one) for one in wanted), keys=keys
        ),
        metadata=metadata,
        schema=schema,
        row_filter=expression,
        whole_files=whole_files,
    )


def cut_files(tasks: Sequence[FileScanTask], split_bytes: int) -> list[tuple[ReadUnit, ...]]:
    """Cut files into tasks of about the same size, in the order of the scan; large files are cut between row groups."""
    return [tuple(unit for _, unit in item) for item in cut_numbered(tasks, split_bytes)]


def cut_numbered(tasks: Sequence[FileScanTask], split_bytes: int) -> list[tuple[tuple[int, ReadUnit], ...]]:
    """Return the same, each unit with the number of its file: the table may list a path in several places."""
    items: list[tuple[tuple[int, ReadUnit], ...]] = []
    number = 0
    for run in cut_group([FileUnit.of(task) for task in tasks], split_size_bytes=split_bytes):
        numbered: list[tuple[int, ReadUnit]] = []
        for unit in run:
            numbered.append((number, ReadUnit(unit=unit, residual=tasks[number].residual)))
            # The pieces of a file come in their order.
            number += unit.parts is None or unit.parts[1] == unit.parts[2]
        most = max(1, split_bytes // OPEN_FILE_BYTES)
        items += [tuple(numbered[start : start + most]) for start in range(0, len(numbered), most)]
    return items
