"""Files on Google Cloud Storage, on fake-gcs-server."""

import uuid

import pytest

from airflow_iceberg.storage import FsspecFileIO
from tests.services.gcs import BUCKET
from tests.storage.contract import StoreContract


@pytest.fixture(scope="module")
def io(gcs):
    return FsspecFileIO(gcs.properties())


@pytest.fixture
def root():
    return f"gs://{BUCKET}/{uuid.uuid4().hex}"


class TestContract(StoreContract):
    """Google Cloud Storage is a store."""
