"""Files on S3: a real server (SeaweedFS), its failures, and credentials that end."""

import uuid

import pytest

from airflow_iceberg.storage import FsspecFileIO
from tests.services.seaweedfs import BUCKET, SeaweedFS
from tests.storage.contract import StoreContract


@pytest.fixture(scope="module")
def server():
    server = SeaweedFS().start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shared(server):
    return FsspecFileIO(server.s3_properties)


class TestContract(StoreContract):
    """S3 is a store."""

    @pytest.fixture
    def io(self, shared):
        return shared

    @pytest.fixture
    def root(self):
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"
