"""The SQL catalog on a real MariaDB: the contract, interoperability, and connections that are lost."""

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import StorageError
from tests.catalogs.contract import CatalogContract, make_table
from tests.catalogs.sql_server_contract import SqlServerContract, proxy
from tests.services.mariadb import PASSWORD

pytestmark = pytest.mark.services
__all__ = ["proxy"]  # a fixture


@pytest.fixture(scope="module")
def server(mariadb):
    return mariadb


@pytest.fixture
def uri(server):
    return server.new_database()


@pytest.fixture
def properties(uri, tmp_path):
    return {"uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def shaky(server, uri, properties, proxy):
    name = uri.rpartition("/")[2]
    return load_catalog("prod", **{**properties, "uri": server.uri(name, port=proxy.port)})


class TestContract(CatalogContract):
    """A SQL catalog on MariaDB is a catalog."""


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


class TestOnAServer(SqlServerContract):
    """It shares the database, and survives the loss of connections."""

    DIALECT, COMMIT, PASSWORD = "mysql", b"\x03COMMIT", PASSWORD
