"""The Hadoop catalog on stores that are no local disk: the same contract, on each of them for real."""

import pytest

from airflow_iceberg.catalogs.hadoop.catalog import HadoopCatalog
from airflow_iceberg.storage import FsspecFileIO
from tests.catalogs import places
from tests.catalogs.contract import DirectoriesContract


@pytest.fixture(scope="class")
def ios():
    return {}


class StoreContract(DirectoriesContract):
    """Give the store in `place`; its tests share one client for each of the two programs."""

    processes = 2
    commits_per_process = 5

    @pytest.fixture
    def properties(self, request, tmp_path):
        return self.place(request, tmp_path)

    @pytest.fixture
    def catalog(self, properties, ios):
        catalog = HadoopCatalog("prod", properties, io=ios.setdefault("own", FsspecFileIO(properties)))
        catalog.create_namespace("db")
        return catalog

    @pytest.fixture
    def other(self, properties, ios):
        return HadoopCatalog("prod", properties, io=ios.setdefault("other", FsspecFileIO(properties)))


@pytest.mark.services
class TestOnS3(StoreContract):
    """On S3."""

    place = staticmethod(places.s3)


@pytest.mark.services
class TestOnGcs(StoreContract):
    """On Google Cloud Storage."""

    place = staticmethod(places.gcs)


@pytest.mark.services
class TestOnAzure(StoreContract):
    """On Azure's Blob storage."""

    place = staticmethod(places.adls)


@pytest.mark.services
class TestOnHdfs(StoreContract):
    """On HDFS by its own protocol."""

    place = staticmethod(places.hdfs)


@pytest.mark.services
class TestOnHdfsByHttp(StoreContract):
    """On HDFS by WebHDFS."""

    place = staticmethod(places.webhdfs)
