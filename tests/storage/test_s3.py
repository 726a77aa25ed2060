"""Files on S3: a real server (SeaweedFS), its failures, and credentials that end."""

import traceback
import uuid

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import StorageError
from airflow_iceberg.storage import FsspecFileIO
from airflow_iceberg.table import Table
from tests.services.seaweedfs import BUCKET
from tests.storage.contract import StoreContract

ROWS = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture(scope="module")
def server(seaweedfs):
    return seaweedfs


@pytest.fixture(scope="module")
def io(server):
    return FsspecFileIO(server.s3_properties)


@pytest.fixture
def root():
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


class TestContract(StoreContract):
    """S3 is a store."""


class TestWithoutAccess:
    """Whoever reads or writes data files gets our error and a word on what to do, not the driver's."""

    @pytest.fixture
    def table(self, tmp_path, monkeypatch):
        """Its metadata is on this disk, its data on an S3 that the properties lead to."""
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

        def make(**properties: str) -> Table:
            place = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/warehouse"}
            catalog = load_catalog("prod", **place, **properties, **{"allowed-locations": "s3://lake/data"})
            catalog.create_namespace("db")
            settings = {"write.data.path": "s3://lake/data"}
            return Table.create(catalog, "db.t", schema={"id": "long"}, properties=settings)

        return make

    @pytest.mark.costly
    def test_missing_keys_are_named(self, table):
        with pytest.raises(
            StorageError, match=r"cannot use s3://lake/data/.*: there are no credentials: set s3\.access"
        ):
            table(**{"s3.endpoint": "http://127.0.0.1:1"}).append(ROWS)

    @pytest.mark.costly
    def test_a_server_that_is_away_is_named(self, table):
        keys = {"s3.access-key-id": "key", "s3.secret-access-key": "s3cr3t", "s3.connect-timeout": "1"}
        with pytest.raises(
            StorageError, match=r"cannot use s3://lake/data/.*127\.0\.0\.1:1.*check s3\.endpoint"
        ) as error:
            table(**{"s3.endpoint": "http://127.0.0.1:1", **keys}).append(ROWS)
        assert "s3cr3t" not in "".join(traceback.format_exception(error.value))
