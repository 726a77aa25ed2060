"""`PaimonTable`: how the latest snapshot is found, which files live, and what is said of broken tables."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyarrow import orc, parquet

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.format.avro.container import write_container
from airflow_iceberg.paimon.containers import read_records
from airflow_iceberg.paimon.data_manifests import FileEntries
from airflow_iceberg.paimon.manifest_lists import FileFilter
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.storage.base import FileStatus
from tests.support.memory import MemoryFileIO
from tests.support.paimon_writer import ENTRY, LISTED, PaimonBuilder, as_arrow, encode_row, write_avro

ROOT = "memory:///w/t"


class CountingIO(MemoryFileIO):
    """Counts the bytes that are read, and the questions that are asked."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes, self.calls = 0, []

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.calls.append(f"read {location.removeprefix(ROOT)}")
        data = super().read(location, offset=offset, length=length)
        self.read_bytes += len(data)
        return data

    def list(self, prefix: str) -> Iterator[FileStatus]:
        self.calls.append(f"list {prefix.removeprefix(ROOT)}")
        return super().list(prefix)


@pytest.fixture
def store() -> CountingIO:
    return CountingIO()


@pytest.fixture
def builder(store: CountingIO) -> PaimonBuilder:
    fields = {"id": "BIGINT", "name": "STRING", "p": "INT", "d": "DECIMAL(20, 3)"}
    return PaimonBuilder(store, ROOT, fields=fields, partition_keys=["p", "d"])


def opened(store: CountingIO) -> PaimonTable:
    return PaimonTable.load(ROOT, store)


def live(store: CountingIO, wanted: FileFilter | None = None) -> list[str]:
    table = opened(store)
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    return [entry.file_name for entry in table.live_files(snapshot, wanted or FileFilter())]


class TestTheLatestSnapshot:
    """The hint is believed when its snapshot is there and the next one is not; otherwise the files are listed."""

    def test_a_good_hint_takes_one_small_read(self, store, builder):
        builder.commit()
        table = opened(store)
        store.calls.clear()
        assert table.latest_snapshot_id() == 1
        assert store.calls == ["read /snapshot/LATEST"]

    @pytest.mark.costly
    def test_a_poll_reads_less_than_10_kilobytes_of_a_large_table(self, store, builder):
        builder.commit([builder.add(f"{number}.parquet", partition=(1, None)) for number in range(3000)])
        table = PaimonTable(ROOT, store)
        store.read_bytes = 0
        snapshot = table.latest_snapshot()
        assert snapshot is not None
        assert snapshot.total_record_count == 3000
        assert store.read_bytes < 10_000

    @pytest.mark.parametrize("hint", ["1", "7", "0", "x", "", "-3", "99999999999999999999"])
    def test_a_hint_that_lies_is_not_believed(self, store, builder, hint):
        builder.commits(3)
        builder.write("snapshot/LATEST", hint.encode())
        builder.write("snapshot/EARLIEST", hint.encode())
        table = opened(store)
        assert table.latest_snapshot_id() == 3
        assert table.earliest_snapshot_id() == 1

    def test_a_table_without_hints_is_listed(self, store, builder):
        builder.commits(2)
        store.delete([f"{ROOT}/snapshot/LATEST"])
        assert opened(store).latest_snapshot_id() == 2

    def test_a_new_table_has_no_snapshot(self, store, builder):
        table = opened(store)
        assert (table.latest_snapshot(), table.earliest_snapshot_id(), table.snapshot_ids()) == (None, None, ())
        assert table.inspect.files().num_rows == 0
        assert table.inspect.partitions().num_rows == 0

    def test_hints_without_snapshots_are_an_error_and_no_empty_table(self, store, builder):
        builder.commit()
        store.delete([f"{ROOT}/snapshot/snapshot-1"])
        message = (
            r"^the hint says snapshot '1', expected files snapshot-\* in the same folder, found none of .*/LATEST$"
        )
        for ask in (PaimonTable.latest_snapshot_id, PaimonTable.earliest_snapshot_id, PaimonTable.snapshot_ids):
            with pytest.raises(FormatError, match=message):
                ask(opened(store))

    def test_a_snapshot_missing_in_the_middle_is_an_error(self, store, builder):
        builder.commits(3)
        store.delete([f"{ROOT}/snapshot/snapshot-2"])
        with pytest.raises(FormatError, match=r"missing between 1 and 3; expected a file of .*/snapshot-2$"):
            list(opened(store).snapshots())

    def test_a_snapshot_that_expires_while_all_are_read_is_left_out(self, store, builder, monkeypatch):
        builder.commits(3)
        table = opened(store)
        real = table.snapshot_ids

        def listed() -> tuple[int, ...]:
            ids = real()
            store.delete([f"{ROOT}/snapshot/snapshot-1"])
            return ids

        monkeypatch.setattr(table, "snapshot_ids", listed)
        assert [snapshot.id for snapshot in table.snapshots()] == [2, 3]

    def test_a_snapshot_that_is_lost_while_all_are_read_is_an_error(self, store, builder, monkeypatch):
        builder.commits(3)
        table = opened(store)
        store.delete([f"{ROOT}/snapshot/snapshot-2"])
        monkeypatch.setattr(table, "snapshot_ids", lambda: (1, 2, 3))
        with pytest.raises(NotFoundError, match=r"^no snapshot 2 of table memory:///w/t; it has 1 to 3$"):
            list(table.snapshots())

    def test_a_snapshot_id_that_is_used_again_has_another_identity(self, store, builder):
        builder.commit()
        before = opened(store).snapshot(1).identity
        builder.snapshots.clear()
        builder.commit(timeMillis=1_795_231_499_999)
        assert opened(store).snapshot(1).identity != before

    def test_an_expired_snapshot_is_told_from_those_there_are(self, store, builder):
        builder.commits(3)
        store.delete([f"{ROOT}/snapshot/snapshot-1"])
        with pytest.raises(NotFoundError, match=rf"^no snapshot 1 of table {ROOT}; it has 2 to 3$"):
            opened(store).snapshot(1)


class TestLiveFiles:
    """A file lives when it was added once more than it was deleted; anything else is a broken table."""

    def test_a_deleted_file_is_gone(self, store, builder):
        first, second = (builder.add(name, partition=(1, None)) for name in ("a", "b"))
        builder.commit([first, second])
        builder.commit([{**first, "_KIND": 1}])
        assert live(store) == ["b"]

    def test_a_file_moved_to_another_level_lives_there(self, store, builder):
        builder.commit([builder.add("a", partition=(1, None))])
        moved = [builder.add("a", partition=(1, None), kind=1), builder.add("a", partition=(1, None), level=5)]
        builder.commit(moved)
        table = opened(store)
        assert [(entry.file_name, entry.level) for entry in table.live_files(table.snapshot(2))] == [("a", 5)]

    def test_the_order_of_entries_does_not_matter(self, store, builder):
        entry = builder.add("a", partition=(1, None))
        builder.commit([{**entry, "_KIND": 1}, entry, entry])
        assert live(store) == ["a"]

    def test_null_in_other_bytes_is_the_same_partition(self, store, builder):
        entry = builder.add("a", partition=(1, None))
        blob = entry["_PARTITION"][:20] + bytes.fromhex("0000000018000000") + bytes(16)
        assert blob != entry["_PARTITION"]
        builder.commit([entry])
        builder.commit([{**entry, "_KIND": 1, "_PARTITION": blob}, builder.add("b", partition=(1, None))])
        assert live(store) == ["b"]

    def test_files_of_one_name_in_two_buckets_are_two(self, store, builder):
        builder.commit([builder.add("a", partition=(1, None), bucket=bucket) for bucket in (0, 1)])
        assert live(store) == ["a", "a"]

    @pytest.mark.parametrize(("kinds", "problem"), [([0, 0], "added twice"), ([1], "deleted but never added")])
    def test_a_contradiction_is_an_error(self, store, builder, kinds, problem):
        builder.commit([builder.add("a", partition=(1, None), kind=kind) for kind in kinds])
        with pytest.raises(
            FormatError, match=rf"file a in bucket 0 at level 0 was {problem} .* of .*/manifest/manifest-"
        ):
            live(store)

    def test_changelogs_are_never_part_of_the_state(self, store, builder):
        name, size = builder.manifest_list([builder.manifest([builder.add("log", partition=(1, None))])])
        more = {"changelogManifestList": name, "changelogManifestListSize": size}
        builder.commit([builder.add("a", partition=(1, None))], **more)
        table = opened(store)
        assert live(store) == ["a"]
        assert [entry.file_name for entry in table.changelog_files(table.snapshot(1))] == ["log"]


class TestStatistics:
    """What an ANALYZE found belongs to its snapshot."""

    def test_statistics_of_an_analyze(self, store, builder):
        column = {"colId": 0, "distinctCount": 3, "min": "1", "max": "9", "nullCount": 0, "avgLen": 8, "maxLen": 8}
        document = {"snapshotId": 1, "schemaId": 0, "mergedRecordCount": 4, "mergedRecordSize": 99}
        builder.write("statistics/stat-1", json.dumps({**document, "colStats": {"id": column}}).encode())
        builder.commit()
        builder.commit(statistics="stat-1")
        table = opened(store)
        assert table.statistics(table.snapshot(1)) is None
        found = table.statistics(table.snapshot(2))
        assert found is not None
        assert (found.snapshot_id, found.merged_record_count, found.merged_record_size) == (1, 4, 99)
        assert found.columns == {"id": column}


class TestPruning:
    """Manifests that cannot have a wanted file are not read, and no wanted file is lost."""

    @pytest.fixture
    def table(self, store: CountingIO, builder: PaimonBuilder) -> PaimonTable:
        for number, partition in enumerate([(1, None), (2, None), (None, None)]):
            entries = [
                builder.add(f"{number}-{number}-{level}", partition=partition, bucket=number, level=level)
                for level in sorted({0, number})
            ]
            builder.commit(entries)
        return opened(store)

    @pytest.mark.parametrize(("wanted", "files", "manifests"), [
        (FileFilter(partition={"p": 2}), ["1-1-0", "1-1-1"], 1),
        (FileFilter(partition={"p": None}), ["2-2-0", "2-2-2"], 3), (FileFilter(partition={"p": 7}), [], 0),
        (FileFilter(buckets=frozenset({0, 2})), ["0-0-0", "2-2-0", "2-2-2"], 2),
        (FileFilter(levels=frozenset({1, 2})), ["1-1-1", "2-2-2"], 2),
        (FileFilter(levels=frozenset({0}), buckets=frozenset({1})), ["1-1-0"], 1),
    ])  # fmt: skip
    def test_what_is_wanted_is_found(self, store, table, wanted, files, manifests):
        store.calls.clear()
        found = [entry.file_name for entry in table.live_files(table.snapshot(3), wanted)]
        read = [call for call in store.calls if "/manifest-" in call and "-list-" not in call]
        assert found == files
        # The statistics of a partition that is null are without bounds: these manifests cannot be left out.
        assert len(read) <= manifests + (wanted.partition is not None)

    def test_a_column_that_is_no_partition_key_is_refused(self, table):
        with pytest.raises(InvalidInputError, match=r"^'name' is no partition key; the table has p, d$"):
            table.live_files(table.snapshot(1), FileFilter(partition={"name": "x"}))


class TestOtherContainers:
    """Manifests of older tables are ORC or Parquet, with the same names."""

    @pytest.mark.parametrize("write", [orc.write_table, parquet.write_table])
    def test_they_hold_the_same(self, store, builder, write):
        bounds = ((1, "a", 1, None), (9, "z", 1, None))
        builder.commit([builder.add("a", partition=(1, None), bounds=bounds), builder.add("b", partition=(1, None))])
        table = opened(store)
        manifest = table.manifests(table.snapshot(1), "delta")[0]
        before = [replace(entry, manifest="") for entry in table.live_files(table.snapshot(1))]
        target = io.BytesIO()
        write(as_arrow(store.read(f"{ROOT}/manifest/{manifest.file_name}")), target)
        other = PaimonBuilder(store, ROOT, fields={"id": "BIGINT", "name": "STRING", "p": "INT", "d": "DECIMAL(20, 3)"},
                              partition_keys=["p", "d"])  # fmt: skip
        line = other.manifest([builder.add("x", partition=(1, None))])
        builder.write(f"manifest/{line['_FILE_NAME']}", target.getvalue())
        changed = {**line, "_FILE_SIZE": len(target.getvalue()), "_NUM_ADDED_FILES": 2}
        other.base = [changed]
        other.commit()
        after = [replace(entry, manifest="") for entry in table.live_files(table.snapshot(1))]
        assert after == before
        assert next(iter(table.stats(after)))["name"].max == "z"

    def test_zstandard_needs_no_other_package(self, store, builder, monkeypatch):
        builder.commit([builder.add("a", partition=(1, None))])
        for name in ("compression.zstd", "backports.zstd"):
            monkeypatch.setitem(sys.modules, name, None)
        assert live(store) == ["a"]

    def test_a_record_may_be_named_instead_of_written_again(self, store, builder):
        """As early versions of pypaimon wrote the second of two records of statistics."""
        schema = json.loads(json.dumps(ENTRY))
        types = {field["name"]: field for field in schema["fields"][-1]["type"]["fields"]}
        types["_KEY_STATS"]["type"] |= {"name": "SimpleStats", "namespace": "com.xxx"}
        types["_VALUE_STATS"]["type"] = "com.xxx.SimpleStats"
        entry = builder.add("a", partition=(1, None), bounds=((1, "a", 1, None), (9, "z", 1, None)))
        data = write_avro(schema, [entry])
        line = builder.manifest([entry])
        builder.write(f"manifest/{line['_FILE_NAME']}", data)
        builder.base = [{**line, "_FILE_SIZE": len(data)}]
        builder.commit()
        table = opened(store)
        files = table.live_files(table.snapshot(1))
        assert next(table.stats(files))["name"].max == "z"
        assert [item["_FILE"]["_VALUE_STATS"] for item in read_records(data)] == [entry["_FILE"]["_VALUE_STATS"]]

    def test_names_that_multiply_are_refused(self):
        """A short text may not stand for a schema that takes a lifetime to walk."""
        schema: Any = {"type": "record", "name": "r0", "fields": [{"name": "a", "type": "long"}]}
        for number in range(1, 15):
            fields = [{"name": "a", "type": schema}]
            fields += [{"name": f"b{more}", "type": f"r{number - 1}"} for more in range(9)]
            schema = {"type": "record", "name": f"r{number}", "fields": fields}
        data = write_container({"avro.schema": json.dumps(schema)}, [(1, b"\0")], codec="null")
        with pytest.raises(FormatError, match=r"^unexpected Avro schema \(more than \d+ fields\) of f$"):
            read_records(data, path="f")


class TestTypesThatAreNotRead:
    """A column of a type that this package has no values of does not stand in the way of the others."""

    @pytest.mark.parametrize(("text", "expected"), [
        ("GEOMETRY(OGC:CRS84)", "GEOMETRY(OGC:CRS84)"),
        ("geometry('EPSG: 4326') not null", "GEOMETRY('EPSG: 4326') NOT NULL"),
        ("GEOGRAPHY(OGC:CRS84, SPHERICAL)", "GEOGRAPHY(OGC:CRS84, SPHERICAL)"),
        ("GEOMETRY NOT NULL", "GEOMETRY NOT NULL"),
    ])  # fmt: skip
    def test_a_schema_with_places_is_read(self, store, text, expected):
        builder = PaimonBuilder(store, ROOT, fields={"id": "BIGINT", "place": text})
        builder.commit([builder.add("a", bounds=((1, None), (9, None)))])
        table = opened(store)
        assert str(table.schema().fields[1].type) == expected
        stats = next(table.stats(table.live_files(table.snapshot(1))))
        assert (stats["id"].max, stats["place"].max) == (9, None)


class TestBrokenTables:
    """An error names the file, what was expected and what was found; `test_broken_documents` has files of each kind."""

    def read_all(self, store: CountingIO) -> FileEntries:
        table = opened(store)
        return table.live_files(table.snapshot(1))

    def test_a_torn_file_is_named_with_both_sizes(self, store, builder):
        builder.commit([builder.add("a", partition=(1, None))])
        for name in (location for location in store.locations(ROOT) if "/manifest-" in location):
            data = store.read(name)
            for size in (0, 1, len(data) // 2, len(data) - 1):
                builder.write(name.removeprefix(f"{ROOT}/"), data[:size])
                with pytest.raises(
                    FormatError, match=rf"^unexpected {size} bytes .* \(expected {len(data)}\)"
                ) as caught:
                    self.read_all(store)
                assert caught.value.path == name
            builder.write(name.removeprefix(f"{ROOT}/"), data)

    def test_another_avro_file_is_no_manifest(self, store, builder):
        line = builder.manifest([builder.add("a", partition=(1, None))])
        data = write_avro(LISTED, [line])
        builder.write(f"manifest/{line['_FILE_NAME']}", data)
        builder.base = [{**line, "_FILE_SIZE": len(data)}]
        builder.commit()
        with pytest.raises(FormatError, match=r"^no field '_KIND' of type int8; this is another file of .*/manifest-"):
            self.read_all(store)

    def test_another_number_of_entries_than_the_list_says(self, store, builder):
        line = builder.manifest([builder.add("a", partition=(1, None))])
        builder.base = [{**line, "_NUM_ADDED_FILES": 2}]
        builder.commit()
        with pytest.raises(FormatError, match=r"^found 1 added and 0 deleted files, expected 2 and 0 by its manifest"):
            self.read_all(store)

    @pytest.mark.parametrize(("change", "error", "message"), [
        ({"_VERSION": 1}, UnsupportedError, r"^version 1 of a manifest entry \(known: 2\) of "),
        ({"_KIND": 2}, FormatError, r"^unexpected kind 2 of an entry \(expected 0 or 1\) in '_KIND'"),
        ({"_PARTITION": encode_row((), ())}, FormatError, r"^a row has 0 fields, expected 2 in '_PARTITION' of "),
    ])  # fmt: skip
    def test_an_entry_that_breaks_the_rules(self, store, builder, change, error, message):
        builder.commit([{**builder.add("a", partition=(1, None)), **change}])
        with pytest.raises(error, match=message):
            list(self.read_all(store))

    def test_no_table_is_told_from_an_empty_one(self, store):
        with pytest.raises(NotFoundError, match=rf"^no Paimon table at {ROOT}: expected files schema-0 and on in"):
            opened(store)

    @pytest.mark.parametrize("key", ["id", "schemaId", "baseManifestList", "deltaManifestList", "commitKind"])
    def test_a_key_that_is_missing_is_named(self, store, builder, key):
        snapshot = builder.commit()
        builder.write("snapshot/snapshot-1", json.dumps({k: v for k, v in snapshot.items() if k != key}).encode())
        with pytest.raises(FormatError, match=rf"^missing field '{key}' of {ROOT}/snapshot/snapshot-1$"):
            opened(store).snapshot(1)

    def test_keys_that_are_not_known_are_kept_quiet_about(self, store, builder):
        builder.commit(logOffsets={}, watermark=None, changelogManifestList=None, ofTomorrow=[1])
        assert opened(store).snapshot(1).watermark is None

    def test_an_unknown_tag_or_branch_is_told_from_those_there_are(self, store, builder):
        snapshot = builder.commit()
        more = {"tagCreateTime": [2026, 11, 21, 3, 24, 4, 5_000_000], "tagTimeRetained": "PT1H30M"}
        builder.write("tag/tag-v1", json.dumps({**snapshot, **more}).encode())
        table = opened(store)
        tag = table.tag("v1")
        assert (str(tag.create_time), tag.retained_seconds) == ("2026-11-21 03:24:04.005000", 5400.0)
        with pytest.raises(NotFoundError, match=rf"^no tag 'v2' of table {ROOT}; it has v1$"):
            table.tag("v2")
        with pytest.raises(NotFoundError, match=rf"^no branch 'b' of table {ROOT}; it has main$"):
            table.branch("b")
