"""What the tasks of a job share within one process: the plan, the store, the writers of data files.

Not here: what the modules of the operations add to it, and who chooses between them (`jobs.run_task`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa

from airflow_iceberg.data.dictionaries import has_columns, join
from airflow_iceberg.data.read.file import ReadAs
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.protocol.plan import AppendTask, CompactTask, JobPlan, Task
from airflow_iceberg.jobs.protocol.table_input import TableInput
from airflow_iceberg.jobs.protocol.write_settings import WriteSettings
from airflow_iceberg.jobs.task import TaskReport

if TYPE_CHECKING:
    from airflow_iceberg.format.manifests.entries import DataFile
    from airflow_iceberg.storage.base import FileIO

STOP_MARKER = "stop"
COALESCE_ROWS = 1 << 17
COALESCE_BYTES = 64 << 20

AnyTask = TypeVar("AnyTask", bound=Task)
RowsTask = TypeVar("RowsTask", bound=AppendTask | CompactTask)
Written = TypeVar("Written")
Written_co = TypeVar("Written_co", covariant=True)


class Sink(Protocol[Written_co]):
    """A writer of rows that returns the files or the slices that hold them."""

    def write(self, rows: Any, /) -> None: ...
    def close(self) -> Written_co: ...
    def abort(self) -> None: ...


RowSink = Sink["tuple[DataFile, ...]"]


@dataclass(kw_only=True)
class TaskContext(Generic[AnyTask]):
    """What all tasks of a job share within one process; `task` is the plan's, `io` accesses the table's files."""

    plan: JobPlan
    task: AnyTask
    io: FileIO

    def spill(self, number: int, cut: exchange.Cut) -> exchange.Spill:
        """Return a spill file of one attempt of one task."""
        return exchange.Spill(self.io, self.exchange_file(f"{number:05d}"), cut=cut)

    def exchange_file(self, name: str) -> str:
        """Return the location of a new file of the exchange, of one attempt alone."""
        return f"{exchange.location(self.plan)}/{name}-{uuid.uuid4().hex[:12]}.arrow"

    @property
    def stop_location(self) -> str:
        """The location of the marker that stops the other tasks after one has failed."""
        return f"{self.plan.staging_location}/{STOP_MARKER}"


@dataclass(kw_only=True)
class RowsContext(TaskContext[RowsTask]):
    """What tasks share that write rows into new data files.

    Attributes:
        written_schema: the schema of the files: the plan's, and the row lineage where rows keep theirs.
        row_schema: the same in Arrow.
    """

    options: WriteOptions = field(init=False)
    written_schema: Schema = field(init=False)
    row_schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.options = options_of(self.task.write)
        self.written_schema = self._written_schema()
        self.row_schema = schema_to_arrow(self.written_schema)

    def _written_schema(self) -> Schema:
        return self.task.write.schema

    def writer(self, number: int) -> PartitionedWriter:
        """Return a writer for the data files of one task."""
        return PartitionedWriter(
            self.io,
            schema=self.written_schema,
            spec=self.task.spec,
            options=self.options,
            data_location=self.task.write.data_location,
            file_prefix=f"{self.plan.file_prefix}-{number:05d}",
            sort_order_id=self.task.claimed_order_id,
        )

    def write(self, number: int, sink: RowSink, rows: Iterable[Any]) -> TaskReport:
        """Write rows into data files, and return the report of the task."""
        return self.report(number, fill(sink, rows))

    def report(self, number: int, files: Sequence[DataFile]) -> TaskReport:
        """Return the report of a task that wrote data files."""
        partition_type = self.task.spec.partition_type(self.task.write.schema)
        return TaskReport(
            number=number,
            data_files=tuple(file.to_dict(partition_type) for file in files),
            record_count=sum(file.record_count for file in files),
        )


def options_of(write: WriteSettings, *, writes_files: bool = True) -> WriteOptions:
    """Return how data files are written; `writes_files` as in `WriteOptions.from_properties`.

    Raises:
        InvalidInputError, UnsupportedError: a property of the table.
    """
    options = WriteOptions.from_properties(write.properties, write.schema, write.sort_order, writes_files=writes_files)
    return replace(options, target_file_size_bytes=write.target_file_size_bytes)


def read_as(io: FileIO, table: TableInput) -> ReadAs:
    """Return how the files of the table are read."""
    specs = {spec.spec_id: spec for spec in table.specs}
    return ReadAs(io=io, schemas=table.schemas, specs=specs, name_mapping=table.name_mapping)


def fill(sink: Sink[Written], tables: Iterable[Any]) -> Written:
    """Write rows into a sink, and return its files or slices; after an error its files are deleted."""
    try:
        for table in tables:
            sink.write(table)
        return sink.close()
    except BaseException:
        sink.abort()
        raise


def coalesced(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables of one schema: the cost of a table hardly depends on its length."""
    held: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        if held and not has_columns(table.schema, held[0].schema):
            yield join(held, most_bytes=rows)
            held, rows, size = [], 0, 0
        held.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= COALESCE_ROWS or size >= COALESCE_BYTES:
            yield join(held, most_bytes=rows)
            held, rows, size = [], 0, 0
    if held:
        yield join(held, most_bytes=rows)
