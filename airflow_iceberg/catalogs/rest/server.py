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
        answer = http.read("GET", "/v1/config", purpose="read the server's configuration", query=query, limit=CONFIG)
        if answer.refusal:
            error = self.error_of("read the server's configuration", answer.refusal)
            raise error if error.advice else advised(error, "check the uri and the warehouse of the connection")
        config = self.parsed(
            answer, "read the server's configuration", lambda found: ServerConfig.from_dict(found, given)
        )
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
        http, path = self.way(endpoint, purpose, **asked)
        answer = http.read(endpoint.method, path, purpose=purpose, **self._parts(endpoint, asked))
        return self._served(answer, purpose, on_refusal)

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
        return self._served(answer, purpose, on_refusal)

    def way(self, endpoint: Endpoint, purpose: str, **asked: Unpack[Asked]) -> tuple[Http, str]:
        """Return the client and the path of a request; `UnsupportedError` if the server doesn't offer it."""
        http, config = self._open()
        if not config.offers(endpoint):
            raise UnsupportedError(
                f"catalog {self._catalog} cannot {purpose}: its server does not offer '{endpoint}'; nothing was changed"
            )
        return http, _path(config, endpoint, asked)

    def _served(self, answer: Answer, purpose: str, on_refusal: OnRefusal) -> Answer:
        refusal = answer.refusal
        if refusal is None:
            return answer
        special = on_refusal.get(refusal.status)
        raise special(refusal) if special else self.error_of(purpose, refusal)

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
            with self.understood(purpose):
                items = Fields(document).list(key) if document.get(key) is not None else ()
                found = [parse(f"{key}[{index}]", item) for index, item in enumerate(items)]
            yield from (each for each in found if each is not None)
            token = document.get("next-page-token")
            if token is None or token == "":
                return
            query["pageToken"] = protocol.quoted(tokens.checked(token, items=len(items), size_bytes=len(answer.body)))

    def exists(self, head: Endpoint, get: Endpoint, purpose: str, **asked: Unpack[Asked]) -> bool:
        """Tell whether a namespace or table exists, by the cheap request if the server offers it."""
        http, config = self._open()
        endpoint = head if config.offers(head) else get
        query = {"snapshots": "refs"} if endpoint is protocol.LOAD_TABLE else None
        parts = self._parts(endpoint, {"query": query})
        answer = http.read(endpoint.method, _path(config, endpoint, asked), purpose=purpose, **parts)
        if answer.status == 404:
            return False
        self._served(answer, purpose, {})
        return True

    @contextmanager
    def understood(self, purpose: str) -> Iterator[None]:
        """Let errors about the form of an answer say whose answer it is, to what, and what to do."""
        try:
            yield
        except FormatError as error:
            text = f"catalog {self._catalog} cannot {purpose}, its answer is not understood: {error}"
            raise advised(FormatError(text), _NO_CATALOG) from error

    def parsed(self, answer: Answer, purpose: str, parse: Callable[[dict[str, Any]], _T]) -> _T:
        """Return what is made of the document in an answer; raises as `document` and `understood`."""
        document = self.document(answer, purpose)
        with self.understood(purpose):
            return parse(document)

    def document(self, answer: Answer, purpose: str) -> dict[str, Any]:
        """Return the document in an answer; `FormatError` if there is none."""
        try:
            return answer.json()
        except FormatError as error:
            raise advised(FormatError(f"catalog {self._catalog} cannot {purpose}: {error}"), _NO_CATALOG) from error

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
                return UnsupportedError(f"{text}; nothing was changed")
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


def _path(config: ServerConfig, endpoint: Endpoint, asked: Asked) -> str:
    table = asked.get("table")
    if table is not None:
        return config.path(endpoint, table.namespace, table.name)
    return config.path(endpoint, asked.get("namespace", ()))
