"""An update is done once, also if its answer is lost and its snapshot expires before the next try."""

import time

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table


class Task:
    """A task that adds one to each number, in a run that has just begun."""

    def __init__(self, tmp_path, mode):
        self.catalog = load_catalog("l", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
        self.catalog.create_namespace("s")
        properties = {"format-version": "2", "write.update.mode": mode}
        self.table = Table.create(self.catalog, "s.t", schema={"id": "long", "n": "int"}, properties=properties)
        self.append(1)
        self.append(2)
        self.key = OperationKey(dag_id="d", run_id="r", task_id="t", started_ms=int(time.time() * 1000))

    def append(self, number):
        self.table.append(pa.table({"id": [number], "n": pa.array([number], pa.int32())}))

    def run(self, try_number):
        work = Work(Table.load(self.catalog, "s.t"), operation_key=self.key, try_number=try_number)
        return update(work, UpdateRequest(set={"n": "n + 1"}, dialect="duckdb")).outcome

    def expire(self):
        request = ExpireSnapshotsRequest(older_than_ms=int(time.time() * 1000) + 1000, retain_last=1)
        expire_snapshots(Work(Table.load(self.catalog, "s.t")), request)

    @property
    def numbers(self):
        return sorted(Table.load(self.catalog, "s.t").scan().to_arrow()["n"].to_pylist())


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def task(tmp_path, request):
    return Task(tmp_path, request.param)


@pytest.mark.costly
def test_the_next_try_finds_the_commit(task):
    assert [task.run(1), task.run(2), task.numbers] == ["committed", "found", [2, 3]]


@pytest.mark.costly
def test_and_its_files_after_its_snapshot_has_expired(task):
    task.run(1)
    task.append(7)
    task.expire()
    assert [task.run(2), task.numbers] == ["found", [2, 3, 7]]


@pytest.mark.costly
def test_if_they_were_compacted_too_it_refuses(task):
    task.run(1)
    task.append(7)
    table = Table.load(task.catalog, "s.t")
    compact(Work(table, run=lambda plan: run_local(plan, table.io)), CompactRequest(options={"rewrite-all": True}))
    task.expire()
    with pytest.raises(IncompatibleChangeError, match="cannot tell whether an earlier try"):
        task.run(2)
    assert task.numbers == [2, 3, 7]


@pytest.mark.costly
def test_the_first_try_is_not_refused(task):
    task.append(7)
    task.expire()
    assert [task.run(1), task.numbers] == ["committed", [2, 3, 8]]
