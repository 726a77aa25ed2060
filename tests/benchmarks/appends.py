"""Appends through Spark, side by side with Iceberg Java: of Parquet files and of a query over them.

Ours is the whole job as it runs in a cluster and the commit that follows it; the peer is `INSERT INTO … SELECT` on
Spark 3.5. Both on local[2]. Bare pyarrow, two processes that read the same files and write them again without
any table, says how much of our time is anything else than Parquet.
"""

import datetime as dt
import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_iceberg.jobs.protocol.source import Source
from tests.benchmarks import lineitem
from tests.benchmarks.line import Bench, Line, Run, Side
from tests.benchmarks.measure import Stopwatch
from tests.benchmarks.sessions import SPARK_4, SPARK_35, JavaSpark, OurSpark, check_rows

FILES_GOAL, QUERY_GOAL, BARE_GOAL = 0.5, 1.0, 1.15
BY_MONTH = ("months(l_shipdate)",)
MAX_ROW_GROUP_ROWS = 1 << 20

COMPUTED, QUERY_FROM = "l_revenue", "1993-01-01"
QUERY_COLUMNS = {
    **{name: kind for name, kind in lineitem.COLUMNS.items() if name != "l_linenumber"},
    COMPUTED: "decimal(18,2)",
}


def query(source: lineitem.Lineitem) -> str:
    """Return the query that is appended: 16 of 17 columns, one computed, a filter that drops one row in seven."""
    columns = ", ".join(name for name in QUERY_COLUMNS if name != COMPUTED)
    computed = f"cast(l_extendedprice * (1 - l_discount) as decimal(18,2)) as {COMPUTED}"
    return (
        f"select {columns}, {computed} from parquet.`{source.folder.as_uri()}` where l_shipdate >= date'{QUERY_FROM}'"
    )


class BarePyarrow:
    """Two processes, each of which reads half of the files and writes them as one, with the settings of a table."""

    def __init__(self, source: lineitem.Lineitem, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._source, self._folder = source, folder
        self._work = [(source.files[number::2], folder / f"{number}.parquet") for number in range(2)]
        # Started fresh: a fork would take the threads' locks of this process along.
        self._pool = multiprocessing.get_context("spawn").Pool(2)

    def __enter__(self) -> "BarePyarrow":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def copy(self) -> float:
        """Copy all rows once and return the seconds."""
        with Stopwatch() as watch:
            rows = self._pool.starmap(_copy, self._work)
        check_rows("bare pyarrow", sum(rows), self._source.rows)
        return watch.seconds


def _copy(sources: Sequence[Path], target: Path) -> int:
    rows = 0
    schema = pq.read_schema(sources[0])
    with pq.ParquetWriter(target, schema, compression="zstd", store_decimal_as_integer=True) as writer:
        for path in sources:
            table = pq.read_table(path, use_threads=False)
            writer.write_table(table, row_group_size=MAX_ROW_GROUP_ROWS)
            rows += table.num_rows
    return rows


def _source(bench: Bench) -> lineitem.Lineitem:
    return lineitem.make(bench.folder, rows=bench.rows)


def _our_files(partition_by: Sequence[str]) -> Side:
    @contextmanager
    def opened(bench: Bench) -> Iterator[Run]:
        source = _source(bench)
        with OurSpark(SPARK_35, bench.work / "ours") as spark:
            files = Source.from_files(source.pattern)
            yield lambda: spark.append(files, columns=lineitem.COLUMNS, partition_by=partition_by, rows=source.rows)

    return opened


def _files_of_java(partition_by: Sequence[str]) -> Side:
    @contextmanager
    def opened(bench: Bench) -> Iterator[Run]:
        source = _source(bench)
        with JavaSpark(bench.work / "java") as java:
            select = f"select * from parquet.`{source.folder.as_uri()}`"
            yield lambda: java.append(select, columns=lineitem.COLUMNS, partition_by=partition_by, rows=source.rows)

    return opened


@contextmanager
def _bare(bench: Bench) -> Iterator[Run]:
    with BarePyarrow(_source(bench), bench.work / "bare") as bare:
        yield bare.copy


def _our_query(version: str) -> Side:
    @contextmanager
    def opened(bench: Bench) -> Iterator[Run]:
        source = _source(bench)
        rows, select = _rows_of_query(source), Source.from_sql(query(source))
        with OurSpark(version, bench.work / "ours") as spark:
            yield lambda: spark.append(select, columns=QUERY_COLUMNS, partition_by=(), rows=rows)

    return opened


@contextmanager
def _query_of_java(bench: Bench) -> Iterator[Run]:
    source = _source(bench)
    rows, select = _rows_of_query(source), query(source)
    with JavaSpark(bench.work / "java") as java:
        yield lambda: java.append(select, columns=QUERY_COLUMNS, partition_by=(), rows=rows)


def _rows_of_query(source: lineitem.Lineitem) -> int:
    """Return how many rows the query gives."""
    first = pa.scalar(dt.date.fromisoformat(QUERY_FROM))
    dates = (pq.read_table(path, columns=["l_shipdate"]).column(0) for path in source.files)
    return sum(int(pc.sum(pc.greater_equal(column, first)).as_py()) for column in dates)


def _files_line(
    name: str, partitioned: str, peer: Side, against: str, goal: float, partition_by: Sequence[str]
) -> Line:
    return Line(
        name=name,
        what=f"append of Parquet files, {partitioned}",
        against=against,
        ours=_our_files(partition_by),
        peer=peer,
        goal=goal,
        prepare=_source,
    )


LINES = (
    _files_line("files", "unpartitioned", _files_of_java(()), "Iceberg Java", FILES_GOAL, ()),
    _files_line("files-bare", "unpartitioned", _bare, "bare pyarrow", BARE_GOAL, ()),
    _files_line(
        "files-by-month", "partitioned by month", _files_of_java(BY_MONTH), "Iceberg Java", FILES_GOAL, BY_MONTH
    ),
    *(
        Line(
            name=name,
            what=f"append of a query on {version}",
            against=f"Iceberg Java on {SPARK_35}",
            ours=_our_query(version),
            peer=_query_of_java,
            goal=QUERY_GOAL,
            prepare=_source,
        )
        for name, version in (("query", SPARK_35), ("query-spark-4", SPARK_4))
    ),
)
