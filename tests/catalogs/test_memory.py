"""The catalog in memory that other tests stand on keeps the contract as well."""

import re

import pytest

from airflow_iceberg.catalogs.pointer import Pointer
from airflow_iceberg.errors import CommitUnknownError, NotFoundError, StorageError
from airflow_iceberg.table import Table
from tests.catalogs.contract import CatalogContract, files_below, fill_table
from tests.support.memory import MemoryCatalog, set_a_property


class TestMemoryCatalog(CatalogContract):
    """A fake that behaves otherwise than the real ones would prove nothing."""

    @pytest.fixture
    def properties(self):
        return {"warehouse": "memory://warehouse"}

    @pytest.fixture
    def catalog(self):
        return MemoryCatalog("prod", namespaces=["db"])

    @pytest.fixture
    def other(self, catalog):
        return catalog

    def test_of_many_that_create_one_table_one_succeeds(self):
        pytest.skip("there is one object, and the next test is about threads on it")

    def test_processes_that_commit_at_once_lose_nothing(self):
        pytest.skip("memory is of one process")


class TestAMetadataFileThatVanishes:
    """A table may delete metadata files after commits: a reader that comes too late looks at the pointer again."""

    def test_the_newer_file_is_read(self):
        catalog = MemoryCatalog()
        Table.create(catalog, "db.t", schema={"id": "long"})
        old = catalog.load("db.t")
        set_a_property(catalog, old.table)
        pointers = iter([Pointer(metadata_location=old.metadata_location)])
        catalog.io.delete([old.metadata_location])
        inner = catalog.read_pointer
        catalog.read_pointer = lambda table: next(pointers, None) or inner(table)
        assert catalog.load("db.t").metadata_location != old.metadata_location

    def test_a_file_that_is_gone_for_good_is_named(self):
        catalog = MemoryCatalog()
        Table.create(catalog, "db.t", schema={"id": "long"})
        location = catalog.load("db.t").metadata_location
        catalog.io.delete([location])
        with pytest.raises(NotFoundError, match=re.escape(location)):
            catalog.load("db.t")


class TestPurgesThatFail:
    """Nothing is deleted while the table may still be there; what cannot be deleted can be found again."""

    @pytest.fixture
    def catalog(self):
        return MemoryCatalog("prod", namespaces=["db"])

    def test_a_drop_of_unknown_outcome_deletes_nothing(self, catalog, monkeypatch):
        state = fill_table(catalog)
        files = files_below(catalog, state.metadata.location)

        def lose_the_answer(table):
            raise CommitUnknownError("no answer")

        monkeypatch.setattr(catalog, "drop_pointer", lose_the_answer)
        with pytest.raises(CommitUnknownError):
            catalog.drop_table("db.t", purge=True)
        assert files_below(catalog, state.metadata.location) == files

    def test_what_cannot_be_deleted_ends_the_purge_which_can_be_done_again(self, catalog, monkeypatch, caplog):
        state = fill_table(catalog)
        inner = catalog.io.delete

        def refuse_manifests(locations):
            locations = list(locations)
            if any(location.endswith(".avro") for location in locations):
                raise StorageError("no permission")
            inner(locations)

        monkeypatch.setattr(catalog.io, "delete", refuse_manifests)
        catalog.drop_table("db.t", purge=True)
        assert "not all of its manifests are deleted: no permission" in caplog.text
        assert state.metadata_location in caplog.text
        monkeypatch.setattr(catalog.io, "delete", inner)
        catalog.register_table("db.t", state.metadata_location)
        catalog.drop_table("db.t", purge=True)
        assert files_below(catalog, state.metadata.location) == set()
