"""The peers: Iceberg Java, PyIceberg and DuckDB, each started once."""

import pytest

from airflow_iceberg.catalogs import load_catalog
from tests.support.iceberg_java import SMALL, IcebergJava


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory):
    return tmp_path_factory.mktemp("compat").as_uri()


@pytest.fixture(scope="session")
def catalog(warehouse):
    catalog = load_catalog("ref", type="hadoop", warehouse=warehouse)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture(scope="session")
def java(warehouse):
    with IcebergJava.start(warehouse, **SMALL) as java:
        yield java


@pytest.fixture(scope="session")
def duck():
    import duckdb
    import duckdb_extensions

    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=connection)
        connection.execute(f"load {name}")
    connection.execute("set TimeZone='UTC'")
    yield connection
    connection.close()
