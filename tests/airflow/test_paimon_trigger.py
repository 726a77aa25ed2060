"""PaimonSnapshotTrigger by itself: its serialized form, its events, and a triggerer that is started anew."""

import json
from typing import Any

import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.retries import from_event
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from airflow_iceberg.triggers import PaimonSnapshotTrigger
from tests.airflow.conftest import first_event
from tests.airflow.paimon_lake import CONN_ID, PaimonLake


@pytest.fixture
def lake(paimon_lake: PaimonLake) -> PaimonLake:
    paimon_lake.write("a")
    return paimon_lake


def trigger(**options: Any) -> PaimonSnapshotTrigger:
    return PaimonSnapshotTrigger(**{"table": "db.t", "paimon_conn_id": CONN_ID, "poll_interval": 0.05, **options})


class TestItsSerializedForm:
    """Airflow keeps it in its database and makes the trigger again from it, perhaps elsewhere."""

    EVERYTHING: Any = {
        **{"branch": "b", "seen": {"snapshot_id": str(2**62), "identity": "x", "new_records": 3}, "after_ms": 5},
        **{"commit_kinds": ("APPEND",), "min_watermark": 1, "min_new_records": 2, "partition": {"dt": "2026-01-01"}},
        **{"tag": "t", "fully_compacted": True, "wait_for_table": True},
    }

    def test_makes_an_equal_trigger(self):
        path, kwargs = trigger(**self.EVERYTHING).serialize()
        assert path == f"{PaimonSnapshotTrigger.__module__}.PaimonSnapshotTrigger"
        assert {name: kwargs[name] for name in self.EVERYTHING} == {**self.EVERYTHING, "commit_kinds": ["APPEND"]}
        again = PaimonSnapshotTrigger(**json.loads(json.dumps(kwargs)))
        assert again.serialize() == (path, kwargs)
        assert again.condition == trigger(**self.EVERYTHING).condition


class TestItsEvent:
    """One event: the snapshot, what was seen and has to be kept, or the error that made waiting pointless."""

    def test_is_the_snapshot_and_what_was_seen(self, lake):
        event = first_event(trigger())
        assert (event["status"], event["event"]["snapshot_id"], event["seen"]["snapshot_id"]) == ("found", "1", "1")
        assert json.loads(json.dumps(event)) == event

    @pytest.mark.parametrize(
        ("options", "kind"), [({"branch": "nothing"}, NotFoundError), ({"partition": {"x": 1}}, InvalidInputError)]
    )
    def test_or_the_error(self, options, kind, lake):
        assert isinstance(from_event(first_event(trigger(**options))), kind)

    def test_or_how_far_it_came_before_that_expires(self, lake):
        for name in "bcd":
            lake.write(name)
        event = first_event(trigger(seen={"snapshot_id": "1"}, commit_kinds=["COMPACT"]))
        assert (event["status"], event["seen"]["snapshot_id"]) == ("moved", "4")


class TestATriggererThatIsStartedAnew:
    """The trigger is made again from its serialized form and misses nothing."""

    def test_what_was_committed_in_between_is_found(self, lake):
        made = trigger(seen={"snapshot_id": "1"}, min_new_records=2)
        lake.write("b")
        with pytest.raises(TimeoutError):
            first_event(made, timeout=0.5)
        lake.write("c")
        _, kwargs = made.serialize()
        event = first_event(PaimonSnapshotTrigger(**kwargs))["event"]
        assert (event["snapshot_id"], event["new_records"]) == ("3", 2)


class TestTheEventLoop:
    """Many triggers share it: nothing that reads may run on it."""

    def test_is_free_while_the_store_is_slow(self, lake, event_beside):
        assert event_beside(FsspecFileIO, "read", trigger())["status"] == "found"
