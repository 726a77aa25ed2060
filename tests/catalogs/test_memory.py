"""The catalog in memory that other tests stand on keeps the contract as well."""

import re

import pytest

from airflow_iceberg.catalogs.pointer import Pointer
from airflow_iceberg.errors import NotFoundError
from airflow_iceberg.table import Table
from tests.catalogs.contract import CatalogContract
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
