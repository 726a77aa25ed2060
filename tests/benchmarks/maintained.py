"""Tables that are changed again and again by both sides, and put back each time.

Here: the warehouse, tables that are made once and kept for the next time, and their way back. Not here: what is done to
them (`maintain_files`, `maintain_metadata`, `maintain_rows`). Putting a table back is no part of a measurement. The
tables are some 2 GB and 200,000 empty files below `build/bench/maintain`; delete the folder to have them made anew.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.data.write.rows import write_rows
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.table import Table
from tests.benchmarks.line import Bench, Line, Run, Side
from tests.benchmarks.measure import Stopwatch, note
from tests.benchmarks.sessions import DRIVER_MEMORY, SPARK_35, OurSpark, check_rows
from tests.support.iceberg_java import IcebergJava


class Warehouse:
    """A warehouse of tables that both sides change, and a Spark of each side, started when it is first needed.

    Attributes:
        folder: of a Hadoop catalog; tables are in the namespace `db`, and stay for the next time.
        bench: what the side was given.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench, self.folder = bench, bench.folder / "maintain"
        (self.folder / "db").mkdir(parents=True, exist_ok=True)
        self._stack = ExitStack()

    def __enter__(self) -> "Warehouse":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def java(self) -> IcebergJava:
        settings = {
            # A table that is put back must not be remembered.
            "spark.sql.catalog.ref.cache-enabled": "false",
            "spark.sql.sources.partitionOverwriteMode": "dynamic",
            "spark.driver.memory": DRIVER_MEMORY,
        }
        return self._stack.enter_context(IcebergJava.start(self.folder.as_uri(), **settings))

    @cached_property
    def spark(self) -> OurSpark:
        """The same Spark without Iceberg, for our jobs."""
        return self._stack.enter_context(OurSpark(SPARK_35, self.bench.work / "ours"))

    def run(self, plan: JobPlan) -> JobResult:
        note(f"    ours: {self.spark.run(plan.location)}")
        return JobResult.from_json(Path(plan.result_location.removeprefix("file://")).read_bytes())

    @property
    def catalog(self):
        return load_catalog("bench", type="hadoop", warehouse=self.folder.as_uri())

    def load(self, name: str) -> Table:
        return Table.load(self.catalog, f"db.{name}")

    def summary(self, name: str) -> dict[str, str]:
        """Return the summary of a table's last snapshot, as our side reads it."""
        return dict(self.load(name).current_snapshot().summary)


def fill(table: Table, rows: Callable[[int, int], pa.Table], counts: Sequence[int], prefix: str) -> None:
    """Append a file for each count of rows: those that `rows` returns for its number and the count."""
    document, numbers = metadata_json.write(table.metadata), range(len(counts))
    with ProcessPoolExecutor(2) as pool:
        written = pool.map(_write, repeat(document), repeat(rows), numbers, counts, repeat(prefix))
        files = [file for files in written for file in files]
    check_rows("the table", len(files), len(counts))
    note(f"  {sum(file.file_size_in_bytes for file in files) >> 20} MiB")
    table.commit(AppendFiles(table.io, files, table.commit_settings(), written_schema=table.schema()))


def _write(document: bytes, rows: Callable[[int, int], pa.Table], number: int, count: int, prefix: str) -> Any:
    metadata = metadata_json.read(document)
    return write_rows(load_file_io(), metadata, rows(number, count), file_prefix=f"{prefix}-{number}")


class Frozen:
    """The state of a table's folder, taken when the table was made, and the way back to it.

    Metadata that never changes is linked, the few other files are copied; data files stay where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._copy = folder, folder.with_name(f".{folder.name}-frozen")
        self._listing = self._copy / "data.json"

    @classmethod
    def of(cls, folder: Path, make: Callable[[], object]) -> "Frozen":
        """Return the state of a table, which is made if it is not there."""
        frozen = cls(folder)
        if not frozen._listing.exists():
            for path in (folder, frozen._copy):
                shutil.rmtree(path, ignore_errors=True)
            make()
            frozen._take()
        frozen.restore()
        return frozen

    def _take(self) -> None:
        for path in (self.folder / "metadata").iterdir():
            target = self._copy / "metadata" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            (os.link if path.suffix == ".avro" else shutil.copy2)(path, target)
        data = (path.relative_to(self.folder).as_posix() for path in (self.folder / "data").rglob("*"))
        self._listing.write_text(json.dumps(sorted(data)))

    def restore(self) -> None:
        """Remove what came since, and bring back what went."""
        metadata, kept = self.folder / "metadata", set(json.loads(self._listing.read_text()))
        names = {path.name for path in (self._copy / "metadata").iterdir()}
        for path in list(metadata.iterdir()):
            if path.name not in names or path.suffix != ".avro":
                path.unlink()
        for path in (self._copy / "metadata").iterdir():
            if not (metadata / path.name).exists():
                (os.link if path.suffix == ".avro" else shutil.copy2)(path, metadata / path.name)
        for path in (self.folder / "data").rglob("*"):
            if path.is_file() and path.relative_to(self.folder).as_posix() not in kept:
                path.unlink()

    def timed(self, work: Callable[[], object]) -> float:
        """Return the seconds of some work on the table as it was."""
        self.restore()
        with Stopwatch() as watch:
            work()
        return watch.seconds


Effort = Callable[[Warehouse], object]


def on_table(table: Callable[[Warehouse], "Frozen"], work: Effort) -> Side:
    """Return the side that does some work on a table, which is put back before each run and at the end."""

    @contextmanager
    def opened(bench: Bench) -> Iterator[Run]:
        with Warehouse(bench) as warehouse:
            frozen = table(warehouse)
            yield lambda: frozen.timed(lambda: work(warehouse))
            frozen.restore()

    return opened


def against_java(
    name: str,
    what: str,
    table: Callable[[Warehouse], "Frozen"],
    *,
    ours: Effort,
    java: Effort,
    goal: float,
    **settings: Any,
) -> Line:
    """Return the line for what both sides do to one table, which is made if it is not there."""

    def prepare(bench: Bench) -> None:
        with Warehouse(bench) as warehouse:
            table(warehouse)

    return Line(
        name=name,
        what=what,
        against="Iceberg Java",
        ours=on_table(table, ours),
        peer=on_table(table, java),
        goal=goal,
        prepare=prepare,
        **settings,
    )


def sql_now() -> str:
    """Return this moment as a timestamp literal's text."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
