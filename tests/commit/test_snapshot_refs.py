"""Branches, tags, rollback, fast-forward and cherry-pick."""

import dataclasses
import time
from collections import Counter

import pytest

from airflow_iceberg.commit.operation_key import OperationKey, find_landed
from airflow_iceberg.errors import AlreadyExistsError, IncompatibleChangeError, InvalidInputError, NotFoundError
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    Compact,
    DynamicOverwrite,
    Expire,
    MergeOnReadDelete,
    Overwrite,
    ids,
    make_table,
    plan,
    rows_of,
)
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")


@pytest.fixture
def catalog():
    catalog = MemoryCatalog()
    make_table(catalog, 3)
    for i in range(3):
        plan(catalog, Append("a", ids(i))).commit()
        time.sleep(0.002)  # no two snapshots of one millisecond
    return catalog


def table(catalog):
    return Table.load(catalog, NAME)


def make_tag(catalog, faults=(), **options):
    tagged = Table.load(FaultyCatalog(catalog, faults), NAME)
    tagged.create_tag("v1", **options)
    return tagged


def audit(catalog, work=None):
    """Make a branch and change it; return the snapshot of the change."""
    table(catalog).create_branch("audit")
    state = plan(catalog, work or Append("b", ids(9)), branch="audit").commit()
    return state.metadata.ref_snapshot("audit").snapshot_id


def history(catalog, ref="main"):
    metadata = table(catalog).metadata
    return [s.snapshot_id for s in metadata.ancestors(metadata.ref_snapshot(ref).snapshot_id)][::-1]


class TestBranchesAndTags:
    """Made of the head of main unless told otherwise; what is there already is left as it is."""

    def test_a_branch_takes_rows_of_its_own(self, catalog):
        audit(catalog)
        assert rows_of(catalog, "audit").total() == 4
        assert rows_of(catalog).total() == 3

    def test_the_totals_are_those_of_the_branch(self, catalog):
        table(catalog).create_branch("audit", history(catalog)[0])
        state = plan(catalog, Append("b", ids(9)), branch="audit").commit()
        assert state.metadata.ref_snapshot("audit").summary["total-records"] == "2"

    def test_a_tag_stays_where_it_is(self, catalog):
        make_tag(catalog)
        plan(catalog, Append("b", ids(9))).commit()
        plan(catalog, Expire()).commit()
        assert rows_of(catalog, "v1").total() == 3

    def test_the_same_again_changes_nothing(self, catalog):
        make_tag(catalog)
        before = catalog.load(NAME).metadata_location
        make_tag(catalog)
        assert catalog.load(NAME).metadata_location == before

    def test_another_snapshot_is_refused_unless_it_may_replace(self, catalog):
        first, *_ = history(catalog)
        make_tag(catalog)
        with pytest.raises(AlreadyExistsError, match=r"tag 'v1' of table .* exists already"):
            make_tag(catalog, snapshot_id=first)
        moved = make_tag(catalog, snapshot_id=first, replace_existing=True)
        assert moved.refs["v1"].snapshot_id == first

    def test_a_lost_answer_is_found(self, catalog):
        made = make_tag(catalog, faults=[Fault.LAND_THEN_UNKNOWN])
        assert "v1" in made.refs

    def test_dropping(self, catalog):
        make_tag(catalog)
        tagged = Table.load(FaultyCatalog(catalog, [Fault.LAND_THEN_UNKNOWN]), NAME)
        with pytest.raises(InvalidInputError, match=r"'v1' is a tag of table .*, no branch"):
            tagged.remove_branch("v1")
        tagged.remove_tag("v1")
        assert "v1" not in tagged.refs
        with pytest.raises(NotFoundError, match="no tag 'v1'"):
            tagged.remove_tag("v1")
        tagged.remove_tag("v1", if_exists=True)
        with pytest.raises(InvalidInputError, match="branch 'main' cannot be dropped"):
            tagged.remove_branch("main")

    def test_retention_is_stored_with_the_ref(self, catalog):
        changed = table(catalog)
        changed.create_branch("audit", max_ref_age_ms=3, max_snapshot_age_ms=2, min_snapshots_to_keep=1)
        changed.create_tag("v1", max_ref_age_ms=4)
        audit, v1 = (table(catalog).refs[name] for name in ("audit", "v1"))
        assert (audit.max_ref_age_ms, audit.max_snapshot_age_ms, audit.min_snapshots_to_keep) == (3, 2, 1)
        assert (v1.type, v1.max_ref_age_ms) == ("tag", 4)


class TestMovingABranch:
    """Forward along the history of another ref, back along its own, or anywhere."""

    def test_forward(self, catalog):
        audit(catalog)
        table(catalog).fast_forward("main", "audit")
        assert rows_of(catalog).total() == 4

    def test_not_over_changes_of_its_own(self, catalog):
        audit(catalog)
        plan(catalog, Append("b", ids(8))).commit()
        with pytest.raises(IncompatibleChangeError, match="both have changes of their own"):
            table(catalog).fast_forward("main", "audit")

    def test_not_over_changes_that_come_while_it_moves(self, catalog):
        audit(catalog)
        faulty = FaultyCatalog(
            catalog, [Fault.CONFLICT], rival=lambda inner, _: plan(inner, Append("b", ids(8))).commit()
        )
        with pytest.raises(IncompatibleChangeError, match="both have changes of their own"):
            Table.load(faulty, NAME).fast_forward("main", "audit")
        assert rows_of(catalog)["b", 8] == 1

    def test_forward_makes_a_branch_that_is_not_there(self, catalog):
        table(catalog).fast_forward("copy", "main")
        assert table(catalog).refs["copy"].is_branch

    def test_back_to_an_ancestor(self, catalog):
        table(catalog).rollback_to_snapshot(history(catalog)[0])
        assert rows_of(catalog).total() == 1

    def test_back_to_a_time_is_strictly_before_it(self, catalog):
        first, second, _ = history(catalog)
        when = table(catalog).metadata.snapshot(second).timestamp_ms
        table(catalog).rollback_to_timestamp(when)
        assert history(catalog) == [first]
        with pytest.raises(InvalidInputError, match="has no snapshot of before that"):
            table(catalog).rollback_to_timestamp(1)

    def test_back_to_what_is_no_ancestor_is_refused_but_can_be_set(self, catalog):
        first, _, last = history(catalog)
        table(catalog).rollback_to_snapshot(first)
        with pytest.raises(InvalidInputError, match="it is not an ancestor of the head"):
            table(catalog).rollback_to_snapshot(last)
        table(catalog).set_current_snapshot(last)
        assert rows_of(catalog).total() == 3


class TestCherryPicking:
    """The files of a snapshot of elsewhere become part of the branch, once."""

    def pick(self, catalog, source_id):
        picked = table(catalog)
        picked.cherry_pick(source_id)
        return picked.current_snapshot()

    def test_an_append(self, catalog):
        source = audit(catalog, Append("b", ids(9)))
        plan(catalog, Append("c", ids(7))).commit()
        snapshot = self.pick(catalog, source)
        assert rows_of(catalog) == Counter([("a", 0), ("a", 1), ("a", 2), ("b", 9), ("c", 7)])
        assert (snapshot.operation, snapshot.summary["source-snapshot-id"]) == ("append", str(source))
        found = table(catalog).scan(selected_fields=("_row_id",)).to_arrow()["_row_id"].to_pylist()
        assert len(set(found)) == 5

    def test_a_dynamic_overwrite_of_partitions_that_nobody_has_changed(self, catalog):
        source = audit(catalog, DynamicOverwrite("a", ids(9)))
        plan(catalog, Append("c", ids(7))).commit()
        self.pick(catalog, source)
        assert rows_of(catalog) == Counter([("a", 9), ("c", 7)])

    def test_not_of_partitions_that_somebody_has(self, catalog):
        source = audit(catalog, DynamicOverwrite("a", ids(9)))
        plan(catalog, Append("a", ids(7))).commit()
        with pytest.raises(IncompatibleChangeError, match="has changed a partition since that it replaces"):
            self.pick(catalog, source)

    def test_not_twice(self, catalog):
        source = audit(catalog, Append("b", ids(9)))
        plan(catalog, Append("c", ids(7))).commit()
        picked = self.pick(catalog, source)
        with pytest.raises(IncompatibleChangeError, match=f"snapshot {picked.snapshot_id} has picked it already"):
            self.pick(catalog, source)

    def test_not_twice_although_the_first_time_has_expired(self, catalog):
        source = audit(catalog, Append("b", ids(9)))
        plan(catalog, Append("c", ids(6))).commit()
        self.pick(catalog, source)
        plan(catalog, Append("c", ids(7))).commit()
        plan(catalog, Expire()).commit()
        with pytest.raises(IncompatibleChangeError, match="files of it are in branch 'main' already"):
            self.pick(catalog, source)

    def test_not_if_another_writer_may_have_compacted_what_was_picked(self, catalog):
        source = audit(catalog, Append("b", ids(9)))
        for change in (Append("b", ids(8)), Compact("b"), Expire()):
            plan(catalog, change).commit()
        with pytest.raises(IncompatibleChangeError, match=r"does not reach back to it .* may hold its rows"):
            self.pick(catalog, source)

    def test_after_an_expiry_if_others_have_only_appended(self, catalog):
        source = audit(catalog, Append("b", ids(9)))
        for change in (Append("b", ids(8)), Expire()):
            plan(catalog, change).commit()
        self.pick(catalog, source)
        assert rows_of(catalog)["b", 9] == 1

    def test_the_key_of_the_task_is_kept(self, catalog):
        """A clear of the task then replaces the published rows, and does not add its own to them."""
        table(catalog).create_branch("audit")
        state = plan(catalog, Append("b", ids(9)), branch="audit", key=KEY).commit()
        self.pick(catalog, state.metadata.ref_snapshot("audit").snapshot_id)
        assert find_landed(table(catalog).metadata, KEY, "main") == table(catalog).current_snapshot()
        plan(catalog, Append("b", ids(8)), key=dataclasses.replace(KEY, epoch=1)).commit()
        assert rows_of(catalog) == Counter([("a", 0), ("a", 1), ("a", 2), ("b", 8)])

    def test_also_by_a_pick_of_a_pick(self, catalog):
        table(catalog).create_branch("audit")
        table(catalog).create_branch("between")
        state = plan(catalog, Append("b", ids(9)), key=KEY, branch="audit").commit()
        plan(catalog, Append("a", ids(10)), branch="between").commit()
        plan(catalog, Append("a", ids(11))).commit()
        picked = table(catalog)
        picked.cherry_pick(state.metadata.ref_snapshot("audit").snapshot_id, branch="between")
        picked.cherry_pick(picked.metadata.ref_snapshot("between").snapshot_id)
        assert find_landed(picked.metadata, KEY, "main") is not None

    def test_not_what_is_in_the_branch(self, catalog):
        with pytest.raises(IncompatibleChangeError, match="it is in the branch already"):
            self.pick(catalog, history(catalog)[1])

    @pytest.mark.parametrize("work", [MergeOnReadDelete(ids(1)), Overwrite("a", ids(5))])
    def test_other_changes_only_if_they_were_made_on_the_head(self, catalog, work):
        """The branch then moves to the picked snapshot itself, as in Iceberg Java."""
        source = audit(catalog, work)
        before = catalog.load(NAME).metadata
        assert self.pick(catalog, source).snapshot_id == source
        assert rows_of(catalog) == rows_of(catalog, "audit")
        table(catalog).rollback_to_snapshot(before.current_snapshot_id)
        plan(catalog, Append("c", ids(7))).commit()
        with pytest.raises(IncompatibleChangeError, match="neither an append nor a dynamic overwrite"):
            self.pick(catalog, source)
