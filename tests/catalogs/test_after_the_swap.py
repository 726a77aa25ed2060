"""What happens after the swap cannot undo it: the commit is reported, and none of its files is deleted."""

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import CommitUnknownError, StorageError
from airflow_iceberg.inventory.ownership import _Look
from airflow_iceberg.operations import work as operations_work
from airflow_iceberg.table import Table

ROW = pa.table({"id": [1]})


def open_catalog(folder, kind="sql"):
    uri = {"uri": f"sqlite:///{folder}/c.db"} if kind == "sql" else {}
    return load_catalog("c", type=kind, warehouse=f"file://{folder}/wh", **uri)


def ids_in(folder, kind="sql", name="ns.t"):
    return sorted(Table.load(open_catalog(folder, kind), name).scan().to_arrow()["id"].to_pylist())


class TestOldMetadataThatCannotBeDeleted:
    """The table asks for its old metadata files to be deleted with each commit."""

    @pytest.fixture(params=["sql", "hadoop"])
    def kind(self, request):
        return request.param

    def table(self, folder, kind):
        catalog = open_catalog(folder, kind)
        catalog.create_namespace("ns")
        properties = {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
            "write.data.path": f"file://{folder}/wh/files/t",
        }
        return Table.create(catalog, "ns.t", schema={"id": "long"}, properties=properties)

    def test_a_place_that_may_not_be_listed(self, tmp_path, kind, monkeypatch):
        table = self.table(tmp_path, kind)
        children = _Look._children

        def denied(look, folder):
            if folder.endswith("files/t"):
                raise StorageError("permission denied")
            return children(look, folder)

        monkeypatch.setattr(_Look, "_children", denied)
        assert [table.append(ROW).outcome for _ in range(3)] == ["committed"] * 3
        assert ids_in(tmp_path, kind) == [1, 1, 1]

    @pytest.mark.parametrize("error", [StorageError("connection lost"), ValueError("raw")], ids=["ours", "raw"])
    def test_a_catalog_that_is_gone(self, tmp_path, kind, error, monkeypatch):
        table = self.table(tmp_path, kind)
        table.append(ROW)

        def gone(*_):
            raise error

        table = Table.load(open_catalog(tmp_path, kind), "ns.t")
        monkeypatch.setattr(type(table.catalog), "_is_expected", gone)
        assert table.append(ROW).outcome == "committed"
        assert ids_in(tmp_path, kind) == [1, 1]


def test_a_request_that_is_repeated_after_a_renaming(tmp_path, monkeypatch):
    """The answer "there is no such table" is no proof: the first request has landed, and the table has its file."""
    catalog = open_catalog(tmp_path)
    catalog.create_namespace("ns")
    table = Table.create(catalog, "ns.t", schema={"id": "long"})
    table.append(ROW)
    swap = SqlCatalog.swap_pointer

    def twice(own, name, **more):
        swap(own, name, **more)
        open_catalog(tmp_path).rename_table("ns.t", "ns.renamed")
        return swap(own, name, **more)

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "swap_pointer", twice)
        with pytest.raises(CommitUnknownError):
            table.append(ROW)
    assert ids_in(tmp_path, name="ns.renamed") == [1, 1]


def test_a_report_that_fails(tmp_path, monkeypatch):
    catalog = open_catalog(tmp_path)
    catalog.create_namespace("ns")
    table = Table.create(catalog, "ns.t", schema={"id": "long"})

    def broken(*_):
        raise StorageError("cannot describe")

    with monkeypatch.context() as patch:
        patch.setattr(operations_work, "describe", broken)
        with pytest.raises(CommitUnknownError, match="has landed, and then this failed: cannot describe"):
            table.append(ROW)
    assert ids_in(tmp_path) == [1]
