"""Rewriting files and manifests changes no row; overwriting opens only the manifests that may matter."""

import dataclasses
from collections import Counter

import pytest

from airflow_iceberg.commit.actions.rewrite_files import RewriteFiles
from airflow_iceberg.commit.actions.rewrite_manifests import RewriteManifests
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.settings import settings_for
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import EntryStatus, FileContent, ManifestContent
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.table import Table
from tests.support.builders import id_rows
from tests.support.changes import (
    NAME,
    Append,
    Change,
    Compact,
    CopyOnWriteDelete,
    DeletePartition,
    EqualityDelete,
    MergeOnReadDelete,
    Overwrite,
    RewriteAllManifests,
    ids,
    live_entries,
    make_table,
    plan,
    rows_of,
    write_equality_deletes,
    write_position_deletes,
    write_vector,
)
from tests.support.memory import FaultyFileIO, MemoryCatalog, MemoryFileIO


@pytest.fixture
def catalog():
    catalog = MemoryCatalog(io=FaultyFileIO(MemoryFileIO()))
    make_table(catalog, 3)
    for part in ("b", "a", "c"):
        plan(catalog, Append(part, ids(1, 2, 3))).commit()
    return catalog


@dataclasses.dataclass(frozen=True)
class Upsert(Change):
    """New rows, with deletes of older ones by key and of some of the new ones by position, all in one commit.

    So do writers of streams, to whom a row may come twice between two commits.
    """

    part: str
    ids: frozenset[int]
    keys: frozenset[int]
    gone: frozenset[int]

    def action(self, work):
        numbers = sorted(self.ids)
        (file,) = work.write((self.part, i) for i in numbers)
        write = write_vector if work.table.metadata.format_version >= 3 else write_position_deletes
        deletes = (
            write_equality_deletes(work.table, self.part, self.keys),
            write(work.table.io, file, [numbers.index(i) for i in self.gone]),
        )
        return RowDelta(
            work.table.io, work.settings, added_data=(file,), added_deletes=deletes, command="update", **work.common
        )


def table(catalog):
    return Table.load(catalog, NAME)


def facts(catalog):
    """What the entry of each live file says, but for its status."""
    return {
        entry.data_file.identity: dataclasses.replace(entry, status=EntryStatus.EXISTING)
        for entry in live_entries(table(catalog))
    }


class TestRewritingManifests:
    """The same entries, existing ones all, sorted by partition; no deleted one comes back."""

    def rewrite(self, catalog, **options):
        action = RewriteManifests(catalog.io, settings_for(table(catalog).metadata), **options)
        return table(catalog).commit(action)

    @pytest.mark.costly
    def test_every_entry_stays_what_it_is(self, catalog):
        plan(catalog, CopyOnWriteDelete(ids(2))).commit()
        plan(catalog, MergeOnReadDelete(ids(1))).commit()
        before = facts(catalog)
        self.rewrite(catalog, only_if_better=False)
        assert facts(catalog) == before
        manifests = read_manifests(catalog.io, table(catalog).current_snapshot())
        assert sorted(m.content for m in manifests) == [ManifestContent.DATA, ManifestContent.DELETES]
        entries = [entry for m in manifests for entry in read_entries(catalog.io, m)]
        assert {entry.status for entry in entries} == {EntryStatus.EXISTING}

    def test_the_summary_counts(self, catalog):
        written = self.rewrite(catalog)
        summary = table(catalog).metadata.snapshot(written.snapshot_id).summary
        assert written.operation == "replace"
        names = ("manifests-created", "manifests-kept", "manifests-replaced", "entries-processed", "total-records")
        assert [summary[name] for name in names] == ["1", "0", "3", "3", "9"]

    def test_entries_are_sorted_by_partition(self, catalog):
        plan(catalog, Append(None, ids(4))).commit()
        self.rewrite(catalog)
        (manifest,) = read_manifests(catalog.io, table(catalog).current_snapshot())
        found = [entry.data_file.partition for entry in read_entries(catalog.io, manifest)]
        assert found == [(None,), ("a",), ("b",), ("c",)]

    def test_the_target_size_tells_how_many(self, catalog):
        size = sum(m.manifest_length for m in read_manifests(catalog.io, table(catalog).current_snapshot()))
        self.rewrite(catalog, target_size_bytes=size // 2 + 1, only_if_better=False)
        assert len(read_manifests(catalog.io, table(catalog).current_snapshot())) == 2

    def test_what_is_good_already_is_left(self, catalog):
        self.rewrite(catalog)
        assert self.rewrite(catalog).outcome == "nothing"

    def test_a_file_stays_in_all_places_where_the_table_lists_it(self, catalog):
        files = [entry.data_file for entry in live_entries(table(catalog))]
        action = plan(catalog, Append("a", ids(9))).action
        action._files = (files[0],)
        table(catalog).commit(action)
        before = rows_of(catalog)
        assert self.rewrite(catalog).outcome == "committed"
        assert rows_of(catalog) == before
        assert len(live_entries(table(catalog))) == len(files) + 1

    @pytest.mark.parametrize("size", [0, -1])
    def test_a_target_below_1_is_refused(self, catalog, size):
        with pytest.raises(InvalidInputError, match="expected at least 1"):
            self.rewrite(catalog, target_size_bytes=size)


class TestRewritingFiles:
    """Rows can only become fewer by those that were deleted already; deletes that come meanwhile win."""

    def test_more_rows_than_before_are_refused(self, catalog):
        files = [entry.data_file for entry in live_entries(table(catalog))]
        with pytest.raises(InvalidInputError, match="its new files hold 6 rows, those that they replace 3"):
            RewriteFiles(
                catalog.io,
                settings_for(table(catalog).metadata),
                removed=files[:1],
                added=files[1:],
                written_schema=table(catalog).schema(),
                starting_snapshot_id=1,
            )

    def test_new_files_have_the_number_of_the_snapshot_that_was_read(self, catalog):
        planned = plan(catalog, Compact("a"))
        plan(catalog, Append("a", ids(7))).commit()
        planned.commit()
        numbers = Counter((e.sequence_number, e.file_sequence_number) for e in live_entries(table(catalog)))
        # b, c, the append meanwhile, and the compaction: of 3 by its data, of 5 by its commit.
        assert numbers == Counter([(1, 1), (3, 3), (4, 4), (3, 5)])

    def test_equality_deletes_that_came_meanwhile_still_apply(self, catalog):
        planned = plan(catalog, Compact("a"))
        plan(catalog, EqualityDelete("a", ids(2))).commit()
        planned.commit()
        assert ("a", 2) not in rows_of(catalog)
        assert rows_of(catalog).total() == 8

    def test_they_do_where_no_older_file_is_left(self):
        catalog = MemoryCatalog()
        make_table(catalog, 2)
        plan(catalog, Append("a", ids(1, 2))).commit()
        planned = plan(catalog, Compact())
        plan(catalog, EqualityDelete("a", ids(2))).commit()
        planned.commit()
        assert rows_of(catalog) == {("a", 1): 1}

    def test_vectors_of_the_files_go_with_them(self, catalog):
        plan(catalog, MergeOnReadDelete(ids(2))).commit()
        plan(catalog, Compact("a")).commit()
        left = [e.data_file.partition for e in live_entries(table(catalog)) if e.data_file.content != 0]
        assert sorted(left) == [("b",), ("c",)]


class TestDeletesThatApplyToNothing:
    """They go with the next change that removes data: older than all data that is left."""

    def test_old_ones_go(self, catalog):
        plan(catalog, EqualityDelete("a", ids(2))).commit()
        for part in "abc":
            plan(catalog, Overwrite(part, ids(5))).commit()
        assert [e for e in live_entries(table(catalog)) if e.data_file.content != 0] == []

    def test_those_that_may_apply_stay(self, catalog):
        plan(catalog, EqualityDelete("a", ids(2))).commit()
        plan(catalog, Overwrite("b", ids(5))).commit()
        assert len([e for e in live_entries(table(catalog)) if e.data_file.content != 0]) == 1

    @pytest.mark.costly
    @pytest.mark.parametrize("version", [2, 3])
    def test_those_as_old_as_the_oldest_data_go_with_it_and_not_before(self, version):
        """Deletes by position apply to data of their own number, deletes by key to older data alone."""
        catalog = MemoryCatalog()
        make_table(catalog, version)
        plan(catalog, Append("a", ids(2, 4))).commit()
        plan(catalog, Upsert("a", ids(1, 2, 3), keys=ids(2), gone=ids(3))).commit()
        assert rows_of(catalog) == {("a", 1): 1, ("a", 2): 1, ("a", 4): 1}
        plan(catalog, CopyOnWriteDelete(ids(4))).commit()
        numbers = [(e.data_file.content, e.sequence_number) for e in live_entries(table(catalog))]
        assert {(FileContent.DATA, 2), (FileContent.POSITION_DELETES, 2)} <= set(numbers)
        assert min(number for _, number in numbers) == 2
        assert rows_of(catalog) == {("a", 1): 1, ("a", 2): 1}
        plan(catalog, Compact("a")).commit()
        assert [e.data_file.content for e in live_entries(table(catalog))] == [FileContent.DATA]
        assert rows_of(catalog) == {("a", 1): 1, ("a", 2): 1}


class TestManifestsThatCannotMatter:
    """They are not opened, and kept as they are."""

    @pytest.mark.parametrize("change", [Overwrite("a", ids(9)), DeletePartition("a"), CopyOnWriteDelete(ids(77))])
    def test_other_partitions(self, catalog, change):
        before = {m.manifest_path for m in read_manifests(catalog.io, table(catalog).current_snapshot())}
        planned = plan(catalog, change)
        catalog.io.calls.clear()
        planned.commit()
        opened = {path for call, path in catalog.io.calls if call == "read"} & before
        assert len(opened) <= 1
        kept = {m.manifest_path for m in read_manifests(catalog.io, table(catalog).current_snapshot())}
        assert before - opened <= kept

    @pytest.mark.parametrize(("races", "reads"), [(0, 1), (2, 2)])
    def test_a_vector_opens_no_data_manifest_once_more_for_each_attempt(self, catalog, monkeypatch, races, reads):
        """To look whether its file is in another partition, too: readers would not know which rows the vector means.

        After a lost race the place of its file is looked for, too, which another writer may have removed.
        """
        before = [m.manifest_path for m in read_manifests(catalog.io, table(catalog).current_snapshot())]
        planned, swap, others = plan(catalog, MergeOnReadDelete(ids(2))), catalog.swap_pointer, ["b"] * races

        def lose(*args, **more):
            if others and others[0] == "b":
                others[0] = "committing"
                plan(catalog, Append("b", ids(4))).commit()
                others.pop(0)
            return swap(*args, **more)

        monkeypatch.setattr(catalog, "swap_pointer", lose)
        catalog.io.calls.clear()
        planned.commit()
        opened = Counter(path for call, path in catalog.io.calls if call == "read")
        assert [opened[path] for path in before] == [reads] * 3

    def test_a_vector_opens_no_data_manifest_of_a_table_without_partitions(self):
        catalog = MemoryCatalog(io=FaultyFileIO(MemoryFileIO()))
        whole = Table.create(catalog, "db.t", schema={"id": "long"}, properties={"format-version": "3"})
        whole.append(id_rows([1, 2, 3]))
        (manifest,) = read_manifests(catalog.io, whole.current_snapshot())
        catalog.io.calls.clear()
        whole.delete("id = 2", mode="merge-on-read")
        # It is planned by it.
        assert [path for call, path in catalog.io.calls if call == "read"].count(manifest.manifest_path) == 1

    def test_rewriting_all_opens_all(self, catalog):
        planned = plan(catalog, RewriteAllManifests())
        catalog.io.calls.clear()
        planned.commit()
        assert len([path for call, path in catalog.io.calls if call == "read" and path.endswith("-m0.avro")]) == 3
