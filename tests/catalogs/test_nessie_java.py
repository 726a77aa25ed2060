"""The Nessie catalog beside Iceberg Java's, on one server."""

import uuid
from collections import Counter

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.catalogs.contract import setting
from tests.catalogs.java import add_catalog
from tests.catalogs.races import row

pytestmark = [pytest.mark.services, pytest.mark.java]


@pytest.fixture(scope="module")
def uri(nessie):
    return nessie


@pytest.fixture(scope="module")
def catalog(uri, tmp_path_factory):
    warehouse = tmp_path_factory.mktemp("nessie").as_uri() + "/warehouse"
    catalog = load_catalog("prod", type="nessie", uri=uri, warehouse=warehouse)
    catalog.create_namespace("db", if_not_exists=True)
    return catalog


@pytest.fixture(scope="module")
def java(iceberg_java, uri, catalog):
    """A Spark that knows the catalog as `nessie`."""
    settings = {
        "catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        "uri": uri,
        "ref": "main",
        "warehouse": catalog.properties["warehouse"],
    }
    add_catalog(iceberg_java, name="nessie", **settings)
    return iceberg_java


def unique(name):
    return f"{name}_{uuid.uuid4().hex[:8]}"


def counted(rows):
    return Counter((each["writer"], each["number"]) for each in rows)


class TestBesideIcebergJava:
    """Iceberg Java and we work on one table; both at the same time in `test_races_beside`."""

    def test_it_reads_what_we_made_and_goes_on(self, catalog, java):
        name = unique("db.ours")
        table = Table.create(catalog, name, schema={"writer": "int", "number": "int"})
        table.append(row(1, 0))
        table.alter([{"add_column": {"name": "more", "type": "string"}}])
        assert java.sql(f"select * from nessie.{name}") == [{"writer": 1, "number": 0, "more": None}]
        java.sql(f"insert into nessie.{name} values (7, 0, 'x')")
        java.sql(f"alter table nessie.{name} drop column more")
        table.refresh().append(row(1, 1))
        assert counted(java.sql(f"select * from nessie.{name}")) == Counter([(1, 0), (7, 0), (1, 1)])

    def test_we_read_what_it_made_and_go_on(self, catalog, java):
        name = unique("db.theirs")
        java.sql(
            f"create table nessie.{name} (writer int, number int) using iceberg partitioned by (bucket(4, number))"
        )
        java.sql(f"insert into nessie.{name} values (7, 0)")
        state = catalog.load(name)
        assert state.metadata.properties["gc.enabled"] == "false"
        catalog.commit(state, setting(color="green"))
        Table.load(catalog, name).append(row(1, 0))
        shown = {each["key"]: each["value"] for each in java.sql(f"show tblproperties nessie.{name}")}
        assert shown["color"] == "green"
        assert counted(java.sql(f"select * from nessie.{name}")) == Counter([(7, 0), (1, 0)])
        renamed = unique("db.renamed")
        catalog.rename_table(name, renamed)
        assert counted(java.sql(f"select * from nessie.{renamed}")) == Counter([(7, 0), (1, 0)])
        java.sql(f"drop table nessie.{renamed}")
        assert not catalog.table_exists(renamed)

    def test_both_mean_the_same_table_on_a_branch(self, catalog, java):
        name, etl = unique("db.branched"), unique("etl")
        Table.create(catalog, name, schema={"writer": "int", "number": "int"}).append(row(1, 0))
        catalog.references.create_branch(etl)
        java.sql(f"insert into nessie.db.`{name.removeprefix('db.')}@{etl}` values (7, 0)")
        ours = Table.load(catalog, f"{name}@{etl}")
        ours.append(row(1, 1))
        on_branch = java.sql(f"select * from nessie.db.`{name.removeprefix('db.')}@{etl}`")
        assert counted(on_branch) == counted(ours.scan().to_arrow().to_pylist()) == Counter([(1, 0), (7, 0), (1, 1)])
        assert counted(java.sql(f"select * from nessie.{name}")) == Counter([(1, 0)])
        assert catalog.references.merge(etl).applied
        assert counted(java.sql(f"select * from nessie.{name}")) == Counter([(1, 0), (7, 0), (1, 1)])
