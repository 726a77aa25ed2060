"""The server of a REST catalog: its configuration, requests by endpoint, pages, and the errors of its responses."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack

from airflow_iceberg.catalogs.base import Namespace, TableId
from airflow_iceberg.catalogs.http.auth import OAuth2Auth, auth_for
from airflow_iceberg.catalogs.http.client import Body, Http, Parts
from airflow_iceberg.catalogs.http.exchange import Answer
from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.catalogs.http.settings import (
    Secrets,
    Settings,
    checked_uri,
    page_size,
    table_limit,
    without_login,
)
from airflow_iceberg.catalogs.pages import PageTokens
from airflow_iceberg.catalogs.rest import protocol
from airflow_iceberg.catalogs.rest.credentials import store_properties
from airflow_iceberg.catalogs.rest.protocol import Endpoint, ServerConfig
from airflow_iceberg.catalogs.rest.trust import CONNECTION, store_access
from airflow_iceberg.errors import (
    CommitConflictError,
    FormatError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    advised,
)
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.storage.answer_limits import CONFIG, DOCUMENT, PAGE

_NO_CATALOG = "check the uri of the connection: a login page, a proxy or another program seems to answer there"
# With these statuses a server says that something is not there, and whoever does not know the path, that this is not.
_MISSING = (404, 405, 501)
_T = TypeVar("_T")
OnRefusal = Mapping[int, Callable[[Refusal], Exception]]


class Amount(TypedDict, total=False):
    """How much of a list is wanted, if not all of it."""

    most_pages: int


class Asked(Parts, Amount, total=False):
    """The object of a request, and its optional parts."""

    namespace: Namespace
    table: TableId | None


class RestServer:
    """One server. Nothing is sent before the first request; safe to use from several threads.

    Args:
        properties: the user's properties; the server's are merged into them on first use.

    Attributes:
        given: the user's properties.
    """

    def __init__(self, catalog: str, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self.given = properties
        self._lock = threading.RLock()
        self._table_limit = table_limit(catalog, properties)
        self._opened: tuple[Http, ServerConfig] | None = None
        checked_uri(catalog, properties.get("uri", ""))
        Settings.of(catalog, properties)
        page_size(catalog, properties)

    def __repr__(self) -> str:
        return f"RestServer({without_login(self.given.get('uri', ''))!r})"

    @property
    def config(self) -> ServerConfig:
        """The server's configuration, merged with the user's properties."""
        return self._open()[1]

    @property
    def store_properties(self) -> Mapping[str, str]:
        """The properties of the stores, without those that only the server may see."""
        config = self.config
        return store_access(store_properties(self.given), config.defaults, config.overrides).properties

    @property
    def http(self) -> Http:
        """The client of the server."""
        return self._open()[0]

    def limit_tables(self, most_bytes: int, to_do: str) -> None:
        """From now on, read answers about a table of this size at most."""
        limit = self._table_limit
        self._table_limit = replace(limit, most_bytes=min(limit.most_bytes, most_bytes), to_do=to_do)

    def _open(self) -> tuple[Http, ServerConfig]:
        with self._lock:
            if self._opened is None:
                self._opened = self._ask()
            return self._opened

    def _ask(self) -> tuple[Http, ServerConfig]:
        given = self.given
        http = self._new_http(given)
        warehouse = given.get("warehouse")
        query = {"warehouse": protocol.quoted(warehouse)} if warehouse else {}
        purpose = "read the server's configuration"
        answer = http.read("GET", "/v1/config", purpose=purpose, query=query, limit=CONFIG)
        if refusal := answer.refusal:
            error = self.error_of(purpose, refusal)
            if _is_page(refusal):  # of another program: nothing of the catalog is missing, which may come to be
                error = UnsupportedError(f"catalog {self._catalog} cannot {purpose}: {_as_page(answer)}")
            raise error if error.advice else advised(error, "check the uri and the warehouse of the connection")
        config = self.parsed(answer, purpose, lambda found: ServerConfig.from_dict(found, given))
        if any(config.properties.get(name) != given.get(name) for name in CONNECTION):
            http = self._new_http(config.properties, config)
        http.key_lifetime_s = config.key_lifetime_s
        return http, config

    def _new_http(self, properties: Mapping[str, str], config: ServerConfig | None = None) -> Http:
        hidden = {**config.defaults, **config.overrides} if config else {}
        http = Http(
            self._catalog,
            properties["uri"],
            Settings.of(self._catalog, properties),
            Secrets({**hidden, **self.given, **properties}),
        )
        asked = properties.get("oauth2-server-uri", "").strip() or "/v1/oauth/tokens"
        url = asked if "://" in asked else f"{http.uri}/{asked.lstrip('/')}"

        def fetch(form: Mapping[str, str]) -> Mapping[str, Any]:
            advice = "check client id and secret (credential), scope and oauth2-server-uri"
            return http.fetch_document(url, form, purpose="get a token", advice=advice)

        http.auth = auth_for(self._catalog, properties, fetch)
        return http

    def read(self, endpoint: Endpoint, purpose: str, on_refusal: OnRefusal, **asked: Unpack[Asked]) -> Answer:
        """Send a request that changes nothing.

        Args:
            purpose: verb and object, "load table db.t"; part of messages.
            on_refusal: errors by status, if they are not the usual ones.
        """
        return self._served(self._read(endpoint, purpose, asked), purpose, on_refusal, endpoint)

    def _read(self, endpoint: Endpoint, purpose: str, asked: Asked) -> Answer:
        http, path = self.way(endpoint, purpose, **asked)
        return http.read(endpoint.method, path, purpose=purpose, **self._parts(endpoint, asked))

    def _parts(self, endpoint: Endpoint, asked: Asked) -> Parts:
        is_table = endpoint in protocol.ANSWERED_BY_A_TABLE
        limit = asked.get("limit") or (self._table_limit if is_table else DOCUMENT)
        return {"query": asked.get("query"), "headers": asked.get("headers"), "limit": limit}

    def read_path(
        self, path: str, purpose: str, on_refusal: OnRefusal, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Do as `read` at a path that the server has given."""
        answer = self.http.read("GET", path, purpose=purpose, headers=headers)
        return self._served(answer, purpose, on_refusal)

    def change(
        self, endpoint: Endpoint, body: Body, purpose: str, on_refusal: OnRefusal, **asked: Unpack[Asked]
    ) -> Answer:
        """Send a request that changes something; see `Http.change` for its three outcomes."""
        http, path = self.way(endpoint, purpose, **asked)
        answer = http.change(endpoint.method, path, body, purpose=purpose, **self._parts(endpoint, asked))
        return self._served(answer, purpose, on_refusal, endpoint)

    def way(self, endpoint: Endpoint, purpose: str, **asked: Unpack[Asked]) -> tuple[Http, str]:
        """Return the client and the path of a request; `UnsupportedError` if the server doesn't offer it."""
        http, config = self._open()
        if not config.offers(endpoint):
            raise UnsupportedError(
                f"catalog {self._catalog} cannot {purpose}: its server does not offer '{endpoint}'; nothing was changed"
            )
        return http, _path(config, endpoint, asked)

    def _served(self, answer: Answer, purpose: str, on_refusal: OnRefusal, endpoint: Endpoint | None = None) -> Answer:
        refusal = answer.refusal
        if refusal is None:
            return answer
        if _is_page(refusal):
            raise self._not_served(purpose, answer, endpoint)
        special = on_refusal.get(refusal.status)
        raise special(refusal) if special else self.error_of(purpose, refusal)

    def _not_served(self, purpose: str, answer: Answer, endpoint: Endpoint | None) -> IcebergError:
        """Return the error for an answer that something is not there, which is not that of a catalog.

        Never that of a missing table: a server that lacks the request, or a proxy that has lost its server, knows
        nothing of tables.
        """
        if endpoint is not None and not self.config.lists(endpoint):
            return self.lacks(purpose, endpoint, _as_page(answer))
        whose = f"offers '{endpoint}'" if endpoint else "names this address"
        text = f"catalog {self._catalog} cannot {purpose}: {_as_page(answer)}, though the server {whose}"
        return advised(StorageError(text), "look at the server, and at the proxies before it: one of them is broken")

    def lacks(self, purpose: str, endpoint: Endpoint, reason: str) -> UnsupportedError:
        """Return the error for a request that a server does not know, though it has not said which ones it does."""
        text = f"catalog {self._catalog} cannot {purpose}: its server seems to lack the endpoint '{endpoint}'"
        to_do = "check the uri and the prefix of the connection; if they are right, use a server that has the endpoint"
        return advised(UnsupportedError(f"{text}: {reason}"), to_do)

    def pages(
        self,
        endpoint: Endpoint,
        purpose: str,
        key: str,
        parse: Callable[[str, Any], _T | None],
        on_refusal: OnRefusal,
        **asked: Unpack[Asked],
    ) -> Iterator[_T]:
        """Yield the items of a list, page by page; of its first pages alone if `most_pages` says so.

        Args:
            parse: a function of an item's place and the item; one that it returns None for is left out.
        Raises:
            FormatError: the answer has another form; names catalog, purpose and place.
        """
        size = page_size(self._catalog, self.config.properties)
        query = {**(asked.get("query") or {}), **({"pageSize": str(size), "pageToken": ""} if size else {})}
        tokens = PageTokens(f"catalog {self._catalog} cannot {purpose}")
        for _ in range(asked.get("most_pages", sys.maxsize)):
            answer = self.read(endpoint, purpose, on_refusal, namespace=asked["namespace"], query=query, limit=PAGE)
            document = self.document(answer, purpose)
            with self.understood(answer, purpose):
                items = Fields(document).list(key) if document.get(key) is not None else ()
                found = [parse(f"{key}[{index}]", item) for index, item in enumerate(items)]
            yield from (each for each in found if each is not None)
            token = document.get("next-page-token")
            if token is None or token == "":
                return
            query["pageToken"] = protocol.quoted(tokens.checked(token, items=len(items), size_bytes=len(answer.body)))

    def exists(
        self, head: Endpoint, get: Endpoint, purpose: str, *, is_sure: bool = False, **asked: Unpack[Asked]
    ) -> bool:
        """Tell whether a namespace or table exists, by the cheap request if the server offers it.

        An answer to HEAD has no body that tells a catalog from a proxy. So only one that says of which kind the body
        would be is believed; else it is asked by GET.

        Args:
            is_sure: whether nothing but a catalog's answer to GET is believed.
        """
        if not is_sure and self.config.offers(head):
            answer = self._read(head, purpose, asked)
            if answer.status == 404 and "json" in answer.content_type:
                return False
            if answer.refusal is None and "html" not in answer.content_type:
                return True
            if answer.refusal is not None and answer.status not in _MISSING:
                raise self.error_of(purpose, answer.refusal)
        if get is protocol.LOAD_TABLE:
            asked["query"] = {"snapshots": "refs"}
        answer = self._read(get, purpose, asked)
        if answer.refusal is not None and answer.status == 404 and answer.refusal.is_model:
            return False
        self.document(self._served(answer, purpose, {}, get), purpose)
        return True

    @contextmanager
    def understood(self, answer: Answer, purpose: str) -> Iterator[None]:
        """Let errors about the form of an answer say whose answer it is, to what, and what to do."""
        try:
            yield
        except (FormatError, UnsupportedError) as error:
            text = f"catalog {self._catalog} cannot {purpose}, the answer to {answer.asked} is not understood: "
            if isinstance(error, FormatError) and error.path is None:
                raise advised(FormatError(f"{text}{error}"), _NO_CATALOG) from error
            error.args = (f"{text}{error.args[0]}", *error.args[1:])
            raise

    def parsed(self, answer: Answer, purpose: str, parse: Callable[[dict[str, Any]], _T]) -> _T:
        """Return what is made of the document in an answer; raises as `document` and `understood`."""
        document = self.document(answer, purpose)
        with self.understood(answer, purpose):
            return parse(document)

    def document(self, answer: Answer, purpose: str) -> dict[str, Any]:
        """Return the document in an answer; `FormatError` if there is none."""
        try:
            return answer.json()
        except FormatError as error:
            text = f"catalog {self._catalog} cannot {purpose}: {error} to {answer.asked}"
            raise advised(FormatError(text), _NO_CATALOG) from error

    def error_of(self, purpose: str, refusal: Refusal) -> IcebergError:
        """Return the error for an error response without a special meaning."""
        text = f"catalog {self._catalog} cannot {purpose}: the server answers {refusal}"
        match refusal.status:
            case 401 | 403 | 407 | 419:
                error = advised(StorageError(text), "check the credentials of the connection and what they allow")
                # An expired login may be renewed before the next try; a permission is not given meanwhile.
                error.is_denied = refusal.status == 403
                return error
            case 404:
                return NotFoundError(text)
            case 405 | 406 | 501:
                return UnsupportedError(text)
            case 409:
                return CommitConflictError(text)
            case _:
                return InvalidInputError(text)

    def bearer(self) -> str | None:
        """Return the bearer token of the requests, None where there is none."""
        auth = self.http.auth
        if isinstance(auth, OAuth2Auth):
            return auth.token()
        return self.config.properties.get("token")


def _is_page(refusal: Refusal) -> bool:
    """Whether an answer that something is not there is another program's than a catalog's."""
    return refusal.status in _MISSING and not refusal.is_model


def _as_page(answer: Answer) -> str:
    return f"{answer.asked} is answered {answer.refusal}, which is not the answer of a catalog"


def _path(config: ServerConfig, endpoint: Endpoint, asked: Asked) -> str:
    table = asked.get("table")
    if table is not None:
        return config.path(endpoint, table.namespace, table.name)
    return config.path(endpoint, asked.get("namespace", ()))
