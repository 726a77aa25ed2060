"""Answers of other programs than a catalog, and answers that no other try makes better.

A proxy that has lost its server, and a server that lacks a request, know nothing of tables: none of their answers says
that a table does not exist, so that it would be created again, or told as dropped.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    FormatError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, setting
from tests.catalogs.test_rest_http import COMMIT, CONFIG, LOAD, TABLE, Script, error, table
from tests.support.http_server import Reply, document

SPACE, TABLES, RENAME = "GET /v1/namespaces/db", "/v1/namespaces/db/tables", "POST /v1/tables/rename"
HEAD, DROP = f"HEAD {TABLE}", f"DELETE {TABLE}"
FIRST = "file:///w/db/t/metadata/1.json"
HTML = {"Content-Type": "text/html"}
# What gateways and frameworks answer for a path that they do not know.
PAGES = [
    Reply(status=404, body=b"<html><b>Welcome</b></html>", headers=HTML),
    Reply(status=404, body=b"", headers={}),
    Reply(status=404, body=b"404 page not found", headers={"Content-Type": "text/plain"}),
    Reply(status=405, body=b"<html>Method Not Allowed</html>", headers=HTML),
    Reply(status=501, body=b"", headers=HTML),
    document({"detail": "Not Found"}, status=404),
    document({"message": "no Route matched with those values"}, status=404),
    document({"timestamp": 1, "status": 404, "error": "Not Found", "path": TABLE}, status=404),
    document({"type": "about:blank", "title": "Not Found", "status": 404}, status=404),
    document(["nothing"], status=404),
    document({"error": None}, status=404),
]
LISTED = [
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    *(f"{method} /v1/{{prefix}}/namespaces/{{namespace}}" for method in ("GET", "DELETE")),
    *(f"{method} /v1/{{prefix}}/namespaces/{{namespace}}/tables" for method in ("GET", "POST")),
    *(f"{method} /v1/{{prefix}}/namespaces/{{namespace}}/tables/{{table}}" for method in ("GET", "POST", "DELETE")),
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
]
HEADS = ["HEAD /v1/{prefix}/namespaces/{namespace}", "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}"]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setitem(Http.__init__.__kwdefaults__, "sleep", found.append)
    return found


def script(**config: Any) -> Script:
    server = Script(**config)
    server.on(LOAD, document(table()))
    server.on(SPACE, document({"namespace": ["db"], "properties": {}}))
    return server


@pytest.fixture
def server(waits: list[float]) -> Iterator[Script]:
    with script() as found:
        yield found


@pytest.fixture
def listing(waits: list[float]) -> Iterator[Script]:
    """A server that says which requests it has."""
    with script(endpoints=LISTED) as found:
        yield found


def catalog_of(server: Script, **more: str) -> Catalog:
    return load_catalog("prod", uri=server.uri, **more)


def new(catalog: Catalog) -> None:
    make_table(catalog)


# What is asked, by the request that a page answers.
CALLS: dict[str, Callable[[Catalog], Any]] = {
    LOAD: lambda catalog: catalog.load("db.t"),
    COMMIT: lambda catalog: catalog.commit(catalog.load("db.t"), setting(a="1")),
    DROP: lambda catalog: catalog.drop_table("db.t"),
    RENAME: lambda catalog: catalog.rename_table("db.t", "db.u"),
    f"POST {TABLES}": new,
    f"GET {TABLES}": lambda catalog: catalog.list_tables("db"),
    "POST /v1/namespaces/db/register": lambda catalog: catalog.register_table("db.t", "file:///w/7.json"),
    "POST /v1/transactions/commit": lambda catalog: catalog.commit_tables([(catalog.load("db.t"), setting(a="1"))]),
    SPACE: lambda catalog: catalog.load_namespace_properties("db"),
    "DELETE /v1/namespaces/db": lambda catalog: catalog.drop_namespace("db"),
    "POST /v1/namespaces/db/properties": lambda catalog: catalog.update_namespace_properties("db", {"a": "1"}),
    "POST /v1/namespaces": lambda catalog: catalog.create_namespace("new"),
    "GET /v1/namespaces": lambda catalog: catalog.list_namespaces(),
}


class TestPages:
    """An answer of 404, 405 or 501 without an error of the protocol is not that of a catalog."""

    def told(self, server: Script, what: str, page: Reply) -> IcebergError:
        catalog = catalog_of(server)
        is_new = what in (f"POST {TABLES}", "POST /v1/namespaces/db/register")
        server.on(LOAD, error(404) if is_new else document(table()))
        server.on(SPACE, document({"namespace": ["db"], "properties": {}}))
        before = server.replies.get(what)
        server.on(what, page)
        with pytest.raises(IcebergError) as found:
            CALLS[what](catalog)
        server.replies[what] = before or []
        return found.value

    @pytest.mark.costly
    def test_of_a_server_that_says_what_it_has_they_are_faults(self, listing: Script) -> None:
        wrong = []
        for what in CALLS:
            for page in PAGES:
                found = self.told(listing, what, page)
                is_right = type(found) is StorageError and not found.is_denied and what in str(found)
                if not is_right or "the server offers '" not in str(found) or "proxies" not in str(found):
                    wrong.append(f"{what}: {page.status} {page.body!r}: {found!r}")
        assert wrong == []

    def test_of_another_server_they_name_the_endpoint(self, server: Script) -> None:
        wrong = []
        for what in CALLS:
            for page in PAGES:
                found = self.told(server, what, page)
                if type(found) is not UnsupportedError or "its server seems to lack the endpoint" not in str(found):
                    wrong.append(f"{what}: {page.status} {page.body!r}: {found!r}")
        assert wrong == []
        found = self.told(server, RENAME, PAGES[0])
        assert str(found) == (
            "catalog prod cannot rename table db.t to db.u: its server seems to lack the endpoint 'POST "
            "/v1/{prefix}/tables/rename': POST /v1/tables/rename is answered 404: Welcome, which is not the answer of "
            "a catalog; check the uri and the prefix of the connection; if they are right, use a server that has the "
            "endpoint"
        )

    def test_a_catalog_s_own_words_are_believed(self, server: Script) -> None:
        for body in (
            {"error": {"message": "no", "type": "NoSuchTableException", "code": 404}},
            {"error": {"message": "no"}},
            {"message": "no", "type": "NoSuchTableException", "code": 404},
        ):
            server.on(LOAD, document(body, status=404))
            with pytest.raises(NotFoundError, match=r"there is no table db\.t"):
                catalog_of(server).load("db.t")

    def test_a_page_instead_of_the_configuration_is_no_missing_table(self, server: Script) -> None:
        """A sensor would wait for it."""
        server.on(CONFIG, PAGES[0])
        with pytest.raises(UnsupportedError, match=r"/config is answered 404: Welcome.*the uri and the warehouse"):
            catalog_of(server).load("db.t")

    def test_a_lost_drop_is_not_told_as_done_by_a_page(self, listing: Script) -> None:
        listing.on(DROP, error(502))
        for page in PAGES:
            listing.on(LOAD, page)
            with pytest.raises(CommitUnknownError, match="cannot tell whether it did drop"):
                catalog_of(listing).drop_table("db.t")

    def test_who_does_not_know_a_path_may_say_so_in_the_words_for_a_table(self, server: Script) -> None:
        """Gravitino's server, and others on the same framework."""
        server.on(RENAME, error(404, "NotFoundException", "HTTP 404 Not Found"))
        server.on("POST /v1/transactions/commit", error(404, "NotFoundException", "HTTP 404 Not Found"))
        for what in (RENAME, "POST /v1/transactions/commit"):
            with pytest.raises(UnsupportedError, match=r"seems to lack the endpoint .*HTTP 404 Not Found"):
                CALLS[what](catalog_of(server))
        catalog = catalog_of(server)
        state = catalog.load("db.t")
        server.on(LOAD, error(404))
        with pytest.raises(NotFoundError, match=r"there is no table db\.t"):
            catalog.rename_table("db.t", "db.u")
        with pytest.raises(NotFoundError, match=r"commit to tables db\.t: the server answers 404"):
            catalog.commit_tables([(state, setting(a="1"))])


class TestLookingByHead:
    """The answer to HEAD has no body: what may be a proxy's is asked for by GET."""

    @pytest.fixture
    def server(self, waits: list[float]) -> Iterator[Script]:
        with script(endpoints=[*LISTED, *HEADS]) as found:
            yield found

    @pytest.mark.parametrize(
        "page",
        [
            Reply(status=404, headers=HTML),
            Reply(status=404, headers={}),
            Reply(status=405, headers=HTML),
            Reply(status=501, headers=HTML),
            Reply(status=200, headers=HTML),
        ],
    )
    def test_that_of_another_program_is_not_believed(self, server: Script, page: Reply) -> None:
        server.on(HEAD, page)
        server.on("HEAD /v1/namespaces/db", page)
        catalog = catalog_of(server)
        assert catalog.table_exists("db.t")
        assert catalog.namespace_exists("db")
        assert server.calls() == [CONFIG, HEAD, f"{LOAD}?snapshots=refs", "HEAD /v1/namespaces/db", SPACE]
        server.on(LOAD, error(404))
        server.on(SPACE, error(404))
        assert not catalog.table_exists("db.t")
        assert not catalog.namespace_exists("db")

    def test_that_of_a_catalog_is_enough(self, server: Script) -> None:
        catalog = catalog_of(server)
        for status, is_there in ((204, True), (200, True), (404, False)):
            server.on(HEAD, Reply(status=status) if is_there else error(status))
            assert catalog.table_exists("db.t") is is_there
        assert server.calls() == [CONFIG, HEAD, HEAD, HEAD]

    def test_a_page_for_both_is_an_error(self, server: Script) -> None:
        for page in PAGES:
            server.on(HEAD, Reply(status=page.status, headers=HTML))
            server.on(LOAD, page)
            with pytest.raises(StorageError, match=f"GET {TABLE} is answered {page.status}"):
                catalog_of(server).table_exists("db.t")
        server.on(LOAD, Reply(body=b"<html>log in</html>", headers=HTML))
        with pytest.raises(FormatError, match=rf"unexpected answer of .* to GET {TABLE}; check the uri"):
            catalog_of(server).table_exists("db.t")

    def test_that_a_table_is_gone_is_not_learned_from_head(self, server: Script) -> None:
        """A gateway answers it in JSON, too."""
        server.on(DROP, Reply(status=204))
        server.on(HEAD, error(404))
        with pytest.raises(CommitUnknownError, match=r"did drop table db\.t, but a table of this name is there"):
            catalog_of(server).drop_table("db.t")
        server.on(RENAME, Reply(status=204))
        for what in ("HEAD /v1/namespaces/db/tables/u", "HEAD /v1/namespaces/db"):
            server.on(what, Reply(status=204))
        with pytest.raises(
            CommitUnknownError, match=r"did rename table db\.t to db\.u, but .*one of the old name, too"
        ):
            catalog_of(server).rename_table("db.t", "db.u")
        server.on("HEAD /v1/namespaces/db", error(404))
        server.on("DELETE /v1/namespaces/db", Reply(status=204))
        with pytest.raises(CommitUnknownError, match="did drop namespace db, but it is there"):
            catalog_of(server).drop_namespace("db")


class TestErrorsAboutAnAnswer:
    """They name the catalog, the table, the request, and the place in the answer."""

    @pytest.mark.parametrize("location", ["file:///w/db/t/metadata/1.json", None])
    def test_what_is_wrong_in_the_metadata(self, server: Script, location: str | None) -> None:
        for change, words in (
            ({"schemas": 7}, r"in '[a-z.]*schemas'"),
            ({"format-version": 9}, "format version 9"),
            ({"snapshots": [{"snapshot-id": 1}]}, r"'[a-z.]*snapshots\[0\]\.manifest-list'"),
            ({"last-column-id": None}, "last-column-id"),
        ):
            answer = table(location)
            answer["metadata"] |= change
            server.on(LOAD, document(answer))
            with pytest.raises(IcebergError, match=words) as found:
                catalog_of(server).load("db.t")
            text = str(found.value)
            assert text.startswith(f"catalog prod cannot read table db.t, the answer to {LOAD} is not understood: ")
            assert isinstance(found.value, FormatError | UnsupportedError)
            if isinstance(found.value, FormatError):
                assert found.value.path == location
                assert (location or "check the uri") in text

    def test_in_the_answers_to_changes(self, server: Script) -> None:
        server.on(COMMIT, document({"metadata": {"format-version": 2}}))
        with pytest.raises(CommitUnknownError, match=rf"read table db\.t, the answer to {COMMIT} is not understood"):
            CALLS[COMMIT](catalog_of(server))
        server.on(LOAD, error(404))
        server.on(f"POST {TABLES}", document({"metadata": {"format-version": 2}}))
        with pytest.raises(CommitUnknownError, match=rf"read table db\.t, the answer to POST {TABLES} is not"):
            new(catalog_of(server))

    def test_in_lists(self, server: Script) -> None:
        server.on("GET /v1/namespaces", document({"namespaces": [7]}))
        with pytest.raises(FormatError, match=r"the namespaces, the answer to GET /v1/namespaces is not understood"):
            catalog_of(server).list_namespaces()


FINAL = [
    "UnsupportedOperationException", "UnsupportedOperation", "NotImplementedError", "NotImplementedException",
    "NotImplemented", "not implemented", "NOT_IMPLEMENTED", "OperationNotSupportedException", "ValidationException",
    "BadRequestException", "UnprocessableEntityException", "FeatureNotSupported", "InvalidTypeIdException",
]  # fmt: skip
OPEN = ["CommitStateUnknownException", "RuntimeException", "", "ServiceFailureException", "InternalServerError"]


class TestWhatWillNeverWork:
    """A failure whose type says that it is no failure of the moment is not tried again."""

    @pytest.mark.parametrize("kind", FINAL)
    def test_a_read_is_refused_at_once(self, server: Script, waits: list[float], kind: str) -> None:
        server.on(LOAD, error(500, kind, "no such thing here"))
        with pytest.raises(UnsupportedError, match=rf"load table db\.t: the server answers 500 {kind}: no such thing"):
            catalog_of(server).load("db.t")
        assert (server.calls(), waits) == ([CONFIG, LOAD], [])

    def test_others_are_tried_again(self, server: Script, waits: list[float]) -> None:
        for status, kind in [*((500, kind) for kind in OPEN), (503, FINAL[0]), (502, FINAL[0]), (504, FINAL[0])]:
            server.on(LOAD, error(status, kind))
            with pytest.raises(StorageError):
                catalog_of(server).load("db.t")
            assert server.calls().count(LOAD) == 6
        server.on(LOAD, document({"message": "UnsupportedOperationException"}, status=500))
        with pytest.raises(StorageError):
            catalog_of(server).load("db.t")

    @pytest.mark.costly
    @pytest.mark.parametrize("more", [{}, {"idempotency-key-lifetime": "PT30M"}])
    def test_a_change_is_looked_up_once_and_not_sent_again(self, waits: list[float], more: dict[str, str]) -> None:
        for kind in FINAL:
            with script(**more) as server:
                for what in (COMMIT, DROP, RENAME, "POST /v1/namespaces/db/properties", "DELETE /v1/namespaces/db",
                             "POST /v1/transactions/commit", "POST /v1/namespaces"):  # fmt: skip
                    server.on(what, error(500, kind))
                    with pytest.raises(UnsupportedError, match=f"the server answers 500 {kind}: because"):
                        CALLS[what](catalog_of(server))
                    assert [call.partition("?")[0] for call in server.calls()].count(what) == 1
                server.on(LOAD, error(404))
                server.on(f"POST {TABLES}", error(500, kind))
                with pytest.raises(UnsupportedError, match=f"the server answers 500 {kind}: because"):
                    new(catalog_of(server))
        assert waits == []

    def test_an_operation_fails_at_once(self, server: Script, waits: list[float]) -> None:
        server.on(COMMIT, error(500, FINAL[0]))
        found = Table.load(catalog_of(server, **{"allowed-locations": "file:///w"}), "db.t")
        server.calls()
        with pytest.raises(UnsupportedError):
            found.alter([{"set_properties": {"b": "2"}}])
        assert server.calls() == [COMMIT, LOAD]

    def test_one_that_was_made_all_the_same_stays_open(self, server: Script) -> None:
        catalog = catalog_of(server)
        server.on(COMMIT, error(500, FINAL[0]))
        state = catalog.load("db.t")
        for then in (document(table("file:///w/db/t/metadata/2.json")), error(403)):
            server.on(LOAD, then)
            with pytest.raises(CommitUnknownError, match="did not confirm it"):
                catalog.commit(state, setting(a="1"))
        server.on(LOAD, error(404))
        server.on(DROP, error(500, FINAL[0]))
        catalog.drop_table("db.t")
        server.on(LOAD, error(403))
        with pytest.raises(CommitUnknownError, match="did not confirm it"):
            catalog.drop_table("db.t")

    def test_other_properties_of_the_same_metadata_are_no_change(self, server: Script) -> None:
        """Nessie writes some of its own into each answer."""
        catalog, now = catalog_of(server), table()
        state = catalog.load("db.t")
        now["metadata"]["properties"] = {"nessie.commit.id": "7"}
        server.on(LOAD, document(now))
        server.on(COMMIT, document(table("http://nessie/catalog/v1/trees/main/snapshot/db.t")))
        # It names no file in its answer to a commit.
        for base in (state, catalog.commit(state, setting(a="1"))):
            server.on(COMMIT, error(500, FINAL[0], "Implement format version update"))
            now["metadata"]["properties"] = {"a": "1", "nessie.commit.id": "8"}
            server.on(LOAD, document(now))
            with pytest.raises(UnsupportedError, match=f"the server answers 500 {FINAL[0]}: Implement format"):
                catalog.commit(base, setting(a="2"))
            server.on(COMMIT, error(400, "ValidationException"))
            with pytest.raises(InvalidInputError, match="400 ValidationException"):
                catalog.commit(base, setting(a="2"))
        now["metadata"]["properties"] = {"a": "2", "nessie.commit.id": "8"}
        server.on(LOAD, document(now))
        server.on(COMMIT, error(500, FINAL[0]))
        with pytest.raises(CommitUnknownError, match="did not confirm it"):
            catalog.commit(base, setting(a="2"))

    def test_after_a_lost_answer_it_says_nothing_of_the_first_try(self, waits: list[float]) -> None:
        with script(**{"idempotency-key-lifetime": "PT30M"}) as server:
            server.on(COMMIT, lambda _: None, error(500, FINAL[0]))
            with pytest.raises(CommitUnknownError, match="did not confirm it"):
                CALLS[COMMIT](catalog_of(server))
            assert server.calls().count(COMMIT) == 2

    def test_the_names(self) -> None:
        for status, kind, is_final in [
            *((500, kind, True) for kind in FINAL),
            *((500, kind, False) for kind in OPEN),
            (406, FINAL[0], False),
            (503, FINAL[0], False),
        ]:
            body = json.dumps({"error": {"type": kind, "message": "m"}}).encode()
            assert Refusal.from_body(status, body, str).is_final is is_final, (status, kind)

    def test_a_token_that_is_never_given_is_none(self, server: Script, waits: list[float]) -> None:
        server.on("POST /v1/oauth/tokens", error(500, FINAL[0]))
        with pytest.raises(StorageError, match=r"get a token: the server answers 500 .*check client id and secret"):
            catalog_of(server, credential="id:secret").load("db.t")
        assert waits == []

    def test_an_exception_that_a_server_has_not_caught(self) -> None:
        """Iceberg Java's server, in Jetty, for a kind of change that it does not know."""
        kind = "java.lang.UnsupportedOperationException"
        page = f"<html><head><title>Error 500 {kind}: Cannot convert</title></head><h2>HTTP ERROR 500 {kind}: Cannot"
        for body, status, is_final in (
            (page, 500, True),
            (page, 503, False),
            (json.dumps({"details": f"Error id 7, {kind}: no", "stack": ""}), 500, True),
            (page.replace(kind, "java.lang.IllegalStateException"), 500, False),
            (page.replace("java.lang.", ""), 500, False),
            ("x" * 3000 + kind, 500, False),
        ):
            assert Refusal.from_body(status, body.encode(), str).is_final is is_final, body[:200]
        # A word of a gateway is no name, and the page of what is not there names nothing that is missing.
        assert not Refusal.from_body(500, b'{"error": "operation not supported"}', str).is_final
        gone = page.replace(kind, "org.apache.iceberg.exceptions.NoSuchTableException")
        assert Refusal.from_body(404, gone.encode(), str).type == ""
        assert str(Refusal.from_body(500, page.encode(), str)).startswith(
            "500 UnsupportedOperationException: Error 500"
        )


class TestAnswersThatShowNothing:
    """A change whose answer has no table in it is looked at."""

    GONE = error(404)

    def test_a_drop(self, server: Script) -> None:
        server.on(DROP, Reply(status=204))
        with pytest.raises(CommitUnknownError, match=r"drop table db\.t, but a table of this name is") as found:
            catalog_of(server).drop_table("db.t")
        assert found.value.is_final
        server.on(LOAD, error(404))
        catalog_of(server).drop_table("db.t")
        server.on(LOAD, error(403))  # who may drop it may not be allowed to look
        catalog_of(server).drop_table("db.t")
        server.on(LOAD, error(502))
        with pytest.raises(CommitUnknownError, match=r"answered that it did drop table db\.t, and that cannot be seen"):
            catalog_of(server).drop_table("db.t")

    def test_a_drop_on_a_server_without_looks(self, waits: list[float]) -> None:
        endpoints = [each for each in LISTED if not each.startswith("GET") or not each.endswith("{table}")]
        with script(endpoints=endpoints) as server:
            server.on(DROP, Reply(status=204))
            catalog_of(server).drop_table("db.t")
            assert [call.partition("?")[0] for call in server.calls()] == [CONFIG, DROP]

    def test_a_renaming(self, server: Script) -> None:
        to = "GET /v1/namespaces/db/tables/u"
        server.on(RENAME, Reply(status=204))
        for old, found in (
            (document(table()), error(404)),
            (document(table()), document(table())),
            (error(404), error(404)),
        ):
            server.on(LOAD, old)
            server.on(to, error(404), found)
            with pytest.raises(CommitUnknownError, match=r"rename table db\.t to db\.u, but there is no table db\.u"):
                self.rename(server, found)
        server.on(LOAD, error(404))
        self.rename(server, document(table()))

    def rename(self, server: Script, then: Reply) -> None:
        server.on(RENAME, lambda _: server.on("GET /v1/namespaces/db/tables/u", then) or Reply(status=204))
        catalog_of(server).rename_table("db.t", "db.u")

    def test_namespaces(self, server: Script) -> None:
        catalog = catalog_of(server)
        server.on("DELETE /v1/namespaces/db", Reply(status=204))
        with pytest.raises(CommitUnknownError, match="did drop namespace db, but it is there"):
            catalog.drop_namespace("db")
        server.on("POST /v1/namespaces/db/properties", document({"updated": ["a"], "removed": [], "missing": []}))
        for new, old, there in (
            ({"a": "1"}, [], {}),
            ({}, ["b"], {"b": "1"}),
            ({"a": "1"}, ["b"], {"a": "1", "b": "1"}),
        ):
            server.on(SPACE, document({"namespace": ["db"], "properties": there}))
            with pytest.raises(CommitUnknownError, match="namespace db, but they are not what was asked for"):
                catalog.update_namespace_properties("db", new, old)
        server.on("POST /v1/namespaces", document({"namespace": ["new"]}))
        with pytest.raises(CommitUnknownError, match="did create namespace new, but it is not there"):
            catalog.create_namespace("new")

    def test_several_tables(self, server: Script) -> None:
        catalog = catalog_of(server)
        server.on("POST /v1/transactions/commit", Reply(status=204))
        state = catalog.load("db.t")
        catalog.commit_tables([(state, setting(a="1"))])
        with pytest.raises(CommitUnknownError, match=r"db\.t: properties are missing or have other values: b"):
            catalog.commit_tables([(state, setting(b="2"))])

    def test_a_creation(self, server: Script) -> None:
        """A server may answer with all of the table, and keep none, or another one."""
        made, other, changed, newer = (table() for _ in range(4))
        other["metadata"]["table-uuid"] = "6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0009"
        changed["metadata"]["properties"] = {}
        newer["metadata"] |= changed["metadata"] | {"metadata-log": [{"timestamp-ms": 1, "metadata-file": FIRST}]}
        newer["metadata-location"] = "file:///w/db/t/metadata/2.json"
        server.on(f"POST {TABLES}", document(made))
        for found, words in (
            (error(404), r"cannot be loaded to see that: there is no table db\.t in catalog prod"),
            (error(502), "cannot be loaded to see that: .*502"),
            (document(other), "but the table that is there has the uuid 6a1cbe1c.*0009, and the answer 6a1cbe1c.*0001"),
            (document(changed), "the table is not what was asked for: properties are missing or have other values: a"),
        ):
            server.on(LOAD, error(404), found)
            with pytest.raises(CommitUnknownError, match=rf"answered that it did create table db\.t, .*{words}"):
                make_table(catalog_of(server), a="1")
        # Another writer has gone on from it; who may create it may not be allowed to load it.
        for found, location in ((document(newer), newer["metadata-location"]), (error(403), FIRST)):
            server.on(LOAD, error(404), found)
            assert make_table(catalog_of(server), a="1").metadata_location == location
        server.on(LOAD, error(404), document(made))
        server.calls()
        make_table(catalog_of(server), a="1")
        looks = [f"{LOAD}?snapshots=refs", SPACE, "GET /v1/namespaces/db%1Ft"]
        assert server.calls() == [CONFIG, *looks, f"POST {TABLES}", LOAD]

    def test_a_creation_that_another_writer_has_made_is_enough_if_the_table_may_exist(self, server: Script) -> None:
        """SeaweedFS reports success to both, and keeps the last table."""
        other = table()
        other["metadata"]["table-uuid"] = "6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0009"
        server.on(f"POST {TABLES}", document(table()))
        server.on(LOAD, error(404), document(other))
        columns = {"id": "long not null", "name": "string"}
        found = Table.create(catalog_of(server), "db.t", schema=columns, if_not_exists=True)
        assert found.metadata.table_uuid == other["metadata"]["table-uuid"]

    def test_a_registration(self, server: Script) -> None:
        """Of another file than was asked for, or none in the place of a table that was there."""
        asked, second = FIRST, "file:///w/db/t/metadata/2.json"
        register = "POST /v1/namespaces/db/register"
        server.on(register, document(table(asked)))
        for is_over, found, answered, words in (
            (True, table(second), table(asked), f"its metadata file is still {second}"),
            (False, table(second), table(second), f"its metadata file is {second}, asked was {asked}"),
            (
                False,
                {**table(second), "metadata": {**table()["metadata"], "properties": {}}},
                table(asked),
                "properties",
            ),
        ):
            server.on(LOAD, document(found))
            server.on(register, document(answered))
            with pytest.raises(CommitUnknownError, match=rf"answered that it did register table db\.t, .*{words}"):
                catalog_of(server).register_table("db.t", asked, overwrite=is_over)
        gone_on = table(second)
        gone_on["metadata"]["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": asked}]
        for before, where in ((error(404), asked), (error(403), None), (document(table(asked)), asked)):
            server.on(register, document(table(where)))
            server.on(LOAD, before, document(gone_on | {"metadata": gone_on["metadata"] | {"properties": {}}}))
            assert catalog_of(server).register_table("db.t", asked, overwrite=True).metadata_location == second

    def test_a_creation_without_a_column_is_told(self, server: Script) -> None:
        server.on(LOAD, error(404))
        server.on(f"POST {TABLES}", document(table()))
        columns = {"id": "long not null", "name": "string", "extra": "int"}
        for more in ({}, {"if_not_exists": True}):
            with pytest.raises(CommitUnknownError, match=r"did create table db\.t, but .*it lacks the columns extra"):
                Table.create(catalog_of(server), "db.t", schema=columns, **more)


class TestLooksBeforeAChange:
    """A table or namespace is looked for before something is made; what cannot be seen is left to the server."""

    REGISTER = "POST /v1/namespaces/db/register"

    def sent(self, server: Script, change: Callable[[Catalog], Any], kind: type[IcebergError], words: str) -> list[str]:
        """Expect an error of a change, and return what was asked to be made."""
        server.calls()
        with pytest.raises(kind, match=words):
            change(catalog_of(server))
        return [call for call in server.calls() if call.startswith("POST")]

    def test_a_table_that_is_there(self, server: Script) -> None:
        server.on(f"POST {TABLES}", document(table()))
        assert self.sent(server, new, AlreadyExistsError, r"table db\.t exists already") == []
        server.on(LOAD, error(502))
        assert self.sent(server, new, StorageError, "502") == []

    def test_a_namespace(self, server: Script) -> None:
        create, register = f"POST {TABLES}", CALLS[self.REGISTER]
        for what in (create, self.REGISTER):
            server.on(what, document(table("file:///w/7.json")))
        server.on(SPACE, error(404, "NoSuchNamespaceException"))
        for change in (new, register):
            server.on(LOAD, error(404))
            assert self.sent(server, change, NotFoundError, "there is no namespace db in catalog prod") == []
        server.on(LOAD, document(table()))
        assert self.sent(server, CALLS[RENAME], NotFoundError, "there is no namespace db in catalog prod") == []
        for page in (error(403), PAGES[0]):
            server.on(SPACE, page)
            for change in (new, register):
                looks = [error(404)] if change is new else []
                server.on(LOAD, *looks, document(table("file:///w/7.json")))
                change(catalog_of(server))
        server.on(SPACE, error(502))
        with pytest.raises(StorageError, match="502"):
            catalog_of(server).ensure_namespace("db")

    def test_a_name_that_is_a_namespace_s(self, server: Script) -> None:
        namespace = document({"namespace": ["db", "u"], "properties": {}})
        for name, change in (("t", new), ("t", CALLS[self.REGISTER]), ("u", CALLS[RENAME])):
            server.on(LOAD, document(table()) if name == "u" else error(404))
            server.on(f"GET /v1/namespaces/db%1F{name}", namespace)
            assert self.sent(server, change, AlreadyExistsError, f"db.{name}.* is .*namespace") == []

    def test_what_is_missing_for_a_registration(self, server: Script) -> None:
        """The namespace, which may have gone meanwhile, or the file."""
        there, gone = document({"namespace": ["db"], "properties": {}}), error(404, "NoSuchNamespaceException")
        for refused, spaces, words in (
            (error(404, "NoSuchNamespaceException"), [there], "there is no namespace db in catalog prod"),
            (error(404, "NotFoundException"), [there, gone], "there is no namespace db in catalog prod"),
            (error(404, "NotFoundException"), [there], r"cannot register table db\.t from file:///w/7\.json: 404"),
            (error(404, "NotFoundException"), [error(403)], r"cannot register table db\.t from file:///w/7\.json: 404"),
        ):
            server.on(SPACE, *spaces)
            server.on(self.REGISTER, refused)
            assert self.sent(server, CALLS[self.REGISTER], NotFoundError, words) == [self.REGISTER]


def test_what_comes_on_two_pages_is_listed_once(server: Script) -> None:
    """Pages shift while another writer creates or drops something."""
    name = {letter: {"namespace": ["db"], "name": letter} for letter in "abc"}
    first, second = [name["b"], name["a"]], [name["b"], name["c"]]
    server.on(
        f"GET {TABLES}",
        document({"identifiers": first, "next-page-token": "7"}),
        document({"identifiers": second}),
    )
    assert list(map(str, catalog_of(server).list_tables("db"))) == ["db.a", "db.b", "db.c"]
    server.on(
        "GET /v1/namespaces",
        document({"namespaces": [["b"], ["a"]], "next-page-token": "7"}),
        document({"namespaces": [["b"], ["c"]]}),
    )
    assert catalog_of(server).list_namespaces() == (("a",), ("b",), ("c",))
    server.on(f"GET {TABLES}", document({"identifiers": []}))
    assert catalog_of(server).list_tables("db") == ()
    server.on(SPACE, error(404, "NoSuchNamespaceException"))  # some servers list nothing where nothing is
    with pytest.raises(NotFoundError, match="there is no namespace db in catalog prod"):
        catalog_of(server).list_tables("db")
