"""The SQL catalog beside Iceberg Java's JdbcCatalog, on one PostgreSQL, in both of its schemas."""

import uuid

import pytest
import sqlalchemy

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.catalogs.java import add_catalog
from tests.catalogs.races import row
from tests.support.postgresql import PASSWORD

pytestmark = [pytest.mark.services, pytest.mark.java]


@pytest.fixture(scope="module")
def server(postgresql):
    return postgresql


@pytest.fixture(scope="module")
def databases(server):
    """An empty database for each schema of the catalog."""
    engine = sqlalchemy.create_engine(server.uri(), isolation_level="AUTOCOMMIT")
    names = {version: f"iceberg_{version.lower()}" for version in ("V0", "V1")}
    with engine.connect() as connection:
        for name in names.values():
            connection.exec_driver_sql(f"create database {name}")
    engine.dispose()
    return names


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    return tmp_path_factory.mktemp("jdbc").as_uri()


@pytest.fixture(scope="module")
def java(iceberg_java, server, databases, warehouse):
    """A Spark that knows the catalogs as `v0` and `v1`."""
    for version, database in databases.items():
        settings = {
            "type": "jdbc",
            "uri": f"jdbc:postgresql://127.0.0.1:{server.port}/{database}",
            "jdbc.user": "lab",
            "jdbc.password": PASSWORD,
            "jdbc.schema-version": version,
            "warehouse": warehouse,
        }
        add_catalog(iceberg_java, name=version.lower(), **settings)
    return iceberg_java


@pytest.fixture(params=["V0", "V1"])
def catalog(request, server, databases, warehouse):
    """The catalog that Java calls v0 or v1: the name is part of the key."""
    catalog = load_catalog(
        request.param.lower(),
        uri=server.uri(databases[request.param]),
        warehouse=warehouse,
        **{"jdbc.schema-version": request.param},
    )
    catalog.create_namespace("db", if_not_exists=True)
    return catalog


class TestBesideIcebergJava:
    """Both see one catalog: namespaces, tables, names and commits."""

    def test_each_sees_what_the_other_made(self, catalog, java):
        ours, theirs = f"db.ours_{uuid.uuid4().hex[:8]}", f"db.theirs_{uuid.uuid4().hex[:8]}"
        Table.create(catalog, ours, schema={"writer": "int", "number": "int"}).append(row(1, 0))
        java.sql(f"create table {catalog.name}.{theirs} (writer int, number int) using iceberg")
        java.sql(f"insert into {catalog.name}.{theirs} values (7, 0)")
        assert java.sql(f"select * from {catalog.name}.{ours}") == [{"writer": 1, "number": 0}]
        assert Table.load(catalog, theirs).scan().to_arrow().to_pylist() == [{"writer": 7, "number": 0}]
        assert {str(table) for table in catalog.list_tables("db")} >= {ours, theirs}
        java.sql(f"alter table {catalog.name}.{theirs} rename to {theirs}_renamed")
        assert not catalog.table_exists(theirs)
        catalog.rename_table(f"{theirs}_renamed", theirs)
        assert java.sql(f"select number from {catalog.name}.{theirs}") == [{"number": 0}]
        java.sql(f"create namespace {catalog.name}.theirs")
        assert ("theirs",) in catalog.list_namespaces()
        catalog.drop_namespace("theirs")
