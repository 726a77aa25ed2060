"""An upsert of Arrow rows without a JVM, side by side with PyIceberg: the same rows into the same table of ten files.

Nearly all keys of the rows are in the table, spread over all of its files, so that both sides write every file anew.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.benchmarks.line import Bench, Line, Run, Side
from tests.benchmarks.measure import Stopwatch
from tests.benchmarks.sessions import check_rows

GOAL = 0.2
NAME, FILES = "db.t", 10
ROWS, SOURCE_ROWS = 1_000_000, 10_000


def _rows(ids: np.ndarray) -> pa.Table:
    dice = np.random.default_rng(int(ids[0]))
    return pa.table({"id": ids, "amount": dice.random(len(ids)), "text": [f"text {number}" for number in ids.tolist()]})


def _source() -> pa.Table:
    dice = np.random.default_rng(7)
    return _rows(np.sort(dice.choice(ROWS + SOURCE_ROWS // 10, SOURCE_ROWS, replace=False)))


def _our_table(folder: Path) -> Table:
    catalog = load_catalog("ours", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    return Table.create(catalog, NAME, schema={"id": "long", "amount": "double", "text": "string"})


def _their_table(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("peer", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    return catalog.create_table(NAME, _rows(np.arange(1)).schema)


def _our_upsert(table: Table, rows: pa.Table) -> int:
    result = table.upsert(rows, ["id"])
    return result.updated_records + result.added_records


def _their_upsert(table: Any, rows: pa.Table) -> int:
    result = table.upsert(rows, ["id"])
    return int(result.rows_updated + result.rows_inserted)


def _side(create: Callable[[Path], Any], upsert: Callable[[Any, pa.Table], int]) -> Side:
    """Return the side that upserts the rows into a new table in each run."""

    @contextmanager
    def opened(bench: Bench) -> Iterator[Run]:
        rows, folder = _source(), bench.work / "warehouse"

        def run() -> float:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            table = create(folder)
            for number in range(FILES):
                table.append(_rows(np.arange(number * ROWS // FILES, (number + 1) * ROWS // FILES)))
            with Stopwatch() as watch:
                changed = upsert(table, rows)
            # PyIceberg compares other columns, too: each row has a new amount.
            check_rows("an upsert", changed, SOURCE_ROWS)
            return watch.seconds

        yield run

    return opened


LINES = (
    Line(
        name="upsert",
        what=f"upsert of {SOURCE_ROWS:,} Arrow rows into {ROWS:,} in {FILES} files, in the process",
        against="PyIceberg",
        ours=_side(_our_table, _our_upsert),
        peer=_side(_their_table, _their_upsert),
        goal=GOAL,
    ),
)
