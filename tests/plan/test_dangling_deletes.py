"""Delete files that apply to nothing: the rules, and never one that still applies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.format.manifests.entries import ManifestEntry
from airflow_iceberg.plan.dangling_deletes import dangling_deletes
from airflow_iceberg.plan.deletes import FILE_PATH_ID, DeleteIndex
from tests.plan.test_deletes import EQUALITY, METADATA, NAN, POSITION, entry, vector


def dangling(deletes: list[ManifestEntry], *data: ManifestEntry) -> list[str]:
    found = dangling_deletes([(one.data_file, one.sequence_number) for one in data], deletes, METADATA)
    return [file.file_path for file in found]


def in_partition(path: str, number: int, value: float | None, **more: object) -> ManifestEntry:
    return entry(path, number, spec_id=0, partition=(value,), **more)


class TestRules:
    """A delete dangles when no data file of its scope is old enough for it."""

    @pytest.mark.parametrize(("content", "needed"), [(POSITION, [4, 5]), (EQUALITY, [4])])
    def test_positions_reach_rows_of_their_own_commit_and_equality_deletes_do_not(self, content, needed):
        delete = in_partition("x", 5, 1.0, content=content)
        assert [number for number in (4, 5, 6) if not dangling([delete], in_partition("a", number, 1.0))] == needed

    @pytest.mark.parametrize("content", [POSITION, EQUALITY])
    def test_files_of_other_partitions_and_specs_do_not_count(self, content):
        others = [in_partition("a", 1, 2.0), in_partition("b", 1, None), entry("c", 1), entry("d", 1, 3, (1,))]
        assert dangling([in_partition("x", 5, 1.0, content=content)], *others) == ["x"]

    def test_partitions_are_compared_by_value(self):
        assert dangling([in_partition("x", 5, NAN, content=POSITION)], in_partition("a", 1, -NAN)) == []

    @pytest.mark.parametrize(("spec_id", "partition"), [(1, ()), (2, (None,))])
    def test_global_equality_deletes_are_held_against_the_whole_table(self, spec_id, partition):
        delete = entry("x", 5, spec_id, partition, content=EQUALITY)
        assert dangling([delete], in_partition("a", 4, 1.0), entry("b", 9)) == []
        assert dangling([delete], in_partition("a", 5, 1.0), entry("b", 9)) == ["x"]

    def test_global_positions_are_not(self):
        assert dangling([entry("x", 5, content=POSITION)], in_partition("a", 4, 1.0), entry("b", 9)) == ["x"]

    def test_a_vector_goes_with_its_file_and_does_not_reach_a_newer_one(self):
        vectors = [vector("p", 5, "a"), vector("p", 5, "b", content_offset=9)]
        assert dangling(vectors, entry("a", 1), entry("c", 1)) == ["p"]
        assert dangling([vector("p", 5, "a")], entry("a", 6)) == ["p"]

    def test_of_a_file_in_several_places_the_oldest_counts(self):
        assert dangling([vector("p", 5, "a")], entry("a", 1), entry("a", 6)) == []
        assert dangling([vector("p", 5, "a")], entry("a", 6), entry("a", 7)) == ["p"]

    def test_positions_about_one_file_go_with_it_though_others_are_as_old(self):
        bounds = {FILE_PATH_ID: b"gone"}
        delete = entry("x", 5, content=POSITION, lower_bounds=bounds, upper_bounds=bounds)
        assert dangling([delete], entry("a", 1)) == ["x"]

    def test_without_data_all_dangle(self):
        assert dangling([entry("x", 5, content=EQUALITY), vector("p", 5, "a")]) == ["x", "p"]


NUMBERS, PLACES = st.integers(1, 4), st.sampled_from([(1, ()), (0, (1.0,)), (0, (2.0,)), (2, (None,))])


class TestNeverTooMuch:
    """No delete that applies to a data file dangles."""

    @pytest.mark.costly
    @given(
        st.lists(st.tuples(NUMBERS, PLACES), max_size=5),
        st.lists(st.tuples(NUMBERS, PLACES, st.sampled_from([POSITION, EQUALITY])), max_size=6),
        st.lists(st.tuples(NUMBERS, st.integers(0, 6)), max_size=3, unique_by=lambda one: one[1]),
    )
    def test_what_the_index_finds_does_not_dangle(self, data, deletes, vectors):
        files = [entry(f"d{n}", number, *place) for n, (number, place) in enumerate(data)]
        found = [entry(f"x{n}", number, *place, content=kind) for n, (number, place, kind) in enumerate(deletes)]
        for number, of in vectors:
            spec_id, partition = data[of][1] if of < len(data) else (1, ())
            found.append(vector(f"v{of}", number, f"d{of}", spec_id=spec_id, partition=partition))
        index = DeleteIndex(found, metadata=METADATA)
        applied = {file.file_path for one in files for file in index.of(one)}
        assert not applied & set(dangling(found, *files))
