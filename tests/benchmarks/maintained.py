"""Tables that are changed again and again by both sides, and put back each time.

Here: the two sides in one warehouse, tables that are made once and kept for the next time, and their way back. Not
here: what is done to them (`maintain_files`, `maintain_metadata`, `maintain_rows`). Starting Spark and putting a table
back are no part of a measurement.
"""

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.table import Table
from tests.benchmarks.measure import Measurement, Stopwatch, alternate, note
from tests.benchmarks.sessions import DRIVER_MEMORY, SPARK_35, OurSpark
from tests.support.iceberg_java import IcebergJava


class Sides:
    """Ours and Java's in one warehouse, each with a Spark that is started when it is first needed.

    Attributes:
        warehouse: of a Hadoop catalog; tables are in the namespace `db`, and stay for the next time.
        folder: for all that does not stay.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.warehouse = folder, folder / "maintain"
        (self.warehouse / "db").mkdir(parents=True, exist_ok=True)
        self._stack = ExitStack()

    def __enter__(self) -> "Sides":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def java(self) -> IcebergJava:
        """Spark 3.5 with Iceberg Java."""
        settings = {
            # A table that is put back must not be remembered.
            "spark.sql.catalog.ref.cache-enabled": "false",
            "spark.sql.sources.partitionOverwriteMode": "dynamic",
            "spark.driver.memory": DRIVER_MEMORY,
        }
        return self._stack.enter_context(IcebergJava.start(self.warehouse.as_uri(), **settings))

    @cached_property
    def spark(self) -> OurSpark:
        """The same Spark without Iceberg, for our jobs."""
        return self._stack.enter_context(OurSpark(SPARK_35, self.folder / "ours"))

    def run(self, plan: JobPlan) -> JobResult:
        """Run one of our jobs."""
        note(f"    ours: {self.spark.run(plan.location)}")
        return JobResult.from_json(Path(plan.result_location.removeprefix("file://")).read_bytes())

    @property
    def catalog(self):
        """Our catalog of the warehouse."""
        return load_catalog("bench", type="hadoop", warehouse=self.warehouse.as_uri())

    def load(self, name: str) -> Table:
        """Return a table as it is now."""
        return Table.load(self.catalog, f"db.{name}")

    def java_summary(self, name: str) -> dict[str, str]:
        """Return the summary of a table's last snapshot, as our side reads it."""
        return dict(self.load(name).current_snapshot().summary)


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


def against_java(
    what: str,
    frozen: Frozen,
    *,
    ours: Callable[[], object],
    java: Callable[[], object],
    goal: float,
    runs: int,
    warm_up: int | None = None,
) -> Measurement:
    """Measure what both sides do to one table.

    Args:
        warm_up: runs that do not count; by default one, and none where a single run is asked for, to save time.
    """
    warm_up = min(1, runs - 1) if warm_up is None else warm_up
    contestants = {"ours": lambda: frozen.timed(ours), "java": lambda: frozen.timed(java)}
    found = alternate(contestants, runs=runs, warm_up=warm_up)
    frozen.restore()
    return Measurement(name=f"{what}, vs Iceberg Java, seconds", ours=found["ours"], peer=found["java"], goal=goal)


def sql_now() -> str:
    """Return this moment as a timestamp literal's text."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
