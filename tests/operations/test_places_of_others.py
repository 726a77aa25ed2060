"""Files of one table in the location of another one: a clean-up of the other one keeps them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.errors import IncompatibleChangeError, StorageError
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import age, id_rows, ids, litter
from tests.support.other_programs import table_at

PROPERTIES = ["write.data.path", "write.folder-storage.path", "write.object-storage.path"]


@pytest.fixture(params=["sql", "hadoop"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    found = load_catalog("c", type=request.param, uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    for namespace in ("db", "db.deeper"):
        found.create_namespace(namespace)
    return found


@pytest.fixture
def table(catalog: Catalog) -> Table:
    table = Table.create(catalog, "db.t", schema={"id": "long"})
    table.append(id_rows(range(3)))
    return table


def other(catalog: Catalog, name: str = "db.deeper.other", **properties: str) -> Table:
    table = Table.create(catalog, name, schema={"id": "long"}, properties=properties)
    table.append(id_rows(range(5)))
    return table


def clean(table: Table, **request: Any) -> Any:
    return remove_orphan_files(Work(table.refresh()), RemoveOrphanFilesRequest(**request))


@pytest.mark.sample(4)
@pytest.mark.parametrize("action", ["quarantine", "delete"])
@pytest.mark.parametrize("below", ["", "/data", "/data/theirs", "/theirs", "/theirs/"])
@pytest.mark.parametrize("name", PROPERTIES)
def test_data_files_of_another_table_are_kept(catalog, table, tmp_path, name, below, action, caplog):
    more = {"write.object-storage.enabled": "true"} if "object" in name else {}
    theirs = other(catalog, **{name: f"{table.location}{below}"}, **more)
    own, beside = litter(table, "data/litter.parquet", "theirs-not/litter.parquet")
    age(tmp_path / "db")
    with caplog.at_level(logging.WARNING):
        result = clean(table, action=action)
    assert ids(theirs.refresh()) == list(range(5))
    assert ids(table) == list(range(3))
    kept = {"": 3, "/data": 2}.get(below, 1)
    assert result.orphan_files == 3 - kept
    assert (own.exists(), beside.exists()) == (below in ("", "/data"), below == "")
    assert f"{kept} files in places of other tables ({theirs.location})" in caplog.text


def test_another_spelling_of_the_place_is_the_same(catalog, table, tmp_path):
    theirs = other(catalog, **{"write.data.path": f"{table.location}//the%69rs".replace("file:///", "file:/")})
    age(tmp_path / "db")
    clean(table, action="delete")
    assert ids(theirs.refresh()) == list(range(5))


def test_metadata_of_another_table_is_seen(catalog, table, tmp_path):
    """Its metadata files are there, which stops the clean-up; without them its manifests are kept."""
    if type(catalog).__name__ == "HadoopCatalog":
        pytest.skip("its tables have their metadata in their own location")
    theirs = other(catalog, **{"write.metadata.path": f"{table.location}/theirs"})
    age(tmp_path / "db")
    with pytest.raises(IncompatibleChangeError, match="shares its location"):
        clean(table, action="delete")
    assert ids(theirs.refresh()) == list(range(5))


def test_a_table_that_lies_below_is_seen_though_its_metadata_is_elsewhere(tmp_path):
    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    table = Table.create(catalog, "db.t", schema={"id": "long"})
    properties = {"write.metadata.path": f"{tmp_path.as_uri()}/elsewhere"}
    theirs = table_at(catalog, "db.u", f"{table.location}/below", properties=properties)
    theirs.append(id_rows(range(5)))
    litter(table, "data/litter.parquet")
    age(tmp_path / "db")
    assert clean(table, action="delete").orphan_files == 1
    assert ids(theirs.refresh()) == list(range(5))


class TestWhatDoesNotHinder:
    def test_tables_in_places_of_their_own(self, catalog, table, tmp_path, caplog):
        other(catalog)
        other(catalog, "db.far", **{"write.data.path": f"{table.location}-not"})
        (orphan,) = litter(table, "data/litter.parquet")
        age(tmp_path / "db")
        assert clean(table, action="delete").orphan_files == 1
        assert not orphan.exists()
        assert "other tables" not in caplog.text

    def test_a_table_that_cannot_be_read_is_logged(self, catalog, table, tmp_path, caplog, monkeypatch):
        theirs = other(catalog)
        litter(table, "data/litter.parquet")
        load = type(catalog).load

        def denied(self: Catalog, name: Any) -> Any:
            if str(name) == str(theirs.identifier):
                raise StorageError("access denied", is_refused=True)
            return load(self, name)

        monkeypatch.setattr(type(catalog), "load", denied)
        assert clean(table, action="delete").orphan_files == 1
        assert f"cannot tell whether table {theirs.name} has files in the location" in caplog.text

    @pytest.mark.parametrize("method", ["load", "list_tables", "list_namespaces"])
    @pytest.mark.parametrize("action", ["quarantine", "delete"])
    def test_what_cannot_be_asked_now_may_have_files_there(self, catalog, table, tmp_path, monkeypatch, method, action):
        """Two faults at once: a table that writes into this one's folder, and a catalog or a store that is busy."""
        theirs = other(catalog, **{"write.data.path": f"{table.location}/theirs"})
        age(tmp_path / "db")
        real = getattr(type(catalog), method)

        def busy(self: Catalog, name: Any = None) -> Any:
            asked = str(name) == str(theirs.identifier) if method == "load" else name in (("db", "deeper"), None)
            if asked:
                raise StorageError("503 slow down")
            return real(self, name)

        with monkeypatch.context() as patch:
            patch.setattr(type(catalog), method, busy)
            with pytest.raises(StorageError, match=r"cannot tell whether (a )?table .*has files in"):
                clean(table, action=action)
        assert ids(theirs.refresh()) == list(range(5))

    def test_without_orphans_no_other_table_is_loaded(self, catalog, table, monkeypatch):
        monkeypatch.setattr(type(catalog), "list_namespaces", lambda *given: pytest.fail("it was asked"))
        assert clean(table).orphan_files == 0

    def test_the_same_table_under_another_name(self, tmp_path):
        catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
        catalog.create_namespace("db")
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        catalog.register_table("db.again", table.metadata_location)
        litter(table, "data/litter.parquet")
        assert clean(table, action="delete").orphan_files == 1
        assert json.dumps(ids(table)) == "[]"
