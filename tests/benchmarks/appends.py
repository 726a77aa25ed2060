"""Appends through Spark, side by side with Iceberg Java: of Parquet files and of a query over them.

Ours is the whole job as it runs in a cluster and the commit that follows it; the peer is `INSERT INTO … SELECT` on
Spark 3.5. Both on local[2]. Bare pyarrow, two processes that read the same files and write them again without
any table, says how much of our time is anything else than Parquet.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_iceberg.jobs.protocol.source import Source
from tests.benchmarks import lineitem
from tests.benchmarks.line import Bench, Line, Run, Side
from tests.benchmarks.sessions import SPARK_4, SPARK_35, JavaSpark, OurSpark, bare_pyarrow

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


def _copy(sources: Sequence[Path], folder: Path) -> int:
    rows = 0
    schema = pq.read_schema(sources[0])
    with pq.ParquetWriter(folder / "rows.parquet", schema, compression="zstd", store_decimal_as_integer=True) as writer:
        for path in sources:
            table = pq.read_table(path, use_threads=False)
            writer.write_table(table, row_group_size=MAX_ROW_GROUP_ROWS)
            rows += table.num_rows
    return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class _Append:
    """What both sides append to a new table: the files, or a query over them; our side on that version of Spark."""

    is_query: bool = False
    partition_by: Sequence[str] = ()
    version: str = SPARK_35
    file_format: str = "parquet"

    @contextmanager
    def ours(self, bench: Bench) -> Iterator[Run]:
        source = lineitem.of(bench)
        options = self._options(source)
        rows = Source.from_sql(query(source)) if self.is_query else Source.from_files(source.pattern)
        with OurSpark(self.version, bench.work / "ours") as spark:
            yield lambda: spark.append(rows, **options)

    @contextmanager
    def java(self, bench: Bench) -> Iterator[Run]:
        source = lineitem.of(bench)
        options = self._options(source)
        rows = query(source) if self.is_query else f"select * from parquet.`{source.folder.as_uri()}`"
        with JavaSpark(bench.work / "java") as java:
            yield lambda: java.append(rows, **options)

    def _options(self, source: lineitem.Lineitem) -> dict[str, Any]:
        columns, rows = (lineitem.COLUMNS, source.rows)
        if self.is_query:
            columns, rows = QUERY_COLUMNS, _rows_of_query(source)
        properties = {"write.format.default": self.file_format}
        return {"columns": columns, "partition_by": self.partition_by, "properties": properties, "rows": rows}


def _bare(bench: Bench) -> AbstractContextManager[Run]:
    source = lineitem.of(bench)
    return bare_pyarrow(_copy, source.files, bench.work / "bare", source.rows)


def _rows_of_query(source: lineitem.Lineitem) -> int:
    first = pa.scalar(dt.date.fromisoformat(QUERY_FROM))
    dates = (pq.read_table(path, columns=["l_shipdate"]).column(0) for path in source.files)
    return sum(int(pc.sum(pc.greater_equal(column, first)).as_py()) for column in dates)


def _line(
    name: str, what: str, append: _Append, goal: float, *, against: str = "Iceberg Java", peer: Side | None = None
) -> Line:
    what = f"append of {what}"
    peer = peer or append.java
    return Line(name=name, what=what, against=against, ours=append.ours, peer=peer, goal=goal, prepare=lineitem.of)


FILES, UNPARTITIONED = "Parquet files, unpartitioned", _Append()
LINES = (
    _line("files", FILES, UNPARTITIONED, FILES_GOAL),
    _line("files-bare", FILES, UNPARTITIONED, BARE_GOAL, against="bare pyarrow", peer=_bare),
    _line("files-to-avro", "Parquet files to Avro files", _Append(file_format="avro"), FILES_GOAL),
    _line("files-by-month", "Parquet files, partitioned by month", _Append(partition_by=BY_MONTH), FILES_GOAL),
    *(
        _line(
            name,
            f"a query on {version}",
            _Append(is_query=True, version=version),
            QUERY_GOAL,
            against=f"Iceberg Java on {SPARK_35}",
        )
        for name, version in (("query", SPARK_35), ("query-spark-4", SPARK_4))
    ),
)
