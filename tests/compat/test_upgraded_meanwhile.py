"""Tables that were upgraded while we changed them are read by Iceberg Java, PyIceberg and DuckDB as by us."""

import pytest
from pyiceberg.table import StaticTable

from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.table import Table
from tests.support.meanwhile import NAME, Case
from tests.support.memory import Fault, MemoryCatalog

pytestmark = pytest.mark.java

CASES = {
    "delete": Case(version=1, layout="p", ours="delete", before=("upgrade to 2",)),
    "delete of files": Case(version=1, layout="p", ours="delete of files", before=("upgrade to 3",), merge_at=2),
    "overwrite": Case(
        version=1, layout="both", ours="overwrite by filter", attempts=((Fault.CONFLICT, "upgrade to 2"),)
    ),
    "update": Case(version=1, layout="bucket", ours="update", during=("upgrade to 2", "add a column")),
    "upsert": Case(version=2, layout="p", ours="upsert, merge-on-read", start=("delete",), during=("upgrade to 3",)),
    "compact where": Case(version=1, layout="p", ours="compact where", attempts=((Fault.CONFLICT, "upgrade to 2"),)),
    "manifests": Case(version=1, layout="p", ours="rewrite manifests", before=("widen p", "upgrade to 2")),
    "clear": Case(version=1, layout="p", ours="append after a clear", attempts=((Fault.CONFLICT, "upgrade to 3"),)),
    "undo": Case(version=2, layout="p", ours="undo", attempts=((Fault.CONFLICT, "upgrade to 3"),), merge_at=2),
}


def triples(rows):
    return sorted((row["id"], row["p"], row["v"]) for row in rows)


@pytest.mark.services
@pytest.mark.parametrize("name", CASES)
def test_all_read_the_same(tmp_path, java, duck, name):
    catalog = MemoryCatalog(io=load_file_io(), warehouse=tmp_path.as_uri())
    assert CASES[name].run(catalog) == "done"
    table = Table.load(catalog, NAME)
    location, ours = table.metadata_location, triples(table.scan().to_arrow().to_pylist())
    assert triples(java.load(location)) == ours
    path = location.removeprefix("file://")
    assert triples(duck.execute(f"select * from iceberg_scan('{path}')").to_arrow_table().to_pylist()) == ours
    if table.metadata.format_version < 3:
        assert triples(StaticTable.from_metadata(location).scan().to_arrow().to_pylist()) == ours
