"""Merging rows into a table of 30 million, both ways, and updating 1 % of its rows.

The source has 300,000 rows, 270,000 of them with keys of the table, which are in all files; the others are new.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from tests.benchmarks.line import Line
from tests.benchmarks.maintain_rows import FILES, KIND, KINDS, ROWS, make_wide, wide_rows
from tests.benchmarks.maintained import Frozen, Warehouse, against_java
from tests.benchmarks.sessions import check_rows

COPY_GOAL, MERGE_GOAL, UPDATE_GOAL = 0.6, 0.5, 0.3
KNOWN, NEW = 270_000, 30_000
CLAUSES = (
    "when matched then update set amount = source.amount, comment = source.comment",
    "when not matched then insert *",
)


class _Changed(Frozen):
    """The table with a mode set, which Java's statements have no word for."""

    def __init__(self, frozen: Frozen, warehouse: Warehouse, properties: dict[str, str]) -> None:
        super().__init__(frozen.folder)
        self._warehouse, self._properties = warehouse, properties

    def restore(self) -> None:
        super().restore()
        self._warehouse.load("wide").alter([{"set_properties": self._properties}])


def _table(warehouse: Warehouse, **properties: str) -> Frozen:
    frozen = Frozen.of(warehouse.folder / "db" / "wide", lambda: make_wide(warehouse))
    return _Changed(frozen, warehouse, {name.replace("_", "."): value for name, value in properties.items()})


def _source(warehouse: Warehouse) -> Path:
    """Return the source's file, which is made if it is not there."""
    path = warehouse.folder / "feed.parquet"
    if not path.exists():
        known = np.random.Generator(np.random.PCG64(9)).choice(ROWS, KNOWN, replace=False)
        keys = np.concatenate([known, np.arange(ROWS, ROWS + NEW)])
        rows = wide_rows(FILES, KNOWN + NEW)
        pq.write_table(rows.set_column(0, "id", pa.array(keys)), path)
    return path


class _Merge:
    """A merge in one of the modes."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def table(self, warehouse: Warehouse) -> Frozen:
        _source(warehouse)
        return _table(warehouse, write_merge_mode=self._mode)

    def ours(self, warehouse: Warehouse) -> None:
        source = Source.from_files(_source(warehouse).as_uri())
        request = MergeRequest(rows=source, on=["id"], clauses=CLAUSES)
        result = merge(Work(warehouse.load("wide"), run=warehouse.run), request)
        check_rows("our merge", result.updated_records, KNOWN)
        check_rows("our merge", result.added_records, NEW)

    def java(self, warehouse: Warehouse) -> None:
        source = f"select * from parquet.`{_source(warehouse).as_uri()}`"
        clauses = " ".join(CLAUSES)
        warehouse.java.sql(f"merge into ref.db.wide target using ({source}) source on target.id = source.id {clauses}")
        added = int(warehouse.summary("wide")["total-records"]) - ROWS
        check_rows("Java's merge", added, NEW if self._mode == "copy-on-write" else NEW + KNOWN)

    def line(self, goal: float) -> Line:
        return against_java(
            f"merge-{self._mode}",
            f"{self._mode} merge of {KNOWN + NEW:,} rows into {ROWS:,} rows in {FILES} files",
            self.table,
            ours=self.ours,
            java=self.java,
            goal=goal,
            # Java needs longer than a minute, after which Spark would have ended our Python workers.
            in_turns=False,
        )


def _our_update(warehouse: Warehouse) -> None:
    request = UpdateRequest(set={"amount": "amount * 2", "channel": "'none'"}, where=f"kind = {KIND}")
    result = update(Work(warehouse.load("wide"), run=warehouse.run), request)
    check_rows("our update", round(result.updated_records * KINDS / ROWS), 1)


def _update_of_java(warehouse: Warehouse) -> None:
    warehouse.java.sql(f"update ref.db.wide set amount = amount * 2, channel = 'none' where kind = {KIND}")
    check_rows("Java's update", int(warehouse.summary("wide")["total-records"]), ROWS)


LINES = (
    _Merge("copy-on-write").line(COPY_GOAL),
    _Merge("merge-on-read").line(MERGE_GOAL),
    against_java(
        "update",
        f"update of 1 % of {ROWS:,} rows in {FILES} files",
        lambda warehouse: _table(warehouse, write_update_mode="copy-on-write"),
        ours=_our_update,
        java=_update_of_java,
        goal=UPDATE_GOAL,
        in_turns=False,
    ),
)
