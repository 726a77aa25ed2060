"""The connection to a catalog server: addresses, time-outs, certificates, proxies, and the secrets to hide.

These are REST's properties; Nessie has the same ones for certificates. Not here: sending (`http.client`) and proofs of
identity (`http.auth`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus, unquote, urlsplit, urlunsplit

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.redaction import hidden_texts, replaced, without_secrets
from airflow_iceberg.storage.answer_limits import TABLE, TABLE_MB, Limit

_CONNECT_TIMEOUT_MS = 30_000
_READ_TIMEOUT_MS = 120_000
_MAX_RETRIES = 5
# Nobody tries all texts of this length.
_NO_GUESS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The properties of a connection.

    Attributes:
        timeouts_s: time limits of a connection, and of the wait for each part of an answer.
        headers: headers of every request; may hold secrets.
        verify: whether certificates are verified, or the file of the certificates to trust.
        certificate: our own certificate: a file with its key in it, or two files.
        proxy: proxy for http and https; by default the environment's.
        max_retries: number of retries of a request at most.
    """

    timeouts_s: tuple[float, float]
    headers: Mapping[str, str] = field(repr=False)
    verify: bool | str = True
    certificate: str | tuple[str, str] | None = None
    proxy: str | None = field(default=None, repr=False)
    max_retries: int = _MAX_RETRIES

    @classmethod
    def of(cls, catalog: str, properties: Mapping[str, str]) -> Settings:
        """Read `header.*`, `ssl.*` and `rest.client.*`, which PyIceberg and Iceberg Java have, too."""

        def number(name: str, default: int) -> int:
            return _whole_number(catalog, name, properties.get(name, str(default)))

        headers = {
            name.removeprefix("header."): value for name, value in properties.items() if name.startswith("header.")
        }
        return cls(
            timeouts_s=(
                number("rest.client.connection-timeout-ms", _CONNECT_TIMEOUT_MS) / 1000,
                number("rest.client.socket-timeout-ms", _READ_TIMEOUT_MS) / 1000,
            ),
            headers=headers,
            verify=certificates_trusted(catalog, properties),
            certificate=certificate_shown(catalog, properties),
            proxy=_proxy(properties),
            max_retries=number("rest.client.max-retries", _MAX_RETRIES),
        )


def page_size(catalog: str, properties: Mapping[str, str]) -> int | None:
    """Return the number of items in a page of a list (`rest-page-size`); None for the server's default."""
    text = properties.get("rest-page-size", "").strip()
    return _whole_number(catalog, "rest-page-size", text, least=1) if text else None


def table_limit(catalog: str, properties: Mapping[str, str]) -> Limit:
    """Return how large the answer about a table may be (`rest.client.max-table-mb`)."""
    text = properties.get("rest.client.max-table-mb", str(TABLE_MB))
    return TABLE.times(_whole_number(catalog, "rest.client.max-table-mb", text, least=1) / TABLE_MB)


def _whole_number(catalog: str, name: str, text: str, *, least: int = 0) -> int:
    number = whole_number(text.strip())
    if number is None or number < least:
        more = f" of {least} or more" if least else ""
        shown = text.strip()[:100]
        raise InvalidInputError(f"catalog {catalog}: property '{name}' is {shown!r}, expected a whole number{more}")
    return number


def certificates_trusted(catalog: str, properties: Mapping[str, str]) -> bool | str:
    """Return the file of the certificates to trust (`ssl.cabundle`), or True for the default ones."""
    bundle = properties.get("ssl.cabundle", "").strip()
    if bundle.lower() in ("", "true"):
        return True
    if bundle.lower() == "false":
        raise InvalidInputError(
            f"catalog {catalog}: property 'ssl.cabundle' is 'false', expected the file of certificates to trust"
        )
    return _existing(catalog, "ssl.cabundle", bundle)


def certificate_shown(catalog: str, properties: Mapping[str, str]) -> str | tuple[str, str] | None:
    """Return the file of our own certificate and key (`ssl.client.cert`, `ssl.client.key`), or two, or None."""
    certificate, key = (properties.get(f"ssl.client.{name}", "").strip() for name in ("cert", "key"))
    if key and not certificate:
        raise InvalidInputError(f"catalog {catalog}: property 'ssl.client.key' needs 'ssl.client.cert'")
    if not certificate:
        return None
    certificate = _existing(catalog, "ssl.client.cert", certificate)
    return (certificate, _existing(catalog, "ssl.client.key", key)) if key else certificate


def _existing(catalog: str, name: str, path: str) -> str:
    if not os.path.exists(path):
        raise InvalidInputError(f"catalog {catalog}: property '{name}' names {path}, which is not there")
    return path


def _proxy(properties: Mapping[str, str]) -> str | None:
    host, port = properties.get("rest.client.proxy.hostname"), properties.get("rest.client.proxy.port")
    if not host:
        return None
    user, password = properties.get("rest.client.proxy.username"), properties.get("rest.client.proxy.password")
    login = f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""
    return f"http://{login}{host}{f':{port}' if port else ''}"


class Secrets:
    """Texts that no message may show."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        found = set(hidden_texts(properties))
        # In the spelling of an address, which the server may repeat.
        found |= {form for secret in found for form in (quote(secret, safe=""), quote_plus(secret))}
        self._found = sorted(found, key=len, reverse=True)
        self._tokens: list[str] = []

    def add_token(self, token: str) -> None:
        """Hide a token from the server, and the last ones before it."""
        self._tokens = [*self._tokens[-8:], token]

    def __repr__(self) -> str:
        return "Secrets()"

    def hide(self, text: str, asked: str = "") -> str:
        """Return a text in which all of them, and what else looks like a secret, are replaced by asterisks.

        Args:
            asked: what the server was asked for, which it may repeat. Short secrets are not looked for if they are in
                it: by the asterisks who chose a name would see that it is one.
        """
        known = (*self._found, *self._tokens)
        return without_secrets(replaced(text, (one for one in known if len(one) >= _NO_GUESS or one not in asked)))

    def are_in(self, text: str) -> bool:
        """Tell whether a text shows one."""
        return self.hide(text) != text


def checked_uri(catalog: str, uri: str) -> str:
    """Return the address of a server without a slash at its end."""
    uri = uri.strip().rstrip("/")
    try:
        parts = urlsplit(uri)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidInputError(
            f"catalog {catalog}: property 'uri' is missing or no address, expected https://host/path"
        )
    return uri


def without_login(url: str) -> str:
    """Return an address without user and password, and without a query, which may hold a token."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "its address"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def asked_for(url: str) -> str:
    """Return the words of an address that tell what is asked for: its path and its query, not encoded."""
    parts = urlsplit(url)
    return f"{unquote(parts.path)} {unquote(parts.query)}"
