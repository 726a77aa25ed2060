"""Files on Google Cloud Storage, on fake-gcs-server."""

import uuid

import pytest

from airflow_iceberg.storage import FsspecFileIO
from tests.services.gcs import BUCKET, FakeGcs
from tests.storage.contract import StoreContract


@pytest.fixture(scope="module")
def server():
    server = FakeGcs()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shared(server):
    return FsspecFileIO(server.properties())


class TestContract(StoreContract):
    """Google Cloud Storage is a store."""

    @pytest.fixture
    def io(self, shared):
        return shared

    @pytest.fixture
    def root(self):
        return f"gs://{BUCKET}/{uuid.uuid4().hex}"
