"""No call of this process comes to a file outside of the trusted folders, by a link, a spelling or a race.

The calls are those of the operating system, not those of a FileIO. What is foreign looks exactly like the table, so
that each name that is followed there is found.
"""

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.errors import IcebergError, InvalidInputError, StorageError
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.gate import Gate
from airflow_iceberg.storage.local_roots import LocalRoots, path_of
from airflow_iceberg.storage.trust import Trust
from airflow_iceberg.table import Table
from tests.support.builders import age, job_work
from tests.support.gate_verbs import quarantine, remove_orphans
from tests.support.local_calls import LocalCalls, content
from tests.support.recording import commit_foreign_file, forged
from tests.support.sampling import ALL, SEED

HURRY = {
    "commit.retry.num-retries": "1",
    "commit.status-check.num-retries": "1",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "1",
}
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "day": ["a", "b"]})
LINK = r"is a symbolic link; below a table's location none is followed, nor below the warehouse"
LEVELS = ("db", "db/t", "db/t/data", "db/t/metadata", "db/t/data/day=a", "db/t/.staging")


class World:
    """A warehouse with the table `db.t`, and a folder elsewhere with the same names in it."""

    def __init__(self, home: Path, kind: str) -> None:
        self.home, self.kind = home, kind
        self.foreign = home / "foreign"
        self.warehouse = home / "wh"
        home.mkdir(parents=True)
        catalog = self.catalog()
        catalog.create_namespace("db")
        table = Table.create(
            catalog, "db.t", schema={"id": "long", "day": "string"}, partition_by=["day"], properties=HURRY
        )
        for _ in range(2):
            table.append(ROWS)
        for name in ("data/day=a/orphan.parquet", ".staging/old/plan.json"):
            path = self.warehouse / "db" / "t" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        age(self.warehouse)
        shutil.copytree(self.warehouse, self.foreign)
        shutil.copytree(home, home.with_name("backup"))

    def catalog(self, **more: str) -> Any:
        options = {"uri": f"sqlite:///{self.home}/c.db"} if self.kind == "sql" else {}
        return load_catalog("test", type=self.kind, warehouse=str(self.warehouse), **options, **more)

    def table(self) -> Table:
        return Table.load(self.catalog(), "db.t")

    def reset(self) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self.home.with_name("backup"), self.home, symlinks=True)

    def swap(self, level: str) -> None:
        """Put a link to the foreign folder in the place of a folder."""
        place = self.warehouse / level
        if place.is_symlink():
            return
        if place.exists():
            place.rename(self.home / "aside")
        with suppress(FileNotFoundError):
            place.symlink_to(self.foreign / level)


OPERATIONS: dict[str, Callable[[Table], Any]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "append": lambda table: table.append(ROWS),
    "delete": lambda table: table.delete("id = 1"),
    "compact": lambda table: compact(job_work(table), CompactRequest(options={"rewrite-all": "true"})),
    "expire": lambda table: expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62)),
    "orphans": remove_orphans,
    "quarantine": quarantine,
    "alter": lambda table: table.alter([{"set_properties": {"a": "b"}}]),
    "purge": lambda table: table.catalog.drop_table(table.identifier, purge=True),
    "drop": lambda table: table.catalog.drop_table(table.identifier),
}


@pytest.fixture(params=["hadoop", "sql"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path / "home", request.param)


class TestASwapBetweenTwoCalls:
    """Whenever a folder becomes a link, the call after it does not go through it."""

    def run(self, world: World, operation: str, level: str, moment: int) -> int:
        """Swap before a call, and return the number of calls."""
        table = world.table()
        calls = LocalCalls(world.foreign, lambda number: world.swap(level) if number == moment else None)
        with calls.watching(), suppress(IcebergError):
            OPERATIONS[operation](table)
        calls.check()
        return calls.count

    def test_the_harness_sees_a_call_that_does(self, tmp_path: Path) -> None:
        (tmp_path / "foreign" / "inner").mkdir(parents=True)
        (tmp_path / "foreign" / "inner" / "a").write_text("x")
        (tmp_path / "link").symlink_to(tmp_path / "foreign")
        io = load_file_io()
        for use in (
            lambda path: io.read(path),
            lambda path: io.create(f"{path}2", b""),
            lambda path: io.delete([path]),
            lambda path: list(io.list(path.rpartition("/")[0])),
            lambda path: io.filesystem(path)[0].open(path).read(),
        ):
            calls = LocalCalls(tmp_path / "foreign")
            with calls.watching(), suppress(IcebergError, AssertionError):
                use(f"{tmp_path}/link/inner/a")
            assert calls.touched

    @pytest.mark.parametrize("operation", ["purge", "expire"])
    def test_some_moments(self, operation: str, tmp_path: Path) -> None:
        world = World(tmp_path / "home", "sql")
        count = self.run(world, operation, "db/t/data", -1)
        for part in (1, 2, 3):
            world.reset()
            self.run(world, operation, "db/t/data/day=a" if part == 1 else "db/t", count * part // 4)

    @pytest.mark.costly
    @pytest.mark.sample(5)
    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_many_moments(self, world: World, operation: str, level: str) -> None:
        count = self.run(world, operation, level, -1)
        tries = count if ALL else 12
        for number in range(tries):
            world.reset()
            self.run(world, operation, level, number * count // tries)


class TestARace:
    """A thread swaps a folder for a link and back, as fast as it can."""

    @pytest.mark.costly
    @pytest.mark.parametrize("level", ["db", "db/t", "db/t/data"])
    def test_not_one_foreign_file_is_deleted_read_or_written(self, world: World, level: str) -> None:
        before = content(world.foreign)
        place, aside, stop = world.warehouse / level, world.home / "aside", threading.Event()

        def swap() -> None:
            while not stop.is_set():
                with suppress(OSError):
                    place.rename(aside)
                    place.symlink_to(world.foreign / level)
                with suppress(OSError):
                    place.unlink()
                    aside.rename(place)

        for operation in ("append", "expire", "orphans", "quarantine", "purge"):
            table = world.table()
            stop.clear()
            swapper = threading.Thread(target=swap)
            swapper.start()
            try:
                for _ in range(3):
                    with suppress(IcebergError, OSError):
                        OPERATIONS[operation](table)
            finally:
                stop.set()
                swapper.join()
            assert content(world.foreign) == before
            world.reset()
            before = content(world.foreign)


class TestAHadoopCatalog:
    """A link below the warehouse is no namespace and no table, and leads nowhere."""

    @pytest.fixture
    def linked(self, tmp_path: Path) -> World:
        world = World(tmp_path / "home", "hadoop")
        (world.warehouse / "link").symlink_to(world.foreign / "db")
        (world.warehouse / "db" / "alias").symlink_to(world.foreign / "db" / "t")
        (world.warehouse / "outer").mkdir()
        (world.warehouse / "outer" / "link").symlink_to(world.foreign)
        return world

    def test_none_is_listed(self, linked: World) -> None:
        catalog = linked.catalog()
        calls = LocalCalls(linked.foreign)
        with calls.watching():
            assert catalog.list_namespaces() == (("db",), ("outer",))
            assert catalog.list_namespaces("outer") == ()
            assert [table.name for table in catalog.list_tables("db")] == ["t"]
            assert not catalog.namespace_exists("link")
        calls.check()

    def test_none_is_followed(self, linked: World) -> None:
        catalog = linked.catalog()
        uses: list[Callable[[], Any]] = [
            *(lambda name=name: catalog.table_exists(name) for name in ("link.t", "db.alias")),
            *(lambda name=name: catalog.load(name) for name in ("link.t", "db.alias", "outer.link.db.t")),
            *(lambda name=name: catalog.drop_table(name) for name in ("link.t", "db.alias", "outer.link.db.t")),
            *(lambda name=name: catalog.drop_table(name, purge=True) for name in ("link.t", "db.alias")),
            *(lambda name=name: Table.create(catalog, name, schema={"id": "long"}) for name in ("link.a", "db.alias")),
            *(lambda name=name: catalog.create_namespace(name) for name in ("link", "link.inner", "outer.link.inner")),
            *(lambda name=name: catalog.drop_namespace(name) for name in ("link", "outer.link")),
            *(lambda name=name: catalog.list_namespaces(name) for name in ("link", "outer.link")),
            *(lambda name=name: catalog.list_tables(name) for name in ("link", "outer.link.db")),
        ]
        calls = LocalCalls(linked.foreign)
        for use in uses:
            with calls.watching(), pytest.raises(IcebergError):
                use()
        calls.check()

    def test_the_warehouse_may_be_one(self, tmp_path: Path) -> None:
        world = World(tmp_path / "home", "hadoop")
        (world.home / "lake").symlink_to(world.warehouse)
        catalog = load_catalog("test", type="hadoop", warehouse=f"{world.home}/lake")
        table = Table.load(catalog, "db.t")  # its metadata names it by the other name
        table.append(ROWS)
        assert table.scan().count() == 6
        catalog.drop_table("db.t", purge=True)
        assert catalog.list_tables("db") == ()

    def test_one_that_is_exchanged_is_followed_by_the_next_catalog(self, tmp_path: Path) -> None:
        world = World(tmp_path / "home", "hadoop")
        lake = world.home / "lake"
        lake.symlink_to(world.warehouse)
        assert Table.load(load_catalog("t", type="hadoop", warehouse=str(lake)), "db.t").scan().count() == 4
        shutil.rmtree(world.warehouse / "db")
        lake.unlink()
        lake.symlink_to(world.foreign)
        catalog = load_catalog("t", type="hadoop", warehouse=str(lake))
        assert [table.name for table in catalog.list_tables("db")] == ["t"]


FORGED = ("location", "write.data.path", "manifest list", "data file")
SPELLINGS = (
    "{}",
    "file:{}",
    "file://{}",
    "FILE://localhost{}",
    "{}/",
    "/.{}",
    "//{}",
    "{}/.",
    "{}//",
    "file://{}/./",
    "{}/x/..",
    "{}/../t",
    "{}/%2e%2e/t",
    "file://{}/%2e%2e/%2e%2e/db/t",
    "{}/data/../../t",
)


def cases(found: Iterable[Any]) -> list[Any]:
    """Return some of many cases, or all of them in the long run."""
    listed = list(found)
    return listed if ALL else random.Random(SEED).sample(listed, 12)


class TestSpellings:
    """However metadata spells a place, the calls come to the same folder or to none."""

    @pytest.mark.costly
    @pytest.mark.parametrize("through", ["wh", "lake", "outer/wh"])
    def test_every_operation(self, world: World, through: str) -> None:
        """A location in each spelling, also through links above it; the folder of data is a link."""
        failures = []
        for spelling, what, operation in cases(
            product(SPELLINGS, FORGED, ("scan", "append", "expire", "orphans", "purge"))
        ):
            place = spelling.format(f"{world.home}/{through}/db/t")
            world.reset()
            self.link(world)
            with suppress(IcebergError):
                self.forge(world, what, place)
            world.swap("db/t/data")
            calls = LocalCalls(world.foreign)
            with calls.watching(), suppress(IcebergError):
                OPERATIONS[operation](world.table())
            if calls.touched:
                failures.append((spelling, what, operation, calls.touched))
        assert failures == []

    @pytest.mark.costly
    @pytest.mark.parametrize("through", ["wh", "lake", "outer/wh"])
    def test_the_same_table_by_each_name(self, through: str, tmp_path: Path) -> None:
        for spelling in SPELLINGS[:10]:
            world = World(tmp_path / f"{len(os.listdir(tmp_path))}" / "home", "sql")
            self.link(world)
            self.forge(world, "location", spelling.format(f"{world.home}/{through}/db/t"))
            table = world.table()
            table.append(ROWS)
            assert table.scan().count() == 6, spelling
            table.catalog.drop_table("db.t", purge=True)
            left = [path.name for path in (world.warehouse / "db/t/data").rglob("*") if path.is_file()]
            assert left == ["orphan.parquet"], spelling

    def link(self, world: World) -> None:
        (world.home / "lake").symlink_to(world.warehouse)
        (world.home / "outer").symlink_to(world.home)

    def forge(self, world: World, what: str, place: str) -> None:
        catalog = world.catalog()
        state = catalog.load("db.t")
        if what == "data file":
            commit_foreign_file(catalog, "db.t", f"{place}/data/day=a/orphan.parquet")
            return

        def change(document: dict[str, Any]) -> None:
            if what == "location":
                document["location"] = place
            elif what == "write.data.path":
                document["properties"][what] = f"{place}/data"
            else:
                list_ = document["snapshots"][-1]["manifest-list"].rpartition("/")[2]
                document["snapshots"][-1]["manifest-list"] = f"{place}/metadata/{list_}"

        folder, _, name = state.metadata_location.rpartition("/")
        new = f"v{int(name[1:].partition('.')[0]) + 1}" if world.kind == "hadoop" else "00099-forged"
        new = f"{folder}/{new}.metadata.json"
        load_file_io().create(new, forged(state.metadata, change))
        if world.kind == "sql":
            catalog.drop_table("db.t")
            catalog.swap_pointer(TableId.of("db.t"), expected=None, new=new)

    def test_a_path_is_a_root_and_names(self, tmp_path: Path) -> None:
        (tmp_path / "real" / "db").mkdir(parents=True)
        (tmp_path / "lake").symlink_to(tmp_path / "real")
        (tmp_path / "elsewhere").symlink_to(tmp_path / "real" / "db")
        (tmp_path / "above").symlink_to(tmp_path)
        roots = LocalRoots([f"{tmp_path}/lake", f"{tmp_path}/real/db"])
        real = os.path.realpath(tmp_path / "real")
        assert roots.tops == (f"{real}/",)
        for path, names in {
            f"{tmp_path}/lake/db/a": ("db", "a"),
            f"{tmp_path}//./lake///db/./a/": ("db", "a"),
            f"{real}/db/a": ("db", "a"),
            f"{tmp_path}/elsewhere/a": ("db", "a"),
            f"{tmp_path}/above/real/db/a": ("db", "a"),
            f"{tmp_path}/above/lake/a": ("a",),
            f"{tmp_path}/lake": (),
        }.items():
            found = roots.resolve(path)
            assert found == (f"{real}/", names)
            assert os.path.normpath(path_of(found)) == os.path.normpath(os.path.join(real, *names))
        for path in (f"{tmp_path}", f"{tmp_path}/lakes/a", "/", f"{tmp_path}/other", f"{real}x"):
            assert roots.resolve(path) is None
        for path in (f"{tmp_path}/lake/../lake/a", f"{real}/..", "/..", f"{tmp_path}/x/../lake"):
            with pytest.raises(InvalidInputError, match=r"'\.\.'"):
                roots.resolve(path)

    def test_dots_in_the_warehouse_of_a_connection_are_its_owners(self, tmp_path: Path) -> None:
        (tmp_path / "x").mkdir()
        catalog = load_catalog("t", type="hadoop", warehouse=f"{tmp_path}/x/../wh")
        catalog.create_namespace("db")
        Table.create(catalog, "db.t", schema={"id": "long", "day": "string"}).append(ROWS)
        assert Table.load(catalog, "db.t").scan().count() == 2
        catalog.drop_table("db.t", purge=True)
        assert not (tmp_path / "wh" / "db" / "t").exists()

    def test_the_whole_system_may_be_allowed(self, tmp_path: Path) -> None:
        (tmp_path / "lake").symlink_to(tmp_path / "real")
        (tmp_path / "real").mkdir()
        gate = Trust.of({"warehouse": f"{tmp_path}/lake", "allowed-locations": "/"}).gate(f"{tmp_path}/lake/t")
        io = gate.around(load_file_io())
        io.create(f"{tmp_path}/lake/t/a", b"x")
        assert io.read(f"{tmp_path}/real/t/a") == b"x"


class TestALinkThatLeadsIn:
    """A path may come to a trusted folder through somebody's link; it is the place that it was when it was checked."""

    def test_a_link_that_is_changed_after_the_check(self, tmp_path: Path) -> None:
        for name in ("own", "victim"):
            (tmp_path / "wh" / name).mkdir(parents=True)
            (tmp_path / "wh" / name / "a").write_text(name)
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "wh" / "own")
        gate = Gate(allowed=(f"{tmp_path}/wh",), own=(f"{tmp_path}/wh/own",))
        io = gate.around(load_file_io())
        assert io.read(f"{link}/a") == b"own"
        assert [each.location for each in io.list(str(link))] == [f"{link}/a"]

        def exchanged() -> Iterator[str]:
            yield f"{link}/a"
            link.unlink()
            link.symlink_to(tmp_path / "wh" / "victim")

        io.delete(exchanged())
        assert not (tmp_path / "wh" / "own" / "a").exists()
        with pytest.raises(InvalidInputError, match="outside of the table's own locations"):
            io.delete([f"{link}/a"])
        assert (tmp_path / "wh" / "victim" / "a").read_text() == "victim"


class TestWhatIsNoFile:
    """A device, a pipe or a socket in the place of a file is not opened for long."""

    def test_a_pipe(self, tmp_path: Path) -> None:
        io = Gate(allowed=(str(tmp_path),), own=(str(tmp_path),)).around(load_file_io())
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StorageError, match="not a regular file"):
            io.read(f"{tmp_path}/pipe")
        assert not io.exists(f"{tmp_path}/pipe")
