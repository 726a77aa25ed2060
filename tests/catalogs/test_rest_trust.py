"""What the server of a REST catalog may say: nothing that it says sends a secret of ours to another host.

Two servers on loopback: the catalog's, which is hostile, and the one that it would like to get our secrets.
"""

import base64
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.catalogs.rest.credentials import Delegation
from airflow_iceberg.catalogs.rest.trust import request_properties, store_access
from airflow_iceberg.errors import FormatError, IcebergError, StorageError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.storage import addresses, load_file_io
from tests.catalogs.contract import new_metadata
from tests.support.http_server import HttpServer, Reply, Request, document

SECRETS = ("s3cr3t", "t0p-token", "my-gateway-key", "AKIDOURS", "our-session", "ya29.ours", "our-sas")
LOGIN = {"credential": "me:s3cr3t"}
KEYS = {
    "s3.access-key-id": "AKIDOURS",
    "s3.secret-access-key": "s3cr3t-key",
    "s3.session-token": "our-session",
    "s3.region": "us-east-1",
}
THEIR_KEYS = {"s3.access-key-id": "AKIDTHEIRS", "s3.secret-access-key": "theirs", "s3.session-token": "their-session"}
TABLE = "/v1/namespaces/db/tables/t"


class Hostile(HttpServer):
    """A catalog's server with one table; gives tokens to everybody.

    Attributes:
        config: its configuration.
        table: what it says about the table besides the metadata.
        credentials: its answer when newer credentials are asked for.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.config: dict[str, Any] = {}
        self.table: dict[str, Any] = {}
        self.credentials: dict[str, Any] = {}
        self.location = "s3://lake/db/t"

    def _answer(self, request: Request) -> Reply:
        path = request.path.partition("?")[0]
        if path.endswith("/tokens"):
            return document({"access_token": "t0p-token", "token_type": "bearer", "expires_in": 3600})
        if path == "/v1/config":
            return document({"defaults": {}, "overrides": {}, **self.config})
        if path.endswith("/sign"):
            asked = json.loads(request.body)
            return document({"uri": asked["uri"], "headers": {"Authorization": ["signed"], "X-Evil": ["1"]}})
        if path == f"{TABLE}/credentials" or path.endswith("/lent"):
            return document(self.credentials)
        if path.endswith("/tables/t"):
            metadata = metadata_json.to_dict(new_metadata(self.location))
            return document({"metadata-location": f"{self.location}/1.json", "metadata": metadata, **self.table})
        return Reply(status=404)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Http.__init__.__kwdefaults__, "sleep", lambda _: None)  # type: ignore[index]
    monkeypatch.setattr(addresses, "_said", set())
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[Hostile]:
    with Hostile() as server:
        yield server


@pytest.fixture
def thief() -> Iterator[HttpServer]:
    """Writes down what it gets, and answers as all servers would."""

    def answer(request: Request) -> Reply:
        if request.path.endswith("/sign"):
            return document({"uri": json.loads(request.body)["uri"], "headers": {}})
        if request.method == "PUT":
            return Reply(body=b"", headers={"ETag": '"e"'})
        return document({"access_token": "theirs", "token_type": "bearer", "expires_in": 1})

    with HttpServer(answer) as server:
        yield server


def shown_to(server: HttpServer) -> str:
    """All that a server got, with logins decoded."""
    texts = []
    for request in server.seen:
        texts.append(f"{request.method} {request.path} {dict(request.headers)} {request.body!r}")
        for value in request.headers.values():
            if value.startswith("Basic "):
                texts.append(base64.b64decode(value[6:]).decode())
    return "\n".join(texts)


def stolen_by(thief: HttpServer) -> list[str]:
    return [secret for secret in SECRETS if secret in shown_to(thief)]


def use(catalog: Catalog, tries: Callable[[Any], object] = lambda io: io.create("s3://lake/db/t/x", b"1")) -> None:
    """Use a catalog and the files of its table, whatever becomes of that."""
    with suppress(IcebergError):
        catalog.list_namespaces()
    with suppress(IcebergError):
        state = catalog.load("db.t")
        tries(state.io or catalog.io)


WHERE = ["defaults", "overrides"]


class TestRequestsToTheServer:
    """The login of a connection goes to the connection's own uri, and to the authorization server that it names."""

    @pytest.mark.costly
    @pytest.mark.sample(8)
    @pytest.mark.parametrize("where", WHERE)
    @pytest.mark.parametrize("login", [
        LOGIN,
        {"token": "t0p-token"},
        {"header.X-Api-Key": "my-gateway-key"},
        {"rest.auth.type": "basic", "rest.auth.basic.username": "me", "rest.auth.basic.password": "s3cr3t"},
        {"rest.sigv4-enabled": "true", "rest.signing-region": "us-east-1", "rest.access-key-id": "AKIDOURS",
         "rest.secret-access-key": "s3cr3t", "rest.session-token": "our-session"},
    ], ids=["credential", "token", "header", "basic", "sigv4"])  # fmt: skip
    @pytest.mark.parametrize("name", [
        "uri", "oauth2-server-uri", "rest.client.proxy", "s3.signer.uri", "s3.proxy-uri", "s3.endpoint", "token",
    ])  # fmt: skip
    def test_no_address_of_the_server_gets_it(
        self, server: Hostile, thief: HttpServer, where: str, login: Mapping[str, str], name: str
    ) -> None:
        said = {name: thief.uri}
        if name == "rest.client.proxy":
            said = {f"{name}.hostname": "127.0.0.1", f"{name}.port": str(thief.port)}
        server.config = {where: {**said, "s3.remote-signing-enabled": str(name == "s3.signer.uri").lower()}}
        with HttpServer(lambda request: Reply(status=403)) as store:
            given = {"rest.client.max-retries": "0", "s3.endpoint": store.uri, "s3.region": "us-east-1"}
            use(load_catalog("prod", uri=server.uri, **given, **login))
        assert stolen_by(thief) == []
        assert server.seen

    @pytest.mark.parametrize("where", WHERE)
    def test_it_cannot_choose_another_kind_of_login(self, server: Hostile, where: str) -> None:
        """A password for one purpose is not shown for another."""
        said = {"rest.auth.type": "basic", "rest.sigv4-enabled": "true", "rest.auth.basic.username": "me"}
        server.config = {where: {**said, "header.Host": "other", "header.X-Copy": "1", "scope": "all", "audience": "x"}}
        given = {"token": "t0p-token", "rest.auth.basic.password": "s3cr3t"}
        load_catalog("prod", uri=server.uri, **given).load("db.t")
        assert {request.headers["Authorization"] for request in server.seen} == {"Bearer t0p-token"}
        assert "s3cr3t" not in shown_to(server)
        assert all("X-Copy" not in request.headers for request in server.seen)

    @pytest.mark.parametrize("where", WHERE)
    def test_neither_certificates_nor_files_of_this_machine(self, server: Hostile, where: str, tmp_path: Path) -> None:
        (tmp_path / "ours.pem").write_text("x")
        names = ("ssl.cabundle", "ssl.client.cert", "ssl.client.key", "gcs.oauth2.token", "s3.profile-name")
        server.config = {where: dict.fromkeys(names, str(tmp_path / "ours.pem"))}
        catalog = load_catalog("prod", uri=server.uri)
        found = catalog.load("db.t").io or catalog.io
        assert str(tmp_path) not in str(found.current_properties())  # type: ignore[attr-defined]
        assert str(tmp_path) not in str(catalog._server.config.properties)  # type: ignore[attr-defined]

    @pytest.mark.costly
    @pytest.mark.parametrize("named", [
        "{server}\\@{thief}/tokens", "{thief}\\@{server}/tokens", "http://{server_host}@{thief_host}/tokens",
        "{server}@{thief_host}/tokens", "http:{thief_host}", "//{thief_host}/tokens", "\t{thief}",
        "{server}#@{thief_host}/tokens", "http://{server_host}:@{thief_host}",
    ])  # fmt: skip
    def test_spellings_that_libraries_read_differently(self, server: Hostile, thief: HttpServer, named: str) -> None:
        places = {"server_host": server.uri[7:], "thief_host": thief.uri[7:], "server": server.uri, "thief": thief.uri}
        server.config = {"overrides": dict.fromkeys(("uri", "oauth2-server-uri"), named.format(**places))}
        use(load_catalog("prod", uri=server.uri, **{"rest.client.max-retries": "0", **LOGIN}))
        assert thief.seen == []

    def test_its_own_token_endpoint_is_used(self, server: Hostile) -> None:
        """As Nessie says it; the connection has a credential, and no address for it."""
        server.config = {"defaults": {"oauth2-server-uri": f"{server.uri}/iceberg/v1/oauth/tokens"}}
        load_catalog("prod", uri=server.uri, **LOGIN).load("db.t")
        assert [str(request) for request in server.seen if request.method == "POST"] == [
            "POST /v1/oauth/tokens",
            "POST /iceberg/v1/oauth/tokens",
        ]

    def test_what_the_connection_says_stays(self, server: Hostile, thief: HttpServer) -> None:
        server.config = {"overrides": {"oauth2-server-uri": f"{server.uri}/other/tokens", "token": "theirs"}}
        given = {**LOGIN, "oauth2-server-uri": f"{thief.uri}/realm/tokens"}
        load_catalog("prod", uri=server.uri, **given).load("db.t")
        assert [str(request) for request in thief.seen] == ["POST /realm/tokens"]
        assert server.seen[-1].headers["Authorization"] == "Bearer theirs"  # of the connection's own server

    def test_another_path_of_its_own_host_is_followed(self, server: Hostile) -> None:
        server.config = {"overrides": {"uri": f"{server.uri}/iceberg/", "prefix": "main%7Cwh"}}
        load_catalog("prod", uri=server.uri, **LOGIN).load("db.t")
        assert str(server.seen[-1]) == "GET /iceberg/v1/main%7Cwh/namespaces/db/tables/t"

    def test_a_server_may_send_away_who_has_no_login(self, server: Hostile) -> None:
        with Hostile() as other:
            server.config = {"overrides": {"uri": other.uri}}
            load_catalog("prod", uri=server.uri).load("db.t")
            assert [request.path for request in other.seen] == [TABLE]

    def test_it_may_lend_a_token_to_who_has_no_login(self, server: Hostile) -> None:
        server.config = {"overrides": {"token": "lent"}}
        load_catalog("prod", uri=server.uri).load("db.t")
        assert server.seen[-1].headers["Authorization"] == "Bearer lent"

    @pytest.mark.parametrize("prefix", ["..", "a/../../admin", "%2e%2E/x", "a?b", "a#b", "a\\b", "a b", ".%2e%2fx"])
    def test_a_prefix_stays_below_the_address(self, prefix: str) -> None:
        with pytest.raises(FormatError, match="unexpected prefix"):
            request_properties({"uri": "https://h"}, {}, {"prefix": prefix})

    def test_redirects_take_nothing_along(self, server: Hostile, thief: HttpServer) -> None:
        answer = server.handle
        for status in (301, 302, 307, 308):
            server.handle = lambda request, status=status: (  # type: ignore[misc]
                Reply(status=status, headers={"Location": f"{thief.uri}{request.path}"})
                if request.path != "/v1/config"
                else answer(request)
            )
            use(load_catalog("prod", uri=server.uri, **LOGIN, **{"header.X-Api-Key": "my-gateway-key"}))
        assert thief.seen == []

    def test_what_is_ignored_is_said_once(self, server: Hostile, caplog: pytest.LogCaptureFixture) -> None:
        server.config = {"overrides": {"uri": "https://me:pw@elsewhere.example.com/x?token=abc"}}
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                load_catalog("prod", uri=server.uri, **LOGIN).load("db.t")
        found = [record.getMessage() for record in caplog.records if "is not used" in record.getMessage()]
        assert len(found) == 1
        assert "uri (https://elsewhere.example.com/x) is not used" in found[0]
        assert "set uri in the connection" in found[0]


class TestAccessToFiles:
    """Our keys go where the connection says; the server says where its own keys go."""

    GIVEN = {**KEYS, "rest.client.max-retries": "0"}

    def said(self, server: Hostile, where: str, config: Mapping[str, str]) -> None:
        if where in WHERE:
            server.config = {where: dict(config)}
        elif where == "table":
            server.table = {"config": dict(config)}
        else:
            server.table = {"storage-credentials": [{"prefix": "s3://lake", "config": dict(config)}]}

    EVERYWHERE = pytest.mark.parametrize("where", [*WHERE, "table", "credentials"])

    @pytest.mark.costly
    @pytest.mark.sample(4)
    @EVERYWHERE
    @pytest.mark.parametrize("more", [
        {},
        {"s3.access-key-id": "AKIDTHEIRS"},
        {"s3.session-token": "theirs", "s3.secret-access-key": "theirs"},
        {"s3.access-key-id": "AKIDTHEIRS", "s3.secret-access-key": ""},
        {"s3.anonymous": "false"},
        {"s3.profile-name": "default", "client.profile-name": "default"},
    ])  # fmt: skip
    def test_our_keys_do_not_go_to_their_endpoint(
        self, server: Hostile, thief: HttpServer, where: str, more: dict[str, str]
    ) -> None:
        self.said(server, where, {"s3.endpoint": thief.uri, "s3.path-style-access": "true", **more})
        with HttpServer(lambda request: Reply(status=403)) as ours:
            catalog = load_catalog("prod", uri=server.uri, **{**self.GIVEN, "s3.endpoint": ours.uri})
            use(catalog)
            assert ours.seen
        assert thief.seen == []

    @EVERYWHERE
    def test_nor_do_those_of_the_process(
        self, server: Hostile, thief: HttpServer, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOURS")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
        self.said(
            server, where, {"s3.endpoint": thief.uri, "s3.access-key-id": "AKIDTHEIRS", "s3.proxy-uri": thief.uri}
        )
        catalog = load_catalog("prod", uri=server.uri, **{"s3.region": "us-east-1"})
        io = catalog.load("db.t").io or catalog.io
        assert thief.uri not in str(io.current_properties())  # type: ignore[attr-defined]

    @pytest.mark.costly
    @pytest.mark.parametrize("where", ["overrides", "table", "credentials"])
    def test_their_keys_go_to_their_endpoint_without_ours(self, server: Hostile, thief: HttpServer, where: str) -> None:
        """As Polaris, Lakekeeper and Unity Catalog do it."""
        keys = {name: text for name, text in THEIR_KEYS.items() if not name.endswith("token")}
        said = {"s3.endpoint": thief.uri, "s3.path-style-access": "true", "s3.region": "eu-west-1", **keys}
        self.said(server, where, said)
        use(load_catalog("prod", uri=server.uri, **self.GIVEN))
        assert "PUT /lake/db/t/x" in [str(request) for request in thief.seen]
        assert "AKIDTHEIRS" in shown_to(thief)
        assert stolen_by(thief) == []

    @pytest.mark.costly
    def test_an_address_of_ours_is_used_with_their_keys(self, server: Hostile, thief: HttpServer) -> None:
        self.said(server, "table", THEIR_KEYS)
        use(load_catalog("prod", uri=server.uri, **{**self.GIVEN, "s3.endpoint": thief.uri}))
        lent = next(request for request in thief.seen if "their-session" in str(request.headers))
        assert str(lent) == "PUT /lake/db/t/x"

    def test_keys_that_are_lent_no_more_are_not_replaced_by_ours(self, server: Hostile, thief: HttpServer) -> None:
        """The endpoint that came with theirs would get them."""
        self.said(server, "table", {**THEIR_KEYS, "s3.endpoint": thief.uri, "s3.session-token-expires-at-ms": "1"})
        server.credentials = {"config": {}, "storage-credentials": []}
        server.table["config"]["client.refresh-credentials-endpoint"] = "v1/lent"
        state = load_catalog("prod", uri=server.uri, **self.GIVEN).load("db.t")
        assert state.io is not None
        with pytest.raises(StorageError, match="other kinds of credentials"):
            state.io.create("s3://lake/db/t/x", b"1")
        assert "POST" not in {request.method for request in thief.seen}
        assert stolen_by(thief) == []

    @pytest.mark.parametrize("region", ["a.evil.example/#", "x@evil", "..", "a" * 64])
    def test_a_region_is_no_part_of_an_address(self, region: str) -> None:
        found = store_access(KEYS, {"s3.region": region}, {"client.region": region}).properties
        assert region not in found.values()

    def test_google(self) -> None:
        ours = {"gcs.oauth2.token": "ya29.ours", "gcs.session-kwargs": '{"headers": {"X": "s3cr3t"}}'}
        said = {"gcs.service.host": "http://thief", "gcs.session-kwargs": "{}", "gcs.project-id": "p"}
        assert store_access(ours, {}, said).properties == {**ours, "gcs.project-id": "p"}
        lent = {"gcs.oauth2.token": "ya29.theirs", "gcs.service.host": "http://thief"}
        marked = {**lent, "gcs.project-id": "p", "gcs.credentials-lent-by-server": "true"}
        assert store_access(ours, {}, {**said, **lent}).properties == marked

    def test_keys_and_the_wish_that_nobody_signs_do_not_meet(self, caplog: pytest.LogCaptureFixture) -> None:
        """What is nearer to the table counts, and a server's before that of the connection; a signer signs."""
        keys = {"s3.access-key-id": "theirs", "s3.secret-access-key": "theirs"}
        nobody, signer = {"s3.anonymous": "true"}, {"s3.remote-signing-enabled": "true"}
        marked = {"s3.credentials-lent-by-server": "true"}
        for given, defaults, said, found in (
            (nobody, {}, keys, keys),
            (nobody, keys, {}, nobody),  # its defaults are for what the connection does not say
            ({}, nobody, keys, keys),
            ({}, keys, nobody, nobody),
            ({"s3.access-key-id": "ours", "s3.secret-access-key": "ours"}, {}, nobody, nobody),
            (nobody, {}, signer, signer),
            ({}, nobody, signer, signer),
            ({}, {}, {**keys, **nobody}, keys),
        ):
            is_theirs = found is not nobody or given is not nobody
            assert store_access(given, defaults, said).properties == {**found, **(marked if is_theirs else {})}
        for first, then in ((keys, nobody), (nobody, keys)):
            delegation = Delegation(config=first, credentials=(("s3://lake", then),))
            assert delegation.properties_for("s3://lake/t") == then
        assert "s3.anonymous of the connection is not used: the catalog server lends" in caplog.text

    @pytest.mark.parametrize(("defaults", "said"), [
        ({}, {"gcs.oauth2.token": " "}),
        ({}, {"GCS.OAuth2.Token": "x"}),
        ({"s3.anonymous": "true"}, {"s3.anonymous": "false"}),
        ({}, {"S3.Access-Key-Id": "x", "s3.secret-access-key": "y"}),
        ({"s3.access-key-id": "x"}, {"s3.secret-access-key": ""}),
        ({}, {"adls.sas-token": "", "adls.token.": " "}),
    ])  # fmt: skip
    def test_credentials_that_no_store_reads_are_none(self, defaults: dict[str, str], said: dict[str, str]) -> None:
        """Otherwise the process's own identity would be sent to the server's address."""
        thief = {"s3.endpoint": "http://thief", "gcs.service.host": "http://thief"}
        thief |= {"adls.account-name": "thief", "adls.account-host": "thief.dfs.core.windows.net"}
        found = store_access({}, {**thief, **defaults}, {**thief, **said}).properties
        assert [value for value in found.values() if "thief" in value] == []

    @pytest.mark.costly
    @pytest.mark.parametrize(("location", "lent"), [
        ("gs://lake/x", {"gcs.oauth2.token-expires-at": "9", "gcs.credentials-lent-by-server": "true"}),
        ("s3://lake/x", {"s3.access-key-id": "theirs", "s3.credentials-lent-by-server": "true"}),
        ("abfss://c@lake.dfs.core.windows.net/x", {
            "adls.sas-token.other.dfs.core.windows.net": "sig=theirs", "adls.credentials-lent-by-server": "true",
        }),
    ])  # fmt: skip
    def test_the_process_fills_no_gap(self, location: str, lent: dict[str, str]) -> None:
        with pytest.raises(IcebergError, match="the catalog's server lends credentials, and none of them is for"):
            load_file_io(lent).read(location)

    @pytest.mark.parametrize("token", ["google_default", "cloud", "cache", "browser", "/etc/hosts", "./x", "k.json"])
    def test_a_token_of_google_is_no_file_of_ours(self, token: str) -> None:
        assert store_access({}, {}, {"gcs.oauth2.token": token, "gcs.service.host": "http://thief"}).properties == {}

    def test_azure(self) -> None:
        ours = {"adls.sas-token": "sig=our-sas", "adls.client-secret": "s3cr3t", "adls.account-name": "lake"}
        said = {"adls.account-host": "thief.example.com", "adls.connection-string": "BlobEndpoint=http://thief"}
        assert store_access(ours, {}, {**said, "adls.account-name": "thief"}).properties == ours
        lent, mark = (
            {"adls.sas-token.lake.dfs.core.windows.net": "sig=theirs"},
            {"adls.credentials-lent-by-server": "true"},
        )
        found = store_access(ours, said, {**said, **lent}).properties
        assert found == {**lent, **mark, "adls.account-name": "lake"}
        named = {**lent, "adls.account-name": "lake", "adls.account-host": "lake.dfs.core.windows.net"}
        assert store_access({}, {}, named).properties == {**named, **mark}

    def test_hdfs_is_the_connection_s_alone(self) -> None:
        said = {"hdfs.host": "thief", "hdfs.token": "x", "hdfs.user": "root", "hdfs.config.dfs.nameservices": "a"}
        assert store_access({"hdfs.token": "t"}, said, said).properties == {"hdfs.token": "t"}

    def test_what_is_not_known_is_not_used(self) -> None:
        names = ("py-io-impl", "io-impl", "client.credentials-provider", "s3.proxy-uri", "s3.profile-name", "warehouse")
        assert store_access({}, dict.fromkeys(names, "x"), dict.fromkeys(names, "x")).properties == {}


class TestSigners:
    """A signer at the catalog's own host, or at the connection's address, gets the catalog's token; no other does."""

    ON = {"s3.remote-signing-enabled": "true", "s3.region": "us-east-1"}

    def write(self, server: Hostile, config: Mapping[str, str], **given: str) -> str | None:
        """Write a file, and return the error if there is one."""
        with HttpServer(lambda request: Reply(body=b"", headers={"ETag": '"e"'})) as store:
            server.table = {"config": {**self.ON, "s3.endpoint": store.uri, **config}}
            catalog = load_catalog("prod", uri=server.uri, **{**LOGIN, **KEYS, **given})
            io = catalog.load("db.t").io
            assert io is not None
            try:
                io.create("s3://lake/db/t/x", b"1")
            except StorageError as error:
                return str(error)
            finally:
                self.stored = shown_to(store)
            return None

    @pytest.mark.costly
    @pytest.mark.parametrize("config", [{}, {"s3.signer.uri": "{server}/s"}, {"s3.signer.endpoint": "{server}/a/sign"}])
    def test_the_catalog_s_own(self, server: Hostile, config: dict[str, str]) -> None:
        named = {name: text.format(server=server.uri) for name, text in config.items()}
        assert self.write(server, named) is None
        asked = next(request for request in server.seen if request.path.endswith("/sign"))
        assert asked.headers["Authorization"] == "Bearer t0p-token"
        assert "'Authorization': 'signed'" in self.stored
        assert not any(secret in self.stored for secret in SECRETS)

    @pytest.mark.services
    def test_headers_other_than_a_signature_are_not_taken(self, server: Hostile) -> None:
        assert self.write(server, {}) is None
        assert "X-Evil" not in self.stored

    @pytest.mark.costly
    @pytest.mark.parametrize("name", ["s3.signer.uri", "s3.signer.endpoint", "signer.uri"])
    def test_another_gets_no_token(self, server: Hostile, thief: HttpServer, name: str) -> None:
        uri = f"{thief.uri}/v1/sign" if name == "s3.signer.endpoint" else thief.uri
        self.write(server, {name: uri})
        assert thief.seen
        assert stolen_by(thief) == []

    @pytest.mark.costly
    def test_but_the_server_s_own_for_the_table(self, server: Hostile, thief: HttpServer) -> None:
        assert self.write(server, {"s3.signer.uri": thief.uri, "token": "for-the-table"}) is None
        assert thief.seen[0].headers["Authorization"] == "Bearer for-the-table"

    @pytest.mark.costly
    def test_the_connection_s_own_is_asked(self, server: Hostile, thief: HttpServer) -> None:
        named = {"s3.signer.uri": "http://127.0.0.1:1"}
        assert self.write(server, named, **{"s3.signer.uri": thief.uri, "s3.signer.endpoint": "v1/sign"}) is None
        assert thief.seen[0].headers["Authorization"] == "Bearer t0p-token"

    @pytest.mark.costly
    def test_a_redirect_is_not_followed(self, server: Hostile, thief: HttpServer) -> None:
        answer = server.handle
        server.handle = lambda request: (
            Reply(status=307, headers={"Location": f"{thief.uri}/sign"})
            if request.path.endswith("/sign")
            else answer(request)
        )
        assert "redirects to another address, set s3.signer.uri" in str(self.write(server, {}))
        assert thief.seen == []

    @pytest.mark.costly
    def test_a_request_is_not_sent_to_another_store(self, server: Hostile, thief: HttpServer) -> None:
        answer, signed = server.handle, document({"uri": f"{thief.uri}/lake/x", "headers": {}})
        server.handle = lambda request: signed if request.path.endswith("/sign") else answer(request)
        assert "the address of another host than the store's" in str(self.write(server, {}))
        assert thief.seen == []

    @pytest.mark.costly
    def test_a_netrc_does_not_take_the_place_of_the_token(
        self, server: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password s3cr3t\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        assert self.write(server, {}) is None
        asked = next(request for request in server.seen if request.path.endswith("/sign"))
        assert asked.headers["Authorization"] == "Bearer t0p-token"
