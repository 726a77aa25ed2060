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
        assert io.read(location) == io.read(location, length=1 << 20) == self.DATA
        for offset, length in ((0, 10), (5, 20), (5, None)):
            with pytest.raises(StorageError, match=WHAT) as told:
                io.read(location, offset=offset, length=length)
            assert location in str(told.value)
        filesystem, path = io.filesystem(location)
        with pytest.raises(OSError, match=WHAT):
            filesystem.cat_file(path, start=5, end=10)

    def test_by_a_server_that_sends_it_as_it_is(self):
        """Google's, to a client that can decompress: ranges are of the compressed bytes."""
        stored = gzip.compress(self.DATA)

        def answer(request):
            headers = {"Content-Encoding": "gzip", "x-goog-stored-content-encoding": "gzip"}
            asked = next((value for name, value in request.headers.items() if name.lower() == "range"), None)
            if asked is None:
                return Reply(body=stored, headers=headers)
            first, _, last = asked.removeprefix("bytes=").partition("-")
            part = stored[int(first) : int(last or len(stored)) + 1]
            sent = f"bytes {first}-{int(first) + len(part) - 1}/{len(stored)}"
            return Reply(status=206, body=part, headers={**headers, "Content-Range": sent})

        with HttpServer(answer) as server:
            self.check(FsspecFileIO({"gcs.service.host": server.uri, "gcs.oauth2.token": "anon"}), "gs://b/a.csv")

    def test_by_a_server_that_decompresses_it(self):
        """Google's, to any other client: it ignores what was asked for, and says how the object is stored."""
        headers = {"x-goog-stored-content-encoding": "gzip", "Warning": "214 UploadServer gunzipped"}
        with HttpServer(lambda _: Reply(body=self.DATA, headers=headers)) as server:
            self.check(FsspecFileIO({"gcs.service.host": server.uri, "gcs.oauth2.token": "anon"}), "gs://b/a.csv")

    def test_on_a_server(self, gcs, io):
        """It need not be as strict as Google's."""
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
        assert io.read(f"gs://{BUCKET}/{name}") == self.DATA
        with pytest.raises(StorageError, match=WHAT):
            io.read(f"gs://{BUCKET}/{name}", offset=5, length=20)


def test_a_part_of_an_object_that_is_not_is_read():
    with HttpServer(lambda _: Reply(body=b"all", headers={"x-goog-stored-content-encoding": "identity"})) as server:
        io = FsspecFileIO({"gcs.service.host": server.uri, "gcs.oauth2.token": "anon"})
        assert io.read("gs://b/a.csv", length=3) == b"all"
