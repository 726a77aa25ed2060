"""Branches, tags, rollback, fast-forward and cherry-pick."""

import time
from collections import Counter
from uuid import uuid4

import pytest

from airflow_iceberg.commit.actions import snapshot_refs as refs
from airflow_iceberg.commit.engine import commit
from airflow_iceberg.commit.settings import settings_for
from airflow_iceberg.errors import AlreadyExistsError, IncompatibleChangeError, InvalidInputError, NotFoundError
from airflow_iceberg.table import Table
from tests.support.changes import (
    HURRY,
    NAME,
    Append,
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


def change(catalog, make, *args, faults=(), **options):
    options |= {"table_uuid": table(catalog).metadata.table_uuid, "new_uuid": str(uuid4())}
    action = make(*args, **options)
    return commit(FaultyCatalog(catalog, faults), catalog.load(NAME), action, clock=HURRY).metadata


def make_tag(catalog, **options):
    return change(catalog, refs.create_ref, "v1", kind="tag", **options)


def audit(catalog, work=None):
    """Make a branch and change it; return the snapshot of the change."""
    change(catalog, refs.create_ref, "audit", kind="branch")
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
        change(catalog, refs.create_ref, "audit", kind="branch", snapshot_id=history(catalog)[0])
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
        assert "v1" not in change(catalog, refs.drop_ref, "v1", faults=[Fault.LAND_THEN_UNKNOWN]).refs
        with pytest.raises(NotFoundError, match="no branch or tag 'v1'"):
            change(catalog, refs.drop_ref, "v1")
        change(catalog, refs.drop_ref, "v1", if_exists=True)
        with pytest.raises(InvalidInputError, match="branch 'main' cannot be dropped"):
            change(catalog, refs.drop_ref, "main")


class TestMovingABranch:
    """Forward along the history of another ref, back along its own, or anywhere."""

    def test_forward(self, catalog):
        audit(catalog)
        change(catalog, refs.fast_forward, "main", "audit")
        assert rows_of(catalog).total() == 4

    def test_not_over_changes_of_its_own(self, catalog):
        audit(catalog)
        plan(catalog, Append("b", ids(8))).commit()
        with pytest.raises(IncompatibleChangeError, match="both have changes of their own"):
            change(catalog, refs.fast_forward, "main", "audit")

    def test_not_over_changes_that_come_while_it_moves(self, catalog):
        audit(catalog)
        action = refs.fast_forward(
            "main", "audit", table_uuid=table(catalog).metadata.table_uuid, new_uuid=str(uuid4())
        )
        faulty = FaultyCatalog(
            catalog, [Fault.CONFLICT], rival=lambda inner, _: plan(inner, Append("b", ids(8))).commit()
        )
        with pytest.raises(IncompatibleChangeError, match="both have changes of their own"):
            commit(faulty, catalog.load(NAME), action, clock=HURRY)
        assert rows_of(catalog)["b", 8] == 1

    def test_forward_makes_a_branch_that_is_not_there(self, catalog):
        assert change(catalog, refs.fast_forward, "copy", "main").refs["copy"].is_branch

    def test_back_to_an_ancestor(self, catalog):
        change(catalog, refs.rollback_to_snapshot, history(catalog)[0])
        assert rows_of(catalog).total() == 1

    def test_back_to_a_time_is_strictly_before_it(self, catalog):
        first, second, _ = history(catalog)
        when = table(catalog).metadata.snapshot(second).timestamp_ms
        change(catalog, refs.rollback_to_timestamp, when)
        assert history(catalog) == [first]
        with pytest.raises(InvalidInputError, match="has no snapshot of before that"):
            change(catalog, refs.rollback_to_timestamp, 1)

    def test_back_to_what_is_no_ancestor_is_refused_but_can_be_set(self, catalog):
        first, _, last = history(catalog)
        change(catalog, refs.rollback_to_snapshot, first)
        with pytest.raises(InvalidInputError, match="it is not an ancestor of the head"):
            change(catalog, refs.rollback_to_snapshot, last)
        change(catalog, refs.set_current, last)
        assert rows_of(catalog).total() == 3


class TestCherryPicking:
    """The files of a snapshot of elsewhere become part of the branch, once."""

    def pick(self, catalog, source_id):
        action = refs.CherryPick(catalog.io, settings_for(table(catalog).metadata), source_id=source_id)
        return commit(catalog, catalog.load(NAME), action, clock=HURRY).metadata.current_snapshot()

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
        picked = self.pick(catalog, source)
        with pytest.raises(IncompatibleChangeError, match=f"snapshot {picked.snapshot_id} has picked it already"):
            self.pick(catalog, source)

    def test_not_what_is_in_the_branch(self, catalog):
        with pytest.raises(IncompatibleChangeError, match="it is in the branch already"):
            self.pick(catalog, history(catalog)[1])

    @pytest.mark.parametrize("work", [MergeOnReadDelete(ids(1)), Overwrite("a", ids(5))])
    def test_not_other_changes(self, catalog, work):
        with pytest.raises(IncompatibleChangeError, match="neither an append nor a dynamic overwrite"):
            self.pick(catalog, audit(catalog, work))
