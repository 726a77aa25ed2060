"""Credentials of a connection are sent only to the hosts that they belong to, whatever a location says."""

import logging
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.pipeline.transport import AioHttpTransport

from airflow_iceberg.backends.config import storage_properties
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.hooks.paimon import PaimonConfig
from airflow_iceberg.storage import FsspecFileIO, addresses
from airflow_iceberg.storage.addresses import azure_account, is_same_origin
from tests.support.certificates import make_certificates
from tests.support.http_server import HttpServer, Reply, Request, document

KEY = "c3VyZWx5LWEta2V5"
EMPTY = {"FileStatus": {"type": "FILE", "length": 0}}


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_said", set())


@pytest.fixture
def thief() -> Iterator[HttpServer]:
    with HttpServer(lambda request: document(EMPTY)) as server:
        yield server


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("default login me password of-the-user\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


class TestAddresses:
    """Two addresses are one place only if no library can read them otherwise."""

    @pytest.mark.parametrize(("one", "other"), [
        ("https://h", "HTTPS://H:443/x?y"), ("http://h:80/", "http://h"), ("http://[::1]:8/a", "http://[::1]:08/b"),
    ])  # fmt: skip
    def test_the_same(self, one: str, other: str) -> None:
        assert is_same_origin(one, other)

    @pytest.mark.parametrize("other", [
        "http://h", "https://h:8443", "https://h.evil", "https://evil\\@h/", "https://h@evil", "https://evil@h",
        "https://h#@evil/", "https://h evil", "//h/", "h", "https://", "https://h:99999999", "file://h/",
    ])  # fmt: skip
    def test_another(self, other: str) -> None:
        assert not is_same_origin("https://h/", other)

    @pytest.mark.parametrize(("host", "account"), [
        ("Lake.dfs.core.windows.net", "lake"),
        ("lake.blob.core.chinacloudapi.cn", "lake"),
        ("lake.dfs.core.usgovcloudapi.net", "lake"),
        ("lake.z01.blob.storage.azure.net", "lake"),
        ("onelake.dfs.fabric.microsoft.com", "onelake"),
        ("lake.dfs.core.windows.net.evil.com", None),
        ("evil.com", None),
        ("lake", None),
        ("evil.com#lake.dfs.core.windows.net", None),
        ("lake.dfs.core.windows.net:443", None),
        ("a@lake.dfs.core.windows.net", None),
        ("core.windows.net", None),
    ])  # fmt: skip
    def test_hosts_of_azure(self, host: str, account: str | None) -> None:
        assert azure_account(host) == account


class TestAzure:
    """A key or a signature goes to Azure's own hosts and to the connection's, and to the account that it is of."""

    CREDENTIALS = pytest.mark.parametrize("given", [
        {"adls.sas-token": "sig=s3cr3t"},
        {"adls.account-key": KEY},
        {"adls.client-id": "c", "adls.client-secret": "s3cr3t", "adls.tenant-id": "t"},
        {"adls.token": "s3cr3t"},
        {},  # those of the process
    ])  # fmt: skip

    @CREDENTIALS
    @pytest.mark.parametrize("scheme", ["abfss", "abfs", "wasbs", "wasb"])
    @pytest.mark.parametrize("host", ["{thief}", "lake.dfs.core.windows.net@{thief}", "localhost", "lake.evil.com"])
    def test_no_other_host_gets_one(self, thief: HttpServer, given: dict[str, str], scheme: str, host: str) -> None:
        location = f"{scheme}://c@{host.format(thief=thief.uri[7:])}/a"
        with pytest.raises(InvalidInputError, match=r"set adls\.account-host to it"):
            FsspecFileIO(given).read(location)
        assert thief.seen == []

    def options(self, location: str, given: Mapping[str, str]) -> Any:
        return FsspecFileIO(given).filesystem(location)[0]

    @pytest.mark.parametrize("own", [
        {"adls.account-name": "lake"}, {"warehouse": "abfss://c@lake.dfs.core.windows.net/wh"},
    ])  # fmt: skip
    @pytest.mark.parametrize("given", [{"adls.sas-token": "sig=s3cr3t"}, {"adls.account-key": KEY}])
    def test_nor_does_another_account(self, own: dict[str, str], given: dict[str, str]) -> None:
        with pytest.raises(InvalidInputError, match="belongs to another account than evil and is not used"):
            self.options("abfss://c@evil.dfs.core.windows.net/a", {**own, **given})
        assert self.options("abfss://c@lake.dfs.core.windows.net/a", {**own, **given}).account_name == "lake"
        theirs = {**own, **given, "adls.sas-token.evil.dfs.core.windows.net": "sig=for-them"}
        assert self.options("abfss://c@evil.dfs.core.windows.net/a", theirs).sas_token == "?sig=for-them"

    def test_a_host_of_the_connection_is_its_own(self) -> None:
        given = {"adls.account-host": "storage.example.com", "adls.account-name": "lake", "adls.sas-token": "sig=s"}
        for host in ("storage.example.com", "lake", "lake.dfs.core.windows.net"):
            found = self.options(f"abfss://c@{host}/a", given)
            assert (found.account_url, found.account_name) == ("https://storage.example.com", "lake")

    @pytest.mark.costly
    def test_a_host_of_the_connection_is_not_used_for_other_accounts(self) -> None:
        given = {"adls.account-host": "storage.example.com", "adls.account-name": "lake", "adls.client-secret": "s",
                 "adls.client-id": "c", "adls.tenant-id": "t"}  # fmt: skip
        found = self.options("abfss://c@other.dfs.core.usgovcloudapi.net/a", given)
        assert found.account_url == "https://other.blob.core.usgovcloudapi.net"

    @pytest.mark.parametrize("host", ["lake.dfs.core.windows.net", "lake.blob.core.windows.net"])
    def test_honest_locations(self, host: str) -> None:
        found = self.options(f"abfss://c@{host}/a", {"adls.account-key": KEY})
        assert found.account_url == "https://lake.blob.core.windows.net"

    @pytest.mark.usefixtures("netrc")
    def test_a_netrc_is_not_read(self, thief: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
        given = {"adls.connection-string": f"BlobEndpoint={thief.uri}/acc;SharedAccessSignature=sv=1&sig=x"}
        with suppress(IcebergError):
            FsspecFileIO(given).read("abfs://c/a")
        assert thief.seen
        assert not any(
            "of-the-user" in str(request.headers) or "Authorization" in request.headers for request in thief.seen
        )

    def test_a_proxy_of_the_environment_is_used(self, thief: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", thief.uri)
        given = {"adls.connection-string": "BlobEndpoint=http://lake.invalid/acc;SharedAccessSignature=sv=1&sig=x"}
        with suppress(IcebergError):
            FsspecFileIO(given).read("abfs://c/a")
        assert thief.seen[0].path.startswith("http://lake.invalid/acc/c/a")
        assert AioHttpTransport()._use_env_settings is True  # what the SDK does by itself


class TestHdfsByHttp:
    """A token, a user or a ticket goes to the connection's NameNodes; DataNodes get what these give them."""

    CREDENTIALS = pytest.mark.parametrize("given", [
        {"hdfs.token": "s3cr3t"}, {"hdfs.user": "s3cr3t"}, {"hdfs.token": "s3cr3t", "hdfs.host": "nn"},
        {"hdfs.token": "s3cr3t", "warehouse": "webhdfs://nn:9870/wh"},
        {"hdfs.token": "s3cr3t", "hdfs.host": "127.0.0.1"},  # another port is another server
        {"hdfs.user": "s3cr3t", "warehouse": "s3://127.0.0.1/"},
    ])  # fmt: skip

    @CREDENTIALS
    def test_no_other_host_gets_one(self, thief: HttpServer, given: dict[str, str]) -> None:
        io, location = FsspecFileIO(given), f"webhdfs://{thief.uri[7:]}/a"
        for use in (lambda: io.read(location), lambda: io.filesystem(location), lambda: io.create(location, b"1")):
            with pytest.raises(InvalidInputError, match="which the connection does not name"):
                use()
        assert thief.seen == []

    @pytest.mark.parametrize("naming", [
        {"hdfs.host": "127.0.0.1", "hdfs.port": "{port}"},
        {"warehouse": "webhdfs://127.0.0.1:{port}/wh"},
        {"allowed-locations": "s3://lake/, webhdfs://127.0.0.1:{port}/x"},
        {"hdfs.config.fs.defaultFS": "webhdfs://127.0.0.1:{port}"},
    ])  # fmt: skip
    def test_the_connection_s_own_get_it(self, thief: HttpServer, naming: dict[str, str]) -> None:
        named = {name: text.format(port=thief.port) for name, text in naming.items()}
        assert FsspecFileIO({"hdfs.token": "t0ken", **named}).exists(f"webhdfs://{thief.uri[7:]}/a")
        assert "delegation=t0ken" in thief.seen[0].path

    def test_without_tls_it_is_another_host(self, thief: HttpServer) -> None:
        given = {"hdfs.token": "s3cr3t", "warehouse": f"swebhdfs://{thief.uri[7:]}/wh"}
        with pytest.raises(InvalidInputError, match="which the connection does not name"):
            FsspecFileIO(given).exists(f"webhdfs://{thief.uri[7:]}/a")

    def test_who_has_no_credentials_may_read_anywhere(self, thief: HttpServer) -> None:
        assert FsspecFileIO({"hdfs.kerberos": "false"}).exists(f"webhdfs://{thief.uri[7:]}/a")

    @pytest.fixture
    def ticket(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Ticket:
            def __init__(self, mutual_authentication: object = None) -> None: ...

            def __call__(self, request: Any) -> Any:
                request.headers["Authorization"] = "Negotiate t1cket"
                return request

        package = SimpleNamespace(HTTPKerberosAuth=Ticket, OPTIONAL=2)
        monkeypatch.setitem(__import__("sys").modules, "requests_kerberos", package)

    @pytest.mark.usefixtures("ticket", "netrc")
    def test_a_data_node_gets_no_ticket(self, thief: HttpServer) -> None:
        """In a cluster with Kerberos the NameNode's answer has a token for the DataNode."""

        def lead(request: Request) -> Reply:
            where = {"Location": f"{thief.uri}/webhdfs/v1/a?op=OPEN&delegation=block-token"}
            return Reply(status=307, headers=where) if "op=OPEN" in request.path else document(EMPTY)

        thief.handle = lambda request: Reply(body=b"data", headers={})
        with HttpServer(lead) as name_node:
            location = f"webhdfs://{name_node.uri[7:]}/a"
            io = FsspecFileIO({"hdfs.kerberos": "true", "warehouse": location})
            assert io.read(location) == b"data"
            filesystem, path = io.filesystem(location)
            with suppress(Exception):
                filesystem._call("OPEN", path=path)
            assert all(request.headers["Authorization"] == "Negotiate t1cket" for request in name_node.seen)
        assert len(thief.seen) == 2
        for request in thief.seen:
            assert "delegation=block-token" in request.path
            assert "Authorization" not in request.headers

    @pytest.mark.usefixtures("netrc")
    def test_a_netrc_is_not_read(self, thief: HttpServer) -> None:
        location = f"webhdfs://{thief.uri[7:]}/a"
        io = FsspecFileIO({})
        io.exists(location)
        io.filesystem(location)[0].info("/a")
        assert len(thief.seen) == 2
        assert not any("Authorization" in request.headers for request in thief.seen)

    def test_tls_is_not_left_on_the_way_to_a_data_node(
        self, thief: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        certificates = make_certificates(tmp_path)
        context = certificates.server_context()
        context.verify_mode = ssl.CERT_NONE
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates.authority))
        answer = Reply(status=307, headers={"Location": f"{thief.uri}/a?delegation=block-token"})
        status = document({"FileStatus": {"type": "FILE", "length": 9}})
        with HttpServer(lambda request: answer if "op=OPEN" in request.path else status, tls=context) as name_node:
            location = f"swebhdfs://{name_node.uri[8:]}/a"
            with pytest.raises(IcebergError, match="leads to an address without TLS"):
                FsspecFileIO({"hdfs.token": "t", "warehouse": location}).read(location)
        assert thief.seen == []

    def test_a_job_and_paimon_know_the_hosts(self) -> None:
        given = {"hdfs.token": "t", "warehouse": "webhdfs://nn:9870/wh", "uri": "https://h", "credential": "c"}
        assert storage_properties(given) == {"hdfs.token": "t", "warehouse": "webhdfs://nn:9870/wh"}
        connection: Any = SimpleNamespace(
            conn_id="p", conn_type="paimon", host="", extra_dejson={**given, "path": "webhdfs://other:1/t"}
        )
        found = PaimonConfig.from_connection(connection).properties
        assert (found["warehouse"], found["path"]) == ("webhdfs://nn:9870/wh", "webhdfs://other:1/t")

    def test_a_ticket_cache_of_the_connection_is_for_its_own(self) -> None:
        with pytest.raises(InvalidInputError, match="are not sent to evil:8020, which"):
            FsspecFileIO({"hdfs.kerberos_ticket": "/tmp/ticket"}).read("hdfs://evil:8020/a")


class TestPlainText:
    """Credentials over http are worth one warning for each host."""

    @pytest.mark.parametrize("store", ["s3", "gcs", "adls", "webhdfs"])
    def test_of_stores(self, thief: HttpServer, store: str, caplog: pytest.LogCaptureFixture) -> None:
        given, location = {
            "s3": (
                {"s3.endpoint": thief.uri, "s3.region": "x", "s3.access-key-id": "a", "s3.secret-access-key": "b"},
                "s3://lake/a",
            ),
            "gcs": ({"gcs.service.host": thief.uri, "gcs.oauth2.token": "ya29.x"}, "gs://lake/a"),
            "adls": (
                {"adls.connection-string": f"BlobEndpoint={thief.uri}/acc;SharedAccessSignature=sv=1&sig=x"},
                "abfs://c/a",
            ),
            "webhdfs": (
                {"hdfs.token": "t", "warehouse": f"webhdfs://{thief.uri[7:]}/"},
                f"webhdfs://{thief.uri[7:]}/a",
            ),
        }[store]
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                FsspecFileIO(given).filesystem(location)
        found = [each.getMessage() for each in caplog.records if "without encryption" in each.getMessage()]
        assert found == [f"{store} sends credentials to {thief.uri[7:]} over http, without encryption: use https"]

    def test_not_without_credentials(self, thief: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            FsspecFileIO({"s3.endpoint": thief.uri, "s3.anonymous": "true"}).filesystem("s3://lake/a")
            FsspecFileIO({}).filesystem(f"webhdfs://{thief.uri[7:]}/a")
        assert "without encryption" not in caplog.text
