"""Whatever writers do at the same time: the rows are those of one change after the other, or a change is refused."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_iceberg.errors import CommitUnknownError, StalePlanError
from airflow_iceberg.spec.changes import Change as MetadataChange
from airflow_iceberg.spec.changes import UpgradeFormatVersion
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
    live_entries,
    make_table,
    plan,
    rows_of,
)
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog

PARTS = st.sampled_from(["a", "b"])
IDS = st.frozensets(st.integers(0, 5), min_size=1, max_size=3)
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
    st.builds(MergeOnReadDelete, IDS, st.sampled_from(["delete", "update"])),
    st.builds(EqualityDelete, PARTS, IDS),
)


def changes(version):
    return st.one_of(*REWRITES, *(DELETES if version > 1 else ()))


def check_totals(table: Table) -> None:
    """The summary's totals are those of the files, and no file is live twice."""
    head = table.current_snapshot()
    if head is None:
        return
    entries = live_entries(table)
    identities = [entry.data_file.identity for entry in entries]
    assert len(set(identities)) == len(identities)
    data = [entry.data_file for entry in entries if entry.data_file.content == 0]
    deletes = [entry.data_file for entry in entries if entry.data_file.content != 0]
    summary = {name: int(head.summary[name]) for name in ("total-records", "total-data-files", "total-delete-files")}
    assert summary == {
        "total-records": sum(file.record_count for file in data),
        "total-data-files": len(data),
        "total-delete-files": len(deletes),
    }
    vectors = Counter(file.referenced_data_file for file in deletes if file.is_deletion_vector)
    assert all(count == 1 for count in vectors.values())
    assert vectors.keys() <= {file.file_path for file in data}


def check_row_ids(table: Table) -> None:
    """In v3 all files have row ids, below the next one, and none overlap among those that were never rewritten."""
    head = table.current_snapshot()
    # Files of before an upgrade get theirs with the first commit after it.
    if head is None or head.first_row_id is None:
        return
    spans = sorted(
        (entry.data_file.first_row_id, entry.data_file.record_count)
        for entry in live_entries(table)
        if entry.data_file.content == 0
    )
    end = 0
    for first, count in spans:
        assert first >= end
        end = first + count
    assert end <= table.metadata.next_row_id


class TestTwoChanges:
    """One is planned, another one commits, the first one commits."""

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@dataclass
class _Open:
    change: Change
    planned: Planned
    rows: Rows


class Writers(RuleBasedStateMachine):
    """Writers plan and commit at any time; rows are held against changes that run one by one, in commit order."""

    WRITERS = st.integers(0, 2)

    @initialize(version=st.sampled_from([1, 2, 3]))
    def start(self, version):
        self.catalog = MemoryCatalog()
        # Merging from the third manifest on: it has to be seen to be tested.
        make_table(self.catalog, version, **{"commit.manifest.min-count-to-merge": "3"})
        self.version = version
        self.rows: Rows = Counter()
        self.open: dict[int, _Open] = {}
        self.committed = 0

    @rule(writer=WRITERS, data=st.data())
    def plan(self, writer, data):
        change = data.draw(changes(self.version))
        self.open[writer] = _Open(change, plan(self.catalog, change), self.rows)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), fault=st.sampled_from([Fault.PROCEED, Fault.LAND_THEN_UNKNOWN, Fault.LOSE_THEN_UNKNOWN]))
    def commit(self, data, fault):
        work = self.open.pop(data.draw(st.sampled_from(sorted(self.open))))
        try:
            work.planned.commit(catalog=FaultyCatalog(self.catalog, [fault]))
        except StalePlanError:
            return
        except CommitUnknownError:
            # The next attempt was refused while the fate of the first is open; here it is known to be lost.
            assert fault is Fault.LOSE_THEN_UNKNOWN
            return
        if not _did_nothing(self.catalog, work.planned, work.change, work.rows, self.rows):
            self.rows = work.change.after(self.rows)

    @precondition(lambda self: self.version < 3)
    @rule()
    def upgrade(self):
        self.version += 1
        change = MetadataChange(updates=(UpgradeFormatVersion(format_version=self.version),))
        self.catalog.commit(self.catalog.load(NAME), change)

    @invariant()
    def the_rows_are_those_of_a_serial_order(self):
        if hasattr(self, "rows"):
            assert +rows_of(self.catalog) == +self.rows

    @invariant()
    def the_totals_are_those_of_the_files(self):
        if hasattr(self, "rows"):
            check_totals(Table.load(self.catalog, NAME))
            check_row_ids(Table.load(self.catalog, NAME))


TestSeveralWriters = Writers.TestCase
TestSeveralWriters.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


@pytest.mark.services
class TestSeveralWritersForLonger:
    """The same, deeper."""

    def test_long_runs(self):
        from hypothesis.stateful import run_state_machine_as_test

        run_state_machine_as_test(Writers, settings=settings(max_examples=300, stateful_step_count=40, deadline=None))
