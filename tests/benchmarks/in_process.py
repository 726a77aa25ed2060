"""Loads without a JVM, in this process, side by side with PyIceberg: the same rows, each in a SQL catalog of its own.

Once from Arrow rows in memory (`Table.append` and `table.append`), once from the Parquet files: ours as a job over
threads, the peer's by reading them with pyarrow first, which is how one does it with PyIceberg.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def _our_table(folder: Path, source: lineitem.Lineitem) -> Table:
    catalog = load_catalog("ours", type="sql", uri=_fresh(folder), warehouse=folder.as_uri())
    catalog.create_namespace("db")
    return Table.create(catalog, NAME, schema=lineitem.COLUMNS)


def _our_files(table: Table, source: lineitem.Lineitem) -> int:
    plan = plan_append(table, Source.from_files(source.pattern))
    run_local(plan, table.io)
    return commit_append(table, plan, read_result(table, plan)).added_records


def _their_table(folder: Path, source: lineitem.Lineitem) -> "PeerTable":
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("peer", uri=_fresh(folder), warehouse=folder.as_uri())
    catalog.create_namespace("db")
    return catalog.create_table(NAME, pq.read_schema(source.files[0]))


def _their_rows(table: "PeerTable", rows: pa.Table) -> int:
    table.append(rows)
    return int(table.current_snapshot().summary["added-records"])


def _side(create: Callable[..., Any], append: Callable[[Any, Any], int], *, from_files: bool) -> Side:
    """Return the side that appends the rows, or the files that they are in, to a new table in each run."""

    @contextmanager
    def opened(bench: Bench) -> Iterator[Run]:
        source = lineitem.of(bench)
        rows = source if from_files else pq.read_table(list(source.files))

        def run() -> float:
            table = create(bench.work / "warehouse", source)
            with Stopwatch() as watch:
                added = append(table, rows)
            check_rows("an append", added, source.rows)
            return watch.seconds

        yield run

    return opened


def _line(name: str, what: str, against: str, ours: Callable[..., int], peer: Callable[..., int]) -> Line:
    from_files = name == "local-files"
    return Line(
        name=name,
        what=what,
        against=against,
        ours=_side(_our_table, ours, from_files=from_files),
        peer=_side(_their_table, peer, from_files=from_files),
        goal=GOAL,
        prepare=lineitem.of,
    )


LINES = (
    _line(
        "local-rows",
        "append of {rows} Arrow rows in the process",
        "PyIceberg",
        lambda table, rows: table.append(rows).added_records,
        _their_rows,
    ),
    _line(
        "local-files",
        "append of Parquet files in the process",
        "PyIceberg and read_table",
        _our_files,
        lambda table, source: _their_rows(table, pq.read_table(list(source.files))),
    ),
)


def _fresh(folder: Path) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return f"sqlite:///{folder}/catalog.db"
