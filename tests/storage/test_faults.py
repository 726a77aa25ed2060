"""What becomes of a creation whose answer is lost, doubled or wrong, on real servers behind a proxy."""

import socket
import uuid

import pytest

from airflow_iceberg.errors import AlreadyExistsError, CommitConflictError, StorageError, UnsupportedError
from airflow_iceberg.storage import FsspecFileIO
from tests.catalogs.contract import make_table, new_catalog, setting
from tests.services.gcs import BUCKET as GCS_BUCKET
from tests.services.http_proxy import HttpProxy, Reply, double, fail_after, fail_before, lose_reply, lose_request
from tests.services.seaweedfs import BUCKET, SECRET_KEY, SeaweedFS
from tests.support.faults import all_texts


@pytest.fixture(scope="module")
def server(seaweedfs):
    return seaweedfs


@pytest.fixture(params=["s3", "gcs"])
def store(request):
    """(proxy, io through it, an empty directory, method that creates)."""
    if request.param == "s3":
        server = request.getfixturevalue("server")
        with HttpProxy(server.s3_endpoint) as proxy:
            io = FsspecFileIO(through(proxy, server))
            yield proxy, io, f"s3://{BUCKET}/{uuid.uuid4().hex}", "PUT"
        return
    server = request.getfixturevalue("gcs")
    with HttpProxy(server.endpoint) as proxy:
        io = FsspecFileIO({**server.properties(), "gcs.service.host": proxy.uri})
        yield proxy, io, f"gs://{GCS_BUCKET}/{uuid.uuid4().hex}", "POST"


def through(proxy: HttpProxy, server: SeaweedFS) -> dict[str, str]:
    """The properties of S3 behind the proxy; as a proxy, since the name of the host is part of each signature."""
    return {**server.s3_properties, "s3.proxy-uri": proxy.uri}


class TestLostAnswers:
    """A creation is found out by what lies there: ours is a success, somebody else's is not."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "fault", [lose_reply, lose_request, double, fail_after(500), fail_after(503), fail_before(502)]
    )
    def test_it_lands_once_and_is_a_success(self, store, fault):
        """The second answer to a doubled request says that the file exists: it is our own."""
        proxy, io, root, method = store
        proxy.on(method, "wanted", fault)
        io.create(f"{root}/wanted", b"mine")
        assert io.read(f"{root}/wanted") == b"mine"

    @pytest.mark.costly
    @pytest.mark.parametrize("content", [b"theirs", b"mine"])
    def test_what_somebody_else_created_meanwhile_is_not_ours_even_with_the_same_bytes(self, store, content):
        proxy, io, root, method = store
        rival = FsspecFileIO(io._settings.current())

        def forestall(request, forward):
            rival.create(f"{root}/wanted", content)
            return Reply(status=500, headers=(), body=b"")

        proxy.on(method, "wanted", forestall)
        with pytest.raises(AlreadyExistsError):
            io.create(f"{root}/wanted", b"mine")
        assert io.read(f"{root}/wanted") == content

    @pytest.mark.costly
    def test_a_commit_whose_answer_is_lost_is_a_commit(self, server):
        with HttpProxy(server.s3_endpoint) as proxy:
            warehouse = f"s3://{BUCKET}/{uuid.uuid4().hex}"
            catalog = new_catalog(type="hadoop", warehouse=warehouse, **through(proxy, server))
            base = make_table(catalog)
            proxy.on("PUT", "v2.metadata.json", lose_reply)
            state = catalog.commit(base, setting(a="1"))
            assert catalog.load("db.t") == state
            with pytest.raises(CommitConflictError):
                catalog.commit(base, setting(b="1"))


class TestStoresThatIgnoreTheCondition:
    """They are found out before the first commit, and refused."""

    @pytest.mark.costly
    def test_a_server_that_overwrites_is_no_place_for_a_hadoop_table(self, server):
        def say_that_it_worked(request, forward):
            forward(request)
            return Reply(status=200, headers=(), body=b"")

        with HttpProxy(server.s3_endpoint) as proxy:
            warehouse = f"s3://{BUCKET}/{uuid.uuid4().hex}"
            catalog = new_catalog(type="hadoop", warehouse=warehouse, **through(proxy, server))
            for _ in range(2):
                proxy.on("PUT", ".probe", say_that_it_worked)
            with pytest.raises(UnsupportedError, match="overwrites a file that is to be created only if it isn't"):
                make_table(catalog)
            assert not catalog.table_exists("db.t")
            assert [status.location for status in catalog.io.list(catalog.properties["warehouse"])] == []


class TestRefusals:
    """A store that says no is told apart from one that cannot be reached, and no message shows a secret."""

    def error(self, **properties: str) -> StorageError:
        io = FsspecFileIO(properties)
        with pytest.raises(StorageError) as raised:
            io.create(f"s3://{BUCKET}/f", b"")
        shown = all_texts(raised.value)
        assert not [key for key, value in properties.items() if "secret" in key and value in shown]
        return raised.value

    @pytest.mark.costly
    def test_a_wrong_key_is_a_refusal(self, server):
        error = self.error(**{**server.s3_properties, "s3.secret-access-key": "wrong-secret-key"})
        assert error.is_refused
        assert "permission denied (SignatureDoesNotMatch" in str(error)

    @pytest.mark.costly
    def test_a_missing_bucket_is_named(self, server):
        io = FsspecFileIO(server.s3_properties)
        with pytest.raises(StorageError, match=r"there is no bucket 'no-such-bucket', create it or check its name"):
            io.read("s3://no-such-bucket/f")
        with pytest.raises(StorageError, match=r"there is no bucket 'no-such-bucket'"):
            list(io.list("s3://no-such-bucket/f"))

    @pytest.mark.costly
    def test_a_host_that_nobody_knows_is_named(self, server):
        error = self.error(**{**server.s3_properties, "s3.endpoint": "http://no-such-host.invalid:9000"})
        assert "the name of the store's host is not known ('no-such-host.invalid')" in str(error)
        assert SECRET_KEY not in str(error)

    @pytest.mark.costly
    def test_a_store_that_is_away_is_not_a_refusal(self, server):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        error = self.error(**{**server.s3_properties, "s3.endpoint": f"http://127.0.0.1:{port}"})
        assert not error.is_refused

    @pytest.mark.costly
    def test_two_catalogs_with_different_keys_do_not_share(self, server):
        right, wrong = (
            FsspecFileIO(server.s3_properties),
            FsspecFileIO({**server.s3_properties, "s3.access-key-id": "x"}),
        )
        name = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        right.create(name, b"1")
        with pytest.raises(StorageError, match="permission denied"):
            wrong.read(name)
        assert right.read(name) == b"1"


class TestCredentialsThatEnd:
    """Whoever handed them out is asked for newer ones: before they end, and when the store says that they have."""

    def expiring(self, server, expires_ms: int) -> dict[str, str]:
        return {**server.s3_properties, "s3.session-token-expires-at-ms": str(expires_ms)}

    @pytest.mark.costly
    def test_they_are_renewed_before_they_end(self, server):
        asked = []

        def newer() -> dict[str, str]:
            asked.append(1)
            return self.expiring(server, 4_000_000_000_000)

        stale = {**self.expiring(server, 1_000), "s3.secret-access-key": "of-yesterday"}
        io = FsspecFileIO(stale, refresh=newer)
        name = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        io.create(name, b"1")
        assert io.read(name) == b"1"
        assert asked == [1]

    @pytest.mark.services
    def test_they_are_renewed_when_the_store_says_that_they_ended(self, server):
        expired = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"

        def say_so(request, forward):
            return Reply(status=400, headers=(("Content-Type", "application/xml"),), body=expired)

        asked = []
        with HttpProxy(server.s3_endpoint) as proxy:
            properties = through(proxy, server)

            def newer() -> dict[str, str]:
                asked.append(1)
                return properties

            io = FsspecFileIO(properties, refresh=newer)
            name = f"s3://{BUCKET}/{uuid.uuid4().hex}"
            proxy.on("PUT", name.rpartition("/")[2], say_so)
            io.create(name, b"1")
            assert io.read(name) == b"1"
            assert asked == [1]
            proxy.on("PUT", "another", say_so)
            with pytest.raises(StorageError, match="the credentials have expired"):
                FsspecFileIO(properties).create(f"{name}-another", b"")
