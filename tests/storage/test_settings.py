"""Every property of `docs/stores.md` reaches the store: in the requests that are sent, or in the driver's own settings.

No server of the store's kind is needed: requests end at a server that writes them down.
"""

import base64
import datetime as dt
import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_iceberg.errors import InvalidInputError, StorageError, UnsupportedError
from airflow_iceberg.storage import FsspecFileIO
from tests.support.certificates import make_certificates
from tests.support.faults import all_texts
from tests.support.http_server import HttpServer, Reply, Request, document

KEYS = {"s3.access-key-id": "AKIDEXAMPLE", "s3.secret-access-key": "s3cr3t-key", "s3.region": "eu-central-1"}
ADLS_KEY = base64.b64encode(b"k" * 32).decode()
LATER_MS = 4_102_444_800_000  # the year 2100
LAKE = "abfss://lake@acct.dfs.core.windows.net/f"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer(lambda request: Reply(body=b"", headers={"ETag": '"e"'})) as found:
        yield found


@pytest.fixture
def sent(server: HttpServer) -> Callable[..., Request]:
    def create(properties: Mapping[str, str]) -> Request:
        place = {} if "s3.proxy-uri" in properties else {"s3.endpoint": server.uri}
        FsspecFileIO({**place, "s3.request-timeout": "20", **properties}).create("s3://lake/a/b", b"data")
        assert len(server.seen) == 1
        return server.seen[0]

    return create


class TestS3:
    """What is sent to S3 follows the properties."""

    @pytest.mark.costly
    def test_a_store_of_ones_own_is_named_in_the_path_and_signed_for(self, sent: Callable[..., Request]) -> None:
        request = sent({**KEYS, "s3.session-token": "t0ken"})
        assert str(request) == "PUT /lake/a/b"
        assert "Credential=AKIDEXAMPLE/" in request.headers["Authorization"]
        assert "/eu-central-1/s3/aws4_request" in request.headers["Authorization"]
        assert request.headers["X-Amz-Security-Token"] == "t0ken"
        assert request.headers["If-None-Match"] == "*"

    @pytest.mark.costly
    def test_the_words_of_client_mean_the_same(self, sent: Callable[..., Request]) -> None:
        properties = {name.replace("s3.", "client."): value for name, value in KEYS.items()}
        assert "Credential=AKIDEXAMPLE/" in sent(properties).headers["Authorization"]

    @pytest.mark.costly
    def test_a_profile_of_the_machine(
        self, sent: Callable[..., Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "credentials"
        path.write_text("[etl]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = s3cr3t\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
        request = sent({"s3.profile-name": "etl", "s3.region": "eu-central-1"})
        assert "Credential=AKIDPROFILE/" in request.headers["Authorization"]

    @pytest.mark.costly
    def test_nothing_is_signed_for_nobody(self, sent: Callable[..., Request]) -> None:
        assert "Authorization" not in sent({"s3.anonymous": "true", "s3.region": "eu-central-1"}).headers

    KMS = {"s3.server-side-encryption": "aws:kms", "s3.sse-kms-key-id": "key-7"}

    @pytest.mark.costly
    @pytest.mark.parametrize("properties", [KMS, {"s3.sse.type": "kms", "s3.sse.key": "key-7"}])
    def test_encryption_is_asked_for(self, sent: Callable[..., Request], properties: dict[str, str]) -> None:
        headers = sent({**KEYS, **properties}).headers
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-7"

    @pytest.mark.costly
    def test_a_proxy_is_gone_through(self, server: HttpServer, sent: Callable[..., Request]) -> None:
        request = sent({**KEYS, "s3.proxy-uri": server.uri, "s3.endpoint": "http://no-such-host.invalid:9000"})
        assert str(request) == "PUT http://no-such-host.invalid:9000/lake/a/b"

    @pytest.mark.parametrize(("properties", "style"), [
        ({}, "auto"),
        ({"s3.endpoint": "http://127.0.0.1:1"}, "path"),
        ({"s3.path-style-access": "true"}, "path"),
        ({"s3.endpoint": "http://127.0.0.1:1", "s3.path-style-access": "false"}, "virtual"),
        ({"s3.endpoint": "http://127.0.0.1:1", "s3.force-virtual-addressing": "true"}, "virtual"),
    ])  # fmt: skip
    def test_how_the_bucket_is_named(self, properties: dict[str, str], style: str) -> None:
        filesystem, _ = FsspecFileIO({**KEYS, **properties}).filesystem("s3://lake/a")
        assert filesystem.config_kwargs["s3"] == {"addressing_style": style}

    def test_times(self) -> None:
        properties = {**KEYS, "s3.connect-timeout": "3", "s3.request-timeout": "7.5"}
        filesystem, _ = FsspecFileIO(properties).filesystem("s3://lake/a")
        found = filesystem.config_kwargs
        assert (found["connect_timeout"], found["read_timeout"]) == (3.0, 7.5)


def private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, secret).decode()


class TestSigningByTheCatalog:
    """Requests to S3 are signed by the catalog where it says that it does, at the address that it names."""

    ON = {"s3.remote-signing-enabled": "true", "token": "t0p", "s3.region": "eu-central-1"}

    def sent(self, server: HttpServer, properties: Mapping[str, str]) -> tuple[Request, Request]:
        """What the signer and what the store got."""

        def serve(request: Request) -> Reply:
            if request.method != "POST":
                return Reply(body=b"", headers={"ETag": '"e"'})
            asked = json.loads(request.body)
            return document({"uri": asked["uri"], "headers": {"Authorization": ["by-catalog"]}})

        server.handle = serve
        FsspecFileIO({"s3.endpoint": server.uri, **properties}).create("s3://lake/a/b", b"data")
        signer, store = server.seen
        return signer, store

    @pytest.mark.costly
    @pytest.mark.parametrize(("named", "path"), [
        ({"uri": "{server}/catalog"}, "/catalog/v1/aws/s3/sign"),
        ({"uri": "http://catalog.invalid", "s3.signer.uri": "{server}/signer"}, "/signer/v1/aws/s3/sign"),
        ({"uri": "{server}/", "s3.signer.endpoint": "v1/db/t/sign"}, "/v1/db/t/sign"),
        ({"uri": "http://catalog.invalid", "s3.signer.endpoint": "{server}/elsewhere"}, "/elsewhere"),
    ])  # fmt: skip
    def test_it_is_asked_where_it_says(self, server: HttpServer, named: dict[str, str], path: str) -> None:
        properties = {name: value.format(server=server.uri) for name, value in named.items()}
        signer, store = self.sent(server, {**self.ON, **properties})
        assert (str(signer), str(store)) == (f"POST {path}", "PUT /lake/a/b")
        assert signer.headers["Authorization"] == "Bearer t0p"
        question = json.loads(signer.body)
        assert question["uri"] == f"{server.uri}/lake/a/b"
        assert (question["method"], question["region"]) == ("PUT", "eu-central-1")

    @pytest.mark.costly
    @pytest.mark.parametrize("properties", [ON, {"s3.signer": "S3V4RestSigner", "s3.region": "eu-central-1"}])
    def test_what_it_answers_is_sent(self, server: HttpServer, properties: dict[str, str]) -> None:
        _, store = self.sent(server, {**properties, "uri": server.uri})
        assert store.headers["Authorization"] == "by-catalog"

    def test_another_signer_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match=r"s3\.signer is 'mine', expected 'S3V4RestSigner'"):
            FsspecFileIO({"s3.signer": "mine"}).filesystem("s3://lake/a")


def bearer(request: Request) -> str:
    """The header of a request, which Google's driver writes in lower case."""
    return next(value for name, value in request.headers.items() if name.lower() == "authorization")


class TestGcs:
    """What is sent to Google follows the properties."""

    def test_token_project_and_who_pays(self, server: HttpServer) -> None:
        properties = {
            **{"gcs.service.host": server.uri, "gcs.oauth2.token": "anon", "gcs.project-id": "lab"},
            **{"gcs.requester-pays": "true", "gcs.session-kwargs": json.dumps({"trust_env": False})},
        }
        io = FsspecFileIO(properties)
        io.create("gs://lake/a/b", b"data")
        (request,) = server.seen
        assert request.path.startswith("/upload/storage/v1/b/lake/o?")
        assert "ifGenerationMatch=0" in request.path
        assert "userProject=lab" in request.path
        filesystem, _ = io.filesystem("gs://lake/a")
        assert filesystem.session_kwargs["trust_env"] is False

    def test_a_token_of_ones_own_is_shown_as_it_is(self, server: HttpServer) -> None:
        given = {"gcs.service.host": server.uri, "gcs.oauth2.token": "ya29.own"}
        FsspecFileIO(given).create("gs://lake/a", b"data")
        assert bearer(server.seen[0]) == "Bearer ya29.own"

    def test_a_service_account_gets_one_by_its_file(self, server: HttpServer, tmp_path: Path) -> None:
        answers = {"/token": {"access_token": "ya29.of-account", "expires_in": 3600, "token_type": "Bearer"}}
        server.handle = lambda request: document(answers.get(request.path, {}))
        account = {"type": "service_account", "client_email": "etl@lab.example.com", "private_key_id": "1"}
        account |= {"private_key": private_key(), "token_uri": f"{server.uri}/token", "project_id": "lab"}
        (tmp_path / "account.json").write_text(json.dumps(account))
        properties = {"gcs.service.host": server.uri, "gcs.oauth2.token": str(tmp_path / "account.json")}
        FsspecFileIO(properties).create("gs://lake/a", b"data")
        asked, *_, created = server.seen
        assert asked.path == "/token"
        assert bearer(created) == "Bearer ya29.of-account"

    @pytest.mark.parametrize(("ends_ms", "shown"), [(1, "ya29.newer"), (LATER_MS, "ya29.first")])
    def test_a_lent_token_is_renewed_when_it_has_ended(self, server: HttpServer, ends_ms: int, shown: str) -> None:
        first = {"gcs.oauth2.token": "ya29.first", "gcs.oauth2.token-expires-at": str(ends_ms)}
        newer = {"gcs.oauth2.token": "ya29.newer", "gcs.oauth2.token-expires-at": str(LATER_MS)}
        io = FsspecFileIO({"gcs.service.host": server.uri, **first}, refresh=lambda: newer)
        io.create("gs://lake/a", b"data")
        assert bearer(server.seen[0]) == f"Bearer {shown}"

    def test_the_driver_knows_when_it_ends(self, server: HttpServer) -> None:
        lent = {"gcs.oauth2.token": "ya29.first", "gcs.oauth2.token-expires-at": str(LATER_MS)}
        io = FsspecFileIO({"gcs.service.host": server.uri, **lent}, refresh=lambda: lent)
        expiry = io.filesystem("gs://lake/a")[0].credentials.credentials.expiry
        assert expiry.replace(tzinfo=dt.UTC).timestamp() * 1000 == LATER_MS


class TestAzure:
    """The driver gets what the properties say, of the account that the location names."""

    TEXT = f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={ADLS_KEY};EndpointSuffix=core.windows.net"
    PRINCIPAL = {"client_id": "c", "client_secret": "s3cr3t", "tenant_id": "t"}
    CHINA = "acct.blob.core.chinacloudapi.cn"

    @pytest.mark.parametrize(("location", "properties", "expected"), [
        (LAKE, {"account_key": ADLS_KEY}, {"account_name": "acct", "account_key": ADLS_KEY}),
        (LAKE, {"account_key": ADLS_KEY}, {"account_url": "https://acct.blob.core.windows.net"}),
        (
            "az://lake/f",
            {"account_name": "other", "account_key": ADLS_KEY},
            {"account_url": "https://other.blob.core.windows.net"},
        ),
        (
            "az://lake/f",
            {"account_name": "acct", "account_key": ADLS_KEY, "account_host": CHINA},
            {"account_url": f"https://{CHINA}"},
        ),
        ("az://lake/f", {"connection_string": TEXT}, {"connection_string": TEXT}),
        (LAKE, PRINCIPAL, PRINCIPAL),
        (LAKE, {"anon": "true"}, {"anon": True}),
    ])  # fmt: skip
    def test_account_and_credentials(
        self, location: str, properties: dict[str, str], expected: dict[str, object]
    ) -> None:
        given = {f"adls.{name.replace('_', '-')}": value for name, value in properties.items()}
        filesystem, _ = FsspecFileIO(given).filesystem(location)
        assert {name: getattr(filesystem, name) for name in expected} == expected

    def test_a_signature_for_one_account_alone(self) -> None:
        io = FsspecFileIO({"adls.sas-token.acct.dfs.core.windows.net": "sig=mine", "adls.sas-token": "sig=all"})
        assert io.filesystem(LAKE)[0].sas_token == "?sig=mine"
        assert io.filesystem("abfss://lake@acct2.dfs.core.windows.net/f")[0].sas_token == "?sig=all"


EMPTY_FILE = {"FileStatus": {"type": "FILE", "length": 0}}


def _name_node(data: bytes, *, length: int, promised: int | None) -> HttpServer:
    """One that sends the file by itself, as HttpFS does; a length of -1 is none, the end is where it hangs up."""
    status = document({"FileStatus": {"type": "FILE", "length": length}})
    file = Reply(body=data, promised_bytes=promised)
    return HttpServer(lambda request: file if "op=OPEN" in request.path else status)


class TestHdfsByHttp:
    """What is sent to a NameNode follows the properties."""

    @pytest.fixture
    def name_node(self) -> Iterator[HttpServer]:
        with HttpServer(lambda request: document(EMPTY_FILE)) as found:
            yield found

    @pytest.mark.parametrize(("properties", "who"), [
        ({}, ""),
        ({"hdfs.user": "etl"}, "&user.name=etl"),
        ({"hdfs.user": "etl", "hdfs.token": "t0ken"}, "&delegation=t0ken"),
    ])  # fmt: skip
    def test_who_asks(self, name_node: HttpServer, properties: dict[str, str], who: str) -> None:
        place = name_node.uri.removeprefix("http://")
        given = {**properties, "warehouse": f"webhdfs://{place}/warehouse"}
        assert FsspecFileIO(given).exists(f"webhdfs://{place}/a b/c")
        assert [str(request) for request in name_node.seen] == [f"GET /webhdfs/v1/a%20b/c?op=GETFILESTATUS{who}"]

    def test_the_host_may_be_a_property(self, name_node: HttpServer) -> None:
        host, _, port = name_node.uri.removeprefix("http://").partition(":")
        assert FsspecFileIO({"hdfs.host": host, "hdfs.port": port}).exists("webhdfs:///a")

    @pytest.mark.parametrize(
        ("promised", "asked"), [(None, ["OPEN"]), (5, ["OPEN"]), (-1, ["OPEN", "GETFILESTATUS", "OPEN"])]
    )
    def test_a_whole_file_is_one_question_if_its_answer_tells_its_length(
        self, promised: int | None, asked: list[str]
    ) -> None:
        with _name_node(b"bytes", length=5, promised=promised) as server:
            assert FsspecFileIO({}).read(server.uri.replace("http:", "webhdfs:") + "/a") == b"bytes"
            assert [re.search(r"op=(\w+)", request.path)[1] for request in server.seen] == asked  # type: ignore[index]

    @pytest.mark.parametrize("promised", [10, -1])
    def test_half_a_file_is_none(self, promised: int) -> None:
        with _name_node(b"bytes", length=10, promised=promised) as server:
            with pytest.raises(StorageError, match="cannot read webhdfs:"):
                FsspecFileIO({}).read(server.uri.replace("http:", "webhdfs:") + "/a")

    def test_a_token_is_in_no_error(self) -> None:
        with pytest.raises(StorageError) as error:
            FsspecFileIO({"hdfs.token": "t0ken-7", "hdfs.host": "127.0.0.1", "hdfs.port": "1"}).read("webhdfs:///a")
        assert "t0ken-7" not in all_texts(error.value)

    def test_a_ticket_is_shown_where_kerberos_is_on(
        self, name_node: HttpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Ticket:
            """In the place of the package that asks a domain for one."""

            def __init__(self, mutual_authentication: object = None) -> None: ...

            def __call__(self, request: Any) -> Any:
                request.headers["Authorization"] = "Negotiate t1cket"
                return request

        package = SimpleNamespace(HTTPKerberosAuth=Ticket, OPTIONAL=2)
        monkeypatch.setitem(__import__("sys").modules, "requests_kerberos", package)
        location = name_node.uri.replace("http:", "webhdfs:") + "/a"
        io = FsspecFileIO({"hdfs.kerberos": "true", "allowed-locations": location})
        assert io.exists(location)
        assert io.filesystem(location)[0].info("/a")["type"] == "file"
        assert [request.headers["Authorization"] for request in name_node.seen] == ["Negotiate t1cket"] * 2

    def test_swebhdfs_goes_by_tls(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        certificates = make_certificates(tmp_path)
        context = certificates.server_context()
        context.verify_mode = ssl.CERT_NONE
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates.authority))
        with HttpServer(lambda request: document(EMPTY_FILE), tls=context) as name_node:
            assert FsspecFileIO({}).exists(name_node.uri.replace("https:", "swebhdfs:") + "/a")
            monkeypatch.delenv("REQUESTS_CA_BUNDLE")
            with pytest.raises(StorageError, match="certificate"):
                FsspecFileIO({}).exists(name_node.uri.replace("https:", "swebhdfs:") + "/a")
        assert len(name_node.seen) == 1

    def test_kerberos_needs_its_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "requests_kerberos", None)
        given = {"hdfs.kerberos": "true", "hdfs.host": "127.0.0.1", "hdfs.port": "1"}
        with pytest.raises(UnsupportedError, match=r"which needs: pip install requests-kerberos$"):
            FsspecFileIO(given).read("webhdfs://127.0.0.1:1/a")
