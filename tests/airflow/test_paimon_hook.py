"""From the fields of a `paimon` connection to tables."""

import json
from typing import Any, ClassVar

import pytest
from airflow.sdk import Connection

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.hooks.paimon import PaimonConfig, PaimonHook
from tests.airflow.paimon_lake import CONN_ID, PaimonLake


def config(extra: Any = None, **fields: Any) -> PaimonConfig:
    text = None if extra is None else json.dumps(extra)
    return PaimonConfig.from_connection(Connection(conn_id="lake", conn_type="paimon", extra=text, **fields))


class TestWhereTablesAre:
    """A connection leads to a warehouse or to one table; a location leads to itself."""

    @pytest.mark.parametrize(
        ("extra", "table", "location"),
        [
            ({"warehouse": "s3://b/w/"}, "db.t", "s3://b/w/db.db/t"),
            ({"warehouse": "s3://b/w"}, "s3://other/t/", "s3://other/t"),
            ({"warehouse": "s3://b/w"}, "/data/t", "/data/t"),
            ({"path": "hdfs://n/w/db.db/t/"}, None, "hdfs://n/w/db.db/t"),
            ({"path": "hdfs://n/w/db.db/t"}, "", "hdfs://n/w/db.db/t"),
            ({"properties": {"warehouse": "file:///w"}}, "db.t", "file:///w/db.db/t"),
            ({"warehouse": "/w"}, "db.x.t", "/w/db.db/x.t"),
            ({"warehouse": "/w"}, "db.`x.t`", "/w/db.db/x.t"),
            ({"warehouse": "/w"}, "`a.b`.t", "/w/a.b.db/t"),
        ],
    )
    def test_by_name_by_location_or_by_the_connection_alone(self, extra, table, location):
        assert config(extra).location(table) == location

    def test_the_name_of_its_iceberg_table_has_a_dot_in_backticks(self):
        known = config({"warehouse": "/w", "path": "/w/db.db/x.t"})
        assert [known.name_of(name) for name in ("db.t", "db.x.t", 'db."x.t"', None)] == ["db.t", *["db.`x.t`"] * 3]

    def test_the_host_may_be_the_warehouse(self):
        assert config(host="file:///w").location("db.t") == "file:///w/db.db/t"

    @pytest.mark.parametrize(
        ("extra", "table", "message"),
        [
            ({"warehouse": "/w"}, None, "no table is named, and connection 'lake' has no path"),
            ({"path": "/w/db.db/t"}, "db.t", "connection 'lake' has no warehouse"),
            ({"warehouse": "/w"}, "t", r"unexpected table 't' \(expected 'database.table' or a location\)"),
            ({"warehouse": "/w"}, "db.t$branch_b", "a branch is named by branch="),
        ],
    )
    def test_what_leads_nowhere_is_refused(self, extra, table, message):
        with pytest.raises(InvalidInputError, match=message):
            config(extra).location(table)

    S3: ClassVar = {"s3.secret-access-key": "hush", "s3.endpoint": "e"}

    @pytest.mark.parametrize(
        ("extra", "properties"),
        [
            ({"warehouse": "s3://b/w", "s3.secret-access-key": "hush", "properties": {"s3.endpoint": "e"}}, S3),
            ({"warehouse": "hdfs://me:hush@n/w"}, {}),
            ({"path": "hdfs://me:hush@n/w/db.db/t"}, {}),
        ],
    )
    def test_secrets_are_known_and_not_shown(self, extra, properties):
        found = config(extra)
        assert found.secrets() == ["hush"]
        assert found.properties == properties
        assert "hush" not in repr(found)


class TestTheHook:
    """It opens tables, to look into them."""

    @pytest.fixture(autouse=True)
    def written(self, paimon_lake: PaimonLake) -> None:
        paimon_lake.write("a", rows=3)

    def test_a_table_can_be_inspected(self):
        table = PaimonHook().get_table("db.t")
        assert table.inspect.snapshots()["total_record_count"].to_pylist() == [3]
        assert table.inspect.files()["record_count"].to_pylist() == [3]

    def test_a_table_that_is_not_there_is_an_error(self):
        with pytest.raises(NotFoundError, match="no Paimon table at"):
            PaimonHook().get_table("db.nothing")

    def test_it_is_what_airflow_makes_of_the_connection(self):
        hook = PaimonHook.get_hook(CONN_ID)
        assert isinstance(hook, PaimonHook)
        assert hook.get_conn() is hook.io


class TestTheButton:
    """It says which step fails."""

    @pytest.mark.parametrize(
        ("extra", "works", "message"),
        [
            ({"warehouse": "{w}"}, True, "list the warehouse {w}: it has files"),
            ({"warehouse": "{w}/empty"}, True, "list the warehouse {w}/empty: it is empty"),
            (
                {"warehouse": "{w}/tpyo/lake"},
                False,
                "could not list the warehouse {w}/tpyo/lake: neither this folder nor the folder above it exists",
            ),
            ({"path": "{w}/db.db/t"}, True, "open the table at {w}/db.db/t: its latest snapshot is 1"),
            ({"path": "{w}/db.db/x"}, False, "could not open the table at {w}/db.db/x: no Paimon table at"),
            (
                {"warehouse": "nowhere"},
                False,
                "could not list the warehouse nowhere: 'nowhere' is not an absolute",
            ),
            ({}, False, "could not read the connection: it has neither a warehouse nor a path"),
            (
                {"warehouse": "s3://b/w", "s3.endpoint": "http://no-such-host.invalid:9000"},
                False,
                "could not resolve the name no-such-host.invalid: ",
            ),
            (
                {"warehouse": "s4://me:hush-hush@b/w"},
                False,
                "could not list the warehouse s4://me:***@b/w: a location that begins with s4://",
            ),
            (
                {"warehouse": "{w}/new"},
                True,
                "the warehouse {w}/new does not exist yet: the first table creates it; if it ",
            ),
        ],
    )
    def test_by_connection(self, extra, works, message, tmp_path, monkeypatch):
        lake = PaimonLake(tmp_path)
        lake.write("a")
        (tmp_path / "empty").mkdir()
        filled = {name: value.format(w=tmp_path) for name, value in extra.items()}
        monkeypatch.setenv("AIRFLOW_CONN_P", json.dumps({"conn_type": "paimon", "extra": filled}))
        found, text = PaimonHook("p").test_connection()
        is_there = works and not message.startswith("the warehouse")
        start = "the connection works: read the connection; " if is_there else ""
        assert (found, text.startswith(start + message.format(w=tmp_path))) == (works, True), text
        assert "hush" not in text
        assert not (tmp_path / "new").exists()
