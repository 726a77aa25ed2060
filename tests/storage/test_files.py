"""Files by location: what every store promises, on the local file system and in memory."""

import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from airflow_iceberg.storage import FileIO, FileStatus, load_file_io
from airflow_iceberg.storage.stores.fsspec_io import split_location
from airflow_iceberg.table import Table
from tests.support.memory import MemoryFileIO


@pytest.fixture
def io() -> FileIO:
    return load_file_io()


@pytest.fixture(params=["file://", "file:", "", "memory://", "fake"])
def place(request, tmp_path):
    """A FileIO and an empty directory in it."""
    if request.param == "fake":
        return MemoryFileIO(), "memory://fake"
    directory = f"bucket/{uuid.uuid4().hex}" if request.param == "memory://" else str(tmp_path)
    return load_file_io(), f"{request.param}{directory}"


class TestReading:
    """`read` gives a file's bytes, all or a range of them."""

    def test_what_was_created_is_read(self, place):
        io, root = place
        io.create(f"{root}/a/b.bin", b"\x00hello\n")
        assert io.read(f"{root}/a/b.bin") == b"\x00hello\n"

    def test_a_range_is_a_slice(self, place):
        io, root = place
        io.create(f"{root}/f", b"0123456789")
        assert io.read(f"{root}/f", offset=3) == b"3456789"
        assert io.read(f"{root}/f", offset=3, length=4) == b"3456"
        assert io.read(f"{root}/f", offset=8, length=100) == b"89"
        assert io.read(f"{root}/f", offset=10) == b""
        assert io.read(f"{root}/f", length=0) == b""

    def test_an_empty_file_is_a_file(self, place):
        io, root = place
        io.create(f"{root}/empty", b"")
        assert io.exists(f"{root}/empty")
        assert io.read(f"{root}/empty") == b""

    def test_a_missing_file_is_named(self, place):
        io, root = place
        with pytest.raises(NotFoundError) as raised:
            io.read(f"{root}/nope")
        assert str(raised.value) == f"cannot read {root}/nope: there is no such file"

    def test_a_directory_cannot_be_read(self, tmp_path, io):
        with pytest.raises(StorageError, match=f"cannot read {tmp_path}: is a directory"):
            io.read(str(tmp_path))


class TestCreating:
    """`create` makes a file that isn't there yet, all or nothing."""

    def test_a_name_is_taken_once_and_keeps_its_bytes(self, place):
        io, root = place
        io.create(f"{root}/f", b"first")
        with pytest.raises(AlreadyExistsError, match=f"cannot create {root}/f: it exists already"):
            io.create(f"{root}/f", b"second")
        assert io.read(f"{root}/f") == b"first"

    def test_of_many_at_once_one_succeeds(self, place):
        io, root = place

        def create(name: str, content: bytes) -> bytes | None:
            try:
                io.create(name, content)
            except AlreadyExistsError:
                return None
            return content

        for turn in range(10):
            name = f"{root}/turn-{turn}"
            with ThreadPoolExecutor(4) as pool:
                made = list(pool.map(create, [name] * 4, [bytes([n]) * 100 for n in range(4)]))
            assert [content for content in made if content] == [io.read(name)]

    def test_nobody_sees_a_file_that_is_still_being_written(self, tmp_path, io):
        content, torn, stop = b"x" * 5_000_000, [], threading.Event()

        def watch() -> None:
            while not stop.is_set():
                for name in [f"{tmp_path}/f{number}" for number in range(5)]:
                    if os.path.exists(name) and os.path.getsize(name) != len(content):
                        torn.append(name)

        watcher = threading.Thread(target=watch)
        watcher.start()
        for number in range(5):
            io.create(f"{tmp_path}/f{number}", content)
        stop.set()
        watcher.join()
        assert torn == []

    def test_nothing_else_is_left_in_the_directory(self, tmp_path, io):
        io.create(f"{tmp_path}/f", b"first")
        with pytest.raises(AlreadyExistsError):
            io.create(f"{tmp_path}/f", b"second")
        assert os.listdir(tmp_path) == ["f"]

    def test_a_directory_of_that_name_is_in_the_way(self, tmp_path, io):
        (tmp_path / "d").mkdir()
        with pytest.raises(AlreadyExistsError):
            io.create(f"{tmp_path}/d", b"")

    def test_a_file_in_place_of_a_directory_is_an_error_that_names_it(self, tmp_path, io):
        (tmp_path / "f").write_bytes(b"")
        with pytest.raises(StorageError, match=rf"cannot create {tmp_path}/f/g: "):
            io.create(f"{tmp_path}/f/g", b"")

    def test_files_get_the_rights_that_the_process_gives(self, tmp_path, io):
        before = os.umask(0o027)
        try:
            io.create(f"{tmp_path}/f", b"")
        finally:
            os.umask(before)
        assert os.stat(tmp_path / "f").st_mode & 0o777 == 0o640

    def test_a_name_may_be_as_long_as_the_file_system_allows(self, tmp_path, io):
        name = "n" * 255
        io.create(f"{tmp_path}/{name}", b"long")
        assert io.read(f"{tmp_path}/{name}") == b"long"


class TestListing:
    """`list` yields every file below a directory, spelled like the directory that was asked for."""

    def test_files_at_every_depth_are_found(self, place):
        io, root = place
        names = ["a", "b/c", "b/d/e", "b/.hidden", "b/_SUCCESS"]
        for name in names:
            io.create(f"{root}/dir/{name}", name.encode())
        assert {status.location: status.size_bytes for status in io.list(f"{root}/dir")} == {
            f"{root}/dir/{name}": len(name) for name in names
        }
        assert {status.location for status in io.list(f"{root}/dir/")} == {f"{root}/dir/{name}" for name in names}

    def test_a_neighbour_whose_name_begins_alike_is_not_in_it(self, place):
        io, root = place
        io.create(f"{root}/table/f", b"")
        io.create(f"{root}/table2/f", b"")
        assert [status.location for status in io.list(f"{root}/table")] == [f"{root}/table/f"]

    def test_a_directory_that_is_not_there_has_no_files(self, place):
        io, root = place
        assert list(io.list(f"{root}/nope")) == []

    def test_a_file_has_no_files_in_it(self, place):
        io, root = place
        io.create(f"{root}/f", b"")
        assert list(io.list(f"{root}/f")) == []

    def test_the_time_of_the_last_change_is_in_milliseconds(self, tmp_path, io):
        io.create(f"{tmp_path}/f", b"abc")
        os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_999_999))
        assert list(io.list(str(tmp_path))) == [
            FileStatus(location=f"{tmp_path}/f", size_bytes=3, modified_ms=1_700_000_000_123)
        ]

    def test_links_to_directories_are_not_followed(self, tmp_path, io):
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "f").write_bytes(b"")
        (tmp_path / "real" / "loop").symlink_to(tmp_path)
        (tmp_path / "real" / "dangling").symlink_to(tmp_path / "nope")
        assert [status.location for status in io.list(str(tmp_path))] == [f"{tmp_path}/real/f"]


class TestDeleting:
    """`delete` removes files; what isn't there is no error."""

    def test_files_are_removed_and_missing_ones_ignored(self, place):
        io, root = place
        io.create(f"{root}/a", b"")
        io.create(f"{root}/b", b"")
        io.delete([f"{root}/a", f"{root}/nope", f"{root}/no/where", f"{root}/b"])
        assert list(io.list(root)) == []

    def test_one_that_cannot_be_removed_does_not_save_the_others(self, tmp_path, io):
        (tmp_path / "d").mkdir()
        (tmp_path / "f").write_bytes(b"")
        with pytest.raises(StorageError, match=f"cannot delete {tmp_path}/d"):
            io.delete([f"{tmp_path}/d", f"{tmp_path}/f"])
        assert os.listdir(tmp_path) == ["d"]


class TestExistence:
    """`exists` is about files, not directories."""

    def test_a_directory_is_not_a_file(self, place):
        io, root = place
        io.create(f"{root}/d/f", b"")
        assert io.exists(f"{root}/d/f")
        assert not io.exists(f"{root}/d")
        assert not io.exists(f"{root}/d/f/g")
        assert not io.exists(f"{root}/nope")


class TestLocations:
    """A location is a scheme and a path, taken literally."""

    @pytest.mark.parametrize("location", ["/a/b", "file:/a/b", "file:///a/b", "FILE:///a/b", "file://localhost/a/b"])
    def test_a_local_path_has_many_spellings(self, location):
        assert split_location(location) == ("file", "/a/b")

    def test_nothing_is_decoded(self, place):
        io, root = place
        io.create(f"{root}/day=2026%2F01/x y+z#?*[a].parquet", b"x")
        assert [status.location for status in io.list(root)] == [f"{root}/day=2026%2F01/x y+z#?*[a].parquet"]
        assert io.read(f"{root}/day=2026%2F01/x y+z#?*[a].parquet") == b"x"
        io.delete([f"{root}/day=2026%2F01/x y+z#?*[a].parquet"])
        assert list(io.list(root)) == []

    @pytest.mark.parametrize("location", ["", "a/b", "file:a/b", "file://", "memory:x", "/a\0b"])
    def test_what_is_not_absolute_is_refused(self, io, location):
        with pytest.raises(InvalidInputError, match="is not a"):
            io.read(location)

    def test_a_local_path_on_another_host_is_refused(self, io):
        with pytest.raises(InvalidInputError, match=r"names the host 'server': write file:///path"):
            io.read("file://server/share/f")

    @pytest.mark.parametrize(
        "location", ["s3://key:hidden@bucket/x", "hdfs://me:hidden@host:8020/x", "ABFSS://c:hidden@a.dfs.host/x"]
    )
    def test_one_with_a_password_is_refused_and_not_shown(self, io, location):
        for ask in (io.read, io.exists, lambda where: list(io.list(where)), io.filesystem):
            with pytest.raises(InvalidInputError, match="holds a user and a password") as raised:
                ask(location)
            assert "hidden" not in f"{raised.value}{raised.value.__cause__}"

    def test_as_a_warehouse_or_a_path_of_a_table_neither(self, tmp_path):
        with pytest.raises(InvalidInputError, match="holds a user and a password"):
            load_catalog("t", type="sql", uri="sqlite://", warehouse="s3://key:hidden@bucket/x")
        catalog = load_catalog("t", type="hadoop", warehouse=tmp_path.as_uri())
        catalog.create_namespace("s")
        table = Table.create(catalog, "s.t", schema={"id": "long"})
        for name in ("write.data.path", "write.metadata.path", "write.object-storage.path"):
            with pytest.raises(InvalidInputError, match="holds a user and a password"):
                table.alter([{"set_properties": {name: "s3://key:hidden@bucket/x"}}])

    @pytest.mark.parametrize("location", ["abfss://container@account.dfs.host/x", "hdfs://host:8020/t@x:y"])
    def test_an_at_sign_alone_is_no_password(self, location):
        assert split_location(location)[1].startswith(("/container@", "/host:8020"))

    def test_an_unknown_scheme_lists_the_known_ones(self, io):
        with pytest.raises(UnsupportedError) as raised:
            io.read("ftp://host/f")
        message = str(raised.value)
        assert message.startswith("cannot use ftp://host/f: scheme 'ftp' is not supported, use one of abfs://, ")
        assert "s3://" in message

    def test_the_file_system_is_for_readers_and_writers_of_data(self, place):
        io, root = place
        io.create(f"{root}/d/f", b"data")
        filesystem, path = io.filesystem(f"{root}/d/f")
        assert filesystem.cat_file(path) == b"data"

    def test_properties_are_never_shown(self):
        assert "secret" not in repr(load_file_io({"s3.secret-access-key": "secret"}))
