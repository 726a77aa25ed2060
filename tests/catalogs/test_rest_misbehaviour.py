"""A REST server that does not do what it is asked: each change of metadata × what may become of it × each operation.

The result is right, or an error says that it is not. Nothing is told as committed that is not there, a plain failure
has changed nothing, and no file goes that a snapshot needs. Some cases run with `make test`, all of them with the
services.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.errors import CommitUnknownError, IcebergError
from airflow_iceberg.format.metadata import updates as changed
from airflow_iceberg.format.metadata.updates import Change, Update
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.rest_server import UPDATES, Body, RestServer, Spoiled

QUICK = {
    f"commit.{kind}.{name}": value
    for kind in ("retry", "status-check")
    for name, value in (("num-retries", "2"), ("min-wait-ms", "1"), ("max-wait-ms", "1"))
}
OTHER_UUID = "6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0002"
STATUSES = (400, 403, 404, 405, 409, 422, 500, 501, 503)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "n": pa.array(numbers, pa.int32())})


# -- what is asked -----------------------------------------------------------------------------------------------------


def raw(*updates: Update) -> Callable[[Table], Any]:
    return lambda table: table.catalog.commit(table.catalog.load("db.t"), Change(updates=updates))


def statistics(table: Table) -> None:
    """Set a file for the current snapshot, where there is one already."""
    number = table.metadata.current_snapshot_id
    assert number is not None
    document = {
        "snapshot-id": number,
        "statistics-path": "s3://lake/new.puffin",
        "file-size-in-bytes": 9,
        "file-footer-size-in-bytes": 5,
        "blob-metadata": [],
    }
    raw(changed.SetStatistics(snapshot_id=number, statistics=document))(table)


def expire(table: Table, **more: Any) -> None:
    # The last snapshot of main and of each branch is kept.
    expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62, **more))


def altered(*changes: Any) -> Callable[[Table], Any]:
    return lambda table: table.alter(list(changes))


def create(name: str, **more: Any) -> Callable[[Table], Any]:
    columns = {"id": "long", "n": "int"}
    return lambda table: Table.create(table.catalog, name, schema=columns, **more)


def staged(table: Table) -> None:
    """Create a table with rows, as a copy of one is."""
    catalog = table.catalog
    metadata = catalog.load("db.t").metadata
    catalog.create("db.copy", metadata)


def registered(table: Table) -> None:
    catalog = table.catalog
    catalog.register_table("db.other", catalog.load("db.t").metadata_location)


def registered_over(table: Table) -> None:
    """Let the table point to its last metadata file but one."""
    *_, (_, location) = table.metadata.metadata_log
    table.catalog.register_table("db.t", location, overwrite=True)


OPERATIONS: dict[str, Callable[[Table], Any]] = {
    "append": lambda table: table.append(rows(5)),
    "append to a branch": lambda table: table.append(rows(5), branch="side"),
    "append to a new branch": lambda table: table.append(rows(5), branch="audit", create_branch=True),
    "append with a new column": lambda table: table.append(
        rows(5).append_column("o", pa.array(["x"])), schema_evolution="add_columns"
    ),
    "overwrite": lambda table: table.overwrite(rows(6)),
    "overwrite on a new branch": lambda table: table.overwrite(rows(6), branch="audit", create_branch=True),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"n": "7"}, "id = 1"),
    "upsert": lambda table: table.upsert(rows(1, 8), ["id"]),
    "add a column": altered({"add_column": {"name": "o", "type": "string"}}),
    "drop a column": altered({"drop_column": "n"}),
    "rename a column": altered({"rename_column": {"from": "n", "to": "m"}}),
    "change a type": altered({"change_type": {"name": "n", "type": "long"}}),
    "describe a column": altered({"set_doc": {"name": "n", "doc": "number"}}),
    "back to an old schema": altered({"add_column": {"name": "old", "type": "string"}}),
    "add a partition field": altered({"add_partition_field": "bucket(4, id)"}),
    "back to an old spec": altered({"set_partitioning": []}),
    "set a sort order": altered({"set_sort_order": ["n desc"]}),
    "back to an old order": altered({"set_sort_order": []}),
    "set properties": altered({"set_properties": {"color": "red", "p": "2"}}),
    "remove properties": altered({"remove_properties": ["p"]}),
    "upgrade": altered({"upgrade_format_version": 3}),
    "all at once": altered(
        {"add_column": {"name": "o", "type": "string"}},
        {"add_partition_field": "truncate(2, id)"},
        {"set_sort_order": ["id"]},
        {"set_properties": {"color": "red"}},
        {"remove_properties": ["p"]},
    ),
    "create a branch": lambda table: table.create_branch("new"),
    "create a tag that ages": lambda table: table.create_tag("aging", max_ref_age_ms=10**12),
    "replace a tag": lambda table: table.create_tag("v1", replace_existing=True),
    "keep a branch for longer": lambda table: table.create_branch(
        "side", table.metadata.refs["side"].snapshot_id, replace_existing=True, min_snapshots_to_keep=7
    ),
    "remove a branch": lambda table: table.remove_branch("side"),
    "remove a tag": lambda table: table.remove_tag("v1"),
    "fast forward": lambda table: table.fast_forward("main", "ahead"),
    "set the current snapshot": lambda table: table.set_current_snapshot(ref="v1"),
    "roll back": lambda table: table.rollback_to_snapshot(table.metadata.refs["v1"].snapshot_id),
    "cherry-pick": lambda table: table.cherry_pick(table.metadata.refs["ahead"].snapshot_id),
    "expire": expire,
    "expire with metadata": lambda table: expire(table, clean_expired_metadata=True),
    "statistics": statistics,
    "location": lambda table: raw(changed.SetLocation(location=f"{table.location}/more"))(table),
    "uuid": lambda table: raw(changed.AssignUUID(uuid=str(table.metadata.table_uuid)))(table),
    "create": create("db.new", partition_by=["bucket(4, id)"], sort_by=["n"], properties={"a": "1"}),
    "create in version 3": create("db.new", properties={"format-version": "3"}),
    "create in version 1": create("db.new", properties={"format-version": "1"}),
    "create if not there": create("db.new", if_not_exists=True),
    "create a copy": staged,
    "rename": lambda table: table.catalog.rename_table("db.t", "db.moved"),
    "register": registered,
    "register over": registered_over,
    "drop": lambda table: table.catalog.drop_table("db.t"),
    "create a namespace": lambda table: table.catalog.create_namespace("new", {"a": "1"}),
    "drop a namespace": lambda table: table.catalog.drop_namespace("empty"),
    "properties of a namespace": lambda table: table.catalog.update_namespace_properties(
        "empty", {"a": "2"}, removals=["b"]
    ),
    "two tables": lambda table: table.catalog.commit_tables(
        [(table.catalog.load(name), Change(updates=(changed.SetProperties(updates={"q": "1"}),)))
         for name in ("db.t", "db.second")]
    ),
}  # fmt: skip

REQUESTS = {
    "create": "POST /tables",
    "create in version 3": "POST /tables",
    "create in version 1": "POST /tables",
    "create if not there": "POST /tables",
    "create a copy": "POST /tables",
    "rename": "POST /rename",
    "register": "POST /register",
    "register over": "POST /register",
    "drop": "DELETE /t",
    "create a namespace": "POST /namespaces",
    "drop a namespace": "DELETE /empty",
    "properties of a namespace": "POST /properties",
}

# -- what a server may make of it --------------------------------------------------------------------------------------


def _set(**values: Any) -> Callable[[Body], Body]:
    return lambda update: {**update, **{name.replace("_", "-"): value for name, value in values.items()}}


def _in(part: str, change: Callable[[Body], Body]) -> Callable[[Body], Body]:
    return lambda update: {**update, part: change(update[part])}


def _fields(change: Callable[[Body], Body]) -> Callable[[Body], Body]:
    return lambda part: {**part, "fields": [change(one) for one in part["fields"]]}


def _short(part: Body) -> Body:
    return {**part, "fields": part["fields"][:-1]}


def _text(field: Body) -> Body:
    return {**field, "type": "string"} if field["name"] != "id" else field


CHANGES: dict[str, list[Callable[[Body], Body | None]]] = {
    "assign-uuid": [_set(uuid=OTHER_UUID)],
    "upgrade-format-version": [_set(format_version=2)],
    "add-schema": [
        _in("schema", _short),
        _in("schema", _fields(_text)),
        _in("schema", _fields(_set(doc="theirs"))),
    ],
    "set-current-schema": [_set(schema_id=0)],
    "add-spec": [_in("spec", _fields(_set(transform="bucket[7]"))), _in("spec", lambda part: {**part, "fields": []})],
    "set-default-spec": [_set(spec_id=0)],
    "add-sort-order": [_in("sort-order", _fields(lambda one: {**one, "null-order": "nulls-last", "direction": "asc"}))],
    "set-default-sort-order": [_set(sort_order_id=0)],
    "add-snapshot": [_in("snapshot", _set(manifest_list="s3://lake/another.avro"))],
    "set-snapshot-ref": [
        _set(ref_name="main"),
        _set(ref_name="theirs"),
        lambda update: {**update, "type": "branch" if update["type"] == "tag" else "tag"},
        lambda update: {name: value for name, value in update.items() if not name.startswith(("max-", "min-"))},
    ],
    "remove-snapshot-ref": [_set(ref_name="ahead")],
    "remove-snapshots": [lambda update: {**update, "snapshot-ids": update["snapshot-ids"][1:]}],
    "remove-schemas": [_set(schema_ids=[])],
    "remove-partition-specs": [_set(spec_ids=[])],
    "set-location": [_set(location="s3://lake/elsewhere")],
    "set-properties": [lambda update: {**update, "updates": dict.fromkeys(update["updates"], "theirs")}],
    "remove-properties": [_set(removals=["never"])],
    "set-statistics": [_in("statistics", _set(statistics_path="s3://lake/old.puffin"))],
}
CREATIONS: list[Callable[[Body], Body]] = [
    lambda body: {name: value for name, value in body.items() if name != "partition-spec"},
    lambda body: {name: value for name, value in body.items() if name != "write-order"},
    lambda body: {**body, "properties": {}},
    lambda body: {**body, "schema": _short(body["schema"]), "partition-spec": None, "write-order": None},
    lambda body: {**body, "schema": _fields(_text)(body["schema"])},
]

STAGED: list[Callable[[Body], Body]] = [
    lambda body: {**body, "updates": [one for one in body["updates"] if one["action"] != "set-snapshot-ref"]},
    lambda body: {**body, "updates": [one for one in body["updates"] if one["action"] != "set-default-spec"]},
    lambda body: {**body, "updates": [one for one in body["updates"] if one["action"] != "set-properties"]},
    lambda body: {**body, "updates": [one for one in body["updates"] if one["action"] != "set-statistics"]},
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    operation: str
    spoil: Spoiled
    what: str

    def __str__(self) -> str:
        how = "is kept " if self.spoil.how == "keep" else ""
        return f"{self.operation} / {self.spoil.action} {how}{self.what}"


def _spoils(action: str, changes: list[Callable[[Body], Body | None]]) -> Iterator[tuple[str, Spoiled]]:
    for number, change in enumerate(changes):
        yield f"is changed, {number}", Spoiled(how="change", action=action, change=change)
    for status in STATUSES:
        yield f"is refused with {status}", Spoiled(how="refuse", action=action, status=status)
    for how in ("lose before", "lose after"):
        yield f"{how}, once", Spoiled(how=how, action=action, times=[1])  # type: ignore[arg-type]
        yield f"{how}, always", Spoiled(how=how, action=action)  # type: ignore[arg-type]


# -- the table ---------------------------------------------------------------------------------------------------------


class World:
    """One server whose state is put back before each case.

    The table has three branches, a tag, statistics, old schemas, specs and orders, and a file that was deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.server = RestServer(folder.as_uri(), endpoints=_endpoints())
        self.properties = {"uri": self.server.uri, "allowed-locations": folder.as_uri()}
        self._folder = folder
        self._sent: dict[str, list[str]] = {}
        catalog = self.catalog()
        for space in ("db", "empty"):
            catalog.create_namespace(space, {"a": "1", "b": "1"} if space == "empty" else {})
        table = Table.create(catalog, "db.t", schema={"id": "long", "n": "int"}, properties={"p": "1", **QUICK})
        Table.create(catalog, "db.second", schema={"id": "long"})
        table.append(rows(1))
        table.append(rows(2))
        table.create_tag("v1")
        table.overwrite(rows(1, 3))
        table.append(rows(9), branch="side", create_branch=True)
        table.append(rows(4), branch="ahead", create_branch=True)
        number = table.refresh().metadata.current_snapshot_id
        assert number is not None
        old = {"snapshot-id": number, "statistics-path": "s3://lake/old.puffin", "file-size-in-bytes": 9}
        old = {**old, "file-footer-size-in-bytes": 5, "blob-metadata": []}
        raw(changed.SetStatistics(snapshot_id=number, statistics=old))(table)
        for change in (
            {"add_column": {"name": "old", "type": "string"}},
            {"drop_column": "old"},
            {"add_partition_field": "bucket(16, id)"},
            {"drop_partition_field": "bucket(16, id)"},
            {"add_partition_field": "bucket(8, id)"},
            {"set_sort_order": ["id"]},
        ):
            Table.load(catalog, "db.t").alter([change])
        self._tables = dict(self.server.tables)
        self._spaces = {space: dict(found) for space, found in self.server.namespaces.items()}
        self._files = {path: path.read_bytes() for path in self._all()}

    def registrations(self) -> list[Callable[[Body], Body]]:
        """Return what makes registrations of other files of a request: of another table, and of the same one."""
        files = [self._tables[("db",), "second"][1], *(each for _, each in self._tables[("db",), "t"][0].metadata_log)]
        return [partial(self._of_file, location) for location in (files[0], files[1], files[-2])]

    def _of_file(self, location: str, body: Body) -> Body:
        return {**body, "metadata-location": location}

    def catalog(self) -> Catalog:
        return load_catalog("prod", type="rest", **self.properties)

    def _all(self) -> list[Path]:
        return [Path(at) / name for at, _, names in os.walk(self._folder) for name in names]

    def put_back(self) -> Table:
        self.server.spoil = None
        self.server.tables = dict(self._tables)
        self.server.namespaces = {space: dict(found) for space, found in self._spaces.items()}
        there = set(self._all())
        for path in there - self._files.keys():
            path.unlink()
        for path in self._files.keys() - there:
            path.write_bytes(self._files[path])
        return Table.load(self.catalog(), "db.t")

    def sent(self, operation: str) -> list[str]:
        """Return the actions of the updates that an operation sends, and what it makes."""
        if operation in self._sent:
            return self._sent[operation]
        table = self.put_back()
        found: list[str] = []
        self.server.spoil = _Watching(found)  # type: ignore[assignment]
        OPERATIONS[operation](table)
        self.server.spoil = None
        return self._sent.setdefault(operation, list(dict.fromkeys(found)))

    def state(self) -> dict[str, Any]:
        """Return all that the server holds, read by a fresh catalog, without names that chance gives."""
        catalog = self.catalog()
        spaces = {
            ".".join(space): dict(catalog.load_namespace_properties(space)) for space in catalog.list_namespaces()
        }
        names = [str(name) for name in catalog.list_tables("db")]
        return {"namespaces": spaces, **{name: self._table(Table.load(catalog, name)) for name in names}}

    def _table(self, table: Table) -> dict[str, Any]:
        metadata = table.metadata
        refs = {
            name: (ref.type, ref.max_ref_age_ms, ref.min_snapshots_to_keep, self._ids(table, ref.snapshot_id))
            for name, ref in metadata.refs.items()
        }
        order = [(one.source_id, str(one.transform), one.direction) for one in metadata.sort_order().fields]
        return {
            "schema": [(one.id, one.name, str(one.type), one.doc) for one in metadata.schema().fields],
            "schemas": len(metadata.schemas),
            "spec": [(one.source_id, str(one.transform)) for one in metadata.spec().fields],
            "specs": len(metadata.partition_specs),
            "order": order,
            "version": metadata.format_version,
            # The marks of changes that were made have names and times of their own.
            "properties": {name: value for name, value in metadata.properties.items() if "applied-changes" not in name},
            "refs": refs,
            "snapshots": len(metadata.snapshots),
            "statistics": [one["statistics-path"] for one in metadata.statistics],
            "location": metadata.location,
        }

    def _ids(self, table: Table, number: int) -> list[Any]:
        try:
            return sorted(map(tuple, (one.values() for one in table.scan(snapshot_id=number).to_arrow().to_pylist())))
        except IcebergError as error:
            return [f"cannot be read: {error}"]

    def lost_files(self) -> list[str]:
        """Return the files that a snapshot of a table needs, and that are gone."""
        lost: list[str] = []
        for metadata, _ in self.server.tables.values():
            for one in metadata.snapshots:
                path = urlsplit(one.manifest_list or "").path
                if one.manifest_list != "s3://lake/another.avro" and not Path(path).exists():
                    lost.append(path)
        return lost


class _Watching:
    """Misbehaves in nothing, and notes what is sent."""

    def __init__(self, found: list[str]) -> None:
        self.found = found

    def means(self, request: Any, body: Body) -> bool:
        several = body.get("table-changes")
        updates = [one for each in several for one in each["updates"]] if several else body.get("updates") or []
        if isinstance(updates, list):
            self.found += [one["action"] for one in updates]
        return False


def _endpoints() -> list[str]:
    below = "/v1/{prefix}/namespaces"
    table = f"{below}/{{namespace}}/tables/{{table}}"
    return [
        *(f"{method} {below}" for method in ("GET", "POST")),
        *(f"{method} {below}/{{namespace}}" for method in ("GET", "HEAD", "DELETE")),
        *(f"{method} {below}/{{namespace}}/tables" for method in ("GET", "POST")),
        *(f"{method} {table}" for method in ("GET", "HEAD", "POST", "DELETE")),
        f"POST {below}/{{namespace}}/properties",
        f"POST {below}/{{namespace}}/register",
        "POST /v1/{prefix}/tables/rename",
        "POST /v1/{prefix}/transactions/commit",
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    patch = pytest.MonkeyPatch()
    patch.setitem(Http.__init__.__kwdefaults__, "sleep", lambda seconds: None)
    world = World(tmp_path_factory.mktemp("lake"))
    with world.server:
        yield world
    patch.undo()


# An expiry is two commits, of snapshots and then of what they alone used. The first one stays, and the error says so.
IN_TWO_STEPS = {"expire with metadata": ("expire", "the snapshots of table db.t are expired, but")}


def cases(world: World) -> Iterator[Case]:
    registrations = world.registrations()
    for operation in OPERATIONS:
        for action in world.sent(operation):
            spoils = [*_spoils(action, CHANGES[action]), ("is ignored", Spoiled(how="ignore", action=action))]
            for what, spoil in spoils:
                yield Case(operation=operation, spoil=spoil, what=what)
        if request := REQUESTS.get(operation):
            made: dict[str, list[Callable[[Body], Body]]] = {"POST /tables": CREATIONS, "POST /register": registrations}
            changes: list[Callable[[Body], Body | None]] = [*made.get(request, [])]
            spoils = [*_spoils(request, changes), ("is ignored", Spoiled(how="ignore", action=request))]
            # A staged table is kept by its commit.
            kept = (request, made.get(request, [])) if operation != "create a copy" else ("POST /copy", STAGED)
            for number, change in enumerate(kept[1]):
                spoils.append((f"otherwise, {number}", Spoiled(how="keep", action=kept[0], change=change)))
            if kept[0] != request:
                spoils.append(("is ignored", Spoiled(how="ignore", action=kept[0])))
            for what, spoil in spoils:
                yield Case(operation=operation, spoil=spoil, what=what)


def check(
    world: World, case: Case, wanted: dict[str, Any], before: dict[str, Any], first: dict[str, Any] | None = None
) -> str | None:
    """Return what is wrong about a case; None if all is right.

    Args:
        first: the state after the first of two steps.
    """
    table = world.put_back()
    world.server.spoil = case.spoil
    error: Exception | None = None
    try:
        OPERATIONS[case.operation](table)
    except IcebergError as found:
        error = found
    except Exception as found:
        return f"a raw {type(found).__name__}: {found}"
    world.server.spoil = None
    if lost := world.lost_files():
        return f"files are gone that are needed: {lost[:2]} ({error})"
    state = world.state()
    if error is None:
        return None if state == wanted else f"is told as done, but {_other(state, wanted)}"
    if first is not None and state == first:
        is_said = IN_TWO_STEPS[case.operation][1] in str(error) and "nothing was changed" not in str(error)
        return None if is_said else f"does not say that the first step is done: {error}"
    if not isinstance(error, CommitUnknownError) and _without_begun(state) != _without_begun(before):
        return f"is told as not done ({type(error).__name__}: {error}), but {_other(state, before)}"
    return None


def _without_begun(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out a new branch, which is created before its rows are sent and stays if they are refused."""
    found = {name: dict(value) for name, value in state.items()}
    if "db.t" in found:
        found["db.t"]["refs"] = {name: ref for name, ref in found["db.t"]["refs"].items() if name != "audit"}
    return found


def _other(state: dict[str, Any], wanted: dict[str, Any]) -> str:
    found = []
    for name in sorted({*state, *wanted}):
        ours, theirs = state.get(name), wanted.get(name)
        if ours is None or theirs is None:
            found.append(f"{name} is {'missing' if ours is None else 'there'}")
        else:
            found += [f"{name}: {key} is {ours.get(key)}, wanted {theirs.get(key)}" for key in {*ours, *theirs}
                      if ours.get(key) != theirs.get(key)]  # fmt: skip
    return "; ".join(found)


def failures(world: World, chosen: list[Case]) -> list[str]:
    found = []
    wanted: dict[str, dict[str, Any]] = {}
    world.put_back()
    before = world.state()

    def after(operation: str) -> dict[str, Any]:
        if operation not in wanted:
            OPERATIONS[operation](world.put_back())
            wanted[operation] = world.state()
        return wanted[operation]

    for case in chosen:
        steps = IN_TWO_STEPS.get(case.operation)
        if problem := check(world, case, after(case.operation), before, steps and after(steps[0])):
            found.append(f"{case}: {problem}")
    return found


@pytest.mark.costly
def test_each_update_is_sent_by_an_operation(world: World) -> None:
    sent = {action for operation in OPERATIONS for action in world.sent(operation)}
    assert sent == UPDATES.keys() == CHANGES.keys()


def test_some_cases(world: World) -> None:
    assert failures(world, list(cases(world))[::199]) == []


@pytest.mark.costly
def test_what_an_answer_does_not_show(world: World) -> None:
    """Nothing of it is in the answer, or only a part was done."""
    wanted = {
        "drop / DELETE /t is ignored",
        "rename / POST /rename is ignored",
        "register / POST /register is ignored",
        "drop a namespace / DELETE /empty is ignored",
        "create a namespace / POST /namespaces is ignored",
        "properties of a namespace / POST /properties is ignored",
        "two tables / set-properties is ignored",
        "create / POST /tables is changed, 3",
        "create / POST /tables is ignored",
        "create / POST /tables is kept otherwise, 2",
        "create if not there / POST /tables is ignored",
        "create a copy / POST /copy is ignored",
        "create a copy / POST /copy is kept otherwise, 0",
        "register / POST /register is changed, 0",
        "register / POST /register is kept otherwise, 2",
        "register over / POST /register is ignored",
        "expire with metadata / remove-schemas is refused with 501",
    }
    chosen = [case for case in cases(world) if str(case) in wanted]
    assert {str(case) for case in chosen} == wanted
    assert failures(world, chosen) == []


@pytest.mark.services
def test_more_cases(world: World) -> None:
    assert failures(world, list(cases(world))[1::7]) == []


@pytest.mark.long
def test_all_cases(world: World) -> None:
    chosen = list(cases(world))
    assert len(chosen) > 1000
    assert failures(world, chosen) == []
