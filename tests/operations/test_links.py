"""Symbolic links below a table's location, put there by somebody else: none of them leads this process elsewhere."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import IcebergError, StorageError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.quarantine import restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from airflow_iceberg.table import Table
from tests.support.builders import age, folder_of, id_rows, ids, job_work, litter, new_table

LINK = r"is a symbolic link; below a table's location none is followed"
# The gate looks first, at where a path leads; what has changed since, the store refuses.
REFUSED = r"is outside of the (locations that its table may use|table's own locations)|is a symbolic link"
NAME = "20260101T000000.000-abc"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path / "lake")
    table.append(id_rows(range(5)))
    table.append(id_rows(range(5, 10)))
    return table


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder with old files, which nobody has changed after the test."""
    folder = tmp_path / "elsewhere"
    names = ("dag.py", "inner/plan.json", f"{NAME}/list.jsonl", f"{NAME}/files/x", "expire-1/2/expired.json")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"version": 1, "moved-at-ms": 1}))
    age(folder)
    before = content(folder)
    yield folder
    assert content(folder) == before


class TestAHadoopTable:
    """Its directory is where the catalog looks first, before any metadata says where the table is."""

    @pytest.fixture
    def catalog(self, tmp_path: Path) -> Any:
        catalog = load_catalog("c", type="hadoop", warehouse=f"file://{tmp_path}/wh")
        catalog.create_namespace("db")
        for name in ("victim", "own"):
            Table.create(catalog, f"db.{name}", schema={"id": "long"}).append(id_rows([1]))
        return load_catalog("c", type="hadoop", warehouse=f"file://{tmp_path}/wh")

    def test_its_metadata_does_not_lead_to_another_table(self, catalog: Any, tmp_path: Path) -> None:
        folder = tmp_path / "wh" / "db"
        shutil.rmtree(folder / "own" / "metadata")
        (folder / "own" / "metadata").symlink_to(folder / "victim" / "metadata")
        before = content(folder / "victim")
        for use in (catalog.load, catalog.table_exists, catalog.drop_table):
            with pytest.raises(StorageError, match=LINK):
                use("db.own")
        assert content(folder / "victim") == before

    def test_nor_a_new_one_out_of_the_warehouse(self, catalog: Any, tmp_path: Path, elsewhere: Path) -> None:
        (tmp_path / "wh" / "db" / "new").mkdir()
        (tmp_path / "wh" / "db" / "new" / "metadata").symlink_to(elsewhere)
        with pytest.raises(StorageError, match=LINK):
            Table.create(catalog, "db.new", schema={"id": "long"})

    def test_a_directory_that_is_a_link_is_not_dropped(self, catalog: Any, tmp_path: Path) -> None:
        folder = tmp_path / "wh" / "db"
        (folder / "alias").symlink_to(folder / "victim")
        before = content(folder / "victim")
        with pytest.raises(StorageError, match=LINK):
            catalog.drop_table("db.alias")
        assert content(folder / "victim") == before


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def link(table: Table, name: str, target: Path) -> Path:
    """Put a link below the table, in the place of what is there."""
    path = folder_of(table) / name
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


FOLDERS = (".staging", ".staging/job", ".quarantine", f".quarantine/{NAME}", f".quarantine/{NAME}/files", "data/more")


class TestMaintenance:
    """What lies behind a link is neither listed nor deleted nor moved."""

    @pytest.mark.parametrize("folder", FOLDERS)
    @pytest.mark.parametrize("action", ["delete", "quarantine"])
    def test_a_removal_of_orphan_files(self, folder: str, action: str, table: Table, elsewhere: Path) -> None:
        litter(table, "data/orphan.parquet")
        place = link(table, folder, elsewhere)
        request = RemoveOrphanFilesRequest(action=action, purge_older_than_ms=2**62)
        try:
            remove_orphan_files(Work(table), request)
        except IcebergError as error:
            assert re.search(REFUSED, str(error))  # noqa: PT017 - whether it can go on depends on the folder
        assert place.is_symlink()

    @pytest.mark.parametrize("folder", FOLDERS)
    def test_an_expiry(self, folder: str, table: Table, elsewhere: Path) -> None:
        link(table, folder, elsewhere)
        try:
            expire_snapshots(Work(table), ExpireSnapshotsRequest())
        except IcebergError as error:
            assert re.search(REFUSED, str(error))  # noqa: PT017

    def test_a_link_to_a_file_is_no_orphan_file(self, table: Table, elsewhere: Path) -> None:
        place = link(table, "data/link.parquet", elsewhere / "dag.py")
        os.utime(place, (1, 1), follow_symlinks=False)
        for action in ("quarantine", "delete"):
            assert remove_orphan_files(Work(table), RemoveOrphanFilesRequest(action=action)).orphan_files == 0
        assert place.is_symlink()

    def test_a_folder_that_becomes_a_link_between_its_listing_and_the_deletion(
        self, table: Table, elsewhere: Path, monkeypatch: Any
    ) -> None:
        (orphan,) = litter(table, "data/inner/plan.json")
        delete = FsspecFileIO.delete

        def swapped_before(self: Any, locations: Any) -> None:
            link(table, "data/inner", elsewhere / "inner")
            delete(self, locations)

        monkeypatch.setattr(FsspecFileIO, "delete", swapped_before)
        with pytest.raises(StorageError, match=LINK):
            remove_orphan_files(Work(table), RemoveOrphanFilesRequest(action="delete"))
        assert orphan.exists()

    def test_a_restored_file_does_not_leave_the_table(self, table: Table, elsewhere: Path) -> None:
        (orphan,) = litter(table, "data/inner/evil.py")
        name = remove_orphan_files(Work(table), RemoveOrphanFilesRequest()).quarantine
        assert name is not None
        assert not orphan.exists()
        link(table, "data/inner", elsewhere)
        with pytest.raises(StorageError, match=LINK):
            restore_quarantine(Work(table), name)
        assert not (elsewhere / "evil.py").exists()

    def test_nor_is_one_read_through_a_link(self, table: Table, elsewhere: Path) -> None:
        """Otherwise a file that only this process may read would become one of the table's."""
        litter(table, "data/stolen.txt", data=(elsewhere / "dag.py").read_bytes())
        name = remove_orphan_files(Work(table), RemoveOrphanFilesRequest()).quarantine
        assert name is not None
        link(table, f".quarantine/{name}/files/data", elsewhere)
        assert restore_quarantine(Work(table), name).restored_files == 0
        assert not (folder_of(table) / "data" / "stolen.txt").exists()

    def test_folders_without_an_end(self, table: Table) -> None:
        folder = os.open(folder_of(table) / "data", os.O_RDONLY)
        for _ in range(220):
            os.mkdir("d", dir_fd=folder)
            inner = os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(folder)
        with pytest.raises(StorageError, match="more than 200 folders in each other"):
            remove_orphan_files(Work(table), RemoveOrphanFilesRequest())
        subprocess.run(["rm", "-r", str(folder_of(table) / "data" / "d")], check=True)  # `shutil` is recursive

    def test_a_pipe_in_the_place_of_a_document(self, table: Table) -> None:
        """It would be read for ever."""
        place = folder_of(table) / ".quarantine" / NAME / "list.jsonl"
        place.parent.mkdir(parents=True)
        os.mkfifo(place)
        with pytest.raises(StorageError, match="not a regular file"):
            restore_quarantine(Work(table), NAME)


class TestWriting:
    """Documents of jobs and data files are written below the table."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        pq.write_table(id_rows(range(20, 25)), tmp_path / "source.parquet")
        return Source.from_files([str(tmp_path / "source.parquet")])

    @pytest.mark.parametrize("folder", [".staging", "data", "metadata"])
    def test_an_append(self, folder: str, table: Table, source: Source, elsewhere: Path) -> None:
        backup = folder_of(table).with_name("backup")
        place = folder_of(table) / folder
        if place.exists():
            shutil.copytree(place, backup)
        link(table, folder, elsewhere)
        with pytest.raises(IcebergError, match=REFUSED):
            append(job_work(table), AppendRequest(rows=source))

    def test_an_append_of_this_process(self, table: Table, elsewhere: Path) -> None:
        link(table, "data", elsewhere)
        with pytest.raises(IcebergError, match=REFUSED):
            table.append(id_rows(range(3)))

    def test_a_data_file_that_is_a_link_is_not_read(self, table: Table, tmp_path: Path) -> None:
        """A compaction would copy rows that only this process may read."""
        pq.write_table(id_rows(range(100, 105)), tmp_path / "secret.parquet")
        mine = Path(next(task.file.file_path for task in table.scan().plan_files()).removeprefix("file://"))
        mine.unlink()
        mine.symlink_to(tmp_path / "secret.parquet")
        with pytest.raises(IcebergError, match=REFUSED):
            table.scan().to_arrow()
        with pytest.raises(IcebergError, match=REFUSED):
            compact(job_work(table), CompactRequest(options={"rewrite-all": True}))


class TestHonestLinks:
    """Links above the table's location are the owner's."""

    def test_a_warehouse_that_is_one(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "lake").symlink_to(tmp_path / "real")
        table = new_table(tmp_path / "lake")
        table.append(id_rows(range(5)))
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        litter(table, "data/orphan.parquet")
        name = remove_orphan_files(Work(table), RemoveOrphanFilesRequest()).quarantine
        assert name is not None
        assert restore_quarantine(Work(table), name).restored_files == 1
        assert expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62)).outcome == "committed"
        assert ids(Table.load(table.catalog, "db.t")) == list(range(5))

    def test_a_table_that_is_one_is_refused(self, table: Table, tmp_path: Path) -> None:
        """Who can write in a folder of the warehouse would decide where its tables are."""
        folder = folder_of(table)
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
        trusted = {"warehouse": (tmp_path / "lake").as_uri(), "allowed-locations": (tmp_path / "moved").as_uri()}
        for use in (
            lambda: table.append(id_rows([10])),
            lambda: load_catalog("c", type="hadoop", **trusted).load("db.t"),
        ):
            with pytest.raises(StorageError, match=LINK):
                use()
