"""Two faults at once: an answer is lost, and before the table is read back another writer commits and expires.

Whatever the change, the catalog and what the table still tells: the change is in the table once or not at all, what the
caller hears is true, and no file of the table is gone.
"""

from contextlib import suppress

import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    StorageError,
)
from airflow_iceberg.retries import is_final
from airflow_iceberg.table import Table
from tests.commit.test_faults import CHANGES
from tests.commit.test_faults_of_metadata import CHANGES as CHANGES_OF_METADATA
from tests.support.changes import NAME, Append, Compact, Expire, arrow, ids, plan
from tests.support.faults import RemoteFileIO, check_whole, new_catalog, rows_now, world
from tests.support.memory import Fault, FaultyCatalog, FileFault, FileRule

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")
RIVAL_ROWS = ids(70)
LANDED = Fault.LAND_THEN_RIVAL_THEN_UNKNOWN
FAULTS = [LANDED, Fault.RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_CONFLICT]


class Rival:
    """Another writer, who appends and then expires all snapshots but the last; perhaps it compacts, too."""

    def __init__(self, *, compacts: bool = False) -> None:
        self._compacts = compacts

    def __call__(self, catalog, table):
        plan(catalog, Append("c", RIVAL_ROWS)).commit()
        if self._compacts:
            plan(catalog, Compact("a")).commit()
        plan(catalog, Expire()).commit()


class ServerCatalog(FaultyCatalog):
    """A catalog that chooses the names of metadata files itself, so that a client cannot look for its own."""

    rules_out_echoes = True
    _last = ("", b"")

    def swap_pointer(self, table, *, expected, new):
        self._last = new, self.io.read(new)
        return super().swap_pointer(table, expected=expected, new=new)

    def commit(self, base, change):
        try:
            return super().commit(base, change)
        except (CommitConflictError, CommitUnknownError) as error:
            error.metadata_location = None
            # A client deletes no file of a server's.
            with suppress(AlreadyExistsError):
                self.io.create(*self._last)
            raise


class InterruptedFileIO(RemoteFileIO):
    """A store whose connection breaks when a version is created; the other writer's does not.

    Args:
        lands: whether the version is created.
        rival: called then.
    """

    def __init__(self, inner, *, lands, rival):
        super().__init__(inner)
        self._lands, self._rival = lands, rival

    def create(self, location, data):
        rival, name = self._rival, location.rpartition("/")[2]
        if rival is None or not name.endswith("metadata.json"):
            super().create(location, data)
            return
        self._rival = None
        if self._lands:
            super().create(location, data)
        rival()
        self.rules.append(FileRule(call="read", fault=FileFault.FAIL, matching=name))
        raise StorageError(f"cannot create {location}: the connection was closed")


def interrupted(catalog, kind, fault, rival):
    """Return the same catalog, which goes wrong at the first commit."""
    if kind == "hadoop":
        io = InterruptedFileIO(catalog.io.inner, lands=fault is LANDED, rival=lambda: rival(catalog, NAME))
        return new_catalog(kind, io)
    return (ServerCatalog if kind == "server" else FaultyCatalog)(catalog, [fault], rival=rival)


def start(kind, *, is_short):
    """Return a catalog with the table; its log of metadata files may have one entry."""
    catalog = world("hadoop" if kind == "hadoop" else "pointer")
    if is_short:
        Table.load(catalog, NAME).alter([{"set_properties": {"write.metadata.previous-versions-max": "1"}}])
    return catalog


def attempt(run):
    """Return how a commit ended, and whether Airflow would try it again."""
    try:
        run()
    except IcebergError as error:
        return "unknown" if isinstance(error, CommitUnknownError) else "failed", not is_final(error)
    return "done", False


CASES = [
    (kind, fault)
    for kind in ("pointer", "server", "hadoop")
    for fault in FAULTS
    # A store finds the echo of its own request by its content.
    if (kind, fault) != ("hadoop", Fault.LAND_THEN_RIVAL_THEN_CONFLICT)
]
KINDS = pytest.mark.parametrize(("kind", "fault"), CASES, ids=[f"{kind}-{fault.name}" for kind, fault in CASES])
LOGS = pytest.mark.parametrize("is_short", [False, True], ids=["long log", "short log"])


@pytest.mark.sample(9)
@KINDS
@LOGS
@pytest.mark.parametrize("compacts", [False, True], ids=["appends", "compacts"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_made_once_or_not_at_all(name, compacts, is_short, kind, fault):
    catalog, change = start(kind, is_short=is_short), CHANGES[name]
    before = rows_now(catalog)
    planned, rival = plan(catalog, change, key=KEY), Rival(compacts=compacts)
    has_landed = fault is not Fault.RIVAL_THEN_UNKNOWN
    outcome, is_retried = attempt(lambda: planned.commit(catalog=interrupted(catalog, kind, fault, rival)))
    assert outcome != "unknown" or not (has_landed and is_retried)
    check_whole(catalog)
    found = +rows_now(catalog)
    theirs = Append("c", RIVAL_ROWS).after
    without, with_ours = +theirs(before), +theirs(change.after(before))
    allowed = {"done": [with_ours], "failed": [without], "unknown": [with_ours if has_landed else without]}
    assert found in allowed[outcome]
    if has_landed:
        assert outcome == "done" or (outcome == "unknown" and is_short)


@pytest.mark.sample(9)
@KINDS
@LOGS
@pytest.mark.parametrize("name", CHANGES_OF_METADATA)
def test_a_change_of_the_table_undoes_no_later_commit(name, is_short, kind, fault):
    """Else a rollback whose answer was lost is applied again, and removes the append that came after it."""
    catalog = start(kind, is_short=is_short)
    outcome, _ = attempt(lambda: CHANGES_OF_METADATA[name](interrupted(catalog, kind, fault, Rival())))
    check_whole(catalog)
    has_landed = fault is not Fault.RIVAL_THEN_UNKNOWN
    assert not has_landed or outcome != "failed"
    if has_landed:
        assert rows_now(catalog)["c", 70] == 1


def roll_back_and_pick(catalog, name):
    """Take the newest commit back, append, pick it again, and expire it: its rows have another snapshot."""
    table = Table.load(catalog, name)
    newest = table.current_snapshot()
    table.set_current_snapshot(newest.parent_snapshot_id)
    plan(catalog, Append("c", RIVAL_ROWS)).commit()
    Table.load(catalog, name).cherry_pick(newest.snapshot_id)
    plan(catalog, Expire(retain_last=100)).commit()


@pytest.mark.parametrize("is_copied", [False, True], ids=["key not copied", "key copied"])
@pytest.mark.parametrize("key", [None, KEY], ids=["no key", "key"])
@LOGS
@pytest.mark.parametrize(("kind", "fault"), [case for case in CASES if case[1] is not Fault.RIVAL_THEN_UNKNOWN])
def test_rows_that_were_picked_by_another_writer_are_not_added_again(
    kind, fault, is_short, key, is_copied, monkeypatch
):
    if not is_copied:  # as Java does
        monkeypatch.setattr("airflow_iceberg.commit.actions.cherry_pick.PUBLISHED_OPERATION_KEY", "not-copied")
    catalog = start(kind, is_short=is_short)
    planned = plan(catalog, CHANGES["append"], key=key)
    before = rows_now(catalog)
    outcome, _ = attempt(lambda: planned.commit(catalog=interrupted(catalog, kind, fault, roll_back_and_pick)))
    assert outcome in ("done", "unknown")
    check_whole(catalog)
    assert rows_now(catalog) == CHANGES["append"].after(Append("c", RIVAL_ROWS).after(before))


def test_nor_by_the_next_try(monkeypatch):
    monkeypatch.setattr("airflow_iceberg.commit.actions.cherry_pick.PUBLISHED_OPERATION_KEY", "not-copied")
    catalog = start("pointer", is_short=False)
    before, now_ms = rows_now(catalog), Table.load(catalog, NAME).metadata.last_updated_ms + 1
    key = OperationKey(
        dag_id="d", run_id="r", task_id="t", installation="i", epoch=10**14, started_ms=now_ms, run_after_ms=now_ms
    )
    rows = arrow([("a", 9)])
    Table.load(catalog, NAME).append(rows, operation_key=key)
    roll_back_and_pick(catalog, NAME)
    Table.load(catalog, NAME).append(rows, operation_key=key)
    check_whole(catalog)
    assert rows_now(catalog) == Append("a", ids(9)).after(Append("c", RIVAL_ROWS).after(before))


def test_the_history_tells_where_older_metadata_cannot_be_read():
    """Some servers give access to data files only, and many tables delete old metadata."""

    def rival(inner, table):
        for row in (70, 71):
            plan(inner, Append("c", ids(row))).commit()
        inner.io.delete([location for _, location in inner.load(NAME).metadata.metadata_log])

    catalog = start("server", is_short=False)
    before = rows_now(catalog)
    planned = plan(catalog, CHANGES["append"], key=KEY)
    planned.commit(catalog=ServerCatalog(catalog, [Fault.RIVAL_THEN_UNKNOWN], rival=rival))
    check_whole(catalog)
    assert rows_now(catalog) == CHANGES["append"].after(Append("c", ids(70, 71)).after(before))


class TestWhatTheCallerHears:
    """A landed write reports its rows, also when its snapshot has expired."""

    @pytest.mark.parametrize("kind", ["pointer", "server", "hadoop"])
    def test_of_an_append(self, kind):
        catalog = start(kind, is_short=False)
        table = Table.load(interrupted(catalog, kind, LANDED, Rival()), NAME)
        result = table.commit(plan(catalog, Append("a", ids(9)), key=KEY).action)
        assert (result.outcome, result.added_records) == (Outcome.COMMITTED, 1)

    @pytest.mark.parametrize("kind", ["server", "hadoop"])
    def test_of_the_same_work_that_another_process_has_done(self, kind):
        """A try that outlived its worker lands, and expires before ours, whose answer was lost, is read back."""

        def other_try(inner, table):
            plan(inner, Append("a", ids(9)), key=KEY).commit()
            Rival()(inner, table)

        catalog = start(kind, is_short=False)
        before = rows_now(catalog)
        table = Table.load(interrupted(catalog, kind, Fault.RIVAL_THEN_UNKNOWN, other_try), NAME)
        assert table.commit(plan(catalog, Append("a", ids(9)), key=KEY).action).outcome is Outcome.FOUND
        check_whole(catalog)
        assert rows_now(catalog) == Append("c", RIVAL_ROWS).after(Append("a", ids(9)).after(before))
