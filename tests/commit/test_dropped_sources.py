"""Partition specs whose source columns were dropped: their files are read, deleted, rewritten and listed as ever.

The type of a partition value is that of its source column, so a schema that knows the column is kept. Other writers
remove such schemas: then the manifests tell.
"""

import datetime
from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_iceberg.commit.actions.rewrite_manifests import RewriteManifests
from airflow_iceberg.format.manifests.avro import written_schema
from airflow_iceberg.format.metadata.updates import AddSchema, Change, RemoveSchemas, SetCurrentSchema
from airflow_iceberg.format.types import LongType, NestedField
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import job_work
from tests.support.memory import MemoryCatalog

DAYS = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]
ROWS = pa.table({"id": [1, 2], "region": ["a", "b"], "day": DAYS, "n": pa.array([11, 22], pa.int32())})
DROPPED = [{"drop_column": name} for name in ("region", "day", "n")]


def expired(version):
    """Two appends to partitions whose columns were dropped since; one append after it, and only its snapshot."""
    table = Table.create(
        MemoryCatalog(),
        "db.t",
        schema={"id": "long", "region": "string", "day": "date", "n": "int"},
        partition_by=["region", "day", "truncate(10, n)"],
        properties={"format-version": version},
    )
    table.append(ROWS)
    table.append(ROWS)
    table.alter([{"set_partitioning": []}, *DROPPED])
    table.append(pa.table({"id": [1]}))
    request = ExpireSnapshotsRequest(older_than_ms=10**15, retain_last=1, clean_expired_metadata=True)
    expire_snapshots(Work(table), request)
    return table


def cleaned(table):
    """The table after another writer has removed all schemas but the current one, as Iceberg Java does."""
    unused = tuple({schema.schema_id for schema in table.metadata.schemas} - {table.metadata.current_schema_id})
    assert unused
    table.catalog.commit(table.catalog.load(table.identifier), Change(updates=(RemoveSchemas(schema_ids=unused),)))
    return table.refresh()


def never_together():
    """A table of version 1 with the spec `void(a), b`, whose columns no schema has together; nothing was expired."""
    table = Table.create(
        MemoryCatalog(),
        "db.t",
        schema={"id": "long", "region": "string"},
        partition_by=["region"],
        properties={"format-version": "1"},
    )
    table.append(pa.table({"id": [1], "region": ["x"]}))
    table.alter([{"drop_partition_field": "region"}, {"drop_column": "region"}])
    table.alter([{"add_column": {"name": "n", "type": "int"}}, {"add_partition_field": "n"}])
    table.append(pa.table({"id": [1, 2], "n": pa.array([7, 8], pa.int32())}))
    table.alter([{"drop_partition_field": "n"}, {"drop_column": "n"}])
    table.append(pa.table({"id": [1]}))
    return table


TABLES = {
    "v1": lambda: expired("1"),
    "v2": lambda: expired("2"),
    "v3": lambda: expired("3"),
    "never together": never_together,
    "cleaned v1": lambda: cleaned(expired("1")),
    "cleaned v2": lambda: cleaned(expired("2")),
    "cleaned v3": lambda: cleaned(expired("3")),
    "never together, cleaned": lambda: cleaned(never_together()),
}


@pytest.fixture(params=TABLES)
def table(request):
    return TABLES[request.param]()


def ids(table):
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


def partitions(table):
    """The partitions of the live files, once each."""
    head = table.refresh().metadata.current_snapshot()
    entries = (entry for manifest in read_manifests(table.io, head) for entry in read_entries(table.io, manifest))
    return {(entry.data_file.spec_id, entry.data_file.partition) for entry in entries if entry.is_live}


class TestEveryOperation:
    """None fails, and the partitions of files that stay are as they were."""

    def test_deletes_with_metadata_alone(self, table):
        table.delete("id >= 1")
        assert ids(table) == []

    def test_deletes_by_copy_on_write(self, table):
        table.delete("id = 1", mode="copy-on-write")
        assert set(ids(table)) == {2}

    def test_a_delete_keeps_the_partitions_of_other_files(self, table):
        before = partitions(table)
        table.delete("id = 2")
        assert partitions(table) == {(spec_id, values) for spec_id, values in before if not {"b", 8} & {*values}}

    def test_deletes_by_merge_on_read(self, table):
        if table.metadata.format_version > 1:
            table.delete("id = 1", mode="merge-on-read")
            assert set(ids(table)) == {2}

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_deletes_by_a_job(self, table, mode):
        if table.metadata.format_version > 1 or mode == "copy-on-write":
            delete(job_work(table), DeleteRequest(predicate="id = 1", mode=mode))
            assert set(ids(table)) == {2}

    def test_is_overwritten(self, table):
        table.overwrite(pa.table({"id": [2]}), "id = 2")
        assert set(ids(table)) == {1, 2}
        table.dynamic_partition_overwrite(pa.table({"id": [8]}))
        assert 8 in ids(table)
        table.overwrite(pa.table({"id": [9]}))
        assert ids(table) == [9]

    def test_is_compacted(self, table):
        before = ids(table)
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        assert ids(table) == before

    def test_its_manifests_are_rewritten(self, table):
        before = partitions(table)
        table.commit(RewriteManifests(table.io, table.commit_settings(), only_if_better=False))
        assert partitions(table) == before

    def test_its_manifests_are_merged(self, table, caplog):
        table.alter([{"set_properties": {"commit.manifest.min-count-to-merge": "2"}}])
        before = partitions(table)
        table.append(pa.table({"id": [3]}))
        assert partitions(table) >= before
        assert "unmerged" not in caplog.text

    def test_is_listed(self, table):
        inspect = table.inspect
        assert len(inspect.files()) == len(inspect.entries()) == len(inspect.data_files())
        assert inspect.partitions().num_rows == len(partitions(table))
        bounds = {each["upper_bound"] for row in inspect.manifests().to_pylist() for each in row["partition_summaries"]}
        assert bounds - {None} in ({"b", "2026-01-02", "20"}, {"x", "8"})

    def test_shows_its_partitions(self, table):
        shown = table.scan(selected_fields=("id", "_partition")).to_arrow()["_partition"].to_pylist()
        regions = {row["region"] for row in shown}
        assert regions in ({None, "a", "b"}, {None, "x"})
        assert regions == {row["region"] for row in table.inspect.partitions()["partition"].to_pylist()}


class TestWhichSchemasAreKept:
    """Those that a spec of live files needs, and no others."""

    def test_the_one_that_knows_the_columns(self):
        table = expired("2")
        assert [schema.schema_id for schema in table.metadata.schemas] == [0, 1]
        assert {spec.spec_id for spec in table.metadata.partition_specs} == {0, 1}

    def test_none_when_the_files_are_gone(self):
        table = expired("2")
        table.overwrite(pa.table({"id": [9]}))
        table.overwrite(pa.table({"id": [9]}))  # the manifests that tell of the removed files are left out now
        request = ExpireSnapshotsRequest(older_than_ms=10**15, retain_last=1, clean_expired_metadata=True)
        expire_snapshots(Work(table), request)
        assert [schema.schema_id for schema in table.metadata.schemas] == [1]
        assert [spec.spec_id for spec in table.metadata.partition_specs] == [1]

    def test_the_newest_that_has_the_column(self):
        table = Table.create(MemoryCatalog(), "db.t", schema={"id": "long", "n": "int"}, partition_by=["n"])
        table.append(pa.table({"id": [1], "n": pa.array([1], pa.int32())}))
        table.alter([{"change_type": {"name": "n", "type": "long"}}])
        table.append(pa.table({"id": [2], "n": [2**40]}))
        table.alter([{"set_partitioning": []}, {"drop_column": "n"}])
        table.append(pa.table({"id": [3]}))
        request = ExpireSnapshotsRequest(older_than_ms=10**15, retain_last=1, clean_expired_metadata=True)
        expire_snapshots(Work(table), request)
        assert [schema.schema_id for schema in table.metadata.schemas] == [1, 2]
        table.commit(RewriteManifests(table.io, table.commit_settings(), only_if_better=False))
        assert {values for _, values in partitions(table)} == {(1,), (2**40,), ()}


class TestTypesOfSources:
    """Each source column has the type of the newest schema with it, whichever schemas have the others."""

    def test_a_column_that_was_widened_after_another_was_dropped(self):
        table = Table.create(
            MemoryCatalog(),
            "db.t",
            schema={"id": "long", "a": "int", "b": "int"},
            partition_by=["a", "b"],
            properties={"format-version": "1"},
        )
        one = pa.array([1], pa.int32())
        table.append(pa.table({"id": [1], "a": one, "b": one}))
        table.alter([{"drop_partition_field": "b"}, {"drop_column": "b"}])
        table.alter([{"change_type": {"name": "a", "type": "long"}}])
        table.append(pa.table({"id": [2], "a": [2**40]}))
        assert partitions(table) == {(0, (1, 1)), (1, (2**40, None))}
        assert table.inspect.partitions()["partition"].to_pylist() == [{"a": 2**40, "b": None}, {"a": 1, "b": 1}]

    def test_a_name_that_another_column_has_now(self, monkeypatch):
        table = cleaned(expired("2"))
        # By an older version of this package: Iceberg Java cannot load such a table, so no commit makes one any more.
        field = NestedField(id=table.metadata.last_column_id + 1, name="region", type=LongType())
        wider = AddSchema(schema=replace(table.metadata.schema(), fields=(*table.metadata.schema().fields, field)))
        with monkeypatch.context() as patch:
            patch.setattr("airflow_iceberg.format.metadata.builder.check_column_names", lambda *_: None)
            table.catalog.commit(table.catalog.load(table.identifier), Change(updates=(wider, SetCurrentSchema())))
        table = table.refresh()
        before = partitions(table)
        table.append(pa.table({"id": [4], "region": [5]}))
        table.delete("id = 4")
        assert partitions(table) == before


class TestHeadersOfManifests:
    """The schema in the header has the source columns, so that a manifest can be read by itself, and a true id."""

    def test_they_have_the_columns(self, table):
        table.commit(RewriteManifests(table.io, table.commit_settings(), only_if_better=False))
        for manifest in read_manifests(table.io, table.refresh().metadata.current_snapshot()):
            schema = written_schema(table.io.read(manifest.manifest_path))
            fields = table.metadata.spec(manifest.partition_spec_id).fields
            assert {part.source_id for part in fields if part.transform.name != "void"} <= schema.fields_by_id.keys()
            assert schema.schema_id in {each.schema_id for each in table.metadata.schemas}


class TestASnapshotWithoutItsSchema:
    """Another writer removed the schema of a snapshot: it is read with the current one."""

    def test_by_a_tag(self, caplog):
        table = expired("2")
        table.create_tag("before")
        table.alter([{"add_column": {"name": "new", "type": "int"}}])
        cleaned(table)
        assert table.scan(ref="before").to_arrow().column_names == ["id", "new"]
        assert "is read with the current schema" in caplog.text
