"""Every reference table decodes as its expectations say: snapshots, files, statistics, deletion vectors, hashes."""

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from airflow_iceberg.errors import NotFoundError
from airflow_iceberg.paimon.data_manifests import FileEntries, FileEntry
from airflow_iceberg.paimon.snapshots import Snapshot
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.paimon.types import PaimonType
from tests.support.paimon_tables import PaimonReference, tables

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # the expectations have no zones
SAME_NAMES = (
    *("file_name", "bucket", "total_buckets", "level", "row_count", "file_size", "schema_id", "min_sequence_number"),
    *("max_sequence_number", "delete_row_count", "file_source", "first_row_id"),
)

pytestmark = pytest.mark.parametrize("reference", tables(), ids=lambda item: f"{item.root.name}-{item.name}")


def spelled(value: Any, type_: PaimonType) -> Any:
    if value is None:
        return None
    if type_.root == "DATE":
        return (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()
    if type_.root == "TIME":
        return (EPOCH + dt.timedelta(microseconds=value)).time().isoformat()
    if type_.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        micros = value // 1000 if type_.precision > 6 else value
        text = (EPOCH + dt.timedelta(microseconds=micros)).isoformat(timespec="microseconds")
        return text + ("+00:00" if type_.root == "TIMESTAMP_LTZ" else "")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, Decimal):
        return found == Decimal(str(expected))
    return type(found) is type(expected) and found == expected


def assert_same(found: dict[str, Any], expected: dict[str, Any], where: str) -> None:
    assert found.keys() == expected.keys(), where
    for name, value in found.items():
        assert same(value, expected[name]), f"{where}.{name}: {value!r}, expected {expected[name]!r}"


def expected_snapshots(reference: PaimonReference) -> list[dict[str, Any]]:
    return list(reference.expected["snapshots"])


def either(item: dict[str, Any], *names: str) -> Any:
    """Return a value that the expectations of tables that pypaimon cannot open spell as the snapshot file does."""
    return next((item[name] for name in names if name in item), None)


def partition(entries: FileEntries, values: tuple[Any, ...]) -> dict[str, Any]:
    pairs = zip(entries.partition_fields, values, strict=True)
    return {field.name: spelled(value, field.type) for field, value in pairs}


def expecting(reference: PaimonReference, key: str) -> Iterator[tuple[PaimonTable, Snapshot, dict[str, Any]]]:
    """Yield each snapshot of which the expectations say something."""
    table = reference.open()
    for expected in expected_snapshots(reference):
        if key in expected:
            yield table, table.snapshot(expected["id"]), expected


def relative(location: str) -> str:
    return location.rpartition("/warehouse/")[2]


def where_it_is(table: PaimonTable, entry: FileEntry) -> str:
    try:
        return relative(table.find_data_file(entry))
    except NotFoundError:  # deleted by a later compaction, or an external path that is not on this machine
        return relative(table.data_file_location(entry))


class TestSnapshots:
    """Every snapshot that was there is found, and says what it said."""

    def test_all_of_them_are_found(self, reference):
        expected = [item["id"] for item in expected_snapshots(reference)]
        table = reference.open()
        assert list(table.snapshot_ids()) == expected
        assert table.latest_snapshot_id() == (expected[-1] if expected else None)
        assert table.earliest_snapshot_id() == (expected[0] if expected else None)

    def test_each_says_what_it_said(self, reference):
        for found, expected in zip(reference.open().snapshots(), expected_snapshots(reference), strict=True):
            assert found.schema_id == either(expected, "schema_id", "schemaId")
            assert found.commit_kind == either(expected, "commit_kind", "commitKind")
            assert found.total_record_count == either(expected, "total_record_count", "totalRecordCount")
            assert found.delta_record_count == either(expected, "delta_record_count", "deltaRecordCount")
            assert found.index_manifest == either(expected, "index_manifest", "indexManifest")
            if "time_millis" in expected:
                assert found.time_ms == expected["time_millis"]
                assert found.changelog_manifest_list == expected["changelog_manifest_list"]

    def test_their_identities_differ(self, reference):
        identities = [snapshot.identity for snapshot in reference.open().snapshots()]
        assert len(set(identities)) == len(identities)

    def test_they_have_the_manifests_they_had(self, reference):
        for table, snapshot, expected in expecting(reference, "manifests"):
            counts = {kind: len(table.manifests(snapshot, kind)) for kind in ("base", "delta", "changelog")}
            assert counts == expected["manifests"]


class TestSchemasTagsBranches:
    """What belongs to a table beside its snapshots."""

    def test_the_schemas_are_the_files(self, reference):
        expected = reference.expected.get("schemas")
        if expected is None:
            assert reference.open().schemas()
            return
        for found, item in zip(reference.open().schemas(), expected, strict=True):
            keys = {"partition_keys": tuple(item["partitionKeys"]), "primary_keys": tuple(item["primaryKeys"])}
            numbers = {"id": item["id"], "highest_field_id": item["highestFieldId"]}
            assert found == replace(found, options=item["options"], **keys, **numbers)
            for field, column in zip(found.fields, item["fields"], strict=True):
                described = (column["id"], column["name"], column.get("description"))
                assert (field.id, field.name, field.description) == described
                if isinstance(column["type"], str):
                    assert str(field.type) == plain(column["type"])
                else:
                    assert field.type.root == column["type"]["type"].split()[0]

    def test_tags_name_their_snapshots(self, reference):
        found = {tag.name: tag.snapshot.id for tag in reference.open().tags()}
        assert found == reference.expected.get("tags", {})

    def test_branches_have_snapshots_of_their_own(self, reference):
        table = reference.open()
        found = {name: list(table.branch(name).snapshot_ids()) for name in table.branches()}
        assert found == reference.expected.get("branches", found)
        for name in table.branches():
            branch = table.branch(name)
            for snapshot in branch.snapshots():
                live = branch.live_files(snapshot)
                assert sum(entry.row_count for entry in live) == snapshot.total_record_count


def plain(text: str) -> str:
    """Return a type's text as Paimon's Python writes it."""
    if " WITH LOCAL TIME ZONE" in text:
        return text.replace(" WITH LOCAL TIME ZONE", "").replace("TIMESTAMP", "TIMESTAMP_LTZ")
    return text


class TestLiveFiles:
    """The files of a snapshot, after all that was added and deleted."""

    def test_their_rows_are_those_of_the_snapshot(self, reference):
        table = reference.open()
        for snapshot in table.snapshots():
            rows = sum(entry.row_count for entry in table.live_files(snapshot))
            assert rows == snapshot.total_record_count

    def test_they_are_the_expected_ones(self, reference):
        for table, snapshot, expected in expecting(reference, "live_files"):
            entries = table.live_files(snapshot)
            found = {where_it_is(table, entry): entry for entry in entries}
            assert sorted(found) == sorted(item["path"] for item in expected["live_files"]), snapshot.id
            for item in expected["live_files"]:
                entry = found[item["path"]]
                assert_same({name: getattr(entry, name) for name in SAME_NAMES}, pick(item, SAME_NAMES), item["path"])
                assert_same(partition(entries, entry.partition), item["partition"], item["path"])
                assert list(entry.extra_files) == item["extra_files"]
                assert (entry.external_path is not None) == item["external_path"]
                for name in ("value_stats_cols", "write_cols"):
                    found_names = getattr(entry, name)
                    assert (None if found_names is None else list(found_names)) == item[name]

    def test_their_statistics_are_the_expected_ones(self, reference):
        for table, snapshot, expected in expecting(reference, "live_files"):
            entries = table.live_files(snapshot)
            by_path = {item["path"]: item["stats"] for item in expected["live_files"]}
            for entry, stats in zip(entries, table.stats(entries), strict=True):
                path = where_it_is(table, entry)
                types = {field.name: field.type for field in table.schema(entry.schema_id).fields}
                assert stats.keys() == by_path[path].keys(), path
                for name, column in stats.items():
                    low, high = spelled(column.min, types[name]), spelled(column.max, types[name])
                    found = {"min": low, "max": high, "null_count": column.null_count}
                    assert_same(found, by_path[path][name], f"{path}.{name}")

    def test_what_a_snapshot_changed_is_what_it_changed(self, reference):
        for table, snapshot, expected in expecting(reference, "delta"):
            entries = table.delta_files(snapshot)
            found = [(entry.kind.name, where_it_is(table, entry), entry.level, entry.row_count) for entry in entries]
            wanted = [(item["kind"], item["path"], item["level"], item["row_count"]) for item in expected["delta"]]
            assert sorted(found) == sorted(wanted)

    def test_changelogs_can_be_read(self, reference):
        table = reference.open()
        for snapshot in table.snapshots():
            rows = sum(entry.row_count for entry in table.changelog_files(snapshot))
            if snapshot.changelog_manifest_list is None:
                assert rows == 0
            elif snapshot.changelog_record_count is not None:
                assert rows == snapshot.changelog_record_count


def pick(item: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: item[name] for name in names}


class TestIndexFiles:
    """Hash indexes, deletion vectors and global indexes of a snapshot."""

    def test_they_hold_what_they_should(self, reference):
        for table, snapshot, expected in expecting(reference, "index_files"):
            found = {index.file_name: index for index in table.index_files(snapshot)}
            wanted = {item["file_name"]: item for item in expected["index_files"]}
            assert found.keys() == wanted.keys()
            fields = table.schema(snapshot.schema_id).partition_fields
            for name, index in found.items():
                item = wanted[name]
                assert index.index_type == item["index_type"]
                sizes = (item["bucket"], item["file_size"], item["row_count"])
                assert (index.bucket, index.file_size_bytes, index.row_count) == sizes
                pairs = zip(fields, index.partition, strict=True)
                assert_same({field.name: spelled(value, field.type) for field, value in pairs}, item["partition"], name)
                assert [vector.data_file for vector in index.vectors] == list(item.get("deletion_vectors") or ())
                if index.index_type == "HASH":
                    assert sorted(table.hashes(index).tolist()) == sorted(item["hashes"])

    def test_deletion_vectors_have_the_expected_rows(self, reference):
        table = reference.open()
        for snapshot in table.snapshots():  # all of them can be read
            list(table.read_vectors(table.deletion_vectors(snapshot)))
        for table, snapshot, expected in expecting(reference, "index_files"):
            found = {
                (item.index.file_name, item.vector.data_file): (
                    *(item.vector.offset, item.vector.length, rows.cardinality, rows.to_array().tolist()),
                )
                for item, rows in table.read_vectors(table.deletion_vectors(snapshot))
            }
            assert found == {
                (item["file_name"], name): (
                    *(vector["offset"], vector["length"], len(vector["positions"]), vector["positions"]),
                )
                for item in expected["index_files"]
                for name, vector in (item.get("deletion_vectors") or {}).items()
            }


class TestInspection:
    """The same as Arrow tables."""

    def test_every_question_has_an_answer_of_the_right_size(self, reference):
        table = reference.open()
        inspect, snapshot = table.inspect, table.latest_snapshot()
        assert inspect.snapshots()["snapshot_id"].to_pylist() == list(table.snapshot_ids())
        assert inspect.schemas()["schema_id"].to_pylist() == list(table.schema_ids())
        assert inspect.tags()["tag_name"].to_pylist() == list(table.tag_names())
        assert inspect.branches()["branch_name"].to_pylist() == list(table.branches())
        if snapshot is None:
            return
        live = list(table.live_files(snapshot))
        assert inspect.files().num_rows == len(live)
        partitions, buckets = inspect.partitions(), inspect.buckets()
        assert partitions.num_rows == len({repr(entry.partition) for entry in live})
        assert buckets.num_rows == len({repr((entry.partition, entry.bucket)) for entry in live})
        assert sum(partitions["record_count"].to_pylist()) == snapshot.total_record_count
        assert sum(buckets["file_size_in_bytes"].to_pylist()) == sum(entry.file_size for entry in live)
        assert inspect.index_files().num_rows == len(table.index_files(snapshot))
        assert inspect.deletion_vectors().num_rows == len(table.deletion_vectors(snapshot))
        manifests = (*table.manifests(snapshot, "base"), *table.manifests(snapshot, "delta"))
        assert inspect.manifests().num_rows == len(manifests) + len(table.manifests(snapshot, "changelog"))
