"""Compaction and sorting of 400 small files: the whole of it, from the plan to the commit, with the job on Spark 3.5.

Bare pyarrow, two processes that read the same files and write files of the target size, says how much of our time is
anything else than Parquet.
"""

import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.data.write.rows import write_rows
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.table import Table
from tests.benchmarks import lineitem
from tests.benchmarks.line import Bench, Line, Run
from tests.benchmarks.maintained import Effort, Frozen, Warehouse, against_java, on_table, prepared
from tests.benchmarks.measure import Stopwatch, note
from tests.benchmarks.sessions import check_rows

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
        """Return the state of the table, which is made if it is not there."""
        return Frozen.of(self._warehouse.folder / "db" / self._name, self._make)

    def sources(self) -> list[Path]:
        """Return the small files."""
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
        with ProcessPoolExecutor(2) as pool:
            written = pool.map(
                _write_small, [metadata_json.write(table.metadata)] * SMALL_FILES, range(SMALL_FILES), counts
            )
            files = [file for files in written for file in files]
        table.commit(AppendFiles(table.io, files, table.commit_settings(), written_schema=table.schema()))

    def ours(self, strategy: str) -> None:
        """Rewrite all files."""
        sort_by = (SORT_COLUMN,) if strategy == "sort" else ()
        request = CompactRequest(strategy=strategy, sort_by=sort_by, options={"rewrite-all": True})
        result = compact(Work(self._warehouse.load(self._name), run=self._warehouse.run), request)
        check_rows("our compaction", result.carried_records, self.rows)
        note(f"    ours: {result.added_data_files} files")

    def java(self, strategy: str) -> None:
        """Rewrite all files by the procedure."""
        order = f", sort_order => '{SORT_COLUMN} asc nulls first'" if strategy == "sort" else ""
        (found,) = self._warehouse.java.sql(
            f"call ref.system.rewrite_data_files(table => 'db.{self._name}', strategy => '{strategy}'{order}, "
            f"options => map('rewrite-all', 'true'))"
        )
        check_rows("Iceberg Java's files", found["rewritten_data_files_count"], SMALL_FILES)
        note(f"    Iceberg Java: {found['added_data_files_count']} files")


def _write_small(document: bytes, number: int, count: int) -> tuple[DataFile, ...]:
    rows = lineitem.table(number, count)
    return write_rows(load_file_io(), metadata_json.read(document), rows, file_prefix=f"manual-{number}")


class BareRewrite:
    """Two processes, each of which reads half of the files and writes them as files of the target size."""

    def __init__(self, sources: Sequence[Path], folder: Path, rows: int) -> None:
        self._folder, self._rows = folder, rows
        self._work = [(sources[number::2], folder / f"{number}") for number in range(2)]
        # Started fresh: a fork would take the threads' locks of this process along.
        self._pool = multiprocessing.get_context("spawn").Pool(2)

    def __enter__(self) -> "BareRewrite":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def rewrite(self) -> float:
        """Rewrite all rows once and return the seconds."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for _, target in self._work:
            target.mkdir(parents=True)
        with Stopwatch() as watch:
            rows = sum(self._pool.starmap(_rewrite, self._work))
        check_rows("bare pyarrow", rows, self._rows)
        return watch.seconds


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


def _our_files(strategy: str) -> Effort:
    return lambda warehouse: _Small(warehouse).ours(strategy)


def _files_of_java(strategy: str) -> Effort:
    return lambda warehouse: _Small(warehouse).java(strategy)


@contextmanager
def _bare(bench: Bench) -> Iterator[Run]:
    with Warehouse(bench) as warehouse:
        small = _Small(warehouse)
        small.frozen()
        with BareRewrite(small.sources(), bench.work / "bare", small.rows) as bare:
            yield bare.rewrite


WHAT = f"bin-pack of {SMALL_FILES} files"
LINES = (
    against_java(
        "binpack", WHAT, _frozen, ours=_our_files("binpack"), java=_files_of_java("binpack"), goal=BINPACK_GOAL
    ),
    Line(
        name="binpack-bare",
        what=WHAT,
        against="bare pyarrow",
        ours=on_table(_frozen, _our_files("binpack")),
        peer=_bare,
        goal=BARE_GOAL,
        prepare=prepared(_frozen),
    ),
    against_java(
        "sort",
        f"sort of {SMALL_FILES} files",
        _frozen,
        ours=_our_files("sort"),
        java=_files_of_java("sort"),
        goal=SORT_GOAL,
    ),
)
