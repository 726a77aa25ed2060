"""Paths compared by their hashes, and by nothing else of a location."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.plan.path_hashes import (
    FirstOfEach,
    HashSet,
    PathSet,
    SpelledFolder,
    _hash_alike,
    _hash_each,
    hash_paths,
    normal_path,
    split_location,
)

LOCATIONS = st.builds(
    lambda store, path: store + path,
    st.sampled_from(
        ["s3://b/", "s3a://b/", "s3://c/", "S3://B/", "file:/", "file:///", "/", "hdfs://n:8020/", "s3://b//"]
    ),
    st.text("ab/%2F é=.", max_size=12),
)


class TestHashes:
    """The hash is of the path, as all its spellings have it; scheme and authority stand beside."""

    @pytest.mark.costly
    @given(st.lists(LOCATIONS, max_size=20))
    def test_many_at_a_time_are_hashed_as_one_by_one(self, locations: list[str]) -> None:
        together = hash_paths(locations)
        assert len(together) == len(locations)
        for place, location in enumerate(locations):
            alone = hash_paths([location])
            assert alone.hashes[0] == together.hashes[place]
            assert together.names[together.stores[place]] == alone.names[0]
            scheme, authority, path = split_location(location)
            assert alone.names[0] == (scheme.lower(), authority.lower())
            assert alone.hashes[0] == hash_paths([f"/{normal_path(path)}".replace("%", "%25")]).hashes[0]

    def test_they_are_the_same_in_every_process(self) -> None:
        assert hash_paths(["s3://bucket/t/data/a.parquet"]).hashes.tolist() == [EXPECTED]

    @pytest.mark.costly
    @given(
        st.lists(st.text("ab/%\n é\udcff=.", min_size=1, max_size=8), min_size=1, max_size=9),
        st.sampled_from(["s3://b/", "file:///real/", "/outer/t/", "file:/outer/t/", "memory://b/"]),
    )
    def test_locations_that_begin_alike_are_hashed_as_others(self, paths: list[str], prefix: str) -> None:
        folders = (SpelledFolder("outer/t", "real"), SpelledFolder("real", "real"))
        locations = [f"{prefix}{path}" for path in paths]
        alike, each = hash_paths(locations, folders), _hash_each(locations, folders)
        assert alike.hashes.tolist() == each.hashes.tolist()
        assert alike.unplaced == each.unplaced
        assert (alike.stores.tolist(), alike.names) == (each.stores.tolist(), each.names)

    def test_those_that_are_spelled_plainly_go_the_short_way(self) -> None:
        assert _hash_alike(["s3://b/t/x", "s3://b/t/y"]) is not None
        assert _hash_alike(["s3://b/t/x", "s3a://b/t/y"]) is None
        folders = (SpelledFolder("outer/t", "real/t"), SpelledFolder("real/t", "real/t"))
        expected = hash_paths(["s3://b/real/t/x", "s3://b/real/t/y"]).hashes.tolist()
        for folder in ("file:///real/t", "file:/outer/t", "/outer/t", "FILE:///outer/t"):
            found = _hash_alike([f"{folder}/x", f"{folder}/y"], folders)
            assert found is not None
            assert (found.hashes.tolist(), found.unplaced) == (expected, ())
        assert _hash_alike(["/outer/t/x", "/real/t/y"], folders) is None
        assert hash_paths(["/outer/t/x", "/real/t/y"], folders).hashes.tolist() == expected

    def test_local_ones_elsewhere_are_marked(self) -> None:
        """Links may lead from there to one of the folders, and `..` anywhere."""
        locations = ["/t/x", "/u/x", "s3://b/x", "file:///t/../u", "/t/%2E%2e/u", "/t", "/tt/x"]
        assert hash_paths(locations, (SpelledFolder("t", "t"),)).unplaced == (1, 3, 4, 6)

    def test_no_paths(self) -> None:
        assert (len(hash_paths([])), hash_paths([]).names) == (0, ())


EXPECTED = 3051619359978979719


class TestSets:
    """What was added is found, whatever the order and however often it came."""

    @pytest.mark.costly
    @given(st.lists(st.lists(st.integers(0, 50))), st.lists(st.integers(0, 50)))
    def test_a_set_of_hashes(self, added: list[list[int]], asked: list[int]) -> None:
        found = HashSet()
        for part in added:
            found.add(np.array(part, np.uint64))
        expected = {one for part in added for one in part}
        assert found.sorted().tolist() == sorted(expected)
        places, is_there = found.places(np.array(asked, np.uint64))
        assert is_there.tolist() == [one in expected for one in asked]
        assert all(
            found.sorted()[place] == one for place, one, there in zip(places, asked, is_there, strict=True) if there
        )

    def test_it_stays_small_while_the_same_comes_again_and_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("airflow_iceberg.plan.path_hashes.UNSORTED", 10)
        found = HashSet()
        for _ in range(100):
            found.add(np.arange(7, dtype=np.uint64))
            assert found._waiting_count <= 16
        assert len(found) == 7

    @pytest.mark.costly
    @given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=4))
    def test_the_first_of_each(self, parts: list[list[int]]) -> None:
        first, found = FirstOfEach(np.zeros(10, np.bool_)), list[int]()
        for part in parts:
            chosen = first(np.array(part, np.intp))
            assert chosen.tolist() == [one not in found and one not in part[:at] for at, one in enumerate(part)]
            found += [one for one, is_first in zip(part, chosen.tolist(), strict=True) if is_first]
        assert sorted(found) == sorted({one for part in parts for one in part})
        assert len(found) == len(set(found))

    def test_paths_are_kept_by_store(self) -> None:
        paths = PathSet()
        paths.add(hash_paths(["s3://a/x", "s3://b/x", "s3://b/y"]))
        found = {name: mask.tolist() for name, mask in paths.find(hash_paths(["/x", "/y", "/z"]).hashes)}
        assert found == {("s3", "a"): [True, False, False], ("s3", "b"): [True, True, False]}
        assert len(paths) == 3
