"""An inventory of a table's files is one and the same in this process, in a job, and in a job on Spark."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.inventory.run import Progress, in_bytes
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.spark.package import build_zip
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.file_inventory import FileInventory, expected_files
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, known_files, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.jobs.submissions import HERE, SPARK_4
from tests.support.builders import age, folder_of, job_work, litter, new_table, reachable, staged
from tests.support.spark_programs import SparkPrograms

ALL = ExpireSnapshotsRequest(older_than_ms=2**62)
DRY = ExpireSnapshotsRequest(older_than_ms=2**62, dry_run=True)

Way = Callable[[Table], FileInventory]


def here(table: Table) -> FileInventory:
    return FileInventory(Work(table))


def in_a_job(table: Table, *, spark_from_files: int = 0, ran: list[JobPlan] | None = None) -> FileInventory:
    def run(plan: JobPlan) -> JobResult:
        if ran is not None:
            ran.append(plan)
        return run_local(plan, table.io)

    return FileInventory(Work(table, run=run), spark_from_files=spark_from_files)


@pytest.fixture(scope="session")
def on_spark(spark_of: Callable[[str], SparkPrograms]) -> Way:
    def inventory(table: Table) -> FileInventory:
        def run(plan: JobPlan) -> JobResult:
            spark_of(SPARK_4).run(HERE / "spark_program.py", plan.location)
            result = JobResult.from_json(table.io.read(plan.result_location))
            assert result.engine.startswith("spark ")
            return result

        return FileInventory(Work(table, run=run), spark_from_files=0)

    return inventory


@pytest.fixture(params=["here", "job", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.services])])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param == "spark":
        found: Way = request.getfixturevalue("on_spark")
        return found
    return {"here": here, "job": in_a_job}[request.param]


def make(folder: Path) -> Table:
    """A table with a history: deletes, a tag, a branch that went its own way, a compaction, files ten days old."""
    schema, properties = {"id": "long", "part": "int"}, {"format-version": "3"}
    table = new_table(folder, schema=schema, partition_by=["part"], properties=properties)
    for start in range(0, 40, 10):
        table.append(rows(start))
    table.delete("id in (1, 12)", mode="merge-on-read")
    table.create_tag("kept")
    table.delete("id in (2, 13)", mode="merge-on-read")
    table.create_branch("audit")
    table.append(rows(40), branch="audit")
    compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
    age(folder_of(table))
    return table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make(tmp_path)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return make(tmp_path_factory.mktemp("still"))


def rows(start: int) -> pa.Table:
    ids = range(start, start + 10)
    return pa.table({"id": pa.array(ids, pa.int64()), "part": pa.array([i % 3 for i in ids], pa.int32())})


def files(table: Table) -> set[str]:
    kept = (".parquet", ".avro", ".puffin")
    return {status.location for status in table.io.list(table.location) if status.location.endswith(kept)}


def live(table: Table, *names: str) -> dict[str, int]:
    """Data and delete files that refs reach, by brute force, with their size."""
    reached = {table.refs[name].snapshot_id for name in names}
    for head in (table.refs[name] for name in names if table.refs[name].is_branch):
        reached |= {snapshot.snapshot_id for snapshot in table.metadata.ancestors(head.snapshot_id)}
    return {
        entry.data_file.file_path: entry.data_file.file_size_in_bytes
        for snapshot in table.metadata.snapshots
        if snapshot.snapshot_id in reached
        for manifest in read_manifests(table.io, snapshot)
        for entry in read_entries(table.io, manifest)
        if entry.is_live
    }


class TestTheSameEverywhere:
    """The cases of expiry and of orphans, in this process, in a job, and in a job on Spark."""

    @pytest.mark.costly
    def test_a_dry_run_says_what_would_go_and_what_refs_keep_alive(self, table: Table, way: Way) -> None:
        result = expire_snapshots(Work(table), DRY, inventory=way(table))
        assert result == expire_snapshots(Work(table), DRY)
        assert (result.expired_snapshots, result.deleted_data_files) == (5, 0)
        for one in result.refs:
            others = [name for name in table.refs if name != one.name]
            own, theirs = live(table, one.name), live(table, *others)
            assert one.size_bytes == sum(own.values())
            assert one.exclusive_bytes == sum(size for path, size in own.items() if path not in theirs)
        assert [one.name for one in result.refs] == ["audit", "kept", "main"]
        assert not staged(table)

    @pytest.mark.costly
    def test_what_nothing_reaches_goes_and_everything_else_stays(self, table: Table, way: Way) -> None:
        drop_refs(table)
        would_go = expire_snapshots(Work(table), DRY)
        result = expire_snapshots(Work(table), ALL, inventory=way(table))
        assert result.deleted_data_files == would_go.deleted_data_files > 0
        assert result.removed_position_delete_files == would_go.removed_position_delete_files > 0
        assert files(table) == reachable(table)
        assert not staged(table)

    @pytest.mark.costly
    def test_orphans(self, table: Table, way: Way) -> None:
        litter(table, "data/part=1/a.parquet", "data/other/b%20c.parquet", "metadata/m.avro", ".staging/dead/plan.json")
        asked = RemoveOrphanFilesRequest(action="dry_run")
        result = remove_orphan_files(Work(table), asked, inventory=way(table))
        assert result == remove_orphan_files(Work(table), asked)
        assert (result.orphan_files, result.staging_files) == (3, 1)
        before = files(table) - set(result.orphans)
        removed = remove_orphan_files(Work(table), RemoveOrphanFilesRequest(action="delete"), inventory=way(table))
        assert removed.outcome == "committed"
        assert files(table) == before
        assert not staged(table)

    @pytest.mark.costly
    def test_a_manifest_that_is_missing_where_it_is_needed_deletes_nothing(self, table: Table, way: Way) -> None:
        drop_refs(table)
        table.io.delete([read_manifests(table.io, table.current_snapshot())[0].manifest_path])
        before = files(table)
        with pytest.raises(NotFoundError):
            expire_snapshots(Work(table), ALL, inventory=way(table))
        with pytest.raises(NotFoundError):
            remove_orphan_files(Work(table), RemoveOrphanFilesRequest(action="delete"), inventory=way(table))
        assert files(table) == before
        assert not [place for place in staged(table) if not place.endswith("expired.json")]


def drop_refs(table: Table) -> None:
    table.remove_tag("kept")
    table.remove_branch("audit")


class TestTheThreshold:
    """From so many files on an inventory is a job, if something runs jobs."""

    @pytest.mark.costly
    def test_from_it_on_a_job_runs_and_below_it_none(self, still: Table) -> None:
        counted = FileInventory(Work(still, run=lambda plan: run_local(plan, still.io)), spark_from_files=17)
        assert [counted.is_for_spark(files) for files in (16, 17)] == [False, True]
        assert not FileInventory(Work(still), spark_from_files=0).is_for_spark(10**9)  # without a Spark
        ran: list[JobPlan] = []
        expire_snapshots(Work(still), DRY, inventory=in_a_job(still, spark_from_files=1_000, ran=ran))
        assert not ran
        expire_snapshots(Work(still), DRY, inventory=in_a_job(still, spark_from_files=20, ran=ran))
        assert {plan.operation for plan in ran} == {"inventory"}

    def test_listing_goes_by_what_the_summaries_say(self, still: Table) -> None:
        assert expected_files(still.metadata) > 12
        ran: list[JobPlan] = []
        inventory = in_a_job(still, spark_from_files=expected_files(still.metadata), ran=ran)
        remove_orphan_files(Work(still), RemoveOrphanFilesRequest(action="dry_run"), inventory=inventory)
        assert len(ran) == 2

    def test_a_number_of_files_that_cannot_be_is_refused(self, still: Table) -> None:
        with pytest.raises(InvalidInputError, match="spark_from_files is -1, expected 0 or more files"):
            FileInventory(Work(still), spark_from_files=-1)


def read_after(table: Table, change: Callable[[JobPlan, JobResult], JobResult]) -> None:
    """Read the files of a table in a job whose result is changed."""
    work = Work(table, run=lambda plan: change(plan, run_local(plan, table.io)))
    known_files(table, inventory=FileInventory(work, spark_from_files=0))


class TestAJob:
    """Its documents are gone when it is done, and half an answer is none."""

    @pytest.mark.costly
    def test_a_job_that_fails_leaves_no_documents_and_deletes_nothing(self, table: Table) -> None:
        def fails(plan: JobPlan) -> JobResult:
            table.io.create(plan.result_location, JobResult.failed(StorageError("no room")).to_json())
            return JobResult.from_json(table.io.read(plan.result_location))

        drop_refs(table)
        before = files(table)
        with pytest.raises(StorageError, match="no room"):
            expire_snapshots(Work(table), ALL, inventory=FileInventory(Work(table, run=fails), spark_from_files=0))
        assert files(table) == before
        assert not [place for place in staged(table) if not place.endswith("expired.json")]

    def test_a_unit_that_is_missing_is_an_error(self, still: Table) -> None:
        with pytest.raises(FormatError, match=r"the job ran \d of \d units"):
            read_after(still, lambda plan, result: replace(result, units=result.units[1:]))

    @pytest.mark.parametrize("place", ["/elsewhere/0.arrow", "{prefix}/../../../../elsewhere"])
    def test_a_result_that_is_no_file_of_the_job_is_an_error(self, still: Table, place: str) -> None:
        def forge(plan: JobPlan, result: JobResult) -> JobResult:
            location = place.format(prefix=plan.inventory_location)
            forged = replace(result.units[0], file=replace(result.units[0].file, location=location))
            return replace(result, units=(forged, *result.units[1:]))

        with pytest.raises(FormatError, match=r"elsewhere.* is not a file of job"):
            read_after(still, forge)
        assert not staged(still)

    @pytest.mark.parametrize("left", [0, 10, 200])
    def test_half_of_an_answer_is_an_error(self, still: Table, left: int) -> None:
        def tear(plan: JobPlan, result: JobResult) -> JobResult:
            place = result.units[0].file.location
            data = still.io.read(place)[:left]
            still.io.delete([place])
            torn = replace(result.units[0], file=SealedFile.create(still.io, place, data))
            return replace(result, units=(torn, *result.units[1:]))

        with pytest.raises(FormatError, match="the result of a unit of an inventory"):
            read_after(still, tear)
        assert not staged(still)


class TestBareWorkers:
    """Workers without fastavro list files; to read manifests they say what they lack."""

    @pytest.mark.services
    def test_of_a_clean_up(self, still: Table, tmp_path: Path) -> None:
        ran: list[JobPlan] = []

        def run(plan: JobPlan) -> JobResult:
            ran.append(plan)
            command = [sys.executable, str(HERE / "bare_program.py"), plan.location]
            environ = {**os.environ, "PYTHONPATH": str(build_zip(tmp_path))}
            done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return JobResult.from_json(still.io.read(plan.result_location))

        inventory = FileInventory(Work(still, run=run), spark_from_files=0)
        with pytest.raises(UnsupportedError, match=r"No module named 'fastavro'\); install fastavro there"):
            remove_orphan_files(Work(still), RemoveOrphanFilesRequest(action="dry_run"), inventory=inventory)
        assert len(ran) == 2


class TestProgress:
    """A line in some seconds at most, with files, bytes and the share that is done."""

    def test_lines(self, caplog: pytest.LogCaptureFixture) -> None:
        now = [0.0]
        progress = Progress("db.t: files", whole=200, every_seconds=10, clock=lambda: now[0])
        with caplog.at_level(logging.INFO):
            for second in range(41):
                now[0] = second
                progress.count(1000, 1 << 20)
                progress.finish(5)
        assert caplog.messages == [
            "db.t: files: 11000 files of 11.0 MiB so far, 25 % done",
            "db.t: files: 21000 files of 21.0 MiB so far, 50 % done",
            "db.t: files: 31000 files of 31.0 MiB so far, 75 % done",
            "db.t: files: 41000 files of 41.0 MiB so far, 100 % done",
        ]

    def test_what_an_inventory_found_is_logged_in_the_end(self, still: Table, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            known_files(still)
        (line,) = [message for message in caplog.messages if "files of the table" in message]
        assert re.fullmatch(r"db\.t: files of the table: \d+ files of [\d.]+ \w+", line)

    @pytest.mark.parametrize(
        ("count", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
    )
    def test_bytes_as_people_read_them(self, count: int, text: str) -> None:
        assert in_bytes(count) == text
