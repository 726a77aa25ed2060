"""Lists that a server sends page by page end, whatever the server says."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.pages import MOST_EMPTY_PAGES
from airflow_iceberg.errors import FormatError
from tests.support.http_server import HttpServer, Reply, Request, document

# After so many requests of one list the server ends it: a test fails, and does not wait for ever.
MOST = MOST_EMPTY_PAGES + 100
NO_TEXT = [5, True, 1.5, ["a"], {"a": 1}, 0, False, []]


class Pages(HttpServer):
    """Sends pages of a list of namespaces in the manner of a catalog's server.

    Attributes:
        token: what names the page after the given one; None after the last one.
        names: the names on a page.
        count: the number of pages that were asked for.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(self._answer)
        self.kind = kind
        self.token: Callable[[int], Any] = lambda _: None
        self.names: Callable[[int], list[str]] = lambda _: []
        self.count = 0

    def _answer(self, request: Request) -> Reply:
        if request.path == "/v1/config":
            return document({"defaults": {}, "overrides": {}})
        self.count += 1
        token = None if self.count > MOST else self.token(self.count)
        names = self.names(self.count)
        if self.kind == "rest":
            return document({"namespaces": [[name] for name in names], "next-page-token": token})
        if self.kind == "glue":
            return document({"DatabaseList": [{"Name": name} for name in names], "NextToken": token})
        branches = [{"type": "BRANCH", "name": name, "hash": "3b2f" * 16} for name in names]
        return document({"references": branches, "hasMore": token is not None, "token": token})

    def list(self) -> list[str]:
        if self.kind == "nessie":
            nessie: Any = load_catalog("prod", type="nessie", uri=f"{self.uri}/api/v2")
            return [each.name for each in nessie.references.list()]
        places = {"rest": {"uri": self.uri}, "glue": {"glue.endpoint": self.uri, "glue.region": "eu-central-1"}}
        keys = {"glue.access-key-id": "k", "glue.secret-access-key": "s"} if self.kind == "glue" else {}
        catalog = load_catalog("prod", type=self.kind, **places[self.kind], **keys)
        return [namespace[0] for namespace in catalog.list_namespaces()]


@pytest.fixture(params=["rest", "nessie", "glue"])
def server(request: pytest.FixtureRequest) -> Iterator[Pages]:
    with Pages(request.param) as server:
        yield server


class TestHonestServers:
    """Every page is read."""

    def test_all_pages_are_asked_for_by_their_tokens(self, server: Pages) -> None:
        server.names = lambda page: [f"n{page}"]
        server.token = lambda page: f"p {page}" if page < 4 else None
        assert server.list() == ["n1", "n2", "n3", "n4"]
        asked = [tokens_in(request) for request in server.seen if request.path != "/v1/config"]
        assert asked == [None, "p 1", "p 2", "p 3"]

    @pytest.mark.services
    def test_pages_without_an_item_are_passed_over(self, server: Pages) -> None:
        server.names = lambda page: [f"n{page}"] if page == 500 else []
        server.token = lambda page: f"p{page}" if page < 500 else None
        assert server.list() == ["n500"]

    @pytest.mark.services
    def test_more_pages_than_may_be_empty(self, server: Pages) -> None:
        server.names = lambda page: [f"n{page:05}"]
        server.token = lambda page: f"p{page}"
        assert len(server.list()) == MOST + 1


class TestHostileServers:
    """A list that does not end is an error."""

    @pytest.mark.parametrize("token", NO_TEXT, ids=repr)
    def test_a_token_that_is_no_text(self, server: Pages, token: Any) -> None:
        server.token = lambda _: token
        with pytest.raises(FormatError, match=f"is {type(token).__name__}, expected a text"):
            server.list()
        assert server.count == 1

    def test_a_token_that_was_there_before(self, server: Pages) -> None:
        server.names = lambda page: [f"n{page}"]
        around = itertools.cycle("abc")
        server.token = lambda _: next(around)
        with pytest.raises(FormatError, match="the same page again and again"):
            server.list()
        assert server.count == 4

    @pytest.mark.services
    def test_new_tokens_without_end_on_pages_without_items(self, server: Pages) -> None:
        server.token = lambda page: f"p{page}"
        with pytest.raises(FormatError, match="1000 pages in a row without an item"):
            server.list()

    def test_a_list_that_has_more_and_does_not_say_where_is_not_taken_for_a_whole_one(self) -> None:
        with Pages("nessie") as server:
            server.token = lambda _: ""
            with pytest.raises(FormatError, match="is an empty text, expected a text"):
                server.list()


def tokens_in(request: Request) -> str | None:
    if request.body:
        token: str | None = json.loads(request.body).get("NextToken")
        return token
    query = parse_qs(urlsplit(request.path).query)
    return (query.get("pageToken") or query.get("page-token") or [None])[0]
