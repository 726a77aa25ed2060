"""A scan: a snapshot, columns and rows of a table, read as Arrow, whole or streamed.

Which files hold the rows is decided in `plan.scan`, how a file is read in `data.read.file`, the meaning of columns and
points in time in `data.read.selection`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_iceberg.data import read
from airflow_iceberg.data.read.selection import choose_snapshot, project
from airflow_iceberg.errors import InvalidInputError, UnsupportedError, came
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.tree import AlwaysTrue, Expression
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata_columns import PARTITION_NAME
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.inventory.manifests import read_columns, read_manifests
from airflow_iceberg.plan.scan import FileScanTask, plan_files
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    import pyarrow as pa

# The number of files that are read at the same time: enough to keep both reading and decoding busy.
READ_THREADS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class TableScan:
    """A read of one snapshot.

    Attributes:
        snapshot: the snapshot that is read; None for a table without rows.
        schema: the schema of the snapshot, which the filter is bound to.
        projection: the columns of the result, in the table's order.
        row_filter: the bound predicate.
        limit: the largest number of rows; None for all.
    """

    metadata: TableMetadata
    io: FileIO
    snapshot: Snapshot | None
    schema: Schema
    projection: Schema
    row_filter: Expression
    limit: int | None

    @classmethod
    def of(
        cls,
        metadata: TableMetadata,
        io: FileIO,
        *,
        row_filter: Any = None,
        predicate_params: Mapping[str, Any] | None = None,
        selected_fields: Sequence[str] = ("*",),
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of_ms: int | None = None,
        limit: int | None = None,
        case_sensitive: bool = True,
    ) -> TableScan:
        """Resolve names, predicate and point in time in a table's metadata."""
        check_not_encrypted(metadata)
        if isinstance(selected_fields, str):
            raise InvalidInputError(f"selected_fields is the text {selected_fields!r}, expected a list of columns")
        for name, value in (("snapshot_id", snapshot_id), ("as_of_ms", as_of_ms), ("limit", limit)):
            check_int(name, value)
        if ref is not None and not isinstance(ref, str):
            raise InvalidInputError(f"ref is {came(ref)}, expected the name of a branch or tag")
        if limit is not None and limit < 0:
            raise InvalidInputError(f"limit is {limit}, expected 0 or more")
        snapshot, schema = choose_snapshot(metadata, snapshot_id=snapshot_id, ref=ref, as_of_ms=as_of_ms)
        known = recover_sources(io, metadata) if PARTITION_NAME in selected_fields else metadata
        projection = project(known, schema, tuple(selected_fields), case_sensitive)
        parsed = parse_filter(row_filter, schema, case_sensitive=case_sensitive, params=predicate_params)
        return cls(
            metadata=metadata,
            io=io,
            snapshot=snapshot,
            schema=schema,
            projection=projection,
            row_filter=parsed,
            limit=limit,
        )

    def plan_files(self, *, whole_files: bool = False) -> list[FileScanTask]:
        """Return the files that may hold matching rows, each with its deletes and the remaining predicate.

        Args:
            whole_files: whether each file has all its deletes, also of rows that do not match: for a rewrite.
        """
        with _collector_paused():
            return list(self.iter_files(whole_files=whole_files))

    def iter_files(self, *, whole_files: bool = False) -> Iterator[FileScanTask]:
        """Yield the same as `plan_files`; memory does not grow with the number of files."""
        if self.snapshot is None:
            return iter(())
        return plan_files(
            read_manifests(self.io, self.snapshot),
            read_columns=lambda manifests, keys: read_columns(self.io, manifests, keys=keys),
            metadata=self.metadata,
            schema=self.schema,
            row_filter=self.row_filter,
            whole_files=whole_files,
        )

    def to_arrow(self) -> pa.Table:
        """Return all matching rows, in the order of `plan_files`; files are read in parallel."""
        import pyarrow as pa

        schema = self._arrow_schema()
        tasks, deletes = self._readable_tasks(self.projection), self._delete_reader()
        if self.limit is not None:
            return pa.Table.from_batches(self._batches(tasks), schema=schema)
        with ThreadPoolExecutor(READ_THREADS) as pool:
            per_file = list(pool.map(lambda task: list(self._read_task(task, self.projection, deletes)), tasks))
        return pa.Table.from_batches([batch for batches in per_file for batch in batches], schema=schema)

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return the matching rows as a stream, one file at a time, so that memory does not grow with the table.

        Files that cannot be read fail here, before the first row.
        """
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(
            self._arrow_schema(), self._batches(self._readable_tasks(self.projection))
        )

    def count(self) -> int:
        """Return the number of matching rows; files in which all rows match are not opened."""
        total, deletes, nothing = 0, self._delete_reader(), Schema()
        for task in self._readable_tasks(nothing):
            if isinstance(task.residual, AlwaysTrue) and not task.delete_files:
                total += task.file.record_count
            else:
                total += sum(batch.num_rows for batch in self._read_task(task, nothing, deletes))
        return total if self.limit is None else min(total, self.limit)

    def _batches(self, tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatch]:
        left, deletes = self.limit, self._delete_reader()
        for task in tasks:
            if left == 0:
                return
            for batch in self._read_task(task, self.projection, deletes):
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
                if left == 0:
                    break

    def _readable_tasks(self, projection: Schema) -> list[FileScanTask]:
        """Return the tasks; a file that cannot be read fails before the first row of another file is returned."""
        tasks, geo_fields = self.plan_files(), read.find_geo_fields(projection)
        for task in tasks:
            read.check_supported(task.file, task.delete_files, geo_fields)
        return tasks

    def _delete_reader(self) -> read.DeleteReader:
        return read.DeleteReader(
            self.io,
            schemas=self.metadata.newest_schemas(),
            name_mapping=TableProperties.of(self.metadata.properties).name_mapping,
            specs=self.metadata.partition_specs,
        )

    def _read_task(
        self, task: FileScanTask, projection: Schema, deletes: read.DeleteReader
    ) -> Iterator[pa.RecordBatch]:
        source = read.FileToRead(
            file=task.file,
            spec=self.metadata.spec(task.file.spec_id),
            name_mapping=TableProperties.of(self.metadata.properties).name_mapping,
            delete_files=task.delete_files,
            deletes=deletes,
            sequence_number=task.sequence_number,
        )
        return read.read_file(self.io, source, schema=projection, table_schema=self.schema, row_filter=task.residual)

    def _arrow_schema(self) -> pa.Schema:
        return read.schema_to_arrow(self.projection, with_field_ids=False)


_UNITS = {"snapshot_id": "the id of a snapshot", "as_of_ms": "milliseconds since the epoch", "limit": "rows"}


def check_int(name: str, value: object) -> None:
    """Check that an argument is an integer or None.

    Raises:
        InvalidInputError: it is something else.
    """
    if value is not None and type(value) is not int:
        raise InvalidInputError(f"{name} is {value!r}, expected an int: {_UNITS.get(name, _UNITS['snapshot_id'])}")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause Python's search for reference cycles: tasks have none, and it takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check_not_encrypted(metadata: TableMetadata) -> None:
    """Refuse a table with an encryption key.

    Raises:
        UnsupportedError: it has one.
    """
    if TableProperties.of(metadata.properties).encryption_key_id is not None:
        raise UnsupportedError(
            f"table {metadata.location} is encrypted ({TableProperties.encryption_key_id}) and cannot be read here"
        )
