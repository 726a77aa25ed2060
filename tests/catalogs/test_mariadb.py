"""The SQL catalog on a real MariaDB: the contract, interoperability, and connections that are lost."""

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import CommitUnknownError, StorageError
from tests.catalogs.contract import CatalogContract, make_table, setting
from tests.services.mariadb import PASSWORD
from tests.support.postgresql import CuttingProxy

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server(mariadb):
    return mariadb


@pytest.fixture
def uri(server):
    """A database without tables."""
    return server.new_database()


@pytest.fixture
def properties(uri, tmp_path):
    return {"uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def catalog(properties):
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    return catalog


class TestContract(CatalogContract):
    """A SQL catalog on MariaDB is a catalog."""

    @pytest.fixture
    def properties(self, uri, tmp_path):
        return {"uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}


class TestContractOfSchemaV0(TestContract):
    """So it is with the tables of an old JdbcCatalog, which know no views."""

    @pytest.fixture
    def properties(self, uri, tmp_path):
        return {"uri": uri, "warehouse": f"file://{tmp_path}/warehouse", "jdbc.schema-version": "V0"}


class TestNames:
    """A name is what it is, whatever the database's collation makes of it."""

    def test_tables_whose_names_differ_in_case_or_in_blanks_at_the_end_are_different(self, catalog):
        make_table(catalog, "db.orders")
        assert not catalog.table_exists("db.Orders")
        assert not catalog.table_exists("db.orders ")
        assert not catalog.table_exists("DB.orders")
        assert not catalog.namespace_exists("Db")
        make_table(catalog, "db.ORDERS")
        assert [table.name for table in catalog.list_tables("db")] == ["ORDERS", "orders"]
        catalog.drop_table("db.ORDERS")
        assert catalog.table_exists("db.orders")


class TestAccess:
    """A server that is away or refuses us gives one error that names it, and never the password."""

    def test_a_wrong_password_is_an_error_without_it(self, server):
        catalog = load_catalog("prod", uri=server.uri("nope", password="wr0ng-pass"))
        with pytest.raises(StorageError, match=f"on 127.0.0.1:{server.port}: ") as raised:
            catalog.list_namespaces()
        assert "wr0ng-pass" not in f"{raised.value}{raised.value.__cause__}"

    def test_a_uri_of_jdbc_leads_to_the_same_catalog(self, server, uri, catalog):
        jdbc = f"jdbc:mariadb://127.0.0.1:{server.port}/{uri.rpartition('/')[2]}"
        logged_in = {"jdbc.user": "lab", "jdbc.password": PASSWORD}
        assert load_catalog("prod", uri=jdbc, **logged_in).list_namespaces() == (("db",),)

    def test_a_server_that_was_restarted_between_two_calls_is_no_failure(self, server, catalog):
        state = make_table(catalog)
        server.stop()
        try:
            with pytest.raises(StorageError):
                catalog.load("db.t")
        finally:
            server.start()
        assert catalog.commit(state, setting(a="1")) == catalog.load("db.t")


class TestLostConnections:
    """A connection that is lost after the change was sent makes the outcome unknown; nothing is deleted."""

    @pytest.fixture
    def proxy(self, server):
        proxy = CuttingProxy(server.port)
        yield proxy
        proxy.close()

    @pytest.mark.parametrize(
        ("word", "forward", "has_landed"),
        [
            (b"UPDATE iceberg", False, False),
            (b"UPDATE iceberg", True, False),
            (b"\x03COMMIT", False, False),
            (b"\x03COMMIT", True, True),
        ],
    )
    def test_the_outcome_is_unknown_whether_it_landed_or_not(
        self, server, uri, catalog, proxy, word, forward, has_landed
    ):
        name = uri.rpartition("/")[2]
        shaky = load_catalog("prod", uri=server.uri(name, port=proxy.port), warehouse=catalog.properties["warehouse"])
        state = make_table(catalog)
        proxy.word, proxy.forward = word, forward
        with pytest.raises(CommitUnknownError, match="lost the mysql database") as raised:
            shaky.commit(state, setting(a="1"))
        assert PASSWORD not in str(raised.value)
        location = raised.value.metadata_location
        assert catalog.io.exists(location)
        assert (catalog.load("db.t").metadata_location == location) is has_landed
        assert shaky.commit(shaky.load("db.t"), setting(b="1")) == catalog.load("db.t")


class TestBesidePyIceberg:
    """PyIceberg's catalog in the same database."""

    def test_both_commit_to_one_table(self, catalog, properties):
        from pyiceberg.catalog.sql import SqlCatalog

        make_table(catalog)
        table = SqlCatalog("prod", **properties).load_table("db.t")
        table.append(pa.table({"id": [1]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)])))
        state = catalog.commit(catalog.load("db.t"), setting(a="1"))
        assert state.metadata.current_snapshot().summary["total-records"] == "1"
        assert table.refresh().properties == {"a": "1"}
