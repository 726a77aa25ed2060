"""Nessie's API, version 2, over HTTP: requests, what their answers mean, and pages.

Lives here: how to ask, and which failures leave the outcome open. Not here: tokens (`nessie_auth`), what tables and
namespaces are (`nessie`), and branches and tags (`nessie_references`).

A request that reads is repeated when the connection breaks; one that changes something is sent exactly once.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import requests
import urllib3.exceptions

from airflow_iceberg.catalogs.http.auth import Signable
from airflow_iceberg.catalogs.http.settings import Secrets, certificate_shown, certificates_trusted
from airflow_iceberg.catalogs.nessie.login import auth_of, nessie_property, secrets_of
from airflow_iceberg.errors import CommitUnknownError, IcebergError, InvalidInputError, StorageError, UnsupportedError

# The server lists the conflicts of a refusal only to clients that say that they know them.
_HEADERS = {"Accept": "application/json", "Nessie-Client-Spec": "2"}
_READ_TRIES = 3
_CONNECT_TIMEOUT_MS, _READ_TIMEOUT_MS = 10_000, 60_000
# A gateway's own words for "I cannot reach it at the moment".
_PASSING = (502, 503, 504)

Json = dict[str, Any]


class Refusal(IcebergError):
    """The server's definite no: nothing was changed. Never leaves the modules of this catalog.

    Attributes:
        status: of HTTP, 400 to 499.
        code: Nessie's errorCode, such as REFERENCE_CONFLICT; "" when the answer is not Nessie's.
        conflicts: types and keys of the conflicts, where the server tells them.
    """

    def __init__(
        self, message: str, *, status: int, code: str = "", conflicts: Sequence[tuple[str, tuple[str, ...]]] = ()
    ) -> None:
        super().__init__(f"{message or 'no reason given'} (HTTP {status}{f', {code}' if code else ''})")
        self.status = status
        self.code = code
        self.conflicts = tuple(conflicts)

    def has(self, conflict: str) -> bool:
        """Tell whether one of the conflicts is of this type (KEY_EXISTS, NAMESPACE_ABSENT …)."""
        return any(kind == conflict for kind, _ in self.conflicts)


class NessieClient:
    """Speaks to one server. Safe to use from several threads; a forked child opens connections of its own.

    Args:
        catalog: name of the catalog, for messages.
        properties: `uri`, which ends in /api/v2; `token` or `authentication.token`; `authentication.type` ("NONE",
            "BEARER", "OAUTH2") and what belongs to it (`nessie_auth`); `transport.connect-timeout` and
            `transport.read-timeout` in ms: these may be written with the prefix `nessie.`. `ssl.cabundle`,
            `ssl.client.cert` and `ssl.client.key` as for REST catalogs.
    Raises:
        InvalidInputError, UnsupportedError: a property that can't be understood or isn't supported.
    """

    def __init__(self, catalog: str, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._base = _base_uri(catalog, properties)
        self._timeout = (
            _milliseconds(catalog, properties, "transport.connect-timeout", _CONNECT_TIMEOUT_MS) / 1000,
            _milliseconds(catalog, properties, "transport.read-timeout", _READ_TIMEOUT_MS) / 1000,
        )
        self._trusted = certificates_trusted(catalog, properties)
        self._certificate = certificate_shown(catalog, properties)
        self._session: requests.Session | None = None
        self._pid = 0
        self._secrets = Secrets(secrets_of(properties))
        self._auth = auth_of(catalog, properties, self._request, self._secrets.add_token)

    def __str__(self) -> str:
        return f"Nessie at {self._base}"

    def __repr__(self) -> str:
        return f"NessieClient(uri={self._base!r})"

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Ask, and ask again when no answer comes.

        Raises:
            Refusal: the server says no.
            StorageError: no usable answer.
        """
        return self._read("GET", path, params, None)

    def look_up(self, path: str, body: Json) -> Json:
        """Ask as `get` does, for a question that has a body."""
        return self._read("POST", path, None, body)

    def pages(self, path: str, field: str, params: Mapping[str, str] | None = None) -> Iterator[Json]:
        """Yield all entries of a list, whatever the size of its pages."""
        asked = dict(params or {})
        while True:
            answer = self.get(path, asked)
            yield from _entries(answer, field, self)
            if not answer.get("hasMore") or not answer.get("token"):
                return
            asked["page-token"] = answer["token"]

    def change(self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Json | None) -> Json:
        """Ask for a change, once.

        Raises:
            Refusal: the server says no; nothing was changed.
            StorageError: the request was never sent.
            CommitUnknownError: it was sent, and nobody knows what came of it.
        """
        try:
            reply = self._send(method, path, params, body)
        except requests.RequestException as error:
            if _was_never_sent(error):
                raise self._unreachable(error) from None
            raise self._unknown(type(error).__name__) from None
        if 400 <= reply.status_code < 500 and reply.status_code != 408:
            raise self._refusal(reply)
        document = _document(reply)
        if reply.status_code != 200 or document is None:
            raise self._unknown(f"HTTP {reply.status_code}")
        return document

    def denied(self, what: str, refusal: Refusal) -> StorageError:
        """Return the error for a refusal that is about the access or the request, and not about the data."""
        advice = "check the request"
        if refusal.status in (401, 403):
            advice = "check the token and what its owner may do"
        elif refusal.status == 429:
            advice = "try again later"
        return StorageError(f"catalog {self._catalog} cannot {what}: {self} answered: {refusal}; {advice}")

    def _read(self, method: str, path: str, params: Mapping[str, str] | None, body: Json | None) -> Json:
        for attempt in range(1, _READ_TRIES + 1):
            try:
                reply = self._send(method, path, params, body)
            except requests.RequestException as error:
                if attempt == _READ_TRIES or isinstance(error, requests.Timeout | requests.exceptions.SSLError):
                    raise self._unreachable(error) from None
            else:
                if reply.status_code not in _PASSING or attempt == _READ_TRIES:
                    return self._answer(reply)
            time.sleep(0.1 * attempt)
        raise AssertionError("the last try returns or raises")

    def _answer(self, reply: requests.Response) -> Json:
        if 400 <= reply.status_code < 500:
            raise self._refusal(reply)
        document = _document(reply)
        if reply.status_code != 200 or document is None:
            raise StorageError(
                f"catalog {self._catalog}: {self} gave no answer of Nessie's API (HTTP {reply.status_code}); check the "
                "uri, which ends in /api/v2, and that the server is well"
            )
        return document

    def _send(self, method: str, path: str, params: Mapping[str, str] | None, body: Json | None) -> requests.Response:
        reply, sent = self._send_once(method, path, params, body)
        if reply.status_code == 401 and self._auth.renew(sent):
            # Who was refused for the token was refused before the request was looked at.
            reply, _ = self._send_once(method, path, params, body)
        return reply

    def _send_once(
        self, method: str, path: str, params: Mapping[str, str] | None, body: Json | None
    ) -> tuple[requests.Response, Signable]:
        sent = Signable(method=method, url=f"{self._base}/{path}", headers={}, body=None)
        self._auth.apply(sent)
        return self._request(method, sent.url, params=params, json=body, headers=dict(sent.headers)), sent

    def _request(self, method: str, url: str, **more: Any) -> requests.Response:
        return self._usable_session().request(
            method,
            url,
            **more,
            auth=_leave_alone,  # given even without a token, or requests would send a login of ~/.netrc
            timeout=self._timeout,
            verify=self._trusted,
            cert=self._certificate,
            allow_redirects=False,
        )

    def _usable_session(self) -> requests.Session:
        if self._session is None or self._pid != os.getpid():
            # A connection must not be used by two processes: a child forgets its parent's.
            session = requests.Session()
            session.headers.update(_HEADERS)
            self._session, self._pid = session, os.getpid()
        return self._session

    def _refusal(self, reply: requests.Response) -> Refusal:
        document = _document(reply) or {}
        details = document.get("errorDetails") or {}
        conflicts = details.get("conflicts") or ()
        return Refusal(
            self._secrets.hide(str(document.get("message") or "")),
            status=reply.status_code,
            code=str(document.get("errorCode") or ""),
            conflicts=tuple(
                (str(each.get("conflictType")), tuple((each.get("key") or {}).get("elements") or ()))
                for each in conflicts
            ),
        )

    def _unreachable(self, error: requests.RequestException) -> StorageError:
        # Not its text: that of a proxy's failure may hold the proxy's login.
        reason = f"{type(error).__name__}{f' ({cause})' if (cause := _reason(error)) else ''}"
        return StorageError(
            f"catalog {self._catalog} cannot reach {self}: {reason}; check that it is up and the way to it"
        )

    def _unknown(self, reason: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"no answer from {self} to a change of catalog {self._catalog} ({reason}): it may have landed or not"
        )


def ref_path(name: str, hash_: str | None = None) -> str:
    """Return a reference as it stands in a path: slashes in its name are escaped."""
    return f"trees/{quote(name, safe='')}{f'@{hash_}' if hash_ else ''}"


def key_path(elements: Sequence[str]) -> str:
    """Return a content key as it stands in a path: elements joined by dots, dots in them as the character 0x1D."""
    return quote(key_text(elements), safe="")


def key_text(elements: Sequence[str]) -> str:
    """Return a content key as one text, as `key_path` without the escapes of a path."""
    return ".".join(element.replace(".", "\x1d") for element in elements)


def _leave_alone(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _entries(answer: Json, field: str, client: NessieClient) -> Sequence[Json]:
    entries = answer.get(field)
    if not isinstance(entries, list):
        raise StorageError(f"{client} answered without '{field}', which is not Nessie's API; check the uri")
    return entries


def _was_never_sent(error: requests.RequestException) -> bool:
    """Tell whether a request failed before its first byte was on the way: no name, no connection, no proxy, no trust.

    Other failures of TLS don't count: they come at any time.
    """
    if isinstance(error, requests.ConnectTimeout | requests.exceptions.ProxyError):
        return True
    reason = _inner(error)
    if isinstance(reason, urllib3.exceptions.SSLError):
        return any(isinstance(each, ssl.SSLCertVerificationError) for each in reason.args)
    return isinstance(reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)


def _reason(error: requests.RequestException) -> str:
    """Return what kind of failure is behind an error, such as NameResolutionError."""
    reason = _inner(error)
    return type(reason).__name__ if isinstance(reason, Exception) else ""


def _inner(error: requests.RequestException) -> object:
    inner = error.args[0] if error.args else None
    return inner.reason if isinstance(inner, urllib3.exceptions.MaxRetryError) else inner


def _document(reply: requests.Response) -> Json | None:
    try:
        document = reply.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _base_uri(catalog: str, properties: Mapping[str, str]) -> str:
    uri = nessie_property(properties, "uri").rstrip("/")
    expected = "expected for example http://127.0.0.1:19120/api/v2"
    if not uri:
        raise InvalidInputError(f"catalog {catalog}: property 'uri' is missing, {expected}")
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInputError(f"catalog {catalog}: its uri is not understood, {expected}")
    if parts.username or parts.password:
        # Not shown, and not used: a uri ends up in logs.
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
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidInputError(f"catalog {catalog}: property {name} is not a number of milliseconds above 0")
    return int(text)
