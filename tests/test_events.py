"""Asset events of tasks and of watchers, read in one way."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_iceberg.events import table_events

BIG = 2**62 + 1
WATCHED = {
    "event": "snapshot",
    "event_id": f"u/{BIG}",
    "table": "s.t",
    "table_uuid": "u",
    "branch": "main",
    "snapshot_id": str(BIG),
    "parent_snapshot_id": None,
    "operation": "append",
    "added_records": 5,
    "partitions": ["day=1"],
    "partition_count": 1,
    "dag_id": "load",
    "run_id": "r",
    "task_id": "append",
    "operation_key": "k",
}
WRITTEN = {"table": "s.t", "snapshot_id": str(BIG), "outcome": "committed", "added_records": 5, "operation_key": "k"}


def event(extra: Any, **more: Any) -> SimpleNamespace:
    source = {"source_dag_id": None, "source_run_id": None, "source_task_id": None, "partition_key": None}
    return SimpleNamespace(extra=extra, **{**source, **more})


def watched(**changes: Any) -> SimpleNamespace:
    return event({"from_trigger": True, "payload": {**WATCHED, **changes}})


def written(**changes: Any) -> SimpleNamespace:
    source = {"source_dag_id": "load", "source_run_id": "r", "source_task_id": "append"}
    return event({**WRITTEN, **changes}, **source)


class TestOneShape:
    """Whoever fires it, an event tells the same in the same words."""

    @pytest.mark.parametrize(("fired", "is_from_watcher"), [(watched(), True), (written(), False)])
    def test_of_a_task_and_of_a_watcher(self, fired, is_from_watcher):
        (one,) = table_events([fired])
        assert (one.table, one.snapshot_id, one.added_records, one.operation_key) == ("s.t", BIG, 5, "k")
        assert (one.dag_id, one.run_id, one.task_id) == ("load", "r", "append")
        assert one.is_from_watcher is is_from_watcher

    def test_what_only_a_watcher_says(self):
        (one,) = table_events([watched()])
        assert (one.event_id, one.branch, one.operation) == (f"u/{BIG}", "main", "append")
        assert (one.partitions, one.partition_count, one.snapshot_count) == (("day=1",), 1, 1)


class TestEachSnapshotOnce:
    """An event that is fired again, or by two, is one; events of no snapshot are all there."""

    def test_it(self):
        events = [watched(), watched(), written(), written(snapshot_id="7"), written(snapshot_id="7", table="s.u")]
        assert [(one.table, one.snapshot_id) for one in table_events(events)] == [("s.t", BIG), ("s.t", 7), ("s.u", 7)]
        assert len(table_events([written(snapshot_id=None), written(snapshot_id=None)])) == 2

    def test_of_all_assets_of_a_run(self):
        one, other = watched(), watched(snapshot_id="8")
        found = table_events({"asset": [one, other], "alias": [one]})
        assert [event.snapshot_id for event in found] == [BIG, 8]


class TestTheirOrder:
    """The oldest event first, whatever order Airflow gives them in."""

    def test_by_the_time_at_which_they_were_fired(self):
        late, early = (event({**WRITTEN, "snapshot_id": n}, timestamp=datetime(2026, 1, n, tzinfo=UTC)) for n in (2, 1))
        assert [one.snapshot_id for one in table_events([late, early])] == [1, 2]


class TestOtherEvents:
    """Events that are not of tables are left out, and no value of theirs is an error."""

    @pytest.mark.parametrize(
        "extra", [None, {}, {"table": 5}, {"from_trigger": True, "payload": "x"}, {"payload": {"table": "s.t"}}, "text"]
    )
    def test_are_none(self, extra):
        assert table_events([event(extra)]) == []

    @pytest.mark.parametrize("value", ["x", "9" * 9999, "１", True, 1.5, [], None])
    def test_values_that_are_no_ids(self, value):
        assert table_events([watched(snapshot_id=value, partitions=value)])[0].snapshot_id is None
