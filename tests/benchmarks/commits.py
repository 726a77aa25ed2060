"""A commit of one small file on a table of 100,000 files: it must not grow with the table.

Both sides load the table from a SQL catalog of their own and append ten rows; loading, writing the rows and committing
all count. Two lines: against the limit of 0.1 s, as if it were a peer, and against PyIceberg.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.benchmarks import big_metadata
from tests.benchmarks.line import Bench, Line, Run
from tests.benchmarks.measure import Stopwatch
from tests.benchmarks.sessions import check_rows

LIMIT_SECONDS, GOAL, PEER_GOAL = 0.1, 1.0, 1.0
MIN_RUNS = 9
"""Such short runs need more than three for a median that says something."""
NAME = "db.big"


@contextmanager
def _restored(bench: Bench) -> Iterator[Path]:
    """Give the table's metadata file, and remove what comes to the table."""
    metadata = big_metadata.make(bench.folder)
    before = set(metadata.parent.parent.rglob("*"))
    try:
        yield metadata
    finally:
        for path in set(metadata.parent.parent.rglob("*")) - before:
            if path.is_file():
                path.unlink(missing_ok=True)


def _rows() -> pa.Table:
    day = big_metadata.FIRST_DAY
    columns = {
        "l_orderkey": pa.array(range(10), pa.int64()),
        "l_shipdate": pa.array([day] * 10, pa.int32()).view(pa.date32()),
        "l_comment": pa.array(["quickly"] * 10),
    }
    return pa.table(columns)


@contextmanager
def _committing(bench: Bench, catalog: Any, append: Callable[[pa.Table], int]) -> Iterator[Run]:
    catalog.create_namespace("db")
    with _restored(bench) as metadata:
        catalog.register_table(NAME, metadata.as_uri())
        rows = _rows()

        def commit() -> float:
            with Stopwatch() as watch:
                added = append(rows)
            check_rows("a commit", added, rows.num_rows)
            return watch.seconds

        yield commit


def ours(bench: Bench) -> AbstractContextManager[Run]:
    # The table of a million files is made once, for all runs.
    elsewhere = {"allowed-locations": bench.work.parents[1].as_uri()}
    catalog = load_catalog("ours", type="sql", uri=_uri(bench), warehouse=bench.work.as_uri(), **elsewhere)
    return _committing(bench, catalog, lambda rows: Table.load(catalog, NAME).append(rows).added_records)


def pyiceberg(bench: Bench) -> AbstractContextManager[Run]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("peer", uri=_uri(bench), warehouse=bench.work.as_uri())

    def append(rows: pa.Table) -> int:
        table = catalog.load_table(NAME)
        table.append(rows)
        return int(table.current_snapshot().summary["added-records"])

    return _committing(bench, catalog, append)


def _uri(bench: Bench) -> str:
    return f"sqlite:///{bench.work}/catalog.db"


WHAT = f"commit on a table of {big_metadata.SNAPSHOTS * big_metadata.FILES_PER_SNAPSHOT:,} files, load and ten rows"
LINES = tuple(
    Line(
        name=name,
        what=f"{WHAT} included",
        against=against,
        ours=ours,
        peer=peer,
        goal=goal,
        prepare=lambda bench: big_metadata.make(bench.folder),
        least_runs=MIN_RUNS,
    )
    for name, against, peer, goal in (
        ("commit", f"the limit of {LIMIT_SECONDS} s", LIMIT_SECONDS, GOAL),
        ("commit-pyiceberg", "PyIceberg", pyiceberg, PEER_GOAL),
    )
)
