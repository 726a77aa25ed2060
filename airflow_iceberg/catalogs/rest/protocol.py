"""Documents of the REST catalog protocol, without any I/O: configuration, paths, and the requirements of a change.

Not here: sending (`http.client`), proofs of identity (`http.auth`), vended credentials (`rest.credentials`), and the
request of each method (`rest.catalog`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from airflow_iceberg.catalogs.base import Namespace, TableId
from airflow_iceberg.catalogs.rest.trust import request_properties
from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.metadata import requirements as required
from airflow_iceberg.format.metadata import updates as changed
from airflow_iceberg.format.metadata.requirements import Requirement
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, Update

_UNIT_SEPARATOR = "%1F"
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
        key_lifetime_s: seconds during which a request with an idempotency key may be retried; None without such keys.
    """

    properties: Mapping[str, str] = field(repr=False)
    defaults: Mapping[str, str] = field(repr=False)
    overrides: Mapping[str, str] = field(repr=False)
    endpoints: frozenset[str] = _DEFAULT_ENDPOINTS
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
            key_lifetime_s=None if lifetime is None else _seconds(str(lifetime)),
        )

    def offers(self, endpoint: Endpoint) -> bool:
        """Tell whether the server has an endpoint."""
        return str(endpoint) in self.endpoints

    def path(self, endpoint: Endpoint, namespace: Namespace = (), table: str = "") -> str:
        """Return the path of a request below the server's uri."""
        prefix = self.properties.get("prefix", "").strip("/")
        path = endpoint.path.replace("/{prefix}", f"/{prefix}" if prefix else "")
        path = path.replace("{namespace}", self.namespace_text(namespace))
        return _NAME_IN_PATH.sub(lambda _: quote(table, safe=""), path)

    def namespace_text(self, namespace: Namespace) -> str:
        """Return a namespace in a path or query: levels and separator are percent-encoded."""
        separator = unquote(self.properties.get(_SEPARATOR) or _UNIT_SEPARATOR)
        return quote(separator, safe="").join(quote(level, safe="") for level in namespace)


# --- changes ---------------------------------------------------------------------------------------------------------


def commit_body(table: TableId, change: Change) -> dict[str, Any]:
    """Return the body of a commit, with the table's name."""
    return {"identifier": {"namespace": list(table.namespace), "name": table.name}, **change.to_dict()}


def with_requirements(base: TableMetadata, change: Change) -> Change:
    """Return the change with its implicit assumptions as requirements: the server may have newer metadata.

    A catalog that swaps files detects another writer's commit by itself. Here the server applies the updates to the
    table's newest state, so everything that the updates depend on must be asserted.
    """
    implied: list[Requirement] = [required.AssertTableUUID(uuid=base.table_uuid)] if base.table_uuid else []
    for update in change.updates:
        implied += _implied(base, update)
    wanted = list(change.requirements)
    wanted += [requirement for requirement in dict.fromkeys(implied) if requirement not in wanted]
    return Change(updates=change.updates, requirements=tuple(wanted))


def _implied(base: TableMetadata, update: Update) -> Iterator[Requirement]:
    """Yield the assumptions of one update."""
    match update.action:
        case "add-snapshot":
            # Differs from Java: its files fit this schema, in which a column may have become required since, and this
            # spec, which is never removed while it is the default one. Of the format version a server sees itself
            # whether the snapshot has the numbers that it requires.
            yield required.AssertCurrentSchemaId(current_schema_id=base.current_schema_id)
            yield required.AssertDefaultSpecId(default_spec_id=base.default_spec_id)
        case "add-schema":
            yield required.AssertLastAssignedFieldId(last_assigned_field_id=base.last_column_id)
        case "set-current-schema":
            yield required.AssertCurrentSchemaId(current_schema_id=base.current_schema_id)
        case "add-spec":
            yield required.AssertLastAssignedPartitionId(last_assigned_partition_id=base.last_partition_id)
        case "set-default-spec":
            yield required.AssertDefaultSpecId(default_spec_id=base.default_spec_id)
        case "set-default-sort-order":
            yield required.AssertDefaultSortOrderId(default_sort_order_id=base.default_sort_order_id)
        case "set-snapshot-ref" | "remove-snapshot-ref":
            name = update.ref_name  # type: ignore[attr-defined]  # both have it
            yield _unmoved(base, name)
        case "remove-snapshots":
            # Differs from Java: a branch that moved meanwhile may need the snapshots; Java does not check that.
            yield from (_unmoved(base, name) for name in sorted(base.refs))
        case "remove-schemas" | "remove-partition-specs":
            yield required.AssertCurrentSchemaId(current_schema_id=base.current_schema_id)
            yield required.AssertDefaultSpecId(default_spec_id=base.default_spec_id)
            yield from (_unmoved(base, name) for name in sorted(base.refs))


def _unmoved(base: TableMetadata, name: str) -> Requirement:
    ref = base.refs.get(name)
    return required.AssertRefSnapshotId(ref=name, snapshot_id=None if ref is None else ref.snapshot_id)


def is_plain(metadata: TableMetadata) -> bool:
    """Tell whether it is the metadata of a new and empty table, which one request can create."""
    return not (
        metadata.snapshots
        or metadata.refs
        or metadata.statistics
        or metadata.partition_statistics
        or metadata.metadata_log
        or len(metadata.schemas) > 1
        or len(metadata.partition_specs) > 1
        or any(order.order_id != metadata.default_sort_order_id and order.fields for order in metadata.sort_orders)
    )


def create_body(name: str, metadata: TableMetadata, *, stage: bool = False) -> dict[str, Any]:
    """Return the request that creates a table; without a location the server chooses one."""
    order = metadata.sort_order()
    body: dict[str, Any] = {"name": name}
    if metadata.location:
        body["location"] = metadata.location
    body["schema"] = metadata.schema().to_dict()
    body["partition-spec"] = metadata.spec().to_dict()
    if order.fields:
        body["write-order"] = order.to_dict()
    body["stage-create"] = stage
    # The format version is a property in this request only; no server stores it as one.
    body["properties"] = {**metadata.properties, "format-version": str(metadata.format_version)}
    return body


def creation(metadata: TableMetadata, *, table_uuid: str, location: str) -> Change:
    """Return the change that creates a staged table, with snapshots, branches and tags.

    Args:
        table_uuid: the staged table's id, from the server.
        location: the table's own location, or the server's choice.
    """
    updates: list[Update] = [
        changed.AssignUUID(uuid=table_uuid),
        changed.UpgradeFormatVersion(format_version=metadata.format_version),
        changed.SetLocation(location=location),
    ]
    # The server assigns ids in this order, so that the current ones stay the same.
    updates += [changed.AddSchema(schema=schema) for schema in metadata.schemas]
    updates.append(changed.SetCurrentSchema(schema_id=metadata.current_schema_id))
    updates += [changed.AddPartitionSpec(spec=spec) for spec in metadata.partition_specs]
    updates.append(changed.SetDefaultSpec(spec_id=metadata.default_spec_id))
    updates += [changed.AddSortOrder(sort_order=order) for order in metadata.sort_orders]
    updates.append(changed.SetDefaultSortOrder(sort_order_id=metadata.default_sort_order_id))
    if metadata.properties:
        updates.append(changed.SetProperties(updates=dict(metadata.properties)))
    updates += [changed.AddSnapshot(snapshot=snapshot) for snapshot in metadata.snapshots]
    updates += [changed.SetSnapshotRef(ref_name=name, ref=ref) for name, ref in metadata.refs.items()]
    updates += [
        changed.SetStatistics(snapshot_id=int(each["snapshot-id"]), statistics=each) for each in metadata.statistics
    ]
    return Change(updates=tuple(updates), requirements=(required.AssertCreate(),))


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
    """Return the table of an entry of a list; None for a name that cannot be written as `namespace.table`."""
    entry = Fields(item, place)
    namespace, name = entry.str_list("namespace"), entry.str("name")
    try:
        return TableId(namespace=namespace, name=name)
    except InvalidInputError:
        return None


def parse_levels(place: str, item: Any) -> Namespace:
    """Return the levels of a namespace, of an entry of a list."""
    return Fields({place: item}).str_list(place)


def identifier(table: TableId) -> dict[str, Any]:
    """Return a table's identifier in a request."""
    return {"namespace": list(table.namespace), "name": table.name}
