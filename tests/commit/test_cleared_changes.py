"""A person clears a task that overwrites: the rows of its earlier run go, those that it carried over stay."""

import dataclasses
from collections import Counter

import pytest

from airflow_iceberg.commit.operation_key import OperationKey, find_landed
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    Compact,
    CopyOnWriteDelete,
    DynamicOverwrite,
    Overwrite,
    RewriteAllManifests,
    ids,
    make_table,
    plan,
    rows_of,
)
from tests.support.memory import MemoryCatalog

FIRST = OperationKey(dag_id="d", run_id="r", task_id="t", run_after_ms=0, started_ms=0)
CLEARED = dataclasses.replace(FIRST, epoch=1)


@pytest.fixture(params=[1, 2, 3])
def catalog(request):
    catalog = MemoryCatalog()
    make_table(catalog, request.param)
    plan(catalog, Append("a", ids(1, 2))).commit()
    return catalog


class TestTheEarlierRunsRowsGo:
    """They are swapped for the new ones in one commit, wherever the new ones go."""

    @pytest.mark.parametrize("change", [Overwrite, DynamicOverwrite])
    def test_an_overwrite_that_came_out_elsewhere(self, catalog, change, caplog):
        caplog.set_level("INFO", "airflow_iceberg.commit")
        plan(catalog, change("b", ids(5)), key=FIRST).commit()
        assert caplog.messages == []
        plan(catalog, change("c", ids(6)), key=CLEARED).commit()
        assert rows_of(catalog) == Counter([("a", 1), ("a", 2), ("c", 6)])
        (line,) = caplog.messages
        assert "replaced those of its earlier run: 1 row in 1 data file, committed in snapshot " in line

    def test_an_append_that_became_an_overwrite(self, catalog):
        plan(catalog, Append("b", ids(5)), key=FIRST).commit()
        plan(catalog, Overwrite("c", ids(6)), key=CLEARED).commit()
        assert rows_of(catalog) == Counter([("a", 1), ("a", 2), ("c", 6)])

    def test_rows_that_were_overwritten_by_another_task_are_gone_for_good(self, catalog):
        other = dataclasses.replace(FIRST, task_id="other")
        plan(catalog, Append("b", ids(5)), key=FIRST).commit()
        plan(catalog, Overwrite("b", ids(7)), key=other).commit()
        plan(catalog, Append("b", ids(5)), key=CLEARED).commit()
        assert rows_of(catalog)["b", 5] == rows_of(catalog)["b", 7] == 1

    def test_rows_that_were_compacted_with_others_cannot_be_told(self, catalog):
        plan(catalog, Append("a", ids(5)), key=FIRST).commit()
        plan(catalog, Compact("a")).commit()
        with pytest.raises(IncompatibleChangeError, match="rewrote its files together with other rows"):
            plan(catalog, Append("a", ids(5)), key=CLEARED).commit()


class TestCarriedRowsStay:
    """Files that a delete by copy-on-write wrote hold the rows of others."""

    def test_after_a_clear(self, catalog):
        plan(catalog, CopyOnWriteDelete(ids(1)), key=FIRST).commit()
        plan(catalog, CopyOnWriteDelete(ids(1)), key=CLEARED).commit()
        assert rows_of(catalog) == Counter([("a", 2)])

    def test_after_it_became_an_append(self, catalog):
        plan(catalog, CopyOnWriteDelete(ids(1)), key=FIRST).commit()
        plan(catalog, Append("b", ids(3)), key=CLEARED).commit()
        assert rows_of(catalog) == Counter([("a", 2), ("b", 3)])


class TestTheSameTry:
    """Whatever the change: a second process with the same key finds it done."""

    @pytest.mark.parametrize(
        "change", [Overwrite("a", ids(9)), DynamicOverwrite("a", ids(9)), CopyOnWriteDelete(ids(1))]
    )
    def test_it_lands_once(self, catalog, change):
        one, two = plan(catalog, change, key=FIRST), plan(catalog, change, key=FIRST, try_number=2)
        one.commit()
        state = two.commit()
        assert find_landed(state.metadata, FIRST, "main").snapshot_id == one.snapshot_id
        assert len(Table.load(catalog, NAME).snapshots()) == 2

    @pytest.mark.parametrize("change", [Append("b", ids(9)), Overwrite("a", ids(9)), RewriteAllManifests()])
    def test_a_process_that_outlived_a_clear_is_refused(self, catalog, change):
        late = plan(catalog, change, key=FIRST)
        plan(catalog, Overwrite("a", ids(8)), key=CLEARED).commit()
        with pytest.raises(IncompatibleChangeError, match="was superseded"):
            late.commit()
