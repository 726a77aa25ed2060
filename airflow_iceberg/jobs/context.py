"""What every task of a job works with: the table's types, the writer's options, the rows on their way to a file."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.table_input import FileUnit, TableInput, WorkItem
from airflow_iceberg.jobs.task import TaskReport

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.data.cast.row_check import RowCheck
    from airflow_iceberg.data.write.options import WriteOptions
    from airflow_iceberg.data.write.ordering import SortedRows
    from airflow_iceberg.data.write.partitioned import PartitionedWriter
    from airflow_iceberg.format.manifests.entries import DataFile
    from airflow_iceberg.format.schemas.schema import Schema
    from airflow_iceberg.storage.base import FileIO


STOP_MARKER = "stop"


COALESCE_ROWS = 1 << 17


COALESCE_BYTES = 64 << 20


@dataclass(kw_only=True, slots=True)
class TaskContext:
    """What all tasks of a job share within one process.

    Attributes:
        plan: of the job.
        io: of the table.
        options: how to write, from the table's properties.
        written_schema: of the files: the plan's, with the row lineage where rows keep theirs.
        row_schema: the same in Arrow.
        row_check: what every new row has to satisfy; None for nothing.
    """

    plan: JobPlan
    io: FileIO
    options: WriteOptions = field(init=False)
    written_schema: Schema = field(init=False)
    row_schema: pa.Schema = field(init=False)
    row_check: RowCheck | None = field(init=False)

    def __post_init__(self) -> None:
        from airflow_iceberg.data.write.options import WriteOptions
        from airflow_iceberg.format.schemas.arrow import schema_to_arrow

        self.options = WriteOptions.from_properties(self.plan.properties, self.plan.schema, self.plan.sort_order)
        self.written_schema = _written_schema(self.plan)
        self.row_schema = schema_to_arrow(self.written_schema)
        self.row_check = _row_check(self.plan)

    @property
    def table_input(self) -> TableInput:
        """The files of the table that the job reads."""
        assert self.plan.source.table is not None
        return self.plan.source.table

    def writer(self, number: int) -> PartitionedWriter:
        """Return a writer for the data files of one task."""
        from airflow_iceberg.data.write.partitioned import PartitionedWriter

        return PartitionedWriter(
            self.io,
            schema=self.written_schema,
            spec=self.plan.spec,
            options=self.options,
            data_location=self.plan.data_location,
            file_prefix=f"{self.plan.file_prefix}-{number:05d}",
            sort_order_id=self.plan.claimed_order_id,
        )

    def row_order(self) -> SortedRows:
        """Return the order in which the rows of a source are written."""
        from airflow_iceberg.data.write.sorted import write_order

        return write_order(self.plan.sort_order, self.plan.schema, self.plan.spec)

    def sink(self, number: int) -> RowSink:
        """Return what writes the rows of a source: in the table's order, if the plan asks for it."""
        if self.plan.arrangement != "sort":
            return self.writer(number)
        from airflow_iceberg.data.write.sorted import SortedRuns

        return SortedRuns(lambda: self.writer(number), self.row_order())

    def group_writer(self, item: WorkItem) -> RowSink:
        """Return a writer for the rows of an item: where all are of one partition, nobody asks them for it again."""
        writer = self.writer(item.number)
        partition = common_partition(item.units, self.plan.spec.spec_id)
        return writer if partition is None else writer.into(partition)

    def report(self, number: int, files: Sequence[Any], started: float) -> TaskReport:
        """Return the report of a task that wrote data files."""
        partition_type = self.plan.spec.partition_type(self.plan.schema)
        return TaskReport(
            number=number,
            data_files=tuple(file.to_dict(partition_type) for file in files),
            record_count=sum(file.record_count for file in files),
            seconds=time.monotonic() - started,
        )

    def spill(self, number: int, cut: exchange.Cut) -> exchange.Spill:
        """Return a spill file of one attempt of one task."""
        return exchange.Spill(self.io, self.exchange_file(f"{number:05d}"), cut=cut)

    def exchange_file(self, name: str) -> str:
        """Return the location of a new file of the exchange, of one attempt alone."""
        return f"{exchange.location(self.plan)}/{name}-{uuid.uuid4().hex[:12]}.arrow"

    @property
    def stop_location(self) -> str:
        """Location of the marker that tells the other tasks that one has failed."""
        return f"{self.plan.staging_location.rstrip('/')}/{STOP_MARKER}"


def _row_check(plan: JobPlan) -> RowCheck | None:
    if plan.row_check is None:
        return None
    from airflow_iceberg.data.cast.row_check import RowCheck
    from airflow_iceberg.expressions.binding import parse_filter

    # Bound here: with new columns and wider types of the source the schema may be another than when it was planned.
    row_filter = parse_filter(plan.row_check.predicate, plan.schema)
    return RowCheck(row_filter=row_filter, text=plan.row_check.text, schema=plan.schema)


def _written_schema(plan: JobPlan) -> Schema:
    if plan.source.table is None or not plan.source.table.keeps_lineage:
        return plan.schema
    from airflow_iceberg.data.read.metadata_columns import LAST_UPDATED, ROW_ID
    from airflow_iceberg.format.schemas.schema import Schema

    return Schema((*plan.schema.fields, ROW_ID, LAST_UPDATED), plan.schema.schema_id)


@contextmanager
def removing_on_error(writer: Any) -> Iterator[Any]:
    """Remove what was half written when the task fails; a killed task leaves it, and nobody refers to it."""
    try:
        yield writer
    except BaseException:
        writer.abort()
        raise


def coalesced(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables of one schema: the work of a table hardly depends on its length."""
    from airflow_iceberg.data.dictionaries import has_columns, join

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


class RowSink(Protocol):
    """What takes rows in and gives data files."""

    def write(self, table: pa.Table) -> None: ...
    def close(self) -> tuple[DataFile, ...]: ...
    def abort(self) -> None: ...


def common_partition(units: Sequence[FileUnit], spec_id: int) -> tuple[Any, ...] | None:
    """Return the partition that all files lie in under a spec, None where they do not."""
    partitions = {tuple(canonical_key(value) for value in unit.file.partition) for unit in units}
    if len(partitions) != 1 or any(unit.file.spec_id != spec_id for unit in units):
        return None
    return units[0].file.partition
