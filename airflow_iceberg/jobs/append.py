"""One task of a job: read rows, make them fit, write them. Pure functions of (plan, work); they know no Spark.

Kinds of work: `write` reads source files and writes data files; `spill` reads source files and writes slices for the
exchange; `gather` reads slices and writes data files; `collect`, `cut` and `merge` (in `jobs.append_sorted`) bring
rows into the table's order; `rewrite` (in `jobs.compact`) reads files of the table. The rows of a query come in from
outside (`write_rows`, `spill_rows`). What a task did comes back as a TaskReport, a small JSON document: data files and
slices that no report names do not exist as far as anybody else is concerned, so that a doubled or killed attempt is
harmless.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.exchange import Slice
from airflow_iceberg.jobs.protocol.plan import FileChange, JobError, JobPlan, WalkedUnit
from airflow_iceberg.jobs.protocol.table_input import TableInput, WorkItem
from airflow_iceberg.jobs.sources.files import Unit, read_unit

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.data.cast.row_check import RowCheck
    from airflow_iceberg.data.write.options import WriteOptions
    from airflow_iceberg.data.write.ordering import SortedRows
    from airflow_iceberg.data.write.partitioned import PartitionedWriter
    from airflow_iceberg.format.schemas.schema import Schema
    from airflow_iceberg.jobs.compact import RowSink
    from airflow_iceberg.storage.base import FileIO

WRITE, SPILL, GATHER, REWRITE, SAMPLE = "write", "spill", "gather", "rewrite", "sample"
COLLECT, CUT, MERGE = "collect", "cut", "merge"
WALK = "walk"
STOP_MARKER = "stop"
COALESCE_ROWS = 1 << 17
COALESCE_BYTES = 64 << 20

# Errors that the same task would meet again: no scheduler should try them a second time.
PERMANENT = (InvalidInputError, FormatError, NotFoundError, UnsupportedError)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """What one task has to do.

    Attributes:
        number: from 0, unique in its phase; part of the file names.
        kind: WRITE, SPILL, GATHER, REWRITE or SAMPLE.
        units: source files, for WRITE and SPILL.
        buckets: number of buckets that SPILL cuts into.
        groups: slices for GATHER; one group holds whole buckets.
        item: files of the table, for SAMPLE, SPILL, REWRITE, and of a GATHER those whose rows it writes.
        ranges: of a sort, the location of their boundaries.
    """

    number: int
    kind: str
    units: tuple[Unit, ...] = ()
    buckets: int = 0
    groups: tuple[tuple[Slice, ...], ...] = ()
    item: WorkItem | None = None
    ranges: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskReport:
    """What one task did.

    Attributes:
        number: of the task.
        data_files: `DataFile.to_dict` documents.
        changes: what became of files of the table, of a delete.
        record_count: rows written or spilled.
        slices: what was spilled.
        seconds: wall time.
        sample: location of the keys that were read, for SAMPLE.
        walked: what came of the unit of a walk, for WALK.
        error: why it failed, None if it did not.
        is_stopped: it did nothing, because another task had failed.
    """

    number: int
    data_files: tuple[Mapping[str, Any], ...] = ()
    changes: tuple[FileChange, ...] = ()
    record_count: int = 0
    slices: tuple[Slice, ...] = ()
    seconds: float = 0.0
    sample: str | None = None
    walked: WalkedUnit | None = None
    error: JobError | None = None
    is_stopped: bool = False

    def to_json(self) -> str:
        """Return the report as text for the way back to the driver."""
        document = {
            "number": self.number,
            "data-files": list(self.data_files),
            "changes": [asdict(change) for change in self.changes],
            "record-count": self.record_count,
            "slices": [asdict(piece) for piece in self.slices],
            "seconds": self.seconds,
            "sample": self.sample,
            "walked": None if self.walked is None else self.walked.to_dict(),
            "error": self.error.to_dict() if self.error else None,
            "is-stopped": self.is_stopped,
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a report that `to_json` of the same version wrote."""
        document = json.loads(text)
        error = document["error"]
        return cls(
            number=document["number"],
            data_files=tuple(document["data-files"]),
            changes=tuple(FileChange(**change) for change in document["changes"]),
            record_count=document["record-count"],
            slices=tuple(
                Slice(**{**piece, "parts": tuple(map(tuple, piece["parts"]))}) for piece in document["slices"]
            ),
            seconds=document["seconds"],
            sample=document["sample"],
            walked=WalkedUnit(**document["walked"]) if document["walked"] else None,
            error=JobError(**error) if error else None,
            is_stopped=document["is-stopped"],
        )


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
    io: "FileIO"
    options: "WriteOptions" = field(init=False)
    written_schema: "Schema" = field(init=False)
    row_schema: "pa.Schema" = field(init=False)
    row_check: "RowCheck | None" = field(init=False)

    def __post_init__(self) -> None:
        from airflow_iceberg.data.write.options import WriteOptions
        from airflow_iceberg.format.arrow.types import schema_to_arrow

        self.options = WriteOptions.from_properties(self.plan.properties, self.plan.schema, self.plan.sort_order)
        self.written_schema = _written_schema(self.plan)
        self.row_schema = schema_to_arrow(self.written_schema)
        self.row_check = _row_check(self.plan)

    @property
    def table_input(self) -> TableInput:
        """The files of the table that the job reads."""
        assert self.plan.source.table is not None
        return self.plan.source.table

    def writer(self, number: int) -> "PartitionedWriter":
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

    def row_order(self) -> "SortedRows":
        """Return the order in which the rows of a source are written."""
        from airflow_iceberg.data.write.sorted import write_order

        return write_order(self.plan.sort_order, self.plan.schema, self.plan.spec)

    def sink(self, number: int) -> "RowSink":
        """Return what writes the rows of a source: in the table's order, if the plan asks for it."""
        if self.plan.arrangement != "sort":
            return self.writer(number)
        from airflow_iceberg.data.write.sorted import SortedRuns

        return SortedRuns(lambda: self.writer(number), self.row_order())

    def group_writer(self, item: WorkItem) -> "RowSink":
        """Return a writer for the rows of an item: where all are of one partition, nobody asks them for it again."""
        from airflow_iceberg.jobs.compact import common_partition

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

    def spill(self, number: int, cut: "exchange.Cut") -> exchange.Spill:
        """Return a spill file of one attempt of one task."""
        return exchange.Spill(self.io, self.exchange_file(f"{number:05d}"), cut=cut)

    def exchange_file(self, name: str) -> str:
        """Return the location of a new file of the exchange, of one attempt alone."""
        return f"{exchange.location(self.plan)}/{name}-{uuid.uuid4().hex[:12]}.arrow"

    @property
    def stop_location(self) -> str:
        """Location of the marker that tells the other tasks that one has failed."""
        return f"{self.plan.staging_location.rstrip('/')}/{STOP_MARKER}"


def _row_check(plan: JobPlan) -> "RowCheck | None":
    if plan.row_check is None:
        return None
    from airflow_iceberg.data.cast.row_check import RowCheck
    from airflow_iceberg.expressions.binding import parse_filter

    # Bound here: with new columns and wider types of the source the schema may be another than when it was planned.
    row_filter = parse_filter(plan.row_check.predicate, plan.schema)
    return RowCheck(row_filter=row_filter, text=plan.row_check.text, schema=plan.schema)


def _written_schema(plan: JobPlan) -> "Schema":
    if plan.source.table is None or not plan.source.table.keeps_lineage:
        return plan.schema
    from airflow_iceberg.data.read.metadata_columns import LAST_UPDATED, ROW_ID
    from airflow_iceberg.format.schemas.schema import Schema

    return Schema((*plan.schema.fields, ROW_ID, LAST_UPDATED), plan.schema.schema_id)


def run_task(context: TaskContext, spec: TaskSpec) -> TaskReport:
    """Do the work of one task; errors that no retry can mend are in the report, others are raised."""
    if spec.item is not None:
        from airflow_iceberg.jobs.compact import run_item

        return _guarded(context, spec.number, lambda: run_item(context, spec))
    if spec.kind == WALK:
        from airflow_iceberg.jobs.inventory import run_walk

        return _guarded(context, spec.number, lambda: run_walk(context, spec.number))
    if spec.kind in (COLLECT, CUT, MERGE):
        return _guarded(context, spec.number, lambda: _arrange(context, spec))
    if spec.kind == GATHER:
        return _guarded(context, spec.number, lambda: _gather(context, spec))
    if spec.kind == SPILL:
        return _guarded(context, spec.number, lambda: _spill(context, spec.number, spec.buckets, _rows(context, spec)))
    return _guarded(context, spec.number, lambda: _write(context, spec.number, _rows(context, spec)))


def write_rows(context: TaskContext, number: int, tables: "Iterable[pa.Table]", *, source: str) -> TaskReport:
    """Write rows that come from outside into data files; errors as in `run_task`."""
    return _guarded(context, number, lambda: _write(context, number, _conformed(context, tables, source)))


def spill_rows(
    context: TaskContext, number: int, buckets: int, tables: "Iterable[pa.Table]", *, source: str
) -> TaskReport:
    """Spill rows that come from outside for the exchange; errors as in `run_task`."""
    return _guarded(context, number, lambda: _spill(context, number, buckets, _conformed(context, tables, source)))


def collect_rows(context: TaskContext, number: int, tables: "Iterable[pa.Table]", *, source: str) -> TaskReport:
    """Collect rows that come from outside to be sorted; errors as in `run_task`."""
    from airflow_iceberg.jobs.append_sorted import collect

    return _guarded(context, number, lambda: collect(context, number, _conformed(context, tables, source)))


def _arrange(context: TaskContext, spec: TaskSpec) -> TaskReport:
    from airflow_iceberg.jobs import append_sorted

    if spec.kind == COLLECT:
        return append_sorted.collect(context, spec.number, _rows(context, spec))
    return (append_sorted.cut if spec.kind == CUT else append_sorted.merge)(context, spec)


def _guarded(context: TaskContext, number: int, work: Callable[[], TaskReport]) -> TaskReport:
    if context.io.exists(context.stop_location):
        return TaskReport(number=number, is_stopped=True)
    try:
        return work()
    except PERMANENT as error:
        return TaskReport(number=number, error=JobError.from_exception(error))


def _write(context: TaskContext, number: int, tables: "Iterable[pa.Table]") -> TaskReport:
    started = time.monotonic()
    with removing_on_error(context.sink(number)) as writer:
        for table in tables:
            writer.write(table)
        files = writer.close()
    return context.report(number, files, started)


def _spill(context: TaskContext, number: int, buckets: int, tables: "Iterable[pa.Table]") -> TaskReport:
    started = time.monotonic()
    cut = exchange.cut_by_partition(context.plan.spec, context.plan.schema, buckets)
    with removing_on_error(context.spill(number, cut)) as spill:
        for table in tables:
            spill.write(table)
        slices = spill.close()
    rows = sum(piece.record_count for piece in slices)
    return TaskReport(number=number, slices=slices, record_count=rows, seconds=time.monotonic() - started)


def _gather(context: TaskContext, spec: TaskSpec) -> TaskReport:
    started = time.monotonic()
    files: list[Any] = []
    for group in spec.groups:
        # A writer a group: when its buckets are done, no more rows of their partitions come, and memory is free.
        with removing_on_error(context.sink(spec.number)) as writer:
            for table in coalesced(exchange.read_slices(context.io, group)):
                writer.write(table)
            files.extend(writer.close())
    return context.report(spec.number, files, started)


@contextmanager
def removing_on_error(writer: Any) -> Iterator[Any]:
    """Remove what was half written when the task fails; a killed task leaves it, and nobody refers to it."""
    try:
        yield writer
    except BaseException:
        writer.abort()
        raise


def _rows(context: TaskContext, spec: TaskSpec) -> "Iterator[pa.Table]":
    plan = context.plan
    for unit in spec.units:
        tables = read_unit(unit, context.io, schema=plan.schema, options=plan.source.format_options)
        yield from _conformed(context, tables, unit.location, first_row=unit.first_row)


def _conformed(
    context: TaskContext, tables: "Iterable[pa.Table]", source: str, *, first_row: int = 1
) -> "Iterator[pa.Table]":
    from airflow_iceberg.data.cast.rows import conform

    schema = context.plan.rows_schema
    for table in coalesced(tables):
        conformed = conform(table, schema, source=source, first_row=first_row)
        if context.row_check is not None:
            context.row_check.check(conformed, source=source, first_row=first_row)
        yield conformed
        first_row += table.num_rows


def coalesced(tables: "Iterable[pa.Table]") -> "Iterator[pa.Table]":
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
