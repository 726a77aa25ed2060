"""Deleting rows of a table of 30 million, both ways, and overwriting the partitions of files that come in.

Of the table 1 % of the rows of every file goes, which no partition and no statistics tell: all files are read. Writing
all of them anew takes long, so that no run of it is spent on warming up.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow as pa

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.data.write.rows import write_rows
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.table import Table
from tests.benchmarks import lineitem
from tests.benchmarks.appends import BY_MONTH
from tests.benchmarks.maintained import Frozen, Sides, against_java
from tests.benchmarks.measure import Measurement, note
from tests.benchmarks.sessions import check_rows
from tests.support.append_steps import commit_append, plan_append

COPY_GOAL, MERGE_GOAL, OVERWRITE_GOAL = 0.4, 0.5, 0.5
ROWS, FILES = 30_000_000, 60
KINDS = 100
PREDICATE = "kind = 7"
COLUMNS = {
    "id": "long",
    "customer": "long",
    "kind": "int",
    "day": "date",
    "amount": "decimal(15,2)",
    "channel": "string",
    "comment": "string",
}


def copy_on_write(sides: Sides, *, runs: int) -> Iterator[Measurement]:
    """Measure a delete that writes every file anew."""
    yield _delete(sides, "copy-on-write", COPY_GOAL, runs, warm_up=0)


def merge_on_read(sides: Sides, *, runs: int) -> Iterator[Measurement]:
    """Measure a delete that writes positions."""
    yield _delete(sides, "merge-on-read", MERGE_GOAL, runs, warm_up=1)


def _delete(sides: Sides, mode: str, goal: float, runs: int, *, warm_up: int) -> Measurement:
    frozen = Frozen.of(sides.warehouse / "db" / "wide", lambda: _make_wide(sides))
    (found,) = sides.java.sql(f"select count(*) as rows from ref.db.wide where {PREDICATE}")
    going = int(found["rows"])
    note(f"  {going} rows are to go")
    counted = {"copy-on-write": ("total-records", ROWS - going), "merge-on-read": ("total-position-deletes", going)}
    name, expected = counted[mode]

    def ours() -> None:
        result = delete(Work(sides.load("wide"), run=sides.run), DeleteRequest(predicate=PREDICATE, mode=mode))
        check_rows("our delete", result.deleted_records, going)
        check_rows("our delete", int(sides.java_summary("wide")[name]), expected)

    def java() -> None:
        sides.java.sql(f"delete from ref.db.wide where {PREDICATE}")
        check_rows("Java's delete", int(sides.java_summary("wide")[name]), expected)

    return against_java(
        f"{mode} delete of 1 % of {ROWS:,} rows in {FILES} files",
        _Prepared(frozen, sides, mode),
        ours=ours,
        java=java,
        goal=goal,
        runs=runs,
        warm_up=warm_up,
    )


class _Prepared(Frozen):
    """The table with the mode of deleting set, which Java's statement has no word for."""

    def __init__(self, frozen: Frozen, sides: Sides, mode: str) -> None:
        super().__init__(frozen.folder)
        self._sides, self._mode = sides, mode

    def restore(self) -> None:
        """Put the table back, and set its mode."""
        super().restore()
        self._sides.load("wide").alter([{"set_properties": {"write.delete.mode": self._mode}}])


def _make_wide(sides: Sides) -> None:
    note(f"  making {ROWS:,} rows in {FILES} files")
    table = Table.create(sides.catalog, "db.wide", schema=COLUMNS)
    document = metadata_json.write(table.metadata)
    with ProcessPoolExecutor(2) as pool:
        written = pool.map(_write_wide, [document] * FILES, range(FILES))
        files = [file for files in written for file in files]
    check_rows("the table", len(files), FILES)
    note(f"  {sum(file.file_size_in_bytes for file in files) >> 20} MiB")
    table.commit(AppendFiles(table.io, files, table.commit_settings(), written_schema=table.schema()))


def _write_wide(document: bytes, number: int) -> tuple[DataFile, ...]:
    count = ROWS // FILES
    dice = np.random.Generator(np.random.PCG64([1, number]))
    first = number * count
    columns = [
        pa.array(np.arange(first, first + count)),
        pa.array(dice.integers(1, 1_000_001, count)),
        pa.array(dice.integers(0, KINDS, count).astype(np.int32)),
        lineitem.date(lineitem.FIRST_DAY + dice.integers(0, lineitem.DAYS, count)),
        lineitem.decimal(dice.integers(100, 10_000_000, count)),
        lineitem.choice(lineitem.MODES, dice.integers(0, len(lineitem.MODES), count)),
        lineitem.comments(dice, count),
    ]
    rows = pa.table(columns, names=list(COLUMNS))
    return write_rows(load_file_io(), metadata_json.read(document), rows, file_prefix=f"made-{number}")


def dynamic_overwrite(sides: Sides, *, rows: int, runs: int) -> Iterator[Measurement]:
    """Measure an overwrite of all months by files that hold rows of each."""
    source = lineitem.make(sides.folder, rows=rows)
    name = f"months_{rows}"

    def make() -> None:
        table = Table.create(sides.catalog, f"db.{name}", schema=lineitem.COLUMNS, partition_by=BY_MONTH)
        plan = plan_append(table, Source.from_files(source.pattern))
        commit_append(table, plan, sides.run(plan))

    frozen = Frozen.of(sides.warehouse / "db" / name, make)

    def ours() -> None:
        request = OverwriteRequest(rows=Source.from_files(source.pattern), replace="partitions")
        result = overwrite(Work(sides.load(name), run=sides.run), request)
        check_rows("our overwrite", result.deleted_records, rows)
        check_rows("our overwrite", result.added_records, rows)
        note(f"    ours: {result.added_data_files} files")

    def java() -> None:
        sides.java.sql(f"insert overwrite ref.db.{name} select * from parquet.`{source.folder.as_uri()}`")
        summary = sides.java_summary(name)
        check_rows("Java's overwrite", int(summary["deleted-records"]), rows)
        check_rows("Java's overwrite", int(summary["total-records"]), rows)
        note(f"    Iceberg Java: {summary['added-data-files']} files")

    what = f"dynamic overwrite of all months by {rows:,} rows from files"
    yield against_java(what, frozen, ours=ours, java=java, goal=OVERWRITE_GOAL, runs=runs)
