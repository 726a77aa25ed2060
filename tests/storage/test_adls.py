"""Files on Azure's Blob storage, on Azurite."""

import uuid

import pytest

from airflow_iceberg.storage import FsspecFileIO
from tests.services.azurite import CONTAINER
from tests.storage.contract import StoreContract

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def io(azurite):
    return FsspecFileIO(azurite.properties())


@pytest.fixture
def root():
    return f"abfs://{CONTAINER}/{uuid.uuid4().hex}"


class TestContract(StoreContract):
    """Blob storage is a store."""
