"""Files on Google Cloud Storage, on fake-gcs-server."""

import gzip
import json
import uuid

import pytest
import requests

from airflow_iceberg.errors import StorageError
from airflow_iceberg.storage import FsspecFileIO
from tests.services.gcs import BUCKET
from tests.storage.contract import StoreContract
from tests.support.http_server import HttpServer, Reply


@pytest.fixture(scope="module")
def io(gcs):
    return FsspecFileIO(gcs.properties())


@pytest.fixture
def root():
    return f"gs://{BUCKET}/{uuid.uuid4().hex}"


class TestContract(StoreContract):
    """Google Cloud Storage is a store."""


WHAT = r"the object is stored with the content encoding 'gzip', so that no part of it can be read; store it without"


class TestAnObjectThatIsStoredCompressed:
    """Other programs upload some with a content encoding. All of one is read as what was compressed, and no part."""

    DATA = b"id,name\n" + b"".join(b"%d,n%d\n" % (n, n) for n in range(1000))

    def check(self, io, location):
        assert io.read(location) == self.DATA
        for offset, length in ((0, 10), (5, None), (0, 1 << 20)):
            with pytest.raises(StorageError, match=WHAT) as told:
                io.read(location, offset=offset, length=length)
            assert location in str(told.value)
        filesystem, path = io.filesystem(location)
        with pytest.raises(OSError, match=WHAT):
            filesystem.cat_file(path, start=0, end=10)

    def test_on_the_server(self, gcs, io, root):
        name = f"{uuid.uuid4().hex}/a.csv"
        about = json.dumps({"name": name, "contentEncoding": "gzip", "contentType": "text/csv"})
        body = b"--x\r\nContent-Type: application/json\r\n\r\n" + about.encode() + b"\r\n--x\r\n"
        body += b"Content-Type: text/csv\r\n\r\n" + gzip.compress(self.DATA) + b"\r\n--x--\r\n"
        requests.post(
            f"{gcs.endpoint}/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart",
            data=body,
            headers={"Content-Type": "multipart/related; boundary=x"},
            timeout=30,
        ).raise_for_status()
        self.check(io, f"gs://{BUCKET}/{name}")


def test_one_that_is_decompressed_by_the_server_is_known_too():
    """It ignores which part was asked for, and says how the object is stored."""
    headers = {"x-goog-stored-content-encoding": "gzip", "Warning": "214 UploadServer gunzipped"}
    with HttpServer(lambda _: Reply(body=b"all of it", headers=headers)) as server:
        io = FsspecFileIO({"gcs.service.host": server.uri, "gcs.oauth2.token": "anon"})
        with pytest.raises(StorageError, match=WHAT):
            io.read("gs://b/a.csv", length=3)
        assert io.read("gs://b/a.csv") == b"all of it"


def test_a_part_of_an_object_that_is_not_is_read():
    with HttpServer(lambda _: Reply(body=b"all", headers={"x-goog-stored-content-encoding": "identity"})) as server:
        io = FsspecFileIO({"gcs.service.host": server.uri, "gcs.oauth2.token": "anon"})
        assert io.read("gs://b/a.csv", length=3) == b"all"
