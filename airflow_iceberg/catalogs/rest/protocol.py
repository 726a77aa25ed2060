"""Documents of the REST catalog protocol, without any I/O: configuration, endpoints and paths.

Not here: the changes of tables (`rest.changes`), sending (`http.client`), proofs of identity (`http.auth`), vended
credentials (`rest.credentials`), and the request of each method (`rest.catalog`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from airflow_iceberg.catalogs.base import Namespace, TableId, join_levels
from airflow_iceberg.catalogs.names import is_name
from airflow_iceberg.catalogs.rest.trust import request_properties
from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.json_fields import Fields

_UNIT_SEPARATOR = "%1F"
# What may stand in a path as it is: a separator comes encoded, as servers look for it before they decode.
_IN_A_PATH = "%!$&'()*+,;=:@"
_NAME_IN_PATH = re.compile(r"\{(?:table|view|function)\}")
_SEPARATOR = "namespace-separator"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One kind of request: its method, and its path with names in braces, as in the protocol's own document."""

    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _endpoint(text: str) -> Endpoint:
    method, _, path = text.partition(" ")
    return Endpoint(method=method, path=f"/v1/{{prefix}}/{path}")


LIST_NAMESPACES = _endpoint("GET namespaces")
CREATE_NAMESPACE = _endpoint("POST namespaces")
LOAD_NAMESPACE = _endpoint("GET namespaces/{namespace}")
NAMESPACE_EXISTS = _endpoint("HEAD namespaces/{namespace}")
DROP_NAMESPACE = _endpoint("DELETE namespaces/{namespace}")
UPDATE_NAMESPACE = _endpoint("POST namespaces/{namespace}/properties")
LIST_TABLES = _endpoint("GET namespaces/{namespace}/tables")
CREATE_TABLE = _endpoint("POST namespaces/{namespace}/tables")
LOAD_TABLE = _endpoint("GET namespaces/{namespace}/tables/{table}")
COMMIT_TABLE = _endpoint("POST namespaces/{namespace}/tables/{table}")
TABLE_EXISTS = _endpoint("HEAD namespaces/{namespace}/tables/{table}")
DROP_TABLE = _endpoint("DELETE namespaces/{namespace}/tables/{table}")
LOAD_CREDENTIALS = _endpoint("GET namespaces/{namespace}/tables/{table}/credentials")
SIGN_TABLE = _endpoint("POST namespaces/{namespace}/tables/{table}/sign")
REGISTER_TABLE = _endpoint("POST namespaces/{namespace}/register")
RENAME_TABLE = _endpoint("POST tables/rename")
COMMIT_TABLES = _endpoint("POST transactions/commit")
NO_NAMESPACE = "NoSuchNamespaceException"
"""The type of the error for a missing namespace."""
ANSWERED_BY_A_TABLE = (CREATE_TABLE, LOAD_TABLE, COMMIT_TABLE, REGISTER_TABLE)
"""Their answers have the metadata of the table, all of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherKind:
    """What else than a table can have a name in a namespace.

    Attributes:
        one: the requests that ask for one of them, the cheap one first.
        all: the request that lists them.
    """

    name: str
    one: tuple[Endpoint, Endpoint]
    all: Endpoint


def _other(name: str) -> OtherKind:
    listing = f"namespaces/{{namespace}}/{name}s"
    one = _endpoint(f"HEAD {listing}/{{{name}}}"), _endpoint(f"GET {listing}/{{{name}}}")
    return OtherKind(name=name, one=one, all=_endpoint(f"GET {listing}"))


OTHER_KINDS = (_other("view"), _other("function"))

# The endpoints of a server that does not list them. Those with HEAD, and later ones, are not among them.
_DEFAULT_ENDPOINTS = frozenset(
    str(endpoint)
    for endpoint in (
        *(LIST_NAMESPACES, CREATE_NAMESPACE, LOAD_NAMESPACE, DROP_NAMESPACE, UPDATE_NAMESPACE),
        *(LIST_TABLES, CREATE_TABLE, LOAD_TABLE, COMMIT_TABLE, DROP_TABLE),
        *(REGISTER_TABLE, RENAME_TABLE, COMMIT_TABLES),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """A server's configuration, merged with the user's properties.

    Attributes:
        properties: the user's, with what the server may add or override (`rest.trust`); may hold secrets.
        defaults, overrides: all that the server says, whether it is used or not; may hold secrets.
        endpoints: the endpoints that the server offers.
        is_told: whether the server itself says which ones.
        key_lifetime_s: seconds during which a request with an idempotency key may be retried; None without such keys.
    """

    properties: Mapping[str, str] = field(repr=False)
    defaults: Mapping[str, str] = field(repr=False)
    overrides: Mapping[str, str] = field(repr=False)
    endpoints: frozenset[str] = _DEFAULT_ENDPOINTS
    is_told: bool = False
    key_lifetime_s: float | None = None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], given: Mapping[str, str]) -> ServerConfig:
        """Read the answer to `GET /v1/config`; `FormatError` if it is no configuration."""
        defaults, overrides = config_texts(document, "defaults"), config_texts(document, "overrides")
        listed = document.get("endpoints")
        if listed is not None and not (isinstance(listed, list) and all(isinstance(item, str) for item in listed)):
            raise FormatError(
                "unexpected value of 'endpoints' (expected a list of texts) in the server's configuration"
            )
        lifetime = document.get("idempotency-key-lifetime")
        return cls(
            properties=request_properties(given, defaults, overrides),
            defaults=defaults,
            overrides=overrides,
            endpoints=frozenset(" ".join(item.split()) for item in listed) if listed else _DEFAULT_ENDPOINTS,
            is_told=bool(listed),
            key_lifetime_s=None if lifetime is None else _seconds(str(lifetime)),
        )

    def can_name(self, namespace: Namespace) -> bool:
        """Tell whether a request names these levels, and no others: none has the server's separator in it.

        Some servers decode a path before they divide it, so that an encoding does not tell them apart.
        """
        separator = self._separator
        return separator.join(namespace).split(separator) == list(namespace)

    @property
    def _separator(self) -> str:
        return unquote(self.properties.get(_SEPARATOR) or _UNIT_SEPARATOR)

    def check_levels(self, namespace: Namespace, catalog: str) -> None:
        """Raise `InvalidInputError` for levels that no request can name."""
        if not self.can_name(namespace):
            raise InvalidInputError(
                f"namespace {join_levels(namespace)} cannot be named in catalog {catalog}: its server writes "
                f"{self._separator!r} between two levels, so none may contain that; rename it"
            )

    @property
    def is_nessie(self) -> bool:
        """Whether the server says that it is Nessie."""
        return {**self.defaults, **self.overrides}.get("nessie.is-nessie-catalog", "").lower() == "true"

    def offers(self, endpoint: Endpoint) -> bool:
        """Tell whether the server has an endpoint."""
        return str(endpoint) in self.endpoints

    def lists(self, endpoint: Endpoint) -> bool:
        """Tell whether the server says itself that it has an endpoint."""
        return self.is_told and self.offers(endpoint)

    def path(self, endpoint: Endpoint, namespace: Namespace = (), table: str = "") -> str:
        """Return the path of a request below the server's uri."""
        prefix = self.properties.get("prefix", "").strip("/")
        path = endpoint.path.replace("/{prefix}", f"/{prefix}" if prefix else "")
        path = path.replace("{namespace}", self.namespace_text(namespace))
        return _NAME_IN_PATH.sub(lambda _: quote(table, safe=""), path)

    def namespace_text(self, namespace: Namespace) -> str:
        """Return a namespace in a path: encoded levels, and the separator as the server writes it, which is encoded.

        Iceberg Java's server divides the path before it decodes it: "a%2Eb" has two levels, and "a.b" one.
        """
        separator = quote(self.properties.get(_SEPARATOR) or _UNIT_SEPARATOR, safe=_IN_A_PATH)
        return separator.join(quote(level, safe="") for level in namespace)

    def namespace_query(self, namespace: Namespace) -> str:
        """Return a namespace in a query, which servers decode before they divide it.

        They take the separator that is the default, too, where a level has their own in it.
        """
        separator = unquote(self.properties.get(_SEPARATOR) or _UNIT_SEPARATOR)
        if any(separator in level for level in namespace):
            separator = unquote(_UNIT_SEPARATOR)
        return quote(separator.join(namespace), safe="")


# --- values -----------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Return a value in a query."""
    return quote(text, safe="")


def config_texts(document: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return an object of texts in an answer, empty if it is missing or null; `FormatError` if it is no object."""
    found = document.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise FormatError(f"unexpected type {type(found).__name__} (expected object) in '{key}' of the server's answer")
    return {
        str(name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in found.items()
        if value is not None
    }


def _seconds(duration: str) -> float:
    """Return the seconds of an ISO 8601 duration; 0 for an invalid one: then nothing is retried."""
    found = _DURATION.fullmatch(duration.strip())
    if not found:
        return 0.0
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_identifier(place: str, item: Any) -> TableId | None:
    """Return the table of an entry of a list; None for a name that no catalog accepts."""
    entry = Fields(item, place)
    namespace, name = entry.str_list("namespace"), entry.str("name")
    if not namespace or not all(map(is_name, (*namespace, name))):
        return None
    return TableId(namespace=namespace, name=name)


def parse_levels(place: str, item: Any) -> Namespace:
    """Return the levels of a namespace, of an entry of a list."""
    return Fields({place: item}).str_list(place)


def identifier(table: TableId) -> dict[str, Any]:
    """Return a table's identifier in a request."""
    return {"namespace": list(table.namespace), "name": table.name}
