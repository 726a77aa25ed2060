"""Links outside of the warehouse that lead into the middle of it: whoever has a login can make and change them.

One who commits to a table names such a link as the table's own place. What is behind it is another table's folder, at
which none of that one's metadata lies.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.format.metadata.updates import Change, SetLocation, SetProperties
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import age, id_rows, ids
from tests.support.recording import commit_foreign_file

PLACES = (
    "location",
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


def _purge(catalog):
    catalog.drop_table("db.t", purge=True)


def _orphans(catalog):
    request = RemoveOrphanFilesRequest(action="delete", older_than_ms=2**62, allow_recent=True)
    remove_orphan_files(Work(Table.load(catalog, "db.t")), request)


def _expire(catalog):
    table = Table.load(catalog, "db.t")
    table.rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id)
    expire_snapshots(Work(Table.load(catalog, "db.t")), ExpireSnapshotsRequest(older_than_ms=2**62))


def lake(kind: str, folder: Path) -> Callable[[], Any]:
    """Make the tables `db.t` and `db.victim`, and return a function that opens their catalog anew."""

    def opened() -> Any:
        return load_catalog("c", type=kind, uri=f"sqlite:///{folder}/c.db", warehouse=f"{folder}/warehouse")

    folder.mkdir(exist_ok=True)
    catalog = opened()
    catalog.create_namespace("db")
    for name in ("db.victim", "db.t"):
        Table.create(catalog, name, schema={"id": "long"}).append(id_rows([1, 2]))
    return opened


@pytest.fixture(params=["sql", "hadoop"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    return lake(request.param, tmp_path)


def live_file(catalog) -> Path:
    (task,) = Table.load(catalog, "db.victim").scan().plan_files()
    return Path(task.file.file_path.removeprefix("file://"))


def claim(catalog, what: str, place: str) -> None:
    move = SetLocation(location=place) if what == "location" else SetProperties(updates={what: place})
    catalog.commit(catalog.load("db.t"), Change(requirements=(), updates=(move,)))


OPERATIONS = (_expire, _orphans, _purge)
WORST = ((_expire, "write.data.path", ""), (_orphans, "location", ""), (_purge, "write.metadata.path", "/below"))


def attacked(kind: str, folder: Path, operation: Callable[[Any], Any], what: str, end: str) -> list[int]:
    """Return the rows of the other table after an operation on a table that calls a link into it its own."""
    opened = lake(kind, folder)
    catalog, link = opened(), folder / "link"
    live = live_file(catalog)
    link.symlink_to(live.parent.parent if end == "/below" else live.parent)
    place = f"{link}/data" if end == "/below" else f"{link}{end}"
    with suppress(IcebergError):  # a Hadoop catalog refuses some
        claim(catalog, what, place)
        for path in (f"{place.rstrip('/')}/{live.name}", str(live)):
            commit_foreign_file(catalog, "db.t", path)
    age(folder / "warehouse")
    with suppress(IcebergError):
        operation(opened())
    return ids(Table.load(opened(), "db.victim")) if live.exists() else []


def test_nothing_of_the_table_behind_a_link_is_deleted(tmp_path):
    left = {str(case): attacked("sql", tmp_path / str(number), *case) for number, case in enumerate(WORST)}
    assert left == {str(case): [1, 2] for case in WORST}


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["sql", "hadoop"])
def test_nor_in_any_other_way(kind, tmp_path):
    cases = list(product(OPERATIONS, PLACES, ("", "/", "/below")))
    left = {str(case): attacked(kind, tmp_path / str(number), *case) for number, case in enumerate(cases)}
    assert left == {str(case): [1, 2] for case in cases}


def test_a_look_at_one_place_is_none_at_another(opened, tmp_path):
    """The link leads to an empty folder when it is looked at, and to the other table afterwards."""
    catalog = opened()
    live, link, empty = live_file(catalog), tmp_path / "link", tmp_path / "warehouse" / "db" / "empty"
    empty.mkdir()
    claim(catalog, "write.data.path", str(link))
    for first, then in ((empty, live.parent), (live.parent, empty)):
        link.unlink(missing_ok=True)
        link.symlink_to(first)
        catalog = opened()
        table = Table.load(catalog, "db.t")
        looked_at, others = [table.deleting_io()], [table.io]
        for place in (then, first, then):
            link.unlink()
            link.symlink_to(place)
            looked_at += [table.deleting_io(), Table.load(catalog, "db.t").deleting_io()]
            others += [table.io, Table.load(catalog, "db.t").io]
            paths = [str(live), *([f"{link}/{live.name}"] if place == live.parent else [])]
            assert not any(io.owns(path) for io in looked_at for path in paths)
            assert {io.owns(str(live)) for io in others} == {first == live.parent}
        assert ids(Table.load(opened(), "db.victim")) == [1, 2]


def test_a_table_is_not_registered_behind_one(opened, tmp_path):
    catalog = opened()
    victim = Table.load(catalog, "db.victim")
    folder = Path(victim.location.removeprefix("file://"))
    for name, inner in (("a", "data"), ("b", "data/below")):
        (folder / inner).mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(folder / inner)
        with pytest.raises(IcebergError, match=r"cannot lie at|cannot create"):
            Table.create(catalog, f"db.{name}", schema={"id": "long"}, location=str(tmp_path / name))
    shutil.rmtree(folder / "data" / "below")


def test_a_link_that_leads_out_of_the_warehouse_meanwhile_opens_nothing(opened, tmp_path):
    catalog = opened()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a").write_text("secret")
    link = tmp_path / "link"
    link.symlink_to(live_file(catalog).parent)
    gate = catalog.gate_of_place(TableId.of("db.t"), str(link))
    link.unlink()
    link.symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInputError, match="outside of the locations"):
        gate.around(catalog.io).read(f"{link}/a")
    with pytest.raises(InvalidInputError, match="the connection trusts"):
        opened().gate_of_place(TableId.of("db.t"), str(link))
