"""The Hadoop catalog on a real local file system: versions, the hint, and who wins."""

import gzip
import logging
import os
from dataclasses import replace

import pytest

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.hadoop.catalog import HadoopCatalog
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata.updates import Change, SetLocation
from airflow_iceberg.storage import load_file_io
from tests.catalogs.contract import DirectoriesContract, commit_until_done, make_table, new_metadata, setting
from tests.support.memory import FaultyFileIO, FileFault, FileRule, MemoryFileIO, SimulatedCrash

CODEC = "write.metadata.compression-codec"
FORGETFUL = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}


class TestContract(DirectoriesContract):
    """A Hadoop catalog is a catalog."""

    @pytest.fixture
    def properties(self, tmp_path):
        return {"type": "hadoop", "warehouse": f"file://{tmp_path}/warehouse"}


class TestContractInMemory(TestContract):
    """The same on fsspec's memory file system, whose hint is replaced in one step and not by a rename."""

    @pytest.fixture
    def properties(self, tmp_path):
        return {"type": "hadoop", "warehouse": f"memory://bucket{tmp_path}/warehouse"}

    def test_processes_that_commit_at_once_lose_nothing(self):
        pytest.skip("memory is of one process")


@pytest.fixture
def io():
    return FaultyFileIO(load_file_io())


@pytest.fixture
def catalog(tmp_path, io):
    catalog = HadoopCatalog("prod", {"warehouse": str(tmp_path)}, io=io)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "db" / "t" / "metadata"


class TestLayout:
    """`metadata/v<N>.metadata.json` from 1 on, and `version-hint.text` with the newest N as ASCII text."""

    def test_versions_are_numbered_from_one_and_the_hint_says_the_last(self, catalog, directory):
        state = make_table(catalog)
        assert sorted(os.listdir(directory)) == ["v1.metadata.json", "version-hint.text"]
        catalog.commit(state, setting(a="1"))
        assert sorted(os.listdir(directory)) == ["v1.metadata.json", "v2.metadata.json", "version-hint.text"]
        assert (directory / "version-hint.text").read_bytes() == b"2"

    def test_the_log_names_the_file_before(self, catalog, directory):
        state = make_table(catalog)
        committed = catalog.commit(state, setting(a="1"))
        assert committed.metadata.metadata_log == ((state.metadata.last_updated_ms, f"{directory}/v1.metadata.json"),)

    def test_checksums_that_java_left_are_removed(self, catalog, directory):
        """Hadoop's local file system refuses to read a file that doesn't fit to the `.crc` beside it."""
        state = make_table(catalog)
        (directory / ".version-hint.text.crc").write_bytes(b"crc\0 of Java's own hint")
        (directory / ".v2.metadata.json.crc").write_bytes(b"crc\0 of a file that is gone")
        catalog.commit(state, setting(a="1"))
        assert not [name for name in os.listdir(directory) if name.endswith(".crc")]


class TestFindingTheNewestVersion:
    """The hint is only a hint: it may be gone, behind, ahead or broken."""

    @pytest.fixture
    def newest(self, catalog, directory):
        make_table(catalog)
        commit_until_done(catalog, "db.t", 3, "n")
        return catalog.load("db.t")

    @pytest.mark.parametrize(
        "hint", [b"1", b"3\n", b"4", b" 4 ", b"9", b"0", b"-1", b"", b"v4", b"four", b"\xff", b"9" * 30]
    )
    def test_whatever_the_hint_says_the_newest_version_is_found(self, catalog, directory, newest, hint):
        (directory / "version-hint.text").write_bytes(hint)
        assert catalog.load("db.t") == newest

    def test_a_missing_hint_costs_a_listing(self, catalog, directory, newest):
        (directory / "version-hint.text").unlink()
        assert catalog.load("db.t") == newest
        catalog.commit(newest, setting(b="1"))
        assert (directory / "version-hint.text").read_bytes() == b"5"

    def test_a_hint_to_a_version_that_was_deleted_costs_a_listing(self, catalog, directory, newest):
        (directory / "version-hint.text").write_bytes(b"1")
        (directory / "v1.metadata.json").unlink()
        assert catalog.load("db.t") == newest

    def test_the_tenth_version_is_newer_than_the_ninth(self, catalog, directory, newest):
        commit_until_done(catalog, "db.t", 7, "m")
        (directory / "version-hint.text").unlink()
        assert catalog.load("db.t").metadata_location.endswith("/v11.metadata.json")

    def test_other_files_in_the_directory_are_no_versions(self, catalog, directory, newest):
        for name in ("v9.metadata.json.tmp", ".v9.metadata.json.crc", "v9.json", "vx.metadata.json", "snap-9.avro"):
            (directory / name).write_bytes(b"")
        (directory / "version-hint.text").unlink()
        assert catalog.load("db.t") == newest

    def test_a_slow_writer_does_not_turn_the_hint_back(self, catalog, directory, newest):
        (directory / "version-hint.text").write_bytes(b"7")
        catalog.commit(newest, setting(b="1"))
        assert (directory / "version-hint.text").read_bytes() == b"7"
        assert catalog.load("db.t").metadata.properties["b"] == "1"

    def test_a_hint_that_cannot_be_written_is_no_failure(self, catalog, directory, newest, caplog):
        (directory / "version-hint.text").unlink()
        (directory / "version-hint.text").mkdir()
        with caplog.at_level(logging.WARNING):
            catalog.commit(newest, setting(b="1"))
        assert catalog.load("db.t").metadata.properties["b"] == "1"
        assert "version-hint.text" in caplog.text


class TestSpellings:
    """A version is `vN.metadata.json`, `vN.gz.metadata.json` or, from old writers, `vN.metadata.json.gz`; never two."""

    BOTH = pytest.mark.parametrize("name", ["v2.gz.metadata.json", "v2.metadata.json.gz"])

    @BOTH
    def test_compressed_versions_are_read_in_both_spellings(self, catalog, directory, name):
        state = catalog.commit(make_table(catalog), setting(a="1"))
        content = (directory / "v2.metadata.json").read_bytes()
        (directory / "v2.metadata.json").unlink()
        (directory / name).write_bytes(gzip.compress(content))
        assert catalog.load("db.t").metadata == state.metadata
        assert catalog.commit(catalog.load("db.t"), setting(b="1")).metadata_location.endswith("/v3.metadata.json")
        assert catalog.list_tables("db") == (TableId.parse("db.t"),)

    def test_the_name_follows_from_the_codec_of_the_base(self, catalog):
        state = make_table(catalog)
        state = catalog.commit(state, setting(**{CODEC: "gzip"}))
        assert state.metadata_location.endswith("/v2.metadata.json")
        state = catalog.commit(state, setting(a="1"))
        assert state.metadata_location.endswith("/v3.gz.metadata.json")
        state = catalog.commit(state, setting(**{CODEC: "none"}))
        assert state.metadata_location.endswith("/v4.gz.metadata.json")
        assert catalog.commit(state, setting(a="2")).metadata_location.endswith("/v5.metadata.json")

    def test_of_two_writers_of_whom_one_changes_the_codec_one_loses(self, catalog):
        base = make_table(catalog)
        catalog.commit(base, setting(a="1"))
        with pytest.raises(CommitConflictError):
            catalog.commit(base, setting(**{CODEC: "gzip"}))
        assert CODEC not in catalog.load("db.t").metadata.properties

    @BOTH
    def test_the_next_version_in_any_spelling_is_a_conflict(self, catalog, directory, name):
        base = make_table(catalog)
        (directory / name).write_bytes(gzip.compress((directory / "v1.metadata.json").read_bytes()))
        with pytest.raises(CommitConflictError):
            catalog.commit(base, setting(a="1"))
        assert not (directory / "v2.metadata.json").exists()

    def test_two_files_of_one_version_are_reported_and_nothing_is_read(self, catalog, directory):
        make_table(catalog)
        (directory / "v1.gz.metadata.json").write_bytes(gzip.compress((directory / "v1.metadata.json").read_bytes()))
        with pytest.raises(FormatError) as raised:
            catalog.load("db.t")
        assert "version 1 of the table is both v1.metadata.json and v1.gz.metadata.json" in str(raised.value)
        assert raised.value.path == str(directory)

    def test_a_second_file_that_came_while_we_committed_is_reported_to_the_committer(self, catalog, directory):
        """Java takes the new codec's name: it can commit beside us, and neither may believe that it won alone."""
        base = make_table(catalog)
        content = gzip.compress((directory / "v1.metadata.json").read_bytes())
        catalog._sleep = lambda _: (directory / "v2.gz.metadata.json").write_bytes(content)
        with pytest.raises(CommitUnknownError, match="version 2 of the table is both"):
            catalog.commit(base, setting(a="1"))

    @pytest.mark.parametrize(
        "error", [StorageError("the store is away"), FormatError("torn"), NotFoundError("deleted meanwhile")]
    )
    def test_what_goes_wrong_after_the_creation_leaves_the_outcome_open(self, catalog, monkeypatch, error):
        """The version is there: a caller that took it for a failure would delete the files that it names."""

        def fail(*_):
            raise error

        base = make_table(catalog)
        monkeypatch.setattr(catalog, "_require_to_be_followed", fail)
        with pytest.raises(CommitUnknownError) as raised:
            catalog.commit(base, setting(a="1"))
        assert "/v2.metadata.json was created" in str(raised.value)
        assert catalog.load("db.t").metadata.properties["a"] == "1"

    def test_half_a_metadata_file_is_named(self, catalog, directory):
        make_table(catalog)
        path = directory / "v1.metadata.json"
        path.write_bytes(path.read_bytes()[:200])
        with pytest.raises(FormatError) as raised:
            catalog.load("db.t")
        assert raised.value.path == str(path)
        path.write_bytes(b"")
        with pytest.raises(FormatError):
            catalog.load("db.t")


class TestOutcomes:
    """Creating vN+1 is the commit: it is ours, somebody else's, or unknown; what was really written decides."""

    @pytest.fixture
    def base(self, catalog):
        return make_table(catalog)

    def test_an_error_after_the_file_was_created_is_a_success(self, catalog, io, base):
        io.rules = [FileRule(call="create", fault=FileFault.DO_THEN_FAIL, matching="v2.")]
        state = catalog.commit(base, setting(a="1"))
        assert catalog.load("db.t") == state

    def test_an_error_while_somebody_else_created_the_file_is_a_conflict(self, catalog, io, base, directory):
        io.rules = [FileRule(call="create", fault=FileFault.RIVAL_THEN_FAIL, matching="v2.")]
        with pytest.raises(CommitConflictError, match="changed by another writer"):
            catalog.commit(base, setting(a="1"))
        assert (directory / "v2.metadata.json").exists()

    def test_an_error_without_a_file_is_the_error_and_the_table_is_as_it_was(self, catalog, io, base):
        io.rules = [FileRule(call="create", fault=FileFault.FAIL, matching="v2.")]
        with pytest.raises(StorageError, match="cannot create"):
            catalog.commit(base, setting(a="1"))
        assert catalog.load("db.t") == base

    def test_an_error_that_cannot_be_looked_into_is_unknown_and_names_the_file(self, catalog, io, base, directory):
        io.rules = [
            FileRule(call="create", fault=FileFault.DO_THEN_FAIL, matching="v2."),
            FileRule(call="read", fault=FileFault.FAIL, matching="v2."),
        ]
        with pytest.raises(CommitUnknownError) as raised:
            catalog.commit(base, setting(a="1"))
        assert f"{directory}/v2.metadata.json" in str(raised.value)
        assert catalog.load("db.t").metadata.properties == {"a": "1"}

    @pytest.mark.parametrize(
        ("fault", "properties"), [(FileFault.CRASH_BEFORE, {}), (FileFault.CRASH_AFTER, {"a": "1"})]
    )
    def test_a_crash_has_committed_if_it_was_after_the_creation(self, catalog, io, base, fault, properties):
        io.rules = [FileRule(call="create", fault=fault, matching="v2.")]
        with pytest.raises(SimulatedCrash):
            catalog.commit(base, setting(a="1"))
        assert catalog.load("db.t").metadata.properties == properties

    def test_java_renaming_its_file_over_ours_is_a_conflict(self, catalog, base, directory):
        """On a local file system Java asks whether vN is there and then renames, which replaces."""
        java = (directory / "v1.metadata.json").read_bytes().replace(b"{", b"{ ", 1)
        (directory / "java.tmp").write_bytes(java)
        catalog._sleep = lambda _: os.replace(directory / "java.tmp", directory / "v2.metadata.json")
        with pytest.raises(CommitConflictError):
            catalog.commit(base, setting(a="1"))
        assert "a" not in catalog.load("db.t").metadata.properties

    @pytest.mark.parametrize("hint", [b"5", b"1", b"0", None])
    def test_a_writer_that_slept_cannot_commit_into_the_hole_of_a_deleted_version(self, catalog, directory, hint):
        metadata = directory.parents[1] / "u" / "metadata"
        old = make_table(catalog, "db.u", **FORGETFUL)
        commit_until_done(catalog, "db.u", 4, "n")
        assert not (metadata / "v2.metadata.json").exists()
        turn_hint(metadata, hint)
        with pytest.raises(CommitConflictError, match="it is at version 5, expected 1"):
            catalog.commit(old, setting(a="1"))

    def test_nor_when_the_hole_comes_while_it_commits(self, tmp_path, catalog):
        old = make_table(catalog, "db.u", **FORGETFUL)
        io = _RivalBeforeCreate(lambda: commit_until_done(catalog, "db.u", 4, "n"))
        sleeper = HadoopCatalog("prod", {"warehouse": str(tmp_path)}, io=io)
        with pytest.raises(CommitUnknownError, match="the table is at version 5 already"):
            sleeper.commit(old, setting(a="1"))
        assert "a" not in catalog.load("db.u").metadata.properties

    @pytest.mark.parametrize("hint", [b"1", b"5", None])
    def test_nor_when_its_base_was_kept_or_brought_back(self, catalog, directory, hint):
        """Two writers that delete old versions need not do so in the order of their commits."""
        old, metadata = self.leave_a_hole(catalog, directory)
        turn_hint(metadata, hint)
        found = CommitUnknownError if hint == b"1" else CommitConflictError
        with pytest.raises(found):
            catalog.commit(old, setting(a="1"))
        turn_hint(metadata, None)
        assert "a" not in catalog.load("db.u").metadata.properties

    def leave_a_hole(self, catalog, directory):
        metadata = directory.parents[1] / "u" / "metadata"
        old = make_table(catalog, "db.u", **FORGETFUL)
        first = (metadata / "v1.metadata.json").read_bytes()
        commit_until_done(catalog, "db.u", 3, "n")
        assert sorted(metadata.glob("v*.metadata.json")) == [
            metadata / f"v{version}.metadata.json" for version in (3, 4)
        ]
        (metadata / "v1.metadata.json").write_bytes(first)
        return old, metadata

    def test_a_version_that_others_built_on_at_once_is_a_success(self, tmp_path, catalog, base):
        faster = HadoopCatalog("prod", {"warehouse": str(tmp_path)}, io=load_file_io())
        catalog._sleep = lambda _: commit_until_done(faster, "db.t", 2, "n")
        catalog.commit(base, setting(a="1"))
        assert catalog.load("db.t").metadata.properties == {"a": "1", "n-0": "done", "n-1": "done"}

    def test_a_state_from_elsewhere_is_no_base(self, catalog, base):
        with pytest.raises(InvalidInputError, match="is not a version of a Hadoop catalog's table"):
            catalog.commit(replace(base, token=None), setting(a="1"))


def turn_hint(metadata, hint):
    (metadata / "version-hint.text").unlink(missing_ok=True)
    if hint is not None:
        (metadata / "version-hint.text").write_bytes(hint)


class _RivalBeforeCreate(type(load_file_io())):
    def __init__(self, rival):
        super().__init__()
        self._rival = rival

    def create(self, location, data):
        self._rival()
        super().create(location, data)


class TestPlace:
    """A table is its directory: it has no other location, and no other place for its metadata."""

    def test_the_location_cannot_change(self, catalog):
        state = make_table(catalog)
        change = Change(updates=(SetLocation(location="/elsewhere"),), requirements=())
        with pytest.raises(UnsupportedError, match=r"cannot move db\.t to /elsewhere"):
            catalog.commit(state, change)
        assert catalog.load("db.t") == state

    def test_a_new_table_cannot_choose_its_location(self, catalog, tmp_path):
        with pytest.raises(UnsupportedError, match="leave the location out"):
            catalog.create("db.t", new_metadata(f"{tmp_path}/elsewhere"))
        assert not catalog.table_exists("db.t")

    def test_another_spelling_of_the_same_place_is_the_same_place(self, catalog, tmp_path):
        assert catalog.create("db.t", new_metadata(f"file:{tmp_path}/db/t/")).metadata == catalog.load("db.t").metadata

    def test_metadata_cannot_be_elsewhere(self, catalog):
        state = make_table(catalog)
        with pytest.raises(UnsupportedError, match=r"cannot set write\.metadata\.path on db\.t"):
            catalog.commit(state, setting(**{"write.metadata.path": "/elsewhere"}))
        with pytest.raises(UnsupportedError, match=r"cannot set write\.metadata\.path on db\.u"):
            make_table(catalog, "db.u", **{"write.metadata.path": "/elsewhere"})

    @pytest.mark.parametrize("name", ["a.b", "..", ".", "a/b", "a\\b", "a:b", "a\0b", "/etc", "*", "a?", "[ab]"])
    def test_a_name_that_is_no_plain_directory_is_refused(self, catalog, name):
        with pytest.raises(InvalidInputError, match=r"cannot be (a name in catalog prod|the name of a table)"):
            catalog.load(TableId(namespace=("db",), name=name))

    @pytest.mark.parametrize("level", ["a/b", "a\\b", "*"])
    def test_so_is_such_a_level_of_a_namespace(self, catalog, level):
        with pytest.raises(InvalidInputError, match=r"cannot be (a name in catalog prod|the name of a table)"):
            catalog.create_namespace((level,))

    def test_directories_with_other_names_are_not_listed(self, catalog, tmp_path):
        for name in (".Trash", "a.b", ".staging"):
            (tmp_path / name / "metadata").mkdir(parents=True)
            (tmp_path / "db" / name).mkdir()
        assert catalog.list_namespaces() == (("db",),)
        assert catalog.list_namespaces("db") == ()

    def test_a_dropped_table_takes_its_directory_along(self, catalog, tmp_path):
        make_table(catalog)
        (tmp_path / "db" / "t" / "data").mkdir()
        catalog.drop_table("db.t")
        assert os.listdir(tmp_path / "db") == []

    def test_a_table_that_forbids_to_delete_files_cannot_be_dropped(self, catalog):
        make_table(catalog, **{"gc.enabled": "false"})
        with pytest.raises(InvalidInputError, match=r"its property gc\.enabled is false"):
            catalog.drop_table("db.t")
        assert catalog.table_exists("db.t")

    def test_a_namespace_with_something_in_it_is_no_place_for_a_table(self, catalog):
        catalog.create_namespace("db.t.inner")
        with pytest.raises(AlreadyExistsError, match="it is a namespace that is not empty"):
            make_table(catalog)

    def test_what_a_failed_creation_left_behind_is_no_obstacle(self, catalog, tmp_path):
        (tmp_path / "db" / "t" / "metadata").mkdir(parents=True)
        (tmp_path / "db" / "t" / "data").mkdir()
        assert make_table(catalog) == catalog.load("db.t")

    def test_a_table_is_no_namespace_to_create(self, catalog):
        make_table(catalog)
        with pytest.raises(AlreadyExistsError, match=r"table db\.t exists already"):
            catalog.create_namespace("db.t", if_not_exists=True)

    def test_the_warehouse_need_not_exist_yet(self, tmp_path):
        catalog = HadoopCatalog("prod", {"warehouse": f"{tmp_path}/new/"}, io=load_file_io())
        assert catalog.list_namespaces() == ()
        assert not catalog.table_exists("db.t")
        assert catalog.default_location("db.t") == f"{tmp_path}/new/db/t"

    def test_a_warehouse_is_needed(self):
        with pytest.raises(InvalidInputError, match="catalog prod: property 'warehouse' is missing"):
            HadoopCatalog("prod", {}, io=MemoryFileIO())

    def test_a_directory_that_cannot_be_made_is_one_clear_error(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        catalog = HadoopCatalog("prod", {"warehouse": f"{tmp_path}/file"}, io=load_file_io())
        with pytest.raises(StorageError, match=f"cannot create the directory {tmp_path}/file/db"):
            catalog.create_namespace("db")
        with pytest.raises(NotFoundError, match="there is no namespace db"):
            make_table(catalog)
