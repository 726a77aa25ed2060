"""A run is undone, and Iceberg Java and PyIceberg read the table that is left: restored files, too.

Restored files are added with the sequence number and the row ids that they had, so that deletes of before still apply
to them, and their rows keep their ids (specification: Sequence Number Inheritance, Row Lineage).
"""

import pytest
from pyiceberg.table import StaticTable

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, job_work

pytestmark = pytest.mark.java
LOAD, CHANGE = (OperationKey(dag_id="d", run_id="r", task_id=name) for name in ("load", "change"))


def delete_whole_files(table):
    table.delete("id < 5", operation_key=CHANGE)
    table.undo(CHANGE)
    return range(20)


def delete_and_load_more(table):
    table.delete("id >= 5 and id < 10", operation_key=CHANGE)
    table.append(id_rows([90]))
    table.undo(CHANGE)
    return [*range(20), 90]


def rewrite_rows(table):
    """The files that a copy-on-write delete has rewritten come back, with the deletes that were there before it."""
    table.delete("id = 7")
    table.delete("id = 12", operation_key=CHANGE)
    table.undo(CHANGE)
    return [number for number in range(20) if number != 7]


def overwrite(table):
    table.overwrite(id_rows([3]), "id < 5", operation_key=CHANGE)
    table.undo(CHANGE)
    return range(20)


def append(table):
    table.append(id_rows([50, 51]), operation_key=CHANGE)
    table.append(id_rows([60]))
    table.undo(CHANGE)
    return [*range(20), 60]


def append_and_compact(table):
    table.append(id_rows([50, 51]), operation_key=CHANGE)
    compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
    table.undo(CHANGE)
    return range(20)


WAYS = (delete_whole_files, delete_and_load_more, rewrite_rows, overwrite, append, append_and_compact)
CASES = [
    (version, mode, way)
    for version in (1, 2, 3)
    for mode in ("copy-on-write", "merge-on-read")
    for way in WAYS
    if not (version == 1 and mode == "merge-on-read")
    and not (version < 3 and way is append_and_compact)  # there, it cannot be told whose rows are whose
]


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("version", "mode", "way"), CASES, ids=[f"v{version}-{mode}-{way.__name__}" for version, mode, way in CASES]
)
def test_others_read_the_rows_and_java_continues(java, catalog, version, mode, way):
    short = f"undone_v{version}_{mode[:4]}_{way.__name__}"
    properties = {"format-version": str(version), "write.delete.mode": mode}
    table = Table.create(catalog, f"db.{short}", schema={"id": "long"}, properties=properties)
    for start in range(0, 20, 5):
        table.append(id_rows(range(start, start + 5)), operation_key=LOAD if not start else None)
    expected = sorted(way(table))
    location = table.metadata_location
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == expected
    assert sorted(row["id"] for row in java.load(location)) == expected
    if version < 3:  # PyIceberg does not read all of version 3
        assert sorted(StaticTable.from_metadata(location).scan().to_arrow()["id"].to_pylist()) == expected
    java.sql(f"insert into ref.db.{short} values (1000)")
    java.sql(f"delete from ref.db.{short} where id = 2")
    found = sorted(row["id"] for row in java.sql(f"select id from ref.db.{short}"))
    assert found == sorted([*(number for number in expected if number != 2), 1000])
