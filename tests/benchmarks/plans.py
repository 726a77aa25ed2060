"""Planning a scan of 100,000 files, the table of its files, and how much memory that takes.

Nothing is read but metadata, from the page cache. Ours and PyIceberg's plans are read to the end: path, rows, bytes,
partition and deletes of every file, so that whatever is put off until somebody asks is counted. Iceberg Java's is
walked through inside of its JVM, after it has warmed up. Loading the table is not part of it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from airflow_iceberg.table import Table
from tests.benchmarks import big_metadata
from tests.benchmarks.measure import Measurement, Stopwatch, alternate
from tests.support.airflow_home import ROOT
from tests.support.iceberg_java import IcebergJava

FILES = big_metadata.SNAPSHOTS * big_metadata.FILES_PER_SNAPSHOT
COLUMN, DAY = "l_shipdate", big_metadata.FIRST_DAY + 31
FILTER = f"{COLUMN} = '2024-02-01'"
PLAN_GOAL, JAVA_GOAL, FILES_GOAL = 0.1, 1.0, 0.05
MEMORY_LIMIT_MB = 250
LARGER = 10
WARM_UP = 4
"""Runs before those that count: the JVM needs some to compile what it runs."""


def measure(folder: Path, *, runs: int) -> Iterator[Measurement]:
    """Measure plans, the table of files, and memory."""
    clustered, random = (big_metadata.make(folder, layout=layout) for layout in ("clustered", "random"))
    yield from _plans(clustered, None, f"plan of {FILES:,} files", FILES, runs=runs)
    few = FILES // big_metadata.SNAPSHOTS
    yield from _plans(
        random, FILTER, f"plan of {FILES:,} files in random order, filter on the partition", few, runs=runs
    )
    yield _files_table(clustered, runs=runs)
    yield from _memory(folder, clustered)


def _plans(metadata: Path, row_filter: str | None, what: str, expected: int, *, runs: int) -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory() as warehouse, IcebergJava.start(warehouse) as java:
        location = metadata.as_uri()

        def plan_in_java() -> float:
            seconds, count = java.plan(location, column=COLUMN if row_filter else None, value=DAY)
            _check("Iceberg Java", count, expected)
            return seconds

        contestants = {
            "ours": _ours(metadata, row_filter, expected),
            "pyiceberg": _pyiceberg(metadata, row_filter, expected),
            "java": plan_in_java,
        }
        found = alternate(contestants, runs=max(runs, 5), warm_up=WARM_UP)
    for peer, goal, name in (("pyiceberg", PLAN_GOAL, "PyIceberg"), ("java", JAVA_GOAL, "Iceberg Java, warm")):
        yield Measurement(name=f"{what}, vs {name}, seconds", ours=found["ours"], peer=found[peer], goal=goal)


def _ours(metadata: Path, row_filter: str | None, expected: int) -> Callable[[], float]:
    table = Table.from_metadata(metadata.as_uri())

    def plan() -> float:
        with Stopwatch() as watch:
            tasks = table.scan(row_filter=row_filter).plan_files()
            size = sum(_look(task.file, task.delete_files) for task in tasks)
        _check("our plan", len(tasks), expected)
        assert size > 0
        return watch.seconds

    return plan


def _pyiceberg(metadata: Path, row_filter: str | None, expected: int) -> Callable[[], float]:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata.as_uri())
    scan = table.scan() if row_filter is None else table.scan(row_filter=row_filter)

    def plan() -> float:
        with Stopwatch() as watch:
            tasks = list(scan.plan_files())
            size = sum(_look(task.file, task.delete_files) for task in tasks)
        _check("PyIceberg's plan", len(tasks), expected)
        assert size > 0
        return watch.seconds

    return plan


def _look(file: Any, deletes: Any) -> int:
    """Ask a planned file for what a reader needs to know."""
    assert file.file_path
    assert file.partition
    return int(file.file_size_in_bytes + file.record_count + len(deletes))


def _files_table(metadata: Path, *, runs: int) -> Measurement:
    from pyiceberg.table import StaticTable

    ours, peer = Table.from_metadata(metadata.as_uri()), StaticTable.from_metadata(metadata.as_uri())

    def inspect(name: str, files: Callable[[], Any]) -> float:
        with Stopwatch() as watch:
            found = files()
        _check(name, found.num_rows, FILES)
        assert "readable_metrics" in found.column_names
        return watch.seconds

    found = alternate(
        {
            "ours": lambda: inspect("our table of files", ours.inspect.files),
            "pyiceberg": lambda: inspect("PyIceberg's table of files", peer.inspect.files),
        },
        runs=runs,
    )
    return Measurement(
        name=f"table of {FILES:,} files, vs PyIceberg, seconds",
        ours=found["ours"],
        peer=found["pyiceberg"],
        goal=FILES_GOAL,
    )


# --- memory -----------------------------------------------------------------------------------------------------------

# Each in a process of its own: what it needs at most, everything that it imports included.
_PROGRAM = """
import re, sys
from airflow_iceberg.table import Table
table = Table.from_metadata(sys.argv[1])
if sys.argv[2] == "plan":
    tasks = table.scan().plan_files()
    count = sum(1 for task in tasks if task.file.file_path)
elif sys.argv[2] == "stream":
    count = sum(1 for task in table.scan().iter_files() if task.file.file_path)
else:
    count = table.inspect.files().num_rows
# Not `getrusage`: that counts what the process that has started this one had.
print(count, int(re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1]) // 1024)
"""


def peak_memory_mb(metadata: Path, what: str) -> tuple[int, int]:
    """Return the number of files found and the peak memory of a process, in MB.

    Args:
        what: "plan" (all tasks at once), "stream" (one after the other) or "files" (the table of files).
    """
    command = [sys.executable, "-c", _PROGRAM, metadata.as_uri(), what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    count, peak = done.stdout.split()
    return int(count), int(peak)


def _memory(folder: Path, metadata: Path) -> Iterator[Measurement]:
    larger = big_metadata.make_larger(folder, LARGER)
    for name, path, how, expected in (
        (f"peak memory of a plan of {FILES:,} files", metadata, "plan", FILES),
        (f"peak memory of a plan of {FILES * LARGER:,} files, streamed", larger, "stream", FILES * LARGER),
        (f"peak memory of the table of {FILES:,} files", metadata, "files", FILES),
    ):
        count, peak = peak_memory_mb(path, how)
        _check(name, count, expected)
        yield Measurement(
            name=f"{name}, vs the limit of {MEMORY_LIMIT_MB} MB, MB", ours=peak, peer=MEMORY_LIMIT_MB, goal=1.0
        )


def _check(who: str, count: int, expected: int) -> None:
    assert count == expected, f"{who} has {count} files, expected {expected}"
