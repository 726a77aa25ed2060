"""How a catalog proves its identity: bearer tokens, OAuth2 client credentials, Basic, and SigV4.

Here: the headers of a request, and when a token is renewed. Not here: sending requests (`http.client`).
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.errors import InvalidInputError, StorageError, UnsupportedError, advised, missing_package, switch

log = logging.getLogger(__name__)

DEFAULT_SCOPE = "catalog"
# A token is renewed when less than a tenth of its life is left, and at most this long before its end.
_RENEW_BEFORE_S = 300.0
_DEFAULT_LIFE_S = 3600.0
_RELOCATED = "Original-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signable:
    """The parts of a request that a signature covers."""

    method: str
    url: str
    headers: MutableMapping[str, str]
    body: bytes | None


class Auth:
    """A proof of identity in requests."""

    def apply(self, request: Signable) -> None:
        """Add headers to a request that is complete otherwise."""

    def renew(self, request: Signable) -> bool:
        """Get a new proof after the server rejected the one in this request; return whether there is one."""
        return False


class NoAuth(Auth):
    """No proof."""


@dataclass(frozen=True)
class FixedAuth(Auth):
    """The same Authorization header in every request: a bearer token that is renewed elsewhere, or Basic."""

    value: str = field(repr=False)

    @classmethod
    def basic(cls, user: str, password: str) -> FixedAuth:
        """Return Basic authentication."""
        return cls(f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}")

    def apply(self, request: Signable) -> None:
        request.headers["Authorization"] = self.value


class OAuth2Auth(Auth):
    """A bearer token of an authorization server, renewed before it expires and when the catalog's server rejects it.

    Thread-safe: one thread renews, the others wait for it.

    Args:
        fetch: a function that returns the authorization server's JSON document with `access_token`.
        token: a first token, used until it expires.
        lifetime_s: lifetime of the first token; None if it is in the token.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        fetch: Callable[[], Mapping[str, Any]],
        *,
        token: str | None = None,
        lifetime_s: float | None = None,
        renew_early: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._fetch = fetch
        self._now = now
        self._renew_early = renew_early
        self._lock = threading.Lock()
        self._token = token
        self._renew_at = float("inf") if token is None else self._deadline(token, lifetime_s)

    def __repr__(self) -> str:
        return "OAuth2Auth()"

    def token(self) -> str:
        """Return a token that is valid for a while."""
        with self._lock:
            if self._token is None:
                self._replace()
            elif self._renew_early and self._now() >= self._renew_at:
                try:
                    self._replace()
                except StorageError as error:
                    # The old one may still be valid; if it isn't, the catalog's server rejects it.
                    log.warning("could not renew the token before it expires: %s", error)
            return self._token or ""

    def apply(self, request: Signable) -> None:
        request.headers["Authorization"] = f"Bearer {self.token()}"

    def renew(self, request: Signable) -> bool:
        used = request.headers.get("Authorization") or request.headers.get(f"{_RELOCATED}Authorization")
        with self._lock:
            if used == f"Bearer {self._token}":  # else another thread has renewed it since
                self._replace()
        return True

    def _replace(self) -> None:
        answer = self._fetch()
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise StorageError("the authorization server answered without an access_token")
        kind = answer.get("token_type")
        if isinstance(kind, str) and kind.lower() not in ("bearer", "n_a"):
            raise UnsupportedError(f"the authorization server gave a token of type {kind[:40]}, expected bearer")
        expires_in = answer.get("expires_in")
        try:
            lifetime = None if expires_in is None else float(expires_in)
        except (TypeError, ValueError, OverflowError):
            lifetime = None
        self._token, self._renew_at = token, self._deadline(token, lifetime)

    def _deadline(self, token: str, lifetime_s: float | None) -> float:
        now = self._now()
        if lifetime_s is None:
            expires_at = _expiry(token)
            lifetime_s = expires_at - now if expires_at is not None else _DEFAULT_LIFE_S
        return now + lifetime_s - min(_RENEW_BEFORE_S, max(lifetime_s, 0) / 10)


class SigV4Auth(Auth):
    """AWS Signature Version 4 over a request with another proof.

    Args:
        inner: the other proof; its Authorization header is moved to `Original-Authorization`, as Iceberg Java does.
        properties: `rest.signing-region`, `rest.signing-name`, `rest.access-key-id`, `rest.secret-access-key`,
            `rest.session-token`; by default the environment's keys.
    """

    def __init__(self, catalog: str, inner: Auth, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._inner = inner
        self._name = properties.get("rest.signing-name", "execute-api")
        self._region = properties.get("rest.signing-region") or properties.get("client.region")
        self._keys = _aws_keys(properties)
        self._profile = properties.get("client.profile-name")
        self._credentials: Any = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SigV4Auth(name={self._name!r}, region={self._region!r})"

    def apply(self, request: Signable) -> None:
        self._inner.apply(request)
        if "Authorization" in request.headers:
            request.headers[f"{_RELOCATED}Authorization"] = request.headers.pop("Authorization")
        auth, aws = _botocore(self._catalog)
        from botocore.exceptions import BotoCoreError

        try:
            credentials, region = self._usable()
            # Only the parts that no proxy changes are signed; botocore adds the host, the date and the session's token.
            signed = aws.AWSRequest(method=request.method, url=request.url, data=request.body or b"")
            auth.SigV4Auth(credentials, self._name, region).add_auth(signed)
        except (BotoCoreError, RuntimeError) as error:  # it raises RuntimeError for credentials that stay old
            text = f"catalog {self._catalog}: there are no valid AWS keys to sign requests with ({error})"
            to_do = "check the clock of this machine, and the profile or role that gives them"
            raise advised(StorageError(text), to_do) from error
        request.headers.update(dict(signed.headers.items()))

    def renew(self, request: Signable) -> bool:
        return self._inner.renew(request)

    def _usable(self) -> tuple[Any, str]:
        from botocore.credentials import Credentials
        from botocore.session import Session

        with self._lock:
            session = None
            if self._credentials is None:
                session = Session(profile=self._profile)
                self._credentials = Credentials(*self._keys) if self._keys else session.get_credentials()
            if self._region is None:
                self._region = (session or Session(profile=self._profile)).get_config_variable("region")
        if self._credentials is None:
            raise InvalidInputError(
                f"catalog {self._catalog}: there are no AWS keys to sign requests with, set rest.access-key-id and "
                f"rest.secret-access-key, or the environment of the AWS SDK"
            )
        if not self._region:
            raise InvalidInputError(f"catalog {self._catalog}: property 'rest.signing-region' is missing")
        return self._credentials.get_frozen_credentials(), self._region


def _botocore(catalog: str) -> tuple[Any, Any]:
    try:
        from botocore import auth, awsrequest
    except ImportError:
        what = f"catalog {catalog}: signing requests (rest.sigv4-enabled) needs botocore"
        raise missing_package(what, "botocore") from None
    return auth, awsrequest


def _aws_keys(properties: Mapping[str, str]) -> tuple[str, str, str | None] | None:
    for prefix in ("rest.", "client."):
        key, secret = properties.get(f"{prefix}access-key-id"), properties.get(f"{prefix}secret-access-key")
        if key and secret:
            return key, secret, properties.get(f"{prefix}session-token")
    return None


def auth_for(
    catalog: str, properties: Mapping[str, str], fetch: Callable[[Mapping[str, str]], Mapping[str, Any]]
) -> Auth:
    """Return a catalog's proof of identity.

    Args:
        fetch: a function that sends a form to the authorization server and returns its JSON document.
    """
    kind = properties.get("rest.auth.type", "").strip().lower()
    is_signed = switch(properties, "rest.sigv4-enabled", whose=f"catalog {catalog}: ") or kind == "sigv4"
    if kind == "sigv4":
        kind = properties.get("rest.auth.sigv4.delegate-auth-type", "").strip().lower()
    auth = _plain_auth(catalog, kind, properties, fetch)
    return SigV4Auth(catalog, auth, properties) if is_signed else auth


def _plain_auth(
    catalog: str, kind: str, properties: Mapping[str, str], fetch: Callable[[Mapping[str, str]], Mapping[str, Any]]
) -> Auth:
    if kind == "none":
        return NoAuth()
    if kind == "basic":
        user, password = properties.get("rest.auth.basic.username"), properties.get("rest.auth.basic.password")
        if not user or password is None:
            raise InvalidInputError(
                f"catalog {catalog}: rest.auth.type is 'basic', set rest.auth.basic.username and .password"
            )
        return FixedAuth.basic(user, password)
    if kind not in ("", "oauth2"):
        raise UnsupportedError(
            f"catalog {catalog}: rest.auth.type '{kind}' is not supported, use one of none, basic, oauth2, sigv4"
        )
    token, credential = properties.get("token"), properties.get("credential")
    if credential:
        form = client_credentials(credential, properties)
        early = switch(properties, "token-refresh-enabled", default=True, whose=f"catalog {catalog}: ")
        life = _milliseconds(catalog, properties, "token-expires-in-ms")
        return OAuth2Auth(lambda: fetch(form), token=token or None, lifetime_s=life, renew_early=early)
    return FixedAuth(f"Bearer {token}") if token else NoAuth()


def client_credentials(credential: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the form that requests a token; a credential without a colon is a secret without an id."""
    client, colon, secret = credential.partition(":")
    return {
        "grant_type": "client_credentials",
        **({"client_id": client, "client_secret": secret} if colon else {"client_secret": client}),
        "scope": properties.get("scope") or DEFAULT_SCOPE,
        **{name: properties[name] for name in ("audience", "resource") if properties.get(name)},
    }


def _milliseconds(catalog: str, properties: Mapping[str, str], name: str) -> float | None:
    text = properties.get(name)
    if text is None:
        return None
    try:
        return float(text) / 1000
    except ValueError:
        raise InvalidInputError(f"catalog {catalog}: property '{name}' is {text!r}, expected a number") from None


def _expiry(token: str) -> float | None:
    """Return the seconds since the epoch at which a JWT expires; None for another kind of token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
