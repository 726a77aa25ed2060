"""A table in the folder of another one, where a look from above does not come: in folders like those of its files.

Other programs make such tables. Whatever is done with the table above, all of their files stay.
"""

from contextlib import closing, suppress
from typing import Any

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import (
    AlreadyExistsError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    StorageError,
)
from airflow_iceberg.inventory.within import _MOST_LOOKS, ProvenFileIO
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.gate import Gate, own_only
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, ids
from tests.support.linked_lake import Attack, Lake
from tests.support.memory import MemoryCatalog, MemoryFileIO
from tests.support.other_programs import table_at
from tests.support.recording import commit_foreign_file

SCHEMA = {"id": "long"}
WAREHOUSE = "memory://warehouse"
# Folders that a look passes by, since a table may have many: those of partitions and hashes, and those in `data`.
NAMES = (
    "day=1.u", "data.day=1.u", "data.u", "data.x.y.u", "metadata.x.u", "01101001.u", "day=1.0110.u", "day=1.x.data",
)  # fmt: skip


def hadoop(tmp_path: Any) -> Any:
    return load_catalog("prod", type="hadoop", warehouse=f"{tmp_path}/wh")


def sql(tmp_path: Any) -> Any:
    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": WAREHOUSE}
    return SqlCatalog("prod", properties, io=MemoryFileIO())


def filled(table: Table) -> Table:
    table.append(id_rows([1, 2]))
    table.overwrite(id_rows([3]))
    return table


def both(catalog: Any, name: str) -> tuple[Table, Table]:
    """Return a table, and one that another program has made in its folder."""
    catalog.create_namespace("hr", if_not_exists=True)
    above = filled(Table.create(catalog, "hr.salaries", schema=SCHEMA))
    *spaces, _ = name.split(".")
    for depth in range(len(spaces)):
        with suppress(IcebergError):
            catalog._create_namespace(("hr", "salaries", *spaces[: depth + 1]), {})
    return above, filled(table_at(catalog, f"hr.salaries.{name}", f"{above.location}/{name.replace('.', '/')}"))


def content(table: Table) -> set[str]:
    return {status.location for status in table.catalog.io.list(table.location)}


def let_it_name(above: Table, files: set[str]) -> None:
    """Let the manifests of the table above name files of the inner one, and its next expiry delete them."""
    for path in sorted(files):
        commit_foreign_file(above.catalog, str(above.identifier), path)
    with suppress(IcebergError):
        above.refresh().delete("id > 0")
    with suppress(IcebergError):
        above.refresh().overwrite(id_rows([9]))


def clean(table: Table, **request: Any) -> Any:
    options = {"action": "delete", "older_than_ms": 2**62, "allow_recent": True, **request}
    return remove_orphan_files(Work(table.refresh()), RemoveOrphanFilesRequest(**options))


@pytest.mark.parametrize("make", [sql, hadoop])
class TestWhatIsDoneAbove:
    """It takes no file of the table below."""

    def test_an_expiry_and_a_purge_keep_files_that_the_metadata_names(self, make, tmp_path):
        self.check(make, NAMES[:1], tmp_path)

    @pytest.mark.costly
    def test_wherever_it_is(self, make, tmp_path):
        self.check(make, NAMES, tmp_path)

    def check(self, make, names, tmp_path):
        for number, name in enumerate(names):
            (tmp_path / str(number)).mkdir()
            above, inner = both(make(tmp_path / str(number)), name)
            before = content(inner)
            let_it_name(above, before)
            done = expire_snapshots(Work(above.refresh()), ExpireSnapshotsRequest(older_than_ms=2**62))
            assert (done.kept_files > 0, done.deleted_data_files > 0) == (True, True), name
            assert content(inner) >= before, name
            with suppress(InvalidInputError):  # what a Hadoop catalog says
                above.catalog.drop_table("hr.salaries", purge=True)
            assert content(inner) >= before, name
            assert ids(inner.refresh()) == [3]

    @pytest.mark.parametrize("below", ["", pytest.param("/h=2", marks=pytest.mark.costly)])
    def test_nor_those_of_a_table_called_like_a_partition_that_has_no_folder_for_data(self, make, below, tmp_path):
        """Its folder is one that a migrated table has itself."""
        catalog = make(tmp_path)
        catalog.create_namespace("hr")
        above = filled(Table.create(catalog, "hr.salaries", schema=SCHEMA))
        with suppress(IcebergError):
            catalog._create_namespace(("hr", "salaries"), {})
        place = f"{above.location}/day=1"
        inner = filled(table_at(catalog, "hr.salaries.day=1", place, properties={"write.data.path": f"{place}{below}"}))
        before = content(inner)
        assert not any(path.startswith(f"{place}/data/") for path in before)
        let_it_name(above, before)
        done = expire_snapshots(Work(above.refresh()), ExpireSnapshotsRequest(older_than_ms=2**62))
        assert (done.kept_files > 0, done.deleted_data_files > 0) == (True, True)
        with suppress(InvalidInputError):  # what a Hadoop catalog says
            above.catalog.drop_table("hr.salaries", purge=True)
        assert content(inner) >= before

    @pytest.mark.parametrize("name", ["day=1.u", pytest.param("data.x.u", marks=pytest.mark.costly)])
    def test_a_search_for_orphans_is_refused(self, make, name, tmp_path):
        """Also one in a folder in which no metadata of the inner table is listed."""
        above, inner = both(make(tmp_path), name)
        before = content(inner)
        way = f"{above.location}/{name.split('.')[0]}"
        for location in (None, way, inner.location, f"{inner.location}/data", f"{inner.location}/data/"):
            for action in ("delete", "quarantine", "dry_run"):
                with pytest.raises((IncompatibleChangeError, InvalidInputError), match=r"shares its location|own loc"):
                    clean(above, location=location, action=action)
        assert content(inner) == before

    def test_an_honest_table_with_such_folders_is_cleaned(self, make, tmp_path):
        """Otherwise nothing would be proven above."""
        catalog = make(tmp_path)
        catalog.create_namespace("hr")
        properties = {"write.object-storage.enabled": "true"} if make is sql else {}
        table = Table.create(
            catalog, "hr.t", schema={"id": "long"}, partition_by=["bucket[4](id)"], properties=properties
        )
        table.append(id_rows(range(9)))
        table.overwrite(id_rows([3]))
        done = expire_snapshots(Work(table.refresh()), ExpireSnapshotsRequest(older_than_ms=2**62))
        assert (done.kept_files, done.deleted_data_files) == (0, 4)
        left = f"{table.location}/data/id_bucket=1/left.parquet"
        catalog.io.create(left, b"x")
        assert clean(table, location=f"{table.location}/data").orphan_files == 1
        catalog.drop_table("hr.t", purge=True)
        assert content(table) == set()


class TestAHadoopCatalog:
    """A table is its folder: dropping it would remove a table in it, wherever it is."""

    @pytest.mark.parametrize(
        ("purge", "names"),
        [
            (False, ("data.day=1.u",)),
            pytest.param(True, (*NAMES, "x.u", "_x.u", "a.b.c.d.u"), marks=pytest.mark.costly),
        ],
    )
    def test_no_drop_removes_a_table_below(self, purge, names, tmp_path):
        for number, name in enumerate(names):
            (tmp_path / str(number)).mkdir()
            catalog = hadoop(tmp_path / str(number))
            above, inner = both(catalog, name)
            before = content(above)
            with pytest.raises(InvalidInputError, match=r"^cannot drop .*(has its metadata|may belong to another)"):
                catalog.drop_table("hr.salaries", purge=purge)
            assert content(above) == before, name
            assert ids(inner.refresh()) == [3]

    def test_a_quarantine_is_no_table(self, tmp_path):
        catalog = hadoop(tmp_path)
        catalog.create_namespace("hr")
        table = filled(Table.create(catalog, "hr.t", schema=SCHEMA))
        old = f"{table.location}/metadata/v0.metadata.json"
        catalog.io.create(old, catalog.io.read(table.metadata_location))
        assert clean(table, action="quarantine").orphan_files == 1
        catalog.drop_table("hr.t")
        assert content(table) == set()

    def test_no_table_is_made_above_another_one(self, tmp_path):
        for number, name in enumerate(("data.x", "metadata.x", "day=1.u", "_x.u", "data.day=1.x.u")):
            (tmp_path / str(number)).mkdir()
            catalog = hadoop(tmp_path / str(number))
            *spaces, _ = name.split(".")
            catalog.create_namespace(("hr", "salaries", *spaces))
            Table.create(catalog, f"hr.salaries.{name}", schema=SCHEMA)
            with pytest.raises((AlreadyExistsError, InvalidInputError), match=r"another table|is a namespace"):
                Table.create(catalog, "hr.salaries", schema=SCHEMA)


class TestCreation:
    """No table is made above or below another one, whatever the folders between them are called."""

    @pytest.mark.parametrize("make", [sql, lambda _: MemoryCatalog(io=MemoryFileIO(), namespaces=())])
    def test_in_folders_like_those_of_partitions(self, make, tmp_path):
        catalog = make(tmp_path)
        catalog.create_namespace("hr")
        Table.create(catalog, "hr.salaries", schema=SCHEMA)
        place = catalog.load("hr.salaries").metadata.location
        for below in ("day=1/u", "day=1", "data/day=1/u", "0110/u"):
            with pytest.raises(InvalidInputError, match="another table has its metadata at"):
                Table.create(catalog, "hr.inner", schema=SCHEMA, location=f"{place}/{below}")
            with pytest.raises(AlreadyExistsError):
                catalog.create_namespace(("hr", "salaries", below.split("/")[0]))

    @pytest.mark.costly
    def test_above_one(self, tmp_path):
        for number, below in enumerate(("day=1/u", "day=1", "x/day=1/u", "data/u", "data/day=1/u", "0110/u")):
            catalog = sql(tmp_path)
            catalog.create_namespace(f"s{number}")
            root = f"{WAREHOUSE}/s{number}/root"
            for more in range(60):
                catalog.io.create(f"{root}/a={more}/x.parquet", b"x")
            Table.create(catalog, f"s{number}.inner", schema=SCHEMA, location=f"{WAREHOUSE}/s{number}/up/{below}")
            with pytest.raises(InvalidInputError, match="another table has its metadata at"):
                Table.create(catalog, f"s{number}.t", schema=SCHEMA, location=f"{WAREHOUSE}/s{number}/up")
            Table.create(catalog, f"s{number}.t", schema=SCHEMA, location=root)


class TestWhatItCosts:
    """Folders of a table's own files are not looked at; others once, and not without end."""

    def proven(self, looked: list[str], *own: str) -> ProvenFileIO:
        def look(folder: str) -> str | None:
            looked.append(folder)
            return "it is" if "/theirs" in folder else None

        return ProvenFileIO(MemoryFileIO(), Gate(allowed=("memory://wh",), own=own or ("memory://wh/t",)), look)

    def test_own_files_cost_nothing(self):
        looked: list[str] = []
        io = self.proven(looked)
        for below in (
            "a", "data/a", "data/day=1/a", "data/day=1/h=2/a", "metadata/a", ".staging/x/data/a",
            "data/0110/1010/0011/01101010/day=1/a", "data/1a2b3c4d/db/t/day=1/a", ".quarantine/r/files/data/day=1/a",
        ):  # fmt: skip
            assert io.owns(f"memory://wh/t/{below}")
        assert looked == []

    def test_others_are_looked_at_once(self):
        looked: list[str] = []
        io = self.proven(looked)
        for number in range(3):
            assert io.owns(f"memory://wh/t/day=1/bucket-0/{number}")
            assert not io.owns(f"memory:///wh/t/day=1/theirs/data/{number}")
            with pytest.raises(InvalidInputError, match="outside of the table's own locations"):
                io.delete([f"memory://wh/t/day=1/theirs/data/{number}"])
        folders = ("day=1", "day=1/bucket-0", "day=1/theirs")
        assert sorted(looked) == [f"memory://wh/t/{folder}" for folder in folders]

    @pytest.mark.parametrize("is_ahead", [True, False])
    @pytest.mark.costly
    def test_with_very_many_all_files_are_listed_once(self, is_ahead):
        looked: list[str] = []
        io = self.proven(looked)
        files = [f"memory://wh/t/day={number}/a" for number in range(_MOST_LOOKS + 5)]
        theirs = f"memory://wh/t/day={_MOST_LOOKS + 9}/theirs"
        for path in (*files, f"{theirs}/metadata/v1.metadata.json", f"{theirs}/a"):
            io.inner.create(path, b"x")
        given = [*files, f"{theirs}/a"]
        assert (own_only(io, given)[0] if is_ahead else [*filter(io.owns, given)]) == files
        assert (len(looked), looked[-1]) == (_MOST_LOOKS + 1, theirs)
        with pytest.raises(InvalidInputError, match="outside of the table's own locations"):
            io.delete([f"{theirs}/a"])

    def test_one_at_a_time_if_they_cannot_be_listed(self, monkeypatch):
        def refused(*_):
            raise StorageError("no")

        looked: list[str] = []
        io = self.proven(looked)
        monkeypatch.setattr(io.inner, "list", refused)
        files = [f"memory://wh/t/day={number}/a" for number in range(_MOST_LOOKS + 5)]
        theirs = "memory://wh/t/day=x/theirs/a"
        assert own_only(io, [*files, theirs]) == (files, 1)
        assert len(looked) == len(files) + 2

    def test_what_cannot_be_looked_at_is_kept(self):
        def look(folder):
            raise StorageError("no")

        io = ProvenFileIO(MemoryFileIO(), Gate(allowed=("memory://wh",), own=("memory://wh/t",)), look)
        assert own_only(io, ["memory://wh/t/day=1/a", "memory://wh/t/day=2/a", "memory://wh/t/data/a"]) == (
            ["memory://wh/t/data/a"],
            2,
        )

    def test_the_outermost_own_location_counts(self):
        looked: list[str] = []
        io = self.proven(looked, "memory://wh/t", "memory://wh/t/day=1/theirs")
        assert not io.owns("memory://wh/t/day=1/theirs/data/a")


def test_no_rest_server_is_asked_to_purge_a_table_with_another_one_in_it(tmp_path):
    """It would delete what the metadata names."""
    with closing(Lake(tmp_path / "home", {"type": "stand-in"})) as lake:
        lake.reset()
        catalog = lake.opened("file://{}")
        lake.carry_out(Attack(space="below"))
        with pytest.raises(
            InvalidInputError, match=r"cannot purge db\.t, nothing was dropped: another table is in its"
        ):
            catalog.drop_table("db.t", purge=True)
        assert lake.server is not None
        assert "db.t" in lake.server.tables
        lake.reset()
        catalog.drop_table("db.t", purge=True)
        assert "db.t" not in lake.server.tables


def test_no_rest_server_is_asked_to_purge_a_second_name_of_a_table(tmp_path):
    """It would delete the files of the table that is at the place of its name."""
    with closing(Lake(tmp_path / "home", {"type": "stand-in"})) as lake:
        lake.reset()
        catalog = lake.opened("file://{}")
        catalog.register_table("db.copy", catalog.load("db.t").metadata_location)
        with pytest.raises(
            InvalidInputError, match=r"cannot purge db\.copy, nothing was dropped: .* is where table db\.t"
        ):
            catalog.drop_table("db.copy", purge=True)
        assert {"db.t", "db.copy"} <= set(lake.server.tables)
        catalog.drop_table("db.copy")
        assert "db.copy" not in lake.server.tables
