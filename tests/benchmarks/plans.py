"""Planning a scan of 100,000 files, the table of its files, and how much memory that takes.

Nothing is read but metadata, from the page cache. Ours and PyIceberg's plans are read to the end: path, rows, bytes,
partition and deletes of every file, so that whatever is put off until somebody asks is counted. Iceberg Java's is
walked through inside of its JVM, after it has warmed up. Loading the table is not part of it.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_iceberg.table import Table
from tests.benchmarks import big_metadata
from tests.benchmarks.line import Bench, Line, Run
from tests.benchmarks.measure import Stopwatch
from tests.support.airflow_home import ROOT
from tests.support.iceberg_java import IcebergJava

FILES = big_metadata.SNAPSHOTS * big_metadata.FILES_PER_SNAPSHOT
COLUMN, DAY = "l_shipdate", big_metadata.FIRST_DAY + 31
FILTER = f"{COLUMN} = '2024-02-01'"
PLAN_GOAL, JAVA_GOAL, FILES_GOAL = 0.1, 1.0, 0.05
MEMORY_LIMIT_MB = 250
LARGER = 10
WARM_UP, LEAST_RUNS = 4, 5
"""Runs before those that count: the JVM needs some to compile what it runs."""


def _metadata(bench: Bench, layout: str = "clustered") -> Path:
    return big_metadata.make(bench.folder, layout=layout)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """A scan that each side plans.

    Attributes:
        layout: of the table, in words of `big_metadata`.
        expected: how many files it has to find.
    """

    layout: str
    row_filter: str | None
    expected: int

    def ours(self, bench: Bench) -> AbstractContextManager[Run]:
        table = Table.from_metadata(_metadata(bench, self.layout).as_uri())
        return self._planned("our plan", lambda: table.scan(row_filter=self.row_filter).plan_files())

    def pyiceberg(self, bench: Bench) -> AbstractContextManager[Run]:
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(_metadata(bench, self.layout).as_uri())
        scan = table.scan() if self.row_filter is None else table.scan(row_filter=self.row_filter)
        return self._planned("PyIceberg's plan", lambda: list(scan.plan_files()))

    @contextmanager
    def _planned(self, who: str, plan_files: Callable[[], Any]) -> Iterator[Run]:
        def plan() -> float:
            with Stopwatch() as watch:
                tasks = plan_files()
                size = sum(_look(task.file, task.delete_files) for task in tasks)
            _check(who, len(tasks), self.expected)
            assert size > 0
            return watch.seconds

        yield plan

    @contextmanager
    def java(self, bench: Bench) -> Iterator[Run]:
        location, column = _metadata(bench, self.layout).as_uri(), COLUMN if self.row_filter else None
        with IcebergJava.start(bench.work.as_uri()) as java:

            def plan() -> float:
                seconds, count = java.plan(location, column=column, value=DAY)
                _check("Iceberg Java", count, self.expected)
                return seconds

            yield plan

    def lines(self, name: str, what: str) -> tuple[Line, ...]:
        return tuple(
            Line(
                name=f"{name}-{suffix}",
                what=what,
                against=against,
                ours=self.ours,
                peer=peer,
                goal=goal,
                prepare=lambda bench: _metadata(bench, self.layout),
                warm_up=WARM_UP,
                least_runs=LEAST_RUNS,
            )
            for suffix, against, peer, goal in (
                ("pyiceberg", "PyIceberg", self.pyiceberg, PLAN_GOAL),
                ("java", "Iceberg Java, warm", self.java, JAVA_GOAL),
            )
        )


def _look(file: Any, deletes: Any) -> int:
    """Ask a planned file for what a reader needs to know."""
    assert file.file_path
    assert file.partition
    return int(file.file_size_in_bytes + file.record_count + len(deletes))


@contextmanager
def _our_files(bench: Bench) -> Iterator[Run]:
    table = Table.from_metadata(_metadata(bench).as_uri())
    yield lambda: _inspect("our table of files", table.inspect.files)


@contextmanager
def _files_of_pyiceberg(bench: Bench) -> Iterator[Run]:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(_metadata(bench).as_uri())
    yield lambda: _inspect("PyIceberg's table of files", table.inspect.files)


def _inspect(name: str, files: Callable[[], Any]) -> float:
    with Stopwatch() as watch:
        found = files()
    _check(name, found.num_rows, FILES)
    assert "readable_metrics" in found.column_names
    return watch.seconds


# --- memory -----------------------------------------------------------------------------------------------------------

# Each in a process of its own: what it needs at most, everything that it imports included.
_PROGRAM = """
import re, sys
from airflow_iceberg.table import Table
table = Table.from_metadata(sys.argv[1], {"allowed-locations": sys.argv[3]})
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
    # The larger table has manifests of the other one.
    command = [sys.executable, "-c", _PROGRAM, metadata.as_uri(), what, metadata.parents[2].as_uri()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    count, peak = done.stdout.split()
    return int(count), int(peak)


def _larger(bench: Bench) -> Path:
    return big_metadata.make_larger(bench.folder, LARGER)


def _memory(name: str, what: str, how: str, expected: int, metadata: Callable[[Bench], Path]) -> Line:
    @contextmanager
    def ours(bench: Bench) -> Iterator[Run]:
        def peak() -> float:
            count, peak_mb = peak_memory_mb(metadata(bench), how)
            _check(name, count, expected)
            return peak_mb

        yield peak

    return Line(
        name=name,
        what=f"peak memory of {what}",
        against=f"the limit of {MEMORY_LIMIT_MB} MB",
        unit="MB",
        ours=ours,
        peer=MEMORY_LIMIT_MB,
        goal=1.0,
        prepare=metadata,
    )


def _check(who: str, count: int, expected: int) -> None:
    assert count == expected, f"{who} has {count} files, expected {expected}"


FEW = FILES // big_metadata.SNAPSHOTS
LINES = (
    *_Plan(layout="clustered", row_filter=None, expected=FILES).lines("plan", f"plan of {FILES:,} files"),
    *_Plan(layout="random", row_filter=FILTER, expected=FEW).lines(
        "filter", f"plan of {FILES:,} files in random order, filter on the partition"
    ),
    Line(
        name="files-table",
        what=f"table of {FILES:,} files",
        against="PyIceberg",
        ours=_our_files,
        peer=_files_of_pyiceberg,
        goal=FILES_GOAL,
        prepare=_metadata,
    ),
    _memory("plan-memory", f"a plan of {FILES:,} files", "plan", FILES, _metadata),
    _memory("stream-memory", f"a plan of {FILES * LARGER:,} files, streamed", "stream", FILES * LARGER, _larger),
    _memory("files-table-memory", f"the table of {FILES:,} files", "files", FILES, _metadata),
)
