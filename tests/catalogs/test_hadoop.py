"""The Hadoop catalog on a real local file system."""

import pytest

from tests.catalogs.contract import CatalogContract


class TestContract(CatalogContract):
    """A Hadoop catalog is a catalog; a table in it cannot be renamed or registered, a namespace has no properties."""

    can_rename = False
    can_register = False
    has_namespace_properties = False

    @pytest.fixture
    def properties(self, tmp_path):
        return {"type": "hadoop", "warehouse": f"file://{tmp_path}/warehouse"}
