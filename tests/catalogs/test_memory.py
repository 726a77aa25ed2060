"""The catalog in memory that other tests stand on keeps the contract as well."""

import pytest

from tests.catalogs.contract import CatalogContract
from tests.support.memory import MemoryCatalog


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
