"""Changes of other tables on branches that are published: each change is once in main, wherever it was staged."""

import json
from dataclasses import replace

import pytest

from airflow_iceberg.commit.runs.consumed import PREFIX
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import RowCount
from airflow_iceberg.operations.wap.branch import clean_up, start_branch
from airflow_iceberg.operations.wap.publish import PublishRequest, publish
from airflow_iceberg.operations.work import Work
from tests.operations.test_changes_input import Lake, key


@pytest.fixture
def lake():
    return Lake()


def work(lake, run, task):
    return Work(lake.table("db.t"), operation_key=key(run, task_id=task), try_number=1)


def stage(lake, run):
    """Begin the branch of a run and write to it the changes since the last run; return what is to be published."""
    branch = f"wap_{run}"
    start_branch(work(lake, run, "start"), branch)
    lake.run(key(run), branch=branch)
    report = audit(work(lake, run, "audit"), AuditRequest(audits=[RowCount(min=0)], branch=branch))
    return PublishRequest(snapshot_id=report.snapshot_id, branch=branch, audits=[RowCount(min=0)])


def finish(lake, run, request):
    how = publish(work(lake, run, "publish"), request).how
    clean_up(work(lake, run, "clean"), request.branch, request.snapshot_id)
    return how


class TestTheNextRun:
    """It begins where the last one that was published has ended, although each run has a branch of its own."""

    @pytest.mark.costly
    def test_reads_what_came_since(self, lake):
        for number in (1, 2, 3):
            lake.add(number)
            assert finish(lake, f"r{number}", stage(lake, f"r{number}")) == "fast_forward"
            assert lake.ids() == list(range(1, number + 1))

    @pytest.mark.costly
    def test_after_the_snapshots_of_the_target_have_expired(self, lake):
        lake.add(1)
        finish(lake, "r1", stage(lake, "r1"))
        lake.add(99, to="db.t")
        lake.expire("db.t")
        lake.add(2)
        finish(lake, "r2", stage(lake, "r2"))
        assert lake.ids() == [1, 2, 99]

    @pytest.mark.costly
    def test_after_that_it_reads_its_own_range_again_when_it_is_cleared(self, lake):
        lake.add(1)
        finish(lake, "r1", stage(lake, "r1"))
        lake.add(99, to="db.t")
        lake.expire("db.t")
        lake.add(2)
        start_branch(work(lake, "r1", "start"), "wap_r1")
        lake.run(key("r1", epoch=1, tries=2), branch="wap_r1")
        assert lake.ids(ref="wap_r1") == [1, 99]

    @pytest.mark.costly
    def test_leaves_no_property_of_a_branch_that_is_gone(self, lake):
        for number in (1, 2, 3):
            lake.add(number)
            finish(lake, f"r{number}", stage(lake, f"r{number}"))
        kept = [text for name, text in lake.table("db.t").metadata.properties.items() if name.startswith(PREFIX)]
        assert [json.loads(text)["task"][-1] for text in kept] == ["main"]

    def test_of_a_branch_that_another_program_has_published_is_refused(self, lake, monkeypatch):
        """Nothing says that its changes are in main, once the snapshots have expired: they are not read twice."""
        lake.add(1)
        request = stage(lake, "r1")
        monkeypatch.setattr("airflow_iceberg.commit.actions.snapshot_refs.moved_to_main", lambda *_: ())
        lake.table("db.t").fast_forward("main", request.branch)
        monkeypatch.undo()
        lake.table("db.t").remove_branch(request.branch)
        lake.add(99, to="db.t")
        lake.expire("db.t")
        lake.add(2)
        with pytest.raises(IncompatibleChangeError, match=r"has read changes on branch 'wap_r1', .* has expired"):
            stage(lake, "r2")
        assert lake.ids() == [1, 99]

    @pytest.mark.costly
    def test_does_not_mind_a_branch_that_was_kept_and_not_published(self, lake):
        lake.add(9, to="db.t")
        lake.add(1)
        stage(lake, "r1")
        lake.add(99, to="db.t")
        lake.add(98, to="db.t")
        lake.expire("db.t")
        finish(lake, "r2", stage(lake, "r2"))
        assert lake.ids() == [1, 9, 98, 99]


class TestMainHasMovedOn:
    """The rows are applied if nobody has read the same changes for main since, and main gets the watermark."""

    @pytest.mark.costly
    @pytest.mark.parametrize("expires", [False, True])
    def test_by_others(self, lake, expires):
        lake.add(1)
        finish(lake, "r1", stage(lake, "r1"))
        lake.add(2)
        request = stage(lake, "r2")
        lake.add(99, to="db.t")
        assert finish(lake, "r2", request) == "reapplied"
        if expires:
            lake.add(98, to="db.t")
            lake.expire("db.t")
        lake.add(3)
        assert finish(lake, "r3", stage(lake, "r3")) == "fast_forward"
        assert lake.ids() == [1, 2, 3, *([98] if expires else []), 99]

    @pytest.mark.costly
    def test_and_it_is_audited_again(self, lake):
        lake.add(1)
        request = replace(stage(lake, "r1"), is_always_audited=True)
        lake.add(99, to="db.t")
        assert finish(lake, "r1", request) == "audited_again"
        lake.add(2)
        lake.add(98, to="db.t")
        lake.expire("db.t")
        finish(lake, "r2", stage(lake, "r2"))
        assert lake.ids() == [1, 2, 98, 99]

    @pytest.mark.costly
    def test_by_another_run_that_has_read_the_same(self, lake):
        lake.add(1)
        first, second = stage(lake, "r1"), stage(lake, "r2")
        finish(lake, "r1", first)
        with pytest.raises(IncompatibleChangeError, match="another run of this task has read its changes meanwhile"):
            finish(lake, "r2", second)
        lake.add(2)
        start_branch(work(lake, "r2", "start"), "wap_r2")
        finish(lake, "r2", stage(lake, "r2"))
        assert lake.ids() == [1, 2]

    def test_while_several_commits_were_staged(self, lake):
        lake.add(9, to="db.t")
        lake.add(1)
        request = stage(lake, "r1")
        lake.add(5, to="db.t", branch="wap_r1")
        report = audit(work(lake, "r1", "audit"), AuditRequest(audits=[RowCount(min=0)], branch="wap_r1"))
        lake.add(99, to="db.t")
        with pytest.raises(IncompatibleChangeError, match="made from changes of a table, by several commits"):
            publish(work(lake, "r1", "publish"), replace(request, snapshot_id=report.snapshot_id))
        assert lake.ids() == [9, 99]
