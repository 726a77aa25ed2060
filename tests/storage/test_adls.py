"""Files on Azure's Blob storage, on Azurite."""

import uuid

import pytest

from airflow_iceberg.storage import FsspecFileIO
from tests.services.azurite import CONTAINER
from tests.storage.contract import StoreContract

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def shared(azurite):
    return FsspecFileIO(azurite.properties())


class TestContract(StoreContract):
    """Blob storage is a store."""

    @pytest.fixture
    def io(self, shared):
        return shared

    @pytest.fixture
    def root(self):
        return f"abfs://{CONTAINER}/{uuid.uuid4().hex}"
