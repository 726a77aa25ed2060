"""What becomes of requests to a REST catalog: outcomes, repetitions, tokens, signatures, secrets.

The server here answers by script: what it says is what a real one would not say on demand.
"""

import base64
import hashlib
import hmac
import json
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import parse_qs

import pyarrow as pa
import pytest
import urllib3.exceptions

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.http.auth import OAuth2Auth
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.catalogs.http.settings import Secrets, Settings
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, new_metadata, setting
from tests.support.faults import all_texts
from tests.support.http_server import HttpServer, Reply, document

CONFIG = "GET /v1/config"
TOKENS = "POST /v1/oauth/tokens"
TABLE = "/v1/namespaces/db/tables/t"
LOAD, COMMIT = f"GET {TABLE}", f"POST {TABLE}"
CREDENTIAL = "client-7:top:s3cret"


def error(status, type_="SomeException", message="because", **headers):
    body = {"error": {"message": message, "type": type_, "code": status, "stack": ["at secret.place(Line:1)"]}}
    return document(body, status=status, **headers)


def table(metadata_location="file:///w/db/t/metadata/1.json", **more):
    metadata = {
        **metadata_json.to_dict(new_metadata("file:///w/db/t")),
        "table-uuid": "6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0001",
        "properties": {"a": "1"},  # what the commits of these tests ask for
    }
    return {"metadata-location": metadata_location, "metadata": metadata, **more}


class Script(HttpServer):
    """Answers "METHOD /path" with the replies given for it, one after the other; the last one stays."""

    def __init__(self, **config):
        super().__init__(self._answer)
        self.replies = {CONFIG: [document({"defaults": {}, "overrides": {}, **config})]}

    def on(self, what, *replies):
        self.replies[what] = list(replies)

    def _answer(self, request):
        replies = self.replies.get(f"{request.method} {request.path.partition('?')[0]}")
        if replies is None:
            return error(404, "NoSuchTableException", f"nothing at {request.path}")
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return reply(request) if callable(reply) else reply


@pytest.fixture
def server():
    with Script() as server:
        server.on(LOAD, document(table()))
        server.on(COMMIT, document(table("file:///w/db/t/metadata/2.json")))
        yield server


@pytest.fixture
def waits(monkeypatch):
    """The seconds of each wait, which takes none; the shortest ones that chance allows."""
    waits = []
    monkeypatch.setitem(Http.__init__.__kwdefaults__, "sleep", waits.append)
    monkeypatch.setitem(Http.__init__.__kwdefaults__, "chance", lambda: 0.0)
    return waits


@pytest.fixture
def catalog(server, waits):
    return load_catalog("prod", uri=server.uri)


@pytest.fixture
def state(catalog):
    return catalog.load("db.t")


def through(proxy):
    return {"rest.client.proxy.hostname": "127.0.0.1", "rest.client.proxy.port": str(proxy.port)}


class TestWhatAnAnswerToACommitMeans:
    """An answer is a success, a conflict, a refusal, or no answer at all."""

    @pytest.mark.parametrize("headers", [{}, {"Retry-After": "1"}], ids=["plain", "come again"])
    @pytest.mark.parametrize("status", [500, 502, 503, 504, 505, 408])
    def test_failures_of_the_server_leave_it_open(self, server, catalog, waits, status, headers, state):
        server.on(COMMIT, error(status, "CommitStateUnknownException", **headers), document(table()))
        with pytest.raises(CommitUnknownError, match=rf"cannot tell whether it did commit to table db\.t: .*{status}"):
            catalog.commit(state, setting(a="1"))
        assert server.calls() == [CONFIG, LOAD, COMMIT]  # it was sent once
        assert waits == []

    def test_too_many_requests_are_sent_again_after_the_time_asked_for(self, server, catalog, waits, state):
        server.on(COMMIT, error(429, **{"Retry-After": "7"}), error(429), document(table("file:///w/new.json")))
        assert catalog.commit(state, setting(a="1")).metadata_location == "file:///w/new.json"
        assert waits == [7.0, 0.1]

    def test_too_many_requests_for_too_long_are_a_definite_failure(self, server, catalog, waits, state):
        server.on(COMMIT, error(429, "TooManyRequestsException", "slow down"))
        with pytest.raises(StorageError, match="429 TooManyRequestsException: slow down"):
            catalog.commit(state, setting(a="1"))
        assert len(waits) == 5

    def test_a_load_says_that_the_namespace_is_missing_when_the_server_does(self, server, catalog):
        server.on(LOAD, error(404, "NoSuchNamespaceException"))
        with pytest.raises(NotFoundError, match="there is no namespace db in catalog prod; create it first or check"):
            catalog.load("db.t")

    def test_a_change_that_the_server_refuses_for_a_newer_table_has_lost_a_race(self, server, catalog):
        """A sequence number below that of another branch's new snapshot is refused so by Iceberg Java before 1.11."""
        refused = error(400, "ValidationException", "Cannot add snapshot with sequence number 1")
        nameless, newer = table(None), table(None)  # a server need not name its metadata files
        newer["metadata"] = {**newer["metadata"], "last-updated-ms": nameless["metadata"]["last-updated-ms"] + 1}
        for before, after in ((table(), table("file:///w/db/t/metadata/9.json")), (nameless, newer)):
            server.on(LOAD, document(before))
            state = catalog.load("db.t")
            server.on(LOAD, document(after))
            server.on(COMMIT, refused)
            with pytest.raises(CommitConflictError, match="was changed by another writer: Cannot add snapshot"):
                catalog.commit(state, setting(a="1"))

    @pytest.mark.parametrize(("status", "kind", "message"), [
        (409, CommitConflictError, "table db.t in catalog prod was changed by another writer: because"),
        (404, NotFoundError, "there is no table db.t in catalog prod; check"),
        (400, InvalidInputError, "400 SomeException: because"),  # for the very base, so it is wrong
        (403, StorageError, "catalog prod cannot commit to table db.t: the server answers 403"),
        (405, UnsupportedError, "catalog prod cannot commit to table db.t: the server answers 405"),
        (501, UnsupportedError, "catalog prod cannot commit to table db.t: the server answers 501"),
        (413, InvalidInputError, "catalog prod cannot commit to table db.t: the server answers 413"),
    ])  # fmt: skip
    def test_refusals_are_definite(self, server, catalog, state, status, kind, message):
        server.on(COMMIT, error(status))
        with pytest.raises(kind, match=re.escape(message)):
            catalog.commit(state, setting(a="1"))

    def test_a_success_that_cannot_be_read_is_none_to_rely_on(self, server, catalog, state):
        versions = [f'{{"metadata": {{"format-version": {version}}}}}'.encode() for version in (2, 9)]
        for body in (b"", b"[]", b"<html>", *versions):
            server.on(COMMIT, Reply(body=body))
            with pytest.raises(CommitUnknownError, match="its answer cannot be used"):
                catalog.commit(state, setting(a="1"))

    @pytest.mark.parametrize("reply", [Reply(body=b"{", promised_bytes=2), lambda _: None], ids=["half", "none"])
    def test_no_whole_answer_leaves_it_open(self, server, catalog, state, reply):
        server.on(COMMIT, reply)
        with pytest.raises(CommitUnknownError, match="no answer"):
            catalog.commit(state, setting(a="1"))

    def test_an_answer_that_comes_too_late_leaves_it_open(self, server, waits):
        catalog = load_catalog("prod", uri=server.uri, **{"rest.client.socket-timeout-ms": "200"})
        state = catalog.load("db.t")
        done = threading.Event()
        server.on(COMMIT, lambda _: done.wait(5) and None)
        with pytest.raises(CommitUnknownError, match="did not answer in time"):
            catalog.commit(state, setting(a="1"))
        done.set()

    def test_a_server_that_is_not_there_is_a_definite_failure(self, server, catalog, waits, state):
        server.close()
        catalog._server.http._exchange._session.close()
        with pytest.raises(StorageError, match=r"no answer .*onnection refused"):
            catalog.commit(state, setting(a="1"))
        assert len(waits) == 5

    def test_a_proxy_that_breaks_after_the_request_leaves_it_open(self, server, waits):
        """urllib3 raises the same error for a proxy that cannot be reached and for one that has passed it all on."""

        def handle(request):
            path = request.path.removeprefix("http://catalog.example")
            return server.handle(replace(request, path=path)) if request.method == "GET" else None

        with HttpServer(handle) as proxy:
            catalog = load_catalog("prod", uri="http://catalog.example", **through(proxy))
            state = catalog.load("db.t")
            proxy.calls()
            with pytest.raises(CommitUnknownError, match="cannot tell whether it did commit"):
                catalog.commit(state, setting(a="1"))
            assert proxy.calls() == ["POST http://catalog.example/v1/namespaces/db/tables/t"]
        with pytest.raises(StorageError, match=r"no answer .*onnection refused"):
            catalog.commit(state, setting(a="1"))

    def test_a_proxy_that_refuses_a_tunnel_has_sent_nothing(self, waits):
        with HttpServer(lambda request: None) as proxy:  # it knows no CONNECT
            http = Http("prod", "https://catalog.example", Settings.of("prod", through(proxy)), Secrets({}))
            with pytest.raises(StorageError, match="Tunnel connection failed"):
                http.change("POST", "/v1/namespaces", {}, purpose="create namespace db")

    def test_an_error_that_is_handled_meanwhile_says_nothing_about_a_request(self, server, catalog, state):
        server.on(COMMIT, lambda request: None)
        try:
            raise urllib3.exceptions.ConnectTimeoutError
        except urllib3.exceptions.ConnectTimeoutError:
            with pytest.raises(CommitUnknownError):
                catalog.commit(state, setting(a="1"))
        assert server.calls()[-1] == COMMIT

    def test_a_redirect_is_not_followed(self, server, catalog, state):
        server.on(COMMIT, Reply(status=307, headers={"Location": "https://elsewhere.example.com/v1/x?token=abc"}))
        with pytest.raises(StorageError, match=r"redirects to https://elsewhere.example.com/v1/x, set uri to"):
            catalog.commit(state, setting(a="1"))


class TestOtherChanges:
    """Creations, drops and renamings have the same three outcomes."""

    def test_a_lost_answer_leaves_it_open(self, server, catalog):
        server.on("DELETE /v1/namespaces/db/tables/t", error(502))  # and the table is there
        with pytest.raises(CommitUnknownError, match=r"cannot tell whether it did drop table db\.t"):
            catalog.drop_table("db.t")
        server.on("POST /v1/tables/rename", lambda _: None)
        server.on("GET /v1/namespaces/db", document({"namespace": ["db"], "properties": {}}))
        with pytest.raises(CommitUnknownError, match=r"cannot tell whether it did rename table db\.t to db\.u"):
            catalog.rename_table("db.t", "db.u")
        server.on(LOAD, error(404))
        server.on("POST /v1/namespaces/db/tables", error(504))
        with pytest.raises(CommitUnknownError, match=r"cannot tell whether it did create table db\.t"):
            make_table(catalog)

    def test_one_more_look_tells_what_was_made(self, server, catalog):
        """A request that has not arrived yet may still do; one whose work is seen has."""
        space, spaces = "GET /v1/namespaces/db", "POST /v1/namespaces"
        there, gone = document({"namespace": ["db"], "properties": {"a": "1"}}), error(404, "NoSuchNamespaceException")
        lost = error(502)
        for what in ("DELETE /v1/namespaces/db/tables/t", "POST /v1/tables/rename", spaces, "DELETE /v1/namespaces/db"):
            server.on(what, lost)
        server.on("POST /v1/namespaces/db/properties", lost)
        server.on("POST /v1/namespaces/db/register", lost)
        server.on(LOAD, error(404))
        catalog.drop_table("db.t")
        server.on(space, there)
        server.on("GET /v1/namespaces/db/tables/u", document(table()))
        catalog.rename_table("db.t", "db.u")
        catalog.create_namespace("db", {"a": "1"})
        catalog.update_namespace_properties("db", {"a": "1"}, ["b"])
        server.on(LOAD, document(table("file:///w/7.json")))
        assert catalog.register_table("db.t", "file:///w/7.json").metadata_location == "file:///w/7.json"
        unknown = [
            lambda: catalog.create_namespace("db", {"a": "2"}),
            lambda: catalog.update_namespace_properties("db", {"a": "2"}),
            lambda: catalog.register_table("db.t", "file:///w/8.json"),
            lambda: catalog.drop_namespace("db"),
            lambda: catalog.rename_table("db.t", "db.u"),
        ]
        for change in unknown:
            with pytest.raises(CommitUnknownError, match="cannot tell whether it did"):
                change()
        server.on(space, gone)
        catalog.drop_namespace("db")

    def test_a_table_that_is_there_after_a_lost_answer_is_enough_if_it_may_exist(self, server, catalog):
        server.on(space := "GET /v1/namespaces/db", document({"namespace": ["db"], "properties": {}}))
        server.on("POST /v1/namespaces/db/tables", error(504))
        for is_made in (True, False):
            server.on(LOAD, error(404), document(table()) if is_made else error(404))
            if is_made:
                made = Table.create(catalog, "db.t", schema={"id": "long"}, if_not_exists=True)
                assert made.location == "file:///w/db/t"
            else:
                with pytest.raises(CommitUnknownError, match="cannot tell whether it did create table"):
                    Table.create(catalog, "db.t", schema={"id": "long"}, if_not_exists=True)
        assert space in server.calls()

    def test_who_may_create_need_not_be_allowed_to_look(self, server, catalog):
        server.on(LOAD, error(403))
        server.on("GET /v1/namespaces/db", error(403))
        new = {**table()["metadata"], "properties": {"owner": "me"}}
        server.on("POST /v1/namespaces/db/tables", document({**table(), "metadata": new}))
        assert make_table(catalog, owner="me").metadata_location == "file:///w/db/t/metadata/1.json"
        given = {"schema": {"id": "long not null", "name": "string"}, "properties": {"owner": "me"}}
        trusting = load_catalog("prod", uri=server.uri, **{"allowed-locations": "file:///w"})
        assert Table.create(trusting, "db.t", location="file:///w/db/t", **given).location == "file:///w/db/t"
        server.on("POST /v1/namespaces", error(403))
        catalog.ensure_namespace("db")
        server.on("GET /v1/namespaces/db", error(404))
        with pytest.raises(StorageError, match="403"):
            catalog.ensure_namespace("db")

    def test_what_the_server_does_not_offer_is_not_asked_for(self, waits):
        with Script(endpoints=["GET /v1/{prefix}/namespaces"]) as server:
            catalog = load_catalog("prod", uri=server.uri)
            with pytest.raises(UnsupportedError, match=r"server does not offer 'POST /v1/\{prefix\}/tables/rename'"):
                catalog.rename_table("db.t", "db.u")
            assert [call for call in server.calls() if "rename" in call] == []

    def test_a_creation_that_gives_the_table_that_was_there_is_none(self, server, catalog):
        """SeaweedFS answers so to one who asked at the same moment as another."""
        server.on(LOAD, error(404))
        server.on("GET /v1/namespaces/db", document({"namespace": ["db"], "properties": {}}))
        old = table()
        old["metadata"] = {**metadata_json.to_dict(new_metadata("file:///w/db/t", owner="another"))}
        server.on("POST /v1/namespaces/db/tables", document(old))
        with pytest.raises(AlreadyExistsError, match=r"table db\.t exists already in catalog prod"):
            make_table(catalog, owner="me")

    def test_asking_whether_a_table_exists_uses_the_cheap_request_where_there_is_one(self, waits):
        with Script(endpoints=["HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}"]) as server:
            server.on(f"HEAD {TABLE}", Reply(status=204))
            catalog = load_catalog("prod", uri=server.uri)
            assert catalog.table_exists("db.t")
            assert not catalog.table_exists("db.u")
            assert server.calls()[1:] == [f"HEAD {TABLE}", "HEAD /v1/namespaces/db/tables/u"]


class TestReading:
    """Reading is repeated until it works, or long enough."""

    def test_a_failing_server_is_asked_again(self, server, catalog):
        server.on(LOAD, error(503), error(500), lambda _: None, document(table()))
        assert catalog.load("db.t").metadata.location == "file:///w/db/t"

    def test_and_named_when_it_goes_on_failing(self, server, catalog, waits):
        server.on(LOAD, error(503, message="maintenance"))
        with pytest.raises(StorageError, match=rf"load table db\.t: {server.uri}{TABLE}: 503 .*maintenance; check"):
            catalog.load("db.t")
        assert len(waits) == 5

    def test_an_answer_that_is_no_document_is_named(self, server, catalog):
        for body in (b"<html>login</html>", b"[1]", b'{"metadata": null}', b"{}"):
            server.on(LOAD, Reply(body=body, headers={"Content-Type": "text/html"}))
            with pytest.raises(FormatError, match="unexpected"):
                catalog.load("db.t")

    def test_a_list_that_leads_to_itself_is_no_endless_one(self, server, catalog):
        server.on("GET /v1/namespaces", document({"namespaces": [["a"]], "next-page-token": "1"}))
        with pytest.raises(FormatError, match="the same page again and again"):
            catalog.list_namespaces()

    def test_a_table_is_sent_again_only_when_it_has_changed(self, server, catalog):
        def load(request):
            if request.headers.get("If-None-Match") == '"one"':
                return Reply(status=304, headers={"ETag": '"one"'})
            return document(table(), ETag='"one"')

        server.on(LOAD, load)
        first = catalog.load("db.t")
        assert catalog.load("db.t") is first
        assert [request.headers.get("If-None-Match") for request in server.seen[1:]] == [None, '"one"']

    def test_a_tag_is_forgotten_with_an_answer_that_has_none(self, server, catalog):
        server.on(LOAD, document(table(), ETag="one"), document(table("file:///w/2.json")))
        assert catalog.load("db.t") != catalog.load("db.t") == catalog.load("db.t")
        assert [request.headers.get("If-None-Match") for request in server.seen[1:]] == [None, "one", None]

    def test_the_newest_is_remembered_however_large_it_is_and_others_are_not(self, server, catalog, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.catalogs.rest.states.MOST_SNAPSHOTS", -1)
        other = LOAD.removesuffix("t") + "u"
        server.on(LOAD, document(table(), ETag="t"))
        server.on(other, document(table(), ETag="u"))
        for name in ("db.t", "db.u", "db.u", "db.t"):
            catalog.load(name)
        assert [request.headers.get("If-None-Match") for request in server.seen[1:]] == [None, None, "u", None]

    def test_what_is_known_to_have_changed_is_asked_for_without_its_tag(self, server, catalog):
        """Iceberg Java's tags are hashes of 32 bits: two states may have the same."""
        server.on(LOAD, document(table(), ETag="one"))
        server.on(COMMIT, error(409))
        state = catalog.load("db.t")
        with pytest.raises(CommitConflictError):
            catalog.commit(state, setting(a="1"))
        catalog.load("db.t")
        assert "If-None-Match" not in server.seen[-1].headers


class TestIdempotencyKeys:
    """A server that knows them makes an unknown outcome known: the same request is sent again under the same key."""

    @pytest.fixture
    def server(self):
        with Script(**{"idempotency-key-lifetime": "PT30M"}) as server:
            server.on(LOAD, document(table()))
            yield server

    def keys(self, server):
        return [request.headers.get("Idempotency-Key") for request in server.seen if str(request) == COMMIT]

    def test_a_lost_answer_is_asked_for_again(self, server, catalog, state):
        server.on(COMMIT, lambda _: None, error(503), document(table("file:///w/2.json")))
        assert catalog.commit(state, setting(a="1")).metadata_location == "file:///w/2.json"
        first, *others = self.keys(server)
        assert others == [first, first]
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", first)

    def test_every_change_has_a_key_of_its_own(self, server, catalog, state):
        server.on(COMMIT, document(table()))
        for _ in range(3):
            catalog.commit(state, setting(a="1"))
        assert len(set(self.keys(server))) == 3

    def test_a_conflict_after_a_lost_answer_may_be_our_own_echo(self, server, catalog, state):
        server.on(COMMIT, lambda _: None, error(409, "CommitFailedException"))
        with pytest.raises(CommitUnknownError, match="retried, and now the server answers 409"):
            catalog.commit(state, setting(a="1"))

    def test_an_outcome_that_stays_unknown_is_unknown(self, server, catalog, waits, state):
        server.on(COMMIT, error(500))
        with pytest.raises(CommitUnknownError):
            catalog.commit(state, setting(a="1"))
        assert len(self.keys(server)) == 6

    def test_nothing_is_repeated_where_the_server_knows_no_keys(self, catalog, server):
        server.replies[CONFIG] = [document({"defaults": {}, "overrides": {}})]
        state = catalog.load("db.t")
        server.on(COMMIT, error(500))
        with pytest.raises(CommitUnknownError):
            catalog.commit(state, setting(a="1"))
        assert self.keys(server) == [None]


class TestConfiguration:
    """The server's defaults come first, then the user's properties, then the server's overrides."""

    def test_each_goes_over_the_one_before(self, waits):
        with Script(
            defaults=dict.fromkeys(("s3.region", "client.region", "gcs.project-id"), "default"),
            overrides={"gcs.project-id": "override", "prefix": "wh/1"},
        ) as server:
            given = dict.fromkeys(("client.region", "gcs.project-id"), "user")
            catalog = load_catalog("prod", uri=server.uri, **given, warehouse="s3://a b/c")
            server.on("GET /v1/wh/1/namespaces", document({"namespaces": [["x"]]}))
            assert catalog.list_namespaces() == (("x",),)
            assert server.calls()[0] == f"{CONFIG}?warehouse=s3%3A%2F%2Fa%20b%2Fc"
            found = catalog.io.current_properties()
            each = [found[name] for name in ("s3.region", "client.region", "gcs.project-id")]
            assert each == ["default", "user", "override"]

    def test_the_server_may_send_us_elsewhere(self, server, waits):
        with Script(overrides={"uri": server.uri}) as first:
            assert load_catalog("prod", uri=first.uri).load("db.t").metadata.location == "file:///w/db/t"
            assert first.calls() == [CONFIG]

    def test_levels_of_a_namespace_are_separated_as_the_server_wants(self, server, catalog):
        path = "GET /v1/namespaces/a%20b%1Fc%3Fd"
        server.on(path, document({"namespace": ["a b", "c?d"], "properties": {"x": "1"}}))
        assert catalog.load_namespace_properties(("a b", "c?d")) == {"x": "1"}
        with Script(overrides={"namespace-separator": "%2E"}) as other:
            # Iceberg Java's server divides the path before it decodes it: "a.b" would be one level.
            other.on("GET /v1/namespaces/a%2Eb", document({"properties": {"x": "2"}}))
            other.on("GET /v1/namespaces", document({"namespaces": []}))
            found = load_catalog("prod", uri=other.uri)
            assert found.load_namespace_properties("a.b") == {"x": "2"}
            assert found.list_namespaces("a.b") == ()
            assert other.calls()[-2:] == ["GET /v1/namespaces?parent=a.b", "GET /v1/namespaces/a%2Eb"]

    def test_a_warehouse_that_the_server_does_not_know_is_named(self, server, catalog):
        server.on(CONFIG, error(404, "NoSuchWarehouseException", "Warehouse x does not exist"))
        with pytest.raises(NotFoundError, match="NoSuchWarehouseException: Warehouse x does not exist"):
            catalog.list_namespaces()

    @pytest.mark.parametrize("uri", ["", "thrift://h", "localhost:8181", "https://", "http://[::1"])
    def test_an_address_that_is_none_is_refused_at_once(self, uri):
        with pytest.raises(InvalidInputError, match="property 'uri' is missing or no address, expected https://"):
            load_catalog("prod", type="rest", uri=uri)

    def test_a_number_that_is_none_is_refused_at_once(self):
        with pytest.raises(
            InvalidInputError, match=r"'rest\.client.socket-timeout-ms' is 'soon', expected a whole number"
        ):
            load_catalog("prod", uri="http://h", **{"rest.client.socket-timeout-ms": "soon"})

    def test_an_address_over_http_is_a_rest_catalog(self):
        found = load_catalog("prod", uri="https://me:pw@host/x/?token=t#f")
        assert repr(found) == "RestCatalog(name='prod', uri='https://host/x/')"

    def test_headers_of_the_user_go_with_every_request(self, server, waits):
        given = {"header.X-Tenant": "seven", "header.X-Iceberg-Access-Delegation": "remote-signing"}
        load_catalog("prod", uri=server.uri, **given).load("db.t")
        assert [request.headers["X-Tenant"] for request in server.seen] == ["seven", "seven"]
        assert server.seen[-1].headers["X-Iceberg-Access-Delegation"] == "remote-signing"

    def test_credentials_for_files_are_asked_for(self, server, catalog):
        catalog.load("db.t")
        assert server.seen[-1].headers["X-Iceberg-Access-Delegation"] == "vended-credentials,remote-signing"

    def test_a_registered_table_is_loaded_with_its_credentials(self, server, catalog):
        """Some servers lend none with the answer to a registration, and the same tag would keep them back for ever."""
        server.on("GET /v1/namespaces/db", document({"namespace": ["db"], "properties": {}}))
        server.on("POST /v1/namespaces/db/register", document(table(), ETag='"7"'))
        server.on(LOAD, document(table(config={"s3.region": "eu-1"}), ETag='"7"'))
        state = catalog.register_table("db.t", "file:///w/db/t/metadata/1.json")
        *_, registration, load = server.seen
        for request in (registration, load):
            assert request.headers["X-Iceberg-Access-Delegation"] == "vended-credentials,remote-signing"
        assert "If-None-Match" not in load.headers
        assert state.io is not None

    def test_a_table_that_was_registered_as_another_is_told(self, server, catalog):
        """SeaweedFS answers with the table of the file, and keeps an empty one."""
        server.on("GET /v1/namespaces/db", document({"namespace": ["db"], "properties": {}}))
        server.on("POST /v1/namespaces/db/register", document(table()))
        other = table()
        other["metadata"]["table-uuid"] = "6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0009"
        for found, words in (
            (document(other), "the table that is there now 6a1cbe1c"),
            (error(404, "NoSuchTableException", "no"), "cannot be loaded"),
        ):
            server.on(LOAD, found)
            with pytest.raises(CommitUnknownError, match=f"answered that it did register table db.t, .*{words}"):
                catalog.register_table("db.t", "file:///w/db/t/metadata/1.json")
        server.on(LOAD, error(403))  # who may register a table may not be allowed to load it
        assert catalog.register_table("db.t", "file:///w/db/t/metadata/1.json").metadata.table_uuid

    def test_a_branch_that_is_refused_for_a_table_without_snapshots_is_no_lost_race(self, server, catalog):
        """Lakana wants rows in main first."""
        server.on(COMMIT, error(409, "CommitFailedException", "can only be written to the main BRANCH"))
        rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]}, schema=pa.schema(
            [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())]))  # fmt: skip
        written = Table.load(load_catalog("prod", uri=server.uri, **{"allowed-locations": "file:///w"}), "db.t")
        server.calls()
        with pytest.raises(UnsupportedError, match=r"refuses branch 'audit' of a table without .*main BRANCH") as found:
            written.append(rows, branch="audit", create_branch=True)
        assert "write to main first" in str(found.value)
        assert server.calls().count(COMMIT) == 1

    def test_a_netrc_does_not_take_the_place_of_our_token(self, server, waits, tmp_path, monkeypatch):
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pw\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        load_catalog("prod", uri=server.uri, token="our-own-token").load("db.t")
        assert {request.headers["Authorization"] for request in server.seen} == {"Bearer our-own-token"}


class TestOAuth2:
    """Client credentials are exchanged for a token, which is renewed before it expires and when it is refused."""

    @pytest.fixture
    def tokens(self, server):
        """Hands out token-1, token-2, …; the newest is accepted, others are refused with 401."""
        given = []

        def give(request):
            given.append(parse_qs(request.body.decode()))
            return document({"access_token": f"token-{len(given)}", "token_type": "bearer", "expires_in": 3600})

        def accepted(reply):
            def answer(request):
                known = request.headers.get("Authorization") == f"Bearer token-{len(given)}"
                return reply if known else error(401, "NotAuthorizedException", "token expired")

            return answer

        server.on(TOKENS, give)
        for what in (CONFIG, LOAD, COMMIT):
            server.on(what, accepted(server.replies[what][0]))
        return given

    @pytest.fixture
    def catalog(self, server, tokens, waits):
        return load_catalog("prod", uri=server.uri, credential=CREDENTIAL)

    def test_the_form_is_that_of_the_protocol(self, server, tokens, waits):
        more = {"scope": "PRINCIPAL_ROLE:ALL", "audience": "lake", "resource": "https://lake"}
        load_catalog("prod", uri=server.uri, credential=CREDENTIAL, **more).load("db.t")
        form = {"grant_type": "client_credentials", "client_id": "client-7", "client_secret": "top:s3cret", **more}
        assert tokens == [{name: [value] for name, value in form.items()}]
        assert [str(request) for request in server.seen] == [TOKENS, CONFIG, LOAD]
        assert "Authorization" not in server.seen[0].headers

    def test_a_credential_without_an_id_is_a_secret(self, server, tokens, waits):
        load_catalog("prod", uri=server.uri, credential="only-a-secret").load("db.t")
        form = {"grant_type": "client_credentials", "client_secret": "only-a-secret", "scope": "catalog"}
        assert tokens == [{name: [value] for name, value in form.items()}]

    @pytest.mark.parametrize("claims", [b'{"exp": 1%s}' % (b"0" * 400), b"[" * 20_000, None])
    def test_a_lifetime_that_is_no_number_is_unknown(self, server, waits, claims):
        """In the token or beside it."""
        answer = {"access_token": "a", "expires_in": 10**400}
        if claims is not None:
            answer = {"access_token": f"a.{base64.urlsafe_b64encode(claims).decode()}.c"}
        server.on(TOKENS, document(answer))
        load_catalog("prod", uri=server.uri, credential=CREDENTIAL).load("db.t")

    def test_the_authorization_server_may_be_another_one(self, server, tokens, waits):
        with Script() as other:
            other.on("POST /realms/x/token", server.replies[TOKENS][0])
            uri = f"{other.uri}/realms/x/token"
            load_catalog("prod", uri=server.uri, credential=CREDENTIAL, **{"oauth2-server-uri": uri}).load("db.t")
            assert other.calls() == ["POST /realms/x/token"]

    @pytest.mark.parametrize("status", [401, 419])
    def test_a_commit_whose_token_is_refused_is_sent_again_with_a_new_one(self, server, tokens, catalog, status):
        state = catalog.load("db.t")
        tokens.append("revoked")
        assert catalog.commit(state, setting(a="1")).metadata_location.endswith("2.json")
        assert [str(request) for request in server.seen][-3:] == [COMMIT, TOKENS, COMMIT]

    @pytest.mark.parametrize(("what", "answer", "message"), [
        (COMMIT, error(401, "NotAuthorizedException", "no"), "401 NotAuthorizedException: no; check the credentials"),
        (TOKENS, error(500), "cannot get a token"),
    ], ids=["refused again", "no new one"])  # fmt: skip
    def test_without_a_token_a_commit_is_a_definite_failure(self, server, tokens, catalog, what, answer, message):
        state = catalog.load("db.t")
        tokens.append("revoked")
        server.on(what, answer)
        with pytest.raises(StorageError, match=message):
            catalog.commit(state, setting(a="1"))

    def test_wrong_credentials_are_named_without_them(self, server, waits):
        server.on(TOKENS, document({"error": "invalid_client", "error_description": "no top:s3cret here"}, status=401))
        with pytest.raises(StorageError) as raised:
            load_catalog("prod", uri=server.uri, credential=CREDENTIAL).list_namespaces()
        assert str(raised.value) == (
            f"catalog prod cannot get a token: {server.uri}/v1/oauth/tokens answers 401 invalid_client: no *** here; "
            f"check client id and secret (credential), scope and oauth2-server-uri"
        )

    def test_a_given_token_is_used_as_long_as_it_lasts(self, server, tokens, waits):
        tokens.append("the first is given")
        catalog = load_catalog("prod", uri=server.uri, credential=CREDENTIAL, token="token-1")
        catalog.load("db.t")
        assert len(tokens) == 1
        tokens.append("revoked")
        catalog.load("db.t")
        assert server.seen[-1].headers["Authorization"] == "Bearer token-3"

    def test_threads_that_share_a_catalog_renew_a_token_once(self, server, tokens, catalog):
        catalog.load("db.t")
        tokens.append("revoked")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: catalog.load("db.t"), range(8)))
        assert len(tokens) == 3


class TestWhenATokenIsRenewed:
    """Before it expires, as its lifetime, or the token itself, says."""

    def renewals(self, *, token, answer, at):
        now, fetched = [1_000_000.0], []
        auth = OAuth2Auth(lambda: fetched.append(1) or answer, token=token, now=lambda: now[0])
        auth.token()
        before = len(fetched)
        now[0] += at
        auth.token()
        return len(fetched) - before

    def jwt(self, exp):
        claims = base64.urlsafe_b64encode(json.dumps({"exp": exp}).encode()).decode().rstrip("=")
        return f"e30.{claims}.c2ln"

    @pytest.mark.parametrize(("token_ends", "lifetime", "seconds", "renewed"), [
        *((None, 3600, 3200, 0), (None, 3600, 3310, 1), (None, 3600, 4000, 1)),  # shortly before its lifetime ends
        *((None, 100, 50, 0), (None, 100, 95, 1)),  # a short life is used for nine tenths
        *((1_001_000, None, 500, 0), (1_001_000, None, 999, 1)),  # a given token tells itself when it ends
    ])  # fmt: skip
    def test_when(self, token_ends, lifetime, seconds, renewed):
        answer = {"access_token": "a"} | ({"expires_in": lifetime} if lifetime else {})
        token = self.jwt(token_ends) if token_ends else None
        assert self.renewals(token=token, answer=answer, at=seconds) == renewed

    def test_a_given_token_that_has_expired_is_not_used(self):
        auth = OAuth2Auth(lambda: {"access_token": "new"}, token=self.jwt(5), now=lambda: 1000.0)
        assert auth.token() == "new"

    def test_a_renewal_that_fails_leaves_the_old_token_in_use(self):
        def fail():
            raise StorageError("down")

        assert OAuth2Auth(fail, token=self.jwt(1010), now=lambda: 1009.5).token() == self.jwt(1010)

    @pytest.mark.parametrize("answer", [{}, {"access_token": ""}, {"access_token": 7}])
    def test_an_answer_without_a_token_is_named(self, answer):
        with pytest.raises(StorageError, match="answered without an access_token"):
            OAuth2Auth(lambda: answer).token()


class TestSigV4:
    """Requests are signed as AWS describes it; another proof keeps its header under another name."""

    KEYS = {
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "glue",
        "rest.signing-region": "eu-west-1",
        "rest.access-key-id": "AKIDEXAMPLE",
        "rest.secret-access-key": "wJalrXUtnFEMI-EXAMPLEKEY",
        "rest.session-token": "a-session",
    }

    def expected(self, request):
        """The signature, worked out by the book (Signature Version 4, canonical request)."""
        scope_text = request.headers["Authorization"]
        signed = re.search(r"SignedHeaders=([^,]+)", scope_text)[1]
        lower = {name.lower(): value for name, value in request.headers.items()}
        path, _, query = request.path.partition("?")
        canonical = "\n".join(
            (
                request.method,
                path.replace("%", "%25"),
                "&".join(sorted(query.split("&"))) if query else "",
                *(f"{name}:{lower[name].strip()}" for name in signed.split(";")),
                "",
                signed,
                hashlib.sha256(request.body).hexdigest(),
            )
        )
        date = lower["x-amz-date"]
        scope = f"{date[:8]}/eu-west-1/glue/aws4_request"
        text = "\n".join(("AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()))
        key = b"AWS4wJalrXUtnFEMI-EXAMPLEKEY"
        for part in (date[:8], "eu-west-1", "glue", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    def test_every_request_is_signed(self, server, waits):
        catalog = load_catalog("prod", uri=server.uri, warehouse="123:s3tablescatalog/x", **self.KEYS)
        catalog.commit(catalog.load("db.t"), setting(a="1"))
        assert [request.method for request in server.seen] == ["GET", "GET", "POST"]
        for request in server.seen:
            assert f"Signature={self.expected(request)}" in request.headers["Authorization"]
            assert "Credential=AKIDEXAMPLE/" in request.headers["Authorization"]
            assert {name.lower(): v for name, v in request.headers.items()}["x-amz-security-token"] == "a-session"

    def test_a_token_beside_it_is_moved(self, server, waits):
        load_catalog("prod", uri=server.uri, token="a-bearer-token", **self.KEYS).load("db.t")
        assert server.seen[-1].headers["Original-Authorization"] == "Bearer a-bearer-token"
        assert server.seen[-1].headers["Authorization"].startswith("AWS4-HMAC-SHA256 ")

    def test_a_region_has_to_be_known(self, server, waits, monkeypatch):
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name, raising=False)
        keys = {name: value for name, value in self.KEYS.items() if name != "rest.signing-region"}
        with pytest.raises(InvalidInputError, match=r"property 'rest\.signing-region' is missing"):
            load_catalog("prod", uri=server.uri, **keys).load("db.t")


class TestSecrets:
    """No message, log or representation shows a credential or a token, whatever a server says."""

    SECRETS = ("top:s3cret", "tok-of-server", "tok-of-user", "key-in-header", "pw-in-uri", "aws-secret-key", "proxy-pw")

    @pytest.mark.parametrize("status", [400, 403, 409, 500])
    def test_a_server_that_repeats_names_confirms_no_guess(self, server, waits, status):
        """Who chooses a name would see by the asterisks that it is a secret; one of 20 characters nobody guesses."""
        secret, long = "pa55w0rd", "pa55w0rd-of-20-letters"
        given = {"uri": server.uri, "token": secret, "s3.secret-access-key": long}
        catalog = load_catalog("prod", **given, **{"rest.client.max-retries": "0"})
        seen = []
        for guess in (secret, "pa55w0rt"):
            server.on(f"GET /v1/namespaces/{guess}/tables/t", error(status, message=f"no {guess} and {long} for you"))
            with pytest.raises(IcebergError) as raised:
                catalog.load(f"{guess}.t")
            seen.append(str(raised.value).replace(guess, "a name"))
        assert seen[0] == seen[1]
        assert long not in seen[0]

    def test_what_the_server_echoes_is_hidden(self, server, waits, caplog):
        echo = " ".join((*self.SECRETS, "client-7:top:s3cret", "Bearer eyJhbGciOi.eyJzdWIi.c2ln"))
        caplog.set_level(logging.DEBUG)
        server.on(TOKENS, document({"access_token": "tok-of-server"}))
        seen = []
        given = {
            "uri": server.uri.replace("//", "//me:pw-in-uri@"),
            "credential": "client-7:top:s3cret",
            "header.X-Api-Key": "key-in-header",
            "s3.secret-access-key": "aws-secret-key",
            "rest.client.proxy.password": "proxy-pw",
        }
        catalog = load_catalog("prod", **given)
        state = catalog.load("db.t")
        for status in (400, 401, 403, 404, 409, 422, 429, 500, 503):
            server.on(COMMIT, error(status, f"Type {echo}", f"it was {echo}"))
            with pytest.raises(IcebergError) as raised:
                catalog.commit(state, setting(a="1"))
            seen.append(all_texts(raised.value, with_suppressed=True))
        server.on(LOAD, Reply(status=502, body=f"<html>{echo}</html>".encode()))
        with pytest.raises(StorageError) as raised:
            catalog.load("db.t")
        server_side = (catalog._server, catalog._server.http, catalog._server.config)
        seen += [all_texts(raised.value, with_suppressed=True), caplog.text, *map(repr, (catalog, state, *server_side))]
        text = "\n".join(seen)
        for secret in ("top:s3cret", "key-in-header", "pw-in-uri", "aws-secret-key", "proxy-pw", "eyJhbGciOi"):
            assert secret not in text
        assert "it was" in text

    def test_so_are_the_server_s_stack_and_a_token_that_is_echoed_bare(self, server, waits):
        server.on(TOKENS, document({"access_token": "tok-of-server"}))
        server.on(LOAD, error(403, message="tok-of-server may not"))
        with pytest.raises(StorageError, match=r"403 SomeException: .* may not") as raised:
            load_catalog("prod", uri=server.uri, credential=CREDENTIAL).load("db.t")
        assert not re.search("tok-of-server|Line:1", str(raised.value))
