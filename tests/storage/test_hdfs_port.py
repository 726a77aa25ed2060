"""A wrong port in `hdfs://host:port/`: nobody has to wait for the driver's many tries to be told."""

import socket

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import StorageError
from airflow_iceberg.storage import FsspecFileIO


@pytest.fixture
def refused():
    """host:port of this machine where nobody listens, and nobody else can begin to."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


class TestAPortWhereNobodyListens:
    """It is said before the first request, with what was expected there; surely nothing was changed."""

    def expected(self, what, refused):
        return (
            f"cannot {what}: no NameNode answers at {refused}: Connection refused; expected the port of its RPC "
            "(8020 or 9000 as a rule), which is another than that of its web pages"
        )

    def test_reading(self, refused):
        with pytest.raises(StorageError) as raised:
            FsspecFileIO().read(f"hdfs://{refused}/x")
        assert str(raised.value) == self.expected(f"read hdfs://{refused}/x", refused)
        assert raised.value.is_refused

    def test_creating(self, refused):
        with pytest.raises(StorageError) as raised:
            FsspecFileIO().create(f"hdfs://{refused}/x", b"")
        assert str(raised.value) == self.expected(f"create hdfs://{refused}/x", refused)
        assert raised.value.is_refused

    def test_a_hadoop_catalog(self, refused):
        with pytest.raises(StorageError, match=f"no NameNode answers at {refused}: Connection refused"):
            load_catalog("prod", type="hadoop", warehouse=f"hdfs://{refused}/warehouse").list_namespaces()
