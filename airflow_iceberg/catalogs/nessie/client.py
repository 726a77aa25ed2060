"""`NessieClient`: requests and answers of Nessie's API, version 2: paths, pages, error responses.

Not here: sending and retries (`http.client`), tokens (`nessie.login`), the meaning of tables and namespaces
(`nessie.catalog`), branches and tags (`nessie.references`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.catalogs.http.exchange import Answer
from airflow_iceberg.catalogs.http.settings import Secrets, Settings, certificate_shown, certificates_trusted
from airflow_iceberg.catalogs.nessie.login import auth_of, nessie_property
from airflow_iceberg.catalogs.pages import PageTokens
from airflow_iceberg.errors import (
    CommitUnknownError,
    FormatError,
    IcebergError,
    InvalidInputError,
    StorageError,
    UnsupportedError,
    advised,
)
from airflow_iceberg.format.values.digits import whole_number

# The server lists the conflicts in an error response only for clients with this header.
_HEADERS = {"Nessie-Client-Spec": "2"}
_CONNECT_TIMEOUT_MS, _READ_TIMEOUT_MS = 10_000, 60_000

Json = dict[str, Any]


class Refusal(IcebergError):
    """The server's definite error response: nothing was changed. Only the modules of this catalog see it.

    Attributes:
        status: the HTTP status.
        code: Nessie's errorCode, such as REFERENCE_CONFLICT; "" if the answer is not Nessie's.
    """

    def __init__(self, message: str, *, status: int, code: str = "", conflicts: Iterable[str] = ()) -> None:
        super().__init__(f"{message or 'no reason given'} (HTTP {status}{f', {code}' if code else ''})")
        self.status = status
        self.code = code
        self._conflicts = frozenset(conflicts)

    def has(self, conflict: str) -> bool:
        """Tell whether one of the conflicts is of this type (KEY_EXISTS, NAMESPACE_ABSENT …)."""
        return conflict in self._conflicts


class NessieClient:
    """Requests to one server. Thread-safe; a forked child opens connections of its own.

    Args:
        catalog: name of the catalog, for messages.
        properties: `uri`, which ends in /api/v2; `token` or `authentication.token`; `authentication.type` ("NONE",
            "BEARER", "OAUTH2") and its properties (`nessie.login`); `transport.connect-timeout` and
            `transport.read-timeout` in ms: these may be written with the prefix `nessie.`. `ssl.cabundle`,
            `ssl.client.cert` and `ssl.client.key` as for REST catalogs.
    """

    def __init__(self, catalog: str, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._secrets = Secrets(properties)
        settings = Settings(
            timeouts_s=(
                _milliseconds(catalog, properties, "transport.connect-timeout", _CONNECT_TIMEOUT_MS) / 1000,
                _milliseconds(catalog, properties, "transport.read-timeout", _READ_TIMEOUT_MS) / 1000,
            ),
            headers=_HEADERS,
            verify=certificates_trusted(catalog, properties),
            certificate=certificate_shown(catalog, properties),
        )
        self._http = Http(catalog, _base_uri(catalog, properties), settings, self._secrets)
        self._http.auth = auth_of(catalog, properties, self._http)

    def __str__(self) -> str:
        return f"Nessie at {self._http.uri}"

    def __repr__(self) -> str:
        return f"NessieClient(uri={self._http.uri!r})"

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Send a request that reads; `Refusal` for an error response, `StorageError` without a usable answer."""
        return self._read("GET", path, params, None)

    def look_up(self, path: str, body: Json) -> Json:
        """Send a request that reads and has a body; raises as `get`."""
        return self._read("POST", path, None, body)

    def pages(self, path: str, field: str, params: Mapping[str, str] | None = None) -> Iterator[Json]:
        """Yield all entries of a list, for any size of its pages."""
        asked = dict(params or {})
        tokens = PageTokens(f"cannot read the list {path} of Nessie")
        while True:
            answer = self.get(path, asked)
            entries = answer.get(field)
            if not isinstance(entries, list):
                raise StorageError(f"{self} answered without '{field}', which is not Nessie's API; check the uri")
            yield from entries
            if not answer.get("hasMore"):
                return
            asked["page-token"] = tokens.checked(answer.get("token"), items=len(entries))

    def change(self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Json | None) -> Json:
        """Send a request that changes something, once.

        Raises:
            Refusal: an error response; nothing was changed.
            StorageError: the request was never sent.
            CommitUnknownError: it was sent, and the outcome is not known.
        """
        answer = self._http.change(method, f"/{path}", body, purpose=f"write to {self}", query=_query(params))
        # A gateway may answer 501 to a request that it has forwarded.
        document = None if answer.status >= 500 else self._document(answer, f"{path} {params} {body}")
        if document is None:
            raise CommitUnknownError(
                f"catalog {self._catalog} cannot tell whether it did write to {self}: its answer, HTTP "
                f"{answer.status}, is not one of Nessie's API"
            )
        return document

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Let an answer without a part, or with one of another type, be an error that says whose answer it is."""
        try:
            yield
        except IcebergError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise StorageError(
                f"catalog {self._catalog}: an answer of {self} is not understood ({type(error).__name__}); check the "
                "uri, which ends in /api/v2, and that the server is well"
            ) from error

    def denied(self, what: str, refusal: Refusal) -> StorageError:
        """Return the error for an error response about the access or the request, and not about the data."""
        advice = "check the request"
        if refusal.status in (401, 403):
            advice = "check the token and what its owner may do"
        error = advised(StorageError(f"catalog {self._catalog} cannot {what}: {self} answered: {refusal}"), advice)
        # An expired token may be renewed before the next try; a permission is not given meanwhile.
        error.is_denied = refusal.status == 403
        return error

    def _read(self, method: str, path: str, params: Mapping[str, str] | None, body: Json | None) -> Json:
        answer = self._http.read(method, f"/{path}", body, purpose=f"read from {self}", query=_query(params))
        document = self._document(answer, f"{path} {params} {body}")
        if document is None:
            raise StorageError(
                f"catalog {self._catalog}: {self} gave no answer of Nessie's API (HTTP {answer.status}); check the "
                "uri, which ends in /api/v2, and that the server is well"
            )
        return document

    def _document(self, answer: Answer, asked: str) -> Json | None:
        """Return the document of a success, or None if there is none; raise `Refusal` for an error response."""
        try:
            document = answer.json()
        except FormatError:
            document = None
        if not answer.refusal:
            return document if answer.status == 200 else None
        found = document or {}
        conflicts = (found.get("errorDetails") or {}).get("conflicts") or ()
        raise Refusal(
            self._secrets.hide(str(found.get("message") or ""), unquote(asked)),
            status=answer.status,
            code=str(found.get("errorCode") or ""),
            conflicts=(str(each.get("conflictType")) for each in conflicts),
        )


def _query(params: Mapping[str, str] | None) -> dict[str, str]:
    return {name: quote(value, safe="") for name, value in (params or {}).items()}


def ref_path(name: str, hash_: str | None = None) -> str:
    """Return a reference in a path: slashes in its name are escaped."""
    return f"trees/{quote(name, safe='')}{f'@{hash_}' if hash_ else ''}"


def key_path(elements: Sequence[str]) -> str:
    """Return a content key in a path."""
    return quote(key_text(elements), safe="")


def key_text(elements: Sequence[str]) -> str:
    """Return a content key as one text: elements joined by dots, dots in them as the character 0x1D."""
    return ".".join(element.replace(".", "\x1d") for element in elements)


def _base_uri(catalog: str, properties: Mapping[str, str]) -> str:
    uri = nessie_property(properties, "uri").rstrip("/")
    expected = "expected for example http://127.0.0.1:19120/api/v2"
    if not uri:
        raise InvalidInputError(f"catalog {catalog}: property 'uri' is missing, {expected}")
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInputError(f"catalog {catalog}: its uri is not understood, {expected}")
    if parts.username or parts.password:
        # It is not shown, and not used: a uri is written to logs.
        raise InvalidInputError(f"catalog {catalog}: its uri holds a login, which Nessie doesn't take; give a token")
    version = nessie_property(properties, "client-api-version")
    if parts.path.endswith("/v1") or version == "1":
        raise UnsupportedError(f"catalog {catalog}: version 1 of Nessie's API is not supported, {expected}")
    if not parts.path.endswith("/v2") and version != "2":
        raise InvalidInputError(f"catalog {catalog}: uri {uri} does not end in /api/v2, {expected}")
    return uri


def _milliseconds(catalog: str, properties: Mapping[str, str], name: str, default: int) -> int:
    text = nessie_property(properties, name)
    if not text:
        return default
    number = whole_number(text)
    if not number:
        raise InvalidInputError(f"catalog {catalog}: property {name} is not a number of milliseconds above 0")
    return number
