"""The SQL catalog on a real PostgreSQL, and what happens when the connection is lost at the worst moment."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import CommitConflictError, CommitUnknownError, StorageError
from tests.catalogs.contract import CatalogContract, commit_until_done, make_table, new_metadata, setting
from tests.catalogs.sql_server_contract import SqlServerContract, proxy
from tests.support.postgresql import PASSWORD

pytestmark = pytest.mark.services
__all__ = ["proxy"]  # a fixture


@pytest.fixture(scope="module")
def server(postgresql):
    return postgresql


@pytest.fixture
def engine(server):
    """Our own access to the database, which holds no catalog yet."""
    engine = sqlalchemy.create_engine(server.uri())
    with engine.begin() as connection:
        connection.exec_driver_sql("drop table if exists iceberg_tables, iceberg_namespace_properties")
    yield engine
    engine.dispose()


@pytest.fixture
def properties(server, engine, tmp_path):
    return {"uri": server.uri(), "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def shaky(server, properties, proxy):
    return load_catalog("prod", **{**properties, "uri": server.uri(port=proxy.port)})


class TestContract(CatalogContract):
    """A SQL catalog on a server is a catalog."""


class TestOnAServer(SqlServerContract):
    """It shares the database, and survives the loss of connections."""

    DIALECT, COMMIT, PASSWORD = "postgresql", b"COMMIT", PASSWORD


class TestAccess:
    """A server that is away or refuses us gives one error that names it, and never the password."""

    def test_a_wrong_password_is_an_error_without_it(self, server):
        catalog = load_catalog("prod", uri=server.uri(password="wr0ng"))
        with pytest.raises(StorageError, match=f"on 127.0.0.1:{server.port}: .*authentication failed") as raised:
            catalog.list_namespaces()
        assert "wr0ng" not in f"{raised.value}{raised.value.__cause__}"

    def test_a_uri_of_jdbc_leads_to_the_same_catalog(self, server, catalog):
        uri = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?user=lab&password={PASSWORD}"
        assert load_catalog("prod", uri=uri).list_namespaces() == (("db",),)
        beside = {"jdbc.user": "lab", "jdbc.password": PASSWORD}
        uri = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
        assert load_catalog("prod", uri=uri, **beside).list_namespaces() == (("db",),)

    def test_a_catalog_that_is_opened_first_by_many_at_once_is_made_once(self, properties):
        catalogs = [load_catalog("prod", **properties) for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda catalog: catalog.create_namespace("db", if_not_exists=True), catalogs))
        assert [catalog.list_namespaces() for catalog in catalogs] == [(("db",),)] * 6

    def test_a_location_that_is_too_long_for_the_column_is_refused_and_nothing_is_made(self, catalog, tmp_path):
        catalog.properties = {**catalog.properties, "allowed-locations": str(tmp_path)}
        with pytest.raises(StorageError, match="value too long"):
            catalog.create("db.t", new_metadata(str(tmp_path) + "/long" * 250))
        assert not catalog.table_exists("db.t")


class TestLostConnections:
    """A connection that is lost after the change was sent makes the outcome unknown; nothing is deleted."""

    def test_the_outcome_of_a_creation_is_unknown(self, catalog, shaky, proxy):
        shaky.list_tables("db")
        proxy.word = b"COMMIT"
        with pytest.raises(CommitUnknownError) as raised:
            make_table(shaky)
        assert catalog.load("db.t").metadata_location == raised.value.metadata_location

    def test_a_connection_that_is_lost_before_anything_was_sent_is_a_definite_failure(self, catalog, shaky, proxy):
        state = make_table(catalog)
        shaky.load("db.t")
        proxy.close()
        shaky._opened._engine.dispose()
        with pytest.raises(StorageError, match="cannot connect to"):
            shaky.commit(state, setting(a="1"))
        assert catalog.load("db.t") == state


class TestIsolation:
    """Whatever isolation the database is set to, a lost race is a conflict."""

    @pytest.fixture
    def strict(self, properties):
        uri = f"{properties['uri']}?options=-c%20default_transaction_isolation%3Dserializable"
        return load_catalog("prod", **{**properties, "uri": uri})

    def test_a_transaction_that_the_database_undoes_is_a_conflict(self, catalog, strict, engine):
        state = make_table(catalog)
        with ThreadPoolExecutor(1) as pool:
            with engine.begin() as connection:
                connection.exec_driver_sql("update iceberg_tables set table_name = 't'")
                commit = pool.submit(strict.commit, state, setting(a="1"))
                wait_until_somebody_waits_for_a_lock(connection)
            with pytest.raises(CommitConflictError, match="undid the change of catalog prod for another transaction"):
                commit.result()
        assert catalog.load("db.t") == state

    def test_writers_at_once_lose_nothing(self, catalog, strict):
        make_table(catalog)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda tag: commit_until_done(strict, "db.t", 8, tag), "abc"))
        assert len(catalog.load("db.t").metadata.properties) == 24


def wait_until_somebody_waits_for_a_lock(connection):
    deadline = time.monotonic() + 300
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    while not connection.exec_driver_sql(waiting).scalar():
        assert time.monotonic() < deadline, "nobody waits for the lock"
        connection.exec_driver_sql("select pg_stat_clear_snapshot()")
        time.sleep(0.02)
