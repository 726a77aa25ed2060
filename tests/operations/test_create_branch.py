"""`create_branch=True`: a write creates the branch that is missing, from main, in the commit of its rows."""

import dataclasses

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.changes import NAME, Append, Expire, arrow, ids, make_table, plan, rows_of
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash

KEY = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=100_000, installation="i")

WRITES = {
    "append": lambda table, **o: table.append(arrow([("n", 7)]), **o),
    "overwrite": lambda table, **o: table.overwrite(arrow([("a", 7)]), "part = 'a'", **o),
    "dynamic": lambda table, **o: table.dynamic_partition_overwrite(arrow([("a", 7)]), **o),
    "delete": lambda table, **o: table.delete("id = 0", **o),
    "update": lambda table, **o: table.update({"part": "'u'"}, where="id = 0", **o),
    "upsert": lambda table, **o: table.upsert(arrow([("a", 0), ("a", 7)]), ["id"], **o),
}


@pytest.fixture(params=[1, 2, 3])
def catalog(request):
    return new_catalog(request.param)


def new_catalog(version=2, rows=2):
    catalog = MemoryCatalog()
    make_table(catalog, version)
    for number in range(rows):
        plan(catalog, Append("a", ids(number))).commit()
    return catalog


def load(catalog):
    return Table.load(catalog, NAME)


class TestOneCommit:
    """The branch and the rows are one commit, and main is as it was."""

    @pytest.mark.parametrize("name", WRITES)
    def test_of_every_write(self, name):
        catalog = new_catalog(3)
        head = load(catalog).metadata.current_snapshot_id
        faulty = FaultyCatalog(catalog)
        result = WRITES[name](Table.load(faulty, NAME), branch="audit", create_branch=True)
        assert (len(faulty.swaps), result.branch, result.outcome) == (1, "audit", Outcome.COMMITTED)
        table = load(catalog)
        assert table.metadata.current_snapshot_id == head
        assert table.metadata.ref_snapshot("audit").parent_snapshot_id == head
        assert table.refs["audit"].snapshot_id == result.snapshot_id
        table.fast_forward("main", "audit")
        assert rows_of(catalog) == rows_of(catalog, "audit")

    def test_totals_and_rows_go_on_from_main(self, catalog):
        WRITES["append"](load(catalog), branch="audit", create_branch=True)
        assert load(catalog).metadata.ref_snapshot("audit").summary["total-records"] == "3"
        assert rows_of(catalog, "audit").total() == 3

    def test_an_empty_table_gets_an_empty_snapshot_first(self, catalog):
        catalog = new_catalog(load(catalog).metadata.format_version, rows=0)
        table = load(catalog)
        WRITES["append"](table, branch="audit", create_branch=True)
        first, second = load(catalog).metadata.snapshots
        assert second.parent_snapshot_id == first.snapshot_id
        assert (first.summary["total-records"], second.summary["total-records"]) == ("0", "1")
        assert load(catalog).current_snapshot() is None
        assert rows_of(catalog, "audit").total() == 1
        table.fast_forward("main", "audit")
        assert rows_of(catalog).total() == 1

    def test_a_branch_that_exists_is_used(self, catalog):
        load(catalog).create_branch("audit", load(catalog).metadata.snapshots[0].snapshot_id, min_snapshots_to_keep=5)
        WRITES["append"](load(catalog), branch="audit", create_branch=True)
        assert rows_of(catalog, "audit").total() == 2
        assert load(catalog).refs["audit"].min_snapshots_to_keep == 5

    def test_without_rows_the_branch_is_created_alone(self, catalog):
        result = load(catalog).delete("id = 99", branch="audit", create_branch=True)
        assert result.outcome is Outcome.NOTHING
        assert load(catalog).refs["audit"].snapshot_id == load(catalog).metadata.current_snapshot_id

    def test_without_it_a_missing_branch_is_an_error(self, catalog):
        with pytest.raises(NotFoundError, match="no branch or tag 'audit'"):
            WRITES["append"](load(catalog), branch="audit")

    def test_a_failed_write_creates_none(self, catalog):
        table = load(catalog)
        with pytest.raises(InvalidInputError):
            table.append(pa.table({"other": [1]}), branch="audit", create_branch=True)
        assert "audit" not in table.refs
        assert "audit" not in load(catalog).refs


class TestFaultsAndRaces:
    """Exactly once, and on top of whoever was first."""

    @pytest.mark.parametrize("rows", [0, 2])
    @pytest.mark.parametrize("name", ["append", "dynamic"])
    @pytest.mark.parametrize(
        "fault", [Fault.LAND_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_CONFLICT]
    )
    def test_a_lost_answer_is_found(self, fault, name, rows):
        catalog = new_catalog(rows=rows)
        faulty = FaultyCatalog(catalog, [fault])
        WRITES[name](Table.load(faulty, NAME), branch="audit", create_branch=True)
        assert rows_of(catalog, "audit")["n" if name == "append" else "a", 7] == 1

    @pytest.mark.parametrize("rows", [0, 2])
    def test_killed_after_the_commit_it_is_found_also_if_the_branch_was_published_and_dropped(self, rows):
        catalog = new_catalog(rows=rows)
        with pytest.raises(SimulatedCrash):
            self.append(FaultyCatalog(catalog, [Fault.CRASH_AFTER]))
        load(catalog).fast_forward("main", "audit")
        load(catalog).remove_branch("audit")
        plan(catalog, Append("z", ids(50))).commit()
        result = self.append(catalog)
        assert result.outcome is Outcome.FOUND
        assert rows_of(catalog)["n", 7] == 1
        assert "audit" not in load(catalog).refs

    def test_killed_before_the_commit_nothing_is_there(self):
        catalog = new_catalog()
        with pytest.raises(SimulatedCrash):
            self.append(FaultyCatalog(catalog, [Fault.CRASH_BEFORE]))
        assert "audit" not in load(catalog).refs
        assert self.append(catalog).outcome is Outcome.COMMITTED
        assert self.append(catalog).outcome is Outcome.FOUND
        assert rows_of(catalog, "audit")["n", 7] == 1

    def test_two_creators_of_one_branch(self):
        catalog = new_catalog()

        def rival(inner, _):
            WRITES["append"](Table.load(inner, NAME), branch="audit", create_branch=True)

        faulty = FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival)
        WRITES["append"](Table.load(faulty, NAME), branch="audit", create_branch=True)
        assert rows_of(catalog, "audit")["n", 7] == 2
        assert len(list(load(catalog).metadata.ancestors(load(catalog).refs["audit"].snapshot_id))) == 4

    def test_it_begins_at_main_as_it_is_then(self):
        catalog = new_catalog()
        rival = lambda inner, _: plan(inner, Append("z", ids(50))).commit()  # noqa: E731
        faulty = FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival)
        WRITES["append"](Table.load(faulty, NAME), branch="audit", create_branch=True)
        assert rows_of(catalog, "audit")["z", 50] == 1

    def test_a_tag_of_that_name(self):
        catalog = new_catalog()
        faulty = FaultyCatalog(
            catalog, [Fault.CONFLICT], rival=lambda inner, _: Table.load(inner, NAME).create_tag("audit")
        )
        before = load(catalog).metadata.current_snapshot_id
        for place in (faulty, catalog):
            with pytest.raises(InvalidInputError, match=r"'audit' is a tag of table .*; rows are written to branches"):
                WRITES["append"](Table.load(place, NAME), branch="audit", create_branch=True)
        assert load(catalog).refs["audit"].snapshot_id == before

    def test_dropped_between_plan_and_commit(self):
        catalog = new_catalog()
        load(catalog).create_branch("audit")
        drop = lambda inner, _: Table.load(inner, NAME).remove_branch("audit")  # noqa: E731
        with pytest.raises(NotFoundError, match="no branch or tag 'audit'"):
            WRITES["append"](Table.load(FaultyCatalog(catalog, [Fault.CONFLICT], rival=drop), NAME), branch="audit")
        load(catalog).create_branch("audit")
        faulty = FaultyCatalog(catalog, [Fault.CONFLICT], rival=drop)
        WRITES["append"](Table.load(faulty, NAME), branch="audit", create_branch=True)
        assert rows_of(catalog, "audit")["n", 7] == 1

    def test_a_cleared_task_replaces_its_rows(self):
        catalog = new_catalog()
        self.append(catalog)
        load(catalog).fast_forward("main", "audit")
        load(catalog).remove_branch("audit")
        cleared = dataclasses.replace(KEY, epoch=200_000)
        self.append(catalog, key=cleared)
        assert rows_of(catalog, "audit")["n", 7] == 1

    def test_dropped_and_expired_after_a_lost_answer(self):
        """A commit that nobody can see any more is not called done, and not done twice."""
        catalog = new_catalog()

        def rival(inner, _):
            Table.load(inner, NAME).remove_branch("audit")
            plan(inner, Expire()).commit()

        faulty = FaultyCatalog(catalog, [Fault.LAND_THEN_RIVAL_THEN_UNKNOWN], rival=rival)
        result = WRITES["append"](Table.load(faulty, NAME), branch="audit", create_branch=True)
        assert result.outcome is Outcome.COMMITTED
        assert len(faulty.swaps) == 1

    @staticmethod
    def append(catalog, key=KEY):
        request = AppendRequest(rows=arrow([("n", 7)]), branch="audit", create_branch=True)
        return append(Work(Table.load(catalog, NAME), operation_key=key, try_number=1), request)
