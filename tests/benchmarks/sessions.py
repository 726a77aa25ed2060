"""Our side and the peer's, each in a Spark session of its own that is started once: local[2], the same memory.

What a run costs is measured here from the outside and in the same way for both: from the moment the table is there
until the new snapshot is committed. Starting Spark, making the table and looking at what came out are not part of it.
"""

import multiprocessing
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark.installation import environment
from airflow_iceberg.jobs.spark.package import build_zip
from airflow_iceberg.table import Table
from tests.benchmarks.line import Run
from tests.benchmarks.measure import Stopwatch, note
from tests.support.append_steps import commit_append, plan_append, read_result
from tests.support.iceberg_java import IcebergJava
from tests.support.iceberg_java_env import java_environ, java_python
from tests.support.processes import end_process

DRIVER_MEMORY = "2g"
CONF = ("spark.ui.enabled=false", "spark.ui.showConsoleProgress=false", "spark.driver.bindAddress=127.0.0.1")
SPARK_35, SPARK_4 = "Spark 3.5", "Spark 4.2"


class OurSpark:
    """A Spark that runs our jobs, and the Airflow side of them: plan, wait for the job, read its result, commit."""

    def __init__(self, name: str, warehouse: Path) -> None:
        self.name = name
        shutil.rmtree(warehouse, ignore_errors=True)
        self._warehouse = warehouse
        self._catalog = load_catalog("bench", type="hadoop", warehouse=warehouse.as_uri())
        self._catalog.create_namespace("db")
        command, environ = _command(name, warehouse.parent)
        self._log = warehouse.with_suffix(".log")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_process(self._process)
        shutil.rmtree(self._warehouse, ignore_errors=True)  # a table of the benchmark is some hundred megabytes

    def append(
        self,
        source: Source,
        *,
        columns: Mapping[str, str],
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        rows: int | None,
    ) -> float:
        """Append to a new table and return the seconds; `rows` is how many must have come in."""
        shutil.rmtree(self._warehouse / "db" / "t", ignore_errors=True)
        table = Table.create(self._catalog, "db.t", schema=columns, partition_by=partition_by, properties=properties)
        with Stopwatch() as watch:
            plan = plan_append(table, source)
            said = self.run(plan.location)
            written = commit_append(table, plan, read_result(table, plan))
        check_rows(self.name, written.added_records, rows)
        note(f"    {self.name}: {watch.seconds:.3f} s, {said}, {written.added_data_files} files")
        return watch.seconds

    def run(self, location: str) -> str:
        """Run the job of a plan document and return what the server says of it; the result document is there then."""
        self._process.stdin.write(f"{location}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"our job server on {self.name} died, see {self._log}")
        return line


class JavaSpark:
    def __init__(self, warehouse: Path) -> None:
        shutil.rmtree(warehouse, ignore_errors=True)
        warehouse.mkdir(parents=True)
        self._warehouse = warehouse
        self._java = IcebergJava.start(warehouse.as_uri(), **{"spark.driver.memory": DRIVER_MEMORY})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._java.__exit__(*error)
        shutil.rmtree(self._warehouse, ignore_errors=True)

    def append(
        self,
        select: str,
        *,
        columns: Mapping[str, str],
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        rows: int | None,
    ) -> float:
        """Append a query to a new table and return the seconds; `rows` is how many must have come in."""
        self._java.sql("drop table if exists ref.db.t purge")
        self._java.sql(_create_table(columns, partition_by, properties))
        with Stopwatch() as watch:
            self._java.sql(f"insert into ref.db.t {select}")
        (found,) = self._java.rows("select count(*) as rows, count(distinct _file) as files from ref.db.t")
        check_rows("Iceberg Java", found["rows"], rows)
        note(f"    Iceberg Java: {watch.seconds:.3f} s, {found['files']} files")
        return watch.seconds


@contextmanager
def bare_pyarrow(
    copy: Callable[[Sequence[Path], Path], int], sources: Sequence[Path], folder: Path, rows: int
) -> Iterator[Run]:
    """Give the run of two processes that each copy half of the files to a folder; `copy` returns how many rows."""
    work = [(sources[number::2], folder / f"{number}") for number in range(2)]

    def run() -> float:
        shutil.rmtree(folder, ignore_errors=True)
        for _, target in work:
            target.mkdir(parents=True)
        with Stopwatch() as watch:
            copied = sum(pool.starmap(copy, work))
        check_rows("bare pyarrow", copied, rows)
        return watch.seconds

    # Started fresh: a fork would take the threads' locks of this process along.
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        yield run
    shutil.rmtree(folder, ignore_errors=True)


def check_rows(who: str, found: int, expected: int | None) -> None:
    """Refuse a measurement of something else than what was asked for."""
    if expected is not None and found != expected:
        raise RuntimeError(f"{who} wrote {found} rows, expected {expected}: the times cannot be compared")


def _create_table(columns: Mapping[str, str], partition_by: Sequence[str], properties: Mapping[str, str]) -> str:
    kinds = {"long": "bigint", "timestamptz": "timestamp"}
    listed = ", ".join(f"{name} {kinds.get(kind, kind)}" for name, kind in columns.items())
    partitioned = f"partitioned by ({', '.join(partition_by)})" if partition_by else ""
    texts = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    chosen = f"tblproperties ({texts})" if texts else ""
    return f"create table ref.db.t ({listed}) using iceberg {partitioned} {chosen}"


def _command(name: str, folder: Path) -> tuple[list[str], dict[str, Any]]:
    # Imports Airflow: a side that starts no Spark is measured without it.
    from airflow_iceberg.backends.spark_submit import WORKER_SETTINGS

    core = build_zip(folder / "zip")
    if name == SPARK_35:
        python, environ = str(java_python()), java_environ()
    else:
        python, environ = sys.executable, {**os.environ, **environment(), "PYSPARK_PYTHON": sys.executable}
    submit = ["--master", "local[2]", "--driver-memory", DRIVER_MEMORY, "--py-files", str(core)]
    ours = [f"{key}={value}" for key, value in WORKER_SETTINGS.items()]
    for setting in (*CONF, *ours, f"spark.sql.warehouse.dir={folder}/spark-warehouse"):
        submit += ["--conf", setting]
    submitted = shlex.join([*submit, "pyspark-shell"])
    environ |= {"PYTHONPATH": str(core), "PYSPARK_SUBMIT_ARGS": submitted, "SPARK_LOCAL_IP": "127.0.0.1"}
    return [python, str(Path(__file__).with_name("job_server.py"))], environ
