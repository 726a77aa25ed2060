"""How a Nessie catalog proves who it is: a bearer token of its own, or one that an OAuth2 server gives.

Lives here: the properties `authentication.*` and the question for a token. Not here: when a token is renewed
(`rest_auth`), and sending (`nessie_client`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus

import requests

from airflow_iceberg.catalogs.http.auth import Auth, FixedAuth, NoAuth, OAuth2Auth
from airflow_iceberg.catalogs.http.settings import without_login
from airflow_iceberg.errors import InvalidInputError, StorageError, UnsupportedError

_OAUTH2 = "authentication.oauth2."
_DISCOVERY = "/.well-known/openid-configuration"
# What an authorization server calls its refusal: one word of RFC 6749, and no repetition of what it was sent.
_REFUSAL = re.compile(r"[a-z_]{1,40}")

Send = Callable[..., requests.Response]


def nessie_property(properties: Mapping[str, str], name: str) -> str:
    """Return a property, given by its own name or with the prefix `nessie.`; "" if it is not given."""
    return (properties.get(f"nessie.{name}") or properties.get(name) or "").strip()


def secrets_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that no message may show."""
    names = ("token", "authentication.token", f"{_OAUTH2}client-secret", f"{_OAUTH2}password")
    return {name: nessie_property(properties, name) for name in names}


def auth_of(catalog: str, properties: Mapping[str, str], send: Send, on_token: Callable[[str], None]) -> Auth:
    """Return the proof that a catalog's properties ask for; nothing is sent before it is needed.

    Args:
        send: sends a request as `requests.request` does, with the catalog's time-outs and certificates.
        on_token: hears of each token that an OAuth2 server gives.
    Raises:
        InvalidInputError, UnsupportedError: properties are missing, or ask for what isn't supported.
    """
    token = nessie_property(properties, "authentication.token") or nessie_property(properties, "token")
    kind = nessie_property(properties, "authentication.type").upper()
    if kind == "OAUTH2":
        return OAuth2Auth(_OAuth2(catalog, properties, send, on_token))
    if kind not in ("", "NONE", "BEARER"):
        raise UnsupportedError(
            f"catalog {catalog}: authentication.type '{kind}' is not supported, use BEARER with a token, OAUTH2 or NONE"
        )
    if kind == "BEARER" and not token:
        raise InvalidInputError(f"catalog {catalog}: authentication.type is BEARER and there is no token, set it")
    if not kind and not token and nessie_property(properties, f"{_OAUTH2}client-id"):
        raise InvalidInputError(
            f"catalog {catalog}: {_OAUTH2}client-id is set and authentication.type is not, set it to OAUTH2"
        )
    return NoAuth() if kind == "NONE" or not token else FixedAuth(f"Bearer {token}")


class _OAuth2:
    """Asks an authorization server for a token, as Nessie's own clients do.

    The client shows its secret by Basic, as RFC 6749 (2.3.1) prefers; a public client has none and says its id alone.
    """

    def __init__(
        self, catalog: str, properties: Mapping[str, str], send: Send, on_token: Callable[[str], None]
    ) -> None:
        self._catalog = catalog
        self._send = send
        self._on_token = on_token
        self._endpoint = nessie_property(properties, f"{_OAUTH2}token-endpoint")
        self._issuer = nessie_property(properties, f"{_OAUTH2}issuer-url")
        if not self._endpoint and not self._issuer:
            raise self._missing("token-endpoint (or issuer-url)")
        client = nessie_property(properties, f"{_OAUTH2}client-id")
        if not client:
            raise self._missing("client-id")
        secret = nessie_property(properties, f"{_OAUTH2}client-secret")
        self._headers = {"Accept": "application/json"}
        self._form = _form(catalog, properties)
        if secret:
            login = f"{quote_plus(client)}:{quote_plus(secret)}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        elif self._form["grant_type"] == "client_credentials":
            raise self._missing("client-secret")
        else:
            self._form["client_id"] = client

    def _missing(self, what: str) -> InvalidInputError:
        return InvalidInputError(f"catalog {self._catalog}: authentication.type is OAUTH2, set {_OAUTH2}{what}")

    def __call__(self) -> Mapping[str, Any]:
        """Return the document with `access_token`.

        Raises:
            StorageError: no answer, or a refusal.
        """
        self._endpoint = self._endpoint or self._discovered()
        document = self._document("POST", self._endpoint, headers=self._headers, data=self._form)
        token = document.get("access_token")
        if isinstance(token, str) and token:
            self._on_token(token)
        return document

    def _discovered(self) -> str:
        url = self._issuer.rstrip("/")
        url = url if url.endswith(_DISCOVERY) else f"{url}{_DISCOVERY}"
        found = self._document("GET", url, headers={"Accept": "application/json"}).get("token_endpoint")
        if not isinstance(found, str) or "://" not in found:
            raise StorageError(
                f"catalog {self._catalog} cannot get a token: {without_login(url)} names no token_endpoint"
            )
        return found

    def _document(self, method: str, url: str, **more: Any) -> Mapping[str, Any]:
        where = f"catalog {self._catalog} cannot get a token from {without_login(url).partition('?')[0]}"
        try:
            reply = self._send(method, url, **more)
        except (requests.RequestException, OSError) as error:
            # Not its text, and not as the cause: a proxy's failure may hold the proxy's login.
            raise StorageError(f"{where}: {type(error).__name__}; check {_OAUTH2}token-endpoint") from None
        try:
            document = reply.json()
        except ValueError:
            document = None
        if reply.status_code != 200 or not isinstance(document, dict):
            code = document.get("error") if isinstance(document, dict) else None
            told = f" ({code})" if isinstance(code, str) and _REFUSAL.fullmatch(code) else ""
            raise StorageError(
                f"{where}: HTTP {reply.status_code}{told}; check {_OAUTH2}client-id, client-secret and client-scopes"
            )
        return document


def _form(catalog: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return what is asked for: a token for the client itself, or for a user whose password it knows."""
    grant = nessie_property(properties, f"{_OAUTH2}grant-type").lower() or "client_credentials"
    form = {"grant_type": grant}
    if grant == "password":
        for name in ("username", "password"):
            form[name] = nessie_property(properties, f"{_OAUTH2}{name}")
            if not form[name]:
                raise InvalidInputError(f"catalog {catalog}: {_OAUTH2}grant-type is password, set {_OAUTH2}{name}")
    elif grant != "client_credentials":
        raise UnsupportedError(
            f"catalog {catalog}: {_OAUTH2}grant-type '{grant}' is not supported, use client_credentials or password"
        )
    if scopes := nessie_property(properties, f"{_OAUTH2}client-scopes"):
        form["scope"] = scopes
    return form
