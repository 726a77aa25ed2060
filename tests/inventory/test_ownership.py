"""Whether a location that metadata calls the table's own may be another table's."""

import dataclasses
import json
import os

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId, TableState
from airflow_iceberg.errors import StorageError, UnsupportedError
from airflow_iceberg.format.metadata.updates import Change, SetLocation, SetProperties
from airflow_iceberg.inventory.ownership import _Look
from airflow_iceberg.inventory.seen_metadata import look_at
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.table import Table

ROW = pa.table({"id": [1]})


@pytest.fixture
def open_catalog(tmp_path):
    def open_catalog():
        return load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")

    catalog = open_catalog()
    catalog.create_namespace("mine")
    return open_catalog


def victim(catalog, namespace, folder):
    catalog.create_namespace(namespace, {"location": f"file://{folder}"})
    table = Table.create(catalog, f"{namespace}.victim", schema={"id": "long"})
    table.append(ROW)
    return [task.file.file_path for task in table.scan().plan_files()]


def claim(catalog, place):
    """Make a table whose property claims a place, and return the access by which its files are deleted."""
    properties = {"write.data.path": f"file://{place}"}
    table = Table.create(catalog, "mine.t", schema={"id": "long"}, properties=properties)
    table.append(ROW)
    return catalog.deleting_io(catalog.load("mine.t"))


@pytest.mark.parametrize("name", ["theirs", "_theirs", ".theirs", "data", "metadata"])
def test_a_table_below_is_found_whatever_its_folder_is_called(open_catalog, tmp_path, name):
    (live,) = victim(open_catalog(), "ns", tmp_path / "wh" / "lake" / name)
    assert not claim(open_catalog(), tmp_path / "wh" / "lake").owns(live)


@pytest.mark.parametrize("folder", ["data", "_x", "20240131", "10101"])
def test_namespaces_and_tables_with_names_of_other_things_are_found_below(open_catalog, tmp_path, folder):
    """A commit can name the folder above as the location, so that "data" there is no folder of the table."""
    catalog = open_catalog()
    place = tmp_path / "wh" / "lake"
    (live,) = victim(catalog, "ns", place / folder)
    table = Table.create(catalog, "mine.t", schema={"id": "long"})
    table.append(ROW)
    claims = (SetProperties(updates={"write.data.path": f"file://{place}"}), SetLocation(location=f"file://{place}"))
    for change in claims:
        catalog.commit(catalog.load("mine.t"), Change(requirements=(), updates=(change,)))
        assert not open_catalog().deleting_io(catalog.load("mine.t")).owns(live)


@pytest.mark.parametrize("names", [["_delta_log"], [".hoodie"], ["snapshot", "schema", "manifest"]])
@pytest.mark.parametrize("below", ["", "deeper/"])
def test_tables_of_other_formats_are_found(open_catalog, tmp_path, names, below):
    """They may have written Iceberg's metadata, for readers: their other files would look like orphans."""
    catalog = open_catalog()
    table = Table.create(catalog, "mine.t", schema={"id": "long"})
    table.append(ROW)
    lake = tmp_path / "wh" / "lake"
    for name in names:
        (lake / below / name).mkdir(parents=True)
        (tmp_path / "wh" / "mine" / "t" / below / name).mkdir(parents=True)
    assert not open_catalog().deleting_io(catalog.load("mine.t")).owns(f"{table.location}/data/a.parquet")
    catalog.drop_table("mine.t")
    assert not claim(open_catalog(), lake).owns(f"file://{lake}/{below}a.parquet")


def test_a_day_is_no_hash(open_catalog, tmp_path):
    catalog, place = open_catalog(), tmp_path / "wh" / "lake"
    catalog.create_namespace("ns", {"location": f"file://{place}"})
    Table.create(catalog, "ns.20240131", schema={"id": "long"}).append(ROW)
    assert not claim(open_catalog(), place).owns(f"file://{place}/20240131/data/x.parquet")


@pytest.mark.parametrize("folder", ["10023456", "cafebabe/deeper", "0101"])
def test_some_of_the_folders_that_are_called_like_hashes_are_looked_into(open_catalog, tmp_path, folder):
    """Tenants have numbers."""
    lake = tmp_path / "wh" / "lake"
    (live,) = victim(open_catalog(), "ns", lake / folder)
    assert not claim(open_catalog(), lake).owns(live)


def test_a_place_with_too_many_folders_is_not_its_own(open_catalog, tmp_path):
    (live,) = victim(open_catalog(), "ns", tmp_path / "wh" / "lake" / "zz")
    for number in range(205):
        os.makedirs(tmp_path / "wh" / "lake" / f"other{number:03d}")
    assert not claim(open_catalog(), tmp_path / "wh" / "lake").owns(live)


def test_a_place_of_its_own_may_have_many_partitions_and_hashes(open_catalog, tmp_path):
    lake = tmp_path / "wh" / "lake"
    for number in range(300):
        os.makedirs(lake / f"day={number}")
        os.makedirs(lake / f"{number:08x}")
        os.makedirs(lake / f"W_{number:04d}")  # as Iceberg 1.3 to 1.6 spreads files, in base64
    assert claim(open_catalog(), lake).owns(f"file://{lake}/day=1/x.parquet")


def test_what_could_not_be_looked_at_is_looked_at_again(open_catalog, tmp_path, monkeypatch):
    lake = tmp_path / "wh" / "lake"
    catalog = open_catalog()
    with monkeypatch.context() as patch:

        def unavailable(*_):
            raise StorageError("503")

        patch.setattr(_Look, "_metadata_files", unavailable)
        assert not claim(catalog, lake).owns(f"file://{lake}/x.parquet")
    assert catalog.deleting_io(catalog.load("mine.t")).owns(f"file://{lake}/x.parquet")


def test_a_list_that_fails_is_no_proof(open_catalog, tmp_path, monkeypatch):
    def denied(*_):
        raise StorageError("403")

    monkeypatch.setattr(_Look, "_children", denied)
    assert not claim(open_catalog(), tmp_path / "wh" / "lake").owns(f"file://{tmp_path}/wh/lake/x.parquet")


def test_a_rest_server_s_word_is_not_enough(open_catalog, tmp_path):
    """Whoever may commit to a table of the server can set its location."""
    (live,) = victim(open_catalog(), "ns", tmp_path / "wh" / "ns")
    own = Table.create(open_catalog(), "mine.t", schema={"id": "long"})
    own.append(ROW)
    rest = load_catalog("r", type="rest", uri="http://127.0.0.1:1", warehouse=f"file://{tmp_path}/wh")
    forged = dataclasses.replace(own.metadata, location=live.partition("/data/")[0])
    state = TableState(table=TableId.of("mine.t"), metadata=forged, metadata_location=own.metadata_location)
    assert not rest.deleting_io(state, load_file_io({})).owns(live)


class TestWhoseMetadataItIs:
    """A file that cannot be told apart counts as another table's."""

    def look(self, folder, document):
        path = folder / "00001-x.metadata.json"
        path.write_text(json.dumps(document))
        return look_at(load_file_io({}), f"file://{path}")

    def test_of_a_later_version(self, tmp_path):
        with pytest.raises(UnsupportedError):
            self.look(tmp_path, {"format-version": 99, "table-uuid": "x"})

    def test_properties_with_the_same_names(self, open_catalog, tmp_path):
        table = Table.create(open_catalog(), "mine.t", schema={"id": "long"})
        document = json.loads(table.io.read(table.metadata_location))
        before = {"properties": {"location": "file:///mine", "table-uuid": "y"}}
        seen = self.look(tmp_path, {**before, **document, **before})
        assert seen is not None
        assert (seen.location, seen.uuid) == (table.location, table.metadata.table_uuid)

    def test_nonsense_is_of_no_table(self, tmp_path):
        assert self.look(tmp_path, {"location": "file:///x"}) is None
