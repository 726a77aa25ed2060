"""The gate of a table's files: which locations pass, however they are spelled, and what a connection trusts."""

import errno
import os
import pickle

import pytest

from airflow_iceberg.errors import IcebergError, InvalidInputError, StorageError
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.gate import STORE_OF_SCHEME, Gate, GatedFileIO, own_only, place_of
from airflow_iceberg.storage.stores.fsspec_io import _STORES, FsspecFileIO
from airflow_iceberg.storage.trust import Trust, is_location
from tests.support.memory import MemoryFileIO

TABLE = "s3://lake/wh/db/t"
LAKE = Trust.of(
    {"warehouse": "s3://lake/wh", "allowed-locations": "gs://old/hive, abfss://c@one.dfs.core.windows.net/x"}
)


def through(gate):
    """Return access through a gate to a store that does not look for links itself."""
    return gate.around(MemoryFileIO())


def passes(gate, location):
    try:
        through(gate).check(location, "read")
    except InvalidInputError:
        return False
    return True


class TestRemoteLocations:
    """A remote table may use the bucket of its warehouse, its own bucket, and the allowed prefixes."""

    GATE = LAKE.gate(TABLE, own=(TABLE,))

    @pytest.mark.parametrize(
        "location",
        [
            "s3://lake/wh/db/t/data/a.parquet",
            "s3a://lake/wh/db/t/data/a.parquet",
            "S3N://lake/elsewhere/a.parquet",
            "s3://lake/wh/db/t//data/a.parquet",
            "s3://lake/wh/db/t/data/day=..%2Fx/a.parquet",
            "s3://lake/wh/db/t/data/a%20b ü.parquet",
            "s3://lake/wh/db/t/data/..hidden/a...parquet",
            "gs://old/hive/a.parquet",
            "gcs://old/hive",
            "abfss://c@one.dfs.core.windows.net/x/a",
            "wasbs://c@ONE.blob.core.windows.net/x/a",
        ],
    )
    def test_its_own_pass(self, location):
        assert passes(self.GATE, location)

    @pytest.mark.parametrize(
        "location",
        [
            "/etc/passwd",
            "file:///etc/passwd",
            "file:/etc/passwd",
            "FILE://localhost/etc/passwd",
            "s3://lakes/a",
            "s3://Lake/a",
            "s3://lake.evil/a",
            "s3://lake@evil/a",
            "s3://evil@lake/a",
            "s3://lake:443/a",
            "s3://lake?x/a",
            "s3://lake\\@evil/a",
            "s3://lake%2f/a",
            "s3:///lake/a",
            "s3://../lake/a",
            "s3:/lake/a",
            "s3://",
            "gs://lake/wh/a",
            "gs://old/hives/a",
            "gs://old/hive/../a",
            "s3://lake/wh/../../b/a",
            "s3://lake/./a",
            "s3://lake/%2e%2E/a",
            "s3://lake/%252e%252e/a",
            "s3://lake/..%2fb/a",
            "s3://lake/a/..\\b",
            "s3://lake/day=1\\..\\..\\b/a",
            "s3://lake/a\0b",
            "abfss://c@two.dfs.core.windows.net/x/a",
            "abfss://c@one.dfs.core.windows.net.evil.com/x/a",
            "abfss://d@one.dfs.core.windows.net/x/a",
            "abfss://c@one.dfs.core.windows.net/xy",
            "az://c/x/a",
            "hdfs://lake/wh/a",
            "webhdfs://evil/wh/a",
            "http://lake/wh/a",
            "simplecache::s3://lake/wh/a",
            "lake/wh/a",
            "../a",
            "",
        ],
    )
    def test_others_do_not(self, location):
        assert not passes(self.GATE, location)
        assert not through(self.GATE).owns(location)

    def test_the_error_names_path_prefixes_and_setting(self):
        with pytest.raises(
            InvalidInputError,
            match=r"^cannot read s3://other/a: it is outside of the locations that its table may use \(s3://lake, .*\);"
            r" if it is trusted, add its prefix to 'allowed-locations' of the connection$",
        ):
            through(self.GATE).check("s3://other/a", "read")

    def test_only_its_own_locations_may_be_deleted(self):
        gate = LAKE.gate(TABLE, own=(TABLE, "s3a://lake/data/t", "s3://other/t", "s3://lake", "s3://lake/wh", "x"))
        assert gate.own == (TABLE, "s3a://lake/data/t")
        assert through(gate).owns("s3a://lake/wh/db/t/data/a")
        assert through(gate).owns("s3://lake/data/t/a")
        assert not any(map(through(gate).owns, ("s3://lake/wh/db/t2/a", "s3://lake/wh/db/t/../u/a", "gs://old/hive/a")))

    def test_a_local_folder_is_never_a_remote_tables(self, tmp_path):
        gate = Trust.of({"warehouse": str(tmp_path), "allowed-locations": f"s3://lake,{tmp_path}"}).gate(TABLE)
        assert not passes(gate, f"{tmp_path}/a")

    @pytest.mark.parametrize(
        ("root", "location", "is_same"),
        [
            ("hdfs://nn/wh", "hdfs://NN:8020/wh/a", True),
            ("hdfs://nn/wh", "hdfs://nn:9000/wh/a", False),
            ("hdfs://nn/wh", "hdfs:///wh/a", False),
            ("hdfs:///wh", "hdfs:///x", True),
            ("hdfs:///wh", "hdfs://evil/x", False),
            ("hdfs://nn/wh", "viewfs://nn/wh", False),
            ("swebhdfs://nn:1/wh", "webhdfs://nn:1/wh", False),
            ("memory://a/b", "memory:///a/c", True),
            ("memory://a/b", "memory://ab/c", False),
        ],
    )
    def test_authorities(self, root, location, is_same):
        assert passes(Trust.of({"warehouse": root}).gate(f"{root}/t"), location) is is_same

    @pytest.mark.parametrize("scheme", ["hdfs", "viewfs", "webhdfs", "swebhdfs"])
    def test_slashes_are_separators_in_hdfs(self, scheme):
        table = f"{scheme}://nn/wh/db/t"
        assert {place_of(f"{scheme}://nn{path}") for path in ("/wh/db/t", "//wh/db/t", "/wh//db///t//")} == {
            place_of(table)
        }
        assert through(Gate(allowed=(f"{scheme}://nn/wh",), own=(table,))).owns(f"{scheme}://nn/wh/db//t/a")
        gate = Gate(allowed=(f"{scheme}://nn/",), own=(f"{scheme}://nn/wh//db",))
        assert not through(gate).owns(f"{scheme}://nn/wh/dbx")
        trust = Trust.of({"warehouse": f"{scheme}://nn/wh"})
        assert trust.gate(table, own=[f"{scheme}://nn//wh", f"{scheme}://nn//"]).own == ()

    @pytest.mark.parametrize("scheme", ["hdfs", "viewfs", "webhdfs", "swebhdfs"])
    def test_no_file_is_named_by_its_number_in_hdfs(self, scheme):
        """`/.reserved/.inodes/<number>` is a second name of any folder, at which nothing of its table is seen."""
        root = f"{scheme}://nn"
        gate = Trust.of({"warehouse": f"{root}/wh"}).gate(f"{root}/wh/db/t", own=[f"{root}/.reserved/.inodes/16387"])
        assert gate.own == ()
        for path in ("/.reserved/.inodes/16387/a", "//.reserved/raw/wh/db/u/a", "/mounted/.reserved/.inodes/16387"):
            assert not passes(gate, f"{root}{path}")
        assert passes(gate, f"{root}/wh/db/t/data/.reserved.parquet")

    def test_and_a_part_of_the_key_of_an_object(self):
        assert place_of("s3://lake/wh//t") != place_of("s3://lake/wh/t")


class TestLocalLocations:
    """A local table may use its warehouse and the allowed folders; links are followed above them alone."""

    @pytest.fixture
    def gate(self, tmp_path):
        for name in ("wh/db/t/data", "wh/db/u", "old", "dags"):
            (tmp_path / name).mkdir(parents=True)
        (tmp_path / "dags" / "a.py").write_text("secret")
        trust = Trust.of({"warehouse": (tmp_path / "wh").as_uri(), "allowed-locations": f'["{tmp_path}/old"]'})
        return trust.gate(f"{tmp_path}/wh/db/t", own=[f"{tmp_path}/wh/db/t"])

    @pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "FILE://localhost{}"])
    def test_every_spelling(self, gate, tmp_path, form):
        assert passes(gate, form.format(f"{tmp_path}/wh/db/t/data/a"))
        assert passes(gate, form.format(f"{tmp_path}/wh/./db//t/./a b%2F.parquet"))
        assert passes(gate, form.format(f"{tmp_path}/old/a"))
        assert through(gate).owns(form.format(f"{tmp_path}/wh/db/t/a"))
        assert not through(gate).owns(form.format(f"{tmp_path}/wh/db/u/a"))
        # Nobody has to know what ".." means behind a link.
        for away in ("dags/a.py", "wh/../dags/a.py", "whx/a", "", "wh/db/t/../../../dags/a", "wh/db/../db/t/a"):
            assert not passes(gate, form.format(f"{tmp_path}/{away}"))

    def test_a_link_to_a_file_a_folder_or_the_way_back_does_not_lead_out(self, gate, tmp_path):
        data = tmp_path / "wh" / "db" / "t" / "data"
        os.symlink(tmp_path / "dags" / "a.py", data / "a.parquet")
        os.symlink(tmp_path / "dags", data / "folder")
        os.symlink(tmp_path / "nothing", data / "dangling")
        io = GatedFileIO(load_file_io(), gate)
        for name in ("a.parquet", "folder/a.py", "dangling"):
            assert not passes(gate, f"{data}/{name}")
            with pytest.raises(StorageError, match="is a symbolic link"):
                io.read(f"{data}/{name}")
            with pytest.raises(IcebergError, match=r"is a symbolic link|exists already"):
                io.create(f"{data}/{name}", b"")
        with pytest.raises(InvalidInputError, match=r"its path contains '\.\.'"):
            io.read(f"{data}/folder/../a.py")
        with pytest.raises(StorageError, match="is a symbolic link"):
            io.delete([f"{data}/folder/a.py"])
        assert [path.name for path in (tmp_path / "dags").iterdir()] == ["a.py"]
        assert (tmp_path / "dags" / "a.py").read_text() == "secret"

    def test_nor_is_a_link_within_followed(self, gate, tmp_path):
        """Neither by who opens files by descriptors of folders, nor by a FileIO that follows links."""

        class Following(FsspecFileIO):
            def within(self, roots):
                return None

        os.symlink(tmp_path / "wh" / "db" / "u", tmp_path / "wh" / "db" / "link")
        (tmp_path / "wh" / "db" / "u" / "a").write_text("x")
        assert not passes(gate, f"{tmp_path}/wh/db/link/a")
        with pytest.raises(StorageError, match="is a symbolic link"):
            gate.around(load_file_io()).read(f"{tmp_path}/wh/db/link/a")
        with pytest.raises(InvalidInputError, match="outside of the locations"):
            gate.around(Following({})).read(f"{tmp_path}/wh/db/link/a")
        assert gate.around(Following({})).read(f"{tmp_path}/wh/db/u/a") == b"x"

    def test_a_place_behind_a_link_outside_is_the_one_that_it_was_first(self, gate, tmp_path):
        """Whoever has made the link changes it after the look."""
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "wh" / "db" / "t" / "data")
        trust = Trust.of({"warehouse": f"{tmp_path}/wh"})
        found = trust.gate(f"{tmp_path}/wh/db/t", own=[str(link)])
        assert found.own == (f"{tmp_path}/wh/db/t/data",)
        io = GatedFileIO(load_file_io(), found)
        assert io.owns(f"{link}/a")
        link.unlink()
        link.symlink_to(tmp_path / "wh" / "db" / "u")
        for each in (io, GatedFileIO(load_file_io(), found)):
            assert not each.owns(f"{link}/a")
            assert each.owns(f"{tmp_path}/wh/db/t/data/a")

    def test_a_location_that_leads_out_meanwhile_is_no_place_of_trust(self, tmp_path, monkeypatch):
        """It is asked whether it is trusted, and then what is: the link is another one by then."""
        for name in ("wh/db/t", "secret"):
            (tmp_path / name).mkdir(parents=True)
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "secret")
        with pytest.raises(InvalidInputError, match="the connection trusts"):
            Trust.of({"warehouse": f"{tmp_path}/wh"}).gate(str(link), own=[str(link)])

    def test_a_link_that_became_a_folder_meanwhile_is_no_error_of_the_system(self, tmp_path, monkeypatch):
        (tmp_path / "link").symlink_to(tmp_path)

        def is_none(path):
            raise OSError(errno.EINVAL, "Invalid argument", path)

        monkeypatch.setattr(os, "readlink", is_none)
        with pytest.raises(InvalidInputError, match=r"cannot tell where .*link.* leads: invalid argument"):
            place_of(f"{tmp_path}/link/a")

    def test_a_warehouse_may_be_a_link_itself(self, gate, tmp_path):
        os.symlink(tmp_path / "wh", tmp_path / "lake")
        trust = Trust.of({"warehouse": f"{tmp_path}/lake"})
        assert passes(trust.gate(f"{tmp_path}/lake/db/t"), f"{tmp_path}/wh/db/t/a")


class TestWhatAConnectionTrusts:
    """The warehouse, if it is a location, and the prefixes that are listed."""

    @pytest.mark.parametrize(
        "text", ["prod", "arn:aws:s3tables:eu-west-1:1:bucket/b", "", "bl://projects/x", "a/b", "C:/x"]
    )
    def test_a_warehouse_may_be_a_name(self, text):
        assert not is_location(text)
        assert Trust.of({"warehouse": text}).is_empty

    @pytest.mark.parametrize("given", ["s3://a/b, /data", '["s3://a/b", "/data"]', ["s3://a/b", "/data"]])
    def test_a_list_of_prefixes(self, given):
        assert Trust.of({"allowed-locations": given}).allowed == ("s3://a/b", "/data")

    @pytest.mark.parametrize("given", ["data", '["s3://a/b"', "s3://a/../b", '["*"]'])
    def test_a_wrong_prefix_is_an_error_that_names_the_setting(self, given):
        with pytest.raises(InvalidInputError, match=r"allowed-locations|'\.\.'"):
            Trust.of({"allowed-locations": given})

    def test_every_scheme_of_a_store_is_known(self):
        assert set(STORE_OF_SCHEME) == set(_STORES)

    def test_an_allowed_prefix_is_not_a_bucket(self):
        trust = Trust.of({"allowed-locations": "s3://a/b"})
        assert trust.covers("s3://a/b/c")
        assert not trust.covers("s3://a/bc")
        assert not trust.covers("s3://a")

    def test_a_folder_of_one_table_may_be_allowed_and_deleted_in(self):
        trust = Trust.of({"allowed-locations": "s3://a/b/t"})
        assert trust.gate("s3://a/b/t", own=["s3://a/b/t", "s3://a/b"]).own == ("s3://a/b/t",)


class TestEveryCall:
    """No method of a FileIO passes by the gate."""

    @pytest.fixture
    def io(self):
        inner = MemoryFileIO()
        for location in ("memory://wh/t/a", "memory://wh/u/a", "memory://other/a"):
            inner.create(location, b"x")
        return GatedFileIO(inner, Gate(allowed=("memory://wh",), own=("memory://wh/t",)))

    @pytest.mark.parametrize(
        "call",
        [
            lambda io, location: io.read(location),
            lambda io, location: io.create(f"{location}2", b""),
            lambda io, location: io.list(location),
            lambda io, location: io.exists(location),
            lambda io, location: io.filesystem(location),
        ],
    )
    def test_reading_and_writing(self, io, call):
        call(io, "memory://wh/u/a")
        before = io.inner.files
        with pytest.raises(InvalidInputError, match="outside of the locations"):
            call(io, "memory://other/a")
        assert io.inner.files == before

    def test_nothing_is_deleted_if_one_file_is_outside(self, io):
        for foreign in ("memory://wh/u/a", "memory://other/a", "memory://wh/t/../u/a"):
            with pytest.raises(InvalidInputError, match="outside of the table's own locations"):
                io.delete(iter(["memory://wh/t/a", foreign]))
            with pytest.raises(InvalidInputError), io.directory(foreign, "remove"):
                pass
        assert io.inner.exists("memory://wh/t/a")
        io.delete(["memory://wh/t/a"])
        assert not io.inner.exists("memory://wh/t/a")

    def test_a_list_of_files_is_cut_to_the_tables_own(self, io):
        assert own_only(io, ["memory://wh/t/a", "memory://wh/u/a"]) == (["memory://wh/t/a"], 1)
        assert own_only(io.inner, ["memory://wh/u/a"]) == (["memory://wh/u/a"], 0)

    def test_no_method_is_forgotten(self):
        from airflow_iceberg.storage.base import FileIO

        assert {name for name in vars(FileIO) if name[0] != "_"} <= set(vars(GatedFileIO))

    def test_a_gate_is_a_value(self):
        gate = LAKE.gate(TABLE, own=(TABLE,))
        assert pickle.loads(pickle.dumps(gate)) == gate
        assert gate.around(gate.around(MemoryFileIO())).gate == gate
        assert place_of("s3a://lake/x/") == place_of("s3://lake/x")
