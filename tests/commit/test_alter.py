"""Altering a table through the commit loop: one commit, whatever is lost on the way and whoever else writes."""

import json
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.alter_table.applied import MOST_MARKS, PREFIX
from airflow_iceberg.plan.alter_table.changes import evolve
from airflow_iceberg.plan.alter_table.evolution import Evolution
from airflow_iceberg.plan.alter_table.words import read_changes
from airflow_iceberg.table import Table
from tests.support.faults import RemoteFileIO, new_catalog
from tests.support.memory import Fault, FaultyCatalog, FileFault, FileRule, MemoryCatalog, MemoryFileIO, SimulatedCrash
from tests.support.sampling import SEED, sampled

# Made twice it would be refused, or take a column away: it must be noticed that it landed.
RECREATE = [{"drop_column": "n"}, {"add_column": {"name": "n", "type": "string"}}]
SWAP = [{"rename_column": {"from": "n", "to": "m"}}, {"add_column": {"name": "n", "type": "int"}}]


@pytest.fixture
def inner():
    return MemoryCatalog()


@pytest.fixture
def make(inner):
    """Make a table; a rival does something with it when a commit of ours conflicts."""

    def make(*script, rival=None):
        Table.create(inner, "db.t", schema={"id": "long", "n": "int"})
        if rival is None:
            return Table.load(FaultyCatalog(inner, script), "db.t")
        wins = FaultyCatalog(inner, [Fault.CONFLICT], rival=lambda catalog, name: rival(Table.load(catalog, name)))
        return Table.load(wins, "db.t")

    return make


def names(table):
    return {field.name: field.id for field in table.refresh().schema().fields}


class TestWhateverIsLost:
    """The list is made exactly once."""

    @pytest.mark.parametrize("changes", [RECREATE, SWAP], ids=["recreate", "swap"])
    @pytest.mark.parametrize(
        "fault",
        [
            *(Fault.PROCEED, Fault.CONFLICT, Fault.LAND_THEN_UNKNOWN, Fault.LOSE_THEN_UNKNOWN),
            *(Fault.RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_UNKNOWN),
        ],
    )
    def test_once(self, make, fault, changes, monkeypatch):
        monkeypatch.setattr("time.sleep", lambda _: None)
        table = make(fault)
        assert table.alter(changes).done_by_this_try
        assert names(table) == ({"id": 1, "n": 3} if changes is RECREATE else {"id": 1, "m": 2, "n": 3})
        assert len(table.metadata.schemas) == 2

    def test_a_second_call_changes_nothing(self, make):
        table = make()
        table.alter(SWAP)
        location = table.metadata_location
        assert not table.alter(SWAP).done_by_this_try
        assert table.refresh().metadata_location == location


class TestWhoeverElseWrites:
    """The changes are made of the table as it is when their turn comes."""

    def test_a_rivals_column_stays_and_ids_do_not_collide(self, make):
        table = make(rival=lambda theirs: theirs.alter([{"add_column": {"name": "theirs", "type": "int"}}]))
        table.alter([{"add_column": {"name": "ours", "type": "int"}}])
        assert names(table) == {"id": 1, "n": 2, "theirs": 3, "ours": 4}

    def test_a_rival_that_does_the_same_work_did_it(self, make):
        table = make(rival=lambda theirs: theirs.alter(SWAP))
        table.alter(SWAP)
        assert names(table) == {"id": 1, "m": 2, "n": 3}

    def test_a_rival_that_took_the_column_away_is_an_error(self, make):
        table = make(rival=lambda theirs: theirs.alter([{"drop_column": "n"}]))
        with pytest.raises(NotFoundError, match="no column 'n'"):
            table.alter([{"rename_column": {"from": "n", "to": "m"}}])

    def test_an_append_meanwhile_keeps_its_rows(self, make):
        table = make(rival=lambda theirs: theirs.append(pa.table({"id": [1], "n": pa.array([1], pa.int32())})))
        table.alter(SWAP)
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "m": 1, "n": None}]

    def test_rows_written_meanwhile_that_may_lack_what_is_required_now_are_not_committed(self, make):
        table = make(rival=lambda theirs: theirs.alter([{"make_required": {"name": "n", "allow_incompatible": True}}]))
        with pytest.raises(StalePlanError, match="became required"):
            table.append(pa.table({"id": [1]}))


class TestNamesThatDifferByCase:
    """Iceberg tells them apart, Spark and Hive do not: they are made, and spoken of."""

    def test_a_warning(self, make, caplog):
        table = make()
        table.alter([{"add_column": {"name": "N", "type": "int"}}])
        assert "columns that differ by case alone" in caplog.text
        assert "N, n" in caplog.text


class TestWhatIsRefused:
    """Nothing is changed, and nothing is left behind."""

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ([{"add_column": {"name": "a", "type": "int"}}, {"drop_column": "nothing"}], NotFoundError),
            ([{"set_properties": {"encryption.key-id": "k"}}], UnsupportedError),
            ([{"add_column": {"name": "a", "type": "timestamp_ns"}}], InvalidInputError),
            ([{"upgrade_format_version": 4}], UnsupportedError),
        ],
    )
    def test_all_or_nothing(self, make, inner, changes, error):
        table = make()
        before = inner.io.locations()
        with pytest.raises(error):
            table.alter(changes)
        assert inner.io.locations() == before
        assert table.refresh().schema().schema_id == 0


# --- made once, whatever happens before it is asked for again ---------------------------------------------------------

EXCHANGE = [{"rename_column": {"from": a, "to": b}} for a, b in (("n", "tmp"), ("m", "n"), ("tmp", "m"))]
LISTS = {
    "recreate": RECREATE,
    "exchange": EXCHANGE,
    "replace": [{"rename_column": {"from": "n", "to": "old"}}, {"add_column": {"name": "n", "type": "int"}}],
    "drop": [{"drop_column": "n"}],
    "rename": [{"rename_column": {"from": "n", "to": "k"}}],
    "recreate inside": [{"drop_column": "s.a"}, {"add_column": {"name": "s.a", "type": "int"}}],
    "union": [{"drop_column": "n"}, {"union_by_name": {"n": "string"}}],
    "partitioning": [{"add_partition_field": "bucket(4, id)"}, {"drop_partition_field": "id_bucket"}],
}
NO_WAITING = {"commit.status-check.min-wait-ms": "1", "commit.retry.min-wait-ms": "1"}
FIRST = OperationKey(dag_id="d", run_id="r", task_id="t")
CLEARED = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=1)
ANOTHER = OperationKey(dag_id="d", run_id="r2", task_id="t")


def by_another_program(catalog, changes):
    """Make changes without a mark."""
    state = catalog.load(TableId.parse("db.t"))
    catalog.commit(state, evolve(state.metadata, changes))


def change_something(table):
    table.alter([{"add_column": {"name": "theirs", "type": "int"}}])


def clean(table):
    """Append, so that the head has the current schema, and expire all else."""
    table.append(pa.table({"id": [9]}))
    request = ExpireSnapshotsRequest(older_than_ms=10**15, retain_last=1, clean_expired_metadata=True)
    expire_snapshots(Work(table), request)


def reverse(table):
    """Undo what could have been done, and give the names to columns that are in use."""
    columns = table.schema().names
    for name in ("n", "m", "k", "old"):
        if name in columns:
            table.alter([{"rename_column": {"from": name, "to": f"{name}_theirs"}}])
    for name in ("n", "m"):
        table.alter([{"add_column": {"name": name, "type": "int"}}])


MEANWHILE = {
    "nothing": [],
    "another change": [change_something],
    "cleaned": [clean],
    "both": [change_something, clean],
    "both, the other way": [clean, change_something],
    "twice": [change_something, clean, change_something, clean],
    "reversed": [reverse],
    "reversed and cleaned": [reverse, clean],
}


class Server(FaultyCatalog):
    """Names the metadata file itself, as a REST catalog's server does: a lost answer leaves no location to look for."""

    def commit(self, base, change):
        try:
            return super().commit(base, change)
        except CommitUnknownError as error:
            error.metadata_location = None
            raise


def rivals(names):
    def do_all(catalog, name):
        for step in MEANWHILE[names]:
            step(Table.load(catalog, name))

    return do_all


def some_table(catalog, version="2"):
    table = Table.create(
        catalog,
        "db.t",
        schema={"id": "long", "n": "int", "m": "int", "s": "struct<a: int, b: int>"},
        partition_by=["bucket(2, id)"],
        properties={"format-version": version, **NO_WAITING},
    )
    table.append(pa.table({"id": [1], "n": pa.array([1], pa.int32()), "m": pa.array([2], pa.int32())}))
    return table


def columns_of(table):
    """The ids of all columns by name, the partition fields, and the rows."""
    table.refresh()
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    return dict(table.schema().names), [field.name for field in table.spec().fields], rows


@pytest.mark.sample(3)
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("name", LISTS)
class TestATaskThatRunsAgain:
    """Its changes were made once: nothing is dropped, exchanged or refused, whatever others did meanwhile."""

    def test_a_retry_and_a_clear(self, inner, name, meanwhile):
        table = some_table(inner)
        if name == "partitioning":
            table.alter([{"rename_column": {"from": "s", "to": "t"}}])
        assert table.alter(LISTS[name], operation_key=FIRST).outcome == "committed"
        rivals(meanwhile)(inner, table.identifier)
        before = columns_of(table)
        for key in (FIRST, CLEARED):
            result = Table.load(inner, "db.t").alter(LISTS[name], operation_key=key)
            assert (result.outcome, result.done_by_this_try) == ("found", False)
            assert columns_of(table) == before

    @pytest.mark.parametrize("kind", [FaultyCatalog, Server])
    def test_a_lost_answer(self, inner, name, meanwhile, kind):
        some_table(inner)
        table = Table.load(kind(inner, [Fault.LAND_THEN_RIVAL_THEN_UNKNOWN], rival=rivals(meanwhile)), "db.t")
        assert table.alter(LISTS[name], operation_key=FIRST).outcome == "committed"
        before = columns_of(table)
        assert Table.load(inner, "db.t").alter(LISTS[name], operation_key=FIRST).outcome == "found"
        assert columns_of(table) == before

    @pytest.mark.parametrize("kind", [FaultyCatalog, Server])
    def test_a_lost_request(self, inner, name, meanwhile, kind):
        """The list is made on what the others made of the table, or refused: never half, never twice."""
        some_table(inner)
        table = Table.load(kind(inner, [Fault.RIVAL_THEN_UNKNOWN], rival=rivals(meanwhile)), "db.t")
        try:
            assert table.alter(LISTS[name], operation_key=FIRST).outcome == "committed"
        except CommitUnknownError:
            assert "reversed" in meanwhile  # what the list names is not there any more
        before = columns_of(table)
        try:
            Table.load(inner, "db.t").alter(LISTS[name], operation_key=FIRST)
        except (NotFoundError, AlreadyExistsError):
            assert "reversed" in meanwhile
        else:
            assert "reversed" in meanwhile or columns_of(table) == before


@pytest.mark.parametrize(
    "fault", [FileFault.DO_THEN_FAIL, FileFault.LATE, FileFault.CRASH_AFTER, FileFault.CRASH_BEFORE]
)
@pytest.mark.parametrize("meanwhile", ["another change", "both", "reversed and cleaned"])
@pytest.mark.parametrize("name", ["recreate", "exchange", "drop"])
class TestAHadoopCatalog:
    """Its pointer is the file itself: a try whose file was, or was not, written is followed by another one."""

    def test_once(self, name, meanwhile, fault):
        catalog = new_catalog("hadoop", RemoteFileIO(MemoryFileIO()))
        catalog.create_namespace("db", if_not_exists=True)
        table = some_table(catalog)
        before = columns_of(table)
        catalog.io.rules = [FileRule(call="create", fault=fault, matching=".metadata.json")]
        with suppress(CommitUnknownError, SimulatedCrash):
            table.alter(LISTS[name], operation_key=FIRST)
        catalog.io.rules = []
        catalog.io.late.arrive()
        has_landed = columns_of(Table.load(catalog, "db.t")) != before
        assert has_landed or fault is FileFault.CRASH_BEFORE
        if has_landed:
            rivals(meanwhile)(catalog, table.identifier)
        after = columns_of(Table.load(catalog, "db.t"))
        result = Table.load(catalog, "db.t").alter(LISTS[name], operation_key=FIRST)
        assert result.outcome == ("found" if has_landed else "committed")
        assert not has_landed or columns_of(Table.load(catalog, "db.t")) == after


@pytest.mark.sample(3)
@pytest.mark.parametrize("meanwhile", ["nothing", "another change", "cleaned", "both", "reversed and cleaned"])
@pytest.mark.parametrize("name", ["recreate", "exchange", "replace", "recreate inside", "union"])
class TestAListThatIsAskedForAgain:
    """By another run of the DAG, or by hand: one that would change its own result is not made a second time."""

    @pytest.mark.parametrize(("first", "second"), [(FIRST, ANOTHER), (FIRST, None), (None, None), (None, FIRST)])
    def test_nothing_is_changed(self, inner, name, meanwhile, first, second):
        table = some_table(inner)
        assert table.alter(LISTS[name], operation_key=first).outcome == "committed"
        rivals(meanwhile)(inner, table.identifier)
        before = columns_of(table)
        assert Table.load(inner, "db.t").alter(LISTS[name], operation_key=second).outcome == "nothing"
        assert columns_of(table) == before


class TestPlainChangesThatAreAskedForAgain:
    """A drop or a rename that was made is no error, even after the table has forgotten the column."""

    @pytest.mark.parametrize("second", [ANOTHER, None])
    @pytest.mark.parametrize("first", [FIRST, None])
    @pytest.mark.parametrize("name", ["drop", "rename"])
    def test_after_the_old_schemas_are_gone(self, inner, name, first, second):
        table = some_table(inner)
        table.alter(LISTS[name], operation_key=first)
        clean(table)
        assert Table.load(inner, "db.t").alter(LISTS[name], operation_key=second).outcome == "nothing"

    def test_another_run_drops_a_column_that_is_there_again(self, inner):
        table = some_table(inner)
        table.alter(LISTS["drop"], operation_key=FIRST)
        table.alter([{"add_column": {"name": "n", "type": "int"}}])
        assert table.alter(LISTS["drop"], operation_key=ANOTHER).outcome == "committed"

    def test_a_column_that_the_table_never_had_is_an_error(self, inner):
        table = some_table(inner)
        with pytest.raises(NotFoundError, match="no column 'x'"):
            table.alter([{"drop_column": "x"}], operation_key=FIRST)


class TestAListThatNothingTellsOf:
    """Without a key, a list that would drop or exchange its own result is made only if the schemas prove it new."""

    def forget(self, inner):
        """Remove the marks, as a writer may that replaces all properties."""
        table = Table.load(inner, "db.t")
        marks = [name for name in table.metadata.properties if name.startswith(PREFIX)]
        assert marks
        table.alter([{"remove_properties": marks}])
        return table

    @pytest.mark.parametrize("meanwhile", ["another change", "cleaned", "both"])
    @pytest.mark.parametrize("name", ["recreate", "exchange", "recreate inside", "union"])
    def test_is_refused(self, inner, name, meanwhile):
        table = some_table(inner)
        table.alter(LISTS[name], operation_key=FIRST)
        rivals(meanwhile)(inner, table.identifier)
        table = self.forget(inner)
        before = columns_of(table)
        with pytest.raises(InvalidInputError, match="pass operation_key, or make the changes in two calls"):
            table.alter(LISTS[name])
        assert columns_of(table) == before

    @pytest.mark.parametrize("name", ["recreate", "exchange"])
    def test_is_made_when_all_schemas_are_there_and_none_comes_from_it(self, inner, name):
        table = some_table(inner)
        change_something(table)
        assert table.alter(LISTS[name]).outcome == "committed"

    def test_other_changes_in_the_list_need_a_table_that_never_changed(self, inner):
        changes = [*RECREATE, {"set_sort_order": ["id"]}]
        table = some_table(inner)
        by_another_program(inner, [{"add_column": {"name": "theirs", "type": "int"}}])
        with pytest.raises(InvalidInputError, match="pass operation_key"):
            table.refresh().alter(changes)
        assert table.alter(changes, operation_key=FIRST).outcome == "committed"

    def test_also_with_a_key_if_the_table_has_no_mark_and_is_as_the_list_would_leave_it(self, inner):
        table = some_table(inner)
        by_another_program(inner, EXCHANGE)
        with pytest.raises(InvalidInputError, match="changed: make the changes in two calls"):
            table.refresh().alter(EXCHANGE, operation_key=FIRST)

    @pytest.mark.parametrize("key", [FIRST, None])
    def test_the_marks_of_other_lists_show_that_it_was_not_made(self, inner, key):
        table = some_table(inner)
        change_something(table)
        table.alter([{"drop_column": "m"}, {"add_column": {"name": "m", "type": "int"}}], operation_key=key)
        assert columns_of(table)[0]["m"] == 8


class TestMarks:
    """One property for each list and work, and no more than needed."""

    def marks(self, table):
        return {name: text for name, text in table.refresh().metadata.properties.items() if name.startswith(PREFIX)}

    def test_one_for_a_list_that_changes_nothing_when_it_is_made_again(self, inner):
        table = some_table(inner)
        changes = [
            {"add_column": {"name": "new", "type": "int", "first": True}},
            {"change_type": {"name": "n", "type": "long"}},
            {"set_properties": {"a": "1"}},
            {"set_sort_order": ["id"]},
        ]
        table.alter(changes, operation_key=FIRST)
        assert [text.split(" ")[:2] for text in self.marks(table).values()] == [["1", "made"]]
        assert table.alter(changes, operation_key=FIRST).outcome == "found"
        assert table.alter(changes, operation_key=ANOTHER).outcome == "nothing"
        table.alter([{"set_properties": {"a": "2"}}])
        assert table.alter(changes, operation_key=CLEARED).outcome == "found"
        assert table.properties["a"] == "2"
        assert table.alter(changes, operation_key=ANOTHER).outcome == "committed"

    @pytest.mark.costly
    def test_those_of_such_lists_are_removed_first_and_prove_nothing_by_that(self, inner):
        table = some_table(inner)
        table.alter(RECREATE, operation_key=FIRST)
        for number in range(MOST_MARKS + 5):
            table.alter([{"set_properties": {"a": str(number)}}], operation_key=FIRST)
        assert len(self.marks(table)) == MOST_MARKS
        change_something(table)
        assert table.alter(RECREATE, operation_key=ANOTHER).outcome == "nothing"
        exchanged = columns_of(table)[0]
        assert table.alter(EXCHANGE, operation_key=FIRST).outcome == "committed"
        assert columns_of(table)[0] == {**exchanged, "n": exchanged["m"], "m": exchanged["n"]}
        assert Table.load(inner, "db.t").alter(EXCHANGE, operation_key=FIRST).outcome == "found"

    def test_none_for_a_list_that_changes_nothing(self, inner):
        table = some_table(inner)
        table.alter([{"add_column": {"name": "n", "type": "int"}}], operation_key=FIRST)
        assert self.marks(table) == {}

    def test_they_are_not_among_the_properties_that_users_see(self, inner):
        table = some_table(inner)
        table.alter(RECREATE, operation_key=FIRST)
        assert len(self.marks(table)) == 1
        assert table.properties == NO_WAITING

    @pytest.mark.costly
    def test_they_are_bounded_and_those_that_protect_columns_stay(self, inner):
        table = some_table(inner)
        table.alter(RECREATE, operation_key=FIRST)
        for number in range(MOST_MARKS + 3):
            table.alter([{"rename_column": {"from": f"x{number - 1}" if number else "m", "to": f"x{number}"}}])
        assert len(self.marks(table)) == MOST_MARKS
        change_something(table)
        assert table.alter(RECREATE, operation_key=ANOTHER).outcome == "nothing"

    @pytest.mark.costly
    def test_a_list_is_not_made_again_if_its_mark_may_have_been_removed(self, inner):
        table = some_table(inner)
        table.alter(RECREATE, operation_key=FIRST)
        change_something(table)
        for number in range(MOST_MARKS):
            column = {"name": f"x{number}", "type": "int"}
            changes = [{"add_column": column}, {"drop_column": f"x{number}"}, {"add_column": column}]
            table.alter(changes, operation_key=FIRST)
        with pytest.raises(InvalidInputError, match="changed: make the changes in two calls"):
            table.alter(RECREATE, operation_key=ANOTHER)
        assert table.alter([{"drop_column": "m"}], operation_key=ANOTHER).outcome == "committed"

    def test_a_mark_that_is_written_again_is_none_that_was_removed(self, inner):
        table = some_table(inner)
        for number in range(4):
            rename = {"from": "m", "to": "x"} if number % 2 == 0 else {"from": "x", "to": "m"}
            table.alter([{"rename_column": rename}])
        assert table.alter(RECREATE, operation_key=FIRST).outcome == "committed"
        assert sorted(text.split(" ")[0] for text in self.marks(table).values()) == ["1", "2", "3"]

    def test_a_number_without_end_is_none(self, inner):
        table = some_table(inner)
        table.alter(RECREATE, operation_key=FIRST)
        table.alter([{"set_properties": {f"{PREFIX}x.y": f"{'9' * 5000} once"}}])
        assert table.alter([{"drop_column": "m"}], operation_key=FIRST).outcome == "committed"

    def test_a_copy_of_the_properties_says_nothing_of_another_table(self, inner):
        table = some_table(inner)
        table.alter(RECREATE, operation_key=FIRST)
        other = Table.create(inner, "db.u", schema={"id": "long", "n": "int"}, properties=self.marks(table))
        assert other.alter(RECREATE, operation_key=FIRST).outcome == "committed"

    def test_a_damaged_one_still_protects(self, inner):
        table = some_table(inner)
        table.alter(RECREATE, operation_key=FIRST)
        (name,) = self.marks(table)
        for text in ("", "x y", "1", "-1 once", "\u0661 \u0661 \u0661"):
            table.alter([{"set_properties": {name: text}}])
            assert table.alter(RECREATE, operation_key=ANOTHER).outcome == "nothing"

    def test_the_form_of_the_list_does_not_matter(self, inner):
        table = some_table(inner)
        table.alter(tuple({kind: given} for change in RECREATE for kind, given in change.items()), operation_key=FIRST)
        again = [{"drop_column": "n"}, {"add_column": {"type": "string", "name": "n"}}]
        change_something(table)
        assert table.alter(again, operation_key=ANOTHER).outcome == "nothing"

    @pytest.mark.parametrize("version", ["1", "2", "3"])
    def test_in_every_format_version(self, inner, version):
        table = some_table(inner, version)
        table.alter(EXCHANGE, operation_key=FIRST)
        change_something(table)
        clean(table)
        before = columns_of(table)
        assert Table.load(inner, "db.t").alter(EXCHANGE, operation_key=FIRST).outcome == "found"
        assert columns_of(table) == before

    def test_in_a_table_without_a_uuid(self, inner):
        table = some_table(inner, "1")
        document = metadata_json.to_dict(table.metadata)
        del document["table-uuid"]
        location = "memory://warehouse/db/t/metadata/old.metadata.json"
        inner.io.create(location, json.dumps(document).encode())
        inner.drop_table("db.t")
        old = Table._of(inner, inner.register_table("db.t", location))
        assert old.metadata.table_uuid is None
        old.alter(EXCHANGE, operation_key=FIRST)
        change_something(old)
        before = columns_of(old)
        assert Table.load(inner, "db.t").alter(EXCHANGE, operation_key=FIRST).outcome == "found"
        assert columns_of(old) == before

    @pytest.mark.parametrize("kind", [FaultyCatalog, Server])
    @pytest.mark.parametrize("fault", [Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.RIVAL_THEN_UNKNOWN])
    @pytest.mark.parametrize("key", [FIRST, None])
    def test_a_lost_answer_of_a_list_that_others_undid(self, inner, fault, kind, key):
        """The table is as before: the mark alone tells that the list was made, and is not to be made again."""
        table = some_table(inner)
        with_column = [{"add_column": {"name": "new", "type": "int"}}]
        undo = lambda catalog, name: Table.load(catalog, name).alter([{"drop_column": "new"}])  # noqa: E731
        keep = lambda catalog, name: change_something(Table.load(catalog, name))  # noqa: E731
        has_landed = fault is Fault.LAND_THEN_RIVAL_THEN_UNKNOWN
        table = Table.load(kind(inner, [fault], rival=undo if has_landed else keep), "db.t")
        assert table.alter(with_column, operation_key=key).outcome == "committed"
        assert ("new" in columns_of(table)[0]) is not has_landed

    def test_two_processes_of_one_task(self, inner):
        some_table(inner)
        rival = lambda catalog, name: Table.load(catalog, name).alter(EXCHANGE, operation_key=FIRST)  # noqa: E731
        table = Table.load(FaultyCatalog(inner, [Fault.CONFLICT], rival=rival), "db.t")
        assert table.alter(EXCHANGE, operation_key=FIRST).outcome == "found"
        assert columns_of(table)[2] == [{"id": 1, "m": 1, "n": 2, "s": None}]


# --- a list is no other list ------------------------------------------------------------------------------------------


def renames(*pairs):
    return [{"rename_column": {"from": old, "to": new}} for old, new in pairs]


def in_turn(*names):
    """Return the renames that give each column the name of the next one."""
    spare = names[0] + "_tmp"
    return renames((names[0], spare), *zip(names[1:], names[:-1], strict=True), (spare, names[-1]))


ADDED = {"add_column": {"name": "x", "type": "int"}}
MIRRORED = [
    (in_turn("n", "m"), in_turn("m", "n")),
    (in_turn("n", "m", "k"), in_turn("k", "m", "n")),
    (in_turn("s.a", "s.b"), in_turn("s.b", "s.a")),
    (renames(("n", "x"), ("m", "y")), renames(("x", "n"), ("y", "m"))),
    (renames(("n", "x"), ("m", "n"), ("x", "m")), renames(("n", "y"), ("m", "n"), ("y", "m"))),
    (
        [{"add_partition_field": "n as other"}, {"drop_partition_field": "part"}],
        [{"add_partition_field": "m as part"}, {"drop_partition_field": "other"}],
    ),
    ([{"set_sort_order": ["n"]}], [{"set_sort_order": ["m desc"]}]),
    ([{"set_default": {"name": "n", "value": 1}}], [{"set_default": {"name": "n", "value": 2}}]),
    ([ADDED], [{"drop_column": "x"}, ADDED]),
    ([{"move_column": {"name": "n", "first": True}}], [{"move_column": {"name": "n", "after": "id"}}]),
]  # fmt: skip


class TestAListThatMirrorsAnother:
    """It is made although the table was once as it leaves it: only its own mark says that it was made before."""

    @pytest.mark.parametrize("keys", [(FIRST, FIRST), (FIRST, ANOTHER), (FIRST, None), (None, None)])
    @pytest.mark.parametrize(("there", "back"), MIRRORED)
    def test_and_back(self, inner, there, back, keys):
        table = wide_table(inner)
        for changes, key in zip((there, back), keys, strict=True):
            expected = direct(table, changes)
            assert table.alter(changes, operation_key=key).outcome == "committed"
            assert state_of(table) == expected

    @pytest.mark.parametrize("fault", [Fault.LAND_THEN_UNKNOWN, Fault.LOSE_THEN_UNKNOWN])
    @pytest.mark.parametrize(("there", "back"), MIRRORED)
    def test_and_back_with_a_lost_answer_and_a_clear(self, inner, there, back, fault):
        wide_table(inner).alter(there, operation_key=FIRST)
        table = Table.load(FaultyCatalog(inner, [fault]), "db.t")
        expected = direct(table, back)
        assert table.alter(back, operation_key=ANOTHER).outcome == "committed"
        for changes, key in ((there, FIRST), (there, CLEARED), (back, ANOTHER)):
            assert Table.load(inner, "db.t").alter(changes, operation_key=key).outcome == "found"
            assert state_of(table) == expected


def wide_table(catalog):
    table = Table.create(
        catalog,
        "db.t",
        schema={"id": "long", "n": "int", "m": "int", "k": "int", "s": "struct<a: int, b: int>"},
        partition_by=["m as part"],
        properties={"format-version": "3", **NO_WAITING},
    )
    table.append(pa.table({"id": [1], "n": pa.array([1], pa.int32()), "m": pa.array([2], pa.int32())}))
    return table


def state_of(table, evolution=None):
    metadata = table.refresh().metadata
    now = evolution or Evolution(metadata)
    columns = [(f.name, f.id, f.type, f.write_default) for f in now.schema.fields]
    return (
        now.schema.names,
        columns,
        [str(f) for f in now.partitioning.spec.fields],
        [str(f) for f in now.sort_order.fields],
    )


def direct(table, changes):
    """Return the state that the changes lead to, whatever was done before."""
    evolution = Evolution(table.refresh().metadata)
    for step in read_changes(changes):
        step(evolution)
    return state_of(table, evolution)


@pytest.mark.generated
def test_lists_that_lead_to_and_fro_are_each_made_once(inner):
    """Random lists of few names, each by a task that is then retried and cleared among the others."""
    for case in range(sampled(25)):
        random = Random(f"{SEED}/{case}")
        if case:
            inner.drop_table("db.t")
        table, made = wide_table(inner), {}
        for step in range(8):
            changes = [_change(random) for _ in range(random.randint(1, 4))]
            try:
                expected = direct(table, changes)
            except IcebergError:
                continue
            if str(changes) in made or expected == state_of(table):
                continue
            key = OperationKey(dag_id="d", run_id="r", task_id=f"t{step}") if random.random() < 0.8 else None
            with suppress(InvalidInputError):  # what the specification forbids
                assert Table.load(inner, "db.t").alter(changes, operation_key=key).outcome == "committed"
                assert state_of(table) == expected, (case, changes)
                made[str(changes)] = changes, key
            before = state_of(table)
            for again, its_key in random.sample(list(made.values()), min(2, len(made))):
                if its_key is not None:
                    assert Table.load(inner, "db.t").alter(again, operation_key=its_key).outcome == "found"
                    assert state_of(table) == before


def _change(random):
    name, other = random.sample(["n", "m", "k", "s.a", "s.b"], 2)
    return random.choice([
        {"rename_column": {"from": name, "to": other.rpartition(".")[2]}},
        {"rename_column": {"from": name, "to": "t"}},
        {"rename_column": {"from": "t", "to": other}},
        {"drop_column": name},
        {"add_column": {"name": name, "type": random.choice(["int", "long"])}},
        {"change_type": {"name": name, "type": "long"}},
        {"set_default": {"name": name, "value": random.randint(1, 2)}},
        {"set_sort_order": random.choice([["id"], ["n"], []])},
        {"move_column": {"name": name, "first": True}},
        {"add_partition_field": "bucket(4, id)"},
        {"drop_partition_field": random.choice(["id_bucket", "part"])},
        {"set_properties": {"a": random.choice("12")}},
    ])  # fmt: skip
