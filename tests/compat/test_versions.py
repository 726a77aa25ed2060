"""Format versions 1 and 3, upgrades and evolution: we write and change, Iceberg Java reads the same, and writes on."""

import dataclasses
import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.table import Table
from tests.compat.test_ours_read_by_others import java_does, our_rows, same_rows, their_rows
from tests.support.append_steps import commit_append, plan_append, read_result

pytestmark = pytest.mark.java


def row_ids(java, table):
    """Return the row ids that Java sees, by the column `id`."""
    return {row["id"]: row["_row_id"] for row in their_rows(java, table, columns="id, _row_id")}


def rows(first, count=2):
    ids = list(range(first, first + count))
    days = [dt.date(2026, 1, 1 + i % 3) for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "day": days, "name": [f"n{i}" for i in ids]})


class TestTheirTablesOfEachVersion:
    """Appends of both sides follow each other."""

    @pytest.mark.services
    @pytest.mark.parametrize("version", [1, 3])
    def test_appends_in_turn(self, java, theirs, version):
        table = theirs(version)
        table.append(rows(10))
        java_does(java, table, "insert into {t} values (4, date '2026-01-01', 'd')")
        table.append(rows(20, 4))
        assert table.metadata.format_version == version
        assert same_rows(java, table) == 10
        if version == 3:
            ids = row_ids(java, table)
            assert len(set(ids.values())) == 10
            assert max(ids.values()) < table.metadata.next_row_id

    @pytest.mark.services
    def test_a_void_field_of_version_1_stays_in_the_tuple(self, java, theirs):
        table = theirs(1)
        java_does(java, table, "alter table {t} drop partition field days(day)")
        java_does(java, table, "alter table {t} add partition field bucket(4, id)")
        table.append(rows(10))
        java_does(java, table, "insert into {t} values (4, date '2026-01-01', 'd')")
        assert same_rows(java, table) == 6

    @pytest.mark.services
    def test_rows_that_java_deletes_from_what_we_wrote_in_version_3(self, java, theirs):
        table = theirs(3)
        table.append(rows(10, 6))
        before = row_ids(java, table)
        java_does(java, table, "delete from {t} where id = 12")
        table.append(rows(20))
        after = row_ids(java, table)
        assert {i: n for i, n in after.items() if i < 20} == {i: n for i, n in before.items() if i != 12}
        assert len(set(after.values())) == 10


class TestUpgrades:
    """Up by our change, from whichever version; Java goes on from there, and every row keeps its id."""

    @pytest.mark.services
    @pytest.mark.parametrize("version", [1, 2])
    def test_to_version_3(self, java, theirs, version):
        table = theirs(version)
        table.append(rows(10))
        table.alter([{"upgrade_format_version": 3}])
        table.append(rows(20))
        ids = row_ids(java, table)
        assert sorted(ids.values()) == list(range(7))
        java_does(java, table, "insert into {t} values (4, date '2026-01-01', 'd')")
        table.append(rows(30))
        later = row_ids(java, table)
        assert ids.items() <= later.items()
        assert len(set(later.values())) == same_rows(java, table) == 10

    @pytest.mark.services
    def test_step_by_step(self, java, theirs):
        table = theirs(1)
        for number, version in enumerate((2, 3), start=1):
            table.alter([{"upgrade_format_version": version}])
            assert same_rows(java, table) == 2 * number + 1
            table.append(rows(10 * number))
        assert same_rows(java, table) == 7


STEPS = [
    [{"add_column": {"name": "price", "type": "int", "after": "id"}}],
    [{"change_type": {"name": "price", "type": "long"}}, {"rename_column": {"from": "name", "to": "label"}}],
    [{"add_column": {"name": "place", "type": "struct<x: double, tags: list<string>>", "first": True}}],
    [{"add_partition_field": "bucket(4, id)"}, {"set_sort_order": ["id desc"]}],
    [{"add_column": {"name": "place.y", "type": "float"}}, {"make_optional": "id"}],
    [
        {"drop_partition_field": "day(day)"},
        {"drop_column": "label"},
        {"add_column": {"name": "label", "type": "string"}},
    ],
    [
        {"rename_partition_field": {"from": "id_bucket_4", "to": "shard"}},
        {"move_column": {"name": "id", "first": True}},
    ],
    [{"add_partition_field": "truncate(2, label)"}, {"set_doc": {"name": "label", "doc": "what it says"}}],
    [{"add_partition_field": "day(day)"}],
    [{"set_partitioning": ["year(day)"]}, {"set_sort_order": []}],
    [{"union_by_name": {"extra": "map<string, int>", "price": "long", "day": "date"}}],
]


def values_for(schema, number):
    """Return one row for a schema that the steps above have made."""
    made = {
        "id": pa.array([number], pa.int64()),
        "day": pa.array([dt.date(2026, 1, number)]),
        "name": pa.array(["n"]),
        "label": pa.array([f"l{number}"]),
        "price": pa.array([number], pa.int32()),
        "place": pa.array([{"x": 1.5, "tags": ["a", None]}]),
        "extra": pa.array([[("k", number)]], pa.map_(pa.string(), pa.int32())),
    }
    return pa.table({field.name: made[field.name] for field in schema.fields})


class TestEvolution:
    """After each of our changes Java reads the same rows, and goes on writing."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_every_step(self, java, catalog, version):
        table = Table.create(
            catalog,
            f"db.evolved_{version}",
            schema={"id": "long not null", "day": "date", "name": "string"},
            partition_by=["day(day)"],
            properties={"format-version": str(version)},
        )
        table.append(values_for(table.schema(), 1))
        for number, step in enumerate(STEPS, start=2):
            # One of them undoes itself, which is not done without a key.
            key = OperationKey(dag_id="evolve", run_id=f"v{version}", task_id=f"step{number}")
            assert table.alter(step, operation_key=key).done_by_this_try
            table.append(values_for(table.schema(), number))
            assert not table.alter(step, operation_key=key).done_by_this_try, step
            assert same_rows(java, table) == number, step
        java_does(java, table, "insert into {t} select * from {t} where id = 5")
        assert same_rows(java, table) == len(STEPS) + 2

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_a_name_that_an_old_partition_field_has(self, java, catalog, version):
        table = Table.create(
            catalog,
            f"db.names_{version}",
            schema={"a": "int", "b": "int"},
            partition_by=["a", "b"],
            properties={"format-version": str(version)},
        )
        one = pa.array([1], pa.int32())
        table.append(pa.table({"a": one, "b": one}))
        table.alter(
            [
                *({"drop_partition_field": name} for name in "ab"),
                {"drop_column": "a"},
                {"add_column": {"name": "c", "type": "int"}},
                {"add_partition_field": "c"},
            ]
        )
        table.append(pa.table({"b": one, "c": one}))
        assert same_rows(java, table) == 2
        if version > 1:
            # In version 1 the spec has a void field of a column that is gone, which Java 1.10.2 reads and cannot write.
            java_does(java, table, "insert into {t} values (2, 2)")
            assert same_rows(java, table) == 3

    def test_defaults_of_version_3(self, java, catalog):
        table = Table.create(catalog, "db.defaults", schema={"id": "long"}, properties={"format-version": "3"})
        table.append(pa.table({"id": [1]}))
        table.alter(
            [
                {"add_column": {"name": "n", "type": "int", "default": 5}},
                {"add_column": {"name": "s", "type": "string not null", "default": "x"}},
                {"add_column": {"name": "d", "type": "decimal(9, 2)", "default": "1.5"}},
                {"add_column": {"name": "t", "type": "timestamptz", "default": "2026-01-01T00:00:00"}},
            ]
        )
        table.append(pa.table({"id": [2]}))
        table.alter([{"set_default": {"name": "n", "value": 6}}])
        table.append(pa.table({"id": [3]}))
        assert same_rows(java, table) == 3
        assert [row["n"] for row in our_rows(table, selected_fields=("id", "n"))] == [5, 5, 6]


class TestAClearedRunAfterTheirDeletes:
    """Java deleted rows of the earlier run by deletion vectors: when its files are replaced the vectors go, too."""

    @pytest.mark.services
    def test_no_vector_outlives_its_file(self, java, theirs, tmp_path):
        table = theirs(3)
        java_does(java, table, "alter table {t} set tblproperties ('write.delete.mode'='merge-on-read')")
        key = OperationKey(dag_id="d", run_id="r", task_id="t")
        source = tmp_path / "rows.parquet"
        pq.write_table(rows(10, 6), source)
        load(table, source, key)
        java_does(java, table, "delete from {t} where id in (10, 2)")
        assert table.inspect.files()["content"].to_pylist().count(1) == 2
        result = load(table, source, dataclasses.replace(key, epoch=1))
        assert (result.added_records, result.deleted_records) == (6, 6)
        vectors = [row for row in table.inspect.files().to_pylist() if row["content"] == 1]
        assert len(vectors) == 1
        assert vectors[0]["referenced_data_file"] in table.inspect.files()["file_path"].to_pylist()
        assert table.current_snapshot().summary["removed-dvs"] == "1"
        assert same_rows(java, table) == 8


def load(table, source, key):
    table.refresh()
    plan = plan_append(table, Source.from_files(source.as_uri()), operation_key=key)
    run_local(plan, table.io)
    return commit_append(table, plan, read_result(table, plan), operation_key=key)
