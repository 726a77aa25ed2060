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
from pathlib import Path
from statistics import median
from typing import Any

from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.benchmarks.measure import Measurement, note
from tests.support.airflow_home import ROOT
from tests.support.paimon_env import paimon_python
from tests.support.paimon_writer import PaimonBuilder

MANIFESTS, FILES = 100, 1_000
VERSION = 1  # of what is written: made anew when it changes
MEGABYTE = 1 << 20
MEMORY_LIMIT, POLL_LIMIT = 300.0, 10.0  # megabytes, kilobytes

OURS = """
import json, resource, sys, time
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
import pyarrow.compute
start = time.perf_counter()
table = PaimonTable.load(sys.argv[1], load_file_io())
files = table.live_files(table.latest_snapshot())
rows = pyarrow.compute.sum(files.columns["row_count"]).as_py()
seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(files), rows]))
"""
THEIRS = """
import json, resource, sys, time
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
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(files), rows]))
"""
POLL = """
import json, sys
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.paimon.new_snapshot import PaimonCondition, look
from tests.support.counting_io import CountingFileIO
io = CountingFileIO()
table = PaimonTable(sys.argv[1], io)
seen, _ = look(table, PaimonCondition())
first = io.bytes_read
io.bytes_read = 0
look(table, PaimonCondition(min_new_records=1), seen)
print(json.dumps([first, io.bytes_read]))
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


def measure(root: Path, *, runs: int) -> Iterator[Measurement]:
    """Measure reading the live files, its memory, and what a poll reads."""
    table = make(root)
    found: dict[str, list[list[Any]]] = {"ours": [], "pypaimon": []}
    for number in range(1 + runs):
        for name, python, program in (("ours", sys.executable, OURS), ("pypaimon", paimon_python(), THEIRS)):
            answer = _run(python, program, table)
            if number:
                found[name].append(answer)
    answers = {tuple(answer[2:]) for taken in found.values() for answer in taken}
    assert answers == {(MANIFESTS * FILES, MANIFESTS * sum(range(1000, 1000 + FILES)))}, answers
    seconds = {name: median(answer[0] for answer in taken) for name, taken in found.items()}
    peaks = {name: median(answer[1] for answer in taken) / 1024 for name, taken in found.items()}
    note(f"  peak of pypaimon: {peaks['pypaimon']:.0f} MB")
    text = "Paimon: live files of a snapshot of 100,000"
    yield Measurement(
        name=f"{text}, with pypaimon (s)", ours=seconds["ours"], peer=seconds["pypaimon"], goal=round(1 / 3, 3)
    )
    yield Measurement(name=f"{text}, peak memory, with the limit (MB)", ours=peaks["ours"], peer=MEMORY_LIMIT, goal=1)
    first, later = _run(sys.executable, POLL, table)
    name = "Paimon: a poll of the sensor on 100,000 files, bytes read, with the limit (kB)"
    yield Measurement(name=name, ours=max(first, later) / 1000, peer=POLL_LIMIT, goal=1)


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
