"""What operations leave of the staging folder: nothing, not even empty folders, however many tasks run at once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import NotFoundError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.staging import earlier_tries
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.directories import remove_empty
from airflow_iceberg.storage.gate import Gate
from airflow_iceberg.table import Table
from tests.support.append_steps import commit_append, discard, plan_append
from tests.support.builders import folder_of, job_work, litter, new_table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path / "warehouse", schema={"id": "long", "part": "int"}, sort_by=["id"])
    for start in range(0, 60, 10):
        table.append(pa.table({"id": range(start, start + 10), "part": [start % 20] * 10}))
    return table


@pytest.fixture
def source(tmp_path: Path) -> Source:
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"id": pa.array([100, 101], pa.int64()), "part": pa.array([1, 1], pa.int32())}), path)
    return Source.from_files([str(path)])


def load(table: Table) -> Table:
    return Table.load(table.catalog, table.name)


def folder(table: Table) -> Path:
    return folder_of(table) / ".staging"


def append(table: Table, source: Source) -> None:
    plan = plan_append(table, source)
    assert folder(table).exists()
    commit_append(table, plan, run_local(plan, table.io))


OPERATIONS: dict[str, Callable[[Table, Source], object]] = {
    "append": append,
    "discard": lambda table, source: discard(table, plan_append(table, source)),
    "overwrite": lambda table, source: overwrite(
        job_work(table), OverwriteRequest(rows=source, overwrite_filter="part = 1")
    ),
    "delete": lambda table, _: delete(job_work(table), DeleteRequest(predicate="id = 3")),
    "compact": lambda table, _: compact(job_work(table), CompactRequest()),
    "expire_snapshots": lambda table, _: expire_snapshots(
        Work(table), ExpireSnapshotsRequest(older_than_ms=2**62, retain_last=1)
    ),
}


class TestNoFolderRemains:
    """On file systems with folders, an operation removes those that it made."""

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_of_an_operation(self, name: str, table: Table, source: Source) -> None:
        before = table.metadata_location
        OPERATIONS[name](table, source)
        assert name == "discard" or load(table).metadata_location != before
        assert not folder(table).exists()

    @pytest.mark.parametrize(
        ("operation", "request_"),
        [(expire_snapshots, ExpireSnapshotsRequest()), (remove_orphan_files, RemoveOrphanFilesRequest())],
    )
    def test_of_jobs_that_died_long_ago(self, operation: Any, request_: object, table: Table) -> None:
        litter(table, ".staging/dead/exchange/0/x.arrow")
        assert operation(Work(table), request_).staging_files == 1
        assert not folder(table).exists()

    @pytest.mark.costly
    def test_the_folders_of_other_tries_stay(self, table: Table, source: Source) -> None:
        other = plan_append(table, source)
        append(load(table), source)
        assert [path.name for path in folder(table).iterdir()] == [other.staging_location.rpartition("/")[2]]
        commit_append(table, other, run_local(other, table.io))
        assert not folder(table).exists()

    @pytest.mark.costly
    def test_tasks_that_run_at_once_do_not_disturb_each_other(self, table: Table, source: Source) -> None:
        def work(_: int) -> None:
            mine = load(table)
            plan = plan_append(mine, source)
            commit_append(mine, plan, run_local(plan, mine.io, threads=1))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(24)))
        assert load(table).scan("id >= 100").count() == 48
        assert not folder(table).exists()


class TestRemovingEmptyFolders:
    """A folder is removed if it is empty at that moment, and only below what was named."""

    @pytest.mark.services
    @pytest.mark.parametrize("guarded", [False, True])
    def test_a_file_is_created_while_its_folder_is_removed_again_and_again(self, guarded: bool, tmp_path: Path) -> None:
        io = load_file_io()
        if guarded:
            io = Gate(allowed=(str(tmp_path),), own=(str(tmp_path),)).around(io)
        created = threading.Event()

        def remove() -> None:
            # With a pause: on an idle machine a thread that never rests wins against each single attempt to create.
            while not created.wait(0.0002):
                remove_empty(io, str(tmp_path / "a" / "b"))

        remover = threading.Thread(target=remove)
        remover.start()
        try:
            for number in range(500):
                location = str(tmp_path / "a" / "b" / "c" / str(number))
                io.create(location, b"x")
                assert io.read(location) == b"x"
                io.delete([location])
        finally:
            created.set()
            remover.join()

    def test_what_holds_a_file_stays(self, tmp_path: Path) -> None:
        (tmp_path / "above" / "mine" / "deep" / "deeper").mkdir(parents=True)
        (tmp_path / "above" / "mine" / "file").touch()
        remove_empty(load_file_io(), (tmp_path / "above" / "mine").as_uri())
        assert [path.name for path in (tmp_path / "above" / "mine").iterdir()] == ["file"]

    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere" / "empty").mkdir(parents=True)
        (tmp_path / "above" / "mine").mkdir(parents=True)
        (tmp_path / "above" / "mine" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
        remove_empty(load_file_io(), (tmp_path / "above" / "mine").as_uri())
        assert (tmp_path / "elsewhere" / "empty").is_dir()

    def test_one_that_is_not_there_is_no_error(self, tmp_path: Path) -> None:
        remove_empty(load_file_io(), (tmp_path / "a" / "b").as_uri())
        with pytest.raises(NotFoundError):
            load_file_io().read((tmp_path / "a" / "b").as_uri())


class TestWhatEarlierTriesLeft:
    """A try finds the folders of its task's earlier tries, also of those before a clear; no others."""

    def test_by_their_names(self, table, source):
        key = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=1, installation="here")

        def job(number: int, of: OperationKey = key) -> JobPlan:
            return plan_append(table, source, operation_key=of, try_number=number)

        first, before_a_clear = job(1), job(2, replace(key, epoch=0))
        job(1, replace(key, task_id="other"))
        job(1, replace(key, installation="there"))
        plan_append(table, source)
        carried = f"{first.staging_location.rpartition('/')[0]}/carried-{key.file_token}-1-2-0123456789ab"
        table.io.create(f"{carried}/plan.json", b"{}")
        last = job(4)
        own, twin = job(3), job(3)
        left = [plan.staging_location for plan in (first, before_a_clear, twin)]
        assert earlier_tries(table.io, own) == sorted([*left, carried])
        assert earlier_tries(table.io, last) == sorted([*left, carried, own.staging_location])
        assert earlier_tries(table.io, job(1)) == []
