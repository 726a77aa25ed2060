"""Files by location: what every store promises, on the local file system and in memory."""

import os
import threading
import uuid

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError, StorageError, UnsupportedError
from airflow_iceberg.storage import FileIO, FileStatus, load_file_io
from airflow_iceberg.storage.stores.store import parse_location
from airflow_iceberg.table import Table
from tests.storage.contract import FilesContract, StoreContract
from tests.support.memory import MemoryFileIO


@pytest.fixture
def io() -> FileIO:
    return load_file_io()


@pytest.fixture(params=["file://", "file:", "", "memory://", "fake"])
def place(request, tmp_path):
    if request.param == "fake":
        return MemoryFileIO(), "memory://fake"
    directory = f"bucket/{uuid.uuid4().hex}" if request.param == "memory://" else str(tmp_path)
    return load_file_io(), f"{request.param}{directory}"


class TestFiles(FilesContract):
    """Local files in each spelling, those in memory, and those of the tests' own FileIO."""

    @pytest.fixture
    def io(self, place):
        return place[0]

    @pytest.fixture
    def root(self, place):
        return place[1]

    def test_the_file_system_is_for_readers_and_writers_of_data(self, io, root):
        io.create(f"{root}/d/f", b"data")
        filesystem, path = io.filesystem(f"{root}/d/f")
        assert filesystem.cat_file(path) == b"data"


class TestLocal(StoreContract):
    """The local file system is a store."""

    @pytest.fixture
    def io(self, io):
        return io

    @pytest.fixture
    def root(self, tmp_path):
        return str(tmp_path)

    def test_a_directory_cannot_be_read(self, tmp_path, io):
        with pytest.raises(StorageError, match=f"cannot read {tmp_path}: is a directory"):
            io.read(str(tmp_path))

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

    def test_one_that_cannot_be_removed_does_not_save_the_others(self, tmp_path, io):
        (tmp_path / "d").mkdir()
        (tmp_path / "f").write_bytes(b"")
        with pytest.raises(StorageError, match=f"cannot delete {tmp_path}/d"):
            io.delete([f"{tmp_path}/d", f"{tmp_path}/f"])
        assert os.listdir(tmp_path) == ["d"]


class TestLocations:
    """A location is a scheme and a path, taken literally."""

    @pytest.mark.parametrize("location", ["/a/b", "file:/a/b", "file:///a/b", "FILE:///a/b", "file://localhost/a/b"])
    def test_a_local_path_has_many_spellings(self, location):
        found = parse_location(location)
        assert (found.scheme, found.authority, found.path) == ("file", "", "/a/b")

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
            with pytest.raises(InvalidInputError, match="contains a user and a password") as raised:
                ask(location)
            assert "hidden" not in f"{raised.value}{raised.value.__cause__}"

    def test_as_a_warehouse_or_a_path_of_a_table_neither(self, tmp_path):
        with pytest.raises(InvalidInputError, match="contains a user and a password"):
            load_catalog("t", type="sql", uri="sqlite://", warehouse="s3://key:hidden@bucket/x")
        catalog = load_catalog("t", type="hadoop", warehouse=tmp_path.as_uri())
        catalog.create_namespace("s")
        table = Table.create(catalog, "s.t", schema={"id": "long"})
        for name in ("write.data.path", "write.metadata.path", "write.object-storage.path"):
            with pytest.raises(InvalidInputError, match="contains a user and a password"):
                table.alter([{"set_properties": {name: "s3://key:hidden@bucket/x"}}])

    @pytest.mark.parametrize("location", ["abfss://container@account.dfs.host/x", "hdfs://host:8020/t@x:y"])
    def test_an_at_sign_alone_is_no_password(self, location):
        assert parse_location(location).authority in ("container@account.dfs.host", "host:8020")

    def test_an_unknown_scheme_lists_the_known_ones(self, io):
        with pytest.raises(UnsupportedError) as raised:
            io.read("ftp://host/f")
        message = str(raised.value)
        assert message.startswith("cannot use ftp://host/f: scheme 'ftp' is not supported, use one of abfs://, ")
        assert "s3://" in message

    def test_properties_are_never_shown(self):
        assert "secret" not in repr(load_file_io({"s3.secret-access-key": "secret"}))
