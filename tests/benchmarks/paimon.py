"""A Paimon table of 100,000 files: its live files read, with pypaimon beside us, and what a poll of the sensor reads.

The table is metadata alone: 100 manifests of 1,000 files in 100 partitions, statistics of three columns. Both readers
run in a process of their own, which tells its time and its peak of memory; both have decoded every entry, without
statistics, and merged what was added and deleted.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.benchmarks.line import Bench, Line, Run, Side
from tests.benchmarks.measure import note
from tests.support.airflow_home import ROOT
from tests.support.paimon_env import paimon_python
from tests.support.paimon_writer import PaimonBuilder

MANIFESTS, FILES = 100, 1_000
VERSION = 1  # of what is written: made anew when it changes
MEMORY_LIMIT, POLL_LIMIT = 300.0, 10.0  # megabytes, kilobytes

OURS = """
import json, re, sys, time
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
import pyarrow.compute
start = time.perf_counter()
table = PaimonTable.load(sys.argv[1], load_file_io())
files = table.live_files(table.latest_snapshot())
rows = pyarrow.compute.sum(files.columns["row_count"]).as_py()
seconds = time.perf_counter() - start
peak = re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1]
print(json.dumps([seconds, int(peak) / 1024, len(files), rows]))
"""
THEIRS = """
import json, re, sys, time
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.table.file_store_table import FileStoreTable
start = time.perf_counter()
table = FileStoreTable.from_path("file://" + sys.argv[1])
snapshot = table.snapshot_manager().get_latest_snapshot()
lists = ManifestListManager(table)
files = ManifestFileManager(table).read_entries_parallel(lists.read_base(snapshot) + lists.read_delta(snapshot))
rows = sum(entry.file.row_count for entry in files)
seconds = time.perf_counter() - start
peak = re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1]
print(json.dumps([seconds, int(peak) / 1024, len(files), rows]))
"""
POLL = """
import json, sys
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.paimon.new_snapshot import PaimonCondition, look
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
sizes = []
class CountingFileIO(FsspecFileIO):
    def read(self, *args, **options):
        data = super().read(*args, **options)
        sizes.append(len(data))
        return data
table = PaimonTable(sys.argv[1], CountingFileIO())
seen, _ = look(table, PaimonCondition())
first = len(sizes)
look(table, PaimonCondition(min_new_records=1), seen)
print(json.dumps([sum(sizes[:first]), sum(sizes[first:])]))
"""


def make(root: Path) -> Path:
    """Return the table's location, made if it is not there."""
    folder = root / f"paimon-{VERSION}"
    if not (folder / "made").exists():
        note(f"making the metadata of {MANIFESTS * FILES} files of Paimon in {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder)
        (folder / "made").touch()
    return folder


def _write(folder: Path) -> None:
    fields = {"id": "BIGINT", "name": "STRING", "day": "INT"}
    builder = PaimonBuilder(load_file_io(), str(folder), fields=fields, partition_keys=["day"])
    lines = []
    for day in range(MANIFESTS):
        entries = [
            builder.add(
                f"data-{day:08d}-{number:024d}-0.parquet",
                partition=(day,),
                rows=1000 + number,
                bounds=((number, "a" * 16, day), (number + 999, "z" * 16, day)),
            )
            for number in range(FILES)
        ]
        lines.append(builder.manifest(entries))
    builder.base = lines[:-1]
    name, size = builder.manifest_list(lines[-1:])
    builder.commit(deltaManifestList=name, deltaManifestListSize=size)


def _read(python: str | Path, program: str, bench: Bench) -> tuple[float, float]:
    """Return the seconds and the peak memory of a process that reads the live files."""
    seconds, peak_mb, *found = _run(python, program, make(bench.folder))
    expected = [MANIFESTS * FILES, MANIFESTS * sum(range(1000, 1000 + FILES))]
    assert found == expected, f"files and rows are {found}, expected {expected}"
    return seconds, peak_mb


@contextmanager
def _ours(bench: Bench) -> Iterator[Run]:
    yield lambda: _read(sys.executable, OURS, bench)[0]


@contextmanager
def _pypaimon(bench: Bench) -> Iterator[Run]:
    yield lambda: _read(paimon_python(), THEIRS, bench)[0]


@contextmanager
def _memory(bench: Bench) -> Iterator[Run]:
    yield lambda: _read(sys.executable, OURS, bench)[1]


@contextmanager
def _poll(bench: Bench) -> Iterator[Run]:
    yield lambda: max(_run(sys.executable, POLL, make(bench.folder))) / 1000


def _line(name: str, what: str, unit: str, ours: Side, peer: Side | float, goal: float, against: str) -> Line:
    prepare = lambda bench: make(bench.folder)  # noqa: E731
    return Line(name=name, what=what, unit=unit, ours=ours, peer=peer, goal=goal, against=against, prepare=prepare)


TEXT = "Paimon: live files of a snapshot of 100,000"
LINES = (
    _line("paimon", TEXT, "seconds", _ours, _pypaimon, round(1 / 3, 3), "pypaimon"),
    _line("paimon-memory", f"{TEXT}, peak memory", "MB", _memory, MEMORY_LIMIT, 1, f"the limit of {MEMORY_LIMIT:g} MB"),
    _line(
        "paimon-poll",
        "Paimon: bytes that a poll of the sensor reads on 100,000 files",
        "kB",
        _poll,
        POLL_LIMIT,
        1,
        f"the limit of {POLL_LIMIT:g} kB",
    ),
)


def _run(python: str | Path, program: str, table: Path) -> list[Any]:
    done = subprocess.run(
        [python, "-c", program, table], cwd=ROOT, capture_output=True, text=True, check=False, env=_environ(python)
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _environ(python: str | Path) -> dict[str, str]:
    import os

    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return environ | ({"PYTHONPATH": str(ROOT)} if python == sys.executable else {})
