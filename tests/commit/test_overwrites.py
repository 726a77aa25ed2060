"""Overwrites through the table, as operators make them: settings, an action, one commit."""

from collections import Counter
from uuid import uuid4

import pytest

from airflow_iceberg.commit.actions.expire_snapshots import ExpireSnapshots
from airflow_iceberg.commit.actions.overwrite import OverwriteFiles, ReplacePartitions
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.data.write.rows import write_rows
from airflow_iceberg.errors import InvalidInputError, StalePlanError
from airflow_iceberg.expressions.tree import ALWAYS_TRUE
from airflow_iceberg.table import Table
from tests.support.append_steps import find_append
from tests.support.changes import NAME, Append, EqualityDelete, arrow, ids, live_entries, make_table, plan, rows_of
from tests.support.memory import MemoryCatalog

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")


@pytest.fixture
def catalog():
    catalog = MemoryCatalog()
    make_table(catalog, 2)
    plan(catalog, Append("a", ids(1, 2))).commit()
    plan(catalog, Append("b", ids(3))).commit()
    return catalog


@pytest.fixture
def table(catalog):
    return Table.load(catalog, NAME)


def write(table, *rows):
    return write_rows(table.io, table.metadata, arrow(rows), file_prefix=f"manual-{uuid4().hex[:12]}")


def overwrite(table, row_filter, *rows, **options):
    scan = table.scan(row_filter)
    action = OverwriteFiles(
        table.io,
        table.commit_settings(operation_key=KEY),
        added=write(table, *rows) if rows else (),
        row_filter=scan.row_filter,
        written_schema=table.schema(),
        starting_snapshot_id=scan.snapshot.snapshot_id if scan.snapshot else None,
        **options,
    )
    return table.commit(action)


class TestByFilter:
    """Files that hold nothing but selected rows go, new ones come, in one snapshot."""

    def test_a_partition(self, catalog, table):
        written = overwrite(table, "part = 'a'", ("a", 7))
        assert (written.outcome, written.operation, written.deleted_records) == ("committed", "overwrite", 2)
        assert rows_of(catalog) == Counter([("a", 7), ("b", 3)])

    def test_the_whole_table(self, catalog, table):
        plan(catalog, EqualityDelete("a", ids(1))).commit()
        overwrite(table.refresh(), None, ("c", 7))
        assert rows_of(catalog) == Counter([("c", 7)])
        assert len(live_entries(Table.load(catalog, NAME))) == 1

    def test_where_statistics_prove_it(self, catalog, table):
        assert overwrite(table, "id <= 2").operation == "delete"
        assert rows_of(catalog) == Counter([("b", 3)])

    def test_not_where_a_file_matches_in_part(self, table):
        with pytest.raises(InvalidInputError, match=r"file .*part=a.* may hold rows that 'id = 2' selects and others"):
            overwrite(table, "id = 2")

    def test_nothing_to_do_is_no_commit(self, catalog, table):
        before = catalog.load(NAME).metadata_location
        assert overwrite(table, "part = 'z'").outcome == "nothing"
        assert catalog.load(NAME).metadata_location == before


class TestDynamically:
    """The partitions of the new rows are replaced; key is the spec and the tuple."""

    def replace(self, table, *rows, **options):
        head = table.current_snapshot()
        action = ReplacePartitions(
            table.io,
            table.commit_settings(),
            files=write(table, *rows) if rows else (),
            written_schema=table.schema(),
            starting_snapshot_id=head.snapshot_id if head else None,
            **options,
        )
        return table.commit(action)

    def test_other_partitions_stay(self, catalog, table):
        written = self.replace(table, ("a", 9), (None, 4))
        assert rows_of(catalog) == Counter([("a", 9), ("b", 3), (None, 4)])
        summary = table.metadata.snapshot(written.snapshot_id).summary
        assert (summary["replace-partitions"], summary["changed-partition-count"]) == ("true", "2")

    def test_without_rows_nothing_changes(self, catalog, table):
        assert self.replace(table).outcome == "nothing"
        assert rows_of(catalog).total() == 3

    def test_files_of_an_older_spec_stay(self, catalog, table):
        table.alter([{"add_partition_field": "bucket(2, id)"}])
        self.replace(table, ("a", 9))
        assert rows_of(catalog) == Counter([("a", 1), ("a", 2), ("a", 9), ("b", 3)])

    def test_without_partitions_everything_goes_of_every_spec(self, catalog, table):
        table.alter([{"drop_partition_field": "part"}])
        self.replace(table, ("a", 9))
        assert rows_of(catalog) == Counter([("a", 9)])


class TestSettings:
    """What all actions of one commit share."""

    def test_a_tag_takes_no_rows(self, table):
        table.create_tag("v1")
        with pytest.raises(InvalidInputError, match="'v1' is a tag"):
            table.commit_settings(branch="v1")

    def test_every_commit_has_a_snapshot_of_its_own(self, table):
        assert table.commit_settings().snapshot_id != table.commit_settings().snapshot_id

    def test_a_task_that_has_committed_finds_it(self, catalog, table):
        overwrite(table, "part = 'a'", ("a", 7))
        again = Table.load(catalog, NAME)
        found = find_append(again, KEY)
        assert (found.outcome, found.operation) == ("found", "overwrite")
        assert overwrite(again, "part = 'a'", ("a", 8)).outcome == "found"
        assert rows_of(catalog)["a", 8] == 0


class TestExpiring:
    """No snapshot is made; what went is told."""

    def expire(self, table, **options):
        action = ExpireSnapshots(table_uuid=table.metadata.table_uuid, new_uuid=str(uuid4()), now_ms=now_ms, **options)
        table.change(action)
        return action.expiry

    def test_what_is_old(self, catalog, table):
        first, second = table.snapshots()
        assert self.expire(table, older_than_ms=now_ms() + 1).snapshot_ids == (first.snapshot_id,)
        assert [s.snapshot_id for s in table.snapshots()] == [second.snapshot_id]
        assert rows_of(catalog).total() == 3

    def test_nothing_old_is_no_commit(self, catalog, table):
        before = catalog.load(NAME).metadata_location
        assert self.expire(table).is_empty
        assert catalog.load(NAME).metadata_location == before

    def test_a_tag_that_came_meanwhile_keeps_its_snapshot(self, catalog, table):
        first, _ = table.snapshots()
        Table.load(catalog, NAME).create_tag("v1", first.snapshot_id)
        assert self.expire(table, older_than_ms=now_ms() + 1).is_empty
        assert len(table.snapshots()) == 2


def test_an_isolation_level_is_asked_for(catalog, table):
    planned = Table.load(catalog, NAME)
    plan(catalog, Append("a", ids(5))).commit()
    with pytest.raises(StalePlanError):
        overwrite(table, "part = 'a'", ("a", 7), isolation="serializable")
    assert overwrite(planned, "part = 'a'", ("a", 7), isolation="snapshot").deleted_records == 3
    assert planned.scan().row_filter == ALWAYS_TRUE
