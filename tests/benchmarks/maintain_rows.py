"""Deleting rows of a table of 30 million, both ways, and overwriting the partitions of files that come in.

1 % of the rows of every file of the table are deleted. No partition and no statistics select them: all files are read.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.benchmarks import lineitem
from tests.benchmarks.appends import BY_MONTH
from tests.benchmarks.line import Line
from tests.benchmarks.maintained import Frozen, Warehouse, against_java, fill
from tests.benchmarks.measure import note
from tests.benchmarks.sessions import check_rows
from tests.support.append_steps import commit_append, plan_append

COPY_GOAL, MERGE_GOAL, OVERWRITE_GOAL = 0.4, 0.5, 0.5
ROWS, FILES = 30_000_000, 60
FILE_ROWS = ROWS // FILES
KINDS, KIND = 100, 7
PREDICATE = f"kind = {KIND}"
COLUMNS = {
    "id": "long",
    "customer": "long",
    "kind": "int",
    "day": "date",
    "amount": "decimal(15,2)",
    "channel": "string",
    "comment": "string",
}


class _Delete:
    """A delete of some rows of every file, in one of the modes."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def table(self, warehouse: Warehouse) -> Frozen:
        frozen = Frozen.of(warehouse.folder / "db" / "wide", lambda: make_wide(warehouse))
        note(f"  {_matching_rows(frozen.folder)} rows match")
        return _Prepared(frozen, warehouse, self._mode)

    def ours(self, warehouse: Warehouse) -> None:
        request = DeleteRequest(predicate=PREDICATE, mode=self._mode)
        result = delete(Work(warehouse.load("wide"), run=warehouse.run), request)
        check_rows("our delete", result.deleted_records, _matching_rows(warehouse.folder / "db" / "wide"))
        self._check("our delete", warehouse)

    def java(self, warehouse: Warehouse) -> None:
        warehouse.java.sql(f"delete from ref.db.wide where {PREDICATE}")
        self._check("Java's delete", warehouse)

    def _check(self, who: str, warehouse: Warehouse) -> None:
        matching = _matching_rows(warehouse.folder / "db" / "wide")
        name, expected = {
            "copy-on-write": ("total-records", ROWS - matching),
            "merge-on-read": ("total-position-deletes", matching),
        }[self._mode]
        check_rows(who, int(warehouse.summary("wide")[name]), expected)

    def line(self, goal: float, *, in_turns: bool) -> Line:
        return against_java(
            self._mode,
            f"{self._mode} delete of 1 % of {ROWS:,} rows in {FILES} files",
            self.table,
            ours=self.ours,
            java=self.java,
            goal=goal,
            in_turns=in_turns,
        )


@cache
def _matching_rows(folder: Path) -> int:
    kinds = (
        pq.read_table(path, columns=["kind"]).column(0) for path in sorted((folder / "data").rglob("*made-*.parquet"))
    )
    return sum(int(pc.sum(pc.equal(kind, KIND)).as_py()) for kind in kinds)


class _Prepared(Frozen):
    """The table with the mode of deleting set, which Java's statement has no word for."""

    def __init__(self, frozen: Frozen, warehouse: Warehouse, mode: str) -> None:
        super().__init__(frozen.folder)
        self._warehouse, self._mode = warehouse, mode

    def restore(self) -> None:
        super().restore()
        self._warehouse.load("wide").alter([{"set_properties": {"write.delete.mode": self._mode}}])


def make_wide(warehouse: Warehouse, name: str = "wide", files: int = FILES) -> None:
    """Make the table, or a smaller one of some files of the same size."""
    note(f"  making {files * FILE_ROWS:,} rows in {files} files")
    table = Table.create(warehouse.catalog, f"db.{name}", schema=COLUMNS)
    fill(table, wide_rows, [FILE_ROWS] * files, "made")


def wide_rows(number: int, count: int) -> pa.Table:
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
    return pa.table(columns, names=list(COLUMNS))


def _months(warehouse: Warehouse) -> Frozen:
    """Return the table of rows by month, which is made by our append if it is not there."""
    name, source = f"months_{warehouse.bench.rows}", lineitem.of(warehouse.bench)

    def make() -> None:
        table = Table.create(warehouse.catalog, f"db.{name}", schema=lineitem.COLUMNS, partition_by=BY_MONTH)
        plan = plan_append(table, Source.from_files(source.pattern))
        commit_append(table, plan, warehouse.run(plan))

    return Frozen.of(warehouse.folder / "db" / name, make)


def _our_overwrite(warehouse: Warehouse) -> None:
    source = lineitem.of(warehouse.bench)
    request = OverwriteRequest(rows=Source.from_files(source.pattern), replace="partitions")
    table = warehouse.load(f"months_{source.rows}")
    result = overwrite(Work(table, run=warehouse.run), request)
    check_rows("our overwrite", result.deleted_records, source.rows)
    check_rows("our overwrite", result.added_records, source.rows)
    note(f"    ours: {result.added_data_files} files")


def _overwrite_of_java(warehouse: Warehouse) -> None:
    source = lineitem.of(warehouse.bench)
    name = f"months_{source.rows}"
    warehouse.java.sql(f"insert overwrite ref.db.{name} select * from parquet.`{source.folder.as_uri()}`")
    summary = warehouse.summary(name)
    check_rows("Java's overwrite", int(summary["deleted-records"]), source.rows)
    check_rows("Java's overwrite", int(summary["total-records"]), source.rows)
    note(f"    Iceberg Java: {summary['added-data-files']} files")


LINES = (
    # Java needs longer than a minute, after which Spark would have ended our Python workers.
    _Delete("copy-on-write").line(COPY_GOAL, in_turns=False),
    _Delete("merge-on-read").line(MERGE_GOAL, in_turns=True),
    against_java(
        "overwrite",
        "dynamic overwrite of all months by {rows} rows from files",
        _months,
        ours=_our_overwrite,
        java=_overwrite_of_java,
        goal=OVERWRITE_GOAL,
    ),
)
