"""Properties of `docs/rest-catalog.md` and `docs/nessie.md` that decide how a server is talked to: what it gets to see.

The servers here are real ones on loopback that give the same answers always. What becomes of commits: `test_rest_http`,
`test_nessie`.
"""

import base64
import json
import re
import socket
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.catalogs.nessie.client import NessieClient
from airflow_iceberg.errors import CommitUnknownError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from airflow_iceberg.format.metadata import json as metadata_json
from tests.catalogs.contract import new_metadata
from tests.support.certificates import make_certificates
from tests.support.faults import all_texts
from tests.support.http_server import HttpServer, Reply, document

ANSWERS = {
    "/v1/config": {"defaults": {}, "overrides": {}},
    "/v1/namespaces": {"namespaces": [["sales"]]},
    "/v1/namespaces/sales/tables": {"identifiers": [{"namespace": ["sales"], "name": "orders"}]},
    "/api/v2/trees": {"references": [{"type": "BRANCH", "name": "main", "hash": "3b2f" * 16}], "hasMore": False},
}


TABLES = ANSWERS["/v1/namespaces/sales/tables"]["identifiers"]


def answer(request):
    found = ANSWERS.get(urlsplit(request.path).path)
    return document(found) if found else Reply(status=404)


@pytest.fixture
def server():
    with HttpServer(answer) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def guarded(certificates):
    """A server by TLS that lets in only who shows a certificate."""
    with HttpServer(answer, tls=certificates.server_context()) as server:
        yield server


def ask_rest(uri, **properties):
    found = load_catalog("prod", type="rest", uri=uri, **{"rest.client.max-retries": "0", **properties})
    return [".".join(each) for each in found.list_namespaces()]


def ask_nessie(uri, **properties):
    found = load_catalog("prod", type="nessie", uri=f"{uri}/api/v2", **properties)
    return [each.name for each in found.references.list()]


BOTH = pytest.mark.parametrize(
    ("ask", "found"), [(ask_rest, ["sales"]), (ask_nessie, ["main"])], ids=["rest", "nessie"]
)


class TestTimeOuts:
    """How long a connection and an answer are waited for, in milliseconds."""

    @pytest.fixture
    def connecting(self, monkeypatch):
        """(port, seconds) of each connection that this process makes."""
        seen = []
        connect = socket.socket.connect

        def spy(self, address):
            seen.append((address[1], self.gettimeout()))
            return connect(self, address)

        monkeypatch.setattr(socket.socket, "connect", spy)
        return seen

    @pytest.mark.parametrize(("ask", "properties", "seconds"), [
        (ask_rest, {}, 30),
        (ask_rest, {"rest.client.connection-timeout-ms": "1500"}, 1.5),
        (ask_nessie, {}, 10),
        (ask_nessie, {"transport.connect-timeout": "2500"}, 2.5),
        (ask_nessie, {"nessie.transport.connect-timeout": "700"}, 0.7),
    ])  # fmt: skip
    def test_a_connection_is_waited_for_that_long(self, ask, properties, seconds, server, connecting):
        ask(server.uri, **properties)
        assert {waited for port, waited in connecting if port == server.port} == {seconds}

    @pytest.mark.parametrize(("ask", "properties", "message"), [
        (ask_rest, {"rest.client.socket-timeout-ms": "50"}, r"it did not answer in time"),
        (ask_nessie, {"transport.read-timeout": "50"}, r"cannot read from Nessie at .*: it did not answer in time"),
    ])  # fmt: skip
    def test_a_server_that_never_answers_is_given_up(self, ask, properties, message):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            with pytest.raises(StorageError, match=message):
                ask(f"http://127.0.0.1:{silent.getsockname()[1]}", **properties)

    @pytest.mark.parametrize(
        ("ask", "name"), [(ask_rest, "rest.client.connection-timeout-ms"), (ask_nessie, "transport.connect-timeout")]
    )
    def test_what_is_no_number_of_milliseconds_is_refused(self, ask, name):
        with pytest.raises(InvalidInputError, match=re.escape(name)):
            ask("http://127.0.0.1:1", **{name: "5s"})


class TestRepetitions:
    """A request that can be repeated is repeated `rest.client.max-retries` times, five unless it says otherwise."""

    @pytest.mark.parametrize(("properties", "sent"), [({}, 6), ({"rest.client.max-retries": "2"}, 3)])
    def test_so_often(self, properties, sent, server, monkeypatch):
        monkeypatch.setitem(Http.__init__.__kwdefaults__, "sleep", lambda _: None)
        server.handle = lambda request: Reply(status=503)
        with pytest.raises(StorageError, match=": 503; check"):
            load_catalog("prod", type="rest", uri=server.uri, **properties).list_namespaces()
        assert len(server.seen) == sent


class TestTooManyRequests:
    """A server that is overloaded is asked again, after the time that it asks for: by Nessie as by REST."""

    @pytest.fixture
    def waits(self, monkeypatch):
        waits = []
        monkeypatch.setitem(Http.__init__.__kwdefaults__, "sleep", waits.append)
        return waits

    def overload(self, server, times):
        def handle(request):
            if len(server.seen) <= times:
                return Reply(status=429, headers={"Retry-After": "7"} if len(server.seen) == 1 else {})
            return answer(request)

        server.handle = handle

    @BOTH
    def test_a_read_waits_until_the_server_answers(self, ask, found, server, waits):
        self.overload(server, 5)
        assert ask(server.uri, **{"rest.client.max-retries": "5"}) == found
        assert (waits[0], len(waits)) == (7.0, 5)

    def test_a_change_waits_and_is_sent_again(self, server, waits):
        references = load_catalog("prod", type="nessie", uri=f"{server.uri}/api/v2").references
        made = document({"reference": {"type": "BRANCH", "name": "etl", "hash": "3b2f" * 16}})

        def handle(request):
            changes = [each for each in server.seen if each.method == "POST"]
            return Reply(status=429) if 0 < len(changes) <= 5 and request.method == "POST" else made

        server.handle = handle
        assert references.create_branch("etl", source="main").name == "etl"
        assert len(waits) == 5

    def test_too_many_for_too_long_are_a_definite_failure(self, server, waits):
        server.handle = lambda request: Reply(status=429)
        with pytest.raises(StorageError, match=": 429; check"):
            ask_nessie(server.uri)
        assert len(server.seen) == 6


class TestProxies:
    """Requests go through the proxy in `rest.client.proxy.hostname`, with its login."""

    def test_the_proxy_is_shown_its_login_alone(self, server):
        proxy = {"hostname": "127.0.0.1", "port": str(server.port), "username": "me@x", "password": "p/w:1"}
        properties = {f"rest.client.proxy.{name}": value for name, value in proxy.items()}
        server.handle = lambda request: answer(replace(request, path=urlsplit(request.path).path))
        assert ask_rest("http://catalog.invalid", token="t0p", **properties) == ["sales"]
        login = f"Basic {base64.b64encode(b'me@x:p/w:1').decode()}"
        assert {request.headers["Proxy-Authorization"] for request in server.seen} == {login}
        assert {request.headers["Authorization"] for request in server.seen} == {"Bearer t0p"}

    def test_a_proxy_that_is_away_is_not_passed_by(self, server):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))  # and nobody listens
            proxy = {"hostname": "127.0.0.1", "port": str(holder.getsockname()[1])}
            with pytest.raises(StorageError, match="no answer"):
                ask_rest(server.uri, **{f"rest.client.proxy.{name}": value for name, value in proxy.items()})
        assert server.seen == []

    @BOTH
    def test_the_login_of_the_environment_s_proxy_is_not_shown(self, ask, found, monkeypatch):
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, "http://me:pr0xy-pw@127.0.0.1:9")
        with pytest.raises(StorageError, match="no answer") as raised:
            ask("http://catalog.invalid", **{"rest.client.max-retries": "0"})
        assert "pr0xy-pw" not in all_texts(raised.value, with_suppressed=True)


class TestCertificates:
    """A server that asks for a certificate is shown the one in `ssl.client.cert`."""

    @BOTH
    @pytest.mark.parametrize("files", [{"cert": "client", "key": "client_key"}, {"cert": "client_both"}], ids=len)
    def test_it_is_in_two_files_or_in_one(self, ask, found, files, guarded, certificates):
        shown = {f"ssl.client.{name}": getattr(certificates, file) for name, file in files.items()}
        assert ask(guarded.uri, **{"ssl.cabundle": certificates.authority, **shown}) == found

    @BOTH
    def test_who_shows_none_is_not_let_in(self, ask, found, guarded, certificates):
        with pytest.raises(StorageError):
            ask(guarded.uri, **{"ssl.cabundle": certificates.authority})
        assert guarded.seen == []

    @BOTH
    def test_a_server_that_is_not_trusted_is_shown_nothing(self, ask, found, guarded, certificates):
        with pytest.raises(StorageError, match="certificate"):
            ask(guarded.uri, **{"ssl.client.cert": certificates.client_both})
        assert guarded.seen == []

    @BOTH
    def test_the_environment_does_not_take_the_bundle_s_place(self, ask, found, guarded, certificates, monkeypatch):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates.client))
        properties = {"ssl.cabundle": certificates.authority, "ssl.client.cert": certificates.client_both}
        assert ask(guarded.uri, **properties) == found

    @BOTH
    def test_a_key_without_a_certificate_is_refused(self, ask, found, certificates):
        with pytest.raises(InvalidInputError, match=r"'ssl\.client\.key' needs 'ssl\.client\.cert'"):
            ask("https://127.0.0.1:1", **{"ssl.client.key": certificates.client_key})

    @BOTH
    @pytest.mark.parametrize("name", ["ssl.cabundle", "ssl.client.cert"])
    def test_a_file_that_is_not_there_is_named(self, ask, found, name, guarded, certificates):
        given = {"ssl.cabundle": certificates.authority, "ssl.client.cert": certificates.client_both}
        with pytest.raises(InvalidInputError, match=rf"property '{re.escape(name)}' names .*none\.pem, which is not"):
            ask(guarded.uri, **{**given, name: certificates.client.with_name("none.pem")})


class TestTokensOfNessie:
    """A bearer token is shown with each request, under whatever name it is given."""

    def shown(self, server, **properties):
        ask_nessie(server.uri, **properties)
        return [request.headers.get("Authorization") for request in server.seen]

    @pytest.mark.parametrize("name", ["authentication.token", "nessie.authentication.token", "token", "nessie.token"])
    @pytest.mark.parametrize("kind", [{}, {"authentication.type": "BEARER"}, {"nessie.authentication.type": "bearer"}])
    def test_it_is_shown(self, name, kind, server):
        assert self.shown(server, **{name: "t0p"}, **kind) == ["Bearer t0p"]

    def test_nessies_own_name_goes_before_the_shorter_one(self, server):
        assert self.shown(server, **{"token": "short", "authentication.token": "own"}) == ["Bearer own"]

    @pytest.mark.parametrize("properties", [{}, {"authentication.type": "NONE", "authentication.token": "t0p"}])
    def test_nobody_shows_nothing(self, properties, server, tmp_path, monkeypatch):
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pw\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        assert self.shown(server, **properties) == [None]

    def test_other_ways_are_refused_at_once(self):
        with pytest.raises(UnsupportedError, match=r"authentication\.type 'AWS' is not supported"):
            ask_nessie("http://127.0.0.1:1", **{"authentication.type": "AWS"})


class TestCommitsOfNessie:
    """A commit goes to the branch in `ref`, and says who made it (`user`) and with what (`app-id`)."""

    def committed(self, server, **properties):
        """Return where a commit went, and what it says of itself."""
        branch = {"type": "BRANCH", "name": "etl", "hash": "3b2f" * 16}

        def serve(request):
            found = {"targetBranch": branch} if request.path.endswith("/commit") else {}
            return document({"contents": [], "effectiveReference": branch, **found})

        server.handle = serve
        load_catalog("prod", type="nessie", uri=f"{server.uri}/api/v2", **properties).create_namespace("sales")
        looked, sent = server.seen
        return looked.path, json.loads(sent.body)["commitMeta"]

    @pytest.mark.parametrize("prefix", ["", "nessie."])
    def test_they_are_those_of_the_properties(self, prefix, server):
        given = {f"{prefix}ref": "etl", f"{prefix}user": "jane", "app-id": "app-7"}
        looked, meta = self.committed(server, **given)
        assert looked == "/api/v2/trees/etl/contents"
        assert meta["authors"] == ["jane"]
        assert meta["properties"]["app-id"] == "app-7"
        assert meta["properties"]["airflow-iceberg.commit-mark"]

    def test_without_them_the_default_branch_and_the_process_are_meant(self, server, monkeypatch):
        monkeypatch.setenv("LOGNAME", "worker")
        looked, meta = self.committed(server)
        assert looked == "/api/v2/trees/-/contents"
        assert meta["authors"] == ["worker"]
        assert "app-id" not in meta["properties"]


class TestOAuth2OfNessie:
    """With `authentication.type` OAUTH2 a token is asked for, and another one when it is refused."""

    KEYS = {"client-id": "etl", "client-secret": "s3cret:/7"}

    @pytest.fixture
    def asked(self, server):
        """The forms that came to the authorization server, which is at the same address; the newest token is taken."""
        asked = []

        def serve(request):
            if request.path == "/realm/.well-known/openid-configuration":
                return document({"token_endpoint": f"{server.uri}/token"})
            if request.path == "/token":
                form = {name: value for name, (value,) in parse_qs(request.body.decode()).items()}
                asked.append((request.headers.get("Authorization"), form))
                given = {"access_token": f"token-{len(asked)}", "token_type": "Bearer", "expires_in": 3600}
                return document(given)
            shown = request.headers.get("Authorization")
            return answer(request) if shown == f"Bearer token-{len(asked)}" else Reply(status=401)

        server.handle = serve
        return asked

    def properties(self, server, prefix="", **more):
        names = {"token-endpoint": f"{server.uri}/token", **self.KEYS, **more}
        given = {f"{prefix}authentication.oauth2.{name}": value for name, value in names.items() if value is not None}
        return {"uri": f"{server.uri}/api/v2", "type": "nessie", f"{prefix}authentication.type": "OAUTH2", **given}

    def listed(self, server, **more):
        return [each.name for each in load_catalog("prod", **self.properties(server, **more)).references.list()]

    @pytest.mark.parametrize("prefix", ["", "nessie."])
    def test_the_client_shows_its_secret_and_then_the_token(self, prefix, server, asked):
        catalog = load_catalog("prod", **self.properties(server, prefix))
        assert server.seen == []
        for _ in range(2):
            assert [each.name for each in catalog.references.list()] == ["main"]
        basic = f"Basic {base64.b64encode(b'etl:s3cret%3A%2F7').decode()}"
        assert asked == [(basic, {"grant_type": "client_credentials"})]
        assert [request.headers["Authorization"] for request in server.seen[1:]] == ["Bearer token-1"] * 2

    def test_scopes_are_asked_for(self, server, asked):
        self.listed(server, **{"client-scopes": "catalog sign"})
        assert asked[0][1] == {"grant_type": "client_credentials", "scope": "catalog sign"}

    def test_the_endpoint_is_found_by_its_issuer(self, server, asked):
        more = {"token-endpoint": None, "issuer-url": f"{server.uri}/realm/"}
        self.listed(server, **more)
        assert len(asked) == 1

    def test_a_user_of_a_client_without_a_secret(self, server, asked):
        more = {"grant-type": "password", "username": "jane", "password": "pw-1", "client-secret": None}
        self.listed(server, **more)
        form = {"grant_type": "password", "username": "jane", "password": "pw-1", "client_id": "etl"}
        assert asked == [(None, form)]

    def test_a_token_that_is_refused_is_renewed_once(self, server, asked):
        catalog = load_catalog("prod", **self.properties(server))
        catalog.references.list()
        asked.append("somebody ended the first one")
        assert [each.name for each in catalog.references.list()] == ["main"]
        assert len(asked) == 3
        server.handle = lambda request: Reply(status=401) if "/api/" in request.path else self.token(request)
        with pytest.raises(StorageError, match=r"HTTP 401.*check the token"):
            catalog.references.list()

    def token(self, request):
        return Reply(body=b'{"access_token": "t0p-of-all"}')

    def test_a_change_whose_token_is_refused_is_sent_again(self, server, asked):
        client = NessieClient("prod", self.properties(server))
        client.get("trees")
        asked.append("somebody ended the first one")
        server.seen.clear()
        client.change("POST", "trees", params={"name": "etl"}, body={"type": "BRANCH"})
        changes = [request for request in server.seen if request.path == "/api/v2/trees?name=etl"]
        assert [request.headers["Authorization"] for request in changes] == ["Bearer token-1", "Bearer token-3"]
        assert {request.body for request in changes} == {b'{"type":"BRANCH"}'}

    def test_a_change_for_which_there_is_no_token_was_never_made(self, server, asked):
        client = NessieClient("prod", self.properties(server))
        server.handle = lambda request: Reply(status=503)
        with pytest.raises(StorageError, match=r"cannot get a token: .*/token: 503; check") as raised:
            client.change("POST", "trees", body=None)
        assert not isinstance(raised.value, CommitUnknownError)
        assert [request.path for request in server.seen] == ["/token"] * 6

    def test_a_refusal_says_which_and_shows_no_secret(self, server):
        refused = b'{"error": "invalid_client", "error_description": "s3cret:/7 is wrong"}'
        server.handle = lambda request: Reply(status=401, body=refused)
        message = r"cannot get a token: .*/token answers 401 invalid_client: \*\*\* is wrong; check"
        with pytest.raises(StorageError, match=message) as raised:
            self.listed(server)
        assert "s3cret" not in all_texts(raised.value, with_suppressed=True)

    @pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"{}"])
    def test_an_answer_without_a_token_is_named(self, body, server):
        server.handle = lambda request: Reply(body=body)
        with pytest.raises(StorageError, match=r"cannot get a token|without an access_token"):
            self.listed(server)

    def test_a_token_in_a_message_of_the_server_is_hidden(self, server, asked):
        serve = server.handle

        def echo(request):
            if "/api/" not in request.path:
                return serve(request)
            text = {"status": 400, "message": f"bad {request.headers['Authorization'].split()[1]}"}
            return document(text, 400)

        server.handle = echo
        with pytest.raises(StorageError, match=r"bad \*\*\*"):
            self.listed(server)

    @pytest.mark.parametrize(("more", "message"), [
        ({"token-endpoint": None}, r"set authentication\.oauth2\.token-endpoint \(or issuer-url\)"),
        ({"client-id": None}, r"set authentication\.oauth2\.client-id"),
        ({"client-secret": None}, r"set authentication\.oauth2\.client-secret"),
        ({"grant-type": "password", "username": "jane"}, r"set authentication\.oauth2\.password"),
    ])  # fmt: skip
    def test_what_is_missing_is_named(self, more, message, server):
        with pytest.raises(InvalidInputError, match=message):
            load_catalog("prod", **self.properties(server, **more))

    def test_other_grants_are_refused(self, server):
        with pytest.raises(UnsupportedError, match="grant-type 'device_code' is not supported, use client_credentials"):
            load_catalog("prod", **self.properties(server, **{"grant-type": "device_code"}))

    def test_a_client_without_the_type_is_no_client_of_nobody(self, server):
        given = {name: value for name, value in self.properties(server).items() if not name.endswith(".type")}
        with pytest.raises(InvalidInputError, match=r"authentication\.type is not, set it to OAUTH2"):
            load_catalog("prod", **given)


class TestPagesOfRest:
    """`rest-page-size` is asked for with each list, and pages are followed to the end."""

    def lists(self, server, **properties):
        asked = []

        def paged(request):
            path, _, query = request.path.partition("?")
            if path == "/v1/config":
                return answer(request)
            asked.append((path, parse_qs(query, keep_blank_values=True)))
            key, item = ("namespaces", [["a"], ["b"]]) if path == "/v1/namespaces" else ("identifiers", TABLES)
            following = {"next-page-token": "p 2"} if "p 2" not in str(asked[-1]) and item is not TABLES else {}
            return document({key: item, **following})

        server.handle = paged
        catalog = load_catalog("prod", type="rest", uri=server.uri, **properties)
        catalog.list_namespaces()
        catalog.list_tables("sales")
        return asked

    def test_it_is_asked_for_with_every_page(self, server):
        assert self.lists(server, **{"rest-page-size": "2"}) == [
            ("/v1/namespaces", {"pageSize": ["2"], "pageToken": [""]}),
            ("/v1/namespaces", {"pageSize": ["2"], "pageToken": ["p 2"]}),
            ("/v1/namespaces/sales/tables", {"pageSize": ["2"], "pageToken": [""]}),
        ]

    def test_without_it_nothing_is_asked_for_and_pages_are_followed(self, server):
        assert self.lists(server) == [
            ("/v1/namespaces", {}),
            ("/v1/namespaces", {"pageToken": ["p 2"]}),
            ("/v1/namespaces/sales/tables", {}),
        ]

    @pytest.mark.parametrize("text", ["0", "-2", "all", "2&x=1"])
    def test_what_is_no_size_is_refused(self, text, server):
        with pytest.raises(InvalidInputError, match=r"property 'rest-page-size' is '.*', expected a whole number"):
            self.lists(server, **{"rest-page-size": text})


class TestLentTokens:
    """A token that the server lends for a table's files is asked for anew once it has ended, where the server says."""

    ENDED, LATER = 1, 4_102_444_800_000  # milliseconds: 1970, and the year 2100
    PATH = "/v1/namespaces/sales/tables/orders"

    def lent(self, token, ends_ms):
        config = {"gcs.oauth2.token": token, "gcs.oauth2.token-expires-at": str(ends_ms)}
        config["gcs.oauth2.refresh-credentials-endpoint"] = "v1/lent/orders"
        return {"storage-credentials": [{"prefix": "gs://lake", "config": config}]}

    def read(self, server, ends_ms):
        metadata = metadata_json.to_dict(new_metadata("gs://lake/orders"))
        table = {"metadata-location": "gs://lake/orders/metadata/1.json", "metadata": metadata}

        def lends(request):
            path = request.path.partition("?")[0]
            answers = {self.PATH: {**table, **self.lent("ya29.first", ends_ms)}}
            answers["/v1/lent/orders"] = self.lent("ya29.newer", self.LATER)
            return document(answers[path]) if path in answers else answer(request)

        server.handle = lends
        given = {"gcs.service.host": server.uri, "token": "t0p"}
        state = load_catalog("prod", type="rest", uri=server.uri, **given).load("sales.orders")
        with pytest.raises(NotFoundError):
            state.io.read("gs://lake/orders/data/1.parquet")
        return [
            (request.path.partition("?")[0], value)
            for request in server.seen[2:]
            for name, value in request.headers.items()
            if name.lower() == "authorization"
        ]

    @pytest.mark.costly
    @pytest.mark.parametrize("has_ended", [True, False])
    def test_one_that_has_ended_is_not_shown_to_the_store(self, server, has_ended):
        asked = [("/v1/lent/orders", "Bearer t0p")] if has_ended else []
        shown = "Bearer ya29.newer" if has_ended else "Bearer ya29.first"
        read = ("/storage/v1/b/lake/o/orders%2Fdata%2F1.parquet", shown)
        assert self.read(server, self.ENDED if has_ended else self.LATER) == [*asked, read]


class TestNamesOfSignatures:
    """A request is signed for the service in `rest.signing-name` (AWS's gateway), in the `rest.signing-region`."""

    KEYS = {"rest.sigv4-enabled": "true", "rest.access-key-id": "AKIDEXAMPLE", "rest.secret-access-key": "s3cr3t"}

    @pytest.mark.parametrize(("properties", "scope"), [
        ({"rest.signing-region": "eu-west-1"}, "eu-west-1/execute-api"),
        ({"rest.signing-region": "eu-west-1", "rest.signing-name": "glue"}, "eu-west-1/glue"),
        ({"client.region": "us-east-2", "rest.signing-name": "s3tables"}, "us-east-2/s3tables"),
    ])  # fmt: skip
    def test_they_are_in_its_scope(self, properties, scope, server):
        ask_rest(server.uri, **self.KEYS, **properties)
        for request in server.seen:
            signed = request.headers["Authorization"]
            assert re.match(rf"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/\d{{8}}/{scope}/aws4_request, ", signed)

    @pytest.mark.parametrize("prefix", ["rest.", "client."])
    def test_the_keys_have_either_name(self, prefix, server):
        keys = {f"{prefix}access-key-id": "AKIDOTHER", f"{prefix}secret-access-key": "s3cr3t"}
        ask_rest(server.uri, **{"rest.sigv4-enabled": "true", "rest.signing-region": "eu-west-1"}, **keys)
        assert "Credential=AKIDOTHER/" in server.seen[-1].headers["Authorization"]


class TestEarlyRenewals:
    """A token is renewed before it ends, unless `token-refresh-enabled` is false."""

    @pytest.mark.parametrize(("properties", "tokens"), [({}, 3), ({"token-refresh-enabled": "false"}, 1)])
    def test_one_that_ends_at_once(self, properties, tokens, server):
        given = []

        def serve(request):
            if request.path != "/v1/oauth/tokens":
                return answer(request)
            given.append(request)
            return Reply(body=b'{"access_token": "t0p", "token_type": "bearer", "expires_in": 0}')

        server.handle = serve
        catalog = load_catalog("prod", type="rest", uri=server.uri, credential="id:s3cret", **properties)
        catalog.list_namespaces()
        catalog.list_namespaces()
        assert len(given) == tokens  # of three requests


class TestKindsOfIdentity:
    """`rest.auth.type` says how to log in; what is not known is refused before anything is sent."""

    BASIC = {"rest.auth.type": "basic", "rest.auth.basic.username": "a", "rest.auth.basic.password": "b"}

    @pytest.mark.parametrize(("properties", "header"), [
        ({"rest.auth.type": "oauth2", "token": "t0p"}, "Bearer t0p"),
        ({"rest.auth.type": "none", "token": "t0p"}, None),
        (BASIC, "Basic YTpi"),
    ])  # fmt: skip
    def test_each(self, properties, header, server):
        ask_rest(server.uri, **properties)
        assert {request.headers.get("Authorization") for request in server.seen} == {header}

    def test_another_is_refused(self, server):
        with pytest.raises(UnsupportedError, match=r"rest\.auth\.type 'google' is not supported"):
            ask_rest(server.uri, **{"rest.auth.type": "google"})
        assert server.seen == []
