"""Credentials that a catalog sends without encryption are worth one warning for each host; a .netrc is not read."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.errors import IcebergError, StorageError
from airflow_iceberg.storage import addresses
from tests.support.certificates import make_certificates
from tests.support.http_server import HttpServer, Reply, Request, document

TREES = {"references": [{"type": "BRANCH", "name": "main", "hash": "3b2f" * 16}], "hasMore": False}


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_said", set())
    monkeypatch.setitem(Http.__init__.__kwdefaults__, "sleep", lambda _: None)  # type: ignore[index]


def answer(request: Request) -> Reply:
    if request.path.endswith("/tokens"):
        return document({"access_token": "t0p", "token_type": "bearer"})
    return document({"defaults": {}, "overrides": {}, "namespaces": [], **TREES})


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer(answer) as server:
        yield server


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "without encryption" in record.getMessage()]


class TestHttp:
    """REST and Nessie send their requests in one way."""

    @pytest.mark.parametrize("login", [
        {"token": "t0p"},
        {"credential": "me:s3cr3t"},
        {"header.X-Api-Key": "my-key"},
        {"rest.auth.type": "basic", "rest.auth.basic.username": "a", "rest.auth.basic.password": "b"},
    ], ids=["token", "credential", "header", "basic"])  # fmt: skip
    def test_a_rest_catalog(self, server: HttpServer, login: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
        for _ in range(2):
            load_catalog("prod", type="rest", uri=server.uri, **login).list_namespaces()
        place = server.uri[7:]
        assert warnings_of(caplog) == [
            f"catalog prod sends credentials to {place} over http, without encryption: use https"
        ]

    def test_nessie(self, server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
        catalog: Any = load_catalog("prod", type="nessie", uri=f"{server.uri}/api/v2", token="t0p")
        catalog.references.list()
        assert len(warnings_of(caplog)) == 1

    def test_without_a_login_there_is_nothing_to_say(
        self, server: HttpServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        load_catalog("prod", type="rest", uri=server.uri).list_namespaces()
        assert server.seen
        assert warnings_of(caplog) == []

    @pytest.mark.parametrize("entry", ["machine 127.0.0.1", "default"])
    def test_a_netrc_is_not_read(
        self, server: HttpServer, entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "netrc").write_text(f"{entry} login me password of-the-user\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        load_catalog("prod", type="rest", uri=server.uri).list_namespaces()
        catalog: Any = load_catalog("prod", type="nessie", uri=f"{server.uri}/api/v2")
        catalog.references.list()
        assert len(server.seen) == 3
        assert not any("Authorization" in request.headers for request in server.seen)

    def test_an_issuer_with_tls_names_no_endpoint_without(
        self, server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        certificates = make_certificates(tmp_path)
        found = document({"token_endpoint": f"{server.uri}/tokens"})
        with HttpServer(lambda request: found, tls=certificates.server_context()) as issuer:
            oauth2 = {"issuer-url": issuer.uri, "client-id": "me", "client-secret": "s3cr3t"}
            given = {f"authentication.oauth2.{name}": value for name, value in oauth2.items()}
            given |= {"authentication.type": "OAUTH2", "ssl.cabundle": str(certificates.authority)}
            given |= {"ssl.client.cert": str(certificates.client), "ssl.client.key": str(certificates.client_key)}
            catalog: Any = load_catalog("prod", type="nessie", uri=f"{server.uri}/api/v2", **given)
            with pytest.raises(StorageError, match="names a token_endpoint without https"):
                catalog.references.list()
        assert server.seen == []


class TestHive:
    """SASL PLAIN sends the password as it is."""

    def test_one_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        pytest.importorskip("puresasl")
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def hang_up() -> None:
                with suppress(OSError):
                    while True:
                        listener.accept()[0].close()

            threading.Thread(target=hang_up, daemon=True).start()
            uri = f"thrift://127.0.0.1:{listener.getsockname()[1]}"
            given = {"hive.metastore.client.auth.mode": "PLAIN", "user": "me", "password": "s3cr3t"}
            for _ in range(2):
                with pytest.raises(IcebergError):
                    load_catalog("prod", type="hive", uri=uri, warehouse="file:///tmp/none", **given).list_namespaces()
        (found,) = warnings_of(caplog)
        assert f"{uri[9:]} gets user and password without encryption: set hive.metastore.use.SSL" in found
