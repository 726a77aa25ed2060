"""Run the example DAGs with a real Airflow and a real Spark, and show what they did: `make demo`.

Everything is stored under build/demo: Airflow's home, the warehouse, the log. Each DAG runs through its `test` method
in a separate process: no scheduler, no web server, and no process that keeps running. The logical date and the id of
the DAG run are always the same, so a second demo runs the same tasks again and shows that no row is duplicated.

Here: the order of the steps and what is printed. The DAGs themselves are in the other files of this folder.

    python dags_examples/demo.py                    # all steps
    python dags_examples/demo.py nycflights13_load  # one DAG, in the environment of build/demo/env.sh
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import MAP_INDEX
from airflow_iceberg.errors import IcebergError, NotFoundError
from airflow_iceberg.jobs.spark import installation
from airflow_iceberg.table import Table

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog
    from airflow_iceberg.format.snapshots import Snapshot

EXAMPLES = Path(__file__).resolve().parent
FOLDER = EXAMPLES.parent / "build" / "demo"
HOME = FOLDER / "airflow"
WAREHOUSE = FOLDER / "warehouse"
LOG = FOLDER / "demo.log"
SETTINGS = FOLDER / "env.sh"

TABLE = "nyc.flights"
LOGICAL_DATE = "2014-01-01T00:00:00+00:00"
MONTHS = 12
FLIGHTS = 336_776
POLL_SECONDS = 0.5
# Lines of the log that are shown when a step fails.
SHOWN_LINES = 25
# What a step begins with in the log.
STEP = "== python "


def main() -> int:
    """Run all steps; return 1 if one of them failed, which is also printed."""
    if sys.argv[1:]:
        return run_dag(sys.argv[1])
    # When this process is terminated, it ends the processes that it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for folder in (HOME, WAREHOUSE, FOLDER / "spark"):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        environ = settings()
    except IcebergError as error:
        say(f"cannot start Spark: {error}")
        return 1
    write_settings(environ)
    say("A year of real flights, loaded by Airflow through Spark into an Iceberg table.")
    say(f"All that happens is logged in {shown(LOG)}.\n")
    LOG.write_text("")
    before = Seen.of(catalog())
    try:
        with step("Airflow's database"):
            run(environ, "-m", "airflow", "db", "migrate")
        with step("DAG nycflights13_load: one mapped task a month", follow=True):
            run(environ, __file__, "nycflights13_load", watch=MonthByMonth(before))
        with step("DAG nycflights13_wait: wakes up for the newest snapshot"):
            run(environ, __file__, "nycflights13_wait")
    except StepFailedError as failure:
        say(f"\n{failure}\n\nThe whole log: {shown(LOG)}")
        return 1
    return report(before, Seen.of(catalog()))


# -- the Airflow of the demo -------------------------------------------------------------------------------------------


def settings() -> dict[str, str]:
    """Return the environment variables of a separate Airflow under build/demo, with the two connections."""
    iceberg = {"conn_type": "iceberg_catalog", "extra": {"type": "hadoop", "warehouse": WAREHOUSE.as_uri()}}
    spark = {"conn_type": "spark", "host": "local[2]"}
    return {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT": json.dumps(iceberg),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        "NYCFLIGHTS13_LANDING": str(FOLDER / "landing"),
        "SPARK_CONF_DIR": str(spark_conf()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **installation.environment(),
    }


def spark_conf() -> Path:
    """Write Spark's own settings: no web UI, little output, and a JVM that starts fast."""
    folder = FOLDER / "spark"
    (folder / "spark-defaults.conf").write_text(
        "spark.ui.enabled false\n"
        "spark.driver.memory 1g\n"
        "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
        f"spark.sql.warehouse.dir {folder / 'warehouse'}\n"
    )
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    return folder


def write_settings(environ: Mapping[str, str]) -> None:
    """Write the variables as a shell script, for users who want to inspect this Airflow afterwards."""
    own = {"PATH": f"{Path(sys.executable).parent}:$PATH"}
    lines = [f'export PATH="{own["PATH"]}"', *(f"export {name}={shlex.quote(text)}" for name, text in environ.items())]
    SETTINGS.write_text("\n".join(lines) + "\n")


def catalog() -> Catalog:
    """Return the catalog that the connection of the demo describes."""
    return load_catalog("demo", type="hadoop", warehouse=WAREHOUSE.as_uri())


# -- running a step ----------------------------------------------------------------------------------------------------


class StepFailedError(Exception):
    """A step failed; the text is the end of its log."""


@contextmanager
def step(title: str, *, follow: bool = False) -> Iterator[None]:
    """Print the step and its duration; `follow` for a step that prints lines of its own meanwhile."""
    begin = time.monotonic()
    say(f"{title} ...", end="\n" if follow else " ")
    yield
    took = f"{time.monotonic() - begin:.1f} s"
    say(f"  done in {took}\n" if follow else took)


def run(environ: Mapping[str, str], *words: str, watch: MonthByMonth | None = None) -> None:
    """Run Python with these arguments, with its output in the log; watch the table meanwhile."""
    with LOG.open("ab") as log:
        log.write(f"\n{STEP}{' '.join(words)}\n".encode())
        log.flush()
        process = subprocess.Popen(
            [sys.executable, *words],
            env=os.environ | dict(environ),
            cwd=FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                if watch:
                    watch.look()
        finally:
            stop(process)
    if watch:
        watch.look()
    if process.returncode:
        raise StepFailedError(f"failed: {' '.join(words)}\n{last_words()}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the command and all processes that it started, if it still runs: after an interrupt no process may remain."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_words() -> str:
    """Return the end of the log, from the first error of the last command on if there is one."""
    lines = LOG.read_text(errors="replace").rpartition(f"\n{STEP}")[2].splitlines()
    errors = [number for number, line in enumerate(lines) if "rror" in line]
    first = errors[0] if errors else len(lines) - SHOWN_LINES
    return "\n".join(f"  | {line[:240]}" for line in lines[max(first, 0) :][:SHOWN_LINES])


def run_dag(dag_id: str) -> int:
    """Run one DAG of this folder for the demo's logical date; return 1 if its run failed.

    The id of the run is derived from `run_after`, by default from the clock. With a different id the second demo would
    be new work, whose rows are correctly added to those of the first.
    """
    from airflow.sdk import DagRunState, timezone

    sys.path.insert(0, str(EXAMPLES))
    dag = importlib.import_module(dag_id).DAG
    date = timezone.parse(LOGICAL_DATE)
    return int(dag.test(logical_date=date, run_after=date).state != DagRunState.SUCCESS)


class MonthByMonth:
    """Prints every snapshot of the table as it appears, which shows the progress of the DAG."""

    def __init__(self, before: Seen) -> None:
        self.catalog = catalog()
        self.known = set(before.snapshot_ids)
        self.since = time.monotonic()

    def look(self) -> None:
        """Print the snapshots since the last call."""
        try:
            snapshots = Table.load(self.catalog, TABLE).snapshots()
        except NotFoundError:
            return
        for snapshot in snapshots:
            if snapshot.snapshot_id not in self.known:
                self.known.add(snapshot.snapshot_id)
                say(f"  {describe(snapshot)}  after {time.monotonic() - self.since:4.0f} s")


def describe(snapshot: Snapshot) -> str:
    """Return one line about a snapshot of the load."""
    summary = snapshot.summary
    index = int(summary.get(MAP_INDEX, "-1"))
    added, deleted = int(summary.get("added-records", "0")), int(summary.get("deleted-records", "0"))
    rows = f"{added:>7,} rows in" + (f", {deleted:>7,} out" if deleted else "")
    return f"2013-{index + 1:02d}  {snapshot.operation:<9}  {rows}"


# -- the result --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The contents of the table at one moment.

    Attributes:
        size_bytes: of the live data files.
    """

    snapshot_ids: tuple[int, ...] = ()
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    metadata_location: str = ""
    location: str = ""

    @classmethod
    def of(cls, catalog: Catalog) -> Seen:
        """Read the table; a table that does not exist yet is empty."""
        try:
            table = Table.load(catalog, TABLE)
        except NotFoundError:
            return cls()
        files = [task.file for task in table.scan().plan_files()]
        return cls(
            snapshot_ids=tuple(snapshot.snapshot_id for snapshot in table.snapshots()),
            rows=table.scan().to_arrow().num_rows,
            files=len(files),
            size_bytes=sum(file.file_size_in_bytes for file in files),
            metadata_location=table.metadata_location,
            location=table.location,
        )


def report(before: Seen, after: Seen) -> int:
    """Print the contents of the table and what this run changed; return 1 if a row is missing or duplicated."""
    new = len(after.snapshot_ids) - len(before.snapshot_ids)
    right = after.rows == FLIGHTS
    say(f"\nTable {TABLE}")
    say(f"  where       {after.location}")
    say(f"  rows        {after.rows:,} ({'each flight once' if right else f'WRONG: expected {FLIGHTS:,}'})")
    say(f"  data files  {after.files}, {after.size_bytes / 1e6:.1f} MB of Parquet")
    say(f"  snapshots   {len(after.snapshot_ids)}, {new} of them from this run")
    say(f"  metadata    {after.metadata_location}\n")
    say("Exactly once")
    for line in exactly_once(before, after, new):
        say(f"  {line}")
    say(f"\n{try_next(after)}")
    return 0 if right else 1


def exactly_once(before: Seen, after: Seen, new: int) -> list[str]:
    """Say why this run duplicated no rows."""
    if not before.rows:
        return [
            f"{new} tasks committed one snapshot each, with the task's operation key in its summary.",
            "Run `make demo` again: the same tasks of the same DAG run, and still the same rows.",
        ]
    how = (
        f"{new} tasks replaced the rows that they had committed before, in one commit each."
        if new
        else "The same tasks of the same DAG run ran again: each found its own commit in the table's history "
        "and had nothing to do."
    )
    return [f"{before.rows:,} rows before, {after.rows:,} after: no row was duplicated.", how]


def try_next(after: Seen) -> str:
    """Return the next steps for a new user."""
    return f"""Inspect the table
  $ {shown(Path(sys.executable))}
  >>> from airflow_iceberg.table import Table
  >>> table = Table.from_metadata("{after.metadata_location}")
  >>> table.scan("dep_delay > 900", selected_fields=("carrier", "dest", "dep_delay")).to_arrow().to_pandas()
  >>> table.inspect.snapshots().to_pandas()

Next
  make demo                        run it again, over the same DAG run
  . {shown(SETTINGS)} && airflow standalone
                                   the same Airflow with its web UI, on port 8080
  rm -r {shown(FOLDER)}               start from scratch"""


def shown(path: Path) -> str:
    """Return a path as it is typed at the root of the repository."""
    root = EXAMPLES.parent
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def say(text: str, *, end: str = "\n") -> None:
    print(text, end=end, flush=True)


if __name__ == "__main__":
    sys.exit(main())
