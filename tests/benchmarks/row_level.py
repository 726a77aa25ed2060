"""Merging rows into a table of 30 million, both ways, updating 1 % of its rows, and copying some into another table.

The source of a merge has 1 % as many rows as the table, nine of ten with keys of the table, which are in all files; the
others are new. With fewer rows of lineitem (`--rows 500000`) the table has fewer files, of the same size.
"""

import datetime as dt
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.benchmarks import lineitem
from tests.benchmarks.line import Bench, Line
from tests.benchmarks.maintain_rows import COLUMNS, FILE_ROWS, FILES, KIND, KINDS, make_wide, wide_rows
from tests.benchmarks.maintained import Frozen, Warehouse, against_java
from tests.benchmarks.sessions import check_rows

COPY_GOAL, MERGE_GOAL, UPDATE_GOAL, SELECT_GOAL = 0.6, 0.5, 0.3, 1.0
CLAUSES = (
    "when matched then update set amount = source.amount, comment = source.comment",
    "when not matched then insert *",
)
SELECTED = ("id", "customer", "day", "amount", "comment")
SELECT, FIRST = f"select {', '.join(SELECTED)}", dt.date(1993, 1, 1)
FILTER = f"kind < 50 and day >= date'{FIRST}'"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wide:
    """The table of the size that is asked for; `wide` is that of the deletes, too."""

    files: int

    @classmethod
    def of(cls, bench: Bench) -> "_Wide":
        return cls(files=max(1, FILES * bench.rows // lineitem.ROWS))

    @property
    def name(self) -> str:
        return "wide" if self.files == FILES else f"wide_{self.files}"

    @property
    def rows(self) -> int:
        return self.files * FILE_ROWS

    @property
    def known(self) -> int:
        return self.rows * 9 // 1000

    @property
    def new(self) -> int:
        return self.rows // 1000

    def frozen(self, warehouse: Warehouse, **properties: str) -> Frozen:
        frozen = Frozen.of(warehouse.folder / "db" / self.name, lambda: make_wide(warehouse, self.name, self.files))
        return _Changed(frozen, warehouse, {name.replace("_", "."): value for name, value in properties.items()})

    def source(self, warehouse: Warehouse) -> Path:
        """Return the source's file, which is made if it is not there."""
        path = warehouse.folder / f"feed-of-{self.name}.parquet"
        if not path.exists():
            known = np.random.Generator(np.random.PCG64(9)).choice(self.rows, self.known, replace=False)
            keys = np.concatenate([known, np.arange(self.rows, self.rows + self.new)])
            rows = wide_rows(self.files, self.known + self.new)
            pq.write_table(rows.set_column(0, "id", pa.array(keys)), path)
        return path


class _Changed(Frozen):
    """The table with a mode set, which Java's statements have no word for."""

    def __init__(self, frozen: Frozen, warehouse: Warehouse, properties: dict[str, str]) -> None:
        super().__init__(frozen.folder)
        self._warehouse, self._properties = warehouse, properties

    def restore(self) -> None:
        super().restore()
        if self._properties:
            self._warehouse.load(self.folder.name).alter([{"set_properties": self._properties}])


class _Merge:
    """A merge in one of the modes."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def table(self, warehouse: Warehouse) -> Frozen:
        wide = _Wide.of(warehouse.bench)
        wide.source(warehouse)
        return wide.frozen(warehouse, write_merge_mode=self._mode)

    def ours(self, warehouse: Warehouse) -> None:
        wide = _Wide.of(warehouse.bench)
        request = MergeRequest(rows=Source.from_files(wide.source(warehouse).as_uri()), on=["id"], clauses=CLAUSES)
        result = merge(Work(warehouse.load(wide.name), run=warehouse.run), request)
        check_rows("our merge", result.updated_records, wide.known)
        check_rows("our merge", result.added_records, wide.new)

    def java(self, warehouse: Warehouse) -> None:
        wide = _Wide.of(warehouse.bench)
        source = f"select * from parquet.`{wide.source(warehouse).as_uri()}`"
        table, clauses = f"ref.db.{wide.name}", " ".join(CLAUSES)
        warehouse.java.sql(f"merge into {table} target using ({source}) source on target.id = source.id {clauses}")
        added = int(warehouse.summary(wide.name)["total-records"]) - wide.rows
        check_rows("Java's merge", added, wide.new + (0 if self._mode == "copy-on-write" else wide.known))

    def line(self, goal: float) -> Line:
        return against_java(
            f"merge-{self._mode}",
            f"{self._mode} merge of 1 % into six times {{rows}} rows in files of {FILE_ROWS:,}",
            self.table,
            ours=self.ours,
            java=self.java,
            goal=goal,
            # Java needs longer than a minute, after which Spark would have ended our Python workers.
            in_turns=False,
        )


def _our_update(warehouse: Warehouse) -> None:
    wide = _Wide.of(warehouse.bench)
    request = UpdateRequest(set={"amount": "amount * 2", "channel": "'none'"}, where=f"kind = {KIND}")
    result = update(Work(warehouse.load(wide.name), run=warehouse.run), request)
    check_rows("our update", round(result.updated_records * KINDS / wide.rows), 1)


def _update_of_java(warehouse: Warehouse) -> None:
    wide = _Wide.of(warehouse.bench)
    warehouse.java.sql(f"update ref.db.{wide.name} set amount = amount * 2, channel = 'none' where kind = {KIND}")
    check_rows("Java's update", int(warehouse.summary(wide.name)["total-records"]), wide.rows)


# -- insert … select ---------------------------------------------------------------------------------------------------


def _copied(warehouse: Warehouse) -> Frozen:
    """Return the empty table that rows are copied into, and make the one that they come from."""
    _Wide.of(warehouse.bench).frozen(warehouse)

    def make() -> None:
        Table.create(warehouse.catalog, "db.copied", schema={name: COLUMNS[name] for name in SELECTED})

    return Frozen.of(warehouse.folder / "db" / "copied", make)


def _our_select(warehouse: Warehouse) -> None:
    wide = _Wide.of(warehouse.bench)
    inputs = {"wide": Input(open=lambda: warehouse.load(wide.name))}
    request = AppendRequest(rows=Source.from_sql(f"{SELECT} from wide where {FILTER}"), inputs=inputs)
    result = append(Work(warehouse.load("copied"), run=warehouse.run), request)
    check_rows("our copy", result.added_records, _selected_rows(warehouse.folder / "db" / wide.name))


def _select_of_java(warehouse: Warehouse) -> None:
    wide = _Wide.of(warehouse.bench)
    warehouse.java.sql(f"insert into ref.db.copied {SELECT} from ref.db.{wide.name} where {FILTER}")
    rows = _selected_rows(warehouse.folder / "db" / wide.name)
    check_rows("Java's copy", int(warehouse.summary("copied")["total-records"]), rows)


@cache
def _selected_rows(folder: Path) -> int:
    return sum(
        pq.read_table(path, columns=["kind"], filters=(pc.field("kind") < 50) & (pc.field("day") >= FIRST)).num_rows
        for path in sorted((folder / "data").rglob("*made-*.parquet"))
    )


LINES = (
    _Merge("copy-on-write").line(COPY_GOAL),
    _Merge("merge-on-read").line(MERGE_GOAL),
    against_java(
        "update",
        f"update of 1 % of six times {{rows}} rows in files of {FILE_ROWS:,}",
        lambda warehouse: _Wide.of(warehouse.bench).frozen(warehouse, write_update_mode="copy-on-write"),
        ours=_our_update,
        java=_update_of_java,
        goal=UPDATE_GOAL,
        in_turns=False,
    ),
    against_java(
        "insert-select",
        f"insert … select of {len(SELECTED)} columns and two of five of six times {{rows}} rows of an Iceberg table",
        _copied,
        ours=_our_select,
        java=_select_of_java,
        goal=SELECT_GOAL,
        in_turns=False,
    ),
)
