"""A query over inputs in this process: DuckDB runs it, Arrow streams rows in and out.

The embedded mode for small tables: no JVM, no Spark, and DuckDB's own SQL. The query sees the inputs and nothing else:
no file, no network, no extension. What does not fit into memory is spilled into a folder that only this process reads.
Not here: which columns and rows of an input are read (`operations.inputs`), writing the rows (`jobs.append`).
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from airflow_iceberg.errors import IcebergError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.merge_clauses import SOURCE, TARGET, quoted
from airflow_iceberg.format.arrow.buffers import number_array
from airflow_iceberg.format.arrow.paths import twins
from airflow_iceberg.format.names import fold_ascii
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.duckdb.reader import Reader
from airflow_iceberg.jobs.duckdb.unknown_names import explained
from airflow_iceberg.jobs.merge import sql
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.run_task import open_context, stage_rows
from airflow_iceberg.jobs.table_reader import plan_pinned

if TYPE_CHECKING:
    from airflow_iceberg.jobs.merge.tasks import Matching
    from airflow_iceberg.jobs.protocol.plan import AppendTask, JobPlan
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.jobs.task import Staging, TaskReport
    from airflow_iceberg.storage.base import FileIO

NAME = "the query"
_ALL_ROWS = (1 << 63) - 1


@contextmanager
def open_query(
    task: AppendTask | MergeTask, io: FileIO, inputs: Mapping[str, FileIO], *, threads: int
) -> Iterator[DuckdbQuery]:
    """Open a query; it ends with the block.

    Args:
        io: access to the files of the table that is written to.
        inputs: access to the files of each input, by its name.

    Raises:
        InvalidInputError: the query is wrong.
        UnsupportedError: DuckDB is not installed.
    """
    duckdb = _duckdb()
    with ExitStack() as stack:
        connection = stack.enter_context(_connected(duckdb, threads))
        rows = _register_inputs(connection, task.inputs, inputs)
        assert task.source is not None
        with _errors(duckdb, rows):
            reader = Reader.open(duckdb, connection, str(task.source.sql), task.source.sql_args)
        yield DuckdbQuery(io=io, rows=rows, reader=reader, duckdb=duckdb)


@contextmanager
def open_match(
    plan: JobPlan, matching: Matching, query: str, io: FileIO, inputs: Mapping[str, FileIO], *, threads: int
) -> Iterator[DuckdbQuery]:
    """Open the query of a merge over the rows of both sides; errors as of `open_query`."""
    duckdb, task = _duckdb(), plan.task
    assert isinstance(task, MergeTask)
    with ExitStack() as stack:
        connection = stack.enter_context(_connected(duckdb, threads))
        rows: dict[str, _Stream] = {**_register_inputs(connection, task.inputs, inputs)}
        gated = plan.gated(io)
        rows[TARGET] = TargetRows(matching=matching, io=gated)
        _register(connection, TARGET, rows[TARGET], view=sql.TARGET_ROWS)
        if matching.source is not None:
            rows[SOURCE] = SourceRows(matching=matching, io=gated)
            _register(connection, SOURCE, rows[SOURCE], view=sql.SOURCE_ROWS)
        for side in matching.tables:
            connection.execute(sql.table_view(side, rows[side].names, dialect="duckdb"))
        with _errors(duckdb, rows):
            reader = Reader.open(duckdb, connection, query, task.sql_args)
        yield DuckdbQuery(io=io, rows=rows, reader=reader, duckdb=duckdb, name="the merge")


@contextmanager
def open_rows(
    source: Source, tables: Iterable[PinnedTable], inputs: Mapping[str, FileIO], *, threads: int
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Open the rows of a query over tables, for this process alone; errors as of `open_query`."""
    duckdb = _duckdb()
    with _connected(duckdb, threads) as connection:
        rows = _register_inputs(connection, tables, inputs)
        with _errors(duckdb, rows):
            reader = Reader.open(duckdb, connection, str(source.sql), source.sql_args)
        yield _batches(duckdb, rows, reader)


@contextmanager
def _connected(duckdb: Any, threads: int) -> Iterator[Any]:
    """Open a connection that sees what is registered, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="airflow-iceberg-") as folder:
        settings = {
            "temp_directory": folder,
            "threads": str(threads),
            "autoinstall_known_extensions": "false",
            # A table that nothing is registered for is otherwise looked for among the variables of this process.
            "python_enable_replacements": "false",
        }
        with closing(duckdb.connect(":memory:", config=settings)) as connection:
            # The query is code of the DAG's author, and may hold what somebody else has filled in.
            connection.execute("set TimeZone = 'UTC'")
            connection.execute("set enable_external_access = false")
            connection.execute("set disabled_optimizers = 'join_filter_pushdown'")  # see _register
            connection.execute("set lock_configuration = true")
            yield connection


def _register_inputs(
    connection: Any, tables: Iterable[PinnedTable], inputs: Mapping[str, FileIO]
) -> dict[str, InputRows]:
    rows = {}
    for table in tables:
        with table.reading():
            rows[table.name] = InputRows(table=table, io=table.gated(inputs[table.name]))
        _register(connection, table.name, rows[table.name])
    return rows


def _register(connection: Any, name: str, rows: _Stream, *, view: str | None = None) -> None:
    """Let SQL see rows by a name; messages have `name`, also if the view has another one.

    DuckDB would give its filters to pyarrow, where not a number is not above all numbers, and times have microseconds:
    rows would be lost. It passes no filter through a limit.

    Raises:
        InvalidInputError: columns that DuckDB takes for the same one.
        UnsupportedError: a type whose values it would change.
    """
    twice = twins(rows.schema, fold_ascii)
    if twice:
        raise InvalidInputError(
            f"'{name}' has the columns {' and '.join(map(repr, twice))}, which are one for DuckDB: rename one, or run "
            f"the statement on Spark with spark.sql.caseSensitive=true"
        )
    for column in rows.schema:
        if any(
            pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz is not None for kind in _leaves(column.type)
        ):
            raise UnsupportedError(
                f"column '{column.name}' of '{name}' has nanoseconds and a time zone, which DuckDB does not "
                f"keep: leave the column out of the SQL"
            )
    view = view or name
    hidden = f"_rows_of_{view}"
    connection.register(hidden, rows)
    connection.execute(
        f"create temp view {quoted(view, 'duckdb')} as select * from {quoted(hidden, 'duckdb')} limit {_ALL_ROWS}"
    )


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    if not pa.types.is_nested(kind):
        yield kind
    for at in range(kind.num_fields):
        yield from _leaves(kind.field(at).type)


@dataclass(kw_only=True)
class _Stream(ABC):
    """Rows that are read again each time that DuckDB asks for them.

    Attributes:
        error: what went wrong while they were read; DuckDB passes only its text on.
        known: the columns that there are, also those that are not read.
    """

    error: BaseException | None = field(default=None, init=False)
    schema: pa.Schema = field(init=False)
    known: Sequence[str] = field(init=False)

    @property
    def names(self) -> list[str]:
        """The columns, without those of ours."""
        return [name for name in self.schema.names if not sql.is_own(name)]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(self.schema, self._guarded()).__arrow_c_stream__(requested_schema)

    def _guarded(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self.batches():
                yield batch.cast(self.schema) if batch.schema != self.schema else batch
        except GeneratorExit:  # the query needs no more rows
            raise
        except BaseException as error:
            self.error = error
            raise

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; called each time anew."""


@dataclass(kw_only=True)
class InputRows(_Stream):
    """The rows of an input."""

    table: PinnedTable
    io: FileIO

    def __post_init__(self) -> None:
        self._reader, self._items = plan_pinned(self.table, self.io)
        self.schema = schema_to_arrow(self._reader.projection)
        self.known = tuple(dict.fromkeys([*(column.name for column in self.table.schema.fields), *self.schema.names]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        with self.table.reading():
            for item in self._items:
                yield from self._reader.rows(self.io, item)


@dataclass(kw_only=True)
class TargetRows(_Stream):
    """The rows of the table that can match a merge's source."""

    matching: Matching
    io: FileIO

    def __post_init__(self) -> None:
        columns = schema_to_arrow(self.matching.candidates.reader.projection)
        # The position is the last column, also if the table has one of its name.
        names = [*columns.names[:-1], sql.ROW_POSITION]
        self._columns = pa.schema([item.with_name(name) for item, name in zip(columns, names, strict=True)])
        self.schema = self._columns.append(pa.field(sql.ROW_FILE, pa.int32()))
        self.known = [column.name for column in self.matching.candidates.reader.schema.fields]

    def batches(self) -> Iterator[pa.RecordBatch]:
        candidates = self.matching.candidates
        keys = candidates.open_keys(self.io)
        for number in range(len(candidates.items)):
            for batch in candidates.rows(self.io, number, keys):
                yield batch.rename_columns(self.schema.names)


@dataclass(kw_only=True)
class SourceRows(_Stream):
    """The rows of a merge's source, which were kept."""

    matching: Matching
    io: FileIO

    def __post_init__(self) -> None:
        assert self.matching.source_schema is not None
        self.known = self.matching.source_schema.names
        self.schema = self.matching.source_schema.append(pa.field(sql.SOURCE_ROW, pa.int64()))

    def batches(self) -> Iterator[pa.RecordBatch]:
        first = 0
        for table in exchange.read_slices(self.io, self.matching.source or ()):
            numbers = number_array(np.arange(first, first + table.num_rows, dtype=np.int64))
            yield from table.append_column(sql.SOURCE_ROW, numbers).to_batches()
            first += table.num_rows


@dataclass(kw_only=True)
class DuckdbQuery:
    """The rows of the query; see `jobs.phase.Query`."""

    io: FileIO
    rows: Mapping[str, _Stream]
    reader: Reader
    duckdb: Any
    name: str = NAME
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.schema = self.reader.schema

    def stage(self, plan: JobPlan, staging: Staging) -> list[TaskReport]:
        """Stage all rows as one task."""
        context: Any = open_context(plan, self.io)
        return [stage_rows(context, 0, self._tables(), staging, source=self.name)]

    def batches(self) -> Iterator[pa.RecordBatch]:
        return _batches(self.duckdb, self.rows, self.reader)

    def _tables(self) -> Iterator[pa.Table]:
        for batch in self.batches():
            yield pa.Table.from_batches([batch])


def _batches(duckdb: Any, rows: Mapping[str, _Stream], reader: Reader) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query, and raise its errors: not those of what is done with the rows."""
    with _errors(duckdb, rows):
        yield from reader


@contextmanager
def _errors(duckdb: Any, rows: Mapping[str, _Stream]) -> Iterator[None]:
    """Raise the error of an input, or DuckDB's as one of ours."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        failed = next((one.error for one in rows.values() if one.error is not None), None)
        if failed is not None:
            raise failed from error
        text = sql.shown(" ".join(str(error).split("\n\n")[0].split()))
        if isinstance(error, duckdb.CatalogException) and text.startswith("Catalog Error: Table with name "):
            # Not what DuckDB asks: whether a table of its own catalog was meant.
            known = f"the tables here are {', '.join(sorted(rows))}" if rows else "there are no tables here"
            text = f"{text.partition('! Did you mean')[0]}; {known}: give each table that the SQL reads in inputs"
        # Another try may find more memory, or more space to spill.
        may_pass = isinstance(error, duckdb.OperationalError | duckdb.InterruptException | OSError | MemoryError)
        kind = IcebergError if may_pass else InvalidInputError
        unknown = explained(text, {name: one.known for name, one in rows.items()})
        if unknown is not None:
            raise InvalidInputError(f"the SQL cannot be run: {unknown}") from error
        raise kind(f"DuckDB cannot run the query: {text}") from error


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        if error.name != "duckdb":
            raise
        raise UnsupportedError(
            "without Spark a query is run by DuckDB, which is not installed here: install "
            "airflow-iceberg[duckdb], or name a connection of type spark in spark_conn_id"
        ) from error
    return duckdb
