"""The Nessie catalog beside Iceberg Java's, on one server."""

import itertools
import random
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.catalogs.contract import setting
from tests.services.nessie import start_nessie
from tests.support.iceberg_java import IcebergJava

pytestmark = [pytest.mark.services, pytest.mark.java]


@pytest.fixture(scope="module")
def uri():
    server, uri = start_nessie()
    yield uri
    server.stop()


@pytest.fixture(scope="module")
def catalog(uri, tmp_path_factory):
    warehouse = tmp_path_factory.mktemp("nessie").as_uri() + "/warehouse"
    catalog = load_catalog("prod", type="nessie", uri=uri, warehouse=warehouse)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture(scope="module")
def java(uri, catalog, tmp_path_factory):
    settings = {
        "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.prod.catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        "spark.sql.catalog.prod.uri": uri,
        "spark.sql.catalog.prod.ref": "main",
        "spark.sql.catalog.prod.warehouse": catalog.properties["warehouse"],
        "spark.sql.catalog.prod.cache-enabled": "false",
    }
    with IcebergJava.start(tmp_path_factory.mktemp("spark").as_uri(), **settings) as java:
        yield java


def row(writer, number):
    return pa.table({"writer": pa.array([writer], pa.int32()), "number": pa.array([number], pa.int32())})


def unique(name):
    return f"{name}_{uuid.uuid4().hex[:8]}"


def counted(rows):
    return Counter((each["writer"], each["number"]) for each in rows)


class TestBesideIcebergJava:
    """Iceberg Java and we work on one table, also at the same time: each row is there once, whoever reads."""

    def test_both_append(self, catalog, java):
        name = unique("db.raced")
        patience = {"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "500"}
        table = Table.create(catalog, name, schema={"writer": "int", "number": "int"}, properties=patience)
        java.sql(f"insert into prod.{name} values (7, 0)")  # it is warm from here on
        took = [1.0]  # seconds that its last insert took, lost races and all

        def insert() -> None:
            for number in range(1, 20):
                started = time.monotonic()
                java.sql(f"insert into prod.{name} values (7, {number})")
                took.append(time.monotonic() - started)

        with ThreadPoolExecutor(1) as pool:
            theirs = pool.submit(insert)
            mine, number = Table.load(catalog, name), 0
            while not theirs.done() or number < 20:
                mine.append(row(1, number))
                number += 1
                # We are the faster one: without a pause as long as its commits, it would lose each race.
                time.sleep(random.random() * took[-1])
            theirs.result()
        expected = Counter([*((7, n) for n in range(20)), *((1, n) for n in range(number))])
        assert counted(java.sql(f"select * from prod.{name}")) == expected
        table.refresh()
        assert counted(table.scan().to_arrow().to_pylist()) == expected
        assert len(table.snapshots()) == sum(expected.values())
        engines = ["spark.app.id" in each.summary for each in table.snapshots()]
        turns = sum(one != other for one, other in itertools.pairwise(engines))
        print(f"{len(engines)} snapshots, {sum(engines)} of Iceberg Java's, {turns} turns")
        assert sum(engines) == 20
        assert turns >= 10, f"the two did not race: {turns} turns"

    def test_it_reads_what_we_made_and_goes_on(self, catalog, java):
        name = unique("db.ours")
        table = Table.create(catalog, name, schema={"writer": "int", "number": "int"})
        table.append(row(1, 0))
        table.alter([{"add_column": {"name": "more", "type": "string"}}])
        assert java.sql(f"select * from prod.{name}") == [{"writer": 1, "number": 0, "more": None}]
        java.sql(f"insert into prod.{name} values (7, 0, 'x')")
        java.sql(f"alter table prod.{name} drop column more")
        table.refresh().append(row(1, 1))
        assert counted(java.sql(f"select * from prod.{name}")) == Counter([(1, 0), (7, 0), (1, 1)])

    def test_we_read_what_it_made_and_go_on(self, catalog, java):
        name = unique("db.theirs")
        java.sql(f"create table prod.{name} (writer int, number int) using iceberg partitioned by (bucket(4, number))")
        java.sql(f"insert into prod.{name} values (7, 0)")
        state = catalog.load(name)
        assert state.metadata.properties["gc.enabled"] == "false"
        catalog.commit(state, setting(color="green"))
        Table.load(catalog, name).append(row(1, 0))
        shown = {each["key"]: each["value"] for each in java.sql(f"show tblproperties prod.{name}")}
        assert shown["color"] == "green"
        assert counted(java.sql(f"select * from prod.{name}")) == Counter([(7, 0), (1, 0)])
        renamed = unique("db.renamed")
        catalog.rename_table(name, renamed)
        assert counted(java.sql(f"select * from prod.{renamed}")) == Counter([(7, 0), (1, 0)])
        java.sql(f"drop table prod.{renamed}")
        assert not catalog.table_exists(renamed)

    def test_both_mean_the_same_table_on_a_branch(self, catalog, java):
        name, etl = unique("db.branched"), unique("etl")
        Table.create(catalog, name, schema={"writer": "int", "number": "int"}).append(row(1, 0))
        catalog.references.create_branch(etl)
        java.sql(f"insert into prod.db.`{name.removeprefix('db.')}@{etl}` values (7, 0)")
        ours = Table.load(catalog, f"{name}@{etl}")
        ours.append(row(1, 1))
        on_branch = java.sql(f"select * from prod.db.`{name.removeprefix('db.')}@{etl}`")
        assert counted(on_branch) == counted(ours.scan().to_arrow().to_pylist()) == Counter([(1, 0), (7, 0), (1, 1)])
        assert counted(java.sql(f"select * from prod.{name}")) == Counter([(1, 0)])
        assert catalog.references.merge(etl).applied
        assert counted(java.sql(f"select * from prod.{name}")) == Counter([(1, 0), (7, 0), (1, 1)])
