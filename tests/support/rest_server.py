"""A REST catalog in memory, on loopback: right by default, over our own rules of metadata, and told to misbehave.

    with RestServer(tmp_path.as_uri()) as server:
        server.spoil = Spoiled("ignore", "add-schema")     # until it is healed: `server.spoil = None`

Tables are kept as metadata; each version is also written as a file, so that it can be registered. Not here: what the
misbehaviours mean for a client (`tests/catalogs/test_rest_misbehaviour.py`).
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from airflow_iceberg.errors import CommitConflictError, IcebergError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata import requirements as required
from airflow_iceberg.format.metadata import updates as changed
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import Change, Update, apply_change
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import SortOrder
from tests.support.http_server import HttpServer, Reply, Request, document

Body = dict[str, Any]
Name = tuple[tuple[str, ...], str]
How = Literal["ignore", "keep", "change", "refuse", "lose before", "lose after"]
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "schema": Schema.from_dict,
    "spec": PartitionSpec.from_dict,
    "sort-order": SortOrder.from_dict,
    "snapshot": Snapshot.from_dict,
}
UPDATES = {kind.action: kind for kind in Update.__subclasses__()}
_PARENTS = (required.Requirement, *required.Requirement.__subclasses__())
_REQUIREMENTS = {kind.type: kind for parent in _PARENTS for kind in parent.__subclasses__() if kind.type}


class Refused(Exception):
    """An answer with an error."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.reply = document({"error": {"message": message, "type": kind, "code": status}}, status=status)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spoiled:
    """What the server makes of the requests that it means, all of them until it is healed.

    Attributes:
        how: to "keep" is to answer rightly, and to keep what is made of another body.
        action: of an update, of which it means the commits and creations that have one; or the beginning of a request,
            as "POST /v1/namespaces".
        change: makes another update, or another body of a request, of one.
        status: of the refusal.
        times: how often; for ever by default.
    """

    how: How
    action: str
    change: Callable[[Body], Body | None] = lambda body: body
    status: int = 400
    times: list[int] | None = None

    def means(self, request: Request, body: Body) -> bool:
        if self.times is not None and not self.times[0]:
            return False
        if " " in self.action:
            method, path = self.action.split(" ")
            found = request.method == method and urlsplit(request.path).path.endswith(path)
        else:
            found = any(update["action"] == self.action for update in _updates(body))
        if found and self.times is not None:
            self.times[0] -= 1
        return found

    def body(self, body: Body) -> Body:
        """Return what the server understands of a request."""
        if self.how not in ("ignore", "change"):
            return body
        if " " in self.action:
            return self.change(body) or {}
        made = {**body}
        if "updates" in body:
            made["updates"] = list(self._updates(body["updates"]))
        if "table-changes" in body:
            made["table-changes"] = [self.body(each) for each in body["table-changes"]]
        return made

    def _updates(self, updates: list[Body]) -> Iterator[Body]:
        for update in updates:
            if update["action"] != self.action:
                yield update
            elif self.how == "change" and (other := self.change(json.loads(json.dumps(update)))) is not None:
                yield other


def _updates(body: Body) -> list[Body]:
    several = body.get("table-changes")
    return [one for each in several for one in each["updates"]] if several else body.get("updates") or []


class RestServer(HttpServer):
    """A server with a warehouse in a folder.

    Attributes:
        namespaces: their properties.
        tables: the metadata and the location of its file, by name.
        spoil: how it misbehaves.
        config: its configuration, as it is answered.
    """

    def __init__(self, warehouse: str, **config: Any) -> None:
        super().__init__(self._serve)
        self.warehouse = warehouse.rstrip("/")
        self.namespaces: dict[tuple[str, ...], dict[str, str]] = {}
        self.tables: dict[Name, tuple[TableMetadata, str]] = {}
        self.spoil: Spoiled | None = None
        self.config: Body = {"defaults": {}, "overrides": {}, **config}
        self._one_at_a_time = threading.Lock()
        self._now_ms = 1_750_000_000_000
        self._uuid = str(uuid.uuid4())

    def _serve(self, request: Request) -> Reply | None:
        body = json.loads(request.body) if request.body else {}
        with self._one_at_a_time:
            spoil = self.spoil if self.spoil is not None and self.spoil.means(request, body) else None
            if spoil is not None and spoil.how == "lose before":
                return None
            if spoil is not None and spoil.how == "refuse":
                return Refused(spoil.status, "SpoiledException", "no").reply
            try:
                if spoil is not None and spoil.how == "ignore" and " " in spoil.action:
                    return self._pretended(request, body)
                if spoil is not None and spoil.how == "keep":
                    pretended = self._pretended(request, body)
                    self._answer(request, spoil.change(body) or {})
                    return pretended
                reply = self._answer(request, body if spoil is None else spoil.body(body))
            except Refused as refused:
                reply = refused.reply
            except IcebergError as error:  # a document that says what cannot be
                reply = Refused(400, "BadRequestException", str(error)).reply
            return None if spoil is not None and spoil.how == "lose after" else reply

    def _pretended(self, request: Request, body: Body) -> Reply:
        """Say that something was done which was not."""
        if request.method == "DELETE" or request.path.endswith("/rename"):
            return Reply(status=204, body=b"")
        if request.path.endswith("/tables"):
            return self._loaded(self._new(self._space(request), body), None)
        if request.path.endswith("/register"):
            location = body["metadata-location"]
            return self._loaded(metadata_json.read(Path(urlsplit(location).path).read_bytes()), location)
        if "/tables/" in request.path:
            name = unquote(urlsplit(request.path).path.rpartition("/")[2])
            made = self._applied((self._space(request), name), body)
            return self._loaded(made, f"{made.location}/metadata/{uuid.uuid4()}.metadata.json")
        return document(body)

    def _space(self, request: Request) -> tuple[str, ...]:
        parts = urlsplit(request.path).path.split("/")[3:]
        return tuple(unquote(parts[0]).split("\x1f")) if parts else ()

    def _answer(self, request: Request, body: Body) -> Reply:
        url = urlsplit(request.path)
        parts, query = url.path.split("/")[2:], parse_qs(url.query)
        match request.method, *parts:
            case "GET", "config":
                return document(self.config)
            case "POST", "tables", "rename":
                return self._rename(body)
            case "POST", "transactions", "commit":
                return self._commit_several(body)
            case _, "namespaces":
                return self._all_namespaces(request.method, body, query)
            case _, "namespaces", space:
                return self._namespace(request.method, tuple(unquote(space).split("\x1f")))
            case "POST", "namespaces", space, "properties":
                return self._properties(tuple(unquote(space).split("\x1f")), body)
            case _, "namespaces", space, "tables":
                return self._all_tables(request.method, tuple(unquote(space).split("\x1f")), body)
            case "POST", "namespaces", space, "register":
                return self._register(tuple(unquote(space).split("\x1f")), body)
            case _, "namespaces", space, "tables", name:
                return self._table(request.method, (tuple(unquote(space).split("\x1f")), unquote(name)), body)
        raise Refused(404, "NotFoundException", f"nothing at {url.path}")

    # -- namespaces --

    def _all_namespaces(self, method: str, body: Body, query: Mapping[str, list[str]]) -> Reply:
        if method == "POST":
            space = tuple(body["namespace"])
            if space in self.namespaces:
                raise Refused(409, "AlreadyExistsException", f"namespace {space} exists")
            self.namespaces[space] = dict(body.get("properties") or {})
            return document({"namespace": list(space), "properties": self.namespaces[space]})
        above = tuple(query["parent"][0].split("\x1f")) if "parent" in query else ()
        if above:
            self._check_namespace(above)
        found = [list(each) for each in self.namespaces if len(each) == len(above) + 1 and each[: len(above)] == above]
        return document({"namespaces": found})

    def _check_namespace(self, space: tuple[str, ...]) -> None:
        if space not in self.namespaces:
            raise Refused(404, "NoSuchNamespaceException", f"no namespace {space}")

    def _namespace(self, method: str, space: tuple[str, ...]) -> Reply:
        self._check_namespace(space)
        if method == "DELETE":
            if any(each[0] == space for each in self.tables):
                raise Refused(409, "NamespaceNotEmptyException", f"namespace {space} is not empty")
            del self.namespaces[space]
            return Reply(status=204, body=b"")
        return document({"namespace": list(space), "properties": self.namespaces[space]})

    def _properties(self, space: tuple[str, ...], body: Body) -> Reply:
        self._check_namespace(space)
        found = self.namespaces[space]
        for name in body.get("removals") or ():
            found.pop(name, None)
        found.update(body.get("updates") or {})
        return document({"updated": sorted(body.get("updates") or {}), "removed": [], "missing": []})

    # -- tables --

    def _all_tables(self, method: str, space: tuple[str, ...], body: Body) -> Reply:
        self._check_namespace(space)
        if method == "GET":
            found = [{"namespace": list(each[0]), "name": each[1]} for each in self.tables if each[0] == space]
            return document({"identifiers": found})
        name = (space, body["name"])
        if name in self.tables:
            raise Refused(409, "AlreadyExistsException", f"table {name} exists")
        made = self._new(space, body)
        if body.get("stage-create"):
            return self._loaded(made, None)
        return self._loaded(*self._keep(name, made))

    def _new(self, space: tuple[str, ...], body: Body) -> TableMetadata:
        properties = dict(body.get("properties") or {})
        version = int(properties.pop("format-version", "2"))
        spec, order = body.get("partition-spec"), body.get("write-order")
        return new_table_metadata(
            location=body.get("location") or f"{self.warehouse}/{'/'.join(space)}/{body['name']}",
            schema=Schema.from_dict(body["schema"]),
            **({"spec": PartitionSpec.from_dict(spec)} if spec else {}),
            **({"sort_order": SortOrder.from_dict(order)} if order else {}),
            properties=properties,
            table_uuid=self._uuid,
            now_ms=self._tick(),
            format_version=version,
        )

    def _tick(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def _keep(self, name: Name, metadata: TableMetadata) -> tuple[TableMetadata, str]:
        location = f"{metadata.location}/metadata/{uuid.uuid4()}.metadata.json"
        path = Path(urlsplit(location).path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(metadata_json.write(metadata))
        self._uuid = str(uuid.uuid4())
        self.tables[name] = metadata, location
        return self.tables[name]

    def _loaded(self, metadata: TableMetadata, location: str | None) -> Reply:
        found = {"metadata": metadata_json.to_dict(metadata), "config": {}}
        return document({**found, **({"metadata-location": location} if location else {})})

    def _table(self, method: str, name: Name, body: Body) -> Reply:
        if method == "POST":
            return self._loaded(*self._keep(name, self._applied(name, body)))
        if name not in self.tables:
            raise Refused(404, "NoSuchTableException", f"no table {name}")
        if method == "DELETE":
            del self.tables[name]
            return Reply(status=204, body=b"")
        return self._loaded(*self.tables[name])

    def _applied(self, name: Name, body: Body) -> TableMetadata:
        change = change_of(body)
        there = self.tables.get(name)
        is_new = any(isinstance(one, required.AssertCreate) for one in change.requirements)
        if there is None and not is_new:
            raise Refused(404, "NoSuchTableException", f"no table {name}")
        if there is not None and is_new:
            raise Refused(409, "AlreadyExistsException", f"table {name} exists")
        base, location = there or (self._blank(change), None)
        if is_new:
            change = replace(change, requirements=())
        try:
            return apply_change(base, change, now_ms=self._tick(), base_location=location)
        except CommitConflictError as error:
            raise Refused(409, "CommitFailedException", str(error)) from error
        except IcebergError as error:
            raise Refused(400, "ValidationException", str(error)) from error

    def _blank(self, change: Change) -> TableMetadata:
        """Return the beginning of a table that was staged: all that it has is in its updates."""
        schema = next((one.schema for one in change.updates if isinstance(one, changed.AddSchema)), None)
        if schema is None:
            raise Refused(400, "ValidationException", "a table without a schema")
        version = [one.format_version for one in change.updates if isinstance(one, changed.UpgradeFormatVersion)]
        return new_table_metadata(
            location=f"{self.warehouse}/staged",
            schema=schema,
            properties={},
            table_uuid=str(uuid.uuid4()),
            now_ms=self._tick(),
            format_version=(version or [2])[0],
        )

    def _commit_several(self, body: Body) -> Reply:
        names = [(tuple(one["identifier"]["namespace"]), one["identifier"]["name"]) for one in body["table-changes"]]
        made = [self._applied(name, one) for name, one in zip(names, body["table-changes"], strict=True)]
        for name, metadata in zip(names, made, strict=True):
            self._keep(name, metadata)
        return Reply(status=204, body=b"")

    def _rename(self, body: Body) -> Reply:
        source, to = ((tuple(body[side]["namespace"]), body[side]["name"]) for side in ("source", "destination"))
        if source not in self.tables:
            raise Refused(404, "NoSuchTableException", f"no table {source}")
        self._check_namespace(to[0])
        if to in self.tables:
            raise Refused(409, "AlreadyExistsException", f"table {to} exists")
        self.tables[to] = self.tables.pop(source)
        return Reply(status=204, body=b"")

    def _register(self, space: tuple[str, ...], body: Body) -> Reply:
        self._check_namespace(space)
        name, location = (space, body["name"]), body["metadata-location"]
        if name in self.tables and not body.get("overwrite"):
            raise Refused(409, "AlreadyExistsException", f"table {name} exists")
        path = Path(urlsplit(location).path)
        if not path.exists():
            raise Refused(404, "NotFoundException", f"no file {location}")
        self.tables[name] = metadata_json.read(path.read_bytes()), location
        return self._loaded(*self.tables[name])


def change_of(body: Body) -> Change:
    """Read the updates and requirements of a commit."""
    return Change(
        updates=tuple(_update(one) for one in body.get("updates") or ()),
        requirements=tuple(_requirement(one) for one in body.get("requirements") or ()),
    )


def _update(body: Body) -> Update:
    kind = UPDATES.get(body["action"])
    if kind is None:
        raise Refused(400, "BadRequestException", f"an unknown change {body['action']!r}")
    if kind is changed.SetSnapshotRef:
        rest = {key: value for key, value in body.items() if key not in ("action", "ref-name")}
        return changed.SetSnapshotRef(ref_name=body["ref-name"], ref=SnapshotRef.from_dict(rest))
    given = {name: _READERS.get(name, _plain)(body[name]) for name in map(_dashed, _names(kind)) if name in body}
    return kind(**{name.replace("-", "_"): value for name, value in given.items()})


def _requirement(body: Body) -> required.Requirement:
    kind = _REQUIREMENTS[body["type"]]
    if kind is required.AssertRefSnapshotId:
        return kind(ref=body["ref"], snapshot_id=body.get("snapshot-id"))
    return kind(**{name: body[_dashed(name)] for name in _names(kind)})


def _names(kind: type) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
