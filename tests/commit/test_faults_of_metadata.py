"""Changes without a snapshot, and what catalogs do with whole tables: every step goes wrong once, in every way.

The table always reads; the change is made once or not at all, and a second try ends with it made; what is dropped is
dropped whole, and what is not keeps its files.
"""

from collections.abc import Callable
from uuid import uuid4

import pytest

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.actions.remove_unused_schemas import RemoveUnusedSchemas
from airflow_iceberg.errors import CommitUnknownError, IcebergError, NotFoundError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.requirements import AssertTableUUID
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.table import Table
from tests.support.changes import NAME
from tests.support.faults import (
    AHEAD,
    KINDS,
    LATE_AFTER,
    OTHER,
    OUTCOMES_OF_RENAMED,
    SWAP_FAULTS,
    TAG,
    behind,
    check_whole,
    faults_of,
    numbered,
    rename,
    replace,
    rows_now,
    world,
)
from tests.support.memory import Fault, FaultyCatalog, FileFault, FileRule, SimulatedCrash
from tests.support.sampling import some


def altering(*changes) -> Callable[[Catalog], object]:
    return lambda catalog: Table.load(catalog, NAME).alter(changes)


def pointing(method: str, *args, **options) -> Callable[[Catalog], object]:
    """A change of a ref; its arguments may be functions of the metadata."""

    def run(catalog: Catalog) -> None:
        table = Table.load(catalog, NAME)
        getattr(table, method)(*(arg(table.metadata) if callable(arg) else arg for arg in args), **options)

    return run


def forget(catalog: Catalog) -> None:
    table = Table.load(catalog, NAME)
    table.change(RemoveUnusedSchemas(table.io, table_uuid=table.metadata.table_uuid, new_uuid=str(uuid4())))


def first(metadata: TableMetadata) -> int:
    return min(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number).snapshot_id


CHANGES = {
    "schema": altering({"add_column": {"name": "color", "type": "string"}}),
    "partitioning": altering({"add_partition_field": "bucket(4, id)"}),
    "sort order": altering({"set_sort_order": ["id"]}),
    "properties": altering({"set_properties": {"a": "1"}}, {"remove_properties": ["commit.status-check.max-wait-ms"]}),
    "all at once": altering(
        {"add_column": {"name": "color", "type": "string"}},
        {"rename_column": {"from": "color", "to": "colour"}},
        {"set_properties": {"a": "1"}},
    ),
    "a tag": pointing("create_tag", "v1"),
    "rollback": pointing("rollback_to_snapshot", first),
    "current": pointing("set_current_snapshot", first),
    "fast-forward": pointing("fast_forward", "main", AHEAD),
    "a moved tag": pointing("create_tag", TAG, first, replace_existing=True),
    "a branch": pointing("create_branch", "audit", first),
    "a dropped branch": pointing("remove_branch", "more", if_exists=True),
    "unused specs": forget,
}
# Those that change which rows main has.
MOVES = ("rollback", "current", "fast-forward")


def shape(metadata: TableMetadata) -> object:
    """All that a change may change, without what each commit changes anyway and what a rival did."""
    document = metadata_json.to_dict(metadata)
    for name in ("last-updated-ms", "metadata-log", "snapshot-log"):
        document.pop(name, None)
    document["properties"] = {
        name: value for name, value in document["properties"].items() if not name.startswith("rival-")
    }
    return document


def attempt(run: Callable[[], object]) -> str:
    try:
        run()
    except SimulatedCrash:
        return "unknown"
    except IcebergError as error:
        return "unknown" if error.may_have_landed else "failed"
    return "done"


def try_it(run: Callable[[Catalog], object], kind="pointer", rules=(), swaps=(), late_after=1):
    """Try a change with faults; return the catalog without any, how it came out, and what lets late requests arrive."""
    catalog = world(kind, late_after=late_after)
    catalog.io.rules = list(rules)
    faulty = behind(catalog, swaps, late_after)
    outcome = attempt(lambda: run(faulty))
    catalog.io.rules = []

    def arrive():
        for late in (catalog.io.late, getattr(faulty, "late", catalog.io.late)):
            late.arrive()

    return catalog, outcome, arrive


def calls_of(run: Callable[[Catalog], object], kind: str):
    catalog = world(kind)
    catalog.io.calls.clear()
    run(catalog)
    return list(catalog.io.calls)


def rules_of(calls):
    """Every step, in every way: a rule, and after how many other requests a late one arrives."""
    for call, number, ways in numbered(calls):
        for fault in ways:
            for late_after in LATE_AFTER if fault is FileFault.LATE else (1,):
                yield [FileRule(call=call, fault=fault, skip=number)], late_after


@pytest.mark.sample(3)
class TestChangesOfTheTable:
    """Schema, partitioning, order, properties and refs: as before or as after, and rows are not touched."""

    def check(self, name: str, kind: str, rules=(), swaps=(), late_after: int = 1) -> None:
        run, start = CHANGES[name], world(kind)
        before, rows = shape(start.load(NAME).metadata), rows_now(start)
        rows_after = rows
        if name in MOVES:
            run(start)
            rows_after = rows_now(start)
        catalog, outcome, arrive = try_it(run, kind, rules, swaps, late_after)
        check_whole(catalog)
        found = shape(catalog.load(NAME).metadata)
        assert found == before or outcome in ("done", "unknown")
        assert rows_now(catalog) in (rows, rows_after)
        log = len(catalog.load(NAME).metadata.metadata_log)
        run(catalog)
        after = catalog.load(NAME).metadata
        # What landed is found, and not made again.
        assert len(after.metadata_log) - log == (0 if found != before else 1)
        assert shape(after) != before
        assert rows_now(catalog) == rows_after
        arrive()
        assert shape(catalog.load(NAME).metadata) == shape(after)
        check_whole(catalog)

    @pytest.mark.costly
    @pytest.mark.parametrize("name", CHANGES)
    def test_swaps(self, name):
        for fault in SWAP_FAULTS:
            for late_after in LATE_AFTER if fault is Fault.LAND_LATE else (1,):
                self.check(name, "pointer", swaps=[fault], late_after=late_after)

    @pytest.mark.costly
    @pytest.mark.parametrize("name", CHANGES)
    def test_versions(self, name):
        for fault in faults_of("create", "v2.metadata.json"):
            for late_after in (1, 4, 8, 99) if fault is FileFault.LATE else (1,):
                rule = FileRule(call="create", fault=fault, matching=".metadata.json")
                self.check(name, "hadoop", [rule], late_after=late_after)

    @pytest.mark.costly
    @pytest.mark.generated
    @pytest.mark.parametrize(("name", "kind"), [*(("schema", kind) for kind in KINDS), ("unused specs", "pointer")])
    def test_files(self, name, kind):
        """The files are the same for all of them: the table's metadata; what is unused its manifests tell."""
        for rules, late_after in some(rules_of(calls_of(CHANGES[name], kind))):
            self.check(name, kind, rules, late_after=late_after)


CREATION_FAULTS = (
    *(Fault.FAIL, Fault.LAND_THEN_UNKNOWN, Fault.LOSE_THEN_UNKNOWN, Fault.LAND_LATE),
    *(Fault.CRASH_BEFORE, Fault.CRASH_AFTER),
)


class TestCreation:
    """A table is there, whole, or not; who asks again for it, "if not exists", has it."""

    def create(self, catalog: Catalog) -> Table:
        return Table.create(catalog, "db.new", schema={"id": "long"}, if_not_exists=True)

    def check(self, kind: str, rules=(), swaps=(), late_after: int = 1) -> None:
        catalog, outcome, arrive = try_it(self.create, kind, rules, swaps, late_after)
        is_there = catalog.table_exists("db.new")
        assert outcome != "done" or is_there
        assert outcome != "failed" or not is_there
        made = catalog.load("db.new").metadata.table_uuid if is_there else None
        table = self.create(catalog)
        assert made in (None, table.metadata.table_uuid)
        arrive()
        assert Table.load(catalog, "db.new").metadata == table.metadata
        assert [str(each) for each in catalog.list_tables("db")] == ["db.new", NAME]

    def test_swaps(self):
        for fault in (*CREATION_FAULTS, Fault.LAND_THEN_CONFLICT):
            self.check("pointer", swaps=[fault])

    @pytest.mark.generated
    @pytest.mark.parametrize("kind", KINDS)
    def test_files(self, kind):
        for rules, late_after in some(rules_of(calls_of(self.create, kind))):
            self.check(kind, rules, late_after=late_after)


class TestRegistration:
    """A table that is brought into the catalog is there or not, and its files stay in any case."""

    def check(self, rules=(), swaps=(), late_after: int = 1) -> None:
        location = world().load(NAME).metadata_location
        register = lambda catalog: catalog.register_table("db.second", location)  # noqa: E731
        catalog, outcome, arrive = try_it(register, rules=rules, swaps=swaps, late_after=late_after)
        is_there = catalog.table_exists("db.second")
        assert (outcome, is_there) not in (("done", False), ("failed", True))
        arrive()
        if not catalog.table_exists("db.second"):
            catalog.register_table("db.second", location)
        assert catalog.load("db.second").metadata == catalog.load(NAME).metadata
        check_whole(catalog)

    def test_swaps(self):
        for fault in CREATION_FAULTS:
            self.check(swaps=[fault])

    @pytest.mark.generated
    def test_files(self):
        register = lambda catalog: catalog.register_table("db.second", catalog.load(NAME).metadata_location)  # noqa: E731
        for rules, _ in some(rules_of(calls_of(register, "pointer"))):
            self.check(rules)


# Nobody commits to a table that is gone. A drop or a renaming that is repeated on its way is told that there is no such
# table: what to make of that, each catalog knows by itself.
REQUEST_FAULTS = sorted(
    {*SWAP_FAULTS}
    - {Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_CONFLICT, Fault.LAND_THEN_RIVAL_THEN_CONFLICT},
    key=lambda fault: fault.value,
)


class TestDrops:
    """A drop, with its files or without: the table is there with all its files, or it is not in the catalog."""

    @pytest.mark.costly
    @pytest.mark.generated
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("purge", [False, True])
    def test_files(self, kind, purge):
        for rules, late_after in some(rules_of(calls_of(lambda catalog: catalog.drop_table(NAME, purge=purge), kind))):
            rows, files = rows_now(world(kind)), world(kind).io.inner.locations()
            drop = lambda catalog: catalog.drop_table(NAME, purge=purge)  # noqa: E731
            catalog, outcome, arrive = try_it(drop, kind, rules, late_after=late_after)
            if catalog.table_exists(NAME):
                assert outcome != "done"
                assert catalog.io.inner.locations() == files
                assert rows_now(catalog) == rows
                catalog.drop_table(NAME, purge=purge)
            with pytest.raises(NotFoundError):
                catalog.load(NAME)
            arrive()
            if not purge and kind == "pointer":
                assert catalog.io.inner.locations() == files

    @pytest.mark.parametrize("fault", REQUEST_FAULTS)
    @pytest.mark.parametrize("purge", [False, True])
    def test_requests(self, purge, fault):
        for late_after in LATE_AFTER if fault is Fault.LAND_LATE else (1,):
            rows, files = rows_now(world()), world().io.inner.locations()
            drop = lambda catalog: catalog.drop_table(NAME, purge=purge)  # noqa: E731
            catalog, outcome, arrive = try_it(drop, swaps=[fault], late_after=late_after)
            is_there = catalog.table_exists(NAME)
            assert is_there in {"done": (False,), "failed": (True,), "unknown": (True, False)}[outcome]
            if is_there:
                assert rows_now(catalog) == rows
                catalog.drop_table(NAME, purge=purge)
            arrive()
            assert not catalog.table_exists(NAME)
            if not purge:
                assert set(files) <= set(catalog.io.inner.locations())

    @pytest.mark.parametrize("purge", [False, True])
    def test_a_table_that_is_renamed_just_before_keeps_its_files(self, purge):
        catalog = world()
        rows = rows_now(catalog)
        faulty = FaultyCatalog(catalog, [Fault.CONFLICT], rival=rename)
        with pytest.raises(NotFoundError):
            faulty.drop_table(NAME, purge=purge)
        catalog.rename_table(OTHER, NAME)
        check_whole(catalog)
        assert rows_now(catalog) == rows

    @pytest.mark.parametrize("fault", ["lost", "refused"])
    @pytest.mark.parametrize("purge", [False, True])
    def test_no_file_goes_while_the_outcome_is_unknown(self, purge, fault, monkeypatch):
        catalog = world()
        files, drop = catalog.io.inner.locations(), catalog.drop_pointer

        def lose(table):
            if fault == "lost":
                drop(table)
            raise CommitUnknownError("the reply was lost")

        monkeypatch.setattr(catalog, "drop_pointer", lose)
        with pytest.raises(CommitUnknownError):
            catalog.drop_table(NAME, purge=purge)
        assert catalog.io.inner.locations() == files


class TestRenaming:
    """A renamed table has one name, the old or the new; it keeps its files, and commits go on under that name."""

    @pytest.mark.parametrize("fault", REQUEST_FAULTS)
    def test_requests(self, fault):
        for late_after in LATE_AFTER if fault is Fault.LAND_LATE else (1,):
            catalog = world(late_after=late_after)
            rows = rows_now(catalog)
            faulty = behind(catalog, [fault], late_after)
            outcome = attempt(lambda: faulty.rename_table(NAME, OTHER))  # noqa: B023
            names = [name for name in (NAME, OTHER) if catalog.table_exists(name)]
            assert names in {"done": ([OTHER],), "failed": ([NAME],), "unknown": ([NAME], [OTHER])}[outcome]
            if names == [NAME]:
                assert rows_now(catalog) == rows
                catalog.rename_table(NAME, OTHER)
            Table.load(faulty, OTHER).alter([{"set_properties": {"a": "1"}}])
            faulty.late.arrive()
            assert [str(name) for name in catalog.list_tables("db")] == [OTHER]
            catalog.rename_table(OTHER, NAME)
            check_whole(catalog)
            assert rows_now(catalog) == rows
            assert catalog.load(NAME).metadata.properties["a"] == "1"

    @pytest.mark.parametrize("rival", [rename, replace])
    @pytest.mark.parametrize("name", CHANGES)
    def test_a_change_is_made_of_the_table_that_it_was_asked_for(self, name, rival):
        """The table gets another name while the change is under way, and its old name perhaps another table."""
        for fault, expected in OUTCOMES_OF_RENAMED.items():
            catalog = world()
            before = shape(catalog.load(NAME).metadata)
            outcome = attempt(lambda: CHANGES[name](FaultyCatalog(catalog, [fault], rival=rival)))  # noqa: B023
            is_changed = shape(catalog.load(OTHER).metadata) != before
            assert (outcome, is_changed) == expected
            if rival is rename:
                assert not catalog.table_exists(NAME)
            else:
                assert len(catalog.load(NAME).metadata.metadata_log) == 0
                catalog.drop_table(NAME)
            catalog.rename_table(OTHER, NAME)
            check_whole(catalog)

    @pytest.mark.parametrize("name", CHANGES)
    def test_a_server_is_told_of_which_table_it_is(self, name, monkeypatch):
        """One that applies changes itself cannot tell otherwise."""
        catalog, sent = world(), []
        send = catalog.commit
        monkeypatch.setattr(catalog, "commit", lambda base, change: sent.append(change) or send(base, change))
        uuid = catalog.load(NAME).metadata.table_uuid
        CHANGES[name](catalog)
        assert [AssertTableUUID(uuid=uuid) in change.requirements for change in sent] == [True]

    def test_a_writer_that_has_loaded_it_before_does_not_bring_the_old_name_back(self):
        catalog = world()
        table = Table.load(catalog, NAME)
        catalog.rename_table(NAME, OTHER)
        with pytest.raises(IcebergError):
            table.alter([{"set_properties": {"a": "1"}}])
        assert not catalog.table_exists(NAME)
        assert "a" not in Table.load(catalog, OTHER).properties

    @pytest.mark.parametrize("fault", [Fault.LAND_THEN_UNKNOWN, Fault.LOSE_THEN_UNKNOWN])
    def test_a_commit_that_lost_its_answer_to_a_renaming_is_unknown(self, fault):
        """Nobody can tell by the old name whether it landed before; its files stay."""
        catalog = world()
        faulty = behind(catalog, [fault])
        table = Table.load(faulty, NAME)
        load = faulty.load

        def renamed(name):
            catalog.rename_table(NAME, OTHER)
            return load(name)

        faulty.load = renamed
        with pytest.raises(CommitUnknownError):
            table.alter([{"set_properties": {"a": "1"}}])
        moved = Table.load(catalog, OTHER)
        assert ("a" in moved.properties) == (fault is Fault.LAND_THEN_UNKNOWN)
