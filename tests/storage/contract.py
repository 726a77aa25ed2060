"""What every `FileIO` promises (`FilesContract`), and every store (`StoreContract`): subclassed and run for real."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from airflow_iceberg.errors import AlreadyExistsError, NotFoundError, StorageError
from airflow_iceberg.inventory.listed_files import find_folders
from airflow_iceberg.storage.conditional_create import Presence, find_directory, require_conditional_create
from airflow_iceberg.storage.directories import remove_empty


class FilesContract:
    """Subclass it, and give the fixtures `io` and `root`, an empty directory."""

    # Reading.

    def test_what_was_created_is_read_whole_or_in_ranges(self, io, root):
        io.create(f"{root}/a/f", b"0123456789")
        assert io.read(f"{root}/a/f") == b"0123456789"
        assert io.read(f"{root}/a/f", length=4) == b"0123"
        assert io.read(f"{root}/a/f", length=100) == b"0123456789"
        assert io.read(f"{root}/a/f", offset=3) == b"3456789"
        assert io.read(f"{root}/a/f", offset=3, length=4) == b"3456"
        assert io.read(f"{root}/a/f", offset=8, length=100) == b"89"
        assert io.read(f"{root}/a/f", offset=10) == b""
        assert io.read(f"{root}/a/f", offset=99, length=1) == b""
        assert io.read(f"{root}/a/f", length=0) == b""

    def test_an_empty_file_is_a_file(self, io, root):
        io.create(f"{root}/empty", b"")
        assert io.exists(f"{root}/empty")
        assert io.read(f"{root}/empty") == io.read(f"{root}/empty", length=5) == b""
        assert io.read(f"{root}/empty", offset=5) == b""

    def test_a_missing_file_is_named(self, io, root):
        for length in (None, 0, 5):
            with pytest.raises(NotFoundError) as raised:
                io.read(f"{root}/nope", length=length)
            assert str(raised.value) == f"cannot read {root}/nope: there is no such file"

    # Creating.

    def test_a_name_is_taken_once_and_keeps_its_bytes(self, io, root):
        io.create(f"{root}/f", b"first")
        for content in (b"second", b"first", b""):
            with pytest.raises(AlreadyExistsError) as raised:
                io.create(f"{root}/f", content)
            assert str(raised.value) == f"cannot create {root}/f: it exists already"
        assert io.read(f"{root}/f") == b"first"

    def test_of_many_at_once_one_succeeds_and_the_others_know(self, io, root):
        def create(place: tuple[str, int]) -> bytes | None:
            content = bytes([place[1]]) * 100
            try:
                io.create(place[0], content)
            except AlreadyExistsError:
                return None
            return content

        for turn in range(8):
            name = f"{root}/turn-{turn}"
            with ThreadPoolExecutor(4) as pool:
                made = list(pool.map(create, [(name, number) for number in range(4)]))
            assert [content for content in made if content] == [io.read(name)]

    def test_nothing_else_is_left_in_the_directory(self, io, root):
        io.create(f"{root}/d/f", b"first")
        with pytest.raises(AlreadyExistsError):
            io.create(f"{root}/d/f", b"second")
        assert [status.location for status in io.list(f"{root}/d")] == [f"{root}/d/f"]

    # Listing.

    def test_files_at_every_depth_are_found_with_size_and_time(self, io, root):
        names = ["a", "b/c", "b/d/e", "b/.hidden", "b/_SUCCESS"]
        for name in names:
            io.create(f"{root}/dir/{name}", name.encode())
        found = {status.location: status for status in io.list(f"{root}/dir")}
        assert {location: status.size_bytes for location, status in found.items()} == {
            f"{root}/dir/{name}": len(name) for name in names
        }
        assert all(1_600_000_000_000 < status.modified_ms < 4_000_000_000_000 for status in found.values())
        assert {status.location for status in io.list(f"{root}/dir/")} == set(found)

    def test_a_neighbour_whose_name_begins_alike_is_not_in_it(self, io, root):
        io.create(f"{root}/table/f", b"")
        io.create(f"{root}/table2/f", b"")
        assert [status.location for status in io.list(f"{root}/table")] == [f"{root}/table/f"]

    def test_what_is_not_there_has_no_files_nor_has_a_file(self, io, root):
        io.create(f"{root}/f", b"")
        assert list(io.list(f"{root}/nope")) == []
        assert list(io.list(f"{root}/f")) == []

    # Deleting, and looking.

    def test_files_are_removed_and_missing_ones_ignored(self, io, root):
        io.create(f"{root}/a", b"")
        io.create(f"{root}/b", b"")
        io.delete([f"{root}/a", f"{root}/nope", f"{root}/no/where", f"{root}/b"])
        assert list(io.list(root)) == []

    def test_a_directory_is_not_a_file(self, io, root):
        io.create(f"{root}/d/f", b"")
        assert io.exists(f"{root}/d/f")
        assert not io.exists(f"{root}/d")
        assert not io.exists(f"{root}/d/f/g")
        assert not io.exists(f"{root}/nope")

    def test_nothing_in_a_name_is_decoded(self, io, root):
        name = f"{root}/day=2026%2F01/x y+z#?*[a]&ü.parquet"
        io.create(name, b"x")
        assert [status.location for status in io.list(root)] == [name]
        assert io.read(name) == b"x"
        assert io.exists(name)
        filesystem, path = io.filesystem(name)
        with filesystem.open(path, "rb") as file:
            assert file.read() == b"x"
        io.delete([name])
        assert list(io.list(root)) == []


class StoreContract(FilesContract):
    """A real store keeps hints and directories, too, and serves data files and forked processes."""

    def test_a_large_file_comes_back_as_it_was(self, io, root):
        content = bytes(range(256)) * 50_000
        io.create(f"{root}/large", content)
        assert io.read(f"{root}/large") == content
        assert io.read(f"{root}/large", offset=6_000_000, length=1_000) == content[6_000_000:6_001_000]

    def test_the_store_is_one_that_tables_can_be_committed_to(self, io, root):
        require_conditional_create(io, root)
        assert list(io.list(root)) == []

    def test_a_hint_is_replaced(self, io, root):
        io.replace(f"{root}/d/hint", b"1")
        io.replace(f"{root}/d/hint", b"23")
        assert io.read(f"{root}/d/hint") == b"23"
        assert [status.location for status in io.list(f"{root}/d")] == [f"{root}/d/hint"]

    def test_folders_that_are_listed_one_by_one_hold_all_files_between_them(self, io, root):
        names = ("data/day=1/a", "data/day=2/x y/b%20c", "data/day=2/é/c", "data/other/d", "metadata/m", ".staging/s/p")
        for name in names:
            io.create(f"{root}/{name}", b"x")
        folders = find_folders(io, f"{root}/")
        assert sorted(s.location for folder in folders for s in io.list(f"{root}/{folder}/")) == sorted(
            f"{root}/{name}" for name in names
        )
        assert len(folders) == len(names)

    def test_directories_are_removed_when_they_are_empty(self, io, root):
        names = ("above/mine/deep/f", "above/mine/g", "above/other/h")
        for name in names:
            io.create(f"{root}/{name}", b"")
        io.delete([f"{root}/above/mine/deep/f"])
        remove_empty(io, f"{root}/above/mine")
        assert sorted(status.location for status in io.list(root)) == [f"{root}/{name}" for name in names[1:]]
        io.delete([f"{root}/above/mine/g"])
        remove_empty(io, f"{root}/above/mine")
        assert find_directory(io, f"{root}/above/mine") is Presence.CREATABLE
        assert io.exists(f"{root}/above/other/h")
        io.delete([f"{root}/above/other/h"])
        remove_empty(io, f"{root}/above/other")
        assert find_directory(io, f"{root}/above") is Presence.CREATABLE

    def test_data_files_are_written_and_read_through_the_file_system(self, io, root):
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({"id": list(range(1000)), "name": [f"n{number}" for number in range(1000)]})
        filesystem, path = io.filesystem(f"{root}/data/x=1/f.parquet")
        with pa.PythonFile(filesystem.open(path, "wb", block_size=8 << 20), mode="w") as sink:
            pq.write_table(table, sink)
        assert io.exists(f"{root}/data/x=1/f.parquet")
        with filesystem.open(path, "rb") as file:
            assert pq.read_table(file) == table

    def test_the_file_system_takes_names_as_they_are(self, io, root):
        """Drivers cut names that look like those of versions, and would write another file than was asked for."""
        io.create(f"{root}/live", b"live")
        for mark in ("?versionId=", "?versionid=x", "?generation=1", "#1", "?", "#", "?x=1#y"):
            filesystem, path = io.filesystem(f"{root}/live{mark}")
            with suppress(OSError, StorageError):  # what a store refuses is no other file
                filesystem.makedirs(path, exist_ok=True)
                with filesystem.open(f"{path}/f", "wb") as file:
                    file.write(b"other")
                assert io.read(f"{root}/live{mark}/f") == b"other"
            assert io.read(f"{root}/live") == b"live"

    def test_a_forked_process_can_use_what_its_parent_opened(self, io, root):
        import multiprocessing

        io.create(f"{root}/before", b"")
        child = multiprocessing.get_context("fork").Process(target=io.create, args=(f"{root}/by-child", b"child"))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert io.read(f"{root}/by-child") == b"child"
