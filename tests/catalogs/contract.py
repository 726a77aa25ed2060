"""What every catalog promises: each catalog's own test module subclasses `CatalogContract` and runs it for real."""

import multiprocessing
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata.requirements import AssertTableUUID
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import Change, SetProperties
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.table import Table
from tests.support.processes import run_processes

COLUMNS = {"id": "long not null", "name": "string"}


def new_metadata(location: str, **properties: str) -> TableMetadata:
    return new_table_metadata(
        location=location,
        schema=schema_from_shorthand(COLUMNS),
        properties=properties,
        table_uuid=str(uuid.uuid4()),
        now_ms=1_700_000_000_000,
    )


def new_catalog(**properties: str) -> Catalog:
    """The catalog of these properties, with the namespace db."""
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    return catalog


def make_table(catalog: Catalog, name: str = "db.t", **properties: str) -> TableState:
    return catalog.create(name, new_metadata(catalog.default_location(name), **properties))


def fill_table(catalog: Catalog, name: str = "db.t", **properties: str) -> TableState:
    """Create a table, append to it twice, and replace all of it: three data files, of which one is current."""
    columns = {"id": pa.array([1, 2], pa.int64()), "name": pa.array(["a", "b"])}
    rows = pa.table(columns, schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]))
    make_table(catalog, name, **properties)
    for _ in range(2):
        Table.load(catalog, name).append(rows)
    Table.load(catalog, name).overwrite(rows)
    return catalog.load(name)


def files_below(catalog: Catalog, location: str) -> set[str]:
    return {status.location for status in catalog.io.list(location)}


def setting(**properties: str) -> Change:
    """A change that sets properties and asks for nothing."""
    return Change(updates=(SetProperties(updates=properties),), requirements=())


def commit_until_done(catalog: Catalog, name: str, count: int, tag: str) -> int:
    """Set `count` properties of this tag, each in a commit of its own, with as many retries as it takes."""
    conflicts = 0
    for number in range(count):
        while True:
            try:
                catalog.commit(catalog.load(name), setting(**{f"{tag}-{number}": "done"}))
                break
            except CommitConflictError:
                conflicts += 1
    return conflicts


def commit_in_fork_and_parent(catalog: Catalog) -> None:
    """Commit to the table three times in a forked child and here at the same time; nothing is lost."""
    child = multiprocessing.get_context("fork").Process(target=commit_until_done, args=(catalog, "db.t", 3, "child"))
    child.start()
    commit_until_done(catalog, "db.t", 3, "parent")
    child.join(60)
    assert child.exitcode == 0
    metadata = catalog.load("db.t").metadata
    assert set(metadata.properties) == {f"{who}-{number}" for who in ("child", "parent") for number in range(3)}
    assert len(metadata.metadata_log) == 6


def commit_in_process(properties: dict[str, str], name: str, count: int, tag: str) -> None:
    """Be one of several writing processes, with a catalog of its own."""
    commit_until_done(load_catalog("prod", **properties), name, count, tag)


class CatalogContract:
    """Subclass it, and give the properties of an empty catalog in the fixture `properties`."""

    can_rename = True
    can_register = True
    tells_one_winner = True
    has_namespace_properties = True
    has_nested_namespaces = True
    drop_keeps_files = True
    purges_without_collection = True
    wishes_of_purge: Mapping[str, str] = {}
    default_place = "db/t"  # of table db.t below the warehouse
    other_namespaces: tuple[tuple[str, ...], ...] = ()  # that are always there
    no_namespaces = ("d", "dax", "DB", "db.x")  # beside db and d_x
    wishes_of_deletion = {"write.metadata.delete-after-commit.enabled": "true"}
    processes = 3
    commits_per_process = 8

    @pytest.fixture
    def catalog(self, properties: dict[str, str]) -> Catalog:
        catalog = load_catalog("prod", **properties)
        catalog.create_namespace("db")
        return catalog

    @pytest.fixture
    def other(self, properties: dict[str, str]) -> Catalog:
        return load_catalog("prod", **properties)

    # A table exists from its creation to its removal, under one name.

    def test_a_created_table_is_seen_by_everybody(self, catalog, other):
        state = make_table(catalog)
        assert other.load("db.t") == state
        assert other.table_exists("db.t")
        assert other.list_tables("db") == (TableId(namespace=("db",), name="t"),)

    def test_a_table_may_be_named_by_text_or_by_id(self, catalog):
        make_table(catalog)
        assert catalog.load(TableId(namespace=("db",), name="t")) == catalog.load("db.t")

    def test_a_new_table_lies_in_the_warehouse_by_namespace_and_name(self, catalog, properties):
        place = f"{properties['warehouse']}/{self.default_place}"
        assert catalog.default_location("db.t") == place
        assert make_table(catalog).metadata_location.startswith(f"{place}/metadata/")

    def test_a_name_is_given_once(self, catalog, other):
        state = make_table(catalog)
        with pytest.raises(AlreadyExistsError, match=r"table db\.t exists already in catalog prod"):
            make_table(other)
        assert catalog.load("db.t") == state

    def test_of_many_that_create_one_table_one_succeeds(self, properties, catalog):
        def create(number: int) -> str | None:
            mine = load_catalog("prod", **properties)
            try:
                return make_table(mine, owner=str(number)).metadata.table_uuid
            except AlreadyExistsError:
                return None
            except CommitUnknownError:  # it was told so, and then the table of another one was there
                if self.tells_one_winner:
                    raise
                return None

        with ThreadPoolExecutor(4) as pool:
            winners = [uuid for uuid in pool.map(create, range(4)) if uuid]
        assert catalog.load("db.t").metadata.table_uuid in winners
        assert len(winners) == 1 or not self.tells_one_winner

    def test_the_loser_of_a_creation_leaves_no_file_behind(self, catalog, properties):
        make_table(catalog)
        before = _metadata_files(catalog, properties)
        with pytest.raises(AlreadyExistsError):
            make_table(catalog)
        assert _metadata_files(catalog, properties) == before

    def test_a_table_needs_its_namespace_first(self, catalog):
        with pytest.raises(NotFoundError, match="there is no namespace nope in catalog prod; create it first"):
            make_table(catalog, "nope.t")

    def test_an_unknown_table_is_named_with_its_catalog(self, catalog):
        message = "there is no table db.nope in catalog prod; check the names of table, namespace and catalog"
        with pytest.raises(NotFoundError) as raised:
            catalog.load("db.nope")
        assert str(raised.value) == message
        assert not catalog.table_exists("db.nope")

    def test_a_table_without_a_namespace_is_no_name(self, catalog):
        with pytest.raises(InvalidInputError, match=r"write it as 'namespace\.table'"):
            catalog.load("orders")

    def test_a_dropped_table_is_gone_and_its_name_is_free(self, catalog, other):
        make_table(catalog)
        catalog.drop_table("db.t")
        assert not other.table_exists("db.t")
        assert other.list_tables("db") == ()
        assert make_table(other).metadata == other.load("db.t").metadata

    def test_an_unknown_table_cannot_be_dropped_or_purged(self, catalog):
        for purge in (False, True):
            with pytest.raises(NotFoundError, match=r"there is no table db\.t in catalog prod"):
                catalog.drop_table("db.t", purge=purge)

    def test_a_purged_table_leaves_no_file_behind(self, catalog, other):
        state = fill_table(catalog, **self.wishes_of_purge)
        catalog.drop_table("db.t", purge=True)
        assert not other.table_exists("db.t")
        assert files_below(catalog, state.metadata.location) == set()

    def test_a_dropped_table_keeps_its_files_unless_purged(self, catalog):
        state = fill_table(catalog, **self.wishes_of_purge)
        files = files_below(catalog, state.metadata.location)
        catalog.drop_table("db.t")
        assert files_below(catalog, state.metadata.location) == (files if self.drop_keeps_files else set())

    def test_a_purge_leaves_the_data_of_tables_whose_garbage_is_not_collected(self, catalog):
        """They may be another table's; what is surely this one's goes, as with Iceberg Java."""
        state = fill_table(catalog, **{"gc.enabled": "false"})
        files = files_below(catalog, state.metadata.location)
        if not self.purges_without_collection:
            with pytest.raises(InvalidInputError, match=r"gc\.enabled is false"):
                catalog.drop_table("db.t", purge=True)
            assert catalog.load("db.t") == state
            assert files_below(catalog, state.metadata.location) == files
            return
        catalog.drop_table("db.t", purge=True)
        data = {location for location in files if location.endswith(".parquet")}
        assert len(data) == 3
        assert files_below(catalog, state.metadata.location) == data

    def test_a_table_that_cannot_be_read_whole_is_not_purged(self, catalog):
        state = fill_table(catalog, **self.wishes_of_purge)
        catalog.io.delete([state.metadata.current_snapshot().manifest_list])
        files = files_below(catalog, state.metadata.location)
        with pytest.raises(FormatError, match=r"cannot purge db\.t, nothing was dropped"):
            catalog.drop_table("db.t", purge=True)
        assert catalog.load("db.t") == state
        assert files_below(catalog, state.metadata.location) == files

    @pytest.mark.parametrize("is_name_taken", [False, True], ids=["old-name-free", "old-name-taken"])
    def test_a_purge_spares_a_table_that_got_another_name_meanwhile(self, catalog, other, monkeypatch, is_name_taken):
        if not self.can_rename:
            return
        state = fill_table(catalog, **self.wishes_of_purge)
        files = files_below(catalog, state.metadata.location)

        def rename() -> None:
            other.rename_table("db.t", "db.u")
            if is_name_taken:
                make_table(other, **self.wishes_of_purge)

        _meanwhile(monkeypatch, catalog, rename)
        if is_name_taken:
            catalog.drop_table("db.t", purge=True)
        else:
            with pytest.raises(NotFoundError, match=r"there is no table db\.t in catalog prod"):
                catalog.drop_table("db.t", purge=True)
        assert not other.table_exists("db.t")
        assert [str(table) for table in other.list_tables("db")] == ["db.u"]
        # Where two tables are in one folder, nothing of either is deleted.
        left = files_below(catalog, state.metadata.location)
        assert left >= files if is_name_taken else left == files
        assert Table.load(other, "db.u").scan().to_arrow().num_rows == 2

    def test_a_purge_takes_the_files_of_a_commit_that_came_meanwhile(self, catalog, other, monkeypatch):
        state = fill_table(catalog, **self.wishes_of_purge)
        _meanwhile(monkeypatch, catalog, lambda: other.commit(other.load("db.t"), setting(color="green")))
        catalog.drop_table("db.t", purge=True)
        assert not other.table_exists("db.t")
        assert files_below(catalog, state.metadata.location) == set()

    def test_a_table_in_a_nested_namespace_is_a_table_like_others(self, catalog, other):
        if not self.has_nested_namespaces:
            with pytest.raises(InvalidInputError, match=r"db\.inner"):
                catalog.create_namespace("db.inner")
            assert not catalog.table_exists("db.inner.t")
            return
        catalog.create_namespace("db.inner")
        state = make_table(catalog, "db.inner.t")
        assert other.load("db.inner.t") == state
        assert other.list_tables("db.inner") == (TableId.parse("db.inner.t"),)
        assert other.list_tables("db") == ()

    # A commit is for one state of the table, and only the first one made for it lands.

    def test_a_commit_is_seen_by_everybody(self, catalog, other):
        made = make_table(catalog)
        committed = catalog.commit(made, setting(color="green"))
        loaded = other.load("db.t")
        assert loaded == committed
        assert loaded.metadata.properties["color"] == "green"
        assert loaded.metadata_location != made.metadata_location

    def test_commits_can_follow_each_other_without_loading_again(self, catalog):
        state = make_table(catalog)
        for number in range(3):
            state = catalog.commit(state, setting(number=str(number)))
        assert catalog.load("db.t") == state
        assert len({location for _, location in state.metadata.metadata_log}) == 3

    def test_a_commit_for_an_older_state_is_a_conflict_and_changes_nothing(self, catalog, other, properties):
        old = make_table(catalog)
        newer = other.commit(other.load("db.t"), setting(color="green"))
        files = _metadata_files(catalog, properties)
        with pytest.raises(CommitConflictError, match=r"table db\.t in catalog prod was changed by another writer"):
            catalog.commit(old, setting(color="red"))
        assert catalog.load("db.t") == newer
        assert _metadata_files(catalog, properties) == files

    def test_a_requirement_that_does_not_hold_changes_nothing(self, catalog):
        state = make_table(catalog)
        change = replace(setting(color="red"), requirements=(AssertTableUUID(uuid=str(uuid.uuid4())),))
        with pytest.raises(CommitConflictError, match="requirement failed"):
            catalog.commit(state, change)
        assert catalog.load("db.t") == state

    def test_branches_and_tags_are_changed_for_everybody(self, catalog, other):
        """Refs other than main, rows of a branch that is made with them, and main, which a catalog may keep itself."""
        first, _, last = (snapshot.snapshot_id for snapshot in fill_table(catalog).metadata.snapshots)
        table = Table.load(catalog, "db.t")
        rows = table.scan().to_arrow()
        made = table.append(rows, branch="audit", create_branch=True).snapshot_id
        table.create_tag("v1", first, max_ref_age_ms=1000)
        key = OperationKey(dag_id="d", run_id="r", task_id="t", installation="i")
        back = table.rollback_to_snapshot(first, expected_snapshot_id=last, operation_key=key)
        seen = Table.load(other, "db.t")
        assert (back.previous_snapshot_id, seen.metadata.current_snapshot_id) == (last, first)
        assert {name: ref.snapshot_id for name, ref in seen.refs.items()} == {"main": first, "audit": made, "v1": first}
        assert seen.scan().count() == 2
        seen.fast_forward("main", "audit", to_snapshot_id=made)
        again = Table.load(catalog, "db.t").rollback_to_snapshot(first, operation_key=key)
        assert again.outcome == "found"
        with pytest.raises(IncompatibleChangeError, match="expected_snapshot_id is 1"):
            table.refresh().set_current_snapshot(last, expected_snapshot_id=1)
        table.manage_snapshots().create_tag(made, "v2").remove_branch("audit").remove_tag("v1").commit()
        seen.refresh()
        assert {name: ref.snapshot_id for name, ref in seen.refs.items()} == {"main": made, "v2": made}
        assert [snapshot_id for _, snapshot_id in seen.metadata.snapshot_log][-3:] == [last, first, made]
        assert seen.scan().count() == 4

    def test_a_change_without_updates_writes_nothing(self, catalog, properties):
        state = make_table(catalog)
        files = _metadata_files(catalog, properties)
        assert catalog.commit(state, Change(updates=(), requirements=())) == state
        assert _metadata_files(catalog, properties) == files

    def test_a_commit_to_a_dropped_table_fails_and_does_not_bring_it_back(self, catalog, other):
        state = make_table(catalog)
        other.drop_table("db.t")
        with pytest.raises((NotFoundError, CommitConflictError)):
            catalog.commit(state, setting(color="red"))
        assert not catalog.table_exists("db.t")

    def test_processes_that_commit_at_once_lose_nothing(self, catalog, properties):
        make_table(catalog)
        tags = [f"p{number}" for number in range(self.processes)]
        run_processes(commit_in_process, [(properties, "db.t", self.commits_per_process, tag) for tag in tags])
        metadata = catalog.load("db.t").metadata
        assert set(metadata.properties) >= {f"{tag}-{n}" for tag in tags for n in range(self.commits_per_process)}
        assert len(metadata.metadata_log) == min(100, self.processes * self.commits_per_process)

    def test_threads_that_share_a_catalog_lose_nothing(self, catalog):
        make_table(catalog)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda tag: commit_until_done(catalog, "db.t", 5, tag), "abcd"))
        assert {f"{tag}-{n}" for tag in "abcd" for n in range(5)} <= set(catalog.load("db.t").metadata.properties)

    # Metadata files that the table forgot are removed for tables that ask for it.

    def test_forgotten_metadata_files_stay_unless_the_table_asks(self, catalog, properties):
        state = make_table(catalog, **{"write.metadata.previous-versions-max": "1"})
        for number in range(3):
            state = catalog.commit(state, setting(number=str(number)))
        assert len(_metadata_files(catalog, properties)) == 4

    def test_forgotten_metadata_files_are_deleted_when_the_table_asks(self, catalog, other, properties):
        state = make_table(catalog, **self.wishes_of_deletion, **{"write.metadata.previous-versions-max": "1"})
        for number in range(3):
            state = catalog.commit(state, setting(number=str(number)))
        kept = {state.metadata_location, *(location for _, location in state.metadata.metadata_log)}
        assert _metadata_files(catalog, properties) == kept
        assert len(kept) == 2
        assert other.load("db.t") == state

    # Metadata can be compressed.

    def test_compressed_metadata_says_so_in_its_name(self, catalog, other):
        state = make_table(catalog, **{"write.metadata.compression-codec": "gzip"})
        state = catalog.commit(state, setting(color="green"))
        assert state.metadata_location.endswith(".gz.metadata.json")
        assert catalog.io.read(state.metadata_location)[:2] == b"\x1f\x8b"
        assert other.load("db.t") == state

    def test_a_codec_that_nobody_knows_is_refused(self, catalog):
        state = make_table(catalog)
        with pytest.raises(InvalidInputError, match=r"compression-codec is 'lzma' \(expected one of none, gzip\)"):
            catalog.commit(state, setting(**{"write.metadata.compression-codec": "lzma"}))
        assert catalog.load("db.t") == state

    # Namespaces hold tables and namespaces.

    def test_a_namespace_can_be_made_once(self, catalog):
        with pytest.raises(AlreadyExistsError, match="namespace db exists already in catalog prod"):
            catalog.create_namespace("db")
        catalog.create_namespace("db", if_not_exists=True)

    def test_namespaces_are_listed_level_by_level(self, catalog):
        if not self.has_nested_namespaces:
            catalog.create_namespace("a")
            assert catalog.list_namespaces() == (("a",), ("db",), *self.other_namespaces)
            assert catalog.list_namespaces("a") == ()
            return
        catalog.create_namespace(("a", "b", "c"))
        catalog.create_namespace("a.d")
        assert catalog.list_namespaces() == (("a",), ("db",), *self.other_namespaces)
        assert catalog.list_namespaces("a") == (("a", "b"), ("a", "d"))
        assert catalog.list_namespaces(("a", "b")) == (("a", "b", "c"),)
        assert catalog.list_namespaces("a.d") == ()

    def test_names_that_begin_alike_or_differ_in_case_are_different(self, catalog):
        catalog.create_namespace("d_x")
        assert not [name for name in self.no_namespaces if catalog.namespace_exists(name)]
        assert catalog.list_tables("d_x") == ()

    def test_a_table_is_no_namespace(self, catalog):
        make_table(catalog)
        assert not catalog.namespace_exists("db.t")
        assert catalog.list_namespaces("db") == ()

    def test_an_empty_namespace_can_be_dropped(self, catalog, other):
        catalog.drop_namespace("db")
        assert not other.namespace_exists("db")
        assert other.list_namespaces() == self.other_namespaces

    def test_a_namespace_that_holds_something_cannot_be_dropped(self, catalog):
        make_table(catalog)
        with pytest.raises(InvalidInputError, match="namespace db is not empty"):
            catalog.drop_namespace("db")
        assert catalog.table_exists("db.t")
        if self.has_nested_namespaces:
            catalog.create_namespace("a.b")
            with pytest.raises(InvalidInputError, match="namespace a is not empty"):
                catalog.drop_namespace("a")

    def test_an_unknown_namespace_is_named_with_its_catalog(self, catalog):
        for ask in (
            catalog.list_tables,
            catalog.drop_namespace,
            catalog.list_namespaces,
            catalog.load_namespace_properties,
            catalog.update_namespace_properties,
        ):
            with pytest.raises(NotFoundError, match="there is no namespace nope in catalog prod"):
                ask("nope")

    def test_a_name_with_empty_parts_is_refused(self, catalog):
        for name in ("", ".", "a..b", "a."):
            with pytest.raises(InvalidInputError):
                catalog.create_namespace(name)

    def test_properties_of_a_namespace_can_be_set_and_removed(self, catalog, other):
        if not self.has_namespace_properties:
            with pytest.raises(UnsupportedError, match="is a directory"):
                catalog.update_namespace_properties("db", {"owner": "me"})
            with pytest.raises(UnsupportedError, match="is a directory"):
                catalog.create_namespace("other", {"owner": "me"})
            return
        catalog.create_namespace("other", {"owner": "me", "color": "red"})
        catalog.update_namespace_properties("other", {"owner": "you", "size": "1"}, ["color", "nothing"])
        found = other.load_namespace_properties("other")
        # Hive gives a namespace an owner
        shown = {key: value for key, value in found.items() if key != "location" and not key.startswith("hive.")}
        assert shown == {"owner": "you", "size": "1"}

    # A table may get another name, or come from elsewhere.

    def test_a_renamed_table_is_the_same_table(self, catalog, other):
        state = make_table(catalog)
        catalog.create_namespace("away")
        if not self.can_rename:
            with pytest.raises(UnsupportedError, match=r"cannot rename db\.t"):
                catalog.rename_table("db.t", "away.u")
            return
        catalog.rename_table("db.t", "away.u")
        assert not other.table_exists("db.t")
        moved = other.load("away.u")
        assert (moved.metadata, moved.metadata_location) == (state.metadata, state.metadata_location)
        assert other.commit(moved, setting(color="green")).metadata.properties["color"] == "green"

    def test_a_table_cannot_take_the_name_of_another(self, catalog):
        if not self.can_rename:
            pytest.skip("this catalog cannot rename")
        make_table(catalog)
        make_table(catalog, "db.u")
        with pytest.raises(AlreadyExistsError, match=r"db\.u exists already"):
            catalog.rename_table("db.t", "db.u")
        with pytest.raises(NotFoundError, match=r"there is no table db\.nope"):
            catalog.rename_table("db.nope", "db.v")
        with pytest.raises(NotFoundError, match="there is no namespace nope"):
            catalog.rename_table("db.t", "nope.t")
        assert len(catalog.list_tables("db")) == 2

    def test_a_table_can_be_registered_by_its_metadata_file(self, catalog, other):
        state = make_table(catalog)
        if not self.can_register:
            with pytest.raises(UnsupportedError, match="cannot register"):
                catalog.register_table("db.u", state.metadata_location)
            return
        catalog.drop_table("db.t")
        catalog.register_table("db.u", state.metadata_location)
        assert other.load("db.u").metadata == state.metadata
        with pytest.raises(AlreadyExistsError):
            catalog.register_table("db.u", state.metadata_location)
        with pytest.raises(NotFoundError, match="there is no such file"):
            catalog.register_table("db.v", f"{state.metadata_location}.nope")
        assert catalog.io.exists(state.metadata_location)


class DirectoriesContract(CatalogContract):
    """Of a Hadoop catalog: a table cannot be renamed or registered, a namespace has no properties."""

    can_rename = False
    can_register = False
    has_namespace_properties = False
    drop_keeps_files = False
    purges_without_collection = False


def _meanwhile(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, act: Callable[[], object]) -> None:
    """Let somebody act once, after the files of a table are found and before it is dropped."""
    inner, acted = catalog.find_purgeable, []

    def find(table: TableId) -> object:
        found = inner(table)
        if not acted:
            acted.append(act())
        return found

    monkeypatch.setattr(catalog, "find_purgeable", find)


def _metadata_files(catalog: Catalog, properties: dict[str, str]) -> set[str]:
    return {
        status.location
        for status in catalog.io.list(properties["warehouse"])
        if status.location.endswith(".metadata.json")
    }
