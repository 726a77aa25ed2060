"""Tasks that last longer than what they were given to reach their files, on servers that refuse what is over."""

import datetime as dt
import json
import re
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import StorageError
from airflow_iceberg.storage import FsspecFileIO
from airflow_iceberg.table import Table
from tests.services.gcs import BUCKET as GCS_BUCKET
from tests.services.http_proxy import HttpProxy, Reply
from tests.services.s3_signer import S3Signer
from tests.services.seaweedfs import ACCESS_KEY, SECRET_KEY, SeaweedFS

LATER_MS = 4_000_000_000_000
XML = (("Content-Type", "application/xml"),)
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


@pytest.fixture(scope="module")
def vending():
    server = SeaweedFS(vends=True).start()
    yield server
    server.stop()


class Gate:
    """Stands before a store and refuses those proofs of identity that are over.

    Attributes:
        refusals: how many requests it has refused.
    """

    def __init__(self, proof: str, refusal: Reply) -> None:
        self._proof = re.compile(proof)
        self._refusal = refusal
        self._seen: set[str] = set()
        self._over: set[str] = set()
        self.refusals = 0

    def __call__(self, request, forward):
        found = self._proof.search(f"{request.path} {request.headers}")
        shown = found[1] if found else ""
        self._seen.add(shown)
        if shown in self._over:
            self.refusals += 1
            return self._refusal
        return forward(request)

    def end_all(self) -> None:
        self._over |= self._seen


def batches(interrupt, count=6):
    """Rows that come slowly: in the middle of them `interrupt` is called."""

    def each():
        for number in range(count):
            if number == count // 2:
                interrupt()
            ids = pa.array(range(number * 1000, number * 1000 + 1000), pa.int64())
            yield pa.record_batch([ids], names=["id"])

    return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), each())


def create_table(catalog) -> Table:
    namespace = f"ns{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(namespace)
    return Table.create(catalog, f"{namespace}.t", schema={"id": "long"})


def check_long_work(table: Table, gate: Gate) -> None:
    """Append while what was given ends, then read while it ends again."""
    table.append(batches(lambda: None))
    table.append(batches(gate.end_all))
    assert gate.refusals > 0, "nobody was refused"
    seen = 0
    for number, batch in enumerate(table.refresh().scan().to_arrow_batch_reader()):
        seen += batch.num_rows
        if number == 0:
            gate.end_all()
    assert seen == 12_000
    gate.end_all()
    table.delete("id < 1000")
    assert table.refresh().scan().to_arrow().num_rows == 10_000


class TestCredentialsThatACatalogLends:
    """SeaweedFS lends keys for a session with each load; when the store refuses them, new ones are asked for."""

    @pytest.fixture
    def gate(self):
        return Gate(r"(?i)'x-amz-security-token': '([^']+)'", Reply(status=400, headers=XML, body=EXPIRED))

    @pytest.fixture
    def store(self, vending, gate):
        with HttpProxy(vending.s3_endpoint) as proxy:
            proxy.guard = gate
            yield proxy

    @pytest.fixture
    def rest(self, vending):
        with HttpProxy(vending.rest_uri) as proxy:
            yield proxy

    @pytest.fixture
    def table(self, vending, store, rest):
        """A table of somebody who has no key of the store."""
        given = {name: value for name, value in vending.catalog_properties.items() if not name.startswith("s3.")}
        catalog = load_catalog("prod", **{**given, "uri": rest.uri, "s3.proxy-uri": store.uri})
        return create_table(catalog)

    @pytest.mark.services
    def test_long_work(self, table, gate):
        check_long_work(table, gate)

    @pytest.mark.costly
    def test_a_file_that_is_open_for_longer(self, table, gate):
        """Its parts are sent, and asked for, one by one."""
        filesystem, path = table.io.filesystem(f"{table.location}/data/long.parquet")
        part = bytes(range(256)) * (6 << 12)
        with filesystem.open(path, "wb", block_size=5 << 20) as file:
            file.write(part)
            gate.end_all()
            file.write(part)
        assert gate.refusals > 0
        refusals = gate.refusals
        with filesystem.open(path, "rb", block_size=1 << 20, cache_type="none") as file:
            assert file.read(1000) == part[:1000]
            gate.end_all()
            assert file.read() == (part + part)[1000:]
        assert gate.refusals > refusals

    @pytest.mark.costly
    def test_they_are_asked_for_where_the_server_says(self, table, gate, rest):
        namespace = table.identifier.namespace[0]
        way, asked = f"v1/lending/{uuid.uuid4().hex}", []

        def guard(request, forward):
            path = request.path.partition("?")[0]
            if path != f"/{way}" and not (request.method == "GET" and path.endswith("/tables/t")):
                return forward(request)
            if path == f"/{way}":
                asked.append(request.headers.get("Authorization"))
                load = f"/v1/warehouse/namespaces/{namespace}/tables/t"
                request = replace(request, method="GET", path=load, body=b"")
            reply = forward(request)
            document = json.loads(reply.body)
            if path == f"/{way}":
                document = {"storage-credentials": [{"prefix": "s3://", "config": document["config"]}]}
            else:
                document["config"]["client.refresh-credentials-endpoint"] = way
            kept = tuple(each for each in reply.headers if each[0].lower() != "etag")
            return Reply(status=reply.status, headers=kept, body=json.dumps(document).encode())

        rest.guard = guard
        properties = table.catalog.properties
        mine = Table.load(load_catalog("prod", **properties), table.identifier)
        mine.append(batches(lambda: None))
        gate.end_all()
        mine.append(batches(gate.end_all))
        assert asked
        assert all(each.startswith("Bearer ") for each in asked)
        assert mine.refresh().scan().to_arrow().num_rows == 12_000

    @pytest.mark.costly
    def test_when_there_are_no_newer_ones_the_error_says_so_and_shows_none(self, table, gate, rest):
        table.append(batches(lambda: None))

        def refuse(request, forward):
            if request.method == "GET" and "/tables/t" in request.path:
                return Reply(status=403, headers=(), body=b'{"error": {"message": "no more", "code": 403}}')
            return forward(request)

        rest.guard = refuse
        gate.end_all()
        with pytest.raises(StorageError) as raised:
            table.io.read(table.metadata_location)
        assert "ASIA" not in f"{raised.value}{raised.value.__cause__}"


class TestRequestsThatTheCatalogSigns:
    """We have no key at all: a signer has them, and wants to see the catalog's token."""

    @pytest.fixture
    def tokens(self):
        """The tokens that count; those that the catalog gives are added."""
        return set()

    @pytest.fixture
    def rest(self, seaweedfs, tokens):
        def guard(request, forward):
            shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not request.path.startswith("/v1/oauth/") and shown not in tokens:
                return Reply(status=401, headers=(), body=b'{"error": {"message": "expired", "code": 401}}')
            reply = forward(request)
            if request.path.startswith("/v1/oauth/"):
                # The server gives the same token in one second.
                document = json.loads(reply.body)
                given[f"mine-{uuid.uuid4().hex}"] = document["access_token"]
                document["access_token"] = list(given)[-1]
                tokens.add(list(given)[-1])
                return Reply(status=200, headers=reply.headers, body=json.dumps(document).encode())
            return reply

        def with_their_token(request):
            shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
            theirs = {"Authorization": f"Bearer {given[shown]}"} if shown in given else {}
            return replace(request, headers={**request.headers, **theirs})

        given: dict[str, str] = {}
        with HttpProxy(seaweedfs.rest_uri) as proxy:
            proxy.guard = lambda request, forward: guard(request, lambda asked: forward(with_their_token(asked)))
            yield proxy

    @pytest.fixture
    def signer(self, tokens):
        with S3Signer(ACCESS_KEY, SECRET_KEY, may=lambda token, uri: token in tokens and "/secret/" not in uri) as it:
            yield it

    @pytest.fixture
    def table(self, seaweedfs, rest, signer):
        own = {"type": "rest", "uri": rest.uri, "credential": f"{ACCESS_KEY}:{SECRET_KEY}"}
        store = {"warehouse": "s3://warehouse", "s3.endpoint": seaweedfs.s3_endpoint, "s3.region": "us-east-1"}
        signing = {"s3.remote-signing-enabled": "true", "s3.signer.uri": signer.uri}
        catalog = load_catalog("prod", **own, **store, **signing)
        return create_table(catalog)

    @pytest.mark.costly
    def test_rows_are_written_read_and_deleted(self, table, signer):
        table.append(batches(lambda: None))
        table.delete("id < 1000")
        assert table.refresh().scan().to_arrow().num_rows == 5000
        location = f"{table.location}/data/to be+deleted=1.parquet"
        table.io.create(location, b"1")
        table.io.delete([location])
        assert location not in {status.location for status in table.io.list(f"{table.location}/data")}
        assert len(signer.seen) > 10
        assert signer.refused == 0

    @pytest.mark.services
    def test_large_files_in_parts(self, table):
        filesystem, path = table.io.filesystem(f"{table.location}/data/large.parquet")
        content = bytes(range(256)) * (12 << 12)
        with filesystem.open(path, "wb", block_size=5 << 20) as file:
            file.write(content)
        assert table.io.read(f"{table.location}/data/large.parquet") == content

    @pytest.mark.costly
    def test_a_token_that_has_ended_is_renewed(self, table, tokens, signer):
        table.append(batches(tokens.clear))
        assert signer.refused > 0
        assert table.refresh().scan().to_arrow().num_rows == 6000

    @pytest.mark.costly
    def test_what_is_not_signed_is_an_error_without_the_token(self, table, tokens):
        (token,) = tokens
        with pytest.raises(StorageError, match="signer did not sign the request") as raised:
            table.io.read("s3://warehouse/secret/file")
        assert token not in f"{raised.value!r}{raised.value.__cause__!r}{raised.value.__cause__.__cause__!r}"


class TestTokensOfGoogle:
    """An access token for an hour, of which the catalog has newer ones."""

    @pytest.mark.services
    def test_long_work(self, gcs, tmp_path):
        gate = Gate(r"Bearer (\S+)", Reply(status=401, headers=(), body=b'{"error": {"message": "Invalid token"}}'))
        with HttpProxy(gcs.endpoint) as proxy:
            proxy.guard = gate
            given = {**gcs.properties(), "gcs.service.host": proxy.uri}
            check_long_work(new_table(tmp_path, f"gs://{GCS_BUCKET}", lambda: {**given, **google_token()}), gate)


def google_token() -> dict[str, str]:
    return {"gcs.oauth2.token": f"ya29.{uuid.uuid4().hex}", "gcs.oauth2.token-expires-at": str(LATER_MS)}


@pytest.mark.services
class TestSignaturesOfAzure:
    """A signature for an account, which ends at the time that is written in it."""

    def lent(self, azurite, endpoint: str, ends: dt.datetime) -> dict[str, str]:
        from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

        from tests.services.azurite import ACCOUNT, KEY

        every = {"read", "write", "delete", "list", "add", "create", "update"}
        sas = generate_account_sas(
            ACCOUNT,
            KEY,
            ResourceTypes(service=True, container=True, object=True),
            AccountSasPermissions(**dict.fromkeys(every, True)),
            expiry=ends,
            # No two are the same.
            start=dt.datetime.now(dt.UTC) - dt.timedelta(seconds=next(self.numbers)),
        )
        # An emulator has its account in the path: only a connection string can say so.
        address = f"BlobEndpoint={endpoint};SharedAccessSignature={sas}"
        expires = {f"adls.sas-token-expires-at-ms.{ACCOUNT}": str(int(ends.timestamp() * 1000))}
        return {"adls.account-name": ACCOUNT, "adls.connection-string": address, **expires}

    # Far apart: a second later than another, and a second further back, would be the same.
    numbers = iter(range(1000, 10_000_000, 1000))

    def test_one_that_ends_between_two_files(self, azurite, tmp_path):
        failed = b"<Error><Code>AuthenticationFailed</Code><Message>Signature not valid.</Message></Error>"
        headers = (*XML, ("x-ms-error-code", "AuthenticationFailed"))
        gate = Gate(r"[?&]sig=([^& ]+)", Reply(status=403, headers=headers, body=failed))
        in_a_year = dt.datetime.now(dt.UTC) + dt.timedelta(days=365)
        with HttpProxy(azurite.endpoint) as proxy:
            proxy.guard = gate
            endpoint = azurite.endpoint.replace(azurite.endpoint.split("/")[2], proxy.uri.split("/")[2])
            new = lambda: self.lent(azurite, endpoint, in_a_year)  # noqa: E731
            table = new_table(tmp_path, "abfs://lake", new)
            for number in range(3):
                # The driver keeps the signature of a file that is open, so it ends between two of them here.
                table.append(batches(lambda: None))
                gate.end_all()
                assert table.io.exists(table.metadata_location)
                assert gate.refusals > number
            assert table.refresh().scan().to_arrow().num_rows == 18_000

    def test_the_service_itself_refuses_what_is_over(self, azurite):
        """It is, at the start: what says that it ends later is believed until the service knows better."""
        ended = self.lent(azurite, azurite.endpoint, dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1))
        ended |= {name: str(LATER_MS) for name in ended if "expires" in name}
        fresh = self.lent(azurite, azurite.endpoint, dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
        location = f"abfs://lake/{uuid.uuid4().hex}"
        with pytest.raises(StorageError, match=r"the credentials have expired|permission denied"):
            FsspecFileIO(ended).create(location, b"1")
        io = FsspecFileIO(ended, refresh=lambda: fresh)
        io.create(location, b"1")
        assert io.read(location) == b"1"

    def test_one_that_says_when_it_ends_is_renewed_before(self, azurite):
        ended = self.lent(azurite, azurite.endpoint, dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1))
        fresh = self.lent(azurite, azurite.endpoint, dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
        io = FsspecFileIO(ended, refresh=lambda: fresh)
        io.create(f"abfs://lake/{uuid.uuid4().hex}", b"1")
        assert io.current_properties()["adls.connection-string"] == fresh["adls.connection-string"]


def new_table(folder, root: str, lend) -> Table:
    """A table whose files are reached with what is lent."""
    io = FsspecFileIO(lend(), refresh=lend)
    properties = {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"{root}/{uuid.uuid4().hex}"}
    catalog = SqlCatalog("prod", properties, io=io)
    return create_table(catalog)
