"""The commit loop: three outcomes, and the table is asked before anything is tried again."""

import dataclasses
import itertools
import json
import uuid

import pyarrow as pa
import pytest

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.engine import Clock, commit
from airflow_iceberg.commit.operation_key import OPERATION_KEY, OperationKey
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    TableReplacedError,
)
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshots, SetProperties
from airflow_iceberg.table import Table
from tests.support.change_table import ChangeTable
from tests.support.memory import (
    Fault,
    FaultyCatalog,
    FaultyFileIO,
    FileFault,
    FileRule,
    MemoryCatalog,
    SimulatedCrash,
)

KEY = OperationKey(dag_id="load", run_id="r1", task_id="append")
numbers = itertools.count(1)


class FakeClock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now, self.sleeps = 0.0, []

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds

    def clock(self):
        return Clock(monotonic=lambda: self.now, sleep=self.sleep, random=lambda: 1.0)


@pytest.fixture
def time():
    return FakeClock()


@pytest.fixture
def inner():
    return MemoryCatalog()


@pytest.fixture
def make_table(inner):
    def make(**properties):
        named = {name.replace("__", ".").replace("_", "-"): str(value) for name, value in properties.items()}
        Table.create(inner, "db.t", schema={"id": "long"}, properties=named)
        return inner.load("db.t")

    return make


@pytest.fixture
def state(make_table):
    return make_table()


@pytest.fixture
def land(time):
    return lambda catalog, state, action: commit(catalog, state, action, clock=time.clock()).state


def file(name=None):
    name = name or f"f{next(numbers)}"
    return DataFile(
        file_path=f"memory://warehouse/db/t/data/{name}.parquet",
        file_format="parquet",
        partition=(),
        spec_id=0,
        record_count=10,
        file_size_in_bytes=100,
    )


def append(catalog, *files, operation=None, snapshot_id=None, state=None):
    metadata = (state or catalog.load("db.t")).metadata
    settings = CommitSettings(
        table_uuid=metadata.table_uuid,
        snapshot_id=snapshot_id or next(numbers) + 10**12,
        commit_uuid=uuid.uuid4(),
        now_ms=lambda: 1_800_000_000_000,
        properties=operation.summary(1) if operation else {},
        operation_key=operation,
    )
    return AppendFiles(catalog.io, files or (file(),), settings, written_schema=metadata.schema())


def rival_append(catalog, table):
    commit(catalog, catalog.load(table), append(catalog))


def paths(catalog):
    """The live files of the table, each as often as it is listed."""
    table = Table.load(catalog, "db.t")
    return sorted(path.rsplit("/", 1)[-1] for path in table.inspect.files()["file_path"].to_pylist())


def metadata_files(catalog):
    return {location for location in catalog.io.locations("memory://warehouse") if "/metadata/" in location}


def reachable(catalog):
    state = catalog.load("db.t")
    named = {state.metadata_location, *(location for _, location in state.metadata.metadata_log)}
    for snapshot in state.metadata.snapshots:
        named.add(snapshot.manifest_list)
        named |= set(Table.load(catalog, "db.t").inspect.manifests(snapshot.snapshot_id)["path"].to_pylist())
    return named


class TestConflict:
    """A lost race is followed by another attempt on the newer table, as often as the table's properties allow."""

    def test_the_rows_of_both_writers_are_there(self, state, inner, land):
        catalog = FaultyCatalog(inner, [Fault.CONFLICT] * 3, rival=rival_append)
        ours = append(catalog, file("ours"))
        landed = land(catalog, state, ours)
        assert len(paths(inner)) == 4
        assert "ours.parquet" in paths(inner)
        assert landed.metadata.current_snapshot().sequence_number == 4

    @pytest.mark.parametrize("ours", ["append", "properties"])
    def test_with_who_gives_a_uuid_to_an_old_table_without_one(self, make_table, inner, land, ours):
        """It is the same table: the race was lost, and nothing is unknown."""
        document = metadata_json.to_dict(make_table(format_version=1).metadata)
        del document["table-uuid"]
        inner.io.create("memory://warehouse/db/t/metadata/old.metadata.json", json.dumps(document).encode())
        inner.drop_table("db.t")
        state = inner.register_table("db.t", "memory://warehouse/db/t/metadata/old.metadata.json")
        upgrade = lambda catalog, name: Table.load(catalog, name).alter([{"upgrade_format_version": 2}])  # noqa: E731
        catalog = FaultyCatalog(inner, [Fault.CONFLICT], rival=upgrade)
        change = Change(updates=(SetProperties(updates={"a": "b"}),))
        work = append(catalog, file("ours"), state=state) if ours == "append" else ChangeTable(lambda _: change)
        landed = land(catalog, state, work)
        assert landed.metadata.format_version == 2
        assert landed.metadata.table_uuid
        assert landed.metadata.properties.get("a") == "b" or "ours.parquet" in paths(inner)

    def test_the_snapshot_id_and_the_new_manifests_stay_the_same(self, state, inner, land):
        catalog = FaultyCatalog(inner, [Fault.CONFLICT] * 2, rival=rival_append)
        catalog.io = FaultyFileIO(inner.io)
        land(catalog, state, append(catalog, snapshot_id=77))
        created = [location.rsplit("/", 1)[-1] for call, location in catalog.io.calls if call == "create"]
        assert len([name for name in created if name.startswith("snap-77-")]) == 3
        assert len([name for name in created if name.endswith("-m0.avro")]) == 1
        assert not any(name.endswith("-m1.avro") for name in created)

    def test_a_retry_reads_the_winners_manifest_list_and_no_other(self, state, inner, land):
        """Nothing that this writer wrote itself, neither for the retry nor to clear up after it.

        Of the winner's metadata the start is read: another table's would keep ours from being deleted.
        """
        catalog = FaultyCatalog(inner, [Fault.CONFLICT] * 2, rival=rival_append)
        catalog.io = FaultyFileIO(inner.io)
        landed = land(catalog, state, append(catalog))
        first, second, _ = landed.metadata.snapshots
        read = [location for call, location in catalog.io.calls if call == "read"]
        assert [location for location in read if location.endswith(".avro")] == [
            first.manifest_list,
            second.manifest_list,
        ]
        assert len(read) == 4
        assert metadata_files(inner) == reachable(inner)

    @pytest.mark.parametrize("retries", [0, 2])
    def test_giving_up_leaves_nothing_behind(self, make_table, inner, land, retries):
        state = make_table(commit__retry__num_retries=retries)
        catalog = FaultyCatalog(inner, [Fault.CONFLICT] * 9)
        with pytest.raises(CommitConflictError, match=rf"won {retries + 1} attempts? to commit to db\.t"):
            land(catalog, state, append(catalog))
        assert len(catalog.swaps) == retries + 1
        assert metadata_files(inner) == reachable(inner)
        assert inner.load("db.t").metadata.current_snapshot() is None

    def test_waits_double_up_to_the_tables_limit(self, make_table, inner, time, land):
        state = make_table(commit__retry__min_wait_ms=50, commit__retry__max_wait_ms=150)
        catalog = FaultyCatalog(inner, [Fault.CONFLICT] * 4)
        land(catalog, state, append(catalog))
        assert time.sleeps == [0.05, 0.1, 0.15, 0.15]

    def test_the_total_time_is_the_tables(self, make_table, inner, time, land):
        state = make_table(commit__retry__total_timeout_ms=1000, commit__retry__min_wait_ms=400)
        catalog = FaultyCatalog(inner, [Fault.CONFLICT] * 99)
        with pytest.raises(CommitConflictError):
            land(catalog, state, append(catalog))
        assert time.now <= 1.0
        assert len(catalog.swaps) == 2


class TestUnknown:
    """A lost reply is resolved by reading the table back; nothing is deleted until it is."""

    @pytest.mark.parametrize("is_named_by_the_server", [False, True])
    @pytest.mark.parametrize(
        "fault", [Fault.LAND_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_CONFLICT]
    )
    def test_what_landed_is_recognised(self, state, inner, land, fault, is_named_by_the_server):
        """Where the server names the metadata file, as a REST catalog's does, by the id of the snapshot alone."""

        class Server(FaultyCatalog):
            def commit(self, base, change):
                try:
                    return super().commit(base, change)
                except CommitUnknownError as error:
                    error.metadata_location = None
                    raise

        catalog = (Server if is_named_by_the_server else FaultyCatalog)(inner, [fault], rival=rival_append)
        action = append(catalog, file("ours"))
        landed = land(catalog, state, action)
        assert landed.metadata.snapshot(action.snapshot_id) is not None
        assert paths(inner).count("ours.parquet") == 1
        assert len(catalog.swaps) == 1

    @pytest.mark.parametrize("fault", [Fault.LOSE_THEN_UNKNOWN, Fault.RIVAL_THEN_UNKNOWN])
    def test_what_did_not_land_is_tried_again(self, state, inner, fault, land):
        catalog = FaultyCatalog(inner, [fault], rival=rival_append)
        land(catalog, state, append(catalog, file("ours")))
        assert paths(inner).count("ours.parquet") == 1

    def test_a_request_that_lands_late_is_not_doubled(self, state, inner, land):
        delayed = []

        class Late(FaultyCatalog):
            """The first swap is held up in the network and arrives right before the second one."""

            def swap_pointer(self, table, *, expected, new):
                if not delayed:
                    delayed.append((expected, new))
                    raise CommitUnknownError("timed out")
                if len(delayed) == 1:
                    delayed.append(None)
                    self.inner.swap_pointer(table, expected=delayed[0][0], new=delayed[0][1])
                return self.inner.swap_pointer(table, expected=expected, new=new)

        catalog = Late(inner)
        action = append(catalog, file("ours"))
        landed = land(catalog, state, action)
        assert paths(inner) == ["ours.parquet"]
        assert len(landed.metadata.snapshots) == 1

    @pytest.mark.parametrize(
        "then", [FileRule(call="create", fault=FileFault.FAIL, times=None), FileRule(call="read", fault=FileFault.FAIL)]
    )
    def test_a_failure_after_a_lost_reply_is_still_unknown(self, state, inner, then, land):
        """The caller deletes its data files after a failure; the lost request may still land and need them."""
        land(inner, state, append(inner))
        catalog = FaultyCatalog(inner, [Fault.LOSE_THEN_UNKNOWN])
        io = FaultyFileIO(inner.io)
        catalog.io = inner.io = io
        action = append(catalog)
        once = catalog.inner.load

        def load(table):
            loaded = once(table)
            io.rules = [then]
            return loaded

        catalog.load = load
        with pytest.raises(CommitUnknownError, match="was not confirmed, and then this failed"):
            land(catalog, inner.load("db.t"), action)
        assert not any(call == "delete" for call, _ in io.calls)

    @pytest.mark.parametrize(("then", "message"), [
        (StorageError("cannot be reached"), "the reply was lost"),
        (NotFoundError("renamed meanwhile"), r"cannot be read back: .*; nothing was deleted"),
        (FormatError("two versions"), r"cannot be read back: .*; nothing was deleted"),
    ])  # fmt: skip
    def test_nothing_is_deleted_while_the_table_cannot_be_read_back(self, state, inner, then, message, land):
        """Under another name, say, the table holds the rows: no caller may delete their files."""
        catalog = FaultyCatalog(inner, [Fault.LAND_THEN_UNKNOWN])
        action = append(catalog, file("ours"))

        def load(table):
            raise then

        catalog.load = load
        with pytest.raises(CommitUnknownError, match=message):
            land(catalog, state, action)
        assert reachable(inner) <= metadata_files(inner)
        assert paths(inner) == ["ours.parquet"]

    @pytest.mark.parametrize(("properties", "sleeps"), [
        ({"num_retries": 5, "min_wait_ms": 10}, [0.01, 0.02, 0.04, 0.08, 0.16]),
        (
            {"num_retries": 99, "min_wait_ms": 100, "max_wait_ms": 150, "total_timeout_ms": 500},
            [0.1, 0.15, 0.15],
        ),
    ])  # fmt: skip
    def test_the_number_of_status_checks_their_waits_and_their_time_are_the_tables(
        self, make_table, inner, time, land, properties, sleeps
    ):
        state = make_table(**{f"commit__status_check__{name}": value for name, value in properties.items()})
        catalog = FaultyCatalog(inner, [Fault.LAND_THEN_UNKNOWN], loads=[Fault.FAIL] * 99)
        with pytest.raises(CommitUnknownError):
            land(catalog, state, append(inner))
        assert catalog.load_count == len(sleeps) + 1
        assert time.sleeps == sleeps

    def test_a_catalog_that_comes_back_in_time_tells(self, state, inner, land):
        catalog = FaultyCatalog(inner, [Fault.LAND_THEN_UNKNOWN], loads=[Fault.FAIL] * 2)
        land(catalog, state, append(inner, file("ours")))
        assert paths(inner) == ["ours.parquet"]

    def test_a_change_without_a_snapshot_is_recognised_by_its_metadata_file(self, state, inner, land):
        catalog = FaultyCatalog(inner, [Fault.LAND_THEN_RIVAL_THEN_UNKNOWN])
        calls = []

        def change(metadata):
            calls.append(metadata)
            return Change(updates=(SetProperties(updates={"count": str(len(calls))}),), requirements=())

        landed = land(catalog, state, ChangeTable(change))
        assert landed.metadata.properties["count"] == "1"
        assert len(calls) == 1


class TestTheKeyIsAskedFirst:
    """On every attempt the table is asked for the own snapshot and the own key, before anything is validated."""

    def test_the_same_work_of_another_process_is_found_and_not_doubled(self, state, inner, land):

        def twin(catalog, table):
            commit(catalog, catalog.load(table), append(catalog, file("twin"), operation=KEY))

        catalog = FaultyCatalog(inner, [Fault.CONFLICT], rival=twin)
        action = append(catalog, file("ours"), operation=KEY)
        landed = land(catalog, state, action)
        assert paths(inner) == ["twin.parquet"]
        assert landed.metadata.snapshot(action.snapshot_id) is None
        assert metadata_files(inner) == reachable(inner)

    def test_a_base_that_is_old_does_not_double_the_work(self, make_table, inner, land):
        old = make_table()
        land(inner, old, append(inner, file("first"), operation=KEY))
        land(inner, old, append(inner, file("second"), operation=KEY))
        assert paths(inner) == ["first.parquet"]

    def test_other_epochs_are_other_work(self, state, inner, land):
        land(inner, state, append(inner, operation=KEY))
        cleared = dataclasses.replace(KEY, epoch=1)
        landed = land(inner, state, append(inner, operation=cleared))
        keys = [snapshot.summary[OPERATION_KEY] for snapshot in landed.metadata.snapshots]
        assert keys == [str(KEY), str(cleared)]


class TestCrash:
    """Whatever dies, wherever: the table is readable and holds the rows once, or the next try adds them."""

    @pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
    def test_around_the_swap(self, state, inner, fault, land):
        catalog = FaultyCatalog(inner, [fault])
        with pytest.raises(SimulatedCrash):
            land(catalog, state, append(catalog, operation=KEY))
        land(inner, inner.load("db.t"), append(inner, operation=KEY))
        assert len(paths(inner)) == 1
        assert len(inner.load("db.t").metadata.snapshots) == 1

    @pytest.mark.parametrize("when", [FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER])
    @pytest.mark.parametrize("skip", range(3))
    def test_at_every_metadata_file(self, state, inner, when, skip, land):
        io = inner.io
        inner.io = FaultyFileIO(io, [FileRule(call="create", fault=when, skip=skip)])
        with pytest.raises(SimulatedCrash):
            land(inner, state, append(inner, operation=KEY))
        inner.io = io
        assert inner.load("db.t").metadata.current_snapshot() is None
        land(inner, inner.load("db.t"), append(inner, operation=KEY))
        assert len(paths(inner)) == 1


class TestFailure:
    """What fails before the swap leaves the table and its folder as they were."""

    @pytest.mark.parametrize("skip", range(3))
    def test_a_store_that_refuses_a_file(self, state, inner, skip, land):
        before = metadata_files(inner)
        io = inner.io
        inner.io = FaultyFileIO(io, [FileRule(call="create", fault=FileFault.FAIL, skip=skip)])
        with pytest.raises(StorageError):
            land(inner, state, append(inner))
        inner.io = io
        assert metadata_files(inner) == before

    @pytest.mark.parametrize(
        ("is_replaced", "error", "message"),
        [(True, TableReplacedError, r"table db\.t was replaced"), (False, NotFoundError, r"db\.t")],
    )
    def test_a_table_that_was_replaced_meanwhile_or_is_gone(self, state, inner, land, is_replaced, error, message):
        action = append(inner)
        inner.drop_table("db.t")
        if is_replaced:
            Table.create(inner, "db.t", schema={"id": "long"})
        hours_ago = dataclasses.replace(state, loaded_s=-7200.0)
        with pytest.raises(error, match=message):
            land(inner, hours_ago, action)
        # If it was loaded just now, our request may have landed before that, and have been repeated on its way: not in
        # the new table, whatever became of the old one.
        with pytest.raises(TableReplacedError if is_replaced else CommitUnknownError) as raised:
            land(inner, dataclasses.replace(state, loaded_s=0.0), action)
        assert raised.value.may_have_landed
        assert not is_replaced or inner.load("db.t").metadata.current_snapshot() is None


class TestAnOldPlan:
    """A table that was loaded long ago is loaded again: what others did before the attempt raises no doubt about it."""

    def test_commits_and_expiries_of_hours_are_no_reason_to_fail(self, make_table, inner, time):
        """As a REST catalog sees it, with a log of one entry and no history back to the base."""
        old = make_table(write__metadata__previous_versions_max=1)
        action = append(inner)
        for _ in range(3):
            rival_append(inner, "db.t")
        state = inner.load("db.t")
        *expired, _ = (snapshot.snapshot_id for snapshot in state.metadata.snapshots)
        inner.commit(state, Change(updates=(RemoveSnapshots(snapshot_ids=tuple(expired)),)))
        landed = commit(inner, dataclasses.replace(old, loaded_s=-60.0), action, clock=time.clock())
        assert landed.outcome is Outcome.COMMITTED

    def test_if_it_cannot_be_loaded_the_old_state_will_do(self, state, inner, time):
        catalog = FaultyCatalog(inner, loads=[Fault.FAIL])
        landed = commit(catalog, dataclasses.replace(state, loaded_s=-60.0), append(inner), clock=time.clock())
        assert (landed.outcome, catalog.load_count) == (Outcome.COMMITTED, 1)


class TestAppendingArrow:
    """`Table.append` leaves data files only where they are, or may be, part of the table."""

    def test_after_a_definite_failure_they_are_removed(self, make_table, inner):
        make_table(commit__retry__num_retries=0)
        table = Table.load(FaultyCatalog(inner, [Fault.CONFLICT]), "db.t")
        with pytest.raises(CommitConflictError):
            table.append(pa.table({"id": [1]}))
        assert inner.io.locations("memory://warehouse/db/t/data") == ()

    def test_while_it_is_unknown_they_stay(self, make_table, inner):
        make_table(commit__status_check__num_retries=0)
        catalog = FaultyCatalog(inner, [Fault.LAND_THEN_UNKNOWN], loads=[Fault.PROCEED, Fault.FAIL])
        with pytest.raises(CommitUnknownError):
            Table.load(catalog, "db.t").append(pa.table({"id": [1]}))
        assert Table.load(inner, "db.t").scan().to_arrow()["id"].to_pylist() == [1]

    def test_what_is_not_arrow_is_refused(self, make_table, inner):
        make_table()
        with pytest.raises(InvalidInputError, match=r"expected an Arrow table, .*, got dict"):
            Table.load(inner, "db.t").append({"id": [1]})


class TestNoChange:
    """An action without updates commits nothing."""

    def test_the_pointer_stays(self, state, inner, land):
        catalog = FaultyCatalog(inner)
        landed = land(catalog, state, ChangeTable(lambda _: Change(updates=(), requirements=())))
        assert landed is state
        assert catalog.swaps == []
