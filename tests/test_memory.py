"""Memory is bounded by row groups and files, not by how many partitions or files there are.

Each case runs in a process of its own and says how much memory it took at most: memory, unlike time, is the same on a
busy machine.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GIB = 1 << 30
ROOT = Path(__file__).parent.parent
PEAK = """
import json, sys
from tests.support.peak_memory import peak_bytes
def done(**found):
    print(json.dumps({"peak": peak_bytes(), **found}))
"""


def measured(program: str, *arguments: object) -> dict[str, Any]:
    """Run a program that ends with `done(...)`, and return what it said and its peak memory in bytes."""
    command = [sys.executable, "-c", PEAK + program, *map(str, arguments)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


class TestManyPartitionsInOneTask:
    """A task that meets a thousand partitions in no order writes them all in less than 2 GiB."""

    PROGRAM = """
import numpy as np, pyarrow as pa
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.data.write.rows import write_rows
from airflow_iceberg.table import Table

warehouse, batches, partitions, rows, width = sys.argv[1], int(sys.argv[2]), 1000, 100_000, int(sys.argv[3])
columns = {"id": "long", "part": "int", "amount": "double", "image": "binary"}
catalog = load_catalog("t", type="hadoop", warehouse=warehouse)
catalog.create_namespace("db")
table = Table.create(catalog, "db.t", schema=columns, partition_by=["part"])
dice = np.random.default_rng(1)
schema = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("amount", pa.float64()), ("image", pa.binary())])
taken_in = 0

def made():
    global taken_in
    for number in range(batches):
        # Nothing that an encoding makes small, and rows of every partition in every batch.
        image = pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(dice.bytes(rows * width))])
        batch = pa.record_batch([
            pa.array(np.arange(number * rows, (number + 1) * rows)),
            pa.array(dice.integers(0, partitions, rows).astype(np.int32)),
            pa.array(dice.random(rows)), image.cast(pa.binary()),
        ], schema=schema)
        taken_in += batch.nbytes
        yield batch

reader = pa.RecordBatchReader.from_batches(schema, made())
files = write_rows(table.io, table.metadata, reader, file_prefix="one-task")
done(partitions=len({file.partition for file in files}), rows=sum(file.record_count for file in files),
     files=len(files), taken_in=taken_in)
"""

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("batches", "width", "most_bytes"),
        [
            pytest.param(5, 40, GIB // 2, id="30 MB"),
            # More than may be held.
            pytest.param(25, 1000, 2 * GIB, id="2.5 GB", marks=pytest.mark.services),
        ],
    )
    def test_a_thousand_partitions(self, tmp_path: Path, batches: int, width: int, most_bytes: int) -> None:
        found = measured(self.PROGRAM, tmp_path.as_uri(), batches, width)
        assert found["partitions"] == 1000
        assert found["rows"] == batches * 100_000
        assert found["peak"] < most_bytes, f"{found['peak'] >> 20} MiB for {found['taken_in'] >> 20} MiB of rows"


class TestPlanningACompaction:
    """What a compaction of a large table takes to be planned is a matter of its metadata, some kilobytes a file."""

    TABLE = """
from pathlib import Path
from uuid import uuid4
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, SetSnapshotRef, apply_change
from airflow_iceberg.format.manifests.avro import write_manifest, write_manifest_list
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, ManifestEntry
from airflow_iceberg.format.manifests.summaries import describe_manifest
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import new_table_metadata
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef

folder, files, in_manifest, days = Path(sys.argv[1]), int(sys.argv[2]), 2000, 100
columns = {f"c{number}": "long" for number in range(10)} | {"day": "date"}
schema = schema_from_shorthand(columns)
table = new_table_metadata(location=folder.as_uri(), schema=schema, spec=spec_from_shorthand(["day"], schema),
                           table_uuid=str(uuid4()), now_ms=1)
ids = range(1, 12)

def file(number):
    bound = number.to_bytes(8, "little")
    return DataFile(
        file_path=f"{table.location}/data/day={number % days}/{uuid4()}-{number}.parquet", file_format="parquet",
        partition=(number % days,), spec_id=0, record_count=10_000, file_size_in_bytes=11 << 17, split_offsets=(4,),
        column_sizes=dict.fromkeys(ids, 90_000), value_counts=dict.fromkeys(ids, 10_000),
        null_value_counts=dict.fromkeys(ids, 0), lower_bounds=dict.fromkeys(ids[:10], bound),
        upper_bounds=dict.fromkeys(ids[:10], bound),
    )

entries = [ManifestEntry(status=EntryStatus.ADDED, snapshot_id=1, data_file=file(n)) for n in range(in_manifest)]
data = write_manifest(entries, schema=schema, spec=table.spec(), format_version=2)
(folder / "metadata").mkdir(parents=True)
path = folder / "metadata" / "m0.avro"
path.write_bytes(data)
row = describe_manifest(entries, path=path.as_uri(), length=len(data), spec=table.spec(), schema=schema, snapshot_id=1)
# One manifest listed over and over: to a plan that is a table of so many more files.
rows = [row] * (files // in_manifest)
(folder / "metadata" / "snap-1.avro").write_bytes(
    write_manifest_list(rows, snapshot_id=1, parent_snapshot_id=None, sequence_number=1, format_version=2))
snapshot = Snapshot(snapshot_id=1, sequence_number=1, timestamp_ms=2, summary={"operation": "append"}, schema_id=0,
                    manifest_list=f"{table.location}/metadata/snap-1.avro")
updates = (AddSnapshot(snapshot=snapshot),
           SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=1, type="branch")))
table = apply_change(table, Change(updates=updates, requirements=()), now_ms=2, base_location=None)
(folder / "metadata" / "v1.metadata.json").write_bytes(metadata_json.write(table))
(folder / "metadata" / "version-hint.text").write_text("1")
done()
"""
    PLAN = """
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table

# Ends the operation before its job runs, and leaves the documents of the job.
class Planned(BaseException):
    pass

def run(plan):
    raise Planned(plan.location)

table = Table.load(load_catalog("t", type="hadoop", warehouse=sys.argv[1]), "db.t")
try:
    compact(Work(table, run=run), CompactRequest())
except Planned as planned:
    done(location=planned.args[0])
"""
    # The side of the job, up to its tasks.
    JOB = """
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.table_input import read_work
from airflow_iceberg.storage.stores.fsspec_io import load_file_io

io = load_file_io()
items = read_work(io, JobPlan.from_json(io.read(sys.argv[1])).task.table)
done(tasks=len(items), files=sum(len(item.units) for item in items),
     size=sum(item.size_bytes for item in items), largest=max(item.size_bytes for item in items))
"""

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("files", "most_bytes"),
        [
            pytest.param(10_000, GIB // 4, id="14 GB"),
            pytest.param(100_000, GIB // 2, id="144 GB", marks=pytest.mark.services),
        ],
    )
    def test_many_small_files(self, tmp_path: Path, files: int, most_bytes: int) -> None:
        measured(self.TABLE, tmp_path / "db" / "t", files)
        planned = measured(self.PLAN, tmp_path.as_uri())
        job = measured(self.JOB, planned["location"])
        assert job["files"] == files
        assert job["size"] == files * (11 << 17)
        assert job["tasks"] >= 100  # one for each of the partitions
        assert job["largest"] < 1 << 30  # a task writes one file
        assert planned["peak"] < most_bytes
        assert job["peak"] < most_bytes


class TestMergingIntoManyFiles:
    """A merge needs memory for its source and for one file of each task; more files of the table need no more of it."""

    TABLE = """
import numpy as np, pyarrow as pa
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table

catalog = load_catalog("t", type="hadoop", warehouse=sys.argv[1])
catalog.create_namespace("db")
files, rows, properties = int(sys.argv[2]), int(sys.argv[3]), {"write.merge.mode": sys.argv[4]}
columns = {"id": "long", "amount": "double", "text": "string"}
table = Table.create(catalog, "db.t", schema=columns, properties=properties)
dice = np.random.default_rng(1)
for number in range(files):
    ids = dice.permutation(rows) * files + number  # every file has keys of all ranges
    table.append(pa.table({"id": ids, "amount": dice.random(rows), "text": [f"text {one:95}" for one in ids]}))
done()
"""
    MERGE = """
import numpy as np, pyarrow as pa
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.jobs import run_local
from airflow_iceberg.table import Table

run_local.default_threads = lambda: 2
table = Table.load(load_catalog("t", type="hadoop", warehouse=sys.argv[1]), "db.t")
count, known, how = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
ids = np.random.default_rng(2).choice(known + known // 100, count, replace=False)
rows = pa.table({"id": ids, "amount": np.zeros(count), "text": [f"new text {one}" for one in ids]})
if how == "upsert":
    result = table.upsert(rows, ["id"])
else:
    clauses = "when matched then update set amount = source.amount when not matched then insert *"
    result = table.merge(rows, ["id"], clauses)
done(updated=result.updated_records, added=result.added_records)
"""

    @pytest.mark.sample(4)
    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    @pytest.mark.parametrize("how", ["merge", "upsert"])
    def test_five_times_the_files(self, tmp_path: Path, how: str, mode: str) -> None:
        rows, source, peaks = 100_000, 6_000, []
        for files in (4, 20):
            warehouse = (tmp_path / str(files)).as_uri()
            measured(self.TABLE, warehouse, files, rows, mode)
            found = measured(self.MERGE, warehouse, source, files * rows, how)
            assert found["updated"] + found["added"] == source
            assert found["added"]
            peaks.append(found["peak"])
        # The table has grown by 1.6 million rows, of 200 MB in memory.
        assert peaks[1] - peaks[0] < 80 << 20, [peak >> 20 for peak in peaks]


class TestWhatAWorkerLoads:
    """Tasks do without pandas, which takes a second and 50 MB of every worker.

    pyarrow loads it only to ask whether it was given something of it.
    """

    PROGRAM = """
import pyarrow as pa, pyarrow.csv, pyarrow.parquet as pq
from pathlib import Path
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.work import Work
from airflow_iceberg.jobs import compact_sorted
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark.worker import Worker
from airflow_iceberg.jobs.task import TaskReport
from airflow_iceberg.table import Table

folder = Path(sys.argv[1])
rows = "id,day,amount,name,color\\n" + "".join(f"{n},{n % 3},{n}.5,n{n},c{n % 5}\\n" for n in range(1000))
columns = {"id": "long", "day": "int", "amount": "double", "name": "string", "color": "string"}
source = pyarrow.csv.read_csv(pa.BufferReader(rows.encode()))
pq.write_table(source.cast(pa.schema([("id", pa.int64()), ("day", pa.int32()), ("amount", pa.float64()),
                                      ("name", pa.string()), ("color", pa.string())])), folder / "rows.parquet")
catalog = load_catalog("t", type="hadoop", warehouse=folder.as_uri())
catalog.create_namespace("db")
loaded = []

def after(what):
    if "pandas" in sys.modules and not loaded:
        loaded.append(what)

table = Table.create(catalog, "db.t", schema=columns, partition_by=["day"])
work = Work(table, run=lambda plan: run_local(plan, table.io))
for _ in range(2):
    append(work, AppendRequest(rows=Source.from_files((folder / "rows.parquet").as_uri())))
after("append")
for strategy, columns in (("binpack", ()), ("sort", ("amount", "name")), ("zorder", ("amount", "name"))):
    request = CompactRequest(strategy=strategy, sort_by=columns, options={"rewrite-all": True})
    compact(work, request)
    after(strategy)
compact_sorted.SMALL_GROUP_BYTES, compact_sorted.RANGE_BYTES = 0, 4000
compact(work, CompactRequest(strategy="sort", sort_by=("name",), options={"rewrite-all": True}))
after("sort by ranges")
if sys.argv[2] == "3":
    table.alter([{"upgrade_format_version": 3}])
for mode, gone in (("merge-on-read", (3, 4)), ("copy-on-write", (5, 6)), ("merge-on-read", (7, 8))):
    predicate = f"id = {gone[0]} or (name in ('n{gone[1]}') and amount > 1)"
    delete(work, DeleteRequest(predicate=predicate, mode=mode))
    after(mode)
compact(work, CompactRequest(options={"rewrite-all": True}))
after("bin-pack of a table with deletes")
Worker(plan=b"", storage={}, max_failures=1)._report(0, lambda: TaskReport(number=0))
after("report")
done(loaded=loaded, rows=sum(batch.num_rows for batch in table.scan().to_arrow_batch_reader()))
"""

    @pytest.mark.services
    @pytest.mark.parametrize("format_version", [2, 3])
    def test_tasks_that_move_rows_do_not_load_pandas(self, tmp_path: Path, format_version: int) -> None:
        found = measured(self.PROGRAM, tmp_path, format_version)
        assert found["loaded"] == []
        assert found["rows"] == 2 * (1000 - 6)
