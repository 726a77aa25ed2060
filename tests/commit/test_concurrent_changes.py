"""Whatever writers do at the same time: the rows are those of one change after the other, or a change is refused."""

import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from airflow_iceberg.commit.operation_key import OperationKey, find_landed
from airflow_iceberg.errors import CommitUnknownError, IncompatibleChangeError, StalePlanError, StorageError
from airflow_iceberg.format.metadata.updates import Change as MetadataChange
from airflow_iceberg.format.metadata.updates import UpgradeFormatVersion
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    Change,
    Compact,
    CopyOnWriteDelete,
    DeletePartition,
    DynamicOverwrite,
    EqualityDelete,
    Expire,
    MergeOnReadDelete,
    Overwrite,
    Planned,
    RewriteAllManifests,
    Rows,
    make_table,
    plan,
    rows_of,
)
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash, set_a_property
from tests.support.sampling import examples
from tests.support.serial_order import SerialOrder, check_row_ids, check_totals

PARTS = st.sampled_from(["a", "b"])
IDS = st.frozensets(st.integers(0, 5), min_size=1, max_size=3)
COMMANDS = st.sampled_from(["delete", "update"])
REWRITES = (
    st.builds(Append, st.sampled_from(["a", "b", None]), IDS),
    st.builds(Overwrite, PARTS, IDS),
    st.builds(DynamicOverwrite, st.sampled_from(["a", "b", None]), IDS),
    st.builds(DeletePartition, PARTS),
    st.builds(CopyOnWriteDelete, IDS),
    st.builds(Compact, st.sampled_from(["a", "b", None]), st.booleans()),
    st.just(RewriteAllManifests()),
    st.just(Expire()),
)
DELETES = (
    st.builds(MergeOnReadDelete, IDS, COMMANDS),
    st.builds(EqualityDelete, PARTS, IDS),
)


def changes(version):
    return st.one_of(*REWRITES, *(DELETES if version > 1 else ()))


class TestTwoChanges:
    """One is planned, another one commits, the first one commits."""

    @pytest.mark.costly
    @examples(60, suppress_health_check=[HealthCheck.too_slow])
    @given(data=st.data(), version=st.sampled_from([1, 2, 3]))
    def test_the_result_is_that_of_the_second_after_the_first_or_a_refusal(self, data, version):
        catalog = MemoryCatalog()
        make_table(catalog, version)
        rows: Rows = Counter()
        for _ in range(data.draw(st.integers(0, 3), label="steps before")):
            step = data.draw(changes(version), label="before")
            plan(catalog, step).commit()
            rows = step.after(rows)
        first = data.draw(changes(version), label="planned")
        planned, planned_on = plan(catalog, first), rows
        second = data.draw(changes(version), label="meanwhile")
        plan(catalog, second).commit()
        rows = second.after(rows)
        try:
            planned.commit()
        except StalePlanError:
            pass
        else:
            rows = rows if _did_nothing(catalog, planned, first, planned_on, rows) else first.after(rows)
        assert +rows_of(catalog) == +rows
        check_totals(Table.load(catalog, NAME))
        check_row_ids(Table.load(catalog, NAME))


def _did_nothing(catalog: MemoryCatalog, planned: Planned, change: Change, *when: Rows) -> bool:
    """A change that had nothing to do, when it was planned or when its turn came, is as if it came right then."""
    if planned.snapshot_id is None or Table.load(catalog, NAME).metadata.snapshot(planned.snapshot_id):
        return False
    assert any(+change.after(rows) == +rows for rows in when)
    return True


# -- several writers ---------------------------------------------------------------------------------------------------


# What is there before anybody writes: partitions of one and two files, and rows of no partition's.
START = (
    *(Append("a", frozenset({0, 1})), Append("a", frozenset({1, 2}))),
    *(Append("b", frozenset({0, 1})), Append(None, frozenset({2}))),
)
# Few rows, so that writers meet; changes that read some before they write come twice as often as others.
FEW = st.frozensets(st.integers(0, 2), min_size=1, max_size=2)
CHANGES = {
    version: st.one_of(
        st.builds(Append, PARTS, FEW),
        *(st.builds(CopyOnWriteDelete, FEW) for _ in range(2)),
        *(st.builds(Compact, st.sampled_from(["a", None]), st.booleans()) for _ in range(2)),
        *(st.builds(MergeOnReadDelete, FEW, COMMANDS) for _ in range(3 if version > 1 else 0)),
        *(st.builds(EqualityDelete, PARTS, FEW) for _ in range(1 if version > 1 else 0)),
        st.builds(Overwrite, PARTS, FEW),
        st.builds(DynamicOverwrite, PARTS, FEW),
        st.builds(DeletePartition, PARTS),
        st.just(RewriteAllManifests()),
        st.just(Expire()),
    )
    for version in (1, 2, 3)
}
# A change that fails, or of which nobody knows, is tried again by its task.
FAULTS = st.one_of(*(st.just(Fault.PROCEED) for _ in range(3)), st.sampled_from(Fault))
_keys = itertools.count(1)


@cache
def _start(version: int) -> tuple[MemoryCatalog, str]:
    catalog = MemoryCatalog()
    # Merging from the third manifest on: it has to be seen to be tested.
    make_table(catalog, version, **{"commit.manifest.min-count-to-merge": "3"})
    for change in START:
        plan(catalog, change).commit()
    plan(catalog, Expire()).commit()
    return catalog, catalog.load(NAME).metadata_location


@dataclass
class _Open:
    change: Change
    planned: Planned
    rows: Rows
    key: OperationKey
    try_number: int = 1


class Writers(RuleBasedStateMachine):
    """Writers plan and commit at any time, answers get lost and tasks are killed: the history is a serial order."""

    @initialize(version=st.sampled_from([1, 2, 3]), data=st.data())
    def start(self, version, data):
        filled, location = _start(version)
        self.catalog = MemoryCatalog(io=filled.io.copy())
        self.catalog.register_table(NAME, location)
        self.version = version
        self.order = SerialOrder(self.catalog, START)
        self.open: list[_Open] = []
        # Of those of whom nobody knows whether they are done.
        self.doubtful: list[_Open] = []
        self.late: list[FaultyCatalog] = []
        self.race(data)

    def plan(self, change: Change, key: OperationKey | None = None, try_number: int = 1) -> _Open:
        key = key or OperationKey(dag_id="d", run_id="r", task_id=f"t{next(_keys)}")
        planned = plan(self.catalog, change, key=key, try_number=try_number)
        self.order.expect(planned, change)
        return _Open(change, planned, self.order.rows, key, try_number)

    def commit(self, work: _Open, fault: Fault = Fault.PROCEED, other: _Open | None = None) -> None:
        """Commit, while the other one commits where the fault has a rival."""
        rival = set_a_property if other is None else lambda catalog, table: self.land(other, catalog)
        faulty = FaultyCatalog(self.catalog, [fault], rival=rival)
        try:
            self.land(work, faulty)
        except (CommitUnknownError, SimulatedCrash):
            self.doubtful.append(work)
            self.late.append(faulty)
        except StorageError:
            assert fault is Fault.FAIL
            self.doubtful.append(work)
        self.order.follow()

    def land(self, work: _Open, catalog: MemoryCatalog) -> None:
        """Commit, and hold what the writer is told against what is there."""
        before = self.order.rows
        try:
            work.planned.commit(catalog=catalog)
            is_done = True
        except StalePlanError:
            is_done = False
        except IncompatibleChangeError:
            # What its first try did is not in the table's history any more.
            assert work.try_number > 1
            is_done = False
        table = Table.load(self.catalog, NAME)
        is_there = work.planned.snapshot_id is not None and table.metadata.snapshot(work.planned.snapshot_id)
        assert is_done or not is_there
        if is_done and not is_there and not isinstance(work.change, Expire):
            found = find_landed(table.metadata, work.key, "main")
            rows = (work.rows, before, rows_of(self.catalog))
            assert found or any(+work.change.after(each) == +each for each in rows)

    @rule(data=st.data())
    def race(self, data):
        """Some plan on the same table; the first commits, then the others."""
        drawn = data.draw(st.lists(CHANGES[self.version], min_size=3, max_size=4))
        for work in [self.plan(change) for change in drawn]:
            self.commit(work, data.draw(FAULTS))

    @rule(data=st.data(), fault=st.sampled_from([each for each in Fault if "RIVAL" in each.name] + [Fault.CONFLICT]))
    def overtake(self, data, fault):
        work, other = (self.plan(data.draw(CHANGES[self.version])) for _ in range(2))
        self.commit(work, fault, other)

    @rule(data=st.data())
    def begin(self, data):
        self.open.append(self.plan(data.draw(CHANGES[self.version])))

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 5), fault=FAULTS)
    def end(self, number, fault):
        self.commit(self.open.pop(number % len(self.open)), fault)

    @precondition(lambda self: self.doubtful)
    @rule(number=st.integers(0, 5), fault=FAULTS)
    def try_again(self, number, fault):
        """The next try of a task looks whether an earlier one has done it."""
        work = self.doubtful.pop(number % len(self.doubtful))
        if find_landed(Table.load(self.catalog, NAME).metadata, work.key, "main") is None:
            with suppress(IncompatibleChangeError):
                self.commit(self.plan(work.change, work.key, work.try_number + 1), fault)

    @precondition(lambda self: self.late)
    @rule()
    def arrive(self):
        self.late.pop(0).late.arrive()
        self.order.follow()

    @precondition(lambda self: self.version < 3)
    @rule()
    def upgrade(self):
        self.version += 1
        change = MetadataChange(updates=(UpgradeFormatVersion(format_version=self.version),))
        self.catalog.commit(self.catalog.load(NAME), change)
        self.order.follow()

    @rule(number=st.integers(0, 5))
    def roll_back(self, number):
        table = Table.load(self.catalog, NAME)
        history = list(table.metadata.ancestors(table.metadata.current_snapshot_id))
        snapshot_id = history[number % len(history)].snapshot_id
        table.rollback_to_snapshot(snapshot_id)
        self.order.rolled_back(snapshot_id)
        self.order.follow()

    def teardown(self):
        if hasattr(self, "order"):
            self.order.check_history()


TestSeveralWriters = Writers.TestCase
TestSeveralWriters.settings = examples(24, stateful_step_count=6)


@pytest.mark.services
class TestSeveralWritersForLonger:
    """The same, deeper."""

    def test_long_runs(self):
        run_state_machine_as_test(Writers, settings=settings(max_examples=60, stateful_step_count=15))
