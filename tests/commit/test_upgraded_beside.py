"""A table that another writer upgrades to a format version that is not supported, under an open handle."""

import json
from dataclasses import replace

import pytest
import sqlalchemy

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import CommitUnknownError, UnsupportedError
from airflow_iceberg.retries import is_final
from airflow_iceberg.table import Table
from tests.support.builders import id_rows

CHANGES = {
    "append": lambda table: table.append(id_rows([7])),
    "delete": lambda table: table.delete("id = 1"),
    "alter": lambda table: table.alter([{"set_properties": {"a": "b"}}]),
    "branch": lambda table: table.create_branch("audit"),
    "refresh": lambda table: table.refresh(),
}


@pytest.fixture
def catalog(tmp_path):
    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    return catalog


def upgrade(catalog, table, tmp_path) -> None:
    """Do as a writer of version 4, in a new metadata file."""
    with open(table.metadata_location.removeprefix("file://")) as file:
        document = json.load(file)
    new = tmp_path / "00009-v4.metadata.json"
    new.write_text(json.dumps({**document, "format-version": 4}))
    with catalog._opened.write() as connection:
        connection.execute(sqlalchemy.text("update iceberg_tables set metadata_location = :new"), {"new": new.as_uri()})


class TestAVersionThatIsNotSupported:
    """The error says which version; it is not an unknown outcome, and no retry helps."""

    @pytest.mark.parametrize("is_old", [False, True], ids=["at once", "an hour later"])
    @pytest.mark.parametrize("change", CHANGES)
    def test_is_named(self, catalog, tmp_path, change, is_old):
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        table.append(id_rows([1, 2]))
        if is_old:
            table = Table(replace(table.state, loaded_s=-3600.0), io=table.io, catalog=catalog)
        upgrade(catalog, table, tmp_path)
        with pytest.raises(
            UnsupportedError, match=r"^format version 4 of .*v4\.metadata\.json is not supported"
        ) as raised:
            CHANGES[change](table)
        assert is_final(raised.value)
        assert catalog.read_pointer(table.state.table).metadata_location.endswith("v4.metadata.json")

    def test_files_of_an_attempt_that_may_have_landed_are_kept(self, catalog, tmp_path, monkeypatch):
        """A request without an answer may have come before the upgrade."""
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        swap = catalog.swap_pointer

        def lose_the_answer(*args, **more):
            swap(*args, **more)
            upgrade(catalog, table, tmp_path)
            raise CommitUnknownError("no answer")

        monkeypatch.setattr(catalog, "swap_pointer", lose_the_answer)
        with pytest.raises(CommitUnknownError, match="format version 4"):
            table.append(id_rows([1]))
        assert list((tmp_path / "db" / "t" / "data").glob("*.parquet"))
