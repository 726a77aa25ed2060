"""The Hadoop catalog on stores that are no local disk: the same contract, on each of them for real."""

import uuid

import pytest

from tests.catalogs.contract import CatalogContract
from tests.services.gcs import BUCKET as GCS_BUCKET
from tests.services.seaweedfs import BUCKET as S3_BUCKET


class StoreContract(CatalogContract):
    """A table cannot be renamed or registered, a namespace has no properties."""

    can_rename = False
    can_register = False
    has_namespace_properties = False
    drop_keeps_files = False
    purges_without_collection = False
    processes = 2
    commits_per_process = 5


class TestOnS3(StoreContract):
    """On S3."""

    @pytest.fixture
    def properties(self, seaweedfs):
        warehouse = f"s3://{S3_BUCKET}/{uuid.uuid4().hex}"
        return {"type": "hadoop", "warehouse": warehouse, **seaweedfs.s3_properties}


class TestOnGcs(StoreContract):
    """On Google Cloud Storage."""

    @pytest.fixture
    def properties(self, gcs):
        return {"type": "hadoop", "warehouse": f"gs://{GCS_BUCKET}/{uuid.uuid4().hex}", **gcs.properties()}


@pytest.mark.services
class TestOnAzure(StoreContract):
    """On Azure's Blob storage."""

    @pytest.fixture
    def properties(self, azurite):
        return {"type": "hadoop", "warehouse": f"abfs://lake/{uuid.uuid4().hex}", **azurite.properties()}


@pytest.mark.services
class TestOnHdfs(StoreContract):
    """On HDFS by its own protocol."""

    @pytest.fixture
    def properties(self, hdfs):
        return {"type": "hadoop", "warehouse": f"hdfs://{hdfs.authority}/{uuid.uuid4().hex}"}


@pytest.mark.services
class TestOnHdfsByHttp(StoreContract):
    """On HDFS by WebHDFS."""

    @pytest.fixture
    def properties(self, hdfs):
        return {
            "type": "hadoop",
            "warehouse": f"webhdfs://{hdfs.web_authority}/{uuid.uuid4().hex}",
            "hdfs.user": "root",
        }
