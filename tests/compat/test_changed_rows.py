"""Our deletes and overwrites by predicate are read by Iceberg Java as by us, and Java deletes further from them."""

from collections import Counter

import pytest
from pyiceberg.table import StaticTable

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.operations.test_delete import COW, MOR, delete_files, ids, make, rows
from tests.support.builders import new_catalog


@pytest.mark.sample(4)
@pytest.mark.java
@pytest.mark.parametrize(("version", "mode"), [(1, COW), (2, MOR), (3, COW), (3, MOR)])
def test_java_reads_the_same_as_we_do_and_goes_on(java, warehouse, version, mode):
    folder = f"rows{version}{mode[0]}"
    catalog = load_catalog("ours", type="hadoop", warehouse=f"{warehouse}/{folder}")
    catalog.create_namespace("db", if_not_exists=True)
    table = make(catalog, version, mode)

    def check(expected):
        loaded = Table.load(catalog, "db.t")
        assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == sorted(expected)
        found = java.load(catalog.load("db.t").metadata_location)
        assert Counter(row["id"] for row in found) == Counter(expected)

    for predicate in ("id in (3, 4, 23)", "id in (5, 6) or d = 8"):
        delete(Work(table, run=lambda plan: run_local(plan, table.io, threads=1)), DeleteRequest(predicate=predicate))
    left = [n for n in range(40) if n not in (3, 4, 5, 6, 8, 23)]
    assert bool(delete_files(table)) == (mode == MOR)
    check(left)
    table.overwrite(rows([(7, "b", 1.0), (9, "z", None)]), overwrite_filter="id between 7 and 11")
    check([n for n in left if n not in (10, 11)])
    java.sql(f"delete from ref.{folder}.db.t where id in (1, 12, 24)")
    left = [n for n in left if n not in (10, 11, 1, 12, 24)]
    check(left)
    assert table.refresh().delete("id in (2, 14, 25)").deleted_records == 3
    check([n for n in left if n not in (2, 14, 25)])


@pytest.mark.costly
@pytest.mark.parametrize("mode", [COW, MOR])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_pyiceberg_and_duckdb_read_the_same_as_we_do(duck, tmp_path, version, mode):
    catalog = new_catalog(tmp_path)
    table = make(catalog, version, mode)
    table.delete("id in (3, 4, 23)")
    table.delete("id in (5, 6)")
    expected = ids(table)
    assert expected == [n for n in range(40) if n not in (3, 4, 5, 6, 23)]
    found = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == expected
    path = table.metadata_location.removeprefix("file://")
    assert sorted(n for (n,) in duck.execute(f"select id from iceberg_scan('{path}')").fetchall()) == expected
