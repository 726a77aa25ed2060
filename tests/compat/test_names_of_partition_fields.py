"""A column with the name of a partition field of another one: Iceberg Java loads no such table, so none is made."""

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import job_work

ADD = {"add_column": {"name": "p", "type": "string"}}


def new(catalog, name, version):
    schema = {"id": "long", "p": "string"}
    properties = {"format-version": str(version)}
    table = Table.create(catalog, name, schema=schema, partition_by=["p"], properties=properties)
    table.append(pa.table({"id": [1], "p": ["a"]}))
    table.alter([{"drop_partition_field": "p"}])
    table.alter([{"drop_column": "p"}])
    return table


@pytest.mark.java
@pytest.mark.services
@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_column_comes_back_when_no_spec_has_the_name(catalog, java, version):
    table = new(catalog, f"db.names_{version}", version)
    with pytest.raises(InvalidInputError, match="Iceberg Java could not load the table"):
        table.alter([ADD])
    with pytest.raises(InvalidInputError, match="Iceberg Java could not load the table"):
        table.append(pa.table({"id": [2], "p": ["b"]}), schema_evolution="add_columns")
    assert java.rows(f"select * from ref.{table.name}") == [{"id": 1}]
    # What the message says.
    if version == 1:
        table.alter([{"rename_partition_field": {"from": "p", "to": "old_p"}}])
    compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
    table.refresh().append(pa.table({"id": [2]}))
    others = tuple(snapshot.snapshot_id for snapshot in table.snapshots()[:-1])
    expire_snapshots(Work(table), ExpireSnapshotsRequest(snapshot_ids=others, clean_expired_metadata=True))
    table.refresh().alter([ADD])
    table.append(pa.table({"id": [3], "p": ["c"]}))
    rows = [{"id": 1, "p": None}, {"id": 2, "p": None}, {"id": 3, "p": "c"}]
    assert java.rows(f"select * from ref.{table.name} order by id") == rows
    assert table.scan().to_arrow().sort_by("id").to_pylist() == rows


@pytest.mark.java
@pytest.mark.services
def test_java_refuses_it_as_well(catalog, java):
    table = new(catalog, "db.names_of_java", 2)
    with pytest.raises(RuntimeError, match="sourced from different field in schema"):
        java.sql(f"alter table ref.{table.name} add column p string")
