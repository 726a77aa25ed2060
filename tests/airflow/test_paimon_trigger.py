"""PaimonSnapshotTrigger by itself: its serialized form, its events, and a triggerer that is started anew."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.retries import from_event
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from airflow_iceberg.triggers.paimon import PaimonSnapshotTrigger
from tests.airflow.paimon_lake import CONN_ID, PaimonLake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaimonLake:
    made = PaimonLake(tmp_path / "warehouse")
    made.write("a")
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(made.connection))
    return made


def trigger(**options: Any) -> PaimonSnapshotTrigger:
    return PaimonSnapshotTrigger(**{"table": "db.t", "paimon_conn_id": CONN_ID, "poll_interval": 0.05, **options})


async def first(made: PaimonSnapshotTrigger) -> Any:
    async for event in made.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


class TestItsSerializedForm:
    """Airflow keeps it in its database and makes the trigger again from it, perhaps elsewhere."""

    EVERYTHING: Any = {
        **{"branch": "b", "seen": {"snapshot_id": str(2**62), "identity": "x", "new_records": 3}, "after_ms": 5},
        **{"commit_kinds": ("APPEND",), "min_watermark": 1, "min_new_records": 2, "partition": {"dt": "2026-01-01"}},
        **{"tag": "t", "fully_compacted": True, "wait_for_table": True},
    }

    def test_makes_an_equal_trigger(self) -> None:
        path, kwargs = trigger(**self.EVERYTHING).serialize()
        assert path == f"{PaimonSnapshotTrigger.__module__}.PaimonSnapshotTrigger"
        again = PaimonSnapshotTrigger(**json.loads(json.dumps(kwargs)))
        assert again.serialize() == (path, kwargs)
        assert again.condition == trigger(**self.EVERYTHING).condition

    def test_has_all_that_it_was_given(self) -> None:
        _, kwargs = trigger(**self.EVERYTHING).serialize()
        assert {name: kwargs[name] for name in self.EVERYTHING} == {**self.EVERYTHING, "commit_kinds": ["APPEND"]}


class TestItsEvent:
    """One event: the snapshot, what was seen and has to be kept, or the error that made waiting pointless."""

    def test_is_the_snapshot_and_what_was_seen(self, lake: PaimonLake, run_async: Callable) -> None:
        event = run_async(first(trigger()))
        assert (event["status"], event["event"]["snapshot_id"], event["seen"]["snapshot_id"]) == ("found", "1", "1")
        assert json.loads(json.dumps(event)) == event

    @pytest.mark.parametrize(
        ("options", "kind"),
        [({"branch": "nothing"}, NotFoundError), ({"partition": {"x": 1}}, InvalidInputError)],
    )
    def test_or_the_error(self, options: dict, kind: type, lake: PaimonLake, run_async: Callable) -> None:
        assert isinstance(from_event(run_async(first(trigger(**options)))), kind)

    def test_or_how_far_it_came_before_that_expires(self, lake: PaimonLake, run_async: Callable) -> None:
        for name in "bcd":
            lake.write(name)
        event = run_async(first(trigger(seen={"snapshot_id": "1"}, commit_kinds=["COMPACT"])))
        assert (event["status"], event["seen"]["snapshot_id"]) == ("moved", "4")


class TestATriggererThatIsStartedAnew:
    """The trigger is made again from its serialized form and misses nothing."""

    def test_what_was_committed_in_between_is_found(self, lake: PaimonLake, run_async: Callable) -> None:
        made = trigger(seen={"snapshot_id": "1"}, min_new_records=2)

        async def interrupted() -> None:
            lake.write("b")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(first(made), 0.5)

        run_async(interrupted())
        lake.write("c")
        _, kwargs = made.serialize()
        event = run_async(first(PaimonSnapshotTrigger(**kwargs)))["event"]
        assert (event["snapshot_id"], event["new_records"]) == ("3", 2)


class TestTheEventLoop:
    """Many triggers share it: nothing that reads may run on it."""

    def test_is_free_while_the_store_is_slow(self, lake: PaimonLake, run_beside: Callable) -> None:
        assert run_beside(FsspecFileIO, "read", first(trigger()))["status"] == "found"
