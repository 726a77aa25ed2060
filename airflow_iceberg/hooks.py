"""From an Airflow connection to a catalog and its tables.

Here: how the fields of a connection become the properties of a catalog, the hook, and the test behind the button
"Test". Not here: what a catalog does (`catalogs`), what a table does (`table`), and what an error means to Airflow
(`failures`). Importing this module is cheap; a catalog's client is loaded when the catalog is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from airflow.sdk import BaseHook

from airflow_iceberg.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.sdk import Connection

    from airflow_iceberg.catalogs.base import Catalog
    from airflow_iceberg.spec.schema import Schema
    from airflow_iceberg.table import Table

# Keys of a connection's extra that are about the connection itself and never reach the catalog.
NAME_KEY = "catalog_name"
PROPERTIES_KEY = "properties"

# Catalogs that take user and password of a database in their URI.
_SQL_TYPES = frozenset({"sql", "jdbc"})
_DEFAULT_SCHEMES = {"rest": "https", "hive": "thrift", "nessie": "https", "glue": "https"}
# Wider than Airflow's own list, which knows neither `credential` nor `account-key`.
_SECRET = re.compile(
    r"secret|passw|token|credential|access.?key|account.?key|connection.?string|\bsas\b|\bauth\b|authorization|"
    r"private.?key|session.?kwargs",
    re.IGNORECASE,
)
# Values of settings that only sound like secrets ("token-refresh-enabled", "…-expires-at-ms"): masking them would tear
# holes into every log.
_NO_SECRET = re.compile(r"true|false|none|[0-9.]*|anon|cloud|https?://[^@?]*", re.IGNORECASE)
_PLAIN_HEADERS = frozenset(
    {"header.x-iceberg-access-delegation", "header.accept", "header.content-type", "header.user-agent"}
)


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
        found: list[str] = []
        for key, value in self.properties.items():
            if _is_secret(key):
                found += [value, *_inner_secrets(value)]
            found += _url_secrets(value)
        # `credential` is "id:secret", of which the second half gives access by itself.
        found.append(self.properties.get("credential", "").partition(":")[2])
        return [secret for secret in dict.fromkeys(found) if not _NO_SECRET.fullmatch(secret)]


class IcebergHook(BaseHook):
    """Opens the catalog of an Airflow connection, and its tables.

    Args:
        iceberg_conn_id: a connection of type `iceberg_catalog`; connections of the official provider's type `iceberg`
            are taken as they are.
    """

    conn_name_attr = "iceberg_conn_id"
    default_conn_name = "iceberg_catalog_default"
    conn_type = "iceberg_catalog"
    hook_name = "Iceberg Catalog"

    def __init__(self, iceberg_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.iceberg_conn_id = iceberg_conn_id

    @cached_property
    def config(self) -> CatalogConfig:
        """The connection, read once; its secrets are masked in all logs from here on."""
        from airflow.sdk.log import mask_secret

        with existing(self.iceberg_conn_id, "catalog", self.conn_type):
            connection = self.get_connection(self.iceberg_conn_id)
        config = CatalogConfig.from_connection(connection)
        for secret in config.secrets():
            mask_secret(secret)
        return config

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, opened once."""
        from airflow_iceberg.catalogs import load_catalog

        return load_catalog(self.config.name, **self.config.properties)

    def get_conn(self) -> Catalog:
        """Return the catalog."""
        return self.catalog

    def load_table(self, name: str) -> Table:
        """Load a table by namespace and name, `sales.orders`.

        Raises:
            NotFoundError: there is no such table.
        """
        from airflow_iceberg.table import Table

        return Table.load(self.catalog, name)

    def create_table(
        self,
        name: str,
        *,
        schema: Mapping[str, Any] | Schema | pa.Schema,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        location: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table; see `Table.create`."""
        from airflow_iceberg.table import Table

        return Table.create(
            self.catalog,
            name,
            schema=schema,
            partition_by=partition_by,
            sort_by=sort_by,
            properties=properties,
            location=location,
            if_not_exists=if_not_exists,
        )

    def test_connection(self) -> tuple[bool, str]:
        """Walk from the connection to the warehouse and name the first step that fails.

        Returns:
            Whether all steps worked, and a text for the person who pressed "Test".
        """
        from airflow_iceberg.diagnosis import Diagnosis, Step, catalog_steps, network_steps

        def read_the_connection() -> None:
            diagnosis.secrets = self.config.secrets()

        def open_the_catalog() -> None:
            _ = self.catalog

        diagnosis = Diagnosis()
        failed = (
            diagnosis.follow(iter([Step(what="read the connection", run=read_the_connection)]))
            or diagnosis.follow(network_steps(self.config.properties))
            or diagnosis.follow(iter([Step(what="open the catalog", run=open_the_catalog)]))
            or diagnosis.follow(catalog_steps(self.catalog, diagnosis.cautions))
        )
        if failed:
            return False, failed
        kind = self.config.properties.get("type", "guessed from its uri")
        return True, diagnosis.report(f"catalog {self.config.name!r} (type {kind})")


async def load_catalog_async(iceberg_conn_id: str) -> Catalog:
    """Open a connection's catalog from a trigger without blocking the triggerer's event loop.

    Secrets are masked asynchronously too: a synchronous call to the supervisor from the event loop can deadlock.
    """
    import asyncio

    from airflow.providers.common.compat.connection import get_async_connection, get_async_extra_dejson

    with existing(iceberg_conn_id, "catalog", IcebergHook.conn_type):
        connection = await get_async_connection(iceberg_conn_id)
    config = CatalogConfig.from_connection(connection, await get_async_extra_dejson(connection))
    await mask_async(config.secrets())

    def load() -> Catalog:
        from airflow_iceberg.catalogs import load_catalog

        return load_catalog(config.name, **config.properties)

    return await asyncio.to_thread(load)


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


def _is_secret(key: str) -> bool:
    """Whether the value of a property must not be shown; a header of any name may hold a key."""
    name = key.lower()
    return bool(_SECRET.search(key)) or (name.startswith("header.") and name not in _PLAIN_HEADERS)


def _inner_secrets(value: str) -> list[str]:
    """Return the secrets inside of one: a JSON object's texts, a connection string's key, a signature, a token."""
    found = re.findall(r"^(?:Bearer|Basic|Token|ApiKey)\s+(\S+)$", value, re.IGNORECASE)
    found += re.findall(r"(?:AccountKey|SharedAccessSignature)=([^;]+)", value)
    found += re.findall(r"(?:^|[?&])sig=([^&;]+)", value)
    if value.startswith("{"):
        with suppress(ValueError):
            found += [text for text in _leaves(json.loads(value)) if len(text) > 7]
    return found


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        yield value


def _url_secrets(text: str) -> list[str]:
    """Return the password of a URL, and what its query gives away, as they are written and as they are meant."""
    if "://" not in text:
        return []
    found = []
    with suppress(ValueError):
        parts = urlsplit(text.removeprefix("jdbc:"))
        found += [parts.password] if parts.password else []
        for name, value in (pair.split("=", 1) for pair in parts.query.split("&") if "=" in pair):
            found += [value] if _SECRET.search(name) or name == "sig" else []
    return [spelling for each in found for spelling in dict.fromkeys((each, unquote(each)))]
