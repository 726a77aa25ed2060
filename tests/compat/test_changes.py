"""The changes that we commit are read by Iceberg Java and PyIceberg as by us, and Java changes the table further."""

from collections import Counter

import pytest
from pyiceberg.table import StaticTable

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    Compact,
    CopyOnWriteDelete,
    DeletePartition,
    DynamicOverwrite,
    EqualityDelete,
    Expire,
    MergeOnReadDelete,
    Overwrite,
    RewriteAllManifests,
    ids,
    make_table,
    plan,
    rows_of,
)

pytestmark = pytest.mark.java


STEPS = [
    *(Append("a", ids(1, 2, 3)), Append("b", ids(2, 9)), Append(None, ids(5, 6))),
    *(Overwrite("a", ids(7)), Append("a", ids(2, 3, 4)), CopyOnWriteDelete(ids(2))),
]
DELETES = [
    *(Append("a", ids(2, 30)), MergeOnReadDelete(ids(3)), MergeOnReadDelete(ids(2))),
    *(EqualityDelete("a", ids(4)), Append("b", ids(40, 41)), MergeOnReadDelete(ids(40))),
]
MAINTENANCE = [
    *(Compact("a"), RewriteAllManifests(), DynamicOverwrite("b", ids(8)), Append("a", ids(50, 51))),
    *(DeletePartition("b"), Expire(), Append("b", ids(60))),
]


@pytest.fixture(params=[1, 2, 3])
def version(request):
    return request.param


@pytest.fixture
def catalog(warehouse, version):
    catalog = load_catalog("ours", type="hadoop", warehouse=f"{warehouse}/changes{version}")
    catalog.create_namespace("db", if_not_exists=True)
    if catalog.table_exists(NAME):
        catalog.drop_table(NAME)
    # From the third on manifests are merged, so that merged ones are among those that are read.
    make_table(catalog, version, **{"commit.manifest.min-count-to-merge": "3"})
    return catalog


def theirs(java, catalog):
    rows = java.load(catalog.load(NAME).metadata_location)
    return Counter((row["part"], row["id"]) for row in rows)


@pytest.mark.sample(6)
def test_java_reads_the_same_as_we_do(java, catalog, version):
    rows = Counter()
    for number, step in enumerate([*MAINTENANCE, *STEPS, *(DELETES if version > 1 else []), *MAINTENANCE]):
        plan(catalog, step).commit()
        rows = step.after(rows)
        assert rows_of(catalog) == +rows, step
        if number % 4 == 2:
            assert theirs(java, catalog) == +rows, step
    assert theirs(java, catalog) == +rows


@pytest.mark.sample(6)
def test_java_changes_the_table_further(java, catalog, version):
    for step in [*STEPS, *(DELETES if version > 1 else []), Compact("a")]:
        plan(catalog, step).commit()
    name = f"ref.changes{version}.{NAME}"
    before = rows_of(catalog)
    java.sql(f"insert into {name} values ('a', 70), ('c', 71)")
    java.sql(f"delete from {name} where id = 9")
    java.sql(f"update {name} set id = 72 where id = 71")
    expected = before + Counter([("a", 70), ("c", 72)])
    expected = Counter({row: n for row, n in expected.items() if row[1] != 9})
    assert rows_of(catalog) == expected
    java.sql(
        f"call ref.system.rewrite_data_files(table => 'changes{version}.{NAME}', options => map('rewrite-all', 'true'))"
    )
    assert rows_of(catalog) == expected
    plan(catalog, CopyOnWriteDelete(ids(72))).commit()
    plan(catalog, Overwrite("a", ids(80))).commit()
    assert theirs(java, catalog) == rows_of(catalog)


def test_java_sees_the_same_row_ids(java, catalog, version):
    if version < 3:
        return
    columns = ("id", "part", "_row_id", "_last_updated_sequence_number")
    for step in [*STEPS, *DELETES, RewriteAllManifests(), Append("a", ids(90)), DeletePartition("b")]:
        plan(catalog, step).commit()
    found = java.sql(f"select {', '.join(columns)} from ref.changes3.{NAME}")
    ours = Table.load(catalog, NAME).scan(selected_fields=columns).to_arrow().to_pylist()
    assert Counter(tuple(row[c] for c in columns) for row in found) == Counter(
        tuple(row[c] for c in columns) for row in ours
    )
    assert len({row["_row_id"] for row in ours}) == len(ours)


@pytest.mark.services
def test_pyiceberg_reads_what_it_can(catalog, version):
    """PyIceberg 0.12 refuses equality deletes."""
    deletes = [step for step in DELETES if not isinstance(step, EqualityDelete)]
    for step in [*STEPS, *(deletes if version > 1 else []), *MAINTENANCE]:
        plan(catalog, step).commit()
        if version < 3 or not isinstance(step, MergeOnReadDelete):
            found = StaticTable.from_metadata(catalog.load(NAME).metadata_location).scan().to_arrow().to_pylist()
            assert Counter((row["part"], row["id"]) for row in found) == rows_of(catalog), step
