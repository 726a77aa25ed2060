"""Appends through Spark, side by side with Iceberg Java: of Parquet files and of a query over them.

Ours is the whole job as it runs in a cluster and the commit that follows it; the peer is `INSERT INTO … SELECT` on
Spark 3.5. Both on local[2]. Bare pyarrow, two processes that read the same files and write them again without
any table, says how much of our time is anything else than Parquet.
"""

import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq

from airflow_iceberg.jobs.protocol.source import Source
from tests.benchmarks import lineitem
from tests.benchmarks.measure import Measurement, Stopwatch, alternate
from tests.benchmarks.sessions import SPARK_4, SPARK_35, JavaSpark, OurSpark, check_rows

FILES_GOAL, QUERY_GOAL, BARE_GOAL = 0.5, 1.0, 1.15
BY_MONTH = ("months(l_shipdate)",)
MAX_ROW_GROUP_ROWS = 1 << 20

COMPUTED = "l_revenue"
QUERY_COLUMNS = {
    **{name: kind for name, kind in lineitem.COLUMNS.items() if name != "l_linenumber"},
    COMPUTED: "decimal(18,2)",
}


def query(source: lineitem.Lineitem) -> str:
    """Return the query that is appended: 16 of 17 columns, one computed, a filter that drops one row in seven."""
    columns = ", ".join(name for name in QUERY_COLUMNS if name != COMPUTED)
    computed = f"cast(l_extendedprice * (1 - l_discount) as decimal(18,2)) as {COMPUTED}"
    return f"select {columns}, {computed} from parquet.`{source.folder.as_uri()}` where l_shipdate >= date'1993-01-01'"


def measure_files(source: lineitem.Lineitem, folder: Path, *, runs: int) -> Iterator[Measurement]:
    """Append of Parquet files, unpartitioned and by month; then bare pyarrow."""
    files = Source.from_files(source.pattern)
    select = f"select * from parquet.`{source.folder.as_uri()}`"
    with ExitStack() as stack:
        ours = stack.enter_context(OurSpark(SPARK_35, folder / "ours"))
        java = stack.enter_context(JavaSpark(folder / "java"))
        for name, partition_by in {"unpartitioned": (), "partitioned by month": BY_MONTH}.items():
            table = {"columns": lineitem.COLUMNS, "partition_by": partition_by, "rows": source.rows}
            contestants = {
                "ours": lambda table=table: ours.append(files, **table),
                "java": lambda table=table: java.append(select, **table),
            }
            if not partition_by:
                bare = stack.enter_context(BarePyarrow(source, folder / "bare"))
                contestants["bare"] = bare.copy
            found = alternate(contestants, runs=runs)
            yield Measurement(
                name=f"append of Parquet files, {name}, vs Iceberg Java, seconds",
                ours=found["ours"],
                peer=found["java"],
                goal=FILES_GOAL,
            )
            if "bare" in found:
                yield Measurement(
                    name="append of Parquet files, unpartitioned, vs bare pyarrow, seconds",
                    ours=found["ours"],
                    peer=found["bare"],
                    goal=BARE_GOAL,
                )


def measure_query(source: lineitem.Lineitem, folder: Path, *, runs: int) -> Iterator[Measurement]:
    """Append of a query, ours on the peer's Spark and on Spark 4."""
    select = query(source)
    with ExitStack() as stack:
        java = stack.enter_context(JavaSpark(folder / "java"))
        table = {"columns": QUERY_COLUMNS, "partition_by": (), "rows": java.count(select)}
        contestants = {"java": lambda: java.append(select, **table)}
        for version in (SPARK_35, SPARK_4):
            spark = stack.enter_context(OurSpark(version, folder / "ours" / version.replace(" ", "-")))
            contestants[version] = lambda spark=spark: spark.append(Source.from_sql(select), **table)
        found = alternate(contestants, runs=runs)
    for version in (SPARK_35, SPARK_4):
        yield Measurement(
            name=f"append of a query on {version}, vs Iceberg Java on {SPARK_35}, seconds",
            ours=found[version],
            peer=found["java"],
            goal=QUERY_GOAL,
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
