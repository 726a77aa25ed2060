"""The REST catalog on SeaweedFS: tokens, the contract, and the oddities of a server that is not Java's."""

import re
import time

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, new_catalog, setting
from tests.catalogs.rest_contract import RestContract, empty
from tests.services.seaweedfs import SeaweedFS
from tests.support.http_server import Fault, SpoilingProxy

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server(seaweedfs):
    return seaweedfs


@pytest.fixture
def properties(server):
    empty(load_catalog("clean", **server.catalog_properties))
    return server.catalog_properties


class TestContract(RestContract):
    """SeaweedFS's catalog, reached with client credentials, is a catalog."""

    drop_keeps_files = False  # SeaweedFS removes them whatever is asked
    tells_one_winner = False  # it lets several succeed when they come at the same moment, and keeps one of them
    no_namespaces = ("d", "dax", "db.x")

    def test_capital_letters_are_refused(self, catalog):
        with pytest.raises(InvalidInputError, match="namespace DB"):
            catalog.namespace_exists("DB")

    def test_a_table_can_be_registered_by_its_metadata_file(self):
        """It takes the file of a table that is there, answers rightly, and keeps another, empty table: that is told.

        It cannot remove that entry again, so this test has a server of its own.
        """
        server = SeaweedFS().start()
        try:
            catalog = new_catalog(**server.catalog_properties)
            state = make_table(catalog)
            with pytest.raises(
                CommitUnknownError, match=r"answered that it did register table db\.u, but|cannot be loaded"
            ):
                catalog.register_table("db.u", state.metadata_location)
            with pytest.raises(AlreadyExistsError):
                catalog.register_table("db.u", state.metadata_location)
            with pytest.raises((NotFoundError, InvalidInputError), match=r"cannot register table db\.v"):
                catalog.register_table("db.v", f"{state.metadata_location}.nope")
        finally:
            server.stop()


@pytest.fixture
def proxy(server):
    with SpoilingProxy(int(server.rest_uri.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
def shaky(properties, proxy):
    """The catalog through a proxy; its patience ends before a slow answer comes."""
    return load_catalog("prod", **{**properties, "uri": proxy.uri, "rest.client.socket-timeout-ms": "1000"})


class TestAccess:
    """Client credentials are exchanged for a token of the server's own."""

    def test_the_token_is_asked_for_once(self, properties, proxy):
        catalog = load_catalog("prod", **{**properties, "uri": proxy.uri})
        catalog.list_namespaces()
        catalog.list_namespaces()
        assert [call.partition("?")[0] for call in proxy.calls()] == [
            "POST /v1/oauth/tokens",
            "GET /v1/config",
            "GET /v1/warehouse/namespaces",
            "GET /v1/warehouse/namespaces",
        ]

    def test_a_token_can_be_given_instead(self, properties, catalog):
        token = catalog._server.http.auth.token()
        given = {name: value for name, value in properties.items() if name != "credential"}
        assert load_catalog("prod", **given, token=token).list_namespaces() == (("db",),)

    def test_wrong_credentials_are_an_error_without_them(self, properties):
        with pytest.raises(StorageError, match=r"cannot get a token: .* answers 401 invalid_client") as raised:
            load_catalog("prod", **{**properties, "credential": "lake-admin:wr0ng-secret"}).list_namespaces()
        assert "wr0ng-secret" not in f"{raised.value}{raised.value.__cause__!r}"

    def test_a_token_that_is_none_is_an_error_without_it(self, properties):
        given = {name: value for name, value in properties.items() if name != "credential"}
        with pytest.raises(StorageError, match="check the credentials of the connection") as raised:
            load_catalog("prod", **given, token="n0-such-token").list_namespaces()
        assert "n0-such-token" not in str(raised.value)

    @pytest.mark.services
    def test_a_server_that_was_restarted_knows_its_tables_and_our_token(self, server, catalog):
        state = make_table(catalog)
        server.kill()
        server.start()
        assert catalog.commit(state, setting(a="1")) == catalog.load("db.t")


class TestLostAnswers:
    """Whatever becomes of the answer to a commit, the change is in the table once or not at all."""

    COMMIT = "POST /v1/warehouse/namespaces/db/tables/t$"

    @pytest.mark.parametrize("kind", ["not sent", "lost", "torn", "slow", "status"])
    def test_a_change_lands_once(self, catalog, shaky, proxy, kind):
        table = Table.create(catalog, "db.t", schema={"id": "long"}, properties={"commit.retry.min-wait-ms": "10"})
        fault = Fault(matches=self.COMMIT, kind=kind, delay_s=1.5 if kind == "slow" else 0)
        proxy.faults = [fault]
        with pytest.raises(CommitUnknownError, match=r"cannot tell whether it did commit to table db\.t"):
            shaky.commit(shaky.load("db.t"), setting(a="1"))
        proxy.faults = [fault]
        Table.load(shaky, "db.t").alter([{"add_column": {"name": "color", "type": "string"}}])
        assert proxy.faults == []
        found = table.refresh().metadata
        assert [len(schema.fields) for schema in found.schemas] == [1, 2]
        if kind != "slow":  # which the server may still be at
            assert (found.properties.get("a") == "1") is (kind != "not sent")


class TestTables:
    """Rows go to the server's own S3, with the keys of the connection."""

    def test_they_are_written_and_read_back(self, catalog):
        table = Table.create(catalog, "db.t", schema={"id": "long", "name": "string"}, partition_by=["bucket(2, id)"])
        assert table.location.startswith("s3://warehouse/")
        table.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
        table.append(pa.table({"id": [4], "name": ["d"]}))
        found = Table.load(catalog, "db.t")
        assert sorted(found.scan("id > 1").to_arrow()["name"].to_pylist()) == ["b", "c", "d"]
        assert len(found.snapshots()) == 2


@pytest.fixture(scope="module")
def vending():
    server = SeaweedFS(vends=True).start()
    load_catalog("prod", **server.catalog_properties).create_namespace("db")
    yield server
    server.stop()


class TestVendedCredentials:
    """A server that hands out credentials for a table is all that is needed to reach its files."""

    @pytest.fixture
    def server(self, vending):
        return vending

    @pytest.fixture
    def proxy(self, server):
        with SpoilingProxy(int(server.rest_uri.rpartition(":")[2])) as proxy:
            yield proxy

    @pytest.fixture
    def keyless(self, server):
        """A catalog of somebody who has no key of the store."""
        given = server.catalog_properties
        return {name: value for name, value in given.items() if not name.startswith("s3.")}

    @pytest.mark.services
    def test_rows_are_written_and_read_without_a_key_of_our_own(self, keyless):
        catalog = load_catalog("prod", **keyless)
        table = Table.create(catalog, "db.rows", schema={"id": "long"})
        table.append(pa.table({"id": [1, 2]}))
        Table.load(catalog, "db.rows").append(pa.table({"id": [3]}))
        assert Table.load(catalog, "db.rows").scan().to_arrow().num_rows == 3

    def test_they_go_before_our_own_and_open_one_table_only(self, server):
        catalog = load_catalog("prod", **server.catalog_properties)
        one = Table.create(catalog, "db.one", schema={"id": "long"})
        two = Table.create(catalog, "db.two", schema={"id": "long"})
        assert one.io.exists(one.metadata_location)
        with pytest.raises(StorageError):
            one.io.read(two.metadata_location)
        assert catalog.io.exists(two.metadata_location)  # the connection's own keys open both

    def test_they_are_asked_for_again_before_they_expire(self, keyless, proxy):
        """A task that writes for longer than they last doesn't notice."""
        Table.create(load_catalog("prod", **keyless), "db.long", schema={"id": "long"})
        expiry = b'"s3.session-token-expires-at-ms":"'
        proxy.rewrite = lambda body: re.sub(expiry + rb"[0-9]+", expiry + b"%d" % (time.time() * 1000 + 1), body)
        table = Table.load(load_catalog("prod", **{**keyless, "uri": proxy.uri}), "db.long")
        loads = [call for call in proxy.calls() if call.startswith("GET /v1/warehouse/namespaces/db/tables/long")]
        assert len(loads) == 1
        time.sleep(0.01)
        proxy.rewrite = lambda body: body
        table.append(pa.table({"id": [1]}))
        calls = proxy.calls()
        assert "GET /v1/warehouse/namespaces/db/tables/long" in calls
        assert calls[-1] == "POST /v1/warehouse/namespaces/db/tables/long"
        assert table.scan().to_arrow().num_rows == 1

    @pytest.mark.services
    def test_nothing_of_them_is_shown(self, keyless):
        catalog = load_catalog("prod", **keyless)
        state = make_table(catalog, "db.shown")
        assert "ASIA" not in f"{state!r}{state.io!r}{catalog!r}"
