"""Small manifests are put together as they gather; nothing that they say is lost."""

import threading
from dataclasses import replace

import pytest

from airflow_iceberg.commit.manifest_merging import MergePolicy, choose_bins
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestContent, ManifestFile
from airflow_iceberg.format.metadata.updates import Change as MetadataChange
from airflow_iceberg.format.metadata.updates import UpgradeFormatVersion
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    CopyOnWriteDelete,
    MergeOnReadDelete,
    ids,
    live_entries,
    make_table,
    plan,
    rows_of,
)
from tests.support.memory import Fault, FaultyCatalog, FaultyFileIO, FileFault, FileRule, MemoryCatalog

MIN_COUNT = "commit.manifest.min-count-to-merge"


def manifest(name, size, *, spec_id=0, content=ManifestContent.DATA):
    return ManifestFile(
        manifest_path=name,
        manifest_length=size,
        partition_spec_id=spec_id,
        content=content,
        sequence_number=1,
        min_sequence_number=1,
        added_snapshot_id=1,
    )


def bins(sizes, *, policy=None, touched="m0"):
    found = choose_bins([manifest(f"m{i}", size) for i, size in enumerate(sizes)], [touched], policy or MergePolicy())
    return [[m.manifest_path for m in chosen] for chosen in found]


class TestWhichAreMerged:
    """A hundred of one size, or as many as fill one of the target size; only of sizes that the commit writes."""

    def test_ninety_nine_stay(self):
        assert bins([7_000] * 99) == []

    def test_a_hundred_become_one(self):
        assert bins([7_000] * 100) == [[f"m{i}" for i in range(100)]]

    def test_a_small_commit_on_a_large_table_rewrites_nothing(self):
        assert bins([7_000] + [170_000] * 1_000) == []

    def test_large_ones_are_packed_into_one_of_the_target_size_oldest_first(self):
        assert bins([1_000_000] * 9) == [[f"m{i}" for i in range(1, 9)]]

    def test_manifests_above_half_of_the_target_are_left_alone(self):
        assert bins([5_000_000] * 200) == []

    def test_specs_and_contents_are_kept_apart(self):
        many = [manifest(f"m{i}", 7_000, spec_id=i % 2) for i in range(150)]
        many += [manifest(f"d{i}", 7_000, content=ManifestContent.DELETES) for i in range(80)]
        assert choose_bins(many, ["m0", "d0"], MergePolicy()) == []

    def test_not_where_the_table_says_no(self):
        assert bins([7_000] * 500, policy=MergePolicy(enabled=False)) == []

    def test_the_sizes_are_the_tables(self):
        metadata = make_table(MemoryCatalog()).metadata
        assert MergePolicy.of(metadata) == MergePolicy(target_size_bytes=8 << 20, min_count=100)
        small = replace(metadata, properties={"commit.manifest.target-size-bytes": "20000"})
        assert bins([7_000] * 9) == []
        assert bins([7_000] * 9, policy=MergePolicy.of(small)) == [["m7", "m8"]]

    @pytest.mark.parametrize("text", ["0", "-1", "1", "2"])
    def test_two_are_enough_where_none_are(self, text):
        odd = replace(make_table(MemoryCatalog()).metadata, properties={"commit.manifest.min-count-to-merge": text})
        assert bins([7_000] * 2, policy=MergePolicy.of(odd)) == [["m0", "m1"]]

    @pytest.mark.parametrize("text", ["0", "-1"])
    def test_none_fit_into_no_bytes(self, text):
        odd = replace(make_table(MemoryCatalog()).metadata, properties={"commit.manifest.target-size-bytes": text})
        assert bins([7_000] * 500, policy=MergePolicy.of(odd)) == []

    @pytest.mark.parametrize("name", ["target-size-bytes", "min-count-to-merge"])
    @pytest.mark.parametrize("text", ["1e3", "", "many"])
    def test_a_property_that_is_no_number_is_refused_as_in_java(self, name, text):
        odd = replace(make_table(MemoryCatalog()).metadata, properties={f"commit.manifest.{name}": text})
        with pytest.raises(InvalidInputError, match=rf"property commit\.manifest\.{name} is '{text}' \(expected a num"):
            MergePolicy.of(odd)

    @pytest.mark.costly
    def test_their_number_stays_bounded_and_entries_are_rewritten_a_few_times(self):
        """Three thousand commits of one file each, by sizes alone: 6,000 bytes of header and 150 a file."""
        sizes, written = [], 0
        for _ in range(3_000):
            sizes.insert(0, (1, 6_150))
            rows = [manifest(str(i), size) for i, (_, size) in enumerate(sizes)]
            for chosen in choose_bins(rows, ["0"], MergePolicy()):
                gone = {int(m.manifest_path) for m in chosen}
                files = sum(sizes[i][0] for i in gone)
                written += files
                sizes = [(files, 6_000 + 150 * files)] + [s for i, s in enumerate(sizes) if i not in gone]
        assert len(sizes) <= 200
        assert written <= 2 * 3_000


class TestWhatAMergedManifestSays:
    """The same files, with the snapshot, the sequence numbers and the row ids that they had."""

    @pytest.fixture(params=[1, 2, 3])
    def catalog(self, request):
        catalog = MemoryCatalog()
        make_table(catalog, request.param, **{MIN_COUNT: "4"})
        return catalog

    def facts(self, catalog):
        table = Table.load(catalog, NAME)
        return {
            e.data_file.identity: (e.snapshot_id, e.sequence_number, e.file_sequence_number, e.data_file.first_row_id)
            for e in live_entries(table)
        }

    def manifests(self, catalog):
        table = Table.load(catalog, NAME)
        return [m for m in read_manifests(table.io, table.current_snapshot()) if m.content is ManifestContent.DATA]

    def test_files_keep_all_that_they_had(self, catalog):
        for i in range(3):
            plan(catalog, Append("a", ids(i))).commit()
        before = self.facts(catalog)
        plan(catalog, Append("a", ids(3))).commit()
        (merged,) = self.manifests(catalog)
        after = self.facts(catalog)
        assert {path: after[path] for path in before} == before
        table = Table.load(catalog, NAME)
        statuses = sorted(entry.status for entry in read_entries(table.io, merged))
        assert statuses == [EntryStatus.EXISTING] * 3 + [EntryStatus.ADDED]
        (new,) = set(after) - set(before)
        assert after[new][0] == table.current_snapshot().snapshot_id
        assert after[new][1] == table.current_snapshot().sequence_number

    @pytest.mark.costly
    def test_row_ids_stay_over_the_next_merges(self, catalog):
        seen = {}
        for i in range(20):
            plan(catalog, Append("a", ids(i))).commit()
            facts = self.facts(catalog)
            assert {path: facts[path] for path in seen} == seen
            seen = facts
        assert len(self.manifests(catalog)) < 10
        assert len(seen) == 20

    @pytest.mark.costly
    def test_deleted_files_do_not_come_back(self, catalog):
        for i in range(7):
            plan(catalog, Append("a", ids(i, 50 + i))).commit()
            plan(catalog, CopyOnWriteDelete(ids(50 + i))).commit()
        assert sorted(i for _, i in rows_of(catalog)) == list(range(7))

    def test_a_lost_race_merges_again_only_what_is_there(self, catalog):
        for i in range(3):
            plan(catalog, Append("a", ids(i))).commit()
        planned = plan(catalog, Append("a", ids(3)))
        rival = lambda inner, table: plan(inner, Append("a", ids(99))).commit()  # noqa: E731
        planned.commit(catalog=FaultyCatalog(catalog, [Fault.CONFLICT] * 3, rival=rival))
        assert rows_of(catalog).total() == 7
        table = Table.load(catalog, NAME)
        named = {m.manifest_path for s in table.snapshots() for m in read_manifests(table.io, s)}
        named |= {s.manifest_list for s in table.snapshots()}
        lying = {status.location for status in table.io.list(f"{table.location}/metadata")}
        assert {path for path in lying if path.endswith(".avro")} == named


class TestManyAreRead:
    """A hundred manifests of a distant store, one after the other, would take longer than a race lasts."""

    def test_at_the_same_time(self):
        class Together(FaultyFileIO):
            """Answers for a manifest when two are asked for."""

            meeting = None

            def read(self, location, **which):
                if self.meeting is not None and location.endswith("-m0.avro"):
                    self.meeting.wait()
                return super().read(location, **which)

        catalog = MemoryCatalog(io=Together(MemoryCatalog().io))
        make_table(catalog, 2, **{MIN_COUNT: "10"})
        for i in range(9):
            plan(catalog, Append("a", ids(i))).commit()
        planned = plan(catalog, Append("a", ids(9)))
        catalog.io.meeting = threading.Barrier(2, timeout=300)
        planned.commit()
        catalog.io.meeting = None
        table = Table.load(catalog, NAME)
        assert len(read_manifests(table.io, table.current_snapshot())) == 1
        assert sorted(i for _, i in rows_of(catalog)) == list(range(10))


class TestMergingIsNeverNeeded:
    """A manifest that cannot be read is no reason to refuse an append that does not touch it."""

    def test_all_stay_as_they_are(self, caplog):
        catalog = MemoryCatalog(io=FaultyFileIO(MemoryCatalog().io))
        make_table(catalog, 2, **{MIN_COUNT: "3"})
        plan(catalog, Append("a", ids(1))).commit()
        plan(catalog, Append("a", ids(2))).commit()
        planned = plan(catalog, Append("a", ids(3)))
        catalog.io.rules = [FileRule(call="read", fault=FileFault.FAIL, matching="-m0.avro")]
        planned.commit()
        assert rows_of(catalog).total() == 3
        assert "left 3 small manifests" in caplog.text


class TestAcrossAnUpgrade:
    """Manifests of before the upgrade have no row ids; merged, all their rows get some, once."""

    def test_old_and_new_files_get_different_row_ids(self):
        catalog = MemoryCatalog()
        make_table(catalog, 2, **{MIN_COUNT: "3"})
        for i in range(2):
            plan(catalog, Append("a", ids(i, i + 10))).commit()
        catalog.commit(catalog.load(NAME), MetadataChange(updates=(UpgradeFormatVersion(format_version=3),)))
        for i in range(2, 9):
            plan(catalog, Append("a", ids(i, i + 10))).commit()
        table = Table.load(catalog, NAME)
        found = table.scan(selected_fields=("id", "_row_id")).to_arrow()
        assert len(set(found["_row_id"].to_pylist())) == 18
        assert None not in found["_row_id"].to_pylist()
        assert max(found["_row_id"].to_pylist()) < table.metadata.next_row_id

    @pytest.mark.costly
    def test_delete_manifests_are_merged_as_well(self):
        catalog = MemoryCatalog()
        make_table(catalog, 3, **{MIN_COUNT: "3"})
        for i in range(5):
            plan(catalog, Append("a", ids(i, 100 + i))).commit()
        for i in range(5):
            plan(catalog, MergeOnReadDelete(ids(100 + i))).commit()
        table = Table.load(catalog, NAME)
        manifests = read_manifests(table.io, table.current_snapshot())
        assert len([m for m in manifests if m.content is ManifestContent.DELETES]) < 5
        assert sorted(i for _, i in rows_of(catalog)) == list(range(5))
