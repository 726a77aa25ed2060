"""Compaction and sorting of 400 small files: the whole of it, from the plan to the commit, with the job on Spark 3.5.

Bare pyarrow, two processes that read the same files and write files of the target size, says how much of our time is
anything else than Parquet.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.benchmarks import lineitem
from tests.benchmarks.line import Bench, Line, Run
from tests.benchmarks.maintained import Frozen, Warehouse, against_java, fill
from tests.benchmarks.measure import note
from tests.benchmarks.sessions import bare_pyarrow, check_rows

BINPACK_GOAL, BARE_GOAL, SORT_GOAL = 0.33, 1.1, 0.45
SMALL_FILES, MULTIPLE = 400, 4
"""With four times the rows of lineitem they are 800 MB: less would be a measurement of what starting a job takes."""
TARGET_BYTES = 128 << 20
SORT_COLUMN = "l_shipdate"


class _Small:
    """A table of many small files with the rows of lineitem, and what both sides do to it."""

    def __init__(self, warehouse: Warehouse) -> None:
        rows = MULTIPLE * warehouse.bench.rows
        self._warehouse, self.rows, self._name = warehouse, rows, f"small_{rows}"

    def frozen(self) -> Frozen:
        return Frozen.of(self._warehouse.folder / "db" / self._name, self._make)

    def sources(self) -> list[Path]:
        tasks = self._warehouse.load(self._name).scan().plan_files()
        note(f"  {len(tasks)} files, {sum(task.file.file_size_in_bytes for task in tasks) >> 20} MiB")
        return [Path(task.file.file_path.removeprefix("file://")) for task in tasks]

    def _make(self) -> None:
        note(f"  making {SMALL_FILES} files of {self.rows} rows")
        properties = {"write.target-file-size-bytes": str(TARGET_BYTES), "write.parquet.compression-codec": "zstd"}
        table = Table.create(
            self._warehouse.catalog, f"db.{self._name}", schema=lineitem.COLUMNS, properties=properties
        )
        counts = [self.rows // SMALL_FILES + (number < self.rows % SMALL_FILES) for number in range(SMALL_FILES)]
        fill(table, lineitem.table, counts, "manual")

    def ours(self, strategy: str) -> None:
        sort_by = (SORT_COLUMN,) if strategy == "sort" else ()
        request = CompactRequest(strategy=strategy, sort_by=sort_by, options={"rewrite-all": True})
        result = compact(Work(self._warehouse.load(self._name), run=self._warehouse.run), request)
        check_rows("our compaction", result.carried_records, self.rows)
        note(f"    ours: {result.added_data_files} files")

    def java(self, strategy: str) -> None:
        order = f", sort_order => '{SORT_COLUMN} asc nulls first'" if strategy == "sort" else ""
        (found,) = self._warehouse.java.sql(
            f"call ref.system.rewrite_data_files(table => 'db.{self._name}', strategy => '{strategy}'{order}, "
            f"options => map('rewrite-all', 'true'))"
        )
        check_rows("Iceberg Java's files", found["rewritten_data_files_count"], SMALL_FILES)
        note(f"    Iceberg Java: {found['added_data_files_count']} files")


def _rewrite(sources: Sequence[Path], folder: Path) -> int:
    """Write the rows of files into files of about the target size, a row group for as much as one is full of."""
    schema = pq.read_schema(sources[0])
    waiting: list[pa.Table] = []
    waiting_bytes = rows = 0
    for number, path in enumerate(sources):
        waiting.append(pq.ParquetFile(path).read(use_threads=False))
        waiting_bytes += path.stat().st_size
        if waiting_bytes >= TARGET_BYTES or number == len(sources) - 1:
            table = pa.concat_tables(waiting)
            target = folder / f"{number}.parquet"
            with pq.ParquetWriter(target, schema, compression="zstd", store_decimal_as_integer=True) as writer:
                writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
            waiting, waiting_bytes = [], 0
    return rows


def _frozen(warehouse: Warehouse) -> Frozen:
    return _Small(warehouse).frozen()


@contextmanager
def _bare(bench: Bench) -> Iterator[Run]:
    with Warehouse(bench) as warehouse:
        small = _Small(warehouse)
        small.frozen()
        with bare_pyarrow(_rewrite, small.sources(), bench.work / "bare", small.rows) as run:
            yield run


def _against_java(strategy: str, what: str, goal: float) -> Line:
    return against_java(
        strategy,
        what,
        _frozen,
        ours=lambda warehouse: _Small(warehouse).ours(strategy),
        java=lambda warehouse: _Small(warehouse).java(strategy),
        goal=goal,
    )


BINPACK = _against_java("binpack", f"bin-pack of {SMALL_FILES} files", BINPACK_GOAL)
LINES = (
    BINPACK,
    replace(BINPACK, name="binpack-bare", against="bare pyarrow", peer=_bare, goal=BARE_GOAL),
    _against_java("sort", f"sort of {SMALL_FILES} files", SORT_GOAL),
)
