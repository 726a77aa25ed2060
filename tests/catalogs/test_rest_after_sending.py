"""What goes wrong after a REST server has made a change is no failure of the change: its files must stay."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog, TableId
from airflow_iceberg.catalogs.rest.changes import after_beginning, beginning, creation, new_branches
from airflow_iceberg.catalogs.rest.credentials import Delegation, RoutedFileIO
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import (
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    Change,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetLocation,
    SetSnapshotRef,
    Update,
    apply_change,
)
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.storage.base import FileIO
from tests.catalogs.contract import new_metadata, setting
from tests.catalogs.test_rest_http import COMMIT, LOAD, Script, error, table
from tests.support.http_server import Reply, Request, document

OTHER_UUID = "6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0002"
NEW = "POST /v1/namespaces/db/tables"


@pytest.fixture
def server() -> Iterator[Script]:
    with Script() as server:
        server.on(LOAD, document(table()))
        yield server


@pytest.fixture
def catalog(server: Script) -> Catalog:
    return load_catalog("prod", uri=server.uri)


def snapshot(number: int, parent: int | None = None) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=1_700_000_000_000,
        manifest_list=f"file:///w/db/t/metadata/{number}.avro",
        summary={"operation": "append"},
        schema_id=0,
    )


def to(name: str, number: int) -> Update:
    return SetSnapshotRef(ref_name=name, ref=SnapshotRef(snapshot_id=number, type="branch"))


def answer(metadata: TableMetadata, number: int) -> Reply:
    found = {**metadata_json.to_dict(metadata), "table-uuid": metadata.table_uuid}
    return document({"metadata-location": f"file:///w/db/t/metadata/{number}.json", "metadata": found})


def after(metadata: TableMetadata, *updates: Update) -> TableMetadata:
    return apply_change(metadata, Change(updates=updates), now_ms=1_700_000_000_000, base_location=None)


class TestCommits:
    def test_an_answer_that_cannot_be_compared_is_no_failed_commit(self, server: Script, catalog: Catalog) -> None:
        state = catalog.load("db.t")
        found = table("file:///w/db/t/metadata/2.json")
        found["metadata"]["location"] = "s3://lake/../t"
        server.on(COMMIT, document(found))
        with pytest.raises(
            CommitUnknownError, match=r"did commit to table db\.t, and its answer cannot be used.*'\.\.'"
        ):
            catalog.commit(state, Change(updates=(SetLocation(location="s3://lake/db/t"),)))

    def test_another_table_in_the_answer_is_told(self, server: Script, catalog: Catalog) -> None:
        """A server that does not check the uuid changes the table that has the name now."""
        state = catalog.load("db.t")
        other = table("file:///w/db/t/metadata/9.json")
        other["metadata"]["table-uuid"] = OTHER_UUID
        server.on(COMMIT, document(other))
        server.on(LOAD, document(other))
        with pytest.raises(CommitUnknownError, match=f"it is another table, with the uuid {OTHER_UUID}"):
            catalog.commit(state, setting(a="1"))

    def test_an_old_answer_is_looked_up_in_the_table(self, server: Script, catalog: Catalog) -> None:
        state = catalog.load("db.t")
        newer = table("file:///w/db/t/metadata/2.json")
        newer["metadata"]["properties"] = {"a": "1", "b": "2"}
        server.on(COMMIT, document(table()))
        server.on(LOAD, document(newer))
        assert catalog.commit(state, setting(b="2")).metadata_location == newer["metadata-location"]
        assert server.calls()[-2:] == [COMMIT, LOAD]
        server.on(LOAD, document(table()))
        with pytest.raises(CommitUnknownError, match="properties are missing or have other values: b"):
            catalog.commit(state, setting(b="2"))

    def test_the_uuid_in_capitals_is_the_same(self, server: Script, catalog: Catalog) -> None:
        state = catalog.load("db.t")
        found = table("file:///w/db/t/metadata/2.json")
        found["metadata"]["table-uuid"] = found["metadata"]["table-uuid"].upper()
        server.on(COMMIT, document(found))
        assert catalog.commit(state, setting(a="1")).metadata_location == "file:///w/db/t/metadata/2.json"


class TestNewBranches:
    BASE = after(new_metadata("file:///w/db/t"), AddSnapshot(snapshot=snapshot(1)), to("main", 1))

    def test_one_of_a_table_without_snapshots_begins_with_an_empty_one(self) -> None:
        base = new_metadata("file:///w/db/t")
        at = AssertRefSnapshotId(ref="audit", snapshot_id=None)
        updates = (AddSnapshot(snapshot=snapshot(1)), AddSnapshot(snapshot=snapshot(2, 1)), to("audit", 2))
        change = Change(updates=updates, requirements=(at,))
        (branch,) = new_branches(base, change)
        first, then = beginning(change, branch), after_beginning(change, branch)
        assert first == Change(updates=(updates[0], to("audit", 1)), requirements=(at,))
        assert then.updates == updates[1:]
        assert then.requirements == (AssertRefSnapshotId(ref="audit", snapshot_id=1),)
        assert after(after(base, *first.updates), *then.updates).refs == after(base, *updates).refs

    def test_one_with_several_new_snapshots_begins_where_the_first_does(self) -> None:
        updates = (AddSnapshot(snapshot=snapshot(2, 1)), AddSnapshot(snapshot=snapshot(3, 2)), to("audit", 3))
        (branch,) = new_branches(self.BASE, Change(updates=updates))
        assert (branch.name, branch.at, branch.first) == ("audit", 1, ())

    def test_nothing_is_begun_for_others(self) -> None:
        for base, updates in (
            (self.BASE, (AddSnapshot(snapshot=snapshot(2, 1)), to("main", 2))),
            (self.BASE, (to("audit", 1),)),
            (new_metadata("file:///w/db/t"), (AddSnapshot(snapshot=snapshot(1)), to("audit", 1))),
            (self.BASE, (AddSnapshot(snapshot=snapshot(2, 2)), to("audit", 2))),
            (self.BASE, (AddSnapshot(snapshot=snapshot(2, 7)), to("audit", 2))),
        ):
            assert list(new_branches(base, Change(updates=updates))) == []

    def test_rows_that_no_longer_fit_the_table_with_the_branch_are_a_conflict(
        self, server: Script, catalog: Catalog
    ) -> None:
        """The time of the snapshot, by a slow clock, may be before that of the branch, by the server's."""
        begun = after(self.BASE, to("audit", 1))
        server.on(LOAD, answer(self.BASE, 1), answer(begun, 2))
        server.on(COMMIT, answer(begun, 2), error(400, "ValidationException", "Invalid snapshot timestamp"))
        state = catalog.load("db.t")
        change = Change(updates=(AddSnapshot(snapshot=snapshot(2, 1)), to("audit", 2)))
        with pytest.raises(CommitConflictError, match="Invalid snapshot timestamp"):
            catalog.commit(state, change)
        assert server.calls().count(COMMIT) == 2

    def test_one_whose_rows_are_refused_stays_and_that_is_said(self, server: Script, catalog: Catalog) -> None:
        begun = after(self.BASE, to("audit", 1))
        change = Change(updates=(AddSnapshot(snapshot=snapshot(2, 1)), to("audit", 2)))
        for status, kind in ((405, UnsupportedError), (403, StorageError), (413, InvalidInputError)):
            server.on(LOAD, answer(self.BASE, 1))
            server.on(COMMIT, answer(begun, 2), error(status))
            told = r"^branch 'audit' of table db\.t was created and stays, without the rows: catalog prod cannot commit"
            with pytest.raises(kind, match=told):
                catalog.commit(catalog.load("db.t"), change)


class TestCreationsWithSnapshots:
    WANTED = replace(TestNewBranches.BASE, table_uuid="6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0009")

    @pytest.fixture(autouse=True)
    def staged(self, server: Script) -> None:
        server.on(LOAD, error(404))
        server.on("GET /v1/namespaces/db", document({"namespace": ["db"], "properties": {}}))
        server.on(NEW, document(table(None)))

    def commit(self, server: Script, reply: Reply, then: Any) -> None:
        def made(request: Request) -> Reply:
            server.on(LOAD, then)
            return reply

        server.on(COMMIT, made)

    def made(self, uuid: str = "6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0001") -> TableMetadata:
        return replace(self.WANTED, table_uuid=uuid)

    def test_one_that_is_refused_because_of_itself_is_made(self, server: Script, catalog: Catalog) -> None:
        self.commit(server, error(409), answer(self.made(), 1))
        assert catalog.create(TableId.parse("db.t"), self.WANTED).metadata.refs == self.WANTED.refs

    def test_one_that_is_refused_because_of_another_is_not(self, server: Script, catalog: Catalog) -> None:
        for then in (answer(self.made(OTHER_UUID), 1), error(404)):
            server.on(LOAD, error(404))
            self.commit(server, error(409), then)
            with pytest.raises(AlreadyExistsError, match=r"table db\.t exists already"):
                catalog.create(TableId.parse("db.t"), self.WANTED)

    def test_one_whose_answer_cannot_be_compared_is_made(self, server: Script, catalog: Catalog) -> None:
        """As a failed creation its files would be removed."""
        for odd in ("wh/t/metadata/snap-1.avro", "s3://lake/t/metadata/../snap-1.avro"):
            there = self.made()
            shown = replace(there, snapshots=tuple(replace(one, manifest_list=odd) for one in there.snapshots))
            server.on(LOAD, error(404))
            self.commit(server, answer(shown, 1), answer(shown, 1))
            with pytest.raises(CommitUnknownError, match=r"did create table db\.t, and its answer cannot be used"):
                catalog.create(TableId.parse("db.t"), self.WANTED)

    def test_one_that_is_answered_and_not_kept_is_open(self, server: Script, catalog: Catalog) -> None:
        """Its files stay: a copy has rows."""
        other, bare = self.made(OTHER_UUID), replace(self.made(), refs={}, current_snapshot_id=None)
        for then, words in (
            (error(404), r"there is no table db\.t"),
            (answer(other, 1), f"has the uuid {OTHER_UUID}"),
            (answer(bare, 2), "branch .main. is missing"),
        ):
            server.on(LOAD, error(404))
            self.commit(server, answer(self.made(), 1), then)
            with pytest.raises(CommitUnknownError, match=f"answered that it did create table db.t, .*{words}"):
                catalog.create(TableId.parse("db.t"), self.WANTED)
        server.on(LOAD, error(404))
        self.commit(server, answer(self.made(), 1), answer(self.made(), 1))
        assert catalog.create(TableId.parse("db.t"), self.WANTED).metadata.refs == self.WANTED.refs

    def test_one_that_is_refused_and_cannot_be_looked_at_is_open(self, server: Script, catalog: Catalog) -> None:
        self.commit(server, error(409), error(403))
        with pytest.raises(CommitUnknownError, match="the name is taken, and cannot tell whether by this very table"):
            catalog.create(TableId.parse("db.t"), self.WANTED)

    def test_what_the_answer_lacks_is_told(self, server: Script, catalog: Catalog) -> None:
        order = sort_order_from_shorthand([self.WANTED.schema().fields[0].name], self.WANTED.schema())
        sorted_ = (AddSortOrder(sort_order=order), SetDefaultSortOrder())
        for found, words in (
            (replace(self.made(), refs={}, current_snapshot_id=None), "branch 'main' is missing"),
            (after(self.made(), *sorted_), "it has another sort order"),
        ):
            server.on(LOAD, error(404))
            self.commit(server, answer(found, 1), error(404))
            with pytest.raises(CommitUnknownError, match=f"did create table db.t, but .*{words}"):
                catalog.create(TableId.parse("db.t"), self.WANTED)


def test_a_staged_table_has_schemas_without_gaps() -> None:
    """Iceberg Java's server gives them the ids 0, 1, 2, and refuses to make one of another id current."""
    schema = new_metadata("file:///w/db/t").schema()
    schemas = tuple(
        replace(schema, schema_id=number, fields=schema.fields[: 1 + number % 2]) for number in (0, 3, 4, 7)
    )
    last = replace(snapshot(2, 1), schema_id=3)
    wanted = replace(
        after(TestNewBranches.BASE, AddSnapshot(snapshot=last), to("main", 2)), schemas=schemas, current_schema_id=7
    )
    change = creation(wanted, table_uuid=OTHER_UUID, location=wanted.location)
    assert [one.schema.schema_id for one in change.updates if isinstance(one, AddSchema)] == [0, 1]
    assert [one.schema_id for one in change.updates if isinstance(one, SetCurrentSchema)] == [1]
    assert [one.snapshot.schema_id for one in change.updates if isinstance(one, AddSnapshot)] == [0, 1]


class Named(FileIO):
    def __init__(self, name: str) -> None:
        self.name = name

    def exists(self, location: str) -> bool:
        raise LookupError(self.name)


def test_the_scheme_does_not_make_a_prefix_longer() -> None:
    short, long = "s3a://lake/", "s3://lake/d"
    delegation = Delegation(credentials=((short, {"k": "short"}), (long, {"k": "long"})))
    assert delegation.properties_for("s3n://lake/d/a") == {"k": "long"}
    io = RoutedFileIO({short: Named("short"), long: Named("long")}, otherwise=Named("none"))
    with pytest.raises(LookupError, match="long"):
        io.exists("s3a://lake/d/a")


def test_what_is_routed_has_all_methods_of_access_to_files() -> None:
    methods = {name for name, value in vars(FileIO).items() if callable(value) and not name.startswith("_")}
    assert methods <= vars(RoutedFileIO).keys()
