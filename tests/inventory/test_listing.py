"""Listing a table: the same files whether in one go or folder by folder."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.inventory.listed_files import ENOUGH_FOLDERS, METADATA, OLD, STAGED, find_folders, statuses
from airflow_iceberg.inventory.units import ListingUnit, listing_units, read_outcome, run_unit
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.support.builders import age

IO = load_file_io({})
NAMES = (
    "metadata/v1.metadata.json", "metadata/m0.avro", "data/day=1/hour=2/a.parquet", "data/day=1/hour=3/a.parquet",
    "data/day=2/a.parquet", "data/_day=2/b.parquet", "data/_tmp/b.parquet", "data/x y/é%20/c.parquet",
    ".staging/try/plan.json", ".quarantine/run/files/data/z.parquet", "inner/metadata/00001-x.gz.metadata.json",
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> str:
    for name in NAMES:
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    age(tmp_path)
    return f"{(tmp_path / 't').as_uri()}/"


def unit(root: str) -> ListingUnit:
    return ListingUnit(root=root, partition_names=("_day", "day"), before_ms=int(time.time() * 1000))


def listed(io: FileIO, units: list[ListingUnit]) -> tuple[int, dict[str, int]]:
    outcomes = [read_outcome(run_unit(io, one)) for one in units]
    found = [one for outcome in outcomes for batch in outcome.batches() for one in statuses(batch)]
    assert len({status.location for status, _ in found}) == len(found)
    return sum(outcome.files for outcome in outcomes), {
        status.location.removeprefix(units[0].root): kind for status, kind in found
    }


class TestWhatIsListed:
    """Files that are old, documents of jobs, metadata files; nothing that is hidden, and no quarantine."""

    def test_in_one_go(self, root: str) -> None:
        count, found = listed(IO, [unit(root)])
        assert found == {
            "metadata/v1.metadata.json": OLD | METADATA,
            "inner/metadata/00001-x.gz.metadata.json": OLD | METADATA,
            ".staging/try/plan.json": STAGED,
            **{name: OLD for name in NAMES if name.endswith(("a.parquet", "c.parquet", ".avro", "_day=2/b.parquet"))},
        }
        assert count == len(NAMES) - 2

    def test_folder_by_folder(self, root: str) -> None:
        units = listing_units(unit(root), find_folders(IO, root))
        assert len(units) > 5
        assert listed(IO, units) == listed(IO, [unit(root)])

    def test_young_files_are_no_orphans_but_may_be_another_tables_metadata(self, root: str) -> None:
        before = ListingUnit(root=root, partition_names=("_day", "day"), before_ms=0)
        _, found = listed(IO, [before])
        assert {kind for name, kind in found.items() if name.endswith(".metadata.json")} == {METADATA}
        assert set(found) == {name for name in NAMES if name.endswith("metadata.json")} | {".staging/try/plan.json"}

    def test_files_of_one_folder_are_told_apart(self, root: str) -> None:
        folder = Path(root.removeprefix("file://"), "data", "day=3")
        folder.mkdir()
        for name in ("a.parquet", "_b.parquet", ".c.parquet", "_day=4.parquet", "d.metadata.json"):
            (folder / name).touch()
        age(folder)
        _, found = listed(IO, [unit(root)])
        assert {name.rpartition("/")[2]: kind for name, kind in found.items() if "day=3/" in name} == {
            "a.parquet": OLD,
            "_day=4.parquet": OLD,
            "d.metadata.json": OLD | METADATA,
        }

    def test_many_folders_are_dealt_out_to_some_units(self, root: str) -> None:
        units = listing_units(unit(root), [f"data/{number}" for number in range(1000)])
        assert len(units) == 250
        assert [folder for one in units for folder in one.folders] == [f"data/{number}" for number in range(1000)]


class TestTakingFoldersApart:
    """A folder is listed in parts only where its folders hold all its files; what listing leaves is not entered."""

    def test_a_folder_with_a_file_of_its_own_stays_whole(self, root: str) -> None:
        Path(root.removeprefix("file://"), "data", "stray.parquet").write_bytes(b"x")
        folders = find_folders(IO, root)
        assert "data" in folders
        assert not [name for name in folders if name.startswith("data/")]

    def test_a_link_is_not_followed(self, root: str, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "of-others.parquet").write_bytes(b"x")
        Path(root.removeprefix("file://"), "data", "link").symlink_to(elsewhere)
        folders = find_folders(IO, root)
        assert "data" in folders
        assert listed(IO, listing_units(unit(root), folders)) == listed(IO, [unit(root)])

    def test_where_there_are_folders_enough_none_of_them_is_opened(self, tmp_path: Path) -> None:
        days = [f"data/day={number:03d}" for number in range(ENOUGH_FOLDERS)]
        for day in days:
            (tmp_path / day).mkdir(parents=True)
        opened: list[str] = []

        class Counting(FsspecFileIO):
            def directory(self, location: str, verb: str) -> Any:
                opened.append(location)
                return super().directory(location, verb)

        assert find_folders(Counting(), f"{tmp_path.as_uri()}/") == days
        assert opened == [tmp_path.as_uri(), f"{tmp_path.as_uri()}/data"]

    def test_below_one_folder(self, root: str) -> None:
        assert set(find_folders(IO, root, "data/day=1")) == {"data/day=1/hour=2", "data/day=1/hour=3"}

    def test_a_table_without_any_folder(self, tmp_path: Path) -> None:
        assert find_folders(IO, f"{tmp_path.as_uri()}/none/") == [""]

    def test_names_that_are_not_utf_8(self, tmp_path: Path) -> None:
        path = tmp_path / "t" / "data" / os.fsdecode(b"\xff.parquet")
        path.parent.mkdir(parents=True)
        path.touch()
        age(path)
        root = f"{(tmp_path / 't').as_uri()}/"
        count, found = listed(IO, [unit(root)])
        assert count == 1
        assert [os.fsencode(name) for name in found] == [b"data/\xff.parquet"]
