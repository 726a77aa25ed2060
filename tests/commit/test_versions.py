"""Appends to tables of format versions 1, 2 and 3, and across an upgrade."""

import dataclasses
import io
from uuid import uuid4

import fastavro
import pyarrow as pa
import pytest

from airflow_iceberg.commit.manifest_filter import FilesToRemove, ManifestFilter
from airflow_iceberg.commit.snapshot_writer import SnapshotWriter
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.manifests.avro import read_manifest_list, write_manifest_list
from airflow_iceberg.format.manifests.entries import EntryStatus
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.updates import Change, SetProperties, UpgradeFormatVersion
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import IntegerType, ListType, LongType, NestedField, StructType, UnknownType
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, ids
from tests.support.changes import (
    NAME,
    Append,
    EqualityDelete,
    MergeOnReadDelete,
    Overwrite,
    RewriteAllManifests,
    live_entries,
    make_table,
    plan,
)
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog


def rows(*numbers):
    return id_rows(numbers)


def make(catalog, version, schema=None, **options):
    properties = {"format-version": str(version)}
    return Table.create(catalog, "db.t", schema=schema or {"id": "long"}, properties=properties, **options)


def register(catalog, metadata):
    """Bring a table into the catalog that is as another engine left it."""
    catalog.io.create("memory://warehouse/old.metadata.json", metadata_json.write(metadata))
    catalog.register_table("db.old", "memory://warehouse/old.metadata.json")
    return Table.load(catalog, "db.old")


def without(table, *paths):
    return ManifestFilter(FilesToRemove(paths=frozenset(paths)), table.metadata)


def manifests(table):
    return read_manifests(table.io, table.current_snapshot())


def live_files(table):
    files = [entry.data_file for entry in live_entries(table)]
    return {file.file_path: (file.first_row_id, file.record_count) for file in files}


def all_row_ids(table):
    return sorted(first + i for first, count in live_files(table).values() for i in range(count))


def commit(table, *updates):
    table.catalog.commit(table.catalog.load(table.identifier), Change(updates=updates))
    return table.refresh()


@pytest.fixture
def catalog():
    return MemoryCatalog()


class TestVersion1:
    """No sequence numbers; snapshot ids are explicit; a block size is written, which nobody reads."""

    def test_every_sequence_number_is_0(self, catalog):
        table = make(catalog, 1)
        table.append(rows(1))
        table.append(rows(2))
        assert [snapshot.sequence_number for snapshot in table.snapshots()] == [0, 0]
        assert table.metadata.last_sequence_number == 0
        assert [m.sequence_number for m in manifests(table)] == [0, 0]
        assert ids(table) == [1, 2]

    def test_the_manifest_has_what_version_1_requires_and_nothing_later(self, catalog):
        table = make(catalog, 1)
        table.append(rows(1))
        (manifest,) = manifests(table)
        reader = fastavro.reader(io.BytesIO(table.io.read(manifest.manifest_path)))
        (entry,) = list(reader)
        assert entry["snapshot_id"] == table.current_snapshot().snapshot_id
        assert entry["data_file"]["block_size_in_bytes"] == 64 * 1024 * 1024
        assert not {"sequence_number", "file_sequence_number"} & entry.keys()
        assert "content" not in entry["data_file"]
        assert reader.metadata["format-version"] == "1"

    def test_metadata_names_the_schema_twice_for_old_readers(self, catalog):
        document = metadata_json.to_dict(make(catalog, 1).metadata)
        assert document["schema"]["fields"] == document["schemas"][0]["fields"]
        assert document["partition-spec"] == []
        assert "last-sequence-number" not in document

    def test_a_manifest_that_loses_a_file_says_which_snapshot_added_the_others(self, catalog):
        table = make(catalog, 1, partition_by=["id"])
        table.append(rows(1, 2, 3))
        (manifest,) = manifests(table)
        gone = next(path for path in live_files(table) if "id=2" in path)
        writer = SnapshotWriter(table.io, snapshot_id=7, commit_uuid=uuid4())
        written, removed = writer.without_files(manifest, without(table, gone), table.metadata)
        location, added_rows = writer.write_list([written], table.metadata, parent_snapshot_id=None, sequence_number=0)
        assert (len(removed), added_rows) == (1, None)
        (row,) = read_manifest_list(table.io.read(location))
        head = table.current_snapshot().snapshot_id
        assert sorted((e.status.name, e.snapshot_id, e.sequence_number) for e in read_entries(table.io, row)) == [
            ("DELETED", 7, 0),
            ("EXISTING", head, 0),
            ("EXISTING", head, 0),
        ]

    def test_a_void_field_outlives_its_column(self, catalog):
        table = make(catalog, 1, {"a": "long", "b": "long"}, partition_by=["a"])
        table.append(pa.table({"a": [1], "b": [1]}))
        table.alter(
            [
                {"drop_partition_field": "a"},
                {"drop_column": "a"},
                {"add_column": {"name": "c", "type": "long"}},
                {"add_partition_field": "c"},
            ]
        )
        table.append(pa.table({"b": [2], "c": [2]}))
        assert [str(field.transform) for field in table.spec().fields] == ["void", "identity"]
        new = next(m for m in manifests(table) if m.partition_spec_id == 1)
        schema = fastavro.reader(io.BytesIO(table.io.read(new.manifest_path))).writer_schema
        (data_file,) = (f["type"] for f in schema["fields"] if f["name"] == "data_file")
        (partition,) = (f["type"] for f in data_file["fields"] if f["name"] == "partition")
        # A union of null and null is no Avro.
        assert [f["type"] for f in partition["fields"]] == ["null", ["null", "long"]]
        assert table.scan("b = 2").to_arrow().to_pylist() == [{"b": 2, "c": 2}]

    def test_an_embedded_list_of_manifests_is_read_and_followed_by_a_real_one(self, catalog):
        table = make(catalog, 1)
        table.append(rows(1, 2))
        head = table.current_snapshot()
        paths = tuple(m.manifest_path for m in manifests(table))
        embedded = dataclasses.replace(head, manifest_list=None, manifests=paths)
        table = register(catalog, dataclasses.replace(table.metadata, snapshots=(embedded,)))
        assert table.scan().count() == 2
        table.append(rows(3))
        assert ids(table) == [1, 2, 3]
        assert table.current_snapshot().manifest_list is not None

    def test_a_table_without_a_uuid_gets_one_with_the_first_commit(self, catalog):
        table = register(catalog, dataclasses.replace(make(catalog, 1).metadata, table_uuid=None))
        table.append(rows(1))
        uuid = table.metadata.table_uuid
        assert uuid is not None
        table.append(rows(2))
        assert table.metadata.table_uuid == uuid


class TestRowLineageOfVersion3:
    """Every row has an id of its own that it keeps; ids are assigned with the commit, and anew on each attempt."""

    def test_ids_follow_each_other(self, catalog):
        table = make(catalog, 3)
        table.append(rows(1, 2, 3))
        table.append(rows(4))
        assert [(s.first_row_id, s.added_rows) for s in table.snapshots()] == [(0, 3), (3, 1)]
        assert table.metadata.next_row_id == 4
        assert all_row_ids(table) == [0, 1, 2, 3]

    def test_a_retry_assigns_them_after_those_of_the_winner(self, catalog):
        make(catalog, 3)

        def rival(inner, table):
            Table.load(inner, table).append(rows(100, 101))

        table = Table.load(FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival), "db.t")
        table.append(rows(1, 2, 3))
        assert [(s.first_row_id, s.added_rows) for s in table.snapshots()] == [(0, 2), (2, 3)]
        assert all_row_ids(table) == [0, 1, 2, 3, 4]

    def test_ids_that_were_inherited_are_written_out_where_entries_are_copied(self, catalog):
        table = make(catalog, 3, partition_by=["id"])
        table.append(rows(1, 1, 2, 3, 3, 3))
        (manifest,) = manifests(table)
        before = live_files(table)
        gone = next(path for path in before if "id=2" in path)
        writer = SnapshotWriter(table.io, snapshot_id=7, commit_uuid=uuid4())
        written, _ = writer.without_files(manifest, without(table, gone), table.metadata)
        stored = list(read_entries(table.io, dataclasses.replace(written, sequence_number=2, min_sequence_number=1)))
        raw = fastavro.reader(io.BytesIO(table.io.read(written.manifest_path)))
        ids = {entry["data_file"]["file_path"]: entry["data_file"]["first_row_id"] for entry in raw}
        assert ids == {path: first for path, (first, _) in before.items()}
        assert [entry.status for entry in stored].count(EntryStatus.DELETED) == 1


class TestUpgrading:
    """Manifests of before stay as they are; with the first commit in v3 all their rows get ids."""

    @pytest.mark.parametrize("start", [1, 2])
    def test_rows_of_before_get_ids_once(self, catalog, start):
        table = make(catalog, start)
        table.append(rows(1, 2))
        old = manifests(table)[0].manifest_path
        commit(table, UpgradeFormatVersion(format_version=3))
        assert set(live_files(table).values()) == {(None, 2)}
        table.append(rows(3))
        assert old in {m.manifest_path for m in manifests(table)}
        ids = live_files(table)
        assert all_row_ids(table) == [0, 1, 2]
        assert table.current_snapshot().added_rows == 3
        table.append(rows(4))
        assert ids.items() <= live_files(table).items()
        assert all_row_ids(table) == [0, 1, 2, 3]

    def test_version_1_rows_are_older_than_all_others(self, catalog):
        table = make(catalog, 1)
        table.append(rows(1))
        commit(table, UpgradeFormatVersion(format_version=2))
        table.append(rows(2))
        entries = [e for m in manifests(table) for e in read_entries(table.io, m)]
        assert sorted(e.sequence_number for e in entries) == [0, 1]
        assert ids(table) == [1, 2]

    def test_counts_that_version_1_left_out_are_filled_in(self, catalog):
        table = make(catalog, 1)
        table.append(rows(1, 2))
        none = dict.fromkeys(
            f"{what}_{kind}_count" for what in ("added", "existing", "deleted") for kind in ("files", "rows")
        )
        (manifest,) = manifests(table)
        bare = write_manifest_list(
            [dataclasses.replace(manifest, **none)],
            snapshot_id=1,
            parent_snapshot_id=None,
            sequence_number=0,
            format_version=1,
        )
        catalog.io.create("memory://warehouse/bare.avro", bare)
        head = dataclasses.replace(table.current_snapshot(), manifest_list="memory://warehouse/bare.avro")
        old = register(catalog, dataclasses.replace(table.metadata, snapshots=(head,)))
        table = commit(old, UpgradeFormatVersion(format_version=3))
        table.append(rows(3))
        assert sorted(m.added_rows_count for m in manifests(table)) == [1, 2]
        assert all_row_ids(table) == [0, 1, 2]

    def test_an_upgrade_between_two_attempts_is_followed(self, catalog):
        make(catalog, 2).append(rows(1))

        def rival(inner, table):
            inner.commit(inner.load(table), Change(updates=(UpgradeFormatVersion(format_version=3),)))

        table = Table.load(FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival), "db.t")
        table.append(rows(2))
        assert table.metadata.format_version == 3
        assert all_row_ids(table) == [0, 1]


class TestRowIdsThatAnotherWriterGave:
    """The first commit after an upgrade gives row ids to all files; what a lost attempt wrote knows none of them."""

    @pytest.mark.parametrize(
        "ours", [Append("b", frozenset({9})), Overwrite("a", frozenset({9})), RewriteAllManifests()]
    )
    def test_they_stay(self, catalog, ours):
        is_merged = isinstance(ours, Append)
        make_table(catalog, 2, **{"commit.manifest.min-count-to-merge": "4"})
        for part in ("a", "b", "b"):
            plan(catalog, Append(part, frozenset({1, 2}))).commit()
        if not is_merged:
            plan(catalog, RewriteAllManifests()).commit()
        commit(Table.load(catalog, NAME), UpgradeFormatVersion(format_version=3))
        given = {}

        def rival(inner, table):
            theirs = MergeOnReadDelete(frozenset({1})) if is_merged else EqualityDelete("b", frozenset({1}))
            plan(inner, theirs).commit()
            given.update(live_files(Table.load(inner, NAME)))

        plan(catalog, ours).commit(catalog=FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival))
        found = live_files(Table.load(catalog, NAME))
        kept = found.keys() & given.keys()
        assert len(kept) > 2
        assert {path: found[path] for path in kept} == {path: given[path] for path in kept}


class TestDefaultsAndUnknowns:
    """Version 3 fills columns that rows do not bring: with the write default, and with null."""

    def test_a_missing_column_gets_its_write_default(self, catalog):
        fields = (
            NestedField(id=1, name="id", type=LongType()),
            NestedField(id=2, name="n", type=IntegerType(), required=True, initial_default=5, write_default=7),
            NestedField(id=3, name="nothing", type=UnknownType()),
        )
        table = make(catalog, 3, Schema(fields))
        table.append(rows(1))
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "n": 7, "nothing": None}]

    @pytest.mark.parametrize("version", [1, 2])
    def test_before_it_a_write_default_is_kept_but_not_followed(self, catalog, version):
        inner = StructType(fields=(NestedField(id=4, name="m", type=IntegerType(), write_default=8),))
        fields = (
            NestedField(id=1, name="id", type=LongType()),
            NestedField(id=2, name="n", type=IntegerType(), write_default=7),
            NestedField(id=3, name="s", type=ListType(element_id=5, element=inner)),
        )
        table = make(catalog, version, Schema(fields))
        some = pa.table({"id": [1], "s": pa.array([[{}]], pa.list_(pa.struct([])))})
        table.append(some)
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "n": None, "s": [{"m": None}]}]
        table.alter([{"upgrade_format_version": 3}])
        table.append(some.set_column(0, "id", pa.array([2])))
        assert table.scan(row_filter="id = 2").to_arrow().to_pylist() == [{"id": 2, "n": 7, "s": [{"m": 8}]}]

    @pytest.mark.parametrize("version", [1, 2])
    def test_before_it_a_required_column_cannot_be_left_out(self, catalog, version):
        required = NestedField(id=2, name="n", type=IntegerType(), required=True, write_default=7)
        table = make(catalog, version, Schema((NestedField(id=1, name="id", type=LongType()), required)))
        with pytest.raises(InvalidInputError, match="required column 'n'"):
            table.append(rows(1))


class TestEncryption:
    """A table that asks for encryption is neither read nor written: nothing is ever stored in clear."""

    def test_it_is_refused_on_both_sides(self, catalog):
        table = make(catalog, 2)
        commit(table, SetProperties(updates={"encryption.key-id": "k"}))
        with pytest.raises(UnsupportedError, match="requires encryption"):
            table.append(rows(1))
        with pytest.raises(UnsupportedError, match="encrypted"):
            table.scan()
        with pytest.raises(UnsupportedError, match="requires encryption"):
            Table.create(catalog, "db.e", schema={"id": "long"}, properties={"encryption.key-id": "k"})
        assert not [path for path in catalog.io.locations() if path.endswith((".parquet", ".avro"))]
