"""The peers: Iceberg Java, PyIceberg and DuckDB, each started once."""

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.support.duck_reader import connect
from tests.support.iceberg_java import SMALL, IcebergJava


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory):
    return tmp_path_factory.mktemp("compat").as_uri()


@pytest.fixture(scope="session")
def catalog(warehouse, tmp_path_factory):
    # Java adds files of other folders to tables.
    elsewhere = {"allowed-locations": str(tmp_path_factory.getbasetemp())}
    catalog = load_catalog("ref", type="hadoop", warehouse=warehouse, **elsewhere)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture(scope="session")
def java(warehouse):
    with IcebergJava.start(warehouse, **SMALL) as java:
        yield java


@pytest.fixture
def theirs(java, catalog, request):
    """Makes partitioned tables of Java's, of the version that the test asks for, with three rows."""

    def make(version):
        name = request.node.name.replace("test_", "").split("[")[0][:50] + f"_{version}"
        java.sql(
            f"create table ref.db.{name} (id bigint not null, day date, name string) using iceberg "
            f"partitioned by (days(day)) tblproperties ('format-version'='{version}')"
        )
        java.sql(
            f"insert into ref.db.{name} values "
            "(1, date '2026-01-01', 'a'), (2, date '2026-01-02', null), (3, null, 'c')"
        )
        return Table.load(catalog, f"db.{name}")

    return make


@pytest.fixture(scope="session")
def duck():
    with connect() as connection:
        yield connection
