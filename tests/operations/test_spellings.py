"""A file is one file however its location is spelled: no clean-up takes a live file for an orphan."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.errors import StorageError
from airflow_iceberg.format.manifests.avro import write_manifest_list
from airflow_iceberg.format.manifests.entries import FileContent
from airflow_iceberg.format.metadata.updates import Change, SetStatistics
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.inventory.reachable_files import find_deletable
from airflow_iceberg.inventory.run import Progress, run_units
from airflow_iceberg.inventory.spellings import Spellings
from airflow_iceberg.inventory.units import read_unit, write_unit
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.file_inventory import FileInventory
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, known_files, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import age, id_rows, ids, reachable

# How the folder of a warehouse is spelled, from the folder that holds `real/wh` and the link `outer` to `real`.
SPELLINGS: dict[str, Callable[[Path], str]] = {
    "plain": lambda top: f"file://{top}/real/wh",
    "through a link": lambda top: f"file://{top}/outer/wh",
    "a bare path through a link": lambda top: f"{top}/outer/wh",
    "one slash": lambda top: f"file:{top}/real/wh",
    "a dot": lambda top: f"file://{top}/real/./wh",
    "two slashes": lambda top: f"{top}/real//wh",
}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "real" / "wh").mkdir(parents=True)
    (tmp_path / "outer").symlink_to(tmp_path / "real")
    return tmp_path


def respelled(table: Table, location: str, spelling: str) -> str:
    """Return the location of a file below a table with another spelling of its warehouse."""
    name = os.path.realpath(location.removeprefix("file:").replace("//", "/"))
    top = name[: name.index("/real/wh/")]
    return f"{SPELLINGS[spelling](Path(top))}/{name.partition('/real/wh/')[2]}"


def mixed_table(top: Path, of_table: str, of_files: str, name: str = "t") -> Table:
    """Make a table of whose files some, of every kind, are recorded under another spelling than its location."""
    catalog = load_catalog(
        "c", type="sql", uri=f"sqlite:///{top}/{name}.db", warehouse=SPELLINGS[of_table](top),
        **{"allowed-locations": SPELLINGS["through a link"](top)},
    )  # fmt: skip
    catalog.create_namespace("db")
    properties = {"format-version": "2", "write.delete.mode": "merge-on-read"}
    table = Table.create(catalog, f"db.{name}", schema={"id": "long"}, properties=properties)
    table.append(id_rows(range(3)))
    place = respelled(table, table.location, of_files)
    for folder in ("data", "metadata"):
        table.alter([{"set_properties": {f"write.{folder}.path": f"{place}/{folder}"}}])
    table.append(id_rows(range(3, 6)))
    table.delete("id = 1")
    for folder in ("data", "metadata"):
        table.alter([{"remove_properties": [f"write.{folder}.path"]}])
    table.append(id_rows(range(6, 9)))
    age(top / "real")
    return table


def files(top: Path) -> set[Path]:
    return {path for path in (top / "real").rglob("*") if path.is_file() and ".quarantine" not in path.parts}


def orphans(top: Path, table: Table) -> list[Path]:
    folder = Path(os.path.realpath(table.location.removeprefix("file:").replace("//", "/")))
    found = [folder / "data" / "orphan.parquet", folder / "metadata" / "orphan-m0.avro"]
    for path in found:
        path.write_bytes(b"x")
    age(*found)
    return found


def pairs() -> Iterator[tuple[str, str]]:
    for one in SPELLINGS:
        if one != "plain":
            yield from (("plain", one), (one, "plain"))
    yield "a bare path through a link", "through a link"


@pytest.mark.costly
@pytest.mark.parametrize("action", ["delete", "quarantine"])
def test_no_live_file_is_an_orphan(top: Path, action: str) -> None:
    for number, (of_table, of_files) in enumerate(pairs()):
        table = mixed_table(top, of_table, of_files, f"t{number}")
        before = files(top)
        litter = orphans(top, table)
        result = remove_orphan_files(Work(table), RemoveOrphanFilesRequest(action=action))
        assert result.orphan_files == len(litter), (of_table, of_files, result.orphans)
        assert files(top) == before, (of_table, of_files)
        assert ids(Table.load(table.catalog, f"db.t{number}")) == [0, 2, 3, 4, 5, 6, 7, 8]


def test_no_live_file_is_an_orphan_through_a_link(top: Path) -> None:
    table = mixed_table(top, "plain", "through a link")
    with_statistics(table, top / "real" / "wh" / "db" / "t" / "metadata" / "s.puffin")
    before, litter = files(top), orphans(top, table)
    assert remove_orphan_files(Work(table), RemoveOrphanFilesRequest(action="delete")).orphan_files == len(litter)
    assert files(top) == before
    assert ids(table.refresh()) == [0, 2, 3, 4, 5, 6, 7, 8]


def with_statistics(table: Table, path: Path) -> None:
    """Give the table's snapshot a statistics file, under the other spelling."""
    path.write_bytes(b"puffin")
    age(path)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    entry = {
        "snapshot-id": snapshot.snapshot_id, "statistics-path": str(path).replace("/real/", "/outer/"),
        "file-size-in-bytes": 6, "file-footer-size-in-bytes": 1, "blob-metadata": [],
    }  # fmt: skip
    update = SetStatistics(snapshot_id=snapshot.snapshot_id, statistics=entry)
    table.catalog.commit(table.catalog.load(table.identifier), Change(updates=(update,), requirements=()))
    age(path.parent)
    table.refresh()


def test_a_file_behind_a_link_that_is_gone_is_kept(top: Path) -> None:
    """Nobody knows which file is meant: so one of its name stays."""
    table = mixed_table(top, "plain", "through a link")
    before, litter = files(top), orphans(top, table)
    recorded = [*reachable(table), table.metadata_location, *(place for _, place in table.metadata.metadata_log)]
    (top / "outer").unlink()
    spellings = Spellings(table.location)
    known = spellings.known_files()
    spellings.add(known, recorded)
    assert {known.classify(f"file://{path}") for path in before} == {"known"}
    assert {known.classify(f"file://{path}") for path in litter} == {"orphan"}
    everything = [f"file://{path}" for path in sorted(before)]
    assert spellings.unreached([*everything, f"file://{litter[0]}"], recorded) == [f"file://{litter[0]}"]
    # Nor does one go that is itself spelled so.
    assert spellings.unreached([str(top / "outer" / "wh" / "x.avro")], []) == []


def recorded_through_a_link(top: Path, target: str) -> Table:
    """Record the data files of a table by a link below it, as a program does that follows links.

    Args:
        target: what the link `t/more` leads to, seen from the table's folder; "file" for links to single files.
    """
    table = mixed_table(top, "plain", "plain")
    folder = top / "real" / "wh" / "db" / "t"
    if target == "file":
        (folder / "more").mkdir()
    else:
        (folder / "more").symlink_to(target)
    current = table.metadata.current_snapshot()
    assert current is not None
    listed = (entry for manifest in read_manifests(table.io, current) for entry in read_entries(table.io, manifest))
    again = []
    for entry in listed:
        if entry.is_live and entry.data_file.content is FileContent.DATA:
            name = entry.data_file.file_path.rpartition("/")[2]
            if target == "file":
                (folder / "more" / name).symlink_to(folder / "data" / name)
            below = "more/data" if target in (".", "../t") else "more"
            again.append(replace(entry.data_file, file_path=f"{table.location}/{below}/{name}"))
    table.overwrite(id_rows([]), overwrite_filter="true")
    table.commit(AppendFiles(table.io, again, table.commit_settings(), written_schema=table.schema()))
    age(top / "real")
    return table


LINKS_BELOW = ("data", "./data/", ".", "../t", "file")


class TestALinkBelowTheTable:
    """We do not read through it, but others do: what lies behind it is in use."""

    @pytest.fixture(params=LINKS_BELOW)
    def table(self, request: pytest.FixtureRequest, top: Path) -> Table:
        if request.param not in ("data", "file"):
            request.applymarker(pytest.mark.costly)
        return recorded_through_a_link(top, request.param)

    def test_nothing_behind_it_is_deleted(self, table: Table, top: Path) -> None:
        expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62))
        data = {path for path in files(top) if path.suffix == ".parquet" and not path.is_symlink()}
        assert len(data) >= 3
        litter = orphans(top, table)
        for action in ("quarantine", "delete"):
            request = RemoveOrphanFilesRequest(action=action, older_than_ms=2**62, allow_recent=True)
            remove_orphan_files(Work(table.refresh()), request)
        live = {Path(os.path.realpath(place.removeprefix("file://"))) for place in reachable(table.refresh())}
        assert all(path.is_file() for path in live)
        assert not any(path.exists() for path in litter)

    def test_too_many_of_them_are_refused(self, top: Path) -> None:
        table = mixed_table(top, "plain", "plain")
        for number in range(201):
            (top / "real" / "wh" / "db" / "t" / f"l{number}").symlink_to("data")
        before = files(top)
        with pytest.raises(StorageError, match="more than 200 symbolic links below"):
            remove_orphan_files(Work(table), RemoveOrphanFilesRequest(action="delete"))
        assert files(top) == before


class TestExpiry:
    """What a snapshot that stays reaches under any spelling is not deleted with one that goes."""

    def test_a_data_file_that_is_listed_again_otherwise(self, top: Path) -> None:
        table = mixed_table(top, "plain", "through a link")
        current = table.metadata.current_snapshot()
        assert current is not None
        listed = (entry for manifest in read_manifests(table.io, current) for entry in read_entries(table.io, manifest))
        entries = [entry for entry in listed if entry.is_live and entry.data_file.content is FileContent.DATA]
        again = [
            replace(entry.data_file, file_path=respelled(table, entry.data_file.file_path, spelling))
            for entry, spelling in zip(entries, ("through a link", "plain", "a dot"), strict=True)
        ]
        table.overwrite(id_rows([]), overwrite_filter="true")
        settings = table.commit_settings()
        table.commit(AppendFiles(table.io, again, settings, written_schema=table.schema()))
        here = {Path(os.path.realpath(one.file_path.removeprefix("file:").replace("//", "/"))) for one in again}
        result = expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62))
        assert result.outcome == "committed"
        assert here <= files(top)
        assert len(ids(table.refresh())) == 9
        assert result.deleted_data_files == 0
        assert result.removed_position_delete_files == 1

    def test_lists_manifests_and_statistics(self, top: Path) -> None:
        table = mixed_table(top, "plain", "through a link")
        with_statistics(table, Path(f"{top}/real/wh/db/t/metadata/s.puffin"))
        current = table.refresh().metadata.current_snapshot()
        assert current is not None
        assert current.manifest_list is not None
        for number, spelling in enumerate(SPELLINGS):
            rows = [
                replace(each, manifest_path=respelled(table, each.manifest_path, spelling))
                for each in read_manifests(table.io, current)
            ]
            place = f"{table.location}/metadata/gone-{number}.avro"
            data = write_manifest_list(
                rows, snapshot_id=current.snapshot_id, parent_snapshot_id=None,
                sequence_number=current.sequence_number, format_version=2,
            )  # fmt: skip
            table.io.create(place, data)
            gone = [
                replace(current, snapshot_id=1, manifest_list=respelled(table, current.manifest_list, spelling)),
                replace(current, snapshot_id=2, manifest_list=place),
            ]
            statistics = [respelled(table, str(top / "real/wh/db/t/metadata/s.puffin"), spelling)]
            found = find_deletable(table.io, gone, table.metadata, statistics, inventory=FileInventory(Work(table)))
            assert (found.manifests, found.statistics, len(found.content)) == ((), (), 0), spelling
            assert found.manifest_lists == (place,), spelling


@pytest.mark.parametrize("spelling", ["through a link", "a dot"])
def test_a_purge_deletes_every_file(top: Path, spelling: str) -> None:
    table = mixed_table(top, "plain", spelling)
    table.catalog.drop_table("db.t", purge=True)
    assert files(top) == set()


def test_units_on_another_machine_use_the_folders_of_this_one(top: Path) -> None:
    """Links may lead elsewhere there."""
    table = mixed_table(top, "through a link", "plain")
    before, litter = files(top), orphans(top, table)

    def inventory(units: Any, *, what: str, files: int | None = None) -> Any:
        sent = [read_unit(write_unit(unit), path="x") for unit in units]
        assert {unit.folders for unit in sent} == {unit.folders for unit in units} != {()}
        yield from run_units(table.io, sent, Progress(what, whole=1))

    known = known_files(table, inventory=inventory)
    assert {known.classify(f"file://{path}") for path in before} == {"known"}
    assert {known.classify(f"{top}/outer/wh/{path.relative_to(top / 'real/wh')}") for path in before} == {"known"}
    assert {known.classify(f"file://{path}") for path in litter} == {"orphan"}


@pytest.mark.costly
def test_spellings_by_chance(top: Path) -> None:
    """Links to links, dots and slashes anywhere: what leads to a file is that file, and nothing else is."""
    (top / "again").symlink_to("outer/wh")
    (top / "real" / "wh" / "t" / "a b%20c").mkdir(parents=True)
    chance = random.Random(7)
    names = ["x", "a b%20c/y", "data/é=1/z", ".hidden/w"]
    wrong = []
    for _ in range(400):
        roots = [f"{top}/{each}" for each in ("real/wh", "outer/wh", "again", "outer/../real/wh", "again/../wh")]
        root, other = (chance.choice(("", "file:", "file://", "FILE://")) + chance.choice(roots) for _ in range(2))
        root = root.replace("/..", "").replace("outer/real", "real").replace("again/wh", "again")
        name = chance.choice(names)
        recorded = "".join(
            chance.choice(("/", "/", "//", "/./", "/.//")) if letter == "/" and index > 8 else letter
            for index, letter in enumerate(f"{other}/t/{name}")
        )
        spellings = Spellings(f"{root}/t")
        known = spellings.known_files()
        spellings.add(known, chance.sample([recorded, f"{other}/t/other", f"{root}/t/more"], 3))
        found = known.classify_all([f"{root}/t/{name}", f"{root}/t/{name}2"])
        gone = spellings.unreached([f"{root}/t/{name}", f"{root}/t/{name}2"], [recorded])
        if found != ["known", "orphan"] or gone != [f"{root}/t/{name}2"]:
            wrong.append((root, recorded, found, gone))
    assert not wrong
