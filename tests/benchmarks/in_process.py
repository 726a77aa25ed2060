"""Loads without a JVM, in this process, side by side with PyIceberg: the same rows, each in a SQL catalog of its own.

Once from Arrow rows in memory (`Table.append` and `table.append`), once from the Parquet files: ours as a job over
threads, the peer's by reading them with pyarrow first, which is how one does it with PyIceberg.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.table import Table
from tests.benchmarks import lineitem
from tests.benchmarks.line import Bench, Line, Run, Side
from tests.benchmarks.measure import Stopwatch
from tests.benchmarks.sessions import check_rows
from tests.support.append_steps import commit_append, plan_append, read_result

if TYPE_CHECKING:
    from pyiceberg.table import Table as PeerTable

GOAL = 1.0
NAME = "db.t"


class Ours:
    """Our back end without a JVM; a new table for each run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append(self, rows: pa.Table) -> float:
        """Append rows that are in memory."""
        table = self._create()
        with Stopwatch() as watch:
            written = table.append(rows)
        check_rows("Table.append", written.added_records, rows.num_rows)
        return watch.seconds

    def load(self, source: lineitem.Lineitem) -> float:
        """Append the files by a job."""
        table = self._create()
        with Stopwatch() as watch:
            plan = plan_append(table, Source.from_files(source.pattern))
            run_local(plan, table.io)
            written = commit_append(table, plan, read_result(table, plan))
        check_rows("our local job", written.added_records, source.rows)
        return watch.seconds

    def _create(self) -> Table:
        catalog = load_catalog("ours", type="sql", uri=_fresh(self._folder), warehouse=self._folder.as_uri())
        catalog.create_namespace("db")
        return Table.create(catalog, NAME, schema=lineitem.COLUMNS)


class PyIceberg:
    """PyIceberg; a new table for each run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append(self, rows: pa.Table) -> float:
        """Append rows that are in memory."""
        table = self._create(rows.schema)
        with Stopwatch() as watch:
            table.append(rows)
        self._check(table, rows.num_rows)
        return watch.seconds

    def load(self, source: lineitem.Lineitem) -> float:
        """Read the files and append their rows."""
        table = self._create(pq.read_schema(source.files[0]))
        with Stopwatch() as watch:
            table.append(pq.read_table(list(source.files)))
        self._check(table, source.rows)
        return watch.seconds

    def _create(self, schema: pa.Schema) -> "PeerTable":
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("peer", uri=_fresh(self._folder), warehouse=self._folder.as_uri())
        catalog.create_namespace("db")
        return catalog.create_table(NAME, schema)

    def _check(self, table: "PeerTable", rows: int) -> None:
        check_rows("PyIceberg", int(table.current_snapshot().summary["added-records"]), rows)


def _source(bench: Bench) -> lineitem.Lineitem:
    return lineitem.make(bench.folder, rows=bench.rows)


def _side(kind: type[Ours] | type[PyIceberg], *, from_files: bool) -> Side:
    @contextmanager
    def opened(bench: Bench) -> Iterator[Run]:
        source, side = _source(bench), kind(bench.work / "warehouse")
        if from_files:
            yield lambda: side.load(source)
        else:
            rows = pq.read_table(list(source.files))
            yield lambda: side.append(rows)

    return opened


LINES = tuple(
    Line(
        name=name,
        what=what,
        against=against,
        ours=_side(Ours, from_files=from_files),
        peer=_side(PyIceberg, from_files=from_files),
        goal=GOAL,
        prepare=_source,
    )
    for name, what, against, from_files in (
        ("local-rows", "append of {rows} Arrow rows in the process", "PyIceberg", False),
        ("local-files", "append of Parquet files in the process", "PyIceberg and read_table", True),
    )
)


def _fresh(folder: Path) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return f"sqlite:///{folder}/catalog.db"
