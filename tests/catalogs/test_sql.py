"""The SQL catalog on SQLite, and beside PyIceberg's SqlCatalog in one file."""

import pytest

from tests.catalogs.contract import CatalogContract


class TestContract(CatalogContract):
    """A SQL catalog is a catalog."""

    @pytest.fixture
    def properties(self, tmp_path):
        return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
