"""A location is below a folder if every reader of its text says so."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.storage.paths_within import relative_path
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.storage.stores.memory import MemoryStore


class TestBelow:
    """The rest of the path, as it is."""

    @pytest.mark.parametrize("folder", ["s3://bucket/db/t", "s3://bucket/db/t/", "/db/t", "file:///db/t"])
    @pytest.mark.parametrize(
        "path",
        [
            "data/a.parquet",
            "data/part=a%2Fb/ä b.parquet",
            "data/part=100%/x",
            "data/part=%2e/x..y/.hidden/...",
            "a\\b",
            "x%5Cy",
            "~",
        ],
    )
    def test_what_is(self, folder: str, path: str) -> None:
        assert relative_path(f"{folder.rstrip('/')}/{path}", folder) == path

    @pytest.mark.parametrize(
        "location",
        [
            "s3://bucket/db/t",
            "s3://bucket/db/t/",
            "s3://bucket/db/t2/x",
            "s3://bucket/db/other/x",
            "s3://other/db/t/x",
            "s3a://bucket/db/t/x",
            "x/s3://bucket/db/t/x",
            "s3://bucket/db/t/../x",
            "s3://bucket/db/t/a/../../x",
            "s3://bucket/db/t/./x",
            "s3://bucket/db/t//x",
            "s3://bucket/db/t/x/",
            "s3://bucket/db/t/x/..",
            "s3://bucket/db/t/%2e%2e/x",
            "s3://bucket/db/t/%2E./x",
            "s3://bucket/db/t/..%2fx",
            "s3://bucket/db/t/a%2f..%2f..%2fx",
            "s3://bucket/db/t/%252e%252e/x",
            "s3://bucket/db/t/%25252525252e/x",
            "s3://bucket/db/t/..\\x",
            "s3://bucket/db/t/..%5cx",
            "s3://bucket/db/t/x\0",
            "s3://bucket/db/t/x%00",
            "s3://bucket/db/t/x\n",
        ],
    )
    def test_what_is_not(self, location: str) -> None:
        assert relative_path(location, "s3://bucket/db/t") is None

    @pytest.mark.costly
    @given(st.lists(st.sampled_from(["..", ".", "", "a", "%2e", "%2E.", "%2f", "%5c", "%25", "2e", "\\"]), max_size=8))
    def test_no_decoding_leads_out(self, parts: list[str]) -> None:
        path = "/".join(parts)
        if relative_path(f"/t/{path}", "/t") is None:
            return
        for _ in range(10):
            assert not {"..", "."} & set(path.replace("\\", "/").split("/"))
            path = unquote(path)


def test_a_listing_leaves_out_names_that_lead_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store can have them, and a client that joins paths would delete another file."""
    names = ("a/b", "a/../../b", "./a", "a/.", "..", "a..b/c.", ".hidden/x", "a//b")
    monkeypatch.setattr(MemoryStore, "walk", lambda self, path: iter([(name, 1, 1) for name in names]))
    found = [status.location for status in load_file_io().list("memory://x/t")]
    assert found == [f"memory://x/t/{name}" for name in ("a/b", "a..b/c.", ".hidden/x", "a//b")]
