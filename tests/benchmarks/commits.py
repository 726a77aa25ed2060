"""A commit of one small file on a table of 100,000 files: it must not grow with the table.

Both sides load the table from a SQL catalog of their own and append ten rows; loading, writing the rows and committing
all count. Two lines: against the limit of 0.1 s, as if it were a peer, and against PyIceberg.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.benchmarks import big_metadata
from tests.benchmarks.measure import Measurement, Stopwatch, alternate
from tests.benchmarks.sessions import check_rows

LIMIT_SECONDS, GOAL, PEER_GOAL = 0.1, 1.0, 1.0
MIN_RUNS = 9
"""Such short runs need more than three for a median that says something."""
NAME = "db.big"


def measure(folder: Path, *, runs: int) -> Iterator[Measurement]:
    """Measure commits on the same starting state, side by side."""
    metadata = big_metadata.make(folder)
    before = set(metadata.parent.parent.rglob("*"))
    try:
        contestants = {"ours": _ours(metadata, folder), "pyiceberg": _pyiceberg(metadata, folder)}
        found = alternate(contestants, runs=max(runs, MIN_RUNS))
    finally:
        for path in set(metadata.parent.parent.rglob("*")) - before:
            if path.is_file():
                path.unlink()
    what = f"commit on a table of {big_metadata.SNAPSHOTS * big_metadata.FILES_PER_SNAPSHOT:,} files"
    yield Measurement(
        name=f"{what}, load and ten rows included, vs the limit of {LIMIT_SECONDS} s, seconds",
        ours=found["ours"],
        peer=LIMIT_SECONDS,
        goal=GOAL,
    )
    yield Measurement(
        name=f"{what}, load and ten rows included, vs PyIceberg, seconds",
        ours=found["ours"],
        peer=found["pyiceberg"],
        goal=PEER_GOAL,
    )


def _rows() -> pa.Table:
    """Return ten rows of one partition."""
    day = big_metadata.FIRST_DAY
    columns = {
        "l_orderkey": pa.array(range(10), pa.int64()),
        "l_shipdate": pa.array([day] * 10, pa.int32()).view(pa.date32()),
        "l_comment": pa.array(["quickly"] * 10),
    }
    return pa.table(columns)


def _ours(metadata: Path, folder: Path) -> Callable[[], float]:
    catalog = load_catalog("ours", type="sql", uri=_fresh(folder / "big-ours.db"), warehouse=folder.as_uri())
    catalog.create_namespace("db")
    catalog.register_table(NAME, metadata.as_uri())
    rows = _rows()

    def commit() -> float:
        with Stopwatch() as watch:
            written = Table.load(catalog, NAME).append(rows)
        check_rows("our commit", written.added_records, rows.num_rows)
        return watch.seconds

    return commit


def _pyiceberg(metadata: Path, folder: Path) -> Callable[[], float]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("peer", uri=_fresh(folder / "big-pyiceberg.db"), warehouse=folder.as_uri())
    catalog.create_namespace("db")
    catalog.register_table(NAME, metadata.as_uri())
    rows = _rows()

    def commit() -> float:
        with Stopwatch() as watch:
            table = catalog.load_table(NAME)
            table.append(rows)
        check_rows("PyIceberg's commit", int(table.current_snapshot().summary["added-records"]), rows.num_rows)
        return watch.seconds

    return commit


def _fresh(path: Path) -> str:
    path.unlink(missing_ok=True)
    return f"sqlite:///{path}"
