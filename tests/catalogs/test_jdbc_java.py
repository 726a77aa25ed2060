"""The SQL catalog beside Iceberg Java's JdbcCatalog, on one PostgreSQL, in both of its schemas."""

import glob
import itertools
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
import sqlalchemy

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.services.launch import maven_jars
from tests.support.iceberg_java import IcebergJava
from tests.support.postgresql import PASSWORD, PostgreSQL

pytestmark = [pytest.mark.services, pytest.mark.java]

_DRIVER = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>postgresql-driver</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.postgresql</groupId><artifactId>postgresql</artifactId><version>42.7.4</version></dependency>
  </dependencies>
</project>
"""


@pytest.fixture(scope="module")
def server():
    server = PostgreSQL()
    yield server
    server.remove()


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
def java(server, databases, warehouse):
    jars = sorted(glob.glob(f"{maven_jars('postgresql-driver-42.7.4', _DRIVER)}/*.jar"))
    settings = {"spark.driver.extraClassPath": ":".join(jars)}
    for version, database in databases.items():
        name = f"spark.sql.catalog.{version.lower()}"
        settings |= {
            name: "org.apache.iceberg.spark.SparkCatalog",
            f"{name}.type": "jdbc",
            f"{name}.uri": f"jdbc:postgresql://127.0.0.1:{server.port}/{database}",
            f"{name}.jdbc.user": "lab",
            f"{name}.jdbc.password": PASSWORD,
            f"{name}.jdbc.schema-version": version,
            f"{name}.warehouse": warehouse,
            f"{name}.cache-enabled": "false",
        }
    with IcebergJava.start(warehouse, **settings) as java:
        yield java


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

    def test_both_append_at_once(self, catalog, java):
        name = f"db.raced_{uuid.uuid4().hex[:8]}"
        table = Table.create(catalog, name, schema={"writer": "int", "number": "int"})
        table.alter([{"set_properties": {"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "500"}}])
        java.sql(f"insert into {catalog.name}.{name} values (7, 0)")  # it is warm from here on
        took = [1.0]

        def theirs() -> None:
            for number in range(1, 21):
                start = time.monotonic()
                java.sql(f"insert into {catalog.name}.{name} values (7, {number})")
                took[0] = time.monotonic() - start

        with ThreadPoolExecutor(1) as pool:
            running, number = pool.submit(theirs), 0
            while not running.done() or number < 20:
                Table.load(catalog, name).append(row(1, number))
                number += 1
                time.sleep(min(took[0], 2) * 0.5)
            running.result()
        expected = Counter([(7, n) for n in range(21)] + [(1, n) for n in range(number)])
        table = Table.load(catalog, name)
        assert Counter((each["writer"], each["number"]) for each in table.scan().to_arrow().to_pylist()) == expected
        seen = java.sql(f"select * from {catalog.name}.{name}")
        assert Counter((each["writer"], each["number"]) for each in seen) == expected
        engines = ["spark" in str(snapshot.summary) for snapshot in table.snapshots()]
        assert len(list(itertools.groupby(engines))) >= 6, "the two did not race"


def row(writer, number):
    return pa.table({"writer": pa.array([writer], pa.int32()), "number": pa.array([number], pa.int32())})
