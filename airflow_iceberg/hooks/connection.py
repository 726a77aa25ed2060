"""An Airflow connection as the properties of a catalog, with its secrets masked in all logs."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from airflow_iceberg.errors import InvalidInputError, NotFoundError, advised, came
from airflow_iceberg.redaction import secrets_of

if TYPE_CHECKING:
    from airflow.sdk import BaseHook, Connection


log = logging.getLogger(__name__)

# Types of connections to catalogs.
_CATALOG_TYPES = ("iceberg_catalog", "iceberg", "generic", "")
# Catalogs that take user and password of a database in their URI.
_SQL_TYPES = frozenset({"sql", "jdbc"})
_DEFAULT_SCHEMES = {"rest": "https", "hive": "thrift", "nessie": "https", "glue": "https"}


_KINDS = {str: "string", list: "list", int: "number", float: "number"}
PAGE_FIELDS = ("table-url", "snapshot-url")


class Config(Protocol):
    """What a hook reads from its connection."""

    @classmethod
    def from_connection(cls, connection: Connection, extra: Mapping[str, Any] | None = None) -> Self:
        """Read a connection.

        Args:
            extra: the connection's extra, where it was read already, as in a trigger.

        Raises:
            InvalidInputError: the extra's `properties` are not a JSON object.
        """

    def secrets(self) -> list[str]:
        """Return every text that no log may show."""


ConfigT = TypeVar("ConfigT", bound=Config)


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogConfig:
    """The arguments of `load_catalog`, from a connection of type `iceberg_catalog` or of the official provider.

    Attributes:
        name: the name of the catalog. SQL catalogs store it in their rows: all programs must use the same name.
        properties: the properties, with PyIceberg's names; secrets included, hence not shown.
        pages: the addresses of the pages of tables and snapshots, with placeholders, by the fields of the extra.
        conn_type: the type of the connection.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)
    pages: Mapping[str, str] = field(repr=False, default_factory=dict)
    conn_type: str = ""

    @classmethod
    def from_connection(cls, connection: Connection, extra: Mapping[str, Any] | None = None) -> CatalogConfig:
        """See `Config`."""
        found = extra_of(connection, extra)
        name = str(found.pop("catalog_name", None) or connection.conn_id or "")
        properties = properties_of(found, connection.conn_id or "")
        # Nothing for the catalog, which would send them to a server.
        pages = {name: properties.pop(name) for name in PAGE_FIELDS if name in properties}
        if connection.conn_type == "iceberg":
            # The official provider takes a connection without a type for a REST catalog.
            properties.setdefault("type", "rest")
        _add_uri(properties, connection)
        _add_login(properties, connection.login, connection.password)
        return cls(name=name, properties=properties, pages=pages, conn_type=connection.conn_type or "")

    def secrets(self) -> list[str]:
        """See `Config`."""
        return secrets_of({**self.properties, **self.pages})

    def check_type(self) -> None:
        """Check that a connection of another service, which names no type of catalog, may be one all the same.

        Raises:
            InvalidInputError: its address is not one of a catalog.
        """
        from airflow_iceberg.catalogs.load import guessed_type

        if "type" in self.properties or self.conn_type in _CATALOG_TYPES:
            return
        guessed, what = guessed_type(self.properties), f"the connection of catalog {self.name!r} is of type"
        if guessed:
            log.warning("%s %r, and is used for a catalog of type %s", what, self.conn_type, guessed)
            return
        raise advised(
            InvalidInputError(f"{what} {self.conn_type!r}, which is not one of a catalog"),
            "name a connection of type iceberg_catalog, or change its type and choose the catalog's type in its extra",
        )


def read_config(hook: BaseHook, conn_id: str, kind: str, conn_type: str, config: type[ConfigT]) -> ConfigT:
    """Read the connection of a hook, and mask its secrets in all logs.

    Args:
        kind: the kind of the connection, for the message.

    Raises:
        NotFoundError: the connection does not exist.
    """
    from airflow.sdk.log import mask_secret

    check_conn_id(kind, conn_id)
    with _existing(conn_id, kind, conn_type):
        connection = hook.get_connection(conn_id)
    found = config.from_connection(connection)
    for secret in found.secrets():
        mask_secret(secret)
    _warn_of_shown(connection, connection.extra_dejson or {})
    return found


async def read_config_async(conn_id: str, kind: str, conn_type: str, config: type[ConfigT]) -> ConfigT:
    """Read a connection in a trigger, and mask its secrets in all logs.

    A synchronous call to the supervisor, from the event loop of the triggerer, can deadlock.

    Raises:
        NotFoundError: the connection does not exist.
    """
    from airflow.sdk import BaseHook, Connection

    check_conn_id(kind, conn_id)
    with _existing(conn_id, kind, conn_type):
        if hasattr(Connection, "aextra_dejson"):
            connection = await BaseHook.aget_connection(conn_id)
            extra = await connection.aextra_dejson() or {}
        else:
            # Before Airflow 3.3.2 the asynchronous call, too, masks secrets by a synchronous request, which in a thread
            # of asgiref goes through this event loop. Older versions of common-compat do not do the same for the extra.
            from asgiref.sync import sync_to_async

            connection, extra = await sync_to_async(_connection_and_extra)(conn_id)
    found = config.from_connection(connection, extra)
    await _mask_async(found.secrets())
    _warn_of_shown(connection, extra)
    return found


def check_conn_id(kind: str, conn_id: object) -> None:
    """Raise InvalidInputError for what is no id of a connection."""
    if not isinstance(conn_id, str) or not conn_id.strip():
        raise InvalidInputError(f"the id of the {kind} connection is {came(conn_id)}, expected a name as text")


def _connection_and_extra(conn_id: str) -> tuple[Connection, dict[str, Any]]:
    from airflow.sdk import BaseHook

    connection = BaseHook.get_connection(conn_id)
    return connection, connection.extra_dejson or {}


def _warn_of_shown(connection: Connection, extra: Mapping[str, Any]) -> None:
    """Log a warning for secrets in a connection that Airflow's UI and API show to everybody who may read connections.

    These are a password in the address, and a secret that is a number. Other ones are shown or hidden by their names,
    as `[core] sensitive_var_conn_names` says.
    """
    found = [name for name, value in _numbers(extra) if secrets_of({name: value})]
    if secrets_of({"host": connection.host or ""}):
        found.append("host")
    for name in found:
        what = "contains a login" if name == "host" else "is a number"
        advice = "use login and password instead" if name == "host" else "write it as text, in quotes"
        log.warning("%s of connection %r %s, which Airflow's UI shows: %s", name, connection.conn_id, what, advice)


def _numbers(extra: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the numbers in a connection's extra and in its `properties`, as text."""
    nested = extra.get("properties")
    for name, value in {**(nested if isinstance(nested, dict) else {}), **extra}.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield str(name), str(value)


@contextmanager
def _existing(conn_id: str, kind: str, conn_type: str) -> Iterator[None]:
    """Raise an error that is not retried if Airflow, which the block asks, does not know the connection."""
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    try:
        yield
    except AirflowNotFoundException as error:
        variable = f"AIRFLOW_CONN_{conn_id.upper()}"
        if (value := os.environ.get(variable)) is not None:
            what = "cannot be read: it is neither a JSON object nor a URI" if value.strip() else "is empty"
            raise advised(
                InvalidInputError(f"{kind} connection {conn_id!r}: the environment variable {variable} {what}"),
                f'set it to a JSON object such as {{"conn_type": "{conn_type}", "extra": {{…}}}}',
            ) from None  # the parser's error may quote the value
        raise advised(
            NotFoundError(f"{kind} connection {conn_id!r} does not exist"),
            f"create it with connection type {conn_type}, or set {variable}",
        ) from error


async def _mask_async(secrets: Sequence[str]) -> None:
    try:
        from airflow.sdk.log import amask_secret
    except ImportError:  # Airflow before 3.3.2: the triggerer's own process masks, which is where the trigger logs
        from airflow.sdk.log import mask_secret

        for secret in secrets:
            mask_secret(secret)
        return
    for secret in secrets:
        await amask_secret(secret)


def extra_of(connection: Connection, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the extra of a connection.

    Args:
        extra: the same, where it was read already.

    Raises:
        InvalidInputError: the extra is no JSON object. Airflow takes such an extra for an empty one.
    """
    text = getattr(connection, "extra", None)
    if isinstance(text, str) and text.strip():
        try:
            found = json.loads(text)
            kind = "" if found is None or isinstance(found, dict) else f"a {_KINDS.get(type(found), 'truth value')}"
        except (ValueError, RecursionError) as error:
            kind = f"not JSON (line {getattr(error, 'lineno', 1)})"
        if kind:
            raise InvalidInputError(
                f"the extra of connection {connection.conn_id!r} is {kind}; expected a JSON object such as "
                f'{{"type": "rest"}}'
            )
    return dict((connection.extra_dejson or {}) if extra is None else extra)


def properties_of(extra: Mapping[str, Any], conn_id: str) -> dict[str, str]:
    """Return the properties in a connection's extra: its keys, and those of its field `properties`.

    The field is a JSON object, or its text if it was entered in a form.
    """
    nested = extra.get("properties")
    if isinstance(nested, str):
        try:
            nested = json.loads(nested) if nested.strip() else {}
        except ValueError as error:
            raise InvalidInputError(
                f"extra field 'properties' of connection {conn_id!r} is not JSON (line {getattr(error, 'lineno', 1)}); "
                f'expected an object such as {{"s3.endpoint": "…"}}'
            ) from None  # the decoder's error holds the text, and with it secrets
    if nested is not None and not isinstance(nested, dict):
        raise InvalidInputError(
            f"extra field 'properties' of connection {conn_id!r} is of type {type(nested).__name__}, "
            f'expected an object such as {{"s3.endpoint": "…"}}'
        )
    return {**_texts(nested or {}), **_texts({name: value for name, value in extra.items() if name != "properties"})}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as text, without those that a form left empty."""
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
    if properties.get(key):
        log.warning(
            "connection %r has an address as its host, and a field %r, which is not used: the host is; leave one out",
            connection.conn_id,
            key,
        )
    properties[key] = _with_port(host, connection.port)


def _with_port(uri: str, port: int | None) -> str:
    if uri.startswith("thrift:") and "," in uri:  # several metastores
        return ",".join(_with_port(part.strip(), port) for part in uri.split(","))
    parts = urlsplit(uri)
    if not port or not parts.netloc or re.search(r":\d+$", parts.netloc):
        return uri
    return urlunsplit(parts._replace(netloc=f"{parts.netloc}:{port}"))


def _add_login(properties: dict[str, str], login: str | None, password: str | None) -> None:
    """Add login and password under the names of the catalog's type; values of the extra take precedence."""
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
        return uri  # a file such as SQLite's has no users; a user in the URI itself takes precedence
    user = quote(login, safe="") + (f":{quote(password, safe='')}" if password else "")
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc}"))
