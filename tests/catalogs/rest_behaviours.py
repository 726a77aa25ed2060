"""What our client rests on in a REST server: one list of behaviours, each a small function, to be run on any server.

    outcomes = run(Peer(name="…", properties={…}))

A behaviour that a server has ends well. One that it lacks ends with `Lacks`, where our client works all the same, or
with an error of ours that says so; then nothing that was told as done is missing. The table of
docs/rest-servers.md is made from such runs (`tests/catalogs/rest_servers.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog, TableState
from airflow_iceberg.catalogs.rest import protocol
from airflow_iceberg.catalogs.rest.catalog import RestCatalog
from airflow_iceberg.catalogs.rest.changes import create_body
from airflow_iceberg.catalogs.rest.credentials import Delegation
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
)
from airflow_iceberg.format.metadata import updates as changed
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.table import Table

COLUMNS = {"id": "long", "day": "date"}
_QUICK = {"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1", "commit.status-check.min-wait-ms": "1"}


class Lacks(Exception):
    """The server does not do it, and our client works all the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Behaviour:
    """One of the list.

    Attributes:
        name: what a server does, in plain English.
        without: what our client does about a server that does not.
    """

    group: str
    name: str
    without: str
    check: Callable[[Peer], None] = field(repr=False)


BEHAVIOURS: list[Behaviour] = []
TOLD = "an error says what is missing"


def behaviour(group: str, name: str, without: str = TOLD) -> Callable[[Callable[[Peer], None]], Callable[[Peer], None]]:
    def add(check: Callable[[Peer], None]) -> Callable[[Peer], None]:
        BEHAVIOURS.append(Behaviour(group=group, name=name, without=without, check=check))
        return check

    return add


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a server made of a behaviour.

    Attributes:
        is_done: whether it has it.
        error: the class of our error, empty if our client works all the same.
        message: what was said.
    """

    is_done: bool
    error: str = ""
    message: str = ""

    @property
    def word(self) -> str:
        if self.is_done:
            return "yes"
        return f"no: `{self.error}`" if self.error else "no"


class Peer:
    """One server.

    Args:
        properties: of the catalog.
        space: a namespace that may have tables; made if it is not there.
    """

    def __init__(self, *, name: str, properties: Mapping[str, str], space: str = "contract") -> None:
        self.name, self.properties, self.space = name, dict(properties), space
        catalog = self.fresh()
        assert isinstance(catalog, RestCatalog)
        self.catalog: RestCatalog = catalog
        if not catalog.namespace_exists(space):
            catalog.create_namespace(space)

    def fresh(self) -> Catalog:
        """Return a catalog that remembers nothing."""
        return load_catalog("contract", **self.properties)

    def name_of(self, word: str = "t") -> str:
        """Return a name that nobody has."""
        return f"{self.space}.{word}_{uuid.uuid4().hex[:8]}"

    def table(self, rows: int = 0, **more: Any) -> Table:
        given = {"properties": {**_QUICK, **more.pop("properties", {})}, "schema": COLUMNS, **more}
        table = Table.create(self.catalog, self.name_of(), **given)
        for number in range(rows):
            table.append(rows_of(number))
        return table

    def again(self, table: Table) -> Table:
        """Return a table as a fresh catalog finds it."""
        return Table.load(self.fresh(), table.name)

    def send(self, endpoint: protocol.Endpoint, body: Any, table: str = "", space: str = "") -> tuple[int, str]:
        """Send a request as it is; return the status and the text of the refusal."""
        levels = tuple((space or self.space).split("."))
        path = self.catalog._server.config.path(endpoint, levels, table)
        try:
            answer = self.catalog._server.http.change(endpoint.method, path, body, purpose="try it")
        except CommitUnknownError as error:
            return 500, str(error)
        return answer.status, str(answer.refusal or "")

    def refused(self, table: Table, requirement: Mapping[str, Any], updates: Any = None) -> None:
        """Expect that a commit with a requirement that is not met is a conflict, and changes nothing."""
        body = {
            "identifier": protocol.identifier(self.catalog.id_of(table.name)),
            "requirements": [dict(requirement)],
            "updates": updates or [{"action": "set-properties", "updates": {"must-not": "be"}}],
        }
        status, text = self.send(protocol.COMMIT_TABLE, body, table.identifier.name)
        if self.again(table).metadata.properties.get("must-not"):
            raise Lacks(f"it was committed ({status})")
        if status != 409:
            raise Lacks(f"the answer was {status} {text}")


def rows_of(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "day": pa.nulls(len(numbers), pa.date32())})


def ids(table: Table, **more: Any) -> list[int]:
    return sorted(table.scan(**more).to_arrow()["id"].to_pylist())


def expect(found: object, wanted: object) -> None:
    """Check a result that was told as done; a difference is a fault of ours, whatever the server did."""
    assert found == wanted, f"told as done, but {found!r} is there, not {wanted!r}"


def run(peer: Peer) -> Iterator[tuple[Behaviour, Outcome]]:
    """Try all behaviours on a server.

    Raises:
        AssertionError: something was told as done that is not there.
    """
    for one in BEHAVIOURS:
        try:
            one.check(peer)
        except Lacks as error:
            yield one, Outcome(is_done=False, message=str(error))
        except IcebergError as error:
            yield one, Outcome(is_done=False, error=type(error).__name__, message=str(error))
        else:
            yield one, Outcome(is_done=True)


# -- configuration -----------------------------------------------------------------------------------------------------

_group = "Configuration"


@behaviour(_group, "says which endpoints it has", "the protocol's older endpoints are expected of it")
def _(peer: Peer) -> None:
    if peer.catalog._server.config.endpoints == protocol._DEFAULT_ENDPOINTS:
        raise Lacks("no endpoints in its configuration")


@behaviour(_group, "looks for a table without loading it (HEAD)", "the table is loaded instead")
def _(peer: Peer) -> None:
    offered(peer, protocol.TABLE_EXISTS)


@behaviour(_group, "looks for a namespace without loading it (HEAD)", "the namespace is loaded instead")
def _(peer: Peer) -> None:
    offered(peer, protocol.NAMESPACE_EXISTS)


@behaviour(_group, "takes idempotency keys", "a change whose answer is lost is looked up, and not sent again at once")
def _(peer: Peer) -> None:
    if peer.catalog._server.config.key_lifetime_s is None:
        raise Lacks("no idempotency-key-lifetime in its configuration")


@behaviour(_group, "answers a path that it does not know by an error of the protocol", "its page is no missing table")
def _(peer: Peer) -> None:
    config = peer.catalog._server.config
    path = config.path(protocol.LIST_NAMESPACES).replace("/namespaces", "/no-such-thing")
    answer = peer.catalog._server.http.read("GET", path, purpose="try it")
    if answer.refusal is None or not answer.refusal.is_model:
        raise Lacks(f"the answer was {answer.status} {answer.body[:100]!r}")


@behaviour(_group, "says in an answer to HEAD that it is one of JSON", "what is missing is asked for again by GET")
def _(peer: Peer) -> None:
    offered(peer, protocol.TABLE_EXISTS)
    path = peer.catalog._server.config.path(protocol.TABLE_EXISTS, tuple(peer.space.split(".")), "never")
    answer = peer.catalog._server.http.read("HEAD", path, purpose="try it")
    expect(answer.status, 404)
    if "json" not in answer.content_type:
        raise Lacks(f"its type is {answer.content_type!r}")


def offered(peer: Peer, endpoint: protocol.Endpoint) -> None:
    if not peer.catalog._server.config.offers(endpoint):
        raise Lacks(f"it does not offer {endpoint}")


# -- namespaces --------------------------------------------------------------------------------------------------------

_group = "Namespaces"


def new_space(peer: Peer, **properties: str) -> str:
    name = f"space_{uuid.uuid4().hex[:8]}"
    peer.catalog.create_namespace(name, properties)
    assert peer.fresh().namespace_exists(name)
    return name


@behaviour(_group, "creates a namespace")
def _(peer: Peer) -> None:
    new_space(peer)


@behaviour(_group, "refuses one that is there (409)", "it is looked for first")
def _(peer: Peer) -> None:
    body = {"namespace": peer.space.split("."), "properties": {}}
    status, text = peer.send(protocol.CREATE_NAMESPACE, body)
    if status != 409:
        raise Lacks(f"the answer was {status} {text}")


@behaviour(_group, "has namespaces in namespaces")
def _(peer: Peer) -> None:
    above = new_space(peer)
    peer.catalog.create_namespace(f"{above}.below")
    expect(peer.fresh().list_namespaces(above), ((above, "below"),))


@behaviour(_group, "has tables in namespaces of two levels, and tells them from others")
def _(peer: Peer) -> None:
    space = (peer.space, f"below_{uuid.uuid4().hex[:8]}")
    peer.catalog.create_namespace(space, {"color": "red"})
    table = Table.create(peer.catalog, f"{'.'.join(space)}.t", schema=COLUMNS, properties=_QUICK)
    table.append(rows_of(1))
    fresh = peer.fresh()
    expect(ids(peer.again(table)), [1])
    expect(fresh.load_namespace_properties(space).get("color"), "red")
    expect([str(one) for one in fresh.list_tables(space)], [table.name])
    expect((space in fresh.list_namespaces(peer.space), fresh.namespace_exists((peer.space, "other"))), (True, False))
    peer.catalog.drop_table(table.name)
    peer.catalog.drop_namespace(space)
    expect((space in fresh.list_namespaces(peer.space), fresh.namespace_exists(peer.space)), (False, True))


@behaviour(_group, "takes the protocol's separator of levels (%1F)", "it names the one to send")
def _(peer: Peer) -> None:
    above = new_space(peer)
    peer.catalog.create_namespace(f"{above}.below")
    path = peer.catalog._server.config.path(protocol.LOAD_NAMESPACE, (above,))
    status = peer.catalog._server.http.read("GET", f"{path}%1Fbelow", purpose="try it").status
    if status != 200:
        raise Lacks(f"the answer was {status}")


@behaviour(_group, "keeps properties of a new namespace", "they are missing")
def _(peer: Peer) -> None:
    found = peer.fresh().load_namespace_properties(new_space(peer, color="Red"))
    if found.get("color") != "Red":
        raise Lacks(f"its properties are {dict(found)}")


@behaviour(_group, "keeps the location of a namespace", "the server chooses the places of its tables")
def _(peer: Peer) -> None:
    location = f"{place(peer)}/elsewhere"
    found = peer.fresh().load_namespace_properties(new_space(peer, location=location))
    if found.get("location", "").rstrip("/") != location:
        raise Lacks(f"its properties are {dict(found)}")


@behaviour(_group, "changes and removes properties of a namespace")
def _(peer: Peer) -> None:
    name = new_space(peer, color="red", taste="sweet")
    peer.catalog.update_namespace_properties(name, {"color": "green"}, removals=["taste"])
    found = peer.fresh().load_namespace_properties(name)
    if found.get("color") != "green" or "taste" in found:
        raise Lacks(f"its properties are {dict(found)}")


@behaviour(_group, "drops an empty namespace")
def _(peer: Peer) -> None:
    name = new_space(peer)
    peer.catalog.drop_namespace(name)
    expect(peer.fresh().namespace_exists(name), False)


@behaviour(_group, "refuses to drop one that has tables")
def _(peer: Peer) -> None:
    table = peer.table()
    status, _text = peer.send(protocol.DROP_NAMESPACE, None)
    if not peer.fresh().table_exists(table.name):
        raise Lacks(f"the answer was {status}, and the tables are gone")
    try:
        peer.catalog.drop_namespace(peer.space)
    except InvalidInputError as error:
        if "not empty" not in str(error):
            raise


@behaviour(_group, "says that a namespace is missing (404)")
def _(peer: Peer) -> None:
    expect_missing(lambda: peer.fresh().load_namespace_properties("never"))


@behaviour(_group, "says that a namespace is missing in a list of tables", "an empty list makes our client look")
def _(peer: Peer) -> None:
    expect_missing(lambda: peer.fresh().list_tables("never"))
    status = peer.catalog._server.http.read(
        "GET", peer.catalog._server.config.path(protocol.LIST_TABLES, ("never",)), purpose="try it"
    ).status
    if status != 404:
        raise Lacks(f"the answer was {status}")


@behaviour(_group, "lists in pages of the asked size", "all comes in one page, or in the server's own")
def _(peer: Peer) -> None:
    tables = {peer.catalog.id_of(peer.table().identifier) for _ in range(2)}
    small = load_catalog("contract", **{**peer.properties, "rest-page-size": "1"})
    assert isinstance(small, RestCatalog)
    found = small.list_tables(peer.space)
    assert tables <= set(found), "a table is missing in the list"
    assert len(set(found)) == len(found), "a table is listed twice"
    path = small._server.config.path(protocol.LIST_TABLES, tuple(peer.space.split(".")))
    page = small._server.http.read("GET", path, purpose="try it", query={"pageSize": "1", "pageToken": ""}).json()
    if len(page["identifiers"]) != 1:
        raise Lacks(f"the first page has {len(page['identifiers'])}")


def expect_missing(ask: Callable[[], object]) -> None:
    try:
        found = ask()
    except NotFoundError:
        return
    raise AssertionError(f"expected that it is missing, got {found!r}")


def place(peer: Peer) -> str:
    """Return where a table lies, without its last part."""
    return peer.table().location.rstrip("/").rpartition("/")[0]


# -- creation ----------------------------------------------------------------------------------------------------------

_group = "Creation of tables"


@behaviour(_group, "creates a table")
def _(peer: Peer) -> None:
    table = peer.again(peer.table())
    expect([(one.name, str(one.type)) for one in table.schema().fields], list(COLUMNS.items()))


@behaviour(_group, "refuses one that is there (409)", "it is looked for first")
def _(peer: Peer) -> None:
    table = peer.table(1)
    status, text = peer.send(protocol.CREATE_TABLE, creation(peer, table.identifier.name))
    expect(ids(peer.again(table)), [0])
    try:
        Table.create(peer.catalog, table.name, schema={"other": "long"})
    except AlreadyExistsError:
        pass
    else:
        raise AssertionError("an existing table was created")
    if status != 409:
        raise Lacks(f"the answer was {status} {text}")


@behaviour(_group, "refuses one in a missing namespace (404)", "the namespace is looked for first")
def _(peer: Peer) -> None:
    expect_missing(lambda: Table.create(peer.catalog, "never.t", schema=COLUMNS))
    status, text = peer.send(protocol.CREATE_TABLE, creation(peer, "t"), space="never2")
    if status != 404:
        raise Lacks(f"the answer was {status} {text}")


def creation(peer: Peer, name: str) -> dict[str, Any]:
    """Return the body of a creation as our client sends it."""
    return create_body(name, replace(peer.table().metadata, properties={}, location=""))


for _version in (1, 2, 3):

    @behaviour(_group, f"creates it in version {_version}")
    def _(peer: Peer, version: int = _version) -> None:
        table = peer.table(1, properties={"format-version": str(version)})
        expect((peer.again(table).metadata.format_version, ids(peer.again(table))), (version, [0]))


@behaviour(_group, "refuses a version that does not exist (4xx)", "a failure that says so is not tried again")
def _(peer: Peer) -> None:
    name = peer.name_of().rpartition(".")[2]
    status, text = peer.send(protocol.CREATE_TABLE, {**creation(peer, name), "properties": {"format-version": "99"}})
    if not 400 <= status < 500:
        raise Lacks(f"the answer was {status} {text}")


@behaviour(_group, "gives it the partitioning")
def _(peer: Peer) -> None:
    table = peer.table(1, partition_by=["bucket(4, id)", "day(day)"])
    expect([str(one.transform) for one in peer.again(table).spec().fields], ["bucket[4]", "day"])


@behaviour(_group, "gives it the sort order")
def _(peer: Peer) -> None:
    table = peer.table(sort_by=["day desc", "id"])
    expect([one.direction for one in peer.again(table).sort_order().fields], ["desc", "asc"])


@behaviour(_group, "gives it the location")
def _(peer: Peer) -> None:
    location = f"{place(peer)}/at_{uuid.uuid4().hex[:8]}"
    expect(peer.again(peer.table(location=location)).location.rstrip("/"), location)


@behaviour(_group, "gives it the properties, spelled as sent", "other spellings of a value are accepted")
def _(peer: Peer) -> None:
    asked = {"a": "TRUE", "b": "s3://x/y/", "c": "Ärger"}
    found = peer.again(peer.table(properties=asked)).metadata.properties
    if {name: found.get(name) for name in asked} != asked:
        raise Lacks(f"its properties are {dict(found)}")


@behaviour(_group, "keeps nested columns, comments and identifiers")
def _(peer: Peer) -> None:
    table = peer.table(schema={"id": "long not null", "s": "struct<a: int, b: list<string>>"})
    table.alter([{"set_doc": {"name": "s", "doc": "two"}}, {"set_identifier_fields": ["id"]}])
    schema = peer.again(table).schema()
    expect((schema.find_field("s").doc, sorted(schema.identifier_field_ids)), ("two", [schema.find_field("id").id]))


@behaviour(_group, "stages a table and creates it with its rows")
def _(peer: Peer) -> None:
    # The copy has its rows in the files of the other table, and none of what a server adds by itself.
    metadata = replace(peer.table(2).metadata, properties={}, location="")
    name = peer.name_of("copy")
    peer.catalog.create(name, metadata)
    expect(Table.load(peer.fresh(), name).metadata.current_snapshot_id, metadata.current_snapshot_id)


# -- loading -----------------------------------------------------------------------------------------------------------

_group = "Loading"


@behaviour(_group, "says that a table is missing (404)")
def _(peer: Peer) -> None:
    expect_missing(lambda: peer.fresh().load(f"{peer.space}.never"))
    expect(peer.fresh().table_exists(f"{peer.space}.never"), False)


@behaviour(_group, "sends a table only if it has changed (ETag, 304)", "all of it is sent each time")
def _(peer: Peer) -> None:
    table = peer.table()
    path = peer.catalog._server.config.path(protocol.LOAD_TABLE, tuple(peer.space.split(".")), table.identifier.name)
    first = peer.catalog._server.http.read("GET", path, purpose="try it")
    expect(peer.catalog.load(table.name).metadata, peer.catalog.load(table.name).metadata)
    if not first.headers.get("ETag"):
        raise Lacks("no ETag")
    headers = {"If-None-Match": first.headers["ETag"]}
    second = peer.catalog._server.http.read("GET", path, purpose="try it", headers=headers)
    if second.status != 304:
        raise Lacks(f"the answer was {second.status}")


@behaviour(_group, "lends credentials for the files of a table", "those of the connection are used")
def _(peer: Peer) -> None:
    table = peer.table()
    path = peer.catalog._server.config.path(protocol.LOAD_TABLE, tuple(peer.space.split(".")), table.identifier.name)
    headers = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    found = Delegation.from_dict(peer.catalog._server.http.read("GET", path, purpose="try it", headers=headers).json())
    if not found.credentials and not any("secret" in name or "token" in name for name in found.config):
        raise Lacks("none are lent")


@behaviour(_group, "shows all snapshots", "there is no time travel")
def _(peer: Peer) -> None:
    table = peer.again(peer.table(3))
    expect(ids(table), [0, 1, 2])
    if len(table.snapshots()) != 3:
        raise Lacks(f"it shows {len(table.snapshots())} of 3")


@behaviour(_group, "shows the log of earlier metadata", "a lost answer is looked for in the snapshots alone")
def _(peer: Peer) -> None:
    table = peer.again(peer.table(2))
    if not table.metadata.metadata_log:
        raise Lacks("there is none")


# -- commits: updates --------------------------------------------------------------------------------------------------

_group = "Commits"


@behaviour(_group, "appends rows, and the table keeps its uuid")
def _(peer: Peer) -> None:
    table = peer.table()
    before = table.metadata.table_uuid
    table.append(rows_of(7))
    expect((ids(peer.again(table)), peer.again(table).metadata.table_uuid), ([7], before))


@behaviour(_group, "replaces and deletes rows")
def _(peer: Peer) -> None:
    table = peer.table(3)
    table.delete("id = 1")
    table.overwrite(rows_of(9), "id = 2", check_filter=False)
    expect(ids(peer.again(table)), [0, 9])


@behaviour(_group, "creates a branch and adds rows to it", "it is refused before rows are sent")
def _(peer: Peer) -> None:
    table = peer.table(1)
    try:
        table.append(rows_of(5), branch="audit", create_branch=True)
    finally:
        expect(ids(peer.again(table)), [0])
    expect(ids(peer.again(table), ref="audit"), [0, 5])


@behaviour(_group, "creates a branch in a table without rows", "it is refused before rows are sent")
def _(peer: Peer) -> None:
    table = peer.table()
    try:
        table.append(rows_of(5), branch="audit", create_branch=True)
    finally:
        expect(ids(peer.again(table)), [])
    expect(ids(peer.again(table), ref="audit"), [5])


@behaviour(_group, "creates tags, and keeps how long they live")
def _(peer: Peer) -> None:
    table = peer.table(1)
    table.create_tag("v1", max_ref_age_ms=10**12)
    expect(peer.again(table).metadata.refs["v1"].max_ref_age_ms, 10**12)


@behaviour(_group, "removes branches and tags")
def _(peer: Peer) -> None:
    table = peer.table(1)
    table.create_tag("v1")
    table.create_branch("audit")
    table.remove_tag("v1")
    table.remove_branch("audit")
    expect(set(peer.again(table).metadata.refs), {"main"})


@behaviour(_group, "moves main forward to a branch")
def _(peer: Peer) -> None:
    table = peer.table(1)
    table.append(rows_of(5), branch="audit", create_branch=True)
    table.fast_forward("main", "audit")
    expect(ids(peer.again(table)), [0, 5])


@behaviour(_group, "rolls main back")
def _(peer: Peer) -> None:
    table = peer.table(2)
    if len(peer.again(table).snapshots()) == 1:
        raise Lacks("it shows one snapshot, so that there is nothing to roll back to")
    table.rollback_to_snapshot(table.snapshots()[0].snapshot_id)
    expect(ids(peer.again(table)), [0])


@behaviour(_group, "expires snapshots", "an error says that they are still there; no file is deleted")
def _(peer: Peer) -> None:
    table = peer.table(3)
    if len(peer.again(table).snapshots()) == 1:
        raise Lacks("it shows one snapshot, so that there is nothing to expire")
    old = [one.snapshot_id for one in peer.again(table).snapshots()[:2]]
    commit(table, changed.RemoveSnapshots(snapshot_ids=tuple(old)))
    expect((len(peer.again(table).snapshots()), ids(peer.again(table))), (1, [0, 1, 2]))


@behaviour(_group, "removes unused schemas")
def _(peer: Peer) -> None:
    table = altered(peer, {"add_column": {"name": "n", "type": "int"}})
    commit(table, changed.RemoveSchemas(schema_ids=(0,)))
    expect([one.schema_id for one in peer.again(table).metadata.schemas], [1])


@behaviour(_group, "removes unused partition specs")
def _(peer: Peer) -> None:
    table = altered(peer, {"add_partition_field": "bucket(4, id)"})
    commit(table, changed.RemovePartitionSpecs(spec_ids=(0,)))
    expect([one.spec_id for one in peer.again(table).metadata.partition_specs], [1])


@behaviour(_group, "adds, renames and drops columns")
def _(peer: Peer) -> None:
    table = altered(peer, {"add_column": {"name": "n", "type": "int"}}, {"rename_column": {"from": "day", "to": "d"}})
    table.alter([{"drop_column": "n"}])
    expect([one.name for one in peer.again(table).schema().fields], ["id", "d"])


@behaviour(_group, "goes back to a schema by its id")
def _(peer: Peer) -> None:
    table = altered(peer, {"add_column": {"name": "n", "type": "int"}})
    table.alter([{"drop_column": "n"}])
    expect(peer.again(table).metadata.current_schema_id, 0)


@behaviour(_group, "changes the partitioning, and goes back")
def _(peer: Peer) -> None:
    table = altered(peer, {"add_partition_field": "bucket(4, id)"})
    expect(len(peer.again(table).spec().fields), 1)
    table.alter([{"set_partitioning": []}])
    # In version 1 a field stays, as one of nothing.
    expect([one for one in peer.again(table).spec().fields if str(one.transform) != "void"], [])


@behaviour(_group, "changes the sort order, and goes back")
def _(peer: Peer) -> None:
    table = altered(peer, {"set_sort_order": ["id"]})
    expect(len(peer.again(table).sort_order().fields), 1)
    table.alter([{"set_sort_order": []}])
    expect(peer.again(table).sort_order().fields, ())


@behaviour(_group, "makes the last added schema the current one (-1)")
def _(peer: Peer) -> None:
    table = peer.table(1)
    table.alter([{"add_column": {"name": "a", "type": "int"}}, {"add_column": {"name": "b", "type": "struct<x: int>"}}])
    expect(len(peer.again(table).schema().fields), 4)


@behaviour(_group, "sets and removes properties")
def _(peer: Peer) -> None:
    table = altered(peer, {"set_properties": {"color": "Red", "taste": "sweet"}})
    table.alter([{"remove_properties": ["taste"]}])
    found = peer.again(table).metadata.properties
    expect((found.get("color"), found.get("taste")), ("Red", None))


@behaviour(_group, "upgrades the format version")
def _(peer: Peer) -> None:
    table = peer.table(1)
    table.alter([{"upgrade_format_version": 3}])
    table.append(rows_of(4))
    expect((peer.again(table).metadata.format_version, ids(peer.again(table))), (3, [0, 4]))


@behaviour(_group, "changes the location of new files")
def _(peer: Peer) -> None:
    table = peer.table(1)
    commit(table, changed.SetLocation(location=f"{table.location.rstrip('/')}/more"))
    expect(peer.again(table).location.rstrip("/").endswith("/more"), True)


@behaviour(_group, "keeps statistics of a snapshot")
def _(peer: Peer) -> None:
    table = peer.table(1)
    number = table.metadata.current_snapshot_id
    assert number is not None
    found = {"snapshot-id": number, "statistics-path": f"{table.location}/s.puffin", "file-size-in-bytes": 9}
    found |= {"file-footer-size-in-bytes": 5, "blob-metadata": []}
    commit(table, changed.SetStatistics(snapshot_id=number, statistics=found))
    expect([one["snapshot-id"] for one in peer.again(table).metadata.statistics], [number])


@behaviour(_group, "refuses a kind of change that it does not know", "the answer is compared with what was asked")
def _(peer: Peer) -> None:
    table = peer.table()
    body = {"identifier": protocol.identifier(peer.catalog.id_of(table.name)), "requirements": [],
            "updates": [{"action": "make-it-nice", "how": "very"}]}  # fmt: skip
    status, text = peer.send(protocol.COMMIT_TABLE, body, table.identifier.name)
    if not 400 <= status < 500:
        raise Lacks(f"the answer was {status} {text}")


def altered(peer: Peer, *changes: Mapping[str, Any]) -> Table:
    table = peer.table()
    table.alter(list(changes))
    return table


def commit(table: Table, update: changed.Update) -> TableState:
    return table.catalog.commit(table.catalog.load(table.name), Change(updates=(update,)))


# -- commits: requirements ---------------------------------------------------------------------------------------------

_group = "Requirements (409 if one is not met)"
_REST = "another writer's change at the same moment may pass unseen"


@behaviour(_group, "the table does not exist", "the name is looked for first")
def _(peer: Peer) -> None:
    peer.refused(peer.table(), {"type": "assert-create"})


@behaviour(_group, "the uuid", "the uuid in the answer is compared: an error tells of another table")
def _(peer: Peer) -> None:
    peer.refused(peer.table(), {"type": "assert-table-uuid", "uuid": str(uuid.uuid4())})


@behaviour(_group, "the snapshot of main", _REST)
def _(peer: Peer) -> None:
    table = peer.table(2)
    first = table.metadata.current_snapshot_id
    table.append(rows_of(5))
    peer.refused(table, {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": first})


@behaviour(
    _group, "main has no snapshot yet", "of two writers of the first rows one may lose his: do not let them meet"
)
def _(peer: Peer) -> None:
    requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    peer.refused(peer.table(1), requirement)


@behaviour(_group, "a branch that does not exist has no snapshot", _REST)
def _(peer: Peer) -> None:
    peer.refused(peer.table(1), {"type": "assert-ref-snapshot-id", "ref": "never", "snapshot-id": 7})


for _type, _key, _words in (
    ("assert-last-assigned-field-id", "last-assigned-field-id", "the last id of a column"),
    ("assert-current-schema-id", "current-schema-id", "the current schema"),
    ("assert-last-assigned-partition-id", "last-assigned-partition-id", "the last id of a partition field"),
    ("assert-default-spec-id", "default-spec-id", "the default partition spec"),
    ("assert-default-sort-order-id", "default-sort-order-id", "the default sort order"),
):

    @behaviour(_group, _words, _REST)
    def _(peer: Peer, kind: str = _type, key: str = _key) -> None:
        peer.refused(peer.table(), {"type": kind, key: 77})


@behaviour(_group, "of two writers on one state one wins, and both rows are there")
def _(peer: Peer) -> None:
    table = peer.table(1)
    one, two = (Table.load(peer.fresh(), table.name) for _ in range(2))
    one.append(rows_of(5))
    two.append(rows_of(6))
    expect(ids(peer.again(table)), [0, 5, 6])


@behaviour(_group, "of two changes of the schema on one state one is refused")
def _(peer: Peer) -> None:
    table = peer.table()
    old = peer.fresh().load(table.name)
    table.alter([{"add_column": {"name": "n", "type": "int"}}])
    schema = peer.again(table).schema()
    try:
        peer.catalog.commit(old, Change(updates=(changed.AddSchema(schema=schema), changed.SetCurrentSchema())))
    except CommitConflictError:
        return
    raise Lacks("both were committed")


# -- several tables ----------------------------------------------------------------------------------------------------

_group = "Several tables"


def _together(peer: Peer, *stale: bool) -> tuple[list[Table], list[tuple[TableState, Change]]]:
    tables = [peer.table(1) for _ in stale]
    change = Change(updates=(changed.SetProperties(updates={"together": "1"}),))
    found = []
    for table, is_stale in zip(tables, stale, strict=True):
        state = peer.catalog.load(table.name)
        asked = {"ref": "main", "snapshot_id": 7 if is_stale else state.metadata.current_snapshot_id}
        found.append((state, Change(updates=change.updates, requirements=(AssertRefSnapshotId(**asked),))))
    return tables, found


@behaviour(_group, "commits to several tables at once")
def _(peer: Peer) -> None:
    tables, asked = _together(peer, False, False)
    peer.catalog.commit_tables(asked)
    expect([peer.again(one).metadata.properties.get("together") for one in tables], ["1", "1"])


@behaviour(_group, "or to none of them")
def _(peer: Peer) -> None:
    tables, asked = _together(peer, False, True)
    try:
        peer.catalog._server.way(protocol.COMMIT_TABLES, "commit to several tables")
        bodies = [{"identifier": protocol.identifier(state.table), **change.to_dict()} for state, change in asked]
        status, _text = peer.send(protocol.COMMIT_TABLES, {"table-changes": bodies})
    finally:
        expect([peer.again(one).metadata.properties.get("together") for one in tables], [None, None])
    if status != 409:
        raise Lacks(f"the answer was {status} {_text}")


# -- names -------------------------------------------------------------------------------------------------------------

_group = "Names"


@behaviour(_group, "renames a table")
def _(peer: Peer) -> None:
    table, to = peer.table(1), peer.name_of("renamed")
    peer.catalog.rename_table(table.name, to)
    expect((ids(Table.load(peer.fresh(), to)), peer.fresh().table_exists(table.name)), ([0], False))


@behaviour(_group, "refuses to rename onto a table (409)", "the new name is looked for first")
def _(peer: Peer) -> None:
    one, two = peer.table(1), peer.table(2)
    status, text = _rename(peer, one.identifier, two.identifier)
    expect((ids(peer.again(one)), ids(peer.again(two))), ([0], [0, 1]))
    if status != 409:
        raise Lacks(f"the answer was {status} {text}")


@behaviour(_group, "says that the table to rename is missing (404)")
def _(peer: Peer) -> None:
    expect_missing(lambda: peer.catalog.rename_table(f"{peer.space}.never", peer.name_of()))


@behaviour(_group, "says that the namespace of the new name is missing (404)", "it is looked for first")
def _(peer: Peer) -> None:
    table = peer.table(1)
    expect_missing(lambda: peer.catalog.rename_table(table.name, "never.t"))
    status, text = _rename(peer, table.identifier, peer.catalog.id_of(f"never{uuid.uuid4().hex[:6]}.t"))
    expect(ids(peer.again(table)) if status >= 400 else [0], [0])
    if status != 404:
        raise Lacks(f"the answer was {status} {text}")


def _rename(peer: Peer, source: Any, to: Any) -> tuple[int, str]:
    peer.catalog._server.way(protocol.RENAME_TABLE, "rename a table")
    body = {"source": protocol.identifier(source), "destination": protocol.identifier(to)}
    return peer.send(protocol.RENAME_TABLE, body)


@behaviour(_group, "registers a table by its metadata file, with its uuid")
def _(peer: Peer) -> None:
    table, name = peer.table(1), peer.name_of("registered")
    state = peer.catalog.load(table.name)
    made = peer.catalog.register_table(name, state.metadata_location)
    found = Table.load(peer.fresh(), name)
    expect((ids(found), found.metadata.table_uuid, made.metadata.table_uuid), ([0], *[state.metadata.table_uuid] * 2))


@behaviour(_group, "refuses to register a missing file")
def _(peer: Peer) -> None:
    table, name = peer.table(), peer.name_of("registered")
    location = f"{table.location}/metadata/00007-never.metadata.json"
    peer.catalog._server.way(protocol.REGISTER_TABLE, "register a table")
    try:
        peer.catalog.register_table(name, location)
    except (NotFoundError, InvalidInputError):
        expect(peer.fresh().table_exists(name), False)
        return


@behaviour(_group, "refuses to register a name that is taken (409)")
def _(peer: Peer) -> None:
    one, two = peer.table(1), peer.table(2)
    try:
        peer.catalog.register_table(two.name, peer.catalog.load(one.name).metadata_location)
    except AlreadyExistsError:
        expect(ids(peer.again(two)), [0, 1])
        return
    raise Lacks("it was registered")


@behaviour(_group, "registers over a table that is there (overwrite)")
def _(peer: Peer) -> None:
    table = peer.table(1)
    old = peer.catalog.load(table.name).metadata_location
    table.append(rows_of(5))
    peer.catalog.register_table(table.name, old, overwrite=True)
    expect(ids(peer.again(table)), [0])


@behaviour(_group, "drops a table")
def _(peer: Peer) -> None:
    table = peer.table(1)
    peer.catalog.drop_table(table.name)
    expect(peer.fresh().table_exists(table.name), False)


@behaviour(_group, "says that the table to drop is missing (404)")
def _(peer: Peer) -> None:
    expect_missing(lambda: peer.catalog.drop_table(f"{peer.space}.never"))


@behaviour(_group, "keeps the files of a dropped table", "they are gone: what a drop deletes is the server's affair")
def _(peer: Peer) -> None:
    if _files_after_drop(peer, purge=False) == 0:
        raise Lacks("they are gone")


@behaviour(_group, "deletes the files of a purged table", "the files stay: what a purge deletes is the server's affair")
def _(peer: Peer) -> None:
    if _files_after_drop(peer, purge=True):
        raise Lacks("they are there")


def _files_after_drop(peer: Peer, *, purge: bool) -> int:
    table = peer.table(1)
    io = table.io
    files = [task.file.file_path for task in table.scan().plan_files()]
    peer.catalog.drop_table(table.name, purge=purge)
    expect(peer.fresh().table_exists(table.name), False)
    return sum(io.exists(file) for file in files)
