"""A change of refs is made once for a task, whatever is lost, and whatever others do to the ref meanwhile."""

import dataclasses
import itertools
import time

import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.refs.marks import MOST_MARKS, PREFIX, all_marks
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
)
from airflow_iceberg.format.metadata.updates import Change, RemoveProperties, SetProperties
from airflow_iceberg.operations import rollback as rollback_module
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.changes import NAME, Append, Expire, ids, make_table, plan
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash

KEY = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=100_000, installation="i")
CLEARED = dataclasses.replace(KEY, epoch=200_000)


@pytest.fixture
def catalog():
    catalog = MemoryCatalog()
    make_table(catalog, 2)
    for number in range(3):
        plan(catalog, Append("a", ids(number))).commit()
    table = Table.load(catalog, NAME)
    table.create_branch("audit")
    plan(catalog, Append("b", ids(9)), branch="audit").commit()
    return catalog


def load(catalog):
    return Table.load(catalog, NAME)


def main(catalog):
    metadata = load(catalog).metadata
    return [snapshot.snapshot_id for snapshot in metadata.ancestors(metadata.current_snapshot_id)][::-1]


def first_of(table):
    *_, first = table.metadata.ancestors(table.metadata.current_snapshot_id)
    return first.snapshot_id


def to_first(table, **options):
    return table.rollback_to_snapshot(first_of(table), **options)


def stage(catalog, wap_id="w1"):
    """Stage a commit on the second snapshot of main, as Java does: no ref points to it."""
    table = load(catalog)
    table.create_branch("staging", main(catalog)[1])
    planned = plan(catalog, Append("c", ids(5)), branch="staging")
    properties = {**planned.action.settings.properties, "wap.id": wap_id}
    planned.action.settings = dataclasses.replace(planned.action.settings, properties=properties)
    planned.commit()
    table.refresh().remove_branch("staging")


# Each does something to refs, moves the ref that it is asked for, and can be done again on another state.
STEPS = {
    "rollback": to_first,
    "set_current": lambda table, **o: table.set_current_snapshot(ref="audit", **o),
    "fast_forward": lambda table, **o: table.fast_forward("main", "audit", **o),
    "create_branch": lambda table, **o: table.create_branch("new", **o),
    "replace_tag": lambda table, **o: table.create_tag("v1", first_of(table), replace_existing=True, **o),
    "remove_branch": lambda table, **o: table.remove_branch("audit", **o),
    "cherry_pick": lambda table, **o: table.cherry_pick(table.refs["audit"].snapshot_id, **o),
    "publish": lambda table, **o: table.publish_changes("w1", **o),
}
REF = {"create_branch": "new", "replace_tag": "v1", "remove_branch": "audit"}


def undo_and_go_on(inner, _):
    """Be the rival: put the refs where they were not, commit on top of main, and expire what is not needed."""
    table = Table.load(inner, NAME)
    refs = dict(table.refs)
    current = table.metadata.snapshots[2].snapshot_id
    table.set_current_snapshot(current)
    if "new" in refs:
        table.remove_branch("new")
    if "audit" not in refs:
        table.create_branch("audit", table.metadata.snapshots[3].snapshot_id)
    if "v1" in refs:
        table.create_tag("v1", current, replace_existing=True)
    plan(inner, Append("z", ids(77))).commit()


@pytest.fixture
def staged(catalog):
    stage(catalog)
    return catalog


@pytest.mark.parametrize("name", STEPS)
class TestOnceForATask:
    """The mark in the table tells: the ref does not, once somebody has moved it on."""

    def test_killed_after_the_commit_and_moved_by_another_writer(self, staged, name):
        with pytest.raises(SimulatedCrash):
            STEPS[name](Table.load(FaultyCatalog(staged, [Fault.CRASH_AFTER]), NAME), operation_key=KEY)
        undo_and_go_on(staged, None)
        before = staged.load(NAME)
        result = STEPS[name](load(staged), operation_key=KEY)
        assert result.outcome is Outcome.FOUND
        assert staged.load(NAME).metadata_location == before.metadata_location

    @pytest.mark.parametrize(
        "fault",
        [Fault.LAND_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_CONFLICT],
    )
    def test_a_lost_answer_is_found_although_another_writer_has_moved_the_ref(self, staged, name, fault):
        faulty = FaultyCatalog(staged, [fault], rival=undo_and_go_on)
        result = STEPS[name](Table.load(faulty, NAME), operation_key=KEY)
        assert result.outcome is Outcome.COMMITTED
        assert len(faulty.swaps) == 1
        if fault is not Fault.LAND_THEN_UNKNOWN:
            assert load(staged).current_snapshot().summary["added-records"] == "1"
            assert load(staged).scan("id = 77").to_arrow().num_rows == 1

    def test_killed_before_the_commit_it_is_done_by_the_retry(self, staged, name):
        with pytest.raises(SimulatedCrash):
            STEPS[name](Table.load(FaultyCatalog(staged, [Fault.CRASH_BEFORE]), NAME), operation_key=KEY)
        assert STEPS[name](load(staged), operation_key=KEY).outcome is Outcome.COMMITTED
        assert STEPS[name](load(staged), operation_key=KEY).outcome is Outcome.FOUND

    def test_other_work_does_it_again(self, staged, name):
        STEPS[name](load(staged), operation_key=KEY)
        assert len(all_marks(load(staged).metadata)) == 1
        if name in ("cherry_pick", "publish"):
            with pytest.raises(IncompatibleChangeError, match="already"):
                STEPS[name](load(staged), operation_key=CLEARED)
            return
        undo_and_go_on(staged, None)
        if name == "fast_forward":
            with pytest.raises(IncompatibleChangeError, match="both have changes of their own"):
                STEPS[name](load(staged), operation_key=CLEARED)
            return
        assert STEPS[name](load(staged), operation_key=CLEARED).outcome is Outcome.COMMITTED
        # The mark is that of the newest epoch: a process that outlived its task changes nothing.
        with pytest.raises(IncompatibleChangeError, match="was superseded: the task was cleared"):
            STEPS[name](load(staged), operation_key=KEY)
        assert len(all_marks(load(staged).metadata)) == 1


class TestTheResult:
    """A retry that finds the work reports the same places."""

    def test_of_the_retry(self, catalog):
        first, *_, last = main(catalog)
        done = to_first(load(catalog), operation_key=KEY)
        load(catalog).set_current_snapshot(last)
        found = to_first(load(catalog), operation_key=KEY)
        for result in (done, found):
            xcom = result.to_xcom()
            assert (xcom["previous_snapshot_id"], xcom["snapshot_id"]) == (str(last), str(first))
        assert (done.disappearing.snapshot_count, done.appearing.snapshot_count) == (2, 0)
        assert (done.done_by_this_try, found.done_by_this_try) == (True, False)


class TestMarksAreBounded:
    """As many as are useful; a retry knows when its own may be among those that are gone."""

    @pytest.mark.costly
    def test_there_are_not_more(self, catalog):
        for number in range(MOST_MARKS + 5):
            key = dataclasses.replace(KEY, run_id=f"r{number}")
            load(catalog).create_tag("v1", main(catalog)[number % 2], replace_existing=True, operation_key=key)
        marks = all_marks(load(catalog).metadata)
        assert len(marks) == MOST_MARKS
        assert min(mark.number for mark in marks) == 6
        assert max(mark.forgotten_ms for mark in marks) > 0
        assert not any(name.startswith(PREFIX) for name in load(catalog).properties)

    def forget(self, catalog, key):
        """Do the work of a key, and let so many other tasks do theirs that its mark is removed."""
        STEPS["create_branch"](load(catalog), operation_key=key)
        for number in range(MOST_MARKS):
            other = dataclasses.replace(KEY, run_id=f"r{number}")
            load(catalog).create_tag("v1", main(catalog)[number % 2], replace_existing=True, operation_key=other)
        load(catalog).remove_branch("new")

    @pytest.mark.costly
    def test_a_retry_whose_mark_may_be_gone_is_refused(self, catalog):
        key = dataclasses.replace(KEY, started_ms=int(time.time() * 1000), try_number=2)
        self.forget(catalog, key)
        with pytest.raises(IncompatibleChangeError, match="it is not known any more whether an earlier try"):
            STEPS["create_branch"](load(catalog), operation_key=key)

    @pytest.mark.costly
    def test_a_run_that_started_later_is_not(self, catalog):
        self.forget(catalog, KEY)
        later = dataclasses.replace(KEY, run_id="new", started_ms=int(time.time() * 1000) + 3_600_000, try_number=2)
        assert STEPS["create_branch"](load(catalog), operation_key=later).outcome is Outcome.COMMITTED
        first_try = dataclasses.replace(KEY, run_id="newer", started_ms=1, try_number=1)
        assert load(catalog).create_tag("v2", operation_key=first_try).outcome is Outcome.COMMITTED

    def test_a_lost_answer_of_which_nothing_tells_is_unknown(self, catalog):
        """The log is short, and the mark is gone: neither is it made again, nor is it called done."""

        def forget(inner, _):
            gone = tuple(mark.name for mark in all_marks(inner.load(NAME).metadata))
            inner.commit(inner.load(NAME), Change(updates=(RemoveProperties(removals=gone),)))
            for _ in range(3):
                undo_and_go_on(inner, None)

        change = Change(updates=(SetProperties(updates={"write.metadata.previous-versions-max": "1"}),))
        catalog.commit(catalog.load(NAME), change)
        faulty = FaultyCatalog(catalog, [Fault.LAND_THEN_RIVAL_THEN_UNKNOWN], rival=forget)
        load(catalog).create_tag("v0", operation_key=dataclasses.replace(KEY, task_id="other"))
        with pytest.raises(CommitUnknownError, match="does not tell any more"):
            to_first(Table.load(faulty, NAME), operation_key=KEY)

    def test_a_damaged_mark_is_refused(self, catalog):
        to_first(load(catalog), operation_key=KEY)
        (mark,) = all_marks(load(catalog).metadata)
        for text in ("x", "[]", '{"epoch": "one"}', "[" * 100_000, '{"epoch": 1e999}'):
            catalog.commit(catalog.load(NAME), Change(updates=(SetProperties(updates={mark.name: text}),)))
            with pytest.raises(IncompatibleChangeError, match=f"property {mark.name} of table .* is damaged"):
                to_first(load(catalog), operation_key=KEY)

    def test_workers_of_one_installation_may_call_it_differently(self, catalog):
        started = 1_700_000_000_000_001
        key = dataclasses.replace(KEY, epoch=started * 10_000 * 10_000)
        to_first(load(catalog), operation_key=key)
        other = dataclasses.replace(key, installation="j")
        assert to_first(load(catalog), operation_key=other).outcome is Outcome.FOUND


class TestGuards:
    """`expected_snapshot_id`: the change is for the table that somebody has looked at."""

    @pytest.mark.parametrize("name", STEPS)
    def test_elsewhere_nothing_is_changed(self, staged, name):
        STEPS["replace_tag"](load(staged))
        load(staged).create_branch("new", main(staged)[0])
        steps = {**STEPS, "replace_tag": lambda t, **o: t.create_tag("v1", replace_existing=True, **o)}
        before = staged.load(NAME).metadata_location
        with pytest.raises((IncompatibleChangeError, AlreadyExistsError), match="expected_snapshot_id is 1"):
            steps[name](load(staged), expected_snapshot_id=1)
        assert staged.load(NAME).metadata_location == before

    def test_not_if_somebody_commits_while_it_is_made(self, catalog):
        head = main(catalog)[-1]
        faulty = FaultyCatalog(catalog, [Fault.CONFLICT], rival=lambda inner, _: plan(inner, Append("z")).commit())
        with pytest.raises(IncompatibleChangeError, match="another writer has changed it since"):
            to_first(Table.load(faulty, NAME), expected_snapshot_id=head)
        assert main(catalog)[-2] == head

    def test_what_is_done_already_is_done(self, catalog):
        first, *_, last = main(catalog)
        to_first(load(catalog), expected_snapshot_id=last)
        assert load(catalog).rollback_to_snapshot(first, expected_snapshot_id=last).outcome is Outcome.NOTHING

    def test_a_fast_forward_to_what_was_audited_only(self, catalog):
        audited = load(catalog).refs["audit"].snapshot_id
        plan(catalog, Append("b", ids(10)), branch="audit").commit()
        with pytest.raises(IncompatibleChangeError, match=f"expected {audited}: another writer has committed to it"):
            load(catalog).fast_forward("main", "audit", to_snapshot_id=audited)


class TestADryRun:
    """It says what would appear and disappear, and changes nothing."""

    def test_of_a_rollback(self, catalog):
        before = catalog.load(NAME).metadata_location
        result = to_first(load(catalog), dry_run=True, operation_key=KEY)
        gone = result.disappearing
        assert (result.outcome, gone.snapshot_count, gone.data_files, gone.rows) == (Outcome.DRY_RUN, 2, 2, 2)
        assert [one["snapshot_id"] for one in gone.snapshots] == [str(one) for one in main(catalog)[:0:-1]]
        assert len(gone.files) == 2
        assert result.appearing.data_files == 0
        assert catalog.load(NAME).metadata_location == before

    def test_of_a_fast_forward_and_of_a_pick(self, staged):
        for result in (
            load(staged).fast_forward("main", "audit", dry_run=True),
            load(staged).cherry_pick(load(staged).refs["audit"].snapshot_id, dry_run=True),
            load(staged).publish_changes("w1", dry_run=True),
        ):
            assert (result.appearing.snapshot_count, result.appearing.rows) == (1, 1)
            assert (result.disappearing.snapshot_count, result.disappearing.rows) == (0, 0)

    def test_of_the_removal_of_a_branch(self, catalog):
        gone = load(catalog).remove_branch("audit", dry_run=True).disappearing
        assert (gone.snapshot_count, gone.data_files, gone.rows) == (1, 1, 1)

    def test_it_is_refused_as_the_change_is(self, catalog):
        with pytest.raises(NotFoundError):
            load(catalog).rollback_to_snapshot(1, dry_run=True)
        with pytest.raises(IncompatibleChangeError, match="it is in the branch already"):
            load(catalog).cherry_pick(main(catalog)[0], dry_run=True)


class TestSeveralInOneCommit:
    """`manage_snapshots` is PyIceberg's: the changes are made in their order, all or none."""

    def test_in_their_order(self, catalog):
        first, second, last = main(catalog)
        faulty = FaultyCatalog(catalog)
        table = Table.load(faulty, NAME)
        changes = table.manage_snapshots().create_tag(first, "v1").create_branch(last, "b", min_snapshots_to_keep=3)
        changes.rollback_to_snapshot(second).remove_branch("audit").fast_forward("b2", "b").commit()
        assert len(faulty.swaps) == 1
        assert table.refs.keys() == {"main", "v1", "b", "b2"}
        assert [table.refs[name].snapshot_id for name in ("main", "v1", "b", "b2")] == [second, first, last, last]
        assert table.refs["b"].min_snapshots_to_keep == 3

    def test_as_a_context(self, catalog):
        first, *_ = main(catalog)
        table = load(catalog)
        with table.manage_snapshots() as changes:
            changes.create_tag(first, "v1").remove_tag("v1").create_tag(first, "v2")
        assert table.refs.keys() == {"main", "audit", "v2"}
        with pytest.raises(ZeroDivisionError), table.manage_snapshots() as changes:
            changes.create_tag(first, f"v{1 // 0}")
        assert "v3" not in load(catalog).refs

    def test_none_if_one_is_impossible(self, catalog):
        first, *_ = main(catalog)
        before = catalog.load(NAME).metadata_location
        with pytest.raises(NotFoundError, match="no tag 'v9'"):
            load(catalog).manage_snapshots().create_tag(first, "v1").remove_tag("v9").commit()
        assert catalog.load(NAME).metadata_location == before

    def test_once_for_a_task(self, catalog):
        first, *_ = main(catalog)
        for _ in range(2):
            load(catalog).manage_snapshots(operation_key=KEY).rollback_to_snapshot(first).create_tag(
                first, "v"
            ).commit()
            load(catalog).set_current_snapshot(ref="audit")
        assert load(catalog).metadata.current_snapshot_id == load(catalog).refs["audit"].snapshot_id


class TestStagedCommits:
    """Commits that were staged with a `wap.id` are read and published, as Java stages and publishes them."""

    def test_read_and_published(self, staged):
        source = load(staged).staged_snapshot("w1")
        assert load(staged).scan(snapshot_id=source.snapshot_id).to_arrow().num_rows == 3
        result = load(staged).publish_changes("w1")
        head = load(staged).current_snapshot()
        assert (result.snapshot_id, result.source_snapshot_id) == (head.snapshot_id, source.snapshot_id)
        assert head.summary["published-wap-id"] == "w1"
        with pytest.raises(IncompatibleChangeError, match="has picked it already"):
            load(staged).publish_changes("w1")

    def test_published_and_expired(self, staged):
        load(staged).publish_changes("w1")
        plan(staged, Expire()).commit()
        with pytest.raises(IncompatibleChangeError, match="was published to branch 'main' already"):
            load(staged).publish_changes("w1")

    def test_unknown_and_ambiguous(self, staged):
        with pytest.raises(NotFoundError, match=r"no snapshot with wap[.]id 'w2'; it has: w1"):
            load(staged).publish_changes("w2")
        stage(staged)
        with pytest.raises(IncompatibleChangeError, match=r"has 2 snapshots with wap[.]id 'w1'"):
            load(staged).publish_changes("w1")
        with pytest.raises(InvalidInputError, match="wap_id is the text ''"):
            load(staged).publish_changes("")


class TestRetention:
    """Set with a ref, or for one that is there; a move keeps it."""

    def test_a_replaced_branch_keeps_what_is_not_given(self, catalog):
        table = load(catalog)
        table.create_branch("b", max_ref_age_ms=1000, min_snapshots_to_keep=2)
        table.create_branch("b", main(catalog)[0], replace_existing=True, max_ref_age_ms=2000)
        ref = load(catalog).refs["b"]
        assert (ref.snapshot_id, ref.max_ref_age_ms, ref.min_snapshots_to_keep) == (main(catalog)[0], 2000, 2)

    def test_if_not_exists_leaves_it(self, catalog):
        before = load(catalog).refs["audit"]
        assert load(catalog).create_branch("audit", main(catalog)[0], if_not_exists=True).outcome is Outcome.NOTHING
        assert load(catalog).refs["audit"] == before
        with pytest.raises(AlreadyExistsError, match="'audit' is a branch of table"):
            load(catalog).create_tag("audit", if_not_exists=True)


def test_a_try_is_that_of_the_work(catalog):
    """The operators pass the number of the try, which the key may not have."""
    numbers = itertools.count(1)
    for expected in (Outcome.COMMITTED, Outcome.FOUND):
        work = Work(load(catalog), operation_key=KEY, try_number=next(numbers))
        request = rollback_module.RollbackRequest(snapshot_id=main(catalog)[0])
        assert rollback_module.rollback(work, request).outcome is expected
