"""A new table is in a folder of its own, also if its name was another table's before."""

import re

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.catalogs.hive_contract import empty_metastore
from tests.services.glue import KEYS
from tests.support.builders import age, folder_of, id_rows, ids

UNIQUE = {"unique-table-location": "true"}


def sql(_request, tmp_path, **more):
    return load_catalog(
        "prod", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=(tmp_path / "w").as_uri(), **more
    )


def glue(request, tmp_path, **more):
    own = {"glue.endpoint": request.getfixturevalue("glue_address"), "warehouse": (tmp_path / "w").as_uri(), **KEYS}
    return load_catalog("prod", type="glue", **own, **more)


def hive(request, tmp_path, **more):
    uri = request.getfixturevalue("hive_2_3_10").uri
    empty_metastore(uri)
    return load_catalog("prod", uri=uri, warehouse=(tmp_path / "w").as_uri(), **more)


@pytest.fixture(params=[sql, *(pytest.param(each, marks=pytest.mark.services) for each in (glue, hive))])
def open_catalog(request, tmp_path):
    def opened(**more):
        catalog = request.param(request, tmp_path, **more)
        name = f"db{abs(hash(tmp_path)) % 10**8}"
        catalog.create_namespace(name, if_not_exists=True)
        return catalog, name

    return opened


def new_table(catalog, name, *numbers):
    table = Table.create(catalog, name, schema={"id": "long"})
    table.append(id_rows(numbers))
    return table


class TestANameThatWasAnotherTables:
    """The renamed table keeps its folder, and the new one gets another: neither touches the files of the other."""

    def test_after_a_rename(self, open_catalog):
        catalog, db = open_catalog()  # with names that no table of another test has in the same server
        first = new_table(catalog, f"{db}.renamed", 1)
        catalog.rename_table(f"{db}.renamed", f"{db}.kept")
        second = new_table(catalog, f"{db}.renamed", 2)
        assert re.fullmatch(re.escape(first.location) + "-[0-9a-f]{32}", second.location)
        age(*folder_of(first).rglob("*"), *folder_of(second).rglob("*"))
        for name in ("renamed", "kept"):
            remove_orphan_files(Work(Table.load(catalog, f"{db}.{name}")), RemoveOrphanFilesRequest())
        catalog.drop_table(f"{db}.renamed", purge=True)
        assert ids(Table.load(catalog, f"{db}.kept")) == [1]

    def test_after_a_purge_the_folder_is_free(self, open_catalog):
        catalog, db = open_catalog()
        first = new_table(catalog, f"{db}.t", 1)
        catalog.drop_table(f"{db}.t", purge=True)
        assert new_table(catalog, f"{db}.t", 2).location == first.location

    def test_after_a_drop_the_files_that_were_kept_are_another_tables(self, open_catalog):
        catalog, db = open_catalog()
        first = new_table(catalog, f"{db}.t", 1)
        catalog.drop_table(f"{db}.t")
        assert new_table(catalog, f"{db}.t", 2).location.startswith(f"{first.location}-")
        assert ids(catalog_table(catalog, db, first)) == [1]

    def test_a_location_that_is_given_is_taken(self, open_catalog):
        catalog, db = open_catalog()
        first = new_table(catalog, f"{db}.t", 1)
        catalog.rename_table(f"{db}.t", f"{db}.u")
        second = Table.create(catalog, f"{db}.t", schema={"id": "long"}, location=f"{first.location}-mine")
        assert second.location == f"{first.location}-mine"


def catalog_table(catalog, db, table):
    return Table(catalog.register_table(f"{db}.again", table.metadata_location), io=table.io, catalog=catalog)


def test_every_location_is_unique_if_that_is_asked_for(open_catalog):
    catalog, db = open_catalog(**UNIQUE)
    locations = {new_table(catalog, f"{db}.{name}", 1).location for name in ("t", "u")}
    plain = {catalog.default_location(f"{db}.{name}") for name in ("t", "u")}
    assert {location.rpartition("-")[0] for location in locations} == plain
    assert ids(Table.load(catalog, f"{db}.t")) == [1]


def test_files_of_a_user_take_no_folder(tmp_path):
    """They may be there to be added to the table."""
    catalog = sql(None, tmp_path)
    catalog.create_namespace("db")
    (tmp_path / "w" / "db" / "t" / "data").mkdir(parents=True)
    (tmp_path / "w" / "db" / "t" / "data" / "f.parquet").write_bytes(b"PAR1")
    assert Table.create(catalog, "db.t", schema={"id": "long"}).location == catalog.default_location("db.t")


def test_a_hadoop_catalog_has_one_place_for_a_name(tmp_path):
    catalog = load_catalog("prod", type="hadoop", warehouse=tmp_path.as_uri(), **UNIQUE)
    catalog.create_namespace("db")
    assert Table.create(catalog, "db.t", schema={"id": "long"}).location == f"{tmp_path.as_uri()}/db/t"
