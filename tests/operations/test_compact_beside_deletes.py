"""Rewrites of files beside deletes of all kinds, those that are there and those that come meanwhile: no row returns."""

from typing import Any

import pytest

from airflow_iceberg.errors import CommitConflictError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, CompactResult, compact
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, job_work, reachable
from tests.support.changes import (
    NAME,
    Append,
    Change,
    Compact,
    EqualityDelete,
    MergeOnReadDelete,
    live_entries,
    make_table,
    plan,
    rows_of,
)
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog

ALL = {"rewrite-all": True}


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog()


def make(catalog: MemoryCatalog, version: int = 2) -> None:
    """One partition of two files: ids 1 to 9 and 10 to 19."""
    make_table(catalog, version)
    for ids in (range(1, 10), range(10, 20)):
        plan(catalog, Append(ids=frozenset(ids))).commit()


def run(catalog: MemoryCatalog, *meanwhile: Change, **request: Any) -> tuple[CompactResult, int]:
    """Compact, with changes of others after the rows were read; return what it did and how many jobs it took."""
    table, jobs = Table.load(catalog, NAME), []

    def job(job_plan: JobPlan) -> JobResult:
        jobs.append(job_plan)
        result = run_local(job_plan, table.io)
        for change in meanwhile if len(jobs) == 1 else ():
            plan(catalog, change).commit()
        return result

    result = compact(Work(table, run=job), CompactRequest(**{"options": ALL, **request}))
    return result, len(jobs)


def ids(catalog: MemoryCatalog) -> list[int]:
    return sorted(number for _, number in rows_of(catalog).elements())


class TestAFilterChoosesFilesNotDeletes:
    """Whole files are written anew, so all their deletes count, also those of rows that the filter does not select."""

    @pytest.mark.parametrize("version", [2, 3])
    def test_in_a_compaction(self, catalog, version):
        make(catalog, version)
        plan(catalog, EqualityDelete(ids=frozenset({2}))).commit()
        result, _ = run(catalog, where="id > 5")
        assert result.deleted_data_files == 2
        assert ids(catalog) == [n for n in range(1, 20) if n != 2]

    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_in_a_delete(self, catalog, version, mode):
        make(catalog, version)
        plan(catalog, EqualityDelete(ids=frozenset({2}))).commit()
        Table.load(catalog, NAME).delete("id > 5 and id < 15", mode=mode)
        assert ids(catalog) == [1, 3, 4, 5, 15, 16, 17, 18, 19]


class TestDeletesThatComeMeanwhile:
    """A compaction has read the rows; what others delete before it commits stays deleted."""

    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize(
        ("delete", "keeps_number", "expected_jobs"),
        [(MergeOnReadDelete, True, 2), (EqualityDelete, True, 1), (EqualityDelete, False, 2)],
    )
    def test_they_make_it_read_again_unless_they_apply_to_the_new_files(
        self, catalog, version, delete, keeps_number, expected_jobs
    ):
        make(catalog, version)
        options = {**ALL, "use-starting-sequence-number": keeps_number}
        _, jobs = run(catalog, delete(ids=frozenset({3, 12})), options=options)
        assert jobs == expected_jobs
        assert ids(catalog) == [n for n in range(1, 20) if n not in (3, 12)]

    @pytest.mark.parametrize("version", [2, 3])
    def test_rows_that_come_after_a_delete_by_key_stay(self, catalog, version):
        make(catalog, version)
        run(catalog, EqualityDelete(ids=frozenset({3})), Append(ids=frozenset({3})))
        assert ids(catalog) == list(range(1, 20))
        run(catalog)
        assert ids(catalog) == list(range(1, 20))

    def test_rows_that_move_to_another_partition_do_not_escape_a_delete_by_key(self, catalog):
        make(catalog)
        Table.load(catalog, NAME).alter([{"add_partition_field": "bucket(4, id)"}])
        _, jobs = run(catalog, EqualityDelete(ids=frozenset({3, 12})))
        assert jobs == 2
        assert ids(catalog) == [n for n in range(1, 20) if n not in (3, 12)]

    def test_appends_are_no_reason_to_read_again(self, catalog):
        make(catalog)
        _, jobs = run(catalog, Append(ids=frozenset({50})))
        assert jobs == 1
        assert ids(catalog) == [*range(1, 20), 50]


class TestGroupsWithoutRows:
    """Where every row is deleted no file comes out, and the old files go all the same, with their deletes."""

    @pytest.mark.parametrize("version", [2, 3])
    def test_all_rows_of_a_table(self, catalog, version):
        make(catalog, version)
        plan(catalog, MergeOnReadDelete(ids=frozenset(range(1, 20)))).commit()
        result, _ = run(catalog)
        assert (result.outcome, result.deleted_data_files, result.added_data_files) == ("committed", 2, 0)
        assert ids(catalog) == []
        assert live_entries(Table.load(catalog, NAME)) == []

    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("partial", [True, False])
    def test_one_group_of_several(self, catalog, version, partial):
        make(catalog, version)
        plan(catalog, Append(part="b", ids=frozenset(range(30, 40)))).commit()
        plan(catalog, MergeOnReadDelete(ids=frozenset(range(1, 20)))).commit()
        result, _ = run(catalog, options={**ALL, "partial-progress.enabled": partial})
        assert result.file_groups == 2
        assert ids(catalog) == list(range(30, 40))

    def test_version_1_has_no_numbers_and_no_deletes(self, catalog):
        make(catalog, 1)
        Table.load(catalog, NAME).alter([{"add_partition_field": "bucket(4, id)"}])
        result, jobs = run(catalog, Append(ids=frozenset({50})))
        assert (result.outcome, jobs) == ("committed", 1)
        assert ids(catalog) == [*range(1, 20), 50]


class TestPartialProgress:
    """Groups are committed a few at a time: what cannot be committed is left as it was, the rest counts."""

    def test_a_commit_that_loses_every_race_is_left_out(self, catalog):
        make(catalog)
        plan(catalog, Append(part="b", ids=frozenset(range(30, 40)))).commit()
        Table.load(catalog, NAME).alter([{"set_properties": {"commit.retry.num-retries": "0"}}])
        table = Table.load(FaultyCatalog(catalog, [Fault.CONFLICT]), NAME)
        result = compact(job_work(table), CompactRequest(options={**ALL, "partial-progress.enabled": True}))
        assert (result.outcome, result.file_groups, result.failed_file_groups) == ("committed", 1, 1)
        assert ids(catalog) == [*range(1, 20), *range(30, 40)]
        assert data_locations(table.refresh()) <= reachable(table)

    def test_a_task_fails_when_more_commits_do_than_are_allowed(self, catalog):
        make(catalog)
        plan(catalog, Append(part="b", ids=frozenset(range(30, 40)))).commit()
        Table.load(catalog, NAME).alter([{"set_properties": {"commit.retry.num-retries": "0"}}])
        table = Table.load(FaultyCatalog(catalog, [Fault.CONFLICT] * 2), NAME)
        options = {**ALL, "partial-progress.enabled": True, "partial-progress.max-failed-commits": 1}
        with pytest.raises(CommitConflictError):
            compact(job_work(table), CompactRequest(options=options))
        assert ids(catalog) == [*range(1, 20), *range(30, 40)]
        assert data_locations(table.refresh()) <= reachable(table)

    def test_a_commit_whose_fate_is_unknown_keeps_its_files(self, catalog):
        make(catalog)
        table = Table.load(FaultyCatalog(catalog, [Fault.LAND_THEN_UNKNOWN]), NAME)
        compact(job_work(table), CompactRequest(options=ALL))
        assert ids(catalog) == list(range(1, 20))


class TestLimitsAndBranches:
    """What is not asked for stays as it is."""

    def test_the_most_files_that_may_go(self, catalog):
        make(catalog)
        result, _ = run(catalog, options={**ALL, "max-files-to-rewrite": 1})
        assert result.deleted_data_files == 1
        assert ids(catalog) == list(range(1, 20))

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_a_branch_while_main_moves(self, catalog, version):
        make(catalog, version)
        Table.load(catalog, NAME).create_branch("dev")
        result, jobs = run(catalog, Append(ids=frozenset({50})), Compact(), branch="dev")
        assert (result.deleted_data_files, jobs) == (2, 1)
        assert ids(catalog) == [*range(1, 20), 50]
        assert sorted(number for _, number in rows_of(catalog, "dev").elements()) == list(range(1, 20))
