"""Who may commit beside whom: docs/conflicts.md, cell by cell."""

import re
from functools import cache
from pathlib import Path

import pytest

from airflow_iceberg.commit import engine
from airflow_iceberg.commit.conflicts import RULES, ChangedFiles, Check, History
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import InvalidInputError, StalePlanError
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshots, UpgradeFormatVersion
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    Compact,
    CopyOnWriteDelete,
    DeletePartition,
    DeleteWhere,
    DynamicOverwrite,
    EqualityDelete,
    Expire,
    MergeOnReadDelete,
    Overwrite,
    RewriteAllManifests,
    ids,
    make_table,
    plan,
    rows_in,
    rows_of,
)
from tests.support.memory import MemoryCatalog

DOC = Path(__file__).parents[2] / "docs" / "conflicts.md"
BASE = (Append("a", frozenset({1, 2, 3})), Append("b", frozenset({11, 12})))


# Ours: all of them concern partition a, or the row 2 in it.
OURS = {
    "append": (Append("a", ids(2, 4)), {}),
    "overwrite by filter": (Overwrite("a", ids(7)), {}),
    "overwrite by filter, snapshot isolation": (Overwrite("a", ids(7)), {"isolation": "snapshot"}),
    "dynamic overwrite": (DynamicOverwrite("a", ids(8)), {}),
    "dynamic overwrite, snapshot isolation": (DynamicOverwrite("a", ids(8)), {"isolation": "snapshot"}),
    "delete of whole files": (DeletePartition("a"), {}),
    "copy-on-write delete": (CopyOnWriteDelete(ids(2)), {}),
    "copy-on-write delete, snapshot isolation": (CopyOnWriteDelete(ids(2)), {"isolation": "snapshot"}),
    "merge-on-read delete": (MergeOnReadDelete(ids(2)), {}),
    "merge-on-read delete, snapshot isolation": (MergeOnReadDelete(ids(2)), {"isolation": "snapshot"}),
    "merge-on-read update": (MergeOnReadDelete(ids(2), command="update"), {}),
    "compaction": (Compact("a"), {}),
    "compaction, new sequence number": (Compact("a", keep_sequence_number=False), {}),
    "rewrite of manifests": (RewriteAllManifests(), {}),
    "expiry": (Expire(), {}),
}


def run(*changes):
    def commit(catalog):
        for change in changes:
            plan(catalog, change).commit()

    return commit


def alter(*changes):
    return lambda catalog: Table.load(catalog, NAME).alter(list(changes))


def roll_back(catalog):
    table = Table.load(catalog, NAME)
    table.rollback_to_snapshot(table.current_snapshot().parent_snapshot_id)


def branch_off(catalog):
    Table.load(catalog, NAME).create_branch("audit")


def expire_what_was_planned_on(catalog):
    start = Table.load(catalog, NAME).current_snapshot().snapshot_id
    plan(catalog, Append("b", ids(13))).commit()
    state = catalog.load(NAME)
    catalog.commit(state, Change(updates=(RemoveSnapshots(snapshot_ids=(start,)),)))


def recreate(catalog):
    catalog.drop_table(NAME)
    make_table(catalog)
    plan(catalog, BASE[0]).commit()


THEIRS = {
    "append, same partition": run(Append("a", ids(2, 5))),
    "append, other partition": run(Append("b", ids(14))),
    "overwrite, same partition": run(Overwrite("a", ids(6))),
    "overwrite, other partition": run(Overwrite("b", ids(6))),
    "whole files deleted": run(DeletePartition("a")),
    "same file rewritten": run(CopyOnWriteDelete(ids(3))),
    "rows of same file deleted": run(MergeOnReadDelete(ids(3))),
    "rows of other file deleted": run(MergeOnReadDelete(ids(11))),
    "equality delete": run(EqualityDelete("a", ids(3))),
    "compaction": run(Compact("a")),
    "manifests rewritten": run(RewriteAllManifests()),
    "expiry": run(Expire()),
    "expiry of the planned snapshot": expire_what_was_planned_on,
    "rollback": roll_back,
    "new branch": branch_off,
    "column added": alter({"add_column": {"name": "price", "type": "long"}}),
    "column renamed": alter({"rename_column": {"from": "id", "to": "number"}}),
    "new partitioning": alter({"add_partition_field": "bucket(4, id)"}),
    "dropped and recreated": recreate,
}


def cells_of(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def documented():
    """Return {(version, ours, theirs): outcome} as the page shows it."""
    found = {}
    for section in re.split(r"^## ", DOC.read_text(), flags=re.MULTILINE)[1:]:
        version = re.match(r"What happens in format version (\d)", section)
        if version is None:
            continue
        for lines in re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE):
            first, _, *rest = lines.splitlines()
            for line in rest:
                theirs, *cells = cells_of(line)
                for ours, cell in zip(cells_of(first)[1:], cells, strict=True):
                    found[int(version[1]), ours, theirs] = cell
    return found


@cache
def base_table(version):
    """Return the files and the metadata location of the table that all cells start with."""
    catalog = MemoryCatalog()
    make_table(catalog, version)
    for step in BASE:
        plan(catalog, step).commit()
    return catalog.io, catalog.load(NAME).metadata_location


def at_the_start(version):
    """Return a catalog of its own in which the table is as it was; all names of files are unique."""
    io, location = base_table(version)
    catalog = MemoryCatalog(io=io)
    catalog.register_table(NAME, location)
    return catalog


def outcome(version, ours, theirs):
    """Return what really happens, and check that the rows are those of one change after the other."""
    catalog = at_the_start(version)
    mine, options = OURS[ours]
    planned = plan(catalog, mine, **options)
    THEIRS[theirs](catalog)
    location = catalog.load(NAME).metadata_location
    try:
        planned.commit()
    except StalePlanError:
        assert catalog.load(NAME).metadata_location == location
        return "re-plan"
    if theirs != "column renamed":
        before = rows_in(Table.from_metadata(location, io=catalog.io))
        if +rows_of(catalog) != +mine.after(before):
            # Under snapshot isolation a change need not see what was added meanwhile: it is as if it came first.
            assert options == {"isolation": "snapshot"}, (ours, theirs)
            assert rows_of(catalog) == rows_of(_after_ours(version, ours, theirs)), (ours, theirs)
    return "rebased"


def _after_ours(version, ours, theirs):
    catalog = at_the_start(version)
    plan(catalog, OURS[ours][0]).commit()
    THEIRS[theirs](catalog)
    return catalog


CELLS = documented() if DOC.exists() else {}


@pytest.fixture
def hours_later(monkeypatch):
    """Let every plan be old when it is committed."""
    monkeypatch.setattr(engine, "FRESH_S", -1)


@pytest.mark.usefixtures("hours_later")
class TestTheTableOfThePage:
    """Each cell is what happens."""

    @pytest.mark.costly
    @pytest.mark.sample(3)
    @pytest.mark.parametrize(("version", "ours"), sorted({(v, o) for v, o, _ in CELLS}))
    def test_a_column(self, version, ours):
        cells = {theirs: cell for (v, o, theirs), cell in CELLS.items() if (v, o) == (version, ours)}
        assert {theirs: outcome(version, ours, theirs) for theirs in cells} == cells

    def test_no_pair_is_missing(self):
        assert {(o, t) for _, o, t in CELLS} == {(o, t) for o in OURS for t in THEIRS}

    def test_the_rules_are_those_of_the_code(self):
        short = {
            "added data": Check.ADDED_DATA,
            "added deletes": Check.ADDED_DELETES,
            "removed data": Check.REMOVED_DATA,
            "removed files": Check.FILES_GONE,
            "vectors": Check.ADDED_VECTORS,
        }
        text = DOC.read_text().split("In the tables below")[0]
        for operation, levels in RULES.items():
            (line,) = re.findall(rf"^\| {operation.value} \|[^|]*\|[^|]*\|$", text, flags=re.MULTILINE)
            _, snapshot, more = cells_of(line)
            read = {short[name] for name in snapshot.split(", ") if name != "–"}
            added = {short[name.strip("+ ")] for name in more.split(", ") if name != "–"}
            assert (read, read | added) == (levels["snapshot"], levels["serializable"]), operation


class TestHistory:
    """What came after the snapshot that was planned on, as far as the branch tells."""

    @pytest.fixture
    def catalog(self):
        return at_the_start(2)

    def history(self, catalog, start):
        table = Table.load(catalog, NAME)
        return History.since(table.metadata, "main", start, ChangedFiles(table.io))

    def test_nothing_came_after_the_head(self, catalog):
        head = Table.load(catalog, NAME).current_snapshot()
        assert self.history(catalog, head.snapshot_id).snapshots == ()

    def test_all_came_after_a_branch_without_snapshots(self, catalog):
        assert len(self.history(catalog, None).snapshots) == 2

    def test_an_expired_root_hides_what_came_after_the_beginning(self, catalog):
        plan(catalog, Expire()).commit()
        with pytest.raises(StalePlanError, match="does not go back to the state before the first snapshot"):
            self.history(catalog, None)

    def test_a_snapshot_of_another_branch_is_not_in_it(self, catalog):
        branch_off(catalog)
        plan(catalog, Append(), branch="audit").commit()
        other = Table.load(catalog, NAME).metadata.ref_snapshot("audit")
        with pytest.raises(StalePlanError, match=rf"does not go back to snapshot {other.snapshot_id}, which is not in"):
            self.history(catalog, other.snapshot_id)

    def test_a_branch_that_was_made_meanwhile_does_not_count(self, catalog):
        branch_off(catalog)
        planned = plan(catalog, Overwrite())
        plan(catalog, Append("a"), branch="audit").commit()
        planned.commit()
        assert rows_of(catalog, "audit")["a", 1] == 2


class TestMessages:
    """Who did what to which file, and what to do now."""

    KEY = OperationKey(dag_id="load", run_id="r1", task_id="append")

    def message(self, ours, *theirs, **options):
        catalog = at_the_start(2)
        planned = plan(catalog, ours)
        for other in theirs:
            plan(catalog, other, **options).commit()
        with pytest.raises(StalePlanError) as error:
            planned.commit()
        head = Table.load(catalog, NAME).current_snapshot()
        return str(error.value).replace(str(head.snapshot_id), "<snapshot>")

    def test_a_task_of_airflow_is_named(self):
        message = self.message(Overwrite(), Append(), key=self.KEY)
        path = r"memory://warehouse/db/t/data/part=a/[^ ]+\.parquet"
        assert re.fullmatch(
            r"snapshot <snapshot> \(append, by DAG 'load', task 'append', run 'r1'\) added data file "
            rf"{path}, which this change of branch 'main' may have to see; nothing was committed, re-plan on the "
            r"latest snapshot",
            message,
        )

    def test_another_engine_is_named_as_far_as_it_says(self):
        message = self.message(Compact("a"), CopyOnWriteDelete())
        assert "is no longer in the table: removed by snapshot <snapshot> (overwrite, by airflow-iceberg)" in message

    def test_a_partial_match_is_the_callers_or_the_other_writers(self):
        catalog = at_the_start(2)
        catalog_table = Table.load(catalog, NAME)
        with pytest.raises(InvalidInputError, match="cannot prove that all its rows are selected; rewrite it"):
            plan(catalog, DeleteWhere("id = 2")).commit()
        planned = plan(catalog, DeleteWhere("part = 'a' or id = 21"))
        plan(catalog, Append("c", ids(20, 21, 22))).commit()
        with pytest.raises(StalePlanError, match="added it meanwhile; re-plan"):
            planned.commit()
        assert catalog_table.refresh().scan().count() == 8

    def test_nor_is_it_the_callers_where_nobody_can_tell_any_more(self):
        catalog = at_the_start(2)
        planned = plan(catalog, DeleteWhere("part = 'a' or id = 21"))
        plan(catalog, Append("c", ids(20, 21, 22))).commit()
        plan(catalog, Append("d", ids(30))).commit()
        plan(catalog, Expire()).commit()
        with pytest.raises(StalePlanError, match="may have been added since this change was planned"):
            planned.commit()
        assert Table.load(catalog, NAME).scan().count() == 9


class TestAnUpgradeMeanwhile:
    """Deletes by position are files in v2 and vectors in v3."""

    def test_position_deletes_are_planned_again(self):
        catalog = at_the_start(2)
        planned = plan(catalog, MergeOnReadDelete())
        catalog.commit(catalog.load(NAME), Change(updates=(UpgradeFormatVersion(format_version=3),)))
        with pytest.raises(StalePlanError, match=r"are deletion vectors in format version 3, got .*; if the table was"):
            planned.commit()

    def test_a_second_vector_of_a_file_is_never_added(self):
        catalog = at_the_start(3)
        plan(catalog, MergeOnReadDelete(ids(1))).commit()
        planned = plan(catalog, MergeOnReadDelete(ids(2)))
        planned.action._removed = ()
        with pytest.raises(StalePlanError, match="has a deletion vector already"):
            planned.commit()
