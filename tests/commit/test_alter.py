"""Altering a table through the commit loop: one commit, whatever is lost on the way and whoever else writes."""

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError, StalePlanError, UnsupportedError
from airflow_iceberg.table import Table
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog

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
