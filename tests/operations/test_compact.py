"""Compaction from the choice of files to the commit, beside other writers."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import InvalidInputError, NotFoundError, StalePlanError, StorageError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, CompactResult, compact
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, id_rows, ids, job_work, lineage, new_table, reachable, staged

KEY = OperationKey(dag_id="d", run_id="r", task_id="compact")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, schema={"id": "long", "part": "int"}, partition_by=["part"])
    for start in range(5):
        table.append(rows(range(start * 10, start * 10 + 10)))
    return table


def rows(ids: range) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part": pa.array([n % 2 for n in ids], pa.int32())})


def run(table: Table, **request: Any) -> CompactResult:
    return compact(job_work(table), CompactRequest(**request))


def files(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


class TestOneCommit:
    """Small files of each partition become one, in one commit, and no row changes."""

    @pytest.mark.costly
    def test_the_table_has_the_same_rows_in_fewer_files(self, table):
        before = ids(table)
        result = run(table)
        assert ids(table) == before
        assert len(files(table)) == 2
        assert (result.outcome, result.file_groups, result.carried_records) == ("committed", 2, 50)
        assert (result.deleted_data_files, result.added_data_files) == (10, 2)
        snapshot = table.current_snapshot()
        assert snapshot.operation == "replace"
        assert result.snapshot_ids == (snapshot.snapshot_id,)

    def test_the_second_time_there_is_nothing_to_do(self, table):
        run(table)
        head = table.current_snapshot()
        assert run(table).outcome == "nothing"
        assert table.current_snapshot() == head

    def test_a_filter_chooses_the_files(self, table):
        assert run(table, where="part = 1").deleted_data_files == 5
        assert len(files(table)) == 6

    def test_nothing_is_left_of_the_job(self, table):
        run(table)
        assert not staged(table)

    @pytest.mark.costly
    def test_a_branch_is_compacted_alone(self, table):
        table.create_branch("dev")
        assert run(table, branch="dev").outcome == "committed"
        assert len(files(table)) == 10
        assert len(table.scan(ref="dev").plan_files()) == 2

    def test_a_table_without_rows_has_nothing_to_do(self, table):
        empty = Table.create(table.catalog, "db.empty", schema={"id": "long"})
        assert run(empty).outcome == "nothing"

    @pytest.mark.costly
    def test_rows_are_sorted_by_the_order_asked_for(self, table):
        run(table, strategy="sort", sort_by=("id desc",))
        for task in table.scan().plan_files():
            (part,) = task.file.partition
            found = table.scan(f"part = {part}").to_arrow()["id"].to_pylist()
            assert found == sorted(found, reverse=True)

    @pytest.mark.costly
    def test_lineage_of_version_3_stays(self, tmp_path):
        table = new_table(tmp_path / "three", schema=rows(range(0)).schema, properties={"format-version": "3"})
        for start in range(5):
            table.append(rows(range(start * 10, start * 10 + 10)))
        before = lineage(table)
        run(table)
        assert len(files(table)) == 1
        assert lineage(table).equals(before)


class TestRetries:
    """A task compacts once, however often it is tried."""

    @pytest.mark.costly
    def test_a_retry_finds_the_commit(self, table):
        first = compact(job_work(table, operation_key=KEY), CompactRequest())
        table.append(rows(range(100, 110)))
        again = Table.load(table.catalog, "db.t")
        second = compact(Work(again, run=fail, operation_key=KEY, try_number=2), CompactRequest())
        assert second.outcome == "found"
        assert second.snapshot_ids == first.snapshot_ids
        assert second.deleted_data_files == 10

    @pytest.mark.costly
    def test_a_retry_does_the_rest_of_several_commits(self, table):
        options = {"partial-progress.enabled": True, "partial-progress.max-commits": 2}
        first = compact(job_work(table, operation_key=KEY), CompactRequest(where="part = 0", options=options))
        second = compact(job_work(table, operation_key=KEY, try_number=2), CompactRequest(options=options))
        assert second.snapshot_ids[:1] == first.snapshot_ids
        assert (second.deleted_data_files, second.file_groups) == (10, 2)
        assert len(files(table)) == 2

    def test_a_job_that_fails_leaves_the_table_and_no_documents(self, table):
        before, disk = files(table), data_locations(table)
        with pytest.raises(StorageError, match="disk is full"):
            compact(Work(table, run=fail), CompactRequest())
        assert files(table) == before
        assert data_locations(table) == disk
        assert not staged(table)


class TestPartialProgress:
    """Groups are committed in several commits, at most as many as asked for."""

    @pytest.mark.costly
    @pytest.mark.parametrize(("most", "commits"), [({}, 2), ({"partial-progress.max-commits": 1}, 1)])
    def test_each_group_gets_a_commit_of_its_own_as_far_as_allowed(self, table, most, commits):
        result = run(table, options={"partial-progress.enabled": "true", **most})
        assert len(result.snapshot_ids) == commits
        assert (result.deleted_data_files, result.added_data_files) == (10, 2)


class TestOtherWriters:
    """What others do meanwhile is kept; groups whose files they changed are planned again, alone."""

    @pytest.mark.costly
    def test_rows_appended_meanwhile_stay(self, table):
        def append_meanwhile(plan: JobPlan) -> JobResult:
            Table.load(table.catalog, "db.t").append(rows(range(50, 60)))
            return run_local(plan, table.io)

        compact(Work(table, run=append_meanwhile), CompactRequest())
        assert ids(table) == list(range(60))
        assert len(files(table)) == 4

    @pytest.mark.costly
    def test_a_group_that_another_compaction_took_is_planned_again_alone(self, table):
        plans = []

        def compact_meanwhile(plan: JobPlan) -> JobResult:
            plans.append(plan)
            result = run_local(plan, table.io)
            if len(plans) == 1:
                other = Table.load(table.catalog, "db.t")
                assert run(other, where="part = 1").outcome == "committed"
                for start in range(50, 100, 10):
                    other.append(rows(range(start, start + 10)))
            return result

        result = compact(Work(table, run=compact_meanwhile), CompactRequest())
        assert ids(table) == list(range(100))
        assert len(plans) == 2
        # The first commit took partition 0, the second what came to partition 1 since.
        assert len(result.snapshot_ids) == 2
        assert data_locations(table) <= reachable(table)

    @pytest.mark.costly
    def test_files_that_change_again_and_again_are_given_up(self, table):
        def rewrite_meanwhile(plan: JobPlan) -> JobResult:
            result = run_local(plan, table.io)
            run(Table.load(table.catalog, "db.t"), options={"rewrite-all": True})
            return result

        with pytest.raises(StalePlanError, match=r"other writers changed files of table db\.t in each of 4 attempts"):
            compact(Work(table, run=rewrite_meanwhile), CompactRequest(options={"rewrite-all": True}))
        assert ids(table) == list(range(50))
        assert data_locations(table) <= reachable(table)

    @pytest.mark.costly
    def test_two_compactions_at_a_time_do_the_work_once(self, table):
        results: list[CompactResult] = []
        threads = [
            threading.Thread(target=lambda: results.append(run(Table.load(table.catalog, "db.t")))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        table.refresh()
        assert ids(table) == list(range(50))
        assert sorted(result.outcome for result in results) in (["committed", "nothing"], ["committed", "committed"])
        assert len(files(table)) == 2


class TestAJobThatDies:
    """Without another writer there is nothing to plan again: the task's own retry starts the next job."""

    def test_is_not_started_again(self, table):
        jobs = []

        def die(plan: JobPlan) -> JobResult:
            jobs.append(plan)
            raise StalePlanError("the job ended without a result")

        with pytest.raises(StalePlanError, match="ended without a result"):
            compact(Work(table, run=die), CompactRequest())
        assert len(jobs) == 1


class TestBadInput:
    """What cannot be is said before anything is started."""

    @pytest.mark.parametrize(
        ("request_", "error", "message"),
        [
            ({"where": "id >"}, InvalidInputError, "id >"),
            ({"where": "nope = 1"}, NotFoundError, "nope"),
            ({"options": {"target-file-size-bytes": 0}}, InvalidInputError, "target-file-size-bytes is 0, expected 1"),
            ({"strategy": "shuffle"}, InvalidInputError, "unknown strategy 'shuffle'; one of binpack, sort, zorder"),
            ({"strategy": "sort"}, InvalidInputError, "table db.t has no sort order"),
            ({"strategy": "zorder"}, InvalidInputError, "'zorder' needs the columns"),
            ({"strategy": "sort", "sort_by": ("nope",)}, NotFoundError, "nope"),
            ({"strategy": "zorder", "sort_by": ("nope",)}, NotFoundError, "nope"),
            ({"options": {"compression-factor": 2}}, InvalidInputError, "is of strategy 'sort', and the .* 'binpack'"),
            (
                {"strategy": "sort", "sort_by": ("id",), "options": {"max-output-size": 2}},
                InvalidInputError,
                "option 'max-output-size' is of strategy 'zorder', and the strategy is 'sort'",
            ),
            ({"options": {"output-spec-id": 7}}, InvalidInputError, "output-spec-id is 7, expected one of 0"),
            ({"branch": "nope"}, NotFoundError, "nope"),
            ({"options": "rewrite-all"}, InvalidInputError, "options are 'rewrite-all', expected names and values"),
            ({"snapshot_properties": "x"}, InvalidInputError, "snapshot_properties are 'x', expected names and texts"),
        ],
    )
    def test_it_is_refused(self, table, request_, error, message):
        before = table.current_snapshot()
        with pytest.raises(error, match=message):
            compact(Work(table, run=fail), CompactRequest(**request_))
        assert table.refresh().current_snapshot() == before

    def test_a_spec_whose_column_was_dropped(self, table):
        table.alter([{"add_column": {"name": "old", "type": "string"}}, {"add_partition_field": "bucket(4, old)"}])
        table.alter([{"drop_partition_field": "bucket(4, old)"}, {"drop_column": "old"}])
        before = table.current_snapshot()
        request = CompactRequest(options={"rewrite-all": True, "output-spec-id": 1})
        with pytest.raises(InvalidInputError, match="output-spec-id is 1, a spec by which no files can be written"):
            compact(Work(table, run=fail), request)
        assert table.refresh().current_snapshot() == before

    def test_also_where_nothing_is_to_be_done(self, table):
        for strategy in ("sort", "zorder"):
            with pytest.raises(NotFoundError, match="nope"):
                run(table, strategy=strategy, sort_by=("nope",), where="false")


def fail(plan: JobPlan) -> JobResult:
    raise StorageError("the disk is full")


def test_a_tag_is_refused_also_if_there_is_nothing_to_do(tmp_path):
    table = new_table(tmp_path)
    table.append(id_rows(range(3)))
    table.create_tag("t")
    with pytest.raises(InvalidInputError, match="'t' is a tag"):
        compact(job_work(table), CompactRequest(branch="t"))
