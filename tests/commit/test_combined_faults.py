"""Two faults at once: an answer is lost, and before the table is read back another writer commits and expires.

Whatever the change and whatever the table still tells: the change is in the table once or not at all, what the caller
hears is true, and no file of the table is gone.
"""

import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import CommitUnknownError, IcebergError
from airflow_iceberg.table import Table
from tests.commit.test_faults import CHANGES
from tests.support.changes import NAME, Append, Compact, Expire, ids, plan
from tests.support.faults import check_whole, rows_now, world
from tests.support.memory import Fault, FaultyCatalog

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")
RIVAL_ROWS = ids(70)


class Rival:
    """Another writer, who appends and then expires all snapshots but the last; perhaps it compacts, too."""

    def __init__(self, *, compacts: bool) -> None:
        self._compacts = compacts

    def __call__(self, catalog, table):
        plan(catalog, Append("c", RIVAL_ROWS)).commit()
        if self._compacts:
            plan(catalog, Compact("a")).commit()
        plan(catalog, Expire()).commit()


def one_entry(catalog):
    """Let the log of metadata files have one entry."""
    Table.load(catalog, NAME).alter([{"set_properties": {"write.metadata.previous-versions-max": "1"}}])


@pytest.mark.parametrize("compacts", [False, True], ids=["", "compacts"])
@pytest.mark.parametrize("is_short", [False, True], ids=["long log", "short log"])
@pytest.mark.parametrize("name", CHANGES)
class TestAnotherWriterCommitsAndExpires:
    """Between our request and the moment when we read the table back."""

    @pytest.mark.parametrize(
        "fault", [Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_CONFLICT]
    )
    def test_the_change_is_made_once_or_not_at_all(self, name, is_short, compacts, fault):
        catalog, change = world(), CHANGES[name]
        if is_short:
            one_entry(catalog)
        before = rows_now(catalog)
        planned = plan(catalog, change, key=KEY)
        try:
            planned.commit(catalog=FaultyCatalog(catalog, [fault], rival=Rival(compacts=compacts)))
            outcome = "done"
        except IcebergError as error:
            outcome = "unknown" if isinstance(error, CommitUnknownError) else "failed"
        check_whole(catalog)
        found = +rows_now(catalog)
        theirs = Append("c", RIVAL_ROWS).after
        without, with_ours = +theirs(before), +theirs(change.after(before))
        has_landed = fault is not Fault.RIVAL_THEN_UNKNOWN
        allowed = {"done": [with_ours], "failed": [without], "unknown": [with_ours if has_landed else without]}
        assert found in allowed[outcome]
        assert outcome != "failed" or not has_landed


class TestWhatTheCallerHears:
    """A landed write reports its rows, also when its snapshot has expired."""

    def test_of_an_append(self):
        catalog = world()
        faulty = FaultyCatalog(catalog, [Fault.LAND_THEN_RIVAL_THEN_UNKNOWN], rival=Rival(compacts=False))
        result = Table.load(faulty, NAME).commit(plan(catalog, Append("a", ids(9)), key=KEY).action)
        assert (result.outcome, result.added_records) == (Outcome.COMMITTED, 1)
