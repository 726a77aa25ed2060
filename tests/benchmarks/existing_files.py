"""Existing files join a table: a thousand footers are read, and one snapshot is committed."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.table import Table
from tests.benchmarks.maintained import Frozen, Warehouse, against_java
from tests.benchmarks.measure import note
from tests.benchmarks.sessions import check_rows

GOAL = 0.5
FILES, DAYS, ROWS = 1_000, 20, 1_000
COLUMNS = 12
"""So many columns a file has, of which a third are texts; the day is a folder."""
_DONE = "_MADE"


def _source(warehouse: Warehouse) -> Path:
    return warehouse.folder / "existing-files"


def _rows(number: int) -> pa.Table:
    numbers = np.arange(number * ROWS, (number + 1) * ROWS)
    columns = {"id": pa.array(numbers)}
    for index in range(1, COLUMNS):
        if index % 3 == 0:
            columns[f"c{index}"] = pa.array([f"text {value * index}" for value in numbers.tolist()])
        elif index % 3 == 1:
            columns[f"c{index}"] = pa.array(numbers * 0.5)
        else:
            columns[f"c{index}"] = pa.array(numbers % (index * 100))
    return pa.table(columns)


def _make_source(folder: Path) -> None:
    if (folder / _DONE).exists():
        return
    note(f"  making {FILES:,} files")
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(FILES):
        path = folder / f"ds=day{number % DAYS}" / f"part-{number:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_rows(number), path)
    (folder / _DONE).touch()


def _empty_table(warehouse: Warehouse) -> Frozen:
    """Return a table without files, and make the files that join it."""
    _make_source(_source(warehouse))
    kinds = {"id": "long", **{f"c{n}": ("string", "double", "long")[n % 3] for n in range(1, COLUMNS)}, "ds": "string"}

    def make() -> None:
        Table.create(warehouse.catalog, "db.added", schema=kinds, partition_by=["ds"])

    return Frozen.of(warehouse.folder / "db" / "added", make)


def _ours(warehouse: Warehouse) -> None:
    result = warehouse.load("added").add_files(source=str(_source(warehouse)))
    check_rows("our table", result.added_records, FILES * ROWS)


def _java(warehouse: Warehouse) -> None:
    (found,) = warehouse.java.sql(
        f"call ref.system.add_files(table => 'db.added', source_table => '`parquet`.`{_source(warehouse)}`')"
    )
    check_rows("Java's table", found["added_files_count"], FILES)


LINES = (
    against_java(
        "add_files",
        f"add_files of {FILES:,} files with {COLUMNS} columns in {DAYS} partitions",
        _empty_table,
        ours=_ours,
        java=_java,
        goal=GOAL,
    ),
)
