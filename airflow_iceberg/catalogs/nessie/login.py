"""How a Nessie catalog proves its identity: the properties `authentication.*`, and the request for a token.

Not here: when a token is renewed (`http.auth`), and sending (`http.client`).
"""

from __future__ import annotations

import base64
import getpass
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus

from airflow_iceberg.catalogs.http.auth import Auth, FixedAuth, NoAuth, OAuth2Auth
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.catalogs.http.settings import without_login
from airflow_iceberg.errors import InvalidInputError, StorageError, UnsupportedError

_OAUTH2 = "authentication.oauth2."
_DISCOVERY = "/.well-known/openid-configuration"
_PURPOSE = "get a token"
_ADVICE = f"check {_OAUTH2}token-endpoint, client-id, client-secret and client-scopes"


def nessie_property(properties: Mapping[str, str], name: str) -> str:
    """Return a property, given by its own name or with the prefix `nessie.`; "" if it is not given."""
    return (properties.get(f"nessie.{name}") or properties.get(name) or "").strip()


def author_of(properties: Mapping[str, str]) -> str:
    """Return the author of commits: the property `user`, or the user of the process."""
    try:
        return nessie_property(properties, "user") or getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "airflow"  # a container without a name for its user


def auth_of(catalog: str, properties: Mapping[str, str], http: Http) -> Auth:
    """Return a catalog's proof of identity; `http` sends the requests for tokens, when they are needed."""
    token = nessie_property(properties, "authentication.token") or nessie_property(properties, "token")
    kind = nessie_property(properties, "authentication.type").upper()
    if kind == "OAUTH2":
        return OAuth2Auth(_fetcher(catalog, properties, http))
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


def _fetcher(catalog: str, properties: Mapping[str, str], http: Http) -> Callable[[], Mapping[str, Any]]:
    """Return a function that requests a token, as Nessie's own clients do.

    The client sends its secret by Basic, as RFC 6749 (2.3.1) prefers; a public client has none and sends its id alone.
    """

    def missing(what: str) -> InvalidInputError:
        return InvalidInputError(f"catalog {catalog}: authentication.type is OAUTH2, set {_OAUTH2}{what}")

    issuer = nessie_property(properties, f"{_OAUTH2}issuer-url")
    endpoint = nessie_property(properties, f"{_OAUTH2}token-endpoint")
    if not endpoint and not issuer:
        raise missing("token-endpoint (or issuer-url)")
    client, secret = (nessie_property(properties, f"{_OAUTH2}client-{word}") for word in ("id", "secret"))
    if not client:
        raise missing("client-id")
    form, headers = _form(catalog, properties), {}
    if secret:
        login = f"{quote_plus(client)}:{quote_plus(secret)}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    elif form["grant_type"] == "client_credentials":
        raise missing("client-secret")
    else:
        form["client_id"] = client

    def fetch() -> Mapping[str, Any]:
        nonlocal endpoint
        endpoint = endpoint or _discovered(catalog, issuer, http)
        return http.fetch_document(endpoint, form, headers=headers, purpose=_PURPOSE, advice=_ADVICE)

    return fetch


def _discovered(catalog: str, issuer: str, http: Http) -> str:
    url = issuer.rstrip("/")
    url = url if url.endswith(_DISCOVERY) else f"{url}{_DISCOVERY}"
    found = http.fetch_document(url, purpose=_PURPOSE, advice=_ADVICE).get("token_endpoint")
    if not isinstance(found, str) or "://" not in found:
        raise StorageError(f"catalog {catalog} cannot {_PURPOSE}: {without_login(url)} names no token_endpoint")
    if url.lower().startswith("https:") and not found.lower().startswith("https:"):
        raise StorageError(
            f"catalog {catalog} cannot {_PURPOSE}: {without_login(url)} names a token_endpoint without https, which "
            f"would get the client's secret in plain text; set {_OAUTH2}token-endpoint"
        )
    return found


def _form(catalog: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the form that requests a token: for the client itself, or for a user by its password."""
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
