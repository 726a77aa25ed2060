"""An Airflow connection as the properties of a catalog, its secrets known and masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.redaction import secrets_of

if TYPE_CHECKING:
    from airflow.sdk import Connection


# Keys of a connection's extra that are about the connection itself and never reach the catalog.
NAME_KEY = "catalog_name"


PROPERTIES_KEY = "properties"


# Catalogs that take user and password of a database in their URI.
_SQL_TYPES = frozenset({"sql", "jdbc"})


_DEFAULT_SCHEMES = {"rest": "https", "hive": "thrift", "nessie": "https", "glue": "https"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogConfig:
    """What `load_catalog` is called with.

    Attributes:
        name: name of the catalog; SQL catalogs keep it in their rows, so it must be the one that others use.
        properties: under PyIceberg's names; secrets included, hence not shown.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_connection(cls, connection: Connection, extra: Mapping[str, Any] | None = None) -> CatalogConfig:
        """Read a connection of type `iceberg_catalog`, or one of the official provider's type `iceberg`.

        Args:
            extra: the connection's extra where the caller has it already (in a trigger it is read asynchronously).
        Raises:
            InvalidInputError: the extra's `properties` are not a JSON object.
        """
        found = dict(connection.extra_dejson if extra is None else extra)
        conn_id = connection.conn_id or ""
        name = str(found.pop(NAME_KEY, None) or conn_id)
        properties = {**nested_properties(found.pop(PROPERTIES_KEY, None), conn_id), **text_properties(found)}
        if connection.conn_type == "iceberg":
            # The official provider takes a connection without a type for a REST catalog.
            properties.setdefault("type", "rest")
        _add_uri(properties, connection)
        _add_login(properties, connection.login, connection.password)
        return cls(name=name, properties=properties)

    def secrets(self) -> list[str]:
        """Return every text that no log may show."""
        return secrets_of(self.properties)


@contextmanager
def existing(conn_id: str, kind: str, conn_type: str) -> Iterator[None]:
    """Tell a connection that is not there from a service that does not answer: trying again helps only the second.

    Args:
        kind: what it leads to, for the message.
        conn_type: the type to create it with.
    Raises:
        NotFoundError: Airflow, asked inside of the block, has no such connection.
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    try:
        yield
    except AirflowNotFoundException as error:
        raise NotFoundError(
            f"{kind} connection {conn_id!r} does not exist; create it with connection type {conn_type}, or set "
            f"AIRFLOW_CONN_{conn_id.upper()}"
        ) from error


async def mask_async(secrets: Sequence[str]) -> None:
    """Mask secrets in all logs, from a trigger."""
    try:
        from airflow.sdk.log import amask_secret
    except ImportError:  # Airflow before 3.3.2: the triggerer's own process masks, which is where the trigger logs
        from airflow.sdk.log import mask_secret

        for secret in secrets:
            mask_secret(secret)
        return
    for secret in secrets:
        await amask_secret(secret)


def nested_properties(value: Any, conn_id: str) -> dict[str, str]:
    """Read the extra's field `properties`: a JSON object, or its text as a form field keeps it."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except ValueError as error:
            raise InvalidInputError(
                f"extra field 'properties' of connection {conn_id!r} is not JSON (line {getattr(error, 'lineno', 1)}); "
                f'expected an object such as {{"s3.endpoint": "…"}}'
            ) from None  # the decoder's error holds the text, and with it secrets
    if value is not None and not isinstance(value, dict):
        raise InvalidInputError(
            f"extra field 'properties' of connection {conn_id!r} is of type {type(value).__name__}, "
            f'expected an object such as {{"s3.endpoint": "…"}}'
        )
    return text_properties(value or {})


def text_properties(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as catalogs take them: text; fields that a form left empty are no fields."""
    found = {}
    for key, value in values.items():
        if value is None or value == "":
            continue
        if isinstance(value, bool):
            value = str(value).lower()
        found[str(key)] = value if isinstance(value, str) else json.dumps(value)
    return found


def _add_uri(properties: dict[str, str], connection: Connection) -> None:
    host = (connection.host or "").strip()
    if not host:
        return
    if "://" not in host and not host.startswith(("jdbc:", "sqlite:")):
        scheme = _DEFAULT_SCHEMES.get(properties.get("type", ""))
        host = f"{scheme}://{host}" if scheme else host
    key = "glue.endpoint" if properties.get("type") == "glue" else "uri"
    properties[key] = _with_port(host, connection.port)


def _with_port(uri: str, port: int | None) -> str:
    if uri.startswith("thrift:") and "," in uri:  # several metastores
        return ",".join(_with_port(part.strip(), port) for part in uri.split(","))
    parts = urlsplit(uri)
    if not port or not parts.netloc or re.search(r":\d+$", parts.netloc):
        return uri
    return urlunsplit(parts._replace(netloc=f"{parts.netloc}:{port}"))


def _add_login(properties: dict[str, str], login: str | None, password: str | None) -> None:
    """Put login and password where the catalog's type looks for them; what the extra says explicitly wins."""
    if not login and not password:
        return
    uri, kind = properties.get("uri", ""), properties.get("type")
    if uri.startswith("jdbc:"):
        properties.setdefault("jdbc.user", login or "")
        properties.setdefault("jdbc.password", password or "")
    elif kind in _SQL_TYPES or (kind is None and not uri.startswith(("http", "thrift"))):
        properties["uri"] = _with_login(uri, login or "", password or "")
    elif kind == "rest" or (kind is None and uri.startswith("http")):
        if not properties.get("token"):
            credential = f"{login}:{password or ''}" if login else str(password)
            properties.setdefault("credential", credential)
    elif kind == "hive" or uri.startswith("thrift"):
        properties.setdefault("user", login or "")
        properties.setdefault("password", password or "")
    elif kind == "nessie":
        for name, value in (("user", login), ("token", password)):
            if value:
                properties.setdefault(name, value)
    elif kind == "glue" and login and password:
        properties.setdefault("glue.access-key-id", login)
        properties.setdefault("glue.secret-access-key", password)


def _with_login(uri: str, login: str, password: str) -> str:
    parts = urlsplit(uri)
    if not parts.netloc or "@" in parts.netloc:
        return uri  # a file such as SQLite's knows no users; a user in the URI itself wins
    user = quote(login, safe="") + (f":{quote(password, safe='')}" if password else "")
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc}"))
