"""Undo crossed with what else may happen: equality deletes; and lost answers while others commit, compact and expire.

The second part has cherry-picks and publications as well, which are crossed with other faults in
`commit.test_refs_exactly_once` and `operations.wap.test_publish`.
"""

from collections import Counter
from dataclasses import dataclass

import pytest

from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError, IncompatibleChangeError
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.history.targets import Selection
from airflow_iceberg.operations.history.undo import UndoRequest, undo
from airflow_iceberg.operations.refs.cherry_pick import CherryPickRequest, cherry_pick
from airflow_iceberg.operations.wap.publish import PublishRequest, publish
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support import changes
from tests.support.builders import job_work
from tests.support.changes import (
    NAME,
    Append,
    CopyOnWriteDelete,
    EqualityDelete,
    Expire,
    plan,
    rows_of,
    write_equality_deletes,
)
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash

FAST = {"commit.status-check.min-wait-ms": "1", "commit.status-check.max-wait-ms": "1", "commit.retry.min-wait-ms": "1"}


def key(run, task="load"):
    return OperationKey(dag_id="d", run_id=run, task_id=task)


def made(version=3, **properties):
    """Return a catalog with a table to which two runs have appended, the second one to another partition as well."""
    catalog = MemoryCatalog()
    changes.make_table(catalog, version, **FAST, **properties)
    plan(catalog, Append("a", changes.ids(1, 2)), key=key("r1")).commit()
    plan(catalog, Append("a", changes.ids(3, 4)), key=key("r2")).commit()
    plan(catalog, Append("b", changes.ids(2)), key=key("r2", "more")).commit()
    return catalog


def load(catalog):
    return Table.load(catalog, NAME)


def compact_all(catalog):
    compact(job_work(load(catalog)), CompactRequest(options={"rewrite-all": True}))


def expire_all(catalog):
    plan(catalog, Expire()).commit()


def rows(*pairs):
    return Counter((part, number) for part, number in pairs)


@dataclass(frozen=True)
class UpsertByKey(EqualityDelete):
    """New values of rows as a streaming writer commits them: deletes by key, and the rows as new ones."""

    def action(self, work):
        deletes = [write_equality_deletes(work.table, self.part, self.ids)]
        nothing = work.bound("id is null and id is not null")
        return work.make(RowDelta, added_deletes=deletes, added_data=work.write_ids(self), conflict_filter=nothing)


@pytest.mark.parametrize("version", [2, 3])
class TestEqualityDeletes:
    """They are no obstacle where they only delete; where they may be updates, or would be lost, an undo is refused."""

    def test_rows_that_were_deleted_since_stay_deleted(self, version):
        catalog = made(version)
        plan(catalog, EqualityDelete("a", changes.ids(1, 3))).commit()
        load(catalog).undo(key("r1"))
        assert rows_of(catalog) == rows(("a", 4), ("b", 2))
        load(catalog).undo(dag_id="d", run_id="r2")
        assert rows_of(catalog) == rows()

    def test_rows_that_the_run_has_deleted_come_back_without_those_that_were_deleted_before(self, version):
        catalog = made(version)
        plan(catalog, EqualityDelete("a", changes.ids(1))).commit()
        plan(catalog, CopyOnWriteDelete(changes.ids(2)), key=key("clean")).commit()
        assert rows_of(catalog) == rows(("a", 3), ("a", 4))
        load(catalog).undo(key("clean"))
        assert rows_of(catalog) == rows(("a", 2), ("a", 3), ("a", 4), ("b", 2))

    @pytest.mark.parametrize("others", [EqualityDelete("a", changes.ids(2)), UpsertByKey("a", changes.ids(2))])
    def test_not_where_rows_of_the_partition_were_deleted_since(self, version, others):
        catalog = made(version)
        plan(catalog, CopyOnWriteDelete(changes.ids(1)), key=key("clean")).commit()
        plan(catalog, others).commit()
        before = rows_of(catalog)
        with pytest.raises(IncompatibleChangeError, match=r"rows of .* were deleted since"):
            load(catalog).undo(key("clean"))
        assert rows_of(catalog) == before

    def test_not_of_a_run_that_has_deleted_by_key(self, version):
        """Its file may delete rows of any file before it; which ones is not known without reading them all."""
        catalog = made(version)
        plan(catalog, EqualityDelete("a", changes.ids(1)), key=key("stream")).commit()
        with pytest.raises(IncompatibleChangeError, match="does not name a single data file"):
            load(catalog).undo(key("stream"))
        assert rows_of(catalog) == rows(("a", 2), ("a", 3), ("a", 4), ("b", 2))

    def test_not_where_rows_of_the_run_may_have_got_new_values(self, version):
        catalog = made(version)
        plan(catalog, UpsertByKey("a", changes.ids(1))).commit()
        before = rows_of(catalog)
        with pytest.raises(
            IncompatibleChangeError, match=r"equality deletes .* together with new|only in format version 3"
        ):
            load(catalog).undo(key("r1"))
        assert rows_of(catalog) == before
        # Those of another partition are not concerned.
        plan(catalog, Append("c", changes.ids(9)), key=key("r3")).commit()
        load(catalog).undo(key("r3"))
        assert rows_of(catalog) == before

    def test_a_compaction_that_has_applied_them(self, version):
        catalog = made(version)
        plan(catalog, EqualityDelete("a", changes.ids(1, 3))).commit()
        compact_all(catalog)
        if version < 3:
            with pytest.raises(IncompatibleChangeError, match="only in format version 3"):
                load(catalog).undo(key("r1"))
            return
        load(catalog).undo(key("r1"))
        assert rows_of(catalog) == rows(("a", 4), ("b", 2))


# -- lost answers, and others meanwhile ------------------------------------------------------------------------------


def staged(catalog):
    """Stage rows on a branch while main moves on, so that they get a new snapshot there; return that of the branch."""
    load(catalog).create_branch("wap")
    plan(catalog, Append("d", changes.ids(7)), key=key("r3"), branch="wap").commit()
    plan(catalog, Append("e", changes.ids(8))).commit()
    return load(catalog).refs["wap"].snapshot_id


R1, R2 = [("a", 1), ("a", 2)], [("a", 3), ("a", 4), ("b", 2)]
# What is asked, how it is done, and the rows before and after it.
OPERATIONS = {
    "undo": (lambda _: UndoRequest(selection=Selection(operation_key=str(key("r1")))), undo, [*R1, *R2], R2),
    "cherry-pick": (
        *(lambda catalog: CherryPickRequest(snapshot_id=staged(catalog)), cherry_pick),
        *([*R1, *R2, ("e", 8)], [*R1, *R2, ("e", 8), ("d", 7)]),
    ),
    "publish": (
        *(lambda catalog: PublishRequest(snapshot_id=staged(catalog), branch="wap"), publish),
        *([*R1, *R2, ("e", 8)], [*R1, *R2, ("e", 8), ("d", 7)]),
    ),
}
RIVALS = {
    "appends": (),
    "compacts": (compact_all,),
    "expires": (expire_all,),
    "compacts and expires": (compact_all, expire_all),
}
FAULTS = [fault for fault in Fault if fault is not Fault.PROCEED]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
def test_a_lost_answer_and_others_meanwhile(name, rival, fault):
    """It is done once, by this try or the next, and the rows of others are kept; after an expiry perhaps not at all."""
    request_of, do, before, after = OPERATIONS[name]
    inner = made()
    request, came = request_of(inner), []

    def others(catalog, _table=None):
        if not came:
            came.append(True)
            plan(catalog, Append("c", changes.ids(20))).commit()
            for act in RIVALS[rival]:
                act(catalog)

    catalog, outcome = FaultyCatalog(inner, [fault], rival=others), ""
    for number in (1, 2):
        work = Work(load(catalog), operation_key=key("now", "task"), try_number=number)
        try:
            outcome = do(work, request).outcome
        except (SimulatedCrash, IcebergError) as error:
            outcome = type(error).__name__
        others(inner)
    catalog.late.arrive()
    found = rows_of(inner)
    assert found in (rows(*before, ("c", 20)), rows(*after, ("c", 20)))
    has_succeeded = outcome in ("committed", "found")
    assert has_succeeded or "expires" in rival, outcome
    if has_succeeded:
        assert found == rows(*after, ("c", 20))
