"""The REST catalog on the server of Iceberg Java's own tests: the reference for what the protocol means."""

import pytest

from airflow_iceberg.catalogs import load_catalog
from tests.catalogs.rest_contract import RestContract, empty
from tests.services.iceberg_rest import IcebergRest

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server():
    server = IcebergRest().start()
    yield server
    server.stop()


class TestContract(RestContract):
    """Iceberg Java's server is a catalog."""

    @pytest.fixture
    def properties(self, server):
        empty(load_catalog("clean", **server.catalog_properties))
        return server.catalog_properties
